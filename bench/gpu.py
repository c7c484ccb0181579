"""A check for a machine with a GPU: a small random Qwen3 pair through the loop, lossless in float32, tok/s in bfloat16.

    python -m bench.gpu

Without a GPU it says so in one line and ends. Nothing else depends on it. A random drafter is almost never right, so
tok/s shows the loop's overhead on the device, not a speed-up.
"""

from __future__ import annotations

import json

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.config.shapes import expected_shapes
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashWeights
from dflash_lab.trace import Trace

TOKENS, K, LAYERS = 256, 5, 8
SIZES = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
}
DRAFTER = SIZES | {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_target_layers": LAYERS,
    "layer_types": ["full_attention"] * 2,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
}


def one(device: str, dtype: torch.dtype, k: int, tokens: int = TOKENS) -> tuple[Trace, Target]:
    """One greedy run of the random pair; the same weights every time."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=LAYERS, initializer_range=0.1, **SIZES))
    target = Target(model.to(device, dtype).eval().requires_grad_(False))
    config = DrafterConfig.from_json(DRAFTER)
    tensors = {
        name: torch.ones(shape) if name.endswith("norm.weight") else 0.05 * torch.randn(shape)
        for name, shape, _ in expected_shapes(config, SIZES["hidden_size"])
    }
    weights = DFlashWeights({name: tensor.to(device, dtype) for name, tensor in tensors.items()})
    generation = run(
        target, DFlashDrafter(weights, config, target) if k else None, list(range(5, 25)), Settings(k, tokens)
    )
    list(generation)
    return generation.trace(), target


def main() -> None:
    """Run and print."""
    if not torch.cuda.is_available():
        print(json.dumps({"gpu": None, "note": "there is no GPU here: nothing was run"}))
        return
    (fast, target), (plain, _) = one("cuda", torch.float32, K), one("cuda", torch.float32, 0)
    one("cuda", torch.bfloat16, K)  # warm
    speculative, alone = one("cuda", torch.bfloat16, K)[0], one("cuda", torch.bfloat16, 0)[0]
    result = {
        "gpu": torch.cuda.get_device_name(),
        "lossless": compare(fast, plain, target).verdict != "different",
        "tok_s": speculative.tokens_per_second,
        "plain_tok_s": alone.tokens_per_second,
        "rounds": len(speculative.rounds),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
