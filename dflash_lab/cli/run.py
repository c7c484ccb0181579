"""``run`` a prompt or a set of them, and list the ``pairs``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.cli.options import add_pair, add_sampling, drafter_config, load_pair, note, sampling
from dflash_lab.errors import LabError

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair
    from dflash_lab.runs import Run


def register(commands: Any) -> None:
    """Add ``run`` and ``pairs``."""
    command = commands.add_parser("run", help="run prompts through the speculative loop")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", metavar="TEXT", help="one prompt")
    what.add_argument("--prompts", type=Path, metavar="FILE", help="a JSON-lines set of prompts, pooled")
    command.add_argument("--k", type=int, default=5, help="drafted tokens a round (default 5; 0 = plain decoding)")
    command.add_argument(
        "--tree-depth",
        type=int,
        default=0,
        metavar="D",
        help="draft trees of D positions (DDTree); --k is their budget",
    )
    command.add_argument("--max-new-tokens", type=int, default=96, metavar="N")
    command.add_argument("--thinking", choices=("on", "off"), help="the chat template's switch, where it has one")
    command.add_argument("--no-baseline", action="store_true", help="do not run the target alone beside it")
    command.add_argument("--keep", action="store_true", help="keep the runs in the data folder")
    command.add_argument("--json", action="store_true", help="end with one line of JSON")
    add_sampling(command)
    add_pair(command)
    command.set_defaults(handler=handle_run)

    pairs = commands.add_parser("pairs", help="list the pairs that can be loaded")
    pairs.add_argument("--json", action="store_true")
    pairs.set_defaults(handler=handle_pairs)


def handle_run(args: argparse.Namespace) -> int:
    """Run, print the text and the figures; exit 1 when a greedy text is not the target's own."""
    from dflash_lab.decode.loop import Settings
    from dflash_lab.prompts import load_prompts
    from dflash_lab.runs import run_prompt, save_run

    settings = Settings(args.k, args.max_new_tokens, sampling=sampling(args))
    if args.prompt is not None and not args.prompt.strip():
        raise LabError("The prompt is empty", "Give --prompt some text")
    prompts = [args.prompt] if args.prompt is not None else [p.prompt for p in load_prompts(args.prompts)]
    config = drafter_config(args)
    pair = load_pair(args)
    drafted, name = (args.tree_depth, "--tree-depth") if args.tree_depth else (args.k, "--k")
    if args.k and config is None and drafted > pair.config.max_drafted:
        note(f"{name} = {drafted} is beyond the trained block: block_size {pair.config.block_size} drafts at most "
             f"{pair.config.max_drafted}; acceptance behind that is untrained.")  # fmt: skip
    thinking = None if args.thinking is None else args.thinking == "on"
    runs = []
    for prompt in prompts:
        finished = run_prompt(
            pair,
            prompt,
            settings,
            config=config,
            baseline=not args.no_baseline,
            thinking=thinking,
            tree_depth=args.tree_depth,
        )
        runs.append(finished)
        if args.keep:
            note(f"kept as {save_run(finished)}")
        if not args.json:
            print(_text(pair, finished), end="\n\n")
        if finished.lossless and finished.lossless.verdict != "equal":
            note(finished.lossless.sentence())
    result = report(pair, runs)
    print(json.dumps(result) if args.json else _words(result))
    return 1 if result["lossless"] is False else 0


def report(pair: Pair, runs: list[Run]) -> dict[str, Any]:
    """The figures of some runs, pooled over rounds: what ``run --json`` prints."""
    from dflash_lab.trace import summarise

    summary = summarise([r.speculative for r in runs])
    tokens = sum(len(r.emitted) for run in runs for r in run.speculative.rounds)
    seconds = sum(run.speculative.decode_s for run in runs)
    plain_tokens = sum(len(r.emitted) for run in runs if run.plain for r in run.plain.rounds)
    plain_seconds = sum(run.plain.decode_s for run in runs if run.plain)
    speed = tokens / seconds if seconds else None
    plain_speed = plain_tokens / plain_seconds if plain_seconds else None
    verdicts = [run.lossless.verdict for run in runs if run.lossless]
    return {
        "acceptance_length": summary.acceptance_length,
        "acceptance_length_interval": summary.acceptance_length_interval,
        "per_position": [rate.value for rate in summary.per_position],
        "per_position_conditional": [rate.value for rate in summary.conditional],
        "draft_acceptance_rate": summary.draft_acceptance_rate,
        "tok_per_s": speed,
        "plain_tok_per_s": plain_speed,
        "speed_up": speed / plain_speed if speed and plain_speed else None,
        "time_to_first_token_s": [run.speculative.time_to_first_token_s for run in runs],
        "rounds": sum(len(run.speculative.rounds) for run in runs),
        "rounds_counted": summary.counted,
        "rounds_left_out": summary.left_out,
        "tokens": tokens + len(runs),
        "lossless": all(v != "different" for v in verdicts) if verdicts else None,
        "near_ties": verdicts.count("near-tie"),
        "k": runs[0].speculative.k,
        "pair": pair.spec.name,
        "definition": summary.definition,
        **runs[0].speculative.about,
        "text": _text(pair, runs[0]) if len(runs) == 1 else [_text(pair, r) for r in runs],
    }


def _text(pair: Pair, run: Run) -> str:
    return pair.tokenizer.decode(run.speculative.output_ids, skip_special_tokens=True)


def _words(result: dict[str, Any]) -> str:
    def number(key: str, unit: str = "") -> str:
        value = result[key]
        return "n/a" if value is None else f"{value:.2f}{unit}"

    rates = " ".join(f"{rate:.0%}" for rate in result["per_position"]) or "n/a"
    return "\n".join(
        [
            f"acceptance length  {number('acceptance_length')} (bonus included; {result['rounds_counted']} rounds, "
            f"{result['rounds_left_out']} left out)",
            f"per position       {rates} (unconditional, position 0 first)",
            f"decode             {number('tok_per_s', ' tok/s')}, plain {number('plain_tok_per_s', ' tok/s')}, "
            f"speed-up {number('speed_up', 'x')}",
        ]
    )


def handle_pairs(args: argparse.Namespace) -> int:
    """Name and what it is, a line each; exit 1 when a preset cannot be read."""
    from dflash_lab.pairs import broken_presets, list_pairs

    specs, broken = list_pairs(), broken_presets()
    for problem in broken:
        note(f"error: {problem}")
    if args.json:
        print(json.dumps([spec.model_dump() for spec in specs]))
    else:
        width = max(len(spec.name) for spec in specs)
        for spec in specs:
            print(f"{spec.name:{width}}  {spec.target} + {spec.drafter}")
    return 1 if broken else 0
