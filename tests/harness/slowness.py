"""Measure how slow this machine is at the moment, and scale the time limits of tests by it."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import NamedTuple

NOMINAL_S = 0.10
"""Time of the measured loop on an idle machine of the kind that the limits are for."""


class Slowness(NamedTuple):
    """Return by which factor a loop is slower than on an idle machine, in CPU time and by the clock; at least 1."""

    cpu: float
    clock: float


def slowness() -> float:
    """Return how much more CPU time this machine needs at the moment than an idle one, at least 1: cores are shared."""
    return _measure(int(time.monotonic()) // 10).cpu


@cache
def _measure(interval: int) -> Slowness:
    """Measure once in each interval of ten seconds."""
    clock, cpu = time.monotonic(), time.process_time()
    for _ in range(3):
        sum(number * number for number in range(500_000))
    clock, cpu = time.monotonic() - clock, time.process_time() - cpu
    return Slowness(max(1.0, cpu / NOMINAL_S), max(1.0, clock / NOMINAL_S))


def scale_limit(seconds: float) -> float:
    """Return the limit, by the clock, of what may take this long on an idle machine.

    It grows by what is larger: the number of processes that waited for each core in the last minute, or how much
    longer a loop takes now. Five seconds are added for what neither shows: a disk that is slow for a moment.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(waiting, _measure(int(time.monotonic()) // 10).clock) + 5
