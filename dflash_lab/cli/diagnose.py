"""``diagnose``: which field is wrong, what it costs, and the repaired config, with no good one to compare with."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from dflash_lab.cli.options import load_pair, note
from dflash_lab.errors import LabError


def register(commands: Any) -> None:
    """Add ``diagnose``."""
    command = commands.add_parser(
        "diagnose",
        help="find and repair what is wrong with a drafter's config, measured; exit code 1 when something is",
    )
    command.add_argument("--pair", default="smollm2-demo", metavar="NAME", help="pair to load (see `pairs`)")
    command.add_argument("--config", type=Path, metavar="FILE", help="diagnose this config.json, not the pair's own")
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float16", "float64"), help="override the pair's")
    command.add_argument("--k", type=int, default=5, help="drafted tokens a round (default 5)")
    command.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="for the search (default 60)")
    command.add_argument("--prompts", type=Path, metavar="FILE", help="a JSON-lines set (default: the lab's own)")
    command.add_argument("--temperature", type=float, default=0.0, help="how the pair is run (default 0, greedy)")
    command.add_argument("--engine", metavar="VERSION", help="the vLLM version it is run with, to check it too")
    command.add_argument("--write", action="store_true", help="save the repaired config over the file, verified")
    command.add_argument("--output", type=Path, metavar="FILE", help="write the repaired config to a new file")
    command.add_argument("--json", action="store_true", help="JSON instead of Markdown")
    command.set_defaults(handler=handle)


def handle(args: argparse.Namespace) -> int:
    """Diagnose and print; 0 when nothing is wrong, 1 when something is."""
    from dflash_lab.config import files
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.decode.sampling import Sampling
    from dflash_lab.diagnose.steps import diagnose
    from dflash_lab.prompts import load_prompts

    if args.k < 1 or args.budget <= 0:
        raise LabError("--k and --budget must be above 0", "Leave them out for 5 tokens and 60 seconds")
    prompts = load_prompts(args.prompts)
    given = files.read(args.config) if args.config else None
    pair = load_pair(args)
    file = given or files.read(pair.config_path)
    found = diagnose(
        pair,
        DrafterConfig.from_json(file.raw),
        args.k,
        args.budget,
        prompts=prompts,
        sampling=Sampling(args.temperature),
        engine=args.engine,
        file=file,
        watch=_Telling(),
    )
    assert found is not None  # the watcher never stops it
    print(json.dumps(found.to_json()) if args.json else found.markdown())
    if found.repair.changes:
        if args.write:
            saved = files.save(file, found.repaired)
            note(f"{saved.file.path} holds sha256 {saved.file.sha256}, read back and compared")
        if args.output:
            note(f"written: {files.create(args.output, found.repaired).path}")
    return 0 if found.verdict.kind in ("healthy", "weak drafter") else 1


class _Telling:
    """Says on stderr what is going on: a new step at once, a long one every few seconds."""

    def __init__(self, every_s: float = 3.0) -> None:
        self.every_s, self.last, self.step = every_s, 0.0, ""

    def __call__(self, share: float, text: str, accused: tuple[str, ...]) -> bool:
        step = text.partition(" ")[0]
        if step != self.step or time.monotonic() - self.last > self.every_s:
            self.step, self.last = step, time.monotonic()
            found = f"; changed so far: {', '.join(accused)}" if accused else ""
            note(f"{share:4.0%} {text}{found}")
        return True
