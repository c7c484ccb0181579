"""A finished diagnosis, as JSON and as Markdown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dflash_lab.config.checks import Finding
from dflash_lab.diagnose import card as cards
from dflash_lab.diagnose.blame import Blame
from dflash_lab.diagnose.probes import Probe
from dflash_lab.diagnose.search import Repair
from dflash_lab.diagnose.signature import Match
from dflash_lab.diagnose.verdict import Verdict, length_of, shown
from dflash_lab.trace import Summary


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything a diagnosis found; ``before`` is None when the config could not run."""

    pair: str
    k: int
    raw: dict[str, Any]
    repaired: dict[str, Any]
    before: Summary | None
    after: Summary
    matches: tuple[Match, ...]
    findings: tuple[Finding, ...]
    repair: Repair
    blame: Blame | None
    probes: tuple[Probe, ...]
    card: dict[str, str]
    verdict: Verdict
    id: str = ""
    path: str | None = None
    contexts: tuple[int, int] = (0, 0)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        r = self.repair
        return {
            "verdict": asdict(self.verdict),
            "pair": self.pair,
            "k": self.k,
            "acceptance_length": {"before": length_of(self.before), "after": length_of(self.after)},
            "rounds": {"before": self.before.counted if self.before else 0, "after": self.after.counted},
            "per_position": {"before": _rates(self.before), "after": _rates(self.after)},
            "definition": self.after.definition,
            "contexts": list(self.contexts),
            "signatures": [asdict(m) for m in self.matches],
            "changes": [asdict(c) | {"certainty": None if c.refused else c.certainty} for c in r.changes],
            "search": {"tried": r.tried, "seconds": r.seconds, "end": r.end, "anchors": r.anchors},
            "blame": _blame_json(self.blame),
            "probes": [asdict(p) for p in self.probes],
            "findings": [asdict(f) for f in self.findings],
            "config": self.raw,
            "repaired": self.repaired,
            "card": self.card,
        }

    def markdown(self) -> str:
        """The report for a person or an issue tracker."""
        return "\n".join(_markdown(self))


def _markdown(d: Diagnosis) -> list[str]:
    v = d.verdict
    lines = [
        f"# {v.headline}",
        "",
        f"- How sure: {v.sure}.",
        f"- Change: {v.change}.",
        f"- What it brings: {v.brings}.",
    ]
    if d.repair.changes:
        lines += [
            "",
            "## Fields",
            "",
            "| field | is | should be | tokens a round | rule |",
            "| --- | --- | --- | --- | --- |",
        ]
        for c in d.repair.changes:
            for f, value in c.now.items():
                worth = "cannot run" if c.refused else f"{c.gain:+.2f} ({c.low:+.2f} to {c.high:+.2f})"
                lines.append(f"| {f} | {shown(c.was[f])} | {shown(value)} | {worth} | {c.rule} |")
        equal = [f"{c.player}: {', '.join(shown(e) for e in c.equivalent)}" for c in d.repair.changes if c.equivalent]
        lines += ["", *(f"As good, as far as these texts tell: {e}." for e in equal)]
    if d.blame:
        lines += ["", f"## Blame (Shapley values, tokens a round, {d.blame.rounds} rounds)", ""]
        lines += [f"- {s.player}: {s.shapley.value:+.2f} ({s.shapley.low:+.2f} to {s.shapley.high:+.2f})"
                  for s in d.blame.shares]  # fmt: skip
    if d.matches:
        lines += ["", "## What the curve points at", ""]
        lines += [f"- {m.observed} ({m.shown}): {', '.join(m.suspects)}." for m in d.matches]
    lines += ["", "## Not the config", ""]
    lines += [f"- {p.name}: **{p.verdict}**. {p.evidence}.{f' {p.fix}.' if p.fix else ''}" for p in d.probes]
    if d.findings:
        lines += ["", "## What the file alone says", ""]
        lines += [f"- {f.severity}: {f.field}: {f.message}." for f in d.findings]
    return [*lines, "", "## Card", "", "```", cards.text(d.card), "```"]


def _blame_json(b: Blame | None) -> dict[str, Any] | None:
    if b is None:
        return None
    body = asdict(b)
    body["lengths"] = [
        {"right": [b.players[i] for i in sorted(s)], "acceptance_length": x} for s, x in b.lengths.items()
    ]
    return body


def _rates(summary: Summary | None) -> list[float | None]:
    return [rate.value for rate in summary.per_position] if summary else []
