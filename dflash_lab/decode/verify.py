"""The accept rule: the only place that decides how much of a draft is kept.

Greedy: the longest prefix equal to the target's argmax. Tree: the way from the anchor along children that equal the
target's own choice, its argmax or its sample (exact at any temperature). Sampling a chain: token x is accepted with
probability min(1, p(x)/q(x)); on rejection the target's token is drawn from max(p - q, 0), normalised (Leviathan et
al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). Everything stays on the device: no synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dflash_lab.decode.sampling import Sampler
from dflash_lab.drafters.protocol import Draft


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kept [k + 1]`` (bool), the verified rows that become text, the anchor's first, and ``choices [k + 1]``, the
    target's own token after each row.

    Greedy: every choice is the argmax. Sampling a tree: every choice is a sample. Sampling a chain: accepted tokens,
    then the bonus; entries behind it, which no sample was drawn for, are the target's most probable tokens.
    """

    kept: torch.Tensor
    choices: torch.Tensor

    @property
    def accepted(self) -> torch.Tensor:
        """Drafted tokens that were accepted, a 0-dim tensor."""
        return self.kept.sum() - 1


def verify(draft: Draft, logits: torch.Tensor, sampler: Sampler) -> Verdict:
    """Judge ``draft`` (k tokens) against the target's ``logits [k + 1, V]``."""
    if draft.tree is not None:
        choices = sampler.choose(logits)
        agrees = F.pad(draft.ids == choices[draft.tree.parents], (1, 0), value=True)
        return Verdict(~(draft.tree.sees & ~agrees).any(-1), choices)
    if sampler.greedy:
        choices = logits.argmax(-1)
        return Verdict(_rows(_prefix(draft.ids == choices[:-1]), len(choices)), choices)
    return _verify_sampling(draft, logits, sampler)


def _verify_sampling(draft: Draft, logits: torch.Tensor, sampler: Sampler) -> Verdict:
    p = sampler.probs(logits)  # [k + 1, V]
    k = draft.ids.shape[0]
    if k == 0:
        return Verdict(torch.ones(1, dtype=torch.bool, device=logits.device), sampler.draw(p))
    ids = draft.ids[:, None]
    p_draft = p[:k].gather(-1, ids)[:, 0]
    q_draft = torch.ones_like(p_draft) if draft.probs is None else draft.probs.gather(-1, ids)[:, 0].to(p.dtype)
    accepted = _prefix(sampler.uniform(p_draft) * q_draft < p_draft)

    # Row `accepted` gives the bonus: from p itself when all were accepted, else from max(p - q, 0).
    q = torch.zeros_like(p)
    if draft.probs is None:
        q[:k].scatter_(-1, ids, 1.0)
    else:
        q[:k] = draft.probs
    row = accepted[None]
    p_row, q_row = p.index_select(0, row), q.index_select(0, row)
    residual = (p_row - q_row).clamp_min(0)
    mass = residual.sum(-1, keepdim=True)
    # Rounding can leave no mass when p and q agree everywhere: then p is the right distribution.
    bonus = sampler.draw(torch.where(mass > 0, residual, p_row))

    slots = torch.arange(k + 1, device=logits.device)
    padded = torch.cat([draft.ids, draft.ids.new_zeros(1)])
    choices = torch.where(slots < accepted, padded, logits.argmax(-1))
    return Verdict(_rows(accepted, k + 1), torch.where(slots == accepted, bonus, choices))


def _prefix(agrees: torch.Tensor) -> torch.Tensor:
    """Length of the leading run of True, as a 0-dim tensor."""
    return agrees.long().cumprod(0).sum()


def _rows(accepted: torch.Tensor, count: int) -> torch.Tensor:
    """The anchor's row and the ``accepted`` ones behind it, as flags ``[count]``."""
    return torch.arange(count, device=accepted.device) <= accepted
