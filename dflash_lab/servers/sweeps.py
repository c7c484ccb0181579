"""A server at several loads, and several servers: throughput and acceptance against concurrency and against K."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

import pandas as pd

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Answer, Ask
from dflash_lab.servers.attach import Client
from dflash_lab.servers.load import Load, run_load
from dflash_lab.servers.measure import drafted_per_round

Watch = Callable[[float, str, "tuple[Point, ...]"], bool]
"""(share done, what runs, points so far) -> go on?"""

Serve = Callable[[int], AbstractContextManager[Client]]
"""K -> a server that drafts so many tokens (0: none), up while the context lasts."""


@dataclass(frozen=True, slots=True)
class Point:
    """One load: `finished` of `asked` requests at most `concurrency` at once on a server that drafts `k`.

    `tok_s` is all requests' tokens over the wall time, prefill included; `tok_s_each` the mean of each request's own
    decode throughput; `acceptance_length` has the bonus included, None without rounds; `failure` is empty when all
    went well.
    """

    k: int
    concurrency: int
    asked: int
    finished: int
    tok_s: float | None
    tok_s_each: float | None
    acceptance_length: float | None
    failure: str = ""


def point(load: Load, k: int) -> Point:
    """The figures of a load."""
    summary = load.summary(k, "server") if k else None
    return Point(
        k=k,
        concurrency=load.concurrency,
        asked=load.asked,
        finished=len(load.answers),
        tok_s=load.tokens_per_second,
        tok_s_each=load.tokens_per_second_each,
        acceptance_length=summary.acceptance_length if summary else None,
        failure=load.sentence(),
    )


def concurrency_sweep(
    client: Client, asks: Sequence[Ask], levels: Iterable[int], watch: Watch | None = None
) -> tuple[Point, ...]:
    """The same requests at every number of requests at once, after one that is not counted.

    A level above the number of requests gets them several times over. Ends at the first level that failed; what
    finished stays.

    Raises LabError when the server does not answer at all, or there is nothing to do.
    """
    order = _checked(levels, asks)
    client.ask(asks[0])
    points: tuple[Point, ...] = ()
    for n, level in enumerate(order):
        some = list(asks) * math.ceil(level / len(asks))
        load = _watched(client, some, level, n / len(order), 1 / len(order), f"{level} at once", points, watch)
        points += (point(load, drafted_per_round(load)),)
        if load.failure or load.stopped:
            break
    return points


def k_sweep(serve: Serve, asks: Sequence[Ask], ks: Iterable[int], watch: Watch | None = None) -> tuple[Point, ...]:
    """The same requests, one at a time, on a server started anew for every K, after one that is not counted.

    A server that does not start, or dies, is a point with the reason; the sweep ends there.
    """
    order = _checked(ks, asks)
    points: tuple[Point, ...] = ()
    for n, k in enumerate(order):
        name = f"K = {k}" if k else "target alone"
        if watch and not watch(n / len(order), f"{name}: starting the server", points):
            break
        try:
            with serve(k) as client:
                client.ask(asks[0])
                start = (n + 0.5) / len(order)
                load = _watched(client, list(asks), 1, start, 0.5 / len(order), name, points, watch)
            points += (point(load, k),)
        except LabError as error:
            return (*points, Point(k, 1, len(asks), 0, None, None, None, str(error)))
        if load.failure or load.stopped:
            break
    return points


def frame(points: Sequence[Point]) -> pd.DataFrame:
    """A row a point."""
    return pd.DataFrame([asdict(p) for p in points], columns=list(Point.__slots__))


def _checked(values: Iterable[int], asks: Sequence[Ask]) -> list[int]:
    order = sorted(set(values))
    if not order or not asks:
        raise LabError("There is nothing to sweep", "Pick at least one prompt and one number")
    return order


def _watched(
    client: Client,
    asks: Sequence[Ask],
    concurrency: int,
    start: float,
    width: float,
    name: str,
    points: tuple[Point, ...],
    watch: Watch | None,
) -> Load:
    def look(answers: Sequence[Answer], asked: int) -> bool:
        done = len(answers)
        return watch is None or watch(start + width * done / asked, f"{name}: {done} of {asked} requests", points)

    return run_load(client, asks, concurrency, look)
