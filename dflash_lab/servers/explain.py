"""Explain an engine: which implementation variant reproduces a server's rounds.

Every variant of the library is replayed from the server's own anchors and ranked by its share of equal rounds; then
the best ones are tried in pairs. A share of 100% that no other behaviour reaches is a proof, as far as these rounds
tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch

from dflash_lab.config.schema import ConfigError
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashWeights
from dflash_lab.servers.bend import Reading, VariantStack
from dflash_lab.servers.compare import Evidence
from dflash_lab.servers.variants import Variant, library

REFERENCE = Variant("reference", "the config is run as the reference runs it", lambda old, target: old)
PAIRED = 8
"""So many of the best single variants are tried in pairs."""

Watch = Callable[[float, str], bool]
"""(share done, what is being tried) -> go on?"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One candidate: `equal` of `rounds` rounds have the server's number of accepted tokens.

    `told_apart` counts rounds on which it predicts another number than the reference does: with none, these rounds
    say nothing about it.
    """

    names: tuple[str, ...]
    behaviour: str
    equal: int
    rounds: int
    told_apart: int
    reading: Reading

    @property
    def share(self) -> float:
        """Equal rounds / all compared rounds."""
        return self.equal / self.rounds

    @property
    def name(self) -> str:
        """The variant's name, or both names of a pair."""
        return " + ".join(self.names)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All candidates, best first; fewer variants first among equals. `stopped`: not all were tried."""

    candidates: tuple[Explanation, ...]
    stopped: bool = False

    @property
    def best(self) -> Explanation:
        """The candidate with the most equal rounds."""
        return self.candidates[0]

    @property
    def reference(self) -> Explanation:
        """The config as the reference runs it."""
        return next(c for c in self.candidates if c.names == (REFERENCE.name,))

    def sentence(self) -> str:
        """What the search found, and how sure that is."""
        best, reference = self.best, self.reference
        if reference.share == best.share:
            return f"The reference explains {reference.share:.1%} of {reference.rounds} rounds; no variant does better."
        rivals = [c.name for c in self.candidates[1:] if c.equal == best.equal and len(c.names) == len(best.names)]
        found = (
            f"{best.behaviour[0].upper()}{best.behaviour[1:]}: that reproduces {best.share:.1%} of "
            f"{best.rounds} rounds, the reference {reference.share:.1%}"
        )
        if rivals:
            return f"{found}. As good: {', '.join(rivals)}; these rounds do not tell them apart."
        if best.share == 1.0:
            return f"{found}. That is a proof: nothing else in the library reproduces every round."
        return f"{found}. It is the best of {len(self.candidates)}, not the whole story."


def explain(
    evidence: Evidence, weights: DFlashWeights, base: Reading, target: Target, watch: Watch | None = None
) -> Ranking:
    """Try `base`, every variant of it, and pairs of the best.

    Pairs are tried only when no single variant reproduces every round.
    """
    search = _Search(evidence, weights, base, target, watch)
    singles = [REFERENCE, *library()]
    found = search.run([(variant,) for variant in singles])
    ranked = sorted(found, key=_order)
    if ranked and ranked[0].share < 1.0 and not search.stopped:
        by_name = {variant.name: variant for variant in singles}
        best = [by_name[c.names[0]] for c in ranked if c.names[0] != REFERENCE.name][:PAIRED]
        found += search.run(list(combinations(best, 2)))
    return Ranking(tuple(sorted(found, key=_order)), search.stopped)


def _order(candidate: Explanation) -> tuple[int, int]:
    return -candidate.equal, len(candidate.names)


class _Search:
    def __init__(
        self, evidence: Evidence, weights: DFlashWeights, base: Reading, target: Target, watch: Watch | None
    ) -> None:
        self.evidence, self.weights, self.base, self.target, self.watch = evidence, weights, base, target, watch
        self.stopped = False
        self.seen: list[Reading] = []
        self.reference: torch.Tensor | None = None

    def run(self, groups: list[tuple[Variant, ...]]) -> list[Explanation]:
        found = []
        for n, group in enumerate(groups):
            if self.watch and not self.watch(n / len(groups), " + ".join(v.name for v in group)):
                self.stopped = True
                break
            explanation = self.one(group)
            if explanation:
                found.append(explanation)
        return found

    def one(self, group: tuple[Variant, ...]) -> Explanation | None:
        reading: Reading | None = self.base
        for variant in group:
            reading = variant.apply(reading, self.target) if reading else None
        # Two names for one behaviour are tried once: a causal drafter has no variant "causal".
        if reading is None or reading in self.seen:
            return None
        self.seen.append(reading)
        try:
            expected = self.evidence.expected(VariantStack(self.weights, reading, self.target))
        except ConfigError:
            return None  # the variant's config does not fit these weights
        if self.reference is None:
            self.reference = expected
        return Explanation(
            names=tuple(v.name for v in group),
            behaviour=" and ".join(v.behaviour for v in group),
            equal=int((expected == self.evidence.accepted).sum()),
            rounds=len(self.evidence),
            told_apart=int((expected != self.reference).sum()),
            reading=reading,
        )
