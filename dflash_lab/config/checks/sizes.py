"""Sizes against the weights and the target: does this drafter belong here at all?"""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject, id_set, whole
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.shapes import check_shapes


def unreadable(s: Subject) -> Iterator[Finding]:
    if s.error is not None:
        yield Finding("error", s.error.field, s.error.value, s.error.what, None, s.error.fix)


def shapes_do_not_fit(s: Subject) -> Iterator[Finding]:
    if s.config is None or not s.facts.weight_shapes:
        return
    try:
        check_shapes(s.config, s.facts.weight_shapes, whole(s.target("hidden_size")) or s.config.hidden_size)
    except ConfigError as error:
        if error.field != "target_layer_ids":  # the taps' own check says that better
            yield Finding("error", error.field, error.value, error.what, None, error.fix)


def hidden_size_of_another_target(s: Subject) -> Iterator[Finding]:
    ours, theirs = s.whole("hidden_size"), whole(s.target("hidden_size"))
    if ours is not None and theirs is not None and ours != theirs:
        yield Finding(
            "error",
            "hidden_size",
            ours,
            f"hidden_size is {ours}, the target's {theirs}",
            theirs,
            "The target's embeddings feed the drafter: the two must be equal",
            "tightwad#37",
        )


def vocabulary_of_another_target(s: Subject) -> Iterator[Finding]:
    ours, theirs = s.whole("vocab_size"), whole(s.target("vocab_size"))
    if ours is not None and theirs is not None and ours != theirs:
        yield Finding(
            "error",
            "vocab_size",
            ours,
            f"vocab_size is {ours}, the target's {theirs}",
            theirs,
            "The drafter was made for another tokenizer or family",
            "ninfer#298",
        )


def end_token_of_another_tokenizer(s: Subject) -> Iterator[Finding]:
    ours, theirs = id_set(s.stack.get("eos_token_id")), id_set(s.target("eos_token_id"))
    if ours and theirs and not ours & theirs:
        yield Finding(
            "warning",
            "eos_token_id",
            s.stack.get("eos_token_id"),
            f"The drafter's end token is {sorted(ours)}, the target's {sorted(theirs)}",
            s.target("eos_token_id"),
            "The drafter may belong to another tokenizer or family",
            "ninfer#298",
        )


def dflash2_without_its_parts(s: Subject) -> Iterator[Finding]:
    names = s.raw.get("architectures")
    second = isinstance(names, list) and "DFlash2DraftModel" in names
    parts = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    missing = [part for part in parts if s.drafting(part) is None]
    if second and missing and s.dialect != "speculators":
        yield Finding("error", missing[0], None, f"DFlash 2 needs {', '.join(missing)}", None, "z-lab has no default")
    elif not second and len(missing) < len(parts):
        given = next(part for part in parts if part not in missing)
        yield Finding(
            "error",
            "architectures",
            names,
            f"{given} belongs to DFlash 2, and architectures does not name DFlash2DraftModel",
            ["DFlash2DraftModel"],
            "The first DFlash would drop the convolutions and the selector",
        )


def drafter_is_quantised(s: Subject) -> Iterator[Finding]:
    quantization = s.raw.get("quantization_config")
    if isinstance(quantization, dict) and quantization:
        yield Finding(
            "warning",
            "quantization_config",
            quantization,
            "The drafter itself is quantised",
            None,
            "At 4 bits a drafter was seen to fall from 5.25 to 1.0",
            "sglang#39087",
        )


CHECKS = (
    unreadable,
    shapes_do_not_fit,
    hidden_size_of_another_target,
    vocabulary_of_another_target,
    end_token_of_another_tokenizer,
    dflash2_without_its_parts,
    drafter_is_quantised,
)
