"""What the Config page asks the worker: judge some configs by replay, recording the prompts first where needed.

Nothing here imports torch until the worker calls it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.errors import LabError
from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.pairs import PairSpec
from dflash_lab.paths import cache_dir, write_whole
from dflash_lab.prompts import Prompt, load_prompts
from dflash_lab.tasks import load_pair

if TYPE_CHECKING:
    from dflash_lab.cost import Costs
    from dflash_lab.paired import Paired
    from dflash_lab.pairs import Pair
    from dflash_lab.trace import Trace
    from dflash_lab.whatif import Effect, WhatIf

PER_KIND = 2
"""Prompts of each kind that edits are judged on, unless somebody asks for another number."""

PROMPT_TOKENS = 80
"""Tokens taken for a prompt of the lab's set, template included, where no tokenizer is loaded yet."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts a page judges on, and how many tokens of the target's text after each."""

    prompts: tuple[Prompt, ...]
    max_new_tokens: int = 64

    @classmethod
    def of_each_kind(cls, count: int = PER_KIND) -> Self:
        """The first ``count`` prompts of every kind of the lab's own set."""
        by_kind: dict[str, list[Prompt]] = {}
        for prompt in load_prompts():
            by_kind.setdefault(prompt.kind, []).append(prompt)
        return cls(tuple(prompt for prompts in by_kind.values() for prompt in prompts[:count]))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A prompt set that is on disk for a pair: its size in bytes."""

    prompts: int
    max_new_tokens: int
    bytes: int


def recorded(spec: PairSpec, chosen: PromptSet) -> Recorded | None:
    """What was recorded for this pair and prompt set; None when an edit would have to record first."""
    try:
        return Recorded(**json.loads(_mark(spec, chosen).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def about_bytes(spec: PairSpec, config: DrafterConfig, chosen: PromptSet) -> int:
    """About how much the recordings will take, before anything is loaded (16-bit states of every layer)."""
    layers = (config.num_target_layers or 1 + max(config.target_layer_ids or (0,))) + 1
    positions = len(chosen.prompts) * (PROMPT_TOKENS + chosen.max_new_tokens + 16)
    return layers * positions * config.hidden_size * (4 if spec.dtype == "float32" else 2)


def _mark(spec: PairSpec, chosen: PromptSet) -> Path:
    kinds = "-".join(sorted({p.kind for p in chosen.prompts}))
    return cache_dir() / "recordings" / f"{spec.name}-{len(chosen.prompts)}-{kinds}-{chosen.max_new_tokens}.json"


@dataclass(frozen=True, slots=True)
class Judged:
    """Configs judged on the same texts at one K. ``refused`` holds the sentence of those that cannot run.

    ``against[name]`` is the paired difference of acceptance lengths, edited minus ``name``; ``seconds`` the time
    from the edit's arrival in the worker to its acceptance, recordings apart.
    """

    pair: str
    device: str
    dtype: str
    k: int
    max_new_tokens: int
    kinds: tuple[str, ...]
    configs: Mapping[str, str]
    effects: Mapping[str, Effect]
    refused: Mapping[str, str]
    against: Mapping[str, Paired]
    seconds: float
    recording_bytes: int

    def answers(self, configs: Sequence[tuple[str, str]], k: int, chosen: PromptSet) -> bool:
        """Whether this is the judgement of these configs at this K on these prompts."""
        return (dict(configs), k, len(chosen.prompts)) == (dict(self.configs), self.k, len(self.kinds))

    def tok_s(self, name: str, costs: Costs | None) -> float | None:
        """Predicted decode throughput: acceptance length over the measured round time at this K."""
        step = costs.step(self.k) if costs else None
        effect = self.effects.get(name)
        length = effect.summary.acceptance_length if effect else None
        return 1e3 * length / step.round_ms if step and length else None


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """Judge ``configs`` (name -> JSON text; "edited" is compared with the others) at ``k``; the result is a Judged.

    A cancelled task keeps the prompts it has recorded by then.
    """

    pair: str
    configs: tuple[tuple[str, str], ...]
    k: int
    prompt_set: PromptSet

    def __call__(self, job: Job, slot: ModelSlot) -> Judged | None:
        """Judge. Raises LabError when the pair cannot be loaded."""
        pair = load_pair(self.pair, job, slot)
        from dflash_lab.store.collect import from_judged, remember

        bench = self._bench(pair, job, slot)
        if bench is None:
            return None
        started = time.perf_counter()
        effects: dict[str, Effect] = {}
        refused: dict[str, str] = {}
        seconds = 0.0
        for n, (name, text) in enumerate(self.configs):

            def watch(share: float, n: int = n, name: str = name) -> bool:
                done = round(100 * (n + share))
                return job.report(done, 100 * len(self.configs), f"Replaying the config: {name}")

            try:
                effects[name] = bench.effect(DrafterConfig.from_json(json.loads(text)), self.k, watch)
            except LabError as error:
                refused[name] = str(error)
            if job.cancelled:
                return None
            seconds = seconds or time.perf_counter() - started
        judged = Judged(
            pair=pair.spec.name,
            device=str(pair.device),
            dtype=str(pair.dtype).removeprefix("torch."),
            k=self.k,
            max_new_tokens=self.prompt_set.max_new_tokens,
            kinds=tuple(p.kind for p in self.prompt_set.prompts),
            configs=dict(self.configs),
            effects=effects,
            refused=refused,
            against=_against(effects),
            seconds=seconds,
            recording_bytes=sum(r.states.nbytes for r in bench.replay.recordings),
        )
        remember(from_judged(self, judged, pair, job.id))
        return judged

    def _bench(self, pair: Pair, job: Job, slot: ModelSlot) -> WhatIf | None:
        """The recorded prompt set, made on first use and kept beside the pair; None when cancelled."""
        from dflash_lab.whatif import WhatIf, record_prompts, recording_size

        chosen = self.prompt_set
        prompts = [p.prompt for p in chosen.prompts]

        def make() -> WhatIf | None:
            size = f"{recording_size(pair, prompts, chosen.max_new_tokens) / 1e6:.0f} MB at most"

            def progress(share: float, text: str) -> bool:
                return job.report(round(1000 * share), 1000, f"{text} ({size})")

            recordings = record_prompts(pair, prompts, chosen.max_new_tokens, progress)
            if recordings is None:
                return None
            size_now = sum(r.states.nbytes for r in recordings)
            mark = Recorded(len(prompts), chosen.max_new_tokens, size_now)
            with contextlib.suppress(OSError):  # without the mark a restarted page asks before it records
                write_whole(_mark(pair.spec, chosen), json.dumps(asdict(mark)))
            return WhatIf(pair, recordings)

        return slot.beside(("what-if", chosen), make)


def _against(effects: Mapping[str, Effect]) -> dict[str, Paired]:
    from dflash_lab.paired import compare

    edited = effects.get("edited")
    if edited is None:
        return {}
    pairs = {name: compare(effect.traces, edited.traces) for name, effect in effects.items() if name != "edited"}
    return {name: paired for name, paired in pairs.items() if paired is not None}


def rates_by_prompt(traces: Sequence[Trace], kinds: Sequence[str]) -> dict[str, list[float | None]]:
    """Unconditional acceptance rate by position, a row a prompt ("1 chat"), for a heatmap."""
    rows = {}
    for n, (trace, kind) in enumerate(zip(traces, kinds, strict=True), 1):
        rates: list[Any] = [rate.value for rate in trace.summary().per_position]
        rows[f"{n} {kind}"] = rates + [None] * (trace.k - len(rates))
    return rows
