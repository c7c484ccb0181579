"""Sweeps on traces with known speeds: pooling, pairing, intervals, the best K in words, and what a stop leaves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dflash_lab import cost
from dflash_lab.drafters.method import Method
from dflash_lab.errors import LabError
from dflash_lab.measurements import Measurement, Sweep
from dflash_lab.prompts import Prompt
from dflash_lab.sweep import WARM_UP_TOKENS, load_sweep, save_sweep, sweep
from dflash_lab.trace import Round, Trace

PROMPTS = tuple(Prompt(id=f"p{n}", kind="chat", prompt=f"prompt {n}") for n in range(4))


def trace(k, accepted, tok_s, draft_ms=2.0):
    """Rounds that accepted ``accepted``, timed so that decoding makes exactly ``tok_s``."""
    rounds = tuple(
        Round(1, n, 1 + k, (7,) * k, (7,) * (k + 1), a, (7,) * (a + 1), 7, "none", draft_s=draft_ms / 1e3)
        for n, a in enumerate(accepted)
    )
    tokens = sum(a + 1 for a in accepted)
    return Trace((1,), 7, rounds, k, decode_s=tokens / tok_s)


def made(speeds, units=4, accepted=(1, 0, 1), wobble=0.0):
    """A sweep whose throughput at K is ``speeds[K]``, a little different from unit to unit."""
    found = [
        Measurement(f"p{u}", "chat", k, 0, trace(k, accepted if k else (0,) * 5, s * (1 + wobble * (u - 1.5))))
        for u in range(units)
        for k, s in speeds.items()
    ]
    ks = tuple(k for k in speeds if k)
    return Sweep(
        "id", "now", "pair", "cpu", "float32", ks, tuple(f"p{u}" for u in range(units)), 1, 96, 99, tuple(found)
    )


def test_throughput_is_all_tokens_over_all_seconds():
    two = made({0: 10.0, 3: 20.0}, units=2)
    odd = Measurement("p1", "chat", 3, 0, trace(3, (3, 3), 80.0))
    mixed = [m for m in two.measurements if (m.prompt, m.k) != ("p1", 3)]
    pooled = Sweep("id", "now", "pair", "cpu", "float32", (3,), ("p0", "p1"), 1, 96, 4, (*mixed, odd)).tok_s(3)
    assert pooled == pytest.approx((5 + 8) / (5 / 20 + 8 / 80))


def test_the_best_k_is_the_measured_maximum_within_its_interval():
    best = made({0: 10.0, 1: 15.0, 3: 20.0, 5: 18.0}, wobble=0.02).best()
    assert (best.k, best.runner_up) == (3, 5)
    assert best.interval[0] <= best.tok_s <= best.interval[1]
    assert best.ahead == pytest.approx(20 / 18 - 1) and best.is_clear


def test_a_lead_inside_the_noise_is_called_so():
    speeds = {0: [10, 10, 10, 10], 3: [21, 19, 22, 18], 5: [19, 21, 18, 21.5]}
    found = tuple(
        Measurement(f"p{u}", "chat", k, 0, trace(k, (1, 1), s)) for k, per in speeds.items() for u, s in enumerate(per)
    )
    best = Sweep("id", "now", "p", "cpu", "float32", (3, 5), ("p0",), 1, 96, 12, found).best()
    assert best.is_clear is False and "inside the noise" in best.sentence()
    assert best.sentence().startswith("K = 3: 19.9 tok/s (")
    assert "times the target alone" in best.sentence()


def test_where_no_draft_pays_the_target_alone_is_the_answer():
    best = made({0: 30.0, 3: 20.0}).best()
    assert best.k == 0 and best.sentence().startswith("the target alone: 30.0 tok/s")
    assert "ahead of K = 3" in best.sentence()


def test_two_units_are_too_few_for_an_interval_and_the_words_say_so():
    best = made({0: 10.0, 3: 20.0}, units=2).best()
    assert best.interval is None and best.is_clear is None and "too few runs" in best.sentence()


def test_a_stopped_sweep_compares_only_what_ran_at_every_k():
    whole = made({0: 10.0, 3: 20.0, 5: 18.0})
    # The last prompt never got to K = 5, and was oddly fast at K = 3.
    odd = Measurement("p3", "chat", 3, 0, trace(3, (3,), 900.0))
    partial = tuple(m for m in whole.measurements if m.prompt != "p3")
    stopped = Sweep("id", "now", "p", "cpu", "float32", (3, 5), (), 1, 96, 12, (*partial, odd))
    assert stopped.tok_s(3) == pytest.approx(20.0) and not stopped.complete
    assert len(stopped.units) == 3
    empty = Sweep("id", "now", "p", "cpu", "float32", (3,), (), 1, 96, 12)
    assert empty.best() is None and empty.frame()["tok_s"].isna().all()


def test_frames_say_where_nothing_was_drafted():
    found = made({0: 10.0, 1: 15.0, 3: 20.0}, accepted=(1, 0, 1))
    table = found.position_by_k()
    assert list(table.columns) == ["K = 1", "K = 3"] and table.shape == (3, 2)
    assert table["K = 1"][0] == pytest.approx(2 / 3) and math.isnan(table["K = 1"][2])
    assert found.position_by_prompt(3).shape == (4, 3)
    frame = found.frame()
    assert list(frame["k"]) == [0, 1, 3] and frame["speed_up"].tolist() == pytest.approx([1, 1.5, 2])
    assert frame["al"].tolist() == pytest.approx([1, 5 / 3, 5 / 3])
    assert len(found.runs_frame()) == 12


def test_json_is_read_back_unchanged_and_other_versions_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    found = made({0: 10.0, 3: 20.0})
    assert Sweep.from_json(json.loads(json.dumps(found.to_json()))) == found
    save_sweep(found)
    assert load_sweep("id") == found
    with pytest.raises(ValueError, match="schema_version is 9"):
        Sweep.from_json({**found.to_json(), "schema_version": 9})
    with pytest.raises(LabError, match="There is no sweep"):
        load_sweep("../other")


@pytest.fixture
def loop(monkeypatch):
    """The loop replaced: remembers what it was asked and lets ``watch`` look twice a run."""
    from dflash_lab import runs

    calls = []

    def run_prompt(pair, prompt, settings, *, watch, **options):
        calls.append((prompt, settings.k, settings.max_new_tokens))
        t = trace(settings.k, (0, 0), 10.0 + settings.k)
        assert options["baseline"] is False
        for _ in range(2):
            if not watch(t):
                break
        return SimpleNamespace(speculative=t)

    monkeypatch.setattr(runs, "run_prompt", run_prompt)
    return calls


PAIR = SimpleNamespace(spec=SimpleNamespace(name="pair"), device="cpu", dtype="torch.float32")


def test_every_k_is_warmed_up_once_and_the_order_rotates(loop):
    found = sweep(PAIR, PROMPTS[:3], [5, 3, 3], repeats=2, max_new_tokens=20)
    assert loop[:3] == [("prompt 0", k, WARM_UP_TOKENS) for k in (0, 3, 5)]
    order = [k for _, k, _ in loop[3:]]
    assert order[:9] == [0, 3, 5, 3, 5, 0, 5, 0, 3] and order[9:12] == [3, 5, 0]
    assert found.complete and found.wanted == len(found.measurements) == 18
    assert (found.ks, found.dtype) == ((3, 5), "float32")


def test_a_stop_is_obeyed_within_a_round_and_keeps_the_finished_measurements(loop):
    seen = []

    def watch(so_far, done, doing):
        seen.append((done, doing))
        return done < 4

    found = sweep(PAIR, PROMPTS, [3], max_new_tokens=20, watch=watch)
    assert len(found.measurements) == 4 and not found.complete
    assert seen[0] == (0, "warming up, the target alone") and seen[-1][0] == 4
    assert sum(done == 4 for done, _ in seen) == 1, "one look is enough to stop"


@pytest.mark.parametrize(
    ("prompts", "ks", "repeats", "message"),
    [
        ((), [3], 1, "no prompt"),
        (PROMPTS, [], 1, "no K"),
        (PROMPTS, [-2], 1, "K = -2"),
        (PROMPTS, [3], 0, "repeats is 0"),
    ],
)
def test_a_sweep_of_nothing_is_refused(prompts, ks, repeats, message):
    with pytest.raises(LabError, match=message):
        sweep(PAIR, prompts, ks, repeats)


def test_step_costs_are_medians_without_the_cold_first_round(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    cold = trace(3, (1, 1, 1, 1), 20.0)
    timed = [replace(r, draft_s=s) for r, s in zip(cold.rounds, (9.0, 0.002, 0.004, 0.5), strict=True)]
    (step,) = cost.measured([(Method("dflash", 3), replace(cold, rounds=tuple(timed)))])
    assert (step.method.k, step.rounds, step.draft_ms) == (3, 3, 4.0)
    assert cost.load_costs("a/b", "cpu", "float32") is None
    cost.save_costs(cost.Costs("a/b", "cpu", "float32", (step,)))
    other = cost.StepCost(Method("dflash", 5), 64, 9, 1.0, 2.0, 3.0, 6.0)
    cost.save_costs(cost.Costs("a/b", "cpu", "float32", (other,)))
    kept = cost.load_costs("a/b", "cpu", "float32")
    assert kept.steps == (step, other) and kept.step(5) == other and kept.step(4) is None
    assert list(kept.frame()["k"]) == [3, 5]


def test_broken_cost_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    path = cost.save_costs(cost.Costs("a", "cpu", "float32", ()))
    path.write_text("{")
    with pytest.raises(LabError, match=str(path)):
        cost.load_costs("a", "cpu", "float32")
