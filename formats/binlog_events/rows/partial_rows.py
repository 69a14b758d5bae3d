"""Read the after images of PARTIAL_UPDATE_ROWS, where JSON columns may hold only the changed parts.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.formats.binlog_events.rows.images import ImageField, ImageReader, Values, decode_value
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.binary_json import decode_diff
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError

PARTIAL_JSON_UPDATES = 1
"""Bit of value_options."""

_EMPTY_DIFF = {"$diff": list[Any]()}


def fill_unchanged_json(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Replace empty JSON differences of an after image by the values of the before image, where it has them."""
    return {name: before.get(name, value) if value == _EMPTY_DIFF else value for name, value in after.items()}


class PartialImageReader:
    """Reads `value_options`, the bitmap of the columns that are differences, and the image itself.

    Args:
        table_map: the map of the table.
        present: indexes of the present columns, in order.
    """

    __slots__ = ("_image", "_json_columns", "_present")

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        self._image = ImageReader(table_map, present)
        self._present = present
        self._json_columns = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def decode(self, data: bytes, offset: int, budget: DecodeBudget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        A difference is {"$diff": [{"op", "path", "value"}, ...]}; it is empty for a column that did not change.

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
        """
        differences, offset = self._read_head(data, offset)
        if not differences:
            return self._image.decode(data, offset, budget)
        values: Values = {}
        end = offset
        for place, cell, start, end in self._image.iter_fields(data, offset, differences):
            if start < 0:
                values[cell.key] = None
            elif place in differences:
                values[cell.key] = {"$diff": decode_diff(data[start:end], budget.max_depth)}
            else:
                values[cell.key] = decode_value(cell, data[start:end], start, budget)
        return values, end

    def list_fields(self, data: bytes, offset: int) -> tuple[list[ImageField], frozenset[int]]:
        """List the values of the image at `offset`, and the positions of those that are differences.

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        differences, offset = self._read_head(data, offset)
        return list(self._image.iter_fields(data, offset, differences)), differences

    def skip(self, data: bytes, offset: int) -> int:
        """Find the end of the image at `offset`."""
        differences, offset = self._read_head(data, offset)
        if not differences:
            return self._image.skip(data, offset)
        return max((field.end for field in self._image.iter_fields(data, offset, differences)), default=offset)

    def _read_head(self, data: bytes, offset: int) -> tuple[frozenset[int], int]:
        """Read what precedes the image: (positions of the columns that are differences, start of the image)."""
        reader = BoundedReader(data, "PARTIAL_UPDATE_ROWS", offset)
        options = reader.read_lenenc("value_options")
        if options & ~PARTIAL_JSON_UPDATES:
            raise MalformedError(f"value_options 0x{options:x} at byte {offset:,} are not known")
        if not options:
            return frozenset(), reader.offset
        bits = reader.read_bytes((len(self._json_columns) + 7) // 8, "the bitmap of partial JSON columns")
        partial_columns = {
            index for place, index in enumerate(self._json_columns) if bits[place >> 3] >> (place & 7) & 1
        }
        return frozenset(place for place, index in enumerate(self._present) if index in partial_columns), reader.offset
