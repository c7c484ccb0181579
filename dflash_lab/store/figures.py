"""The figures of an experiment and of a comparison, by title: for the page, the report and Jupyter alike."""

from __future__ import annotations

import plotly.graph_objects as go

from dflash_lab import plots
from dflash_lab.store.collect import as_sweep
from dflash_lab.store.compare import Comparison, rate_differences, rates
from dflash_lab.store.experiment import Experiment

MOST_ROUNDS = 120
"""Rounds that a heatmap of cells shows; more are too narrow to tell apart."""


def figures(experiment: Experiment) -> dict[str, go.Figure]:
    """Title -> figure, the one that says most first; empty for an experiment without rounds."""
    main = experiment.figures
    if main is None:
        return {}
    if experiment.kind == "sweep":
        return _sweep(experiment)
    if experiment.kind == "run" and main.k and main.traces:
        trace = main.traces[0]
        shown = range(min(len(trace.rounds), MOST_ROUNDS))
        return {
            f"What became of every drafted token, rounds 1 to {len(shown)}": plots.cells_heatmap(
                trace, experiment.wording, shown
            ),
            "Acceptance by position": plots.per_position(main.summary),
        }
    drafted = {s.name: s.summary for s in experiment.series if s.k}
    found = {"Acceptance by position": plots.positions_compared(drafted)} if drafted else {}
    if main.k and main.traces:
        found["Acceptance by prompt and position"] = plots.rate_heatmap(rates(main), "drafted position", "prompt")
    return found


def _sweep(experiment: Experiment) -> dict[str, go.Figure]:
    found = as_sweep(experiment)
    frame = found.frame()
    drafted = frame[frame["k"] > 0]
    return {
        "Decode throughput against K": plots.against_k(drafted, "tok_s", "tok/s", found.tok_s(0), found.runs_frame()),
        "Acceptance length against K": plots.against_k(drafted, "al", "acceptance length"),
        "Acceptance by position and K": plots.rate_heatmap(found.position_by_k(), "", "position"),
    }


def comparison_figures(found: Comparison) -> dict[str, go.Figure]:
    """Both sides' heatmaps and their difference, where both have traces; the curves in any case."""
    names = {f"A: {found.here.name}": found.here.series, f"B: {found.there.name}": found.there.series}
    made = {
        "Acceptance by position": plots.positions_compared(
            {name[:60]: series.summary for name, series in names.items() if series.k}
        )
    }
    if not (found.here.series.k and found.there.series.k):
        return made
    for name, series in names.items():
        if series.traces:
            made[name] = plots.rate_heatmap(rates(series), "drafted position", "prompt")
    if found.common:
        made["B minus A, on the common prompts"] = plots.rate_difference_heatmap(
            rate_differences(found), "drafted position", "prompt"
        )
    return made
