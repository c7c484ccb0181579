"""The Config page's lower half: what each engine reads, the diff, saving and restoring, and a running process."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dflash_lab import edits
from dflash_lab.access import access
from dflash_lab.config import files, hub
from dflash_lab.config.dialects import DIALECTS
from dflash_lab.config.patch import compare, diff
from dflash_lab.config.process import stale_process, start_time
from dflash_lab.errors import LabError
from pages.lab.config_state import Bench


def open_another(bench: Bench) -> None:
    """Which file is edited: the drafter's own ones, one by its path, or the published one."""
    folder = edits.drafter_folder(bench.spec)
    known = sorted(path.name for path in folder.glob("config*.json")) if folder else []
    present = bench.file.path if bench.file else None
    inside = present is not None and folder is not None and present.parent == folder
    options = known if inside or present is None else [str(present), *known]
    shown = None if present is None else present.name if inside else str(present)

    def chosen() -> None:
        if (name := st.session_state[key]) and name != shown:
            bench.open(folder / name if folder is not None and name in known else Path(name))

    key = f"open_{bench.version}"
    st.selectbox(
        "File",
        options,
        options.index(shown) if shown in options else None,
        key=key,
        on_change=chosen,
        accept_new_options=True,
        placeholder="Choose a file, or type the path of a config.json or model folder",
        help="Type a path to open another config.json, or the model folder it is in.",
    )


def say_disk(bench: Bench) -> None:
    """A change behind our back, or the last save's proof."""
    if bench.said:
        st.success(bench.said, icon=":material/verified:")
    if bench.file and (reason := files.changed_on_disk(bench.file)):
        words, button = st.columns([5, 1], vertical_alignment="center")
        words.warning(f"{bench.file.path} {reason}.", icon=":material/sync_problem:")
        button.button("Load again", on_click=bench.open, args=(bench.file.path,), width="stretch")


def save_bar(bench: Bench) -> None:
    """Save, save as, restore, download, convert."""
    file = bench.file
    assert file is not None
    outside, closed = files.leads_out(file.path), access().read_only
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            "Save to an overlay" if outside else "Save",
            type="primary",
            icon=":material/save:",
            on_click=_save,
            args=(bench,),
            disabled=not bench.edited or closed,
            help="Written to a temporary file, renamed, read back and compared; the old version is kept."
            + (" The hub's cache is never written: the copy goes to the lab's data folder." if outside else ""),
        )
        with st.popover("Save as", icon=":material/save_as:", disabled=closed):
            st.text_input("Path of the new file", key="save_as", placeholder="/models/my-drafter/config.json")
            st.button("Write it", on_click=_save_as, args=(bench,), disabled=not st.session_state.get("save_as"))
        _restore(bench)
        st.download_button(
            "Download",
            json.dumps(bench.raw, indent=2, ensure_ascii=False) + "\n",
            "config.json",
            "application/json",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Patch",
            json.dumps(diff(bench.on_disk, bench.raw), indent=1),
            "config.patch.json",
            "application/json",
            on_click="ignore",
            icon=":material/difference:",
            help="The edit as an RFC 6902 patch: `config patch` applies it to another drafter's file.",
            disabled=not bench.edited,
        )
        if (config := bench.config) is not None:
            with st.popover("Convert", icon=":material/translate:"):
                st.caption(f"Written in the {config.dialect} dialect. Layer ids are shifted where a dialect counts so.")
                for dialect in DIALECTS:
                    if dialect != config.dialect:
                        st.button(
                            f"To {dialect}",
                            on_click=bench.attempt,
                            args=(lambda dialect=dialect, config=config: config.to_json(dialect),),
                            width="stretch",
                        )


def _save(bench: Bench) -> None:
    assert bench.file is not None
    try:
        file = files.overlay(bench.file) if files.leads_out(bench.file.path) else bench.file
        saved = files.save(file, bench.raw)
    except LabError as error:
        bench.refused, bench.said = f"the save. {error}", ""
        return
    _saved(bench, saved)


def _saved(bench: Bench, saved: files.Saved) -> None:
    bench.file = saved.file
    bench.put(saved.file.raw)
    kept = f" The previous version is {saved.previous.path}." if saved.previous else " Nothing had to be written."
    bench.said = f"{saved.file.path} holds sha256 {saved.file.sha256[:12]}, read back and compared.{kept}"


def _save_as(bench: Bench) -> None:
    try:
        file = files.create(st.session_state["save_as"], bench.raw)
    except LabError as error:
        bench.refused, bench.said = f"the save. {error}", ""
        return
    _saved(bench, files.Saved(file, None))
    bench.said = f"{file.path} holds sha256 {file.sha256[:12]}, read back and compared."


def _restore(bench: Bench) -> None:
    assert bench.file is not None
    kept = files.versions(bench.file.path)
    with st.popover("Restore", icon=":material/history:", disabled=not kept or access().read_only):
        for version in kept[:10]:

            def back(version: files.Version = version) -> None:
                assert bench.file is not None
                try:
                    _saved(bench, files.restore(bench.file, version))
                except LabError as error:
                    bench.refused = str(error)

            words = f"Replaced {version.when:%Y-%m-%d %H:%M:%S} UTC, sha256 {version.sha256[:12]}"
            st.button(words, key=f"restore_{version.path.name}", on_click=back, width="stretch")


def reference(bench: Bench) -> None:
    """What the edit is compared with: the pair's own file, the published one, a pasted or uploaded one."""
    name = bench.reference_name or "nothing"
    with st.popover(f"Compared with {name}", icon=":material/compare_arrows:"):
        st.caption("The reference appears beside every field, in the findings and in the effect.")

        def use(raw: dict[str, Any], name: str) -> None:
            bench.refer(raw, name)

        def published() -> None:
            try:
                use(hub.published(bench.spec.drafter, bench.spec.drafter_revision or "main").raw, "the published file")
            except LabError as error:
                bench.refused = str(error)

        def pasted() -> None:
            try:
                use(files.parse(st.session_state["pasted"], "The pasted text"), "the pasted file")
            except LabError as error:
                bench.refused = str(error)

        def uploaded() -> None:
            if (upload := st.session_state["uploaded"]) is not None:
                try:
                    use(files.parse(upload.getvalue(), upload.name), upload.name)
                except LabError as error:
                    bench.refused = str(error)

        if "/" in bench.spec.drafter:
            st.button(f"The file published as {bench.spec.drafter}", on_click=published, icon=":material/cloud:")
        st.file_uploader("Upload a config.json", type=["json"], key="uploaded", on_change=uploaded, max_upload_size=5)
        st.text_area("Or paste one", key="pasted", height=120)
        st.button("Compare with the pasted text", on_click=pasted, disabled=not st.session_state.get("pasted"))
        st.button("Compare with nothing", on_click=bench.refer, args=(None, ""), disabled=bench.reference is None)


def readers(bench: Bench, layers: int) -> None:
    """What every reader makes of the edit: a row a setting, differing cells marked, each with its reason."""
    st.caption("What each engine would read from this JSON. Marked cells differ from z-lab's reading, or are refusals.")
    with st.spinner("Asking every reader"):
        table, why, marks = _read(json.dumps(bench.raw), layers)
    colours = {"differs": "background-color: #E69F0055", "refused": "background-color: #D55E0055"}
    st.dataframe(table.style.apply(lambda _: marks.map(lambda mark: colours.get(mark, "")), axis=None))
    if not why.empty:
        st.caption("Why the marked cells stand out:")
        st.dataframe(why, hide_index=True, column_config={"why": st.column_config.TextColumn(width="large")})


@st.cache_data(max_entries=100, show_spinner=False)
def _read(raw: str, layers: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    from dflash_lab.config.readers import TargetFacts, read_all

    found = read_all(json.loads(raw), TargetFacts(layers))
    marks = {
        row: {name: "refused" if c.refused else "differs" if c.differs else "" for name, c in cells.items()}
        for row, cells in found.cells.items()
    }
    why = pd.DataFrame(found.standing_out(), columns=["setting", "reader", "why"])
    return found.frame(), why, pd.DataFrame(marks).T


def changes(bench: Bench) -> None:
    """The edit against the file, field by field and line by line."""
    if not bench.edited:
        st.caption("The edit says what the file says.")
        return
    found = compare(bench.on_disk, bench.raw)
    rows = [(d.field, edits.shown(d.here), edits.shown(d.there)) for d in found]
    st.dataframe(pd.DataFrame(rows, columns=["field", "on disk", "edited"]), hide_index=True)
    before, after = (json.dumps(raw, indent=2).splitlines() for raw in (bench.on_disk, bench.raw))
    st.code("\n".join(difflib.unified_diff(before, after, "on disk", "edited", lineterm="")), language="diff")


def process(bench: Bench) -> None:
    """Does a running engine use what is on disk?"""
    assert bench.file is not None
    if access().read_only:
        st.caption("A demonstration looks at no processes.")
        return
    st.caption("A server keeps the config it was started with. Give its process id to see whether that is this file.")
    left, right = st.columns([1, 3])
    pid = left.number_input("Process id", 1, None, None, key="pid", placeholder="from ps or nvidia-smi")
    path = right.text_input("Model path it was started with", key="pid_path", placeholder="folder or config.json")
    if pid is None:
        return
    started = start_time(int(pid))
    if started is None:
        st.warning(f"There is no process {pid} on this machine.", icon=":material/search_off:")
        return
    found = stale_process(bench.file, started, path or None)
    for finding in found:
        say = st.error if finding.severity == "error" else st.warning
        say(f"{finding.message}. {finding.why}.")
    if not found:
        st.success("It was started after the file was last written: nothing speaks against it.")
