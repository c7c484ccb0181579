"""The readers' rules, one class an engine: how it finds each setting in a raw config.json.

Every method gives (value, rule): the value in our terms (taps as 0-based layer outputs, -1 the embedding's) and
the rule in one sentence; or raises `Refused` with what the engine would say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dflash_lab.config.defaults import default_taps
from dflash_lab.config.dialects import AUX, DRAFT, STACK
from dflash_lab.config.refusal import (
    AnchoredAttention,
    Layers,
    Raw,
    Refused,
    Taps,
    by_type,
    count,
    layer_ids,
    no_speculators,
    number,
    only_speculators,
    qwen3,
    stack_of,
    whole,
)
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


class VLLM(Reader):
    """vLLM, both dialect families; a speculators file is flattened first."""

    name = "vLLM"
    version = "vLLM 0.32"
    reads_rope_style = True
    early: ClassVar[bool] = False

    def taps(self, raw: Raw, target: TargetFacts) -> tuple[Taps, str]:
        draft = self._draft(raw)
        rule = "captured inputs, sorted and without duplicates"
        aux = raw.get("eagle_aux_hidden_state_layer_ids") or (raw.get(AUX) if STACK in raw else None)
        if aux:
            taps = tuple(i - 1 for i in layer_ids(aux, AUX, rule))
        elif draft.get("target_layer_ids"):
            taps = layer_ids(draft["target_layer_ids"], "target_layer_ids", rule)
            if self.early:
                taps = tuple(i - 1 for i in taps)
                rule = "ids are taken as captured inputs: every tap one layer early, sorted"
        else:
            return self._eagle_taps(target)
        if len(set(taps)) != len(taps):
            text = f"fc width error: {len(taps)} taps become {len(set(taps))}"
            raise Refused(text, "target_layer_ids", list(taps), "duplicate taps are dropped before fc sees them")
        return tuple(sorted(taps)), rule

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        draft = self._draft(raw)
        stack = stack_of(raw)
        config = qwen3(stack)
        types = list(config.layer_types)
        causal, rule = self._causality(raw, draft)
        window = draft.get("swa_window_size") or config.sliding_window
        if draft.get("use_swa"):
            types = ["sliding_attention"] * len(types)
            causal = False if causal is None else causal
            rule = "use_swa gives every layer the window swa_window_size"
        if "sliding_attention" in types and not window:
            raise Refused(
                "ValueError: sliding layers need sliding_window",
                "sliding_window",
                stack.get("sliding_window"),
                "dflash_config.swa_window_size, else sliding_window if use_sliding_window is true",
            )
        if window is not None:
            window = whole(window, "sliding_window", rule)
        return by_type(types, window, causal), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        return None, "block_size is not read: num_speculative_tokens K is given at start, and the block is 1 + K"

    def rope(self, raw: Raw, target: TargetFacts) -> tuple[Raw, str]:
        stack = stack_of(raw)
        rule = "RoPE from rope_parameters or rope_theta, theta 1000000 when absent"
        rope = dict(qwen3(stack).rope_parameters)
        written = stack.get("rope_scaling") or stack.get("rope_parameters") or {}
        if stack.get("rope_theta") is None and "rope_theta" not in written:
            rope["rope_theta"] = 1000000.0
        return rope, rule

    def rms_norm_eps(self, raw: Raw, target: TargetFacts) -> tuple[float, str]:
        return super().rms_norm_eps(stack_of(raw), target)

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        rule = "logit_scale is read, output_multiplier and final_logit_softcapping are not"
        return (number(raw.get("logit_scale", 1.0), "logit_scale", rule), None), rule

    def _draft(self, raw: Raw) -> Raw:
        draft = raw.get(DRAFT) or {}
        if not isinstance(draft, dict):
            raise Refused(
                f"AttributeError: dflash_config is {draft!r}", DRAFT, draft, "dflash_config must be an object"
            )
        return draft

    def _causality(self, raw: Raw, draft: Raw) -> tuple[bool | None, str]:
        """True, False, or None for "by layer type"."""
        if raw.get("is_causal") is not None:
            return bool(raw["is_causal"]), "top-level is_causal decides for every layer"
        if draft.get("causal") is not None:
            return bool(draft["causal"]), "dflash_config.causal decides for every layer"
        if STACK not in raw:
            return None, "sliding layers are causal with a window, full ones see both ways"
        if raw.get("sliding_window_non_causal", True):
            return False, "sliding_window_non_causal, taken as true when absent, makes every layer see both ways"
        return True, "sliding_window_non_causal false makes every layer causal, full ones too"

    def _eagle_taps(self, target: TargetFacts) -> tuple[Taps, str]:
        layers = target.num_hidden_layers
        rule = "without ids, EAGLE-3's captured inputs 2, L // 2 and L - 3 are used"
        if layers is None:
            raise Refused("EAGLE-3's default layers of the target", "target_layer_ids", None, rule)
        return tuple(i - 1 for i in (2, layers // 2, layers - 3)), rule


class OldVLLM(VLLM):
    """vLLM as the drafters of spring 2026 met it."""

    name = "vLLM, old"
    version = "vLLM before #40727 and #40898"
    early = True

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        rule = "every layer runs as full attention: layer_types and windows are ignored"
        return (LayerAttention(False),) * len(qwen3(stack_of(raw)).layer_types), rule


class SGLang(Reader):
    """SGLang's public source; not run here."""

    name = "SGLang"
    version = "SGLang, public source of late 2026"

    def taps(self, raw: Raw, target: TargetFacts) -> tuple[Taps, str]:
        no_speculators(raw)
        rule = "target_layer_ids from dflash_config, then the top level, checked against the target"
        layers, named = target.num_hidden_layers, raw.get("num_target_layers")
        if layers is not None and named is not None and named != layers:
            text = f"ValueError: num_target_layers {named}, the target has {layers}"
            raise Refused(text, "num_target_layers", named, "num_target_layers is checked against the target")
        ids = self._value(raw, "target_layer_ids", None)
        if ids is None:
            layers = layers or count(raw, "num_target_layers", 0)
            return default_taps(layers, count(raw, "num_hidden_layers", 32)), rule
        taps = layer_ids(ids, "target_layer_ids", rule)
        limit = layers if layers is not None else named
        if type(limit) is int and not all(0 <= i < limit for i in taps):
            text = f"ValueError: layer ids {list(taps)} outside 0..{limit - 1}"
            raise Refused(text, "target_layer_ids", list(taps), rule)
        return taps, rule

    def mask_token_id(self, raw: Raw, target: TargetFacts) -> tuple[int, str]:
        no_speculators(raw)
        return super().mask_token_id(raw, target)

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        no_speculators(raw)
        rule = "sliding layers are causal with a window, full ones see both ways; is_causal is not read"
        config = qwen3(raw)
        if "sliding_attention" in config.layer_types and config.sliding_window is None:
            raise Refused(
                "ValueError: sliding layers need sliding_window",
                "sliding_window",
                raw.get("sliding_window"),
                "a window is required as soon as one layer slides",
            )
        return by_type(config.layer_types, config.sliding_window, None), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        block, rule = super().block_size(raw, target)
        return block, f"{rule}; --speculative-num-draft-tokens overrides it"

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        return (1.0, None), "logits are neither scaled nor capped"


class Transformers(Reader):
    """transformers' own DFlash generator, made for one in-tree drafter family."""

    name = "transformers"
    version = "transformers 5.24"

    def taps(self, raw: Raw, target: TargetFacts) -> tuple[Taps, str]:
        ids = self._top(raw, "target_layer_ids")
        rule = "target_layer_ids at the top level only; a last-layer tap comes after the final norm"
        return layer_ids(ids, "target_layer_ids", rule), rule

    def mask_token_id(self, raw: Raw, target: TargetFacts) -> tuple[int, str]:
        rule = "mask_token_id at the top level only"
        return whole(self._top(raw, "mask_token_id"), "mask_token_id", rule), rule

    def layers(self, raw: Raw, target: TargetFacts) -> tuple[Layers, str]:
        rule = "every layer sees both ways, sliding ones within the window on either side"
        config = qwen3(raw)
        if "sliding_attention" in config.layer_types and config.sliding_window is None:
            raise Refused(
                "TypeError in DFlashCache: a sliding layer without a window",
                "sliding_window",
                raw.get("sliding_window"),
                "Qwen3Config sets the window to None unless use_sliding_window is true",
            )
        return by_type(config.layer_types, config.sliding_window, False), rule

    def block_size(self, raw: Raw, target: TargetFacts) -> tuple[int | None, str]:
        rule = "block_size at the top level only"
        return whole(self._top(raw, "block_size"), "block_size", rule), rule

    def logits(self, raw: Raw, target: TargetFacts) -> tuple[tuple[float, float | None], str]:
        return (1.0, None), "logits are neither scaled nor capped by the drafter's config"

    def _top(self, raw: Raw, name: str) -> Any:
        if name not in raw:
            rule = f"{name} is read at the top level only"
            raise Refused(f"AttributeError: no attribute {name!r}", name, None, rule)
        return raw[name]


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


READERS: dict[str, Reader] = {
    reader.name: reader for reader in (Reader(), OldZLab(), VLLM(), OldVLLM(), SGLang(), Transformers(), Speculators())
}
