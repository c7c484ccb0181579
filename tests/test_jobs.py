"""The worker: one job at a time, a visible queue, cancel, and failures that leave it alive."""

from __future__ import annotations

import threading
import time
import weakref

import pytest

from dflash_lab.errors import LabError
from dflash_lab.jobs import OUT_OF_MEMORY, Cancelled, ModelSlot, Worker


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.close()


def finished(worker, job, timeout=5.0):
    deadline = time.monotonic() + timeout
    while job.snapshot.active and time.monotonic() < deadline:
        time.sleep(0.002)
    return worker.find(job.id)


class Steps:
    """Work that waits for the test before every step."""

    def __init__(self, total=5):
        self.go, self.total, self.started = threading.Semaphore(0), total, threading.Event()

    def __call__(self, job, slot):
        self.started.set()
        for n in range(self.total):
            self.go.acquire(timeout=5)
            if not job.report(n + 1, self.total, f"step {n + 1}", partial=tuple(range(n + 1))):
                return f"stopped after {n + 1}"
        return "whole"


def test_a_job_runs_and_leaves_its_result(worker):
    job = worker.submit(lambda job, slot: 42, title="answer", owner="a")
    snapshot = finished(worker, job)
    assert (snapshot.status, snapshot.result, snapshot.title) == ("done", 42, "answer")
    assert snapshot.started <= snapshot.ended


def test_progress_and_partial_results_are_visible_while_it_runs(worker):
    steps = Steps()
    job = worker.submit(steps, title="steps")
    steps.go.release(2)
    while job.snapshot.done < 2:
        time.sleep(0.002)
    assert (job.snapshot.fraction, job.snapshot.partial, job.snapshot.text) == (0.4, (0, 1), "step 2")
    steps.go.release(10)
    assert finished(worker, job).result == "whole"


def test_the_queue_is_first_come_first_served_and_shows_each_place(worker):
    steps, order = Steps(1), []
    running = worker.submit(steps, title="running")
    steps.started.wait(5)
    waiting = [worker.submit(lambda job, slot, n=n: order.append(n), title=f"w{n}") for n in range(3)]
    assert [worker.place(j.id) for j in (running, *waiting)] == [0, 1, 2, 3]
    steps.go.release(5)
    finished(worker, waiting[-1])
    assert order == [0, 1, 2] and worker.place(waiting[0].id) == 0


def test_a_queued_job_is_cancelled_at_once_and_never_runs(worker):
    steps, ran = Steps(1), []
    worker.submit(steps, title="running")
    steps.started.wait(5)
    queued = worker.submit(lambda job, slot: ran.append(1), title="queued")
    later = worker.submit(lambda job, slot: "later", title="later")
    worker.cancel(queued.id)
    assert queued.snapshot.status == "cancelled" and worker.place(later.id) == 1
    steps.go.release(5)
    assert finished(worker, later).result == "later" and ran == []


def test_a_running_job_stops_at_its_next_report_and_keeps_what_it_has(worker):
    steps = Steps(100)
    job = worker.submit(steps, title="long")
    steps.go.release(1)
    while job.snapshot.done < 1:
        time.sleep(0.002)
    worker.cancel(job.id)
    steps.go.release(1)
    snapshot = finished(worker, job)
    assert (snapshot.status, snapshot.result, snapshot.partial) == ("cancelled", "stopped after 2", (0, 1))


def test_a_checkpoint_raises_out_of_code_that_takes_no_answer(worker):
    entered, leave = threading.Event(), threading.Event()

    def work(job, slot):
        entered.set()
        leave.wait(5)
        with pytest.raises(Cancelled):
            job.checkpoint(1, 2, "loading")
        raise Cancelled

    job = worker.submit(work, title="load")
    entered.wait(5)
    worker.cancel(job.id)
    leave.set()
    assert finished(worker, job).status == "cancelled"


class OutOfMemoryError(RuntimeError):
    """Named like torch's, which tests of the worker need not import."""


@pytest.mark.parametrize(
    ("error", "sentence", "advice"),
    [
        (LabError("The prompt is empty", "Type one"), "The prompt is empty.", "Type one."),
        (MemoryError(), OUT_OF_MEMORY, "fewer new tokens"),
        (OutOfMemoryError("CUDA out of memory"), OUT_OF_MEMORY, "fewer new tokens"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 GB"), OUT_OF_MEMORY, "fewer"),
        (ValueError("odd\nTraceback"), "The run stopped: ValueError: odd.", "still up"),
    ],
)
def test_a_failure_becomes_a_sentence_with_advice_and_the_worker_lives_on(worker, error, sentence, advice):
    def work(job, slot):
        job.report(1, 3, partial="so far")
        raise error

    failed = finished(worker, worker.submit(work, title="bad"))
    assert (failed.status, failed.error, failed.partial) == ("failed", sentence, "so far")
    assert advice in failed.advice
    assert finished(worker, worker.submit(lambda job, slot: "fine", title="next")).result == "fine"


def test_running_out_of_memory_empties_the_model_slot(worker):
    def load_then_fail(job, slot):
        slot.get("big", object)
        raise MemoryError

    finished(worker, worker.submit(load_then_fail, title="big"))
    assert finished(worker, worker.submit(lambda job, slot: slot.key, title="look")).result is None


def test_the_slot_lets_go_of_the_old_model_before_it_loads_the_new_one():
    class Model:
        pass

    slot = ModelSlot()
    old = weakref.ref(slot.get("a", Model))
    assert slot.get("a", lambda: pytest.fail("loaded twice")) is old()

    def load():
        assert old() is None, "both models were in memory"
        return "new"

    assert slot.get("b", load) == "new" and slot.key == "b"


def test_a_load_that_fails_leaves_the_slot_empty():
    slot = ModelSlot()
    slot.get("a", object)
    with pytest.raises(ValueError):
        slot.get("b", lambda: (_ for _ in ()).throw(ValueError("no")))
    assert slot.key is None and slot.get("b", lambda: 1) == 1


def test_one_visitor_cannot_fill_the_queue():
    worker = Worker(per_owner=2)
    steps = Steps(1)
    for _ in range(2):
        worker.submit(steps, title="x", owner="greedy")
    with pytest.raises(LabError, match="already have 2 jobs"):
        worker.submit(steps, title="x", owner="greedy")
    worker.submit(steps, title="x", owner="other")
    steps.go.release(10)
    worker.close()


def test_finished_jobs_are_forgotten_by_number_and_by_age():
    worker = Worker(keep=2)
    jobs = [worker.submit(lambda job, slot: None, title=str(n), owner=str(n)) for n in range(4)]
    finished(worker, jobs[-1])
    worker.submit(lambda job, slot: None, title="last")
    assert [worker.find(j.id) is None for j in jobs] == [True, True, False, False]
    worker._ttl_s = -1
    finished(worker, worker.submit(lambda job, slot: None, title="old"))
    last = worker.submit(lambda job, slot: None, title="new")
    assert [s.title for s in worker.snapshots() if s.id != last.id] == []
    worker.close()
