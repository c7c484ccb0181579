"""What a better drafter would bring: acceptance slid at unchanged step costs, against the best of every other kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dflash_lab.drafters.method import NAMES, Method
from dflash_lab.errors import LabError
from dflash_lab.forecast import Prediction, better

SCALES = np.linspace(0.0, 3.0, 61)


@dataclass(frozen=True, slots=True)
class Slid:
    """A method whose conditional acceptance rates are multiplied: its acceptance length and predicted tok/s.

    ``now`` is its acceptance length as it is, ``curve`` (``al``, ``tok_s`` and, where the limit is known,
    ``limit_tok_s``: rounds that take no longer than reading their bytes) every multiple, ``rivals`` the predicted
    tok/s of the fastest method of every other kind by label, and ``needed`` the acceptance length that overtakes it.
    """

    method: Method
    now: float
    acceptance_length: float
    tok_s: float
    curve: pd.DataFrame
    rivals: dict[str, float]
    needed: dict[str, float]

    def sentence(self) -> str:
        """The slide in words, and what it takes to overtake each rival."""
        words = (
            f"{self.method.label}: acceptance length {self.acceptance_length:.2f} ({self.now:.2f} as it is) would make "
            f"{self.tok_s:.1f} tok/s."
        )
        most = self.method.k + 1
        for name, length in self.needed.items():
            if length <= self.now:
                continue
            words += (
                f" An acceptance length of {length:.2f} overtakes {name}."
                if length <= most
                else f" {name} is out of reach: it takes {length:.2f}, and a round yields at most {most}."
            )
        return words


def slide(predictions: Sequence[Prediction], method: Method, scale: float) -> Slid:
    """``method`` with its conditional rates times ``scale``. Raises LabError where it was not predicted, or is no
    chain."""
    mine = [p for p in predictions if p.method == method]
    if not mine or not (at := better(mine, scale)):
        raise LabError(f"{method.label} cannot be slid", "Choose a predicted method that drafts chains")
    (now,), curve = better(mine, 1.0), [better(mine, float(s))[0] for s in SCALES]
    fastest: dict[str, Prediction] = {}
    for p in sorted(predictions, key=lambda p: p.tok_s):
        if p.method.kind != method.kind and not p.method.config:
            fastest[NAMES[p.method.kind]] = p
    per_token = now.tok_s / now.acceptance_length
    lines = pd.DataFrame({"al": [b.acceptance_length for b in curve], "tok_s": [b.tok_s for b in curve]})
    if mine[0].limit_ms:
        lines["limit_tok_s"] = lines["tok_s"] * mine[0].round_ms / mine[0].limit_ms
    return Slid(
        method,
        now.acceptance_length,
        at[0].acceptance_length,
        at[0].tok_s,
        lines,
        {p.method.label: p.tok_s for p in fastest.values()},
        {p.method.label: p.tok_s / per_token for p in fastest.values()},
    )
