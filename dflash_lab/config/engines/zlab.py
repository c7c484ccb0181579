"""z-lab's package, the reference reader, and z-lab's older code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dflash_lab.config.defaults import default_taps
from dflash_lab.config.dialects import DRAFT
from dflash_lab.config.refusal import Layers, Raw, Refused, Taps, by_type, count, layer_ids, number, qwen3, whole
from dflash_lab.config.schema import LayerAttention


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a reader asks of the target."""

    num_hidden_layers: int | None = None


class Reader:
    """z-lab's package, whose rules most others share; the base of the other readers."""

    name = "z-lab"
    version = "z-lab dflash 0.1.0"
    reads_rope_style: ClassVar[bool] = False

    def taps(self, raw: Raw, target: TargetFacts) -> tuple[Taps, str]:
        layers = self._target_layers(raw)
        rule = "target_layer_ids from dflash_config, then the top level, else the default; in the order given"
        missing = object()
        ids = self._value(raw, "target_layer_ids", missing)
        if ids is missing:
            return default_taps(layers, count(raw, "num_hidden_layers", 32)), rule
        return layer_ids(ids, "target_layer_ids", rule), rule

    def mask_token_id(self, raw: Raw, target: TargetFacts) -> tuple[int, str]:
        rule = "mask_token_id from dflash_config, then the top level"
        mask = self._value(raw, "mask_token_id", None)
        if type(mask) is not int:
            raise Refused(f"TypeError: mask_token_id is {mask!r}", "mask_token_id", mask, rule)
        return mask, rule

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        rule = "sliding layers are causal with a window, full ones see both ways; top-level is_causal overrides"
        config = qwen3(raw)
        override = raw.get("is_causal")
        if "sliding_attention" in config.layer_types and config.sliding_window is None:
            raise Refused(
                "TypeError in DynamicCache: a sliding layer without a window",
                "sliding_window",
                raw.get("sliding_window"),
                "Qwen3Config sets the window to None unless use_sliding_window is true, and the cache needs one",
            )
        return by_type(config.layer_types, config.sliding_window, override), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        rule = "block_size from dflash_config, then the top level, else 16"
        return whole(self._value(raw, "block_size", 16), "block_size", rule), rule

    def rope(self, raw: Raw, target: TargetFacts) -> tuple[Raw, str]:
        rule = "RoPE as transformers 5 reads it: nested or top level, theta 10000 when absent"
        return dict(qwen3(raw).rope_parameters), rule

    def rms_norm_eps(self, raw: Raw, target: TargetFacts) -> tuple[float, str]:
        return qwen3(raw).rms_norm_eps, "rms_norm_eps at the top level, 1e-6 when absent"

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        rule = "output_multiplier and final_logit_softcapping from dflash_config, then the top level"
        multiplier = number(self._value(raw, "output_multiplier", 1.0), "output_multiplier", rule)
        cap = self._value(raw, "final_logit_softcapping", None)
        cap = None if cap is None else number(cap, "final_logit_softcapping", rule)
        return (multiplier, cap if cap and cap > 0 else None), rule

    def _value(self, raw: Raw, name: str, default: Any) -> Any:
        draft = raw.get(DRAFT, {})
        if not isinstance(draft, dict):
            raise Refused(
                f"AttributeError: dflash_config is {draft!r}", DRAFT, draft, "dflash_config must be an object"
            )
        return draft.get(name, raw.get(name, default))

    def _target_layers(self, raw: Raw) -> int:
        if "num_target_layers" not in raw:
            raise Refused(
                "AttributeError: no attribute 'num_target_layers'",
                "num_target_layers",
                None,
                "num_target_layers is read even when taps are given",
            )
        return count(raw, "num_target_layers", 0)


class OldZLab(Reader):
    """z-lab's modelling code as it came with the first checkpoints."""

    name = "z-lab, old"
    version = "z-lab's code before June 2026"

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        rule = "every layer sees both ways: sliding layers are not causal, and sdpa ignores their window"
        return (LayerAttention(False),) * len(qwen3(raw).layer_types), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        rule = "block_size at the top level only"
        if "block_size" not in raw:
            raise Refused("AttributeError: no attribute 'block_size'", "block_size", None, rule)
        return whole(raw["block_size"], "block_size", rule), rule

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        return (1.0, None), "logits are neither scaled nor capped"

    def _value(self, raw: Raw, name: str, default: Any) -> Any:
        if not isinstance(raw.get(DRAFT), dict):
            raise Refused("AttributeError: no dflash_config", DRAFT, raw.get(DRAFT), "dflash_config only")
        return raw[DRAFT].get(name, default)
