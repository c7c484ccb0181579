"""The Config page's left side: one widget a field, with its help and what the file and the reference say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from dflash_lab import edits
from dflash_lab.config import files
from dflash_lab.config.schema import FIELDS, ConfigError, DrafterConfig
from dflash_lab.errors import LabError
from pages.lab.config_state import Bench

SWITCH = {"absent": None, "true": True, "false": False}
HEIGHT = 900
"""Pixels of the fields' own scrolling area, so that findings and effect beside it stay in view."""


def show(bench: Bench, layers: int, vocabulary: int, k: int) -> None:
    """All fields of the edit, or only the raw JSON where no config can be read from it."""
    config = bench.config
    with st.container(height=HEIGHT, key="fields"):
        if config is None:
            st.warning("No field can be shown before the JSON below can be read as a config.", icon=":material/error:")
        else:
            disk, reference = _readable(bench.on_disk), _readable(bench.reference)
            for n, (title, names) in enumerate(edits.groups(config).items()):
                with st.expander(title, expanded=n == 0):
                    for name in names:
                        _field(bench, config, name, layers, vocabulary, k)
                        _others(name, config, disk, reference)
            with st.expander("Other keys"):
                _json_area(bench, "extra", config.extra, k)
        with st.expander("The whole file as JSON", expanded=config is None):
            _whole(bench)


def _readable(raw: dict[str, Any] | None) -> DrafterConfig | None:
    try:
        return DrafterConfig.from_json(raw) if raw else None
    except ConfigError:
        return None


def _help(name: str) -> str:
    """Meaning, kind, what a wrong value looks like, and where each engine reads the field."""
    info = FIELDS[name]
    kinds = {
        "runtime": "applies to the next round",
        "rewire": "changes the arithmetic, the weights still fit",
        "structural": "follows from the weights",
    }
    read = "\n".join(f"- {engine}: {where}" for engine, where in info.read_by.items())
    return (
        f"{info.meaning}.\n\n**{info.kind}**: {kinds[info.kind]}. Give {info.type}.\n\nWrong: {info.wrong}.\n\n{read}"
    )


def _take(bench: Bench, version: int, change: Callable[[], dict[str, Any]]) -> None:
    """Take a widget's change, unless the widget is of an earlier version.

    A browser that still shows the last version's widgets sends their values with its next request; taken for
    changes, they would undo the edit that replaced them.
    """
    if version == bench.version:
        bench.attempt(change, redraw=False)


def _field(bench: Bench, config: DrafterConfig, name: str, layers: int, vocabulary: int, k: int) -> None:
    value, version = getattr(config, name), bench.version
    key = f"{name}_{version}"
    label = {"label": name, "key": key, "help": _help(name)}

    def changed() -> None:
        new = st.session_state[key]
        if isinstance(value, float) and isinstance(new, int):
            new = float(new)
        _take(bench, version, lambda: bench.fits(edits.set_field(bench.raw, name, new), k))

    options = label | {"on_change": changed}
    match edits.WIDGETS.get(name, "whole"):
        case "id":
            st.number_input(min_value=0, max_value=max(vocabulary - 1, value or 0), value=value, step=1, **options)
        case "layers":
            ids = list(value if value is not None else ())
            known = sorted({*range(layers), *ids})
            st.multiselect(options=known, default=ids, format_func=_layer_name, placeholder="absent", **options)
        case "types":
            _types(bench, config, label, k)
        case "switch":

            def switched() -> None:
                new = SWITCH[st.session_state[key]]
                _take(bench, version, lambda: bench.fits(edits.set_field(bench.raw, name, new), k))

            at = list(SWITCH.values()).index(value)
            st.segmented_control(
                options=list(SWITCH), default=list(SWITCH)[at], required=True, **label | {"on_change": switched}
            )
        case "real":
            st.number_input(value=None if value is None else float(value), format="%g", step=None, **options)
        case "json":
            _json_area(bench, name, list(value) if isinstance(value, tuple) else value, k)
        case "text":
            st.text_input(value=value, **options)
        case _:
            st.number_input(value=value, min_value=0, step=1, **options)


def _layer_name(layer: int) -> str:
    return "embedding" if layer < 0 else str(layer)


def _types(bench: Bench, config: DrafterConfig, label: dict[str, Any], k: int) -> None:
    """Which layers slide, and below it what every layer then sees."""
    count = config.num_hidden_layers
    key, version = label["key"], bench.version

    def changed() -> None:
        slides = set(st.session_state[key])
        types = tuple("sliding_attention" if i in slides else "full_attention" for i in range(count))
        _take(bench, version, lambda: bench.fits(edits.set_field(bench.raw, "layer_types", types), k))

    slides = [i for i, kind in enumerate(config.layer_types) if kind == "sliding_attention"]
    st.pills(
        options=list(range(count)),
        default=slides,
        selection_mode="multi",
        format_func=lambda i: f"{i} slides" if i in slides else f"{i} full",
        **label | {"on_change": changed},
    )
    with st.container(horizontal=True, gap="xsmall"):
        for box in edits.layer_boxes(config):
            icon = ":material/swipe_right_alt:" if box.slides else ":material/fullscreen:"
            st.badge(f"{box.index} {box.text}", color="blue" if box.slides else "gray", icon=icon)


def _json_area(bench: Bench, name: str, value: Any, k: int) -> None:
    """A value of free form as JSON text."""
    version = bench.version
    key = f"{name}_{version}"

    def changed() -> None:
        def change() -> dict[str, Any]:
            try:
                new = json.loads(st.session_state[key])
            except ValueError as error:
                raise LabError(f"{name} is not JSON: {error}", "Correct it and leave the field again") from error
            return bench.fits(edits.set_field(bench.raw, name, new), k)

        _take(bench, version, change)

    text = json.dumps(value, indent=1, ensure_ascii=False)
    hint = _help(name) if name in FIELDS else "Keys no field stands for; they are kept as they are."
    st.text_area(name, text, key=key, on_change=changed, help=hint, height=min(300, 60 + 24 * text.count("\n") + 24))


def _others(name: str, config: DrafterConfig, disk: DrafterConfig | None, reference: DrafterConfig | None) -> None:
    """What the file and the reference say, marked where it is not what the field now holds."""
    now = getattr(config, name)
    values = {title: getattr(c, name) for title, c in (("on disk", disk), ("reference", reference)) if c is not None}
    if len(values) == 2 and values["on disk"] == values["reference"]:
        values = {"on disk and reference": values["on disk"]}
    parts = []
    for title, value in values.items():
        text = title if value == now else f":orange-background[{title}]"
        parts.append(f"{text} `{edits.shown(value).replace('_attention', '')}`")
    if parts:
        st.caption(" · ".join(parts))


def _whole(bench: Bench) -> None:
    """The file as text; taken over with a button, so that half-typed JSON is no error."""
    key = f"whole_{bench.version}_{hash(json.dumps(bench.raw))}"

    def apply() -> None:
        bench.attempt(lambda: files.parse(st.session_state[key]))

    st.text_area("config.json", json.dumps(bench.raw, indent=2, ensure_ascii=False), key=key, height=420)
    st.button("Take this text", on_click=apply, icon=":material/check:")
