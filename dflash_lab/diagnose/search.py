"""Search: repair a config with no good one to compare with, by measuring values from general rules.

1. A config that cannot run is first made to run, at the field the refusal names.
2. Every player's proposals and its first value are scored on a few anchors (`score`), the best of them on more; of
   those that surely fit better, the one that brings most is kept, and so on: a right value brings more than one that
   only makes up for another field. A value that fits badly on few anchors never sees many (successive halving,
   Jamieson and Talwalkar 2016).
3. Neighbours are tried: another window, one layer the other way, one tap moved. Then again from 2, on top of what
   was kept, until a whole turn changes nothing.
4. Close rivals of every kept change are told apart on many anchors, until none is better: a value that was chosen
   while another field was wrong may only have made up for that one.
5. On all anchors each kept change is taken back once: a field is accused only when that costs acceptance.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dflash_lab.config.errors import ConfigError
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.diagnose.players import PLAYERS
from dflash_lab.diagnose.proposals import Proposal, Proposals
from dflash_lab.diagnose.score import Score, Scorer
from dflash_lab.pairs import Pair
from dflash_lab.recording import Recording

ANCHORS = (60, 180, 540)
"""Anchors of the three rungs; the last judgement, where it is close, takes every anchor there is."""
KEPT = 2
"""Proposals that go from the first rung to the second."""
HOPELESS = -5.0
"""Standard errors below the present config from which a value is not scored again."""
SURE = 3.0
"""Standard errors by which a change must fit better."""
WORTH = 0.035
"""A field is accused when its change is worth this share of the acceptance length."""
MOST_TURNS = 4
MOST_CHANGES = 8
"""Values changed in one turn."""
RIVALS = 3
"""Values of a changed player that are told apart on the third rung."""

End = Literal["done", "budget", "cancelled"]


@dataclass(frozen=True, slots=True)
class Change:
    """One accused player: the values it had and should have, and what that is worth.

    ``gain``: tokens a round over all sampled anchors, the other repairs in place, with ``low`` and ``high`` (95%).
    ``certainty``: standard errors by which the recorded text fits better. ``equivalent``: other values that these
    recordings do not tell apart from the new ones. ``refused``: the config could not run because of it.
    """

    player: str
    was: dict[str, Any]
    now: dict[str, Any]
    rule: str
    gain: float
    low: float
    high: float
    certainty: float
    equivalent: tuple[dict[str, Any], ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is: share of its budget, what is being tried, the best config so far and its changes."""

    share: float
    text: str
    best: DrafterConfig
    changed: tuple[str, ...]
    tried: int


Watch = Callable[[Progress], bool]


@dataclass(frozen=True, slots=True)
class Repair:
    """What a search found. ``before`` and ``after``: mean accepted + 1 over ``anchors`` sampled anchors.

    ``before`` is None when the config could not run. ``tried`` counts scored configs by player.
    """

    config: DrafterConfig
    repaired: DrafterConfig
    changes: tuple[Change, ...]
    before: float | None
    after: float | None
    anchors: int
    tried: dict[str, int]
    seconds: float
    end: End
    refused: str = ""

    @property
    def guilty(self) -> tuple[str, ...]:
        """Accused players, the costliest first."""
        return tuple(change.player for change in self.changes)


def repair(
    pair: Pair,
    recordings: Sequence[Recording],
    config: DrafterConfig,
    k: int = 5,
    budget_s: float = 60.0,
    watch: Watch | None = None,
    seed: int = 0,
) -> Repair:
    """Search for a better config, within about `budget_s` seconds.

    Stopped by the budget or by `watch`, it returns the best so far, judged on the anchors there was time for.
    Raises ConfigError when the config cannot run and no proposal makes it run.
    """
    return _Search(pair, recordings, config, k, budget_s, watch, seed).run()


class _Stop(Exception):
    """Out of time, or told to stop."""


@dataclass(frozen=True, slots=True)
class _Gain:
    """A proposal against the present config on one rung: mean better fit (nats an anchor) and its standard errors."""

    proposal: Proposal
    config: DrafterConfig
    mean: float
    sigmas: float


@dataclass
class _Search:
    pair: Pair
    recordings: Sequence[Recording]
    config: DrafterConfig
    k: int
    budget_s: float
    watch: Watch | None
    seed: int
    end: End = "done"
    tried: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    repaired_refusals: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        self.proposals = Proposals(self.pair, max(len(r.ids) for r in self.recordings))
        self.rungs: dict[int, Scorer] = {}
        self.scores: dict[tuple[int, str], Score] = {}
        self.runners_up: dict[str, list[Proposal]] = {}
        self.rules: dict[str, str] = {}
        self.hopeless: set[str] = set()
        self.best = self.config
        self.text = "starting"

    def run(self) -> Repair:
        self.best = self._made_to_run(self.config)
        with contextlib.suppress(_Stop):
            self._score(self.best, 0)
            self._climb()
        return self._judged()

    # Scoring

    def _rung(self, n: int) -> Scorer:
        """The scorer of one rung, made when first asked for; rung 3 holds every anchor."""
        if n not in self.rungs:
            every = sum(r.length - 1 for r in self.recordings)
            count = min(every, ANCHORS[n]) if n < len(ANCHORS) else every
            few = {0: 4, 1: 5}.get(n, len(self.recordings))
            chosen = spread(self.recordings, few)
            self.rungs[n] = Scorer(self.pair, chosen, count, self.k, self.seed + n)
        return self.rungs[n]

    def _score(self, config: DrafterConfig, rung: int, player: str = "") -> Score | None:
        """A config's score, remembered; None when it cannot run."""
        key = rung, json.dumps(config.to_json(), sort_keys=True)
        if key not in self.scores:
            self._look_up()
            try:
                self.scores[key] = self._rung(rung).score(config)
            except ConfigError:
                return None
            if player:
                self.tried[player] = self.tried.get(player, 0) + 1
        return self.scores[key]

    def _look_up(self) -> None:
        """Tell the watcher how far it is; stop when asked to or out of time."""
        spent = time.perf_counter() - self.started
        state = Progress(min(1.0, spent / self.budget_s), self.text, self.best, tuple(self.rules),
                         sum(self.tried.values()))  # fmt: skip
        if self.watch and not self.watch(state):
            self.end = "cancelled"
            raise _Stop
        if spent > self.budget_s:
            self.end = "budget"
            raise _Stop

    def _gains(self, proposals: Iterable[Proposal], rung: int) -> list[_Gain]:
        """Proposals against the present best, the best fit first."""
        base = self._score(self.best, rung)
        assert base is not None
        found = []
        for proposal in proposals:
            config = proposal.applied(self.best)
            self.text = f"{proposal.player}: {proposal.rule}"
            score = self._score(config, rung, proposal.player) if config else None
            if config and score:
                mean, sigmas = _better(base, score)
                found.append(_Gain(proposal, config, mean, sigmas))
        return sorted(found, key=lambda gain: gain.mean, reverse=True)

    # Climbing

    def _climb(self) -> None:
        for turn in range(MOST_TURNS):
            moved = self._settle()
            if turn == 0 or moved:
                while self._keep_best(self.proposals.refined_layers(self.best)):
                    moved.append("layer_types")
                if self._move_taps(coarse=turn == 0):
                    moved.append("target_layer_ids")
            if not moved:
                break
        for _ in range(MOST_TURNS):
            if not sum(self._polish(player) for player in self._changed()):
                break

    def _settle(self) -> list[str]:
        """Give players the values that fit best, the one that brings most first; the players that were changed."""
        moved: list[str] = []
        while len(moved) < MOST_CHANGES and (gains := [g for p in PLAYERS if (g := self._best_of(self._likely(p)))]):
            gain = max(gains, key=lambda g: g.mean)
            self._accept(gain)
            moved.append(gain.proposal.player)
        return moved

    def _likely(self, player: str) -> list[Proposal]:
        return [p for p in self._values(player) if _key(p) not in self.hopeless]

    def _values(self, player: str) -> list[Proposal]:
        first = {field: getattr(self.config, field) for field in PLAYERS[player]}
        return [Proposal(player, first, "as the file has it"), *self.proposals.of(player, self.best)]

    def _keep_best(self, proposals: Iterable[Proposal]) -> bool:
        """Keep the best of these, if one surely fits better; whether it does."""
        gain = self._best_of(proposals)
        if gain:
            self._accept(gain)
        return gain is not None

    def _best_of(self, proposals: Iterable[Proposal]) -> _Gain | None:
        """The best of these when it surely fits better than the present config, on the second rung."""
        first = self._gains(proposals, 0)
        self.hopeless |= {_key(gain.proposal) for gain in first if gain.sigmas < HOPELESS}
        promising = [g.proposal for g in first if g.sigmas > (-0.5 if g.proposal.player in self.rules else 0.5)][:KEPT]
        if promising:
            self.runners_up.setdefault(promising[0].player, []).extend(promising)
        second = [gain for gain in self._gains(promising, 1) if gain.sigmas > self._enough(gain)]
        return second[0] if second else None

    def _enough(self, gain: _Gain) -> float:
        """A player that is to be changed anyway gets its best value; another must be surely better."""
        return 1.0 if gain.proposal.player in self.rules else SURE

    def _accept(self, gain: _Gain) -> None:
        self.best = gain.config
        self.rules[gain.proposal.player] = gain.proposal.rule

    def _move_taps(self, coarse: bool) -> bool:
        """Coordinate descent over the taps: at each place the neighbours, at first a coarse grid too."""
        layers, moved = self.pair.target.num_layers, False
        for place in range(len(self.best.taps)):
            here = self.best.taps[place]
            grid = {here + step for step in (-2, -1, 1, 2)}
            if coarse:
                grid |= set(range(0, layers, max(1, layers // 5))) - {here}
            moved = self._keep_best(self.proposals.one_tap(self.best, place, sorted(grid))) or moved
        return moved

    def _polish(self, player: str) -> bool:
        """Tell a changed player's closest values apart on the third rung; whether another one is better there."""
        before = self.best
        if player == "target_layer_ids":
            for place, here in enumerate(self.best.taps):
                self._keep_better(self.proposals.one_tap(self.best, place, (here - 1, here + 1)))
        else:
            rivals = self._values(player)
            if player == "layer_types":
                rivals += self.proposals.refined_layers(self.best)
            near = [gain.proposal for gain in self._gains(rivals, 1) if gain.sigmas > -SURE]
            self._keep_better(near[:RIVALS])
        return self.best is not before

    def _keep_better(self, proposals: Iterable[Proposal]) -> None:
        gains = self._gains(proposals, 2)
        if gains and gains[0].sigmas > 1:
            self._accept(gains[0])

    # Starting and ending

    def _made_to_run(self, config: DrafterConfig) -> DrafterConfig:
        """The config itself, or one with the refused fields changed until the weights take it."""
        for _ in range(len(PLAYERS)):
            try:
                self.pair.stack(config)
                return config
            except ConfigError as error:
                refusal = error
            self.refused = self.refused or str(refusal)
            player = next((name for name, fields in PLAYERS.items() if refusal.field in fields), None)
            if player is None or player in self.repaired_refusals:
                raise refusal
            proposal = self._first_that_passes(player, config)
            if proposal is None:
                raise refusal
            self.repaired_refusals[player] = str(refusal)
            self.rules[player] = proposal.rule
            config = config.edited(**proposal.changes)
        return config

    def _first_that_passes(self, player: str, config: DrafterConfig) -> Proposal | None:
        for proposal in self.proposals.of(player, config):
            edited = proposal.applied(config)
            if edited is None:
                continue
            try:
                self.pair.stack(edited)
            except ConfigError as error:
                if error.field in PLAYERS[player]:
                    continue
            return proposal
        return None

    def _judged(self) -> Repair:
        """Take every change back once on many anchors; keep those that are worth it. Not bound by the budget.

        A visitor who cancelled waits for it: fewer anchors then.
        """
        rung = 1 if self.end == "cancelled" else 2
        budget, self.budget_s = self.budget_s, float("inf")
        watch, self.watch = self.watch, None
        self.text = "taking each change back"
        changes = self._accused(rung)
        after = self._score(self.best, rung)
        assert after is not None
        before = None if self.refused else self._score(self.config, rung)
        if self.end == "done":
            changes = [replace(c, equivalent=self._equivalent(c.player)) for c in changes]
        self.budget_s, self.watch = budget, watch
        return Repair(
            config=self.config,
            repaired=self.best,
            changes=tuple(sorted(changes, key=lambda c: c.gain, reverse=True)),
            before=before.length if before else None,
            after=after.length,
            anchors=len(after.accepted),
            tried=dict(self.tried),
            seconds=time.perf_counter() - self.started,
            end=self.end,
            refused=self.refused,
        )

    def _accused(self, rung: int) -> list[Change]:
        """Changes that are worth their while; the others are taken back, the least worth first."""
        while True:
            found = [self._worth(player, rung) for player in self._changed()]
            idle = [c for c in found if not c.refused and (c.certainty < SURE or c.gain < WORTH * self._length(rung))]
            if not idle:
                return found
            if rung == 2 and any(c.certainty >= SURE and c.high >= WORTH * self._length(rung) for c in idle):
                rung = 3  # too close to call: take every anchor
                continue
            least = min(idle, key=lambda c: c.gain)
            self.best = self._without(least.player)
            self.rules.pop(least.player, None)

    def _changed(self) -> list[str]:
        return [name for name, fields in PLAYERS.items()
                if any(getattr(self.best, f) != getattr(self.config, f) for f in fields)]  # fmt: skip

    def _without(self, player: str) -> DrafterConfig:
        return self.best.edited(**{f: getattr(self.config, f) for f in PLAYERS[player]})

    def _length(self, rung: int) -> float:
        score = self._score(self.best, rung)
        assert score is not None
        return score.length

    def _worth(self, player: str, rung: int) -> Change:
        fields = PLAYERS[player]
        was = {f: getattr(self.config, f) for f in fields if getattr(self.config, f) != getattr(self.best, f)}
        now = {f: getattr(self.best, f) for f in was}
        rule = self.rules.get(player, "")
        with_, without = self._score(self.best, rung), None
        assert with_ is not None
        with contextlib.suppress(ConfigError):
            without = self._score(self._without(player), rung)
        if without is None:
            gain = with_.length - 1
            return Change(player, was, now, rule, gain, gain, gain, float("inf"),
                          refused=self.repaired_refusals.get(player, self.refused or "cannot run"))  # fmt: skip
        difference = with_.accepted - without.accepted
        gain = float(difference.mean())
        half = 1.96 * float(difference.std(ddof=1)) / len(difference) ** 0.5
        _, sigmas = _better(without, with_)
        return Change(player, was, now, rule, gain, gain - half, gain + half, sigmas)

    def _equivalent(self, player: str) -> tuple[dict[str, Any], ...]:
        """Other shortlisted values that fit no worse, and mask tokens whose embedding row is the same."""
        best = self._score(self.best, 1)
        assert best is not None
        found: list[dict[str, Any]] = []
        if player == "mask_token_id" and self.best.mask_token_id is not None:
            found += [{"mask_token_id": token} for token in self.proposals.alike(self.best.mask_token_id)]
        rivals = list({_key(p): p for p in self.runners_up.get(player, ())}.values())
        if player == "layer_types":
            rivals += self.proposals.refined_layers(self.best)
        for proposal in rivals:
            config = proposal.applied(self.best)
            score = self._score(config, 0, player) if config else None
            if score is None or config is None or _better(score, self._score(self.best, 0) or score)[1] > 2:
                continue
            closer = self._score(config, 1, player)
            if closer is not None and _better(closer, best)[1] < 2 and abs(closer.length - best.length) < 0.02:
                found.append(dict(proposal.changes))
        return tuple({json.dumps(c, sort_keys=True): c for c in found}.values())


def _key(proposal: Proposal) -> str:
    return json.dumps(proposal.changes, sort_keys=True)


def _better(a: Score, b: Score) -> tuple[float, float]:
    """By how much b fits better than a, nats an anchor, and in standard errors of that mean."""
    difference = b.fit - a.fit
    mean, spread = float(difference.mean()), float(difference.std(ddof=1))
    error = spread / np.sqrt(len(difference))
    return mean, float(mean / error) if error > 0 else 0.0


def spread(recordings: Sequence[Recording], few: int) -> list[Recording]:
    """So many recordings, from the shortest to the longest context."""
    ordered = sorted(recordings, key=lambda r: len(r.prompt_ids))
    if few >= len(ordered):
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (few - 1))] for i in range(few)]
