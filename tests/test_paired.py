"""The paired interval covers the truth as often as it says, and sees what an unpaired one would miss."""

from __future__ import annotations

import numpy as np
import pytest

from dflash_lab.paired import compare
from dflash_lab.trace import Trace
from tests.test_trace import make_round


def texts(rng, accept, prompts=6, tokens=128, k=4):
    """Traces whose rounds accept each position with a probability that drifts along the text."""
    out = []
    for n in range(prompts):
        place, rounds = 5, []
        while place < tokens:
            p = accept(n, place)
            a = 0
            while a < k and rng.random() < p:
                a += 1
            r = make_round(k, a)
            rounds.append(type(r)(**{**{f: getattr(r, f) for f in r.__slots__}, "anchor_position": place}))
            place += a + 1
        out.append(Trace((n,) * 5, 1, tuple(rounds), k))
    return out


def drift(n, place):
    return 0.25 + 0.1 * (n % 3) + 0.15 * ((place // 40) % 2)


def test_no_difference_is_covered_about_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    covered = sum(not compare(texts(rng, drift), texts(rng, drift), seed=i).clear for i in range(150))
    assert covered / 150 > 0.88


def test_a_real_difference_is_seen():
    rng = np.random.default_rng(1)
    paired = compare(texts(rng, drift), texts(rng, lambda n, p: drift(n, p) * 0.6))
    assert paired.clear and paired.difference < 0 and paired.relative == pytest.approx(paired.difference / paired.a)
    assert paired.low < paired.difference < paired.high


def test_a_run_against_itself_differs_by_exactly_nothing():
    one = texts(np.random.default_rng(2), drift)
    paired = compare(one, one)
    assert (paired.difference, paired.low, paired.high, paired.clear) == (0.0, 0.0, 0.0, False)


def test_other_prompts_are_refused_and_empty_runs_have_no_difference():
    one = texts(np.random.default_rng(2), drift)
    with pytest.raises(ValueError, match="not over the same prompts"):
        compare(one, one[:-1])
    empty = [Trace(t.prompt_ids, 1, (), t.k) for t in one]
    assert compare(one, empty) is None
