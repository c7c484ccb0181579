"""DDTree (arXiv 2604.12989): the most probable prefixes of one DFlash pass, verified as a tree.

One pass gives a distribution for each of the next K places, the same whatever was chosen before. A prefix is as
probable as the product of its tokens' probabilities; the ``budget`` most probable ones form a tree, for every prefix
of a prefix is at least as probable. They are found best-first with a heap over ranks: behind a prefix come its next
sibling and its first child, and no other can be more probable than both.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch

from dflash_lab.decode.sampling import Sampler
from dflash_lab.drafters.dflash import DFlashDrafter
from dflash_lab.drafters.method import LARGEST_BUDGET
from dflash_lab.drafters.protocol import Draft, Tree
from dflash_lab.errors import LabError


def best_first(log_probs: Sequence[Sequence[float]], budget: int) -> tuple[list[int], list[int]]:
    """Ranks and parents of the ``budget`` most probable prefixes, the most probable first.

    ``log_probs[d]``, falling, are those of the candidates at depth d + 1. ``ranks[i]`` is the candidate that entry i
    ends in, ``parents[i]`` 0 for the root or j + 1 for entry j. Fewer are returned when there are no more prefixes.
    """
    ranks: list[int] = []
    parents: list[int] = []
    # (-log probability, depth, rank, parent, -log probability of the parent)
    heap = [(-log_probs[0][0], 0, 0, 0, 0.0)] if budget else []
    while heap and len(ranks) < budget:
        cost, depth, rank, parent, before = heapq.heappop(heap)
        ranks.append(rank)
        parents.append(parent)
        if rank + 1 < len(log_probs[depth]):
            heapq.heappush(heap, (before - log_probs[depth][rank + 1], depth, rank + 1, parent, before))
        if depth + 1 < len(log_probs):
            heapq.heappush(heap, (cost - log_probs[depth + 1][0], depth + 1, 0, len(ranks), cost))
    return ranks, parents


def grow(logits: torch.Tensor, budget: int, temperature: float = 0.0) -> tuple[torch.Tensor, Tree]:
    """Token ids ``[budget]`` and their tree from one row of logits a depth, ``[K, V]``.

    The tree is built on the host: one more synchronisation a round than a chain has. A ``temperature`` above 0 applies
    to the drafter's distribution as to the target's; top-k and top-p do not, the target's sample decides anyway.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)) / (temperature or 1.0)
    top = wide.log_softmax(-1).topk(min(budget, logits.shape[-1]), dim=-1)
    ranks, parents = best_first(top.values.tolist(), budget)
    tree = Tree.of(parents, logits.device)
    return top.indices[tree.depths[1:] - 1, torch.tensor(ranks, dtype=torch.long, device=logits.device)], tree


class TreeDrafter:
    """A DFlash drafter that hands over a tree: ``depth`` is its K, and ``propose``'s k the budget.

    Raises LabError for a depth below 1 and for a hybrid target.
    """

    def __init__(self, dflash: DFlashDrafter, depth: int) -> None:
        if depth < 1:
            raise LabError(f"The depth of the tree is {depth}", "Give at least 1, or decode without a drafter")
        dflash.stack.target.check_trees()
        self.dflash, self.depth = dflash, depth
        self.taps = dflash.taps

    def start(self, capacity: int) -> None:
        """Forget the context; the drafter's own block may be longer than a small tree."""
        self.dflash.start(capacity + self.depth)

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        """Note new context rows."""
        self.dflash.commit(ids, taps)

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        """The ``k`` most probable prefixes behind ``anchor [1]``. Raises LabError for more than 512."""
        if k > LARGEST_BUDGET:
            raise LabError(f"The tree's budget is {k}", f"Give 1 to {LARGEST_BUDGET}")
        logits = self.dflash.logits(anchor, self.depth)
        ids, tree = grow(logits, k, sampler.sampling.temperature)
        return Draft(ids, logits, tree=tree)
