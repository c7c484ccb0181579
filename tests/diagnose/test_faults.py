"""The fault bench's quick part: what it injects is named and repaired, and nothing else is accused."""

from __future__ import annotations

import pytest

from bench.faults import PAIRS, Bench, Log, Outcome, run, summary

FLOOR = 2 / 3
"""Of three faults that count, one may be missed: another machine rounds otherwise."""


@pytest.mark.slow
def test_most_quick_faults_are_named_and_repaired_and_nothing_healthy_is_accused():
    bench, log = Bench(PAIRS[0], quick=True), Log()
    run(bench, quick=True, seed=0, log=log)
    found = summary(list(log.outcomes.values()), [bench])
    assert found["counting"] >= 3 and found["of"]["double"] == 1
    assert len(found["misses"]) <= (1 - FLOOR) * found["counting"], found["misses"]
    assert found["false_alarms"] == 0 and found["healthy_prompt_sets"] == 1


def test_a_log_goes_on_behind_what_an_earlier_run_left(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    Log(path).add(Outcome("pair", 1, "taps", ("target_layer_ids",), 0.3, True, tried=7))
    Log(path).add(Outcome("pair", 2, "taps + mask", ("target_layer_ids", "mask_token_id"), None, True))
    again = Log(path).outcomes
    assert list(again) == [("pair", "taps"), ("pair", "taps + mask")]
    assert again["pair", "taps"].tried == 7 and again["pair", "taps + mask"].loss is None
