"""What every result page has of the notebook: Keep, the way there, and the distance to the pinned baseline."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dflash_lab.access import access
from dflash_lab.errors import LabError
from dflash_lab.paths import data_dir, writable
from dflash_lab.store import Experiment, Store

PAGE = "pages/lab/notebook.py"


def bar(experiment_id: str) -> None:
    """One line under a finished result: keep it with a click, open it in the notebook, see it against the baseline."""
    if access().read_only:
        return
    store = Store()
    try:
        found = store.get(experiment_id)
        baseline = store.baseline
        against = store.get(baseline) if baseline and baseline != found.id else None
    except LabError as error:
        st.caption("This result is not in the notebook:")
        st.text(str(error))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if found.kept:
            st.badge("Kept in the notebook", color="green", icon=":material/bookmark_added:")
        else:
            st.button(
                "Keep",
                key=f"keep_{found.id}",
                icon=":material/bookmark_add:",
                on_click=attempt,
                args=(lambda: Store().keep(found.id),),
                help="Only the last results stay by themselves; a kept one stays until it is deleted.",
            )
        st.page_link(PAGE, label="Open in the notebook", icon=":material/book_2:", query_params={"id": found.id})
        if against is not None:
            st.text(distance(against, found))
    refusal()


def distance(baseline: Experiment, found: Experiment) -> str:
    """The experiment against the baseline, in words."""
    from dflash_lab.store.compare import Side, compare

    try:
        words = compare(Side.of(baseline), Side.of(found)).sentence()
    except LabError as error:
        words = str(error)
    return f"Against the baseline, {baseline.title}: {words}"


def attempt(change: Callable[[], object]) -> None:
    """Change the notebook from a button; a refusal is shown when the page is drawn."""
    try:
        access().refuse_writes()
        change()
    except LabError as error:
        st.session_state["notebook_refused"] = str(error)


def warn_unwritable() -> None:
    """In the sidebar: that nothing can be kept here, and what to do."""
    folder = data_dir()
    if not access().read_only and not writable(folder):
        st.warning("Results stay only while this app runs: its data folder cannot be written.", icon=":material/save:")
        st.text(f"{folder}\nMake it writable, or start the app with DFLASH_LAB_DATA set to another folder.")


def refusal() -> None:
    """Why the last click changed nothing, once."""
    if refused := st.session_state.pop("notebook_refused", None):
        st.error("The notebook was not changed.", icon=":material/block:")
        st.text(refused)


def baseline() -> None:
    """The pinned experiment, in the sidebar of every page."""
    store = Store()
    try:
        pinned = store.baseline
        found = store.get(pinned) if pinned else None
    except LabError:  # the notebook's own page says what is wrong with it
        return
    if found is None:
        return
    length = found.figures.summary.acceptance_length if found.figures else None
    st.page_link(
        PAGE,
        label="Baseline" if length is None else f"Baseline: AL {length:.2f}",
        icon=":material/keep:",
        help=found.title.replace("[", "\\["),
        query_params={"id": found.id},
    )
