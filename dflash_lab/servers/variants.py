"""The library of implementation variants: one line of behaviour each, and the reading it makes of another.

A variant returns None where it changes nothing for this pair or cannot run on it. Two of them compose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dflash_lab.config.readers import TargetFacts, reading
from dflash_lab.config.schema import ConfigError, DrafterConfig
from dflash_lab.decode.target import EMBEDDING_TAP, Target
from dflash_lab.servers.bend import Bend, Reading

Apply = Callable[[Reading, Target], Reading | None]

OTHER_THETAS = (1e4, 1e5, 1e6, 1e7)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to differ from the reference: `behaviour` says it in words."""

    name: str
    behaviour: str
    apply: Apply


def engine_reading(config: DrafterConfig, reader: str, target: Target, cpu: bool = False) -> Reading:
    """What `reader` (a name of `config.readers`) runs; with `cpu`, as vLLM 0.32 does on one: layer 0's k_norm.

    Raises ConfigError where the engine refuses the file.
    """
    read = reading(config.raw, reader, TargetFacts(target.num_layers))
    return Reading(read, Bend(k_norm="first") if cpu and reader == "vLLM" else Bend())


def library() -> tuple[Variant, ...]:
    """Every variant, the reference apart."""
    return tuple(_variants())


def _variants() -> Iterator[Variant]:
    for step, word in ((1, "late"), (-1, "early")):
        yield Variant(f"taps {step:+d}", f"every tap is read one layer {word}", _taps(step))
    yield Variant("taps sorted", "the taps are put in ascending order", _taps_sorted)
    yield Variant("first tap is the embedding", "the first tap is the target's input embedding", _first_tap_embedding)
    yield _bent("sliding as full", "sliding layers run as full attention, both ways", no_window=True, causal=False)
    yield _bent("window ignored", "layers keep their causality and lose their window", no_window=True)
    yield _bent("bidirectional", "every layer sees both ways inside the block", causal=False)
    yield _bent("causal", "every layer is causal inside the block", causal=True)
    for step in (1, -1):
        word = "wider" if step > 0 else "narrower"
        yield _bent(f"window {step:+d}", f"windows are one position {word}", window_shift=step)
    yield _bent("context a row short", "the block does not see the last context row", context_rows=-1)
    yield _bent("anchor in context", "the context holds a row for the anchor itself", context_rows=1)
    yield _bent("layer 0's k_norm", "the context keys of all layers are normed with layer 0's k_norm", k_norm="first")
    yield _bent("no k_norm", "the context keys are not normed", k_norm="none")
    yield _bent("no hidden norm", "fc's output is used without hidden_norm", hidden_norm=False)
    yield _bent("context normed again", "each layer's input norm is applied to the context as well", layer_norm=True)
    for step in (1, -1):
        yield _bent(f"block positions {step:+d}", f"the block's RoPE positions are off by {step:+d}", block_shift=step)
    for theta in OTHER_THETAS:
        yield Variant(f"theta {theta:g}", f"RoPE runs with theta {theta:g}", _edit(rope_theta=theta))
    yield Variant("RoPE style", "RoPE pairs the other dimensions (neox against GPT-J)", _rope_style)
    yield _bent("mask row zero", "the mask token's embedding is zero", mask_zero=True)
    yield Variant("embedding scaled", "the embeddings are scaled by the root of the hidden size", _scaled)
    for reader in ("vLLM", "vLLM, old", "z-lab, old", "SGLang"):
        yield Variant(f"as {reader} reads it", f"the config is read by {reader}'s rules", _as_read_by(reader))


def _bent(name: str, behaviour: str, **switches: Any) -> Variant:
    def apply(old: Reading, target: Target) -> Reading | None:
        bend = replace(old.bend, **switches)
        return None if bend == old.bend else replace(old, bend=bend)

    return Variant(name, behaviour, apply)


def _edited(old: Reading, **changes: Any) -> Reading | None:
    try:
        config = old.config.edited(**changes)
    except ConfigError:
        return None
    return None if config == old.config else replace(old, config=config)


def _edit(**changes: Any) -> Apply:
    return lambda old, target: _edited(old, **changes)


def _taps(step: int) -> Apply:
    def apply(old: Reading, target: Target) -> Reading | None:
        taps = tuple(tap + step for tap in old.config.taps)
        if min(taps) < EMBEDDING_TAP or max(taps) >= target.num_layers:
            return None
        return _edited(old, target_layer_ids=taps)

    return apply


def _taps_sorted(old: Reading, target: Target) -> Reading | None:
    return _edited(old, target_layer_ids=tuple(sorted(old.config.taps)))


def _first_tap_embedding(old: Reading, target: Target) -> Reading | None:
    return _edited(old, target_layer_ids=(EMBEDDING_TAP, *old.config.taps[1:]))


def _rope_style(old: Reading, target: Target) -> Reading | None:
    return _edited(old, is_neox_style=old.config.is_neox_style is False)


def _scaled(old: Reading, target: Target) -> Reading | None:
    return _edited(old, input_embedding_scale=math.sqrt(target.hidden_size))


def _as_read_by(reader: str) -> Apply:
    def apply(old: Reading, target: Target) -> Reading | None:
        try:
            config = reading(old.config.raw, reader, TargetFacts(target.num_layers))
        except ConfigError:
            return None
        same = config.raw == old.config.raw
        return None if same else replace(old, config=config)

    return apply
