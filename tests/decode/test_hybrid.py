"""A target with linear-attention layers: states that cannot be rewound are restored and the kept tokens run again."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashWeights
from tests.tiny import HIDDEN, LAYERS, PROMPT, VOCAB, config_json, tiny_oracle


def hybrid_target(dtype) -> Target:
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        layer_types=["linear_attention", "linear_attention", "full_attention"] * 2,
        max_position_embeddings=512,
        initializer_range=0.5,
    )
    return Target(Qwen3_5ForCausalLM(config).to(dtype).eval())


@pytest.mark.parametrize("k", [1, 3, 7])
def test_hybrid_target_is_lossless_in_float32(k):
    target = hybrid_target(torch.float32)
    raw = config_json()
    drafter = DFlashDrafter(
        DFlashWeights(tiny_oracle(raw, torch.float32).state_dict()), DrafterConfig.from_json(raw), target
    )
    speculative = run(target, drafter, PROMPT, Settings(k=k, max_new_tokens=80))
    rounds = list(speculative)
    plain = run(target, None, PROMPT, Settings(k=0, max_new_tokens=80))
    list(plain)
    assert compare(speculative.trace(), plain.trace(), target).verdict == "equal"
    rejected = [r for r in rounds if r.accepted < k]
    assert rejected and all(r.rewind_s > 0 for r in rejected)
    assert all(r.rewind_s == 0 for r in rounds if r.accepted == k)
    assert len(set(speculative.trace().output_ids)) > 2, "a constant text would hide a wrong state"
