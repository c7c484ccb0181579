"""Multi-token prediction: a target's own one-layer head, re-applied K times (Qwen3-Next / Qwen3.5 layout, ``mtp.*``).

Row t joins the embedding of token t + 1 with h_t, the target's hidden state after its final norm; one decoder layer
over all earlier rows and a final norm give the row whose logits predict token t + 2. For more tokens than one the
layer is applied again to its own normed output and the drafted token, as vLLM and SGLang do.

Shapes: H hidden size, h query heads, g key/value heads, d head size, N rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.nn import functional as F
from transformers.activations import ACT2FN

from dflash_lab.decode.sampling import Sampler
from dflash_lab.decode.target import Target
from dflash_lab.drafters.protocol import Draft
from dflash_lab.errors import LabError

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(q [N, h, d], k [N, g, d], v [N, g, d]), rotated -> attention output [N, h * d]."""

LAYER = "layers.0."
ZERO_CENTRED = ("qwen3_next", "qwen3_5")
"""Model types (or their beginnings) whose norms store weight - 1."""


@dataclass(frozen=True, slots=True)
class MtpConfig:
    """What the head's arithmetic needs; the sizes of its matrices are the weights' own.

    ``gated``: q_proj also gives a gate for the attention output. ``zero_centred``: norms multiply by 1 + weight.
    ``rotary_dim``: leading dimensions of a head that RoPE turns.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    eps: float = 1e-6
    hidden_act: str = "silu"
    gated: bool = False
    zero_centred: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> MtpConfig:
        """Read a config.json, the head's own or a whole target's. Raises LabError for what this head cannot do."""
        text = raw.get("text_config") or raw
        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        kind = rope.get("rope_type", "default")
        if kind != "default":
            raise LabError(f"rope_type is {kind!r}: the MTP head knows only plain RoPE", "Use another drafter")
        layers = text.get("mtp_num_hidden_layers", 1)
        if layers != 1:
            raise LabError(f"mtp_num_hidden_layers is {layers}: only heads of one layer are known", "Use that of one")
        model_type = str(text.get("model_type", ""))
        try:
            heads = int(text["num_attention_heads"])
            head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
            share = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
            return cls(
                heads=heads,
                kv_heads=int(text.get("num_key_value_heads", heads)),
                head_dim=head_dim,
                rotary_dim=int(head_dim * share),
                rope_theta=float(rope.get("rope_theta", text.get("rope_theta", 10000.0))),
                eps=float(text["rms_norm_eps"]),
                hidden_act=str(text.get("hidden_act", "silu")),
                gated=bool(text.get("attn_output_gate", model_type.startswith(ZERO_CENTRED))),
                zero_centred=model_type.startswith(ZERO_CENTRED),
            )
        except KeyError as error:
            raise LabError(f"The MTP head's config.json has no {error}", "Take the target's own config.json") from error


def read_mtp(folder: Path) -> tuple[MtpConfig, dict[str, torch.Tensor]]:
    """Config and ``mtp.*`` tensors (prefix taken off) of a folder. Raises LabError when it holds no dense head."""
    config = MtpConfig.from_json(json.loads((folder / "config.json").read_text()))
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith("mtp.")]  # noqa: SIM118
            tensors |= {name.removeprefix("mtp."): file.get_tensor(name) for name in names}
    if not tensors:
        raise LabError(f"{folder} holds no MTP head: no tensor's name begins with mtp.", "Choose another method")
    if any(".experts." in name for name in tensors):
        raise LabError(f"The MTP head in {folder} is a mixture of experts: only dense ones run here", "Use DFlash")
    return config, tensors


class MtpHead:
    """The head's arithmetic on one target; keeps no state. ``tensors``: the ``mtp.*`` weights without that prefix.

    Raises LabError when a weight is missing or was made for another hidden size.
    """

    def __init__(self, config: MtpConfig, tensors: Mapping[str, torch.Tensor], target: Target) -> None:
        self.config, self.target = config, target
        width = target.hidden_size
        q_rows = config.heads * config.head_dim * (2 if config.gated else 1)
        for name, shape in {
            "fc.weight": (width, 2 * width),
            "pre_fc_norm_embedding.weight": (width,),
            "pre_fc_norm_hidden.weight": (width,),
            "norm.weight": (width,),
            f"{LAYER}self_attn.q_proj.weight": (q_rows, width),
            f"{LAYER}self_attn.k_proj.weight": (config.kv_heads * config.head_dim, width),
        }.items():
            found = tuple(tensors[name].shape) if name in tensors else None
            if found != shape:
                is_what = f"has shape {list(found)}" if found else "is missing"
                raise LabError(f"mtp.{name} {is_what}; this target needs {list(shape)}", "Take the target's own head")
        self.tensors = tensors
        self._norms = {
            name: tensor + 1 if config.zero_centred else tensor
            for name, tensor in tensors.items()
            if name.endswith("norm.weight") or "norm" in name.split(".")[-2]
        }
        self.device, self.dtype = tensors["fc.weight"].device, tensors["fc.weight"].dtype
        pairs = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32, device=self.device)
        self._frequencies = 1.0 / config.rope_theta ** (pairs / config.rotary_dim)
        self._activation = ACT2FN[config.hidden_act]

    def rows(self, ids: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Normed outputs ``[N, H]`` of rows at ``positions [N]``: tokens ``ids [N]``, the ones after ``hidden``'s."""
        c = self.config
        embedded = self._norm("pre_fc_norm_embedding", self.target.embed(ids).to(self.device, self.dtype))
        known = self._norm("pre_fc_norm_hidden", hidden.to(self.device, self.dtype))
        x = self._linear("fc", torch.cat([embedded, known], dim=-1))

        normed = self._norm(f"{LAYER}input_layernorm", x)
        q = self._linear(f"{LAYER}self_attn.q_proj", normed).view(len(ids), c.heads, -1)
        q, gate = q.chunk(2, dim=-1) if c.gated else (q, None)
        k, v = (
            self._linear(f"{LAYER}self_attn.{name}", normed).view(len(ids), c.kv_heads, c.head_dim)
            for name in ("k_proj", "v_proj")
        )
        angles = torch.outer(positions.to(torch.float32), self._frequencies).repeat(1, 2)[:, None]  # [N, 1, rotary]
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        q = _rotate(self._norm(f"{LAYER}self_attn.q_norm", q), cos, sin)
        k = _rotate(self._norm(f"{LAYER}self_attn.k_norm", k), cos, sin)
        attended = attend(q, k, v)
        if gate is not None:
            attended = attended * gate.reshape(len(ids), -1).sigmoid()
        x = x + self._linear(f"{LAYER}self_attn.o_proj", attended)

        normed = self._norm(f"{LAYER}post_attention_layernorm", x)
        gate_rows, up = (self._linear(f"{LAYER}mlp.{name}", normed) for name in ("gate_proj", "up_proj"))
        return self._norm("norm", x + self._linear(f"{LAYER}mlp.down_proj", self._activation(gate_rows) * up))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The target's ``lm_head`` on normed rows ``[..., H]``."""
        return self.target.head(hidden.to(self.target.device, self.target.dtype))

    def states(self, last_layer: torch.Tensor) -> torch.Tensor:
        """h_t ``[n, H]``: the target's final norm on raw outputs of its last layer."""
        return self.target.model.get_decoder().norm(last_layer)

    def chains(self, ids: torch.Tensor, hidden: torch.Tensor, k: int) -> torch.Tensor:
        """Normed outputs ``[k, R, H]`` of drafts behind every row of a text at once, its own tokens fed back.

        ``hidden [R, H]`` are the states of positions 0..R-1, ``ids`` at least R + k tokens. Output j of row t predicts
        token t + 2 + j: what the drafter would propose there if its earlier proposals were the text's tokens. One
        causal pass over all rows, then k - 1 steps in which a row sees the true rows up to its own and its own chain.
        """
        count, groups = hidden.shape[0], self.config.heads // self.config.kv_heads
        positions = torch.arange(count, device=self.device)
        seen = positions[:, None] >= positions
        true: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values of the true rows, once they are known
        own: list[tuple[torch.Tensor, torch.Tensor]] = []  # of each chained step, row by row

        def attend(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            (own if true else true).append((key, value))
            q = q.view(count, self.config.kv_heads, groups, -1) * self.config.head_dim**-0.5
            scores = torch.einsum("rgnd,cgd->rgnc", q, true[0][0]).masked_fill(~seen[:, None, None], float("-inf"))
            chained = [torch.einsum("rgnd,rgd->rgn", q, keys)[..., None] for keys, _ in own]
            weights = torch.cat([scores, *chained], dim=-1).softmax(-1).to(q.dtype)
            out = torch.einsum("rgnc,cgd->rgnd", weights[..., :count], true[0][1])
            for i, (_, values) in enumerate(own):
                out = out + weights[..., count + i, None] * values[:, :, None]
            return out.reshape(count, -1)

        outputs = []
        for j in range(k):
            hidden = self.rows(ids[1 + j : 1 + j + count], hidden, positions + j, attend)
            outputs.append(hidden)
        return torch.stack(outputs)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self._norms.get(f"{name}.weight")
        if weight is None:  # heads without norms on queries and keys
            return x
        return F.rms_norm(x, weight.shape, weight.to(x.dtype), self.config.eps)


class MtpDrafter:
    """MTP in the loop, with its own key/value cache over all earlier rows, prompt included.

    Rows of drafted tokens are written behind the true ones and forgotten: the next draft begins by writing the rows
    that the target's true states give, over them.
    """

    def __init__(self, head: MtpHead) -> None:
        self.head = head
        self.taps: tuple[int, ...] = (head.target.num_layers - 1,)
        self.start(0)

    def start(self, capacity: int) -> None:
        """Forget everything; make room for ``capacity`` positions."""
        c = self.head.config
        self._keys = torch.empty(c.kv_heads, capacity, c.head_dim, dtype=self.head.dtype, device=self.head.device)
        self._values = torch.empty_like(self._keys)
        self._positions = torch.arange(capacity, device=self.head.device)
        self._length = 0
        self._pending: list[tuple[torch.Tensor, torch.Tensor]] = []

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Note new tokens and states: each waits for the token after it, so they become rows with the next draft."""
        self._pending.append((ids, taps[0]))

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """Draft ``k`` tokens after ``anchor [1]``, one application of the head each."""
        head = self.head
        ids = torch.cat([*(ids for ids, _ in self._pending), anchor])[1:]
        states = head.states(torch.cat([rows for _, rows in self._pending]))
        self._pending.clear()
        hidden = self._append(ids, states)[-1:]
        true = self._length
        logits, drafted, probs = [], [], []
        for step in range(k):
            logits.append(head.logits(hidden))
            token, q = sampler.draft(logits[-1])
            drafted.append(token)
            if q is not None:
                probs.append(q)
            if step < k - 1:
                hidden = self._append(token, hidden)
        self._length = true
        return Draft(torch.cat(drafted), torch.cat(logits), torch.cat(probs) if probs else None)

    def _append(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Run rows behind the cached ones and cache them; returns their normed outputs."""
        positions = self._positions[self._length : self._length + len(ids)]
        outputs = self.head.rows(ids, hidden, positions, self._attend)
        self._length += len(ids)
        return outputs

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        start, end = self._length, self._length + q.shape[0]
        self._keys[:, start:end], self._values[:, start:end] = k.transpose(0, 1), v.transpose(0, 1)
        places = self._positions[:end]
        mask = places <= places[start:, None] if q.shape[0] > 1 else None
        keys, values = self._keys[None, :, :end], self._values[None, :, :end]
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], keys, values, mask, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(q.shape[0], -1)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE (neox style) on the leading dimensions of ``x [N, heads, d]`` that ``cos [N, 1, rotary]`` covers."""
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    low, high = turned.chunk(2, dim=-1)
    return torch.cat([turned * cos + torch.cat([-high, low], dim=-1) * sin, rest], dim=-1)
