"""``methods``: several ways to draft on the same prompts, measured and predicted, and the story's table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dflash_lab.cli.options import add_measured, load_pair, measured_prompts, note
from dflash_lab.cli.sweep import ks
from dflash_lab.drafters.method import Kind, Method

if TYPE_CHECKING:
    from dflash_lab.methods import Comparison

CHAINS = [kind for kind in get_args(Kind) if kind not in ("plain", "ddtree")]


def register(commands: Any) -> None:
    """Add ``methods``."""
    command = commands.add_parser("methods", help="compare DFlash, DDTree, MTP, prompt lookup and a draft model")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--story", action="store_true", help="the columns of the guided story, for this pair")
    what.add_argument("--method", action="append", choices=[*CHAINS, "ddtree"], help="repeatable")
    command.add_argument("--k", type=ks, default=(1, 3, 5), metavar="LIST", help="for chains, for instance 1-5,15")
    command.add_argument("--budget", type=ks, default=(8, 16), metavar="LIST", help="nodes of a tree")
    command.add_argument("--tree-depth", type=int, default=7, metavar="D", help="positions of a tree")
    add_measured(command)
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    command.add_argument("--json", action="store_true", help="end with one line of JSON")
    command.add_argument("--pair", default="smollm2-demo", metavar="NAME", help="pair to load (see `pairs`)")
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float16", "float64"), help="override the pair's")
    command.set_defaults(handler=handle)


def handle(args: argparse.Namespace) -> int:
    """Compare and print a table; exit 1 when a greedy text is not the target's own."""
    from dflash_lab.forecast import recommend
    from dflash_lab.method_tasks import named_configs
    from dflash_lab.methods import compare_methods, save_comparison
    from dflash_lab.paths import write_whole
    from dflash_lab.story_table import markdown, story_columns, story_methods

    prompts = measured_prompts(args)
    pair = load_pair(args)
    methods = story_methods(pair.config.max_drafted) if args.story else _methods(args)
    last = -1

    def watch(so_far: Comparison, done: int, doing: str) -> bool:
        nonlocal last
        if done != last:
            last = done
            if so_far.runs:
                save_comparison(so_far)
            note(f"{done} of {so_far.wanted} runs: {doing}")
        return True

    found = compare_methods(
        pair, prompts, methods, args.repeats, args.max_new_tokens, watch, configs=named_configs(pair, methods)
    )
    note(f"kept as {save_comparison(found)}")
    table, advice = found.frame(), recommend(found.predictions)
    text = markdown(found, story_columns(found))
    if args.markdown:
        write_whole(args.markdown, text)
    if args.json:
        rows = json.loads(table.to_json(orient="records"))
        print(json.dumps({"pair": found.pair, "dtype": found.dtype, "device": found.device,
                          "prediction_error": found.prediction_error, "bandwidth": found.bandwidth,
                          "advice": advice and advice.sentence(), "rows": rows}))  # fmt: skip
    else:
        print(text)
        if advice:
            print(advice.sentence())
    return 1 if any(r.lossless is False for r in found.results()) else 0


def _methods(args: argparse.Namespace) -> tuple[Method, ...]:
    trees = [Method("ddtree", budget, args.tree_depth) for budget in args.budget]
    return tuple(
        method for kind in args.method for method in (trees if kind == "ddtree" else [Method(kind, k) for k in args.k])
    )
