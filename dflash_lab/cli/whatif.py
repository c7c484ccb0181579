"""``config whatif``: what other values of config fields would accept, by replay."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.cli.options import add_pair, drafter_config, load_pair, note
from dflash_lab.errors import LabError

if TYPE_CHECKING:
    from dflash_lab.whatif import Effect


def register(config_commands: Any) -> None:
    """Add ``whatif`` to the ``config`` group."""
    command = config_commands.add_parser("whatif", help="acceptance of an edited config, exactly, by replay")
    command.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", help="edit a field (repeatable)")
    command.add_argument("--against", type=Path, metavar="FILE", help="compare with this config, not the pair's own")
    command.add_argument("--k", type=int, default=5, help="drafted tokens a round (default 5)")
    command.add_argument("--prompts", type=Path, metavar="FILE", help="a JSON-lines set (default: the lab's own)")
    command.add_argument("--max-new-tokens", type=int, default=96, metavar="N")
    command.add_argument("--json", action="store_true", help="end with one line of JSON")
    add_pair(command)
    command.set_defaults(handler=handle)


def edits(pairs: list[str]) -> dict[str, Any]:
    """``FIELD=JSON`` strings as values. Raises LabError naming the one that is not."""
    found = {}
    for text in pairs:
        field, sign, value = text.partition("=")
        try:
            found[field.strip()] = _tuples(json.loads(value))
        except ValueError:
            sign = ""
        if not sign:
            raise LabError(f"--set {text} is not FIELD=JSON", "Write for instance --set mask_token_id=6")
    return found


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def handle(args: argparse.Namespace) -> int:
    """Replay both configs and print acceptance side by side with the paired difference."""
    from dflash_lab.cli.options import read_json
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.paired import compare
    from dflash_lab.prompts import load_prompts
    from dflash_lab.whatif import WhatIf, record_prompts

    changes = edits(args.set)
    given = drafter_config(args)
    against = DrafterConfig.from_json(read_json(args.against)) if args.against else None
    prompts = [p.prompt for p in load_prompts(args.prompts)]
    pair = load_pair(args)
    edited = (given or pair.config).edited(**changes)
    told = ""

    def progress(share: float, text: str) -> bool:
        nonlocal told
        if text != told:
            told = text
            note(f"{share:4.0%} {text}")
        return True

    recordings = record_prompts(pair, prompts, args.max_new_tokens, progress)
    assert recordings is not None  # progress never stops it
    bench = WhatIf(pair, recordings)
    before, after = bench.effect(against or pair.config, args.k), bench.effect(edited, args.k)
    paired = compare(before.traces, after.traces)
    result = {
        "k": args.k,
        "before": figures(before),
        "after": figures(after),
        "difference": paired.difference if paired else None,
        "difference_interval": [paired.low, paired.high] if paired else None,
        "clear": paired.clear if paired else None,
        "definition": after.summary.definition,
    }
    if args.json:
        print(json.dumps(result))
        return 0
    for name in ("before", "after"):
        side: dict[str, Any] = result[name]
        rates = " ".join(f"{rate:.0%}" for rate in side["per_position"])
        length = "n/a" if side["acceptance_length"] is None else f"{side['acceptance_length']:.2f}"
        print(f"{name:7} acceptance length {length} ({side['rounds']} rounds)  per position {rates}")
    if paired:
        print(f"change  {paired.difference:+.2f} tokens a round (95%: {paired.low:+.2f} to {paired.high:+.2f})")
    return 0


def figures(effect: Effect) -> dict[str, Any]:
    """What a config accepts: AL, unconditional rates and the rounds behind them."""
    summary = effect.summary
    return {
        "acceptance_length": summary.acceptance_length,
        "per_position": [rate.value for rate in summary.per_position],
        "rounds": summary.counted,
        "left_out": summary.left_out,
    }
