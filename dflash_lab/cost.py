"""What a round costs: measured medians of draft, verify and rest by K, kept per pair and device.

Milliseconds are medians, not means: one slow round (a page fault, another process) should not move them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from dflash_lab.errors import LabError
from dflash_lab.paths import data_dir, write_whole
from dflash_lab.trace import Round, Trace

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class StepCost:
    """Median milliseconds of one round at ``k`` drafted tokens (0 = a plain step of the target) and the rounds
    they rest on. ``round_ms`` is the median of whole rounds, so it need not be the sum of the three."""

    k: int
    rounds: int
    draft_ms: float
    verify_ms: float
    rest_ms: float
    round_ms: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Step costs of one pair on one device in one dtype, ordered by K."""

    pair: str
    device: str
    dtype: str
    steps: tuple[StepCost, ...]

    def step(self, k: int) -> StepCost | None:
        """The cost measured at ``k``, None when it was not."""
        return next((s for s in self.steps if s.k == k), None)

    def merged(self, newer: Costs) -> Costs:
        """These costs, with those of ``newer`` in place of the ones at the same K."""
        by_k = {s.k: s for s in (*self.steps, *newer.steps)}
        return replace(self, steps=tuple(by_k[k] for k in sorted(by_k)))

    def frame(self) -> pd.DataFrame:
        """One row per K."""
        columns = list(StepCost.__dataclass_fields__)
        return pd.DataFrame([asdict(s) for s in self.steps], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data with ``schema_version``."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Costs:
        """Read what ``to_json`` wrote. Raises ValueError for another schema version."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {data.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        steps = tuple(StepCost(**s) for s in data["steps"])
        return cls(data["pair"], data["device"], data["dtype"], steps)


def measured(traces: Iterable[Trace]) -> tuple[StepCost, ...]:
    """Medians by K over rounds that drafted the full K.

    The first round of every trace is left out: caches and kernels are still cold there.
    """
    by_k: dict[int, list[Round]] = {}
    for trace in traces:
        full = [r for r in trace.rounds[1:] if len(r.drafted) == trace.k]
        by_k.setdefault(trace.k, []).extend(full)
    return tuple(_step(k, rounds) for k, rounds in sorted(by_k.items()) if rounds)


def _step(k: int, rounds: list[Round]) -> StepCost:
    def ms(values: Iterable[float]) -> float:
        return 1e3 * median(values)

    return StepCost(
        k,
        len(rounds),
        ms(r.draft_s for r in rounds),
        ms(r.verify_s for r in rounds),
        ms(r.rest_s for r in rounds),
        ms(r.seconds for r in rounds),
    )


def save_costs(costs: Costs) -> Path:
    """Merge into what is kept for this pair, device and dtype; returns the file."""
    kept = load_costs(costs.pair, costs.device, costs.dtype)
    merged = kept.merged(costs) if kept else costs
    return write_whole(_path(costs.pair, costs.device, costs.dtype), json.dumps(merged.to_json(), indent=1))


def load_costs(pair: str, device: str, dtype: str) -> Costs | None:
    """The kept costs, None when nothing was measured yet.

    Raises LabError for a file that cannot be read.
    """
    path = _path(pair, device, dtype)
    try:
        return Costs.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise LabError(f"The step costs in {path} cannot be read: {error}", "Delete it and sweep again") from error


def _path(pair: str, device: str, dtype: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{pair}-{device}-{dtype}")
    return data_dir() / "costs" / f"{name}.json"
