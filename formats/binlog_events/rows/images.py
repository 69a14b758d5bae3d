"""Decode row images: a bitmap of NULLs, then the values of the present columns.

See docs/spec/mysql_binlog.md#row-events. `ImageReader` reads one kind of image (one table, one set of
present columns) in two ways with the same result: column by column, which reports exactly what is wrong, and with a
function generated for one pattern of NULLs (`image_source`), which is several times as fast and is generated only for
patterns that occur often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import error as StructError
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.rows.image_source import (
    ColumnReader,
    generate_decode_function,
    generate_skip_function,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.values.columns import ColumnKind, TableMapColumn
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget, value_converter, value_reader
from binlogtool.formats.fields import MalformedError

Values = dict[str, Any]


class ImageField(NamedTuple):
    """One value in an image.

    Attributes:
        position: position among the present columns.
        column: how the column is read.
        start: first byte of the value; -1 = NULL.
        end: end of the value.
    """

    position: int
    column: ColumnReader
    start: int
    end: int


_MIN_PATTERN_USES = 8
"""A pattern of NULLs that was met so many times gets a function of its own."""
_MAX_PATTERNS = 64
_MAX_GENERATED_COLUMNS = 1024
"""Columns of an image; wider ones are always read column by column."""


class ImageReader:
    """Reads row images of one table with one set of present columns.

    Args:
        table_map: the map of the table.
        present: indexes of the present columns, in order.
    """

    __slots__ = ("_columns", "_decoders", "_pattern_uses", "_skippers", "null_bytes")

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        cells = _column_readers(table_map)
        self._columns = tuple(cells[index] for index in present)
        self.null_bytes = (len(present) + 7) // 8
        self._pattern_uses: dict[bytes, int] = {}
        self._decoders: dict[bytes, Callable[..., tuple[Values, int]]] = {}
        self._skippers: dict[bytes, Callable[[bytes, int], int]] = {}

    @property
    def widths(self) -> list[tuple[int, int]]:
        """(Size of a fixed value, bytes of the length before a value) of each present column."""
        return [(cell.fixed, cell.prefix) for cell in self._columns]

    def decode(self, data: bytes, offset: int, budget: DecodeBudget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
            CodecError: a compressed value cannot be unpacked.
        """
        start = offset + self.null_bytes
        nulls = data[offset:start]
        fast = self._decoders.get(nulls)
        if fast is None:
            if self._is_frequent_pattern(nulls):
                self._decoders[nulls] = generate_decode_function(self._non_null_columns(nulls), self._columns)
            return self._decode_by_column(data, offset, budget)
        try:
            values, end = fast(data, start, budget)
        except (IndexError, StructError, MalformedError):
            return self._decode_by_column(data, offset, budget)
        if end > len(data):
            return self._decode_by_column(data, offset, budget)
        return values, end

    def skip(self, data: bytes, offset: int) -> int:
        """Find the end of the image at `offset`.

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        start = offset + self.null_bytes
        nulls = data[offset:start]
        fast = self._skippers.get(nulls)
        if fast is None:
            if self._is_frequent_pattern(nulls):
                self._skippers[nulls] = generate_skip_function(self._non_null_columns(nulls))
            return self._skip_by_column(data, offset)
        try:
            end = fast(data, start)
        except IndexError:
            return self._skip_by_column(data, offset)
        return end if end <= len(data) else self._skip_by_column(data, offset)

    def _is_frequent_pattern(self, nulls: bytes) -> bool:
        """Count a use of a NULL pattern; True if it is worth a generated function."""
        if len(self._columns) > _MAX_GENERATED_COLUMNS or len(nulls) != self.null_bytes:
            return False
        uses = self._pattern_uses.get(nulls, 0) + 1
        if len(self._pattern_uses) >= _MAX_PATTERNS * _MIN_PATTERN_USES:
            self._pattern_uses.clear()
        self._pattern_uses[nulls] = uses
        return uses >= _MIN_PATTERN_USES and len(self._decoders) + len(self._skippers) < _MAX_PATTERNS

    def _non_null_columns(self, nulls: bytes) -> tuple[ColumnReader, ...]:
        mask = int.from_bytes(nulls, "little")
        return tuple(cell for place, cell in enumerate(self._columns) if not mask >> place & 1)

    def iter_fields(self, data: bytes, offset: int, differences: frozenset[int] = frozenset()) -> Iterator[ImageField]:
        """Iterate over the values of the image at `offset`.

        Args:
            differences: positions of the values that have a length of 4 bytes before them (partial JSON updates).

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        start = offset + self.null_bytes
        if start > len(data):
            left = len(data) - offset
            raise MalformedError(f"the row image at byte {offset:,} has {left} of {self.null_bytes} bytes of NULL bits")
        nulls = int.from_bytes(data[offset:start], "little")
        offset = start
        for place, cell in enumerate(self._columns):
            if nulls >> place & 1:
                yield ImageField(place, cell, -1, offset)
            else:
                start, offset = _find_value_bounds(data, offset, cell, 4 if place in differences else cell.prefix)
                yield ImageField(place, cell, start, offset)

    def _decode_by_column(self, data: bytes, offset: int, budget: DecodeBudget) -> tuple[Values, int]:
        values: Values = {}
        end = offset + self.null_bytes
        for _, cell, start, end in self.iter_fields(data, offset):
            values[cell.key] = None if start < 0 else decode_value(cell, data[start:end], start, budget)
        return values, end

    def _skip_by_column(self, data: bytes, offset: int) -> int:
        return max((field.end for field in self.iter_fields(data, offset)), default=offset)


def decode_value(column: ColumnReader, raw: bytes, start: int, budget: DecodeBudget) -> Any:
    """Decode one value from its bytes; an error names the column and the position."""
    try:
        return column.convert(raw, budget)
    except MalformedError as error:
        raise MalformedError(f"{column.label} at byte {start:,}: {error}", finding_id=error.finding_id) from None


def _find_value_bounds(data: bytes, offset: int, column: ColumnReader, prefix: int) -> tuple[int, int]:
    """Find where the bytes of a value start and end."""
    start = offset + prefix
    if start > len(data):
        raise _truncated_value_error(column, offset, prefix, len(data))
    end = start + (int.from_bytes(data[offset:start], "little") if prefix else column.fixed)
    if end > len(data):
        raise _truncated_value_error(column, start, end - start, len(data))
    return start, end


def _truncated_value_error(column: ColumnReader, offset: int, needed: int, size: int) -> MalformedError:
    return MalformedError(f"{column.label} at byte {offset:,} needs {needed:,} bytes, only {size - offset:,} are left")


def _column_readers(table_map: TableMap) -> tuple[ColumnReader, ...]:
    """Return readers of all columns of a table; created once per table map."""
    readers: tuple[ColumnReader, ...] | None = table_map.memo.get("cells")
    if readers is None:
        kinds = column_kinds(table_map)
        readers = tuple(map(_make_column_reader, table_map.columns, kinds, table_map.column_keys, range(len(kinds))))
        table_map.memo["cells"] = readers
    return readers


def _make_column_reader(column: TableMapColumn, kind: ColumnKind, key: str, index: int) -> ColumnReader:
    label = f"column {index + 1} ({column.type_name})"
    return ColumnReader(key, kind, value_reader(column, kind), value_converter(column, kind), label)
