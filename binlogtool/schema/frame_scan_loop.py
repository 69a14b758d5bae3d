"""Scanner protocol, the scan loop, and the interpreter that checks one frame operation by operation.

The interpreter accepts a doubtful frame or determines exactly why it is not good, so the reasons, positions and field
names of a `ScanStop` do not depend on the backend.

The walk runs over good frames and stops at the first frame that it cannot accept; the interpreter decides about this
frame: if it is good, its row is added and the walk continues after it.
"""

from __future__ import annotations

import enum
import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Any, NamedTuple, Protocol

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api.layout import Checksum, Column, ColumnTable, Kernel, zeroed_int64
from binlogtool.format_api.schema_fields import SHORT, ScalarForm
from binlogtool.schema.native_library import KernelNames
from binlogtool.schema.schema_operations import (
    MACHINE,
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    Expr,
    LoadInteger,
    Num,
    Op,
    Program,
    ReadRecord,
    ReadScalar,
    Require,
    RequireOneOf,
    SkipBytes,
    SourceLines,
    VerifyChecksum,
    compute_min_size,
    evaluate_expression,
    find_used_paths,
    format_test_source,
    format_value_source,
    get_fixed_size,
    has_checksum,
    iter_operations,
    list_defined_paths,
    make_variable_names,
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
                self.advance_to_value_end(following, path)
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

    def advance_to_value_end(self, value_end: int, path: str) -> None:
        """Move to the end of a value, as returned by its kernel."""
        if not self.position <= value_end <= self.end:
            raise _BadFrame(StopReason.SHORT if value_end == SHORT else StopReason.MALFORMED, path)
        self.position = value_end

    def read_record(self, op: ReadRecord) -> None:
        numbers = [0] * len(op.columns)
        self.advance_to_value_end(
            op.kernel.read(self.view, self.position, self.end, op.kernel.table, numbers, 0), op.path
        )
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


class Scanner(ABC):
    """Scanner of the frames of one schema; its subclasses run the generated walk.

    Nothing at or after `end` is ever read. A returned table is valid until the next call of this scanner, which reuses
    the columns. Columns: `offset`, `end`, `checksum` (0 = the schema has none, 1 right, 2 absent), then the requested
    columns. Positions (offsets, ends, `Tell` fields) count from the start of `buf`.

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

    def scan(self, buf: Any, start: int, end: int, has_more_bytes: bool = False) -> tuple[ColumnTable, ScanStop]:
        """Walk the chain in `buf[start:end]` up to the first frame that is not good (checksum included).

        Args:
            has_more_bytes: bytes follow after `end`, so the last frame may be CUT.

        Raises:
            ValueError: `[start, end)` is not inside the buffer.
        """
        if not 0 <= start <= end <= len(buf):
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(buf)} bytes")
        self._set_input(buf, (start,), (end,), 0, 1, has_spans=False)
        try:
            stop = self._scan_all(buf, (start,), (end,), 0, 1, spans=False, more=has_more_bytes)
            return self._make_table(self._rows), stop
        finally:
            self._release_input()

    def scan_single_frame(self, buf: Any, start: int, end: int) -> ColumnTable:
        """Return the table of one frame at `start`, or of none; a good frame in an unusual encoding counts as none."""
        self._set_input(buf, (start,), (end,), 0, 1, has_spans=False)
        try:
            self._run_walk(0, 1, start)
            return self._make_table(self._rows)
        finally:
            self._release_input()

    def scan_spans(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int
    ) -> tuple[ColumnTable, ScanStop]:
        """Walk one chain per span `[starts[i], ends[i])`, i in [first, count); the chain must fill the span exactly.

        Extra column: `span`. It stops at a bad span, whose rows are not in the table. FULL: the stop's `span` is the
        first span that is not in the table.

        Raises:
            ValueError: a span is not inside the buffer.
            LimitError: a span has more than `max_span_rows` rows.
        """
        self._set_input(buf, starts, ends, first, count, has_spans=True)
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
            self._append_interpreted_frame(span, position, frame)
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
    def _set_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, has_spans: bool) -> None:
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

    def _append_interpreted_frame(self, span: int, position: int, frame: InterpretedFrame) -> None:
        """Append a frame that only the interpreter accepted to the columns."""
        row = (frame.end, position, span, frame.checksum, *(frame.values[path] for path in self.columns))
        for number, value in enumerate(row):
            self._out[number * self._stride + self._rows] = value
        self._rows += 1

    def _make_table(self, rows: int) -> ColumnTable:
        names = ("end", "offset", "span", "checksum", *self.columns)
        return ColumnTable(rows, {name: self._slice_column(row, rows) for row, name in enumerate(names)})


# --- The source text of a walk: framing and checksum in one pass over machine integers ---
#
# `c_codegen` turns the text into C, where arrays are addresses; `backends` runs it as Python. Before every load, a test
# ensures that it ends before `limit`; sizes are compared as `size > limit - p`, which cannot overflow because both
# positions are inside the buffer. A failed test ends the loop by `break`: `o` is then the start of the doubtful frame.


def generate_walk(program: Program, columns: tuple[str, ...], kernels: KernelNames) -> str:
    """Return the text of the function `walk`, preceded by the tables that it uses; see `backends` for its arguments.

    Args:
        kernels: Collector of the kernels that the text calls.
    """
    return _WalkWriter(program, columns, kernels).write()


def compute_scratch_size(program: Program) -> int:
    """Return the number of integers that the record kernels write per frame."""
    return sum(len(op.columns) for op in iter_operations(program.ops) if isinstance(op, ReadRecord))


def find_checksums(program: Program) -> dict[int, Checksum]:
    """Return polynomial -> a checksum with it, in the order in which `walk` takes their tables."""
    return {op.checksum.poly: op.checksum for op in iter_operations(program.ops) if isinstance(op, VerifyChecksum)}


class _WalkWriter:
    def __init__(self, program: Program, columns: tuple[str, ...], kernels: KernelNames) -> None:
        self.program, self.columns = program, columns
        self.names = make_variable_names(program.variables)
        self.used = {*find_used_paths(program.ops), *columns}
        self.polynomials = list(find_checksums(program))
        self.kernels = kernels
        self.tables: list[str] = []
        self.scratch = 0
        self.lines = SourceLines()

    def write(self) -> str:
        line = self.lines
        line("def walk(base, starts, ends, span, count, p, k, room, out, stride, notes, tables):")
        with line.indent():
            for index in range(len(self.polynomials)):
                line(f"table{index} = tables[{index}]")
            line("o = p")
            line("while span < count:")
            with line.indent():
                self._emit_loop_over_input_range()
            line("return k, span, o")
        return "\n".join([*self.tables, self.lines.join()])

    def _emit_loop_over_input_range(self) -> None:
        line = self.lines
        line("limit = ends[span]")
        line("while p < limit and k < room:")
        with line.indent():
            self._emit_frame()
        line("if o != limit:")
        with line.indent():
            line("return k, span, o")
        line("span += 1")
        line("if span < count:")
        with line.indent():
            line("p = starts[span]")
            line("o = p")

    def _emit_frame(self) -> None:
        line = self.lines
        inner = {path for op in self.program.ops if isinstance(op, ChooseCase) for path in _find_case_variables(op)}
        for path in sorted(inner & self.used):
            line(f"{self.names[path]} = int64(0)")
        if has_checksum(self.program.ops):
            line("ok = int64(0)")
        self._emit_operations(self.program.ops)
        if not compute_min_size(self.program.ops):
            self._emit_stop_if("p == o")
        verdict = "ok" if has_checksum(self.program.ops) else "0"
        for row, value in enumerate(("p", "o", "span", verdict, *(self.names[path] for path in self.columns))):
            line(f"out[{row} * stride + k] = {value}")
        line("k += 1")
        line("o = p")

    def _emit_stop_if(self, test: str) -> None:
        self.lines(f"if {test}:")
        with self.lines.indent():
            self.lines("break")

    def _emit_operations(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            fixed = 0
            while index + fixed < len(ops) and get_fixed_size(ops[index + fixed]):
                fixed += 1
            if fixed:
                self._emit_fixed_run(ops[index : index + fixed])
            else:
                self._emit_operation(ops[index])
            index += fixed or 1

    def _emit_fixed_run(self, ops: tuple[Op, ...]) -> None:
        """Emit neighbouring fields of constant size after one bounds check."""
        self._emit_stop_if(f"limit - p < {sum(get_fixed_size(op) or 0 for op in ops)}")
        offset = 0
        for op in ops:
            if isinstance(op, LoadInteger) and op.path in self.used:
                self.lines(f"{self.names[op.path]} = {format_load(op, f'base + p + {offset}')}")
            elif isinstance(op, ExpectBytes):
                self._emit_literal(op.value, offset)
            offset += get_fixed_size(op) or 0
        self.lines(f"p += {offset}")

    def _emit_literal(self, value: bytes, offset: int) -> None:
        self._emit_stop_if(f"not ({_format_bytes_test(value, f'base + p + {offset}')})")

    def _emit_operation(self, op: Op) -> None:
        match op:
            case SkipBytes(_, length):
                self._emit_skip(length)
            case RequireOneOf(path, values):
                tests = [f"{self.names[path]} != {format_value_source(Num(value), {}, MACHINE)}" for value in values]
                self._emit_stop_if(" and ".join(tests) or "True")
            case Require(_, test):
                self._emit_stop_if(f"not ({format_test_source(test, self.names, MACHINE)})")
            case Assign(path, value):
                self.lines(f"{self.names[path]} = int64({self._format_value(value)})")
            case AssignPosition(path):
                self.lines(f"{self.names[path]} = p")
            case ReadScalar():
                self._emit_scalar(op)
            case ReadRecord():
                self._emit_record(op)
            case VerifyChecksum():
                self._emit_verify(op)
            case ChooseCase():
                self._emit_choice(op)

    def _emit_skip(self, length: Expr) -> None:
        if isinstance(length, Num):
            return
        self.lines(f"n = {self._format_value(length)}")
        self._emit_stop_if("n < 0 or n > limit - p")
        self.lines("p += n")

    def _emit_advance(self) -> None:
        self._emit_stop_if("q < p or q > limit")
        self.lines("p = q")

    def _emit_scalar(self, op: ReadScalar) -> None:
        """Emit the declared forms inline, which is faster than a kernel that has to handle all forms."""
        line, target = self.lines, self.names[op.path]
        line("t = load_u1(base + p) if p < limit else -1")
        for index, form in enumerate(op.kernel.forms):
            line(
                f"{'el' if index else ''}if {form.first} <= t <= {form.last} and limit - p >= "
                f"{form.size_expression('t')}:"
            )
            with line.indent():
                line(f"{target} = {format_scalar_form(form, 'base + p')}")
                line(f"p += {form.size_expression('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            line(
                f"value, q = "
                f"{self.kernels.add_kernel(op.kernel.read)}({op.kernel.format_arguments('base', 'p', 'limit')})"
            )
            self._emit_advance()
            line(f"{target} = int64(value)")

    def _emit_record(self, op: ReadRecord) -> None:
        line, name, at = self.lines, f"TABLE{len(self.tables)}", self.scratch
        self.tables.append(f"{name} = {list(op.kernel.table)!r}")
        self.scratch += len(op.columns)
        line(f"q = {self.kernels.add_kernel(op.kernel.read)}(base, p, limit, {name}, notes, {at})")
        self._emit_advance()
        for i, path in enumerate(op.columns):
            if path in self.used:
                line(f"{self.names[path]} = int64(notes[{at + i}])")

    def _emit_verify(self, op: VerifyChecksum) -> None:
        line, index = self.lines, self.polynomials.index(op.checksum.poly)
        line(f"a = {self._format_value(op.start)}")
        line(f"z = {self._format_value(op.end)}")
        self._emit_stop_if("a < o or z < a or z > limit")
        call = f"crc_run(table{index}, base + a, z - a, {op.checksum.init})"
        line(f"if {call} == {self._format_value(op.stored)} ^ {op.checksum.xorout}:")
        with line.indent():
            line("if ok == 0:")
            with line.indent():
                line("ok = int64(1)")
        if op.absent is not None:
            line(f"elif {self._format_value(op.stored)} == {format_value_source(Num(op.absent), {}, MACHINE)}:")
            with line.indent():
                line("ok = int64(2)")
        line("else:")
        with line.indent():
            line("break")

    def _emit_choice(self, op: ChooseCase) -> None:
        line = self.lines
        for index, (test, branch) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {format_test_source(test, self.names, MACHINE)}:")
            self._emit_branch(branch)
        line("else:")
        self._emit_branch(op.other)

    def _emit_branch(self, ops: tuple[Op, ...]) -> None:
        with self.lines.indent():
            self._emit_operations(ops)
            self.lines("pass")

    def _format_value(self, expr: Expr) -> str:
        return format_value_source(expr, self.names, MACHINE)


def format_load(op: LoadInteger, where: str) -> str:
    """Return the source that loads an integer of any width."""
    if op.width in (1, 2, 4, 8):
        return _format_load_call(op.width, op.big, op.signed, where)
    places = range(op.width)[::-1] if op.big else range(op.width)
    value = " | ".join(f"load_u1({where} + {i}) << {8 * shift}" for shift, i in enumerate(places))
    unused = 64 - 8 * op.width
    return f"int64(({value}) << {unused}) >> {unused}" if op.signed else value


def _format_load_call(width: int, big: bool, signed: bool, where: str) -> str:
    sign = "i" if signed or width == 8 else "u"
    order = "" if width == 1 else "_big" if big else "_little"
    return f"load_{sign}{width}{order}({where})"


def _format_struct_load(layout: str, where: str) -> str:
    """Return the source that loads a number with one `struct` code."""
    code = layout[1]
    return _format_load_call(struct.calcsize(layout), layout[0] == ">", code.islower(), where)


def _format_bytes_test(value: bytes, where: str) -> str:
    """Return the source that compares bytes with a few wide loads."""
    tests, offset = [], 0
    while offset < len(value):
        width = next(w for w in (8, 4, 2, 1) if w <= len(value) - offset)
        number = wrap_int64(int.from_bytes(value[offset : offset + width], "little"))
        source = format_value_source(Num(number), {}, MACHINE)
        tests.append(f"{_format_load_call(width, False, False, f'{where} + {offset}')} == {source}")
        offset += width
    return " and ".join(tests) or "True"


def format_scalar_form(form: ScalarForm, where: str) -> str:
    """Return the source of a scalar in one of its forms, whose first byte is in `t`."""
    if form.layout is None:
        return f"t - {form.base}"
    return _format_struct_load(form.layout, f"{where} + 1")


def _find_case_variables(op: ChooseCase) -> set[str]:
    return {path for each in iter_operations((op,)) for path in list_defined_paths(each)}
