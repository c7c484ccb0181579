"""Command line: ``python -m training states | dflash | mtp`` (``--help`` says what each needs)."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.target import Target
from dflash_lab.drafters.mtp import MtpConfig
from dflash_lab.pairs import Pair, get_pair, load
from dflash_lab.paths import SAMPLES
from training import dflash, mtp
from training.data import Row, States, collect, held_out_recordings, read_rows
from training.run import Judge, Run, Tensors, Vocabulary

DEMO = SAMPLES / "smollm2-135m-dflash"
MTP = SAMPLES / "smollm2-135m-mtp"


def main() -> None:
    """Read the arguments and run one step."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    states = steps.add_parser("states", help="run the target over the text once and keep what the heads learn from")
    states.add_argument("--layers", required=True, help="layers whose outputs are kept, such as 1,8,15,22,27,29")
    states.add_argument("--rows", type=int, default=3072, help="rows of the text to run (default: all)")
    states.set_defaults(run=run_states)
    drafter = steps.add_parser("dflash", help="train a DFlash drafter")
    drafter.add_argument("--config", type=Path, default=DEMO / "config.json", help="the drafter's config.json")
    drafter.add_argument("--start", type=Path, default=DEMO, help="drafter to start from (default: the demo's)")
    drafter.add_argument("--block", type=int, default=5, help="slots behind each anchor")
    drafter.set_defaults(run=run_dflash)
    mtp_head = steps.add_parser("mtp", help="train an MTP head")
    mtp_head.add_argument("--config", type=Path, default=MTP / "config.json", help="the head's config.json")
    mtp_head.add_argument("--start", type=Path, default=DEMO, help="drafter whose last layer the head starts from")
    mtp_head.add_argument("--block", type=int, default=3, help="tokens of a chain")
    mtp_head.set_defaults(run=run_mtp)
    for step in (drafter, mtp_head):
        step.add_argument("--out", type=Path, required=True, help="folder of the run: best weights, state")
        step.add_argument("--minutes", type=float, default=60, help="training time; the learning rate ends with it")
        step.add_argument("--rate", type=float, default=3e-4, help="highest learning rate")
        step.add_argument("--judged", type=int, default=12, help="held-out texts to judge by")
        step.add_argument("--k", type=int, default=5, help="drafted tokens a round when judging")
    for step in (states, drafter, mtp_head):
        step.add_argument("--text", type=Path, required=True, help="the .npz of token sequences")
        step.add_argument("--states", type=Path, required=True, help="folder of the target's states")
        step.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.run(args, load(get_pair("smollm2-demo")))


def run_states(args: argparse.Namespace, pair: Pair) -> None:
    """Collect states, telling how far it is."""
    rows = read_rows(args.text)[0][: args.rows]
    started = time.perf_counter()
    for done in collect(pair.target, rows, [int(x) for x in args.layers.split(",")], args.states):
        print(f"{done} of {len(rows)} rows, {time.perf_counter() - started:.0f} s", flush=True)


def run_dflash(args: argparse.Namespace, pair: Pair) -> None:
    """Train a DFlash drafter."""
    target, (rows, held) = pair.target, read_rows(args.text)
    config = DrafterConfig.from_json(json.loads(args.config.read_text()))
    old = DrafterConfig.from_json(json.loads((args.start / "config.json").read_text()))
    states = States(args.states, rows)
    tensors: Tensors = load_file(args.start / "model.safetensors")
    if config.taps != old.taps:
        tensors = dflash.warm_start(tensors, old, config, states)
    run = Run(tensors, args.out, args.minutes, args.rate)
    recordings = held_out_recordings(target, held, args.judged)

    def judge(now: Tensors) -> tuple[float, int]:
        return dflash.judge(now, config, target, recordings, args.k)

    step = partial(dflash.batch_loss, run.tensors, config, target, states, vocabulary(target, rows), args.block)
    train(run, step, judge)


def run_mtp(args: argparse.Namespace, pair: Pair) -> None:
    """Train an MTP head."""
    target, (rows, held) = pair.target, read_rows(args.text)
    config = MtpConfig.from_json(json.loads(args.config.read_text()))
    states = States(args.states, rows)
    source = load_file(args.start / "model.safetensors")
    last = f"layers.{max(int(name.split('.')[1]) for name in source if name.startswith('layers.'))}."
    layer = {name.removeprefix(last): tensor for name, tensor in source.items() if name.startswith(last)}
    run = Run(mtp.first_tensors(config, target, layer, states), args.out, args.minutes, args.rate)
    recordings = held_out_recordings(target, held, args.judged)

    def judge(now: Tensors) -> tuple[float, int]:
        return mtp.judge(now, config, target, recordings, args.k)

    train(
        run, partial(mtp.batch_loss, run.tensors, config, target, states, vocabulary(target, rows), args.block), judge
    )


def vocabulary(target: Target, rows: Sequence[Row]) -> Vocabulary:
    """The ids that the text uses most, and some others each step."""
    return Vocabulary(target, torch.tensor([i for row in rows for i in row.ids]))


def train(run: Run, step: Callable[[], torch.Tensor], judge: Judge) -> None:
    """Run to the end with progress, then say what the kept weights reach."""
    for line in run.steps(step, judge):
        print(line, flush=True)
    reached, rounds = judge(load_file(run.folder / "model.safetensors"))
    print(f"kept weights: held-out acceptance length {reached:.3f} over {rounds} rounds")


if __name__ == "__main__":
    main()
