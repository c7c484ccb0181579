"""Figures of servers: rates by request, observed beside expected, and a sweep's throughput."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from dflash_lab.palette import SERIES
from dflash_lab.plots import LEGEND, MARGIN, positions_compared, rate_heatmap
from dflash_lab.servers.measure import Measured
from dflash_lab.servers.sweeps import Point, frame


def by_request(found: Measured) -> go.Figure | None:
    """Unconditional rates by request (down) and position (across); None where the server gives no rounds."""
    rows = found.by_request()
    if not rows:
        return None
    return rate_heatmap(pd.DataFrame.from_dict(rows, orient="index"), "drafted position", "")


def observed_and_expected(found: Measured, reading: str) -> go.Figure | None:
    """The server's rates beside those `reading` expects; the server's alone where nothing was expected."""
    if reading in found.comparisons:
        observed, expected = found.comparisons[reading].summaries()
        return positions_compared({"observed": observed, "expected": expected})
    if found.observed is None or not found.observed.drafts:
        return None
    sides = {"observed": found.observed}
    if reading in found.expected:
        sides["expected"] = found.expected[reading]
    return positions_compared(sides)


def throughput(points: Sequence[Point], what: str) -> go.Figure:
    """tok/s of all requests together and of each, against `what` ("concurrency" or "K")."""
    table = frame(points)
    by_k = ("k", "drafted tokens a round (K)")
    column, title = by_k if what == "K" else ("concurrency", "requests at once")
    figure = go.Figure()
    sides = (("tok_s", "all together, prefill included", "solid"), ("tok_s_each", "each request, decode only", "dot"))
    for n, (value, name, dash) in enumerate(sides):
        figure.add_scatter(
            x=table[column],
            y=table[value],
            mode="lines+markers",
            line={"color": SERIES[n], "width": 2, "dash": dash},
            marker={"size": 9, "symbol": ("circle", "diamond")[n]},
            name=name,
            hovertemplate=f"{title} %{{x}}: %{{y:.1f}} tok/s<extra></extra>",
        )
    figure.update_layout(height=330, margin=MARGIN | {"t": 60}, legend=LEGEND)
    figure.update_xaxes(title=title, tickvals=list(table[column]))
    figure.update_yaxes(title="tok/s", rangemode="tozero")
    return figure
