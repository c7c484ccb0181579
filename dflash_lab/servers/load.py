"""Many requests with a bounded number under way; what is finished stays, whatever happens to the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Answer, Ask
from dflash_lab.servers.metrics import Counters
from dflash_lab.trace import Summary, Trace, summarise

Watch = Callable[[Sequence[Answer], int], bool]
"""(answers so far, requests in all) -> go on? Called from the caller's thread after every answer."""

FAILURES_IN_A_ROW = 3


class Server(Protocol):
    """What a load needs of a client."""

    engine: str

    def ask(self, ask: Ask) -> Answer: ...

    def counters(self) -> Counters | None: ...


@dataclass(frozen=True, slots=True)
class Load:
    """What came of some requests.

    `answers` are in the order asked, the failed ones missing; `asked` counts all of them; `failure` is the first
    failure (None when all went well); `counters` the server's counters added in between, None where it has none or
    restarted. `wall_s` is the time from the first request to the last answer.
    """

    answers: tuple[Answer, ...]
    asked: int
    concurrency: int
    wall_s: float
    failure: LabError | None = None
    counters: Counters | None = None
    stopped: bool = False

    @property
    def tokens_per_second(self) -> float | None:
        """All requests together: tokens / wall time, prefill included."""
        tokens = sum(a.completion_tokens for a in self.answers)
        return tokens / self.wall_s if tokens and self.wall_s else None

    @property
    def tokens_per_second_each(self) -> float | None:
        """Mean over requests of a request's own decode throughput."""
        rates = [rate for a in self.answers if (rate := a.tokens_per_second)]
        return sum(rates) / len(rates) if rates else None

    def traces(self, k: int, source: str) -> list[Trace]:
        """The rounds of every answer whose rounds can be told."""
        return [trace for a in self.answers if (trace := a.trace(k, source))]

    def summary(self, k: int, source: str) -> Summary | None:
        """The best there is: exact rounds if every answer has them, else the counters' difference, else None."""
        traces = self.traces(k, source)
        if traces and len(traces) == len(self.answers):
            return summarise(traces)
        return self.counters.summary(source) if self.counters and self.counters.engines else None

    def sentence(self) -> str:
        """What went wrong in one line; empty when nothing did."""
        if self.failure is None:
            return ""
        return f"{len(self.answers)} of {self.asked} requests finished. {self.failure}"


def run_load(server: Server, asks: Sequence[Ask], concurrency: int = 1, watch: Watch | None = None) -> Load:
    """Send `asks`, at most `concurrency` at once, and collect the answers.

    Never raises for a server's failure: it is in the result. After three failures in a row nothing more is sent.

    Raises LabError for a concurrency below 1.
    """
    if concurrency < 1:
        raise LabError(f"{concurrency} requests at once", "Give at least 1")
    before = server.counters()
    answers: dict[int, Answer] = {}
    failure: LabError | None = None
    stop = threading.Event()
    started = time.monotonic()
    with ThreadPoolExecutor(concurrency, thread_name_prefix="ask") as pool:
        pending: dict[Future[Answer], int] = {}
        queue = list(enumerate(asks))[::-1]
        in_a_row = 0
        while pending or (queue and not stop.is_set()):
            while queue and len(pending) < concurrency and not stop.is_set():
                index, ask = queue.pop()
                pending[pool.submit(server.ask, ask)] = index
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                index = pending.pop(future)
                try:
                    answers[index] = future.result()
                    in_a_row = 0
                except LabError as error:
                    failure = failure or error
                    in_a_row += 1
                    if in_a_row >= FAILURES_IN_A_ROW:
                        stop.set()
            if watch and not watch([answers[i] for i in sorted(answers)], len(asks)):
                stop.set()
    wall = time.monotonic() - started
    after = server.counters()
    counted = after is not None and before is not None and not after.restarted_since(before)
    return Load(
        answers=tuple(answers[i] for i in sorted(answers)),
        asked=len(asks),
        concurrency=concurrency,
        wall_s=wall,
        failure=failure,
        counters=after.since(before) if after and before and counted else None,
        stopped=stop.is_set() and failure is None,
    )
