"""Replay gives the loop's own rounds: exact in float64 on random pairs, whatever the config."""

from __future__ import annotations

import pytest

from dflash_lab.decode.loop import Settings, run
from dflash_lab.errors import LabError
from dflash_lab.recording import Recording, RecordingStore, check_is_greedy, record
from dflash_lab.replay import Replay
from dflash_lab.trace import UNKNOWN
from tests.tiny import PROMPT, VARIANTS, tiny_pair

PROMPTS = [PROMPT, [2, 7, 1, 8, 2], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7]]
TOKENS = 40


def loop_trace(pair, prompt, config, k, stop_ids=frozenset()):
    settings = Settings(k=k, max_new_tokens=TOKENS, stop_ids=stop_ids)
    generation = run(pair.target, pair.drafter(config), prompt, settings)
    list(generation)
    return generation.trace()


def facts(trace):
    return [
        (r.anchor, r.anchor_position, r.accepted, r.emitted, r.bonus, r.end, r.choices[: r.accepted + 1])
        for r in trace.rounds
    ]


def agree_where_known(replayed, looped):
    for a, b in zip(replayed.rounds, looped.rounds, strict=True):
        known = [x for x in a.drafted if x != UNKNOWN]
        if known != list(b.drafted[: len(known)]):
            return False
    return True


def recordings(pair, stop_ids=frozenset()):
    return [record(pair.target, p, TOKENS, stop_ids) for p in PROMPTS]


@pytest.mark.parametrize("variant", VARIANTS)
def test_lockstep_equals_the_loop_for_every_config(variant):
    pair = tiny_pair(seed=3, **VARIANTS[variant])
    replay = Replay(recordings(pair))
    for k in (1, 4, 9):
        looped = [loop_trace(pair, p, None, k) for p in PROMPTS]
        for ours, theirs in zip(replay.lockstep(pair.stack(), k), looped, strict=True):
            assert facts(ours) == facts(theirs) and agree_where_known(ours, theirs)
            assert ours.output_ids == theirs.output_ids and ours.end == theirs.end
            assert ours.summary().acceptance_length == theirs.summary().acceptance_length


@pytest.mark.parametrize("variant", ["sliding", "full, causal", "full"])
def test_a_sweep_equals_one_loop_per_k(variant):
    pair = tiny_pair(seed=5, **VARIANTS[variant])
    ks = [1, 2, 3, 5, 8, 15]
    swept = Replay(recordings(pair)).sweep(pair.stack(), ks)
    assert list(swept) == ks
    for k in ks:
        looped = [loop_trace(pair, p, None, k) for p in PROMPTS]
        assert [facts(t) for t in swept[k]] == [facts(t) for t in looped]


def test_one_recording_serves_every_config():
    pair = tiny_pair(seed=8)
    replay = Replay(recordings(pair))
    for changes in (
        {"mask_token_id": 2},
        {"target_layer_ids": (5, 1, 0)},
        {"rope_theta": 500.0},
        {"is_causal": True},
        {"layer_types": ("sliding_attention",) * 3, "sliding_window": 1, "use_sliding_window": True},
    ):
        config = pair.config(**changes)
        looped = [loop_trace(pair, p, config, 5) for p in PROMPTS]
        assert [facts(t) for t in replay.lockstep(pair.stack(config), 5)] == [facts(t) for t in looped]


def test_a_stop_token_ends_the_replay_where_it_ends_the_loop():
    pair = tiny_pair(seed=3, **VARIANTS["sliding"])
    stops = frozenset({record(pair.target, PROMPT, TOKENS, frozenset()).tokens[12]})
    replay = Replay(recordings(pair, stops))
    looped = [loop_trace(pair, p, None, 6, stops) for p in PROMPTS]
    assert "eos" in {t.end for t in looped}
    assert [facts(t) for t in replay.lockstep(pair.stack(), 6)] == [facts(t) for t in looped]


def test_the_recorded_margin_is_the_distance_of_the_two_top_logits():
    pair = tiny_pair(seed=3)
    recording = record(pair.target, PROMPT, 10, frozenset(), beyond=2)
    for i, margin in enumerate(recording.margins):
        top = pair.target.logits_after(recording.ids[: len(PROMPT) + i + 1]).topk(2).values
        assert abs(margin - float(top[0] - top[1])) < 1e-4


def test_foreign_text_is_refused():
    pair = tiny_pair(seed=3)
    good = record(pair.target, PROMPT, 10, frozenset())
    check_is_greedy(pair.target, good)
    tokens = list(good.tokens)
    tokens[4] = (tokens[4] + 1) % 11
    foreign = Recording(good.prompt_ids, tuple(tokens), good.length, good.end, good.margins, good.states)
    with pytest.raises(LabError, match="Token 4 of the recorded text is not this target's own"):
        check_is_greedy(pair.target, foreign)


def test_a_stored_recording_comes_back_the_same(tmp_path):
    pair = tiny_pair(seed=3)
    recording = record(pair.target, PROMPT, 10, frozenset({1}))
    store = RecordingStore(tmp_path)
    path = store.path("tiny", PROMPT, 10, frozenset({1}))
    assert store.load(path, pair.target.device) is None
    store.save(path, recording)
    again = store.load(path, pair.target.device)
    assert again.ids == recording.ids and again.margins == recording.margins
    assert (again.length, again.end) == (recording.length, recording.end)
    assert again.states.equal(recording.states)
    path.write_bytes(path.read_bytes()[:100])
    assert store.load(path, pair.target.device) is None


def test_stopping_a_replay_keeps_what_was_done():
    pair = tiny_pair(seed=3)
    calls = []
    traces = Replay(recordings(pair)).lockstep(pair.stack(), 3, lambda share: calls.append(share) or len(calls) < 4)
    assert calls == sorted(calls) and len(calls) == 4
    assert [len(t.rounds) for t in traces] == [4, 4, 4]
