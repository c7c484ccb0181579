"""What both heads share: a time-boxed AdamW run that can be stopped and resumed, and keeps the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from dflash_lab.decode.target import Target

Tensors = dict[str, torch.Tensor]
Judge = Callable[[Tensors], tuple[float, int]]
"""Weights in bfloat16 -> (held-out acceptance length, rounds it counts)."""


class Vocabulary:
    """A part of the vocabulary to compare distributions over: frequent ids, and some random ones each step."""

    def __init__(self, target: Target, ids: torch.Tensor, frequent: int = 3072, random: int = 1024) -> None:
        self._table = target.model.get_output_embeddings().weight
        self._frequent = torch.bincount(ids, minlength=target.vocab_size).topk(frequent).indices
        self._random = random

    def rows(self, targets: torch.Tensor) -> torch.Tensor:
        """Rows ``[S, H]`` of the head: frequent, random and the step's own ``targets``."""
        drawn = torch.randint(self._table.shape[0], (self._random,))
        return self._table[torch.cat([self._frequent, drawn, targets.flatten()]).unique()]


def loss(student: torch.Tensor, teacher: torch.Tensor, head: torch.Tensor, decay: float) -> torch.Tensor:
    """Distance of final hidden rows ``[A, K, H]`` from the target's own, weighted exp(-slot / decay).

    Cross-entropy to the target's distribution over the ``head`` rows, plus twice the relative squared error of the
    hidden rows themselves.
    """
    student, teacher = student.float(), teacher.float()
    wanted = (teacher @ head.float().T).softmax(-1)
    entropy = -(wanted * (student.to(head.dtype) @ head.T).float().log_softmax(-1)).sum(-1)  # [A, K]
    error = (student - teacher).square().sum(-1) / teacher.square().sum(-1)
    weight = torch.exp(-torch.arange(student.shape[1]) / decay)
    return ((entropy + 2 * error) * weight).sum(-1).mean() / weight.sum()


class Run:
    """AdamW (betas 0.9/0.95, gradient clip 1, warm-up, then cosine to 3%) over ``minutes`` of training time.

    State is saved every ``save_every`` seconds; a run on a folder that holds a state goes on from it.
    """

    def __init__(self, tensors: Tensors, folder: Path, minutes: float, rate: float, save_every: float = 150) -> None:
        self.folder, self.minutes, self.rate, self.save_every = folder, minutes, rate, save_every
        folder.mkdir(parents=True, exist_ok=True)
        self.step, self.seconds, self.best = 0, 0.0, 0.0
        saved = torch.load(self._state, weights_only=True) if self._state.exists() else None
        source = saved["tensors"] if saved else tensors
        self.tensors = {name: t.detach().float().clone().requires_grad_() for name, t in source.items()}
        self._optimizer = torch.optim.AdamW(self.tensors.values(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        if saved:
            self._optimizer.load_state_dict(saved["optimizer"])
            self.step, self.seconds, self.best = saved["step"], saved["seconds"], saved["best"]

    @property
    def _state(self) -> Path:
        return self.folder / "state.pt"

    def steps(self, batch_loss: Callable[[], torch.Tensor], judge: Judge) -> Iterator[str]:
        """Train until the time is up; yields lines to print."""
        if not self.step:
            yield self._keep_best(judge)
        last_save, recent = time.perf_counter(), 0.0
        while self.seconds < 60 * self.minutes:
            started = time.perf_counter()
            share = self.seconds / (60 * self.minutes)
            factor = min(1.0, (self.step + 1) / 30) * (0.03 + 0.97 * (1 + math.cos(math.pi * share)) / 2)
            for group in self._optimizer.param_groups:
                group["lr"] = self.rate * factor
            value = batch_loss()
            self._optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(self.tensors.values(), 1.0)
            self._optimizer.step()
            self.step += 1
            self.seconds += time.perf_counter() - started
            recent = value.item() if not recent else 0.95 * recent + 0.05 * value.item()
            if self.step % 20 == 0:
                yield f"step {self.step}, {self.seconds / 60:.1f} of {self.minutes:g} min, loss {recent:.3f}"
            if time.perf_counter() - last_save > self.save_every:
                yield self._keep_best(judge)
                self._save()
                last_save = time.perf_counter()
        yield self._keep_best(judge)
        self._save()

    def _keep_best(self, judge: Judge) -> str:
        plain = {name: t.detach().bfloat16() for name, t in self.tensors.items()}
        reached, rounds = judge(plain)
        if better := reached > self.best:
            self.best = reached
            save_file(plain, self.folder / "model.safetensors")
        return f"step {self.step}: held-out acceptance length {reached:.3f}, {rounds} rounds" + (
            " (kept)" if better else ""
        )

    def _save(self) -> None:
        part = self._state.with_suffix(".part")
        tensors = {name: t.detach() for name, t in self.tensors.items()}
        state = {"tensors": tensors, "optimizer": self._optimizer.state_dict()}
        torch.save(state | {"step": self.step, "seconds": self.seconds, "best": self.best}, part)
        part.rename(self._state)
