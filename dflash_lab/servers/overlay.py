"""A drafter's folder with another config.json: everything else is linked, nothing of the original is touched."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_lab.errors import LabError


class Overlay:
    """A temporary folder; `path` serves in place of the drafter's own folder until `remove`.

    Raises LabError when `drafter` is not a folder with weights, or the written config reads back differently.
    """

    def __init__(self, drafter: Path, config: Mapping[str, Any], parent: Path) -> None:
        drafter = drafter.expanduser().resolve()
        if not drafter.is_dir():
            raise LabError(f"{drafter} is not a folder", "Give the drafter's folder; fetch it from the hub first")
        parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="overlay-", dir=parent))
        for item in drafter.iterdir():
            if item.name != "config.json":
                # Links of links (the hub's cache) are followed once, so that the overlay survives a moved cache.
                (self.path / item.name).symlink_to(item.resolve())
        file = self.path / "config.json"
        file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if json.loads(file.read_text(encoding="utf-8")) != dict(config):
            raise LabError(f"{file} does not read back as written", "Check the disk, then launch again")

    def remove(self) -> None:
        """Delete the folder; the files its links name stay."""
        shutil.rmtree(self.path, ignore_errors=True)
