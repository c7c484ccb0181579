"""Shapley values keep their axioms on brute-force games; blame finds the broken field of a real pair."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from dflash_lab.diagnose.blame import blame, interaction, shapley
from dflash_lab.diagnose.players import differing, transplanted
from dflash_lab.errors import LabError
from dflash_lab.whatif import WhatIf
from tests.test_replay import recordings
from tests.tiny import VARIANTS, tiny_pair


def subsets(n):
    return [frozenset(s) for size in range(n + 1) for s in combinations(range(n), size)]


def random_game(n, seed):
    rng = np.random.default_rng(seed)
    return {s: rng.normal(size=()) for s in subsets(n)}


def by_orders(game, n):
    """The definition itself: the mean marginal over all n! orders."""
    total = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        seen = frozenset()
        for i in order:
            total[i] += game[seen | {i}] - game[seen]
            seen |= {i}
    return total / len(orders)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_values_are_the_mean_marginal_over_all_orders_and_sum_to_the_whole(n):
    game = random_game(n, seed=n)
    values = shapley(game, n)
    assert np.allclose(values, by_orders(game, n))
    assert np.isclose(values.sum(), game[frozenset(range(n))] - game[frozenset()])


def test_symmetric_players_share_alike():
    rng = np.random.default_rng(1)
    by_facts = {(size, has2): rng.normal() for size in range(3) for has2 in (0, 1)}
    game = {s: np.array(by_facts[len(s & {0, 1}), int(2 in s)]) for s in subsets(3)}
    values = shapley(game, 3)
    assert np.isclose(values[0], values[1]) and not np.isclose(values[0], values[2])


def test_a_dummy_gets_what_it_brings_alone_and_interacts_with_nobody():
    rest = random_game(3, seed=4)
    game = {s: rest[s - {3}] + 0.7 * (3 in s) for s in subsets(4)}
    assert np.isclose(shapley(game, 4)[3], 0.7)
    assert all(np.isclose(interaction(game, 4, i, 3), 0) for i in range(3))


def test_values_add_up_over_games():
    a, b = random_game(4, seed=6), random_game(4, seed=7)
    both = {s: a[s] + b[s] for s in a}
    assert np.allclose(shapley(both, 4), shapley(a, 4) + shapley(b, 4))


def test_two_players_that_only_work_together_split_evenly_and_interact():
    game = {s: np.array(float(s == {0, 1})) for s in subsets(2)}
    assert np.allclose(shapley(game, 2), 0.5)
    assert np.isclose(interaction(game, 2, 0, 1), 1.0)


def bench_of(variant="full", seed=3):
    pair = tiny_pair(seed=seed, **VARIANTS[variant])
    return pair, WhatIf(pair, recordings(pair))


def test_blame_of_a_real_pair_sums_to_the_difference_of_its_two_replays():
    pair, bench = bench_of()
    bad = pair.config(mask_token_id=2, rope_theta=50.0)
    found = blame(bench, bad, pair.config(), 4)
    assert set(found.players) == {"mask_token_id", "rope_parameters"}
    a = bench.effect(bad, 4).summary.acceptance_length
    b = bench.effect(pair.config(), 4).summary.acceptance_length
    assert np.isclose(sum(s.shapley.value for s in found.shares), b - a)
    assert np.isclose(found.bad, a) and np.isclose(found.good, b)
    for share in found.shares:
        assert share.shapley.low <= share.shapley.value <= share.shapley.high


def test_layer_types_and_both_window_fields_are_one_player():
    pair, bench = bench_of("sliding")
    good = pair.config()
    bad = good.edited(layer_types=("full_attention",) * 3, sliding_window=None, use_sliding_window=False)
    assert differing(bad, good) == ("layer_types",)
    assert transplanted(bad, good, ["layer_types"]).layer_types == good.layer_types
    assert len(blame(bench, bad, good, 3).shares) == 1


def test_a_mixture_that_cannot_run_accepts_nothing():
    pair, bench = bench_of("sliding")
    bad = pair.config().edited(use_sliding_window=False, mask_token_id=2)
    found = blame(bench, bad, pair.config(), 3)
    assert found.bad is None and found.lengths[frozenset({0})] is None
    assert np.isclose(sum(s.shapley.value for s in found.shares), found.good - 1)


def test_equal_configs_have_nothing_to_blame():
    pair, bench = bench_of()
    with pytest.raises(LabError, match="do not differ"):
        blame(bench, pair.config(), pair.config(), 3)


def test_a_stopped_blame_is_none():
    pair, bench = bench_of()
    assert blame(bench, pair.config(mask_token_id=2), pair.config(), 3, watch=lambda share, text: False) is None
