"""Config: edit any field, see what it accepts, know what every engine reads, save it for sure."""

from __future__ import annotations

import streamlit as st

from dflash_lab import edits
from dflash_lab.config_tasks import PER_KIND, Judged, JudgeTask, PromptSet, about_bytes, recorded
from dflash_lab.published import most_drafted
from pages.lab import config_effect, config_fields, config_file, config_state, frame, keep
from pages.lab.config_state import Bench

PAGE = "judge"


def judge(bench: Bench, k: int) -> None:
    """Queue the edit; what is still queued or running for an earlier one is cancelled."""
    if (old := st.session_state.get(f"{PAGE}_job")) is not None:
        frame.worker().cancel(old)
    task = JudgeTask(bench.spec.name, bench.configs(), k, prompt_set())
    st.session_state[f"{PAGE}_asked"] = (task.configs, k, task.prompt_set)
    frame.submit(PAGE, task, f"what-if on {bench.spec.name}")


def prompt_set() -> PromptSet:
    """The prompts that were chosen in the URL or the control."""
    return PromptSet.of_each_kind(st.session_state.get("judge_prompts") or PER_KIND)


def effect(bench: Bench, k: int) -> None:
    """The measured effect: the job of this edit, or how to get one."""
    st.subheader("Effect", help="The edit's own rounds on recorded text, exactly as the loop would run them.")
    prompts = prompt_set()
    wanted = (bench.configs(), k, prompts)
    if recorded(bench.spec, prompts) is not None and st.session_state.get(f"{PAGE}_asked") != wanted:
        judge(bench, k)
    job = st.session_state.get(f"{PAGE}_job")
    snapshot = frame.worker().find(job) if job else None
    frame.show_refusal(PAGE)
    last: Judged | None = st.session_state.get(f"{PAGE}_last")
    if snapshot is None or (snapshot.status == "cancelled" and last is None):
        config = bench.config
        size = f", about {about_bytes(bench.spec, config, prompts) / 1e6:.0f} MB on disk" if config else ""
        st.info(
            f"To judge edits, the target's own text for {len(prompts.prompts)} prompts is recorded once "
            f"({prompts.max_new_tokens} tokens each{size}). After that every edit is judged within seconds.",
            icon=":material/lightbulb:",
        )
        st.button("Record and judge", type="primary", icon=":material/play_arrow:", on_click=judge, args=(bench, k))
        return
    if snapshot.active:
        frame.follow(snapshot, lambda partial: None)
    else:
        frame.show_end(snapshot)
        if snapshot.result is not None:
            last = st.session_state[f"{PAGE}_last"] = snapshot.result
            config_effect.remember(bench, snapshot.result)
            keep.bar(snapshot.id)
        if snapshot.status != "done":
            st.button("Judge again", icon=":material/refresh:", on_click=judge, args=(bench, k))
    if last is not None and last.pair == bench.spec.name:
        config_effect.effect(bench, last, current=last.answers(bench.configs(), k, prompts))
        config_effect.strip(bench)


def top(bench: Bench) -> int:
    """File, K and prompts."""
    left, right, last = st.columns([5, 2, 2], vertical_alignment="bottom")
    with left:
        config_file.open_another(bench)
    most = most_drafted(bench.spec)
    k = right.slider(
        "Drafted tokens (K)",
        1,
        max(2, min(2 * most, 32)),
        min(5, most),
        key="judge_k",
        bind="query-params",
        help=f"This drafter was trained to draft {most} at most.",
    )
    last.segmented_control(
        "Prompts of each kind",
        [1, 2, 3],
        default=PER_KIND,
        key="judge_prompts",
        bind="query-params",
        required=True,
        help="More prompts give narrower intervals; each is recorded once.",
    )
    return int(k)


def main() -> None:
    """The page."""
    bench = config_state.current(frame.chosen_pair())
    frame.heading("Config", "config")
    k = top(bench)
    if bench.file is None:
        if bench.refused:
            st.error(bench.refused, icon=":material/error:")
        st.info(
            "This drafter is not on this machine yet. Type the path of a config.json above, or run the pair once on "
            "the Run page: that fetches it.",
            icon=":material/lightbulb:",
        )
        return
    config_file.say_disk(bench)
    facts = bench.facts(k)
    config = bench.config
    layers = edits.target_layers(facts.target_config, config) if config else 1
    vocabulary = config.vocab_size if config else 1
    left, right = st.columns([5, 7], gap="medium")
    with left:
        with st.container(horizontal=True):
            config_effect.faults(bench)
            config_file.reference(bench)
        config_fields.show(bench, layers, vocabulary, k)
    with right:
        config_effect.findings(bench, bench.findings(k))
        effect(bench, k)
    config_file.save_bar(bench)
    last = st.session_state.get(f"{PAGE}_last")
    heat, read, changed, running = st.tabs(["Heatmaps", "What engines read", "Diff", "Running process"])
    with heat:
        if last is not None and last.effects:
            config_effect.heatmaps(last)
        else:
            st.caption("Acceptance by prompt and position, once an edit has been judged.")
    with changed:
        config_file.changes(bench)
    with running:
        config_file.process(bench)
    with read:
        config_file.readers(bench, layers)


main()
