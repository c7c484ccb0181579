"""Public curves point at the suspects their issues ended with; a healthy curve points at nobody."""

from __future__ import annotations

import pytest

from dflash_lab.diagnose.signature import late_share, match, observe, repeated
from dflash_lab.trace import Round, Summary, Trace


def summary(rates, drafts=1000, source="vllm"):
    at = tuple(round(rate * drafts) for rate in rates)
    return Summary(source, "", drafts, drafts * len(rates), sum(at), at, counted=drafts, counted_accepted=sum(at))


def names(rates, **known):
    return [m.name for m in match(observe(summary(rates), **known))]


def suspects(rates, **known):
    return {s for m in match(observe(summary(rates), **known)) for s in m.suspects}


@pytest.mark.parametrize(
    ("source", "rates", "suspect"),
    [
        ("vllm#50170: 1.2% of drafts accepted", [0.03, 0.005, 0, 0, 0], "target_layer_ids"),
        ("the story: 11% at position 0", [0.11, 0.01, 0, 0, 0], "mask_token_id"),
        ("ik_llama#2021: sliding layers run as full", [0.600, 0.385, 0.215, 0.108, 0.062], "layer_types"),
        ("taps: half at position 0, nothing after four", [0.40, 0.15, 0.04, 0.01, 0], "target_layer_ids"),
        ("a degenerate loop", [1.0, 0.99, 0.98, 0.97, 0.97], "repetition"),
    ],
)
def test_public_curves_name_their_cause_among_the_suspects(source, rates, suspect):
    assert suspect in suspects(rates), source


def test_a_healthy_curve_has_no_signature():
    rates, reached = [], 1.0
    for conditional in (0.854, 0.803, 0.78, 0.76, 0.745, 0.735, 0.729):  # Qwen3-4B on GSM8K
        reached *= conditional
        rates.append(reached)
    assert names(rates) == []


def test_a_small_loss_shows_only_against_what_the_pair_should_reach():
    healthy, shifted = [0.8, 0.68, 0.56, 0.47, 0.4], [0.79, 0.66, 0.54, 0.45, 0.38]
    assert names(shifted) == []
    length = 1 + sum(healthy)
    assert names(shifted, expected=length) == ["a little lower everywhere"]


def test_slow_although_accepted_points_at_k():
    rates = [0.8, 0.68, 0.56, 0.47, 0.4]
    assert "K too large" in suspects(rates, tok_s=18.0, plain_tok_s=30.0)
    assert names(rates, tok_s=60.0, plain_tok_s=30.0) == []


def test_too_few_rounds_have_no_shape():
    assert observe(summary([0.5], drafts=10)) is None and match(None) == []


def trace(accepted, emitted=(1, 2)):
    rounds = [Round(1, 10 * n, 4, (1, 2, 3), (1, 2, 3, 4), a, emitted, 2, "none") for n, a in enumerate(accepted)]
    return Trace((5,), 1, tuple(rounds), 3)


def test_late_share_compares_the_later_half_of_the_contexts():
    assert late_share([trace([3] * 30 + [1] * 30)]) == pytest.approx(2 / 4)
    assert late_share([trace([3] * 10)]) is None


def test_repeated_counts_tokens_inside_earlier_runs():
    assert repeated([trace([1] * 40, emitted=(7,))]) > 0.5
    distinct = Trace(
        (5,), 0, tuple(Round(0, n, 4, (1,), (1,), 1, (2 * n + 1, 2 * n + 2), 2, "none") for n in range(40)), 3
    )
    assert repeated([distinct]) == 0
