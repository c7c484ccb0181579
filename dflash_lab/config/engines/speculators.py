"""The speculators library."""

from __future__ import annotations

from dflash_lab.config.dialects import AUX
from dflash_lab.config.engines.zlab import Reader, TargetFacts
from dflash_lab.config.refusal import (
    AnchoredAttention,
    Layers,
    Raw,
    Taps,
    layer_ids,
    only_speculators,
    qwen3,
    stack_of,
    whole,
)
from dflash_lab.config.schema import LayerAttention


class Speculators(Reader):
    """The speculators library, as it trains and loads its own files."""

    name = "speculators"
    version = "speculators 0.9"

    def taps(self, raw: Raw, target: TargetFacts) -> tuple[Taps, str]:
        rule = "aux_hidden_state_layer_ids are hidden_states indices, one higher than layer ids"
        only_speculators(raw)
        return tuple(i - 1 for i in layer_ids(raw.get(AUX), AUX, rule)), rule

    def mask_token_id(self, raw: Raw, target: TargetFacts) -> tuple[int, str]:
        rule = "mask_token_id at the top level"
        only_speculators(raw)
        return whole(raw.get("mask_token_id"), "mask_token_id", rule), rule

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        rule = "the window is counted from the anchor, the same for every slot, and holds for the context only"
        only_speculators(raw)
        config = qwen3(stack_of(raw))
        window = config.sliding_window
        if window is None:
            rule = "a sliding layer without a window runs as full attention, without a word"
            return (LayerAttention(False),) * len(config.layer_types), rule
        both_ways = raw.get("sliding_window_non_causal", raw.get("speculators_model_type") == "dflash2")
        sliding = AnchoredAttention(not both_ways, window, two_sided=bool(both_ways))
        types = config.layer_types
        return tuple(sliding if t == "sliding_attention" else LayerAttention(False) for t in types), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        rule = "block_size at the top level, else 8"
        only_speculators(raw)
        return whole(raw.get("block_size", 8), "block_size", rule), rule

    def rope(self, raw: Raw, target: TargetFacts) -> tuple[Raw, str]:
        only_speculators(raw)
        return dict(qwen3(stack_of(raw)).rope_parameters), "RoPE from transformer_layer_config"

    def rms_norm_eps(self, raw: Raw, target: TargetFacts) -> tuple[float, str]:
        only_speculators(raw)
        return qwen3(stack_of(raw)).rms_norm_eps, "rms_norm_eps from transformer_layer_config"

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        only_speculators(raw)
        return (1.0, None), "logits are neither scaled nor capped"
