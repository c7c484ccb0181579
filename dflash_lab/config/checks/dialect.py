"""Dialects mixed in one file, and fields that stand where their engine does not look."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject
from dflash_lab.config.dialects import AUX, DRAFT, DRAFT_FIELDS


def dflash_config_missing(s: Subject) -> Iterator[Finding]:
    if s.dialect == "speculators" or isinstance(s.raw.get(DRAFT), dict):
        return
    yield Finding(
        "error",
        DRAFT,
        s.raw.get(DRAFT),
        "The config has no dflash_config",
        {name: s.raw[name] for name in ("mask_token_id", "target_layer_ids") if name in s.raw} or None,
        "Mask token and taps are read there; without it vLLM takes EAGLE-3's layers",
        "vllm#50170",
    )


def field_given_twice(s: Subject) -> Iterator[Finding]:
    for name in DRAFT_FIELDS:
        if name in s.draft and name in s.raw:
            inner, outer = s.draft[name], s.raw[name]
            yield Finding(
                "warning" if inner == outer else "error",
                name,
                outer,
                f"{name} is {outer!r} at the top level and {inner!r} in dflash_config",
                inner,
                "Engines do not agree which one counts: keep one",
            )


def speculators_fields_in_a_zlab_file(s: Subject) -> Iterator[Finding]:
    if s.dialect == "speculators" or AUX not in s.raw:
        return
    yield Finding(
        "error",
        AUX,
        s.raw[AUX],
        f"{AUX} stands in a file of z-lab's dialect, which does not read it",
        None,
        "Convert the file as a whole: ids there are one higher, and other fields move too",
    )


def zlab_fields_in_a_speculators_file(s: Subject) -> Iterator[Finding]:
    if s.dialect == "speculators" and (DRAFT in s.raw or "target_layer_ids" in s.raw):
        name = DRAFT if DRAFT in s.raw else "target_layer_ids"
        yield Finding(
            "error",
            name,
            s.raw[name],
            f"{name} stands in a speculators file, which does not read it",
            None,
            f"Convert the file as a whole: taps belong in {AUX}, one higher",
        )


def stack_fields_beside_the_stack(s: Subject) -> Iterator[Finding]:
    names = [name for name in ("hidden_size", "layer_types", "num_hidden_layers", "rope_theta") if name in s.raw]
    if s.dialect == "speculators" and names:
        yield Finding(
            "error",
            names[0],
            s.raw[names[0]],
            f"{', '.join(names)} at the top level of a speculators file, which reads transformer_layer_config",
            None,
            "Two dialects are mixed in one file",
        )


def nested_file_for_old_readers(s: Subject) -> Iterator[Finding]:
    if s.dialect == "nested" and "block_size" in s.draft and "block_size" not in s.raw:
        yield Finding(
            "note",
            "block_size",
            s.draft["block_size"],
            "block_size stands in dflash_config only: z-lab's code before June 2026 does not find it",
            None,
            "Convert to the legacy dialect for old code",
        )


CHECKS = (
    dflash_config_missing,
    field_given_twice,
    speculators_fields_in_a_zlab_file,
    zlab_fields_in_a_speculators_file,
    stack_fields_beside_the_stack,
    nested_file_for_old_readers,
)
