"""The published configs, the targets they belong to, and weights' shapes that fit them."""

import json
from functools import cache
from typing import Any

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.config.shapes import expected_shapes
from dflash_lab.paths import SAMPLES

# name -> what the target's own config.json says
TARGETS: dict[str, dict[str, Any]] = {
    "Qwen3-4B-DFlash-b16": {"num_hidden_layers": 36, "eos_token_id": 151645},
    "Qwen3-8B-DFlash-b16": {"num_hidden_layers": 36, "eos_token_id": 151645},
    "Qwen3.5-4B-DFlash": {"num_hidden_layers": 32, "eos_token_id": 248044},
    "Qwen3.5-27B-DFlash": {"num_hidden_layers": 64, "eos_token_id": 248044},
    "Qwen3.6-27B-DFlash": {"num_hidden_layers": 64, "eos_token_id": 248044},
    "Qwen3.6-35B-A3B-DFlash": {"num_hidden_layers": 40, "eos_token_id": 248044},
    "Qwen3.5-122B-A10B-DFlash": {"num_hidden_layers": 48, "eos_token_id": 248044},
    "Qwen3.5-397B-A17B-DFlash": {"num_hidden_layers": 60, "eos_token_id": 248044},
    "gpt-oss-20b-DFlash": {"num_hidden_layers": 24, "eos_token_id": 200002},
    "gpt-oss-120b-DFlash": {"num_hidden_layers": 36, "eos_token_id": 200002},
    "LLaMA3.1-8B-Instruct-DFlash-UltraChat": {"num_hidden_layers": 32, "eos_token_id": [128001, 128008, 128009]},
    "gemma-4-31B-it-DFlash": {"num_hidden_layers": 60, "eos_token_id": 1},
    "Kimi-K2.5-DFlash": {"num_hidden_layers": 61, "eos_token_id": 163586},
    "Qwen3.8-27B-DFlash2": {"num_hidden_layers": 64, "eos_token_id": 248044},
    "Muse-Glimmer-30B-DFlash2": {"num_hidden_layers": 52, "eos_token_id": 200001},
    "MiMo-V2.5-Pro-FP4-DFlash": {"num_hidden_layers": 70, "eos_token_id": 151645},
    "Qwen3.6-35B-A3B-speculator.dflash": {"num_hidden_layers": 40, "eos_token_id": 248044},
}
NAMES = tuple(TARGETS)


def raw(name: str) -> dict[str, Any]:
    """The drafter's config.json, fresh."""
    return json.loads(_text(name))


@cache
def _text(name: str) -> str:
    return (SAMPLES / "drafters" / name / "config.json").read_text()


def target(name: str) -> dict[str, Any]:
    """The target's config.json: sizes and RoPE shared with the drafter."""
    config = DrafterConfig.from_json(raw(name))
    return TARGETS[name] | {
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "rope_parameters": dict(config.rope_parameters),
    }


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint that fits the config."""
    config = DrafterConfig.from_json(raw(name))
    return {tensor: shape for tensor, shape, _ in expected_shapes(config, config.hidden_size)}
