"""Watch a cluster for executors: without any, Spark would wait forever."""

from __future__ import annotations

import time
from typing import Any

from binlogtool.errors import InputOutputError

WAITING = "waiting for executors"

_LOOK_S = 1.0
_STILL_S = 2.0
"""Seconds without a new executor after which all are assumed to be registered."""
_COMING_S = 30.0
"""How long to wait for the configured number of executors, as Spark itself does."""


class Executors:
    """Check regularly whether a Spark context has executors.

    Args:
        context: the SparkContext.
        patience: seconds without any executor before giving up.
        promised: number of executors that the settings configure; None = it depends on the cluster.
    """

    def __init__(self, context: Any, patience: float, promised: int | None = None) -> None:
        self._context = context
        self._patience = patience
        self._promised = promised
        self._seen = self._looked = time.monotonic()
        self._most = promised or 0
        self._waiting = self._settled = False

    def begin(self) -> None:
        """Restart the timeout."""
        self._seen = self._looked = time.monotonic()

    @property
    def waiting(self) -> str:
        """Progress text while waiting for executors."""
        return f"{WAITING}: 0 of {self._most}" if self._most else f"{WAITING}: none yet"

    def missing(self) -> bool:
        """Return True while there is no executor.

        Raises:
            InputOutputError: there was none for as long as the timeout.
        """
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._waiting = not self._count()
            if not self._waiting:
                self._seen = now
            elif now - self._seen > self._patience:
                raise InputOutputError(
                    f"no executor for {self._patience:g} seconds: the cluster has none free, or lost them all"
                    " (--wait-executors SECONDS waits longer)"
                )
        return self._waiting

    def settle(self) -> None:
        """Wait until all expected executors have registered, so that a job gets enough tasks. Only waits once per
        session.
        """
        first = last = None
        count, end = 0, time.monotonic() + self._patience
        while not self._settled and (now := time.monotonic()) < end:
            if (found := self._count()) != count:
                count, last = found, now
                first = first or now
            still = last is not None and now - last > (_STILL_S if self._promised is None else _COMING_S)
            late = first is not None and now - first > _COMING_S
            self._settled = bool(count) and (count == self._promised or still or late)
            time.sleep(_LOOK_S / 4)
        self._settled = True

    def _count(self) -> int:
        """Return the number of registered executors; Spark's list also contains the driver."""
        found = int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        self._most = max(self._most, found)
        return found


def promised(setting: Any) -> int | None:
    """Return how many executors the settings configure; None if they do not say. setting: returns a setting or None."""
    if setting("spark.dynamicAllocation.enabled") == "true":
        return None
    for name in ("spark.executor.instances",):
        if (value := setting(name)) is not None and value.isdigit():
            return int(value)
    cores, most = setting("spark.executor.cores"), setting("spark.cores.max")
    return int(most) // int(cores) if cores and most and cores.isdigit() and most.isdigit() and cores != "0" else None
