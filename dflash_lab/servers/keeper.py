"""The one managed server of this process: started, watched and stopped from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dflash_lab.access import access
from dflash_lab.servers.attach import Client
from dflash_lab.servers.environment import VllmEnvironment
from dflash_lab.servers.launch import Launch, ManagedServer, Watch
from dflash_lab.servers.speculation import Speculation
from dflash_lab.servers.sweeps import Serve
from dflash_lab.servers.vllm import VllmServer


class Keeper:
    """Holds at most one server; starting another stops the one before, for both would share the device's memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ManagedServer | None = None

    @property
    def server(self) -> ManagedServer | None:
        """The server started last, loading, running or dead; None after `stop`."""
        return self._server

    def start(self, launch: Launch, environment: VllmEnvironment, watch: Watch | None = None) -> ManagedServer:
        """Stop what runs, start `launch` and wait until it is ready.

        Raises LabError with the log's reason when it does not get ready, or `watch` says stop; its log stays. In a
        demonstration nothing is started.
        """
        access().refuse_writes()
        with self._lock:
            self._end()
            self._server = server = ManagedServer(launch, environment)
        return server.wait_ready(watch=watch)

    def stop(self) -> None:
        """End the server and everything it started."""
        with self._lock:
            self._end()

    def at(self, url: str) -> ManagedServer | None:
        """The server when it is the one at `url` and still runs."""
        server = self._server
        return server if server and server.url == url and server.alive else None

    def _end(self) -> None:
        if self._server:
            self._server.stop()
        self._server = None


def relaunching(keeper: Keeper, environment: VllmEnvironment, launch: Launch, watch: Watch | None = None) -> Serve:
    """For a sweep of K: `launch` started anew with so many drafted tokens (0: none), and stopped behind it."""

    @contextmanager
    def serve(k: int) -> Iterator[Client]:
        speculation = replace(launch.speculation, k=k) if k else Speculation("none")
        one = replace(launch, speculation=speculation, config=launch.config if k else None)
        try:
            yield VllmServer(keeper.start(one, environment, watch).url)
        finally:
            keeper.stop()

    return serve


def served_dtype(server: ManagedServer | None) -> str:
    """The dtype a managed server was told to run in, "" when it chose by itself or is not ours."""
    return server.launch.dtype if server and server.launch.dtype != "auto" else ""
