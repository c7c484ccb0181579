"""From logits to tokens: greedy, or temperature, top-k and top-p with a seeded generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from dflash_lab.errors import LabError

QRule = Literal["drafter", "one-hot"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 switch the filters off.

    ``q_rule`` says what the drafter's q is at temperature > 0 (both leave the target's distribution untouched):
    "drafter" draws the draft from the drafter's own distribution (z-lab 0.1.0), "one-hot" drafts its most probable
    token and treats q as certain (vLLM's default).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    q_rule: QRule = "drafter"

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise LabError(f"temperature is {self.temperature}.", "Give 0 (greedy) or a positive number.")
        if self.top_k < 0:
            raise LabError(f"top_k is {self.top_k}.", "Give 0 (off) or a positive count.")
        if not 0 < self.top_p <= 1:
            raise LabError(f"top_p is {self.top_p}.", "Give a share above 0 and at most 1 (1 = off).")
        if self.q_rule not in ("drafter", "one-hot"):
            raise LabError(f"q_rule is {self.q_rule!r}.", 'Give "drafter" or "one-hot".')


class Sampler:
    """Draws tokens under one Sampling; owns the random generator of a run."""

    def __init__(self, sampling: Sampling, device: torch.device | str) -> None:
        self.sampling = sampling
        self.greedy = sampling.temperature == 0
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(sampling.seed)

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Distribution ``[n, V]`` (float32 or wider) after temperature, top-k, then top-p over what is left.

        The token that crosses the top-p mass is kept, so at least one always is.
        """
        s = self.sampling
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32)) / s.temperature
        if 0 < s.top_k < scores.shape[-1]:
            floor = scores.topk(s.top_k, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < floor, float("-inf"))
        probs = scores.softmax(-1)
        if s.top_p < 1:
            ordered, order = probs.sort(dim=-1, descending=True)
            ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= s.top_p, 0)
            probs = torch.zeros_like(probs).scatter(-1, order, ordered)
            probs = probs / probs.sum(-1, keepdim=True)
        return probs

    def distribution(self, logits: torch.Tensor) -> torch.Tensor:
        """What the accept rule compares: ``probs`` when sampling, the plain softmax when greedy."""
        if not self.greedy:
            return self.probs(logits)
        return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """One token id per row of ``probs [n, V]``."""
        return torch.multinomial(probs, 1, generator=self._generator)[:, 0]

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        """Fresh uniform numbers in [0, 1) shaped like ``like``."""
        return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=self._generator)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The target's own tokens ``[n]`` for rows ``[n, V]``: argmax, or one sample each."""
        return logits.argmax(-1) if self.greedy else self.draw(self.probs(logits))

    def draft(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Draft ids ``[k]`` from the drafter's logits ``[k, V]`` and the q they came from (None = one-hot)."""
        if self.greedy or self.sampling.q_rule == "one-hot":
            return logits.argmax(-1), None
        probs = self.probs(logits)
        return self.draw(probs), probs
