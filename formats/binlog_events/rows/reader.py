"""Decode the rows of row events that share their table and their present columns.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from binlogtool.formats.binlog_events.rows.images import ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Kernel

Row = dict[str, dict[str, Any]]
"""{"before": {column: value}, "after": {column: value}}; only the images that the event has."""

_MIN_COMPILED_BYTES = 512
"""Bytes of images; of fewer, Python's own loop is as fast as a call of native code."""


class RowReader:
    """Reads rows that have a before image, an after image, or both."""

    __slots__ = ("_after", "_before", "_kernel_arguments")

    def __init__(self, before: ImageReader | None, after: ImageReader | PartialImageReader | None) -> None:
        self._before = before
        self._after = after
        self._kernel_arguments: tuple[array[int], int, int] | None = None

    def decode(self, data: bytes, offset: int, budget: DecodeBudget) -> list[Row]:
        """Decode all rows from `offset` to the end.

        Raises:
            MalformedError: the images do not fit, or a value is not valid for its type.
            CodecError: see `ImageReader`.
        """
        if self._before is None:
            return [] if self._after is None else _decode_single_images(self._after, "after", data, offset, budget)
        if self._after is None:
            return _decode_single_images(self._before, "before", data, offset, budget)
        return _decode_image_pairs(self._before, self._after, data, offset, budget)

    def count_rows(self, data: bytes, offset: int, compiled: Kernel | None = None) -> int:
        """Count the rows from `offset` to the end.

        Args:
            compiled: native `image_kernels.count_image_rows`, if available.

        Raises:
            MalformedError: the images do not fit.
        """
        if (
            compiled is not None
            and len(data) - offset >= _MIN_COMPILED_BYTES
            and not isinstance(self._after, PartialImageReader)
        ):
            rows: int = compiled(data, offset, len(data), *self._column_widths(self._after))
            if rows >= 0:
                return rows
        return sum(1 for _ in self.iter_row_ends(data, offset))  # raises an error that describes the problem

    def _column_widths(self, after: ImageReader | None) -> tuple[array[int], int, int]:
        """Return the cells and numbers of columns that `count_image_rows` takes."""
        if self._kernel_arguments is None:
            widths = [image.widths for image in (self._before, after) if image is not None]
            counts = [len(one) for one in widths] + [-1]
            cells = array("q", [number for one in widths for pair in one for number in pair])
            self._kernel_arguments = cells, counts[0], counts[1]
        return self._kernel_arguments

    def iter_row_ends(self, data: bytes, offset: int) -> Iterator[int]:
        """Iterate over the ends of the rows from `offset` on.

        Raises:
            MalformedError: the images do not fit.
        """
        skips = [image.skip for image in (self._before, self._after) if image is not None]
        end = len(data)
        while offset < end:
            row_end = offset
            for skip in skips:
                row_end = skip(data, row_end)
            _check_progress(offset, row_end)
            yield row_end
            offset = row_end


def _decode_single_images(
    image: ImageReader | PartialImageReader, name: str, data: bytes, offset: int, budget: DecodeBudget
) -> list[Row]:
    decode = image.decode
    rows: list[Row] = []
    end = len(data)
    while offset < end:
        values, row_end = decode(data, offset, budget)
        _check_progress(offset, row_end)
        rows.append({name: values})
        offset = row_end
    return rows


def _decode_image_pairs(
    before: ImageReader, after: ImageReader | PartialImageReader, data: bytes, offset: int, budget: DecodeBudget
) -> list[Row]:
    rows: list[Row] = []
    end = len(data)
    while offset < end:
        old, middle = before.decode(data, offset, budget)
        new, row_end = after.decode(data, middle, budget)
        _check_progress(offset, row_end)
        rows.append({"before": old, "after": new})
        offset = row_end
    return rows


def _check_progress(offset: int, row_end: int) -> None:
    if row_end == offset:
        raise MalformedError(f"bytes from {offset:,} on belong to no row: the images have no columns")
