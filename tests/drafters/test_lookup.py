"""Prompt lookup and an ordinary draft model: exact texts, what they draft, and transformers' assisted generation."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.target import Target
from dflash_lab.drafters.draft_model import DraftModelDrafter
from dflash_lab.drafters.lookup import LookupDrafter, NGrams
from dflash_lab.errors import LabError
from tests.decode.test_hybrid import hybrid_target
from tests.decode.test_sampling import chi_square_p
from tests.tiny import PROMPT, VOCAB, tiny_target

TOKENS, RUNS = 60, 400


def decode(target, drafter, k, tokens=TOKENS, **more):
    generation = run(target, drafter, PROMPT, Settings(k, tokens, **more))
    return list(generation), generation.trace()


def slow_lookup(text: list[int], k: int, longest: int) -> list[int]:
    """By definition: the longest ending that stands earlier too, its latest place, copied token by token."""
    for n in range(min(longest, len(text)), 0, -1):
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == text[-n:]:
                out = list(text)
                for i in range(k):
                    out.append(out[end + i])
                return out[len(text) :]
    return []


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        ([1, 2, 3, 4, 9, 2, 3], [4, 9, 2, 3]),
        ([1, 2, 3], []),
        ([5, 6, 5, 6, 5], [6, 5, 6, 5]),
        ([1, 7, 2, 7, 3, 7], [3, 7, 3, 7]),
    ],
)
def test_the_latest_continuation_is_drafted_and_goes_on_with_itself(text, draft):
    grams = NGrams()
    grams.extend(text)
    assert grams.draft(4) == draft


@pytest.mark.parametrize("longest", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 4])
def test_every_lookup_of_the_loop_equals_the_slow_definition(longest, k):
    target = Target(tiny_target())
    rounds, trace = decode(target, LookupDrafter(longest), k)
    ids = [*PROMPT, *trace.output_ids]
    for r in rounds:
        assert list(r.drafted) == slow_lookup(ids[: r.anchor_position + 1], k, longest)
    assert any(r.accepted for r in rounds) and trace.output_ids == decode(target, None, 0)[1].output_ids


def test_a_round_without_a_match_is_a_plain_step():
    target = Target(tiny_target(seed=1))
    generation = run(target, LookupDrafter(), [3], Settings(4, 12))
    first = next(iter(generation))
    assert first.drafted == () and len(first.emitted) == 1


def test_ngrams_of_no_tokens_are_refused():
    with pytest.raises(LabError, match="longest n-gram has 0 tokens"):
        LookupDrafter(0)


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_target_as_its_own_draft_model_is_accepted_whole(k, lean):
    target = Target(tiny_target(), lean=lean)
    rounds, trace = decode(target, DraftModelDrafter(Target(tiny_target(), lean=lean), VOCAB), k)
    assert trace.output_ids == decode(target, None, 0)[1].output_ids
    assert all(r.accepted == k for r in rounds if r.end == "none")


def fresh_draft(model: Target, ids: list[int], k: int) -> list[int]:
    text = list(ids)
    for _ in range(k):
        text.append(int(model.logits_after(text).argmax()))
    return text[len(ids) :]


def nearly_the_target(noise: float = 0.05):
    """The tiny target with shaken weights: most of what it drafts is accepted."""
    model = tiny_target()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(noise * weight.std() * torch.randn_like(weight) if weight.dim() > 1 else 0)
    return model


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("make", [nearly_the_target, lambda: tiny_target(seed=5)])
def test_every_draft_of_a_model_equals_one_without_a_cache(k, make):
    target, small = Target(tiny_target()), Target(make())
    rounds, trace = decode(target, DraftModelDrafter(small, VOCAB), k)
    assert trace.output_ids == decode(target, None, 0)[1].output_ids
    ids = [*PROMPT, *trace.output_ids]
    for r in rounds:
        assert list(r.drafted) == fresh_draft(small, ids[: r.anchor_position + 1], k)
    assert {r.accepted for r in rounds} >= {0, 1}, "rejections and acceptances, or the cache was not tested"


@pytest.mark.parametrize("k", [2, 4])
def test_text_equals_transformers_assisted_generation(k):
    model, small = tiny_target(), nearly_the_target()
    _, trace = decode(Target(tiny_target()), DraftModelDrafter(Target(nearly_the_target()), VOCAB), k)
    model.generation_config.eos_token_id = None
    small.generation_config = GenerationConfig(
        num_assistant_tokens=k, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )
    out = model.generate(
        torch.tensor([PROMPT]), assistant_model=small, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0
    )
    assert tuple(out[0, len(PROMPT) :].tolist()) == trace.output_ids


def drawn(target, make, sampling: dict, runs: int = RUNS) -> torch.Tensor:
    counts = torch.zeros(VOCAB)
    for seed in range(runs):
        _, trace = decode(target, make(), 2, tokens=3, sampling=Sampling(seed=seed, **sampling))
        counts[trace.output_ids[2]] += 1
    return counts


@pytest.mark.parametrize("method", ["lookup", "draft model"])
def test_sampled_text_has_the_targets_distribution(method):
    target, small = Target(tiny_target()), Target(tiny_target(seed=5))

    def make():
        return LookupDrafter(1) if method == "lookup" else DraftModelDrafter(small, VOCAB)

    sampling = {"temperature": 1.5}
    sampler = Sampler(Sampling(**sampling), "cpu")
    expected = torch.zeros(VOCAB, dtype=torch.float64)
    first = sampler.probs(target.logits_after(PROMPT)[None])[0]
    for a in range(VOCAB):
        second = sampler.probs(target.logits_after([*PROMPT, a])[None])[0]
        for b in range(VOCAB):
            third = sampler.probs(target.logits_after([*PROMPT, a, b])[None])[0]
            expected += first[a] * second[b] * third
    assert chi_square_p(drawn(target, make, sampling), RUNS * expected) > 1e-3


def test_a_smaller_padded_vocabulary_is_filled_up():
    drafter = DraftModelDrafter(Target(tiny_target(seed=5)), VOCAB + 3)
    logits = drafter._in_vocabulary(torch.zeros(1, VOCAB))
    assert logits.shape == (1, VOCAB + 3) and torch.isinf(logits[0, VOCAB:]).all()


def test_a_draft_model_that_cannot_forget_or_is_too_short_is_refused():
    with pytest.raises(LabError, match="cannot forget rejected tokens"):
        DraftModelDrafter(hybrid_target(torch.float64), VOCAB)
    drafter = DraftModelDrafter(Target(tiny_target()), VOCAB)
    with pytest.raises(LabError, match="the draft model was built for 2048"):
        drafter.start(2049)
