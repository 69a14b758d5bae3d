"""How far reading is, and what it leaves aside, for whoever shows it: told in one place, for all commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from binlogtool.log.left import Left


class Watcher(Protocol):
    """Who is told; calls come from the work and must be short."""

    def begins(self, total: int) -> None:
        """A pass over the files of a log begins; total: their bytes, 0 = not known."""

    def moved(self, file: str, end: int, read: int) -> None:
        """`read` more bytes of a file, up to the offset `end`, were read."""

    def left(self, path: str, files: Sequence[Left]) -> None:
        """These files of a directory take no part in its logs."""

    def noted(self, text: str) -> None:
        """Something that befell the work, and changes nothing of its result."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """What is read inside of this (in this thread) is told to the watcher."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def begins(total: int) -> None:
    """See `Watcher`."""
    if (watcher := _watcher.get()) is not None:
        watcher.begins(total)


def moved(file: str, end: int, read: int) -> None:
    """See `Watcher`."""
    if (watcher := _watcher.get()) is not None:
        watcher.moved(file, end, read)


def left(path: str, files: Sequence[Left]) -> None:
    """See `Watcher`."""
    if (watcher := _watcher.get()) is not None:
        watcher.left(path, files)


def noted(text: str) -> None:
    """See `Watcher`; one that knows nothing of it is not told."""
    if (tell := getattr(_watcher.get(), "noted", None)) is not None:
        tell(text)
