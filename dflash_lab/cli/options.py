"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.errors import LabError

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.decode.sampling import Sampling
    from dflash_lab.pairs import Pair
    from dflash_lab.prompts import Prompt


def add_pair(command: argparse.ArgumentParser) -> None:
    """Which pair, which config, which dtype."""
    command.add_argument("--pair", default="smollm2-demo", metavar="NAME", help="pair to load (see `pairs`)")
    command.add_argument("--config", type=Path, metavar="FILE", help="use this drafter config instead of the pair's")
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float16", "float64"), help="override the pair's")


def add_measured(command: argparse.ArgumentParser) -> None:
    """What is measured how often: prompts, kinds, repeats, tokens."""
    command.add_argument("--prompts", type=Path, metavar="FILE", help="a JSON-lines set (default: the lab's own)")
    command.add_argument("--kind", action="append", metavar="KIND", help="only this kind of prompt (repeatable)")
    command.add_argument("--repeats", type=int, default=1)
    command.add_argument("--max-new-tokens", type=int, default=96, metavar="N")


def measured_prompts(args: argparse.Namespace) -> list[Prompt]:
    """The prompts of ``--prompts`` and ``--kind``. Raises LabError when none is left."""
    from dflash_lab.prompts import load_prompts

    prompts = [p for p in load_prompts(args.prompts) if not args.kind or p.kind in args.kind]
    if not prompts:
        raise LabError(f"No prompt is of kind {', '.join(args.kind or [])}", "Leave --kind out to see them all")
    return prompts


def add_sampling(command: argparse.ArgumentParser) -> None:
    """Temperature and what goes with it."""
    command.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    command.add_argument("--top-k", type=int, default=0, help="0 is off (default)")
    command.add_argument("--top-p", type=float, default=1.0, help="1 is off (default)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--q-rule", choices=("drafter", "one-hot"), default="drafter", help="the draft's q at T > 0")


def sampling(args: argparse.Namespace) -> Sampling:
    """The Sampling the options stand for."""
    from dflash_lab.decode.sampling import Sampling

    return Sampling(args.temperature, args.top_k, args.top_p, args.seed, args.q_rule)


def load_pair(args: argparse.Namespace) -> Pair:
    """Load the pair, with progress on stderr."""
    from dflash_lab.pairs import get_pair, load

    spec = get_pair(args.pair)
    if args.dtype:
        spec = spec.model_copy(update={"dtype": args.dtype})
    return load(spec, progress=lambda share, text: note(f"{share:4.0%} {text}"))


def drafter_config(args: argparse.Namespace) -> DrafterConfig | None:
    """The config of ``--config``, None without one. Raises LabError with line and column for broken JSON."""
    if args.config is None:
        return None
    from dflash_lab.config.schema import DrafterConfig

    return DrafterConfig.from_json(read_json(args.config))


def read_json(path: Path) -> Any:
    """A JSON file's content. Raises LabError naming the place."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}", "Check the path") from error
    except ValueError as error:
        raise LabError(f"{path} is not valid JSON: {error}", "Correct it there") from error


def note(text: str) -> None:
    """Say something on stderr, where it does not mix with results."""
    print(text, file=sys.stderr, flush=True)
