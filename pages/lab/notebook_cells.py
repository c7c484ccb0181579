"""A cell of the notebook: hypothesis, change, result, verdict, the live figure, and what can be done with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd
import streamlit as st

from dflash_lab.access import access
from dflash_lab.edits import shown
from dflash_lab.errors import LabError
from dflash_lab.store import Experiment, Store
from dflash_lab.store.again import question, task_of
from dflash_lab.store.compare import Side, metrics
from dflash_lab.store.experiment import pack
from dflash_lab.store.figures import figures
from dflash_lab.store.files import file_name
from dflash_lab.store.jupyter import notebook
from dflash_lab.store.report import html
from dflash_lab.store.tables import as_csv, as_json, markdown
from pages.lab import frame, keep

ICONS = {
    "run": ":material/play_arrow:",
    "sweep": ":material/stacked_line_chart:",
    "what-if": ":material/tune:",
    "diagnosis": ":material/troubleshoot:",
    "server": ":material/dns:",
    "methods": ":material/compare_arrows:",
}
PLOT = {"displayModeBar": False}
LONGEST = 20_000


def cell(found: Experiment, pinned: bool, brief: bool = False) -> None:
    """One experiment; ``brief`` leaves the figure out."""
    with st.container(border=True, key=f"cell_{found.id}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.checkbox("Compare", key=f"pick_{found.id}", help="Pick two or more, then press Compare above the list.")
            st.badge(found.kind, icon=ICONS[found.kind], color="blue" if found.kept else "gray")
            st.markdown(f"**{frame.plain(found.title)}**", width="content")
            if pinned:
                st.badge("baseline", color="violet", icon=":material/keep:")
            for tag in found.tags:
                st.badge(frame.plain(tag), color="gray")
            st.caption(f"{found.created[:16].replace('T', ' ')} · {frame.plain(str(found.pair.get('name', '')))}")
        steps(found)
        if not brief:
            for title, figure in list(figures(found).items())[:1]:
                st.plotly_chart(figure, key=f"figure_{found.id}", config=PLOT, alt=title)
        actions(found, pinned)


def steps(found: Experiment) -> None:
    """Hypothesis, change, result, verdict: those that there are."""
    changes = [f"{p.get('path', '').strip('/').replace('/', '.')} → {shown(p.get('value'))}" for p in found.patch]
    words = {
        "Hypothesis": found.hypothesis,
        "Change": "; ".join(changes[:4]) + (f"; {len(changes) - 4} more" if len(changes) > 4 else ""),
        "Result": found.headline,
        "Verdict": found.verdict,
    }
    told = {name: text for name, text in words.items() if text}
    for column, (name, text) in zip(st.columns(len(told) or 1), told.items(), strict=False):
        column.markdown(f":gray[{name}]  \n{frame.plain(text)}")


def actions(found: Experiment, pinned: bool) -> None:
    """Keep, edit, again, export, pin, delete."""
    closed = access().read_only
    with st.container(horizontal=True):
        if not found.kept:
            _button("Keep", ":material/bookmark_add:", found, lambda: Store().keep(found.id))
        with st.popover("Edit", icon=":material/edit_note:", disabled=closed):
            edit(found)
        with st.popover("Again", icon=":material/replay:", disabled=closed or found.kind == "server"):
            again(found)
        with st.popover("Export", icon=":material/download:"):
            export(found)
        if st.query_params.get("id") != found.id:
            st.button("Open", key=f"open_{found.id}", icon=":material/open_in_full:", on_click=go, args=(found.id,))
        if pinned:
            _button("Unpin", ":material/keep_off:", found, lambda: Store().pin(None))
        else:
            _button("Pin", ":material/keep:", found, lambda: Store().pin(found.id), "Compare the whole app with it.")
        with st.popover("Delete", icon=":material/delete:", disabled=closed):
            st.caption("Its rounds and words are gone for good.")
            _button("Delete for good", ":material/delete_forever:", found, lambda: _delete(found.id))


def go(experiment_id: str) -> None:
    """Show one experiment alone; the address then is a link to it."""
    st.query_params["id"] = experiment_id


def _button(label: str, icon: str, found: Experiment, change: Callable[[], object], help: str | None = None) -> None:
    st.button(
        label,
        key=f"{label}_{found.id}",
        icon=icon,
        on_click=keep.attempt,
        args=(change,),
        help=help,
        disabled=access().read_only,
    )


def _delete(experiment_id: str) -> None:
    Store().delete(experiment_id)
    if st.query_params.get("id") == experiment_id:
        del st.query_params["id"]


def edit(found: Experiment) -> None:
    """The user's words; kept from then on."""
    names = ("title", "hypothesis", "verdict", "tags", "note")
    keys = {name: f"{name}_{found.id}" for name in names}
    with st.form(f"edit_{found.id}", border=False):
        st.text_input("Title", found.title, key=keys["title"], max_chars=200)
        st.text_input("Hypothesis", found.hypothesis, key=keys["hypothesis"], max_chars=1000)
        st.text_input("Verdict", found.verdict, key=keys["verdict"], max_chars=1000)
        st.text_input("Tags", ", ".join(found.tags), key=keys["tags"], max_chars=200, help="Separated by commas.")
        st.text_area("Note (Markdown)", found.note, key=keys["note"], max_chars=LONGEST)

        def save() -> None:
            said = {name: str(st.session_state[key]).strip()[:LONGEST] for name, key in keys.items()}
            tags = tuple(dict.fromkeys(tag for part in said.pop("tags").split(",") if (tag := part.strip())))
            title = said.pop("title") or found.title
            keep.attempt(lambda: Store().change(found.id, title=title, tags=tags, kept=True, **said))

        st.form_submit_button("Save", type="primary", on_click=save)


def again(found: Experiment) -> None:
    """The same experiment once more, with the same K or another."""
    main = found.figures
    st.number_input("Drafted tokens (K)", 1, 64, max(1, main.k if main else 5), key=f"k_{found.id}")
    st.button("Run again", key=f"again_{found.id}", icon=":material/replay:", on_click=start_again, args=(found,))


def start_again(found: Experiment) -> None:
    """Queue the repeat; what it is to be called is remembered until it is done."""
    wanted = int(st.session_state[f"k_{found.id}"])
    k = None if found.figures and wanted == found.figures.k else wanted
    title = question(found, k)
    st.query_params.pop("id", None)
    try:
        frame.submit("notebook", task_of(found, k), title)
    except LabError as error:
        st.session_state["notebook_refused"] = str(error)
        return
    hypothesis = "The same again" + ("" if k is None else f", with K = {k} instead")
    job = st.session_state.get("notebook_job")
    st.session_state["notebook_again"] = {"job": job, "title": title, "hypothesis": hypothesis, "parent": found.id}


def export(found: Experiment) -> None:
    """The experiment as files; they are built when asked for."""
    makers: dict[str, tuple[str, str, Callable[[], str | bytes]]] = {
        "For another notebook": (".dflash", "application/octet-stream", lambda: pack(found)),
        "Report (HTML, offline)": (".html", "text/html", lambda: html([found])),
        "Jupyter notebook": (".ipynb", "application/x-ipynb+json", lambda: notebook(found)),
        "Rounds (CSV)": (".csv", "text/csv", lambda: as_csv(found)),
        "Everything (JSON)": (".json", "application/json", lambda: as_json(found)),
        "Markdown": (".md", "text/markdown", lambda: markdown([found])),
    }
    for label, (suffix, mime, make) in makers.items():
        st.download_button(
            label,
            make,
            file_name(found, suffix),
            mime,
            key=f"{suffix}_{found.id}",
            on_click="ignore",
            width="stretch",
        )


def details(found: Experiment) -> None:
    """What the list leaves out: every figure, the note, how it was made."""
    if found.series:
        st.dataframe(metrics([Side(found, s) for s in found.series]), hide_index=True, column_config=COLUMNS)
    for title, figure in list(figures(found).items())[1:]:
        st.subheader(title)
        st.plotly_chart(figure, key=f"detail_{title}", config=PLOT, alt=title)
    if found.note:
        st.subheader("Note")
        st.markdown(without_images(found.note))
    if found.kind == "run" and found.wording.segments:
        st.subheader("Text")
        st.text(found.wording.text)
    if "markdown" in found.extra:
        with st.expander("Report", icon=":material/description:"):
            st.code(str(found.extra["markdown"]), language=None, wrap_lines=True)
    with st.expander("How it was made", icon=":material/badge:"):
        rows = {**found.provenance, **{f"pair: {k}": str(v) for k, v in found.pair.items() if v not in (None, "")}}
        st.dataframe(pd.DataFrame(rows.items(), columns=["what", "value"]).astype(str), hide_index=True)
        st.code(json.dumps(found.settings, indent=1, ensure_ascii=False), language="json")
        if found.config is not None:
            st.code(json.dumps(found.config, indent=1, ensure_ascii=False), language="json")


def without_images(note: str) -> str:
    """A note as Markdown that makes no browser fetch anything: an imported one may come from anybody."""
    return note.replace("![", "!\\[")


_share = st.column_config.NumberColumn(format="percent")
_two = st.column_config.NumberColumn(format="%.2f")
COLUMNS = {
    **dict.fromkeys(("position 0", "position 0 from", "position 0 to", "accepted of drafted"), _share),
    **dict.fromkeys(("acceptance length", "AL from", "AL to"), _two),
    "tok/s": st.column_config.NumberColumn(format="%.1f"),
    "left out": st.column_config.NumberColumn(help="Rounds that ended in a stop token or at the limit."),
}
