"""DFlash 2 against the ``dflash`` package's own model: the same rounds, text, logits and distributions; replay too."""

from __future__ import annotations

import pytest
import torch

from dflash_lab.config.schema import ConfigError
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.drafters.dflash import DFlashWeights
from dflash_lab.errors import LabError
from dflash_lab.expectation import expected
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from dflash_lab.trace import summarise
from tests.decode.test_oracle import oracle_rounds
from tests.test_replay import PROMPTS, agree_where_known, facts, loop_trace, recordings
from tests.tiny import DFLASH2, MIXED, PROMPT, SLIDING, checkpoint, tiny_pair

VARIANTS = {
    "sliding, not causal": {**SLIDING, "is_causal": False},
    "mixed": MIXED,
    "one tap back": {"conv_kernel_size": 2, "selector_top_k": 1},
    "capped": {"final_logit_softcapping": 1.5, "output_multiplier": 0.5},
}
K = 5


def dflash2_pair(seed=0, **changes):
    return tiny_pair(seed=seed, **{**DFLASH2, **changes})


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_and_text_equal_the_packages(variant, k):
    accepted = 0
    for seed in range(2):
        pair = dflash2_pair(seed * 10, **VARIANTS[variant])
        generation = run(pair.target, pair.drafter(), PROMPT, Settings(k=k, max_new_tokens=40))
        ours = [r.accepted + 1 for r in generation]
        text, theirs = oracle_rounds(pair, PROMPT, k, 40)
        assert list(generation.trace().output_ids) == text[:40]
        assert ours[:-1] == theirs[: len(ours) - 1]
        accepted += sum(ours[:-1]) - len(ours[:-1])
    assert accepted > 0, "nothing was accepted: the comparison shows nothing"


def oracle_draft(pair, temperature):
    """(tokens, candidates, q) of the package's model behind the prompt; q is None when greedy."""
    config, target, oracle = pair.config(), pair.target, pair.oracle
    ids = torch.tensor([*PROMPT, *[config.mask_token_id] * K])
    states = target.model(torch.tensor([PROMPT[:-1]]), output_hidden_states=True).hidden_states
    context = torch.cat([states[tap + 1] for tap in config.taps], dim=-1)
    rows = target.embed(ids[len(PROMPT) - 1 :])[None]
    hidden = oracle(target_hidden=context, noise_embedding=rows, position_ids=torch.arange(len(ids))[None])[:, 1:]
    return oracle.propose(hidden, torch.tensor([PROMPT[-1]]), target.head, temperature)


def our_draft(pair, sampling):
    drafter, run_ = pair.drafter(), pair.target.open(40, pair.config().taps)
    prompt = torch.tensor(PROMPT[:-1])
    drafter.start(40)
    drafter.commit(prompt, run_.forward(prompt)[1])
    return drafter.propose(torch.tensor([PROMPT[-1]]), K, Sampler(sampling, "cpu"))


@torch.inference_mode()
def test_q_equals_the_packages_along_the_same_choices(monkeypatch):
    import dflash.model

    pair = dflash2_pair(3, **SLIDING, is_causal=False)
    ours = our_draft(pair, Sampling(temperature=0.8, seed=1))
    # The package's random choices are replaced by ours: q at a slot depends on the choice before it.
    wanted = iter(ours.ids.tolist())
    choices = oracle_draft(pair, 0.0)[1][0]
    slots = iter(range(K))
    monkeypatch.setattr(
        dflash.model, "_sample_probs", lambda probs: (choices[next(slots)] == next(wanted)).nonzero()[:, 0]
    )
    ids, candidates, q = oracle_draft(pair, 0.8)
    assert ids[0].tolist() == ours.ids.tolist()
    theirs = torch.zeros_like(ours.probs).scatter_(-1, candidates[0], q[0].to(ours.probs.dtype))
    torch.testing.assert_close(ours.probs, theirs, atol=1e-6, rtol=0)  # the package's softmax is in float32
    assert (ours.logits.isfinite().sum(-1) == DFLASH2["selector_top_k"]).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_replay_equals_the_loop(variant):
    pair = dflash2_pair(3, **VARIANTS[variant])
    replay = Replay(recordings(pair))
    for k in (1, 6):
        looped = [loop_trace(pair, p, None, k) for p in PROMPTS]
        for ours, theirs in zip(replay.lockstep(pair.stack(), k), looped, strict=True):
            assert facts(ours) == facts(theirs) and agree_where_known(ours, theirs)


def test_one_pass_over_all_anchors_serves_every_k_when_causal():
    pair = dflash2_pair(5, **SLIDING)
    swept = Replay(recordings(pair)).sweep(pair.stack(), [1, 3, 8])
    for k, traces in swept.items():
        assert [facts(t) for t in traces] == [facts(loop_trace(pair, p, None, k)) for p in PROMPTS]


def test_without_the_class_name_it_runs_as_the_first_dflash():
    second, first = dflash2_pair(3), tiny_pair(seed=3)
    plain = {name: t for name, t in checkpoint(second.oracle).items() if name in first.weights.shapes}
    first.weights = DFlashWeights(plain)
    replay = Replay(recordings(second))
    unnamed = replay.lockstep(second.stack(second.config(architectures=["DFlashDraftModel"])), K)
    assert unnamed == replay.lockstep(first.stack(), K)
    assert unnamed != replay.lockstep(second.stack(), K)


def test_the_expectation_under_sampling_agrees_with_real_rounds():
    pair = dflash2_pair(4, **SLIDING)
    real, texts = [], []
    for seed in range(6):
        sampling = Sampling(temperature=1.2, seed=seed)
        generation = run(pair.target, pair.drafter(), PROMPT, Settings(3, 120, sampling=sampling))
        list(generation)
        real.append(generation.trace())
        texts.append(record(pair.target, PROMPT, 120, frozenset(), sampling=sampling))
    summary = summarise(real)
    result = expected(Replay(texts), pair.stack(), pair.target, Sampling(1.2), 3)
    error = 4 * (2 / summary.counted) ** 0.5 * summary.spread
    assert result.acceptance_length == pytest.approx(summary.acceptance_length, abs=error)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selector_rank": None}, "DFlash 2 needs selector_rank"),
        ({"conv_group_size": 5}, "conv_group_size 5 does not divide hidden_size 32"),
        ({"selector_top_k": 12}, "selector_top_k 12 is more than the vocabulary's 11 tokens"),
        ({"selector_rank": 7}, r"hidden_projection.weight is \[6, 32\] in the weights and \[7, 32\] by the config"),
        ({"vocab_size": 12}, r"predecessor_codebook is \[11, 6\] in the weights and \[12, 6\] by the config"),
        ({"conv_kernel_size": 2}, r"base_kernel is \[2, 3, 32\] in the weights and \[2, 2, 32\] by the config"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(changes, message):
    pair = dflash2_pair()
    with pytest.raises(ConfigError, match=message):
        pair.stack(pair.config(**changes))


@pytest.mark.parametrize("missing", ["layers.1.mlp_conv.kernel_projection.weight", "layers.0.self_attn.q_norm.weight"])
def test_a_missing_tensor_is_named(missing):
    tensors = checkpoint(dflash2_pair().oracle)
    del tensors[missing]
    with pytest.raises(LabError, match=f"hold no {missing}"):
        DFlashWeights(tensors)
