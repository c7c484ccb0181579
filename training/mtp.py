"""Trains an MTP head on whole rows of text: every row of it drafts a chain, the text's own tokens fed back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from dflash_lab.decode.target import Target
from dflash_lab.drafters.mtp import MtpConfig, MtpHead
from dflash_lab.recording import Recording
from training.data import States
from training.run import Tensors, Vocabulary, loss


def batch_loss(
    tensors: Tensors,
    config: MtpConfig,
    target: Target,
    states: States,
    vocabulary: Vocabulary,
    chain: int,
    texts: int = 2,
    decay: float = 2.5,
) -> torch.Tensor:
    """Loss of one step: chains of ``chain`` tokens behind every row of ``texts`` random rows of text."""
    last = target.num_layers - 1
    head, losses = MtpHead(config, _plain(tensors), target), []
    for n in random.sample(range(len(states)), texts):
        text = states.text(n, [last])
        ids = torch.tensor(text.ids)
        count = len(ids) - chain - 1
        with torch.no_grad():
            hidden = head.states(text.layers[last].to(target.dtype))
        places = torch.arange(count)[:, None] + torch.arange(chain)
        with torch.autocast("cpu", torch.bfloat16):
            drafted = head.chains(ids, hidden[:count], chain).transpose(0, 1)
        losses.append(loss(drafted, hidden[1 + places], vocabulary.rows(ids[2 + places]), decay))
    return torch.stack(losses).mean()


def first_tensors(config: MtpConfig, target: Target, layer: Mapping[str, torch.Tensor], states: States) -> Tensors:
    """Weights to start from: ``fc`` fitted to give the target's next hidden state (ridge), a drafter's ``layer``.

    The layer's outputs begin small, so that the fit is what the head says at first. Norms are stored as weight - 1.
    """
    final = target.model.get_decoder().norm.weight.detach().float()
    nothing = torch.zeros(target.hidden_size)
    tensors = {f"layers.0.{name}": tensor.float() for name, tensor in layer.items()}
    for name in tensors:
        if "norm" in name:
            tensors[name] = tensors[name] - 1
        elif "o_proj" in name or "down_proj" in name:
            tensors[name] = tensors[name] * 0.3
    tensors |= {"pre_fc_norm_embedding.weight": nothing, "pre_fc_norm_hidden.weight": nothing, "norm.weight": final - 1}
    last, x, y = target.num_layers - 1, [], []
    for n in range(len(states)):
        text = states.text(n, [last])
        hidden = target.model.get_decoder().norm(text.layers[last].to(target.dtype)).float()
        embedded = target.embed(torch.tensor(text.ids[1:])).float()
        x.append(torch.cat([_unit(embedded, config.eps), _unit(hidden[:-1], config.eps)], dim=-1))
        y.append(hidden[1:] / final)
    rows, wanted = torch.cat(x), torch.cat(y)
    gram = rows.T @ rows
    gram.diagonal().add_(1e-2 * gram.diagonal().mean())
    tensors["fc.weight"] = torch.linalg.solve(gram, rows.T @ wanted).T.contiguous()
    return {f"mtp.{name}": tensor for name, tensor in tensors.items()}


def _plain(tensors: Tensors, dtype: torch.dtype = torch.float32) -> Tensors:
    return {name.removeprefix("mtp."): tensor.to(dtype) for name, tensor in tensors.items()}


def _unit(x: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=eps)


def judge(
    tensors: Tensors, config: MtpConfig, target: Target, recordings: Sequence[Recording], k: int
) -> tuple[float, int]:
    """Acceptance length of replayed rounds along recordings, and how many rounds it counts."""
    lengths = accepted(MtpHead(config, _plain(tensors, target.dtype), target), recordings, k)
    rounds = [a + 1 for one in lengths for a in one]
    return sum(rounds) / len(rounds), len(rounds)


@torch.inference_mode()
def accepted(head: MtpHead, recordings: Sequence[Recording], k: int) -> list[list[int]]:
    """Accepted tokens of every round that greedy drafting would run along each recording, its last round left out."""
    found = []
    for recording in recordings:
        ids = torch.tensor(recording.ids)
        hidden = head.states(recording.rows(head.target.num_layers - 1))
        count = len(ids) - k - 1
        matches = torch.stack(
            [
                head.logits(rows).argmax(-1) == ids[2 + j : 2 + j + count]
                for j, rows in enumerate(head.chains(ids, hidden[:count], k))
            ]
        )
        lengths = matches.long().cumprod(0).sum(0).tolist()
        rounds, anchor = [], len(recording.prompt_ids)
        end = anchor + recording.length - 1
        while anchor + lengths[anchor - 1] + 1 < end:  # the draft behind an anchor is that of the row before it
            rounds.append(lengths[anchor - 1])
            anchor += lengths[anchor - 1] + 1
        found.append(rounds)
    return found
