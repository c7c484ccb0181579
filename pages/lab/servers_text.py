"""Launch commands to copy, and figures from lines that somebody pasted."""

from __future__ import annotations

import streamlit as st

from dflash_lab import plots
from dflash_lab.errors import LabError
from dflash_lab.pairs import PairSpec
from dflash_lab.published import most_drafted
from dflash_lab.servers import commands as launch
from dflash_lab.servers.paste import read_pasted
from dflash_lab.servers.speculation import Speculation


def commands(spec: PairSpec) -> None:
    """One command a machine, with what each size does."""
    engine, k, *rest = st.columns([2, 2, 2, 2, 2, 2])
    chosen = engine.segmented_control("Engine", ["vLLM", "SGLang"], default="vLLM", key="servers_engine", required=True)
    most = most_drafted(spec)
    drafted = k.number_input("K", 1, 2 * most, min(5, most), key="servers_command_k")
    sizes = {
        size: column.number_input(size.capitalize(), 1, 64, 1, key=f"servers_{size}", help=launch.FLAGS[size])
        for size, column in zip(("nodes", "tensor", "pipeline", "data"), rest, strict=True)
    }
    make = launch.vllm if chosen == "vLLM" else launch.sglang
    target, drafter = launch.names(spec)
    try:
        layout = launch.Layout(**sizes)
        lines = make(target, Speculation("dflash", drafted, drafter), layout)
    except LabError as error:
        st.warning(str(error), icon=":material/block:")
        return
    for n, line in enumerate(lines):
        if len(lines) > 1:
            st.caption(f"Machine {n + 1}" + (" (head: requests go here)" if n == 0 else ""))
        st.code(line, language="bash", wrap_lines=True)
    gpus = f"{layout.gpus} GPU{'s' if layout.gpus > 1 else ''}"
    st.caption(f"{gpus} on {layout.nodes} machine{'s' if layout.nodes > 1 else ''}.")
    for size in ("tensor", "pipeline", "data", "nodes"):
        if sizes[size] > 1:
            st.markdown(f"- **{size.capitalize()} {sizes[size]}**: {launch.FLAGS[size]}")
    if chosen == "SGLang":
        st.caption("SGLang has not been run here: its flags are those of its public documentation.")


def pasted() -> None:
    """The paste box and what it says."""
    text = st.text_area(
        "Log lines or a /metrics page",
        key="servers_pasted",
        height=140,
        placeholder="SpecDecoding metrics: Mean acceptance length: 2.41, ...",
        help="vLLM's SpecDecoding metrics lines or /metrics page, SGLang's Decode batch lines, llama.cpp's draft "
        "acceptance line.",
    )
    if not text.strip():
        st.caption("Every figure is converted to the lab's definitions: the bonus token is counted.")
        return
    try:
        found = read_pasted(text)
    except LabError as error:
        st.warning(str(error), icon=":material/block:")
        return
    length = "n/a" if found.acceptance_length is None else f"{found.acceptance_length:.2f}"
    left, right = st.columns([1, 3])
    left.metric("Acceptance length", length, help=found.definition)
    left.caption(f"{found.engine}, {found.lines} line{'s' if found.lines != 1 else ''}. {found.definition}")
    if found.summary and found.summary.accepted_at:
        right.plotly_chart(
            plots.per_position(found.summary), alt="Acceptance by position", config={"displayModeBar": False}
        )
    else:
        right.caption("These lines print nothing by position.")
