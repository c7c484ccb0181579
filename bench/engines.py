"""Our loop against a real vLLM, and vLLM's rounds against replay: the demo pair, the bench's prompts, one session.

    DFLASH_LAB_VLLM=.venv-vllm python -m bench.engines [--prompts 6] [--tokens 64]

vLLM runs in processes of its own, all started before the first measurement and idle while the others work; for every
prompt the sides take turns. Speed is bfloat16 with vLLM's own defaults (compiled), equality float32.

| figure | definition |
| --- | --- |
| rounds_equal_share | share of vLLM's rounds with replay's accepted count under vLLM's reading, float32, K = 5 |
| rounds_equal_share_reference | the same under the reference's reading |
| vllm_acceptance_length, replay_acceptance_length | over those rounds, bonus included; replay's is the reference's |
| loop_over_vllm | our decode tok/s at our best K / vLLM's at its best K |
| tok_s | decode throughput of every side: tokens after the first / seconds after the first, pooled over prompts |
| acceptance_length | pooled over prompts, bfloat16 |
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.loop import ours
from dflash_lab.pairs import Pair, get_pair, load
from dflash_lab.prompts import load_prompts
from dflash_lab.servers.answer import Answer, Ask
from dflash_lab.servers.bend import VariantStack
from dflash_lab.servers.compare import Evidence
from dflash_lab.servers.environment import VllmEnvironment, find
from dflash_lab.servers.launch import Launch, ManagedServer
from dflash_lab.servers.load import run_load
from dflash_lab.servers.speculation import Speculation
from dflash_lab.servers.variants import engine_reading
from dflash_lab.servers.vllm import VllmServer
from dflash_lab.trace import summarise
from dflash_lab.whatif import record_prompts

KS = (3, 5)


def launch(pair: Pair, k: int, dtype: str, eager: bool) -> Launch:
    """The demo pair on vLLM; K = 0 is the target alone."""
    speculation = Speculation("dflash", k, str(pair.drafter_dir)) if k else Speculation("none")
    return Launch(
        str(pair.target_dir), speculation, dtype=dtype, max_model_len=512, max_num_seqs=1, cache_gib=1, eager=eager
    )


def equality(environment: VllmEnvironment, prompts: list[str], tokens: int, folder: Path) -> dict[str, Any]:
    """float32, K = 5: vLLM's rounds under both readings."""
    pair = load(get_pair("smollm2-demo").model_copy(update={"dtype": "float32"}))
    recordings = record_prompts(pair, prompts, tokens)
    assert recordings is not None
    with ManagedServer(launch(pair, 5, "float32", eager=True), environment, folder) as server:
        answers = run_load(VllmServer(server.wait_ready().url), [Ask(tuple(pair.encode(p)), tokens) for p in prompts])
    evidence = Evidence(answers.traces(5, "vLLM"), recordings)
    own, reference = (
        evidence.compare(VariantStack(pair.weights, engine_reading(pair.config, "vLLM", pair.target, cpu), pair.target))
        for cpu in (environment.cpu, False)
    )
    for difference in own.differences:
        print("  ", difference)
    return {
        "rounds_equal_share": own.equal_share,
        "rounds_equal_share_reference": reference.equal_share,
        "rounds_compared": own.rounds,
        "vllm_acceptance_length": own.observed_acceptance_length,
        "replay_acceptance_length": reference.expected_acceptance_length,
    }


def speed(environment: VllmEnvironment, prompts: list[str], tokens: int, folder: Path) -> dict[str, Any]:
    """bfloat16: every side in turn for every prompt, after one prompt that is not counted."""
    pair = load(get_pair("smollm2-demo").model_copy(update={"dtype": "bfloat16"}))
    sums: dict[str, list[float]] = {}
    traces: dict[str, list[Any]] = {}

    def add(name: str, count: int, seconds: float) -> None:
        total = sums.setdefault(name, [0.0, 0.0])
        total[0] += count
        total[1] += seconds

    with ExitStack() as stack:
        servers = {
            k: stack.enter_context(ManagedServer(launch(pair, k, "bfloat16", eager=False), environment, folder))
            for k in (0, *KS)
        }
        clients = {k: VllmServer(server.wait_ready().url) for k, server in servers.items()}
        for n, prompt in enumerate([prompts[0], *prompts]):
            ids = pair.encode(prompt)
            for k in (0, *KS) if n % 2 else (*KS[::-1], 0):
                trace = ours(pair, ids, k, tokens)
                answer: Answer = clients[k].ask(Ask(tuple(ids), tokens))
                if not n:
                    continue
                add(f"loop {k}", len(trace.output_ids) - 1, trace.decode_s)
                add(f"vllm {k}", answer.completion_tokens - 1, answer.total_s - answer.time_to_first_token_s)
                traces.setdefault(f"loop {k}", []).append(trace)
                traces.setdefault(f"vllm {k}", []).append(answer.trace(k, "vLLM"))
            if n:
                tensor = torch.tensor([ids])
                started = time.perf_counter()
                out = pair.model.generate(
                    tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=tokens, do_sample=False
                )
                add("transformers", out.shape[1] - len(ids), time.perf_counter() - started)
    rate = {name: count / seconds for name, (count, seconds) in sums.items()}
    best = {side: max((0, *KS), key=lambda k, s=side: rate[f"{s} {k}"]) for side in ("loop", "vllm")}
    return {
        "loop_over_vllm": rate[f"loop {best['loop']}"] / rate[f"vllm {best['vllm']}"],
        "best_k": best,
        "tok_s": {name: round(value, 2) for name, value in rate.items()},
        "acceptance_length": {
            name: summarise(kept).acceptance_length
            for name, kept in traces.items()
            if not name.endswith(" 0") and all(kept)
        },
    }


def main() -> None:
    """Run and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prompts", type=int, default=6, help="how many of the 12")
    arguments.add_argument("--tokens", type=int, default=64)
    args = arguments.parse_args()
    every = load_prompts()
    prompts = [p.prompt for p in every[:: max(1, len(every) // args.prompts)]][: args.prompts]
    environment = find()
    print(f"vLLM {environment.version}; {len(prompts)} prompts x {args.tokens} tokens, one request at a time")
    with tempfile.TemporaryDirectory() as folder:
        result = equality(environment, prompts, args.tokens, Path(folder))
        result |= speed(environment, prompts, args.tokens, Path(folder))
    for name, value in result.items():
        print(f"  {name:30} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
