"""The command line: one module per group of commands, each with ``register(subparsers)``.

A handler gets the parsed arguments and returns the exit code. 0 = done, 1 = done and something is wrong with what
was looked at, 2 = could not be done (one sentence on stderr).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dflash_lab import __version__
from dflash_lab.cli import config, diagnose, methods, notebook, run, servers, sweep
from dflash_lab.errors import LabError

GROUPS = (run, sweep, methods, config, diagnose, notebook, servers)


def parser() -> argparse.ArgumentParser:
    """The whole command line; the README shows its help."""
    top = argparse.ArgumentParser(
        prog="python -m dflash_lab",
        description="Debug a DFlash drafter: what is accepted, where, how fast, and which config field is to blame.",
    )
    top.add_argument("--version", action="version", version=f"dflash_lab {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run one command; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        return args.handler(args)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
