"""Decode the rows of row events that share their table and their present columns.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from binlogtool.formats.binlog_events.rows.images import ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Kernel

Row = dict[str, dict[str, Any]]
"""{"before": {column: value}, "after": {column: value}}; only the images that the event has."""

_MANY = 512
"""Bytes of images; of fewer, Python's own loop is as fast as a call of native code."""


class RowReader:
    """Reads rows that have a before image, an after image, or both."""

    __slots__ = ("_after", "_before", "_cells")

    def __init__(self, before: ImageReader | None, after: ImageReader | PartialImageReader | None) -> None:
        self._before = before
        self._after = after
        self._cells: tuple[array[int], int, int] | None = None

    def decode(self, data: bytes, at: int, budget: Budget) -> list[Row]:
        """Decode all rows from `offset` to the end.

        Raises:
            MalformedError: the images do not fit, or a value is not valid for its type.
            CodecError: see `ImageReader`.
        """
        if self._before is None:
            return [] if self._after is None else _decode_single(self._after, "after", data, at, budget)
        if self._after is None:
            return _decode_single(self._before, "before", data, at, budget)
        return _decode_pairs(self._before, self._after, data, at, budget)

    def count(self, data: bytes, at: int, compiled: Kernel | None = None) -> int:
        """Count the rows from `offset` to the end.

        Args:
            compiled: native `image_kernels.count_image_rows`, if available.

        Raises:
            MalformedError: the images do not fit.
        """
        if compiled is not None and len(data) - at >= _MANY and not isinstance(self._after, PartialImageReader):
            rows: int = compiled(data, at, len(data), *self._shape(self._after))
            if rows >= 0:
                return rows
        return sum(1 for _ in self.ends(data, at))  # raises an error that describes the problem

    def _shape(self, after: ImageReader | None) -> tuple[array[int], int, int]:
        """Return the cells and numbers of columns that `count_image_rows` takes."""
        if self._cells is None:
            widths = [image.widths for image in (self._before, after) if image is not None]
            counts = [len(one) for one in widths] + [-1]
            flat = array("q", [number for one in widths for pair in one for number in pair])
            self._cells = flat, counts[0], counts[1]
        return self._cells

    def ends(self, data: bytes, at: int) -> Iterator[int]:
        """Iterate over the ends of the rows from `offset` on.

        Raises:
            MalformedError: the images do not fit.
        """
        skips = [image.skip for image in (self._before, self._after) if image is not None]
        end = len(data)
        while at < end:
            behind = at
            for skip in skips:
                behind = skip(data, behind)
            _check_progress(at, behind)
            yield behind
            at = behind


def _decode_single(
    image: ImageReader | PartialImageReader, name: str, data: bytes, at: int, budget: Budget
) -> list[Row]:
    decode = image.decode
    rows: list[Row] = []
    end = len(data)
    while at < end:
        values, behind = decode(data, at, budget)
        _check_progress(at, behind)
        rows.append({name: values})
        at = behind
    return rows


def _decode_pairs(
    before: ImageReader, after: ImageReader | PartialImageReader, data: bytes, at: int, budget: Budget
) -> list[Row]:
    rows: list[Row] = []
    end = len(data)
    while at < end:
        old, middle = before.decode(data, at, budget)
        new, behind = after.decode(data, middle, budget)
        _check_progress(at, behind)
        rows.append({"before": old, "after": new})
        at = behind
    return rows


def _check_progress(at: int, behind: int) -> None:
    if behind == at:
        raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")
