"""Methods side by side: replay of any drafter equals its loop, predictions follow from costs, kept files read back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dflash_lab.better_drafter import slide
from dflash_lab.cost import Costs, StepCost
from dflash_lab.decode.loop import Settings, run
from dflash_lab.drafters.draft_model import DraftModelDrafter
from dflash_lab.drafters.lookup import LookupDrafter
from dflash_lab.drafters.method import PLAIN, Method, make_drafters
from dflash_lab.drafters.tree import TreeDrafter
from dflash_lab.errors import LabError
from dflash_lab.forecast import better, predict, recommend, scaled_length
from dflash_lab.limit import floor, measured_bandwidth
from dflash_lab.methods import compare_methods, load_comparison, save_comparison
from dflash_lab.prompts import load_prompts
from dflash_lab.recorded import replay_drafter
from dflash_lab.recording import record
from dflash_lab.trace import Round, Trace, summarise
from tests.tiny import PROMPT, checkpoint, tiny_pair


def test_a_recording_in_the_targets_place_gives_the_loops_rounds():
    pair = tiny_pair(seed=3)
    seen = SimpleNamespace(target=pair.target, stop_ids=frozenset())
    recording = record(pair.target, PROMPT, 40, frozenset())
    for drafter, k in (
        (None, 0),
        (LookupDrafter(), 4),
        (pair.drafter(), 5),
        (TreeDrafter(pair.drafter(), 4), 12),
        (DraftModelDrafter(tiny_pair(torch.float64, 5).target, pair.target.vocab_size), 3),
    ):
        generation = run(pair.target, drafter, PROMPT, Settings(k, 40))
        looped = [(r.anchor_position, r.drafted, r.path, r.accepted, r.emitted, r.end) for r in generation]
        replayed = replay_drafter(seen, recording, drafter, k).rounds
        assert looped == [(r.anchor_position, r.drafted, r.path, r.accepted, r.emitted, r.end) for r in replayed]


def made_trace(k, accepted, start=64):
    rounds, at = [], start
    for a in accepted:
        rounds.append(Round(1, at, 1 + k, (7,) * k, (7,) * (k + 1), a, (7,) * (a + 1), 7, "none"))
        at += a + 1
    return Trace((1,) * start, 7, tuple(rounds), k)


STEPS = tuple(
    StepCost(Method("dflash", k) if k else PLAIN, context, 100, 1.0, 1.0, 0.0, ms + context / 64, (0.0, 0.0, 0.2))
    for k, ms in ((0, 9.0), (1, 11.0), (3, 14.0), (5, 24.0))
    for context in (64, 128)
)
COSTS = Costs("pair", "cpu", "float32", STEPS)
LOOKUP = COSTS.merged(Costs("pair", "cpu", "float32", (StepCost(Method("lookup", 3), 64, 9, 0.0, 20.0, 0.0, 20.0),)))


def predictions():
    accepted = {0: (0,) * 9, 1: (1, 0, 1, 0, 1, 1), 3: (3, 0, 2, 1), 5: (3, 0, 2, 1)}
    return [predict(s, [made_trace(s.k, accepted[s.k])] * 4, COSTS) for s in dict.fromkeys(x.method for x in STEPS)]


def test_predicted_seconds_are_the_rounds_costs_at_their_contexts():
    plain = next(p for p in predictions() if p.method == PLAIN)
    by_hand = sum(9 + position / 64 for position in range(64, 73)) / 1e3
    assert plain.seconds == pytest.approx((by_hand,) * 4) and plain.break_even == pytest.approx(1.0)
    assert plain.tok_s == pytest.approx(9 / by_hand)


def test_a_round_without_a_draft_costs_a_plain_step():
    lookup = Method("lookup", 3)
    costs = COSTS.merged(Costs("pair", "cpu", "float32", (StepCost(lookup, 64, 9, 0.0, 30.0, 0.0, 30.0),)))
    trace = made_trace(3, (1,))
    empty = Round(1, 66, 4, (), (7,), 0, (7,), 7, "none")
    both = Trace(trace.prompt_ids, 7, (*trace.rounds, empty), 3)
    assert predict(lookup, [both], costs).seconds[0] == pytest.approx((30 + 9 + 66 / 64) / 1e3)


def test_the_fastest_k_is_recommended_against_its_neighbours_and_the_target_alone():
    found = recommend(predictions())
    assert found.method.k == 3 and [lead.other.k for lead in found.leads] == [1, 5, 0]
    assert all(lead.ahead > 0 and lead.is_clear for lead in found.leads) and "outside the noise" in found.sentence()
    assert recommend(predictions(), "mtp") is None


def test_the_acceptance_length_that_overtakes_a_rival_gives_its_speed():
    every = [*predictions(), predict(Method("lookup", 3), [made_trace(3, (3, 3, 3))] * 4, LOOKUP)]
    slid = slide(every, Method("dflash", 5), 1.0)
    (rival,) = (name for name in slid.rivals if name.startswith("Prompt lookup"))
    per_token = slid.tok_s / slid.acceptance_length
    assert per_token * slid.needed[rival] == pytest.approx(slid.rivals[rival])
    assert "overtakes Prompt lookup" in slid.sentence() or "out of reach" in slid.sentence()
    with pytest.raises(LabError, match="cannot be slid"):
        slide(every, Method("mtp", 3), 1.0)


def test_a_limit_is_the_bytes_of_a_round_over_the_bandwidth():
    tiny = tiny_pair()
    pair = SimpleNamespace(target=tiny.target, tensors=checkpoint(tiny.oracle), config=tiny.config())
    module, config, size = tiny.model.get_decoder(), tiny.model.config, tiny.target.dtype.itemsize
    head = config.vocab_size * config.hidden_size * size
    body = sum(p.numel() for n, p in module.named_parameters() if "embed_tokens" not in n) * size + head
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * size
    plain = floor(pair, PLAIN, None, 1e9)
    assert plain.at(10) == pytest.approx((body + 10 * row) / 1e6)
    drafter = sum(t.numel() for t in pair.tensors.values()) * size
    chain = floor(pair, Method("dflash", 3), tiny.drafter(), 1e9)
    assert chain.at(0) == pytest.approx((body + head + drafter) / 1e6) and chain.at(1) > chain.at(0)
    small = DraftModelDrafter(pair.target, pair.target.vocab_size)
    assert floor(pair, Method("draft model", 3), small, 1e9).at(10) == pytest.approx(4 * plain.at(10))
    assert floor(pair, Method("lookup", 3), LookupDrafter(), 1e9) == plain
    trace = made_trace(3, (1, 2))
    found = predict(Method("dflash", 3), [trace], COSTS, plain)
    assert found.limit_ms == pytest.approx(plain.at(65)) and found.limit_tok_s > found.tok_s
    assert predict(Method("dflash", 3), [trace], COSTS).limit_tok_s is None


def test_bandwidth_is_bytes_a_second():
    assert 1e8 < measured_bandwidth(torch.device("cpu")) < 1e13


def test_a_scale_of_one_is_the_drafter_as_it_is_and_more_is_faster():
    summary = summarise([made_trace(3, (3, 0, 2, 1))])
    assert scaled_length(summary, 1.0) == pytest.approx(summary.acceptance_length)
    # Conditional rates 3/4, 2/3, 1/2, halved.
    assert scaled_length(summary, 0.5) == pytest.approx(1 + 3 / 8 + 1 / 8 + 1 / 32)
    assert scaled_length(summary, 99.0) == 4.0
    same, more = better(predictions(), 1.0), better(predictions(), 1.3)
    assert [b.tok_s for b in same] == pytest.approx([p.tok_s for p in predictions() if p.method != PLAIN])
    assert all(b.tok_s > a.tok_s for a, b in zip(same, more, strict=True))


def test_costs_of_a_method_replace_the_kept_ones_of_that_method_only():
    newer = StepCost(PLAIN, 32, 9, 0.0, 1.0, 0.0, 1.0)
    merged = COSTS.merged(Costs("pair", "cpu", "float32", (newer,)))
    assert merged.of(PLAIN) == (newer,) and merged.of(Method("dflash", 3)) == COSTS.of(Method("dflash", 3))
    assert np.allclose(COSTS.round_ms(Method("dflash", 3), [0, 96, 999]), [15, 15.5, 16])
    with pytest.raises(LabError, match="was not measured"):
        COSTS.round_ms(Method("mtp", 3), [64])


def test_methods_with_numbers_they_do_not_have_are_refused():
    for wrong in (("plain", 3), ("dflash", 0), ("dflash", 3, 2), ("ddtree", 8)):
        with pytest.raises(LabError):
            Method(*wrong)


def test_methods_of_the_demo_pair_are_measured_predicted_kept_and_lossless(demo_pair):
    asked = [Method("dflash", 3), Method("ddtree", 8, 4), Method("lookup", 3), Method("draft model", 2)]
    doings = []
    found = compare_methods(
        demo_pair, load_prompts()[::6], asked, 1, 12, lambda c, n, doing: doings.append(doing) or True, contexts=(48,)
    )
    assert found.complete and [m.method.kind for m in found.missing] == ["draft model"]
    assert "names no draft model" in found.missing[0].sentence()
    assert doings[-1] == "done"
    for result in found.results():
        assert result.lossless and result.tok_s > 0 and result.predicted_tok_s > 0 and result.limit_tok_s > 0
        predicted = found.prediction(result.method).summary
        assert predicted.accepted_at == result.summary.accepted_at, "replay gives the loop's own rounds"
    assert found.frame().shape[0] == 4 and found.kinds_frame()["prompts"].nunique() == 2
    assert found.context_frame(asked[0])["rounds"].sum() == found.result(asked[0]).summary.counted
    save_comparison(found)
    assert load_comparison(found.id) == found
    with pytest.raises(LabError, match="There is no comparison"):
        load_comparison("../other")


def test_a_stop_is_obeyed_and_nothing_is_run_without_repeats(demo_pair):
    drafters, _ = make_drafters(demo_pair, [PLAIN])
    assert drafters == {PLAIN: None}
    stopped = compare_methods(demo_pair, load_prompts()[:1], [], 1, 8, lambda c, n, doing: "timing" not in doing)
    assert not stopped.runs and not stopped.complete
    predicted = compare_methods(demo_pair, load_prompts()[:1], [Method("dflash", 2)], 0, 8, contexts=(32,))
    assert predicted.complete and not predicted.runs and len(predicted.predictions) == 2
    with pytest.raises(LabError, match="0 prompts"):
        compare_methods(demo_pair, [], [])
