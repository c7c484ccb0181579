"""``servers launch`` and ``servers sweep``, and what the ``servers`` commands share."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.cli.options import add_pair, note
from dflash_lab.cli.sweep import ks
from dflash_lab.servers.speculation import METHODS

if TYPE_CHECKING:
    from dflash_lab.prompts import Prompt
    from dflash_lab.server_tasks import Serving

API_KEY = "DFLASH_LAB_API_KEY"


def register(servers: Any) -> None:
    """Add the two commands to the ``servers`` group."""
    sweep = command(servers, "sweep", handle_sweep, "tok/s and acceptance against requests at once, or against K")
    what = sweep.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", help="sweep the number of requests at once on this server")
    what.add_argument("--k", type=ks, metavar="LIST", help="sweep K instead, a vLLM launched for each")
    sweep.add_argument("--concurrency", type=ks, default=(1, 2, 4, 8), metavar="LIST", help="default 1,2,4,8")
    add_prompts(sweep)
    _add_launch(sweep)

    launch = command(servers, "launch", handle_launch, "start a vLLM for a pair and keep it until Ctrl-C")
    _add_launch(launch)
    launch.add_argument("--k", type=int, default=5, help="drafted tokens a round (default 5; 0 = none)")


def command(group: Any, name: str, handler: Any, help_: str) -> argparse.ArgumentParser:
    """A command of the group, with ``--json``."""
    found: argparse.ArgumentParser = group.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    found.add_argument("--json", action="store_true", help="end with one line of JSON")
    found.set_defaults(handler=handler)
    return found


def add_prompts(command: argparse.ArgumentParser) -> None:
    """Which prompts, and how much text."""
    command.add_argument("--prompts", type=Path, metavar="FILE", help="a JSON-lines set (default: the lab's own)")
    command.add_argument("--max-new-tokens", type=int, default=64, metavar="N")


def prompts(args: argparse.Namespace) -> tuple[Prompt, ...]:
    """The set that the options name."""
    from dflash_lab.prompts import load_prompts

    return load_prompts(args.prompts)


def _add_launch(command: argparse.ArgumentParser) -> None:
    add_pair(command)
    command.add_argument("--method", choices=METHODS[:-1], default="dflash", help="how it drafts (default dflash)")
    command.add_argument("--environment", metavar="FOLDER", help="an environment with vLLM (default: the lab's own)")
    command.add_argument("--max-model-len", type=int, default=2048, metavar="N", help="context length (default 2048)")
    command.add_argument("--compile", action="store_true", help="let vLLM compile: starts later, runs faster")
    command.add_argument("--flag", action="append", default=[], metavar="WORD", help="passed on to vLLM (repeatable)")


def handle_sweep(args: argparse.Namespace) -> int:
    """Sweep and print a line a point; 1 when a point failed."""
    from dflash_lab.servers.attach import connect
    from dflash_lab.servers.environment import find
    from dflash_lab.servers.keeper import Keeper, relaunching
    from dflash_lab.servers.measure import asks_for
    from dflash_lab.servers.sweeps import Point, concurrency_sweep, frame, k_sweep

    tell = Telling()
    asks = asks_for(prompts(args), args.max_new_tokens, None)

    def watch(share: float, text: str, points: tuple[Point, ...]) -> bool:
        return tell(share, text)

    if args.url:
        found = concurrency_sweep(connect(args.url, os.environ.get(API_KEY)), asks, args.concurrency, watch)
    else:
        serve = relaunching(
            Keeper(), find(args.environment), _serving(args, 1).launch(), lambda seconds, line: tell(0.0, line[-100:])
        )
        found = k_sweep(serve, asks, (0, *args.k), watch)
    table = frame(found)
    print(table.to_json(orient="records") if args.json else table.to_string(index=False, float_format="{:.2f}".format))
    return int(any(p.failure for p in found))


def handle_launch(args: argparse.Namespace) -> int:
    """Launch, print the address, and stay until the server ends or Ctrl-C."""
    from dflash_lab.servers.environment import find
    from dflash_lab.servers.launch import ManagedServer

    environment = find(args.environment)
    tell = Telling()
    with ManagedServer(_serving(args, args.k).launch(), environment) as server:
        note(server.shell())
        server.wait_ready(watch=lambda seconds, line: tell(min(1.0, seconds / 60), line[-100:]))
        print(json.dumps({"url": server.url, "log": str(server.log.path)}) if args.json else server.url, flush=True)
        while server.alive:
            time.sleep(0.5)
        raise server.log.failure()


def _serving(args: argparse.Namespace, k: int) -> Serving:
    from dflash_lab.cli.options import read_json
    from dflash_lab.server_tasks import Serving, config_text

    config = config_text(read_json(args.config)) if args.config else ""
    return Serving(
        args.pair, args.method, k, config, args.dtype or "auto", args.max_model_len, not args.compile, tuple(args.flag)
    )


class Telling:
    """Progress on stderr, each line once."""

    def __init__(self) -> None:
        self.told = ""

    def __call__(self, share: float, text: str) -> bool:
        """Say it; never stops anything."""
        if text != self.told:
            self.told = text
            note(f"{share:4.0%} {text}")
        return True
