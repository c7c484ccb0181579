"""The Config That Wasn't: a guided tour on the demo pair, six steps, each live."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.config.checks import check, gather
from dflash_lab.config.patch import compare
from dflash_lab.config.readers import TargetFacts, read_all
from dflash_lab.diagnose.story import PAIR, ChoiceTask, LoopTask, lost_write, practice_file, start_over
from dflash_lab.diagnose.task import DiagnoseTask
from dflash_lab.edits import drafter_folder, target_folder
from dflash_lab.errors import LabError
from dflash_lab.pairs import get_pair
from pages.lab import diagnose_cards, frame

STEPS = ("The engine?", "The class?", "The file", "The lost write", "The three fields", "The choice of K")


def main() -> None:
    """One step at a time; the step is in the address."""
    frame.heading("The config that wasn't", "story")
    st.caption(
        "A drafter was served with a guessed config.json. Nothing failed, and 1% of the drafts were accepted. This is "
        "how it was found, on the demo pair, with everything live."
    )
    names = [f"{n}. {name}" for n, name in enumerate(STEPS, 1)]
    st.segmented_control(
        "Step", names, default=names[0], key="step", bind="query-params", required=True, label_visibility="collapsed"
    )
    n = names.index(st.session_state["step"] or names[0])
    (engine, loaded, raw_file, write, fields, choice)[n]()
    st.divider()
    left, _, right = st.columns([1, 3, 1])
    left.button("Back", disabled=n == 0, on_click=go, args=(names[n - 1],), width="stretch")
    right.button(
        "Next step",
        disabled=n == len(names) - 1,
        on_click=go,
        args=(names[(n + 1) % len(names)],),
        type="primary",
        width="stretch",
    )


def go(name: str) -> None:
    """Turn to a step."""
    st.session_state["step"] = name


def live(page: str, button: str, task: object, title: str) -> object | None:
    """A button, its job, and the result when there is one."""
    st.button(
        button,
        key=f"go_{page}",
        icon=":material/play_arrow:",
        type="primary",
        on_click=frame.submit,
        args=(page, task, title),
    )
    frame.show_refusal(page)
    found = frame.job_id(page)
    snapshot = frame.worker().find(found) if found else None
    if snapshot is None:
        return None
    if snapshot.active:
        frame.follow(snapshot, diagnose_cards.show_so_far)
        return None
    frame.show_end(snapshot)
    return snapshot.result


def engine() -> None:
    """Step 1: the same config in another engine, the lab's own loop."""
    st.subheader("Is it the engine?")
    st.markdown(
        "The first suspect is always the engine. So take it away: the same file, in the lab's own loop, which is held "
        "round by round against the drafter authors' package."
    )
    run = live("story_loop", "Run the guessed config here", LoopTask(practice_file().raw), "the story: a run")
    if run is not None:
        summary = run.speculative.summary()
        speed, plain = run.speculative.tokens_per_second, run.plain.tokens_per_second if run.plain else None
        with st.grid(3, min_column_width=170):
            st.metric(
                "Acceptance length",
                f"{summary.acceptance_length:.2f}",
                border=True,
                help=f"Mean of accepted + 1, bonus included, {summary.counted} rounds.",
            )
            st.metric("Accepted at position 0", f"{summary.per_position[0].value:.0%}", border=True)
            st.metric("tok/s", f"{speed:.1f}", f"target alone {plain:.1f}" if plain else None, "off", border=True)
        st.success(
            "As bad here as there, and the text is still the target's own. Not the engine: something both share.",
            icon=":material/rule:",
        )


def loaded() -> None:
    """Step 2: what was loaded, and what each engine made of the file."""
    st.subheader("Was the right class loaded?")
    raw = practice_file().raw
    folder = drafter_folder(get_pair(PAIR))
    facts = gather(raw, folder)
    errors = [f for f in check(raw, facts) if f.check in ("shapes_do_not_fit", "tap_count_against_fc", "unreadable")]
    names, tensors = ", ".join(raw.get("architectures", [])), len(facts.weight_shapes or {})
    seen = errors[0].message if errors else "no error"
    st.markdown(
        f"The file says **{names}**, and {tensors} tensors fit its shapes: **{seen}**. That proves little. Taps, mask "
        "token and layer types change no shape, so every engine loads them in silence."
    )
    table = read_all(raw, TargetFacts(30))
    rows = {row: {name: cell.text for name, cell in cells.items()} for row, cells in table.cells.items()}
    st.dataframe(pd.DataFrame.from_dict(rows, orient="index"))
    st.caption("What each engine reads in this file. They agree, and are all wrong.")


def raw_file() -> None:
    """Step 3: the file itself and what a careful reader sees in it."""
    st.subheader("Read the file, not the settings page")
    file = practice_file()
    left, right = st.columns(2)
    with left:
        st.code(json.dumps(file.raw, indent=2), language="json", height=420)
        st.caption(f"sha256 {file.sha256[:12]}")
    with right:
        for f in check(file.raw, gather(file.raw, drafter_folder(get_pair(PAIR)), target_folder(get_pair(PAIR)))):
            color = {"error": "red", "warning": "orange"}.get(f.severity, "gray")
            st.markdown(f":{color}-badge[{f.severity}] **{f.field}**: {frame.plain(f.message)}")
        st.caption("From the file, the tokenizer and the weights' header alone: a suspicion, not yet a proof.")


def write() -> None:
    """Step 4: a correction that never landed, and one that did."""
    st.subheader("The write that never landed")
    st.markdown(
        "The file had been corrected before. The write raised nothing, and nobody read it back: it went beside the "
        "file. Try both ways on a copy."
    )
    file = practice_file()
    fixed = {**file.raw, "note": "corrected"}
    if closed := access().read_only:
        st.caption("A demonstration writes nothing; this step works in a lab of your own.")
    with st.container(horizontal=True):
        if st.button("Write it the old way", icon=":material/edit:", disabled=closed):
            path = lost_write(file, fixed)
            st.session_state["story_said"] = f"No error. Wrote {path.name}. Now read {file.path.name} back."
        if st.button("Read it back", icon=":material/search:"):
            now = files.read(file.path)
            same = [d.field for d in compare(now.raw, fixed)]
            st.session_state["story_said"] = f"{now.path.name} holds sha256 {now.sha256[:12]}; " + (
                f"it still differs from the correction in: {', '.join(same)}" if same else "the correction is there"
            )
        if st.button("Save, verified", icon=":material/save:", type="primary", disabled=closed):
            try:
                saved = files.save(file, fixed)
                kept = saved.previous.path.name if saved.previous else "none"
                st.session_state["story_said"] = (
                    f"{saved.file.path.name} holds sha256 {saved.file.sha256[:12]}, read back and compared; "
                    f"the old version is kept as {kept}"
                )
            except LabError as error:
                st.session_state["story_said"] = str(error)
        if st.button("Start over", icon=":material/restart_alt:", disabled=closed):
            start_over()
            st.session_state["story_said"] = "The copy is as it was at the beginning"
    if said := st.session_state.get("story_said"):
        st.info(frame.plain(said), icon=":material/description:")


def fields() -> None:
    """Step 5: the diagnosis, with no good config given."""
    st.subheader("Which fields, and what does each cost?")
    st.markdown("One click, and no good config to compare with: values from general rules, measured on recorded text.")
    file = practice_file()
    found = live(
        "story_fields",
        "Diagnose the guessed config",
        DiagnoseTask(PAIR, file.raw, budget_s=180.0, path=str(file.path)),
        "the story: a diagnosis",
    )
    if found is not None:
        st.session_state["story_repaired"] = found.repaired
        diagnose_cards.verdict(found)
        if found.repair.changes:
            diagnose_cards.fields(found)
        diagnose_cards.curves(found)


def choice() -> None:
    """Step 6: how many tokens to draft, now that the config is right."""
    st.subheader("And how many tokens to draft?")
    own = files.read(drafter_folder(get_pair(PAIR)))
    raw = st.session_state.get("story_repaired") or own.raw
    which = "the repaired config" if "story_repaired" in st.session_state else "the pair's own config"
    st.markdown(f"With {which}. A larger K is accepted longer and costs more to draft and to verify.")
    swept = live("story_k", "Replay every K", ChoiceTask(raw), "the story: the choice of K")
    if swept:
        rows = [
            {
                "K": k,
                "acceptance length": s.acceptance_length,
                "accepted of drafted": s.draft_acceptance_rate,
                "last position accepted": s.per_position[-1].value,
                "rounds": s.counted,
            }
            for k, s in swept.items()
        ]
        percent = st.column_config.NumberColumn(format="percent")
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            column_config={
                "acceptance length": st.column_config.NumberColumn(format="%.2f"),
                "accepted of drafted": percent,
                "last position accepted": percent,
            },
        )
        st.success(
            "Acceptance length flattens, while the share accepted of drafted falls by arithmetic alone: never rank K "
            "by it. Which K is fastest depends on what a round costs here: the Sweep page measures that.",
            icon=":material/stacked_line_chart:",
        )
    st.page_link("pages/lab/sweep.py", label="Measure tok/s on the Sweep page", icon=":material/stacked_line_chart:")


main()
