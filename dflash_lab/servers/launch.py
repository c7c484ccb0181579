"""A managed vLLM: started with an edited config, watched while it loads, stopped with all its processes.

The server runs under `supervisor.py`, which ends it when the lab closes or dies. The lab never imports vLLM; it
works with one installed in any environment, for GPU or CPU.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import requests

from dflash_lab.errors import LabError
from dflash_lab.paths import data_dir
from dflash_lab.servers.environment import VllmEnvironment
from dflash_lab.servers.log import Log
from dflash_lab.servers.overlay import Overlay
from dflash_lab.servers.speculation import Speculation

STOP_SECONDS = 10.0
READY_SECONDS = 600.0

Watch = Callable[[float, str], bool]
"""(seconds since the start, last line of the log) -> go on waiting? Called about twice a second."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to serve and how.

    `config` (None = the drafter's own file) is served from an overlay folder. `eager` skips compilation: starts
    sooner, runs slower. `cache_gib` is the key/value cache on a CPU. `exact` turns prefix caching off, so that a
    second run of a prompt sees what the first one saw. `flags` are passed on as they are; they win.
    """

    target: str
    speculation: Speculation = field(default_factory=lambda: Speculation("none"))
    config: Mapping[str, Any] | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 8
    exact: bool = True
    eager: bool = False
    cache_gib: int = 2
    port: int | None = None
    flags: tuple[str, ...] = ()

    def command(self, environment: VllmEnvironment, port: int, drafter: str | None = None) -> list[str]:
        """The words of the command; `drafter` replaces the speculation's own (an overlay)."""
        words = [*environment.serve(self.target), "--host", "127.0.0.1", "--port", str(port)]
        words += ["--dtype", self.dtype, "--max-num-seqs", str(self.max_num_seqs)]
        if self.max_model_len:
            words += ["--max-model-len", str(self.max_model_len)]
        if self.exact:
            words.append("--no-enable-prefix-caching")
        if self.eager:
            words.append("--enforce-eager")
        body = self.speculation.vllm()
        if body is not None:
            if drafter and "model" in body:
                body["model"] = drafter
            words += ["--speculative-config", json.dumps(body)]
            words += ["--per-request-spec-decode-metrics", "detailed"]
        return [*words, *self.flags]

    def variables(self, environment: VllmEnvironment) -> dict[str, str]:
        """Environment variables beside the user's own."""
        named = {"VLLM_NO_USAGE_STATS": "1"}
        if environment.cpu:
            # By default vLLM leaves one core unused, which on two cores is half of the machine.
            named |= {"VLLM_CPU_KVCACHE_SPACE": str(self.cache_gib), "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
        return named


class ManagedServer:
    """A started server; a context manager that stops it.

    `url` is its address, `log` its log, `command` the words it was started with. Threads may watch it while
    another one stops it.
    """

    def __init__(self, launch: Launch, environment: VllmEnvironment, folder: Path | None = None) -> None:
        self.launch, self.environment = launch, environment
        folder = folder or data_dir() / "servers"
        folder.mkdir(parents=True, exist_ok=True)
        drafter = launch.speculation.drafter
        self.overlay = None
        if launch.config is not None:
            if drafter is None:
                raise LabError("A config was given for a server without a drafter", "Choose the method dflash")
            self.overlay = Overlay(Path(drafter), launch.config, folder)
            drafter = str(self.overlay.path)
        self.port = launch.port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = launch.command(environment, self.port, drafter)
        self.log = Log(folder / f"vllm-{self.port}.log")
        self.started = time.monotonic()
        try:
            self._check_port()
            self._process = self._start()
        except BaseException:
            self._drop_overlay()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the server's process runs; it may still be loading."""
        return self._process.poll() is None

    @property
    def supervisor_pid(self) -> int:
        """The process that watches over the server."""
        return self._process.pid

    def wait_ready(self, deadline_s: float = READY_SECONDS, watch: Watch | None = None) -> Self:
        """Wait until the server answers its health check.

        Raises LabError with the reason from the log when it ends first, when the deadline passes, or when `watch`
        says stop; the server is stopped then.
        """
        while not self._healthy():
            seconds = time.monotonic() - self.started
            if not self.alive:
                self.stop()
                raise self.log.failure()
            if seconds > deadline_s:
                self.stop()
                raise LabError(
                    f"The server was not ready after {deadline_s:.0f} s",
                    f"Read {self.log.path}, or wait longer: the first start compiles",
                )
            last = self.log.tail(1)
            if watch and not watch(seconds, last[0] if last else "starting"):
                self.stop()
                raise LabError("The launch was stopped", "Launch again")
            time.sleep(0.5)
        return self

    def stop(self) -> None:
        """End the server and everything it started; returns when it is gone. Calling again does nothing."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS + 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        self._drop_overlay()

    def shell(self) -> str:
        """The command to copy, variables included."""
        variables = self.launch.variables(self.environment)
        return " ".join([*(f"{k}={v}" for k, v in variables.items()), shlex.join(self.command)])

    def _start(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("supervisor.py")
        variables = os.environ | self.launch.variables(self.environment)
        # The lab's own environment must not leak into vLLM's.
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            variables.pop(name, None)
        with self.log.path.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", str(script), str(STOP_SECONDS), *self.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )

    def _healthy(self) -> bool:
        # Only a server that still runs is ours: another program may sit on the port of one that ended.
        try:
            return requests.get(f"{self.url}/health", timeout=2).status_code == 200 and self.alive
        except requests.RequestException:
            return False

    def _check_port(self) -> None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                raise LabError(
                    f"Port {self.port} is taken by another program", "Choose another, or none for a free one"
                )

    def _drop_overlay(self) -> None:
        if self.overlay:
            self.overlay.remove()


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
