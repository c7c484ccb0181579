"""Notebook: experiments as cells of a lab book; search, repeat, compare, export."""

from __future__ import annotations

import streamlit as st

from dflash_lab.access import access
from dflash_lab.errors import LabError
from dflash_lab.store import Store
from dflash_lab.store.experiment import KINDS, Experiment, unpack
from dflash_lab.store.files import take_in
from pages.lab import frame, keep, notebook_cells, notebook_compare

PAGE = "notebook"
CELLS_A_PAGE = 8
LARGEST_MB = 5
SHELVES = {"All": None, "Kept": True, "Recent": False}


def controls(store: Store) -> None:
    """Search, what kind, kept or not, and the way in for a file."""
    words, more = st.columns([6, 1], vertical_alignment="bottom")
    words.text_input("Search", key="q", bind="query-params", placeholder="mask guilty", icon=":material/search:")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control("Shelf", list(SHELVES), default="All", key="shelf", bind="query-params", required=True)
        st.pills("Kind", KINDS, key="of_kind", bind="query-params")
    with more.popover("Import", icon=":material/upload:", width="stretch", disabled=access().read_only):
        st.file_uploader(
            "An exported experiment",
            type=["dflash"],
            key="import_file",
            max_upload_size=LARGEST_MB,
            on_change=keep.attempt,
            args=(lambda: take_upload(store),),
        )


def take_upload(store: Store) -> None:
    """Take the uploaded file in and turn to it. Raises LabError for anything but an experiment."""
    if (uploaded := st.session_state["import_file"]) is not None:
        st.query_params["id"] = take_in(store, unpack(uploaded.getvalue())).id


def repeat() -> None:
    """A repeat under way or over; when it is done, it stands in the notebook under its own title."""
    frame.show_refusal(PAGE)
    job = frame.job_id(PAGE)
    snapshot = frame.worker().find(job) if job else None
    if snapshot is None:
        return
    if snapshot.active:
        frame.follow(snapshot, lambda partial: None)
        return
    frame.show_end(snapshot)
    asked = st.session_state.pop("notebook_again", {})
    if snapshot.status == "done" and asked.pop("job", None) == snapshot.id:
        keep.attempt(lambda: Store().change(snapshot.id, kept=True, **asked))
        st.query_params["id"] = snapshot.id
        st.rerun()


def one(store: Store, experiment_id: str) -> None:
    """The experiment of the address, in full."""
    st.button("All experiments", icon=":material/arrow_back:", on_click=leave, args=("id",))
    try:
        found = store.get(experiment_id)
    except LabError as error:
        st.warning("There is no such experiment here.", icon=":material/search_off:")
        st.text(str(error))
        return
    notebook_cells.cell(found, pinned=store.baseline == found.id)
    notebook_cells.details(found)


def leave(name: str) -> None:
    """Go back to the list."""
    st.query_params.pop(name, None)


def listing(store: Store) -> None:
    """The cells that the controls ask for, newest first."""
    controls(store)
    state = st.session_state
    entries = store.entries(state["q"] or "", state["of_kind"], SHELVES[state["shelf"] or "All"])
    if not entries:
        nothing(searched=bool(state["q"] or state["of_kind"] or (state["shelf"] or "All") != "All"))
        return
    notebook_compare.chooser()
    count = -(-len(entries) // CELLS_A_PAGE)
    page = min(st.session_state.get("cells_page") or 1, count)
    pinned = store.baseline
    for entry in entries[(page - 1) * CELLS_A_PAGE : page * CELLS_A_PAGE]:
        notebook_cells.cell(store.get(entry.id), pinned=entry.id == pinned, brief=not entry.kept)
    if count > 1:
        st.pagination(count, key="cells_page")


def nothing(searched: bool) -> None:
    """An empty list, and what fills it."""
    if searched:
        st.info("No experiment fits. Search for fewer words or clear the filters.", icon=":material/filter_alt_off:")
    else:
        st.info(
            "Nothing here yet. Every finished run, sweep, what-if and diagnosis comes here by itself; **Keep** under a "
            "result makes it stay.",
            icon=":material/lightbulb:",
        )


def main() -> None:
    """The list, one experiment (``?id=``) or a comparison (``?compare=``)."""
    frame.heading("Notebook", "notebook")
    store = Store()
    keep.refusal()
    repeat()
    try:
        if ids := st.query_params.get("compare"):
            st.button("All experiments", icon=":material/arrow_back:", on_click=leave, args=("compare",))
            notebook_compare.show(_found(store, ids), store.baseline)
        elif experiment_id := st.query_params.get("id"):
            one(store, experiment_id)
        else:
            listing(store)
    except LabError as error:
        st.error("The notebook cannot be shown.", icon=":material/error:")
        st.text(str(error))


def _found(store: Store, ids: str) -> list[Experiment]:
    return [store.get(name) for name in dict.fromkeys(ids.split(",")) if name]


main()
