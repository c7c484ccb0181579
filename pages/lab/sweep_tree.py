"""The tree of a round: a prompt drafted as trees (DDTree), and any of its rounds drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dflash_lab.drafters.method import LARGEST_BUDGET
from dflash_lab.prompts import load_prompts
from dflash_lab.published import most_drafted
from dflash_lab.tasks import RunSoFar, RunTask
from dflash_lab.tree_figure import tree_of_round
from pages.lab import frame, keep, run_cards

if TYPE_CHECKING:
    from dflash_lab.runs import Run

PAGE = "tree"


def show() -> None:
    """Controls, and the last tree run."""
    controls()
    frame.show_refusal(PAGE)
    if job := frame.job_id(PAGE):
        results(job)
    else:
        st.info(
            "Press **Draft trees** to decode a prompt with DDTree: each round verifies the most probable prefixes of "
            "one drafter pass at once. Then pick a round to see its tree.",
            icon=":material/lightbulb:",
        )


def controls() -> None:
    """Which prompt, how many nodes, how deep."""
    prompts = {f"{p.kind}: {p.prompt}": p for p in load_prompts()}
    most = most_drafted(frame.chosen_pair())
    st.selectbox("Prompt", list(prompts), key="tree_prompt", bind="query-params")
    budget, depth, tokens, button = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    budget.number_input(
        "Nodes (budget)", 1, LARGEST_BUDGET, 16, key="tree_budget", bind="query-params", help="Drafted tokens a round."
    )
    depth.number_input(
        "Depth",
        1,
        2 * most,
        min(7, most),
        key="tree_depth",
        bind="query-params",
        help=f"Positions of the drafter behind the tree. It was trained to draft {most} at most.",
    )
    tokens.number_input("New tokens", 1, 1024, 48, key="tree_tokens", bind="query-params")
    button.button("Draft trees", type="primary", icon=":material/account_tree:", on_click=start, width="stretch")


def start() -> None:
    """Queue the run that the controls describe."""
    state, spec = st.session_state, frame.chosen_pair()
    prompt = next(p for p in load_prompts() if f"{p.kind}: {p.prompt}" == state["tree_prompt"])
    task = RunTask(
        spec.name,
        prompt.prompt,
        state["tree_budget"],
        state["tree_tokens"],
        kind=prompt.kind,
        tree_depth=state["tree_depth"],
    )
    frame.submit(PAGE, task, f"trees of {task.k} nodes on {spec.name}")


def results(found: str) -> None:
    """The run: under way, finished, failed, or read back from the data folder."""
    done = frame.outcome(found, run_cards.read, so_far)
    if done is not None and not isinstance(done, RunSoFar):
        cards(done)


def so_far(partial: RunSoFar) -> None:
    """The last round of a run under way."""
    st.caption(f"{len(partial.trace.rounds)} rounds, {len(partial.trace.output_ids)} tokens so far.")


def cards(run: Run) -> None:
    """What the trees brought, and one round's tree."""
    keep.bar(run.id)
    trace = run.speculative
    if not trace.rounds:
        st.info("The text ended before a round was drafted.", icon=":material/hourglass_empty:")
        return
    summary = trace.summary()
    with st.grid(3, min_column_width=170):
        run_cards.tile(
            "Acceptance length",
            run_cards.number(summary.acceptance_length),
            f"{summary.counted} rounds",
            "Mean of accepted + 1 a round, bonus token included.",
        )
        run_cards.tile(
            "Speed-up",
            run_cards.number(run.speed_up),
            f"{len(trace.output_ids)} tokens",
            "Decode throughput over the target alone's, one request at a time.",
        )
        run_cards.tile(
            "Off the first branch",
            str(sum(r.branched for r in trace.rounds)),
            f"of {len(trace.rounds)} rounds",
            "Rounds whose accepted path left the most probable one: there the tree beat a chain.",
        )
    if run.lossless:
        st.caption(run.lossless.sentence())
    n = pick(run)
    st.plotly_chart(
        tree_of_round(trace.rounds[n], run.wording),
        alt=f"Tree of round {n + 1}: nodes by probability, accepted path marked",
    )
    st.caption("The larger a node, the more probable its whole prefix to the drafter. Hover over one for its figures.")


def pick(run: Run) -> int:
    """The round to draw, 0-based; at first the one that accepted most."""
    rounds = run.speculative.rounds
    fullest = max(range(len(rounds)), key=lambda n: rounds[n].accepted)
    if len(rounds) == 1:
        return 0
    return st.slider("Round", 1, len(rounds), fullest + 1, key=f"tree_round_{run.id}") - 1
