"""Replay at temperature > 0: expected acceptance along a recorded sample, instead of one more random run.

Along text y drawn from the target, a round from the anchor at t keeps at least i tokens of y with probability

    w_i = prod_(j <= i) min(1, q_j(y_j) / p_j(y_j)),

and accepts at position i with expectation w_(i-1) * sum_x min(p_i(x), q_i(x)) (speculative sampling, Leviathan et
al. 2023). Anchors are chained by renewal: the anchor at t is visited with probability v_t, and hands v_t (w_a -
w_(a+1)) on to t + a + 1. For one-hot q the sum is p_i(argmax q_i) and w_i asks y_j = argmax q_j: the same formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dflash_lab.decode.sampling import QRule, Sampler, Sampling
from dflash_lab.decode.target import Target
from dflash_lab.drafters.dflash import DFlashStack
from dflash_lab.replay import ANCHORS_AT_ONCE, Replay


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected acceptance under sampling: an expectation, not a measurement.

    ``per_position[i]`` is the expected unconditional rate at i, over ``rounds`` expected rounds of the recorded
    texts; ``q_rule`` names the q it holds for.
    """

    per_position: tuple[float, ...]
    rounds: float
    q_rule: QRule

    @property
    def acceptance_length(self) -> float:
        """1 + the sum of the rates (bonus included)."""
        return 1 + sum(self.per_position)


@torch.inference_mode()
def expected(replay: Replay, stack: DFlashStack, target: Target, sampling: Sampling, k: int) -> Expectation:
    """Expected acceptance of ``stack`` at ``k`` over texts recorded under the same ``sampling``.

    Rounds that would reach past the end of a text are not counted.
    """
    context, anchors = replay.context(stack), replay.all_anchors()
    reach = replay.last[anchors.recording] - anchors.position
    anchors = anchors[(reach >= k).nonzero()[:, 0]]
    last = replay.rows(target.num_layers - 1)
    accept, keep = [], []
    sampler = Sampler(sampling, target.device)
    for low in range(0, len(anchors), max(1, ANCHORS_AT_ONCE // k)):
        part = anchors[low : low + max(1, ANCHORS_AT_ONCE // k)]
        row = (replay.offset[part.recording] + part.position)[:, None] + torch.arange(k, device=target.device)
        states = last[row]  # [A, k, H]
        p = sampler.probs(target.logits_from_last_layer(states))
        logits = stack.logits_given(replay.proposals(stack, context, part, k), replay.ids[row])
        if sampling.q_rule == "drafter":
            q = sampler.probs(logits)
        else:
            q = torch.zeros_like(p).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        truth = replay.ids[row + 1][..., None]
        ratio = (q.gather(-1, truth) / p.gather(-1, truth))[..., 0].clamp_max(1)
        weights = ratio.cumprod(-1)  # w_1 .. w_k
        before = torch.cat([torch.ones_like(weights[:, :1]), weights[:, :-1]], dim=1)
        accept.append(before * torch.minimum(p, q).sum(-1))
        keep.append(weights)
    return _renewal(replay, anchors.recording.tolist(), anchors.position.tolist(), accept, keep, sampling.q_rule, k)


def _renewal(
    replay: Replay,
    recordings: Sequence[int],
    positions: Sequence[int],
    accept: Sequence[torch.Tensor],
    keep: Sequence[torch.Tensor],
    q_rule: QRule,
    k: int,
) -> Expectation:
    accepted, kept = torch.cat(list(accept)).double().tolist(), torch.cat(list(keep)).double().tolist()
    visited: dict[tuple[int, int], float] = {}
    for n, recording in enumerate(replay.recordings):
        visited[n, len(recording.prompt_ids)] = 1.0
    rates, rounds = [0.0] * k, 0.0
    for n, position, rate, weight in zip(recordings, positions, accepted, kept, strict=True):
        v = visited.get((n, position), 0.0)
        rounds += v
        for i in range(k):
            rates[i] += v * rate[i]
        chain = [1.0, *weight, 0.0]
        for a in range(k + 1):
            place = n, position + a + 1
            visited[place] = visited.get(place, 0.0) + v * (chain[a] - chain[a + 1])
    return Expectation(tuple(rate / rounds for rate in rates) if rounds else (0.0,) * k, rounds, q_rule)
