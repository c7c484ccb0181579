"""What would another config accept? Recordings of a prompt set, and any config judged on them in a second or so."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.pairs import Pair
from dflash_lab.paths import cache_dir
from dflash_lab.recording import Recording, RecordingStore, record, recording_bytes
from dflash_lab.replay import Replay
from dflash_lab.trace import Summary, Trace, summarise

KEPT = 64
"""Effects kept in memory; an effect is some kilobytes."""

Progress = Callable[[float, str], bool]
"""(share done, text) -> go on?"""


@dataclass(frozen=True, slots=True)
class Effect:
    """A config's acceptance on the prompt set at one K: exact rounds, one Trace per prompt."""

    config: DrafterConfig
    k: int
    traces: tuple[Trace, ...]

    @property
    def summary(self) -> Summary:
        """Rates pooled over the prompts' rounds."""
        return summarise(self.traces)


class WhatIf:
    """A pair and its recorded prompt set; ``effect`` answers for any config that fits the weights."""

    def __init__(self, pair: Pair, recordings: Sequence[Recording]) -> None:
        self.pair = pair
        self.replay = Replay(recordings)
        self._effects: OrderedDict[tuple[str, int], Effect] = OrderedDict()

    def effect(self, config: DrafterConfig, k: int, watch: Callable[[float], bool] | None = None) -> Effect:
        """Replay ``config`` at ``k`` drafted tokens a round (all prompts together).

        A replay that ``watch`` stopped is returned with the rounds it has, and not remembered.

        Raises ConfigError when the config contradicts the weights or cannot run.
        """
        key = json.dumps(config.to_json(), sort_keys=True), k
        if key in self._effects:
            self._effects.move_to_end(key)
            return self._effects[key]
        stopped = False

        def seen(share: float) -> bool:
            nonlocal stopped
            stopped = watch is not None and not watch(share)
            return not stopped

        effect = Effect(config, k, tuple(self.replay.run(self.pair.stack(config), k, seen)))
        if not stopped:
            self._effects[key] = effect
            while len(self._effects) > KEPT:
                self._effects.popitem(last=False)
        return effect

    def sweep(self, config: DrafterConfig, ks: Sequence[int]) -> dict[int, Effect]:
        """One Effect for every K: a single pass when all layers are causal."""
        swept = self.replay.sweep(self.pair.stack(config), ks)
        return {k: Effect(config, k, tuple(traces)) for k, traces in swept.items()}


def recording_size(pair: Pair, prompts: Sequence[str], max_new_tokens: int) -> int:
    """Bytes the recordings of ``prompts`` take at most, for showing before they are made."""
    positions = sum(len(pair.encode(prompt)) + max_new_tokens for prompt in prompts)
    return recording_bytes(pair.target, positions)


def record_prompts(
    pair: Pair, prompts: Sequence[str], max_new_tokens: int, progress: Progress | None = None
) -> list[Recording] | None:
    """The recordings of ``prompts``, from the store where they are already there; None when stopped.

    Finished recordings are stored one by one: a stopped or failed session loses at most the prompt under way.
    """
    store = RecordingStore(cache_dir() / "recordings")
    target_key = f"{pair.target_id}@{pair.target_revision}/{str(pair.dtype).removeprefix('torch.')}"
    out = []
    for n, prompt in enumerate(prompts):
        ids = pair.encode(prompt)
        path = store.path(target_key, ids, max_new_tokens, pair.stop_ids)
        recording = store.load(path, pair.target.device)
        if recording is None:

            def on_token(done: int, asked: int, n: int = n) -> bool:
                share = (n + done / asked) / len(prompts)
                return progress is None or progress(share, f"Recording prompt {n + 1} of {len(prompts)}")

            recording = record(pair.target, ids, max_new_tokens, pair.stop_ids, progress=on_token)
            if recording is None:
                return None
            store.save(path, recording)
        out.append(recording)
    return out
