"""A long run does not grow: caches are allocated once and rolled back by length."""

from __future__ import annotations

from pathlib import Path

from dflash_lab.decode.loop import Settings, run
from tests.tiny import PROMPT, VARIANTS, tiny_pair


def resident_mb() -> float:
    """Resident memory of this process, MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def test_resident_memory_grows_less_than_twenty_megabytes_from_token_500_to_2000():
    pair = tiny_pair(**VARIANTS["mixed"])
    generation = run(pair.target, pair.drafter(), PROMPT, Settings(k=5, max_new_tokens=2000))
    tokens, at_500 = 1, 0.0
    for r in generation:
        tokens += len(r.emitted)
        if tokens >= 500 and not at_500:
            at_500 = resident_mb()
    assert tokens == 2000 and resident_mb() - at_500 < 20
