"""What replayed acceptance and measured step costs say before anything is run: tok/s, the best K, break-even, and what
a better drafter would bring.

A method's seconds are the sum, over its replayed rounds, of the round's cost at that context; a round that drafted
nothing costs a plain step. Its intervals resample prompts (bootstrap) and let every method's cost move by the standard
error of its median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dflash_lab.cost import Costs
from dflash_lab.drafters.method import PLAIN, Method
from dflash_lab.errors import LabError
from dflash_lab.measurements import RESAMPLES, Interval, percentiles, resampled
from dflash_lab.trace import Summary, Trace, summarise

if TYPE_CHECKING:
    from dflash_lab.limit import Floor


@dataclass(frozen=True, slots=True)
class Prediction:
    """A method's expected rounds and speed, one entry of ``tokens`` and ``seconds`` per prompt.

    ``tokens`` are those after the first. ``round_ms`` is the mean over its rounds, ``error`` its standard error as a
    share of it. ``break_even`` is the acceptance length at which the method is as fast as the target alone.
    ``limit_ms`` is the shortest that its mean round can take (`limit.Floor`), None when that was not asked for.
    """

    method: Method
    summary: Summary
    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    round_ms: float
    error: float
    break_even: float
    limit_ms: float | None = None

    @property
    def limit_tok_s(self) -> float | None:
        """Throughput if its rounds took no longer than what they read takes; None without a limit."""
        return self.tok_s * self.round_ms / self.limit_ms if self.limit_ms else None

    @property
    def tok_s(self) -> float:
        """Decode throughput, all tokens over all seconds."""
        return sum(self.tokens) / sum(self.seconds)

    @property
    def interval(self) -> Interval:
        """95% interval of ``tok_s``; None below three prompts."""
        return percentiles(self._resampled())

    def _resampled(self) -> np.ndarray | None:
        # The same prompts for every method; costs of two methods err independently.
        rates = resampled(np.array(self.tokens, float), np.array(self.seconds))
        if rates is None:
            return None
        seed = [ord(letter) for letter in self.method.kind] + [self.method.k, self.method.depth]
        drift = np.exp(np.random.default_rng(seed).normal(0, self.error, RESAMPLES))
        return rates / drift


def predict(method: Method, traces: Sequence[Trace], costs: Costs, floor: Floor | None = None) -> Prediction:
    """The speed of a method whose replayed rounds are ``traces``, one per prompt.

    Raises LabError when its cost or the plain step's was not measured, or no prompt has a round.
    """
    if not any(t.rounds for t in traces):
        raise LabError(f"{method.label} has no round to predict from", "Take prompts with longer answers")
    plain = np.concatenate([costs.round_ms(PLAIN, _contexts(t)) for t in traces])
    seconds = [_milliseconds(method, t, costs).sum() / 1e3 for t in traces]
    rounds = sum(len(t.rounds) for t in traces)
    round_ms = 1e3 * sum(seconds) / rounds
    return Prediction(
        method,
        summarise(traces),
        tuple(sum(len(r.emitted) for r in t.rounds) for t in traces),
        tuple(float(s) for s in seconds),
        float(round_ms),
        max(step.error for step in costs.of(method)),
        float(round_ms / plain.mean()),
        None if floor is None else floor.at(float(np.mean([r.anchor_position for t in traces for r in t.rounds]))),
    )


def _contexts(trace: Trace) -> list[float]:
    return [float(r.anchor_position) for r in trace.rounds]


def _milliseconds(method: Method, trace: Trace, costs: Costs) -> np.ndarray:
    contexts = _contexts(trace)
    drafted = np.array([bool(r.drafted) for r in trace.rounds])
    return np.where(drafted, costs.round_ms(method, contexts), costs.round_ms(PLAIN, contexts))


@dataclass(frozen=True, slots=True)
class Lead:
    """How far one method is ahead of ``other``: 0.1 is 10% more tok/s, with its paired 95% interval."""

    other: Method
    ahead: float
    interval: Interval

    @property
    def is_clear(self) -> bool | None:
        """Whether the interval is on one side of nothing; None without one."""
        return None if self.interval is None else self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The K of one kind of method that is predicted to be fastest, against the next smaller and larger K, the runner-up
    among all K and the target alone, in this order where they are there."""

    method: Method
    tok_s: float
    interval: Interval
    leads: tuple[Lead, ...]

    def sentence(self) -> str:
        """The advice in words, with what is inside the noise."""
        spread = f" ({self.interval[0]:.1f} to {self.interval[1]:.1f})" if self.interval else ""
        words = [f"{self.method.label}: {self.tok_s:.1f} tok/s predicted{spread}"]
        noise = {True: "outside the noise", False: "inside the noise", None: "too few prompts to tell from noise"}
        words += [f"{lead.ahead:+.1%} on {lead.other.label}, {noise[lead.is_clear]}" for lead in self.leads]
        return "; ".join(words) + "."


def lead(a: Prediction, b: Prediction) -> Lead:
    """How far ``a`` is ahead of ``b``, prompts resampled in pairs."""
    left, right = a._resampled(), b._resampled()
    ratio = None if left is None or right is None else left / right - 1
    return Lead(b.method, a.tok_s / b.tok_s - 1, percentiles(ratio))


def recommend(predictions: Sequence[Prediction], kind: str = "dflash") -> Recommendation | None:
    """The fastest K of ``kind`` under the pair's own config; None when there is none of that kind."""
    same = sorted((p for p in predictions if p.method.kind == kind and not p.method.config), key=lambda p: p.method)
    if not same:
        return None
    by_speed = sorted(same, key=lambda p: p.tok_s, reverse=True)
    best, at = by_speed[0], same.index(by_speed[0])
    others = [*same[max(0, at - 1) : at], *same[at + 1 : at + 2], *by_speed[1:2]]
    others += [p for p in predictions if p.method == PLAIN]
    unique = {p.method: p for p in others}.values()
    return Recommendation(best.method, best.tok_s, best.interval, tuple(lead(best, p) for p in unique))


@dataclass(frozen=True, slots=True)
class Better:
    """A method with its conditional acceptance rates multiplied by ``scale``: acceptance length, and tok/s at it."""

    method: Method
    scale: float
    acceptance_length: float
    tok_s: float


def better(predictions: Sequence[Prediction], scale: float) -> tuple[Better, ...]:
    """Every drafting method of a chain with its conditional rates times ``scale`` (at most 1), at its own costs.

    Raises LabError for a negative scale.
    """
    if scale < 0:
        raise LabError(f"The scale is {scale:g}", "Give 0 or more; 1 is the drafter as it is")
    found = []
    for p in predictions:
        if p.method.kind not in ("plain", "ddtree"):
            length = scaled_length(p.summary, scale)
            actual = scaled_length(p.summary, 1.0)
            # The text's last, cut rounds are in tok_s and not in the rates: scale what was predicted.
            found.append(Better(p.method, scale, length, p.tok_s * length / actual))
    return tuple(found)


def scaled_length(summary: Summary, scale: float) -> float:
    """Acceptance length with every conditional rate multiplied by ``scale``: 1 + sum of the products so far."""
    rates = [min(1.0, scale * (rate.value or 0.0)) for rate in summary.conditional]
    return 1.0 + float(np.cumprod(rates).sum())
