"""What DFlash 2 adds to DFlash: convolutions inside the block, and a selector that makes a chain of its candidates.

| part | tensors | what |
| --- | --- | --- |
| convolution | ``base_kernel [2, t, H]``, ``kernel_projection [2 t G, H]`` | over t rows, before and after a sublayer |
| selector | codebooks ``[V, r]``, ``hidden_projection [r, H]`` | scores c candidates, given the token before |

Channels come in G groups that share the part of a kernel made from the hidden row; H hidden size, S block rows, V
vocabulary. As in the ``dflash`` package 0.1.0, whose tensor names these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dflash_lab.config.schema import ConfigError, DrafterConfig
from dflash_lab.decode.sampling import Sampler
from dflash_lab.drafters.protocol import Draft

PARTS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
SELECTOR = "candidate_selector."

Sublayer = Callable[[torch.Tensor], torch.Tensor]


def check_parts(config: DrafterConfig) -> None:
    """Raise ConfigError when a DFlash 2 config lacks a part or gives one that cannot be built."""
    for name in PARTS:
        if getattr(config, name) is None:
            raise ConfigError(name, None, f"DFlash 2 needs {name}", "Give it as the drafter was trained")
    group, top_k = config.conv_group_size or 0, config.selector_top_k or 0
    if config.hidden_size % group:
        raise ConfigError(
            "conv_group_size",
            group,
            f"conv_group_size {group} does not divide hidden_size {config.hidden_size}",
            "Give the trained group size",
        )
    if top_k > config.vocab_size:
        raise ConfigError(
            "selector_top_k",
            top_k,
            f"selector_top_k {top_k} is more than the vocabulary's {config.vocab_size} tokens",
            "Give fewer candidates",
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """A grouped causal convolution over the rows of a block, before and after a sublayer."""

    base: torch.Tensor
    projection: torch.Tensor

    @classmethod
    def read(cls, tensors: Mapping[str, torch.Tensor], prefix: str) -> Convolution | None:
        """The one under ``prefix``; None when the checkpoint has none."""
        if f"{prefix}base_kernel" not in tensors:
            return None
        return cls(tensors[f"{prefix}base_kernel"], tensors[f"{prefix}kernel_projection.weight"])

    def around(self, sublayer: Sublayer, x: torch.Tensor) -> torch.Tensor:
        """``sublayer`` on ``x [..., S, H]``, its input and its output convolved by kernels made from ``x``."""
        dynamic = F.linear(x, self.projection).unflatten(-1, (2, self.base.shape[1], -1))  # [..., S, 2, t, G]
        before, after = dynamic.unbind(-3)
        return _convolve(sublayer(_convolve(x, before, self.base[0])), after, self.base[1])


def _convolve(x: torch.Tensor, dynamic: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """``x [..., S, H]``: row i gets rows i, i-1, ... of its own block, weighted per channel and, by group, per row."""
    groups = (dynamic.shape[-1], -1)
    rows, fixed = x.unflatten(-1, groups), base.unflatten(-1, groups)  # [..., S, G, H / G], [t, G, H / G]
    out = torch.zeros_like(rows)
    for back in range(base.shape[0]):
        earlier = F.pad(rows, (0, 0, 0, 0, back, 0))[..., : rows.shape[-3], :, :]
        out = out + (fixed[back] + dynamic[..., back, :, None]) * earlier
    return out.flatten(-2)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The most probable tokens of some slots: ``ids`` and ``logits`` ``[..., c]``, ``hidden [..., r]`` projected."""

    ids: torch.Tensor
    logits: torch.Tensor
    hidden: torch.Tensor

    def __getitem__(self, slot: int) -> Candidates:
        return Candidates(self.ids[slot : slot + 1], self.logits[slot : slot + 1], self.hidden[slot : slot + 1])

    def spread(self, values: torch.Tensor, size: int, rest: float) -> torch.Tensor:
        """``values [..., c]`` at the candidates' places among ``size`` tokens, ``rest`` everywhere else."""
        return values.new_full((*values.shape[:-1], size), rest).scatter_(-1, self.ids, values)


@dataclass(frozen=True, slots=True)
class CandidateSelector:
    """Picks one of a slot's candidates given the token at the slot before."""

    predecessors: torch.Tensor
    successors: torch.Tensor
    projection: torch.Tensor

    @classmethod
    def read(cls, tensors: Mapping[str, torch.Tensor]) -> CandidateSelector | None:
        """The checkpoint's; None when it has none."""
        if f"{SELECTOR}predecessor_codebook" not in tensors:
            return None
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
        return cls(*(tensors[f"{SELECTOR}{name}"] for name in names))

    def candidates(self, hidden: torch.Tensor, logits: torch.Tensor, count: int) -> Candidates:
        """The ``count`` best tokens by ``logits [..., V]`` of final rows ``hidden [..., H]``."""
        best = logits.topk(count, dim=-1)
        return Candidates(best.indices, best.values, F.linear(hidden, self.projection))

    def scores(self, candidates: Candidates, previous: torch.Tensor) -> torch.Tensor:
        """Logits ``[..., c]`` of the candidates behind the tokens ``previous [...]``."""
        wanted = (self.predecessors[previous] * candidates.hidden)[..., None, :]
        return candidates.logits + (wanted * self.successors[candidates.ids]).sum(-1)

    def bonus(self, hidden: torch.Tensor, previous: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """What the tokens ``ids [n]`` gain behind ``previous [...]``: ``[..., n]``, for final rows ``[..., H]``."""
        wanted = self.predecessors[previous] * F.linear(hidden, self.projection)
        return F.linear(wanted, self.successors[ids])

    def given(self, hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor, count: int) -> torch.Tensor:
        """Logits ``[..., V]`` behind known tokens ``previous [...]``; minus infinity for what is no candidate."""
        candidates = self.candidates(hidden, logits, count)
        return candidates.spread(self.scores(candidates, previous), logits.shape[-1], float("-inf"))

    def draft(
        self, hidden: torch.Tensor, logits: torch.Tensor, anchor: torch.Tensor, count: int, sampler: Sampler
    ) -> Draft:
        """A chain of k tokens behind ``anchor [1]``, each chosen given the one before.

        When sampling, q is what is left of the candidates' distribution after temperature, top-k and top-p; the
        package applies the temperature only. The text's distribution is the same, acceptance differs a little.
        """
        candidates = self.candidates(hidden, logits, count)
        ids, scores, probs = [anchor], [], []
        for slot in range(logits.shape[0]):
            here = candidates[slot]
            scores.append(self.scores(here, ids[-1]))
            index, q = sampler.draft(scores[-1])
            ids.append(here.ids[0, index])
            if q is not None:
                probs.append(q)
        size = logits.shape[-1]
        known = candidates.spread(torch.cat(scores), size, float("-inf"))
        return Draft(torch.cat(ids[1:]), known, candidates.spread(torch.cat(probs), size, 0.0) if probs else None)
