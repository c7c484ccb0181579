"""Sweep: acceptance and speed against the number of drafted tokens, the best K, and the tree of a round."""

from __future__ import annotations

import streamlit as st

from dflash_lab.prompts import Prompt, load_prompts
from dflash_lab.published import most_drafted
from dflash_lab.sweep import load_sweep
from dflash_lab.tasks import SweepTask
from pages.lab import frame, keep, sweep_cards, sweep_methods, sweep_tree

PAGE = "sweep"
DEFAULT_KS = (1, 3, 5, 7)


def controls() -> None:
    """Which prompts, which K, how often."""
    prompts = load_prompts()
    kinds = sorted({p.kind for p in prompts})
    per_kind = max(sum(p.kind == kind for p in prompts) for kind in kinds)
    most = most_drafted(frame.chosen_pair())
    left, right = st.columns(2)
    left.pills("Kinds of prompts", kinds, selection_mode="multi", default=kinds, key="kinds", bind="query-params")
    right.segmented_control(
        "Prompts of each kind",
        list(range(1, per_kind + 1)),
        default=1,
        key="per_kind",
        bind="query-params",
        required=True,
    )
    st.multiselect(
        "Drafted tokens a round (K)",
        list(range(1, 2 * most + 1)),
        [k for k in DEFAULT_KS if k <= most],
        key="ks",
        bind="query-params",
        help=f"The target alone is always measured too. This drafter was trained to draft {most} at most.",
    )
    left, middle, button = st.columns([2, 2, 2], vertical_alignment="bottom")
    left.number_input("New tokens a run", 8, 1024, 64, key="sweep_tokens", bind="query-params")
    middle.number_input("Repeats", 1, 10, 1, key="repeats", bind="query-params")
    chosen, ks = picked(), st.session_state["ks"]
    runs = len(chosen) * (len(ks) + 1) * st.session_state["repeats"]
    button.button(
        f"Sweep ({runs} runs)" if chosen and ks else "Sweep",
        type="primary",
        icon=":material/stacked_line_chart:",
        on_click=start,
        disabled=not (chosen and ks),
        help="Pick at least one kind of prompt and one K." if not (chosen and ks) else None,
        width="stretch",
    )


def picked() -> tuple[Prompt, ...]:
    """The first so many prompts of every chosen kind."""
    prompts, count = load_prompts(), st.session_state["per_kind"] or 1
    by_kind = {kind: [p for p in prompts if p.kind == kind][:count] for kind in st.session_state["kinds"]}
    return tuple(p for p in prompts if p in by_kind.get(p.kind, ()))


def start() -> None:
    """Queue the sweep that the controls describe."""
    state, spec = st.session_state, frame.chosen_pair()
    task = SweepTask(spec.name, picked(), tuple(sorted(state["ks"])), state["repeats"], state["sweep_tokens"])
    frame.submit(PAGE, task, f"sweep over {len(task.ks)} values of K on {spec.name}")


def results(found: str) -> None:
    """The page's job: under way, finished, failed, or read back from the data folder."""
    done = frame.outcome(found, load_sweep, sweep_cards.show_so_far)
    if done is not None and done.measurements:
        keep.bar(done.id)
        sweep_cards.show(done)


def values_of_k() -> None:
    """The view of one drafter at several K."""
    controls()
    frame.show_refusal(PAGE)
    if job := frame.job_id(PAGE):
        results(job)
    else:
        sweep_cards.show_nothing()
    frame.pick_recent(PAGE, sweep_cards.title)


VIEWS = {"Values of K": values_of_k, "Methods": sweep_methods.show, "Tree of a round": sweep_tree.show}

frame.heading("Sweep", "sweep")
st.segmented_control(
    "View",
    list(VIEWS),
    default="Values of K",
    key="view",
    bind="query-params",
    required=True,
    label_visibility="collapsed",
)
VIEWS[st.session_state["view"] or "Values of K"]()
