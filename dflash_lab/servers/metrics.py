"""Speculative counters in Prometheus text: read, summed over engines, and subtracted around a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dflash_lab.errors import LabError
from dflash_lab.trace import Summary

DRAFTS = "vllm:spec_decode_num_drafts"
DRAFTED = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
AT = "vllm:spec_decode_num_accepted_tokens_per_pos"

DEFINITION = (
    "acceptance length = 1 + accepted / drafts (bonus included) from the server's counters: every round counts, final "
    "ones too, and everybody's requests; per position = unconditional"
)

Engine = tuple[str, str]
"""(model name, engine number): the labels of one engine's series."""


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """One engine's counters since it started; `created` (Unix seconds) tells a restart, 0 where it is not given."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()
    created: float = 0.0

    def since(self, earlier: EngineCounts) -> EngineCounts:
        """The counts added since `earlier`; all of them when the engine restarted in between."""
        if self.restarted_since(earlier):
            return self
        width = max(len(self.accepted_at), len(earlier.accepted_at))
        mine, old = (_wide(c.accepted_at, width) for c in (self, earlier))
        return EngineCounts(
            self.drafts - earlier.drafts,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            tuple(a - b for a, b in zip(mine, old, strict=True)),
            self.created,
        )

    def restarted_since(self, earlier: EngineCounts) -> bool:
        """Counters only grow: a smaller one, or another birth, is another process."""
        return self.drafts < earlier.drafts or self.drafted < earlier.drafted or self.created > earlier.created > 0


@dataclass(frozen=True, slots=True)
class Counters:
    """What `/metrics` held at one moment, an entry an engine."""

    engines: dict[Engine, EngineCounts] = field(default_factory=dict)

    def since(self, earlier: Counters) -> Counters:
        """The difference, engine by engine; an engine that was not there before counts from zero."""
        return Counters({e: c.since(earlier.engines.get(e, EngineCounts())) for e, c in self.engines.items()})

    def restarted_since(self, earlier: Counters) -> bool:
        """Whether any engine restarted, or went away, in between: then the difference misses rounds."""
        gone = earlier.engines.keys() - self.engines.keys()
        return bool(gone) or any(
            c.restarted_since(earlier.engines.get(e, EngineCounts())) for e, c in self.engines.items()
        )

    def model(self, name: str) -> Counters:
        """Only the engines of one model."""
        return Counters({e: c for e, c in self.engines.items() if e[0] == name})

    def summary(self, source: str = "vLLM /metrics") -> Summary:
        """All engines pooled."""
        counts = list(self.engines.values())
        width = max((len(c.accepted_at) for c in counts), default=0)
        drafts, accepted = sum(c.drafts for c in counts), sum(c.accepted for c in counts)
        at = tuple(sum(_wide(c.accepted_at, width)[i] for c in counts) for i in range(width))
        return Summary(
            source=source,
            definition=DEFINITION,
            drafts=drafts,
            drafted=sum(c.drafted for c in counts),
            accepted=accepted,
            accepted_at=at,
            counted=drafts,
            counted_accepted=accepted,
        )


def read_counters(text: str) -> Counters:
    """The speculative counters in a `/metrics` page; no engines when the server does not speculate.

    Raises LabError when the text is not in Prometheus' format.
    """
    totals: dict[tuple[Engine, str], float] = {}
    positions: dict[Engine, dict[int, float]] = {}
    created: dict[Engine, float] = {}
    for sample in _samples(text):
        engine = (sample.labels.get("model_name", ""), sample.labels.get("engine", ""))
        name = sample.name
        if name in (f"{DRAFTS}_total", f"{DRAFTED}_total", f"{ACCEPTED}_total"):
            key = (engine, name.removesuffix("_total"))
            totals[key] = totals.get(key, 0.0) + sample.value
        elif name == f"{AT}_total":
            at = positions.setdefault(engine, {})
            position = int(sample.labels["position"])
            at[position] = at.get(position, 0.0) + sample.value
        elif name == f"{DRAFTS}_created":
            created[engine] = sample.value
    engines = {engine for engine, _ in totals}
    return Counters(
        {
            e: EngineCounts(
                drafts=int(totals.get((e, DRAFTS), 0)),
                drafted=int(totals.get((e, DRAFTED), 0)),
                accepted=int(totals.get((e, ACCEPTED), 0)),
                accepted_at=tuple(int(positions[e].get(i, 0)) for i in range(1 + max(positions[e])))
                if e in positions
                else (),
                created=created.get(e, 0.0),
            )
            for e in sorted(engines)
        }
    )


def read_gauges(text: str, names: Iterable[str]) -> dict[str, float]:
    """The first value of each named metric in a `/metrics` page.

    Raises LabError when the text is not in Prometheus' format.
    """
    wanted, found = set(names), dict[str, float]()
    for sample in _samples(text):
        if sample.name in wanted:
            found.setdefault(sample.name, sample.value)
    return found


def _samples(text: str) -> list[Sample]:
    try:
        return [s for family in text_string_to_metric_families(text) for s in family.samples]
    except Exception as error:  # the parser raises ValueError, KeyError and IndexError alike
        raise LabError(
            f"This is not Prometheus text: {error or type(error).__name__}", "Give the page of the server's /metrics"
        ) from error


def _wide(counts: tuple[int, ...], width: int) -> tuple[int, ...]:
    return counts + (0,) * (width - len(counts))
