"""What a sweep measured, and every figure that follows: tok/s and acceptance against K, with intervals, and the best K.

Throughput at a K is pooled, all tokens over all seconds, on the *units* (prompt, repeat) that were measured at every
K, so that a sweep that was stopped early still compares like with like. Intervals are 95% percentile bootstraps over
units; the lead of one K over another is resampled in pairs, because both ran the same prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from dflash_lab.cost import Costs, StepCost, measured
from dflash_lab.drafters.method import PLAIN, Method
from dflash_lab.trace import Summary, Trace, summarise

SCHEMA_VERSION = 1
RESAMPLES = 2000
FEWEST_UNITS = 3

Unit = tuple[str, int]
"""(prompt id, repeat)"""

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One prompt at one K (0 = the target alone), once."""

    prompt: str
    kind: str
    k: int
    repeat: int
    trace: Trace

    @property
    def unit(self) -> Unit:
        """What is resampled: the prompt and which time it was."""
        return self.prompt, self.repeat


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest K and how sure that is; ``ahead`` compares with ``runner_up``, ``speed_up`` with the target alone.

    K = 0 takes part: where no draft pays, the target alone is the answer. Intervals are None below three units.
    """

    k: int
    tok_s: float
    interval: Interval
    runner_up: int | None = None
    ahead: float | None = None
    ahead_interval: Interval = None
    speed_up: float | None = None

    @property
    def is_clear(self) -> bool | None:
        """True when the lead over the runner-up is outside the noise; None when that cannot be said."""
        return None if self.ahead_interval is None else self.ahead_interval[0] > 0

    def sentence(self) -> str:
        """The verdict in words, with its interval and whether the lead is real."""
        spread = f" ({self.interval[0]:.1f} to {self.interval[1]:.1f})" if self.interval else ""
        words = f"{label(self.k)}: {self.tok_s:.1f} tok/s{spread}"
        if self.ahead is not None and self.runner_up is not None:
            noise = {True: "outside the noise", False: "inside the noise", None: "too few runs to tell from noise"}
            words += f", {self.ahead:.0%} ahead of {label(self.runner_up)}, {noise[self.is_clear]}"
        if self.k and self.speed_up is not None:
            words += f"; {self.speed_up:.2f} times the target alone"
        return words + "."


@dataclass(frozen=True, slots=True)
class Sweep:
    """The measurements of one sweep so far; everything else is worked out from them.

    ``wanted`` is the number of measurements that make it complete.
    """

    id: str
    created: str
    pair: str
    device: str
    dtype: str
    ks: tuple[int, ...]
    prompts: tuple[str, ...]
    repeats: int
    max_new_tokens: int
    wanted: int
    measurements: tuple[Measurement, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Everything asked for was measured."""
        return len(self.measurements) == self.wanted

    def at(self, k: int) -> tuple[Measurement, ...]:
        """The measurements at one K."""
        return tuple(m for m in self.measurements if m.k == k)

    def summary(self, k: int) -> Summary:
        """Pooled acceptance at one K, over all its measurements."""
        return summarise(m.trace for m in self.at(k))

    @property
    def units(self) -> tuple[Unit, ...]:
        """The (prompt, repeat) pairs that were measured at every K, baseline included."""
        seen = [{m.unit for m in self.at(k)} for k in (0, *self.ks)]
        return tuple(sorted(set.intersection(*seen)))

    def tok_s(self, k: int) -> float | None:
        """Pooled decode throughput over ``units``; None before the first unit is complete."""
        tokens, seconds = self._speed(k)
        return float(tokens.sum() / seconds.sum()) if seconds.sum() > 0 else None

    def tok_s_interval(self, k: int) -> Interval:
        """95% bootstrap interval of ``tok_s``; None below three units."""
        return percentiles(self._resampled(k))

    def frame(self) -> pd.DataFrame:
        """One row per K, the target alone as K = 0: tok/s and AL with intervals, counts and median milliseconds."""
        steps = {s.method.k: s for s in self.steps()}
        return pd.DataFrame([self._row(k, steps.get(k)) for k in (0, *self.ks)])

    def runs_frame(self) -> pd.DataFrame:
        """One row per measurement: the raw figures, for CSV and for showing the spread."""
        rows = [
            {
                "prompt": m.prompt,
                "kind": m.kind,
                "k": m.k,
                "repeat": m.repeat,
                "tokens": len(m.trace.output_ids),
                "tok_s": m.trace.tokens_per_second,
                "acceptance_length": m.trace.summary().acceptance_length,
                "ttft_ms": 1e3 * m.trace.time_to_first_token_s,
            }
            for m in self.measurements
        ]
        columns = ["prompt", "kind", "k", "repeat", "tokens", "tok_s", "acceptance_length", "ttft_ms"]
        return pd.DataFrame(rows, columns=columns)

    def position_by_k(self) -> pd.DataFrame:
        """Unconditional acceptance rate: positions down, "K = ..." across, None where K drafts no such token."""
        width = max(self.ks, default=0)
        table: dict[str, list[float | None]] = {}
        for k in self.ks:
            rates: list[float | None] = [r.value for r in self.summary(k).per_position]
            table[f"K = {k}"] = rates + [None] * (width - len(rates))
        return pd.DataFrame(table, index=range(width), dtype=float)

    def position_by_prompt(self, k: int) -> pd.DataFrame:
        """Unconditional acceptance rate at one K: prompts down, positions across."""
        rows: dict[str, list[float | None]] = {}
        for prompt in dict.fromkeys(m.prompt for m in self.at(k)):
            summary = summarise(m.trace for m in self.at(k) if m.prompt == prompt)
            rates: list[float | None] = [r.value for r in summary.per_position]
            rows[prompt] = rates + [None] * (k - len(rates))
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(range(k)), dtype=float)

    def best(self) -> Best | None:
        """The K with the highest measured throughput; None before one unit is complete."""
        speeds = {k: speed for k in (0, *self.ks) if (speed := self.tok_s(k)) is not None}
        if not speeds:
            return None
        first, *others = sorted(speeds, key=lambda k: speeds[k], reverse=True)
        plain = speeds.get(0)
        best = Best(first, speeds[first], self.tok_s_interval(first), speed_up=speeds[first] / plain if plain else None)
        if not others:
            return best
        second = others[0]
        a, b = self._resampled(first), self._resampled(second)
        lead = None if a is None or b is None else a / b - 1
        return replace(
            best, runner_up=second, ahead=speeds[first] / speeds[second] - 1, ahead_interval=percentiles(lead)
        )

    def steps(self) -> tuple[StepCost, ...]:
        """Median milliseconds of draft, verify and rest by K."""
        return measured((Method("dflash", m.k) if m.k else PLAIN, m.trace) for m in self.measurements)

    def costs(self) -> Costs:
        """The step costs with what they belong to, ready to be kept."""
        return Costs(self.pair, self.device, self.dtype, self.steps())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data with ``schema_version``; ``from_json`` reads it back unchanged."""
        body = {**asdict(replace(self, measurements=())), "schema_version": SCHEMA_VERSION}
        body["measurements"] = [{**asdict(m), "trace": m.trace.to_json()} for m in self.measurements]
        return body

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Sweep:
        """Read what ``to_json`` wrote. Raises ValueError for another schema version."""
        body = dict(data)
        version = body.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise ValueError(f"sweep schema_version is {version!r}; this lab reads {SCHEMA_VERSION}")
        body["ks"], body["prompts"] = tuple(body["ks"]), tuple(body["prompts"])
        body["measurements"] = tuple(
            Measurement(**{**m, "trace": Trace.from_json(m["trace"])}) for m in body["measurements"]
        )
        return cls(**body)

    def _speed(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        by_unit = {m.unit: m.trace for m in self.at(k)}
        return speed([by_unit[unit] for unit in self.units])

    def _resampled(self, k: int) -> np.ndarray | None:
        return resampled(*self._speed(k))

    def _row(self, k: int, step: StepCost | None) -> dict[str, Any]:
        summary, plain, speed = self.summary(k), self.tok_s(0), self.tok_s(k)
        low, high = self.tok_s_interval(k) or (None, None)
        al_low, al_high = summary.acceptance_length_interval or (None, None)
        return {
            "k": k,
            "runs": len(self.at(k)),
            "tok_s": speed,
            "tok_s_low": low,
            "tok_s_high": high,
            "speed_up": speed / plain if speed and plain else None,
            "al": summary.acceptance_length if k else 1.0,
            "al_low": al_low,
            "al_high": al_high,
            "rounds_counted": summary.counted,
            "rounds_left_out": summary.left_out,
            "draft_ms": step.draft_ms if step else None,
            "verify_ms": step.verify_ms if step else None,
            "rest_ms": step.rest_ms if step else None,
        }


def label(k: int) -> str:
    """How K is called in words."""
    return f"K = {k}" if k else "the target alone"


def speed(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens after the first, and the seconds they took, one entry per trace."""
    tokens = [sum(len(r.emitted) for r in t.rounds) for t in traces]
    return np.array(tokens, float), np.array([t.decode_s for t in traces], float)


def resampled(tokens: np.ndarray, seconds: np.ndarray) -> np.ndarray | None:
    """Pooled tok/s of resamples of units, the same ones in every call of one length; None below three units."""
    if len(tokens) < FEWEST_UNITS:
        return None
    picks = np.random.default_rng(0).integers(0, len(tokens), (RESAMPLES, len(tokens)))
    return tokens[picks].sum(1) / seconds[picks].sum(1)


def percentiles(values: np.ndarray | None) -> Interval:
    """The middle 95% of resampled values."""
    if values is None:
        return None
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
