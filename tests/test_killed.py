"""A sweep in a process of its own that is killed in the middle: what it had measured is there, and can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lab.paths import SAMPLES, data_dir
from dflash_lab.store import Store
from dflash_lab.store.collect import as_sweep
from dflash_lab.sweep import load_sweep

WORK = """
from dflash_lab.jobs import Worker
from dflash_lab.prompts import load_prompts
from dflash_lab.tasks import SweepTask
import time
worker = Worker()
job = worker.submit(SweepTask("smollm2-demo", tuple(load_prompts()[:4]), (1, 3), 5, 8), title="sweep")
while True:
    print(job.id, job.snapshot.status, job.snapshot.done, flush=True)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_killed_sweep_keeps_every_run_that_it_had_finished(demo_target_dir: Path):
    process = subprocess.Popen([sys.executable, "-c", WORK], cwd=SAMPLES.parent, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    finished, name = 0, ""
    for line in process.stdout:
        name, status, done = line.split()
        assert status in ("queued", "running"), line
        finished = int(done)
        if finished >= 4 and (data_dir() / "sweeps" / f"{name}.json").exists():  # until then it counts what it loads
            break
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = load_sweep(name)
    assert len(kept.measurements) >= min(finished, kept.wanted - 1) and not kept.complete
    (entry,) = Store().entries(kind="sweep")
    stored = as_sweep(Store().get(entry.id))
    assert entry.id == name and len(kept.measurements) - len(stored.measurements) in (0, 1)
    assert stored.frame().shape[0] == 3
