"""What visitors may do: everything, or in a demonstration (``--demo``) only look and run short prompts.

Enforced where work enters the queue, where files are opened and written and where a server is called or started; what
the pages switch off besides is courtesy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dflash_lab.errors import LabError
from dflash_lab.pairs import DEMO_PAIR

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
    longest_search_s: float = 1800.0

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
        ways = getattr(task, "ks", ()) or getattr(task, "methods", ())
        runs = len(getattr(task, "prompts", ())) * (len(ways) + 1) * getattr(task, "repeats", 1)
        if runs > self.most_runs:
            raise LabError(f"{runs} runs are too many here", f"Ask for at most {self.most_runs}")
        seconds = getattr(task, "budget_s", 0.0)
        if seconds > self.longest_search_s:
            raise LabError(f"A search of {seconds:g} s is too long here", f"Ask for at most {self.longest_search_s:g}")

    def refuse_writes(self) -> None:
        """Raises LabError in a demonstration: nothing is saved, started or deleted there."""
        if self.read_only:
            raise LabError(
                "This is a demonstration: nothing is saved or started here", "Run the lab on your own machine"
            )

    def check_file(self, path: Path, *folders: Path | None) -> None:
        """Raises LabError in a demonstration for a file that is, links followed, in none of ``folders`` there are."""
        real = path.expanduser().resolve()
        if self.read_only and not any(real.is_relative_to(folder.resolve()) for folder in folders if folder):
            raise LabError("A demonstration opens its own files only", "Pick one that the list shows")

    def check_server(self) -> None:
        """Raises LabError in a demonstration, whose visitors may not have this machine call others."""
        if self.read_only:
            raise LabError("A demonstration calls no servers", "Run the lab on your own machine to attach to one")


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LabError(f"The app was started with {message}", "Start it with: streamlit run serve.py -- --demo PAIR")


def take_arguments(command: Sequence[str]) -> None:
    """``--demo [PAIR,PAIR]`` behind the ``--`` of ``streamlit run serve.py --`` sets DEMO.

    Raises LabError for anything else there: a misspelt flag must not open everything.
    """
    arguments = command[command.index("--") + 1 :] if "--" in command else []
    parser = _Arguments(add_help=False)
    parser.add_argument("--demo", nargs="?", const=DEMO_PAIR)
    if (pairs := parser.parse_args(arguments).demo) is not None:
        os.environ[DEMO] = pairs


def access() -> Access:
    """The limits that the environment asks for; a demonstration that names no pair has the built-in one."""
    pairs = os.environ.get(DEMO)
    if pairs is None:
        return Access()
    names = tuple(name for part in pairs.split(",") if (name := part.strip()))
    return Access(
        True, names or (DEMO_PAIR,), longest_prompt=2000, most_new_tokens=256, most_runs=24, longest_search_s=120.0
    )
