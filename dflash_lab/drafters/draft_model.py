"""An ordinary small language model as drafter: one pass a drafted token, with its own key/value cache.

It must read the target's token ids. Cache rows made of drafted tokens that became text are kept, for a row depends on
nothing but its token and those before it; the others are forgotten by length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from dflash_lab.decode.sampling import Sampler
from dflash_lab.decode.target import Target
from dflash_lab.drafters.protocol import Draft
from dflash_lab.errors import LabError


class DraftModelDrafter:
    """A causal language model in the loop. ``vocab_size`` is the target's; ids behind either vocabulary are padding.

    Raises LabError for a hybrid model, whose running state cannot be rewound token by token.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, model: Target, vocab_size: int) -> None:
        if model.is_hybrid:
            raise LabError(
                "The draft model has linear-attention layers: their running state cannot forget rejected tokens",
                "Take a draft model with attention layers only",
            )
        self.model, self.vocab_size = model, vocab_size
        self.start(0)

    def start(self, capacity: int) -> None:
        """Forget everything; make room for ``capacity`` positions. Raises LabError when the model has fewer."""
        limit = self.model.context_length
        if limit is not None and capacity > limit:
            raise LabError(
                f"The run may reach {capacity} positions, the draft model was built for {limit}",
                "Shorten the prompt or the text, or take another draft model",
            )
        self._run = self.model.open(capacity)
        self._committed = 0
        self._pending: list[torch.Tensor] = []

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Keep the cached rows of ``ids [n]`` as far as the last draft made them; the others wait for the next one."""
        # Rows of [anchor, drafted...] lie ahead, and the first ones of them became text.
        kept = min(max(0, self._run.length - self._committed), ids.shape[0])
        if kept:
            self._run.forget(self._committed + kept)
        self._committed += ids.shape[0]
        self._pending.append(ids[kept:])

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """Draft ``k`` tokens after ``anchor [1]``; the first pass also reads what became text since the last."""
        rows = torch.cat([*self._pending, anchor]).to(self.model.device)
        self._pending.clear()
        logits, drafted, probs = [], [], []
        for _ in range(k):
            row, _ = self._run.forward(rows, last_only=True)
            logits.append(self._in_vocabulary(row[-1:]).to(anchor.device))
            rows, q = sampler.draft(logits[-1])
            drafted.append(rows)
            rows = rows.to(self.model.device)
            if q is not None:
                probs.append(q)
        return Draft(torch.cat(drafted), torch.cat(logits), torch.cat(probs) if probs else None)

    def _in_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits ``[1, V]`` over the target's ids: models of one family pad their tables to different sizes."""
        missing = self.vocab_size - logits.shape[-1]
        return F.pad(logits, (0, missing), value=float("-inf")) if missing else logits
