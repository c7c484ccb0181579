"""The waterfall of blame: from the bad config's acceptance length to the repaired one's, field by field."""

from __future__ import annotations

import plotly.graph_objects as go

from dflash_lab.diagnose.blame import Blame
from dflash_lab.palette import BLUE, GREEN, GREY, VERMILION


def waterfall(blame: Blame) -> go.Figure:
    """Shapley values as steps, with 95% intervals; the ends are acceptance lengths (a config that cannot run: 1)."""
    bad, good = blame.bad or 1.0, blame.good or 1.0
    names = ["as it is", *(share.player for share in blame.shares), "repaired"]
    steps = [share.shapley.value for share in blame.shares]
    figure = go.Figure(
        go.Waterfall(
            x=names,
            y=[bad, *steps, good],
            measure=["absolute", *["relative"] * len(steps), "total"],
            text=[f"{bad:.2f}", *(f"{step:+.2f}" for step in steps), f"{good:.2f}"],
            textposition="outside",
            increasing={"marker": {"color": GREEN}},
            decreasing={"marker": {"color": VERMILION}},
            totals={"marker": {"color": BLUE}},
            connector={"line": {"color": GREY, "width": 1}},
            hovertemplate="%{x}: %{text} tokens a round<extra></extra>",
        )
    )
    height, ends = bad, []
    for share in blame.shares:
        height += share.shapley.value
        ends.append((share.player, height, share.shapley))
    figure.add_scatter(
        x=[name for name, _, _ in ends],
        y=[end for _, end, _ in ends],
        mode="markers",
        marker={"opacity": 0},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [s.high - s.value for _, _, s in ends],
            "arrayminus": [s.value - s.low for _, _, s in ends],
            "thickness": 1.5,
            "width": 5,
        },
        hoverinfo="skip",
        showlegend=False,
    )
    top = max(bad, good, *(end + s.high - s.value for _, end, s in ends))
    figure.update_yaxes(title="acceptance length", range=[0, top * 1.15])
    figure.update_layout(height=340, margin={"l": 10, "r": 10, "t": 20, "b": 10}, showlegend=False)
    return figure
