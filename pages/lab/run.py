"""Run: one prompt through the loop, round by round, beside the plain target."""

from __future__ import annotations

import streamlit as st

from dflash_lab.access import access
from dflash_lab.prompts import load_prompts
from dflash_lab.published import most_drafted
from dflash_lab.tasks import RunSoFar, RunTask
from pages.lab import frame, keep, run_cards

PAGE = "run"
Q_RULES = {
    "drafter": "drawn from the drafter's distribution (z-lab)",
    "one-hot": "the drafter's most probable token, q = 1 (vLLM's default)",
}


def controls() -> None:
    """Prompt, K and everything else a run depends on; all of it ends up in the URL."""
    examples, limits = load_prompts(), access()
    texts = {f"{p.kind}: {p.prompt}": p.prompt for p in examples}

    def take_example() -> None:
        if chosen := st.session_state["example"]:
            st.session_state["prompt"] = texts[chosen]

    st.selectbox(
        "Examples", list(texts), index=None, key="example", on_change=take_example, placeholder="Take an example"
    )
    st.text_area(
        "Prompt", examples[0].prompt, key="prompt", bind="query-params", max_chars=limits.longest_prompt, height=90
    )
    most = most_drafted(frame.chosen_pair())
    left, middle, right, button = st.columns([4, 2, 2, 2], vertical_alignment="bottom")
    left.slider(
        "Drafted tokens a round (K)",
        0,
        2 * most,
        min(5, most),
        key="k",
        bind="query-params",
        help=f"0 is plain decoding. This drafter was trained to draft {most} at most; what it drafts behind that is "
        "a guess.",
    )
    middle.number_input("New tokens", 1, limits.most_new_tokens, 96, key="tokens", bind="query-params")
    with right.popover("Options", icon=":material/tune:", width="stretch"):
        options()
    button.button(
        "Run", type="primary", icon=":material/play_arrow:", on_click=start, width="stretch", shortcut="Ctrl+Enter"
    )


def options() -> None:
    """Sampling, thinking, and the comparison with the plain target."""
    st.slider("Temperature", 0.0, 2.0, 0.0, 0.05, key="temperature", bind="query-params", help="0 is greedy.")
    greedy = st.session_state["temperature"] == 0
    st.number_input("Top-k", 0, 1000, 0, key="top_k", bind="query-params", help="0 is off.", disabled=greedy)
    st.slider("Top-p", 0.05, 1.0, 1.0, 0.05, key="top_p", bind="query-params", help="1 is off.", disabled=greedy)
    st.number_input("Seed", 0, 2**31, 0, key="seed", bind="query-params", disabled=greedy)
    st.selectbox(
        "Rule for the draft's q",
        list(Q_RULES),
        format_func=Q_RULES.__getitem__,
        key="q_rule",
        bind="query-params",
        disabled=greedy,
        help="Both leave the target's distribution untouched; acceptance differs.",
    )
    if (thinking := frame.chosen_pair().thinking) is not None:
        st.toggle("Thinking", thinking, key="thinking", bind="query-params", help="The chat template's own switch.")
    st.toggle(
        "Compare with the target alone",
        True,
        key="baseline",
        bind="query-params",
        help="Runs the prompt a second time without a drafter: the speed-up and the lossless check need it.",
    )


def start() -> None:
    """Queue the run that the controls describe."""
    state = st.session_state
    spec = frame.chosen_pair()
    kinds = {p.prompt: p.kind for p in load_prompts()}
    task = RunTask(
        pair=spec.name,
        prompt=state["prompt"],
        k=state["k"],
        max_new_tokens=state["tokens"],
        temperature=state["temperature"],
        top_k=state["top_k"],
        top_p=state["top_p"],
        seed=state["seed"],
        q_rule=state["q_rule"],
        thinking=state.get("thinking"),
        baseline=state["baseline"],
        kind=kinds.get(state["prompt"], ""),
    )
    frame.submit(PAGE, task, f"run at K = {task.k} on {spec.name}")


def results(found: str) -> None:
    """The page's job: under way, finished, failed, or read back from the data folder."""
    done = frame.outcome(found, run_cards.read, run_cards.show_so_far)
    if isinstance(done, RunSoFar):
        run_cards.show_so_far(done)
    elif done is not None:
        keep.bar(done.id)
        run_cards.show(done)


frame.heading("Run", "run")
controls()
frame.show_refusal(PAGE)
if job := frame.job_id(PAGE):
    results(job)
else:
    run_cards.show_nothing()
frame.pick_recent(PAGE, run_cards.title)
