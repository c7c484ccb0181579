"""What the worker is asked to do: plain data that can be queued, compared and shown, called with (job, slot).

Nothing here imports torch until the worker calls it, so that a page shows before the models' libraries are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from dflash_lab.access import access
from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.prompts import Prompt
from dflash_lab.tokens import Detokenizer, Segment
from dflash_lab.trace import Trace

if TYPE_CHECKING:
    from dflash_lab.measurements import Sweep
    from dflash_lab.pairs import Pair
    from dflash_lab.runs import Run

log = logging.getLogger(__name__)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """A run under way: its trace up to the last round and the text of it."""

    trace: Trace
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class RunTask:
    """One prompt through the loop and, with ``baseline``, through the target alone; the run is kept on disk.

    With a ``tree_depth`` above 0 trees of so many positions are drafted (DDTree), and ``k`` is their budget.
    The job's partial result is a RunSoFar, its result a Run whose id is the job's.
    """

    pair: str
    prompt: str
    k: int = 5
    max_new_tokens: int = 96
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    q_rule: Literal["drafter", "one-hot"] = "drafter"
    thinking: bool | None = None
    baseline: bool = True
    kind: str = ""
    alternatives: int = 5
    tree_depth: int = 0

    def __call__(self, job: Job, slot: ModelSlot) -> Run:
        """Run it. Raises LabError for settings or a prompt that cannot be run."""
        pair = load_pair(self.pair, job, slot)
        from dflash_lab.decode.loop import Settings
        from dflash_lab.decode.sampling import Sampling
        from dflash_lab.runs import run_prompt, save_run
        from dflash_lab.store.collect import from_run, remember

        sampling = Sampling(self.temperature, self.top_k, self.top_p, self.seed, self.q_rule)
        settings = Settings(self.k, self.max_new_tokens, sampling=sampling, alternatives=self.alternatives)
        run = run_prompt(
            pair,
            self.prompt,
            settings,
            baseline=self.baseline and self.k > 0,
            thinking=self.thinking,
            kind=self.kind,
            tree_depth=self.tree_depth,
            watch=_Streaming(job, pair, self.max_new_tokens),
        )
        run = replace(run, id=job.id)
        kept(save_run, run)
        remember(from_run(self, run, pair))
        return run


class _Streaming:
    """Publishes a run round by round: first the speculative text, then how far the target alone has come."""

    def __init__(self, job: Job, pair: Pair, tokens: int) -> None:
        self._job, self._pair, self._tokens = job, pair, tokens
        self._text: Detokenizer | None = None
        self._shown = 0
        self._first: Trace | None = None

    def __call__(self, trace: Trace) -> bool:
        if self._first is None:
            self._first = trace
        if trace.k != self._first.k:
            return self._report(trace, "the target alone")
        if self._text is None:
            self._text = Detokenizer(self._pair.tokenizer, trace.prompt_ids)
        ids = trace.output_ids
        segments = self._text.extend(ids[self._shown :])
        self._shown = len(ids)
        return self._report(trace, "speculative run" if trace.k else "target alone", RunSoFar(trace, segments))

    def _report(self, trace: Trace, stage: str, partial: RunSoFar | None = None) -> bool:
        done = len(trace.output_ids)
        return self._job.report(done, self._tokens, f"{stage}: {done} of at most {self._tokens} tokens", partial)


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A sweep over K; every run is kept on disk as soon as it is measured, the step costs also when it is stopped.

    The job's partial result is the Sweep so far.
    """

    pair: str
    prompts: tuple[Prompt, ...]
    ks: tuple[int, ...]
    repeats: int = 1
    max_new_tokens: int = 64

    def __call__(self, job: Job, slot: ModelSlot) -> Sweep:
        """Sweep. Raises LabError for a sweep of nothing."""
        from dflash_lab.cost import save_costs
        from dflash_lab.store.collect import from_sweep, remember
        from dflash_lab.sweep import save_sweep, sweep

        pair = load_pair(self.pair, job, slot)
        latest: list[Sweep] = []

        def watch(so_far: Sweep, done: int, doing: str) -> bool:
            if so_far.measurements and (not latest or len(latest[0].measurements) < len(so_far.measurements)):
                keep(replace(so_far, id=job.id))
            latest[:] = [replace(so_far, id=job.id)]
            return job.report(done, so_far.wanted, f"{done} of {so_far.wanted} runs: {doing}", latest[0])

        def keep(found: Sweep) -> None:
            kept(save_sweep, found)
            remember(from_sweep(self, found, pair))

        try:
            found = sweep(pair, self.prompts, self.ks, self.repeats, self.max_new_tokens, watch)
            return replace(found, id=job.id)
        finally:
            if latest and latest[0].measurements:
                kept(save_costs, latest[0].costs())


def kept(save: Callable[[Found], object], found: Found) -> None:
    """Write what was found, unless this is a demonstration. A folder that cannot be written costs no result."""
    if access().read_only:
        return
    try:
        save(found)
    except OSError as error:
        log.warning("not kept: %s", error)


def load_pair(name: str, job: Job, slot: ModelSlot, dtype: str = "") -> Pair:
    """The pair of that name, loaded into the slot with its progress on the job; `dtype` replaces its own.

    Raises LabError for an unknown pair or one that cannot be loaded, Cancelled when the job was cancelled meanwhile.
    """
    job.checkpoint(0, 0, "starting PyTorch")
    from dflash_lab.pairs import get_pair, load

    spec = get_pair(name)
    if dtype:
        spec = spec.model_copy(update={"dtype": dtype})

    def progress(fraction: float, text: str) -> None:
        job.checkpoint(round(100 * fraction), 100, f"loading {spec.name}: {text}")

    return slot.get(spec.model_dump_json(), lambda: load(spec, progress=progress))
