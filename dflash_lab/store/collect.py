"""From what the worker's tasks return to Experiments; the tasks call ``remember`` when they are done."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dflash_lab.access import access
from dflash_lab.config.patch import diff
from dflash_lab.edits import summary as changes_of
from dflash_lab.errors import LabError
from dflash_lab.measurements import Measurement, Sweep, label
from dflash_lab.published import known_config
from dflash_lab.store.database import Store
from dflash_lab.store.experiment import Experiment, Kind, Series
from dflash_lab.store.provenance import pair_facts, provenance
from dflash_lab.story_table import markdown, story_columns

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.config_tasks import Judged
    from dflash_lab.diagnose.report import Diagnosis
    from dflash_lab.methods import Comparison
    from dflash_lab.pairs import Pair
    from dflash_lab.runs import Run

log = logging.getLogger(__name__)

DRAFTED, PLAIN = "with the drafter", "target alone"


def remember(experiment: Experiment) -> None:
    """Put a result among the recent experiments. A notebook that cannot be written costs no result: it is logged."""
    if access().read_only:
        return
    try:
        Store().remember(experiment)
    except LabError as error:
        log.warning("%s was not kept: %s", experiment.id, error)


def from_run(task: Any, run: Run, pair: Pair) -> Experiment:
    """A prompt through the loop, and the target alone where it ran beside it."""
    words = " ".join(run.prompt.split())
    runs = [(DRAFTED, run.speculative), (PLAIN, run.plain)]
    series = [Series(name, trace.k, (run.prompt,), (trace,)) for name, trace in runs if trace is not None]
    summary = run.speculative.summary()
    speed = f", {run.speed_up:.2f} times the target alone" if run.speed_up else ""
    return _made(
        run.id,
        "run",
        f"K = {run.speculative.k}: {words[:60]}{'…' if len(words) > 60 else ''}",
        f"{_length(summary.acceptance_length)} over {summary.counted} rounds{speed}",
        pair,
        task,
        pair.raw_config,
        series=tuple(series),
        wording=run.wording,
        extra={"lossless": run.lossless.sentence()} if run.lossless else {},
    )


def from_sweep(task: Any, found: Sweep, pair: Pair) -> Experiment:
    """A sweep, finished or under way: a series for every K, the target alone first."""
    series = tuple(
        Series(label(k), k, tuple(m.prompt for m in found.at(k)), tuple(m.trace for m in found.at(k)))
        for k in (0, *found.ks)
    )
    best = found.best()
    main = (0, *found.ks).index(best.k) if best and best.k else len(found.ks)
    sentence = best.sentence() if best else f"{len(found.measurements)} of {found.wanted} runs"
    units = {str(k): [[m.kind, m.repeat] for m in found.at(k)] for k in (0, *found.ks)}
    extra = {"sweep": _plain(asdict(replace(found, measurements=()))), "units": units}
    title = f"Sweep of K = {', '.join(map(str, found.ks))} on {len(found.prompts)} prompts"
    return _made(found.id, "sweep", title, sentence, pair, task, pair.raw_config, series=series, main=main, extra=extra)


def as_sweep(experiment: Experiment) -> Sweep:
    """The sweep that ``from_sweep`` took apart, with its figures."""
    body = dict(experiment.extra["sweep"])
    measurements = tuple(
        Measurement(prompt, kind, s.k, repeat, trace)
        for s in experiment.series
        for prompt, trace, (kind, repeat) in zip(s.prompts, s.traces, experiment.extra["units"][str(s.k)], strict=True)
    )
    body |= {"ks": tuple(body["ks"]), "prompts": tuple(body["prompts"]), "measurements": measurements}
    return Sweep(**body)


def from_judged(task: Any, judged: Judged, pair: Pair, job_id: str) -> Experiment:
    """A config what-if: a series for every config that could run, the edited one first."""
    prompts = tuple(p.id for p in task.prompt_set.prompts)
    series = tuple(
        Series(name, judged.k, prompts, effect.traces, config=json.loads(judged.configs[name]))
        for name, effect in judged.effects.items()
    )
    first = json.loads(next(iter(judged.configs.values())))
    against = [
        f"{p.difference:+.2f} ({p.low:+.2f} to {p.high:+.2f}) against {name}" for name, p in judged.against.items()
    ]
    length = series[0].summary.acceptance_length if series else None
    return _made(
        job_id,
        "what-if",
        f"What if: {changes_of(pair.raw_config, first)}, K = {judged.k}",
        "; ".join([_length(length), *against, *judged.refused.values()]),
        pair,
        task,
        first,
        series=series,
    )


def from_comparison(task: Any, found: Comparison, pair: Pair, configs: Mapping[str, DrafterConfig]) -> Experiment:
    """Methods side by side: a series for every method that ran, the target alone first, and the story's table."""
    ran = [m for m in found.methods if found.of(m)]
    series = tuple(
        Series(
            m.label,
            m.k,
            tuple(r.prompt for r in found.of(m)),
            tuple(r.trace for r in found.of(m)),
            config=configs[m.config].to_json() if m.config else None,
        )
        for m in ran
    )
    speeds = [series_.tokens_per_second or 0.0 for series_ in series]
    main = speeds.index(max(speeds)) if speeds else 0
    headline = f"Fastest: {ran[main].label}, {speeds[main]:.1f} tok/s" if speeds else "Nothing ran"
    return _made(
        found.id,
        "methods",
        f"{len(found.methods)} methods on {len(found.prompts)} prompts",
        headline,
        pair,
        task,
        pair.raw_config,
        series=series,
        main=main,
        extra={"markdown": markdown(found, story_columns(found))},
    )


def from_diagnosis(task: Any, found: Diagnosis, pair: Pair) -> Experiment:
    """A diagnosis: the curve before and after the repair, and the report."""
    sides = [("before", found.before, found.raw), ("after", found.after, found.repaired)]
    series = tuple(Series(name, found.k, counts=counts, config=raw) for name, counts, raw in sides if counts)
    return _made(
        found.id,
        "diagnosis",
        f"Diagnosis: {found.verdict.headline}",
        f"{found.verdict.change}; {found.verdict.brings}",
        pair,
        task,
        found.raw,
        series=series,
        extra={"report": _plain(found.to_json()), "markdown": found.markdown()},
    )


def _made(
    name: str,
    kind: Kind,
    title: str,
    headline: str,
    pair: Pair,
    task: Any,
    config: dict[str, Any],
    **rest: Any,
) -> Experiment:
    own = known_config(pair.spec)
    return Experiment(
        id=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=kind,
        title=title,
        headline=headline,
        pair=pair_facts(pair),
        config=config,
        patch=diff(own.raw if own else pair.raw_config, config),
        settings=settings(task),
        provenance=provenance(pair),
        **rest,
    )


def settings(task: Any) -> dict[str, Any]:
    """A task's fields as plain JSON data; ``again.task_of`` makes the task from them."""
    return _plain(asdict(task))


def _plain(value: Any) -> Any:
    """As JSON would give it back: lists for tuples, dicts for pydantic models."""
    return json.loads(json.dumps(value, default=lambda v: v.model_dump() if hasattr(v, "model_dump") else str(v)))


def _length(value: float | None) -> str:
    return "No counted round" if value is None else f"Acceptance length {value:.2f}"
