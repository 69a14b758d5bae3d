"""Watch a cluster for executors: without any, Spark would wait forever."""

from __future__ import annotations

import time
from typing import Any

from binlogtool.errors import InputOutputError

WAITING = "waiting for executors"

_CHECK_INTERVAL_S = 1.0
_STABLE_S = 2.0
"""Seconds without a new executor after which all are assumed to be registered."""
_REGISTRATION_TIMEOUT_S = 30.0
"""How long to wait for the configured number of executors, as Spark itself does."""


class ExecutorWatch:
    """Check regularly whether a Spark context has executors.

    Args:
        context: the SparkContext.
        timeout: seconds without any executor before giving up.
        expected: number of executors that the settings configure; None = it depends on the cluster.
    """

    def __init__(self, context: Any, timeout: float, expected: int | None = None) -> None:
        self._context = context
        self._timeout = timeout
        self._expected = expected
        self._last_seen = self._last_checked = time.monotonic()
        self._max_count = expected or 0
        self._waiting = self._settled = False

    def restart_timeout(self) -> None:
        """Restart the timeout."""
        self._last_seen = self._last_checked = time.monotonic()

    @property
    def waiting_text(self) -> str:
        """Progress text while waiting for executors."""
        return f"{WAITING}: 0 of {self._max_count}" if self._max_count else f"{WAITING}: none yet"

    def is_waiting(self) -> bool:
        """Return True while there is no executor.

        Raises:
            InputOutputError: there was none for as long as the timeout.
        """
        now = time.monotonic()
        if now - self._last_checked >= _CHECK_INTERVAL_S:
            self._last_checked = now
            self._waiting = not self._count_executors()
            if not self._waiting:
                self._last_seen = now
            elif now - self._last_seen > self._timeout:
                raise InputOutputError(
                    f"no executor for {self._timeout:g} seconds: the cluster has none free, or lost them all"
                    " (--wait-executors SECONDS waits longer)"
                )
        return self._waiting

    def wait_until_registered(self) -> None:
        """Wait until all expected executors have registered, so that a job gets enough tasks. Only waits once per
        session.
        """
        first_time = last_time = None
        count, end = 0, time.monotonic() + self._timeout
        while not self._settled and (now := time.monotonic()) < end:
            if (current := self._count_executors()) != count:
                count, last_time = current, now
                first_time = first_time or now
            is_stable = last_time is not None and now - last_time > (
                _STABLE_S if self._expected is None else _REGISTRATION_TIMEOUT_S
            )
            is_late = first_time is not None and now - first_time > _REGISTRATION_TIMEOUT_S
            self._settled = bool(count) and (count == self._expected or is_stable or is_late)
            time.sleep(_CHECK_INTERVAL_S / 4)
        self._settled = True

    def _count_executors(self) -> int:
        """Return the number of registered executors; Spark's list also contains the driver."""
        count = int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        self._max_count = max(self._max_count, count)
        return count


def configured_executors(get_setting: Any) -> int | None:
    """Return how many executors the settings configure; None if they do not say. get_setting: returns a setting
    or None.
    """
    if get_setting("spark.dynamicAllocation.enabled") == "true":
        return None
    for name in ("spark.executor.instances",):
        if (value := get_setting(name)) is not None and value.isdigit():
            return int(value)
    cores, max_cores = get_setting("spark.executor.cores"), get_setting("spark.cores.max")
    return (
        int(max_cores) // int(cores)
        if cores and max_cores and cores.isdigit() and max_cores.isdigit() and cores != "0"
        else None
    )
