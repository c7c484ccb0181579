"""What observed against expected comes to, in words: matches, deviates as a known reading does, or loses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dflash_lab.diagnose.signature import match, observe
from dflash_lab.servers.known import known_problems
from dflash_lab.servers.measure import REFERENCE, Measured
from dflash_lab.trace import Summary

if TYPE_CHECKING:
    from dflash_lab.servers.compare import Comparison

Kind = Literal["matches", "deviates", "loses", "unknown"]

ENOUGH = 0.99
"""Share of equal rounds from which a reading explains a server; the rest are near-ties."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`text` is one or two sentences; `suspects` what to look at first, the likeliest first."""

    kind: Kind
    text: str
    suspects: tuple[str, ...] = ()


def judge(found: Measured) -> Verdict:
    """The verdict on a measurement."""
    if found.comparisons:
        return _by_rounds(found)
    if found.observed and found.expected:
        return _by_rates(found, found.observed)
    return Verdict("unknown", found.note or "Nothing was compared.")


def _by_rounds(found: Measured) -> Verdict:
    reference = found.comparisons.get(REFERENCE)
    if reference and (reference.equal_share or 0.0) >= ENOUGH:
        return Verdict("matches", reference.sentence())
    explained = [(name, c) for name, c in found.comparisons.items() if (c.equal_share or 0.0) >= ENOUGH]
    if explained:
        name, own = explained[0]
        first = reference.sentence() if reference else f"The reference cannot run this config: {_refusal(found)}"
        return Verdict(
            "deviates",
            f"{first} It does exactly what {name} makes of this drafter: {own.equal_share:.1%} of {own.rounds} "
            "rounds are equal under that reading.",
            (name, *_known(found)),
        )
    closest = reference or next(iter(found.comparisons.values()))
    return Verdict("loses", closest.sentence(), _suspects(found, _observed(closest), closest))


def _by_rates(found: Measured, observed: Summary) -> Verdict:
    """Only rates are known: a reading agrees when every observed interval holds the expected rate."""
    agree = [name for name, expected in found.expected.items() if _within(observed, expected)]
    expected = found.expected.get(REFERENCE) or next(iter(found.expected.values()))
    lengths = f"acceptance length {_number(observed)} where {_number(expected)} is expected ({observed.drafts} rounds)"
    if REFERENCE in agree:
        return Verdict("matches", f"The server's rates are what this config can do, as far as they tell: {lengths}.")
    if agree:
        return Verdict("deviates", f"The server's rates are those of {agree[0]}: {lengths}.", tuple(agree))
    worst = max(
        range(len(observed.accepted_at)),
        key=lambda i: _rate(expected, i) - _rate(observed, i),
    )
    lost = _rate(expected, worst) - _rate(observed, worst)
    return Verdict(
        "loses", f"The server loses most at position {worst}, {lost:.1%} of rounds: {lengths}.", _known(found)
    )


def _within(observed: Summary, expected: Summary) -> bool:
    rates = enumerate(observed.per_position)
    return all((i := rate.interval) is None or i[0] <= _rate(expected, n) <= i[1] for n, rate in rates)


def _rate(summary: Summary, position: int) -> float:
    rates = summary.per_position
    return (rates[position].value or 0.0) if position < len(rates) else 0.0


def _number(summary: Summary) -> str:
    return "n/a" if summary.acceptance_length is None else f"{summary.acceptance_length:.2f}"


def _observed(comparison: Comparison) -> Summary:
    return comparison.summaries()[0]


def _suspects(found: Measured, observed: Summary, against: Comparison) -> tuple[str, ...]:
    shape = match(observe(observed, found.traces, expected=against.expected_acceptance_length))
    named = [suspect for m in shape for suspect in m.suspects]
    return tuple(dict.fromkeys([*_known(found), *named]))


def _known(found: Measured) -> tuple[str, ...]:
    facts = found.facts
    return (
        tuple(f.field for f in known_problems(facts.version) if f.severity != "note") if facts.engine == "vLLM" else ()
    )


def _refusal(found: Measured) -> str:
    return found.refused.get(REFERENCE, "no reason was given")
