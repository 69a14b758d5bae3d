"""Is anybody there who works? A cluster that has no executors (left) lets Spark wait without end."""

from __future__ import annotations

import time
from typing import Any

from binlogtool.errors import InputOutputError

_LOOK_S = 1.0


class Executors:
    """Looks at the executors of a Spark context now and then. patience: seconds without any until it gives up."""

    def __init__(self, context: Any, patience: float) -> None:
        self._context = context
        self._patience = patience
        self._seen = self._looked = time.monotonic()
        self._waiting = False

    def missing(self) -> bool:
        """Is there none? True again at each look until one comes.

        Raises:
            InputOutputError: there was none for as long as one is waited for.
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

    def _count(self) -> int:
        """How many have registered with the driver, which is in Spark's own list as well."""
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1
