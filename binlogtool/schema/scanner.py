"""Interface of scanners, their loop, and the interpreter that executes a frame operation by operation.

The interpreter accepts a doubtful frame or determines exactly why it is not good, so the reasons, positions and field
names of a `ScanStop` do not depend on the backend.

The walk runs over good frames and stops at the first frame that it cannot accept; the interpreter decides about this
frame: if it is good, its row is added and the walk continues after it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Any, NamedTuple, Protocol

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api.layout import Column, ColumnTable, Kernel, zeroed_int64
from binlogtool.format_api.schema_fields import SHORT
from binlogtool.schema.program import (
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    LoadInteger,
    Op,
    Program,
    ReadRecord,
    ReadScalar,
    Require,
    RequireOneOf,
    SkipBytes,
    VerifyChecksum,
    evaluate_expression,
    wrap_int64,
)

# --- Interface of generated scanners and backends ---


class StopReason(enum.IntEnum):
    """Reason why a scan stopped. All except END and FULL are about the frame at `ScanStop.at`."""

    END = 0
    """The end of the buffer was reached at a frame boundary."""
    FULL = 1
    """The columns are full; call again from `at`."""
    SHORT = 2
    """The frame at `at` needs bytes beyond `end` (at least up to `ScanStop.need`, if that is known)."""
    CONSTANT = 3
    """A constant of the schema (magic) is missing."""
    BOUNDS = 4
    """A declared size or a `Check` of the schema cannot be true."""
    CHECKSUM = 5
    """The checksum does not match; `ScanStop.need` is the frame's end according to its length."""
    MALFORMED = 6
    """A field's bytes are not a value of its type."""
    EMPTY = 7
    """The schema matched zero bytes, so there is no progress."""
    CUT = 8
    """Only with `more`: the frame at `at`, never at `start`, begins near the end and was not read: call again with the
    bytes that follow."""


class ScanStop(NamedTuple):
    """Position and reason of the end of a scan.

    Attributes:
        at: Start of the frame (row) in the buffer.
        field: Path of the failing field.
        need: See `StopReason`; -1 = unknown.
        span: Index of the span (only `scan_spans`), else -1.
    """

    reason: StopReason
    at: int
    field: str | None = None
    need: int = -1
    span: int = -1


class Scanner(Protocol):
    """Scanner of the frames of one schema.

    `scan` walks the chain in `buf[start:end]` and stops at the first frame that is not good (checksum included).
    Nothing at or after `end` is ever read. The returned table is valid until the next call of this scanner, which
    reuses the column buffers. Columns: `offset`, `end`, `checksum` (0 = the schema has none, 1 right, 2 absent), then
    the requested columns. Positions (offsets, ends, `Tell` fields) count from the start of `buf`.

    `scan_spans` walks one chain per span `[starts[i], ends[i])`, i in [first, count); the chain must fill the span
    exactly. Extra column: `span`. It stops at a bad span, whose rows are not in the table. FULL: the stop's `span` is
    the first span that is not in the table.
    """

    columns: tuple[str, ...]

    def scan(self, buf: Any, start: int, end: int, more: bool = False) -> tuple[ColumnTable, ScanStop]:
        """Walk frames from `start`. more: bytes follow after `end`, so the last frame may be CUT."""

    def probe(self, buf: Any, start: int, end: int) -> ColumnTable:
        """Return the table of one frame at `start`, or of none; a good frame in an unusual encoding counts as none."""

    def scan_spans(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int
    ) -> tuple[ColumnTable, ScanStop]:
        """Walk the rows of the spans `first`..`count`-1."""


class Backend(Protocol):
    """Backend that runs lowered schemas and kernels."""

    name: str

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> Scanner:
        """Return a scanner for a schema; its code is generated once and cached.

        Raises:
            UnlowerableError: a field of the schema cannot be lowered (its path is in the message).
        """

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the fastest form of a kernel function."""


# --- Interpreter ---


class InterpretedFrame(msgspec.Struct):
    """Good frame. checksum: as in the scanner's column `checksum`."""

    end: int
    checksum: int
    values: dict[str, int]


class _BadFrame(Exception):
    """Raised inside this module to end the interpretation of a frame."""

    def __init__(self, reason: StopReason, path: str, need: int = -1) -> None:
        super().__init__()
        self.reason, self.path, self.need = reason, path, need


def interpret_frame(program: Program, buf: Any, position: int, end: int) -> InterpretedFrame | ScanStop:
    """Return the frame that starts at `position`, or why it is not good. Nothing at or after `end` is read."""
    state = _FrameState(memoryview(buf), position, position, end, dict.fromkeys(program.variables, 0))
    try:
        state.execute(program.ops)
    except _BadFrame as bad:
        return ScanStop(bad.reason, position, bad.path, bad.need)
    if state.mismatch is not None:
        return ScanStop(StopReason.CHECKSUM, position, state.mismatch, state.position)
    if state.position == position:
        return ScanStop(StopReason.EMPTY, position)
    return InterpretedFrame(state.position, state.checksum, state.values)


class _FrameState(msgspec.Struct):
    view: memoryview
    start: int
    position: int
    end: int
    values: dict[str, int]
    checksum: int = 0
    mismatch: str | None = msgspec.field(default=None)

    def execute(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            self.execute_one(op)

    def execute_one(self, op: Op) -> None:
        match op:
            case LoadInteger(path, width, big, is_signed):
                data = self.take_bytes(width, path)
                self.values[path] = wrap_int64(int.from_bytes(data, "big" if big else "little", signed=is_signed))
            case ExpectBytes(path, value):
                if self.take_bytes(len(value), path) != value:
                    raise _BadFrame(StopReason.CONSTANT, path)
            case SkipBytes(path, length):
                self.take_bytes(evaluate_expression(length, self.values), path)
            case RequireOneOf(path, values):
                if self.values[path] not in values:
                    raise _BadFrame(StopReason.CONSTANT, path)
            case Require(path, test):
                if not evaluate_expression(test, self.values):
                    raise _BadFrame(StopReason.BOUNDS, path)
            case Assign(path, expr):
                self.values[path] = evaluate_expression(expr, self.values)
            case AssignPosition(path):
                self.values[path] = self.position
            case ReadScalar(path, kernel):
                number, following = kernel.read(self.view, self.position, self.end, *kernel.arguments)
                self.advance_to(following, path)
                self.values[path] = wrap_int64(number)
            case ReadRecord():
                self.read_record(op)
            case VerifyChecksum():
                self.verify_checksum(op)
            case ChooseCase(_, arms, other):
                taken = (branch for test, branch in arms if evaluate_expression(test, self.values))
                self.execute(next(taken, other))

    def take_bytes(self, count: int, path: str) -> memoryview:
        if count < 0:
            raise _BadFrame(StopReason.BOUNDS, path)
        if count > self.end - self.position:
            raise _BadFrame(StopReason.SHORT, path, self.position + count)
        self.position += count
        return self.view[self.position - count : self.position]

    def advance_to(self, following: int, path: str) -> None:
        """Move to the end of a value, as returned by its kernel."""
        if not self.position <= following <= self.end:
            raise _BadFrame(StopReason.SHORT if following == SHORT else StopReason.MALFORMED, path)
        self.position = following

    def read_record(self, op: ReadRecord) -> None:
        numbers = [0] * len(op.columns)
        self.advance_to(op.kernel.read(self.view, self.position, self.end, op.kernel.table, numbers, 0), op.path)
        self.values.update(zip(op.columns, map(wrap_int64, numbers), strict=True))

    def verify_checksum(self, op: VerifyChecksum) -> None:
        stored, start, end = (evaluate_expression(part, self.values) for part in (op.stored, op.start, op.end))
        if not self.start <= start <= end:
            raise _BadFrame(StopReason.BOUNDS, op.path)
        if end > self.end:
            raise _BadFrame(StopReason.SHORT, op.path, end)
        right = op.checksum(self.view[start:end]) == stored
        if not right and stored != op.absent:
            self.mismatch = self.mismatch or op.path
        self.checksum = max(self.checksum, 1 if right else 2)


# --- The loop around a generated walk, the same for every backend ---

END_ROW, OFFSET_ROW, SPAN_ROW, VERDICT_ROW, FIRST_COLUMN_ROW = range(5)
"""Rows of the matrix that a walk writes; the requested columns follow."""

_COLUMN_GAP = 72
"""Number of unused elements after each column; columns at distances of a power of two would share cache lines."""

_CUT_DISTANCE = 1 << 16
"""Minimum distance in bytes of a frame's start from the end of the buffer, if more bytes follow; else it is CUT."""


class WalkScanner(ABC):
    """`Scanner` whose subclasses run the generated walk. Its columns are parts of one memory block.

    Attributes:
        interpreted_frames: Number of frames that only the interpreter accepted.
        max_span_rows: Maximum rows of a single span, because the rows of a span are returned together, in memory.
    """

    max_span_rows = 1 << 20

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.interpreted_frames = 0
        self._program = program
        self._capacity = capacity
        self._rows = 0
        self._allocate_columns()

    def scan(self, buf: Any, start: int, end: int, more: bool = False) -> tuple[ColumnTable, ScanStop]:
        """Walk frames from `start` (`Scanner.scan`). Raises ValueError: `[start, end)` is not inside the buffer."""
        if not 0 <= start <= end <= len(buf):
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(buf)} bytes")
        self._load_input(buf, (start,), (end,), 0, 1, spans=False)
        try:
            stop = self._scan_all(buf, (start,), (end,), 0, 1, spans=False, more=more)
            return self._make_table(self._rows), stop
        finally:
            self._release_input()

    def probe(self, buf: Any, start: int, end: int) -> ColumnTable:
        """Return the table of one frame, or of no frame, by the walk alone, without the interpreter."""
        self._load_input(buf, (start,), (end,), 0, 1, spans=False)
        try:
            self._run_walk(0, 1, start)
            return self._make_table(self._rows)
        finally:
            self._release_input()

    def scan_spans(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int
    ) -> tuple[ColumnTable, ScanStop]:
        """Walk the rows of the spans `first`..`count`-1 (`Scanner.scan_spans`).

        Raises:
            ValueError: a span is not inside the buffer.
            LimitError: a span has more than `max_span_rows` rows.
        """
        self._load_input(buf, starts, ends, first, count, spans=True)
        try:
            stop = self._scan_all(buf, starts, ends, first, count, spans=True)
            complete = self._rows if stop.reason is StopReason.END else self._count_rows_before(stop.span)
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
            if self._rows >= self._capacity:
                if not spans or self._count_rows_before(span):
                    return ScanStop(StopReason.FULL, position, span=span if spans else -1)
                self._double_capacity()
                continue
            if more and starts[0] < position and ends[0] - position < _CUT_DISTANCE:
                return ScanStop(StopReason.CUT, position)
            frame = interpret_frame(self._program, buf, position, int(ends[span]))
            if isinstance(frame, ScanStop):
                return frame._replace(span=span) if spans else frame
            self._append_row(span, position, frame)
            self.interpreted_frames += 1
            position = frame.end

    def _double_capacity(self) -> None:
        if self._capacity >= self.max_span_rows:
            raise LimitError(f"a frame holds more than {self._capacity:,} records, more than fit into memory at once")
        before = [self._slice_column(row, self._rows) for row in range(FIRST_COLUMN_ROW + len(self.columns))]
        self._capacity *= 2
        self._allocate_columns()
        for row, values in enumerate(before):
            self._slice_column(row, self._rows)[:] = values

    @abstractmethod
    def _load_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        """Set the input, and empty the columns."""

    @abstractmethod
    def _release_input(self) -> None:
        """Release the input: a mapped file can be closed only when nothing refers to it."""

    @abstractmethod
    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        """Add the rows of good frames from `position` in `span` on; return the span and the position where it stopped.

        At the end of the input, the span is `count`, and the position is the end of the last span.
        """

    def _allocate_columns(self) -> None:
        self._stride = self._capacity + _COLUMN_GAP
        self._out = zeroed_int64((FIRST_COLUMN_ROW + len(self.columns)) * self._stride)

    def _slice_column(self, row: int, count: int) -> memoryview:
        return self._out[row * self._stride : row * self._stride + count]

    def _count_rows_before(self, span: int) -> int:
        return bisect_left(self._slice_column(SPAN_ROW, self._rows), span)

    def _append_row(self, span: int, position: int, frame: InterpretedFrame) -> None:
        row = (frame.end, position, span, frame.checksum, *(frame.values[path] for path in self.columns))
        for number, value in enumerate(row):
            self._out[number * self._stride + self._rows] = value
        self._rows += 1

    def _make_table(self, rows: int) -> ColumnTable:
        names = ("end", "offset", "span", "checksum", *self.columns)
        return ColumnTable(rows, {name: self._slice_column(row, rows) for row, name in enumerate(names)})
