"""The training script on tiny random models: what it reads, what it measures, that it learns, stops and resumes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dflash_lab.decode.loop import Settings, run
from dflash_lab.drafters.mtp import MtpDrafter, MtpHead
from tests.drafters.test_mtp import CONFIGS, random_tensors
from tests.tiny import PROMPT, TinyPair, tiny_pair
from training import data, dflash, mtp
from training.data import Row, States, collect, held_out_recordings, read_rows
from training.run import Run, Vocabulary

BLOCK = 3


def own_text(pair: TinyPair, first: int, tokens: int = 60) -> Row:
    prompt = [first, *PROMPT[1:]]
    generation = run(pair.target, None, prompt, Settings(0, tokens))
    list(generation)
    return Row((*prompt, *generation.trace().output_ids), len(prompt))


@pytest.fixture
def pair() -> TinyPair:
    return tiny_pair(torch.float32)


@pytest.fixture
def rows(pair) -> list[Row]:
    return [own_text(pair, first) for first in range(6)]


@pytest.fixture
def states(pair, rows, tmp_path) -> States:
    assert list(collect(pair.target, rows, range(pair.target.num_layers), tmp_path / "states")) == [6]
    return States(tmp_path / "states", rows)


def vocabulary(pair, rows) -> Vocabulary:
    return Vocabulary(pair.target, torch.tensor([i for row in rows for i in row.ids]), frequent=8, random=2)


def test_rows_are_cut_at_their_lengths_and_the_last_are_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "HELD_OUT", 1)
    path = tmp_path / "text.npz"
    np.savez(path, ids=np.arange(9, dtype=np.uint16), length=[4, 2, 3], prompt_length=[2, 1, 1])
    train, held = read_rows(path)
    assert train == [Row((0, 1, 2, 3), 2), Row((4, 5), 1)] and held == [Row((6, 7, 8), 1)]


def test_states_are_the_layers_outputs_and_are_not_made_twice(pair, rows, states, tmp_path):
    _, (wanted,) = pair.target.open(len(rows[4].ids), [2]).forward(torch.tensor(rows[4].ids))
    torch.testing.assert_close(states.text(4, [2]).layers[2], wanted.bfloat16())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "states").iterdir()}
    list(collect(pair.target, rows, range(6), tmp_path / "states"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "states").iterdir()} == before


def test_a_held_out_text_ends_where_it_stops_being_the_targets_own(pair):
    row = own_text(pair, 3, tokens=80)
    foreign = list(row.ids)
    foreign[70] = (foreign[70] + 1) % 11
    (recording,) = held_out_recordings(pair.target, [Row(tuple(foreign), row.prompt_length)], 5, spare=4)
    assert recording.ids == row.ids[:70] and recording.length == 70 - row.prompt_length - 4


def learn(tensors: dict[str, torch.Tensor], batch_loss: Callable[[dict[str, torch.Tensor]], torch.Tensor]) -> float:
    """Loss at the end over loss at the start, sixty steps of Adam."""
    random.seed(0)
    torch.manual_seed(0)
    tensors = {name: tensor.detach().float().clone().requires_grad_() for name, tensor in tensors.items()}
    optimizer, losses = torch.optim.Adam(tensors.values(), lr=5e-3), []
    for _ in range(60):
        value = batch_loss(tensors)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return float(np.mean(losses[-5:]) / np.mean(losses[:5]))


def test_training_brings_a_drafters_loss_down(pair, rows, states):
    words = vocabulary(pair, rows)

    def batch_loss(tensors):
        return dflash.batch_loss(tensors, pair.config(), pair.target, states, words, BLOCK, texts=2, anchors=8)

    assert learn(pair.oracle.state_dict(), batch_loss) < 0.9


def test_training_brings_an_mtp_heads_loss_down(pair, rows, states):
    config, words = CONFIGS["gated, zero-centred norms, a quarter of RoPE"], vocabulary(pair, rows)
    named = random_tensors(config, torch.float32)
    layer = {n.removeprefix("layers.0."): t for n, t in named.items() if n.startswith("layers.0.")}

    def batch_loss(tensors):
        return mtp.batch_loss(tensors, config, pair.target, states, words, BLOCK)

    assert learn(mtp.first_tensors(config, pair.target, layer, states), batch_loss) < 0.9


def test_a_stopped_run_goes_on_where_it_was_and_keeps_the_best_weights(tmp_path):
    def toy(run: Run) -> torch.Tensor:
        return run.tensors["x"].square().sum()

    scores = iter([2.0, 3.0, 1.0])
    first = Run({"x": torch.ones(3)}, tmp_path, minutes=0.002, rate=1e-2)
    lines = list(first.steps(partial(toy, first), lambda now: (next(scores), 10)))
    assert "length 3.000, 10 rounds (kept)" in lines[-1] and first.step > 0
    kept = load_file(tmp_path / "model.safetensors")["x"]
    again = Run({"x": torch.ones(3)}, tmp_path, minutes=0.004, rate=1e-2)
    assert (again.step, again.best) == (first.step, 3.0) and torch.equal(again.tensors["x"], first.tensors["x"])
    list(again.steps(partial(toy, again), lambda now: (next(scores), 10)))
    assert again.step > first.step and again.best == 3.0
    assert torch.equal(load_file(tmp_path / "model.safetensors")["x"], kept)


def test_a_warm_start_with_the_same_taps_keeps_the_context(pair, states):
    tensors = {name: tensor.clone() for name, tensor in pair.oracle.state_dict().items()}
    again = dflash.warm_start(tensors, pair.config(), pair.config(), states)
    rows = torch.cat([states.text(0, [tap]).rows(tap) for tap in pair.config().taps], -1)
    old, new = (rows @ weights["fc.weight"].T for weights in (tensors, again))
    assert float((old - new).norm() / old.norm()) < 0.01


@torch.inference_mode()
def test_the_judged_rounds_of_an_mtp_head_are_the_loops(pair, rows):
    config = CONFIGS["plain"]
    head = MtpHead(config, random_tensors(config, torch.float32), pair.target)
    recordings = held_out_recordings(pair.target, rows[:2], 2, spare=8)
    for recording, judged in zip(recordings, mtp.accepted(head, recordings, BLOCK), strict=True):
        generation = run(pair.target, MtpDrafter(head), recording.prompt_ids, Settings(BLOCK, recording.length))
        assert judged == [r.accepted for r in generation if r.end == "none"]
