"""A diagnosis as the worker is asked for it: plain data that can be queued."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.tasks import load_pair

if TYPE_CHECKING:
    from dflash_lab.diagnose.report import Diagnosis


@dataclass(frozen=True, slots=True)
class SoFar:
    """A diagnosis under way: the fields accused so far."""

    accused: tuple[str, ...]


@dataclass(frozen=True)
class DiagnoseTask:
    """Diagnose `raw` (the file at `path`, or any JSON object) on a pair; the result is a Diagnosis."""

    pair: str
    raw: dict[str, Any]
    k: int = 5
    budget_s: float = 60.0
    temperature: float = 0.0
    engine: str | None = None
    path: str | None = None

    def __call__(self, job: Job, slot: ModelSlot) -> Diagnosis | None:
        """Run it. Raises LabError for a config that nothing makes run."""
        pair = load_pair(self.pair, job, slot)
        from dflash_lab.config import files
        from dflash_lab.config.schema import DrafterConfig
        from dflash_lab.decode.sampling import Sampling
        from dflash_lab.diagnose.steps import diagnose
        from dflash_lab.store.collect import from_diagnosis, remember

        found = diagnose(
            pair,
            DrafterConfig.from_json(self.raw),
            self.k,
            self.budget_s,
            sampling=Sampling(self.temperature),
            engine=self.engine,
            file=files.read(self.path) if self.path else None,
            watch=lambda share, text, accused: job.report(round(1000 * share), 1000, text, SoFar(accused)),
        )
        if found is None:
            return None
        found = replace(found, id=job.id)
        remember(from_diagnosis(self, found, pair))
        return found
