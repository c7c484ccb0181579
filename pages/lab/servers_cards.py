"""The cards of a measurement: verdict, figures, observed against expected, requests, and the live counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dflash_lab.errors import LabError
from dflash_lab.servers import figures
from dflash_lab.servers.attach import Client
from dflash_lab.servers.measure import Measured
from dflash_lab.servers.sglang import SglangServer
from dflash_lab.servers.verdict import judge
from dflash_lab.trace import Summary
from pages.lab import frame

if TYPE_CHECKING:
    from dflash_lab.servers.explain import Ranking

LOOKS = {
    "matches": (st.success, ":material/check_circle:"),
    "deviates": (st.warning, ":material/difference:"),
    "loses": (st.error, ":material/trending_down:"),
    "unknown": (st.info, ":material/help:"),
}
QUIET = {"displayModeBar": False}


def show_nothing() -> None:
    """Before the first measurement."""
    st.info(
        "Attach to a server, or launch one, then press **Measure**. The lab sends the prompts, replays the same "
        "prompts here, and says whether the server accepts what this drafter can do.",
        icon=":material/lightbulb:",
    )


def show_so_far(found: Measured) -> None:
    """A measurement under way: the requests that finished."""
    requests(found)


def show(found: Measured) -> None:
    """A finished or stopped measurement."""
    if found.load.failure:
        st.error(frame.plain(found.load.sentence()), icon=":material/cloud_off:")
    verdict(found)
    tiles(found)
    positions(found)
    requests(found)
    differences(found)


def verdict(found: Measured) -> None:
    """Matches, deviates or loses, and where to look first."""
    said = judge(found)
    look, icon = LOOKS[said.kind]
    suspects = f"\n\nFirst suspects: {frame.plain(', '.join(said.suspects))}." if said.suspects else ""
    look(f"{frame.plain(said.text)}{suspects}", icon=icon)
    for name, why in found.refused.items():
        st.caption(f"As {name} reads the config, it cannot run: {frame.plain(why)}")


def tiles(found: Measured) -> None:
    """Acceptance length, throughput and what they rest on."""
    load, observed = found.load, found.observed
    with st.grid(4, min_column_width=170):
        length = observed.acceptance_length if observed else None
        _tile(
            "Acceptance length",
            length,
            "{:.2f}",
            f"{observed.drafts} rounds, K = {found.k}" if observed else "no rounds",
            observed.definition if observed else "The server gave no figures.",
        )
        _tile(
            "All requests",
            load.tokens_per_second,
            "{:.1f} tok/s",
            f"{load.concurrency} at once",
            "All tokens over the time from the first request to the last answer, prefill included.",
        )
        _tile(
            "Each request",
            load.tokens_per_second_each,
            "{:.1f} tok/s",
            f"{len(load.answers)} of {load.asked} finished",
            "Mean of each request's own decode throughput: tokens after the first over seconds after the first.",
        )
        same = "n/a" if found.same_texts is None else f"{found.same_texts} of {len(load.answers)}"
        with st.container(border=True):
            st.metric("Same text", same, help="Requests whose text the lab's own target writes too, token for token.")
            st.caption("greedy")


def _tile(label: str, value: float | None, form: str, below: str, help_: str) -> None:
    with st.container(border=True):
        st.metric(label, "n/a" if value is None else form.format(value), help=help_)
        st.caption(below)


def positions(found: Measured) -> None:
    """Observed and expected by position, under the chosen reading."""
    names = list(found.comparisons or found.expected)
    st.subheader("By position", help="Unconditional: of all rounds. Bars carry 95% intervals.")
    reading = names[0] if names else ""
    if len(names) > 1:
        reading = st.segmented_control(
            "Expected as it is run by", names, default=names[0], key="servers_reading", required=True
        )
    figure = figures.observed_and_expected(found, reading)
    if figure is None:
        st.caption("The server tells nothing by position.")
        return
    st.plotly_chart(figure, alt="Acceptance rate by position, observed beside expected", config=QUIET)
    if found.comparisons:
        shares = [f"{name} {c.equal_share or 0:.1%}" for name, c in found.comparisons.items()]
        rounds = next(iter(found.comparisons.values())).rounds
        st.caption(f"Equal rounds of {rounds}, as run by: {', '.join(shares)}.")


def requests(found: Measured) -> None:
    """Rates by request and position."""
    figure = figures.by_request(found) if found.k else None
    if figure is not None:
        st.subheader("By request", help="Unconditional rates; final rounds are left out.")
        st.plotly_chart(figure, alt="Acceptance rate by request and position", config=QUIET)
    elif found.load.answers:
        done = [{"prompt": p.id, "tokens": a.completion_tokens, "ended by": a.finish} for p, a in found.answered()]
        st.dataframe(pd.DataFrame(done), hide_index=True)


def differences(found: Measured) -> None:
    """Every differing round under the chosen reading, with its margin."""
    reading = st.session_state.get("servers_reading")
    compared = found.comparisons.get(reading) or next(iter(found.comparisons.values()), None)
    if compared and compared.differences:
        with st.expander(f"The {len(compared.differences)} rounds that differ"):
            rows = [
                {
                    "request": d.request + 1,
                    "anchor": d.anchor_position,
                    "server accepted": d.server,
                    "expected": d.replay,
                    "margin": d.margin,
                }
                for d in compared.differences
            ]
            help_ = "Distance of the target's two top logits where they part: near 0, rounding decides."
            margin = st.column_config.NumberColumn("margin", format="%.3f", help=help_)
            st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={"margin": margin})


def ranking(found: Ranking) -> None:
    """What the search for the variant found."""
    st.info(frame.plain(found.sentence()), icon=":material/search_insights:")
    rows = [
        {"variant": c.name, "equal rounds": c.share, "told apart": c.told_apart, "behaviour": c.behaviour}
        for c in found.candidates[:12]
    ]
    columns = {
        "equal rounds": st.column_config.NumberColumn("equal rounds", format="percent"),
        "told apart": st.column_config.NumberColumn(
            "told apart", help="Rounds on which it predicts another number than the reference; 0: nothing is said."
        ),
    }
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config=columns)


def live(client: Client | None) -> None:
    """The server's own counters, everybody's requests, since the switch was turned on."""
    if client is None:
        st.info("Attach to a server first.", icon=":material/link:")
        return
    if not st.toggle("Follow the counters", key="servers_live", help="Everybody's requests, final rounds too."):
        st.session_state.pop("servers_since", None)
        return
    ticking(client)


@st.fragment(run_every=2.0)
def ticking(client: Client) -> None:
    """One look at the counters."""
    if isinstance(client, SglangServer):
        gauges = client.gauges()
        st.json(gauges or {"metrics": "start SGLang with --enable-metrics"})
        return
    try:
        now = client.counters()
    except LabError as error:
        st.error(str(error), icon=":material/link_off:")
        return
    if now is None or not now.engines:
        st.info("The server shows no speculative counters: it drafts nothing, or hides /metrics.")
        return
    since = st.session_state.setdefault("servers_since", now)
    counted(now.since(since).summary(), len(now.engines))


def counted(summary: Summary, engines: int) -> None:
    """The counters' difference as figures."""
    with st.grid(4, min_column_width=170):
        _tile("Acceptance length", summary.acceptance_length, "{:.2f}", "bonus included", summary.definition)
        _tile(
            "Rounds", summary.drafts, "{}", f"{engines} engine{'s' if engines != 1 else ''}", "Since it was turned on."
        )
        _tile("Drafted", summary.drafted, "{}", "tokens", "Since it was turned on.")
        _tile("Accepted", summary.accepted, "{}", "tokens", "Since it was turned on.")
    if summary.drafts:
        rates = "  ".join(f"{n}: {rate.value or 0:.0%}" for n, rate in enumerate(summary.per_position))
        st.caption(f"By position, of all rounds: {rates}")
