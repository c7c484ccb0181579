"""A causal language model as the loop sees it: prefill, verify, rollback, and the outputs of tapped layers.

Works for any causal LM of transformers. Layer outputs are taken with hooks on the decoder layers, not from
``hidden_states``: the last entry there is taken after the final norm, while engines hand the raw output on.
Token ids in, logits out; the module knows no tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dflash_lab.decode.cache import TargetCache
from dflash_lab.decode.lean import LeanDecoder
from dflash_lab.drafters.protocol import Tree
from dflash_lab.errors import LabError

EMBEDDING_TAP = -1
"""Tap "layer -1": the input of layer 0. Only old engines' off-by-one readings ask for it."""


class Target:
    """The frozen target model shared by all runs; ``open`` starts one run on it.

    Decode steps take the lean path where the model has one (``lean`` false: transformers' module everywhere).

    Attributes: ``num_layers`` L, ``hidden_size`` H, ``vocab_size`` V, ``context_length`` (positions the model was
    built for, None when its config names none), ``device`` (of the embedding table), ``dtype``, ``window`` (of its
    sliding layers, 0 without any).
    """

    def __init__(self, model: Any, lean: bool = True) -> None:
        self.model = model.eval()
        self.lean = LeanDecoder.of(model) if lean else None
        self.config = self.model.config.get_text_config(decoder=True)
        self.embedding: torch.Tensor = self.model.get_input_embeddings().weight
        self.layers: Sequence[nn.Module] = _decoder_layers(self.model)
        self.num_layers = len(self.layers)
        self.vocab_size, self.hidden_size = self.embedding.shape
        self.context_length: int | None = getattr(self.config, "max_position_embeddings", None)
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.window: int = getattr(self.config, "sliding_window", None) or 0

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Raw rows of the embedding table, ``[..., H]``: without the target's own scale or norm."""
        return F.embedding(ids, self.embedding)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """``lm_head`` on final hidden rows ``[..., H]`` -> logits ``[..., V]``, without scale or softcap."""
        return self.model.get_output_embeddings()(hidden)

    def logits_from_last_layer(self, states: torch.Tensor) -> torch.Tensor:
        """Logits ``[n, V]`` from raw outputs ``[n, H]`` of the last layer: the target's final norm, then its head."""
        return self.head(self.model.get_decoder().norm(states))

    def open(self, capacity: int, taps: Sequence[int] = ()) -> TargetRun:
        """Start a run of at most ``capacity`` positions that hands out the outputs of the layers in ``taps``.

        Raises LabError for a tap outside the model.
        """
        for tap in taps:
            if not EMBEDDING_TAP <= tap < self.num_layers:
                raise LabError(
                    f"target_layer_ids holds {tap}, but the target has layers 0..{self.num_layers - 1}.",
                    "Use ids of existing decoder layers (0-based layer outputs).",
                )
        return TargetRun(self, capacity, tuple(taps))

    @property
    def is_hybrid(self) -> bool:
        """Whether some layer keeps a running state, which cannot be rolled back by length."""
        return TargetCache(self.config, 0).is_hybrid

    def check_trees(self) -> None:
        """Raises LabError for a target that cannot verify a tree."""
        if self.is_hybrid:
            raise LabError(
                "This target has linear-attention layers: their running state takes tokens one after the other, so "
                "the branches of a tree cannot share a pass",
                "Draft chains (DFlash or MTP) with this target",
            )

    @torch.inference_mode()
    def logits_after(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits ``[V]`` of the token that follows ``ids``, from one fresh pass without a cache."""
        tensor = torch.tensor([list(ids)], device=self.device)
        return self.model(tensor, use_cache=False, logits_to_keep=1).logits[0, -1]


class TargetRun:
    """One run's state on a Target: its cache and the taps of the last pass.

    ``length`` positions are committed; ``forward`` appends, ``rollback`` forgets.
    """

    def __init__(self, target: Target, capacity: int, taps: tuple[int, ...]) -> None:
        self.target = target
        self.capacity = capacity
        self.tap_ids = taps
        self.cache = TargetCache(target.config, capacity)
        self.length = 0
        self._positions = torch.arange(capacity, device=target.device)[None]
        self._tables: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(
        self, ids: torch.Tensor, last_only: bool = False, tree: Tree | None = None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run over ``ids [n]`` at positions length..length+n-1, or at length + depth as a ``tree``.

        Returns logits ``[n, V]`` (``[1, V]`` with ``last_only``) and one ``[n, H]`` tensor per tap, by reference.
        """
        n = ids.shape[0]
        lean = self.target.lean
        # The first pass makes the caches; after it the lean step reads and writes the same ones.
        if lean is not None and self.length:
            if self._tables is None:
                self._tables = lean.tables(self._positions)
            logits, captured = lean.step(ids, self.length, self.cache, self._tables, set(self.tap_ids), tree)
        else:
            logits, captured = self._module_pass(ids, last_only, tree)
        self.length += n
        return logits, [captured[tap] for tap in self.tap_ids]

    def _module_pass(
        self, ids: torch.Tensor, last_only: bool, tree: Tree | None
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        captured: dict[int, torch.Tensor] = {}
        handles = [_hook(self.target, tap, captured) for tap in set(self.tap_ids)]
        positions = self._positions[:, self.length : self.length + ids.shape[0]]
        if tree is not None:
            positions = self.length + tree.depths[None]
            handles += self._see(tree)
        try:
            output = self.target.model(
                ids[None],
                position_ids=positions,
                cache=self.cache,
                use_cache=True,
                logits_to_keep=1 if last_only else 0,
            )
        finally:
            for handle in handles:
                handle.remove()
        return output.logits[0], {tap: rows[0] for tap, rows in captured.items()}

    def _see(self, tree: Tree) -> list[Any]:
        """Hooks that give every layer the tree's mask, within the layer's own window where it slides.

        A model makes its masks from positions in a row; a mask handed to it would replace a window.
        """
        context = self._positions[0, : self.length]
        seen = F.pad(tree.sees, (self.length, 0), value=True)
        near = self.length + tree.depths[:, None] - torch.cat([context, self.length + tree.depths]) < self.target.window
        masks = [
            torch.zeros(seen.shape, dtype=self.target.dtype, device=seen.device).masked_fill_(
                ~rule, torch.finfo(self.target.dtype).min
            )[None, None]
            for rule in (seen, seen & near)
        ]
        return [
            layer.register_forward_pre_hook(_put_mask(masks[kept.is_sliding]), with_kwargs=True)
            for layer, kept in zip(self.target.layers, self.cache.layers, strict=True)
        ]

    def verify(self, block: torch.Tensor, tree: Tree | None = None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """``forward`` over [anchor, drafted...], a chain or a tree, ready to be rolled back into."""
        if self.cache.is_hybrid:
            self.cache.snapshot()
        return self.forward(block, tree=tree)

    def forget(self, length: int) -> None:
        """Keep positions 0..length-1 of an attention-only model."""
        self.length = length
        self.cache.rollback(length)

    def keep(self, block: torch.Tensor, rows: Sequence[int]) -> bool:
        """Keep ``rows`` (rising, from 0) of the block just verified; returns whether rows had to be run again.

        Attention-only targets move a counter, and what lies behind a gap. Hybrid targets restore their snapshot and
        re-run the kept rows, which are the first ones: ``Target.check_trees``.
        """
        kept, start = len(rows), self.length - block.shape[0]
        if kept == block.shape[0]:
            return False
        if not self.cache.is_hybrid:
            if rows[-1] >= kept:
                self.cache.move(start + torch.tensor(rows, device=block.device), start)
            self.forget(start + kept)
            return False
        self.length = start
        self.cache.rollback(start)
        self.forward(block[:kept], last_only=True)
        return True


def _decoder_layers(model: Any) -> Sequence[nn.Module]:
    decoder = model.get_decoder()
    for owner in (decoder, getattr(decoder, "language_model", None), getattr(decoder, "decoder", None)):
        layers = getattr(owner, "layers", None)
        if isinstance(layers, nn.ModuleList):
            return list(layers)
    raise LabError(
        f"{type(model).__name__} has no list of decoder layers to tap.",
        "Use a causal language model whose decoder keeps its blocks in `layers`.",
    )


def _put_mask(mask: torch.Tensor) -> Any:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, "attention_mask": mask.to(args[0].device if args else mask.device)}

    return before


def _hook(target: Target, tap: int, captured: dict[int, torch.Tensor]) -> Any:
    if tap == EMBEDDING_TAP:

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            captured[tap] = args[0] if args else kwargs["hidden_states"]

        return target.layers[0].register_forward_pre_hook(before, with_kwargs=True)

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        captured[tap] = output[0] if isinstance(output, tuple) else output

    return target.layers[tap].register_forward_hook(after)
