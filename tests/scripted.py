"""A target and a drafter that follow a script, so that every acceptance is known before the loop runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dflash_lab.decode.sampling import Sampler
from dflash_lab.drafters.protocol import Draft, Tree

VOCAB = 64


class ScriptedTarget:
    """Emits ``text[i]`` at the i-th new position, whatever it is fed; counts what it is asked."""

    vocab_size = VOCAB
    context_length: int | None = None
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, prompt_length: int, text: Sequence[int]) -> None:
        self.prompt_length, self.text = prompt_length, list(text)
        self.run: ScriptedRun | None = None

    def open(self, capacity: int, taps: Sequence[int] = ()) -> ScriptedRun:
        self.run = ScriptedRun(self, capacity)
        return self.run

    def logits_at(self, position: int) -> torch.Tensor:
        """What follows the token at ``position``: the scripted one, two logits ahead of the others."""
        index = position + 1 - self.prompt_length
        row = torch.zeros(VOCAB)
        row[self.text[index] if 0 <= index < len(self.text) else 0] = 2.0
        return row


class ScriptedRun:
    """Checks that every token it is fed sits where the text says it does."""

    def __init__(self, target: ScriptedTarget, capacity: int) -> None:
        self.target, self.capacity, self.length = target, capacity, 0
        self.kept: list[int] = []

    def forward(self, ids: torch.Tensor, last_only: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
        start, self.length = self.length, self.length + len(ids)
        assert self.length <= self.capacity
        self.kept += ids.tolist()
        rows = torch.stack([self.target.logits_at(p) for p in range(start, self.length)])
        return (rows[-1:] if last_only else rows), []

    def verify(self, block: torch.Tensor, tree: Tree | None = None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        assert tree is None
        return self.forward(block)

    def keep(self, block: torch.Tensor, rows: Sequence[int]) -> bool:
        assert tuple(rows) == tuple(range(len(rows)))
        self.length -= len(block) - len(rows)
        del self.kept[self.length :]
        return False


class ScriptedDrafter:
    """Proposes ``drafts[n]`` in round n and remembers what was committed."""

    taps: tuple[int, ...] = ()

    def __init__(self, drafts: Sequence[Sequence[int]]) -> None:
        self.drafts = [list(d) for d in drafts]
        self.anchors: list[int] = []
        self.committed: list[list[int]] = []

    def start(self, capacity: int) -> None:
        self.committed.clear()

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        self.committed.append(ids.tolist())

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        self.anchors.append(int(anchor))
        ids = self.drafts[len(self.anchors) - 1][:k] if len(self.anchors) <= len(self.drafts) else []
        tensor = torch.tensor(ids, dtype=torch.long)
        return Draft(tensor, torch.nn.functional.one_hot(tensor, VOCAB).float() if ids else None)
