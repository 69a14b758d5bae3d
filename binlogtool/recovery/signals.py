"""Defer signals such as Ctrl-C while a repair is between two states."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_DEFERRED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGPROF)


class DeferredSignals:
    """A context manager: signals that arrive inside take effect on exit. Only the main thread gets signals."""

    def __init__(self) -> None:
        self._old_handlers: dict[int, Any] = {}
        self._received: list[int] = []

    def __enter__(self) -> DeferredSignals:
        if threading.current_thread() is threading.main_thread():
            self._old_handlers = {number: signal.signal(number, self._record_signal) for number in _DEFERRED_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(self._received):
            signal.raise_signal(number)

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
