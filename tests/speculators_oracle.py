"""The speculators library's own drafter, random and tiny, saved as it saves its checkpoints.

Its package imports data sets and an HTTP client when it starts; the model's modules need neither. So they are
imported under bare packages that run no ``__init__`` of theirs.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tests.tiny import HIDDEN, VOCAB

DRAFT_IDS = [0, 2, 3, 5, 6, 9, 10]
TAPS = (0, 2, 4)
BLOCK = 6
STACK: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.3,
}


def speculators(name: str) -> Any:
    """A module of the library, by its dotted name behind ``speculators.``."""
    if "speculators" not in sys.modules:
        found = PathFinder.find_spec("speculators")
        assert found and found.submodule_search_locations, "pip install --no-deps speculators==0.9.0 (make test does)"
        root = found.submodule_search_locations[0]
        for package, path in (("speculators", root), ("speculators.models", f"{root}/models")):
            module = sys.modules[package] = ModuleType(package)
            module.__path__ = [path]
        # The names that its modules take from the package itself.
        base = sys.modules["speculators"]
        base.__dict__.update(SpeculatorModelConfig=importlib.import_module("speculators.config").SpeculatorModelConfig)
        base.__dict__.update(SpeculatorModel=importlib.import_module("speculators.model").SpeculatorModel)
    return importlib.import_module(f"speculators.{name}")


def oracle(
    stack: dict[str, Any] | None = None, reduced: bool = False, second: bool = False, seed: int = 1, **top: Any
) -> Any:
    """A random drafter in float64; ``stack`` and ``top`` change its config, ``second`` makes it a DFlash 2."""
    kind = "dflash2" if second else "dflash"
    config_class = getattr(speculators(f"models.{kind}.config"), f"DFlash{2 if second else ''}SpeculatorConfig")
    config_class.model_rebuild(_types_namespace={"torch": torch})  # transformers 5.24 names it in an annotation
    parts = {"conv_kernel_size": 3, "conv_group_size": 4, "selector_rank": 6, "selector_top_k": 4} if second else {}
    config = config_class(
        transformer_layer_config=STACK | (stack or {}),
        draft_vocab_size=len(DRAFT_IDS) if reduced else VOCAB,
        block_size=BLOCK,
        aux_hidden_state_layer_ids=[tap + 1 for tap in TAPS],
        mask_token_id=7,
        **parts,
        **top,
    )
    config.transformer_layer_config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(speculators(f"models.{kind}.core"), f"DFlash{2 if second else ''}DraftModel")(config)
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight.data.uniform_(0.5, 1.5)
        elif not name.startswith(("embed_tokens", "lm_head", "verifier")):
            weight.data.normal_(0, 0.3)
    if reduced:
        known = torch.zeros(VOCAB, dtype=torch.bool)
        known[DRAFT_IDS] = True
        model.load_vocab_mappings(known, torch.tensor(DRAFT_IDS) - torch.arange(len(DRAFT_IDS)))
    return model.double().eval()


def of_target(model: Any, target: Any) -> Any:
    """The drafter with the target's table, and its head or the rows of the draft vocabulary (shaken: its own)."""
    head = target.model.get_output_embeddings().weight.detach()
    model.embed_tokens.weight.data = target.embedding.detach().clone()
    if model.use_draft_vocab:
        head = head[DRAFT_IDS] + 0.1 * torch.randn(len(DRAFT_IDS), HIDDEN, dtype=head.dtype)
    model.lm_head.weight.data, model.verifier_lm_head.weight.data = head.clone(), head.clone()
    return model


@torch.inference_mode()
def block_logits(model: Any, target: Any, ids: list[int], anchor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Final rows ``[block, H]`` and logits ``[block, D]`` of the library's forward pass behind one anchor."""
    text = torch.tensor([ids])
    states = target.model(text, output_hidden_states=True).hidden_states
    loss_mask = torch.zeros_like(text)
    loss_mask[0, anchor] = 1
    hidden, logits, *_ = model._backbone_forward(
        torch.cat([states[tap + 1] for tap in TAPS], dim=-1),
        text,
        loss_mask,
        states[-1],
        torch.zeros_like(text),
        max_anchors=1,
    )
    return hidden[0], logits[0]


def save(model: Any, folder: Path) -> Path:
    """The checkpoint, by the library's own ``save_pretrained``."""
    model.save_pretrained(folder)
    return folder
