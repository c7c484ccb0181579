"""The expectation under sampling agrees with thousands of real rounds, for both q rules."""

from __future__ import annotations

import math

import pytest

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampling
from dflash_lab.expectation import expected
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from dflash_lab.trace import summarise
from tests.tiny import PROMPT, VARIANTS, tiny_pair

K, TOKENS, TEXTS = 3, 150, 24
RECORDED = 12


@pytest.mark.slow
@pytest.mark.parametrize("q_rule", ["drafter", "one-hot"])
def test_expectation_agrees_with_two_thousand_real_rounds(q_rule):
    pair = tiny_pair(seed=4, **VARIANTS["sliding"])
    real, recordings = [], []
    for seed in range(TEXTS):
        sampling = Sampling(temperature=1.2, seed=seed, q_rule=q_rule)
        generation = run(pair.target, pair.drafter(), PROMPT, Settings(K, TOKENS, sampling=sampling))
        list(generation)
        real.append(generation.trace())
        if seed < RECORDED:
            recordings.append(record(pair.target, PROMPT, TOKENS, frozenset(), sampling=sampling))
    summary = summarise(real)
    assert summary.counted > 2000
    result = expected(Replay(recordings), pair.stack(), pair.target, Sampling(1.2, q_rule=q_rule), K)
    assert result.q_rule == q_rule and result.rounds > 800
    # Both sides are estimates of about the same precision: four standard errors of their difference.
    error = 4 * math.sqrt(2) * summary.spread / math.sqrt(summary.counted)
    assert result.acceptance_length == pytest.approx(summary.acceptance_length, abs=error)
    for rate, real_rate in zip(result.per_position, summary.per_position, strict=True):
        p = real_rate.value
        assert rate == pytest.approx(p, abs=4 * math.sqrt(2 * p * (1 - p) / real_rate.total) + 1e-9)
