"""Replay against the loop on the demo pair: the same rounds, and how much sooner.

    python -m bench.replay [--prompts 6] [--tokens 128] [--full]

Both sides run in one process on the same prompts, alternating; recordings are made before and are not timed.
Seconds are wall time of everything an edit costs: building the drafter under the config, its context, the rounds.

| figure | definition |
| --- | --- |
| whatif_speedup | loop seconds / replay seconds for one edited field at K = 5, pooled over the edits in ``EDITS`` |
| sweep_speedup | the same for K = 1..15 under the drafter's own, all-causal config |
| sweep_speedup_bidirectional | the same with every layer full and bidirectional: one pass a K |
| edit_seconds | median seconds from an edit to its acceptance on the Config page's prompt set, at K = 5 |
| equal_to_loop | float32: every round has the loop's accepted count, listed near-ties (at most 0.1%) aside |

In the sweeps the loop runs at the K of ``TIMED_KS``; the seconds of those between are interpolated.

``--full`` compares all presets at K = 1..15 on the 12 prompts instead of a sample of them; it takes an hour.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dflash_lab.config.faults import FAULTS, Fault
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.config_tasks import PromptSet
from dflash_lab.decode.loop import Settings, run
from dflash_lab.pairs import Pair, get_pair, load
from dflash_lab.prompts import load_prompts
from dflash_lab.recording import Recording
from dflash_lab.replay import Anchors, Replay
from dflash_lab.trace import Trace
from dflash_lab.whatif import record_prompts

EDITS = ("Wrong mask token", "Reverse taps", "RoPE theta x 0.1")
KS = tuple(range(1, 16))
TIMED_KS = (1, 3, 6, 9, 12, 15)
NEAR_TIE = 1e-3
"""Largest distance of the drafter's two top float32 logits at which another batch shape may flip its choice."""
NEAR_TIE_SHARE = 0.001


def presets(config: DrafterConfig) -> dict[str, DrafterConfig]:
    """The drafter's own config, then every fault that changes it and can run."""
    found = {"as it is": config}
    for name, fault in FAULTS.items():
        if (edited := fault(config)) is not None:
            found[name] = edited
    return found


def loop(pair: Pair, recordings: Sequence[Recording], config: DrafterConfig, k: int, tokens: int) -> list[Trace]:
    """The loop's own traces on the recordings' prompts."""
    traces = []
    for recording in recordings:
        generation = run(pair.target, pair.drafter(config), recording.prompt_ids, Settings(k, tokens, pair.stop_ids))
        list(generation)
        traces.append(generation.trace())
    return traces


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An anchor of one text where replay and loop accept differently, and the drafter's top-two distance there."""

    text: int
    position: int
    replayed: int
    looped: int
    margin: float


def disagreements(
    replay: Replay, pair: Pair, config: DrafterConfig, k: int, replayed: Sequence[Trace], looped: Sequence[Trace]
) -> list[Disagreement]:
    """Differences at anchors that both visited; the last round of each text, cut by its end, is left out."""
    found = []
    for n, (ours, theirs) in enumerate(zip(replayed, looped, strict=True)):
        known = {r.anchor_position: r.accepted for r in ours.rounds if r.end == "none"}
        for r in theirs.rounds:
            mine = known.get(r.anchor_position, r.accepted)
            if r.end == "none" and mine != r.accepted:
                slot = min(mine, r.accepted)
                margin = _margin(replay, pair, config, k, n, r.anchor_position, slot)
                found.append(Disagreement(n, r.anchor_position, mine, r.accepted, margin))
    return found


@torch.inference_mode()
def _margin(
    replay: Replay, pair: Pair, config: DrafterConfig, k: int, text: int, position: int, slot: int
) -> float:  # fmt: skip
    stack = pair.stack(config)
    device = replay.ids.device
    anchor = Anchors(torch.tensor([text], device=device), torch.tensor([position], device=device))
    hidden = replay.proposals(stack, replay.context(stack), anchor, k)
    top = stack.logits(hidden[0, slot]).float().topk(2).values
    return float(top[0] - top[1])


def equality(full: bool) -> dict[str, Any]:
    """float32: replay's rounds against the loop's, preset by preset."""
    pair = load(get_pair("smollm2-demo").model_copy(update={"dtype": "float32"}))
    every = [p.prompt for p in load_prompts()]
    prompts, tokens, ks = (every, 96, KS) if full else (every[::6], 48, (1, 5, 15))
    recordings = record_prompts(pair, prompts, tokens) or []
    replay = Replay(recordings)
    rounds, found, text_equal = 0, [], True
    for name, config in presets(pair.config).items():
        for k in ks if full or name == "as it is" else (5,):
            looped = loop(pair, recordings, config, k, tokens)
            replayed = replay.run(pair.stack(config), k)
            text_equal &= all(a.output_ids == b.output_ids for a, b in zip(replayed, looped, strict=True))
            for d in disagreements(replay, pair, config, k, replayed, looped):
                print(f"  {name}, K = {k}: {d}")
                found.append(d)
            rounds += sum(len(t.rounds) for t in looped)
    ties = sum(d.margin <= NEAR_TIE for d in found)
    return {
        "equal_to_loop": len(found) == ties and ties <= NEAR_TIE_SHARE * rounds and text_equal,
        "rounds_compared": rounds,
        "near_ties": ties,
        "texts_equal": text_equal,
    }


def seconds(work: Callable[[], Any]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(prompts: list[str], tokens: int) -> dict[str, Any]:
    """The pair's own dtype: loop and replay on the same edits and the same K."""
    pair = load(get_pair("smollm2-demo"))
    recordings = record_prompts(pair, prompts, tokens) or []
    replay = Replay(recordings)
    loop(pair, recordings[:1], pair.config, 5, 16)
    replay.run(pair.stack(), 5)

    looped, replayed = [], []
    for n, name in enumerate(EDITS):
        edited = _faulty(FAULTS[name], pair.config)
        sides = [
            lambda edited=edited: looped.append(seconds(lambda: loop(pair, recordings, edited, 5, tokens))),
            lambda edited=edited: replayed.append(seconds(lambda: replay.run(pair.stack(edited), 5))),
        ]
        for side in sides if n % 2 else sides[::-1]:
            side()

    result = {
        "whatif_speedup": sum(looped) / sum(replayed),
        "whatif_each": [round(a / b, 1) for a, b in zip(looped, replayed, strict=True)],
    }
    both_ways = pair.config.edited(layer_types=("full_attention",) * pair.config.num_hidden_layers)
    for key, config in (("sweep_speedup", pair.config), ("sweep_speedup_bidirectional", both_ways)):
        ours = [seconds(lambda config=config: replay.sweep(pair.stack(config), KS))]
        timed = [seconds(lambda config=config, k=k: loop(pair, recordings, config, k, tokens)) for k in TIMED_KS]
        ours.append(seconds(lambda config=config: replay.sweep(pair.stack(config), KS)))
        result[key] = float(np.interp(KS, TIMED_KS, timed).sum()) / statistics.mean(ours)
    return result


def edit_seconds() -> dict[str, Any]:
    """An edit on the Config page's prompt set, from the edited config to its acceptance."""
    pair = load(get_pair("smollm2-demo"))
    chosen = PromptSet.of_each_kind()
    recordings = record_prompts(pair, [p.prompt for p in chosen.prompts], chosen.max_new_tokens) or []
    replay = Replay(recordings)
    replay.run(pair.stack(), 5)
    times = [seconds(lambda c=c: replay.run(pair.stack(c), 5)) for c in presets(pair.config).values()]
    return {
        "edit_seconds": statistics.median(times),
        "edit_seconds_most": max(times),
        "threads": torch.get_num_threads(),
    }


def _faulty(fault: Fault, config: DrafterConfig) -> DrafterConfig:
    edited = fault(config)
    assert edited is not None
    return edited


def main() -> None:
    """Run and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prompts", type=int, default=6, help="how many of the 12")
    arguments.add_argument("--tokens", type=int, default=128)
    arguments.add_argument("--full", action="store_true", help="compare every preset at every K on all prompts")
    args = arguments.parse_args()
    every = load_prompts()
    prompts = [p.prompt for p in every[:: max(1, len(every) // args.prompts)]][: args.prompts]
    result = edit_seconds()
    print(result, flush=True)
    result |= speed(prompts, args.tokens)
    print(result, flush=True)
    result |= equality(args.full)
    for name, value in result.items():
        print(f"  {name:28} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
