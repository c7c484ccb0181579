"""From a config to its diagnosis: record, search, replay, blame, probe, judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dflash_lab.config import files
from dflash_lab.config.checks import check, gather
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.sampling import Sampling
from dflash_lab.diagnose.blame import blame
from dflash_lab.diagnose.card import card
from dflash_lab.diagnose.evidence import conversations, record_conversations
from dflash_lab.diagnose.probes import PROBES, Case
from dflash_lab.diagnose.report import Diagnosis
from dflash_lab.diagnose.search import Progress, repair, spread
from dflash_lab.diagnose.signature import match, observe_traces
from dflash_lab.diagnose.verdict import judge
from dflash_lab.pairs import Pair
from dflash_lab.prompts import Prompt, load_prompts
from dflash_lab.whatif import WhatIf

REPLAYED, FEWEST = 6, 2
"""Recordings that acceptance and blame are replayed on, short and long contexts alike; fewer after a cancel."""
MOST_BLAMED = 3
"""Blame replays every mixture of so many fields: 2 ** 3."""

Watch = Callable[[float, str, tuple[str, ...]], bool]
"""(share done, what is being done, fields accused so far) -> go on?"""


def diagnose(
    pair: Pair,
    config: DrafterConfig,
    k: int = 5,
    budget_s: float = 60.0,
    *,
    prompts: Sequence[Prompt] | None = None,
    sampling: Sampling | None = None,
    engine: str | None = None,
    file: files.ConfigFile | None = None,
    watch: Watch | None = None,
) -> Diagnosis | None:
    """Diagnose `config` on this pair; None when stopped before the search had begun.

    The search takes about `budget_s` seconds; recording (once per target), blame and probes come on top. Nothing is
    read of the pair's own config. Raises ConfigError for a config that no proposal makes run.
    """
    told: tuple[str, ...] = ()

    def tell(share: float, text: str) -> bool:
        return watch is None or watch(share, text, told)

    recordings = record_conversations(
        pair, conversations(prompts or load_prompts()), progress=lambda share, text: tell(0.2 * share, text)
    )
    if recordings is None:
        return None

    def searching(p: Progress) -> bool:
        nonlocal told
        told = p.changed
        return tell(0.2 + 0.5 * p.share, f"Trying {p.text} ({p.tried} tried)")

    found = repair(pair, recordings, config, k, budget_s, searching)
    told = found.guilty
    going = found.end != "cancelled"
    bench = WhatIf(pair, spread(recordings, REPLAYED if going else FEWEST))
    going = tell(0.7, "Replaying both configs") and going
    after = bench.effect(found.repaired, k)
    try:
        effect = bench.effect(config, k)
        before, traces = effect.summary, effect.traces
    except ConfigError:
        before, traces = None, ()
    shares = None
    if going and 0 < len(found.changes) <= MOST_BLAMED:
        shares = blame(
            bench, config, found.repaired, k, lambda share, text: tell(0.72 + 0.13 * share, f"Blame: {text}")
        )
        going = shares is not None
    case = Case(pair, found.repaired, bench.replay.recordings, after.traces, k, config.raw, sampling or Sampling(),
                engine, file)  # fmt: skip
    probes = []
    for n, probe in enumerate(PROBES):
        if not going or not tell(0.85 + 0.15 * n / len(PROBES), f"Probe: {probe.__name__.replace('_', ' ')}"):
            break
        probes.append(probe(case))
    findings = check(config.raw, gather(config.raw, pair.drafter_dir, pair.target_dir, drafted=k, table=True))
    longest = max(len(r.prompt_ids) + r.length for r in bench.replay.recordings)
    shortest = min(len(r.prompt_ids) for r in bench.replay.recordings)
    return Diagnosis(
        pair=pair.spec.name,
        k=k,
        raw=config.raw,
        repaired=found.repaired.raw,
        before=before,
        after=after.summary,
        matches=tuple(match(observe_traces(traces))),
        findings=tuple(findings),
        repair=found,
        blame=shares,
        probes=tuple(probes),
        card=card(pair, config, k, context_length=f"{shortest} to {longest} tokens"),
        verdict=judge(found, before, after.summary, probes, pair.spec.drafter),
        path=str(file.path) if file else None,
        contexts=(shortest, longest),
    )
