"""Sweeps on a server: the number of requests at once, and K on a server relaunched for each."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dflash_lab.access import access
from dflash_lab.published import most_drafted
from dflash_lab.server_tasks import ConcurrencyTask, KSweepTask, Request, Swept
from dflash_lab.servers import figures
from dflash_lab.servers.sweeps import frame as points_frame
from pages.lab import frame, servers_place

SWEEP = "server_sweep"
LEVELS = (1, 2, 4, 8, 16, 32)
COLUMNS = {
    "k": st.column_config.NumberColumn("K", help="0 is the target alone."),
    "concurrency": st.column_config.NumberColumn("At once"),
    "asked": st.column_config.NumberColumn("Asked"),
    "finished": st.column_config.NumberColumn("Finished"),
    "tok_s": st.column_config.NumberColumn("tok/s, all", format="%.1f", help="Prefill included."),
    "tok_s_each": st.column_config.NumberColumn("tok/s, each", format="%.1f", help="Decode only."),
    "acceptance_length": st.column_config.NumberColumn("Acceptance length", format="%.2f", help="Bonus included."),
    "failure": st.column_config.TextColumn("Failure"),
}


def show(url: str | None, request: Callable[[str], Request]) -> None:
    """Controls of both sweeps, and the last one's results."""
    left, right = st.columns(2)
    with left:
        levels = st.multiselect("Requests at once", LEVELS, [1, 2, 4, 8], key="servers_levels", bind="query-params")
        st.button(
            "Sweep requests",
            icon=":material/groups:",
            on_click=start_levels,
            args=(url, request),
            disabled=url is None or not levels,
            help="On the server attached to." if url else "Attach to a server first.",
        )
    there = servers_place.environment()
    most = most_drafted(frame.chosen_pair())
    with right:
        ks = st.multiselect(
            "Drafted tokens (K)", list(range(1, 2 * most + 1)), [3, 5], key="servers_ks", bind="query-params"
        )
        st.button(
            "Sweep K by relaunch",
            icon=":material/restart_alt:",
            on_click=start_ks,
            disabled=isinstance(there, str) or not ks or access().read_only,
            help=there if isinstance(there, str) else "Stops the managed vLLM, starts one for every K and one without.",
        )
    st.caption(
        "vLLM can also replace the target's verdict by chance (synthetic acceptance), to see what another acceptance "
        "would bring in speed. That runs on a GPU only and is not offered here."
    )
    frame.show_refusal(SWEEP)
    results()


def start_levels(url: str, request: Callable[[str], Request]) -> None:
    """Queue the sweep of requests at once."""
    levels = tuple(st.session_state["servers_levels"])
    frame.submit(SWEEP, ConcurrencyTask(request(url), levels), f"{len(levels)} loads on {url}")


def start_ks() -> None:
    """Queue the sweep of K."""
    there, state = servers_place.environment(), st.session_state
    if isinstance(there, str):
        return
    asked, serving = servers_place.prompts(), servers_place.serving()
    task = KSweepTask(
        serving, servers_place.keeper(), there, asked, tuple(state["servers_ks"]), state["servers_tokens"]
    )
    frame.submit(SWEEP, task, f"vLLM at {len(task.ks)} values of K")


def results() -> None:
    """The last sweep: under way, finished or failed."""
    job = frame.job_id(SWEEP)
    snapshot = frame.worker().find(job) if job else None
    if snapshot is None:
        return
    if snapshot.active:
        frame.follow(snapshot, points)
        return
    frame.show_end(snapshot)
    if found := snapshot.result or snapshot.partial:
        points(found)


def points(found: Swept) -> None:
    """A sweep's curve and table."""
    for p in found.points:
        if p.failure:
            st.error(frame.plain(p.failure), icon=":material/cloud_off:")
    if not found.points:
        return
    st.plotly_chart(
        figures.throughput(found.points, found.what), alt="Throughput of the sweep", config={"displayModeBar": False}
    )
    st.dataframe(points_frame(found.points), hide_index=True, column_config=COLUMNS)
