"""Sweep K: every prompt at every K and with the target alone, warmed up, in rotating order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_lab.errors import LabError
from dflash_lab.measurements import Measurement, Sweep, label
from dflash_lab.paths import data_dir, write_whole
from dflash_lab.prompts import Prompt
from dflash_lab.trace import Trace, bare

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.pairs import Pair

WARM_UP_TOKENS = 8

Watch = Callable[[Sweep, int, str], bool]
"""(sweep so far, measurements done, what is running) after every round; returns False to stop."""


def sweep(
    pair: Pair,
    prompts: Sequence[Prompt],
    ks: Sequence[int],
    repeats: int = 1,
    max_new_tokens: int = 96,
    watch: Watch | None = None,
    *,
    config: DrafterConfig | None = None,
    thinking: bool | None = None,
) -> Sweep:
    """Measure every prompt ``repeats`` times at every K and with the target alone, greedily.

    A short warm-up at every K comes first and is dropped. The order of K rotates from prompt to prompt, so that a
    machine that slows down (heat, other work) does not favour one K. A run cut short by ``watch`` is dropped, what
    was measured before it is returned.

    Raises LabError for no prompts, no K, a K below 1 or fewer than one repeat.
    """
    from dflash_lab.decode.loop import Settings
    from dflash_lab.runs import run_prompt

    order = (0, *sorted(set(ks)))
    _check(prompts, order[1:], repeats)
    created = datetime.now(UTC)
    so_far = Sweep(
        id=f"{created:%Y%m%dT%H%M%S}-sweep",
        created=created.isoformat(timespec="seconds"),
        pair=pair.spec.name,
        device=str(pair.device),
        dtype=str(pair.dtype).removeprefix("torch."),
        ks=order[1:],
        prompts=tuple(p.id for p in prompts),
        repeats=repeats,
        max_new_tokens=max_new_tokens,
        wanted=len(prompts) * repeats * len(order),
    )

    def measure(prompt: Prompt, k: int, tokens: int, doing: str) -> Trace | None:
        stopped = False

        def look(trace: Trace) -> bool:
            nonlocal stopped
            stopped = watch is not None and not watch(so_far, len(so_far.measurements), doing)
            return not stopped

        run = run_prompt(
            pair, prompt.prompt, Settings(k, tokens), config=config, baseline=False, thinking=thinking, watch=look
        )
        return None if stopped else run.speculative

    for k in order:
        if measure(prompts[0], k, WARM_UP_TOKENS, f"warming up, {label(k)}") is None:
            return so_far
    for repeat in range(repeats):
        for n, prompt in enumerate(prompts):
            turn = (n + repeat) % len(order)
            for k in order[turn:] + order[:turn]:
                trace = measure(prompt, k, max_new_tokens, f"{prompt.id}, {label(k)}")
                if trace is None:
                    return so_far
                one = Measurement(prompt.id, prompt.kind, k, repeat, bare(trace))
                so_far = replace(so_far, measurements=(*so_far.measurements, one))
    if watch:
        watch(so_far, so_far.wanted, "done")
    return so_far


def _check(prompts: Sequence[Prompt], ks: Sequence[int], repeats: int) -> None:
    if not prompts:
        raise LabError("There is no prompt to sweep", "Pick at least one kind of prompt")
    if not ks:
        raise LabError("There is no K to sweep", "Pick at least one number of drafted tokens")
    if ks[0] < 1:
        raise LabError(f"K = {ks[0]} cannot be swept", "Give numbers from 1; the target alone is always measured")
    if repeats < 1:
        raise LabError(f"repeats is {repeats}", "Give at least 1")


def save_sweep(found: Sweep) -> Path:
    """Keep the sweep as JSON in the data folder; returns the file."""
    return write_whole(data_dir() / "sweeps" / f"{found.id}.json", json.dumps(found.to_json()))


def load_sweep(sweep_id: str) -> Sweep:
    """Read a kept sweep.

    Raises LabError when there is none by that id, or its file cannot be read.
    """
    path = data_dir() / "sweeps" / f"{Path(sweep_id).name}.json"
    try:
        return Sweep.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise LabError(f"There is no sweep {sweep_id!r} in {path.parent}", "Run one on this page") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"Sweep file {path} cannot be read: {error}", "Delete it and sweep again") from error
