"""Plotly figures of traces, summaries and sweeps. Frames in, figures out; no Streamlit.

Every axis title says what is counted and on how many rounds it rests. Fonts and backgrounds are left to the page's
theme, so the same figure reads in light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd
import plotly.graph_objects as go

from dflash_lab.palette import CELL_SYMBOLS, CELLS, DIFFERENCE_SCALE, GREY, PURPLE, RATE_SCALE, SERIES
from dflash_lab.tokens import Wording, visible
from dflash_lab.trace import Round, Summary, Trace, rates_frame

CELL_CODES = {cell: code for code, cell in enumerate(CELLS)}
SYMBOLS_UP_TO = 60
"""Rounds above which cells are too narrow for a symbol; colour, position and the hover text remain."""

MARGIN = {"l": 10, "r": 10, "t": 34, "b": 10}
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "title": None}


def cells_heatmap(trace: Trace, wording: Wording, rounds: range | None = None) -> go.Figure:
    """Drafted positions (down) by rounds (across), one of four kinds of cells each.

    ``rounds`` (0-based) picks a stretch of a long run. Plotly heatmaps report no clicks to Streamlit, so an
    invisible square lies over every cell: its ``customdata`` is ``[round, position]``, both 0-based.
    """
    shown = range(len(trace.rounds)) if rounds is None else rounds
    width = trace.width
    chains = {n: trace.rounds[n].chain() for n in shown}
    cells = [[chains[n].cell(i) for n in shown] for i in range(width)]
    edges = [n / len(CELLS) for n in range(len(CELLS) + 1)]
    figure = go.Figure(
        go.Heatmap(
            x=[n + 1 for n in shown],
            y=list(range(width)),
            z=[[CELL_CODES[cell] for cell in row] for row in cells],
            zmin=-0.5,
            zmax=len(CELLS) - 0.5,
            colorscale=[[edge, c] for n, c in enumerate(CELLS.values()) for edge in edges[n : n + 2]],
            showscale=False,
            xgap=1,
            ygap=2,
            hoverinfo="skip",
            text=[[CELL_SYMBOLS[cell] for cell in row] for row in cells],
            texttemplate="%{text}" if len(shown) <= SYMBOLS_UP_TO else None,
            textfont={"color": "white"},
        )
    )
    at = [(n, i) for n in shown for i in range(width)]
    figure.add_scatter(
        x=[n + 1 for n, _ in at],
        y=[i for _, i in at],
        mode="markers",
        marker={"symbol": "square", "size": 16, "opacity": 0, "color": GREY},
        customdata=[[n, i] for n, i in at],
        text=[_cell_hover(chains[n], n, i, wording) for n, i in at],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    for cell, colour in CELLS.items():
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 12, "color": colour},
            name=f"{cell} {CELL_SYMBOLS[cell]}".strip(),
            hoverinfo="skip",
        )
    figure.update_layout(
        height=120 + 26 * max(width, 3),
        margin=MARGIN,
        legend=LEGEND | {"itemclick": False, "itemdoubleclick": False},
        hovermode="closest",
        dragmode=False,
    )
    across = [shown.start + 0.5, max(shown.stop, shown.start + 1) + 0.5]
    figure.update_xaxes(title="round", range=across, showgrid=False, zeroline=False)
    figure.update_yaxes(title="drafted position", range=[width - 0.5, -0.5], dtick=1 if width <= 16 else 5)
    figure.update_yaxes(showgrid=False, zeroline=False)
    return figure


def mark_round(figure: go.Figure, n: int, trace: Trace) -> None:
    """Frame round ``n`` (0-based) of a ``cells_heatmap``; purple shows on light and dark alike."""
    width = max(trace.width, 1)
    figure.add_shape(
        type="rect", x0=n + 0.5, x1=n + 1.5, y0=-0.5, y1=width - 0.5, line={"color": PURPLE, "width": 3}, layer="above"
    )


def _cell_hover(r: Round, n: int, i: int, wording: Wording) -> str:
    cell = r.cell(i)
    lines = [f"round {n + 1}, position {i}: <b>{cell}</b>"]
    if cell != "not drafted":
        choice = escaped(wording.name(r.choices[i])) if i < len(r.choices) else "?"
        lines.append(f"drafted “{escaped(wording.name(r.drafted[i]))}”, target “{choice}”")
        if i < len(r.draft_probs):
            lines.append(f"drafter {r.draft_probs[i]:.1%}, target {r.target_probs[i]:.1%}")
    return "<br>".join(lines)


def escaped(name: str) -> str:
    """A token's name inside Plotly's own little HTML, where ``<b>`` or an entity would be acted on."""
    return escape(visible(name), quote=False)


def per_position(summary: Summary) -> go.Figure:
    """Bars of the unconditional rate with 95% Wilson intervals, and the conditional rate as a line."""
    frame = rates_frame(summary)
    figure = go.Figure()
    figure.add_bar(
        x=frame["position"],
        y=frame["rate"],
        error_y=errors(frame["rate"], frame["low"], frame["high"]),
        marker_color=SERIES[2],
        name="accepted at this position, of all drafts",
        customdata=frame[["accepted", "rounds", "low", "high"]],
        hovertemplate="position %{x}: %{y:.0%} (%{customdata[0]} of %{customdata[1]} rounds, "
        "95% %{customdata[2]:.0%} to %{customdata[3]:.0%})<extra></extra>",
    )
    figure.add_scatter(
        x=frame["position"],
        y=frame["conditional"],
        mode="lines+markers",
        line={"color": SERIES[1], "dash": "dot", "width": 2},
        marker={"symbol": "diamond", "size": 9},
        error_y=errors(frame["conditional"], frame["conditional_low"], frame["conditional_high"]),
        name="conditional: of drafts accepted up to here",
        customdata=frame[["reached"]],
        hovertemplate="position %{x}: %{y:.0%} of the %{customdata[0]} rounds that got there<extra></extra>",
    )
    figure.update_layout(height=330, margin=MARGIN | {"t": 60}, legend=LEGEND)
    figure.update_yaxes(title="acceptance rate", range=[0, 1.05], tickformat=".0%")
    figure.update_xaxes(title=f"drafted position ({summary.drafts} rounds)", dtick=1 if len(frame) <= 16 else 5)
    return figure


def positions_compared(summaries: Mapping[str, Summary]) -> go.Figure:
    """Unconditional rates of several configs on the same texts, bars side by side, with 95% Wilson intervals."""
    figure = go.Figure()
    patterns = ("", "/", ".", "x")
    for n, (name, summary) in enumerate(summaries.items()):
        frame = rates_frame(summary)
        figure.add_bar(
            x=frame["position"],
            y=frame["rate"],
            error_y=errors(frame["rate"], frame["low"], frame["high"]),
            marker={"color": SERIES[n % len(SERIES)], "pattern": {"shape": patterns[n % len(patterns)]}},
            name=f"{name} ({summary.drafts} rounds)",
            customdata=frame[["accepted", "rounds", "low", "high"]],
            hovertemplate=f"{name}, position %{{x}}: %{{y:.0%}} (%{{customdata[0]}} of %{{customdata[1]}} rounds, "
            "95% %{customdata[2]:.0%} to %{customdata[3]:.0%})<extra></extra>",
        )
    figure.update_layout(height=280, margin=MARGIN | {"t": 60}, legend=LEGEND, barmode="group")
    figure.update_yaxes(title="accepted, of all drafts", range=[0, 1.05], tickformat=".0%")
    figure.update_xaxes(title="drafted position", dtick=1)
    return figure


def errors(value: pd.Series, low: pd.Series, high: pd.Series) -> dict[str, object]:
    """Plotly's error bars from the ends of an interval; none where an end is missing."""
    return {
        "type": "data",
        "symmetric": False,
        "array": (high - value).astype(float),
        "arrayminus": (value - low).astype(float),
        "thickness": 1.2,
        "width": 4,
    }


def accepted_histogram(summary: Summary) -> go.Figure:
    """How many rounds accepted 0, 1, ... K drafted tokens; the mean plus one is the acceptance length."""
    counts = summary.histogram or ()
    figure = go.Figure(
        go.Bar(
            x=list(range(len(counts))),
            y=list(counts),
            marker_color=SERIES[0],
            hovertemplate="%{x} accepted: %{y} rounds<extra></extra>",
            showlegend=False,
        )
    )
    if summary.drafts:
        mean = summary.accepted / summary.drafts
        figure.add_vline(
            x=mean,
            line={"color": PURPLE, "dash": "dash", "width": 2},
            annotation={"text": f"mean {mean:.2f}", "yanchor": "bottom", "y": 1, "showarrow": False},
        )
    figure.update_layout(height=330, margin=MARGIN | {"t": 60}, bargap=0.15)
    figure.update_xaxes(title="tokens accepted in a round", dtick=1 if len(counts) <= 17 else 5)
    figure.update_yaxes(title="rounds")
    return figure


def against_k(
    frame: pd.DataFrame,
    value: str,
    title: str,
    baseline: float | None = None,
    points: pd.DataFrame | None = None,
) -> go.Figure:
    """One measured quantity against K with its interval.

    ``frame`` has the columns ``k``, ``value``, ``{value}_low`` and ``{value}_high``; ``baseline`` draws the plain
    target as a dashed line; ``points`` (``k``, ``value``, ``prompt``) shows the single runs as small dots.
    """
    figure = go.Figure(
        go.Scatter(
            x=frame["k"],
            y=frame[value],
            mode="lines+markers",
            line={"color": SERIES[0], "width": 2},
            marker={"size": 9},
            error_y=errors(frame[value], frame[f"{value}_low"], frame[f"{value}_high"]),
            name="with the drafter",
            hovertemplate=f"K = %{{x}}: %{{y:.2f}} {title}<extra></extra>",
        )
    )
    if points is not None:
        drafted = points[points["k"] > 0]
        figure.add_scatter(
            x=drafted["k"],
            y=drafted[value],
            mode="markers",
            marker={"size": 5, "color": GREY, "opacity": 0.7},
            text=drafted["prompt"],
            hovertemplate=f"%{{text}}, K = %{{x}}: %{{y:.2f}} {title}<extra></extra>",
        )
    draw_baseline(figure, baseline)
    figure.update_layout(height=330, margin=MARGIN, showlegend=False)
    figure.update_xaxes(title="drafted tokens a round (K)", tickvals=list(frame["k"]))
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def draw_baseline(figure: go.Figure, baseline: float | None) -> None:
    """The target alone as a dashed line; nothing where it was not measured."""
    if baseline is not None:
        figure.add_hline(
            y=baseline,
            line={"color": GREY, "dash": "dash", "width": 2},
            annotation={"text": f"target alone {baseline:.1f}", "showarrow": False},
            annotation_position="bottom right",
        )


def step_costs(frame: pd.DataFrame) -> go.Figure:
    """Median milliseconds of draft, verify and rest of a round, stacked, against K; K = 0 is a plain step."""
    figure = go.Figure()
    labels = [f"K = {k}" if k else "target alone" for k in frame["k"]]
    for name, colour, pattern in (("draft", SERIES[1], "/"), ("verify", SERIES[0], ""), ("rest", GREY, ".")):
        figure.add_bar(
            x=labels,
            y=frame[f"{name}_ms"],
            name=name,
            marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate=f"%{{x}}: {name} %{{y:.2f}} ms<extra></extra>",
        )
    figure.update_layout(height=330, margin=MARGIN, barmode="stack", legend=LEGEND)
    figure.update_yaxes(title="median ms a round")
    return figure


def rate_heatmap(table: pd.DataFrame, x_title: str, y_title: str) -> go.Figure:
    """A table of rates from 0 to 1 as a heatmap: index down, columns across, None where nothing was drafted."""
    rows, columns = [str(i) for i in table.index], [str(c) for c in table.columns]
    values = table.astype(float)
    figure = go.Figure(
        go.Heatmap(
            x=columns,
            y=rows,
            z=[[None if pd.isna(v) else v for v in row] for row in values.to_numpy()],
            zmin=0,
            zmax=1,
            colorscale=RATE_SCALE,
            xgap=1,
            ygap=1,
            texttemplate="%{z:.0%}" if values.size <= 200 else None,
            hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.1%}}<extra></extra>",
            hoverongaps=False,
            colorbar={"tickformat": ".0%", "thickness": 12, "title": None},
        )
    )
    figure.update_layout(height=110 + 26 * max(len(rows), 3), margin=MARGIN)
    figure.update_xaxes(title=x_title, type="category", showgrid=False)
    figure.update_yaxes(title=y_title, type="category", autorange="reversed", showgrid=False)
    return figure


def rate_difference_heatmap(table: pd.DataFrame, x_title: str, y_title: str) -> go.Figure:
    """A table of differences of rates, from -1 to 1, on a diverging scale that colour-blind people can tell apart."""
    figure = rate_heatmap(table, x_title, y_title)
    figure.update_traces(
        zmin=-1,
        zmax=1,
        colorscale=DIFFERENCE_SCALE,
        texttemplate="%{z:+.0%}" if table.size <= 200 else None,
        hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:+.1%}}<extra></extra>",
        colorbar={"tickformat": "+.0%"},
    )
    return figure
