"""Progress listener: how far reading is and which files are skipped, reported to one listener for all commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from binlogtool.log.left import Left


class Watcher(Protocol):
    """Receives progress. The calls are made during the work and must return quickly."""

    def begins(self, total: int) -> None:
        """Start a pass over the files of a log; total: their bytes, 0 = unknown."""

    def moved(self, file: str, end: int, read: int) -> None:
        """Advance by `read` bytes of a file, up to the offset `end`."""

    def left(self, path: str, files: Sequence[Left]) -> None:
        """Take note of the files of a directory that belong to none of its logs."""

    def noted(self, text: str) -> None:
        """Take note of an event that does not change the result."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Return a context manager; what is read inside it (in this thread) is reported to the listener."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def begins(total: int) -> None:
    """Report the start of a pass to the listener."""
    if (watcher := _watcher.get()) is not None:
        watcher.begins(total)


def moved(file: str, end: int, read: int) -> None:
    """Report bytes read to the listener."""
    if (watcher := _watcher.get()) is not None:
        watcher.moved(file, end, read)


def left(path: str, files: Sequence[Left]) -> None:
    """Report skipped files to the listener."""
    if (watcher := _watcher.get()) is not None:
        watcher.left(path, files)


def noted(text: str) -> None:
    """Report a note to the listener, if it accepts notes."""
    if (tell := getattr(_watcher.get(), "noted", None)) is not None:
        tell(text)
