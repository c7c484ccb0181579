"""Replay for any method: the loop itself, with a recording in the target's place.

Chains and trees of DFlash have faster replays that judge all anchors at once; every other drafter is asked round by
round, as the loop does, and the target costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch.nn import functional as F

from dflash_lab.decode.loop import Settings, run
from dflash_lab.drafters.method import Method
from dflash_lab.drafters.protocol import Drafter, Tree
from dflash_lab.recording import Recording
from dflash_lab.replay import Replay
from dflash_lab.trace import Trace, bare, strip_times
from dflash_lab.tree_replay import replay_trees

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.decode.target import Target
    from dflash_lab.pairs import Pair

Watch = Callable[[str], bool]
"""(what is replayed next) -> go on?"""


class RecordedTarget:
    """Answers every pass from a recording; rows that its text does not reach say token 0, and are never read."""

    context_length: int | None = None

    def __init__(self, target: Target, recording: Recording) -> None:
        self.recording = recording
        self.vocab_size, self.device, self.dtype = target.vocab_size, target.device, target.dtype
        self.ids = torch.tensor(recording.ids, device=target.device)

    def open(self, capacity: int, taps: Sequence[int] = ()) -> RecordedRun:
        """Start at the first token of the prompt."""
        return RecordedRun(self, taps)


class RecordedRun:
    """A run on a RecordedTarget: nothing but how far it has come."""

    def __init__(self, target: RecordedTarget, taps: Sequence[int]) -> None:
        self.target, self.taps, self.length = target, taps, 0

    def forward(self, ids: torch.Tensor, last_only: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Take ``ids [n]`` behind the text so far; shapes as in ``TargetRun.forward``."""
        places = torch.arange(self.length, self.length + len(ids), device=ids.device)
        self.length += len(ids)
        logits, taps = self._rows(places)
        return logits[-1:] if last_only else logits, taps

    def verify(self, block: torch.Tensor, tree: Tree | None = None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The text's own rows where the block's tokens stand."""
        depths = torch.arange(len(block), device=block.device) if tree is None else tree.depths
        return self._rows(self.length + depths)

    def keep(self, block: torch.Tensor, rows: Sequence[int]) -> bool:
        """``rows`` of the block became text."""
        self.length += len(rows)
        return False

    def _rows(self, places: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """One-hot logits ``[n, V]`` and taps ``[n, H]`` at ``places``."""
        recording, ids = self.target.recording, self.target.ids
        following = ids[(places + 1).clamp_max(len(ids) - 1)]
        following = following.masked_fill(places + 1 >= len(ids), 0)
        there = places.clamp_max(recording.states.shape[1] - 1)
        logits = F.one_hot(following, self.target.vocab_size).to(torch.float32)
        return logits, [recording.rows(tap)[there] for tap in self.taps]


def replay_methods(
    pair: Pair,
    recordings: Sequence[Recording],
    drafters: Mapping[Method, Drafter | None],
    configs: Mapping[str, DrafterConfig] | None = None,
    watch: Watch | None = None,
) -> dict[Method, list[Trace]]:
    """The rounds the loop would run, greedily, one Trace per recording for every method of ``drafters``.

    The methods that were finished when ``watch`` said stop are returned. Raises LabError for a config that
    contradicts the weights.
    """
    replay = Replay(recordings)
    groups: dict[tuple[str, int, str], list[Method]] = {}
    for method in drafters:
        together = method.kind in ("dflash", "ddtree")
        groups.setdefault((method.kind, method.depth if together else method.k, method.config), []).append(method)
    found: dict[Method, list[Trace]] = {}
    for (kind, depth, config), methods in groups.items():
        if watch and not watch(methods[0].label if len(methods) == 1 else f"{methods[0].label} and its like"):
            break
        if kind in ("dflash", "ddtree"):
            stack = pair.stack((configs or {})[config] if config else None)
            ks = [method.k for method in methods]
            by_k = replay.sweep(stack, ks) if kind == "dflash" else replay_trees(replay, stack, depth, ks)
            found |= {method: by_k[method.k] for method in methods}
        else:
            for method in methods:
                found[method] = [replay_drafter(pair, r, drafters[method], method.k) for r in recordings]
    return {method: [bare(trace) for trace in found[method]] for method in drafters if method in found}


def replay_drafter(pair: Pair, recording: Recording, drafter: Drafter | None, k: int) -> Trace:
    """One drafter's rounds along one recording, from the loop itself."""
    # The loop asks of a target what RecordedTarget has, and no more.
    target = cast("Target", RecordedTarget(pair.target, recording))
    generation = run(target, drafter, recording.prompt_ids, Settings(k, recording.length, pair.stop_ids))
    list(generation)
    return replace(generation.trace("replay"), rounds=strip_times(generation.rounds), decode_s=0.0)
