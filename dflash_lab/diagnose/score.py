"""Score: how well a config predicts the target's own text, from a sample of anchors: cheap, smooth, and paired.

Acceptance says nothing as long as every round rejects its first token, and a config with three wrong fields stays
there whichever one is put right. The log-probability the drafter gives the recorded tokens moves with each of them.
It is taken over a part of the vocabulary (every recorded token and a random rest), which is the same for all configs.
A recorded token that the drafter's own vocabulary lacks can never be drafted: it counts as a miss, and not in the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.drafters.dflash import DFlashStack
from dflash_lab.pairs import Pair
from dflash_lab.recording import Recording
from dflash_lab.replay import Anchors, Replay

OTHER_TOKENS = 2048
CONTEXTS_KEPT = 4
WEIGHT = 0.8
"""Acceptance dies at the first miss: later positions count less."""


@dataclass(frozen=True, slots=True)
class Score:
    """Per anchor, in the sample's order.

    ``fit [A]``: log-probabilities (nats) of the k recorded tokens, position i weighted by ``WEIGHT ** i``.
    ``accepted [A]`` (0..k): the prefix whose recorded token beats the rest of the partial vocabulary, an upper bound
    of what the target would accept.
    """

    fit: np.ndarray
    accepted: np.ndarray

    @property
    def length(self) -> float:
        """Mean of accepted + 1 over the sample's anchors: close to the acceptance length, not equal to it."""
        return float(1 + self.accepted.mean())


class Scorer:
    """A sample of anchors from some recordings, ready to score any config; keeps the last few contexts.

    Anchors are drawn evenly from every recording, so that each context length has its part.
    """

    def __init__(self, pair: Pair, recordings: Sequence[Recording], anchors: int, k: int, seed: int = 0) -> None:
        self.pair, self.k = pair, k
        self.replay = Replay(recordings)
        self.anchors = _sample(recordings, anchors, seed, pair.target.device)
        row = self.replay.offset[self.anchors.recording] + self.anchors.position
        reach = self.anchors.position[:, None] + 1 + torch.arange(k, device=row.device)
        self.known = reach <= self.replay.last[self.anchors.recording][:, None]
        self.truth = self.replay.ids[(row[:, None] + 1 + torch.arange(k, device=row.device)).clamp_max(
            len(self.replay.ids) - 1)]  # fmt: skip
        self.vocabulary = _vocabulary(self.truth, pair.target.vocab_size, seed)
        self.column = torch.searchsorted(self.vocabulary, self.truth)
        self.before = torch.cat([self.replay.ids[row][:, None], self.truth[:, :-1]], dim=1)
        self.weights = WEIGHT ** torch.arange(k, device=row.device)
        self.head, self.bias, drafted = _head(pair, self.vocabulary)
        self.unknown = None if drafted is None else ~drafted
        self.fits = self.known if drafted is None else self.known & drafted[self.column]
        self._contexts: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.inference_mode()
    def score(self, config: DrafterConfig) -> Score:
        """Score one config. Raises ConfigError when it contradicts the weights or cannot run."""
        stack = self.pair.stack(config)
        hidden = self.replay.proposals(stack, self._context(stack), self.anchors, self.k)
        hidden = hidden.to(self.head.device, self.head.dtype)
        logits = F.linear(hidden, self.head, self.bias)
        if stack.selector is not None:
            # Without the cut to a few candidates, behind which a token would have no log-probability at all.
            logits = stack.adjusted(logits) + stack.selector.bonus(hidden, self.before, self.vocabulary)
        # Alone, scale and soft cap of the logits are left out: greedy acceptance does not depend on them.
        if self.unknown is not None:
            logits = logits.masked_fill(self.unknown, float("-inf"))
        logits = logits.float()
        logp = logits.log_softmax(-1).gather(-1, self.column[..., None])[..., 0]
        hits = (logits.argmax(-1) == self.column) & self.fits
        fit = (torch.where(self.fits, logp, 0.0) * self.weights).sum(-1)
        return Score(fit.cpu().numpy(), hits.long().cumprod(-1).sum(-1).cpu().numpy())

    def unigram(self) -> float:
        """The mean fit of no drafter at all: of the recorded texts' own token frequencies, with add-one smoothing."""
        texts = torch.cat([torch.tensor(r.tokens, device=self.truth.device) for r in self.replay.recordings])
        counts = torch.bincount(torch.searchsorted(self.vocabulary, texts[torch.isin(texts, self.vocabulary)]),
                                minlength=len(self.vocabulary))  # fmt: skip
        logp = ((counts + 1).float() / (counts.sum() + len(counts))).log()
        return float((torch.where(self.fits, logp[self.column], 0.0) * self.weights).sum(-1).mean())

    def _context(self, stack: DFlashStack) -> tuple[torch.Tensor, torch.Tensor]:
        c = stack.config
        key = repr((c.taps, c.rope_parameters, c.rms_norm_eps, c.attention_value_scale, c.is_neox_style,
                    c.max_position_embeddings))  # fmt: skip
        if key not in self._contexts:
            if len(self._contexts) >= CONTEXTS_KEPT:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[key] = self.replay.context(stack)
        return self._contexts[key]


def _sample(recordings: Sequence[Recording], count: int, seed: int, device: torch.device) -> Anchors:
    rng = np.random.default_rng(seed)
    share = -(-count // len(recordings))
    texts, places = [], []
    for n, r in enumerate(recordings):
        chosen = np.sort(rng.permutation(max(1, r.length - 1))[:share])
        texts += [n] * len(chosen)
        places += [len(r.prompt_ids) + int(i) for i in chosen]
    return Anchors(torch.tensor(texts, device=device), torch.tensor(places, device=device))


def _head(pair: Pair, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Rows ``[n, H]`` of the head that drafts for the tokens ``ids [n]``, its bias there, and which it can draft.

    The target's head can draft all of them (None); a drafter's own knows some.
    """
    if pair.weights.vocabulary is not None:
        rows, drafted = pair.weights.vocabulary.rows(ids)
        return rows, None, drafted
    head = pair.model.get_output_embeddings()
    ids = ids.to(head.weight.device)
    bias = getattr(head, "bias", None)
    return head.weight[ids].detach(), None if bias is None else bias[ids].detach(), None


def _vocabulary(truth: torch.Tensor, size: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    others = rng.choice(size, min(size, OTHER_TOKENS), replace=False)
    return torch.unique(torch.cat([truth.flatten(), torch.tensor(others, device=truth.device)]))
