"""The Config page's right side: what the checks say, and what the edit accepts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from dflash_lab import edits, plots
from dflash_lab.config.checks import Finding
from dflash_lab.config.faults import FAULTS
from dflash_lab.config_tasks import Judged, rates_by_prompt
from dflash_lab.cost import load_costs
from dflash_lab.errors import LabError
from pages.lab import frame
from pages.lab.config_state import Bench, Tried

if TYPE_CHECKING:
    from dflash_lab.trace import Summary

ICONS = {"error": ":material/error:", "warning": ":material/warning:", "note": ":material/info:"}
COLOURS: dict[str, Any] = {"error": "red", "warning": "orange", "note": "gray"}


def findings(bench: Bench, found: list[Finding]) -> None:
    """Errors and warnings in full with a button for the suggested value, notes folded away."""
    if bench.refused:
        st.error(f"Not taken: {bench.refused}", icon=":material/block:")
    loud = [f for f in found if f.severity != "note"]
    quiet = [f for f in found if f.severity == "note"]
    counts = [f"{sum(f.severity == kind for f in found)} {kind}s" for kind in ("error", "warning", "note")]
    st.subheader("Findings", help="From the file, the weights' header, the target's config and tokenizer.")
    st.caption(", ".join(counts).replace("1 errors", "1 error").replace("1 warnings", "1 warning"))
    if not loud:
        st.success("Nothing speaks against this config.", icon=":material/check_circle:")
    with st.container(height=520 if len(loud) > 8 else "content", border=False, gap="small"):
        for n, finding in enumerate(loud):
            _finding(bench, finding, n)
    if bench.reference is not None and edits.differences(bench.raw, bench.reference):
        st.button(
            "Take everything from the reference",
            icon=":material/done_all:",
            on_click=bench.attempt,
            args=(lambda: dict(bench.reference or {}),),
            help=f"The reference is {bench.reference_name}.",
        )
    if quiet:
        with st.expander(f"{len(quiet)} note{'s' if len(quiet) > 1 else ''}"):
            for n, finding in enumerate(quiet, len(loud)):
                _finding(bench, finding, n)


def _finding(bench: Bench, finding: Finding, n: int) -> None:
    words, button = st.columns([5, 1], vertical_alignment="center")
    why = " ".join(part for part in (finding.why, f"({finding.source})" if finding.source else "") if part)
    text = finding.message if finding.field in finding.message else f"{finding.field}: {finding.message}"
    badge = f":{COLOURS[finding.severity]}-badge[{ICONS[finding.severity]} {finding.severity}]"
    words.markdown(f"{badge} {frame.plain(text)}", help=why or None)
    if finding.suggested is None and finding.check != "differs_from_reference":
        return

    def take() -> None:
        if finding.check == "differs_from_reference":
            bench.attempt(lambda: edits.take(bench.raw, bench.reference or {}, finding.field))
        else:
            bench.attempt(lambda: edits.set_field(bench.raw, finding.field, finding.suggested))

    text = edits.shown(finding.suggested)
    if finding.field in edits.known_fields():
        button.button(
            "Take",
            key=f"take_{n}_{finding.check}_{finding.field}",
            on_click=take,
            help=f"Set {finding.field} to {text}",
            width="stretch",
        )


def faults(bench: Bench) -> None:
    """The public faults, one click each, and the way back to the file."""
    with st.popover("Try a fault", icon=":material/bug_report:"):
        st.caption("Faults seen in public, put into the config as it now is.")
        for name in FAULTS:
            st.button(name, on_click=bench.attempt, args=(lambda name=name: bench.fault(name),), width="stretch")
    st.button(
        "Undo the edit",
        icon=":material/undo:",
        disabled=not bench.edited,
        on_click=lambda: bench.put(bench.on_disk),
        help="Back to what the file says.",
    )


def effect(bench: Bench, judged: Judged, current: bool) -> None:
    """Acceptance of the edit against the others; ``current`` says whether it is the edit now in the fields."""
    for name, sentence in judged.refused.items():
        st.error(f"The config {name} cannot run: {sentence}", icon=":material/block:")
    if not judged.effects:
        return
    if not current:
        st.caption("Of the edit before this one:")
    costs = _costs(judged)
    with st.grid(len(judged.effects), min_column_width=190):
        for name, found in judged.effects.items():
            _tile(name, found.summary, judged.tok_s(name, costs))
    for name, paired in judged.against.items():
        verdict = "a clear difference" if paired.clear else "inside the noise"
        st.markdown(
            f"Edited against {name}: **{paired.difference:+.2f}** tokens a round "
            f"(95%: {paired.low:+.2f} to {paired.high:+.2f}), {verdict}; "
            f"{paired.rounds_b} and {paired.rounds_a} rounds on the same texts."
        )
    step = costs.step(judged.k) if costs else None
    if step is None:
        st.caption(f"No tok/s: the Sweep page measures what a round costs at K = {judged.k} on this machine.")
    else:
        st.caption(
            f"tok/s is predicted: acceptance length over {step.round_ms:.1f} ms, the median round at K = {judged.k} "
            f"({step.rounds} rounds measured)."
        )
    st.plotly_chart(
        plots.positions_compared({name: found.summary for name, found in judged.effects.items()}),
        key="positions",
        config={"displayModeBar": False},
        alt="Acceptance rate at each drafted position, by config, with 95% intervals",
    )
    st.caption(
        f"{len(judged.kinds)} prompts, up to {judged.max_new_tokens} tokens each, K = {judged.k}, greedy, exact by "
        f"replay; judged in {judged.seconds:.1f} s from {judged.recording_bytes / 1e6:.0f} MB of recordings."
    )


def _tile(name: str, summary: Summary, speed: float | None) -> None:
    length, interval = summary.acceptance_length, summary.acceptance_length_interval
    between = f"{interval[0]:.2f} to {interval[1]:.2f}, " if interval else ""
    rate = f", {speed:.0f} tok/s" if speed else ""
    st.metric(
        f"AL {name}",
        "n/a" if length is None else f"{length:.2f}",
        f"{between}{summary.counted} rounds{rate}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help=f"{summary.definition}. {summary.left_out} rounds left out. Below it: the 95% interval.",
    )


@st.cache_data(show_spinner=False, ttl=20)
def _kept(pair: str, device: str, dtype: str) -> Any:
    return load_costs(pair, device, dtype)


def _costs(judged: Judged) -> Any:
    try:
        return _kept(judged.pair, judged.device, judged.dtype)
    except LabError as error:
        st.caption(str(error))
        return None


def heatmaps(judged: Judged) -> None:
    """Position by prompt, one heatmap a config, on one scale."""
    for column, (name, found) in zip(st.columns(len(judged.effects)), judged.effects.items(), strict=True):
        table = pd.DataFrame.from_dict(
            rates_by_prompt(found.traces, judged.kinds), orient="index", columns=list(range(judged.k)), dtype=float
        )
        with column:
            st.markdown(f"**{name}**, {found.summary.drafts} rounds")
            st.plotly_chart(
                plots.rate_heatmap(table, "drafted position", "prompt"),
                key=f"heatmap_{name}",
                config={"displayModeBar": False},
                alt=f"Acceptance rate by prompt and position under the config {name}",
            )


def strip(bench: Bench) -> None:
    """The what-ifs so far, each one click away."""
    if not bench.tried:
        return
    st.caption("Tried so far; click one to have it back:")
    with st.container(horizontal=True, key="strip"):
        for n, tried in enumerate(bench.tried):
            length = "n/a" if tried.acceptance_length is None else f"{tried.acceptance_length:.2f}"
            interval = f"95%: {tried.interval[0]:.2f} to {tried.interval[1]:.2f}, " if tried.interval else ""
            st.button(
                f"{length} · {tried.title}",
                key=f"tried_{n}",
                type="primary" if tried.raw == bench.raw else "secondary",
                on_click=bench.put,
                args=(tried.raw,),
                help=f"Acceptance length, {interval}{tried.rounds} rounds at K = {tried.k}",
            )


def remember(bench: Bench, judged: Judged) -> None:
    """Put the judged edit into the strip."""
    name = next(iter(judged.configs))
    if (found := judged.effects.get(name)) is not None:
        raw, summary = json.loads(judged.configs[name]), found.summary
        title = edits.summary(bench.on_disk, raw)
        bench.remember(
            Tried(raw, title, judged.k, summary.acceptance_length, summary.acceptance_length_interval, summary.counted)
        )
