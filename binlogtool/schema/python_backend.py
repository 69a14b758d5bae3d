"""The scanner without native code: generated Python around `struct` and a fast CRC."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Any

from binlogtool.formats.layouts import Column, Kernel, Table
from binlogtool.schema import exact
from binlogtool.schema.drive import DrivenScanner
from binlogtool.schema.expressions import I64_MAX, I64_MIN, signed
from binlogtool.schema.lower import lower
from binlogtool.schema.operations import Program
from binlogtool.schema.python_codegen import constant_verdict, flat_records, keeps_verdicts, walk_source


class PythonBackend:
    """The backend that always works: no extra dependency, no start-up cost."""

    name = "python"

    def scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> PythonScanner:
        """Create a scanner; the generated functions are shared.

        Raises:
            UnlowerableError: see `Backend.make_scanner`.
        """
        return PythonScanner(_program(schema, tuple(columns)), tuple(columns), capacity)

    def compile(self, function: Kernel) -> Kernel:
        """Return the function unchanged."""
        return function


@lru_cache(maxsize=256)
def _program(schema: Any, columns: tuple[str, ...]) -> Program:
    return lower(schema, columns)


@lru_cache(maxsize=256)
def _generated(program: Program, columns: tuple[str, ...], spans: bool) -> Any:
    text, names = walk_source(program, columns, spans)
    exec(compile(text, "<generated scanner>", "exec"), names)
    return names["walk"]


class PythonScanner(DrivenScanner):
    """A scanner whose columns are lists, which take several times the memory of arrays."""

    max_span_rows = 1 << 19

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        self._records = flat_records(program)
        self._recorded = {path: (i, j) for i, op in enumerate(self._records) for j, path in enumerate(op.columns)}
        self._stored = [path for path in columns if path not in self._recorded]
        self._verdicts = keeps_verdicts(program)
        self._verdict = constant_verdict(program)
        self._functions: dict[bool, Any] = {}

    def _open(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        if spans not in self._functions:
            self._functions[spans] = _generated(self._program, self.columns, spans)
        self._walk_function = self._functions[spans]
        self._start, self._spans = (int(starts[first]) if first < count else 0), spans
        if spans:
            starts, ends = _checked(buf, starts, ends, first, count)
        self._input = (buf, memoryview(buf), starts, ends)
        extra = 2 * spans + self._verdicts
        self._lists: list[list[int]] = [[] for _ in range(1 + extra + len(self._stored))]
        self._flat: list[list[int]] = [[] for _ in self._records]

    def _close(self) -> None:
        self._input[1].release()
        del self._input

    def _walk(self, span: int, count: int, at: int) -> tuple[int, int]:
        stopped: tuple[int, int] = self._walk_function(
            *self._input, span, count, at, self._capacity, self._lists, self._flat
        )
        return stopped

    def _count(self) -> int:
        return len(self._lists[0])

    def _rows_before(self, span: int) -> int:
        return bisect_left(self._lists[2], span)

    def _grow(self) -> None:
        """Lists grow by themselves."""

    def _append(self, span: int, at: int, frame: exact.Frame) -> None:
        rows = self._count()
        extra = [at, span] if self._spans else []
        extra += [frame.checksum] if self._verdicts else []
        row = [frame.end, *extra, *(frame.values[path] for path in self._stored)]
        for column, value in zip(self._lists, row, strict=True):
            column.append(value)
        for flat, record in zip(self._flat, self._records, strict=True):
            flat[rows * len(record.columns) :] = [frame.values[path] for path in record.columns]

    def _table(self, rows: int) -> Table:
        end, *rest = (column[:rows] for column in self._lists)
        columns: dict[str, Column] = {"end": end}
        if self._spans:
            columns["offset"], columns["span"] = rest[0], rest[1]
            rest = rest[2:]
        else:
            columns["offset"] = [self._start, *end[:-1]] if rows else []
        columns["checksum"] = rest.pop(0) if self._verdicts else [self._verdict] * rows
        columns.update(zip(self._stored, rest, strict=True))
        columns.update((path, self._record_column(path, rows)) for path in self.columns if path in self._recorded)
        return Table(rows, columns)

    def _record_column(self, path: str, rows: int) -> Column:
        """Return a column of a record kernel; kernels compute with unbounded integers, so values may have to be
        wrapped.
        """
        record, place = self._recorded[path]
        width = len(self._records[record].columns)
        values = self._flat[record][place : rows * width : width]
        fits = not values or (max(values) <= I64_MAX and min(values) >= I64_MIN)
        return values if fits else [signed(value) for value in values]


def _checked(buf: Any, starts: Column, ends: Column, first: int, count: int) -> tuple[list[int], list[int]]:
    starts, ends = list(map(int, starts[:count])), list(map(int, ends[:count]))
    size = len(buf)
    for start, end in zip(starts[first:], ends[first:], strict=True):
        if not 0 <= start <= end <= size:
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")
    return starts, ends
