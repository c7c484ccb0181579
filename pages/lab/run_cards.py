"""The cards of a run: figures, text, heatmap with its round, positions, export."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import streamlit as st

from dflash_lab import plots
from dflash_lab.ladder import round_html
from dflash_lab.tasks import RunSoFar
from dflash_lab.tokens import hovers, legend_html, pages, text_html, visible
from dflash_lab.trace import Summary, rounds_frame

if TYPE_CHECKING:
    from dflash_lab.runs import Run

TOKENS_A_PAGE = 2000
ROUNDS_A_CHART = 120
VERDICTS = {"equal": ("green", ":material/verified:"), "near-tie": ("orange", ":material/balance:")}
BUG = ("red", ":material/error:")


def show_nothing() -> None:
    """Before the first run."""
    st.info(
        "Press **Run** to send the prompt above through the loop. You will see every token, where it came from, "
        "and what was drafted in each round.",
        icon=":material/lightbulb:",
    )


def show_so_far(so_far: RunSoFar) -> None:
    """The text of a run under way: its last page only, which is what changes."""
    origins = so_far.trace.origins
    st.html(legend_html(origins))
    st.html(text_html(pages(so_far.segments, TOKENS_A_PAGE)[-1], origins))


def read(run_id: str) -> Run:
    """A kept run. Raises LabError where there is none; reading one is what first imports torch."""
    with st.spinner("Reading the kept run"):
        from dflash_lab.runs import load_run

        return load_run(run_id)


@st.fragment
def show(run: Run) -> None:
    """A finished run. A fragment: stepping through rounds redraws these cards and nothing else."""
    summary = run.speculative.summary()
    figures(run, summary)
    verdict(run)
    text(run)
    if not summary.drafts:
        st.info("Nothing was drafted in this run, so there are no rounds to look into.", icon=":material/info:")
    else:
        rounds(run)
        positions(summary)
    export(run)


def title(run: Run) -> str:
    """A run in a list: K and the beginning of its prompt."""
    prompt = " ".join(run.prompt.split())
    return f"K = {run.speculative.k}: {prompt[:60]}{'…' if len(prompt) > 60 else ''}"


def figures(run: Run, summary: Summary) -> None:
    """Four tiles; the question mark on each gives its definition."""
    trace, plain = run.speculative, run.plain
    speed, slow = trace.tokens_per_second, plain.tokens_per_second if plain else None
    interval = summary.acceptance_length_interval
    between = f"{interval[0]:.2f} to {interval[1]:.2f}, " if interval else ""
    with st.grid(4, min_column_width=170):
        tile(
            "Acceptance length",
            number(summary.acceptance_length),
            f"{between}{summary.counted} rounds",
            "Mean of accepted + 1 a round: the bonus token counts. Over rounds that drafted the full K and ended "
            f"neither in a stop token nor at the limit; {summary.left_out} left out. Below it: the 95% interval.",
        )
        tile(
            "Decode",
            f"{number(speed, 1)} tok/s",
            f"target alone {number(slow, 1)}",
            "Tokens after the first, divided by the seconds after the first token. One request at a time.",
        )
        tile(
            "Speed-up",
            number(run.speed_up) + ("×" if run.speed_up else ""),
            "over the target alone",
            "Decode throughput divided by that of the target alone on the same prompt, measured right after.",
        )
        tile(
            "First token",
            f"{1e3 * trace.time_to_first_token_s:.0f} ms",
            f"{len(trace.prompt_ids)} prompt tokens",
            "Time to first token: the prompt through the target and, with a drafter, through its context layers.",
        )


def tile(label: str, value: str, below: str, definition: str) -> None:
    """One figure with what it rests on below it and its definition behind the question mark."""
    st.metric(label, value, below, delta_color="off", delta_arrow="off", help=definition, border=True)


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or "n/a" where there is none."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def verdict(run: Run) -> None:
    """Is the text the target's own? And what was run."""
    about = run.speculative.about
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.lossless:
            colour, icon = VERDICTS.get(run.lossless.verdict, BUG)
            st.badge(run.lossless.sentence(), color=colour, icon=icon)
        elif about.get("cancelled"):
            st.badge("Cancelled before it could be compared with the target alone.", color="gray")
        elif about.get("temperature", "0") != "0":
            st.badge("Sampled: two samples need not agree, so none are compared.", color="gray")
        else:
            st.badge("Not compared with the target alone.", color="gray")
        ended = {"eos": "ended by a stop token", "limit": "ended at the token limit", "none": "cut short"}
        facts = [about.get(key, "") for key in ("pair", "device", "dtype")] + [f"K = {run.speculative.k}"]
        facts += [f"{key.replace('_', ' ')} {about[key]}" for key in ("temperature", "q_rule", "seed") if key in about]
        st.caption(" · ".join([*facts, ended[run.speculative.end]]))
    found = run.lossless
    if found and found.verdict != "equal" and found.got is not None and found.expected is not None:
        names = run.wording.name(found.got), run.wording.name(found.expected)
        st.text(f"It has “{visible(names[0])}”, the target alone has “{visible(names[1])}”.")


def text(run: Run) -> None:
    """The output, every token marked by where it came from."""
    trace, wording = run.speculative, run.wording
    st.subheader("Text")
    st.html(legend_html(trace.origins))
    parts = pages(wording.segments, TOKENS_A_PAGE)
    part = st.pagination(len(parts), key="text_page") if len(parts) > 1 else 1
    chosen = round_tokens(run, chosen_round(run)) if trace.k and trace.rounds else range(0)
    st.html(text_html(parts[min(part, len(parts)) - 1], trace.origins, hovers(trace, wording), chosen))


def rounds(run: Run) -> None:
    """Heatmap position by round, and the chosen round in full below it."""
    trace = run.speculative
    n = chosen_round(run)
    start = n - n % ROUNDS_A_CHART
    shown = range(start, min(start + ROUNDS_A_CHART, len(trace.rounds)))
    st.subheader("Rounds")
    st.caption("Click a cell, or step with the arrow keys, to see what was drafted and what the target said.")
    figure = plots.cells_heatmap(trace, run.wording, shown)
    plots.mark_round(figure, n, trace)

    def clicked() -> None:
        if points := st.session_state["heatmap"].selection.points:
            n, position = points[0]["customdata"]
            choose(run, int(n), int(position))

    st.plotly_chart(
        figure,
        key="heatmap",
        on_select=clicked,
        selection_mode="points",
        config={"displayModeBar": False},
        alt="What became of every drafted token, by position and round",
    )
    r = trace.rounds[n]
    back, forward, words = st.columns([2, 2, 9], vertical_alignment="center")
    last = len(trace.rounds) - 1
    back.button("Previous", on_click=choose, args=(run, n - 1), disabled=n == 0, shortcut="Left", width="stretch")
    forward.button("Next", on_click=choose, args=(run, n + 1), disabled=n == last, shortcut="Right", width="stretch")
    words.markdown(
        f"**Round {n + 1} of {last + 1}**: {r.accepted} of {len(r.drafted)} accepted, {len(r.emitted)} emitted; "
        f"draft {1e3 * r.draft_s:.1f} ms, verify {1e3 * r.verify_s:.1f} ms, rest {1e3 * r.rest_s:.1f} ms"
    )
    if r.drafted:
        st.html(round_html(r, run.wording, st.session_state["round"].get("position")))
    else:
        st.caption("Nothing was drafted in this round.")


def chosen_round(run: Run) -> int:
    """The round that is looked at, 0-based; a new run starts at its first."""
    if st.session_state.get("round", {}).get("run") != run.id:
        st.session_state["round"] = {"run": run.id, "round": 0, "position": None}
    return min(st.session_state["round"]["round"], max(0, len(run.speculative.rounds) - 1))


def choose(run: Run, n: int, position: int | None = None) -> None:
    """Look at round ``n``, and turn the text to the page it is on."""
    st.session_state["round"] = {"run": run.id, "round": n, "position": position}
    st.session_state["text_page"] = round_tokens(run, n).start // TOKENS_A_PAGE + 1


def round_tokens(run: Run, n: int) -> range:
    """The output tokens that round ``n`` emitted; the first token of all belongs to no round."""
    before = 1 + sum(len(r.emitted) for r in run.speculative.rounds[:n])
    return range(before, before + len(run.speculative.rounds[n].emitted))


def positions(summary: Summary) -> None:
    """Acceptance by position, and how many tokens rounds accepted."""
    left, right = st.columns([3, 2])
    with left:
        st.subheader("By position")
        st.plotly_chart(plots.per_position(summary), alt="Acceptance rate at each drafted position with 95% intervals")
    with right:
        st.subheader("Accepted a round")
        st.plotly_chart(plots.accepted_histogram(summary), alt="Number of rounds by accepted tokens")


def export(run: Run) -> None:
    """The run as files; they are built when asked for."""
    with st.container(horizontal=True):
        st.download_button(
            "Run as JSON",
            lambda: json.dumps(run.to_json()),
            f"{run.id}.json",
            "application/json",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Rounds as CSV",
            lambda: rounds_frame(run.speculative).to_csv(index=False),
            f"{run.id}.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
