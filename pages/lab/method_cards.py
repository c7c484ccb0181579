"""The cards of a comparison of methods: the table first, then speed, prompts, context, and a better drafter."""

from __future__ import annotations

import streamlit as st

from dflash_lab import method_figures
from dflash_lab.better_drafter import slide
from dflash_lab.drafters.method import PLAIN
from dflash_lab.forecast import recommend
from dflash_lab.methods import Comparison
from dflash_lab.story_table import markdown, story_columns
from pages.lab import frame

COLUMNS = {
    "label": st.column_config.TextColumn("Method"),
    "al": st.column_config.NumberColumn("Acceptance length", format="%.2f", help="Bonus token included."),
    "position0": st.column_config.NumberColumn("Position 0", format="percent", help="Of all rounds."),
    "tok_s": st.column_config.NumberColumn("tok/s", format="%.1f", help="All tokens over all seconds."),
    "predicted_tok_s": st.column_config.NumberColumn(
        "Predicted", format="%.1f", help="Replayed rounds times measured step costs."
    ),
    "speed_up": st.column_config.NumberColumn("Speed-up", format="%.2f", help="Over the target alone."),
    "break_even": st.column_config.NumberColumn(
        "Break-even", format="%.2f", help="The acceptance length at which it is as fast as the target alone."
    ),
    "limit_tok_s": st.column_config.NumberColumn(
        "Limit, tok/s", format="%.0f", help="If a round took no longer than reading its weights and cache."
    ),
    "rounds": st.column_config.NumberColumn("Rounds"),
    "lossless": st.column_config.CheckboxColumn("Lossless", help="The target's own text, near-ties aside."),
    "near_ties": st.column_config.NumberColumn("Near-ties"),
}


def title(found: Comparison) -> str:
    """A comparison in a list."""
    return f"{len(found.methods)} methods, {len(found.prompts)} prompts, {found.created[11:16]}"


def show_so_far(so_far: Comparison) -> None:
    """A comparison under way: the figures so far."""
    if so_far.runs:
        table(so_far)


def show(found: Comparison) -> None:
    """A finished or stopped comparison."""
    for one in found.missing:
        st.caption(frame.plain(one.sentence()))
    if not found.predictions:
        return
    story, speed, kinds, context, better = st.tabs(
        ["Table", "Speed", "Kinds of prompts", "Along the context", "A better drafter"]
    )
    with story:
        story_table(found)
        with st.expander("All figures"):
            table(found)
    with speed:
        against_drafted(found)
    with kinds:
        value = st.segmented_control(
            "Figure", ["Acceptance length", "tok/s"], default="tok/s", key="kinds_value", label_visibility="collapsed"
        )
        column = "al" if value == "Acceptance length" else "tok_s"
        st.plotly_chart(
            method_figures.by_kind(found.kinds_frame(), column, value or "tok/s"), alt="Methods by kind of prompt"
        )
    with context:
        frames = {m.label: found.context_frame(m) for m in found.methods if m != PLAIN}
        st.plotly_chart(method_figures.along_context(frames), alt="Acceptance length against context position")
    with better:
        better_drafter(found)


def story_table(found: Comparison) -> None:
    """The story's columns as Markdown, on the page and as a file."""
    columns = story_columns(found)
    if not columns:
        st.info("No prompt has run by every method yet.", icon=":material/hourglass_empty:")
        return
    text = markdown(found, columns)
    st.markdown(text)
    st.download_button(
        "Table as Markdown",
        text,
        f"methods-{found.id}.md",
        "text/markdown",
        on_click="ignore",
        icon=":material/download:",
    )


def against_drafted(found: Comparison) -> None:
    """tok/s and acceptance length against K or budget."""
    table = found.frame().assign(series=[method_figures.series(m) for m in found.methods])
    plain, drafted = table[table["kind"] == "plain"], table[table["kind"] != "plain"]
    baseline = plain["tok_s"].iloc[0] if len(plain) and plain["tok_s"].notna().all() else None
    left, right = st.columns(2)
    left.plotly_chart(
        method_figures.against_drafted(drafted, "tok_s", "tok/s", baseline),
        alt="tok/s against K, measured and predicted",
    )
    right.plotly_chart(
        method_figures.against_drafted(drafted, "al", "acceptance length"), alt="Acceptance length against K"
    )
    advice, error = recommend(found.predictions), found.prediction_error
    if advice is not None:
        st.markdown(frame.plain(advice.sentence()))
    if error is not None:
        st.caption(f"Open and dotted: predicted before the runs. Median error over methods {error:.0%}.")


def better_drafter(found: Comparison) -> None:
    """What a longer acceptance would bring at the same costs."""
    mine = {p.method.label: p for p in found.predictions if p.method.kind not in ("plain", "ddtree")}
    if not mine:
        st.info("Choose a method that drafts chains.", icon=":material/lightbulb:")
        return
    left, right = st.columns(2)
    name = left.selectbox("Drafter", list(mine), key="better_method")
    scale = right.slider("Its acceptance rates, times", 0.5, 3.0, 1.5, 0.05, key="better_scale")
    slid = slide(found.predictions, mine[name].method, scale)
    st.plotly_chart(
        method_figures.better_drafter(slid.curve, (slid.acceptance_length, slid.tok_s), slid.rivals),
        alt="tok/s against acceptance length, with other methods as lines",
    )
    st.markdown(frame.plain(slid.sentence()))
    if found.bandwidth:
        st.caption(
            f"Dotted: the limit of this memory, {found.bandwidth / 1e9:.1f} GB/s measured: a round takes as long as "
            "reading its weights and cache once."
        )


def table(found: Comparison) -> None:
    """Every figure by method."""
    st.dataframe(found.frame(), hide_index=True, column_config=COLUMNS, column_order=list(COLUMNS))
