"""Checkpoints of the speculators library: our forward pass against its own, and the loop and replay on them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_lab.config.schema import ConfigError, DrafterConfig, weight_shapes
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashStack, DFlashWeights
from dflash_lab.drafters.tree import TreeDrafter
from dflash_lab.expectation import expected
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from dflash_lab.sources import read_config
from dflash_lab.trace import summarise
from dflash_lab.tree_replay import replay_trees
from tests.decode.test_sampling import chi_square_p
from tests.speculators_oracle import BLOCK, DRAFT_IDS, block_logits, of_target, oracle, save
from tests.test_replay import PROMPTS, facts
from tests.tiny import PROMPT, VOCAB, tiny_target

SLIDING = {"use_sliding_window": True, "sliding_window": 64, "layer_types": ["sliding_attention"] * 3}
MIXED = SLIDING | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
NEAR = MIXED | {"sliding_window": 5}
TEXT = [*PROMPT, *range(VOCAB), *reversed(range(VOCAB)), 5, 2, 8]

VARIANTS = {
    "full": {},
    "sliding": {"stack": SLIDING},
    "mixed": {"stack": MIXED},
    "mixed, not causal": {"stack": MIXED, "sliding_window_non_causal": True},
    "reduced": {"reduced": True},
    "from the anchor": {"sample_from_anchor": True},
    "all of it": {
        "stack": MIXED,
        "reduced": True,
        "sample_from_anchor": True,
        "sliding_window_non_causal": True,
    },
    "DFlash 2": {"stack": MIXED, "second": True},
    "DFlash 2, causal, from the anchor": {
        "stack": MIXED,
        "second": True,
        "sample_from_anchor": True,
        "sliding_window_non_causal": False,
    },
}


class Drafter:
    """A saved checkpoint and what was saved: ours is read from the files alone."""

    def __init__(self, folder, seed=0, **options):
        self.target = Target(tiny_target(seed=seed))
        self.oracle = of_target(oracle(seed=seed + 1, **options), self.target)
        save(self.oracle, folder)
        self.folder = folder
        self.tensors = load_file(folder / "model.safetensors")
        self.config = DrafterConfig.from_json(read_config(folder))

    def stack(self, config=None):
        return DFlashStack(DFlashWeights(self.tensors), config or self.config, self.target)

    def drafter(self):
        return DFlashDrafter(DFlashWeights(self.tensors), self.config, self.target)

    def decode(self, k, tokens=40, prompt=PROMPT, **more):
        generation = run(self.target, self.drafter() if k else None, prompt, Settings(k, tokens, **more))
        list(generation)
        return generation.trace()


@pytest.fixture
def made(tmp_path):
    return lambda **options: Drafter(tmp_path, **options)


@torch.inference_mode()
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_the_librarys_own_forward_pass(made, variant):
    d = made(**VARIANTS[variant])
    k, silent = d.config.max_drafted, BLOCK - d.config.max_drafted
    assert silent == (0 if VARIANTS[variant].get("sample_from_anchor") else 1)
    for anchor in (1, 9, 17):
        _, theirs = block_logits(d.oracle, d.target, TEXT, anchor)
        drafter, run_ = d.drafter(), d.target.open(40, d.config.taps)
        before = torch.tensor(TEXT[:anchor])
        drafter.start(40)
        drafter.commit(before, run_.forward(before)[1])
        ours = drafter.logits(torch.tensor([TEXT[anchor]]), k)
        ids = DRAFT_IDS if VARIANTS[variant].get("reduced") else list(range(VOCAB))
        torch.testing.assert_close(ours[:, ids], theirs[silent:], atol=1e-4, rtol=0)  # its norms run in float32
        assert int(ours.isfinite().sum()) == k * len(ids)


def test_at_the_window_the_two_differ_as_known(made):
    d = made(stack=NEAR)
    anchor = 17
    _, theirs = block_logits(d.oracle, d.target, TEXT, anchor)
    drafter, run_ = d.drafter(), d.target.open(40, d.config.taps)
    before = torch.tensor(TEXT[:anchor])
    drafter.start(40)
    drafter.commit(before, run_.forward(before)[1])
    ours = drafter.logits(torch.tensor([TEXT[anchor]]), 3)
    assert not torch.allclose(ours, theirs[1:4], atol=1e-2)


@torch.inference_mode()
def test_the_selector_scores_as_the_librarys(made):
    d = made(**VARIANTS["DFlash 2, causal, from the anchor"])
    hidden, logits = block_logits(d.oracle, d.target, TEXT, 9)
    previous = torch.tensor(TEXT[9 : 9 + BLOCK])
    ids, scores = d.oracle.candidate_selector.select(logits, hidden, previous)
    ours = d.stack().logits_given(hidden, previous)
    torch.testing.assert_close(ours.gather(-1, ids), scores, atol=1e-4, rtol=0)
    assert int(ours.isfinite().sum()) == ids.numel()


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_text_is_the_targets_own(made, variant):
    d, accepted = made(**VARIANTS[variant]), 0
    plain = d.decode(0).output_ids
    for k in (1, 3, BLOCK):
        trace = d.decode(k)
        assert trace.output_ids == plain
        assert all(len(r.drafted) == k for r in trace.rounds)
        if VARIANTS[variant].get("reduced"):
            assert all(set(r.drafted) <= set(DRAFT_IDS) for r in trace.rounds)
        accepted += sum(r.accepted for r in trace.rounds)
    assert accepted > 0, "nothing was accepted: the comparison shows nothing"


@pytest.mark.parametrize("variant", ["reduced", "from the anchor", "all of it", "DFlash 2, causal, from the anchor"])
def test_replay_equals_the_loop(made, variant):
    d = made(seed=3, **VARIANTS[variant])
    replay = Replay([record(d.target, p, 40, frozenset()) for p in PROMPTS])
    for k in (1, BLOCK):
        looped = [facts(d.decode(k, prompt=p)) for p in PROMPTS]
        assert [facts(t) for t in replay.lockstep(d.stack(), k)] == looped
        assert [facts(t) for t in replay.run(d.stack(), k)] == looped


def test_trees_over_a_reduced_vocabulary_are_exact_and_replayed(made):
    d = made(seed=3, **VARIANTS["all of it"])
    replay = Replay([record(d.target, p, 40, frozenset()) for p in PROMPTS])
    budgets = (1, 8, 60)  # 60 reaches past the seven tokens of the first place
    replayed = replay_trees(replay, d.stack(), BLOCK, budgets)
    for budget in budgets:
        for prompt, ours in zip(PROMPTS, replayed[budget], strict=True):
            looped = run(d.target, TreeDrafter(d.drafter(), BLOCK), prompt, Settings(budget, 40))
            list(looped)
            assert [r.emitted for r in ours.rounds] == [r.emitted for r in looped.trace().rounds]
            assert looped.trace().output_ids == d.decode(0, prompt=prompt).output_ids


@pytest.mark.parametrize("q_rule", ["drafter", "one-hot"])
def test_sampled_text_has_the_targets_distribution(made, q_rule):
    d, runs = made(**VARIANTS["all of it"]), 400
    sampling = {"temperature": 1.5, "q_rule": q_rule}
    sampler = Sampler(Sampling(**sampling), "cpu")
    wanted = torch.zeros(VOCAB, dtype=torch.float64)
    first = sampler.probs(d.target.logits_after(PROMPT)[None])[0]
    for a in range(VOCAB):
        second = sampler.probs(d.target.logits_after([*PROMPT, a])[None])[0]
        for b in range(VOCAB):
            wanted += first[a] * second[b] * sampler.probs(d.target.logits_after([*PROMPT, a, b])[None])[0]
    counts = torch.zeros(VOCAB)
    for seed in range(runs):
        counts[d.decode(2, tokens=3, sampling=Sampling(seed=seed, **sampling)).output_ids[2]] += 1
    assert chi_square_p(counts, runs * wanted) > 1e-3
    outside = [i for i in range(VOCAB) if i not in DRAFT_IDS]
    assert counts[outside].sum() > 0, "the target alone can emit what the drafter does not know"


def test_the_expectation_under_sampling_agrees_with_real_rounds(made):
    d = made(seed=4, **VARIANTS["all of it"])
    real, texts = [], []
    for seed in range(6):
        sampling = Sampling(temperature=1.2, seed=seed)
        real.append(d.decode(3, tokens=120, sampling=sampling))
        texts.append(record(d.target, PROMPT, 120, frozenset(), sampling=sampling))
    summary = summarise(real)
    result = expected(Replay(texts), d.stack(), d.target, Sampling(1.2), 3)
    error = 4 * (2 / summary.counted) ** 0.5 * summary.spread
    assert result.acceptance_length == pytest.approx(summary.acceptance_length, abs=error)


def test_evidence_of_a_token_outside_the_draft_vocabulary_is_finite(made):
    d = made(seed=3, reduced=True)
    trace = d.decode(3, tokens=120)
    missed = [r for r in trace.rounds if any(c not in DRAFT_IDS for c in r.choices[:3])]
    assert missed
    for r in trace.rounds:
        assert all(0 <= p <= 1 for p in (*r.draft_probs, *r.target_probs))
        assert all(0 <= rank <= len(DRAFT_IDS) for rank in r.ranks)


@pytest.mark.parametrize("missing", ["d2t", "lm_head.weight"])
def test_a_reduced_vocabulary_needs_its_map_and_its_head(made, missing):
    d = made(reduced=True)
    tensors = {name: t for name, t in d.tensors.items() if name != missing}
    save_file(tensors, d.folder / "model.safetensors")
    assert missing not in weight_shapes(d.folder)
    d.tensors = tensors
    with pytest.raises(ConfigError, match=f"hold no {missing} .*draft_vocab_size = 7 asks for"):
        d.stack()


def test_a_map_into_a_larger_vocabulary_is_refused(made):
    d = made(reduced=True)
    d.tensors["d2t"] = d.tensors["d2t"] + 4
    with pytest.raises(ConfigError, match="d2t names token 14, and the target has 11 tokens"):
        d.stack()
