"""An Experiment and its Series, and both as JSON: the same text in the database and in the file that travels.

Knows no database, no Streamlit and no tensors.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

from dflash_lab.errors import LabError
from dflash_lab.nesting import DEEPEST, too_deep
from dflash_lab.tokens import Segment, Wording
from dflash_lab.trace import Summary, Trace, summarise

SCHEMA_VERSION = 1
LARGEST = 64 * 2**20
"""Bytes of JSON that are unpacked at most; a run of 4,096 tokens with its alternatives takes about 10 MB."""

Kind = Literal["run", "sweep", "what-if", "diagnosis", "server", "methods"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of one method at one K under one config, one Trace a prompt; ``prompts`` labels them in the same order.

    A server's counters give no traces: then ``counts`` has the rates. ``config`` is None where it is the experiment's.
    """

    name: str
    k: int
    prompts: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()
    counts: Summary | None = None
    config: dict[str, Any] | None = None

    @property
    def summary(self) -> Summary:
        """The rates, pooled over the rounds of all prompts."""
        return self.counts or summarise(self.traces)

    @property
    def tokens_per_second(self) -> float | None:
        """All tokens after the first of each prompt over all seconds after it; None without times."""
        seconds = sum(t.decode_s for t in self.traces)
        tokens = sum(len(r.emitted) for t in self.traces for r in t.rounds)
        return tokens / seconds if tokens and seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Experiment:
    """One cell of the notebook.

    The words are the user's: ``title``, ``hypothesis``, ``verdict``, ``note`` (Markdown) and ``tags``. ``pair`` is the
    pair's spec with its revisions and hashes; ``patch`` the RFC 6902 difference of ``config`` to the pair's own;
    ``settings`` what the task was asked; ``provenance`` package versions, device and commit. ``headline`` is the
    result in one sentence, ``extra`` what only this kind of experiment has, ``main`` the series that figures are of,
    ``parent`` the experiment it repeats. ``kept`` is False while it is only among the recent ones.
    """

    id: str
    created: str
    kind: Kind
    title: str
    headline: str = ""
    hypothesis: str = ""
    verdict: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    kept: bool = False
    parent: str | None = None
    pair: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    patch: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    main: int = 0
    wording: Wording = field(default_factory=Wording)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> Series | None:
        """The series that the experiment's figures are of; None where there is none."""
        return self.series[self.main] if self.series else None

    @property
    def wanted_config(self) -> dict[str, Any] | None:
        """The config of ``figures``: the series' own, or the experiment's."""
        return (self.figures.config if self.figures else None) or self.config

    def named(self, name: str) -> Series:
        """The series of that name. Raises LabError with the names there are."""
        for one in self.series:
            if one.name == name:
                return one
        raise LabError(f"{self.id} has no series {name!r}", f"It has: {', '.join(s.name for s in self.series)}")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data with its schema version; ``from_json`` reads it back unchanged."""
        bare = asdict(replace(self, series=()))
        series = [{**asdict(replace(s, traces=())), "traces": [t.to_json() for t in s.traces]} for s in self.series]
        return {"schema_version": SCHEMA_VERSION, **bare, "series": series}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what ``to_json`` wrote, from anywhere. Raises LabError for anything else."""
        if not isinstance(data, dict) or "schema_version" not in data:
            raise LabError("This is no experiment of DFlash Lab", "Give a file that the notebook exported")
        if data["schema_version"] != SCHEMA_VERSION:
            raise LabError(
                f"The experiment has schema_version {data['schema_version']!r}, this lab reads {SCHEMA_VERSION}",
                "Use the DFlash Lab that wrote it, or a newer one",
            )
        known = {f.name for f in fields(cls)}
        body = {key: value for key, value in data.items() if key in known}
        try:
            _check(body)
            body["series"] = tuple(_series(s) for s in body["series"])
            body["tags"] = tuple(body["tags"])
            body["wording"] = _wording(body["wording"])
            return cls(**body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LabError(
                f"The experiment is damaged: {type(error).__name__}: {error}", "Export it again where it came from"
            ) from error


TEXTS = ("id", "created", "title", "headline", "hypothesis", "verdict", "note")
OBJECTS = ("pair", "settings", "provenance", "extra")


def _check(body: Mapping[str, Any]) -> None:
    """Refuse what a hand-made file could put where text, a number or a kind belongs."""
    for name in TEXTS:
        if not isinstance(body[name], str):
            raise ValueError(f"{name} is not text")
    for name in OBJECTS:
        if not isinstance(body[name], dict):
            raise ValueError(f"{name} is not an object")
    if body["kind"] not in KINDS:
        raise ValueError(f"kind is {body['kind']!r}")
    if not all(isinstance(tag, str) for tag in body["tags"]):
        raise ValueError("a tag is not text")
    if type(body["main"]) is not int or not 0 <= body["main"] < max(1, len(body["series"])):
        raise ValueError(f"main is {body['main']!r}")


def _series(data: dict[str, Any]) -> Series:
    counts = data["counts"]
    if counts is not None:
        body: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in counts.items()}
        counts = Summary(**body)
    traces = tuple(Trace.from_json(t) for t in data["traces"])
    return Series(str(data["name"]), int(data["k"]), tuple(data["prompts"]), traces, counts, data["config"])


def _wording(data: dict[str, Any]) -> Wording:
    names = {int(token): str(name) for token, name in data["names"].items()}  # JSON keys are text
    return Wording(tuple(Segment(**s) for s in data["segments"]), names)


def pack(experiment: Experiment) -> bytes:
    """The experiment as compressed JSON: a few percent of the text's size."""
    return zlib.compress(json.dumps(experiment.to_json()).encode())


def unpack(data: bytes) -> Experiment:
    """Read what ``pack`` wrote, or a file that says it is that: small when packed, bounded when unpacked, not deep.

    Raises LabError for anything else.
    """
    return Experiment.from_json(_json(_inflated(data)))


def _inflated(data: bytes) -> bytes:
    opener = zlib.decompressobj()
    try:
        text = opener.decompress(data, LARGEST)
    except zlib.error as error:
        raise LabError("This is no experiment of DFlash Lab", "Give a file that the notebook exported") from error
    if opener.unconsumed_tail:
        raise LabError(f"The file unpacks to more than {LARGEST >> 20} MB", "Give a file that the notebook exported")
    if not opener.eof:
        raise LabError("The file is cut short", "Copy it again")
    return text


def _json(text: bytes) -> Any:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabError(f"The experiment is not JSON: {error}", "Export it again where it came from") from error
    if too_deep(data):
        raise LabError(f"The experiment nests deeper than {DEEPEST} levels", "Export it again where it came from")
    return data
