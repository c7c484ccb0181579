"""Signatures: what the shape of the acceptance curve points at, before anything is replayed.

A table as data. Each row says what is observed, how that is tested, and whom it makes a suspect. A suspect is a
player (see `players`) or a probe (see `probes`): a signature accuses nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash_lab.trace import Summary, Trace, summarise

FEWEST = 20
"""Rounds below which a curve has no shape."""
NGRAM = 8


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of some runs; None where the source does not tell.

    ``first``, ``conditional`` from the per-position rates; ``late_share``: AL in the later half of the contexts over
    AL in the earlier half; ``expected``: the AL this pair should have; ``repeated``: share of the text's tokens that
    repeat an earlier run of 8.
    """

    length: float
    rounds: int
    k: int
    rates: tuple[float, ...]
    conditional: tuple[float | None, ...]
    late_share: float | None = None
    expected: float | None = None
    repeated: float | None = None
    tok_s: float | None = None
    plain_tok_s: float | None = None

    def rate(self, position: int) -> float:
        """Unconditional rate at a position; 0 behind the last."""
        return self.rates[position] if position < len(self.rates) else 0.0

    def carried(self) -> float | None:
        """Mean conditional rate at positions 1 to 3: what is carried on from one position to the next."""
        some = [c for c in self.conditional[1:4] if c is not None]
        return sum(some) / len(some) if some else None


@dataclass(frozen=True, slots=True)
class Signature:
    """One row: the observation in words, its test, what it saw (`shown`), suspects the likeliest first, source."""

    name: str
    observed: str
    test: Callable[[Observation], bool]
    shown: Callable[[Observation], str]
    suspects: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that an observation has, and the figures that show it."""

    name: str
    observed: str
    shown: str
    suspects: tuple[str, ...]
    source: str


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "nothing accepted",
        "Position 0 is near 0, acceptance length about 1",
        lambda o: o.rate(0) < 0.15,
        lambda o: f"position 0 accepted in {o.rate(0):.0%} of rounds",
        ("mask_token_id", "target_layer_ids", "is_neox_style", "another target", "prefix cache", "head not shared"),
        "vllm#50170, sglang#27924, vllm#46435, vllm#47926",
    ),
    Signature(
        "conditioning",
        "Position 0 is about half of normal and nothing is left after four",
        lambda o: 0.15 <= o.rate(0) < 0.5 and o.k >= 4 and o.rate(3) < 0.05,
        lambda o: f"position 0 at {o.rate(0):.0%}, position 3 at {o.rate(3):.0%}",
        ("target_layer_ids", "mask_token_id", "weak drafter", "head not shared"),
        "vllm#40727",
    ),
    Signature(
        "steep fall",
        "Position 0 is nearly normal, the rest falls steeply",
        lambda o: o.rate(0) >= 0.5 and (carried := o.carried()) is not None and carried < 0.65,
        lambda o: f"position 0 at {o.rate(0):.0%}, then {o.carried() or 0:.0%} from one position to the next",
        ("is_causal", "layer_types", "mask_token_id"),
        "vllm#40898, z-lab#126",
    ),
    Signature(
        "a little lower everywhere",
        "2 to 16% below what the pair should reach",
        lambda o: o.expected is not None and 0.84 <= o.length / o.expected <= 0.98,
        lambda o: f"acceptance length {o.length:.2f}, expected {o.expected:.2f}",
        ("target_layer_ids", "engine", "quantisation"),
        "vllm#40727, atlas#394",
    ),
    Signature(
        "falls with context",
        "Good at short context, worse at long",
        lambda o: o.late_share is not None and o.late_share < 0.85,
        lambda o: f"the later half of the contexts reaches {o.late_share or 0:.0%} of the earlier half",
        ("layer_types", "rope_parameters", "context length"),
        "vllm#58080, lucebox#447, z-lab#66",
    ),
    Signature(
        "accepted but slow",
        "Acceptance is good, tok/s is not",
        lambda o: o.length >= 1.8 and o.tok_s is not None and o.plain_tok_s is not None and o.tok_s < o.plain_tok_s,
        lambda o: f"{o.tok_s:.1f} tok/s against {o.plain_tok_s:.1f} for the target alone",
        ("K too large", "engine"),
        "z-lab#151, vllm#42505",
    ),
    Signature(
        "everything accepted",
        "Nearly every draft is accepted whole",
        lambda o: o.k > 1 and o.rate(o.k - 1) > 0.9,
        lambda o: f"the last position is accepted in {o.rate(o.k - 1):.0%} of rounds",
        ("repetition",),
        "hipfire",
    ),
    Signature(
        "repetition",
        "The text repeats itself",
        lambda o: o.repeated is not None and o.repeated > 0.5,
        lambda o: f"{o.repeated or 0:.0%} of the tokens repeat an earlier run of {NGRAM}",
        ("repetition",),
        "hipfire",
    ),
)
"""The table."""


def observe(
    summary: Summary,
    traces: Sequence[Trace] = (),
    *,
    expected: float | None = None,
    tok_s: float | None = None,
    plain_tok_s: float | None = None,
) -> Observation | None:
    """What a summary, and its traces where there are any, show; None with fewer than `FEWEST` counted rounds."""
    length = summary.acceptance_length
    if length is None or summary.counted < FEWEST:
        return None
    return Observation(
        length=length,
        rounds=summary.counted,
        k=len(summary.accepted_at),
        rates=tuple(rate.value or 0.0 for rate in summary.per_position),
        conditional=tuple(rate.value for rate in summary.conditional),
        late_share=late_share(traces),
        expected=expected,
        repeated=repeated(traces),
        tok_s=tok_s,
        plain_tok_s=plain_tok_s,
    )


def match(observation: Observation | None) -> list[Match]:
    """The signatures that an observation has, in the table's order."""
    if observation is None:
        return []
    return [
        Match(s.name, s.observed, s.shown(observation), s.suspects, s.source) for s in SIGNATURES if s.test(observation)
    ]


def late_share(traces: Sequence[Trace]) -> float | None:
    """AL of rounds beyond the median anchor position over AL of the others; None below 2 x `FEWEST` rounds."""
    rounds = sorted(
        (r.anchor_position, r.accepted + 1) for t in traces for r in t.rounds if r.end == "none" and r.drafted
    )
    half = len(rounds) // 2
    if half < FEWEST:
        return None
    early, late = (sum(n for _, n in part) / len(part) for part in (rounds[:half], rounds[half:]))
    return late / early


def repeated(traces: Sequence[Trace]) -> float | None:
    """Share of output tokens inside a run of `NGRAM` that the same text has already held."""
    tokens = hits = 0
    for trace in traces:
        ids, seen, covered = trace.output_ids, Counter[tuple[int, ...]](), -1
        for i in range(len(ids) - NGRAM + 1):
            gram = ids[i : i + NGRAM]
            if seen[gram]:
                hits += i + NGRAM - max(covered, i)
                covered = i + NGRAM
            seen[gram] += 1
        tokens += len(ids)
    return hits / tokens if tokens else None


def observe_traces(traces: Sequence[Trace], **known: float | None) -> Observation | None:
    """`observe` for runs whose traces are known."""
    return observe(summarise(traces), traces, **known)
