"""What the worker's tasks leave in the notebook, on the real demo pair."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from dflash_lab.config_tasks import JudgeTask, PromptSet
from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.pairs import get_pair
from dflash_lab.prompts import load_prompts
from dflash_lab.store import Store
from dflash_lab.store.collect import as_sweep
from dflash_lab.tasks import RunTask, SweepTask

PAIR = "smollm2-demo"


@pytest.fixture
def do(demo_pair):
    """Call a task as the worker would, with the pair already in the slot; returns the job's id and the result."""
    slot = ModelSlot()
    slot.get(get_pair(PAIR).model_dump_json(), lambda: demo_pair)

    def call(task):
        job = Job(task, "a test", "", "")
        return job.id, task(job, slot)

    return call


def test_a_run_is_remembered_with_what_it_takes_to_make_it_again(do, demo_pair):
    name, run = do(RunTask(PAIR, "Name two rivers.", 3, 10))
    made = Store().get(name)
    assert made.figures.traces == (run.speculative,) and made.named("target alone").traces == (run.plain,)
    assert not made.kept and made.wording == run.wording and made.extra["lossless"] == run.lossless.sentence()
    assert made.settings["prompt"] == "Name two rivers." and made.settings["k"] == 3
    assert made.config == demo_pair.raw_config and made.patch == []
    assert made.pair["drafter_revision"] == demo_pair.drafter_revision and len(made.pair["weights_sha256"]) == 16
    assert {"torch", "transformers", "commit", "device"} <= made.provenance.keys()


def test_a_what_if_has_every_config_and_its_difference_to_the_pairs_own(do, demo_pair):
    import json

    edited = {**demo_pair.raw_config, "dflash_config": {**demo_pair.raw_config["dflash_config"], "mask_token_id": 0}}
    configs = (("edited", json.dumps(edited)), ("on disk", json.dumps(demo_pair.raw_config)))
    name, judged = do(JudgeTask(PAIR, configs, 3, PromptSet(load_prompts()[:2], 16)))
    made = Store().get(name)
    assert [s.name for s in made.series] == ["edited", "on disk"] and made.series[1].config == demo_pair.raw_config
    assert made.series[0].traces == judged.effects["edited"].traces
    assert made.patch == [{"op": "replace", "path": "/dflash_config/mask_token_id", "value": 0}]
    assert "mask_token_id" in made.title and "against on disk" in made.headline


def test_a_sweep_is_taken_apart_and_put_together_again(do):
    name, found = do(SweepTask(PAIR, load_prompts()[:2], (1, 3), 1, 10))
    made = Store().get(name)
    again = as_sweep(made)
    assert again.frame().equals(found.frame()) and again.best() == found.best()
    assert [s.name for s in made.series] == ["the target alone", "K = 1", "K = 3"] and made.headline


KILLED = """
from dflash_lab.jobs import Worker
from dflash_lab.prompts import load_prompts
from dflash_lab.tasks import SweepTask
worker = Worker()
job = worker.submit(SweepTask("smollm2-demo", load_prompts(), (1, 2, 3), 9, 8), title="long")
print(job.id, flush=True)
import time
while job.snapshot.active:
    print(len(job.snapshot.partial.measurements) if job.snapshot.partial else 0, flush=True)
    time.sleep(0.05)
"""


def test_a_sweep_that_is_killed_keeps_every_run_it_had_finished(demo_target_dir):
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=os.environ)
    name, done = process.stdout.readline().strip(), 0
    deadline = time.monotonic() + 300
    while done < 3 and time.monotonic() < deadline:
        done = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert done >= 3
    assert len(as_sweep(Store().get(name)).measurements) >= done
