"""``sweep`` K: measured tok/s and acceptance against the number of drafted tokens."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from dflash_lab.cli.options import add_measured, add_pair, drafter_config, load_pair, measured_prompts, note

if TYPE_CHECKING:
    from dflash_lab.measurements import Sweep


def register(commands: Any) -> None:
    """Add ``sweep``."""
    command = commands.add_parser("sweep", help="measure tok/s and acceptance against drafted tokens")
    command.add_argument("--k", type=ks, default=(1, 2, 3, 5, 7), metavar="LIST", help="for instance 1-5,7,15")
    add_measured(command)
    command.add_argument("--json", action="store_true", help="end with one line of JSON")
    add_pair(command)
    command.set_defaults(handler=handle)


def ks(text: str) -> tuple[int, ...]:
    """Numbers and ranges: "1-3,7" is 1, 2, 3, 7."""
    try:
        parts = [part.partition("-") for part in text.split(",")]
        return tuple(k for low, _, high in parts for k in range(int(low), int(high or low) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like 1-5,7,15") from None


def handle(args: argparse.Namespace) -> int:
    """Sweep, print a table and the best K."""
    from dflash_lab.sweep import save_sweep, sweep

    prompts = measured_prompts(args)
    config = drafter_config(args)
    pair = load_pair(args)
    last = -1

    def watch(so_far: Sweep, done: int, doing: str) -> bool:
        nonlocal last
        if done != last:
            last = done
            if so_far.measurements:
                save_sweep(so_far)
            note(f"{done / so_far.wanted:4.0%} {doing}")
        return True

    found = sweep(pair, prompts, args.k, args.repeats, args.max_new_tokens, watch, config=config)
    note(f"kept as {save_sweep(found)}")
    frame, best = found.frame(), found.best()
    if args.json:
        rows = json.loads(frame.to_json(orient="records"))
        print(json.dumps({"best_k": best.k if best else None, "sentence": best.sentence() if best else None,
                          "pair": found.pair, "dtype": found.dtype, "device": found.device, "rows": rows}))  # fmt: skip
    else:
        print(frame.to_string(index=False, float_format="{:.2f}".format))
        print(best.sentence() if best else "Too little was measured to name a best K.")
    return 0
