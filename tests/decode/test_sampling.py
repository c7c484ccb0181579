"""Speculative sampling leaves the target's distribution untouched, for both q rules; a wrong q does not."""

from __future__ import annotations

import math

import pytest
import torch

from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.verify import verify
from dflash_lab.drafters.protocol import Draft
from dflash_lab.errors import LabError

DRAWS = 20_000
VOCAB = 8


def chi_square_p(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Survival function of the chi-square statistic; cells expected below 5 are pooled."""
    keep = expected >= 5
    observed = torch.cat([counts[keep], counts[~keep].sum()[None]]).double()
    wanted = torch.cat([expected[keep], expected[~keep].sum()[None]]).double()
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    freedom = len(wanted) - 1
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0), torch.tensor(statistic / 2.0)))


def joint_counts(sampling: Sampling, logits_p, logits_q, wrong_q=False):
    """How often each (first, second) emitted pair occurs when one token is drafted before a bonus."""
    sampler = Sampler(sampling, "cpu")
    counts = torch.zeros(VOCAB, VOCAB)
    for _ in range(DRAWS):
        ids, probs = sampler.draft(logits_q)
        if wrong_q:
            probs = torch.full_like(logits_q, 1 / VOCAB)
        verdict = verify(Draft(ids, logits_q, probs), logits_p, sampler)
        first = int(verdict.choices[0])
        # After a rejection the second token is the next round's: drawn from the target's next row.
        second = int(verdict.choices[1]) if int(verdict.accepted) else int(sampler.choose(logits_p[1:])[0])
        counts[first, second] += 1
    return counts


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(7)
    return (
        torch.randn(2, VOCAB, generator=generator) * 1.5,
        torch.randn(1, VOCAB, generator=generator) * 1.5,
    )


@pytest.mark.parametrize("q_rule", ["drafter", "one-hot"])
@pytest.mark.parametrize("filters", [{}, {"top_k": 5, "top_p": 0.9}])
def test_emitted_pairs_follow_the_targets_distribution(rows, q_rule, filters):
    logits_p, logits_q = rows
    sampling = Sampling(temperature=0.8, seed=1, q_rule=q_rule, **filters)
    p = Sampler(sampling, "cpu").probs(logits_p)
    expected = (p[0][:, None] * p[1][None]).flatten() * DRAWS
    counts = joint_counts(sampling, logits_p, logits_q).flatten()
    assert counts[expected == 0].sum() == 0, "a filtered token was emitted"
    assert chi_square_p(counts, expected) > 0.001


def test_a_wrong_q_fails_the_same_test(rows):
    logits_p, logits_q = rows
    sampling = Sampling(temperature=0.8, seed=1)
    p = Sampler(sampling, "cpu").probs(logits_p)
    expected = (p[0][:, None] * p[1][None]).flatten() * DRAWS
    counts = joint_counts(sampling, logits_p, logits_q, wrong_q=True).flatten()
    assert chi_square_p(counts, expected) < 0.001


@pytest.mark.parametrize("q_rule", ["drafter", "one-hot"])
def test_acceptance_of_one_token_has_its_textbook_value(rows, q_rule):
    logits_p, logits_q = rows
    sampling = Sampling(temperature=0.8, seed=3, q_rule=q_rule)
    sampler = Sampler(sampling, "cpu")
    p, q = sampler.probs(logits_p)[0], sampler.probs(logits_q)[0]
    wanted = float(torch.minimum(p, q).sum()) if q_rule == "drafter" else float(p[q.argmax()])
    hits = 0
    for _ in range(DRAWS):
        ids, probs = sampler.draft(logits_q)
        hits += int(verify(Draft(ids, logits_q, probs), logits_p, sampler).accepted)
    assert abs(hits / DRAWS - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / DRAWS)


def test_identical_distributions_are_always_accepted(rows):
    logits_p, _ = rows
    sampler = Sampler(Sampling(temperature=1.0), "cpu")
    for _ in range(500):
        ids, probs = sampler.draft(logits_p[:1])
        assert int(verify(Draft(ids, logits_p[:1], probs), logits_p, sampler).accepted) == 1


def test_top_k_and_top_p_keep_what_they_say():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))
    assert (Sampler(Sampling(1.0, top_k=2), "cpu").probs(logits) > 0).tolist() == [[True, True, False, False]]
    kept = Sampler(Sampling(1.0, top_p=0.6), "cpu").probs(logits)
    assert torch.allclose(kept, torch.tensor([[2 / 3, 1 / 3, 0, 0]]))


def test_one_seed_gives_one_text(rows):
    logits_p, _ = rows
    draws = [Sampler(Sampling(1.0, seed=5), "cpu").choose(logits_p).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize(("field", "value"), [("temperature", -0.1), ("top_k", -1), ("top_p", 0.0), ("q_rule", "x")])
def test_bad_sampling_names_field_and_value(field, value):
    with pytest.raises(LabError, match=f"{field} is"):
        Sampling(**{"temperature": 1.0, field: value})
