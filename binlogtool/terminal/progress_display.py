"""Show progress on standard error: a line on a terminal, plain lines, or JSON; SIGUSR1 prints a line at any time.

On a terminal, the line is no wider than the terminal, and is erased before other output is written. While no
progress is reported, the elapsed time of the phase is shown again by a thread.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from binlogtool.terminal.escape_and_fold_text import escape

_MIN_NAME_COLUMNS = 12
"""Minimum columns for the name of the work; to keep them, figures are dropped."""
_MIN_REMAINING_SECONDS = 0.5
"""Shorter estimates are not shown: they would be "0 s left"."""
_EVENT_SECONDS = {"auto": 0.2, "plain": 2.0, "json": 2.0}
"""Shortest time between two displays of reported progress, by mode."""
_TICK_SECONDS = {"auto": 1.0, "plain": 10.0, "json": 10.0}
"""Longest time without a display, by mode."""


class ProgressDisplay:
    """Progress of a command: reading is reported through `core.notify_progress_listener`; stages by `update_stage`.

    done, total: bytes; total None = unknown. command: name shown before the file. part: which of several paths is read.
    endless: the work has no end to estimate.
    """

    def __init__(self, mode: str = "never", command: str = "") -> None:
        self._mode = mode
        self._started = self._last_shown = self._stage_start = time.monotonic()
        self._has_line = self._has_stages = False
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._may_tick = False
        """True if the thread may show the line; False while a prompt is on the screen."""
        self._file_ends: dict[str, int] = {}
        self._read_bytes = self._processed_bytes = self._stage_offset = 0
        self.command = command
        self.part = ""
        self.endless = False
        self.activity = "starting"
        self.done = 0
        self.total: int | None = None
        self.records = 0
        self.skipped_files: dict[str, tuple[Any, ...]] = {}
        """Directory -> its files that are not logs (`core.notify_progress_listener.SkippedFile`)."""
        self.work_messages: list[str] = []
        """Messages about the work on a cluster."""

    def start_ticking(self) -> None:
        """Show the elapsed time also while no progress is reported."""
        if self._mode in ("plain", "json") or (self._mode == "auto" and _is_terminal()):
            self._may_tick = True
            threading.Thread(
                target=self._show_if_interval_passed, args=(_TICK_SECONDS[self._mode],), daemon=True
            ).start()

    def _show_if_interval_passed(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            with self._lock:
                if self._may_tick and time.monotonic() - self._last_shown >= seconds:
                    self._show()

    def disable_line(self) -> None:
        """Show no line on a terminal from now on, because it would mix with data."""
        with self._lock:
            self.clear_line()
            if self._mode == "auto":
                self._mode = "never"
                self._ended.set()

    def clear_line(self) -> None:
        """Erase the line on the terminal; the next progress report writes it again."""
        with self._lock:
            self._may_tick = False
            if self._has_line:
                _write_stderr("\r\x1b[K")
                self._has_line = False

    @contextmanager
    def hide_line(self) -> Iterator[None]:
        """Erase the line on the terminal while something else is written there."""
        with self._lock:
            may_tick = self._may_tick
            self.clear_line()
            yield
            self._may_tick = may_tick

    def handle_sigusr1(self) -> None:
        """Print one line whenever SIGUSR1 is received."""
        signal.signal(signal.SIGUSR1, self._print_line)

    def _print_line(self, _number: int, _frame: FrameType | None) -> None:
        with self.hide_line():
            _write_stderr(f"{self._format_line()}\n")

    def start_pass(self, total: int) -> None:
        """Start a pass over the files of a log (see `core.notify_progress_listener`)."""
        if not self._has_stages:
            self._file_ends.clear()
            self.done, self._read_bytes, self._processed_bytes, self._stage_start = 0, 0, 0, time.monotonic()
            self.total = None if self.endless else total or None

    def advance(self, file: str, end: int, read: int) -> None:
        """Count bytes that were read (see `core.notify_progress_listener`)."""
        if self._has_stages and self._is_complete:  # work after a stage, such as a check of the output
            self._has_stages, self._stage_start = False, time.monotonic()
            self._file_ends.clear()
            self.done, self.total, self.records, self._read_bytes, self._processed_bytes = 0, None, 0, 0, 0
        if not self._has_stages:
            self._processed_bytes, self._read_bytes = (
                self._read_bytes,
                self._read_bytes + read,
            )  # processing of the new bytes starts only now
            self.done += end - self._file_ends.get(file, 0)
            self._file_ends[file] = end
            self.activity = f"{self.command} {file}{self.part}"
            self._show_throttled()

    def skip_files(self, path: str, files: Sequence[Any]) -> None:
        """Store the files of a directory that are not logs (see `core.notify_progress_listener`)."""
        if files:
            self.skipped_files[path] = tuple(files)

    def note(self, text: str) -> None:
        """Store a message about the work (see `core.notify_progress_listener`)."""
        self.work_messages.append(text)

    def update_stage(self, activity: str, done: int, *, total: int | None = None, records: int = 0) -> None:
        """Show the progress of a stage; from now on, the progress of reading is not shown."""
        if activity != self.activity or not self._has_stages:
            self._stage_start, self._stage_offset = time.monotonic(), done
        self._has_stages = True
        self.activity, self.done, self.total, self.records, self._processed_bytes = (
            activity,
            done,
            total,
            records,
            done - self._stage_offset,
        )
        self._show_throttled()

    def _show_throttled(self) -> None:
        """Show the progress, at most five times a second (plain and JSON: once in two seconds)."""
        with self._lock:
            self._may_tick = not self._ended.is_set()
            if time.monotonic() - self._last_shown >= _EVENT_SECONDS.get(self._mode, 0.0):
                self._show()

    def _show(self) -> None:
        """Show the progress."""
        if self._mode == "never":
            return
        self._last_shown = time.monotonic()
        if self._mode == "json":
            import json

            _write_stderr(f"{json.dumps(self._to_dict())}\n")
        elif self._mode == "plain":
            _write_stderr(f"{self._format_line()}\n")
        elif _is_terminal():
            _write_stderr(f"\r\x1b[K{self._format_line(_terminal_columns() - 1)}")
            self._has_line = True

    def finish_display(self) -> None:
        """Clear the line on a terminal, and show nothing more."""
        self._ended.set()
        self.clear_line()

    def _format_line(self, width: int | None = None) -> str:
        """Return the progress line. width: to fit it, drop the program's name, then the least important figures."""
        activity, figures = escape(self.activity), self._format_figures()
        line = f"binlogtool: {activity}: {', '.join(figures)}"
        if width is None or _count_cells(line) <= width:
            return line
        while len(figures) > 1 and _count_cells(", ".join(figures)) + 2 + _MIN_NAME_COLUMNS > width:
            figures.pop(0 if len(figures) > 2 else 1)
        name_columns = width - _count_cells(", ".join(figures)) - 2
        text = f"{_shorten_start(activity, name_columns)}: {', '.join(figures)}"
        while _count_cells(text) > width:
            text = text[:-1]
        return text

    def _format_figures(self) -> list[str]:
        """Return the figures, the least important first."""
        from binlogtool.report.format_numbers_and_names import format_size

        elapsed = f"{_format_duration(time.monotonic() - self._stage_start)} elapsed"
        if not self.done and not self.records:
            return [elapsed]
        done, remaining, rate = format_size(self.done), self._remaining_seconds(), self._bytes_per_second()
        amount = f"{done} of {format_size(self.total)}" if self.total else done
        figures = [f"{self.records:,} records"] if self.records or not self.total else []
        figures.append(amount)
        if rate and not self._is_complete:
            figures.append(f"{format_size(int(rate))}/s")
        if self.total and self.done:
            figures.append("finishing" if self._is_complete else f"{100 * self.done / self.total:.0f} %")
        return [*figures, elapsed if remaining is None else f"{_format_duration(remaining)} left"]

    @property
    def _is_complete(self) -> bool:
        """True if this stage has processed all its bytes; the following work takes an unknown time."""
        return self.total is not None and self.done >= self.total

    def _bytes_per_second(self) -> float:
        """Return bytes per second in this stage."""
        return self._processed_bytes / max(0.001, time.monotonic() - self._stage_start)

    def _remaining_seconds(self) -> float | None:
        """Return the estimated remaining seconds of this stage; None if unknown, or less than half a second."""
        if not self.total or not self._processed_bytes or self._is_complete:
            return None
        remaining = max(0, self.total - self.done) / self._bytes_per_second()
        return remaining if remaining >= _MIN_REMAINING_SECONDS else None

    def _to_dict(self) -> dict[str, object]:
        seconds = round(time.monotonic() - self._started, 3)
        figures = {"done": self.done, "total": self.total, "records": self.records, "seconds": seconds}
        remaining = self._remaining_seconds()
        estimates = {} if remaining is None else {"left": round(remaining, 3), "rate": round(self._bytes_per_second())}
        return {"schema": "binlogtool/progress/1", "what": self.activity, **figures, **estimates}


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _terminal_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _count_cells(text: str) -> int:
    from binlogtool.terminal.escape_and_fold_text import count_columns

    return count_columns(text)


def _shorten_start(text: str, columns: int) -> str:
    """Cut the start of a text to fit `columns` columns; for a path, the file name remains."""
    if _count_cells(text) <= columns:
        return text
    while text and _count_cells(text) > columns - 2:
        text = text[1:]
    return f"..{text}"


def _write_stderr(text: str) -> None:
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            pass  # progress is optional
