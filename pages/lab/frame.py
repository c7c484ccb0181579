"""What the pages share: the worker, the visitor, the chosen pair, and a job from its button to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from dflash_lab.errors import LabError
from dflash_lab.jobs import Snapshot, Work, Worker, new_id
from dflash_lab.pairs import PairSpec, broken_presets, get_pair, list_pairs

POLL_S = 0.4
"""How often a page looks at its job; a run of the demo pair makes about ten rounds in that time."""


@st.cache_resource
def worker() -> Worker:
    """The one worker of this process: every visitor's jobs go through it."""
    return Worker()


def owner() -> str:
    """This visitor, for the limit on waiting jobs; a new tab is a new visitor."""
    return str(st.session_state.setdefault("owner", new_id()))


def pick_pair() -> None:
    """The pair picker, in the URL as ``?pair=``."""
    specs = list_pairs()
    st.selectbox(
        "Pair",
        [spec.name for spec in specs],
        key="pair",
        format_func={spec.name: spec.title or spec.name for spec in specs}.__getitem__,
        bind="query-params",
        help="A target and the drafter that proposes tokens to it. Pairs are files in sample_configs/pairs.",
    )
    spec = chosen_pair()
    if spec.notes:
        st.caption(spec.notes)
    for problem in broken_presets():
        st.error(str(problem), icon=":material/error:")


def chosen_pair() -> PairSpec:
    """The pair picked in the sidebar."""
    return get_pair(st.session_state["pair"])


def submit(page: str, task: Work, title: str) -> None:
    """Queue ``task`` as this page's job (called from a button); a refusal is shown when the page is drawn."""
    try:
        job = worker().submit(task, title=title, owner=owner(), kind=page)
    except LabError as error:
        st.session_state[f"{page}_refused"] = str(error)
        return
    st.session_state[f"{page}_job"] = job.id


def job_id(page: str) -> str | None:
    """The page's job: the visitor's last one, or the one in the URL (``?run=``), which a reopened tab has kept."""
    key = f"{page}_job"
    if key not in st.session_state and page in st.query_params:
        st.session_state[key] = st.query_params[page]
    found = st.session_state.get(key)
    if found and st.query_params.get(page) != found:
        st.query_params[page] = found
    return found


def show_refusal(page: str) -> None:
    """Why the last click on this page's button did nothing, once."""
    if refused := st.session_state.pop(f"{page}_refused", None):
        st.warning(refused, icon=":material/block:")


def follow(snapshot: Snapshot, draw: Callable[[Any], None]) -> None:
    """Show an active job: place in the queue, progress, Cancel, and ``draw(partial)``; redraw all when it ends."""

    @st.fragment(run_every=POLL_S)
    def panel() -> None:
        now = worker().find(snapshot.id)
        if now is None or not now.active:
            st.rerun()
        ahead = worker().place(now.id)
        bar, button = st.columns([5, 1], vertical_alignment="center")
        if ahead:
            jobs = "1 job is" if ahead == 1 else f"{ahead} jobs are"
            bar.progress(0.0, text=f"Waiting: {jobs} ahead of you. {_running()}")
        else:
            bar.progress(now.fraction, text=now.text or "Starting")
        button.button(
            "Cancel",
            key=f"cancel_{now.id}",
            icon=":material/stop_circle:",
            on_click=worker().cancel,
            args=(now.id,),
            width="stretch",
        )
        if now.partial is not None:
            draw(now.partial)

    panel()


def _running() -> str:
    running = next((s for s in worker().snapshots() if s.status == "running"), None)
    return f"Now running: {running.title}, {running.fraction:.0%}." if running else ""


def show_end(snapshot: Snapshot) -> None:
    """What a job that did not simply finish left to say."""
    if snapshot.status == "failed":
        st.error(f"{snapshot.error} {snapshot.advice}".strip(), icon=":material/error:")
    elif snapshot.status == "cancelled":
        kept = "What it had done by then is below." if snapshot.result or snapshot.partial else ""
        st.info(f"Cancelled. {kept}", icon=":material/stop_circle:")


def pick_recent(page: str, title: Callable[[Any], str]) -> None:
    """Reopen what this server's worker still remembers, whoever started it."""
    finished = {s.id: s for s in reversed(worker().snapshots()) if s.kind == page and s.result is not None}

    def reopen() -> None:
        if chosen := st.session_state[f"{page}_recent"]:
            st.session_state[f"{page}_job"] = chosen

    if finished:
        st.sidebar.selectbox(
            f"Recent {page}s",
            list(finished),
            index=None,
            key=f"{page}_recent",
            format_func=lambda found: title(finished[found].result),
            placeholder="Open one again",
            on_change=reopen,
        )


def plain(text: str) -> str:
    """Text that Markdown must not read as anything else, on one line."""
    return "".join(f"\\{c}" if c in "\\*_[]$`<>:#|~" else c for c in " ".join(text.split()))
