"""A reduced draft vocabulary, as speculators makes it: a small head, and which of the target's tokens its rows are.

D draft tokens, V the target's vocabulary, H hidden size. ``d2t[i]`` is how far target token is above draft token i:
id = i + d2t[i]. A token outside can be emitted by the target and is never drafted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """``ids [D]``, the target's id of each draft token, and ``head [D, H]``, the drafter's own."""

    ids: torch.Tensor
    head: torch.Tensor

    @classmethod
    def read(cls, tensors: Mapping[str, torch.Tensor]) -> DraftVocabulary | None:
        """The checkpoint's; None when it has none."""
        if "d2t" not in tensors or "lm_head.weight" not in tensors:
            return None
        offsets = tensors["d2t"].long()
        return cls(offsets + torch.arange(len(offsets), device=offsets.device), tensors["lm_head.weight"])

    def spread(self, logits: torch.Tensor, size: int) -> torch.Tensor:
        """``logits [..., D]`` at their places among ``size`` tokens, minus infinity everywhere else."""
        out = logits.new_full((*logits.shape[:-1], size), float("-inf"))
        out[..., self.ids.to(logits.device)] = logits
        return out

    def rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The head's rows ``[n, H]`` for the target's ``ids [n]``, and which of them the drafter knows ``[n]``.

        The row of a token it does not know is another token's.
        """
        order = self.ids.argsort()
        place = torch.searchsorted(self.ids[order], ids).clamp_max(len(order) - 1)
        row = order[place]
        return self.head[row], self.ids[row] == ids
