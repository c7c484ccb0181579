"""The loop on scripted models: every accept case, with acceptance known beforehand."""

from __future__ import annotations

import pytest

from dflash_lab.decode.loop import Settings, run
from dflash_lab.errors import LabError
from tests.scripted import VOCAB, ScriptedDrafter, ScriptedTarget

PROMPT = [50, 51, 52]
TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def play(drafts, k=7, text=TEXT, **settings):
    target = ScriptedTarget(len(PROMPT), text)
    drafter = ScriptedDrafter(drafts)
    generation = run(target, drafter, PROMPT, Settings(k=k, **settings))
    rounds = list(generation)
    return rounds, generation, target, drafter


def test_accept_three_of_seven_keeps_three_and_the_targets_token():
    rounds, *_ = play([[2, 3, 4, 60, 6, 7, 8]], max_new_tokens=5)
    assert (rounds[0].accepted, rounds[0].emitted, rounds[0].bonus) == (3, (2, 3, 4, 5), 5)
    assert [rounds[0].cell(i) for i in range(8)] == (
        ["accepted"] * 3 + ["rejected"] + ["not reached"] * 3 + ["not drafted"]
    )
    assert rounds[0].choices == (2, 3, 4, 5, 6, 7, 8, 9)


def test_reject_at_first_position_emits_the_targets_token():
    rounds, *_ = play([[60, 3, 4, 5, 6, 7, 8], [3, 60, 0, 0, 0, 0, 0]], max_new_tokens=4)
    assert (rounds[0].accepted, rounds[0].emitted) == (0, (2,))
    assert (rounds[1].accepted, rounds[1].emitted) == (1, (3, 4))


def test_all_accepted_adds_the_bonus():
    rounds, _, _target, drafter = play([[2, 3, 4, 5, 6, 7, 8], [10, 11, 12, 13, 14, 15, 16]], max_new_tokens=17)
    assert [r.accepted for r in rounds] == [7, 7]
    assert rounds[0].bonus == 9 and drafter.anchors == [1, 9]
    assert drafter.committed == [PROMPT, [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]]


def test_the_cache_holds_exactly_the_committed_text():
    _, generation, target, _ = play([[2, 60, 4], [4, 5, 60], [60, 8, 9]], k=3, max_new_tokens=8)
    output = list(generation.trace().output_ids)
    assert target.run.kept == (PROMPT + output)[: target.run.length]


def test_stop_token_inside_an_accepted_prefix_ends_text_and_counts_there():
    rounds, generation, *_ = play([[2, 3, 4, 5, 6, 7, 8]], stop_ids=frozenset({4}), max_new_tokens=20)
    assert rounds[0].emitted == (2, 3, 4) and rounds[0].bonus is None
    assert rounds[0].accepted == 7, "the raw count stays what the target agreed to"
    assert rounds[0].end == generation.end == "eos"


def test_stop_token_as_bonus_ends_text():
    rounds, generation, *_ = play([[2, 3, 60]], k=3, stop_ids=frozenset({4}), max_new_tokens=20)
    assert rounds[0].emitted == (2, 3, 4) and rounds[0].bonus == 4 and generation.end == "eos"


def test_first_token_equal_to_the_stop_token_gives_zero_rounds():
    rounds, generation, *_ = play([[2]], stop_ids=frozenset({1}), max_new_tokens=20)
    assert rounds == [] and generation.trace().output_ids == (1,)
    assert generation.end == "eos" and generation.trace().summary().acceptance_length is None


@pytest.mark.parametrize("limit", range(1, 12))
def test_max_new_tokens_is_exact(limit):
    _, generation, *_ = play([[2, 3, 4, 60], [6, 7, 60, 0], [60, 0, 0, 0], [10, 11, 12, 13]], k=4, max_new_tokens=limit)
    assert generation.trace().output_ids == tuple(TEXT[:limit]) and generation.end == "limit"


def test_stop_token_on_the_last_allowed_place_is_a_stop():
    _, generation, *_ = play([[2, 3, 4]], k=3, stop_ids=frozenset({3}), max_new_tokens=3)
    assert generation.end == "eos" and generation.trace().output_ids == (1, 2, 3)


def test_k_zero_is_plain_decoding():
    rounds, generation, _, drafter = play([], k=0, max_new_tokens=6)
    assert generation.trace().output_ids == tuple(TEXT[:6]) and drafter.anchors == []
    assert {r.origins() for r in rounds} == {("plain",)} and all(r.drafted == () for r in rounds)


def test_a_draft_shorter_than_k_is_verified_as_it_is():
    rounds, *_ = play([[2, 3], [], [60]], k=5, max_new_tokens=7)
    assert [len(r.drafted) for r in rounds[:3]] == [2, 0, 1]
    assert [r.accepted for r in rounds[:3]] == [2, 0, 0]
    assert rounds[1].emitted == (5,) and rounds[1].origins() == ("plain",)


def test_leaving_the_iteration_keeps_what_was_done():
    target = ScriptedTarget(len(PROMPT), TEXT)
    generation = run(target, ScriptedDrafter([[2, 3], [5, 6], [8, 9]]), PROMPT, Settings(k=2))
    for n, _ in enumerate(generation):
        if n == 1:
            break
    trace = generation.trace()
    assert len(trace.rounds) == 2 and trace.end == "none" and trace.output_ids == tuple(TEXT[:7])


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ([], {}, "prompt is empty"),
        ([VOCAB], {}, "outside the target's vocabulary"),
        ([1] * 40, {"k": 5}, "does not fit the target's context of 32"),
    ],
)
def test_a_bad_prompt_is_refused_with_the_numbers(prompt, settings, message):
    target = ScriptedTarget(len(prompt), TEXT)
    target.context_length = 32
    with pytest.raises(LabError, match=message):
        run(target, None, prompt, Settings(**settings))


def test_the_context_limits_the_text():
    target = ScriptedTarget(len(PROMPT), TEXT)
    target.context_length = 10
    generation = run(target, ScriptedDrafter([]), PROMPT, Settings(k=2, max_new_tokens=50))
    list(generation)
    assert len(generation.trace().output_ids) == 5 and generation.end == "limit"


@pytest.mark.parametrize(("field", "value"), [("k", -1), ("max_new_tokens", 0)])
def test_bad_settings_name_field_and_value(field, value):
    with pytest.raises(LabError, match=f"{field} is {value}"):
        Settings(**{field: value})
