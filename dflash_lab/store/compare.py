"""Two or more experiments side by side: configs, settings, figures with intervals, a paired test, the first
difference in their texts.

Prompts are matched by their token ids, so that experiments of different pages, and of different K, compare on what
they share and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dflash_lab.config import patch
from dflash_lab.config.patch import Difference
from dflash_lab.errors import LabError
from dflash_lab.paired import Paired
from dflash_lab.paired import compare as paired_compare
from dflash_lab.store.experiment import Experiment, Series
from dflash_lab.trace import Trace


@dataclass(frozen=True, slots=True)
class Side:
    """An experiment and the series of it that is compared."""

    experiment: Experiment
    series: Series

    @classmethod
    def of(cls, experiment: Experiment, series: str = "") -> Side:
        """The named series, or the one that the figures are of. Raises LabError where there is none."""
        chosen = experiment.named(series) if series else experiment.figures
        if chosen is None:
            raise LabError(f"{experiment.title} has no rounds", "Compare experiments that ran")
        return cls(experiment, chosen)

    @property
    def name(self) -> str:
        """Title and series."""
        return f"{self.experiment.title} ({self.series.name})"


@dataclass(frozen=True, slots=True)
class Common:
    """A prompt that both sides ran: its label and both traces."""

    prompt: str
    here: Trace
    there: Trace


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where two texts part: the output token's index (0-based), and the ids there (None = that text had ended)."""

    prompt: str
    index: int
    here: int | None
    there: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``there`` against ``here``, the side that counts as the baseline; ``paired`` is there minus here."""

    here: Side
    there: Side
    config: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    common: tuple[Common, ...]
    paired: Paired | None
    texts: FirstDifference | None

    def sentence(self) -> str:
        """The paired test in words."""
        if not self.common:
            return "The two have no prompt in common, so their rounds cannot be paired."
        p = self.paired
        if p is None:
            return "One of the two has no round that counts, so there is nothing to test."
        verdict = "a clear difference" if p.clear else "inside the noise"
        return (
            f"{p.difference:+.2f} tokens a round (95%: {p.low:+.2f} to {p.high:+.2f}), {verdict}; paired on "
            f"{len(self.common)} common prompt{'s' if len(self.common) > 1 else ''}, {p.rounds_a} and {p.rounds_b} "
            "rounds."
        )

    def texts_sentence(self) -> str:
        """Whether the texts are the same, in words."""
        if not self.common:
            return ""
        if self.texts is None:
            return f"The texts agree on {len(self.common)} common prompt{'s' if len(self.common) > 1 else ''}."
        t = self.texts
        return f"The texts part at output token {t.index} of {t.prompt!r}: {self._word(t.here)}, {self._word(t.there)}."

    def _word(self, token: int | None) -> str:
        if token is None:
            return "ended"
        names = self.here.experiment.wording.names | self.there.experiment.wording.names
        return f"{names[token]!r} ({token})" if token in names else str(token)


def compare(here: Side, there: Side) -> Comparison:
    """Compare two sides; what they have no data for is empty or None."""
    mine = {t.prompt_ids: t for t in reversed(there.series.traces)}
    seen: dict[tuple[int, ...], Common] = {}
    for prompt, trace in zip(here.series.prompts, here.series.traces, strict=True):
        if trace.prompt_ids in mine:
            seen.setdefault(trace.prompt_ids, Common(prompt, trace, mine[trace.prompt_ids]))
    common = tuple(seen.values())
    pairs = paired_compare([c.here for c in common], [c.there for c in common]) if common else None
    return Comparison(
        here,
        there,
        tuple(patch.compare(_config(here), _config(there))),
        tuple(_settings(here.experiment, there.experiment)),
        common,
        pairs,
        next((found for c in common if (found := first_difference(c)) is not None), None),
    )


def _config(side: Side) -> dict[str, Any]:
    return side.series.config or side.experiment.config or {}


def _settings(here: Experiment, there: Experiment) -> list[Difference]:
    a, b = ({**e.settings, **e.provenance} for e in (here, there))
    names = [name for name in {**a, **b} if name not in ("raw", "configs") and a.get(name) != b.get(name)]
    return [Difference(name, a.get(name), b.get(name)) for name in names]


def first_difference(common: Common) -> FirstDifference | None:
    """The first output token that is not the same; None when one text begins with the other and was merely cut."""
    a, b = common.here.output_ids, common.there.output_ids
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return FirstDifference(common.prompt, n, x, y)
    if len(a) == len(b) or "eos" not in (common.here.end, common.there.end):
        return None
    if (shorter := common.here if len(a) < len(b) else common.there).end != "eos":
        return None  # it was cut at its limit, and agrees as far as it goes
    n = len(shorter.output_ids)
    return FirstDifference(common.prompt, n, *(t[n] if n < len(t) else None for t in (a, b)))


def metrics(sides: Sequence[Side]) -> pd.DataFrame:
    """One row a side: acceptance length and position 0 with 95% intervals, tok/s, and the rounds they rest on."""
    rows = []
    for side in sides:
        summary = side.series.summary
        low, high = summary.acceptance_length_interval or (None, None)
        first = summary.per_position[0] if summary.per_position else None
        first_low, first_high = (first.interval if first else None) or (None, None)
        rows.append(
            {
                "experiment": side.experiment.title,
                "series": side.series.name,
                "K": side.series.k,
                "acceptance length": summary.acceptance_length,
                "AL from": low,
                "AL to": high,
                "position 0": first.value if first else None,
                "position 0 from": first_low,
                "position 0 to": first_high,
                "accepted of drafted": summary.draft_acceptance_rate,
                "tok/s": side.series.tokens_per_second,
                "rounds": summary.counted,
                "left out": summary.left_out,
            }
        )
    return pd.DataFrame(rows)


def rates(series: Series) -> pd.DataFrame:
    """Unconditional acceptance rates: prompts down, drafted positions across; empty without traces."""
    rows: dict[str, list[float | None]] = {}
    for n, (prompt, trace) in enumerate(zip(series.prompts, series.traces, strict=True), 1):
        values: list[float | None] = [rate.value for rate in trace.summary().per_position]
        rows[f"{n} {prompt[:24]}"] = values + [None] * (series.k - len(values))
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(range(series.k)), dtype=float)


def rate_differences(found: Comparison) -> pd.DataFrame:
    """``there`` minus ``here`` on the common prompts, at the positions that both drafted."""
    names = tuple(c.prompt for c in found.common)
    a = rates(Series("", found.here.series.k, names, tuple(c.here for c in found.common)))
    b = rates(Series("", found.there.series.k, names, tuple(c.there for c in found.common)))
    width = min(found.here.series.k, found.there.series.k)
    return (b - a).iloc[:, :width]
