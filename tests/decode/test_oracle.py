"""The ``dflash`` package's loop and ours: the same rounds and the same text, on random pairs and the demo pair."""

from __future__ import annotations

import pytest
import torch

from dflash_lab.decode.loop import Settings, run
from tests.tiny import PROMPT, VARIANTS, tiny_pair


def oracle_rounds(pair, prompt, k, tokens):
    """(text, emitted tokens a round) of the package, run long enough that no block of ours is one it shrinks."""
    from dflash.model import dflash_generate

    ids = torch.tensor([prompt])
    out = dflash_generate(
        pair.oracle, pair.model, ids, tokens + k + 2, stop_token_ids=None, block_size=1 + k, return_stats=True
    )
    return out.output_ids[0, len(prompt) :].tolist(), out.acceptance_lengths


@pytest.mark.parametrize("k", [1, 3, 7, 9])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_equal_the_packages_on_random_pairs(variant, k):
    accepted = 0
    for seed in range(3):
        pair = tiny_pair(seed=seed * 10, **VARIANTS[variant])
        generation = run(pair.target, pair.drafter(), PROMPT, Settings(k=k, max_new_tokens=60))
        ours = [r.accepted + 1 for r in generation]
        text, theirs = oracle_rounds(pair, PROMPT, k, 60)
        assert list(generation.trace().output_ids) == text[:60]
        assert ours[:-1] == theirs[: len(ours) - 1]
        accepted += sum(ours[:-1]) - len(ours[:-1])
    assert accepted > 0, "nothing was accepted: the comparison shows nothing"
