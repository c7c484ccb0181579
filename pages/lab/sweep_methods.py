"""Methods side by side: which of them, on which prompts, and the job that compares them."""

from __future__ import annotations

import streamlit as st

from dflash_lab.config_tasks import PromptSet
from dflash_lab.drafters.method import NAMES, Kind, Method
from dflash_lab.method_tasks import MethodsTask
from dflash_lab.methods import load_comparison
from dflash_lab.published import most_drafted
from dflash_lab.story_table import TREE_DEPTH, story_methods
from pages.lab import frame, keep, method_cards

PAGE = "methods"
BUDGETS = (4, 8, 16, 32, 64, 128, 256, 512)


def show() -> None:
    """Controls, and the last comparison."""
    controls()
    frame.show_refusal(PAGE)
    if job := frame.job_id(PAGE):
        results(job)
    else:
        st.info(
            "Press **Story table** for one table of this pair: a guessed config, the right one at two K, MTP, the best "
            "K and a tree. Or choose methods and press **Compare**.",
            icon=":material/lightbulb:",
        )
    frame.pick_recent(PAGE, method_cards.title)


def controls() -> None:
    """Which methods, at which K and budgets, on how many prompts."""
    spec = frame.chosen_pair()
    most = most_drafted(spec)
    kinds = [kind for kind in NAMES if kind != "plain" and (kind != "draft model" or spec.draft_model)]
    st.pills(
        "Methods",
        kinds,
        selection_mode="multi",
        default=["dflash", "ddtree", "mtp"],
        format_func=NAMES.__getitem__,
        key="methods_kinds",
        bind="query-params",
        help="The target alone is always measured too. What this pair does not have is left out, with the reason.",
    )
    left, right = st.columns(2)
    left.multiselect(
        "Drafted tokens a round (K)", list(range(1, 2 * most + 1)), [1, 3], key="methods_ks", bind="query-params"
    )
    right.multiselect("Nodes of a tree (budget)", BUDGETS, [8], key="methods_budgets", bind="query-params")
    left, middle, compare, story = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    left.number_input("Prompts of each kind", 1, 3, 1, key="methods_prompts", bind="query-params")
    middle.number_input("New tokens a run", 8, 1024, 48, key="methods_tokens", bind="query-params")
    compare.button(
        "Compare",
        type="primary",
        icon=":material/compare_arrows:",
        on_click=start,
        args=(False,),
        disabled=not chosen(most),
        width="stretch",
    )
    story.button(
        "Story table",
        icon=":material/table:",
        on_click=start,
        args=(True,),
        width="stretch",
        help="Ten methods at once.",
    )


def chosen(most: int) -> tuple[Method, ...]:
    """The methods that the controls describe."""
    state = st.session_state
    kinds: list[Kind] = state["methods_kinds"]
    trees = [Method("ddtree", budget, min(TREE_DEPTH, most)) for budget in sorted(state["methods_budgets"])]
    return tuple(
        method
        for kind in kinds
        for method in (trees if kind == "ddtree" else [Method(kind, k) for k in sorted(state["methods_ks"])])
    )


def start(story: bool) -> None:
    """Queue the comparison that the controls describe, or the story's."""
    state, spec = st.session_state, frame.chosen_pair()
    most = most_drafted(spec)
    prompts = PromptSet.of_each_kind(state["methods_prompts"]).prompts
    methods = story_methods(most) if story else chosen(most)
    task = MethodsTask(spec.name, prompts, methods, max_new_tokens=state["methods_tokens"])
    frame.submit(PAGE, task, f"{len(methods)} methods on {spec.name}")


def results(found: str) -> None:
    """The comparison: under way, finished, failed, or read back from the data folder."""
    done = frame.outcome(found, load_comparison, method_cards.show_so_far)
    if done is None:
        return
    if done.runs:
        keep.bar(done.id)
    method_cards.show(done)
