"""The loop around a generated walk, the same for every backend.

The walk runs through good frames and stops at the first frame that it cannot accept; the interpreter (`exact`)
decides
about that one: if it is good, its row is added and the walk continues after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from binlogtool.errors import LimitError
from binlogtool.formats.layouts import Column, Table
from binlogtool.schema import exact
from binlogtool.schema.operations import Program
from binlogtool.schema.scanner import Stop, StopReason

_CUT = 1 << 16
"""A frame so close to the end, with more bytes behind it, is most likely cut off: the interpreter is not asked."""


class DrivenScanner(ABC):
    """A `Scanner` whose subclasses keep the columns and run the generated walk.

    Attributes:
        interpreted_frames: Frames that only the interpreter found good (0 unless the walk speculates).
        max_span_rows: Most rows of a single span: the rows of a span are handed out together, and must fit into
            memory.
    """

    max_span_rows = 1 << 20

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.by_hand = 0
        self._program = program
        self._capacity = capacity

    def scan(self, buf: Any, start: int, end: int, more: bool = False) -> tuple[Table, Stop]:
        """See `Scanner.scan`.

        Raises:
            ValueError: `[start, end)` is not inside the buffer.
        """
        if not 0 <= start <= end <= len(buf):
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(buf)} bytes")
        self._open(buf, (start,), (end,), 0, 1, spans=False)
        try:
            stop = self._run(buf, (start,), (end,), 0, 1, spans=False, more=more)
            return self._table(self._count()), stop
        finally:
            self._close()

    def probe(self, buf: Any, start: int, end: int) -> Table:
        """See `Scanner.probe`: the walk alone decides; the interpreter does not explain why a frame is not good."""
        self._open(buf, (start,), (end,), 0, 1, spans=False)
        try:
            self._walk(0, 1, start)
            return self._table(self._count())
        finally:
            self._close()

    def scan_spans(self, buf: Any, starts: Column, ends: Column, first: int, count: int) -> tuple[Table, Stop]:
        """See `Scanner.scan_spans`.

        Raises:
            ValueError: a span is not inside the buffer.
            LimitError: a span has more than `max_span_rows` rows.
        """
        self._open(buf, starts, ends, first, count, spans=True)
        try:
            stop = self._run(buf, starts, ends, first, count, spans=True)
            complete = self._count() if stop.reason is StopReason.END else self._rows_before(stop.span)
            return self._table(complete), stop
        finally:
            self._close()

    def _run(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool, more: bool = False
    ) -> Stop:
        span, at = first, int(starts[first]) if first < count else 0
        while True:
            span, at = self._walk(span, count, at)
            if span >= count:
                return Stop(StopReason.END, at, span=count if spans else -1)
            if self._count() >= self._capacity:
                if not spans or self._rows_before(span):
                    return Stop(StopReason.FULL, at, span=span if spans else -1)
                self._double()
                continue
            if more and starts[0] < at and ends[0] - at < _CUT:
                return Stop(StopReason.CUT, at)
            found = exact.run(self._program, buf, at, int(ends[span]))
            if isinstance(found, Stop):
                return found._replace(span=span) if spans else found
            self._append(span, at, found)
            self.by_hand += 1
            at = found.end

    def _double(self) -> None:
        if self._capacity >= self.max_span_rows:
            raise LimitError(f"a frame holds more than {self._capacity:,} records, more than fit into memory at once")
        self._capacity *= 2
        self._grow()

    @abstractmethod
    def _open(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        """Take the input and empty the columns."""

    @abstractmethod
    def _close(self) -> None:
        """Release the input: a mapped file can be closed only when nothing refers to it."""

    @abstractmethod
    def _walk(self, span: int, count: int, at: int) -> tuple[int, int]:
        """Add the rows of good frames from `position` in `span` on; return the span and the position where it
        stopped.

        At the end of everything the span is `count`, and the position the end of the last span.
        """

    @abstractmethod
    def _count(self) -> int:
        """Return the number of rows in the columns."""

    @abstractmethod
    def _rows_before(self, span: int) -> int:
        """Return the number of rows of the spans before this one."""

    @abstractmethod
    def _grow(self) -> None:
        """Make room for `self._capacity` rows; the present rows stay."""

    @abstractmethod
    def _append(self, span: int, at: int, frame: exact.Frame) -> None:
        """Add one row."""

    @abstractmethod
    def _table(self, rows: int) -> Table:
        """Return the first `rows` rows as a table."""
