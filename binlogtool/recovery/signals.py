"""Defer signals such as Ctrl-C while a repair is between two states."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_WAITING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGPROF)


class Deferred:
    """A context manager: signals that arrive inside take effect on exit. Only the main thread gets signals."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> Deferred:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _WAITING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(self._came):
            signal.raise_signal(number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
