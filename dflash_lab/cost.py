"""What a round costs: measured medians of draft, verify and rest by method and context, kept per pair and device.

Milliseconds are medians, not means: one slow round (a page fault, another process) should not move them. Their
spread is the interquartile range, which one slow round does not move either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from dflash_lab.drafters.method import PLAIN, Method
from dflash_lab.errors import LabError
from dflash_lab.paths import data_dir, write_whole
from dflash_lab.trace import Round, Trace

if TYPE_CHECKING:
    from dflash_lab.drafters.protocol import Drafter
    from dflash_lab.pairs import Pair

CONTEXTS = (64, 256, 1024)
ROUNDS = 8
"""Rounds timed in one pass, a first and cold one apart."""

IQR_OF_NORMAL = 1.349
MEDIAN_OVER_MEAN = 1.2533
"""Standard error of a median over that of a mean, for normal samples (the square root of pi / 2)."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Median milliseconds of one round of a method, and the rounds they rest on.

    ``context`` is the median number of tokens before the anchor. ``round_ms`` is the median of whole rounds, so it
    need not be the sum of the three. ``spreads`` are interquartile ranges, ms: draft, verify, whole round.
    """

    method: Method
    context: int
    rounds: int
    draft_ms: float
    verify_ms: float
    rest_ms: float
    round_ms: float
    spreads: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def error(self) -> float:
        """Standard error of ``round_ms`` as a share of it, from the spread of so many rounds."""
        sigma = self.spreads[2] / IQR_OF_NORMAL
        return MEDIAN_OVER_MEAN * sigma / self.rounds**0.5 / self.round_ms


@dataclass(frozen=True, slots=True)
class Costs:
    """Step costs of one pair on one device in one dtype, ordered by method and context."""

    pair: str
    device: str
    dtype: str
    steps: tuple[StepCost, ...]
    schema_version: Literal[2] = 2

    def of(self, method: Method) -> tuple[StepCost, ...]:
        """The costs of one method, by context; those of another config of the same drafter are its own."""
        own = replace(method, config="")
        return tuple(s for s in self.steps if s.method == own)

    def step(self, k: int) -> StepCost | None:
        """DFlash at ``k`` (0: the target alone) at the shortest context, None when it was not measured."""
        return next(iter(self.of(Method("dflash", k) if k else PLAIN)), None)

    def round_ms(self, method: Method, contexts: Sequence[float]) -> np.ndarray:
        """Milliseconds of a round at each of ``contexts``, between measured ones linearly, outside as the nearest.

        Raises LabError for a method that was not measured.
        """
        steps = self.of(method)
        if not steps:
            raise LabError(f"The cost of {method.label} was not measured", "Measure its step costs first")
        return np.interp(contexts, [s.context for s in steps], [s.round_ms for s in steps])

    def merged(self, newer: Costs) -> Costs:
        """These costs, with those of ``newer`` in place of all of the same methods."""
        again = {s.method for s in newer.steps}
        return replace(self, steps=ordered([*(s for s in self.steps if s.method not in again), *newer.steps]))

    def frame(self) -> pd.DataFrame:
        """One row per method and context: ``label``, ``kind``, ``k``, ``depth`` and the figures."""
        rows = [
            {
                "label": s.method.label,
                "kind": s.method.kind,
                "k": s.method.k,
                "depth": s.method.depth,
                **{name: getattr(s, name) for name in ("context", "rounds", *TIMES)},
                **dict(zip(SPREADS, s.spreads, strict=True)),
            }
            for s in self.steps
        ]
        columns = ["label", "kind", "k", "depth", "context", "rounds", *TIMES, *SPREADS]
        return pd.DataFrame(rows, columns=columns)


TIMES = ("draft_ms", "verify_ms", "rest_ms", "round_ms")
SPREADS = ("draft_spread_ms", "verify_spread_ms", "round_spread_ms")


def ordered(steps: Iterable[StepCost]) -> tuple[StepCost, ...]:
    """By method, then context."""
    return tuple(sorted(steps, key=lambda s: (s.method, s.context)))


def measured(runs: Iterable[tuple[Method, Trace]]) -> tuple[StepCost, ...]:
    """Medians by method over rounds that drafted the full K, whatever their context.

    The first round of every trace is left out: caches and kernels are still cold there, and the drafter reads the
    prompt in it.
    """
    by_method: dict[Method, list[Round]] = {}
    for method, trace in runs:
        full = [r for r in trace.rounds[1:] if len(r.drafted) == trace.k]
        by_method.setdefault(replace(method, config=""), []).extend(full)
    return ordered(_step(method, rounds) for method, rounds in by_method.items() if rounds)


def _step(method: Method, rounds: Sequence[Round]) -> StepCost:
    # [rounds, 4]
    times = 1e3 * np.array([(r.draft_s, r.verify_s, r.rest_s, r.seconds) for r in rounds])
    low, middle, high = np.percentile(times, (25, 50, 75), axis=0)
    context = int(np.median([r.anchor_position for r in rounds]))
    draft, verify, rest, whole = middle.tolist()
    spread = (high - low).tolist()
    spreads = (spread[0], spread[1], spread[3])
    return StepCost(method, context, len(rounds), draft, verify, rest, whole, spreads)


class Timer:
    """Times rounds of several methods at several contexts, a few at a time, so that other work can go between.

    The text is the lab's prompts one after the other, cut to the context; nothing stops it.
    """

    def __init__(self, pair: Pair, drafters: Mapping[Method, Drafter | None], contexts: Sequence[int]) -> None:
        from dflash_lab.prompts import load_prompts

        if not contexts or min(contexts) < 1:
            raise LabError(f"Contexts are {list(contexts)}", "Give numbers of tokens from 1")
        words = [token for prompt in load_prompts() for token in pair.encode(prompt.prompt)]
        self._text = words * (1 + max(contexts) // len(words))
        self._pair, self._drafters, self.contexts = pair, drafters, tuple(contexts)
        self._rounds: dict[tuple[Method, int], list[Round]] = {}

    def time(self, method: Method, context: int) -> None:
        """Some rounds of ``method`` behind ``context`` tokens.

        Raises LabError when they do not fit the target's context.
        """
        from dflash_lab.decode.loop import Settings, run

        limit = 2 + (ROUNDS + 1) * (method.k + 1)
        generation = run(self._pair.target, self._drafters[method], self._text[:context], Settings(method.k, limit))
        rounds = [r for _, r in zip(range(ROUNDS + 1), generation, strict=False)][1:]
        full = [r for r in rounds if len(r.drafted) == method.k]
        self._rounds.setdefault((replace(method, config=""), context), []).extend(full)

    def steps(self) -> tuple[StepCost, ...]:
        """What was timed so far."""
        return ordered(_step(method, rounds) for (method, _), rounds in self._rounds.items() if rounds)


def save_costs(costs: Costs) -> Path:
    """Merge into what is kept for this pair, device and dtype; returns the file."""
    kept = load_costs(costs.pair, costs.device, costs.dtype)
    merged = kept.merged(costs) if kept else costs
    text = TypeAdapter(Costs).dump_json(merged, indent=1).decode()
    return write_whole(_path(costs.pair, costs.device, costs.dtype), text)


def load_costs(pair: str, device: str, dtype: str) -> Costs | None:
    """The kept costs, None when nothing was measured yet.

    Raises LabError for a file that cannot be read.
    """
    path = _path(pair, device, dtype)
    try:
        return TypeAdapter(Costs).validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, LabError, OSError) as error:
        raise LabError(f"The step costs in {path} cannot be read: {error}", "Delete it and sweep again") from error


def _path(pair: str, device: str, dtype: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{pair}-{device}-{dtype}")
    return data_dir() / "costs" / f"{name}.json"
