"""Figures that hold methods side by side: against K or budget, by kind of prompt, along the context, and slid."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from dflash_lab.drafters.method import NAMES, Method
from dflash_lab.palette import GREY, PURPLE, SERIES
from dflash_lab.plots import LEGEND, MARGIN, draw_baseline, errors

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")
PATTERNS = ("", "/", ".", "x", "-", "+")


def series(method: Method) -> str:
    """The line that a method belongs to: all but its K or budget."""
    depth, config = (
        f", depth {method.depth}" if method.depth else "",
        f", {method.config} config" if method.config else "",
    )
    return NAMES[method.kind] + depth + config


def against_drafted(frame: pd.DataFrame, value: str, title: str, baseline: float | None = None) -> go.Figure:
    """One quantity against the drafted tokens of a round, a line per series, on a logarithmic axis: budgets double.

    ``frame`` has the columns ``series``, ``k``, ``value``, ``{value}_low`` and ``{value}_high`` (measured, 95%) and,
    where it was predicted, ``predicted_{value}``: drawn open and dotted. ``baseline`` is the target alone.
    """
    figure = go.Figure()
    for n, (name, rows) in enumerate(frame.sort_values("k").groupby("series", sort=False)):
        colour, symbol = SERIES[n % len(SERIES)], SYMBOLS[n % len(SYMBOLS)]
        figure.add_scatter(
            x=rows["k"],
            y=rows[value],
            error_y=errors(rows[value], rows[f"{value}_low"], rows[f"{value}_high"]),
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 9, "symbol": symbol},
            name=str(name),
            legendgroup=str(name),
            hovertemplate=f"{name}, %{{x}} drafted: %{{y:.2f}} {title}<extra></extra>",
        )
        predicted = rows.get(f"predicted_{value}")
        if predicted is not None and predicted.notna().any():
            figure.add_scatter(
                x=rows["k"],
                y=predicted,
                mode="lines+markers",
                line={"color": colour, "width": 1.5, "dash": "dot"},
                marker={"size": 11, "symbol": f"{symbol}-open"},
                name=f"{name}, predicted",
                legendgroup=str(name),
                hovertemplate=f"{name}, %{{x}} drafted: %{{y:.2f}} {title} predicted<extra></extra>",
            )
    draw_baseline(figure, baseline)
    ticks = sorted(set(frame["k"]))
    figure.update_layout(height=360, margin=MARGIN | {"t": 80}, legend=LEGEND)
    figure.update_xaxes(title="drafted tokens a round (K, or the tree's budget)", type="log")
    figure.update_xaxes(tickvals=ticks, ticktext=list(map(str, ticks)))
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def by_kind(frame: pd.DataFrame, value: str, title: str) -> go.Figure:
    """Bars of one quantity by kind of prompt, the methods side by side.

    ``frame`` has the columns ``prompts`` (their kind), ``label`` (the method), ``value``, ``{value}_low``,
    ``{value}_high`` (95%) and ``rounds``.
    """
    figure = go.Figure()
    for n, (name, rows) in enumerate(frame.groupby("label", sort=False)):
        figure.add_bar(
            x=rows["prompts"],
            y=rows[value],
            error_y=errors(rows[value], rows[f"{value}_low"], rows[f"{value}_high"]),
            marker={"color": SERIES[n % len(SERIES)], "pattern": {"shape": PATTERNS[n % len(PATTERNS)]}},
            name=str(name),
            customdata=rows[["rounds"]],
            hovertemplate=f"{name}, %{{x}}: %{{y:.2f}} {title} (%{{customdata[0]}} rounds)<extra></extra>",
        )
    figure.update_layout(height=360, margin=MARGIN | {"t": 80}, legend=LEGEND, barmode="group")
    figure.update_xaxes(title="kind of prompt")
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def along_context(frames: Mapping[str, pd.DataFrame]) -> go.Figure:
    """Acceptance length against the anchor's position, a line per method.

    A frame has the columns ``context`` (tokens before the draft), ``al``, ``low``, ``high`` (95%) and ``rounds``.
    """
    figure = go.Figure()
    for n, (name, rows) in enumerate(frames.items()):
        figure.add_scatter(
            x=rows["context"],
            y=rows["al"],
            error_y=errors(rows["al"], rows["low"], rows["high"]),
            mode="lines+markers",
            line={"color": SERIES[n % len(SERIES)], "width": 2},
            marker={"size": 9, "symbol": SYMBOLS[n % len(SYMBOLS)]},
            name=f"{name} ({rows['rounds'].sum()} rounds)",
            customdata=rows[["rounds"]],
            hovertemplate=f"{name}, about %{{x:.0f}} tokens before: %{{y:.2f}} (%{{customdata[0]}} rounds)"
            "<extra></extra>",
        )
    figure.update_layout(height=360, margin=MARGIN | {"t": 80}, legend=LEGEND)
    figure.update_xaxes(title="tokens before the draft, prompt included")
    figure.update_yaxes(title="acceptance length", rangemode="tozero")
    return figure


def better_drafter(curve: pd.DataFrame, picked: tuple[float, float], rivals: Mapping[str, float]) -> go.Figure:
    """tok/s of one method against the acceptance length it would need, and the rivals as dashed lines.

    ``curve`` has the columns ``al``, ``tok_s`` and perhaps ``limit_tok_s`` (drawn dotted), ``picked`` is the point
    (acceptance length, tok/s) that is looked at, ``rivals`` are other methods' tok/s.
    """
    figure = go.Figure(
        go.Scatter(
            x=curve["al"],
            y=curve["tok_s"],
            mode="lines",
            line={"color": SERIES[0], "width": 2},
            hovertemplate="acceptance length %{x:.2f}: %{y:.1f} tok/s<extra></extra>",
        )
    )
    if "limit_tok_s" in curve:
        figure.add_scatter(
            x=curve["al"],
            y=curve["limit_tok_s"],
            mode="lines",
            line={"color": GREY, "dash": "dot", "width": 1.5},
            hovertemplate="limit of the memory at %{x:.2f}: %{y:.1f} tok/s<extra></extra>",
        )
    figure.add_scatter(
        x=[picked[0]],
        y=[picked[1]],
        mode="markers",
        marker={"color": PURPLE, "size": 14, "symbol": "diamond"},
        hovertemplate="picked: %{x:.2f}, %{y:.1f} tok/s<extra></extra>",
    )
    for name, tok_s in rivals.items():
        figure.add_hline(
            y=tok_s,
            line={"color": GREY, "dash": "dash", "width": 1.5},
            annotation={"text": f"{name} {tok_s:.1f}", "showarrow": False},
            annotation_position="top left",
        )
    figure.update_layout(height=340, margin=MARGIN, showlegend=False)
    figure.update_xaxes(title="acceptance length, bonus included")
    figure.update_yaxes(title="tok/s, predicted", rangemode="tozero")
    return figure
