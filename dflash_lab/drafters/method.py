"""A way to decode by name, and the drafter that stands for it. Naming one imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dflash_lab.errors import LabError

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.drafters.protocol import Drafter
    from dflash_lab.pairs import Pair

Kind = Literal["plain", "dflash", "ddtree", "mtp", "lookup", "draft model"]

NAMES: dict[Kind, str] = {
    "plain": "Target alone",
    "dflash": "DFlash",
    "ddtree": "DDTree",
    "mtp": "MTP",
    "lookup": "Prompt lookup",
    "draft model": "Draft model",
}


@dataclass(frozen=True, slots=True, order=True)
class Method:
    """``k`` tokens a round by ``kind``; for a tree its budget, with ``depth`` positions of the drafter behind it.

    ``config`` names another drafter config than the pair's own, for DFlash and DDTree.

    Raises LabError for numbers that the kind does not have.
    """

    kind: Kind
    k: int = 0
    depth: int = 0
    config: str = ""

    def __post_init__(self) -> None:
        if (self.k < 1) != (self.kind == "plain") or self.k < 0:
            raise LabError(f"{NAMES[self.kind]} has K = {self.k}", "Give at least 1, and 0 for the target alone")
        if (self.depth < 1) != (self.kind != "ddtree"):
            raise LabError(f"{NAMES[self.kind]} has depth {self.depth}", "Trees, and only they, have a depth from 1")

    @property
    def label(self) -> str:
        """The method in words."""
        size = {"plain": "", "ddtree": f", {self.k} nodes, depth {self.depth}"}.get(self.kind, f", K = {self.k}")
        return NAMES[self.kind] + size + (f", {self.config} config" if self.config else "")


PLAIN = Method("plain")
LARGEST_BUDGET = 512
"""Nodes of a tree that are drafted at most."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A method that this pair does not have, and why."""

    method: Method
    why: str

    def sentence(self) -> str:
        """One plain line."""
        return f"{self.method.label} is left out: {self.why}"


def make_drafter(pair: Pair, method: Method, configs: Mapping[str, DrafterConfig] | None = None) -> Drafter | None:
    """The drafter of ``method``, None for the target alone; ``configs`` are those that methods name.

    Raises LabError where the pair has no such drafter or the target cannot verify it.
    """
    from dflash_lab.drafters.lookup import LookupDrafter
    from dflash_lab.drafters.tree import TreeDrafter

    config = (configs or {})[method.config] if method.config else None
    match method.kind:
        case "plain":
            return None
        case "dflash":
            return pair.drafter(config)
        case "ddtree":
            if method.k > LARGEST_BUDGET:
                raise LabError(f"The tree's budget is {method.k}", f"Give 1 to {LARGEST_BUDGET}")
            return TreeDrafter(pair.drafter(config), method.depth)
        case "mtp":
            return pair.mtp()
        case "lookup":
            return LookupDrafter()
        case "draft model":
            return pair.small_model()


def make_drafters(
    pair: Pair, methods: Sequence[Method], configs: Mapping[str, DrafterConfig] | None = None
) -> tuple[dict[Method, Drafter | None], tuple[Missing, ...]]:
    """The drafters of those methods that the pair has, in their order, and the others with the reason."""
    found: dict[Method, Drafter | None] = {}
    missing = []
    for method in dict.fromkeys(methods):
        try:
            found[method] = make_drafter(pair, method, configs)
        except LabError as error:
            missing.append(Missing(method, str(error)))
    return found, tuple(missing)
