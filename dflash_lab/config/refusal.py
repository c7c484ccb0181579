"""Reading a raw value as strictly as an engine does: the value, or the refusal the engine would give."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dflash_lab.config.dialects import STACK
from dflash_lab.config.schema import LayerAttention

Raw = dict[str, Any]
Taps = tuple[int, ...]
Layers = tuple[LayerAttention, ...]


class Refused(Exception):
    """The engine would stop: its message, the field and value it stops at, and the rule behind it."""

    def __init__(self, message: str, field: str, value: Any, rule: str) -> None:
        self.field, self.value, self.rule = field, value, rule
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class AnchoredAttention(LayerAttention):
    """A window counted from the anchor: the same for every slot, none inside the block."""


def qwen3(stack: Raw) -> Any:
    """transformers' own `Qwen3Config` made from this JSON, or what it says against it."""
    if STACK in stack:
        rule = "the decoder stack of a speculators file is not where this reader looks"
        raise Refused("AttributeError: no attribute 'num_target_layers'", STACK, None, rule)
    count(stack, "num_hidden_layers", 32)  # transformers would build a list that long before it looks at anything
    from transformers import Qwen3Config

    try:
        with _quiet():
            config = Qwen3Config.from_dict(copy.deepcopy(stack))
        config.rope_parameters = dict(config.rope_parameters)
    except Exception as error:  # whatever transformers raises is the answer
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = lines[-1] if lines else type(error).__name__
        raise Refused(message, "config", None, "Qwen3Config refuses these values") from error
    return config


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def by_type(types: Sequence[str], window: int | None, causal: bool | None) -> Layers:
    """z-lab's rule: sliding layers causal with a window, full ones both ways, `causal` overriding."""
    layers = []
    for kind in types:
        slides = kind == "sliding_attention"
        one_way = slides if causal is None else bool(causal)
        layers.append(LayerAttention(one_way, window if slides else None, slides and not one_way))
    return tuple(layers)


def layer_ids(value: Any, field: str, rule: str) -> Taps:
    """A list of whole numbers, not empty."""
    if not isinstance(value, list | tuple) or not value or not all(type(i) is int for i in value):
        raise Refused(f"TypeError: {field} is {value!r}", field, value, rule)
    return tuple(value)


def whole(value: Any, field: str, rule: str) -> int:
    """A whole number."""
    if type(value) is not int:
        raise Refused(f"TypeError: {field} is {value!r}", field, value, rule)
    return value


def number(value: Any, field: str, rule: str) -> float:
    """A number, as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"TypeError: {field} is {value!r}", field, value, rule)
    return float(value)


def count(raw: Raw, field: str, default: int) -> int:
    """A number of layers, above 0."""
    value = raw.get(field, default)
    if type(value) is not int or not 0 < value <= 4096:
        raise Refused(f"TypeError: {field} is {value!r}", field, value, f"{field} counts layers")
    return value


def stack_of(raw: Raw) -> Raw:
    """The decoder stack's object: the file itself, or speculators' `transformer_layer_config`."""
    stack = raw.get(STACK, raw)
    if not isinstance(stack, dict):
        raise Refused(f"TypeError: {STACK} is {stack!r}", STACK, stack, f"{STACK} must be an object")
    return stack


def no_speculators(raw: Raw) -> None:
    """Refuse speculators' dialect."""
    if STACK in raw:
        raise Refused("not readable: a speculators file", STACK, None, "speculators' dialect is not read")


def only_speculators(raw: Raw) -> None:
    """Refuse z-lab's dialects."""
    if STACK not in raw or "speculators_model_type" not in raw:
        rule = "only files with speculators_model_type are read; others are converted first"
        raise Refused("not a speculators file", "speculators_model_type", raw.get("speculators_model_type"), rule)
