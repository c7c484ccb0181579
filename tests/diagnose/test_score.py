"""The score against the drafter's own logits, where its part of the vocabulary is the whole."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dflash_lab.diagnose.score import WEIGHT, Scorer
from dflash_lab.drafters.dflash import DFlashWeights
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from tests.test_replay import PROMPTS
from tests.tiny import DFLASH2, MIXED, VOCAB, tiny_pair

K = 4


def whole(pair):
    """The pair, and its recordings."""
    return pair, [record(pair.target, prompt, 24, ()) for prompt in PROMPTS]


def second():
    # Every token is a candidate: the score leaves the cut out.
    pair = tiny_pair(**{**DFLASH2, **MIXED, "selector_top_k": VOCAB, "output_multiplier": 0.5})
    return whole(pair)


def reduced(folder):
    from tests.drafters.test_speculators import Drafter

    made = Drafter(folder, reduced=True, sample_from_anchor=True)
    pair = SimpleNamespace(target=made.target, model=made.target.model, weights=DFlashWeights(made.tensors),
                           stack=made.stack, config=lambda: made.config)  # fmt: skip
    return whole(pair)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["plain", "second", "reduced"])
def test_it_counts_and_fits_what_the_drafter_itself_would_say(kind, tmp_path):
    pair, recordings = {"plain": lambda: whole(tiny_pair(**MIXED)), "second": second,
                        "reduced": lambda: reduced(tmp_path)}[kind]()  # fmt: skip
    scorer = Scorer(pair, recordings, 10_000, K)
    stack = pair.stack(pair.config())
    score = scorer.score(pair.config())

    replay = Replay(recordings)
    accepted = [a for text in replay.everywhere(stack, K) for a, _ in text]
    assert score.accepted.tolist() == accepted and max(accepted) > 0

    anchors = replay.all_anchors()
    hidden = replay.proposals(stack, replay.context(stack), anchors, K)
    for n, (text, place) in enumerate(zip(anchors.recording.tolist(), anchors.position.tolist(), strict=True)):
        ids, fit = recordings[text].ids, 0.0
        for slot, (previous, token) in enumerate(zip(ids[place:], ids[place + 1 : place + 1 + K], strict=False)):
            logp = stack.logits_given(hidden[n, slot], torch.tensor(previous)).float().log_softmax(-1)[token]
            fit += WEIGHT**slot * float(logp) if logp > -torch.inf else 0.0
        assert score.fit[n] == pytest.approx(fit, abs=1e-4)
