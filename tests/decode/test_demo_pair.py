"""The demo pair, float32: the target's own text, the package's rounds, and replay's, on the 12 bench prompts.

The plain texts are recorded once; every K is then compared with them. A difference must be a near-tie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from bench.loop import oracle
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.prompts import load_prompts
from dflash_lab.recording import Recording, check_is_greedy
from dflash_lab.replay import Replay
from dflash_lab.trace import Trace
from dflash_lab.whatif import record_prompts

TOKENS = 112
KS = (1, 3, 5, 7, 15)
ALLOWED = 0.001

pytestmark = pytest.mark.timeout(1800)  # sixty runs of a real model, on cores that may not be free


@pytest.fixture(scope="module")
def prompts():
    return [p.prompt for p in load_prompts()]


@pytest.fixture(scope="module")
def recordings(demo_pair, prompts) -> list[Recording]:
    return record_prompts(demo_pair, prompts, TOKENS)


@pytest.fixture(scope="module")
def looped(demo_pair, prompts) -> Callable[[int], list[Trace]]:
    """K -> the loop's traces, run once."""

    @cache
    def traces(k: int) -> list[Trace]:
        out = []
        for prompt in prompts:
            settings = Settings(k, TOKENS, demo_pair.stop_ids)
            generation = run(demo_pair.target, demo_pair.drafter(), demo_pair.encode(prompt), settings)
            list(generation)
            out.append(generation.trace())
        return out

    return traces


def plain_trace(recording: Recording) -> Trace:
    """The target alone, as a trace: only its tokens and its end are looked at."""
    text = recording.tokens[: recording.length]
    from tests.test_trace import make_round

    r = make_round(0, 0)
    emitted = type(r)(**{**{f: getattr(r, f) for f in r.__slots__}, "emitted": text[1:]})
    return Trace(recording.prompt_ids, text[0], (emitted,), 0, end=recording.end)


@pytest.mark.slow
@pytest.mark.parametrize("k", KS)
def test_text_equals_the_targets_own(demo_pair, recordings, looped, k, record_property):
    verdicts = [
        compare(trace, plain_trace(recording), demo_pair.target)
        for trace, recording in zip(looped(k), recordings, strict=True)
    ]
    compared = sum(v.compared for v in verdicts)
    ties = [v.sentence() for v in verdicts if v.verdict == "near-tie"]
    record_property(f"K = {k}: tokens compared, near-ties", (compared, ties))
    assert compared >= 1_200 and all(v.verdict != "different" for v in verdicts)
    assert len(ties) / compared <= ALLOWED


@pytest.mark.slow
@pytest.mark.parametrize("k", KS)
def test_replay_gives_the_loops_rounds(demo_pair, recordings, looped, k, record_property):
    replayed = Replay(recordings).lockstep(demo_pair.stack(), k)
    different = total = 0
    for ours, theirs in zip(replayed, looped(k), strict=True):
        mine = [(r.anchor_position, r.accepted) for r in ours.rounds[:-1]]
        loop = [(r.anchor_position, r.accepted) for r in theirs.rounds[:-1]]
        total += len(loop)
        different += len(set(mine) ^ set(loop)) // 2
    record_property(f"K = {k}: rounds compared with replay, different", (total, different))
    assert total > 300 and different / total <= ALLOWED


@pytest.mark.slow
def test_one_pass_over_all_anchors_gives_every_k(demo_pair, recordings):
    replay = Replay(recordings)
    swept = replay.sweep(demo_pair.stack(), KS)
    for k in KS:
        mine = [[(r.anchor_position, r.accepted) for r in t.rounds] for t in swept[k]]
        alone = [[(r.anchor_position, r.accepted) for r in t.rounds] for t in replay.lockstep(demo_pair.stack(), k)]
        differ = sum(a != b for a, b in zip(mine, alone, strict=True))
        assert differ <= 1, "float32 batches of another shape may flip a near-tie, not more"


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 7])
def test_rounds_equal_the_packages(demo_pair, prompts, looped, k):
    from dflash.model import dflash_generate

    model = oracle(demo_pair)
    same = total = 0
    for prompt, trace in list(zip(prompts, looped(k), strict=True))[::3]:
        ids = torch.tensor([demo_pair.encode(prompt)])
        stats = dflash_generate(
            model, demo_pair.model, ids, TOKENS, list(demo_pair.stop_ids), block_size=1 + k, return_stats=True
        )
        mine = [r.accepted + 1 for r in trace.rounds[:-1]]
        same += sum(a == b for a, b in zip(mine, stats.acceptance_lengths, strict=False))
        total += len(mine)
    assert total > 100 and same == total


def test_recordings_are_the_targets_own_greedy_text(demo_pair, recordings):
    for recording in recordings[:3]:
        check_is_greedy(demo_pair.target, recording)


def test_the_guessed_config_collapses(demo_pair, recordings):
    import json

    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.trace import summarise

    path = demo_pair.drafter_dir / "config.guessed.json"
    guessed = DrafterConfig.from_json(json.loads(path.read_text()))
    replay = Replay(recordings)
    right = summarise(replay.lockstep(demo_pair.stack(), 5))
    wrong = summarise(replay.lockstep(demo_pair.stack(guessed), 5))
    assert wrong.acceptance_length < 1.15 < 1.4 < right.acceptance_length
