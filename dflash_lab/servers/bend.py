"""The drafter's arithmetic, bent: what an engine may do differently where no config field says so.

Replay runs it like the drafter's own; the drafter itself knows nothing of this.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.nn import functional as F

from dflash_lab.config.schema import DrafterConfig, LayerAttention
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import Attend, DFlashStack, DFlashWeights
from dflash_lab.replay import Anchors, Replay, _BatchedAttention


@dataclass(frozen=True, slots=True)
class Bend:
    """Deviations from the reference's arithmetic; the default is none.

    `k_norm`: which layer's norm the context keys get. `hidden_norm` off: `fc`'s output as it is. `layer_norm`: the
    context is normed again with each layer's input norm. `block_shift` moves the block's RoPE positions,
    `context_rows` how many context rows beside those before the anchor are seen (-1: the last one is missing, +1:
    the anchor's own, which exists in a recording only). `causal` and `window_shift` replace every layer's rule.
    `mask_zero`: the mask's embedding row is zero.
    """

    k_norm: Literal["own", "first", "none"] = "own"
    hidden_norm: bool = True
    layer_norm: bool = False
    block_shift: int = 0
    context_rows: int = 0
    causal: bool | None = None
    window_shift: int = 0
    no_window: bool = False
    mask_zero: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A config and the bend it is run with."""

    config: DrafterConfig
    bend: Bend = field(default_factory=Bend)


class VariantStack(DFlashStack):
    """The drafter's arithmetic with a bend."""

    def __init__(self, weights: DFlashWeights, reading: Reading, target: Target) -> None:
        super().__init__(weights, reading.config, target)
        self.bend = reading.bend
        if self.bend.k_norm == "first":
            self.weights = copy.copy(weights)
            self.weights.context_k_norm = weights.context_k_norm[:1].expand_as(weights.context_k_norm)
        self.rules = tuple(_rule(rule, self.bend) for rule in self.rules)
        if self.bend.mask_zero:
            self.mask_row = torch.zeros_like(self.mask_row)

    def context(self, taps: Sequence[torch.Tensor], positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values `[L, g, n, d]` of context rows, as the bend makes them."""
        bend = self.bend
        if bend.hidden_norm and not bend.layer_norm and bend.k_norm != "none":
            return super().context(taps, positions)
        w, eps, layers = self.weights, self.config.rms_norm_eps, len(self.weights.layers)
        hidden = torch.cat([rows.to(self.device, w.fc.dtype) for rows in taps], dim=-1) @ w.fc.T
        if bend.hidden_norm:
            hidden = F.rms_norm(hidden, w.hidden_norm.shape, w.hidden_norm, eps)
        inputs = [F.rms_norm(hidden, la.input_norm.shape, la.input_norm, eps) for la in w.layers]
        weights = w.context_kv.chunk(layers)
        biases = [None] * layers if w.context_kv_bias is None else list(w.context_kv_bias.chunk(layers))
        each = [
            F.linear(x if bend.layer_norm else hidden, m, b) for x, m, b in zip(inputs, weights, biases, strict=True)
        ]
        kv = torch.stack(each).view(layers, -1, 2, self.kv_heads, self.head_dim).transpose(1, 3)  # [L, g, 2, n, d]
        keys = kv[:, :, 0]
        if bend.k_norm != "none":
            keys = F.rms_norm(keys, (self.head_dim,), None, eps) * w.context_k_norm
        cos, sin = self.rotary(positions)
        return self._rotate(keys, cos, sin), kv[:, :, 1] * self._value_scale

    def forward(self, rows: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Block rows to final rows; the bend moves the block's positions in RoPE, not in the masks."""
        return super().forward(rows, positions + self.bend.block_shift, attend)


class VariantReplay(Replay):
    """Replay that obeys a stack's `context_rows`."""

    def proposals(
        self, stack: DFlashStack, context: tuple[torch.Tensor, torch.Tensor], anchors: Anchors, k: int
    ) -> torch.Tensor:
        """As in Replay, but the blocks attend as if they stood `context_rows` further on; RoPE stays in place."""
        shift = stack.bend.context_rows if isinstance(stack, VariantStack) else 0
        if not shift:
            return super().proposals(stack, context, anchors, k)
        rows = stack.block_rows(self.ids[self.offset[anchors.recording] + anchors.position], k)
        place = anchors.position + shift
        attend = _BatchedAttention(stack, context, self.offset[anchors.recording], place, rows.shape[1])
        return stack.forward(rows, attend.queries - shift, attend)[:, stack.silent :]


def _rule(rule: LayerAttention, bend: Bend) -> LayerAttention:
    causal = rule.causal if bend.causal is None else bend.causal
    window = None if bend.no_window or rule.window is None else max(1, rule.window + bend.window_shift)
    return LayerAttention(causal, window, window is not None and not causal)
