"""What the Servers page asks the worker: launch a vLLM, send it prompts, sweep it, explain it.

Everything goes through the one queue, so that no measurement shares the machine with another. Nothing here imports
torch until the worker calls it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dflash_lab.jobs import Job, ModelSlot
from dflash_lab.pairs import get_pair
from dflash_lab.prompts import Prompt
from dflash_lab.servers.attach import Client, connect
from dflash_lab.servers.environment import VllmEnvironment
from dflash_lab.servers.keeper import Keeper, relaunching
from dflash_lab.servers.launch import Launch
from dflash_lab.servers.measure import Measured, asks_for, measure
from dflash_lab.servers.speculation import Method, Speculation
from dflash_lab.servers.sweeps import Point, concurrency_sweep, k_sweep
from dflash_lab.tasks import load_pair

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.servers.explain import Ranking

USUAL_START_S = 60.0
"""What a start takes on a CPU, for the progress bar; a first start that compiles takes longer."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What to launch for a pair; `config` is JSON text served in place of the drafter's own file, "" for that."""

    pair: str
    method: Method = "dflash"
    k: int = 5
    config: str = ""
    dtype: str = "auto"
    max_model_len: int = 2048
    eager: bool = True
    flags: tuple[str, ...] = ()

    def launch(self, job: Job | None = None) -> Launch:
        """The launch, files of the pair fetched where they are not here yet.

        Raises LabError when they cannot be had, or the method does not fit.
        """
        from dflash_lab import loading

        spec = get_pair(self.pair)

        def fetching(share: float, text: str) -> None:
            if job:
                job.checkpoint(0, 0, text)

        target, _ = loading.target_source(spec, fetching).folder(fetching)
        drafter, _ = loading.drafter_source(spec).folder(fetching)
        speculation = Speculation(self.method, self.k, str(drafter)) if self.k else Speculation("none")
        config = json.loads(self.config) if self.config and speculation.method == "dflash" else None
        return Launch(
            str(target),
            speculation,
            config,
            dtype=self.dtype,
            max_model_len=self.max_model_len or None,
            eager=self.eager,
            flags=self.flags,
        )


@dataclass(frozen=True, slots=True)
class Launched:
    """A managed server that got ready, `seconds` after its start."""

    url: str
    command: str
    serving: Serving
    seconds: float


@dataclass(frozen=True)
class LaunchTask:
    """Start the keeper's server; the result is a Launched."""

    serving: Serving
    keeper: Keeper
    environment: VllmEnvironment

    def __call__(self, job: Job, slot: ModelSlot) -> Launched:
        """Launch and wait. Raises LabError with the log's reason when it does not start."""
        launch = self.serving.launch(job)

        def watch(seconds: float, line: str) -> bool:
            done = min(99, round(100 * seconds / USUAL_START_S))
            return job.report(done, 100, f"Starting vLLM, {seconds:.0f} s: {line[-110:]}")

        server = self.keeper.start(launch, self.environment, watch)
        return Launched(server.url, server.shell(), self.serving, time.monotonic() - server.started)


@dataclass(frozen=True, slots=True)
class Request:
    """Which prompts to send and how; `k` is believed only where the server does not tell its own.

    `config` is the JSON text that is expected to run there, "" for the pair's own; `dtype` that of the local pair.
    With `replay` off no model is loaded here: prompts go as chat turns and nothing is expected.
    """

    url: str
    pair: str
    prompts: tuple[Prompt, ...]
    tokens: int = 64
    concurrency: int = 1
    k: int = 0
    config: str = ""
    dtype: str = ""
    replay: bool = True
    timeout_s: float = 300.0
    api_key: str = field(default="", repr=False)

    def client(self) -> Client:
        """A client for the server. Raises LabError when nothing answers."""
        return connect(self.url, self.api_key or None)

    def drafter_config(self) -> DrafterConfig | None:
        """The config to expect, None for the pair's own. Raises ConfigError for one that is none."""
        from dflash_lab.config.schema import DrafterConfig

        return DrafterConfig.from_json(json.loads(self.config)) if self.config else None


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """Send a prompt set and replay it; partial results and the result are Measured."""

    request: Request

    def __call__(self, job: Job, slot: ModelSlot) -> Measured:
        """Measure. Raises LabError when the server is not there or nothing finished."""
        r = self.request
        client = r.client()
        pair = load_pair(r.pair, job, slot, r.dtype) if r.replay else None
        return measure(
            client,
            r.prompts,
            r.tokens,
            r.concurrency,
            pair,
            r.drafter_config(),
            r.k,
            r.timeout_s,
            lambda share, text, so_far: job.report(round(1000 * share), 1000, text, so_far),
        )


@dataclass(frozen=True)
class ExplainTask:
    """Search the library of variants for the one that reproduces a measurement's rounds; the result is a Ranking."""

    request: Request
    found: Measured

    def __call__(self, job: Job, slot: ModelSlot) -> Ranking | None:
        """Explain. Raises LabError when the server gave no rounds that compare."""
        from dflash_lab.servers.measure import evidence_of, explain_measured, recordings_of

        r = self.request
        pair = load_pair(r.pair, job, slot, r.dtype)
        recordings = recordings_of(self.found, pair, r.tokens, lambda s, text: job.report(round(200 * s), 1000, text))
        if not recordings:
            return None
        return explain_measured(
            evidence_of(self.found, recordings),
            self.found,
            pair,
            r.drafter_config() or pair.config,
            lambda share, text: job.report(200 + round(800 * share), 1000, f"Trying: {text}"),
        )


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep over `what` ("concurrency" or "K"), as far as it came."""

    what: str
    points: tuple[Point, ...]
    url: str = ""


@dataclass(frozen=True, slots=True)
class ConcurrencyTask:
    """The request's prompts at several numbers of requests at once; results are Swept."""

    request: Request
    levels: tuple[int, ...]

    def __call__(self, job: Job, slot: ModelSlot) -> Swept:
        """Sweep. Raises LabError when the server is not there."""
        r = self.request
        client = r.client()
        pair = load_pair(r.pair, job, slot, r.dtype) if r.replay else None
        asks = asks_for(r.prompts, r.tokens, pair, r.timeout_s)

        def watch(share: float, text: str, points: tuple[Point, ...]) -> bool:
            return job.report(round(1000 * share), 1000, text, Swept("concurrency", points, r.url))

        return Swept("concurrency", concurrency_sweep(client, asks, self.levels, watch), r.url)


@dataclass(frozen=True)
class KSweepTask:
    """The same prompts on a server relaunched for every K, 0 being the target alone; results are Swept.

    The keeper's own server is stopped first, and none is left at the end.
    """

    serving: Serving
    keeper: Keeper
    environment: VllmEnvironment
    prompts: tuple[Prompt, ...]
    ks: tuple[int, ...]
    tokens: int = 64

    def __call__(self, job: Job, slot: ModelSlot) -> Swept:
        """Sweep. Raises LabError when the pair's files cannot be had."""
        launch = self.serving.launch(job)
        share = 0.0

        def starting(seconds: float, line: str) -> bool:
            return job.report(round(1000 * share), 1000, f"Starting vLLM, {seconds:.0f} s: {line[-110:]}")

        def watch(now: float, text: str, points: tuple[Point, ...]) -> bool:
            nonlocal share
            share = now
            return job.report(round(1000 * now), 1000, text, Swept("K", points))

        serve = relaunching(self.keeper, self.environment, launch, starting)
        return Swept("K", k_sweep(serve, asks_for(self.prompts, self.tokens, None), (0, *self.ks), watch))


def config_text(raw: Any) -> str:
    """A raw config as a task keeps it."""
    return json.dumps(raw, sort_keys=True)
