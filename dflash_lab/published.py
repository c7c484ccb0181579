"""A pair's drafter config as far as it is known before anything is loaded or fetched."""

from __future__ import annotations

import json
from pathlib import Path

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.errors import LabError
from dflash_lab.pairs import PairSpec
from dflash_lab.paths import SAMPLES

USUAL_MOST_DRAFTED = 15
"""K of the usual trained block of 16, where a pair's own is not known yet."""


def known_config(spec: PairSpec) -> DrafterConfig | None:
    """The bundled, local or published config.json of the pair's drafter; None when there is none to read."""
    folders = (
        SAMPLES / spec.drafter,
        Path(spec.drafter).expanduser(),
        SAMPLES / "drafters" / Path(spec.drafter).name,
    )
    for folder in folders:
        try:
            return DrafterConfig.from_json(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, LabError):
            continue
    return None


def most_drafted(spec: PairSpec) -> int:
    """The largest K inside the drafter's trained block, or the usual 15."""
    config = known_config(spec)
    return config.max_drafted if config else USUAL_MOST_DRAFTED
