"""Tiny random pairs: a real transformers target and a real ``dflash`` package drafter that share weights with ours.

The vocabulary is small, so that chance alone accepts some tokens at every position.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashStack, DFlashWeights

VOCAB, HIDDEN, LAYERS = 11, 32, 6
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]

BASE: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 3,
    "num_target_layers": LAYERS,
    "block_size": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "vocab_size": VOCAB,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "layer_types": ["full_attention"] * 3,
    "dflash_config": {"mask_token_id": 7, "target_layer_ids": [0, 2, 4]},
}
SLIDING = {"use_sliding_window": True, "sliding_window": 6, "layer_types": ["sliding_attention"] * 3}
MIXED = {**SLIDING, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}

DFLASH2 = {
    "architectures": ["DFlash2DraftModel"],
    "conv_kernel_size": 3,
    "conv_group_size": 4,
    "selector_rank": 6,
    "selector_top_k": 4,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding": SLIDING,
    "mixed": MIXED,
    "full, causal": {"is_causal": True},
    "sliding, not causal": {**SLIDING, "is_causal": False},
    "mixed, not causal": {**MIXED, "is_causal": False},
    "yarn": {"rope_parameters": YARN, "rope_theta": None},
    "scales": {"input_embedding_scale": 2.5, "output_multiplier": 0.5, "final_logit_softcapping": 1.5},
    "bias": {"attention_bias": True},
    "order of taps": {"dflash_config": {"mask_token_id": 7, "target_layer_ids": [4, 0, 2]}},
    "default taps": {"dflash_config": {"mask_token_id": 7}},
}


def config_json(**changes: Any) -> dict[str, Any]:
    """BASE with other values; None takes a key out."""
    return {key: value for key, value in {**BASE, **changes}.items() if value is not None}


def tiny_target(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """A random Llama whose greedy text does not fall into a loop at once."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.6,
        **changes,
    )
    return LlamaForCausalLM(config).to(dtype).eval()


def tiny_oracle(raw: dict[str, Any], dtype: torch.dtype = torch.float64, seed: int = 1) -> Any:
    """The ``dflash`` package's own model for this config, with random weights."""
    import dflash.model

    # The package times with CUDA events only.
    dflash.model._cuda_time = time.perf_counter
    torch.manual_seed(seed)
    config = Qwen3Config(**{**raw, "initializer_range": 0.3})
    second = "DFlash2DraftModel" in raw["architectures"]
    kind = dflash.model.DFlash2DraftModel if second else dflash.model.DFlashDraftModel
    model = kind(config).to(dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "codebook" in name or "base_kernel" in name:
                weight.normal_(0, 0.7)
            elif name.endswith("norm.weight"):
                weight.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                weight.normal_(0, 0.3)
    return model


@dataclass
class TinyPair:
    """A random pair, ours and the oracle's view of the same weights."""

    raw: dict[str, Any]
    model: LlamaForCausalLM
    oracle: Any
    target: Target
    weights: DFlashWeights

    def config(self, **changes: Any) -> DrafterConfig:
        """The pair's own config, edited."""
        return DrafterConfig.from_json(self.raw).edited(**changes)

    def drafter(self, config: DrafterConfig | None = None) -> DFlashDrafter:
        """Our drafter in the loop."""
        return DFlashDrafter(self.weights, config or self.config(), self.target)

    def stack(self, config: DrafterConfig | None = None) -> DFlashStack:
        """Our drafter for replay."""
        return DFlashStack(self.weights, config or self.config(), self.target)


def tiny_pair(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> TinyPair:
    """A pair whose drafter has BASE's config with ``changes``."""
    raw = config_json(**changes)
    model, oracle = tiny_target(dtype, seed), tiny_oracle(raw, dtype, seed + 1)
    return TinyPair(raw, model, oracle, Target(model), DFlashWeights(checkpoint(oracle)))


def checkpoint(oracle: Any) -> dict[str, torch.Tensor]:
    """The oracle's tensors under the names its published checkpoints have: codebooks are bare there."""
    return {name.replace("codebook.weight", "codebook"): tensor for name, tensor in oracle.state_dict().items()}
