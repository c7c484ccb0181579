"""What the Sweep page asks the worker: several methods on the same prompts, kept run by run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dflash_lab.drafters.method import Method
from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.prompts import Prompt
from dflash_lab.story_table import GUESSED, guessed_config
from dflash_lab.tasks import kept, load_pair

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.methods import Comparison
    from dflash_lab.pairs import Pair


@dataclass(frozen=True, slots=True)
class MethodsTask:
    """Methods, and the target alone, on the same prompts; the job's partial result is the Comparison so far."""

    pair: str
    prompts: tuple[Prompt, ...]
    methods: tuple[Method, ...]
    repeats: int = 1
    max_new_tokens: int = 64

    def __call__(self, job: Job, slot: ModelSlot) -> Comparison:
        """Compare them. Raises LabError for nothing to compare."""
        from dflash_lab.cost import save_costs
        from dflash_lab.methods import compare_methods, save_comparison
        from dflash_lab.store.collect import from_comparison, remember

        pair = load_pair(self.pair, job, slot)
        configs = named_configs(pair, self.methods)
        latest: list[Comparison] = []

        def watch(so_far: Comparison, done: int, doing: str) -> bool:
            named = replace(so_far, id=job.id)
            if so_far.runs and (not latest or len(latest[0].runs) < len(so_far.runs)):
                kept(save_comparison, named)
            latest[:] = [named]
            return job.report(done, so_far.wanted, f"{done} of {so_far.wanted} runs: {doing}", named)

        found = compare_methods(
            pair, self.prompts, self.methods, self.repeats, self.max_new_tokens, watch, configs=configs
        )
        found = replace(found, id=job.id)
        if found.steps:
            kept(save_costs, found.costs)
        if found.runs:
            kept(save_comparison, found)
            remember(from_comparison(self, found, pair, configs))
        return found


def named_configs(pair: Pair, methods: tuple[Method, ...]) -> dict[str, DrafterConfig]:
    """The configs that methods name: the guessed one, made from the pair's own."""
    return {m.config: guessed_config(pair.config, pair.target.num_layers) for m in methods if m.config == GUESSED}
