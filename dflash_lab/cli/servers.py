"""``servers``: look at an engine, hold what it accepts against replay, read pasted lines, print launch commands.

An API key is taken from the environment variable DFLASH_LAB_API_KEY: a word of a command line is everybody's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.cli import servers_launch
from dflash_lab.cli.options import add_pair, drafter_config, load_pair, note
from dflash_lab.cli.servers_launch import Telling
from dflash_lab.errors import LabError
from dflash_lab.servers.commands import FLAGS

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair
    from dflash_lab.servers.measure import Measured
    from dflash_lab.servers.verdict import Verdict
    from dflash_lab.trace import Summary


def register(commands: Any) -> None:
    """Add ``servers`` and its commands."""
    group = commands.add_parser("servers", help="vLLM and SGLang: expected against observed acceptance")
    servers = group.add_subparsers(title="servers commands", metavar="COMMAND", required=True)

    check = servers_launch.command(servers, "check", handle_check, "who answers at an address, what is known of it")
    check.add_argument("url")
    check.add_argument("--pair", default="smollm2-demo", metavar="NAME", help="whose drafter config to look at")

    measure = servers_launch.command(
        servers, "measure", handle_measure, "send prompts, compare with replay; exit code 1 on a loss"
    )
    measure.add_argument("url")
    servers_launch.add_prompts(measure)
    measure.add_argument("--concurrency", type=int, default=1, metavar="N", help="requests at once (default 1)")
    measure.add_argument("--k", type=int, default=0, help="drafted tokens a round, where the server does not tell")
    measure.add_argument("--no-replay", action="store_true", help="load no pair here: measure only")
    measure.add_argument("--explain", action="store_true", help="search for the implementation variant it runs")
    add_pair(measure)

    paste = servers_launch.command(servers, "paste", handle_paste, "acceptance from log lines or a /metrics page")
    paste.add_argument("file", type=Path, nargs="?", help="a text file (default: standard input)")

    launchers = servers_launch.command(servers, "commands", handle_commands, "launch commands to copy")
    launchers.add_argument("engine", choices=("vllm", "sglang"))
    launchers.add_argument("--pair", default="smollm2-demo", metavar="NAME")
    launchers.add_argument("--k", type=int, default=5)
    for size in ("nodes", "tensor", "pipeline", "data"):
        launchers.add_argument(f"--{size}", type=int, default=1, metavar="N", help=FLAGS[size])
    servers_launch.register(servers)


def handle_check(args: argparse.Namespace) -> int:
    """Print engine, version, model and the findings."""
    from dflash_lab.pairs import get_pair
    from dflash_lab.published import known_config
    from dflash_lab.servers.attach import connect, look

    config = known_config(get_pair(args.pair))
    found = look(connect(args.url, os.environ.get(servers_launch.API_KEY)), config.to_json() if config else None)
    if args.json:
        print(json.dumps(asdict(found)))
    else:
        print(found.sentence())
        for f in found.findings:
            print(f"{f.severity}: {f.field}: {f.message} ({f.source})" if f.source else f"{f.severity}: {f.message}")
    return int(any(f.severity == "error" for f in found.findings))


def handle_measure(args: argparse.Namespace) -> int:
    """Measure, print the verdict and the rates; 1 when the server loses something or a request failed."""
    from dflash_lab.servers.attach import connect
    from dflash_lab.servers.measure import measure
    from dflash_lab.servers.verdict import judge

    client, config = connect(args.url, os.environ.get(servers_launch.API_KEY)), drafter_config(args)
    prompts = servers_launch.prompts(args)
    pair = None if args.no_replay else load_pair(args)
    tell = Telling()
    found = measure(
        client, prompts, args.max_new_tokens, args.concurrency, pair, config, args.k,
        watch=lambda share, text, so_far: tell(share, text),
    )  # fmt: skip
    verdict = judge(found)
    explanation = _explanation(args, found, pair, tell) if args.explain and pair else None
    if args.json:
        print(json.dumps(report(found, verdict) | {"explanation": explanation}))
    else:
        _print(found, verdict, explanation)
    return int(verdict.kind in ("deviates", "loses") or found.load.failure is not None)


def report(found: Measured, verdict: Verdict) -> dict[str, Any]:
    """A measurement as plain data."""
    rates = {name: _figures(c.summaries()[1]) | {"equal_share": c.equal_share} for name, c in found.comparisons.items()}
    return {
        "server": found.facts.source,
        "model": found.facts.model,
        "k": found.k,
        "finished": len(found.load.answers),
        "asked": found.load.asked,
        "failure": found.load.sentence(),
        "tok_per_s": found.load.tokens_per_second,
        "tok_per_s_each": found.load.tokens_per_second_each,
        "observed": _figures(found.observed) if found.observed else None,
        "compared_rounds": next((c.rounds for c in found.comparisons.values()), 0),
        "expected": rates or {name: _figures(summary) for name, summary in found.expected.items()},
        "refused": dict(found.refused),
        "same_texts": found.same_texts,
        "verdict": verdict.kind,
        "sentence": verdict.text,
        "suspects": list(verdict.suspects),
    }


def _figures(summary: Summary) -> dict[str, Any]:
    return {
        "acceptance_length": summary.acceptance_length,
        "per_position": [rate.value for rate in summary.per_position],
        "rounds": summary.drafts,
        "definition": summary.definition,
    }


def _print(found: Measured, verdict: Verdict, explanation: dict[str, Any] | None) -> None:
    if found.load.failure:
        note(found.load.sentence())
    sides = {"observed": found.observed}
    sides |= {f"as {name}": c.summaries()[1] for name, c in found.comparisons.items()} or found.expected
    for name, summary in sides.items():
        if summary:
            rates = " ".join(f"{rate.value or 0:.0%}" for rate in summary.per_position)
            length = "n/a" if summary.acceptance_length is None else f"{summary.acceptance_length:.2f}"
            print(f"{name:18} acceptance length {length} ({summary.drafts} rounds)  per position {rates}")
    print(f"{verdict.kind}: {verdict.text}")
    if verdict.suspects:
        print(f"first suspects: {', '.join(verdict.suspects)}")
    if explanation:
        print(f"explained: {explanation['sentence']}")


def _explanation(args: argparse.Namespace, found: Measured, pair: Pair, tell: Telling) -> dict[str, Any]:
    from dflash_lab.servers.measure import evidence_of, explain_measured, recordings_of

    evidence = evidence_of(found, recordings_of(found, pair, args.max_new_tokens, tell))
    ranking = explain_measured(evidence, found, pair, drafter_config(args) or pair.config, tell)
    best = [{"name": c.name, "behaviour": c.behaviour, "share": c.share} for c in ranking.candidates[:8]]
    return {"sentence": ranking.sentence(), "best": best, "tried": len(ranking.candidates)}


def handle_paste(args: argparse.Namespace) -> int:
    """Read log lines and print their Summary under the lab's definitions."""
    from dflash_lab.servers.paste import read_pasted

    try:
        text = args.file.read_text(errors="replace") if args.file else sys.stdin.read()
    except OSError as error:
        raise LabError(f"{args.file} cannot be read: {error.strerror}", "Check the path") from error
    found = read_pasted(text)
    result: dict[str, Any] = {"engine": found.engine, "lines": found.lines, "rounds": None, "per_position": []}
    result |= _figures(found.summary) if found.summary else {}
    result |= {"acceptance_length": found.acceptance_length, "definition": found.definition}
    if args.json:
        print(json.dumps(result))
        return 0
    length = "n/a" if found.acceptance_length is None else f"{found.acceptance_length:.2f}"
    rates = " ".join(f"{rate or 0:.0%}" for rate in result["per_position"])
    print(
        f"{found.engine}, {found.lines} lines: acceptance length {length}"
        + (f"  per position {rates}" if rates else "")
    )
    print(found.definition)
    return 0


def handle_commands(args: argparse.Namespace) -> int:
    """Print one command a node."""
    from dflash_lab.pairs import get_pair
    from dflash_lab.servers import commands
    from dflash_lab.servers.speculation import Speculation

    target, drafter = commands.names(get_pair(args.pair))
    layout = commands.Layout(args.nodes, args.tensor, args.pipeline, args.data)
    make = commands.vllm if args.engine == "vllm" else commands.sglang
    lines = make(target, Speculation("dflash", args.k, drafter) if args.k else Speculation("none"), layout)
    print(json.dumps(lines) if args.json else "\n\n".join(lines))
    return 0
