"""The metrics' identities hold for any rounds, and every number is computed from raw counts."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lab.trace import (
    Alternatives,
    Rate,
    Round,
    Trace,
    cells_frame,
    rates_frame,
    rounds_frame,
    strip_times,
    summarise,
)


def make_round(drafted: int, accepted: int, end: str = "none", kept: int | None = None, **more) -> Round:
    emitted = tuple(range(100, 100 + (accepted + 1 if kept is None else kept)))
    whole = len(emitted) == accepted + 1
    return Round(
        anchor=1,
        anchor_position=9,
        block=1 + drafted,
        drafted=tuple(range(drafted)),
        choices=tuple(range(drafted + 1)),
        accepted=accepted,
        emitted=emitted,
        bonus=emitted[-1] if whole else None,
        end=end,
        **more,
    )


def make_trace(rounds, k=4, **more) -> Trace:
    return Trace((5, 6), 7, tuple(rounds), k, **more)


@st.composite
def any_trace(draw, fixed_length: bool):
    k = draw(st.integers(1, 7))
    rounds = []
    for _ in range(draw(st.integers(0, 25))):
        drafted = k if fixed_length else draw(st.integers(0, k))
        rounds.append(make_round(drafted, draw(st.integers(0, drafted))))
    if rounds and draw(st.booleans()):
        last = rounds[-1]
        kept = draw(st.integers(1, last.accepted + 1))
        rounds[-1] = make_round(len(last.drafted), last.accepted, draw(st.sampled_from(["eos", "limit"])), kept)
    return make_trace(rounds, k)


@given(any_trace(fixed_length=True))
def test_acceptance_length_is_one_plus_the_sum_of_the_rates(trace):
    summary = trace.summary()
    if summary.counted:
        total = 1 + sum(rate.value for rate in summary.per_position)
        assert math.isclose(summary.acceptance_length, total)
    else:
        assert summary.acceptance_length is None


@given(any_trace(fixed_length=False))
def test_unconditional_rates_never_rise_and_conditionals_multiply_to_them(trace):
    summary = trace.summary()
    values = [rate.value for rate in summary.per_position]
    assert values == sorted(values, reverse=True)
    for rate, conditional in zip(summary.per_position, summary.conditional, strict=True):
        assert rate.hits == conditional.hits and conditional.hits <= conditional.total <= rate.total


@given(any_trace(fixed_length=True))
def test_with_equal_lengths_conditional_rates_multiply_to_the_unconditional(trace):
    product = 1.0
    for rate, conditional in zip(trace.summary().per_position, trace.summary().conditional, strict=True):
        product *= conditional.value or 0.0
        assert math.isclose(product, rate.value, abs_tol=1e-12)


@given(any_trace(fixed_length=False))
def test_the_histogram_holds_every_drafting_round_once(trace):
    summary = trace.summary()
    assert sum(summary.histogram) == summary.drafts
    assert sum(a * n for a, n in enumerate(summary.histogram)) == summary.accepted == sum(summary.accepted_at)
    assert summary.drafted == sum(summary.drafted_at)


@given(st.lists(any_trace(fixed_length=True), min_size=1, max_size=4))
def test_pooling_adds_counts(traces):
    pooled, single = summarise(traces), [t.summary() for t in traces]
    assert pooled.counted == sum(s.counted for s in single)
    assert pooled.accepted == sum(s.accepted for s in single)
    assert pooled.left_out == sum(s.left_out for s in single)


@given(any_trace(fixed_length=False))
def test_a_trace_survives_json(trace):
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


def test_json_keeps_probabilities_and_alternatives():
    extras = {
        "draft_probs": (0.5, 0.25),
        "ranks": (0, 3),
        "draft_alternatives": (Alternatives((1, 2), (0.5, 0.1)),),
        "draft_s": 0.25,
    }
    trace = make_trace([make_round(2, 1, **extras)], about={"dtype": "float32"})
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


def test_another_schema_version_is_refused():
    with pytest.raises(ValueError, match="schema_version is 99"):
        Trace.from_json({**make_trace([]).to_json(), "schema_version": 99})


def test_rounds_that_end_the_text_or_draft_less_than_k_are_left_out():
    trace = make_trace([make_round(4, 4), make_round(4, 0), make_round(2, 2), make_round(4, 3, "eos", 2)])
    summary = trace.summary()
    assert (summary.counted, summary.left_out, summary.acceptance_length) == (2, 2, 3.0)


def test_four_kinds_of_cells():
    frame = cells_frame(make_trace([make_round(3, 1), make_round(0, 0)]))
    assert frame[frame["round"] == 0]["cell"].tolist() == ["accepted", "rejected", "not reached", "not drafted"]
    assert set(frame[frame["round"] == 1]["cell"]) == {"not drafted"}


def test_origins_line_up_with_the_output():
    trace = make_trace([make_round(4, 2), make_round(0, 0), make_round(4, 3, "limit", 2)])
    assert trace.origins == ("first", "accepted", "accepted", "bonus", "plain", "accepted", "accepted")
    assert len(trace.origins) == len(trace.output_ids)


def test_throughput_counts_tokens_after_the_first():
    trace = make_trace([make_round(4, 2), make_round(4, 4)], decode_s=2.0)
    assert trace.tokens_per_second == 4.0 and trace.tokens_per_pass == 4.0
    assert make_trace([]).tokens_per_second is None


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)]
)
def test_wilson_interval_has_its_published_values(hits, total, low, high):
    interval = Rate(hits, total).interval
    assert interval == pytest.approx((low, high), abs=5e-5)


def test_no_observations_is_no_rate():
    assert Rate(0, 0).value is None and Rate(0, 0).interval is None


def test_the_interval_of_the_acceptance_length_is_the_textbook_one():
    summary = make_trace([make_round(4, a) for a in (0, 1, 2, 3, 4)]).summary()
    low, high = summary.acceptance_length_interval
    half = 1.959963984540054 * math.sqrt(2.5) / math.sqrt(5)
    assert (low, high) == pytest.approx((3 - half, 3 + half))


def test_frames_have_one_row_per_thing():
    trace = make_trace([make_round(4, 2, draft_s=0.004, verify_s=0.03, rest_s=0.001)])
    assert rounds_frame(trace)[["draft_ms", "verify_ms", "rest_ms"]].iloc[0].tolist() == [4.0, 30.0, 1.0]
    assert rates_frame(trace.summary())["rate"].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert strip_times(trace.rounds)[0].seconds == 0.0
