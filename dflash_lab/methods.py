"""Several methods over the same prompts: measured in the loop, predicted from replay, each with its intervals.

Runs of all methods alternate, and so do the passes that time their steps: a machine that slows down favours none, and
a prediction and the run it is held against have seen the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from dflash_lab.cost import CONTEXTS, Costs, StepCost, Timer
from dflash_lab.drafters.method import PLAIN, Method, Missing, make_drafters
from dflash_lab.errors import LabError
from dflash_lab.forecast import Prediction, predict
from dflash_lab.measurements import Interval, percentiles, resampled, speed
from dflash_lab.paths import data_dir, write_whole
from dflash_lab.prompts import Prompt
from dflash_lab.trace import Rate, Summary, Trace, bare, summarise

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.limit import Floor
    from dflash_lab.pairs import Pair

CONTEXT_BIN = 64


@dataclass(frozen=True, slots=True)
class MethodRun:
    """One prompt decoded by one method, once. ``lossless`` compares it with the target alone; ``difference`` is that
    verdict in words where the texts differ."""

    method: Method
    prompt: str
    kind: str
    repeat: int
    trace: Trace
    lossless: Literal["equal", "near-tie", "different"]
    difference: str = ""


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One method on some prompts. Intervals are 95%.

    ``tok_s`` is measured: all tokens over all seconds, None before the method ran. ``quartiles`` are those of single
    runs' tok/s. ``break_even`` and ``limit_tok_s`` are `forecast.Prediction`'s. ``prediction_error`` is the median over
    runs of predicted / measured - 1. ``lossless``: no run differs from the target alone, ``near_ties`` runs aside; None
    before the method ran.
    """

    method: Method
    summary: Summary
    tok_s: float | None = None
    interval: Interval = None
    quartiles: Interval = None
    speed_up: float | None = None
    predicted_tok_s: float | None = None
    predicted_interval: Interval = None
    break_even: float | None = None
    limit_tok_s: float | None = None
    prediction_error: float | None = None
    lossless: bool | None = None
    near_ties: int = 0

    @property
    def acceptance_length(self) -> float | None:
        """Mean accepted + 1 over counted rounds; 1 for the target alone."""
        return 1.0 if self.method == PLAIN else self.summary.acceptance_length

    @property
    def position0(self) -> Rate | None:
        """Rounds that accepted their first drafted token / rounds that drafted; None for the target alone."""
        return self.summary.per_position[0] if self.summary.per_position else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was asked, and what is known so far; ``complete`` says whether that is all of it.

    ``methods`` are those the pair has, the target alone first; ``wanted`` is the number of runs that make it complete;
    ``bandwidth`` (bytes a second) is what the device's memory was measured to give.
    """

    id: str
    created: str
    pair: str
    device: str
    dtype: str
    methods: tuple[Method, ...]
    missing: tuple[Missing, ...]
    prompts: tuple[str, ...]
    kinds: tuple[str, ...]
    repeats: int
    max_new_tokens: int
    wanted: int
    steps: tuple[StepCost, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    bandwidth: float | None = None
    runs: tuple[MethodRun, ...] = ()
    schema_version: Literal[1] = 1

    @property
    def complete(self) -> bool:
        """Everything asked for was measured."""
        return len(self.runs) == self.wanted

    @property
    def costs(self) -> Costs:
        """The step costs with what they belong to, ready to be kept."""
        return Costs(self.pair, self.device, self.dtype, self.steps)

    def of(self, method: Method, kind: str | None = None) -> tuple[MethodRun, ...]:
        """The runs of one method, on prompts of one ``kind``."""
        return tuple(r for r in self.runs if r.method == method and kind in (None, r.kind))

    def prediction(self, method: Method) -> Prediction | None:
        """What is predicted for ``method``; None before its costs are known."""
        return next((p for p in self.predictions if p.method == method), None)

    def result(self, method: Method, kind: str | None = None) -> MethodResult:
        """The method on all prompts, or on those of one ``kind`` (measured figures only)."""
        units = self._units()
        runs = [r for r in self.of(method, kind) if (r.prompt, r.repeat) in units]
        predicted = self.prediction(method)
        if not runs:
            summary = predicted.summary if predicted and kind is None else summarise([])
            result = MethodResult(method, summary)
        else:
            tokens, seconds = speed([r.trace for r in runs])
            low, high = np.percentile(tokens / seconds, (25, 75))
            plain, plain_seconds = speed([r.trace for r in self.of(PLAIN, kind) if (r.prompt, r.repeat) in units])
            tok_s = float(tokens.sum() / seconds.sum())
            result = MethodResult(
                method,
                summarise(r.trace for r in runs),
                tok_s,
                percentiles(resampled(tokens, seconds)),
                (float(low), float(high)),
                tok_s / float(plain.sum() / plain_seconds.sum()),
                lossless=all(r.lossless != "different" for r in runs),
                near_ties=sum(r.lossless == "near-tie" for r in runs),
            )
        return result if kind or predicted is None else self._with_prediction(result, predicted, runs)

    def results(self, kind: str | None = None) -> tuple[MethodResult, ...]:
        """Every method's result."""
        return tuple(self.result(method, kind) for method in self.methods)

    def frame(self, kind: str | None = None) -> pd.DataFrame:
        """One row per method: the figures of ``MethodResult``, intervals as two columns each."""
        return pd.DataFrame([_row(result) for result in self.results(kind)])

    def kinds_frame(self) -> pd.DataFrame:
        """One row per method and kind of prompt."""
        rows = [{"prompts": kind, **_row(r)} for kind in dict.fromkeys(self.kinds) for r in self.results(kind)]
        return pd.DataFrame(rows)

    def context_frame(self, method: Method, width: int = CONTEXT_BIN) -> pd.DataFrame:
        """Acceptance length by position of the anchor, in bins of ``width`` tokens: ``context`` (the bin's middle),
        ``al``, ``low``, ``high`` and ``rounds``."""
        traces = [r.trace for r in self.of(method)]
        bins = sorted({r.anchor_position // width for t in traces for r in t.rounds})
        rows = []
        for place in bins:
            some = [
                replace(t, rounds=tuple(r for r in t.rounds if r.anchor_position // width == place)) for t in traces
            ]
            summary = summarise(some)
            low, high = summary.acceptance_length_interval or (None, None)
            rows.append(((place + 0.5) * width, summary.acceptance_length, low, high, summary.counted))
        return pd.DataFrame(rows, columns=["context", "al", "low", "high", "rounds"])

    @property
    def prediction_error(self) -> float | None:
        """Median over the methods of the absolute prediction error; None before any ran."""
        errors = [abs(r.prediction_error) for r in self.results() if r.prediction_error is not None]
        return median(errors) if errors else None

    def _units(self) -> set[tuple[str, int]]:
        """(prompt, repeat) that every method ran: a stopped comparison still compares like with like."""
        seen = [{(r.prompt, r.repeat) for r in self.of(method)} for method in self.methods]
        ran = [units for units in seen if units]
        return set.intersection(*ran) if len(ran) == len(seen) else set()

    def _with_prediction(self, result: MethodResult, predicted: Prediction, runs: Sequence[MethodRun]) -> MethodResult:
        by_prompt = dict(zip(self.prompts, np.array(predicted.tokens) / np.array(predicted.seconds), strict=True))
        ratios = [by_prompt[r.prompt] / rate for r in runs if (rate := r.trace.tokens_per_second)]
        return replace(
            result,
            predicted_tok_s=predicted.tok_s,
            predicted_interval=predicted.interval,
            break_even=predicted.break_even,
            limit_tok_s=predicted.limit_tok_s,
            prediction_error=float(median(ratios) - 1) if ratios else None,
        )


def _row(r: MethodResult) -> dict[str, object]:
    al, first = r.summary.acceptance_length_interval, r.position0
    intervals = {"al": al, "position0": first.interval if first else None, "tok_s": r.interval,
                 "predicted_tok_s": r.predicted_interval}  # fmt: skip
    values = {"al": r.acceptance_length, "position0": first.value if first else None, "tok_s": r.tok_s,
              "predicted_tok_s": r.predicted_tok_s}  # fmt: skip
    row: dict[str, object] = {"label": r.method.label, "kind": r.method.kind, "k": r.method.k, "depth": r.method.depth}
    for name, value in values.items():
        row |= {name: value, f"{name}_low": None, f"{name}_high": None}
        if (interval := intervals[name]) is not None:
            row |= {f"{name}_low": interval[0], f"{name}_high": interval[1]}
    return row | {
        "speed_up": r.speed_up,
        "prediction_error": r.prediction_error,
        "break_even": r.break_even,
        "limit_tok_s": r.limit_tok_s,
        "lossless": r.lossless,
        "near_ties": r.near_ties,
        "rounds": r.summary.counted,
        "rounds_left_out": r.summary.left_out,
    }


Watch = Callable[[Comparison, int, str], bool]
"""(comparison so far, runs done, what is going on) after every round; returns False to stop."""


def compare_methods(
    pair: Pair,
    prompts: Sequence[Prompt],
    methods: Sequence[Method],
    repeats: int = 1,
    max_new_tokens: int = 96,
    watch: Watch | None = None,
    *,
    configs: Mapping[str, DrafterConfig] | None = None,
    contexts: Sequence[int] = CONTEXTS,
) -> Comparison:
    """Predict and measure ``methods``, and the target alone, on the same prompts, greedily.

    First the target's text is recorded (or taken from the store) and every method replayed on it; then every prompt is
    decoded ``repeats`` times by every method, in rotating order, with a pass of step timing before each run.
    ``repeats`` 0 predicts only: the timing passes alone. A run cut short by ``watch`` is dropped, what was measured
    before it is returned. Methods the pair does not have are in ``missing``, with the reason.

    Raises LabError for no prompts, a negative number of repeats or a config that contradicts the weights.
    """
    from dflash_lab.decode.loop import Settings, run
    from dflash_lab.decode.lossless import compare
    from dflash_lab.limit import floor, measured_bandwidth
    from dflash_lab.recorded import replay_methods
    from dflash_lab.whatif import record_prompts

    if not prompts or repeats < 0:
        raise LabError(f"{len(prompts)} prompts, {repeats} repeats", "Give at least one prompt and no negative repeats")
    drafters, missing = make_drafters(pair, [PLAIN, *methods], configs)
    now = datetime.now(UTC)
    so_far = Comparison(
        id=f"{now:%Y%m%dT%H%M%S}-methods",
        created=now.isoformat(timespec="seconds"),
        pair=pair.spec.name,
        device=str(pair.device),
        dtype=str(pair.dtype).removeprefix("torch."),
        methods=tuple(drafters),
        missing=missing,
        prompts=tuple(p.id for p in prompts),
        kinds=tuple(p.kind for p in prompts),
        repeats=repeats,
        max_new_tokens=max_new_tokens,
        wanted=len(prompts) * repeats * len(drafters),
    )

    def go_on(doing: str) -> bool:
        return watch is None or watch(so_far, len(so_far.runs), doing)

    texts = [p.prompt for p in prompts]
    recordings = record_prompts(pair, texts, max_new_tokens, lambda share, text: go_on(text))
    if recordings is None:
        return so_far
    replayed = replay_methods(pair, recordings, drafters, configs, lambda label: go_on(f"replaying {label}"))
    if len(replayed) < len(drafters):
        return so_far

    bandwidth = measured_bandwidth(pair.device)
    floors = {method: floor(pair, method, drafter, bandwidth) for method, drafter in drafters.items()}
    so_far = replace(so_far, bandwidth=bandwidth)
    timer, order = Timer(pair, drafters, contexts), list(drafters)
    # Every method once at every context before the first run, which warms it up too; then one context a run.
    for n, context in enumerate(contexts):
        for method in _turned(order, n):
            if not go_on(f"timing {method.label} behind {context} tokens"):
                return so_far
            timer.time(method, context)
    so_far = _predicted(so_far, timer, replayed, floors)
    turns = [(i, repeat) for repeat in range(repeats) for i in range(len(prompts))]
    for n, (i, repeat) in enumerate(turns):
        prompt = prompts[i]
        for method in _turned(order, n):
            doing = f"{prompt.id}, {method.label}"
            timer.time(method, contexts[n % len(contexts)])
            ids, settings = pair.encode(prompt.prompt), Settings(method.k, max_new_tokens, pair.stop_ids)
            generation = run(pair.target, drafters[method], ids, settings)
            for _ in generation:
                if not go_on(doing):
                    return so_far
            verdict = compare(generation.trace(), replayed[PLAIN][i], pair.target)
            difference = "" if verdict.verdict == "equal" else verdict.sentence()
            trace = bare(generation.trace(**_about(so_far, method)))
            one = MethodRun(method, prompt.id, prompt.kind, repeat, trace, verdict.verdict, difference)
            so_far = replace(so_far, runs=(*so_far.runs, one))
        so_far = _predicted(so_far, timer, replayed, floors)
    if watch:
        watch(so_far, so_far.wanted, "done")
    return so_far


def _turned(methods: Sequence[Method], turn: int) -> list[Method]:
    at = turn % len(methods)
    return [*methods[at:], *methods[:at]]


def _about(found: Comparison, method: Method) -> dict[str, str]:
    return {"pair": found.pair, "method": method.label, "device": found.device, "dtype": found.dtype}


def _predicted(
    found: Comparison, timer: Timer, replayed: Mapping[Method, list[Trace]], floors: Mapping[Method, Floor]
) -> Comparison:
    timed = replace(found, steps=timer.steps())
    predictions = tuple(predict(method, traces, timed.costs, floors[method]) for method, traces in replayed.items())
    return replace(timed, predictions=predictions)


def save_comparison(found: Comparison) -> Path:
    """Keep the comparison as JSON in the data folder; returns the file."""
    text = TypeAdapter(Comparison).dump_json(found).decode()
    return write_whole(data_dir() / "methods" / f"{found.id}.json", text)


def load_comparison(comparison_id: str) -> Comparison:
    """Read a kept comparison.

    Raises LabError when there is none by that id, or its file cannot be read.
    """
    path = data_dir() / "methods" / f"{Path(comparison_id).name}.json"
    try:
        return TypeAdapter(Comparison).validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"There is no comparison {comparison_id!r} in {path.parent}", "Run one") from None
    except (ValidationError, LabError) as error:
        raise LabError(f"{path} cannot be read: {error}", "Delete it and compare again") from error
