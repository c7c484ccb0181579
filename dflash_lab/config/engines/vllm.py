"""vLLM now, and vLLM as the drafters of spring 2026 met it."""

from __future__ import annotations

from typing import ClassVar

from dflash_lab.config.dialects import AUX, DRAFT, STACK
from dflash_lab.config.engines.zlab import Reader, TargetFacts
from dflash_lab.config.refusal import Layers, Raw, Refused, Taps, by_type, layer_ids, number, qwen3, stack_of, whole
from dflash_lab.config.schema import LayerAttention


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
