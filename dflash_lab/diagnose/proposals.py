"""Values worth trying for a player, from general rules only: the target, the tokenizer, the weights, public configs.

Nothing here knows a drafter of the lab's own. The same rules serve any pair; what they propose is measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from dflash_lab.config.defaults import default_taps
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.schema import DrafterConfig, LayerType
from dflash_lab.pairs import Pair
from dflash_lab.paths import SAMPLES

MOST_MASKS = 48
RESERVED = 8
"""So many ids are tried at each end of the rows behind the tokenizer's vocabulary."""
DISTINCTIVE = 16
ALIKE = 0.999
"""Cosine from which two embedding rows (of like norm) are one mask token for all purposes."""

FULL: LayerType = "full_attention"
SLIDING: LayerType = "sliding_attention"
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True)
class Proposal:
    """New values for one player's fields, and the rule they come from."""

    player: str
    changes: dict[str, Any]
    rule: str

    def applied(self, config: DrafterConfig) -> DrafterConfig | None:
        """The config with these values; None where that changes nothing or cannot be written."""
        try:
            edited = config.edited(**self.changes)
        except ConfigError:
            return None
        return None if edited.raw == config.raw else edited


@cache
def published() -> tuple[DrafterConfig, ...]:
    """The public drafters' configs that come with the lab."""
    paths = sorted((SAMPLES / "drafters").glob("*/config.json"))
    return tuple(DrafterConfig.from_json(json.loads(path.read_text(encoding="utf-8"))) for path in paths)


class Proposals:
    """What can be proposed for one pair; ``reach`` is the longest context its recordings hold."""

    def __init__(self, pair: Pair, reach: int) -> None:
        self.pair, self.reach = pair, reach

    def of(self, player: str, config: DrafterConfig) -> list[Proposal]:
        """Proposals for one player under `config`, the most usual first; none for a player with nothing to choose."""
        makers = {
            "mask_token_id": self._masks,
            "target_layer_ids": self._taps,
            "layer_types": self._layers,
            "is_causal": lambda c: _values("is_causal", (None, True, False), "the other rule inside the block"),
            "rope_parameters": self._rope,
            "is_neox_style": lambda c: _values("is_neox_style", (None, False), "the other RoPE style"),
            "input_embedding_scale": self._embedding_scales,
            "attention_value_scale": lambda c: _values("attention_value_scale", (None, *_seen("attention_value_scale")),
                                                       "no scale, or a published one"),
            "hidden_act": lambda c: _values("hidden_act", ACTIVATIONS, "a usual activation"),
            "rms_norm_eps": self._epsilons,
        }  # fmt: skip
        found = list(makers[player](config)) if player in makers else []
        return [p for p in found if any(getattr(config, field) != value for field, value in p.changes.items())]

    # Mask token

    @cached_property
    def mask_ids(self) -> dict[int, str]:
        """Ids that could be a mask token -> why, the likeliest first."""
        size, known = self.pair.target.vocab_size, len(self.pair.tokenizer)
        ids: dict[int, str] = {}
        for config in published():
            if config.mask_token_id is not None and config.vocab_size == size:
                ids.setdefault(config.mask_token_id, "a published drafter's for this vocabulary")
        added = getattr(self.pair.tokenizer, "added_tokens_decoder", {})
        special = {*self.pair.tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
        for i in sorted(special):
            ids.setdefault(int(i), "a special token")
        reserved = range(known, size)
        for i in (*reserved[:RESERVED], *reserved[-RESERVED:]):
            ids.setdefault(i, "a row behind the tokenizer's vocabulary")
        for i in self._distinctive():
            ids.setdefault(i, "an embedding row unlike the others")
        return dict([(i, why) for i, why in ids.items() if 0 <= i < size][:MOST_MASKS])

    def alike(self, token: int) -> list[int]:
        """Other candidates whose embedding row is the same as `token`'s, for all purposes."""
        ids = [i for i in self.mask_ids if i != token]
        rows = self.pair.target.embedding[torch.tensor([token, *ids], device=self.pair.target.device)].float()
        norms = rows.norm(dim=1).clamp_min(1e-12)
        cosines = (rows[1:] @ rows[0]) / (norms[1:] * norms[0])
        ratio = norms[1:] / norms[0]
        same = (cosines > ALIKE) & (ratio > 0.97) & (ratio < 1.03)
        return [i for i, yes in zip(ids, same.tolist(), strict=True) if yes]

    @torch.inference_mode()
    def _distinctive(self) -> list[int]:
        """Ids of the rows whose norm is furthest from the median: tokens that text never trained."""
        norms = self.pair.target.embedding.float().norm(dim=1)
        away = (norms.clamp_min(1e-9).log() - norms.median().log()).abs()
        return away.topk(min(DISTINCTIVE, len(norms))).indices.tolist()

    def _masks(self, config: DrafterConfig) -> Iterator[Proposal]:
        done: set[int] = set()
        for token, rule in self.mask_ids.items():
            if token not in done:
                done.update(self.alike(token))
                yield Proposal("mask_token_id", {"mask_token_id": token}, rule)

    # Taps

    def tap_count(self) -> int:
        """How many taps the weights take."""
        return int(self.pair.weights.fc.shape[1]) // self.pair.target.hidden_size

    def _taps(self, config: DrafterConfig) -> Iterator[Proposal]:
        layers, n = self.pair.target.num_layers, self.tap_count()
        lists: dict[tuple[int, ...], str] = {}
        rule = default_taps(layers, n) if layers >= 4 else tuple(range(min(n, layers)))
        lists[rule] = "the default rule"
        taps = config.target_layer_ids
        if taps and len(taps) == n:
            for step in (-1, 1, -2, 2):
                lists.setdefault(tuple(t + step for t in taps), f"every tap {step:+d}")
            lists.setdefault(tuple(sorted(taps)), "in ascending order")
            lists.setdefault(taps[::-1], "in reversed order")
        for step in (-1, 1):
            lists.setdefault(tuple(t + step for t in rule), f"the default rule {step:+d}")
        for other in published():
            if other.target_layer_ids and other.num_target_layers and len(other.target_layer_ids) == n:
                scale = (layers - 1) / (other.num_target_layers - 1)
                lists.setdefault(tuple(round(t * scale) for t in other.target_layer_ids), "a published list, scaled")
                lists.setdefault(other.target_layer_ids, "a published list")
        for found, why in lists.items():
            if len(found) == n and min(found) >= 0 and max(found) < layers:
                yield Proposal("target_layer_ids", {"target_layer_ids": found}, why)

    def one_tap(self, config: DrafterConfig, place: int, layers: Iterable[int]) -> Iterator[Proposal]:
        """`config`'s taps with another layer at one place."""
        taps = list(config.taps)
        for layer in layers:
            if 0 <= layer < self.pair.target.num_layers and layer not in taps:
                moved = (*taps[:place], layer, *taps[place + 1 :])
                yield Proposal("target_layer_ids", {"target_layer_ids": moved}, "one tap moved")

    # Layers

    def windows(self) -> list[int]:
        """Powers of two that the recorded contexts can tell apart, then one longer than any of them."""
        found = [16]
        while found[-1] < self.reach:
            found.append(found[-1] * 2)
        far = sorted({c.sliding_window for c in published() if c.sliding_window and c.sliding_window > self.reach})
        return [*found[:-1], *(far[:1] or found[-1:])]

    def _layers(self, config: DrafterConfig) -> Iterator[Proposal]:
        n = config.num_hidden_layers
        patterns = {
            (FULL,) * n: "no layer slides",
            (SLIDING,) * n: "every layer slides",
            (SLIDING,) * (n - 1) + (FULL,): "all but the last layer slide",
            (FULL,) + (SLIDING,) * (n - 1): "all but the first layer slide",
            tuple(SLIDING if i % 2 == 0 else FULL for i in range(n)): "every other layer slides",
            tuple(FULL if i % 2 == 0 else SLIDING for i in range(n)): "every other layer slides",
        }
        windows = self.windows()
        own = [config.sliding_window] if config.sliding_window else []
        coarse = dict.fromkeys([*own, *windows[1::2], windows[-1]])
        for pattern, rule in patterns.items():
            yield from (self._attention(pattern, w, rule) for w in (coarse if SLIDING in pattern else (None,)))
        if SLIDING in config.layer_types:
            yield from (self._attention(config.layer_types, w, "another window") for w in windows)

    def refined_layers(self, config: DrafterConfig) -> Iterator[Proposal]:
        """Neighbours of a pattern: another window, and each single layer the other way."""
        windows = self.windows()
        if SLIDING in config.layer_types:
            yield from (self._attention(config.layer_types, w, "another window") for w in windows)
        for i, kind in enumerate(config.layer_types):
            flipped = (*config.layer_types[:i], FULL if kind == SLIDING else SLIDING, *config.layer_types[i + 1 :])
            window = (config.sliding_window or windows[len(windows) // 2]) if SLIDING in flipped else None
            yield self._attention(flipped, window, "one layer the other way")

    def _attention(self, pattern: tuple[LayerType, ...], window: int | None, rule: str) -> Proposal:
        changes: dict[str, Any] = {"layer_types": pattern}
        if SLIDING in pattern:
            changes |= {"sliding_window": window, "use_sliding_window": True}
            rule = f"{rule}, window {window}"
        return Proposal("layer_types", changes, rule)

    # RoPE and scales

    def _rope(self, config: DrafterConfig) -> Iterator[Proposal]:
        ropes: list[tuple[dict[str, Any], str]] = []
        if own := _target_rope(self.pair):
            ropes.append((own, "the target's RoPE"))
            ropes.append(({"rope_type": "default", "rope_theta": own["rope_theta"]}, "the target's theta, unscaled"))
        thetas = sorted({c.rope_theta for c in published()} | {10.0**n for n in range(4, 8)})
        ropes += [(config.rope_parameters | {"rope_theta": theta}, "a published theta") for theta in thetas]
        ropes += [({"rope_type": "default", "rope_theta": config.rope_theta}, "no scaling")]
        seen: list[dict[str, Any]] = []
        for rope, rule in ropes:
            if rope not in seen:
                seen.append(rope)
                yield Proposal("rope_parameters", {"rope_parameters": rope}, rule)

    def _embedding_scales(self, config: DrafterConfig) -> Iterator[Proposal]:
        root = math.sqrt(self.pair.target.hidden_size)
        yield from _values("input_embedding_scale", (1.0, root), "no scale, or the root of the width")

    def _epsilons(self, config: DrafterConfig) -> Iterator[Proposal]:
        own = float(f"{getattr(self.pair.target.config, 'rms_norm_eps', 1e-6):.3g}")  # files hold float32's digits
        yield from _values("rms_norm_eps", dict.fromkeys([1e-6, own]), "the usual one, or the target's")


def _values(field: str, values: Iterable[Any], rule: str) -> Iterator[Proposal]:
    for value in values:
        yield Proposal(field, {field: value}, rule)


def _seen(field: str) -> tuple[Any, ...]:
    return tuple(sorted({v for c in published() if (v := getattr(c, field)) is not None}))


def _target_rope(pair: Pair) -> dict[str, Any] | None:
    """The target's RoPE; of its full layers where it has one per layer type."""
    rope = getattr(pair.target.config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    return dict(rope) if isinstance(rope, dict) and rope.get("rope_theta") else None
