"""transformers' own DFlash generator."""

from __future__ import annotations

from typing import Any

from dflash_lab.config.engines.zlab import Reader, TargetFacts
from dflash_lab.config.refusal import Layers, Raw, Refused, Taps, by_type, layer_ids, qwen3, whole


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
