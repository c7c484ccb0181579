"""Diagnose: from "nothing is accepted" to the guilty field and the repaired config."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dflash_lab import edits
from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.diagnose.task import DiagnoseTask
from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES
from dflash_lab.published import most_drafted
from pages.lab import diagnose_cards, frame, keep

PAGE = "diagnose"


def candidates() -> list[str]:
    """The JSON configs in the drafter's folder, its own first."""
    folder = edits.drafter_folder(frame.chosen_pair())
    names = sorted(path.name for path in folder.glob("config*.json")) if folder else []
    return sorted(names, key=lambda name: name != files.NAME)


def chosen_file() -> files.ConfigFile | None:
    """The file to diagnose; None, and a reason on the page, where there is none to read."""
    folder = edits.drafter_folder(frame.chosen_pair())
    name, other = st.session_state.get("diagnose_file"), st.session_state.get("diagnose_path")
    path = Path(other) if other else (folder / name if folder and name else None)
    if path is None:
        st.info(
            "This drafter is not on disk yet: run a prompt first, or give the path of a config.json.",
            icon=":material/folder_open:",
        )
        return None
    try:
        access().check_file(path, SAMPLES, folder)
        return files.read(path)
    except LabError as error:
        st.error(str(error), icon=":material/error:")
        return None


def controls() -> None:
    """Which file, which K, how long; one button."""
    names = candidates()
    most = most_drafted(frame.chosen_pair())
    left, k, seconds, button = st.columns([4, 2, 2, 2], vertical_alignment="bottom")
    left.selectbox(
        "Config to diagnose",
        names,
        key="diagnose_file",
        bind="query-params",
        help="The drafter's own file, or another one beside it.",
    )
    k.number_input("Tokens drafted (K)", 1, 2 * most, min(5, most), key="diagnose_k", bind="query-params")
    seconds.number_input(
        "Seconds to search",
        10,
        int(access().longest_search_s),
        120,
        key="budget",
        bind="query-params",
        help="When they are over, the best so far is judged. Recording the target (once), blame and probes come on "
        "top.",
    )
    with st.expander("Another file, and how the pair is run", icon=":material/tune:"):
        path, engine, temperature = st.columns(3)
        path.text_input("Path of another config.json", key="diagnose_path", placeholder="/models/drafter/config.json")
        engine.text_input(
            "vLLM version, if it runs there",
            key="diagnose_engine",
            placeholder="0.26.0",
            help="Known faults of that version are looked up.",
        )
        temperature.number_input("Temperature", 0.0, 2.0, 0.0, 0.1, key="diagnose_temperature")
    file = chosen_file()
    button.button(
        "Diagnose",
        type="primary",
        icon=":material/troubleshoot:",
        on_click=start,
        args=(file,),
        disabled=file is None,
        width="stretch",
    )


def start(file: files.ConfigFile) -> None:
    """Queue the diagnosis that the controls describe."""
    state, spec = st.session_state, frame.chosen_pair()
    task = DiagnoseTask(
        spec.name,
        file.raw,
        state["diagnose_k"],
        float(state["budget"]),
        state["diagnose_temperature"],
        state["diagnose_engine"].strip() or None,
        str(file.path),
    )
    frame.submit(PAGE, task, f"diagnosis of {file.path.name} on {spec.name}")


def results(found: str) -> None:
    """The page's job: under way, finished or failed."""
    snapshot = frame.worker().find(found)
    if snapshot is None:
        st.info(
            "That diagnosis is over and was not kept. Press **Diagnose** to make it again.", icon=":material/history:"
        )
        return
    if snapshot.active:
        frame.follow(snapshot, diagnose_cards.show_so_far)
        return
    frame.show_end(snapshot)
    if snapshot.result is not None:
        keep.bar(snapshot.id)
        diagnose_cards.show(snapshot.result, frame.chosen_pair())


frame.heading("Diagnose", "diagnose")
controls()
frame.show_refusal(PAGE)
if job := frame.job_id(PAGE):
    results(job)
else:
    diagnose_cards.show_nothing()
frame.pick_recent(PAGE, diagnose_cards.title)
