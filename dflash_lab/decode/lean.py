"""A lean decode step for the dense Llama and Qwen family: the same weights and caches, far fewer kernels.

transformers' module stays the general path, the prefill and the oracle. Here the projections that read the same
rows are one product, query heads that share a key/value head are rows of one attention, and masks and RoPE tables
are made once a run. Nothing is copied twice: the module's own weights become views of the fused ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dflash_lab.decode.cache import PreallocatedLayer, TargetCache
from dflash_lab.drafters.protocol import Tree

FAMILIES = ("llama", "qwen2", "qwen3")


class LeanDecoder:
    """The decoder of one model; ``of`` gives None for a model it does not cover."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.groups = self.heads // self.kv_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.rotary = model.model.rotary_emb
        self.embedding: torch.Tensor = model.model.embed_tokens.weight
        self.norm: torch.Tensor = model.model.norm.weight
        self.head: torch.Tensor = model.lm_head.weight
        self.layers = [_LeanLayer(layer) for layer in model.model.layers]

    @classmethod
    def of(cls, model: Any) -> LeanDecoder | None:
        """A decoder for a dense model of the family on one device, with default RoPE; else None."""
        config = model.config
        covered = (
            config.model_type in FAMILIES
            and config.hidden_act == "silu"
            and config.rope_parameters.get("rope_type", "default") in ("default", "llama3", "linear", "yarn")
            and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
            and len({parameter.device for parameter in model.parameters()}) == 1
            and all(type(layer.self_attn.q_proj) is nn.Linear for layer in model.model.layers)
        )
        return cls(model) if covered else None

    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin ``[capacity, 1, head_dim]`` for a run's positions ``[1, capacity]``."""
        cos, sin = self.rotary(self.embedding[:1], positions)
        return cos[0, :, None], sin[0, :, None]

    def step(
        self,
        ids: torch.Tensor,
        start: int,
        cache: TargetCache,
        tables: tuple[torch.Tensor, torch.Tensor],
        taps: set[int],
        tree: Tree | None = None,
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Run ``ids [n]`` at positions start..start+n-1, or where ``tree`` has them; the cache must hold 0..start-1.

        Returns logits ``[n, V]`` and the layer outputs ``[n, H]`` asked for in ``taps`` (-1: the embedding rows).
        """
        n, end, d = ids.shape[0], start + ids.shape[0], self.head_dim
        places = slice(start, end) if tree is None else start + tree.depths
        cos, sin = (table[places] for table in tables)
        mask = None
        if tree is not None:
            mask = F.pad(tree.sees, (start, 0), value=True).repeat(self.groups, 1)
        elif n > 1:
            keys = torch.arange(end, device=ids.device)
            mask = (keys <= keys[start:, None]).repeat(self.groups, 1)  # [groups * n, end]
        hidden = F.embedding(ids, self.embedding)
        captured = {-1: hidden} if -1 in taps else {}
        split = [self.heads, self.kv_heads, self.kv_heads]
        for i, (layer, kept) in enumerate(zip(self.layers, cache.layers, strict=True)):
            rows = F.linear(F.rms_norm(hidden, self.norm.shape, layer.input_norm, self.eps), layer.qkv, layer.qkv_bias)
            q, k, v = rows.view(n, -1, d).split(split, dim=1)
            if layer.q_norm is not None:
                q, k = F.rms_norm(q, (d,), layer.q_norm, self.eps), F.rms_norm(k, (d,), layer.k_norm, self.eps)
            q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
            keys_, values = _append(kept, k, v, start, end)
            stacked = q.view(n, self.kv_heads, self.groups, d).permute(1, 2, 0, 3).flatten(1, 2)[None]
            out = F.scaled_dot_product_attention(stacked, keys_, values, mask)
            out = out.view(self.kv_heads, self.groups, n, d).permute(2, 0, 1, 3).reshape(n, -1)
            hidden = hidden + F.linear(out, layer.out, layer.out_bias)
            rows = F.linear(F.rms_norm(hidden, self.norm.shape, layer.post_norm, self.eps), layer.gate_up)
            gate, up = rows.chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate).mul_(up), layer.down)
            if i in taps:
                captured[i] = hidden
        return F.linear(F.rms_norm(hidden, self.norm.shape, self.norm, self.eps), self.head), captured


class _LeanLayer:
    """One layer's weights, projections fused; the module's Linear layers keep views of them."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.qkv, self.qkv_bias = _fused(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate_up, _ = _fused(mlp.gate_proj, mlp.up_proj)
        self.out, self.out_bias = attention.o_proj.weight, attention.o_proj.bias
        self.down = mlp.down_proj.weight
        self.q_norm = attention.q_norm.weight if hasattr(attention, "q_norm") else None
        self.k_norm = attention.k_norm.weight if hasattr(attention, "k_norm") else None
        self.input_norm = layer.input_layernorm.weight
        self.post_norm = layer.post_attention_layernorm.weight


def _fused(*parts: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One weight (and bias) of several projections, which become views of its rows."""
    weight = torch.cat([part.weight.data for part in parts])
    bias = None if parts[0].bias is None else torch.cat([part.bias.data for part in parts])
    row = 0
    for part in parts:
        end = row + part.out_features
        part.weight.data = weight[row:end]
        if bias is not None:
            part.bias.data = bias[row:end]
        row = end
    return weight, bias


def _append(
    kept: PreallocatedLayer, k: torch.Tensor, v: torch.Tensor, start: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    kept.keys[0, :, start:end] = k.transpose(0, 1)
    kept.values[0, :, start:end] = v.transpose(0, 1)
    kept.length = end
    return kept.keys[:, :, :end], kept.values[:, :, :end]


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE, neox style: ``x [n, heads, head_dim]``."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin
