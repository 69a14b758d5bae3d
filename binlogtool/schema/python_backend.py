"""The scanner without native code: generated Python around `struct` and a fast CRC."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Any

from binlogtool.formats.layouts import Column, ColumnTable, Kernel
from binlogtool.schema import exact
from binlogtool.schema.drive import WalkScanner
from binlogtool.schema.expressions import I64_MAX, I64_MIN, wrap_int64
from binlogtool.schema.lower import lower_schema
from binlogtool.schema.operations import Program
from binlogtool.schema.python_codegen import (
    generate_python_walk,
    get_constant_verdict,
    has_verdict_column,
    list_flat_records,
)


class PythonBackend:
    """The backend that always works: no extra dependency, no start-up cost."""

    name = "python"

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> PythonScanner:
        """Create a scanner; the generated functions are shared.

        Raises:
            UnlowerableError: see `Backend.make_scanner`.
        """
        return PythonScanner(_lower_cached(schema, tuple(columns)), tuple(columns), capacity)

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the function unchanged."""
        return function


@lru_cache(maxsize=256)
def _lower_cached(schema: Any, columns: tuple[str, ...]) -> Program:
    return lower_schema(schema, columns)


@lru_cache(maxsize=256)
def _compile_walk(program: Program, columns: tuple[str, ...], spans: bool) -> Any:
    text, names = generate_python_walk(program, columns, spans)
    exec(compile(text, "<generated scanner>", "exec"), names)
    return names["walk"]


class PythonScanner(WalkScanner):
    """A scanner whose columns are lists, which take several times the memory of arrays."""

    max_span_rows = 1 << 19

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        self._records = list_flat_records(program)
        self._record_positions = {
            path: (i, j) for i, op in enumerate(self._records) for j, path in enumerate(op.columns)
        }
        self._list_columns = [path for path in columns if path not in self._record_positions]
        self._has_verdicts = has_verdict_column(program)
        self._verdict = get_constant_verdict(program)
        self._functions: dict[bool, Any] = {}

    def _load_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        if spans not in self._functions:
            self._functions[spans] = _compile_walk(self._program, self.columns, spans)
        self._walk_function = self._functions[spans]
        self._start, self._spans = (int(starts[first]) if first < count else 0), spans
        if spans:
            starts, ends = _check_spans(buf, starts, ends, first, count)
        self._input = (buf, memoryview(buf), starts, ends)
        extra = 2 * spans + self._has_verdicts
        self._lists: list[list[int]] = [[] for _ in range(1 + extra + len(self._list_columns))]
        self._record_lists: list[list[int]] = [[] for _ in self._records]

    def _release_input(self) -> None:
        self._input[1].release()
        del self._input

    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        stopped: tuple[int, int] = self._walk_function(
            *self._input, span, count, position, self._capacity, self._lists, self._record_lists
        )
        return stopped

    def _count_rows(self) -> int:
        return len(self._lists[0])

    def _count_rows_before(self, span: int) -> int:
        return bisect_left(self._lists[2], span)

    def _resize_columns(self) -> None:
        """Lists grow by themselves."""

    def _append_row(self, span: int, position: int, frame: exact.InterpretedFrame) -> None:
        rows = self._count_rows()
        extra = [position, span] if self._spans else []
        extra += [frame.checksum] if self._has_verdicts else []
        row = [frame.end, *extra, *(frame.values[path] for path in self._list_columns)]
        for column, value in zip(self._lists, row, strict=True):
            column.append(value)
        for flat, record in zip(self._record_lists, self._records, strict=True):
            flat[rows * len(record.columns) :] = [frame.values[path] for path in record.columns]

    def _make_table(self, rows: int) -> ColumnTable:
        end, *rest = (column[:rows] for column in self._lists)
        columns: dict[str, Column] = {"end": end}
        if self._spans:
            columns["offset"], columns["span"] = rest[0], rest[1]
            rest = rest[2:]
        else:
            columns["offset"] = [self._start, *end[:-1]] if rows else []
        columns["checksum"] = rest.pop(0) if self._has_verdicts else [self._verdict] * rows
        columns.update(zip(self._list_columns, rest, strict=True))
        columns.update(
            (path, self._slice_record_column(path, rows)) for path in self.columns if path in self._record_positions
        )
        return ColumnTable(rows, columns)

    def _slice_record_column(self, path: str, rows: int) -> Column:
        """Return a column of a record kernel; kernels compute with unbounded integers, so values may have to be
        wrapped.
        """
        record, offset = self._record_positions[path]
        width = len(self._records[record].columns)
        values = self._record_lists[record][offset : rows * width : width]
        fits = not values or (max(values) <= I64_MAX and min(values) >= I64_MIN)
        return values if fits else [wrap_int64(value) for value in values]


def _check_spans(buf: Any, starts: Column, ends: Column, first: int, count: int) -> tuple[list[int], list[int]]:
    starts, ends = list(map(int, starts[:count])), list(map(int, ends[:count]))
    size = len(buf)
    for start, end in zip(starts[first:], ends[first:], strict=True):
        if not 0 <= start <= end <= size:
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")
    return starts, ends
