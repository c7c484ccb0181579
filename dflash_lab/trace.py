"""What a speculative run leaves behind: Round, Trace, Summary, and every number derived from them.

A Round stores raw facts only; every rate is computed here, in one place, from those facts.

Definitions (the same in code, pages, command line and docs):

| name | definition |
| --- | --- |
| acceptance length (AL) | mean of ``accepted + 1`` (bonus included) over *counted* rounds |
| counted round | ``end`` is "none" and the round drafted the full K |
| per-position rate at i | rounds with ``accepted > i`` / rounds with ``end`` "none" that drafted at least one token |
| conditional rate at i | rounds with ``accepted > i`` / rounds with ``accepted >= i`` |
| draft acceptance rate | accepted / drafted; falls as K rises by arithmetic alone |
| decode throughput | tokens emitted after the first / seconds after the first token |

When every draft has the same length, ``AL = 1 + sum(per-position rates)`` exactly.
The module knows token ids only: no tokenizer, no tensors, no Streamlit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import pandas as pd

SCHEMA_VERSION = 1

End = Literal["none", "eos", "limit"]
Cell = Literal["accepted", "rejected", "not reached", "not drafted"]
Origin = Literal["first", "accepted", "bonus", "plain"]

Z95 = 1.959963984540054

UNKNOWN = -1
"""Stands in ``Round.drafted`` for an id that the source does not give: a rejected draft of a server, or one that replay
had no need to compute."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The k most probable tokens of one row, best first: ids and probabilities."""

    ids: tuple[int, ...]
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One draft-verify-commit step: raw facts, nothing derived.

    ``drafted[i]`` stands for position ``anchor_position + 1 + i``; ``choices[i]`` is what the target itself
    emits there (argmax, or its sample), so ``choices`` has one entry more than ``drafted``. The two probability
    tuples and ``ranks`` have one entry per drafted token and are empty where the source does not give them.

    A tree says where each drafted token hangs: ``parents[i]`` is 0 for the anchor, j + 1 for drafted token j (parents
    come first). ``path`` are the drafted tokens that were accepted, and ``choices[j + 1]`` is the target's choice
    behind drafted token j. Both are empty for a chain, which is what ``chain()`` makes of a tree.
    """

    anchor: int
    anchor_position: int
    block: int
    drafted: tuple[int, ...]
    choices: tuple[int, ...]
    accepted: int
    emitted: tuple[int, ...]
    bonus: int | None
    end: End
    draft_probs: tuple[float, ...] = ()
    target_probs: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()
    draft_s: float = 0.0
    verify_s: float = 0.0
    rest_s: float = 0.0
    rewind_s: float = 0.0
    draft_alternatives: tuple[Alternatives, ...] = ()
    target_alternatives: tuple[Alternatives, ...] = ()
    parents: tuple[int, ...] = ()
    path: tuple[int, ...] = ()

    @property
    def depths(self) -> tuple[int, ...]:
        """How many tokens behind the anchor each drafted token stands, from 1."""
        if not self.parents:
            return tuple(range(1, len(self.drafted) + 1))
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return tuple(depths[1:])

    def chain(self) -> Round:
        """A tree as the chain that the target walked, then the drafter's most probable way on; a chain is itself.

        Alternatives are left out: they belong to rows, and a tree has another number of them.
        """
        if not self.parents:
            return self
        line = list(self.path)
        while (last := line[-1] + 1 if line else 0) in self.parents:
            line.append(self.parents.index(last))  # the first child is the most probable
        rows = (0, *(i + 1 for i in line))
        return replace(
            self,
            drafted=tuple(self.drafted[i] for i in line),
            choices=tuple(self.choices[row] for row in rows),
            draft_probs=tuple(self.draft_probs[i] for i in line if self.draft_probs),
            target_probs=tuple(self.target_probs[i] for i in line if self.target_probs),
            ranks=tuple(self.ranks[i] for i in line if self.ranks),
            draft_alternatives=(),
            target_alternatives=(),
            parents=(),
            path=(),
        )

    @property
    def branched(self) -> bool:
        """Whether the accepted path of a tree left the most probable one somewhere: there it beat a chain."""
        return any(entry != self.parents.index(self.parents[entry]) for entry in self.path)

    @property
    def seconds(self) -> float:
        """Wall time of the round, seconds; ``rewind_s`` is part of ``rest_s``."""
        return self.draft_s + self.verify_s + self.rest_s

    def cell(self, position: int) -> Cell:
        """What happened to the draft of a chain at ``position`` (0-based)."""
        if position >= len(self.drafted):
            return "not drafted"
        if position < self.accepted:
            return "accepted"
        return "rejected" if position == self.accepted else "not reached"

    def origins(self) -> tuple[Origin, ...]:
        """Where each emitted token came from: the draft, the bonus, or (nothing drafted) plain decoding."""
        kept = min(self.accepted, len(self.emitted))
        last: Origin = "bonus" if self.drafted else "plain"
        return tuple("accepted" if i < kept else last for i in range(len(self.emitted)))


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole run: prompt, first token, rounds, times and where it all came from.

    ``k`` is the number of drafted tokens asked for; ``source`` is "loop", "replay" or a server's name; ``about``
    holds provenance as plain strings (pair, method, dtype, device, q rule, temperature ...).
    """

    prompt_ids: tuple[int, ...]
    first_token: int | None
    rounds: tuple[Round, ...]
    k: int
    source: str = "loop"
    end: End = "none"
    time_to_first_token_s: float = 0.0
    decode_s: float = 0.0
    about: dict[str, str] = field(default_factory=dict)

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Every generated token, the first included."""
        first = () if self.first_token is None else (self.first_token,)
        return first + tuple(token for r in self.rounds for token in r.emitted)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """One origin per token of ``output_ids``; the first token comes from the prefill."""
        first: tuple[Origin, ...] = () if self.first_token is None else ("first",)
        return first + tuple(origin for r in self.rounds for origin in r.origins())

    @property
    def width(self) -> int:
        """Positions that a picture of the rounds needs: K, or the deepest draft of a run of trees."""
        deepest = [max(r.depths) if r.parents else max(self.k, len(r.drafted)) for r in self.rounds]
        return max(deepest, default=self.k)

    @property
    def tokens_per_second(self) -> float | None:
        """Decode throughput: tokens after the first / seconds after the first token; None without either."""
        tokens = sum(len(r.emitted) for r in self.rounds)
        return tokens / self.decode_s if tokens and self.decode_s > 0 else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Emitted tokens per target pass, passes without a draft included; None without rounds."""
        return sum(len(r.emitted) for r in self.rounds) / len(self.rounds) if self.rounds else None

    def summary(self) -> Summary:
        """The rates of this run alone."""
        return summarise([self])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data with ``schema_version``; ``from_json`` reads it back unchanged."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """Read what ``to_json`` wrote.

        Raises ValueError for another schema version.
        """
        version = data.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"trace schema_version is {version!r}; this lab reads {SCHEMA_VERSION}")
        body = {key: value for key, value in data.items() if key != "schema_version"}
        body["prompt_ids"] = tuple(body["prompt_ids"])
        body["rounds"] = tuple(_round_from_json(r) for r in body["rounds"])
        return cls(**body)


def _round_from_json(data: dict[str, Any]) -> Round:
    body: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    for key in ("draft_alternatives", "target_alternatives"):
        body[key] = tuple(Alternatives(tuple(a["ids"]), tuple(a["probs"])) for a in body.get(key, ()))
    return Round(**body)


@dataclass(frozen=True, slots=True)
class Rate:
    """A proportion with its counts and 95% Wilson interval; ``value`` is None without observations."""

    hits: int
    total: int

    @property
    def value(self) -> float | None:
        """hits / total."""
        return self.hits / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% Wilson score interval (Wilson 1927)."""
        if not self.total:
            return None
        n, p, z2 = self.total, self.hits / self.total, Z95 * Z95
        centre = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        low = 0.0 if self.hits == 0 else max(0.0, centre - half)
        high = 1.0 if self.hits == n else min(1.0, centre + half)
        return low, high


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts from which every rate follows; a Trace gives one, and so does a server's counter.

    ``accepted_at[i]`` counts rounds whose draft was accepted at position i, ``drafted_at[i]`` (when known) those
    that drafted it. ``left_out`` rounds (ended by a stop token or the limit, or shorter than K) are in no count of
    the acceptance length. ``spread`` is the standard deviation of ``accepted + 1``, None where only counters exist.
    """

    source: str
    definition: str
    drafts: int
    drafted: int
    accepted: int
    accepted_at: tuple[int, ...]
    drafted_at: tuple[int, ...] | None = None
    counted: int = 0
    counted_accepted: int = 0
    left_out: int = 0
    spread: float | None = None
    histogram: tuple[int, ...] | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Mean accepted + 1 over counted rounds, bonus included; None ("n/a") without such a round."""
        return 1 + self.counted_accepted / self.counted if self.counted else None

    @property
    def acceptance_length_interval(self) -> tuple[float, float] | None:
        """95% normal interval of the mean, rounds taken as independent; None below two rounds or without spread."""
        mean = self.acceptance_length
        if mean is None or self.spread is None or self.counted < 2:
            return None
        half = Z95 * self.spread / math.sqrt(self.counted)
        return max(1.0, mean - half), mean + half

    @property
    def draft_acceptance_rate(self) -> float | None:
        """accepted / drafted over the same rounds as the per-position rates."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_position(self) -> tuple[Rate, ...]:
        """Unconditional: accepted at i / rounds that drafted at least one token. Never rises with i."""
        return tuple(Rate(hits, self.drafts) for hits in self.accepted_at)

    @property
    def per_position_given_drafted(self) -> tuple[Rate, ...] | None:
        """Accepted at i / rounds that drafted position i; differs from ``per_position`` when draft lengths vary."""
        if self.drafted_at is None:
            return None
        return tuple(Rate(h, n) for h, n in zip(self.accepted_at, self.drafted_at, strict=True))

    @property
    def conditional(self) -> tuple[Rate, ...]:
        """Accepted at i / rounds that had accepted everything before i."""
        reached = (self.drafts, *self.accepted_at)[: len(self.accepted_at)]
        return tuple(Rate(h, n) for h, n in zip(self.accepted_at, reached, strict=True))


DEFINITION = (
    "acceptance length = mean of accepted + 1 (bonus included) over rounds that ended neither in a stop token nor at "
    "the token limit and drafted K; per position = unconditional"
)


def summarise(traces: Iterable[Trace]) -> Summary:
    """Pool the rounds of several runs (micro average over rounds) into one Summary."""
    runs = list(traces)
    rounds = [(r, t.k) for t in runs for r in t.rounds]
    drafting = [(r, k) for r, k in rounds if r.drafted and r.end == "none"]
    depths = [max(r.depths) for r, _ in drafting]
    width = max(depths, default=0)
    counted = [r.accepted for r, k in drafting if len(r.drafted) == k]
    mean = sum(counted) / len(counted) if counted else 0.0
    spread = None
    if len(counted) > 1:
        spread = math.sqrt(sum((a - mean) ** 2 for a in counted) / (len(counted) - 1))
    sources = sorted({t.source for t in runs})
    return Summary(
        source=", ".join(sources),
        definition=DEFINITION,
        drafts=len(drafting),
        drafted=sum(len(r.drafted) for r, _ in drafting),
        accepted=sum(r.accepted for r, _ in drafting),
        accepted_at=tuple(sum(r.accepted > i for r, _ in drafting) for i in range(width)),
        drafted_at=tuple(sum(depth > i for depth in depths) for i in range(width)),
        counted=len(counted),
        counted_accepted=sum(counted),
        left_out=sum(bool(r.drafted) for r, _ in rounds) - len(counted),
        spread=spread,
        histogram=tuple(sum(r.accepted == a for r, _ in drafting) for a in range(width + 1)),
    )


def strip_times(rounds: Sequence[Round]) -> tuple[Round, ...]:
    """The same rounds without clock readings: what two runs of one configuration must agree on."""
    return tuple(replace(r, draft_s=0.0, verify_s=0.0, rest_s=0.0, rewind_s=0.0) for r in rounds)


def bare(trace: Trace) -> Trace:
    """The trace without ranks, alternatives and, but for a tree's, probabilities: counts, ids and times remain."""
    return replace(trace, rounds=tuple(map(_bare, trace.rounds)))


def _bare(r: Round) -> Round:
    drafted = r.draft_probs if r.parents else ()  # a tree is drawn by them
    return replace(r, draft_probs=drafted, target_probs=(), ranks=(), draft_alternatives=(), target_alternatives=())


def cells_frame(trace: Trace) -> pd.DataFrame:
    """One row per (round, position < K): ``round``, ``position``, ``cell``, ids, probabilities and rank.

    Columns: round, position, cell, token, choice, draft_prob, target_prob, rank (missing values are NaN/NA). Trees are
    shown as the chain that was walked.
    """
    return pd.DataFrame(
        _cells([r.chain() for r in trace.rounds], trace.width),
        columns=["round", "position", "cell", "token", "choice", "draft_prob", "target_prob", "rank"],
    ).astype({"token": "Int64", "choice": "Int64", "rank": "Int64"})


def _cells(rounds: Sequence[Round], width: int) -> Iterator[tuple[Any, ...]]:
    for n, r in enumerate(rounds):
        for i in range(width):
            there = i < len(r.drafted)
            yield (
                n,
                i,
                r.cell(i),
                r.drafted[i] if there else None,
                r.choices[i] if there and i < len(r.choices) else None,
                r.draft_probs[i] if i < len(r.draft_probs) else None,
                r.target_probs[i] if i < len(r.target_probs) else None,
                r.ranks[i] if i < len(r.ranks) else None,
            )


def rounds_frame(trace: Trace) -> pd.DataFrame:
    """One row per round: counts, end, and milliseconds of draft, verify and rest. This is the CSV export."""
    columns = [
        "round",
        "anchor",
        "anchor_position",
        "drafted",
        "accepted",
        "emitted",
        "end",
        "draft_ms",
        "verify_ms",
        "rest_ms",
    ]
    rows = [
        (
            n,
            r.anchor,
            r.anchor_position,
            len(r.drafted),
            r.accepted,
            len(r.emitted),
            r.end,
            r.draft_s * 1e3,
            r.verify_s * 1e3,
            r.rest_s * 1e3,
        )
        for n, r in enumerate(trace.rounds)
    ]
    return pd.DataFrame(rows, columns=columns)


def rates_frame(summary: Summary) -> pd.DataFrame:
    """One row per position: unconditional and conditional rates with 95% intervals and their counts."""
    rows = []
    for i, (rate, cond) in enumerate(zip(summary.per_position, summary.conditional, strict=True)):
        low, high = rate.interval or (None, None)
        c_low, c_high = cond.interval or (None, None)
        rows.append((i, rate.value, low, high, rate.hits, rate.total, cond.value, c_low, c_high, cond.total))
    columns = [
        "position",
        "rate",
        "low",
        "high",
        "accepted",
        "rounds",
        "conditional",
        "conditional_low",
        "conditional_high",
        "reached",
    ]
    return pd.DataFrame(rows, columns=columns)
