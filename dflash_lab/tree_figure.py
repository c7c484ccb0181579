"""The tree of one round as a figure: what was drafted, how probable each prefix was, and which way the target went."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import plotly.graph_objects as go

from dflash_lab.palette import BLUE, GREEN, GREY
from dflash_lab.plots import LEGEND, MARGIN, escaped
from dflash_lab.tokens import Wording
from dflash_lab.trace import Round

MOST_NODES = 64
"""Nodes of a larger tree are too close to tell apart: its most probable ones and the accepted path are drawn."""

LARGEST, SMALLEST = 26.0, 5.0
"""Marker sizes, pixels, of a prefix of probability 1 and 0."""

LONGEST_NAME = 14


@dataclass(frozen=True, slots=True)
class Node:
    """One drafted token of a tree: ``depth`` from 1, ``height`` where it is drawn, ``prefix_prob`` the product of the
    drafter's probabilities from the anchor to here (None where the source gives none)."""

    entry: int
    parent: int
    depth: int
    height: float
    prefix_prob: float | None
    accepted: bool


def layout(r: Round, most: int = MOST_NODES) -> tuple[tuple[Node, ...], float]:
    """The nodes to draw, parents first, and the anchor's height. Leaves get whole numbers from 0, top to bottom, so
    that no two branches cross; a parent stands in the middle of its children.

    Entries come most probable first, so the first ``most`` of them are a tree themselves; the accepted path joins.
    """
    shown = sorted({*range(min(most, len(r.drafted))), *r.path})
    children: dict[int, list[int]] = {row: [] for row in (0, *(entry + 1 for entry in shown))}
    for entry in shown:
        children[r.parents[entry]].append(entry + 1)
    heights: dict[int, float] = {}
    leaves = 0
    walk = [(0, False)]
    while walk:
        row, seen = walk.pop()
        if seen:
            below = [heights[child] for child in children[row]]
            heights[row] = (below[0] + below[-1]) / 2
        elif children[row]:
            walk += [(row, True), *((child, False) for child in reversed(children[row]))]
        else:
            heights[row], leaves = float(leaves), leaves + 1
    depths = r.depths
    nodes = (
        Node(e, r.parents[e], depths[e], heights[e + 1], _prefix_prob(r, e) if r.draft_probs else None, e in r.path)
        for e in shown
    )
    return tuple(nodes), heights[0]


def _prefix_prob(r: Round, entry: int) -> float:
    line = [entry]
    while (parent := r.parents[line[-1]]) > 0:
        line.append(parent - 1)
    return prod(r.draft_probs[e] for e in line)


def tree_of_round(r: Round, wording: Wording) -> go.Figure:
    """A round's tree from the anchor (left) to its deepest tokens; area and hover text say how probable a prefix was.

    The accepted path is green, thick and diamond-shaped; the target's own next token hangs open at its end.
    """
    nodes, middle = layout(r)
    places = {0: (0, middle)} | {n.entry + 1: (n.depth, n.height) for n in nodes}
    end = places[r.path[-1] + 1 if r.path else 0]
    figure = go.Figure()
    for accepted, colour, width in ((False, GREY, 1), (True, GREEN, 4)):
        lines = [(places[n.parent], places[n.entry + 1]) for n in nodes if n.accepted or not accepted]
        figure.add_scatter(
            x=[x for (a, _), (b, _) in lines for x in (a, b, None)],
            y=[y for (_, a), (_, b) in lines for y in (a, b, None)],
            mode="lines",
            line={"color": colour, "width": width},
            hoverinfo="skip",
            showlegend=False,
        )
    rest, path = [n for n in nodes if not n.accepted], [n for n in nodes if n.accepted]
    for group, name, colour, symbol in (
        (rest, "drafted, not accepted", GREY, "circle"),
        (path, "accepted", GREEN, "diamond"),
    ):
        figure.add_scatter(
            x=[n.depth for n in group],
            y=[n.height for n in group],
            mode="markers+text",
            marker={"color": colour, "symbol": symbol, "size": [_size(n) for n in group], "opacity": 1},
            text=[_short(wording, r.drafted[n.entry]) for n in group],
            textposition="top right",
            customdata=[_hover(r, n, wording) for n in group],
            hovertemplate="%{customdata}<extra></extra>",
            name=name,
        )
    figure.add_scatter(
        x=[0],
        y=[middle],
        mode="markers+text",
        marker={"color": BLUE, "symbol": "square", "size": 12},
        text=[_short(wording, r.anchor)],
        textposition="top center",
        hovertemplate="anchor %{text}<extra></extra>",
        name="anchor",
    )
    if r.bonus is not None:
        at = end[0] + 0.5, end[1] - 0.45
        figure.add_scatter(
            x=[end[0], at[0]],
            y=[end[1], at[1]],
            mode="lines+markers+text",
            line={"color": BLUE, "width": 2, "dash": "dot"},
            marker={"color": BLUE, "symbol": "square-open", "size": [0, 12]},
            text=["", _short(wording, r.bonus)],
            textposition="middle right",
            hovertemplate="the target's own next token<extra></extra>",
            name="bonus",
        )
    leaves = 1 + max((n.height for n in nodes), default=0)
    left_out = len(r.drafted) - len(nodes)
    drawn = (
        f"the {len(nodes)} most probable of {len(r.drafted)} drafted tokens" if left_out else f"{len(nodes)} drafted"
    )
    figure.update_layout(height=round(140 + 20 * max(leaves, 4)), margin=MARGIN, legend=LEGEND, hovermode="closest")
    deepest = max((n.depth for n in nodes), default=1)
    figure.update_xaxes(title=f"tokens behind the anchor ({drawn}, {r.accepted} accepted)", dtick=1, zeroline=False)
    figure.update_xaxes(range=[-0.4, deepest + 1.1], showgrid=False)
    figure.update_yaxes(visible=False, range=[leaves - 0.3, -1.2])
    return figure


def _size(node: Node) -> float:
    return SMALLEST + (LARGEST - SMALLEST) * sqrt(1.0 if node.prefix_prob is None else node.prefix_prob)


def _short(wording: Wording, token: int) -> str:
    """A token's name, cut to fit beside its node."""
    name = wording.name(token)
    cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return escaped(cut)


def _hover(r: Round, node: Node, wording: Wording) -> str:
    name, became = escaped(wording.name(r.drafted[node.entry])), "accepted" if node.accepted else "not accepted"
    lines = [f"“{name}”, number {node.entry + 1} of the tree: <b>{became}</b>"]
    if node.prefix_prob is not None:
        lines.append(f"drafter: prefix {node.prefix_prob:.2%}, this token {r.draft_probs[node.entry]:.1%}")
    if r.target_probs:
        lines.append(f"target: this token {r.target_probs[node.entry]:.1%}")
    return "<br>".join(lines)
