"""Experiments side by side: figures with intervals, config and settings, a paired test, heatmaps, texts."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dflash_lab.edits import shown
from dflash_lab.store import Experiment
from dflash_lab.store.compare import Comparison, Side, compare, metrics
from dflash_lab.store.figures import comparison_figures
from dflash_lab.store.report import html
from dflash_lab.store.tables import markdown
from pages.lab import frame
from pages.lab.notebook_cells import COLUMNS, PLOT


def chooser() -> None:
    """Above the list: compare what was picked in it."""
    picked = [key.removeprefix("pick_") for key, on in st.session_state.items() if str(key).startswith("pick_") and on]
    st.button(
        f"Compare ({len(picked)})" if picked else "Compare",
        icon=":material/compare_arrows:",
        disabled=len(picked) < 2,
        on_click=open_comparison,
        args=(picked,),
        help="Pick two or more below." if len(picked) < 2 else None,
    )


def open_comparison(ids: Sequence[str]) -> None:
    """Put the comparison into the address, oldest first, so that another browser can open it."""
    st.query_params["compare"] = ",".join(sorted(ids))


def show(found: Sequence[Experiment], baseline: str | None) -> None:
    """Every experiment against the first; the baseline is the first where it is among them."""
    ordered = sorted(found, key=lambda e: e.id != baseline)
    if len(ordered) < 2:
        st.info("There is nothing to compare it with. Pick two or more in the list.", icon=":material/compare_arrows:")
        return
    sides = [pick(n, e) for n, e in enumerate(ordered) if e.series]
    if len(sides) < 2:
        st.info("Fewer than two of these have rounds to compare.", icon=":material/compare_arrows:")
        return
    st.dataframe(metrics(sides), hide_index=True, column_config=COLUMNS)
    first, *others = sides
    tabs = st.tabs([f"{chr(66 + n)}: {frame.plain(side.experiment.title)[:40]}" for n, side in enumerate(others)])
    for n, (tab, other) in enumerate(zip(tabs, others, strict=True)):
        with tab:
            one(compare(first, other), n)


def pick(n: int, experiment: Experiment) -> Side:
    """Which series of an experiment is compared."""
    names = [s.name for s in experiment.series]
    if len(names) == 1:
        return Side.of(experiment)
    chosen = st.selectbox(
        f"{chr(65 + n)}: {frame.plain(experiment.title)}", names, index=experiment.main, key=f"series_{experiment.id}"
    )
    return Side.of(experiment, chosen)


def one(found: Comparison, n: int) -> None:
    """B against A."""
    look = st.success if found.paired and found.paired.clear else st.info
    look(f"**B minus A**: {frame.plain(found.sentence())}", icon=":material/balance:")
    if words := found.texts_sentence():
        st.text(words)
    differences = [*found.config, *found.settings]
    if differences:
        st.subheader("What differs")
        rows = [{"": d.field, "A": shown(d.here), "B": shown(d.there)} for d in differences]
        st.dataframe(pd.DataFrame(rows), hide_index=True)
    else:
        st.caption("Config and settings are the same.")
    drawn = comparison_figures(found)
    maps = [title for title in drawn if title.startswith(("A: ", "B: "))]
    for title in [t for t in drawn if t not in maps and not t.startswith("B minus")]:
        _figure(title, drawn, n)
    for column, title in zip(st.columns(len(maps) or 1), maps, strict=False):
        with column:
            _figure(title, drawn, n)
    for title in [t for t in drawn if t.startswith("B minus")]:
        _figure(title, drawn, n)
    both = [found.here.experiment, found.there.experiment]
    with st.container(horizontal=True):
        st.download_button(
            "Report (HTML, offline)",
            lambda: html(both, found),
            "comparison.html",
            "text/html",
            key=f"html_{n}",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Markdown",
            lambda: markdown(both, found),
            "comparison.md",
            "text/markdown",
            key=f"md_{n}",
            on_click="ignore",
            icon=":material/download:",
        )


def _figure(title: str, drawn: dict, n: int) -> None:
    st.markdown(f"**{frame.plain(title)}**")
    st.plotly_chart(drawn[title], key=f"compare_{n}_{title}", config=PLOT, alt=title)
