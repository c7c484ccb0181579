"""Replay of greedy trees: the rounds the loop would run at any budget, from one pass over all anchors.

The tree of a budget is the beginning, best-first, of the tree of any larger one. So an anchor needs one tree, and
what it accepts at budget B are the true tokens whose entry in it comes before B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from dflash_lab.drafters.dflash import DFlashStack
from dflash_lab.drafters.tree import grow
from dflash_lab.replay import Anchors, Replay, Watch
from dflash_lab.trace import UNKNOWN, Round, Trace

ANCHORS_AT_ONCE = 32
"""Logits of all K rows of so many anchors are held at once."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """The largest tree behind one anchor, and the entries that the text itself follows."""

    ids: tuple[int, ...]
    parents: tuple[int, ...]
    path: tuple[int, ...]

    def accepted(self, budget: int) -> int:
        return sum(entry < budget for entry in self.path)


@torch.inference_mode()
def replay_trees(
    replay: Replay, stack: DFlashStack, depth: int, budgets: Sequence[int], watch: Watch | None = None
) -> dict[int, list[Trace]]:
    """One Trace per recording for every budget, trees of ``depth`` positions; nothing when ``watch`` said stop."""
    context, anchors, grown = replay.context(stack), replay.all_anchors(), list[_Grown]()
    for low in range(0, len(anchors), ANCHORS_AT_ONCE):
        some = anchors[low : low + ANCHORS_AT_ONCE]
        rows = stack.logits(replay.proposals(stack, context, some, depth))  # [A, K, V]
        grown += [_grow(replay, some[n : n + 1], logits, max(budgets)) for n, logits in enumerate(rows)]
        if watch and not watch(min(1.0, (low + ANCHORS_AT_ONCE) / len(anchors))):
            return {}
    return {budget: _traces(replay, grown, budget) for budget in budgets}


def _grow(replay: Replay, anchor: Anchors, logits: torch.Tensor, budget: int) -> _Grown:
    tensor, tree = grow(logits, budget)
    ids, parents = tensor.tolist(), tree.parents.tolist()
    entries = {(parent, token): i for i, (parent, token) in enumerate(zip(parents, ids, strict=True))}
    text = replay.recordings[int(anchor.recording)].ids
    path: list[int] = []
    row = 0
    for token in text[int(anchor.position) + 1 :]:
        if (entry := entries.get((row, token))) is None:
            break
        path.append(entry)
        row = entry + 1
    return _Grown(tuple(ids), tuple(parents), tuple(path))


def _traces(replay: Replay, grown: Sequence[_Grown], budget: int) -> list[Trace]:
    traces, low = [], 0
    for i, recording in enumerate(replay.recordings):
        count, start = recording.length - 1, len(recording.prompt_ids)
        place, rounds = 0, []
        while place < count:
            accepted = grown[low + place].accepted(budget)
            rounds.append((start + place, accepted, grown[low + place].ids[:budget]))
            place += accepted + 1
        trace = replay.trace(i, budget, rounds)
        trees = tuple(_as_tree(r, grown[low + r.anchor_position - start], budget) for r in trace.rounds)
        traces.append(replace(trace, rounds=trees))
        low += count
    return traces


def _as_tree(r: Round, grown: _Grown, budget: int) -> Round:
    """The round with its tree; the target's choice is known behind the anchor and the accepted path only."""
    path = grown.path[: r.accepted]
    choices = [UNKNOWN] * (1 + len(r.drafted))
    for row, choice in zip((0, *(entry + 1 for entry in path)), r.choices, strict=False):
        choices[row] = choice
    return replace(r, choices=tuple(choices), parents=grown.parents[:budget], path=path)
