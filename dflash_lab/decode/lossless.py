"""Is the speculative text the target's own? Token by token, with the margin wherever it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from dflash_lab.decode.target import Target
from dflash_lab.trace import Trace

NEAR_TIE = 1e-4
"""Largest float32 logit margin at which another batch shape may flip the target's choice (float64 has none)."""

NEAR_TIES: dict[torch.dtype, float] = {torch.float32: NEAR_TIE, torch.bfloat16: 0.25, torch.float16: 0.03}
"""Margin taken for a near-tie by dtype. bfloat16 keeps 8 bits: logits of 16 to 32 are 0.125 apart, and two
roundings may differ."""


@dataclass(frozen=True, slots=True)
class Lossless:
    """The comparison of two greedy texts.

    ``compared`` tokens were looked at; at ``index`` (None when equal) one text has ``got`` where the target alone
    has ``expected``, and the target's two top logits there are ``margin`` apart. A text that ends early differs at
    its end (token None).
    """

    verdict: Literal["equal", "near-tie", "different"]
    compared: int
    index: int | None = None
    got: int | None = None
    expected: int | None = None
    margin: float | None = None

    def sentence(self) -> str:
        """The verdict in plain words, unit included."""
        if self.verdict == "equal":
            return f"Lossless: all {self.compared} tokens equal the target's own."
        where = f"token {self.index} is {self.got}, the target alone emits {self.expected}"
        if self.verdict == "near-tie":
            return f"Near-tie: {where}; its two top logits are {self.margin:.2g} apart, so rounding decides."
        margin = "" if self.margin is None else f" although its two top logits are {self.margin:.2g} apart"
        return f"Not lossless: {where}{margin}."


def compare(speculative: Trace, plain: Trace, target: Target) -> Lossless:
    """Compare a greedy run with the target alone; both must come from the same prompt.

    Texts cut by a cancel or the token limit are compared over their common length.
    """
    a, b = speculative.output_ids, plain.output_ids
    both_ended = speculative.end == "eos" and plain.end == "eos"
    common = min(len(a), len(b))
    index = next((i for i in range(common) if a[i] != b[i]), None)
    if index is None and (len(a) == len(b) or not both_ended):
        return Lossless("equal", common)
    if index is None:
        index = common
    top = target.logits_after(plain.prompt_ids + b[:index]).double().topk(2).values
    margin = float(top[0] - top[1])
    return Lossless(
        "near-tie" if margin <= NEAR_TIES.get(target.dtype, 0.0) else "different",
        compared=index + 1,
        index=index,
        got=a[index] if index < len(a) else None,
        expected=b[index] if index < len(b) else None,
        margin=margin,
    )
