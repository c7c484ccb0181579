"""The seam between the loop and every method that drafts tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from dflash_lab.decode.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Tree:
    """How the drafted tokens of a tree hang together. Row 0 is the anchor, row i + 1 the drafted token i.

    ``parents [n]``: the row each drafted token follows; ``depths [1 + n]``: tokens behind the anchor; ``sees [1 + n,
    1 + n]`` (bool): the rows each row attends to, its ancestors and itself.
    """

    parents: torch.Tensor
    depths: torch.Tensor
    sees: torch.Tensor

    @classmethod
    def of(cls, parents: Sequence[int], device: torch.device | str = "cpu") -> Tree:
        """The tree with these parents, each listed before its children."""
        sees = np.eye(1 + len(parents), dtype=bool)
        for i, parent in enumerate(parents):
            sees[i + 1] |= sees[parent]
        seen = torch.from_numpy(sees).to(device)
        return cls(torch.tensor(parents, dtype=torch.long, device=device), seen.sum(-1) - 1, seen)


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of proposals, or a tree of them.

    ``ids`` ``[k]``; ``logits`` ``[k, V]`` or None when the method has none (prompt lookup); ``probs`` ``[k, V]`` is
    the distribution q the ids were drawn from, None when q is one-hot (greedy drafts). With a ``tree``, ``logits`` has
    one row a depth, the one of depth 1 first, and there is no ``probs``.
    """

    ids: torch.Tensor
    logits: torch.Tensor | None = None
    probs: torch.Tensor | None = None
    tree: Tree | None = None


class Drafter(Protocol):
    """What the loop asks of a method.

    Calls come as ``start``, then ``commit`` for the prompt, then ``propose`` and ``commit`` alternating.
    """

    @property
    def taps(self) -> Sequence[int]:
        """Target layers (0-based outputs) whose rows ``commit`` wants, in this order."""
        ...

    def start(self, capacity: int) -> None:
        """Forget everything; at most ``capacity`` positions will follow."""
        ...

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Take ``ids [n]``, now part of the text, with one ``[n, H]`` tensor of target rows per tap."""
        ...

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """Draft at most ``k`` tokens to follow ``anchor [1]``, the token after the committed text."""
        ...
