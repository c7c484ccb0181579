"""The Config page's state: the open file, the edit of it, the reference, and the what-ifs tried so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

from dflash_lab import edits
from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.config.checks import Facts, Finding, check, gather
from dflash_lab.config.faults import FAULTS
from dflash_lab.config.files import ConfigFile
from dflash_lab.config.schema import ConfigError, DrafterConfig, check_shapes
from dflash_lab.errors import LabError
from dflash_lab.pairs import PairSpec
from dflash_lab.paths import SAMPLES
from dflash_lab.published import known_config

KEY = "config_bench"
STRIP = 12
"""What-ifs kept in the strip."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One what-if: the JSON, what it changed, and what it accepted at ``k``."""

    raw: dict[str, Any]
    title: str
    k: int
    acceptance_length: float | None
    interval: tuple[float, float] | None
    rounds: int


@dataclass
class Bench:
    """One visitor's work on one file. ``version`` counts changes that the fields' widgets did not make themselves."""

    spec: PairSpec
    file: ConfigFile | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    reference: dict[str, Any] | None = None
    reference_name: str = ""
    version: int = 0
    refused: str = ""
    said: str = ""
    tried: list[Tried] = field(default_factory=list)

    @property
    def config(self) -> DrafterConfig | None:
        """The edited config; None when no engine could read it."""
        try:
            return DrafterConfig.from_json(self.raw)
        except ConfigError:
            return None

    @property
    def on_disk(self) -> dict[str, Any]:
        """The file as it was opened or last saved."""
        return self.file.raw if self.file else {}

    @property
    def edited(self) -> bool:
        """Whether the edit differs from the file."""
        return json.dumps(self.raw) != json.dumps(self.on_disk)

    def put(self, raw: dict[str, Any], redraw: bool = True) -> None:
        """Take ``raw`` as the edit; ``redraw`` when it did not come from the field's own widget."""
        self.raw, self.refused, self.said = raw, "", ""
        self.version += redraw

    def attempt(self, change: Callable[[], dict[str, Any]], redraw: bool = True) -> None:
        """Take what ``change`` makes; its refusal is shown, and nothing is lost."""
        try:
            self.put(change(), redraw)
        except LabError as error:
            self.refused = str(error)
            self.version += 1  # the widgets go back to what holds

    def open(self, path: Path | str) -> None:
        """Open another file; the present one stays open when that cannot be read."""
        try:
            access().check_file(Path(path), SAMPLES, edits.drafter_folder(self.spec))
            file = files.read(path)
        except LabError as error:
            self.refused = str(error)
            return
        self.opened(file)

    def opened(self, file: ConfigFile) -> None:
        """Work on ``file`` from now on."""
        self.file = file
        self.put(file.raw)
        self.tried.clear()
        own = known_config(self.spec)
        same = own is None or json.dumps(own.raw) == json.dumps(file.raw)
        self.reference = None if same or own is None else own.raw
        self.reference_name = "" if self.reference is None else "the pair's config.json"

    def refer(self, raw: dict[str, Any], name: str) -> None:
        """Compare with ``raw`` from now on."""
        self.reference, self.reference_name = raw, name

    def remember(self, tried: Tried) -> None:
        """Add a what-if to the strip, once."""
        alike = [t for t in self.tried if t.raw == tried.raw and t.k == tried.k]
        if not alike:
            self.tried = [*self.tried, tried][-STRIP:]

    def configs(self) -> tuple[tuple[str, str], ...]:
        """What is to be judged: the edit, and whatever it is compared with that says something else."""
        named = {"edited" if self.edited else "on disk": self.raw}
        if self.edited:
            named["on disk"] = self.on_disk
        if self.reference is not None:
            named["reference"] = self.reference
        return tuple((name, json.dumps(raw)) for name, raw in named.items())

    def facts(self, k: int) -> Facts:
        """What the folders of the pair tell about the edit."""
        return _facts(json.dumps(self.raw), edits.drafter_folder(self.spec), edits.target_folder(self.spec), k)

    def findings(self, k: int) -> list[Finding]:
        """What is wrong with the edit, weights and reference included, errors first."""
        facts = self.facts(k)
        found = check(self.raw, facts)
        if self.reference is not None:
            found += edits.differences(self.raw, self.reference)
        order = ("error", "warning", "note")
        return sorted(found, key=lambda finding: order.index(finding.severity))

    def fits(self, raw: dict[str, Any], k: int) -> dict[str, Any]:
        """``raw``, when its config can be read and fits the weights. Raises ConfigError with the tensor and shapes."""
        config, facts = DrafterConfig.from_json(raw), self.facts(k)
        if facts.weight_shapes is not None:
            target = facts.target_config or {}
            width = (target.get("text_config") or target).get("hidden_size", config.hidden_size)
            check_shapes(config, facts.weight_shapes, width)
        return raw

    def fault(self, name: str) -> dict[str, Any]:
        """The edit with a preset fault. Raises LabError where it would change nothing."""
        made = FAULTS[name](DrafterConfig.from_json(self.raw))
        if made is None:
            raise LabError(f"{name} would change nothing in this config", "Try another fault")
        return made.to_json()


@st.cache_data(max_entries=200, show_spinner=False)
def _facts(raw: str, drafter: Path | None, target: Path | None, k: int) -> Facts:
    return gather(json.loads(raw), drafter, target, drafted=k)


def current(spec: PairSpec) -> Bench:
    """The visitor's bench for this pair; a new one opens the link's file (``?file=``) and edit (``?edit=``)."""
    bench = st.session_state.get(KEY)
    if bench is None or bench.spec != spec:
        fresh = bench is None
        bench = st.session_state[KEY] = Bench(spec)
        _begin(bench, st.query_params.to_dict() if fresh else {})
    _link(bench)
    return bench


def _begin(bench: Bench, link: dict[str, str]) -> None:
    folder = edits.drafter_folder(bench.spec)
    if path := link.get("file"):
        bench.open(path if "/" in path or folder is None else folder / path)
    refused = bench.refused
    if bench.file is None and folder is not None:
        bench.open(folder)
    if bench.file is not None and (edit := link.get("edit")) and not refused:
        bench.attempt(lambda: edits.from_link(edit, bench.on_disk))
    bench.refused = bench.refused or refused


def _link(bench: Bench) -> None:
    """Keep the page's address in step with the file and the edit."""
    if bench.file is None:
        return
    folder = edits.drafter_folder(bench.spec)
    path = bench.file.path
    name = path.name if folder is not None and path.parent == folder else str(path)
    wanted = {"file": "" if name == files.NAME else name, "edit": edits.to_link(bench.on_disk, bench.raw)}
    for key, value in wanted.items():
        if value and st.query_params.get(key) != value:
            st.query_params[key] = value
        elif not value and key in st.query_params:
            del st.query_params[key]
