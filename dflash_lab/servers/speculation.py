"""What a server is told to draft with, as vLLM's `--speculative-config` and SGLang's flags say it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dflash_lab.errors import LabError

Method = Literal["none", "dflash", "mtp", "ngram", "draft_model"]

METHODS: tuple[Method, ...] = ("none", "dflash", "mtp", "ngram", "draft_model")


@dataclass(frozen=True, slots=True)
class Speculation:
    """One way to draft `k` tokens a round; `drafter` is a folder or hub id where the method has a model.

    `synthetic_rates` (per position, unconditional, never rising) replaces the verdict of the target by a coin: a
    what-if for speed that vLLM offers on GPUs only.
    """

    method: Method = "dflash"
    k: int = 5
    drafter: str | None = None
    lookup: tuple[int, int] = (2, 5)
    sampled_drafts: bool = False
    synthetic_rates: Sequence[float] = field(default=())

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise LabError(f"There is no method {self.method!r}", f"Methods: {', '.join(METHODS)}")
        if self.method == "none":
            return
        if self.k < 1:
            raise LabError(f"{self.k} drafted tokens", "Draft at least 1, or choose the method none")
        if self.method in ("dflash", "draft_model") and not self.drafter:
            raise LabError(f"The method {self.method} needs a drafter", "Give its folder or hub id")
        if self.synthetic_rates:
            self._check_rates()

    def _check_rates(self) -> None:
        rates = list(self.synthetic_rates)
        falling = all(a >= b for a, b in itertools.pairwise(rates))
        if len(rates) != self.k or not falling or not all(0 <= r <= 1 for r in rates):
            raise LabError(
                f"Synthetic rates {rates} do not describe {self.k} drafted tokens",
                f"Give {self.k} numbers between 0 and 1 that never rise",
            )

    def vllm(self) -> dict[str, Any] | None:
        """The JSON object of vLLM 0.32's `--speculative-config`; None without speculation."""
        if self.method == "none":
            return None
        body: dict[str, Any] = {"method": self.method, "num_speculative_tokens": self.k}
        if self.method in ("dflash", "draft_model"):
            body["model"] = self.drafter
        if self.method == "ngram":
            body["prompt_lookup_min"], body["prompt_lookup_max"] = self.lookup
        if self.sampled_drafts:
            body["draft_sample_method"] = "probabilistic"
        if self.synthetic_rates:
            body["rejection_sample_method"] = "synthetic"
            body["synthetic_acceptance_rates"] = list(self.synthetic_rates)
        return body

    def sglang(self) -> list[str]:
        """SGLang's flags, from its public source; its draft tokens count the anchor: block = 1 + K.

        Raises LabError for a method SGLang has no such flag for.
        """
        block = str(self.k + 1)
        if self.method == "none":
            return []
        if self.method == "dflash":
            return [
                *("--speculative-algorithm", "DFLASH"),
                *("--speculative-draft-model-path", str(self.drafter)),
                *("--speculative-num-draft-tokens", block),
            ]
        chain = ["--speculative-num-steps", str(self.k), "--speculative-eagle-topk", "1"]
        chain += ["--speculative-num-draft-tokens", block]
        if self.method == "mtp":
            return ["--speculative-algorithm", "NEXTN", *chain]
        if self.method == "ngram":
            return ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", block]
        return [
            *("--speculative-algorithm", "STANDALONE"),
            *("--speculative-draft-model-path", str(self.drafter)),
            *chain,
        ]
