"""What a round leaves for the trace, computed on the device and read back in one transfer.

Probabilities are those the accept rule compares: after temperature, top-k and top-p when sampling; the plain
softmax when greedy. ``ranks[i]`` counts the tokens the drafter held more probable than the target's choice where it
drafted token i. Facts of a tree are those of each drafted token behind its own parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from dflash_lab.decode.sampling import Sampler
from dflash_lab.decode.verify import Verdict
from dflash_lab.drafters.protocol import Draft
from dflash_lab.trace import Alternatives


@dataclass(frozen=True, slots=True)
class Evidence:
    """Host copies of one round's facts; tuples as in ``trace.Round``. ``rows`` became text, the anchor's (0) first."""

    rows: tuple[int, ...]
    drafted: tuple[int, ...]
    choices: tuple[int, ...]
    draft_probs: tuple[float, ...]
    target_probs: tuple[float, ...]
    ranks: tuple[int, ...]
    parents: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return len(self.rows) - 1

    @property
    def kept(self) -> slice | list[int]:
        """``rows`` as an index into tensors: a slice, which copies nothing, where they are the first ones."""
        return slice(0, len(self.rows)) if self.rows[-1] == self.accepted else list(self.rows)


def gather(draft: Draft, logits: torch.Tensor, verdict: Verdict, sampler: Sampler) -> Evidence:
    """Read a round back: the one device synchronisation of the loop."""
    k = draft.ids.shape[0]
    exact = torch.float64 if logits.device.type != "mps" else torch.float32
    parents = torch.arange(k, device=logits.device) if draft.tree is None else draft.tree.parents
    parts = [verdict.kept, draft.ids, verdict.choices, parents]
    if k:
        parts.append(sampler.distribution(logits)[parents, draft.ids])
        if draft.logits is not None:
            drawn = parents if draft.tree is None else draft.tree.depths[1:] - 1  # the row each token was drafted from
            parts.append(sampler.distribution(draft.logits)[drawn, draft.ids])
            bar = draft.logits[drawn, verdict.choices[parents]]
            parts.append((draft.logits[drawn] > bar[:, None]).sum(-1))
    # Token ids are below 2**24, so float32 (MPS) carries them exactly too.
    row = torch.cat([part.to(exact) for part in parts]).tolist()
    kept, ids, choices, hangs, rest = (row[a:b] for a, b in pairwise(accumulate((0, 1 + k, k, 1 + k, k, len(row)))))
    return Evidence(
        rows=tuple(i for i, flag in enumerate(kept) if flag),
        drafted=tuple(map(int, ids)),
        choices=tuple(map(int, choices)),
        target_probs=tuple(rest[:k]),
        draft_probs=tuple(rest[k : 2 * k]),
        ranks=tuple(map(int, rest[2 * k :])),
        parents=() if draft.tree is None else tuple(map(int, hangs)),
    )


def alternatives(logits: torch.Tensor | None, count: int, sampler: Sampler) -> tuple[Alternatives, ...]:
    """The ``count`` most probable tokens of every row of ``logits [n, V]``; empty for 0 or no logits."""
    if not count or logits is None or not logits.shape[0]:
        return ()
    probs = sampler.distribution(logits)
    top = probs.topk(min(count, probs.shape[-1]), dim=-1)
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(Alternatives(tuple(ids), tuple(values)) for ids, values in rows)
