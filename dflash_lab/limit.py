"""The physical limit: a round takes at least the bytes it must read over the memory's bandwidth.

Counted: every weight a pass reads, the head included and the embedding table (read a row at a time) not, once a pass;
and the keys and values of full attention behind the context. Left out, so that it stays a limit: experts of a mixture
(few are read, which ones is not known before), windows, activations, and all arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dflash_lab.drafters.draft_model import DraftModelDrafter
from dflash_lab.drafters.method import Method
from dflash_lab.drafters.mtp import MtpDrafter

if TYPE_CHECKING:
    from dflash_lab.decode.target import Target
    from dflash_lab.drafters.protocol import Drafter
    from dflash_lab.pairs import Pair

PASSES = 7
BUFFER = 1 << 28
"""Bytes read in one pass of the measurement: more than any processor's cache holds."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The shortest a round can take: ``ms``, and ``ms_a_token`` more for each token before the anchor."""

    ms: float
    ms_a_token: float

    def at(self, context: float) -> float:
        """Milliseconds behind ``context`` tokens."""
        return self.ms + self.ms_a_token * context


def floor(pair: Pair, method: Method, drafter: Drafter | None, bandwidth: float) -> Floor:
    """The floor of ``method`` at ``bandwidth`` bytes a second: it reads the target once a round, and its drafter as
    often as that runs in a round."""
    weights, row = _reads(pair.target)
    head = _bytes([pair.target.model.get_output_embeddings().weight])
    if method.kind in ("dflash", "ddtree"):
        config = pair.config
        full = sum(not config.attention(i).window for i in range(config.num_hidden_layers))
        # Of a codebook (DFlash 2) a few rows are read.
        weights += _bytes(t for name, t in pair.tensors.items() if "codebook" not in name)
        weights += 0 if config.has_draft_vocabulary else head
        row += 2 * full * config.num_key_value_heads * config.head_dim * pair.target.dtype.itemsize
    elif isinstance(drafter, MtpDrafter):
        cache = drafter.head.config
        weights += method.k * (_bytes(drafter.head.tensors.values()) + head)
        row += method.k * 2 * cache.kv_heads * cache.head_dim * pair.target.dtype.itemsize
    elif isinstance(drafter, DraftModelDrafter):
        small_weights, small_row = _reads(drafter.model)
        weights, row = weights + method.k * small_weights, row + method.k * small_row
    return Floor(1e3 * weights / bandwidth, 1e3 * row / bandwidth)


def measured_bandwidth(device: torch.device) -> float:
    """Bytes a second that ``device`` reads from its memory: the fastest of some sums over a large buffer."""
    buffer = torch.ones(BUFFER // 4, dtype=torch.float32, device=device)
    fastest = float("inf")
    for _ in range(PASSES):
        start = time.perf_counter()
        buffer.sum().item()  # waits for the device
        fastest = min(fastest, time.perf_counter() - start)
    return BUFFER / fastest


def _reads(target: Target) -> tuple[int, int]:
    """Bytes of the weights of one pass, and of a token's keys and values in layers of full attention."""
    model, config = target.model, target.config
    body = [p for name, p in model.get_decoder().named_parameters() if "expert" not in name]
    rows = [p for p in body if p is not target.embedding] + [model.get_output_embeddings().weight]
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * target.num_layers
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return _bytes(rows), 2 * kinds.count("full_attention") * kv_heads * head_dim * target.dtype.itemsize


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
