"""Stopwatch for device work that does not stall the device.

On CUDA the marks are events, read once the round has synchronised anyway; elsewhere they are wall-clock readings
(MPS has no such events: its draft time is the time to queue the work, its verify time includes the wait).
"""

from __future__ import annotations

import time
from typing import Any

import torch


class Clock:
    """``mark()`` now, ``between(a, b)`` in seconds after the work is known to be finished."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def mark(self) -> Any:
        """A point in the device's queue (CUDA) or in time."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        """Seconds from ``start`` to ``end``."""
        return start.elapsed_time(end) / 1e3 if self._cuda else end - start
