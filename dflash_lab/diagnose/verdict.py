"""The verdict in plain words: the config, something else, a weak drafter, or nothing wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dflash_lab.diagnose.probes import Probe
from dflash_lab.diagnose.search import Repair
from dflash_lab.trace import Summary

PUBLISHED: dict[str, tuple[float, float, str]] = {
    "Qwen3-4B-DFlash-b16": (2.85, 6.64, "DFlash paper, T = 0, MT-Bench to HumanEval"),
    "Qwen3-8B-DFlash-b16": (2.75, 7.87, "DFlash paper, T = 0, MT-Bench to MATH-500"),
    "Qwen3.6-27B-DFlash": (2.8, 3.1, "vLLM with #40898, K = 15 and 5"),
    "smollm2-135m-dflash": (1.4, 4.2, "its own card, K = 5, by prompt"),
}
"""Drafter -> lowest and highest published acceptance length, and where."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in plain words: what it is, how sure, what to change, what that brings."""

    kind: str
    headline: str
    sure: str
    change: str
    brings: str


def judge(found: Repair, before: Summary | None, after: Summary, probes: Sequence[Probe], drafter: str = "") -> Verdict:
    """The verdict: the config, something else, a weak drafter, or nothing wrong."""
    was, now = length_of(before), length_of(after)
    brings = f"acceptance length {_number(was)} now, {_number(now)} after ({after.counted} rounds, bonus included)"
    tried = sum(found.tried.values())
    scope = f"{tried} configs scored on recorded text in {found.seconds:.0f} s"
    if found.end != "done":
        scope += f"; stopped by the {'time budget' if found.end == 'budget' else 'visitor'}, so there may be more"
    guilty = [p for p in probes if p.verdict == "guilty"]
    if found.changes:
        names = _listed([change.player for change in found.changes])
        fields = [f"{f} from {short(change.was[f])} to {short(v)}" for change in found.changes
                  for f, v in change.now.items()]  # fmt: skip
        least = min(change.certainty for change in found.changes)
        sure = "The config cannot run without it" if least == float("inf") else (
            f"Taking any of it back fits the recorded text worse by {least:.0f} standard errors or more")  # fmt: skip
        return Verdict("config", f"The config is wrong in {names}", f"{sure}; {scope}", "; ".join(fields), brings)
    if found.end != "done":
        more = "Give the search more seconds, or a quieter machine"
        return Verdict("unfinished", "Not finished: no better config so far", scope, more, brings)
    if guilty:
        headline = f"Not the config: {_listed([p.name for p in guilty])}"
        fixes = "; ".join(p.fix for p in guilty if p.fix)
        return Verdict("not the config", headline, f"No config change helps; {scope}", fixes, brings)
    low, high, source = PUBLISHED.get(drafter.rpartition("/")[2], (None, None, ""))
    known = f"published for this drafter: {low} to {high} ({source})" if low else "no published figure is known for it"
    first = after.per_position[0].value if after.per_position else None
    if now is not None and (now < 2.5 or (low is not None and now < low)):
        room = f"position 0 is accepted in {first:.0%} of rounds, " if first is not None else ""
        return Verdict(
            "weak drafter",
            "The config is healthy, the drafter is weak",
            f"No config change helps; {scope}",
            "Nothing in the config. More training is what is left",
            f"{room}where a fully trained drafter (Qwen3-4B) reaches 85%; {known}",
        )
    return Verdict("healthy", "Nothing is wrong", f"No config change helps; {scope}", "Nothing", f"{brings}; {known}")


def length_of(summary: Summary | None) -> float | None:
    """A summary's acceptance length; None without one."""
    return summary.acceptance_length if summary else None


def shown(value: Any) -> str:
    """A config value as a file has it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def short(value: Any) -> str:
    """A config value in a sentence: layer types by their first word, runs counted."""
    if value is None:
        return "absent"
    if isinstance(value, tuple) and value and all(isinstance(v, str) for v in value):
        words = [v.partition("_")[0] for v in value]
        return f"{len(words)} x {words[0]}" if len(set(words)) == 1 else ", ".join(words)
    return shown(value)


def _number(value: float | None) -> str:
    return "n/a (cannot run)" if value is None else f"{value:.2f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
