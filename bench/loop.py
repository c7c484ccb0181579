"""Our loop against the ``dflash`` package's and against transformers' ``generate``, on the demo pair.

    python -m bench.loop [--prompts 6] [--tokens 64] [--json-only]

Both sides run the same prompts in one process, alternating, tracing on. Times are bfloat16; equality is float32.

| figure | definition |
| --- | --- |
| lossless | every float32 text equals the target's own, near-ties aside (listed) |
| rounds_equal_dflash | share of rounds (last of each text apart) with the package's accepted count, float32 |
| over_dflash | the package's ms a round / ours, K = 5 and 7, median over prompts; above 1 = ours is faster |
| tok_s_over_dflash | our tok/s / the package's, pooled |
| over_generate | our tok/s at the better K / plain ``generate``'s |
| busy_share | (draft + target forward + argmax) / round, over all rounds |
| trace_cost | (reading a round back with probabilities and ranks - without) / round |
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

from dflash_lab.decode.evidence import gather
from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.verify import verify
from dflash_lab.drafters.protocol import Draft
from dflash_lab.pairs import Pair, get_pair, load
from dflash_lab.prompts import load_prompts
from dflash_lab.trace import Trace

KS = (5, 7)


def oracle(pair: Pair) -> Any:
    """The package's own drafter with the pair's weights."""
    import dflash.model
    from transformers import Qwen3Config

    dflash.model._cuda_time = time.perf_counter  # its own needs CUDA
    model = dflash.model.DFlashDraftModel(Qwen3Config(**pair.raw_config))
    model.load_state_dict(pair.tensors)
    return model.to(pair.dtype).eval()


def ours(pair: Pair, ids: list[int], k: int, tokens: int) -> Trace:
    """One run of our loop."""
    settings = Settings(k, tokens, pair.stop_ids)
    generation = run(pair.target, pair.drafter() if k else None, ids, settings)
    list(generation)
    return generation.trace()


def theirs(pair: Pair, model: Any, ids: list[int], k: int, tokens: int) -> Any:
    """One run of the package's loop, with its statistics."""
    from dflash.model import dflash_generate

    return dflash_generate(
        model, pair.model, torch.tensor([ids]), tokens, list(pair.stop_ids), block_size=1 + k, return_stats=True
    )


def equality(prompts: list[str], tokens: int) -> dict[str, Any]:
    """float32: the package's rounds and the plain target's text."""
    pair = load(get_pair("smollm2-demo").model_copy(update={"dtype": "float32"}))
    model = oracle(pair)
    same = total = 0
    verdicts = []
    for prompt in prompts:
        ids = pair.encode(prompt)
        plain = ours(pair, ids, 0, tokens)
        for k in KS:
            trace = ours(pair, ids, k, tokens)
            verdicts.append(compare(trace, plain, pair.target))
            counts = theirs(pair, model, ids, k, tokens).acceptance_lengths
            mine = [r.accepted + 1 for r in trace.rounds[:-1]]
            same += sum(a == b for a, b in zip(mine, counts, strict=False))
            total += len(mine)
    for verdict in verdicts:
        if verdict.verdict != "equal":
            print("  ", verdict.sentence())
    return {
        "lossless": all(v.verdict != "different" for v in verdicts),
        "near_ties": sum(v.verdict == "near-tie" for v in verdicts),
        "tokens_compared": sum(v.compared for v in verdicts),
        "rounds_equal_dflash": same / total,
        "rounds_compared": total,
    }


def speed(pair: Pair, prompts: list[str], tokens: int) -> dict[str, Any]:
    """bfloat16: ms a round and tok/s of both loops, alternating, and plain ``generate``."""
    model = oracle(pair)
    ratios: list[float] = []
    sums: dict[str, list[float]] = {}
    rounds = []
    ids = pair.encode(prompts[0])
    ours(pair, ids, KS[0], 16)
    theirs(pair, model, ids, KS[0], 16)

    def add(name: str, count: int, seconds: float) -> None:
        total = sums.setdefault(name, [0.0, 0.0])
        total[0] += count
        total[1] += seconds

    for n, prompt in enumerate(prompts):
        ids = pair.encode(prompt)
        for k in KS:
            order = ("ours", "theirs") if (n + k) % 4 < 2 else ("theirs", "ours")
            ms = {}
            for side in order:
                if side == "ours":
                    trace = ours(pair, ids, k, tokens)
                    rounds += trace.rounds
                    ms[side] = trace.decode_s / len(trace.rounds)
                    add(f"ours {k}", len(trace.output_ids) - 1, trace.decode_s)
                else:
                    stats = theirs(pair, model, ids, k, tokens)
                    seconds = stats.time_per_output_token * stats.num_output_tokens
                    ms[side] = seconds / len(stats.acceptance_lengths)
                    add(f"theirs {k}", stats.num_output_tokens - 1, seconds)
            ratios.append(ms["theirs"] / ms["ours"])
        started = time.perf_counter()
        tensor = torch.tensor([ids])
        out = pair.model.generate(
            tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=tokens, do_sample=False
        )
        add("generate", out.shape[1] - len(ids), time.perf_counter() - started)
    rate = {name: count / seconds for name, (count, seconds) in sums.items()}
    round_s = statistics.median(r.seconds for r in rounds)
    return {
        "over_dflash": statistics.median(ratios),
        "over_dflash_range": [min(ratios), max(ratios)],
        "tok_s_over_dflash": sum(rate[f"ours {k}"] for k in KS) / sum(rate[f"theirs {k}"] for k in KS),
        "over_generate": max(rate[f"ours {k}"] for k in KS) / rate["generate"],
        "tok_s": {name: round(value, 2) for name, value in rate.items()},
        "busy_share": sum(r.draft_s + r.verify_s for r in rounds) / sum(r.seconds for r in rounds),
        "trace_cost": trace_seconds(pair, KS[0]) / round_s,
        "ms_a_round": round_s * 1e3,
        "rounds": len(rounds),
    }


@torch.inference_mode()
def trace_seconds(pair: Pair, k: int, repeats: int = 60) -> float:
    """Seconds that probabilities and ranks add to reading one round back, median of alternating repeats."""
    sampler = Sampler(Sampling(), pair.target.device)
    logits = torch.randn(k + 1, pair.target.vocab_size).to(pair.dtype)
    draft = Draft(logits[:k].argmax(-1), logits[:k].clone())
    verdict = verify(draft, logits, sampler)
    full, bare = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.cat([verdict.accepted[None], draft.ids, verdict.choices]).tolist()
        middle = time.perf_counter()
        gather(draft, logits, verdict, sampler)
        bare.append(middle - start)
        full.append(time.perf_counter() - middle)
    return statistics.median(full) - statistics.median(bare)


def main() -> None:
    """Run and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prompts", type=int, default=6, help="how many of the 12")
    arguments.add_argument("--tokens", type=int, default=64)
    args = arguments.parse_args()
    every = load_prompts()
    prompts = [p.prompt for p in every[:: max(1, len(every) // args.prompts)]][: args.prompts]
    print(f"{len(prompts)} prompts x {args.tokens} tokens, K = {KS}; float32 for equality, bfloat16 for speed")
    result = equality(prompts, args.tokens)
    result |= speed(load(get_pair("smollm2-demo").model_copy(update={"dtype": "bfloat16"})), prompts, args.tokens)
    for name, value in result.items():
        print(f"  {name:22} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
