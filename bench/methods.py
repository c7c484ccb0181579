"""Every method of the demo pair on the same prompts: lossless, what it accepts, how fast, and how well that is foretold.

    python -m bench.methods [--quick]

One process; in the speed part runs of all methods alternate, each behind a pass that times its steps.

| figure | definition |
| --- | --- |
| lossless | float32: every text of DDTree at each of ``BUDGETS`` is the target's own, near-ties aside (listed), and so is every text of the speed part in its dtype |
| dflash_, ddtree_, mtp_acceptance_length | float32, by replay: DFlash and MTP at K, DDTree of depth K at 8K nodes |
| ddtree_over_dflash | AL of DDTree at K, 2K, 4K, 8K nodes minus DFlash's at K, with its paired 95% interval |
| prediction_error | median over methods of abs(predicted / measured tok/s - 1), each the median over its runs |
| speedup | tok/s over the target alone's, the pair's own dtype, all tokens over all seconds |

``--quick`` takes fewer prompts, tokens and budgets.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
from typing import Any

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.drafters.method import PLAIN, Method, make_drafters
from dflash_lab.methods import compare_methods
from dflash_lab.paired import compare as paired
from dflash_lab.pairs import Pair, get_pair, load
from dflash_lab.prompts import Prompt, load_prompts
from dflash_lab.recorded import replay_methods
from dflash_lab.trace import summarise
from dflash_lab.whatif import record_prompts

K = 7
SIZES = (K, 2 * K, 4 * K, 8 * K)
BUDGETS = (1, 2, 4, 8, 16, 32, 64)
QUICK_BUDGETS = (1, 8, 64)
DFLASH, MTP = Method("dflash", K), Method("mtp", K)
TIMED = (
    *(Method("dflash", k) for k in (1, 2, 3, 5, 7, 15)),
    *(Method("mtp", k) for k in (1, 3, 5)),
    *(Method("ddtree", budget, K) for budget in (8, 16, 32)),
    Method("lookup", 3),
)


def equality(pair: Pair, prompts: list[Prompt], tokens: int, budgets: tuple[int, ...]) -> dict[str, Any]:
    """float32: the loop's trees against the target alone, prompt by prompt and budget by budget."""
    trees = [Method("ddtree", budget, K) for budget in budgets]
    drafters, _ = make_drafters(pair, [PLAIN, *trees])
    verdicts = []
    for prompt in prompts:
        traces = {}
        for method, drafter in drafters.items():
            generation = run(
                pair.target, drafter, pair.encode(prompt.prompt), Settings(method.k, tokens, pair.stop_ids)
            )
            list(generation)
            traces[method] = generation.trace()
        for method in trees:
            verdicts.append(compare(traces[method], traces[PLAIN], pair.target))
            if verdicts[-1].verdict != "equal":
                print(f"  {prompt.id}, {method.label}: {verdicts[-1].sentence()}", flush=True)
    return {
        "lossless": all(v.verdict != "different" for v in verdicts),
        "near_ties": sum(v.verdict == "near-tie" for v in verdicts),
        "texts_compared": len(verdicts),
        "tokens_compared": sum(v.compared for v in verdicts),
    }


def acceptance(pair: Pair, prompts: list[Prompt], tokens: int) -> dict[str, Any]:
    """float32: acceptance lengths from replay, and the trees' paired differences to the chain."""
    trees = [Method("ddtree", size, K) for size in SIZES]
    drafters, missing = make_drafters(pair, [DFLASH, MTP, *trees])
    for absent in missing:
        print(f"  {absent.sentence()}")
    recordings = record_prompts(pair, [p.prompt for p in prompts], tokens) or []
    traces = replay_methods(pair, recordings, drafters)
    lengths = {method: summarise(found).acceptance_length for method, found in traces.items()}
    over = {tree.k: paired(traces[DFLASH], traces[tree]) for tree in trees}
    return {
        "dflash_acceptance_length": lengths[DFLASH],
        "ddtree_acceptance_length": lengths[trees[-1]],
        "mtp_acceptance_length": lengths.get(MTP),
        "ddtree_over_dflash": {size: p and [p.difference, p.low, p.high] for size, p in over.items()},
        "rounds": {method.label: summarise(found).counted for method, found in traces.items()},
    }


def speed(pair: Pair, prompts: list[Prompt], tokens: int) -> dict[str, Any]:
    """The pair's own dtype: every method measured and predicted."""
    found = compare_methods(pair, prompts, TIMED, max_new_tokens=tokens)
    results = found.results()
    print(found.frame()[["label", "al", "position0", "tok_s", "predicted_tok_s", "prediction_error", "speed_up"]]
          .to_string(index=False, float_format="{:.2f}".format), flush=True)  # fmt: skip
    for one in found.runs:
        if one.lossless == "different":
            print(f"  {one.prompt}, {one.method.label}: {one.difference}")
    return {
        "prediction_error": found.prediction_error,
        "prediction_error_each": {r.method.label: r.prediction_error for r in results},
        "speedup": {r.method.label: r.speed_up for r in results if r.method != PLAIN},
        "tok_s": {r.method.label: r.tok_s for r in results},
        "texts_lossless": all(r.lossless for r in results),
        "text_near_ties": sum(r.near_ties for r in results),
    }


def main() -> None:
    """Run and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="four prompts and 32 tokens")
    args = arguments.parse_args()
    every = list(load_prompts())
    prompts, tokens, budgets = (every[::3], 32, QUICK_BUDGETS) if args.quick else (every, 128, BUDGETS)
    exact = load(get_pair("smollm2-demo").model_copy(update={"dtype": "float32"}))
    result = acceptance(exact, prompts, tokens)
    print(result, flush=True)
    result |= equality(exact, prompts, tokens, budgets)
    result |= speed(load(get_pair("smollm2-demo")), prompts, tokens)
    result["lossless"] &= result.pop("texts_lossless")
    for name, value in result.items():
        print(f"  {name:28} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
