"""Blame: what each differing field costs, given a bad and a good config, by replay of every mixture of the two.

The game: a coalition S of players has the value AL(bad config with the good values of S). Its Shapley values
(Shapley 1953) share AL(good) - AL(bad) out among the players: the mean, over all orders in which the fields can be
put right, of what each adds at its turn. Intervals resample the same text segments for every mixture (see `paired`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from dflash_lab.config.schema import ConfigError, DrafterConfig
from dflash_lab.diagnose.players import differing, transplanted
from dflash_lab.errors import LabError
from dflash_lab.paired import RESAMPLES, segments
from dflash_lab.whatif import WhatIf

Coalition = frozenset[int]
Watch = Callable[[float, str], bool]
"""(share done, what is being replayed) -> go on?"""

MOST_PLAYERS = 6
"""2^6 = 64 replays; more differing fields are too many to share blame among exactly."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure in tokens a round with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Share:
    """One player's blame, tokens a round.

    ``shapley``: its share of the whole loss. ``revert``: what putting it alone right adds to the bad config;
    ``breaking``: what it alone costs the good one. They differ where fields interact.
    """

    player: str
    shapley: Estimate
    revert: Estimate
    breaking: Estimate


@dataclass(frozen=True, slots=True)
class Interaction:
    """What two players bring together beyond their sum (Shapley interaction index, Grabisch and Roubens 1999)."""

    players: tuple[str, str]
    index: Estimate


@dataclass(frozen=True, slots=True)
class Blame:
    """``lengths[S]`` is the acceptance length with players S put right; None marks a mixture no engine can run.

    A mixture that cannot run accepts nothing: its value in the game is an acceptance length of 1.
    """

    players: tuple[str, ...]
    shares: tuple[Share, ...]
    interactions: tuple[Interaction, ...]
    lengths: dict[Coalition, float | None]
    rounds: int

    @property
    def bad(self) -> float | None:
        """Acceptance length of the bad config."""
        return self.lengths[frozenset()]

    @property
    def good(self) -> float | None:
        """Acceptance length of the good config."""
        return self.lengths[frozenset(range(len(self.players)))]


def shapley(values: dict[Coalition, np.ndarray], n: int) -> np.ndarray:
    """Shapley values ``[n, ...]`` of the game ``values[S] [...]`` (every S of range(n), the empty one included)."""
    out = np.zeros((n, *np.shape(values[frozenset()])))
    for i in range(n):
        for s in _subsets(n, without=(i,)):
            weight = factorial(len(s)) * factorial(n - len(s) - 1) / factorial(n)
            out[i] += weight * (values[s | {i}] - values[s])
    return out


def interaction(values: dict[Coalition, np.ndarray], n: int, i: int, j: int) -> np.ndarray:
    """Shapley interaction index ``[...]`` of players i and j."""
    out = np.zeros(np.shape(values[frozenset()]))
    for s in _subsets(n, without=(i, j)):
        weight = factorial(len(s)) * factorial(n - len(s) - 2) / factorial(n - 1)
        out += weight * (values[s | {i, j}] - values[s | {i}] - values[s | {j}] + values[s])
    return out


def blame(
    bench: WhatIf, bad: DrafterConfig, good: DrafterConfig, k: int, watch: Watch | None = None, seed: int = 0
) -> Blame | None:
    """Share AL(good) - AL(bad) out among the differing players; None when `watch` said stop.

    Raises LabError when the configs do not differ, differ in too many fields, or the good one cannot run.
    """
    players = differing(bad, good)
    n = len(players)
    if not n:
        raise LabError("The two configs do not differ in any field that changes the drafter", "Give another one")
    if n > MOST_PLAYERS:
        raise LabError(
            f"{n} fields differ ({', '.join(players)}): 2^{n} mixtures are too many to replay",
            f"Put some of them right first; {MOST_PLAYERS} are the most",
        )
    coalitions = sorted(_subsets(n), key=len, reverse=True)
    tables: dict[Coalition, dict[tuple[int, int], tuple[int, int]] | None] = {}
    rounds = 0
    for done, s in enumerate(coalitions):
        names = [players[i] for i in sorted(s)]
        if watch and not watch(done / len(coalitions), f"right: {', '.join(names) or 'nothing'}"):
            return None
        try:
            effect = bench.effect(transplanted(bad, good, names), k)
        except ConfigError:
            if len(s) == n:
                raise
            tables[s] = None
            continue
        tables[s] = segments(effect.traces)
        rounds += effect.summary.counted
    return _shared(players, tables, rounds, seed)


def _shared(
    players: tuple[str, ...],
    tables: dict[Coalition, dict[tuple[int, int], tuple[int, int]] | None],
    rounds: int,
    seed: int,
) -> Blame:
    n = len(players)
    keys = sorted({key for table in tables.values() if table for key in table})
    picks = np.random.default_rng(seed).integers(0, len(keys), (RESAMPLES, len(keys)))
    values, lengths = {}, {}
    for s, table in tables.items():
        values[s] = _lengths(table, keys, picks)
        lengths[s] = float(values[s][0]) if table else None
    everyone = frozenset(range(n))
    shares = shapley(values, n)
    out = [
        Share(
            player,
            _estimate(shares[i]),
            _estimate(values[frozenset({i})] - values[frozenset()]),
            _estimate(values[everyone] - values[everyone - {i}]),
        )
        for i, player in enumerate(players)
    ]
    pairs = [
        Interaction((players[i], players[j]), _estimate(interaction(values, n, i, j)))
        for i, j in combinations(range(n), 2)
    ]
    out.sort(key=lambda share: share.shapley.value, reverse=True)
    return Blame(players, tuple(out), tuple(pairs), lengths, rounds)


def _lengths(
    table: dict[tuple[int, int], tuple[int, int]] | None, keys: Sequence[tuple[int, int]], picks: np.ndarray
) -> np.ndarray:
    """Acceptance lengths ``[1 + resamples]``: of all segments first, then of each resample of them."""
    if table is None:
        return np.ones(1 + len(picks))
    counts = np.array([table.get(key, (0, 0)) for key in keys], dtype=np.float64)
    sums = np.concatenate([counts.sum(0)[None], counts[picks].sum(1)])
    return np.where(sums[:, 1] > 0, sums[:, 0] / np.maximum(sums[:, 1], 1), 1.0)


def _estimate(values: np.ndarray) -> Estimate:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return Estimate(float(values[0]), float(low), float(high))


def _subsets(n: int, without: Sequence[int] = ()) -> list[Coalition]:
    others = [i for i in range(n) if i not in without]
    return [frozenset(s) for size in range(len(others) + 1) for s in combinations(others, size)]
