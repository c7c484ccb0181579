"""The DFlash drafter (arXiv 2602.06036) as functions of (weights, config): editing the config reloads nothing.

Shapes: H hidden size, L drafter layers, h query heads, g key/value heads, d head size, n context rows, S = 1 + K
block rows, N rows in all. One block is [anchor, mask x K] at positions P..P+K; its keys see the context 0..P-1,
made from the target's taps, and the block itself under each layer's rule (``DrafterConfig.attention``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from dflash_lab.config.schema import ConfigError, DrafterConfig, LayerAttention, check_shapes
from dflash_lab.decode.sampling import Sampler
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash2 import CandidateSelector, Convolution, Sublayer, check_parts
from dflash_lab.drafters.mask_embedding import MaskEmbedding
from dflash_lab.drafters.protocol import Draft
from dflash_lab.drafters.vocabulary import DraftVocabulary
from dflash_lab.errors import LabError

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, q [N, h, d], k [N, g, d], v [N, g, d]) -> attention output [N, h * d]; q and k are already rotated."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One drafter layer with its projections fused: qkv ``[(h + 2g) d, H]``, gate and up ``[2 I, H]``."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    input_norm: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    attention_conv: Convolution | None
    mlp_conv: Convolution | None


class DFlashWeights:
    """A checkpoint's tensors, fused once per pair; never changed, shared by every config that fits them.

    ``context_kv [L * 2 * g * d, H]`` holds the k and v projections of all layers, so that new context rows cost one
    matrix product; ``context_k_norm [L, 1, 1, d]`` the norms of their keys. Raises LabError for a missing tensor.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        tensors = _Checkpoint(tensors)
        self.shapes = {name: tuple(t.shape) for name, t in tensors.items()}
        self.fc = tensors["fc.weight"]
        self.hidden_norm = tensors["hidden_norm.weight"]
        self.norm = tensors["norm.weight"]
        self.selector = CandidateSelector.read(tensors)
        self.vocabulary = DraftVocabulary.read(tensors)
        self.mask = MaskEmbedding.read(tensors)
        count = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
        self.layers = [_layer(tensors, i) for i in range(count)]
        pairs = [(_get(tensors, i, "k_proj"), _get(tensors, i, "v_proj")) for i in range(count)]
        self.context_kv = torch.cat([t for pair in pairs for t in pair])
        biases = [tensors.get(f"layers.{i}.self_attn.{n}.bias") for i in range(count) for n in ("k_proj", "v_proj")]
        self.context_kv_bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        self.context_k_norm = torch.stack([la.k_norm for la in self.layers])[:, None, None]


class _Checkpoint(dict[str, torch.Tensor]):
    """Tensors by name; asking for one that is not there says so in a sentence."""

    def __missing__(self, name: str) -> torch.Tensor:
        raise LabError(
            f"The drafter's weights hold no {name}", "Use the whole checkpoint: all of its safetensors files"
        )


def _get(tensors: Mapping[str, torch.Tensor], layer: int, name: str) -> torch.Tensor:
    return tensors[f"layers.{layer}.self_attn.{name}.weight"]


def _layer(tensors: Mapping[str, torch.Tensor], i: int) -> LayerWeights:
    attention, mlp = f"layers.{i}.self_attn.", f"layers.{i}.mlp."
    has_bias = f"{attention}q_proj.bias" in tensors
    names = ("q_proj", "k_proj", "v_proj")
    return LayerWeights(
        qkv=torch.cat([tensors[f"{attention}{n}.weight"] for n in names]),
        qkv_bias=torch.cat([tensors[f"{attention}{n}.bias"] for n in names]) if has_bias else None,
        out=tensors[f"{attention}o_proj.weight"],
        out_bias=tensors.get(f"{attention}o_proj.bias"),
        q_norm=tensors[f"{attention}q_norm.weight"],
        k_norm=tensors[f"{attention}k_norm.weight"],
        input_norm=tensors[f"layers.{i}.input_layernorm.weight"],
        post_norm=tensors[f"layers.{i}.post_attention_layernorm.weight"],
        gate_up=torch.cat([tensors[f"{mlp}gate_proj.weight"], tensors[f"{mlp}up_proj.weight"]]),
        down=tensors[f"{mlp}down_proj.weight"],
        attention_conv=Convolution.read(tensors, f"layers.{i}.attention_conv."),
        mlp_conv=Convolution.read(tensors, f"layers.{i}.mlp_conv."),
    )


class DFlashStack:
    """The drafter's arithmetic under one config: context rows from taps, block rows to logits. Keeps no state.

    Raises ConfigError when the config contradicts a weight's shape, has no mask token, or asks for a sliding layer
    without a window. A config that names DFlash2DraftModel runs with DFlash 2's convolutions and selector, any other
    without them, as the ``dflash`` package does.

    ``silent`` are the slots at the head of a block that draft nothing: 1, the anchor's, or 0 (``sample_from_anchor``).
    """

    def __init__(self, weights: DFlashWeights, config: DrafterConfig, target: Target) -> None:
        if config.is_dflash2:
            check_parts(config)
        check_shapes(config, weights.shapes, target.hidden_size)
        if config.mask_token_id is None or not 0 <= config.mask_token_id < target.vocab_size:
            raise ConfigError(
                "mask_token_id",
                config.mask_token_id,
                f"mask_token_id is {config.mask_token_id}, outside the target's vocabulary",
                f"Give an id in 0..{target.vocab_size - 1}: the token the drafter was trained with",
            )
        self.weights, self.config, self.target = weights, config, target
        self.selector = weights.selector if config.is_dflash2 else None
        self._candidates = config.selector_top_k or 0
        self.silent = 0 if config.sample_from_anchor else 1
        self.vocabulary = weights.vocabulary if config.has_draft_vocabulary else None
        if self.vocabulary is not None and int(self.vocabulary.ids.max()) >= target.vocab_size:
            raise ConfigError(
                "draft_vocab_size",
                config.draft_vocab_size,
                f"d2t names token {int(self.vocabulary.ids.max())}, and the target has {target.vocab_size} tokens",
                "Use the checkpoint that was made for this target",
            )
        self.rules: tuple[LayerAttention, ...] = tuple(config.attention(i) for i in range(config.num_hidden_layers))
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.device = weights.fc.device
        self._rotary = _rotary(config).to(self.device)
        self._activation = ACT2FN[config.hidden_act]
        self._value_scale = config.attention_value_scale or 1.0
        self._rotate = _rotate_pairs if config.is_neox_style is False else _rotate_halves
        self.mask_row = self._mask_row() * config.input_embedding_scale  # [1, H]

    def _mask_row(self) -> torch.Tensor:
        own, token = self.weights.mask, self.config.mask_token_id
        if own is None or not own.belongs_to(token):
            return self.target.embed(torch.tensor([token], device=self.target.device)).to(self.device)
        if len(own.row) != self.target.hidden_size:
            raise ConfigError(
                "mask_token_id",
                token,
                f"the mask embedding has {len(own.row)} values, the target's rows have {self.target.hidden_size}",
                "Use the target this drafter was trained for",
            )
        return own.row[None].to(self.device)

    def rotary(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin ``[n, d]`` at ``positions [n]``."""
        cos, sin = self._rotary(self.mask_row, positions[None])
        return cos[0], sin[0]

    def context(self, taps: Sequence[torch.Tensor], positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[L, g, n, d]`` of context rows from one ``[n, H_target]`` tensor per tap."""
        w, eps = self.weights, self.config.rms_norm_eps
        joined = torch.cat([rows.to(self.device, w.fc.dtype) for rows in taps], dim=-1)
        hidden = F.rms_norm(joined @ w.fc.T, w.hidden_norm.shape, w.hidden_norm, eps)
        kv = F.linear(hidden, w.context_kv, w.context_kv_bias)
        kv = kv.view(-1, len(w.layers), 2, self.kv_heads, self.head_dim).permute(1, 2, 3, 0, 4)  # [L, 2, g, n, d]
        keys = F.rms_norm(kv[:, 0], (self.head_dim,), None, eps) * w.context_k_norm
        cos, sin = self.rotary(positions)
        return self._rotate(keys, cos, sin), kv[:, 1] * self._value_scale

    def block_rows(self, anchors: torch.Tensor, k: int) -> torch.Tensor:
        """Input rows ``[A, silent + k, H]`` that draft k tokens: the anchors' embeddings, then the mask row."""
        rows = self.target.embed(anchors).to(self.device) * self.config.input_embedding_scale
        return torch.cat([rows[:, None], self.mask_row.expand(rows.shape[0], self.silent + k - 1, -1)], dim=1)

    def forward(self, rows: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Block rows ``[..., S, H]`` at ``positions [..., S]`` -> final normed hidden rows ``[..., S, H]``.

        Rows meet in attention, where ``attend`` decides what each sees, and in DFlash 2's convolutions.
        """
        eps = self.config.rms_norm_eps
        rotary = self.rotary(positions.flatten())
        hidden = rows.to(self.weights.fc.dtype)
        for i, w in enumerate(self.weights.layers):
            attention = partial(self._attention, i, attend, rotary)
            normed = F.rms_norm(hidden, w.input_norm.shape, w.input_norm, eps)
            hidden = hidden + self._convolved(w.attention_conv, attention, normed)
            normed = F.rms_norm(hidden, w.post_norm.shape, w.post_norm, eps)
            hidden = hidden + self._convolved(w.mlp_conv, partial(self._mlp, w), normed)
        return F.rms_norm(hidden, self.weights.norm.shape, self.weights.norm, eps)

    def _convolved(self, conv: Convolution | None, sublayer: Sublayer, x: torch.Tensor) -> torch.Tensor:
        return conv.around(sublayer, x) if conv is not None and self.config.is_dflash2 else sublayer(x)

    def _attention(
        self, i: int, attend: Attend, rotary: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        w, eps, d = self.weights.layers[i], self.config.rms_norm_eps, self.head_dim
        cos, sin = (t[:, None] for t in rotary)  # [N, 1, d]
        split = [self.heads, self.kv_heads, self.kv_heads]
        q, k, v = F.linear(x, w.qkv, w.qkv_bias).view(-1, sum(split), d).split(split, dim=1)
        q = self._rotate(F.rms_norm(q, (d,), w.q_norm, eps), cos, sin)
        k = self._rotate(F.rms_norm(k, (d,), w.k_norm, eps), cos, sin)
        return F.linear(attend(i, q, k, v * self._value_scale), w.out, w.out_bias).view(x.shape)

    def _mlp(self, w: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(x, w.gate_up).chunk(2, dim=-1)
        return F.linear(self._activation(gate) * up, w.down)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``[..., V]`` of final rows ``[..., H]``, scaled and soft-capped if the drafter's config says so.

        From the target's head, or from the drafter's own over its vocabulary: minus infinity outside.
        """
        hidden, own = hidden.to(self.target.device, self.target.dtype), self.vocabulary
        logits = self.adjusted(self.target.head(hidden) if own is None else F.linear(hidden, own.head))
        return logits if own is None else own.spread(logits, self.target.vocab_size)

    def adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        """A head's logits ``[...]`` after the config's scale and soft cap."""
        logits = logits * self.config.output_multiplier if self.config.output_multiplier != 1.0 else logits
        cap = self.config.final_logit_softcapping
        return (logits / cap).tanh() * cap if cap else logits

    def logits_given(self, hidden: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """``logits`` of slots whose token before is ``previous [...]``: only DFlash 2's depend on it."""
        logits = self.logits(hidden)
        if self.selector is None:
            return logits
        return self.selector.given(hidden, logits, previous, self._candidates)

    def draft(self, hidden: torch.Tensor, anchor: torch.Tensor, sampler: Sampler) -> Draft:
        """A chain from the final rows ``[k, H]`` of the slots behind ``anchor [1]``."""
        logits = self.logits(hidden)
        if self.selector is not None:
            return self.selector.draft(hidden, logits, anchor, self._candidates, sampler)
        ids, probs = sampler.draft(logits)
        return Draft(ids, logits, probs)


def visible(rule: LayerAttention, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Which key positions each query position sees under ``rule`` (broadcast); None when it sees all.

    | rule | keys seen |
    | --- | --- |
    | causal | k <= q |
    | window W | q - k < W |
    | window W, two-sided | abs(q - k) < W |
    """
    seen = None
    if rule.causal:
        seen = keys <= queries
    if rule.window is not None:
        near = queries - keys < rule.window
        seen = near if seen is None else seen & near
        if rule.two_sided:
            seen = seen & (keys - queries < rule.window)
    return seen


class DFlashDrafter:
    """DFlash in the loop: context keys and values in preallocated buffers, one anchor at a time.

    The block's keys and values are written behind the context and forgotten right after drafting, anchor slot
    included: the next commit overwrites them with rows made from the target's taps.
    """

    def __init__(self, weights: DFlashWeights, config: DrafterConfig, target: Target) -> None:
        self.stack = DFlashStack(weights, config, target)
        self.taps: tuple[int, ...] = config.taps
        self.start(0)

    def start(self, capacity: int) -> None:
        """Forget the context; make room for ``capacity`` positions, blocks included."""
        s = self.stack
        shape = (len(s.rules), s.kv_heads, capacity, s.head_dim)
        self._keys = torch.empty(shape, dtype=s.weights.fc.dtype, device=s.device)
        self._values = torch.empty_like(self._keys)
        self._positions = torch.arange(capacity, device=s.device)
        self._length = 0
        self._pending: list[Sequence[torch.Tensor]] = []
        self._masks: dict[LayerAttention, tuple[int, int, torch.Tensor | None]] = {}

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Note new context rows; their keys and values are made with the next draft, in one batch."""
        self._pending.append(taps)

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """Draft ``k`` tokens after ``anchor [1]`` in one pass."""
        return self.stack.draft(self._hidden(anchor, k), anchor, sampler)

    def logits(self, anchor: torch.Tensor, k: int) -> torch.Tensor:
        """Logits ``[k, V]`` of the ``k`` places behind ``anchor [1]``, from one pass, whatever is chosen before."""
        return self.stack.logits(self._hidden(anchor, k))

    def _hidden(self, anchor: torch.Tensor, k: int) -> torch.Tensor:
        self._ingest()
        rows = self.stack.block_rows(anchor, k)[0]
        positions = self._positions[self._length : self._length + rows.shape[0]]
        return self.stack.forward(rows, positions, self._attend)[self.stack.silent :]

    def _ingest(self) -> None:
        taps = [torch.cat(rows) for rows in zip(*self._pending, strict=True)]
        self._pending.clear()
        end = self._length + taps[0].shape[0]
        keys, values = self.stack.context(taps, self._positions[self._length : end])
        self._keys[:, :, self._length : end] = keys
        self._values[:, :, self._length : end] = values
        self._length = end

    def _attend(self, i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rule, start, rows = self.stack.rules[i], self._length, q.shape[0]
        end = start + rows
        self._keys[i, :, start:end] = k.transpose(0, 1)
        self._values[i, :, start:end] = v.transpose(0, 1)
        # No row sees further back than the anchor's window: leave the rest out of the product.
        low = max(0, start - rule.window + 1) if rule.window is not None else 0
        mask = self._mask(rule, start - low, rows)
        # Query heads that share a key/value head become rows of one product: nothing is repeated in memory.
        groups = self.stack.heads // self.stack.kv_heads
        stacked = q.view(rows, self.stack.kv_heads, groups, -1).permute(1, 2, 0, 3).flatten(1, 2)[None]
        out = F.scaled_dot_product_attention(
            stacked, self._keys[None, i, :, low:end], self._values[None, i, :, low:end], mask
        )
        return out.view(self.stack.kv_heads, groups, rows, -1).permute(2, 0, 1, 3).reshape(rows, -1)

    def _mask(self, rule: LayerAttention, context: int, rows: int) -> torch.Tensor | None:
        """Mask ``[groups * rows, context + rows]``; the same one serves every round once the window is full."""
        known = self._masks.get(rule)
        if known is None or known[:2] != (context, rows):
            keys = torch.arange(context + rows, device=self.stack.device)
            seen = visible(rule, keys[context:, None], keys[None])
            groups = self.stack.heads // self.stack.kv_heads
            known = self._masks[rule] = (context, rows, None if seen is None else seen.repeat(groups, 1))
        return known[2]


def _rotary(config: DrafterConfig) -> Qwen3RotaryEmbedding:
    """transformers' own RoPE (yarn and the other scalings included) for this config."""
    return Qwen3RotaryEmbedding(
        Qwen3Config(
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_embeddings,
            rope_parameters=dict(config.rope_parameters),
        )
    )


def _rotate_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE in the neox style: dimension j is paired with j + d/2. ``x [..., d]``."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def _rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE in the GPT-J style (``is_neox_style`` false): neighbouring dimensions are paired."""
    half = x.shape[-1] // 2
    cos, sin = cos[..., :half].repeat_interleave(2, -1), sin[..., :half].repeat_interleave(2, -1)
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin
