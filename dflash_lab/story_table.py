"""The table of the story, for any pair: a guessed config, the right one at two K, MTP; then the best K and a tree.

Rows are acceptance length, acceptance at position 0 and tok/s; every figure says its interval and what it rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.drafters.method import Method

if TYPE_CHECKING:
    from dflash_lab.measurements import Interval
    from dflash_lab.methods import Comparison, MethodResult

GUESSED = "guessed"
"""The name of ``guessed_config`` in a Method's ``config``."""

FEW = 5
OTHER_KS = (1, 2, 3, 7)
MTP_KS = (1, 3)
BUDGETS = (8, 16)
TREE_DEPTH = 7
FASTEST = {
    "mtp": "MTP, K = {k}",
    "dflash": "Best K ({k})",
    "ddtree": "DDTree, {k} nodes",
    "lookup": "Prompt lookup, K = {k}",
    "draft model": "Draft model, K = {k}",
}
"""Kind -> title of the column for its fastest K or budget; the story's come first, in its order."""


def guessed_config(config: DrafterConfig, layers: int) -> DrafterConfig:
    """A config as somebody without the real file guesses it: token 0 as mask, the target's last layers, all full.

    Every engine loads it without an error, for no shape changes; ``layers`` is the number of the target's.
    """
    taps = len(config.taps)
    return config.edited(
        mask_token_id=0,
        target_layer_ids=tuple(range(layers - taps, layers)),
        layer_types=("full_attention",) * config.num_hidden_layers,
    )


def story_methods(most: int) -> tuple[Method, ...]:
    """What the table needs; ``most`` is the largest K inside the drafter's trained block."""
    ks = sorted({k for k in (*OTHER_KS, FEW) if k < most} | {most})
    return (
        Method("dflash", most, config=GUESSED),
        *(Method("dflash", k) for k in ks),
        *(Method("mtp", k) for k in MTP_KS),
        *(Method("ddtree", budget, min(TREE_DEPTH, most)) for budget in BUDGETS),
    )


def story_columns(found: Comparison) -> dict[str, MethodResult]:
    """Title -> result: the story's columns, as far as ``found`` has them; best K and budget by measured tok/s."""
    results = [r for r in found.results() if r.tok_s is not None]
    chains = [r for r in results if r.method.kind == "dflash" and not r.method.config]
    columns: dict[str, MethodResult] = {}
    wrong = [r for r in results if r.method.config]
    if wrong:
        columns[f"Wrong config, K = {wrong[0].method.k}"] = wrong[0]
    if chains:
        largest = max(chains, key=lambda r: r.method.k)
        columns[f"Right, K = {largest.method.k}"] = largest
        if few := next((r for r in chains if r.method.k == FEW), None):
            columns[f"Right, K = {FEW}"] = few
    for kind, title in FASTEST.items():
        same = [r for r in results if r.method.kind == kind and not r.method.config]
        if same:
            best = max(same, key=lambda r: r.tok_s or 0.0)
            columns[title.format(k=best.method.k)] = best
    return columns


def markdown(found: Comparison, columns: Mapping[str, MethodResult]) -> str:
    """The columns as a Markdown table with a line below that says what was measured on what."""
    rows = {
        "Acceptance length": [
            _number(r.acceptance_length, r.summary.acceptance_length_interval) for r in columns.values()
        ],
        "Position 0": [_share(r) for r in columns.values()],
        "tok/s": [_number(r.tok_s, r.interval, 1) for r in columns.values()],
        "Speed-up": [_number(r.speed_up, None) for r in columns.values()],
        "Rounds": [str(r.summary.counted) for r in columns.values()],
    }
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    about = (
        f"{found.pair}, {found.device}, {found.dtype}; greedy, {len(found.prompts)} prompts, {found.max_new_tokens} "
        f"new tokens, {len(found.runs)} of {found.wanted} runs. Acceptance length includes the bonus token; position 0 "
        "is of all rounds; tok/s counts tokens after the first, one request at a time; speed-up is over the target "
        "alone. In brackets: 95% intervals."
    )
    return "\n".join([*lines, "", about, *(m.sentence() for m in found.missing)]) + "\n"


def _number(value: float | None, interval: Interval, digits: int = 2) -> str:
    if value is None:
        return "n/a"
    spread = f" ({interval[0]:.{digits}f} to {interval[1]:.{digits}f})" if interval else ""
    return f"{value:.{digits}f}{spread}"


def _share(result: MethodResult) -> str:
    rate = result.position0
    return "n/a" if rate is None or rate.value is None else f"{rate.value:.0%}"
