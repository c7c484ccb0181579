"""Where a result comes from: package versions, device, commit, and the pair's revisions and hashes."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab import __version__
from dflash_lab.diagnose.card import config_hash, weights_hash
from dflash_lab.paths import SAMPLES

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair

PACKAGES = ("torch", "transformers", "safetensors", "numpy")


def provenance(pair: Pair) -> dict[str, str]:
    """Versions, device, dtype and commit: what another machine needs to make the same run."""
    packages = {name: metadata.version(name) for name in PACKAGES}
    return {
        "dflash_lab": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        **packages,
        "platform": platform.platform(),
        "device": device_name(pair),
        "dtype": str(pair.dtype).removeprefix("torch."),
    }


def pair_facts(pair: Pair) -> dict[str, Any]:
    """The pair's spec, the revisions that were loaded, and the hashes of the drafter's weights and config."""
    return {
        **pair.spec.model_dump(mode="json"),
        "target_revision": pair.target_revision,
        "drafter_revision": pair.drafter_revision,
        "weights_sha256": _weights(pair.drafter_dir, pair.drafter_revision, pair),
        "config_sha256": config_hash(pair.raw_config),
    }


def device_name(pair: Pair) -> str:
    """ "cpu", or the accelerator's own name behind its device."""
    if pair.device.type == "cuda":
        import torch

        return f"{pair.device} ({torch.cuda.get_device_name(pair.device)})"
    return str(pair.device)


@cache
def commit() -> str:
    """The checkout's commit, with "+" when files were changed since; "unknown" where there is no git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=SAMPLES.parent, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


_known: dict[tuple[Path, str], str] = {}


def _weights(folder: Path, revision: str, pair: Pair) -> str:
    """The weights' hash, once per folder and revision: a large drafter takes seconds to read."""
    key = folder, revision
    if key not in _known:
        _known[key] = weights_hash(pair)
    return _known[key]
