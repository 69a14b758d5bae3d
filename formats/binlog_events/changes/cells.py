"""Store rows of one table in column buffers that compiled code fills (`cell_kernels`)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.changes import cell_kernels as kernels
from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.rows.rows import RowsHead, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.values.charsets import charset_decoder
from binlogtool.formats.binlog_events.values.columns import BLOBS, ColumnKind, TableMapColumn, ValueKind
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget, value_converter
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError, Kernel
from binlogtool.formats.tables import CellSlice, ColumnCells, TableSchema
from binlogtool.limits import Limits

MAX_FILLER_ROWS = 8192
"""When a filler has so many rows, another one follows."""
FILLER_CAPACITY = 4 * MAX_FILLER_ROWS
"""Rows that it has room for."""
_TEXT_BYTES = 24 << 20
_MIN_TEXT_BYTES = 1 << 18
MAX_COMPILED_COLUMNS = 256
_MAX_CACHED_PLANS = _MAX_CACHED_LAYOUTS = 64
_ASCII, _LATIN1_UPPER = bytes(range(128)), bytes(range(0xA0, 0x100))
_FIXED_KINDS = {
    ValueKind.SIGNED: kernels.SIGNED, ValueKind.FLOAT: kernels.UNSIGNED, ValueKind.DOUBLE: kernels.REAL,
    ValueKind.YEAR: kernels.YEAR,
    ValueKind.DATE: kernels.DATE, ValueKind.DATETIME2: kernels.DATETIME, ValueKind.TIMESTAMP2: kernels.TIMESTAMP,
}  # fmt: skip


def _kernel_kind(column: TableMapColumn, kind: ColumnKind) -> tuple[int, int]:
    """Return the kernels' kind of a column, and its parameter; RAW = Python decodes each value."""
    value_kind = kind.kind
    if value_kind == ValueKind.GUESS and column.type in BLOBS:
        return kernels.BYTES, 0
    if value_kind in _FIXED_KINDS:
        return _FIXED_KINDS[ValueKind(value_kind)], kind.parameter
    if value_kind == ValueKind.UNSIGNED:
        return (kernels.WIDE if kind.fixed == 8 else kernels.UNSIGNED), 0
    if value_kind == ValueKind.BIT:
        return (kernels.WIDE_BITS if kind.parameter == 64 else kernels.BITS), 0
    if value_kind == ValueKind.DECIMAL and kind.parameter >> 8 <= 38:
        return kernels.DECIMAL, kind.parameter
    if value_kind == ValueKind.ENUM:
        return kernels.ENUM_OR_SET, (1 << 16) - 1 if column.values is None else len(column.values)
    if value_kind == ValueKind.SET and column.values is not None and len(column.values) < 63:
        return kernels.ENUM_OR_SET, (1 << len(column.values)) - 1
    if value_kind == ValueKind.TIME2:
        return kernels.TIME, kind.parameter
    if value_kind in (ValueKind.UTF8, ValueKind.GUESS):
        return kernels.UTF8, 0
    if value_kind == ValueKind.BYTES:
        return kernels.BYTES, column.padded_size
    if value_kind == ValueKind.TEXT:
        decode = charset_decoder(column.charset)
        if decode(_ASCII) == _ASCII.decode():
            return kernels.SINGLE_BYTE_TEXT, 255 if decode(_LATIN1_UPPER) == _LATIN1_UPPER.decode("latin-1") else 127
    return kernels.RAW, 0


_WIDE_KINDS = (kernels.WIDE, kernels.WIDE_BITS, kernels.DECIMAL)


class ImageLayout(msgspec.Struct, frozen=True):
    """The images of a row event, and their columns.

    Attributes:
        sides: 1 = before, 2 = after, 3 = both.
        images_at: offset of the first image, or of the compressed block, in the body.
        bitmaps: present columns of the before and the after image.
        absent: (side, column) of columns that an image lacks.
    """

    sides: int
    images_at: int
    compressed: bool
    bitmaps: tuple[bytes | None, bytes | None]
    absent: tuple[tuple[int, int], ...]


def parse_image_layout(code: int, body: Any, table_map: TableMap) -> ImageLayout | None:
    """Parse the layout of a row event; None if it does not fit its map. Layouts are cached in the map.

    Raises:
        MalformedError: a part of its head does not fit.
    """
    memo, head_at = table_map.memo, table_map.table_id_size + 2
    size = memo.get(("head", code))
    if size is not None:
        cached: ImageLayout | None = memo.get(("layout", code, bytes(body[head_at:size])))
        if cached is not None:
            return cached
    head = parse_rows_head(code, body, table_map.table_id_size)
    if head.n_cols != len(table_map.columns):
        return None
    if len(memo) > _MAX_CACHED_LAYOUTS:
        memo.clear()
    memo["head", code] = head.images_at
    layout = memo["layout", code, bytes(body[head_at : head.images_at])] = _make_layout(head)
    return layout


def _make_layout(head: RowsHead) -> ImageLayout:
    bitmaps = head.before, head.after
    absent = [
        (side, index)
        for side, bitmap in enumerate(bitmaps)
        if bitmap is not None and not _has_all_columns(bitmap, head.n_cols)
        for index in range(head.n_cols)
        if not _has_column(bitmap, index)
    ]
    sides = (head.before is not None) + 2 * (head.after is not None)
    return ImageLayout(sides, head.images_at, head.compressed, bitmaps, tuple(absent))


def _has_column(bitmap: bytes | None, index: int) -> bool:
    return bitmap is not None and bool(bitmap[index >> 3] >> (index & 7) & 1)


class RowCellFiller:
    """Column buffers for rows of one table, with any combination of images.

    Attributes:
        rows: number of rows stored.
        cells: 64-bit integers of the cells.
        out: flags and texts.
    """

    def __init__(self, table_map: TableMap, table: TableSchema) -> None:
        self.table, self.rows = table, 0
        self._kinds = [_kernel_kind(*pair) for pair in zip(table_map.columns, column_kinds(table_map), strict=True)]
        self._raw_columns = [index for index, (kind, _) in enumerate(self._kinds) if kind == kernels.RAW]
        self._table_map = table_map
        text_columns = 2 * sum(kind >= kernels.TIME for kind, _ in self._kinds)
        self._text_bytes = max(_MIN_TEXT_BYTES, _TEXT_BYTES // max(text_columns, 1))
        self._plan = array("q", [len(self._kinds), 0, 0, 0])
        self._plans: dict[tuple[bytes | None, bytes | None], array[int]] = {}
        words = size = 0
        for (kind, parameter), column_kind in zip(self._kinds, column_kinds(table_map), strict=True):
            offsets = [0] * 8
            for side in (0, 1):
                offsets[side], offsets[2 + side] = words, size
                words += 2 * FILLER_CAPACITY if kind in _WIDE_KINDS else FILLER_CAPACITY + 1
                size += FILLER_CAPACITY
                if kind >= kernels.TIME:
                    offsets[4 + side], offsets[6] = size, self._text_bytes
                    size += self._text_bytes
            self._plan.extend([kind, parameter, column_kind.fixed, column_kind.prefix, *offsets])
        self.cells = memoryview(mmap(-1, 8 * words)).cast("q")
        self.out = memoryview(mmap(-1, size + 64))

    def make_plan(self, layout: ImageLayout) -> array[int]:
        """Return the plan for images with the layout's columns; cached."""
        plan = self._plans.get(layout.bitmaps)
        if plan is None:
            plan = self._plan[:]
            for index in range(len(self._kinds)):
                presence = [_has_column(bitmap, index) for bitmap in layout.bitmaps]
                plan[kernels.PLAN_HEAD_WORDS + kernels.PLAN_COLUMN_WORDS * index + 11] = presence[0] + 2 * presence[1]
                plan[1] += presence[0]
                plan[2] += presence[1]
            if len(self._plans) >= _MAX_CACHED_PLANS:
                self._plans.clear()
            self._plans[layout.bitmaps] = plan
        return plan

    def add_rows(self, store_rows: Kernel, data: Any, offset: int, layout: ImageLayout) -> int:
        """Store the rows of the images in `data` from `offset` on; returns their number, or FULL, or UNSUPPORTED.

        Args:
            store_rows: compiled `cell_kernels.store_rows`.
        """
        plan = self.make_plan(layout)
        target = kernels.CellTarget(FILLER_CAPACITY, self.cells, self.out)
        next_row = store_rows(data, offset, len(data), b"\0", plan, 0, layout.sides, self.rows, target)
        if next_row < 0:
            return int(next_row)
        count, self.rows = next_row - self.rows, next_row
        return int(count)

    @property
    def has_raw_columns(self) -> bool:
        """True if some columns are decoded by Python, value by value."""
        return bool(self._raw_columns)

    def can_decode_raw_values(self, start: int, stop: int, limits: Limits) -> bool:
        """Check if the raw values of the rows `[start, stop)` of an event can be decoded."""
        budget = DecodeBudget(limits)
        try:
            for index in self._raw_columns:
                for side in (0, 1):
                    self._decode_raw_values(self.read_column(index, side, start, stop), index, budget)
        except (MalformedError, DecompressionError, ValueError):
            return False
        return True

    def _decode_raw_values(self, cells: ColumnCells, index: int, budget: DecodeBudget) -> None:
        convert = value_converter(self._table_map.columns[index], column_kinds(self._table_map)[index])
        assert cells.data is not None
        for row, valid in enumerate(cells.valid):
            if valid:
                convert(bytes(cells.data[cells.values[row] : cells.values[row + 1]]), budget)

    def read_column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """See `formats.tables.CellSlice`."""
        kind, _ = self._kinds[index]
        plan_at = kernels.PLAN_HEAD_WORDS + kernels.PLAN_COLUMN_WORDS * index
        at, flags, base = (self._plan[plan_at + k + side] for k in (4, 6, 8))
        valid = self.out[flags + start : flags + stop]
        column = self._table_map.columns[index]
        if kind >= kernels.TIME:
            ends = self.cells[at + start : at + stop + 1]
            data = self.out[base : base + self._text_bytes]
            decode_leaf = None
            if kind == kernels.RAW:
                convert = value_converter(column, column_kinds(self._table_map)[index])
                decode_leaf = _make_leaf_decoder(convert)
            return ColumnCells(ends, valid, data, leaf=decode_leaf)
        is_wide = kind in _WIDE_KINDS
        values = self.cells[at + 2 * start : at + 2 * stop] if is_wide else self.cells[at + start : at + stop]
        texts: Sequence[Any] | None = None
        if kind == kernels.ENUM_OR_SET and column.values is not None:
            texts = column.values
        return ColumnCells(values, valid, None, wide=is_wide, texts=texts)


def _make_leaf_decoder(convert: Callable[[bytes, DecodeBudget], Any]) -> Callable[[bytes, Limits], Any]:
    return lambda raw, limits: convert(raw, DecodeBudget(limits))


class RowCellFillers:
    """The current filler of each table of a log.

    Args:
        compile_kernel: returns the native form of a kernel, or the kernel itself.
    """

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._store_rows = compile_kernel(kernels.store_rows)
        self.is_compiled = self._store_rows is not kernels.store_rows
        self._open: dict[int, tuple[TableMap, RowCellFiller]] = {}

    def store_event(
        self, code: int, body: Any, table_map: TableMap, table: TableSchema, limits: Limits
    ) -> CellSlice | None:
        """Store the rows of an event; None if compiled code cannot decode them."""
        if (
            not self.is_compiled
            or code == EventType.PARTIAL_UPDATE_ROWS
            or len(table_map.columns) > MAX_COMPILED_COLUMNS
        ):
            return None
        try:
            layout = parse_image_layout(code, body, table_map)
            if layout is None:
                return None
            offset = layout.images_at
            data, offset = (unpack_block(body[offset:], limits), 0) if layout.compressed else (body, offset)
            filler = self.current_filler(table_map, table)
            start = filler.rows
            count = filler.add_rows(self._store_rows, data, offset, layout)
            if count == kernels.FULL and start:
                self.close_filler(table_map)
                filler = self.current_filler(table_map, table)
                start = 0
                count = filler.add_rows(self._store_rows, data, offset, layout)
        except (MalformedError, DecompressionError):
            return None
        if count <= 0:
            return None
        if not filler.can_decode_raw_values(start, start + count, limits):
            filler.rows = start
            return None
        return CellSlice(filler, start, count, layout.sides, layout.absent)

    def close_filler(self, table_map: TableMap) -> None:
        """Make the next rows of this map go to a new filler."""
        self._open.pop(id(table_map), None)

    def current_filler(self, table_map: TableMap, table: TableSchema) -> RowCellFiller:
        """Return the filler for the next rows of a table."""
        current = self._open.get(id(table_map))
        if current is None or current[1].rows >= MAX_FILLER_ROWS or current[1].table is not table:
            if len(self._open) >= 16:
                self._open.clear()
            current = self._open[id(table_map)] = table_map, RowCellFiller(table_map, table)
        return current[1]


def _has_all_columns(bitmap: bytes, count: int) -> bool:
    return int.from_bytes(bitmap, "little") & (1 << count) - 1 == (1 << count) - 1
