"""The seam between the loop and every method that drafts tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from dflash_lab.decode.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of proposals.

    ``ids`` ``[k]``; ``logits`` ``[k, V]`` or None when the method has none (prompt lookup); ``probs`` ``[k, V]`` is
    the distribution q the ids were drawn from, None when q is one-hot (greedy drafts).
    """

    ids: torch.Tensor
    logits: torch.Tensor | None = None
    probs: torch.Tensor | None = None


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
