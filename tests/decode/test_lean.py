"""The lean step gives transformers' own logits and taps, for each model family it covers, and leaves others alone."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dflash_lab.decode.target import EMBEDDING_TAP, Target

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE)),
    "llama, biases": (LlamaForCausalLM, LlamaConfig(**SHAPE, attention_bias=True)),
    "llama, yarn": (LlamaForCausalLM, LlamaConfig(**SHAPE, rope_parameters=YARN)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=16)),
    "tied": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True)),
}
TAPS = (EMBEDDING_TAP, 0, 2, 3)


@pytest.mark.parametrize("name", MODELS)
def test_lean_step_equals_the_module(name):
    kind, config = MODELS[name]
    torch.manual_seed(0)
    model = kind(config).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.normal_(0, 0.3)
    general, lean = Target(model, lean=False), Target(model)
    assert lean.lean is not None
    ids = torch.randint(0, 50, (30,), generator=torch.Generator().manual_seed(1))
    runs = [target.open(64, TAPS) for target in (general, lean)]
    with torch.inference_mode():
        for run in runs:
            run.forward(ids[:9])
        for low, high, kept in ((9, 10, 1), (10, 16, 6), (16, 24, 3), (19, 27, 8)):
            block = ids[low:high]
            (want, want_taps), (got, got_taps) = (run.verify(block) for run in runs)
            assert torch.allclose(want, got, atol=1e-4)
            for a, b in zip(want_taps, got_taps, strict=True):
                assert torch.allclose(a, b, atol=1e-4)
            for run in runs:
                run.keep(block, range(kept))


def test_a_fused_model_still_is_the_same_model():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    ids = torch.arange(10)[None]
    with torch.inference_mode():
        before = model(ids).logits
        size = sum(p.untyped_storage().nbytes() for p in model.parameters())
        Target(model)
        assert torch.allclose(model(ids).logits, before, atol=1e-6)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    assert sum(storages.values()) <= size, "weights are held once"


def test_other_models_take_the_general_path():
    sliding = Qwen3Config(**SHAPE, head_dim=8, use_sliding_window=True, sliding_window=8, max_window_layers=0)
    assert Target(Qwen3ForCausalLM(sliding)).lean is None
    assert Target(LlamaForCausalLM(LlamaConfig(**SHAPE, hidden_act="gelu"))).lean is None
