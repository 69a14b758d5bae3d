"""The loop around a generated walk, the same for every backend.

The walk runs through good frames and stops at the first frame that it cannot accept; the interpreter (`exact`) decides
about that one: if it is good, its row is added and the walk continues after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from binlogtool.errors import LimitError
from binlogtool.formats.layouts import Column, ColumnTable
from binlogtool.schema import exact
from binlogtool.schema.operations import Program
from binlogtool.schema.scanner import ScanStop, StopReason

_CUT_DISTANCE = 1 << 16
"""A frame so close to the end, with more bytes behind it, is most likely cut off: the interpreter is not asked."""


class WalkScanner(ABC):
    """A `Scanner` whose subclasses keep the columns and run the generated walk.

    Attributes:
        interpreted_frames: Frames that only the interpreter found good (0 unless the walk speculates).
        max_span_rows: Most rows of a single span: the rows of a span are handed out together, and must fit into
            memory.
    """

    max_span_rows = 1 << 20

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.interpreted_frames = 0
        self._program = program
        self._capacity = capacity

    def scan(self, buf: Any, start: int, end: int, more: bool = False) -> tuple[ColumnTable, ScanStop]:
        """See `Scanner.scan`.

        Raises:
            ValueError: `[start, end)` is not inside the buffer.
        """
        if not 0 <= start <= end <= len(buf):
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(buf)} bytes")
        self._load_input(buf, (start,), (end,), 0, 1, spans=False)
        try:
            stop = self._scan_all(buf, (start,), (end,), 0, 1, spans=False, more=more)
            return self._make_table(self._count_rows()), stop
        finally:
            self._release_input()

    def probe(self, buf: Any, start: int, end: int) -> ColumnTable:
        """See `Scanner.probe`: the walk alone decides; the interpreter does not explain why a frame is not good."""
        self._load_input(buf, (start,), (end,), 0, 1, spans=False)
        try:
            self._run_walk(0, 1, start)
            return self._make_table(self._count_rows())
        finally:
            self._release_input()

    def scan_spans(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int
    ) -> tuple[ColumnTable, ScanStop]:
        """See `Scanner.scan_spans`.

        Raises:
            ValueError: a span is not inside the buffer.
            LimitError: a span has more than `max_span_rows` rows.
        """
        self._load_input(buf, starts, ends, first, count, spans=True)
        try:
            stop = self._scan_all(buf, starts, ends, first, count, spans=True)
            complete = self._count_rows() if stop.reason is StopReason.END else self._count_rows_before(stop.span)
            return self._make_table(complete), stop
        finally:
            self._release_input()

    def _scan_all(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool, more: bool = False
    ) -> ScanStop:
        span, position = first, int(starts[first]) if first < count else 0
        while True:
            span, position = self._run_walk(span, count, position)
            if span >= count:
                return ScanStop(StopReason.END, position, span=count if spans else -1)
            if self._count_rows() >= self._capacity:
                if not spans or self._count_rows_before(span):
                    return ScanStop(StopReason.FULL, position, span=span if spans else -1)
                self._double_capacity()
                continue
            if more and starts[0] < position and ends[0] - position < _CUT_DISTANCE:
                return ScanStop(StopReason.CUT, position)
            frame = exact.interpret_frame(self._program, buf, position, int(ends[span]))
            if isinstance(frame, ScanStop):
                return frame._replace(span=span) if spans else frame
            self._append_row(span, position, frame)
            self.interpreted_frames += 1
            position = frame.end

    def _double_capacity(self) -> None:
        if self._capacity >= self.max_span_rows:
            raise LimitError(f"a frame holds more than {self._capacity:,} records, more than fit into memory at once")
        self._capacity *= 2
        self._resize_columns()

    @abstractmethod
    def _load_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        """Take the input and empty the columns."""

    @abstractmethod
    def _release_input(self) -> None:
        """Release the input: a mapped file can be closed only when nothing refers to it."""

    @abstractmethod
    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        """Add the rows of good frames from `position` in `span` on; return the span and the position where it
        stopped.

        At the end of everything the span is `count`, and the position the end of the last span.
        """

    @abstractmethod
    def _count_rows(self) -> int:
        """Return the number of rows in the columns."""

    @abstractmethod
    def _count_rows_before(self, span: int) -> int:
        """Return the number of rows of the spans before this one."""

    @abstractmethod
    def _resize_columns(self) -> None:
        """Make room for `self._capacity` rows; the present rows stay."""

    @abstractmethod
    def _append_row(self, span: int, position: int, frame: exact.InterpretedFrame) -> None:
        """Add one row."""

    @abstractmethod
    def _make_table(self, rows: int) -> ColumnTable:
        """Return the first `rows` rows as a table."""
