"""What a round leaves for the trace, computed on the device and read back in one transfer.

Probabilities are those the accept rule compares: after temperature, top-k and top-p when sampling; the plain
softmax when greedy. ``ranks[i]`` counts the tokens the drafter held more probable than the target's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dflash_lab.decode.sampling import Sampler
from dflash_lab.decode.verify import Verdict
from dflash_lab.drafters.protocol import Draft
from dflash_lab.trace import Alternatives


@dataclass(frozen=True, slots=True)
class Evidence:
    """Host copies of one round's facts; tuples as in ``trace.Round``."""

    accepted: int
    drafted: tuple[int, ...]
    choices: tuple[int, ...]
    draft_probs: tuple[float, ...]
    target_probs: tuple[float, ...]
    ranks: tuple[int, ...]


def gather(draft: Draft, logits: torch.Tensor, verdict: Verdict, sampler: Sampler) -> Evidence:
    """Read a round back: the one device synchronisation of the loop."""
    k = draft.ids.shape[0]
    exact = torch.float64 if logits.device.type != "mps" else torch.float32
    parts = [verdict.accepted[None], draft.ids, verdict.choices]
    if k:
        parts.append(token_probs(logits[:k], draft.ids, sampler))
        if draft.logits is not None:
            chosen = verdict.choices[:k, None]
            parts.append(token_probs(draft.logits, draft.ids, sampler))
            parts.append((draft.logits > draft.logits.gather(-1, chosen)).sum(-1))
    # Token ids are below 2**24, so float32 (MPS) carries them exactly too.
    row = torch.cat([part.to(exact) for part in parts]).tolist()
    ids, choices, rest = row[1 : 1 + k], row[1 + k : 2 + 2 * k], row[2 + 2 * k :]
    return Evidence(
        accepted=int(row[0]),
        drafted=tuple(map(int, ids)),
        choices=tuple(map(int, choices)),
        target_probs=tuple(rest[:k]),
        draft_probs=tuple(rest[k : 2 * k]),
        ranks=tuple(map(int, rest[2 * k :])),
    )


def token_probs(logits: torch.Tensor, ids: torch.Tensor, sampler: Sampler) -> torch.Tensor:
    """Probability ``[n]`` of one token per row of ``logits [n, V]``."""
    return _probs(logits, sampler).gather(-1, ids[:, None])[:, 0]


def _probs(logits: torch.Tensor, sampler: Sampler) -> torch.Tensor:
    if not sampler.greedy:
        return sampler.probs(logits)
    return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def alternatives(logits: torch.Tensor | None, count: int, sampler: Sampler) -> tuple[Alternatives, ...]:
    """The ``count`` most probable tokens of every row of ``logits [n, V]``; empty for 0 or no logits."""
    if not count or logits is None or not logits.shape[0]:
        return ()
    probs = _probs(logits, sampler)
    top = probs.topk(min(count, probs.shape[-1]), dim=-1)
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(Alternatives(tuple(ids), tuple(values)) for ids, values in rows)
