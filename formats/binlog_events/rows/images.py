"""Decode row images: a bitmap of NULLs, then the values of the present columns.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v. `ImageReader` reads one kind of image (one table, one set of
present columns) in two ways with the same result: column by column, which reports exactly what is wrong, and with a
function generated for one pattern of NULLs (`image_source`), which is several times as fast and is generated only for
patterns that occur often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import error as StructError
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.rows.image_source import Cell, decode_function, skip_function
from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.values.columns import Column, ColumnKind
from binlogtool.formats.binlog_events.values.decoding import Budget, converter, reader_of
from binlogtool.formats.fields import MalformedError

Values = dict[str, Any]


class Field(NamedTuple):
    """One value in an image.

    Attributes:
        position: position among the present columns.
        column: how the column is read.
        start: first byte of the value; -1 = NULL.
        end: end of the value.
    """

    place: int
    cell: Cell
    start: int
    end: int


_OFTEN = 8
"""A pattern of NULLs that was met so many times gets a function of its own."""
_MAX_PATTERNS = 64
_MAX_GENERATED = 1024
"""Columns of an image; wider ones are always read column by column."""


class ImageReader:
    """Reads row images of one table with one set of present columns.

    Args:
        table_map: the map of the table.
        present: indexes of the present columns, in order.
    """

    __slots__ = ("_cells", "_decoders", "_met", "_skippers", "null_bytes")

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        cells = _cells(table_map)
        self._cells = tuple(cells[index] for index in present)
        self.null_bytes = (len(present) + 7) // 8
        self._met: dict[bytes, int] = {}
        self._decoders: dict[bytes, Callable[..., tuple[Values, int]]] = {}
        self._skippers: dict[bytes, Callable[[bytes, int], int]] = {}

    @property
    def widths(self) -> list[tuple[int, int]]:
        """(Size of a fixed value, bytes of the length before a value) of each present column."""
        return [(cell.fixed, cell.prefix) for cell in self._cells]

    def decode(self, data: bytes, at: int, budget: Budget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
            CodecError: a compressed value cannot be unpacked.
        """
        start = at + self.null_bytes
        nulls = data[at:start]
        fast = self._decoders.get(nulls)
        if fast is None:
            if self._comes_often(nulls):
                self._decoders[nulls] = decode_function(self._present(nulls), self._cells)
            return self._decode_slowly(data, at, budget)
        try:
            values, end = fast(data, start, budget)
        except (IndexError, StructError, MalformedError):
            return self._decode_slowly(data, at, budget)
        if end > len(data):
            return self._decode_slowly(data, at, budget)
        return values, end

    def skip(self, data: bytes, at: int) -> int:
        """Find the end of the image at `offset`.

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        start = at + self.null_bytes
        nulls = data[at:start]
        fast = self._skippers.get(nulls)
        if fast is None:
            if self._comes_often(nulls):
                self._skippers[nulls] = skip_function(self._present(nulls))
            return self._skip_slowly(data, at)
        try:
            end = fast(data, start)
        except IndexError:
            return self._skip_slowly(data, at)
        return end if end <= len(data) else self._skip_slowly(data, at)

    def _comes_often(self, nulls: bytes) -> bool:
        """Count a use of a NULL pattern; True if it is worth a generated function."""
        if len(self._cells) > _MAX_GENERATED or len(nulls) != self.null_bytes:
            return False
        met = self._met.get(nulls, 0) + 1
        if len(self._met) >= _MAX_PATTERNS * _OFTEN:
            self._met.clear()
        self._met[nulls] = met
        return met >= _OFTEN and len(self._decoders) + len(self._skippers) < _MAX_PATTERNS

    def _present(self, nulls: bytes) -> tuple[Cell, ...]:
        mask = int.from_bytes(nulls, "little")
        return tuple(cell for place, cell in enumerate(self._cells) if not mask >> place & 1)

    def fields(self, data: bytes, at: int, differences: frozenset[int] = frozenset()) -> Iterator[Field]:
        """Iterate over the values of the image at `offset`.

        Args:
            differences: positions of the values that have a length of 4 bytes before them (partial JSON updates).

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        start = at + self.null_bytes
        if start > len(data):
            left = len(data) - at
            raise MalformedError(f"the row image at byte {at:,} has {left} of {self.null_bytes} bytes of NULL bits")
        nulls = int.from_bytes(data[at:start], "little")
        at = start
        for place, cell in enumerate(self._cells):
            if nulls >> place & 1:
                yield Field(place, cell, -1, at)
            else:
                start, at = _bounds(data, at, cell, 4 if place in differences else cell.prefix)
                yield Field(place, cell, start, at)

    def _decode_slowly(self, data: bytes, at: int, budget: Budget) -> tuple[Values, int]:
        values: Values = {}
        end = at + self.null_bytes
        for _, cell, start, end in self.fields(data, at):
            values[cell.key] = None if start < 0 else value_of(cell, data[start:end], start, budget)
        return values, end

    def _skip_slowly(self, data: bytes, at: int) -> int:
        return max((field.end for field in self.fields(data, at)), default=at)


def value_of(cell: Cell, raw: bytes, start: int, budget: Budget) -> Any:
    """Decode one value from its bytes; an error names the column and the position."""
    try:
        return cell.convert(raw, budget)
    except MalformedError as error:
        raise MalformedError(f"{cell.label} at byte {start:,}: {error}", finding_id=error.finding_id) from None


def _bounds(data: bytes, at: int, cell: Cell, prefix: int) -> tuple[int, int]:
    """Find where the bytes of a value start and end."""
    start = at + prefix
    if start > len(data):
        raise _beyond(cell, at, prefix, len(data))
    end = start + (int.from_bytes(data[at:start], "little") if prefix else cell.fixed)
    if end > len(data):
        raise _beyond(cell, start, end - start, len(data))
    return start, end


def _beyond(cell: Cell, at: int, needed: int, size: int) -> MalformedError:
    return MalformedError(f"{cell.label} at byte {at:,} needs {needed:,} bytes, only {size - at:,} are left")


def _cells(table_map: TableMap) -> tuple[Cell, ...]:
    """Return readers of all columns of a table; created once per table map."""
    cells: tuple[Cell, ...] | None = table_map.memo.get("cells")
    if cells is None:
        kinds = column_kinds(table_map)
        cells = tuple(map(_cell, table_map.columns, kinds, table_map.keys, range(len(kinds))))
        table_map.memo["cells"] = cells
    return cells


def _cell(column: Column, kind: ColumnKind, key: str, index: int) -> Cell:
    label = f"column {index + 1} ({column.type_name})"
    return Cell(key, kind, reader_of(column, kind), converter(column, kind), label)
