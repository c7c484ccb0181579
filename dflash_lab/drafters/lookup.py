"""Prompt lookup (n-gram) drafting: what followed the text's last tokens the last time they were seen.

No model and no distribution: q is one-hot. The longest n-gram that was seen before wins, its latest occurrence. Where
the tokens behind it run into the end of the text, the draft goes on with itself, so that a text that repeats itself is
drafted as repeating. A round drafts k tokens or, when nothing was seen before, none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from dflash_lab.decode.sampling import Sampler
from dflash_lab.drafters.protocol import Draft
from dflash_lab.errors import LabError

LONGEST = 3
"""Tokens of the longest n-gram that is looked up, as vLLM's and transformers' examples have it."""


class NGrams:
    """A growing text and where each of its n-grams was last followed by a token."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, ids: Iterable[int]) -> None:
        """Take tokens behind the text."""
        for token in ids:
            for gram in self._endings():
                self._after[gram] = len(self._text)
            self._text.append(token)

    def draft(self, k: int) -> list[int]:
        """``k`` tokens to follow the text, or none when even its last token was not seen before."""
        start = next((self._after[gram] for gram in self._endings() if gram in self._after), None)
        if start is None:
            return []
        period = len(self._text) - start
        return [self._text[start + i % period] for i in range(k)]

    def _endings(self) -> list[tuple[int, ...]]:
        """The n-grams the text ends in, the longest first."""
        return [tuple(self._text[-n:]) for n in range(min(self._longest, len(self._text)), 0, -1)]


class LookupDrafter:
    """Prompt lookup in the loop. Raises LabError for n-grams of no tokens."""

    taps: tuple[int, ...] = ()

    def __init__(self, longest: int = LONGEST) -> None:
        if longest < 1:
            raise LabError(f"The longest n-gram has {longest} tokens", "Give at least 1")
        self.longest = longest
        self.start(0)

    def start(self, capacity: int) -> None:
        """Forget the text."""
        self._grams = NGrams(self.longest)
        self._ahead = 0

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Take tokens that became text; the anchor among them is known since the draft."""
        self._grams.extend(ids.tolist()[self._ahead :])
        self._ahead = 0

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """What followed the text's end, ``anchor [1]`` included, when it was last seen: ``k`` tokens or none."""
        self._grams.extend(anchor.tolist())
        self._ahead = 1
        return Draft(torch.tensor(self._grams.draft(k), dtype=torch.long, device=anchor.device))
