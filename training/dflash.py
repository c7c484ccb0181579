"""Trains a DFlash drafter on the very arithmetic that replay and the loop run: blocks behind random anchors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashStack, DFlashWeights
from dflash_lab.recording import Recording
from dflash_lab.replay import Anchors, Replay
from training.data import States
from training.run import Tensors, Vocabulary, loss


def batch_loss(
    tensors: Tensors,
    config: DrafterConfig,
    target: Target,
    states: States,
    vocabulary: Vocabulary,
    block: int,
    texts: int = 4,
    anchors: int = 32,
    decay: float = 2.5,
) -> torch.Tensor:
    """Loss of one step: ``block`` slots behind ``anchors`` random anchors in each of ``texts`` random rows."""
    last = target.num_layers - 1
    batch = [states.text(n, {*config.taps, last}) for n in random.sample(range(len(states)), texts)]
    replay = Replay(batch)  # type: ignore[arg-type]  # it reads ids, states and rows, which a Text has
    places = [
        (i, p)
        for i, text in enumerate(batch)
        for p in random.choices(range(text.row.prompt_length, len(text.ids) - block - 1), k=anchors)
        if len(text.ids) > text.row.prompt_length + block + 2
    ]
    where = Anchors(torch.tensor([i for i, _ in places]), torch.tensor([p for _, p in places]))
    rows = replay.offset[where.recording] + where.position
    with torch.no_grad():
        final = target.model.get_decoder().norm(replay.rows(last).to(target.dtype))
        teacher = final[rows[:, None] + torch.arange(block)]  # slot s stands for the token after position anchor + s
    head = vocabulary.rows(replay.ids[rows[:, None] + 1 + torch.arange(block)])
    stack = DFlashStack(DFlashWeights(tensors), config, target)
    with torch.autocast("cpu", torch.bfloat16):
        student = replay.proposals(stack, replay.context(stack), where, block)
    return loss(student, teacher, head, decay)


def judge(
    tensors: Mapping[str, torch.Tensor], config: DrafterConfig, target: Target, recordings: Sequence[Recording], k: int
) -> tuple[float, int]:
    """Acceptance length of replayed rounds along recordings, and how many rounds it counts."""
    weights = DFlashWeights({name: t.to(target.dtype) for name, t in tensors.items()})
    traces = Replay(recordings).lockstep(DFlashStack(weights, config, target), k)
    lengths = [r.accepted + 1 for t in traces for r in t.rounds if r.end == "none"]
    return sum(lengths) / len(lengths), len(lengths)


def warm_start(source: Tensors, old: DrafterConfig, new: DrafterConfig, states: States, rows: int = 64) -> Tensors:
    """``source`` for a drafter with other taps: ``fc`` is fitted so that the context changes least (ridge)."""
    old_taps, new_taps = old.taps, new.taps
    texts = [states.text(n, {*old_taps, *new_taps}) for n in range(min(rows, len(states)))]
    x, y = (torch.cat([torch.cat([t.rows(tap) for tap in taps], -1) for t in texts]) for taps in (new_taps, old_taps))
    gram = x.T @ x
    gram.diagonal().add_(1e-4 * gram.diagonal().mean())
    fitted = torch.linalg.solve(gram, x.T @ (y @ source["fc.weight"].float().T))
    return source | {"fc.weight": fitted.T.contiguous()}
