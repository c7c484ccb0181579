"""Servers: is this acceptance what the drafter can do, or does the engine lose some of it?"""

from __future__ import annotations

import streamlit as st

from dflash_lab.server_tasks import ExplainTask, MeasureTask, Request
from pages.lab import frame, servers_cards, servers_place, servers_sweeps, servers_text

PAGE = "servers"
EXPLAIN = "explain"


def controls(url: str | None) -> None:
    """Which prompts, how many at once, and whether replay is run beside them."""
    left, tokens, at_once, button = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
    left.segmented_control(
        "Prompts of each kind", [1, 2, 3], default=1, key="servers_per_kind", bind="query-params", required=True
    )
    tokens.number_input("New tokens a prompt", 8, 1024, 64, key="servers_tokens", bind="query-params")
    at_once.number_input(
        "Requests at once", 1, 64, 1, key="servers_at_once", bind="query-params", help="1 is the exact comparison."
    )
    with st.expander("How it is compared", icon=":material/tune:"):
        replay, dtype, k, seconds = st.columns(4, vertical_alignment="bottom")
        replay.toggle(
            "Replay here",
            True,
            key="servers_replay",
            help="Loads the pair in the lab and replays the same prompts. Off: chat turns are sent and nothing is "
            "expected.",
        )
        dtype.selectbox(
            "Local pair's dtype",
            ["", "float32", "bfloat16", "float16"],
            key="servers_dtype",
            format_func=lambda name: name or "as served, else the pair's",
            help="Take the server's: in another one, near-ties fall differently.",
        )
        k.number_input("K, where the server does not tell", 0, 64, 0, key="servers_k")
        seconds.number_input("Seconds a request may take", 5, 3600, 300, key="servers_timeout")
    button.button(
        "Measure",
        type="primary",
        icon=":material/speed:",
        on_click=start,
        args=(url,),
        disabled=url is None,
        help="Attach to a server first." if url is None else None,
        width="stretch",
    )


def request(url: str) -> Request:
    """What the controls ask of the server."""
    state = st.session_state
    return Request(
        url,
        frame.chosen_pair().name,
        servers_place.prompts(),
        state["servers_tokens"],
        state["servers_at_once"],
        state["servers_k"],
        servers_place.expected_config(),
        state["servers_dtype"] or servers_place.served_dtype(url),
        state["servers_replay"],
        float(state["servers_timeout"]),
        state["servers_api_key"],
    )


def start(url: str) -> None:
    """Queue the measurement that the controls describe."""
    asked = request(url)
    st.session_state["servers_request"] = asked
    st.session_state.pop(f"{EXPLAIN}_job", None)
    frame.submit(PAGE, MeasureTask(asked), f"{len(asked.prompts)} prompts to {url}")


def explain(found: object) -> None:
    """Queue the search for the implementation variant."""
    frame.submit(EXPLAIN, ExplainTask(st.session_state["servers_request"], found), "explaining an engine")


def results() -> None:
    """The measurement: under way, finished or failed; then its explanation."""
    job = frame.job_id(PAGE)
    snapshot = frame.worker().find(job) if job else None
    if snapshot is None:
        servers_cards.show_nothing()
        return
    if snapshot.active:
        frame.follow(snapshot, servers_cards.show_so_far)
        return
    frame.show_end(snapshot)
    found = snapshot.result or snapshot.partial
    if found is None or not found.load.answers:
        return
    servers_cards.show(found)
    if found.comparisons and "servers_request" in st.session_state:
        st.button(
            "Explain",
            icon=":material/search_insights:",
            on_click=explain,
            args=(found,),
            help="Replays the server's own anchors under a library of implementation variants and pairs of them, and "
            "ranks them by equal rounds. Takes a minute.",
        )
        frame.show_refusal(EXPLAIN)
        job = st.session_state.get(f"{EXPLAIN}_job")
        explained = frame.worker().find(job) if job else None
        if explained and explained.active:
            frame.follow(explained, lambda partial: None)
        elif explained:
            frame.show_end(explained)
            if explained.result:
                servers_cards.ranking(explained.result)


frame.heading("Servers", "servers")
url = servers_place.pick()
measured, swept, counters, commands, pasted = st.tabs(
    ["Observed and expected", "Sweeps", "Live counters", "Launch commands", "Pasted lines"]
)
with measured:
    controls(url)
    frame.show_refusal(PAGE)
    results()
with swept:
    servers_sweeps.show(url, request)
with counters:
    servers_cards.live(servers_place.client(url) if url else None)
with commands:
    servers_text.commands(frame.chosen_pair())
with pasted:
    servers_text.pasted()
