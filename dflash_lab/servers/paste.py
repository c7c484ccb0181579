"""What people paste from an engine's log or metrics page, as a Summary with the lab's definitions.

| engine | line | gives |
| --- | --- | --- |
| vLLM | `SpecDecoding metrics:` | counts and rates by position; older ones counts only |
| vLLM | Prometheus text | exact counts |
| llama.cpp | `draft acceptance = ... ( A accepted / G generated)` | counts; newer ones length and rates by position |
| SGLang | `Decode batch ... accept len:` | the mean length of each line, no count of rounds |

Rounds are not printed by vLLM's and llama.cpp's lines: they follow from accepted / (acceptance length - 1), where the
printed length has two decimals, so they are within about 1% unless almost nothing was accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dflash_lab.errors import LabError
from dflash_lab.servers.metrics import DRAFTS, read_counters
from dflash_lab.trace import Summary

NUMBER = r"(\d+(?:\.\d+)?)"
_VLLM = re.compile(r"SpecDecoding metrics: .*")
_LLAMA = re.compile(
    rf"draft acceptance(?: rate)? = {NUMBER} \( *(\d+) accepted / *(\d+) generated\)"
    rf"(?:, mean (?:acceptance length|len) = +{NUMBER})?(?:, acceptance rate per position = \(([\d., ]+)\))?"
)
_SGLANG = re.compile(rf"Decode batch.*?accept len: {NUMBER}")

DEFINITION = (
    "acceptance length = accepted / rounds + 1 (bonus included), every round counted, final ones too; rounds follow "
    "from the printed length; per position = unconditional"
)


@dataclass(frozen=True, slots=True)
class Pasted:
    """What a pasted text says: ``lines`` were understood.

    ``summary`` is None where no counts are printed; ``acceptance_length`` then is the plain mean over the lines, not
    weighed by their rounds, and None where the engine does not print one.
    """

    engine: str
    lines: int
    summary: Summary | None
    acceptance_length: float | None
    definition: str


def read_pasted(text: str) -> Pasted:
    """Understand ``text``; several lines of one engine are pooled.

    Raises LabError when nothing in it is known, or its lines come from several engines.
    """
    found = [
        pasted for pasted in (_vllm(text), _prometheus(text), _llama(text), _sglang(text)) if pasted is not None
    ]  # fmt: skip
    if not found:
        raise LabError(
            "No acceptance figures in this text",
            "Paste vLLM's SpecDecoding metrics lines or /metrics page, SGLang's Decode batch lines, or llama.cpp's "
            "draft acceptance line",
        )
    if len(found) > 1:
        names = " and ".join(pasted.engine for pasted in found)
        raise LabError(f"This text holds lines of {names}", "Paste those of one engine at a time")
    return found[0]


@dataclass(frozen=True, slots=True)
class _Line:
    """Counts of one line; rounds None where they do not follow from what is printed."""

    accepted: int
    drafted: int
    rounds: int | None
    rates: tuple[float, ...]


def _rounds(accepted: int, length: float | None, drafted: int, width: int) -> int | None:
    if length is not None and length > 1 and accepted:
        return round(accepted / (length - 1))
    # Nothing was accepted: every round drafted the full width, when there is one.
    return drafted // width if length is not None and width else None


def _pool(engine: str, lines: Sequence[_Line]) -> Pasted | None:
    if not lines:
        return None
    known = all(line.rounds is not None for line in lines)
    rounds = sum(line.rounds or 0 for line in lines) if known else 0
    width = max(len(line.rates) for line in lines) if known and all(line.rates for line in lines) else 0
    accepted = sum(line.accepted for line in lines)
    at = tuple(
        sum(round(line.rates[i] * (line.rounds or 0)) for line in lines if i < len(line.rates)) for i in range(width)
    )
    summary = Summary(
        source=f"{engine} log",
        definition=DEFINITION if known else "accepted / drafted tokens; the number of rounds is not printed",
        drafts=rounds,
        drafted=sum(line.drafted for line in lines),
        accepted=accepted,
        accepted_at=at,
        counted=rounds,
        counted_accepted=accepted if rounds else 0,
    )
    return Pasted(engine, len(lines), summary, summary.acceptance_length, summary.definition)


def _vllm(text: str) -> Pasted | None:
    lines = []
    for match in _VLLM.finditer(text):
        line = match[0]
        accepted, drafted = _value(line, r"Accepted: (\d+) tokens"), _value(line, r"Drafted: (\d+) tokens")
        if accepted is None or drafted is None:
            continue
        positions = re.search(r"Per-position acceptance rate: ([\d., ]+\d)", line)
        rates = _floats(positions[1]) if positions else ()
        length = _value(line, rf"Mean acceptance length: {NUMBER}")
        lines.append(
            _Line(int(accepted), int(drafted), _rounds(int(accepted), length, int(drafted), len(rates)), rates)
        )
    return _pool("vLLM", lines)


def _prometheus(text: str) -> Pasted | None:
    if f"{DRAFTS}_total" not in text:
        return None
    summary = read_counters(text.strip() + "\n").summary()
    return Pasted("vLLM", 1, summary, summary.acceptance_length, summary.definition)


def _llama(text: str) -> Pasted | None:
    lines = []
    for match in _LLAMA.finditer(text):
        accepted, drafted = int(match[2]), int(match[3])
        rates = _floats(match[5]) if match[5] else ()
        length = float(match[4]) if match[4] else None
        lines.append(_Line(accepted, drafted, _rounds(accepted, length, drafted, len(rates)), rates))
    return _pool("llama.cpp", lines)


def _sglang(text: str) -> Pasted | None:
    lengths = [float(match[1]) for match in _SGLANG.finditer(text)]
    if not lengths:
        return None
    definition = "mean of the printed lengths (bonus included), lines not weighed by their rounds"
    return Pasted("SGLang", len(lengths), None, sum(lengths) / len(lengths), definition)


def _value(line: str, pattern: str) -> float | None:
    match = re.search(pattern, line)
    return float(match[1]) if match else None


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",") if part.strip())
