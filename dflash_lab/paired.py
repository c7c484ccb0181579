"""Is one config better than another on the same texts? A paired difference of acceptance lengths, with its interval.

Rounds of two configs do not line up, but the text does: it is cut into segments, each round belongs to the segment
its anchor lies in, and whole segments are resampled with both configs' rounds in them (paired bootstrap, Efron and
Tibshirani 1993, chapter 8; ratio estimator on each resample). Neighbouring rounds depend on each other; segments of
some dozens of tokens nearly do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dflash_lab.trace import Trace

SEGMENT = 32
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Paired:
    """``difference`` = AL of b - AL of a, tokens a round, with its 95% interval and what it rests on.

    The acceptance lengths are means of accepted + 1 over rounds that did not end their text.
    """

    a: float
    b: float
    low: float
    high: float
    segments: int
    rounds_a: int
    rounds_b: int

    @property
    def difference(self) -> float:
        """b - a, tokens a round."""
        return self.b - self.a

    @property
    def relative(self) -> float:
        """(b - a) / a."""
        return self.difference / self.a

    @property
    def clear(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low > 0 or self.high < 0


def compare(a: Sequence[Trace], b: Sequence[Trace], seed: int = 0) -> Paired | None:
    """Compare two runs over the same texts, in the same order; None when one of them has no counted round.

    Raises ValueError when the lists do not pair up.
    """
    if [t.prompt_ids for t in a] != [t.prompt_ids for t in b]:
        raise ValueError("the two runs are not over the same prompts")
    left, right = segments(a), segments(b)
    keys = sorted(left.keys() | right.keys())
    none = (0, 0)
    # [segments, 4]: tokens and rounds of a, tokens and rounds of b.
    table = np.array([(*left.get(key, none), *right.get(key, none)) for key in keys], dtype=np.float64).reshape(-1, 4)
    total = table.sum(0)
    if not total[1] or not total[3]:
        return None
    picks = np.random.default_rng(seed).integers(0, len(keys), (RESAMPLES, len(keys)))
    sums = table[picks].sum(1)
    whole = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]
    differences = whole[:, 2] / whole[:, 3] - whole[:, 0] / whole[:, 1]
    low, high = np.quantile(differences, [0.025, 0.975])
    return Paired(
        a=float(total[0] / total[1]),
        b=float(total[2] / total[3]),
        low=float(low),
        high=float(high),
        segments=len(keys),
        rounds_a=int(total[1]),
        rounds_b=int(total[3]),
    )


def segments(traces: Sequence[Trace]) -> dict[tuple[int, int], tuple[int, int]]:
    """(text, segment) -> (accepted + 1 summed, rounds) over counted rounds."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for n, trace in enumerate(traces):
        for r in trace.rounds:
            if r.end == "none" and len(r.drafted) == trace.k:
                key = n, (r.anchor_position - len(trace.prompt_ids)) // SEGMENT
                tokens, rounds = found.get(key, (0, 0))
                found[key] = tokens + r.accepted + 1, rounds + 1
    return found
