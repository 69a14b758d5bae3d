"""How slow this machine is just now."""

from __future__ import annotations

import os
import time
from functools import cache

NOMINAL = 0.10
"""CPU seconds of the loop of `slowness` on an idle machine of the kind that the budgets are for."""


def slowness() -> float:
    """How much more CPU time this machine needs at the moment than an idle one did, at least 1: cores are shared."""
    return _measure(int(time.monotonic()) // 10)


@cache
def _measure(interval: int) -> float:
    """interval: a number of these ten seconds; each is measured once."""
    began = time.process_time()
    for _ in range(3):
        sum(number * number for number in range(500_000))
    return max(1.0, (time.process_time() - began) / NOMINAL)


def stretch(seconds: float) -> float:
    """Return the limit, by the clock, of what takes this long where each process has a core of its own.

    As many times longer as processes have been waiting for each core in the last minute.
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
