"""An experiment as tables: CSV of its rounds, JSON as stored, Markdown for people and issue trackers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd

from dflash_lab.edits import shown
from dflash_lab.store.compare import Comparison, Side, metrics
from dflash_lab.store.experiment import Experiment
from dflash_lab.trace import rates_frame, rounds_frame


def as_json(experiment: Experiment) -> str:
    """Everything, as text; ``Experiment.from_json`` reads it."""
    return json.dumps(experiment.to_json(), ensure_ascii=False, indent=1)


def as_csv(experiment: Experiment) -> str:
    """One row a round with its series and prompt; one row a position where there are only counts."""
    frames = []
    for s in experiment.series:
        if s.counts is not None:
            frames.append(rates_frame(s.counts).assign(series=s.name, K=s.k))
        for prompt, trace in zip(s.prompts, s.traces, strict=True):
            frames.append(rounds_frame(trace).assign(series=s.name, K=s.k, prompt=prompt))
    return pd.concat(frames, ignore_index=True).to_csv(index=False) if frames else ""


def markdown(experiments: Sequence[Experiment], found: Comparison | None = None) -> str:
    """The experiments' words and figures, and the comparison when there is one."""
    lines: list[str] = []
    for e in experiments:
        lines += [f"## {_cell(e.title)}", ""]
        words = {"Hypothesis": e.hypothesis, "Result": e.headline, "Verdict": e.verdict, "Tags": ", ".join(e.tags)}
        lines += [f"- **{name}**: {_cell(text)}" for name, text in words.items() if text]
        lines += [f"- **Pair**: {_cell(str(e.pair.get('name', '')))}, {e.created}", ""]
        if e.patch:
            lines += ["Change to the pair's own config:", "", "| step | field | value |", "| --- | --- | --- |"]
            lines += [
                f"| {p.get('op')} | {_cell(p.get('path', ''))} | {_cell(shown(p.get('value')))} |" for p in e.patch
            ]
            lines.append("")
        if e.series:
            lines += [table(metrics([Side(e, s) for s in e.series])), ""]
        if e.note:
            lines += [e.note, ""]
    if found is not None:
        lines += ["## Comparison", "", f"A: {_cell(found.here.name)}; B: {_cell(found.there.name)}", ""]
        lines += [f"- B minus A: {found.sentence()}", f"- {_cell(found.texts_sentence())}"]
        differences = [*found.config, *found.settings]
        if differences:
            lines += ["", "| | A | B |", "| --- | --- | --- |"]
            lines += [f"| {d.field} | {_cell(shown(d.here))} | {_cell(shown(d.there))} |" for d in differences]
    return "\n".join(lines).strip() + "\n"


def table(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table: two digits, n/a for what is missing."""
    rows = [[figure_text(value) for value in row] for row in frame.itertuples(index=False)]
    head = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*head, *rows])


def figure_text(value: object) -> str:
    """A table's cell: two digits for a fraction, n/a for what is missing."""
    if isinstance(value, str):
        return _cell(value)
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return "n/a"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Text that cannot end a table's cell or start another line."""
    return " ".join(text.split()).replace("|", "\\|")
