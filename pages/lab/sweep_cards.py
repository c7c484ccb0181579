"""The cards of a sweep: the best K in words, speed, acceptance, costs, positions, export."""

from __future__ import annotations

import json

import streamlit as st

from dflash_lab import plots
from dflash_lab.measurements import Sweep

COLUMNS = {
    "k": st.column_config.NumberColumn("K", help="0 is the target alone."),
    "runs": st.column_config.NumberColumn("Runs"),
    "tok_s": st.column_config.NumberColumn("tok/s", format="%.1f", help="All tokens over all seconds."),
    "tok_s_low": st.column_config.NumberColumn("from", format="%.1f", help="95% bootstrap interval over runs."),
    "tok_s_high": st.column_config.NumberColumn("to", format="%.1f"),
    "speed_up": st.column_config.NumberColumn("Speed-up", format="%.2f", help="Over the target alone."),
    "al": st.column_config.NumberColumn("Acceptance length", format="%.2f", help="Bonus token included."),
    "al_low": st.column_config.NumberColumn("from", format="%.2f", help="95% interval over rounds."),
    "al_high": st.column_config.NumberColumn("to", format="%.2f"),
    "rounds_counted": st.column_config.NumberColumn("Rounds"),
    "rounds_left_out": st.column_config.NumberColumn("Left out", help="Ended by a stop token or the limit."),
    "draft_ms": st.column_config.NumberColumn("Draft ms", format="%.1f"),
    "verify_ms": st.column_config.NumberColumn("Verify ms", format="%.1f"),
    "rest_ms": st.column_config.NumberColumn("Rest ms", format="%.1f"),
}


def show_nothing() -> None:
    """Before the first sweep."""
    st.info(
        "Press **Sweep** to measure speed and acceptance at every chosen K beside the target alone. A short warm-up "
        "comes first and is not counted.",
        icon=":material/lightbulb:",
    )


def show_so_far(so_far: Sweep) -> None:
    """A sweep under way: the figures so far."""
    if so_far.measurements:
        table(so_far)


def show(found: Sweep) -> None:
    """A finished or stopped sweep."""
    best(found)
    speed(found)
    costs(found)
    positions(found)
    with st.expander("All figures"):
        table(found)
    export(found)


def title(found: Sweep) -> str:
    """A sweep in a list."""
    return f"K = {', '.join(map(str, found.ks))}: {len(found.prompts)} prompts, {found.created[11:16]}"


def best(found: Sweep) -> None:
    """The best K in words."""
    winner = found.best()
    if winner is None:
        st.info("No prompt has run at every K yet, so nothing can be compared.", icon=":material/hourglass_empty:")
        return
    st.success(f"**{winner.sentence()}**", icon=":material/trophy:")
    part = "" if found.complete else f"{len(found.measurements)} of {found.wanted} runs. "
    units = len(found.units)
    st.caption(
        f"{part}{found.pair} · {found.device} · {found.dtype} · greedy · {found.max_new_tokens} new tokens · "
        f"on the {units} runs that every K completed"
    )


def speed(found: Sweep) -> None:
    """Throughput and acceptance length against K."""
    frame = found.frame()
    drafted = frame[frame["k"] > 0]
    left, right = st.columns(2)
    with left:
        st.subheader("Speed", help="Decode throughput, one request at a time. Small dots are single runs.")
        figure = plots.against_k(drafted, "tok_s", "tok/s", found.tok_s(0), found.runs_frame())
        st.plotly_chart(figure, alt="Decode throughput against K, with the target alone as a dashed line")
    with right:
        st.subheader("Acceptance length", help="Mean of accepted + 1 a round, bonus included, with 95% intervals.")
        figure = plots.against_k(drafted, "al", "acceptance length", points=found.runs_frame().rename(columns=AL))
        st.plotly_chart(figure, alt="Acceptance length against K")


AL = {"acceptance_length": "al"}


def costs(found: Sweep) -> None:
    """What a round costs, and the rates by position and K beside it."""
    left, right = st.columns(2)
    with left:
        st.subheader("Time of a round", help="Medians; the first round of every run is left out as cold.")
        st.plotly_chart(plots.step_costs(found.costs().frame()), alt="Milliseconds of draft, verify and rest against K")
    with right:
        st.subheader("Acceptance by position and K", help="Unconditional: of all rounds. Never rises with position.")
        st.plotly_chart(plots.rate_heatmap(found.position_by_k(), "", "position"), alt="Acceptance by position and K")


def positions(found: Sweep) -> None:
    """Which prompts draft well, position by position, at one K."""
    st.subheader("Acceptance by prompt")
    k = st.segmented_control("at K", found.ks, default=found.ks[-1], key="by_prompt_k", required=True)
    table = found.position_by_prompt(k or found.ks[-1])
    if table.empty:
        st.caption("No run at this K yet.")
        return
    st.plotly_chart(plots.rate_heatmap(table, "position", ""), alt="Acceptance by prompt and position")


def table(found: Sweep) -> None:
    """Every figure by K."""
    st.dataframe(found.frame(), hide_index=True, column_config=COLUMNS)


def export(found: Sweep) -> None:
    """The sweep as files; they are built when asked for."""
    with st.container(horizontal=True):
        st.download_button(
            "Sweep as JSON",
            lambda: json.dumps(found.to_json()),
            f"sweep-{found.id}.json",
            "application/json",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Runs as CSV",
            lambda: found.runs_frame().to_csv(index=False),
            f"sweep-{found.id}.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
