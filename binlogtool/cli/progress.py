"""Progress on standard error: a line on a terminal, plain lines, or JSON; SIGUSR1 asks for one line at any time."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType

from binlogtool.render.escape import escape


class Progress:
    """What is being done. done and total in bytes; total None = not known."""

    def __init__(self, mode: str = "never") -> None:
        self._mode = mode
        self._started = self._shown = time.monotonic()
        self._begun = self._started
        self.what = "starting"
        self.done = 0
        self.total: int | None = None
        self.records = 0

    def hush(self) -> None:
        """No line on a terminal: it would stand in the data."""
        if self._mode == "auto":
            self._mode = "never"

    def listen(self) -> None:
        """Prints one line whenever SIGUSR1 comes."""
        signal.signal(signal.SIGUSR1, self._asked)

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        _put(f"{self._line()}\n")

    def update(self, what: str, done: int, *, total: int | None = None, records: int = 0) -> None:
        """New figures; shown at most five times a second (plain and JSON: once in two seconds)."""
        now = time.monotonic()
        if what != self.what:
            self._begun = now
        self.what, self.done, self.total, self.records = what, done, total, records
        if now - self._shown < (0.2 if self._mode == "auto" else 2.0) or self._mode == "never":
            return
        self._shown = now
        if self._mode == "json":
            _put(f"{json.dumps(self._values())}\n")
        elif self._mode == "plain":
            _put(f"{self._line()}\n")
        elif sys.stderr is not None and sys.stderr.isatty():
            _put(f"\r\x1b[K{self._line()[:120]}")

    def end(self) -> None:
        """Clears the line on a terminal."""
        if self._mode == "auto" and self._shown > self._started and sys.stderr is not None and sys.stderr.isatty():
            _put("\r\x1b[K")

    def _line(self) -> str:
        now = time.monotonic()
        share = f" ({100 * self.done / self.total:.0f} %)" if self.total else ""
        records = f", {self.records:,} records" if self.records or not self.total else ""
        left = self._left(now)
        rest = "" if left is None else f", {left:.0f} s left"
        text = f"{self.done:,} bytes{share}{records}, {now - self._started:.0f} s{rest}"
        return f"binlogtool: {escape(self.what)}: {text}"

    def _left(self, now: float) -> float | None:
        """Seconds that this stage still needs if it goes on as it did; None = nothing says that."""
        if not self.total or not self.done:
            return None
        return (now - self._begun) * max(0, self.total - self.done) / self.done

    def _values(self) -> dict[str, object]:
        seconds = round(time.monotonic() - self._started, 3)
        figures = {"done": self.done, "total": self.total, "records": self.records, "seconds": seconds}
        left = self._left(time.monotonic())
        more = {} if left is None else {"left": round(left, 3)}
        return {"schema": "binlogtool/progress/1", "what": self.what, **figures, **more}


def _put(text: str) -> None:
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            pass  # nobody looks at the progress
