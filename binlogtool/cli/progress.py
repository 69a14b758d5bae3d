"""Progress on standard error: a line on a terminal, plain lines, or JSON; SIGUSR1 prints one line at any time.

On a terminal the line is no wider than the terminal, and is erased before anything else is written there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from binlogtool.render.escape import escape

_SHORTEST = 12
"""Minimum columns for the name of the work; figures are dropped first."""


class Progress:
    """Progress of a command: reading is reported through `log.watch`; commands with their own stages call `update`.

    done and total: bytes; total None = unknown. command: shown before the file. part: which of several paths.
    endless: the
    work has no end to estimate.
    """

    def __init__(self, mode: str = "never", command: str = "") -> None:
        self._mode = mode
        self._started = self._shown = self._begun = time.monotonic()
        self._standing = self._staged = False
        self._ends: dict[str, int] = {}
        self._read = self._worked = self._from = 0
        self.command = command
        self.part = ""
        self.endless = False
        self.what = "starting"
        self.done = 0
        self.total: int | None = None
        self.records = 0
        self.aside: dict[str, tuple[Any, ...]] = {}
        """By directory: files that are not logs (`log.left.Left`)."""
        self.notes: list[str] = []
        """Messages about the work on a cluster."""

    def hush(self) -> None:
        """Show no line on a terminal from now on, where it would mix with data."""
        self.clear()
        if self._mode == "auto":
            self._mode = "never"

    def clear(self) -> None:
        """Erase the line on the terminal; the next step writes it again."""
        if self._standing:
            _put("\r\x1b[K")
            self._standing = False

    def listen(self) -> None:
        """Print one line whenever SIGUSR1 is received."""
        signal.signal(signal.SIGUSR1, self._asked)

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        self.clear()
        _put(f"{self._line()}\n")

    def begins(self, total: int) -> None:
        """Start a pass over the files of a log (see `log.watch`)."""
        if not self._staged:
            self._ends.clear()
            self.done, self._read, self._worked, self._begun = 0, 0, 0, time.monotonic()
            self.total = None if self.endless else total or None

    def moved(self, file: str, end: int, read: int) -> None:
        """Count bytes that were read (see `log.watch`)."""
        if not self._staged:
            self._worked, self._read = self._read, self._read + read  # the new bytes are processed only from now on
            self.done += end - self._ends.get(file, 0)
            self._ends[file] = end
            self.what = f"{self.command} {file}{self.part}"
            self._show()

    def left(self, path: str, files: Sequence[Any]) -> None:
        """Keep the files of a directory that are not logs (see `log.watch`)."""
        if files:
            self.aside[path] = tuple(files)

    def noted(self, text: str) -> None:
        """Keep a message about the work (see `log.watch`)."""
        self.notes.append(text)

    def update(self, what: str, done: int, *, total: int | None = None, records: int = 0) -> None:
        """Show the progress of a stage; from now on reading by itself is not shown."""
        if what != self.what or not self._staged:
            self._begun, self._from = time.monotonic(), done
        self._staged = True
        self.what, self.done, self.total, self.records, self._worked = what, done, total, records, done - self._from
        self._show()

    def _show(self) -> None:
        """Show the progress, at most five times a second (plain and JSON: once in two seconds)."""
        now = time.monotonic()
        if self._mode == "never" or now - self._shown < (0.2 if self._mode == "auto" else 2.0):
            return
        self._shown = now
        if self._mode == "json":
            import json

            _put(f"{json.dumps(self._values())}\n")
        elif self._mode == "plain":
            _put(f"{self._line()}\n")
        elif sys.stderr is not None and sys.stderr.isatty():
            _put(f"\r\x1b[K{self._line(_columns() - 1)}")
            self._standing = True

    def end(self) -> None:
        """Clear the line on a terminal."""
        self.clear()

    def _line(self, width: int | None = None) -> str:
        """Return one line. width: if too narrow, drop the program's name, then the least important figures, then
        shorten.
        """
        what, figures = escape(self.what), self._figures()
        line = f"binlogtool: {what}: {', '.join(figures)}"
        if width is None or _cells(line) <= width:
            return line
        while len(figures) > 1 and _cells(", ".join(figures)) + 2 + _SHORTEST > width:
            figures.pop(0 if len(figures) > 2 else 1)
        room = width - _cells(", ".join(figures)) - 2
        return _last_cells(f"{_tail(what, room)}: {', '.join(figures)}", width)

    def _figures(self) -> list[str]:
        """Return the figures, the least important first."""
        from binlogtool.report.words import size

        done, left, rate = size(self.done), self._left(), self._rate()
        of = f"{done} of {size(self.total)}" if self.total else done
        figures = [f"{self.records:,} records"] if self.records or not self.total else []
        figures.append(of)
        if rate:
            figures.append(f"{size(int(rate))}/s")
        if self.total:
            figures.append(f"{100 * self.done / self.total:.0f} %")
        return [*figures, f"{_span(left)} left"] if left is not None else figures

    def _rate(self) -> float:
        """Return bytes per second in this stage."""
        return self._worked / max(0.001, time.monotonic() - self._begun)

    def _left(self) -> float | None:
        """Return the estimated remaining seconds of this stage; None if unknown."""
        if not self.total or not self._worked:
            return None
        return max(0, self.total - self.done) / self._rate()

    def _values(self) -> dict[str, object]:
        seconds = round(time.monotonic() - self._started, 3)
        figures = {"done": self.done, "total": self.total, "records": self.records, "seconds": seconds}
        left = self._left()
        more = {} if left is None else {"left": round(left, 3), "rate": round(self._rate())}
        return {"schema": "binlogtool/progress/1", "what": self.what, **figures, **more}


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _cells(text: str) -> int:
    from binlogtool.render.screen import cells

    return cells(text)


def _tail(text: str, room: int) -> str:
    """Return the end of a text that fits into `room` columns: for a path, the file name."""
    if _cells(text) <= room:
        return text
    while text and _cells(text) > room - 2:
        text = text[1:]
    return f"..{text}"


def _last_cells(text: str, width: int) -> str:
    while _cells(text) > width:
        text = text[:-1]
    return text


def _put(text: str) -> None:
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            pass  # progress is optional
