"""The waterfall of blame: from the bad config's acceptance length to the repaired one's, field by field."""

from __future__ import annotations

import plotly.graph_objects as go

from dflash_lab.diagnose.blame import Blame
from dflash_lab.palette import BLUE, GREEN, GREY, VERMILION


def waterfall(blame: Blame) -> go.Figure:
    """Shapley values as steps, with 95% intervals; the ends are acceptance lengths (a config that cannot run: 1)."""
    bad, good = blame.bad or 1.0, blame.good or 1.0
    steps = [share.shapley.value for share in blame.shares]
    # The figures stand under the names: beside the bars they would collide with the whiskers.
    names = [f"{share.player}<br>{share.shapley.value:+.2f}" for share in blame.shares]
    ends = [f"as it is<br>{bad:.2f}", f"repaired<br>{good:.2f}"]
    figure = go.Figure(
        go.Waterfall(
            x=[ends[0], *names, ends[1]],
            y=[bad, *steps, good],
            measure=["absolute", *["relative"] * len(steps), "total"],
            increasing={"marker": {"color": GREEN}},
            decreasing={"marker": {"color": VERMILION}},
            totals={"marker": {"color": BLUE}},
            connector={"line": {"color": GREY, "width": 1}},
            hovertemplate="%{x} tokens a round<extra></extra>",
        )
    )
    tops = [bad + sum(steps[: n + 1]) for n in range(len(steps))]
    figure.add_scatter(
        x=names,
        y=tops,
        mode="markers",
        marker={"opacity": 0},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [share.shapley.high - share.shapley.value for share in blame.shares],
            "arrayminus": [share.shapley.value - share.shapley.low for share in blame.shares],
            "thickness": 1.5,
            "width": 5,
            "color": GREY,
        },
        hoverinfo="skip",
        showlegend=False,
    )
    top = max(bad, good, *(share.shapley.high - share.shapley.value + end
                           for share, end in zip(blame.shares, tops, strict=True)))  # fmt: skip
    figure.update_yaxes(title="acceptance length", range=[0, top * 1.15])
    figure.update_layout(height=340, margin={"l": 10, "r": 10, "t": 20, "b": 10}, showlegend=False)
    return figure
