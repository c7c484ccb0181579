"""Where each dialect of config.json keeps a field: reading it there, writing it back, converting the file.

| | legacy | nested | speculators |
| --- | --- | --- | --- |
| taps | `dflash_config.target_layer_ids` | the same | `aux_hidden_state_layer_ids`, one higher |
| mask token | `dflash_config` | `dflash_config` | top level |
| block size | top level | `dflash_config` | top level |
| RoPE | `rope_theta`, `rope_scaling` | `rope_parameters` | either, with the decoder stack |
| decoder stack | top level | top level | `transformer_layer_config` |

Works on plain JSON objects and judges no value; only `write` and `drop_unknown` change what they are given.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal, get_args

from dflash_lab.config.errors import ConfigError

Dialect = Literal["legacy", "nested", "speculators"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
Json = dict[str, Any]

DRAFT = "dflash_config"
STACK = "transformer_layer_config"
AUX = "aux_hidden_state_layer_ids"

# Looked for in `dflash_config` first, then at the top level: by z-lab's package, vLLM and SGLang alike.
DRAFT_FIELDS = (
    "mask_token_id",
    "target_layer_ids",
    "block_size",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
    "is_neox_style",
    "attention_value_scale",
    "attention_sink_bias",
    "use_swa",
    "swa_window_size",
    "conv_kernel_size",
    "conv_group_size",
    "selector_rank",
    "selector_top_k",
)
# Top level in z-lab's dialects, `transformer_layer_config` in speculators'.
STACK_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "attention_bias",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
)
TOP_FIELDS = (
    "architectures",
    "num_target_layers",
    "is_causal",
    "draft_vocab_size",
    "sample_from_anchor",
    "sliding_window_non_causal",
)
ROPE_KEYS = ("rope_parameters", "rope_theta", "rope_scaling")
# Keys no field stands for, but which describe the decoder stack and so move with it when the dialect changes.
STACK_COMPANIONS = (
    "model_type",
    "max_window_layers",
    "attention_dropout",
    "initializer_range",
    "tie_word_embeddings",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
SPECULATORS_MARKS = (STACK, "speculators_model_type")


def dialect_of(raw: Json) -> Dialect:
    """The dialect a file is written in; one that mixes two counts as the one that holds its decoder stack."""
    if any(key in raw for key in SPECULATORS_MARKS):
        return "speculators"
    draft = raw.get(DRAFT)
    if isinstance(draft, dict) and "block_size" in draft:
        return "nested"
    return "nested" if raw.get("rope_parameters") and "block_size" not in raw else "legacy"


def read(raw: Json, dialect: Dialect) -> Json:
    """Every field the file gives, by its name in `DrafterConfig`; fields it does not give are left out.

    Taps come as 0-based layer outputs whatever the dialect. Raises `ConfigError` only where a container or a
    list of ids is something else.
    """
    stack, draft = _object(raw, STACK) if dialect == "speculators" else raw, _object(raw, DRAFT)
    found = {name: stack[name] for name in STACK_FIELDS if name in stack}
    found |= {name: raw[name] for name in TOP_FIELDS if name in raw}
    for name in DRAFT_FIELDS:
        places = (raw, draft) if dialect == "speculators" else (draft, raw)
        for place in places:
            if name in place:
                found[name] = place[name]
                break
    if dialect == "speculators":
        found.pop("target_layer_ids", None)
        if raw.get(AUX) is not None:
            found["target_layer_ids"] = _shifted(AUX, raw[AUX], -1)
    found["rope_parameters"] = read_rope(stack)
    return found


def read_rope(stack: Json) -> Json:
    """RoPE as transformers 5 reads it: `rope_scaling`, else `rope_parameters`; theta in there or beside."""
    written = stack.get("rope_scaling") or stack.get("rope_parameters") or {}
    if not isinstance(written, dict) or any(isinstance(value, dict) for value in written.values()):
        raise ConfigError(
            "rope_parameters",
            written,
            f"The drafter has one RoPE for all layers, and {written!r} is not one set of parameters",
            'Write them as one flat object, for instance {"rope_theta": 1000000, "rope_type": "default"}',
        )
    theta = stack.get("rope_theta")
    rope = {"rope_theta": 10000.0 if theta is None else theta} | written
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    rope.pop("type", None)
    return rope


def write(raw: Json, dialect: Dialect, name: str, value: Any) -> None:
    """Put one field where this file keeps it, or where its dialect does; None takes it out."""
    stack = raw.setdefault(STACK, {}) if dialect == "speculators" else raw
    if name == "rope_parameters":
        _write_rope(stack, dialect, value)
        return
    if name == "target_layer_ids" and dialect == "speculators":
        _put(raw, AUX, None if value is None else _shifted(name, value, 1))
        return
    if name in STACK_FIELDS:
        place = stack
    elif name in DRAFT_FIELDS:
        place = _draft_place(raw, dialect, name)
    else:
        place = raw
    _put(place, name, list(value) if isinstance(value, tuple) else value)


def drop_unknown(raw: Json, dialect: Dialect) -> None:
    """Take out every key that no field stands for."""
    for place, unknown in _unknown(raw, dialect):
        for key in unknown:
            del place[key]


def unknown(raw: Json, dialect: Dialect) -> Json:
    """The keys no field stands for, in a copy, inside the container they stand in."""
    top, *nested = _unknown(raw, dialect)
    extra = {key: raw[key] for key in top[1]}
    for place, keys in nested:
        container = STACK if place is raw.get(STACK) else DRAFT
        if keys:
            extra[container] = {key: place[key] for key in keys}
    return copy.deepcopy(extra)


def convert(raw: Json, source: Dialect, target: Dialect, fields: Json) -> Json:
    """The file in another dialect. `fields` are its values, by name, to be written (None: left out).

    Unknown keys are kept: at the top level, in `dflash_config`, or with the decoder stack they describe.
    """
    out = copy.deepcopy(raw)
    if source == target:
        return out
    if "speculators" not in (source, target):
        for place in (out, out.get(DRAFT, {})):
            place.pop("block_size", None)
        for key in ROPE_KEYS:
            out.pop(key, None)
        for name in ("block_size", "rope_parameters"):
            write(out, target, name, fields[name])
        return out
    moved = out.pop(STACK, {}) if source == "speculators" else {}
    for key in (*STACK_FIELDS, *ROPE_KEYS):
        (moved if source == "speculators" else out).pop(key, None)
    for key in (AUX, *SPECULATORS_MARKS, *DRAFT_FIELDS, *TOP_FIELDS):
        out.pop(key, None)
    draft = out.pop(DRAFT, {})
    draft = {key: value for key, value in draft.items() if key not in DRAFT_FIELDS}
    if target == "speculators":
        out["speculators_model_type"] = "dflash2" if fields.get("conv_kernel_size") else "dflash"
        out[STACK] = {key: out.pop(key) for key in STACK_COMPANIONS if key in out}
    out |= moved
    if draft or target != "speculators":
        out[DRAFT] = draft
    for name, value in fields.items():
        if value is not None:
            write(out, target, name, value)
    return out


def _object(raw: Json, key: str) -> Json:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(key, value, f"{key} is {value!r} instead of a JSON object", f"Make {key} an object, {{...}}")
    return value


def _shifted(name: str, ids: Any, by: int) -> list[int]:
    if not isinstance(ids, list | tuple) or not all(type(i) is int for i in ids):
        raise ConfigError(
            name,
            ids,
            f"{name} is {ids!r} instead of a list of layer ids",
            "Give whole numbers, for instance [1, 9, 17]",
        )
    return [i + by for i in ids]


def _draft_place(raw: Json, dialect: Dialect, name: str) -> Json:
    draft = raw.get(DRAFT)
    if dialect == "speculators":
        return draft if isinstance(draft, dict) and name in draft and name not in raw else raw
    if isinstance(draft, dict) and name in draft:
        return draft
    if name in raw or (name == "block_size" and dialect == "legacy"):
        return raw
    return raw.setdefault(DRAFT, {})


def _put(place: Json, key: str, value: Any) -> None:
    if value is None and key == "sliding_window" and key in place:
        place[key] = None  # absent would mean 4096 to transformers
    elif value is None:
        place.pop(key, None)
    else:
        place[key] = copy.deepcopy(value)


def _write_rope(stack: Json, dialect: Dialect, rope: Any) -> None:
    if rope is not None and not isinstance(rope, dict):
        raise ConfigError(
            "rope_parameters",
            rope,
            f"rope_parameters is {rope!r} instead of an object",
            "Give rope_theta and rope_type",
        )
    scaled = bool(stack.get("rope_scaling"))
    flat = dialect == "legacy" or scaled or "rope_theta" in stack
    if rope is None:
        for key in ROPE_KEYS:
            stack.pop(key, None)
    elif stack.get("rope_parameters") or not flat:
        stack["rope_parameters"] = dict(rope)
        if scaled:  # transformers prefers rope_scaling: left there, it would hide the edit
            stack["rope_scaling"] = dict(rope)
    else:
        rest = {key: value for key, value in rope.items() if key != "rope_theta"}
        if "rope_theta" in rope:
            stack["rope_theta"] = rope["rope_theta"]
        if set(rest) <= {"rope_type"} and rest.get("rope_type", "default") == "default":
            if "rope_scaling" in stack:
                stack["rope_scaling"] = None
        else:
            stack["rope_scaling"] = rest


def _unknown(raw: Json, dialect: Dialect) -> Iterable[tuple[Json, list[str]]]:
    """(container, its unknown keys), the top level first."""
    top = {*DRAFT_FIELDS, *TOP_FIELDS, DRAFT}
    if dialect == "speculators":
        top |= {AUX, STACK}
    else:
        top |= {*STACK_FIELDS, *ROPE_KEYS}
    found = [(raw, [key for key in raw if key not in top])]
    if isinstance(draft := raw.get(DRAFT), dict):
        found.append((draft, [key for key in draft if key not in DRAFT_FIELDS]))
    if dialect == "speculators" and isinstance(stack := raw.get(STACK), dict):
        found.append((stack, [key for key in stack if key not in {*STACK_FIELDS, *ROPE_KEYS}]))
    return found
