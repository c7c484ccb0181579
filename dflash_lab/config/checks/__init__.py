"""What is wrong with a config.json, as findings: pure functions over the raw JSON and whatever else is known.

Every check is a generator over a `Subject`; a check never raises, whatever the JSON. The text says what is seen; the
reason and, where there is one, the public failure behind it stand beside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dflash_lab.config.checks import attention, dialect, mask, rope, serving, sizes, taps
from dflash_lab.config.checks.finding import EmbeddingFacts, Facts, Finding, Severity, TokenizerFacts
from dflash_lab.config.checks.gather import gather
from dflash_lab.config.checks.subject import Subject

__all__ = ["CHECKS", "EmbeddingFacts", "Facts", "Finding", "Severity", "TokenizerFacts", "check", "gather"]

CHECKS = (
    *sizes.CHECKS,
    *dialect.CHECKS,
    *mask.CHECKS,
    *taps.CHECKS,
    *attention.CHECKS,
    *rope.CHECKS,
    *serving.CHECKS,
)
ORDER: tuple[Severity, ...] = ("error", "warning", "note")


def check(raw: Any, facts: Facts | None = None) -> list[Finding]:
    """All findings, errors first. Never raises on anything JSON can hold."""
    if not isinstance(raw, dict):
        what = "The file does not hold a JSON object"
        return [Finding("error", "config", raw, what, None, "Give the drafter's config.json", check="unreadable")]
    subject = Subject(raw, facts or Facts())
    found = [replace(finding, check=rule.__name__) for rule in CHECKS for finding in rule(subject)]
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))
