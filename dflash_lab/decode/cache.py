"""Key/value cache of the target: preallocated, rolled back by length, with states snapshot for hybrid layers.

Attention layers keep every position in one buffer and are rolled back by moving a counter, sliding ones too (the
window is the mask's business), so nothing is copied when a draft is rejected. Linear-attention layers fold all
tokens into a running state that cannot be rewound (transformers' ``crop`` restores only its convolution half):
their states are copied before a verify and put back when part of the draft is rejected.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import (
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of one attention layer in buffers of ``capacity`` positions.

    ``update`` writes behind the ``length`` positions kept and returns views ``[1, kv_heads, length + n, head_dim]``.
    """

    is_croppable = True

    def __init__(self, capacity: int, is_sliding: bool) -> None:
        super().__init__()
        self.capacity = capacity
        self.is_sliding = is_sliding
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate once the first keys show heads, head size, dtype and device."""
        batch, heads, _, _ = key_states.shape
        self.keys = key_states.new_empty(batch, heads, self.capacity, key_states.shape[-1])
        self.values = value_states.new_empty(batch, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append n rows and return all rows so far (views, not copies)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(keys a query of this length sees, position of the first key)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Positions kept."""
        return self.length

    def get_max_length(self) -> int:
        """Positions that fit."""
        return self.capacity


class TargetCache(DynamicCache):
    """The target's cache for one run of at most ``capacity`` positions.

    ``rollback(length)`` forgets every position from ``length`` on. When ``is_hybrid``, the linear-attention states
    then stand where ``snapshot`` last left them and the caller re-runs the kept tokens (DFLASH "hybrid targets").
    """

    def __init__(self, config: PretrainedConfig, capacity: int) -> None:
        super().__init__(config=config)
        replaceable = (DynamicLayer, DynamicSlidingWindowLayer)
        self.layers: list[Any] = [
            PreallocatedLayer(capacity, isinstance(layer, DynamicSlidingWindowLayer))
            if type(layer) in replaceable
            else layer
            for layer in self.layers
        ]
        self._linear = [la for la in self.layers if isinstance(la, LinearAttentionCacheLayerMixin)]
        self._states: list[tuple[dict[int, Any], dict[int, Any]]] = []

    @property
    def is_hybrid(self) -> bool:
        """Whether some layer holds a running state that cannot be rolled back by length."""
        return bool(self._linear)

    def snapshot(self) -> None:
        """Copy the running states of the linear-attention layers."""
        self._states = [(_copied(la.conv_states), _copied(la.recurrent_states)) for la in self._linear]

    def move(self, rows: torch.Tensor, start: int) -> None:
        """Copy the keys and values of ``rows`` (positions) to the ones from ``start`` on, in every attention layer."""
        for layer in self.layers:
            if isinstance(layer, PreallocatedLayer):
                for store in (layer.keys, layer.values):
                    store[:, :, start : start + len(rows)] = store.index_select(2, rows)

    def rollback(self, length: int) -> None:
        """Keep positions 0..length-1 of the attention layers; put hybrid states back to the last snapshot."""
        for layer in self.layers:
            if isinstance(layer, PreallocatedLayer):
                layer.length = length
        for layer, (conv, recurrent) in zip(self._linear, self._states, strict=False):
            for live, kept in ((layer.conv_states, conv), (layer.recurrent_states, recurrent)):
                for index, state in kept.items():
                    if state is not None:
                        live[index].copy_(state)


def _copied(states: dict[int, Any]) -> dict[int, Any]:
    return {index: None if state is None else state.clone() for index, state in states.items()}
