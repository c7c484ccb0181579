"""What stands where a file is silent: the rule for taps, and what transformers' `Qwen3Config` fills in."""

from __future__ import annotations

from typing import Any

from dflash_lab.config.dialects import STACK, Dialect

# What transformers' Qwen3Config fills in when a file leaves the key out.
QWEN3_WINDOW = 4096
QWEN3_MAX_WINDOW_LAYERS = 28
QWEN3_HEAD_DIM = 128
SPECULATORS_BLOCK = 8


def default_taps(num_target_layers: int, n: int) -> tuple[int, ...]:
    """The `n` taps used when a file names none: spread from layer 1 to L-3, rounded; one tap is L // 2."""
    if n == 1:
        return (num_target_layers // 2,)
    return tuple(round(1 + i * (num_target_layers - 4) / (n - 1)) for i in range(n))


def completed(fields: dict[str, Any], raw: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Fields with lists as tuples and what `Qwen3Config` fills in when a file leaves it out."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    stack = raw.get(STACK, {}) if dialect == "speculators" else raw
    if dialect == "speculators":
        fields.setdefault("block_size", SPECULATORS_BLOCK)
        if raw.get("speculators_model_type") == "dflash2":
            fields.setdefault("sliding_window_non_causal", True)
    for name in ("input_embedding_scale", "output_multiplier", "architectures"):
        if name in fields and fields[name] is None:
            del fields[name]
    heads: Any = fields.get("num_attention_heads")
    layers: Any = fields.get("num_hidden_layers")
    if fields.get("num_key_value_heads") is None:
        fields["num_key_value_heads"] = heads if "num_key_value_heads" in fields else 32
    if fields.get("head_dim") is None and dialect == "speculators" and stack.get("model_type", "qwen3") != "qwen3":
        hidden: Any = fields.get("hidden_size")
        if _positive(hidden) and _positive(heads):
            fields["head_dim"] = hidden // heads
    fields.setdefault("head_dim", QWEN3_HEAD_DIM)
    if fields.get("layer_types") is None and _positive(layers) and layers <= 1024:
        slides = fields.get("use_sliding_window") is True and fields.get("sliding_window", QWEN3_WINDOW) is not None
        first = stack.get("max_window_layers", QWEN3_MAX_WINDOW_LAYERS)
        first = first if type(first) is int and slides else layers
        fields["layer_types"] = tuple("sliding_attention" if i >= first else "full_attention" for i in range(layers))
    return fields


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0
