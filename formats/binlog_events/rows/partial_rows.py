"""Read the after images of PARTIAL_UPDATE_ROWS, where JSON columns may hold only the changed parts.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.formats.binlog_events.rows.images import Field, ImageReader, Values, value_of
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.binary_json import decode_diff
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError

PARTIAL_JSON = 1
"""Bit of value_options."""

_NOTHING = {"$diff": list[Any]()}


def with_kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Replace empty JSON differences of an after image by the values of the before image, where it has them."""
    return {name: before.get(name, value) if value == _NOTHING else value for name, value in after.items()}


class PartialImageReader:
    """Reads `value_options`, the bitmap of the columns that are differences, and the image itself.

    Args:
        table_map: the map of the table.
        present: indexes of the present columns, in order.
    """

    __slots__ = ("_image", "_json", "_present")

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        self._image = ImageReader(table_map, present)
        self._present = present
        self._json = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def decode(self, data: bytes, at: int, budget: Budget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        A difference is {"$diff": [{"op", "path", "value"}, ...]}; it is empty for a column that did not change.

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
        """
        differences, at = self._head(data, at)
        if not differences:
            return self._image.decode(data, at, budget)
        values: Values = {}
        end = at
        for place, cell, start, end in self._image.fields(data, at, differences):
            if start < 0:
                values[cell.key] = None
            elif place in differences:
                values[cell.key] = {"$diff": decode_diff(data[start:end], budget.max_depth)}
            else:
                values[cell.key] = value_of(cell, data[start:end], start, budget)
        return values, end

    def fields(self, data: bytes, at: int) -> tuple[list[Field], frozenset[int]]:
        """List the values of the image at `offset`, and the positions of those that are differences.

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        differences, at = self._head(data, at)
        return list(self._image.fields(data, at, differences)), differences

    def skip(self, data: bytes, at: int) -> int:
        """Find the end of the image at `offset`."""
        differences, at = self._head(data, at)
        if not differences:
            return self._image.skip(data, at)
        return max((field.end for field in self._image.fields(data, at, differences)), default=at)

    def _head(self, data: bytes, at: int) -> tuple[frozenset[int], int]:
        """Read what precedes the image: (positions of the columns that are differences, start of the image)."""
        reader = Reader(data, "PARTIAL_UPDATE_ROWS", at)
        options = reader.lenenc("value_options")
        if options & ~PARTIAL_JSON:
            raise MalformedError(f"value_options 0x{options:x} at byte {at:,} are not known")
        if not options:
            return frozenset(), reader.at
        bits = reader.take((len(self._json) + 7) // 8, "the bitmap of partial JSON columns")
        partial = {index for place, index in enumerate(self._json) if bits[place >> 3] >> (place & 7) & 1}
        return frozenset(place for place, index in enumerate(self._present) if index in partial), reader.at
