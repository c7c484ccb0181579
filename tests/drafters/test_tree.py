"""DDTree: the tree itself, its text against the target alone, what it accepts against the chain, and its replay."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.target import Target
from dflash_lab.decode.verify import verify
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashWeights
from dflash_lab.drafters.protocol import Draft, Tree
from dflash_lab.drafters.tree import TreeDrafter, best_first, grow
from dflash_lab.errors import LabError
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from dflash_lab.tree_replay import replay_trees
from tests.decode.test_hybrid import hybrid_target
from tests.decode.test_sampling import chi_square_p
from tests.tiny import HIDDEN, LAYERS, PROMPT, VOCAB, config_json, tiny_oracle, tiny_pair, tiny_target

TOKENS = 60


def prefixes(ranks, parents):
    """The prefix, as ranks, that every entry stands for."""
    out = [()]
    for rank, parent in zip(ranks, parents, strict=True):
        out.append((*out[parent], rank))
    return out[1:]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 5), st.integers(0, 90))
def test_the_tree_holds_the_most_probable_prefixes(seed, depth, vocab, budget):
    logits = torch.randn(depth, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    rows = logits.log_softmax(-1).sort(-1, descending=True).values.tolist()
    every = [p for n in range(1, depth + 1) for p in itertools.product(range(vocab), repeat=n)]

    def probable(prefix):
        return sum(rows[d][rank] for d, rank in enumerate(prefix))

    found = prefixes(*best_first(rows, budget))
    assert len(found) == min(budget, len(every)) == len(set(found))
    scores = [probable(p) for p in found]
    assert scores == pytest.approx(sorted(scores, reverse=True)), "the most probable come first"
    wanted = sorted((probable(p) for p in every), reverse=True)[: len(found)]
    assert scores == pytest.approx(wanted)


def test_a_tree_sees_its_ancestors_and_stands_at_its_depth():
    tree = Tree.of([0, 1, 0, 2])
    assert tree.depths.tolist() == [0, 1, 2, 1, 3]
    assert [row.nonzero()[:, 0].tolist() for row in tree.sees] == [[0], [0, 1], [0, 1, 2], [0, 3], [0, 1, 2, 4]]


def decode(target, drafter, k, tokens=TOKENS, **more):
    generation = run(target, drafter, PROMPT, Settings(k, tokens, **more))
    return list(generation), generation.trace()


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("budget", [1, 3, 8, 40])
def test_greedy_text_is_the_targets_own_in_float64(lean, budget):
    for seed in range(2):
        pair = tiny_pair(seed=seed, is_causal=bool(seed % 2) or None)
        target = Target(pair.model, lean=lean)
        drafter = TreeDrafter(DFlashDrafter(pair.weights, pair.config(), target), 5)
        rounds, trace = decode(target, drafter, budget)
        assert trace.output_ids == decode(target, None, 0)[1].output_ids
        assert all(len(r.drafted) == budget and len(r.path) == r.accepted for r in rounds)
        if budget > 3:
            moved = [r for r in rounds if r.path != tuple(range(r.accepted))]
            assert moved, "rows behind a gap must have been kept, or compaction was not tested"


SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 5,
    "max_position_embeddings": 512,
    "initializer_range": 0.6,
}
KINDS = ["sliding_attention", "full_attention"] * 3
MODELS = {
    "llama": lambda: tiny_target(),
    "mistral, one window": lambda: MistralForCausalLM(MistralConfig(**SHAPE)),
    "qwen3, two kinds of layers": lambda: Qwen3ForCausalLM(
        Qwen3Config(**SHAPE, use_sliding_window=True, layer_types=KINDS)
    ),
}


def made_target(name: str, attention: str = "sdpa", lean: bool = False) -> Target:
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    model.set_attn_implementation(attention)
    return Target(model, lean=lean)


@torch.inference_mode()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("name", "lean"), [*((name, False) for name in MODELS), ("llama", True)])
def test_every_branch_of_a_tree_pass_has_the_logits_of_its_own_chain(name, attention, lean):
    target = made_target(name, attention, lean)
    tree = Tree.of([0, 0, 1, 2, 3, 1, 5])
    ids = torch.tensor([4, 1, 2, 3, 5, 6, 8, 7])
    opened = target.open(40)
    opened.forward(torch.tensor(PROMPT))
    logits, _ = opened.verify(ids, tree)
    for row, seen in enumerate(tree.sees):
        alone = target.logits_after([*PROMPT, *ids[seen].tolist()])
        torch.testing.assert_close(logits[row], alone, rtol=1e-4, atol=1e-4)  # norms and RoPE round to float32


@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama"])
def test_a_targets_own_window_is_respected_over_a_whole_text(name):
    target = made_target(name)
    weights = DFlashWeights(tiny_oracle(config_json()).state_dict())
    dflash = DFlashDrafter(weights, tiny_pair().config(), target)
    rounds, trace = decode(target, TreeDrafter(dflash, 5), 20)
    assert trace.output_ids == decode(target, None, 0)[1].output_ids
    assert sum(r.accepted for r in rounds) > 0 and len(set(trace.output_ids)) > 2


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 30))
def test_a_tree_with_the_greedy_chain_in_it_never_accepts_less(seed, depth, budget):
    pair = tiny_pair(seed=seed)
    replay = Replay([record(pair.target, PROMPT, 40, frozenset())])
    stack = pair.stack()
    chain = replay.everywhere(stack, depth)[0]
    for r in replay_trees(replay, stack, depth, [budget])[budget][0].rounds:
        row = greedy = 0
        while row in r.parents:
            row, greedy = r.parents.index(row) + 1, greedy + 1
        if greedy == depth:
            assert r.accepted >= chain[r.anchor_position - len(PROMPT)][0]
        assert r.accepted >= min(greedy, chain[r.anchor_position - len(PROMPT)][0])


@pytest.mark.parametrize("causal", [None, True])
def test_replay_gives_the_loops_rounds_at_every_budget(causal):
    pair = tiny_pair(seed=3, is_causal=causal)
    prompts, budgets = [PROMPT, [2, 7, 1, 8, 2]], [1, 4, 16]
    replayed = replay_trees(
        Replay([record(pair.target, p, 40, frozenset()) for p in prompts]), pair.stack(), 4, budgets
    )
    for budget in budgets:
        for prompt, trace in zip(prompts, replayed[budget], strict=True):
            generation = run(pair.target, TreeDrafter(pair.drafter(), 4), prompt, Settings(budget, 40))
            looped = list(generation)
            facts = [(r.anchor_position, r.drafted, r.parents, r.path, r.emitted, r.end) for r in looped]
            assert facts == [(r.anchor_position, r.drafted, r.parents, r.path, r.emitted, r.end) for r in trace.rounds]
            assert trace.summary().acceptance_length == generation.trace().summary().acceptance_length


def test_no_budget_is_plain_decoding():
    pair = tiny_pair()
    rounds, trace = decode(pair.target, TreeDrafter(pair.drafter(), 5), 0)
    assert trace.output_ids == decode(pair.target, None, 0)[1].output_ids
    assert all(r.drafted == () and r.parents == () for r in rounds)


def test_sampled_trees_leave_the_targets_distribution_untouched():
    draws = 20_000
    generator = torch.Generator().manual_seed(3)
    vocab, tree = 6, Tree.of([0, 0, 1, 1, 2])
    ids = torch.tensor([2, 4, 1, 3, 0])
    logits = torch.randn(6, vocab, generator=generator) * 1.5
    sampler = Sampler(Sampling(0.8, seed=1), "cpu")
    p = sampler.probs(logits)
    # After a first token in the tree the second comes from its row; after any other the next round draws it anew.
    after = {2: 1, 4: 2}
    other = torch.randn(vocab, generator=generator).softmax(-1)
    expected = torch.stack([p[0, x] * (p[after[x]] if x in after else other) for x in range(vocab)]).flatten() * draws
    counts = torch.zeros(vocab, vocab)
    for _ in range(draws):
        verdict = verify(Draft(ids, tree=tree), logits, sampler)
        rows = verdict.kept.nonzero()[:, 0].tolist()
        emitted = [int(ids[row - 1]) for row in rows[1:]] + [int(verdict.choices[rows[-1]])]
        second = emitted[1] if len(emitted) > 1 else int(sampler.draw(other[None]))
        counts[emitted[0], second] += 1
    assert chi_square_p(counts.flatten(), expected) > 0.001
    wrong = counts.flatten().roll(1)
    assert chi_square_p(wrong, expected) < 0.001


def test_sampling_from_the_loop_draws_what_the_target_alone_would_allow():
    pair = tiny_pair()
    sampling = Sampling(0.7, top_k=3, seed=4)
    rounds, trace = decode(pair.target, TreeDrafter(pair.drafter(), 4), 12, tokens=30, sampling=sampling)
    assert sum(r.accepted for r in rounds) > 0
    for i, token in enumerate(trace.output_ids):
        top = pair.target.logits_after([*PROMPT, *trace.output_ids[:i]]).topk(3).indices.tolist()
        assert token in top


def test_a_tree_round_reads_as_the_chain_that_was_walked():
    pair = tiny_pair(seed=3)
    rounds, trace = decode(pair.target, TreeDrafter(pair.drafter(), 4), 16)
    assert trace.width <= 4
    for r in rounds:
        chain = r.chain()
        assert chain.drafted[: r.accepted] == chain.choices[: r.accepted] == tuple(r.drafted[i] for i in r.path)
        assert [chain.cell(i) for i in range(r.accepted)] == ["accepted"] * r.accepted
        assert len(chain.draft_probs) == len(chain.target_probs) == len(chain.ranks) == len(chain.drafted)
    assert type(trace).from_json(trace.to_json()) == trace


def test_float32_text_of_the_demo_pair(demo_pair):
    from dflash_lab.decode.lossless import compare
    from dflash_lab.prompts import load_prompts

    for prompt, budget in zip(load_prompts()[::6], (7, 24), strict=True):
        ids = demo_pair.encode(prompt.prompt)
        made = [
            run(demo_pair.target, drafter, ids, Settings(k, 24))
            for drafter, k in ((TreeDrafter(demo_pair.drafter(), 7), budget), (None, 0))
        ]
        for generation in made:
            list(generation)
        tree, plain = (generation.trace() for generation in made)
        assert compare(tree, plain, demo_pair.target).verdict in ("equal", "near-tie")
        assert tree.summary().acceptance_length > 1.3


def test_what_cannot_be_a_tree_is_refused():
    pair = tiny_pair()
    with pytest.raises(LabError, match="depth of the tree is 0"):
        TreeDrafter(pair.drafter(), 0)
    with pytest.raises(LabError, match="budget is 513"):
        decode(pair.target, TreeDrafter(pair.drafter(), 4), 513)
    hybrid = hybrid_target(torch.float32)
    weights = DFlashWeights(tiny_oracle(config_json(), torch.float32).state_dict())
    with pytest.raises(LabError, match="linear-attention layers"):
        TreeDrafter(DFlashDrafter(weights, pair.config(), hybrid), 4)


def test_grow_takes_the_temperature_into_the_products():
    logits = torch.tensor([[2.0, 1.9, -9.0], [3.0, 0.0, -9.0]])
    cold, _ = grow(logits, 2, temperature=0.05)
    warm, _ = grow(logits, 2, temperature=5.0)
    assert cold.tolist() == [0, 0] and warm.tolist() == [0, 1]


@pytest.mark.slow
def test_float32_text_of_the_demo_pair_is_the_targets_at_small_and_large_budgets(demo_pair):
    from bench.methods import equality
    from dflash_lab.prompts import load_prompts

    found = equality(demo_pair, list(load_prompts())[::4], 48, (1, 16, 64))
    assert found["lossless"] and found["texts_compared"] == 9 and found["near_ties"] <= 1
