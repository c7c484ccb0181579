"""One worker thread owns the models; everybody else submits work, reads snapshots and cancels.

Knows no Streamlit and no model: the work is a callable that is given its Job and the ModelSlot. Pages never
touch what the thread is changing; they read a Snapshot, which is immutable and swapped whole.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from dflash_lab.errors import LabError

log = logging.getLogger(__name__)

Status = Literal["queued", "running", "done", "cancelled", "failed"]
T = TypeVar("T")

OUT_OF_MEMORY = "There is not enough memory for this run; the models were released."
OUT_OF_MEMORY_ADVICE = (
    "Ask for fewer new tokens or a shorter prompt, take a smaller pair or dtype, or close what else is "
    "using the device."
)
UNEXPECTED_ADVICE = "The lab is still up and other runs are not affected. The server's log has the details."


class Cancelled(Exception):
    """Raised inside a job's work by ``Job.checkpoint`` once somebody cancelled it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a page may know of a job at one moment.

    ``partial`` is the latest immutable intermediate result; ``result`` is what the work returned, also when it
    was cancelled and handed back what it had. ``error`` is a sentence for the user and ``advice`` what to do
    about it. Times are seconds of the epoch.
    """

    id: str
    title: str
    owner: str
    kind: str = ""
    who: str = ""
    status: Status = "queued"
    done: int = 0
    total: int = 0
    text: str = ""
    partial: Any = None
    result: Any = None
    error: str = ""
    advice: str = ""
    created: float = 0.0
    started: float | None = None
    ended: float | None = None

    @property
    def active(self) -> bool:
        """Still in the queue or running."""
        return self.status in ("queued", "running")

    @property
    def fraction(self) -> float:
        """Progress from 0 to 1; 0 while the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else 0.0


class Job:
    """One piece of work in the queue, as the work itself sees it."""

    def __init__(self, work: Work, title: str, owner: str, kind: str, who: str = "") -> None:
        self._work: Work | None = work
        self._cancel = threading.Event()
        self._lock = threading.Lock()
        self._snapshot = Snapshot(new_id(), title, owner, kind, who, created=time.time())

    @property
    def id(self) -> str:
        """Unique name; sorts by time of submission."""
        return self._snapshot.id

    @property
    def snapshot(self) -> Snapshot:
        """The job as it is now."""
        return self._snapshot

    @property
    def cancelled(self) -> bool:
        """True once somebody asked for the work to stop."""
        return self._cancel.is_set()

    def report(self, done: int, total: int, text: str = "", partial: Any = None) -> bool:
        """Publish progress, and ``partial`` unless None; returns False when the work should stop."""
        self._update(done=done, total=total, text=text, **({} if partial is None else {"partial": partial}))
        return not self.cancelled

    def checkpoint(self, done: int, total: int, text: str = "") -> None:
        """``report`` for code that cannot be told to stop by a return value.

        Raises Cancelled.
        """
        if not self.report(done, total, text):
            raise Cancelled

    def _update(self, **changes: Any) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)

    def _end(self, status: Status, **changes: Any) -> None:
        self._work = None  # the closure may hold inputs that nobody needs any more
        self._update(status=status, ended=time.time(), **changes)


Work = Callable[[Job, "ModelSlot"], Any]


class ModelSlot:
    """Room for one loaded model (or pair): the old one is let go of before the new one is loaded."""

    def __init__(self) -> None:
        self.key: Hashable | None = None
        self._model: Any = None
        self._beside: tuple[Hashable, Any] | None = None

    def get(self, key: Hashable, load: Callable[[], T]) -> T:
        """The model named ``key``, loaded only when it is not the one in the slot."""
        if key != self.key:
            self.free()
            self._model, self.key = load(), key
        return self._model

    def beside(self, key: Hashable, make: Callable[[], T]) -> T:
        """One thing made from the model (recordings, say), kept until another is asked for or the model goes."""
        if self._beside is None or self._beside[0] != key:
            self._beside = None
            made = make()
            if made is None:  # stopped half-way: nothing to keep
                return made
            self._beside = key, made
        return self._beside[1]

    def free(self) -> None:
        """Drop the model, what was made from it, and give their memory back to the device."""
        self.key = self._model = self._beside = None
        gc.collect()
        torch = sys.modules.get("torch")  # not imported yet: nothing of it to empty
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()


class Worker:
    """A queue and the one thread that works it off, oldest first.

    Finished jobs stay readable for ``ttl_s`` seconds and at most ``keep`` of them. An exception ends its job,
    never the thread.
    """

    def __init__(
        self,
        *,
        keep: int = 40,
        ttl_s: float = 3600.0,
        per_owner: int = 4,
        admit: Callable[[Work], None] = lambda work: None,
    ) -> None:
        """``admit`` is asked before a piece of work is queued and raises LabError for what may not run here."""
        self._keep, self._ttl_s, self._per_owner, self._admit = keep, ttl_s, per_owner, admit
        self._ready = threading.Condition()
        self._queue: deque[Job] = deque()
        self._jobs: dict[str, Job] = {}
        self._running: Job | None = None
        self._closed = False
        self._slot = ModelSlot()
        self._thread = threading.Thread(target=self._loop, name="lab-worker", daemon=True)
        self._thread.start()

    def submit(self, work: Work, *, title: str, owner: str = "", kind: str = "", who: str = "") -> Job:
        """Put ``work`` at the end of the queue; ``kind`` says what its result will be, for lists of jobs.

        ``who`` is the visitor's name as others read it in the queue. Raises LabError when ``owner`` already has
        ``per_owner`` jobs waiting or running, or the work is not admitted.
        """
        self._admit(work)
        with self._ready:
            self._forget_old()
            active = sum(j.snapshot.active and j.snapshot.owner == owner for j in self._jobs.values())
            if active >= self._per_owner:
                raise LabError(
                    f"You already have {active} jobs waiting or running",
                    f"Cancel one or wait: the limit is {self._per_owner} a visitor",
                )
            job = Job(work, title, owner, kind, who)
            self._jobs[job.id] = job
            self._queue.append(job)
            self._ready.notify()
        return job

    def find(self, job_id: str) -> Snapshot | None:
        """The job by that id, or None when it was never here or has been forgotten."""
        job = self._jobs.get(job_id)
        return job.snapshot if job else None

    def place(self, job_id: str) -> int:
        """Jobs ahead of this one, the running one included; 0 when it runs or is over."""
        with self._ready:
            for ahead, job in enumerate(self._queue):
                if job.id == job_id:
                    return ahead + (self._running is not None)
        return 0

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Every job that is still remembered, oldest first."""
        with self._ready:
            return tuple(job.snapshot for job in self._jobs.values())

    def queue(self) -> tuple[Snapshot, ...]:
        """The running job and those that wait, in the order in which they will run."""
        with self._ready:
            running = () if self._running is None else (self._running,)
            return tuple(job.snapshot for job in (*running, *self._queue))

    def cancel(self, job_id: str) -> None:
        """End a queued job at once and a running one at its next report; anything else is left alone."""
        with self._ready:
            job = self._jobs.get(job_id)
            if job is None:
                return
            job._cancel.set()
            if job in self._queue:
                self._queue.remove(job)
                job._end("cancelled", text="cancelled before it started")

    def close(self, timeout: float = 10.0) -> None:
        """Cancel everything and let the thread end; for tests and shutdown."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        for snapshot in self.snapshots():
            self.cancel(snapshot.id)
        self._thread.join(timeout)

    def _loop(self) -> None:
        while True:
            with self._ready:
                self._running = None
                while not self._queue and not self._closed:
                    self._ready.wait()
                if self._closed:
                    return
                job = self._running = self._queue.popleft()
                job._update(status="running", started=time.time())
            self._work(job)
            del job  # or the last result would stay alive until the next job

    def _work(self, job: Job) -> None:
        work = job._work
        assert work is not None
        try:
            result = work(job, self._slot)
        except Cancelled:
            job._end("cancelled")
        except LabError as error:
            job._end("failed", error=f"{error.what}.", advice=f"{error.fix}." if error.fix else "")
        except Exception as error:
            log.exception("job %s (%s) failed", job.id, job.snapshot.title)
            if is_out_of_memory(error):
                # The traceback holds the frames that hold the tensors.
                error.__traceback__ = None
                self._slot.free()
                job._end("failed", error=OUT_OF_MEMORY, advice=OUT_OF_MEMORY_ADVICE)
            else:
                job._end("failed", error=f"The run stopped: {_named(error)}.", advice=UNEXPECTED_ADVICE)
        else:
            job._end("cancelled" if job.cancelled else "done", result=result)

    def _forget_old(self) -> None:
        ended = [j.snapshot for j in self._jobs.values() if j.snapshot.ended is not None]
        horizon = time.time() - self._ttl_s
        surplus = len(ended) - self._keep
        for n, snapshot in enumerate(sorted(ended, key=lambda s: s.ended or 0.0)):
            if n < surplus or (snapshot.ended or 0.0) < horizon:
                del self._jobs[snapshot.id]


def new_id() -> str:
    """A name for a job or a run: time of day first, so that names sort by age."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


def is_out_of_memory(error: BaseException) -> bool:
    """Python's, torch's (by name: torch need not be imported) and the CPU allocator's plain RuntimeError."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or "can't allocate memory" in str(error)


def _named(error: Exception) -> str:
    """The exception in one line, without paths to source files or a traceback."""
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
