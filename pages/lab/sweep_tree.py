"""The tree of a round: a prompt drafted as trees (DDTree), and any of its rounds drawn."""

from __future__ import annotations

import streamlit as st

from dflash_lab.errors import LabError
from dflash_lab.prompts import load_prompts
from dflash_lab.published import most_drafted
from dflash_lab.runs import Run, load_run
from dflash_lab.tasks import RunSoFar, RunTask
from dflash_lab.tree_figure import tree_of_round
from pages.lab import frame, keep

PAGE = "tree"
LARGEST_BUDGET = 512


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
    snapshot = frame.worker().find(found)
    if snapshot is None:
        try:
            cards(load_run(found))
        except LabError as error:
            st.warning(str(error), icon=":material/search_off:")
        return
    if snapshot.active:
        frame.follow(snapshot, so_far)
        return
    frame.show_end(snapshot)
    if snapshot.result is not None:
        cards(snapshot.result)


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
    summary, speed_up = trace.summary(), run.speed_up
    with st.grid(3, min_column_width=170):
        length = summary.acceptance_length
        st.metric(
            "Acceptance length",
            "n/a" if length is None else f"{length:.2f}",
            f"{summary.counted} rounds",
            delta_color="off",
            delta_arrow="off",
            help="Mean of accepted + 1 a round, bonus token included.",
            border=True,
        )
        st.metric(
            "Speed-up",
            "n/a" if speed_up is None else f"{speed_up:.2f}",
            f"{len(trace.output_ids)} tokens",
            delta_color="off",
            delta_arrow="off",
            help="Decode throughput over the target alone's, one request at a time.",
            border=True,
        )
        st.metric(
            "Off the first branch",
            str(sum(r.branched for r in trace.rounds)),
            f"of {len(trace.rounds)} rounds",
            delta_color="off",
            delta_arrow="off",
            help="Rounds whose accepted path left the most probable one: there the tree beat a chain.",
            border=True,
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
