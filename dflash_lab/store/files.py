"""One experiment as one file: ``NAME.dflash``, the packed JSON of the database, and nothing that could be run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dflash_lab.errors import LabError
from dflash_lab.jobs import new_id
from dflash_lab.store.database import Store
from dflash_lab.store.experiment import LARGEST, Experiment, pack, unpack

SUFFIX = ".dflash"


def file_name(experiment: Experiment, suffix: str = SUFFIX) -> str:
    """A name for a file of the experiment: its title's letters and digits, whatever else it holds."""
    words = "-".join(re.findall(r"[a-z0-9]+", experiment.title.lower()))[:60].strip("-")
    return f"{words or 'experiment'}{suffix}"


def write_file(experiment: Experiment, path: Path) -> Path:
    """Write the experiment to ``path`` and read it back. Raises LabError where that cannot be done."""
    try:
        path.write_bytes(pack(experiment))
        if unpack(path.read_bytes()) != experiment:
            raise LabError(f"{path} does not hold what was written", "Write it to another disk")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}", "Give a file in a folder that exists") from error
    return path


def read_file(path: Path) -> Experiment:
    """The experiment in a file. Raises LabError for a file that is missing or anything else."""
    try:
        with path.open("rb") as stream:
            return unpack(stream.read(LARGEST))
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}", "Check the path") from error


def take_in(store: Store, experiment: Experiment) -> Experiment:
    """Put an imported experiment into the notebook, kept; under a new id when another one has its own already."""
    experiment = replace(experiment, kept=True)
    try:
        there = store.get(experiment.id)
    except LabError:
        there = None
    if there is not None and replace(there, kept=True) != experiment:
        experiment = replace(experiment, id=new_id())
    store.put(experiment)
    return experiment
