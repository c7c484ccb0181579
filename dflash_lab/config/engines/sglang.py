"""SGLang, from its public source."""

from __future__ import annotations

from dflash_lab.config.defaults import default_taps
from dflash_lab.config.engines.zlab import Reader, TargetFacts
from dflash_lab.config.refusal import Layers, Raw, Refused, Taps, by_type, count, layer_ids, no_speculators, qwen3


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
