"""What visitors may do: everything, or in a demonstration (``--demo``) only look and run short prompts.

Enforced where work enters the queue and where files are written, not only in the pages' widgets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from dflash_lab.errors import LabError

DEMO = "DFLASH_LAB_DEMO"
"""Environment variable: names of the pairs that a demonstration allows, separated by commas; unset is no demo."""


@dataclass(frozen=True, slots=True)
class Access:
    """The limits of this server; ``pairs`` empty allows all of them."""

    read_only: bool = False
    pairs: tuple[str, ...] = ()
    longest_prompt: int = 20_000
    most_new_tokens: int = 4096
    most_runs: int = 10_000

    def check(self, task: Any) -> None:
        """Raises LabError when a task asks for more than is allowed here, whatever the page's widgets let through."""
        if self.pairs and getattr(task, "pair", None) not in (*self.pairs, None):
            raise LabError(f"The pair {task.pair} is not part of this demonstration", f"Pick {' or '.join(self.pairs)}")
        tokens = getattr(task, "max_new_tokens", 0)
        if tokens > self.most_new_tokens:
            raise LabError(f"{tokens} new tokens are too many here", f"Ask for at most {self.most_new_tokens}")
        letters = len(getattr(task, "prompt", ""))
        if letters > self.longest_prompt:
            raise LabError(f"The prompt has {letters} characters", f"Keep it under {self.longest_prompt:,}")
        runs = len(getattr(task, "prompts", ())) * (len(getattr(task, "ks", ())) + 1) * getattr(task, "repeats", 1)
        if runs > self.most_runs:
            raise LabError(f"{runs} runs are too many here", f"Ask for at most {self.most_runs}")

    def refuse_writes(self) -> None:
        """Raises LabError in a demonstration: nothing is saved, started or deleted there."""
        if self.read_only:
            raise LabError(
                "This is a demonstration: nothing is saved or started here", "Run the lab on your own machine"
            )


def access() -> Access:
    """The limits that the environment asks for."""
    pairs = os.environ.get(DEMO)
    if pairs is None:
        return Access()
    names = tuple(name for part in pairs.split(",") if (name := part.strip()))
    return Access(True, names, longest_prompt=2000, most_new_tokens=256, most_runs=24)
