"""What the pages share: the worker, the visitor, the chosen pair, and a job from its button to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from dflash_lab.access import access
from dflash_lab.errors import LabError
from dflash_lab.guide import guide
from dflash_lab.jobs import Snapshot, Work, Worker, new_id
from dflash_lab.pairs import PairSpec, broken_presets, get_pair, list_pairs

QUEUE_POLL_S = 2.0
"""How often every open page looks at the queue."""

POLL_S = 0.4
"""How often a page looks at its job; a run of the demo pair makes about ten rounds in that time."""


@st.cache_resource
def worker() -> Worker:
    """The one worker of this process: every visitor's jobs go through it."""
    return Worker(admit=lambda task: access().check(task))


def owner() -> str:
    """This visitor, for the limit on waiting jobs; a new tab is a new visitor."""
    return str(st.session_state.setdefault("owner", new_id()))


def visitor() -> str:
    """What the others read in the queue: the name that was typed, that of the login, or none in particular."""
    return str(st.session_state.get("visitor") or "").strip() or _unnamed()


def _unnamed() -> str:
    return str(st.user.get("name") or f"visitor {owner()[-3:]}")


@st.fragment(run_every=QUEUE_POLL_S)
def queue() -> None:
    """Who runs and who waits, for everybody on this server alike; and by which name this visitor does."""
    jobs = worker().queue()
    with st.expander("Queue" if not jobs else f"Queue: {len(jobs)}", icon=":material/groups:", expanded=bool(jobs)):
        for ahead, job in enumerate(jobs):
            place = f"{job.fraction:.0%}" if job.status == "running" else f"{ahead} ahead"
            mine = " (you)" if job.owner == owner() else ""
            st.text(f"{ahead + 1}. {job.who}{mine}: {job.title}, {place}")
        if not jobs:
            st.caption("Nobody is running anything.")
        st.text_input("Your name there", key="visitor", max_chars=40, placeholder=_unnamed(), persist_state="session")


def pick_pair() -> None:
    """The pair picker, in the URL as ``?pair=``. Raises LabError in a demonstration of a pair that is not there."""
    limits = access()
    specs = [get_pair(name) for name in limits.pairs] or list_pairs()
    if limits.read_only:
        st.badge("Demonstration", icon=":material/visibility:", color="violet")
        st.caption(
            f"Nothing is saved or started. Prompts up to {limits.longest_prompt:,} characters, "
            f"{limits.most_new_tokens} new tokens, {limits.most_runs} runs a sweep."
        )
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


def heading(title: str, page: str) -> None:
    """The page's title, and its guide behind a small button beside it."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(title, width="content")
        with st.popover("Guide", type="tertiary", icon=":material/menu_book:"):
            try:
                st.markdown(guide(page))
            except LabError as error:
                st.text(str(error))
            st.page_link("pages/lab/glossary.py", label="Glossary", icon=":material/dictionary:")


def submit(page: str, task: Work, title: str) -> None:
    """Queue ``task`` as this page's job (called from a button); a refusal is shown when the page is drawn."""
    try:
        job = worker().submit(task, title=title, owner=owner(), kind=page, who=visitor())
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
        with st.container(horizontal=True, vertical_alignment="center"):
            if ahead:
                jobs = "1 job is" if ahead == 1 else f"{ahead} jobs are"
                st.progress(0.0, text=f"Waiting: {jobs} ahead of you. {_running()}")
            else:
                st.progress(now.fraction, text=now.text or "Starting")
            st.button(
                "Cancel",
                key=f"cancel_{now.id}",
                icon=":material/stop_circle:",
                on_click=worker().cancel,
                args=(now.id,),
            )
        if now.partial is not None:
            draw(now.partial)

    panel()


def _running() -> str:
    running = next((s for s in worker().snapshots() if s.status == "running"), None)
    return f"Now running: {running.title}, {running.fraction:.0%}." if running else ""


def outcome(found: str, load: Callable[[str], Any], draw: Callable[[Any], None]) -> Any:
    """What the job ``found`` came to: its result, what it had when it was stopped, or what ``load`` reads back.

    None while it waits or runs, when ``draw`` shows what there is so far, and where nothing is known of it.
    """
    snapshot = worker().find(found)
    if snapshot is None:
        try:
            return load(found)
        except LabError as error:
            st.warning(str(error), icon=":material/search_off:")
            return None
    if snapshot.active:
        follow(snapshot, draw)
        return None
    show_end(snapshot)
    return snapshot.partial if snapshot.result is None else snapshot.result


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
