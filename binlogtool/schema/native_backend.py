"""Run walks and kernels as native code, compiled when the package was built; columns are memory, not lists.

What the library does not have runs as Python: walks of schemas that were not enumerated for the build, kernels that
changed after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache, wraps
from typing import Any

from binlogtool.formats.layouts import Column, Kernel, Table
from binlogtool.formats.room import words
from binlogtool.schema import exact, identity
from binlogtool.schema.drive import DrivenScanner
from binlogtool.schema.library import Entry, Held, Library, integers, library
from binlogtool.schema.lower import lower
from binlogtool.schema.operations import Program
from binlogtool.schema.python_backend import PythonBackend
from binlogtool.schema.scanner import Scanner
from binlogtool.schema.walk_source import FIRST, SPAN, polynomials, scratch_size, walk_text

_STAGGER = 72
"""Unused places behind each column: columns whose distance is a power of two fall into the same lines of the cache."""


class NativeBackend:
    """Runs the functions of a library.

    Attributes:
        missing: What the library does not have, in words (for tests and `--version -v`).
    """

    name = "native"

    def __init__(self, held: Library) -> None:
        self.library = held
        self.missing: list[str] = []
        self._plain = PythonBackend()
        self._compiled: dict[Kernel, Kernel] = {}

    def scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> Scanner:
        """Create a scanner.

        Raises:
            UnlowerableError: see `Backend.make_scanner`.
        """
        program, symbol = _program(schema, tuple(columns))
        entry = self.entry(symbol, 3, f"the walk of {schema!r} with {columns}")
        if entry is None:
            return self._plain.scanner(schema, columns, capacity)
        return NativeScanner(program, tuple(columns), capacity, self.library, entry)

    def compile(self, function: Kernel) -> Kernel:
        """Return the kernel as native code, or unchanged."""
        if function not in self._compiled:
            self._compiled[function] = self._found(function)
        return self._compiled[function]

    def entry(self, symbol: str, results: int, what: str) -> Entry | None:
        """Return a function of the library; add its description to `missing` if it is not there."""
        found = self.library.entry(symbol, results)
        if found is None:
            self.missing.append(f"{symbol}: {what}")
        return found

    def _found(self, function: Kernel) -> Kernel:
        name = identity.kernel_name(function)
        kind = str(function.__annotations__.get("return", "int"))
        entry = self.entry(f"entry_{name}", 8, f"{function.__module__}.{function.__qualname__}")
        if entry is None:
            return function
        results = kind.count(",") + 1 if kind.startswith("tuple[") else 0
        return _callable(function, entry, results, kind == "bool")


@lru_cache(maxsize=1)
def native_backend() -> NativeBackend | None:
    """Return the backend of this installation; None if there is no library for this machine."""
    held = library()
    return None if held is None else NativeBackend(held)


def _callable(function: Kernel, entry: Entry, results: int, truth: bool) -> Kernel:
    """Return the function to call in place of a kernel.

    Args:
        results: Length of the returned tuple; 0 = one integer.
    """

    @wraps(function)
    def call(*arguments: Any) -> Any:
        held = [one if isinstance(one, int) else Held(_memory(one)) for one in _passed(arguments)]
        try:
            found = entry(*(one if isinstance(one, int) else one.address for one in held))
        finally:
            for one in held:
                if not isinstance(one, int):
                    one.release()
        if results:
            return tuple(found[:results])
        return bool(found[0]) if truth else found[0]

    return call


def _passed(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """The arguments, structs field by field."""
    for one in arguments:
        if isinstance(one, tuple) and hasattr(one, "_fields"):
            yield from one
        else:
            yield one


def _memory(values: Any) -> Any:
    """Return an array as memory: bytes unchanged, integers as 64-bit integers."""
    if isinstance(values, memoryview):
        return values if values.itemsize == 1 else integers(values)
    return values if isinstance(values, (bytes, bytearray)) else integers(values)


@lru_cache(maxsize=256)
def _program(schema: Any, columns: tuple[str, ...]) -> tuple[Program, str]:
    """Return the lowered schema and the name of its walk."""
    program = lower(schema, columns)
    return program, walk_symbol(program, columns)


def walk_symbol(program: Program, columns: tuple[str, ...]) -> str:
    """Return the name of a walk in the library."""
    return identity.symbol_of("walk", walk_text(program, columns, identity.KernelNames()))


class NativeScanner(DrivenScanner):
    """A scanner whose columns are parts of one piece of memory, which the next call overwrites."""

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int, held: Library, entry: Entry) -> None:
        super().__init__(program, columns, capacity)
        self._library, self._entry = held, entry
        self._tables = integers([held.crc_table(poly) for poly in polynomials(program)])
        self._scratch = words(scratch_size(program) + 1)
        self._held = [Held(self._tables), Held(self._scratch)]
        self._rows = 0
        self._make_room()

    def _make_room(self) -> None:
        self._stride = self._capacity + _STAGGER
        self._out = words((FIRST + len(self.columns)) * self._stride)
        self._place = Held(self._out)

    def _open(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        self._input = [Held(one) for one in (buf, integers(starts), integers(ends))]
        self._rows = 0
        if spans:
            if min(len(starts), len(ends)) < count:
                raise ValueError(f"there are fewer than {count} spans")
            wrong = self._library.span_outside(*(one.address for one in self._input[1:]), first, count, len(buf))
            if wrong >= 0:
                self._close()
                raise ValueError(f"span {wrong} is not inside a buffer of {len(buf)} bytes")

    def _close(self) -> None:
        for one in self._input:
            one.release()
        self._input = []

    def _walk(self, span: int, count: int, at: int) -> tuple[int, int]:
        base, starts, ends = (one.address for one in self._input)
        self._rows, span, at = self._entry(
            base, starts, ends, span, count, at, self._rows, self._capacity, self._place.address, self._stride,
            self._held[1].address, self._held[0].address,
        )  # fmt: skip
        return span, at

    def _count(self) -> int:
        return self._rows

    def _row(self, row: int, count: int) -> memoryview:
        return self._out[row * self._stride : row * self._stride + count]

    def _rows_before(self, span: int) -> int:
        return bisect_left(self._row(SPAN, self._rows), span)

    def _grow(self) -> None:
        before = [self._row(row, self._rows) for row in range(FIRST + len(self.columns))]
        self._make_room()
        for row, values in enumerate(before):
            self._row(row, self._rows)[:] = values

    def _append(self, span: int, at: int, frame: exact.Frame) -> None:
        row = (frame.end, at, span, frame.checksum, *(frame.values[path] for path in self.columns))
        for number, value in enumerate(row):
            self._out[number * self._stride + self._rows] = value
        self._rows += 1

    def _table(self, rows: int) -> Table:
        names = ("end", "offset", "span", "checksum", *self.columns)
        return Table(rows, {name: self._row(row, rows) for row, name in enumerate(names)})
