"""Rows of row events as cells of typed columns, filled by compiled code.

A cell of fixed width is one integer, or two for a decimal (its low and its high half). The cell of a text is the end of
the text, which starts at the end of the previous row's text. A flag says whether a cell has a value, and whether that
is stored as the raw bytes of the log because only Python can decode it. Kernels return UNSUPPORTED for invalid rows,
and FULL if the buffers have no space left.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from mmap import mmap
from typing import Any, NamedTuple

import msgspec

from binlogtool.format_api.json_text_kernels import is_utf8
from binlogtool.format_api.layout import Kernel
from binlogtool.format_api.row_output_interfaces import CellSlice, ColumnCells, TableSchema
from binlogtool.format_api.row_store_kernels import copy_bytes
from binlogtool.format_api.schema_fields import (
    DecompressionError,
    Int64s,
    MalformedError,
    MutableInt64s,
    MutableUInt8s,
    UInt8s,
    bind_sink,
    kernel,
    load_little_endian,
)
from binlogtool.formats.binlog_events.rows.rows_event import RowsHead, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap, get_column_encodings
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import find_value_bounds
from binlogtool.formats.binlog_events.values.column_types import (
    BLOBS,
    FIRST_SIZED,
    UNSUPPORTED_KIND,
    ColumnEncoding,
    TableMapColumn,
    ValueKind,
    adapt_encoding_for_kernels,
)
from binlogtool.formats.binlog_events.values.decode_value_to_sink_kernels import UNSUPPORTED, decode_value_to_sink
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget, get_budgeted_value_decoder
from binlogtool.formats.binlog_events.values.number_and_date_text_kernels import write_time_text
from binlogtool.formats.binlog_events.wire_format import EventType, unpack_compressed_block
from binlogtool.limits import Limits

# ruff: noqa: D102 - `values.decode_value_to_sink_kernels.ValueSink` describes the methods of sinks

# --- Kernels that store rows in column buffers ---

PLAN_HEAD_WORDS, PLAN_COLUMN_WORDS = 4, 13
"""Words of a plan. Head: number of columns, and how many of them the before and after image have. Of each column: kind,
parameter, bytes, bytes of the length; then for the before and the after image: number of its strip of cells, of its
strip of flags, of its area of texts (`RowCellBuffers`); images that have the column (1 = before, 2 = after, 3 = both);
words of a cell, 0 for a text; highest number of an ENUM or SET, -1 for a SET without texts."""
WIDTH_AT, HIGHEST_AT = 11, 12
FULL = -1
NULL_VALUE, STORED_VALUE, RAW_VALUE = range(3)
"""Flags of a cell: no value; a value; the raw bytes of a value, which a cell of fixed width stores as a little-endian
number.
"""


@kernel()
def days_since_epoch(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; -10000000 for an invalid date."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return -10000000
    month_days = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        month_days = 28 + (1 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 0)
    if day > month_days:
        return -10000000
    if month < 3:
        month += 12
        year -= 1
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719469


@kernel()
def sign_extend(value: int) -> int:
    """Return the low 32 bits as a signed number."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


class CellValueSink(NamedTuple):
    """The sink of a value as a cell (`values.decode_value_to_sink_kernels.ValueSink`).

    `at` is a word of `cells`, of a text a byte of `out`. highest: see HIGHEST_AT.
    """

    highest: int
    cells: MutableInt64s
    out: MutableUInt8s

    @kernel()
    def write_signed(self, value: int, out_pos: int) -> int:
        self.cells[out_pos] = value
        return out_pos

    @kernel()
    def write_unsigned(self, value: int, size: int, out_pos: int) -> int:
        self.cells[out_pos] = value
        if size == 8:
            self.cells[out_pos + 1] = 0
        return out_pos

    @kernel(write_unsigned)
    def write_bits(self, value: int, count: int, out_pos: int) -> int:
        return self.write_unsigned(value, count >> 3, out_pos)

    @kernel()
    def write_float(self, bits: int, out_pos: int) -> int:
        self.cells[out_pos] = bits
        return out_pos

    @kernel()
    def write_double(self, bits: int, out_pos: int) -> int:
        self.cells[out_pos] = bits
        return out_pos

    @kernel()
    def begin_decimal(self, is_negative: bool, out_pos: int) -> int:
        self.cells[out_pos] = 0
        self.cells[out_pos + 1] = 0
        return out_pos

    @kernel(sign_extend)
    def write_digit_group(self, value: int, digit_count: int, number_start: int, out_pos: int) -> int:
        """Append digits to the number in the two words; it is computed in four parts of 32 bits."""
        factor = 1
        for _ in range(digit_count):
            factor *= 10
        low = self.cells[out_pos]
        high = self.cells[out_pos + 1]
        value += (low & 0xFFFFFFFF) * factor
        part = value & 0xFFFFFFFF
        value = (value >> 32) + (low >> 32 & 0xFFFFFFFF) * factor
        self.cells[out_pos] = part | sign_extend(value) << 32
        value = (value >> 32) + (high & 0xFFFFFFFF) * factor
        part = value & 0xFFFFFFFF
        value = (value >> 32) + (high >> 32 & 0xFFFFFFFF) * factor
        self.cells[out_pos + 1] = part | sign_extend(value) << 32
        return out_pos

    @kernel()
    def write_decimal_point(self, number_start: int, out_pos: int) -> int:
        return out_pos

    @kernel()
    def end_decimal(self, is_negative: bool, number_start: int, out_pos: int) -> int:
        if is_negative:
            low = self.cells[out_pos] + 0
            self.cells[out_pos] = -low
            self.cells[out_pos + 1] = (0 if low == 0 else -1) - self.cells[out_pos + 1]
        return out_pos

    @kernel(days_since_epoch)
    def write_date(self, packed_date: int, out_pos: int) -> int:
        days = days_since_epoch(packed_date >> 9, packed_date >> 5 & 15, packed_date & 31)
        self.cells[out_pos] = days
        return out_pos if days > -9999999 else UNSUPPORTED

    @kernel(write_time_text)
    def write_time(self, is_negative: bool, packed_time: int, micros: int, fraction_digits: int, out_pos: int) -> int:
        return write_time_text(is_negative, packed_time, micros, fraction_digits, 0, self.out, out_pos)

    @kernel(days_since_epoch)
    def write_datetime(
        self, packed_date: int, packed_time: int, micros: int, fraction_digits: int, out_pos: int
    ) -> int:
        days = days_since_epoch(packed_date >> 9, packed_date >> 5 & 15, packed_date & 31)
        hour = packed_time >> 12
        minute = packed_time >> 6 & 63
        second = packed_time & 63
        if days < -9999999 or hour > 23 or minute > 59 or second > 59:
            return UNSUPPORTED
        self.cells[out_pos] = (days * 86400 + hour * 3600 + minute * 60 + second) * 1000000 + micros
        return out_pos

    @kernel()
    def write_timestamp(self, seconds: int, micros: int, fraction_digits: int, out_pos: int) -> int:
        self.cells[out_pos] = seconds * 1000000 + micros
        return UNSUPPORTED if seconds == 0 else out_pos

    @kernel()
    def write_enum(self, ordinal: int, out_pos: int) -> int:
        self.cells[out_pos] = ordinal
        return out_pos if ordinal <= self.highest else UNSUPPORTED

    @kernel()
    def write_set(self, mask: int, out_pos: int) -> int:
        self.cells[out_pos] = mask
        if self.highest < 0:
            self.cells[out_pos + 1] = 0
            return out_pos
        return out_pos if mask >= 0 and mask <= self.highest else UNSUPPORTED

    @kernel(copy_bytes, is_utf8)
    def write_utf8(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return copy_bytes(buf, pos, limit, self.out, out_pos) if is_utf8(buf, pos, limit) else UNSUPPORTED

    @kernel()
    def write_single_byte_text(self, buf: UInt8s, pos: int, limit: int, highest_unicode_byte: int, out_pos: int) -> int:
        while pos < limit:
            char = buf[pos] + 0
            pos += 1
            if char > highest_unicode_byte or (char >= 0x80 and char < 0xA0):
                return UNSUPPORTED
            if char >= 0x80:
                self.out[out_pos] = 0xC0 | char >> 6
                out_pos += 1
                char = 0x80 | char & 0x3F
            self.out[out_pos] = char
            out_pos += 1
        return out_pos

    @kernel(copy_bytes)
    def write_bytes(self, buf: UInt8s, pos: int, limit: int, padded_width: int, out_pos: int) -> int:
        out_pos = copy_bytes(buf, pos, limit, self.out, out_pos)
        for _ in range(limit - pos, padded_width):
            self.out[out_pos] = 0
            out_pos += 1
        return out_pos

    @kernel()
    def write_geometry(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return UNSUPPORTED

    @kernel()
    def begin_text(self, out_pos: int) -> int:
        return out_pos

    @kernel()
    def write_char(self, char: int, out_pos: int) -> int:
        self.out[out_pos] = char
        return out_pos + 1

    @kernel()
    def end_text(self, out_pos: int) -> int:
        return out_pos


decode_cell = bind_sink(decode_value_to_sink, CellValueSink)
"""Store the value `buf[pos:limit]` as a cell."""

RAW_COUNT, TEXT_SIZE = range(2)


class RowCellBuffers(NamedTuple):
    """Buffers of one filler.

    capacity: number of rows that fit. stride: length of a strip, in words of `cells` and in bytes of `out`. texts_at,
    text_bytes: position of the areas of texts in `out`, and the size of one area. counts: RAW_COUNT (number of raw
    values that Python has to check) and TEXT_SIZE (total size of texts in bytes).
    """

    capacity: int
    stride: int
    texts_at: int
    text_bytes: int
    cells: MutableInt64s
    out: MutableUInt8s
    counts: MutableInt64s


@kernel()
def store_null_cell(plan: Int64s, column_plan_at: int, image_side: int, row: int, target: RowCellBuffers) -> int:
    """Store the cell of a column without a value; `column_plan_at` is the position of the column in the plan."""
    target.out[plan[column_plan_at + 6 + image_side] * target.stride + row] = NULL_VALUE
    if plan[column_plan_at + WIDTH_AT] == 0:
        cell = plan[column_plan_at + 4 + image_side] * target.stride + row
        text_end = target.cells[cell] + 0
        target.cells[cell + 1] = text_end
    return 0


@kernel(copy_bytes, decode_cell, load_little_endian)
def store_cell_value_and_get_status(
    buf: UInt8s,
    pos: int,
    end: int,
    plan: Int64s,
    column_plan_at: int,
    image_side: int,
    row: int,
    target: RowCellBuffers,
) -> int:
    """Store the value `buf[pos:end]` of a column; return 0, FULL or UNSUPPORTED.

    Args:
        column_plan_at: position of the column in the plan.
    """
    kind = plan[column_plan_at]
    parameter = plan[column_plan_at + 1]
    width = plan[column_plan_at + WIDTH_AT]
    cell = plan[column_plan_at + 4 + image_side] * target.stride + row
    base = target.texts_at + plan[column_plan_at + 8 + image_side] * target.text_bytes
    at = cell + row * (width - 1)
    if width == 0:
        at = base + target.cells[cell]
        if base + target.text_bytes - at < 2 * (end - pos) + 64 + (parameter if kind == ValueKind.BYTES else 0):
            return FULL
    value_end = decode_cell(
        buf, pos, end, kind, parameter, CellValueSink(plan[column_plan_at + HIGHEST_AT], target.cells, target.out), at
    )
    if value_end < 0:
        if kind == ValueKind.DECIMAL:
            return UNSUPPORTED
        if width > 0:
            target.cells[at] = load_little_endian(buf, pos, end - pos)
        else:
            value_end = copy_bytes(buf, pos, end, target.out, at)
        if kind != ValueKind.UTF8 and kind != ValueKind.GUESS and kind != ValueKind.TEXT:
            target.counts[RAW_COUNT] += 1
        target.out[plan[column_plan_at + 6 + image_side] * target.stride + row] = RAW_VALUE
    else:
        target.out[plan[column_plan_at + 6 + image_side] * target.stride + row] = STORED_VALUE
    if width == 0:
        target.cells[cell + 1] = value_end - base
        target.counts[TEXT_SIZE] += value_end - at
    return 0


@kernel(find_value_bounds, store_null_cell, store_cell_value_and_get_status)
def store_row_image(
    buf: UInt8s, pos: int, limit: int, plan: Int64s, plan_at: int, image_side: int, row: int, target: RowCellBuffers
) -> tuple[int, int]:
    """Store the image at `buf[pos]`, or cells without values if the event has no such image.

    Returns:
        (end of the image; 0, FULL or UNSUPPORTED).

    Args:
        plan_at: position of the plan in `plan`.
        image_side: 0 = before image, 1 = after image.
    """
    count = plan[plan_at]
    nulls = pos
    bit = 0
    pos += (plan[plan_at + 1 + image_side] + 7) >> 3
    if pos > limit:
        return pos, UNSUPPORTED
    column = plan_at + PLAN_HEAD_WORDS
    for _ in range(count):
        is_null = 1
        if plan[column + 10] >> image_side & 1:
            is_null = buf[nulls + (bit >> 3)] >> (bit & 7) & 1
            bit += 1
        if is_null:
            store_null_cell(plan, column, image_side, row, target)
        else:
            pos, end = find_value_bounds(buf, pos, limit, plan[column + 2], plan[column + 3])
            if end < 0:
                return pos, UNSUPPORTED
            status = store_cell_value_and_get_status(buf, pos, end, plan, column, image_side, row, target)
            if status < 0:
                return pos, status
            pos = end
        column += PLAN_COLUMN_WORDS
    return pos, 0


@kernel(store_row_image)
def store_rows_of_event(
    buf: UInt8s, pos: int, limit: int, plan: Int64s, plan_at: int, row: int, target: RowCellBuffers
) -> int:
    """Store all rows of the images `buf[pos:limit]`, from row `row` on; return the next row, or FULL or UNSUPPORTED.

    Args:
        plan_at: position of the plan in `plan`.
    """
    while pos < limit:
        if row >= target.capacity:
            return FULL
        start = pos
        for side in range(2):
            pos, status = store_row_image(buf, pos, limit, plan, plan_at, side, row, target)
            if status < 0:
                return status
        if pos <= start:
            return UNSUPPORTED
        row += 1
    return row


class PickedEvents(NamedTuple):
    """Row events of one table.

    picks: indexes of entries in `which` and `layouts` (`SelectedRowEvents`). starts, ends: ranges of the bodies of all
    events.
    """

    picks: Int64s
    which: Int64s
    layouts: Int64s
    starts: Int64s
    ends: Int64s


class RowLayouts(NamedTuple):
    """shapes: two words per layout: offset of the images in the body, position of the plan in `plans`."""

    shapes: Int64s
    plans: Int64s


@kernel(store_rows_of_event)
def store_rows_of_events(
    pick: int,
    stop: int,
    picked_events: PickedEvents,
    buf: UInt8s,
    row_layouts: RowLayouts,
    row: int,
    max_rows: int,
    target: RowCellBuffers,
    row_counts: MutableInt64s,
) -> tuple[int, int, int]:
    """Store the rows of the events `picks[pick:stop]` until there are `max_rows` rows.

    Args:
        row_counts: receives the number of rows of each event.

    Returns:
        (first event that was not stored, next row, why it was not stored: 0, FULL or UNSUPPORTED).
    """
    while pick < stop and row < max_rows:
        event = picked_events.picks[pick]
        batch_index = picked_events.which[event]
        shape = 2 * picked_events.layouts[event]
        next_row = store_rows_of_event(
            buf,
            picked_events.starts[batch_index] + row_layouts.shapes[shape],
            picked_events.ends[batch_index],
            row_layouts.plans,
            row_layouts.shapes[shape + 1] + 0,
            row,
            target,
        )
        if next_row < 0:
            return pick, row, next_row
        if next_row == row:
            return pick, row, UNSUPPORTED
        row_counts[event] = next_row - row
        row = next_row
        pick += 1
    return pick, row, 0


# --- Rows of one table in column buffers ---

MAX_FILLER_ROWS = 8192
"""Number of rows after which a new filler is started."""
_CAPACITIES = (16, 128, 1024, 4 * MAX_FILLER_ROWS)
"""Numbers of rows that a filler can hold: tables with few rows in a log have small fillers."""
_MIN_TEXT_AREAS, _MIN_LAST_TEXT_AREA, _LAST_TEXT_BYTES = (1 << 10, 1 << 13, 1 << 16), 1 << 18, 24 << 20
"""Sizes in bytes of the area for a column's texts in an image. The last capacity shares _LAST_TEXT_BYTES instead."""
_MEMORY_DIVISOR = 8
"""Open fillers use at most this fraction of the memory limit (1 / _MEMORY_DIVISOR)."""
_WEIGHTS, _WEIGHT_BETWEEN_CHECKS = (1, 4, 16, 64), 512
"""The fillers' memory is computed whenever the weights (by capacity) of newly opened fillers add up to this number."""
_PAGE_BYTES = 4096
MAX_COMPILED_COLUMNS = 256
_MAX_CACHED_PLANS = _MAX_CACHED_LAYOUTS = 64
_MAX_DECIMAL_DIGITS, _MAX_SET_MEMBERS = 38, 62
"""Limits of what a cell can hold."""
_ALWAYS_VALID = frozenset(
    {
        ValueKind.SIGNED, ValueKind.UNSIGNED, ValueKind.BIT, ValueKind.FLOAT, ValueKind.DOUBLE, ValueKind.DECIMAL,
        ValueKind.YEAR, ValueKind.UTF8, ValueKind.GUESS, ValueKind.TEXT, ValueKind.BYTES,
    }
)  # fmt: skip
"""Kinds whose raw values Python can decode, whatever their bytes."""
_TEXT_KINDS = frozenset({ValueKind.TIME, ValueKind.TIME2, UNSUPPORTED_KIND})


class CellStorage(NamedTuple):
    """Storage of a column: kind and parameter for `decode_value`, words of a cell (0 = text), highest number."""

    kind: int
    parameter: int
    width: int
    highest: int


def _choose_cell_storage(column: TableMapColumn, column_kind: ColumnEncoding) -> CellStorage:
    """Return how a column is stored; of kind UNSUPPORTED_KIND if Python decodes each value."""
    kind, parameter, fixed, _ = adapt_encoding_for_kernels(column, column_kind)
    highest, members = 0, None if column.values is None else len(column.values)
    if kind == ValueKind.GUESS and column.type in BLOBS:
        kind, parameter = ValueKind.BYTES, 0
    elif kind == ValueKind.BYTES:
        parameter = column.padded_size
    elif kind == ValueKind.ENUM:
        highest = (1 << 16) - 1 if members is None else members
    elif kind == ValueKind.SET and (members is None or members <= _MAX_SET_MEMBERS):
        highest = -1 if members is None else (1 << members) - 1
    elif kind == ValueKind.SET or (kind == ValueKind.DECIMAL and parameter >> 8 > _MAX_DECIMAL_DIGITS):
        kind = UNSUPPORTED_KIND
    if kind >= FIRST_SIZED or kind in _TEXT_KINDS:
        return CellStorage(kind, parameter, 0, highest)
    is_wide = kind == ValueKind.DECIMAL or highest < 0 or (kind == ValueKind.UNSIGNED and fixed == 8)
    return CellStorage(kind, parameter, 2 if is_wide or (kind == ValueKind.BIT and parameter == 64) else 1, highest)


class ImageLayout(msgspec.Struct, frozen=True):
    """Images of a row event, and their columns.

    Attributes:
        sides: 1 = before, 2 = after, 3 = both.
        images_at: offset of the first image, or of the compressed block, in the body.
        bitmaps: present columns of the before and the after image.
        absent: (side, column) of each column that an image lacks.
    """

    sides: int
    images_at: int
    compressed: bool
    bitmaps: tuple[bytes | None, bytes | None]
    absent: tuple[tuple[int, int], ...]


def parse_image_layout(type_code: int, body: Any, table_map: TableMap) -> ImageLayout | None:
    """Parse the layout of a row event; None if it does not fit its map. Layouts are cached in the map.

    Raises:
        MalformedError: a part of its head does not fit the map.
    """
    memo, head_at = table_map.memo, table_map.table_id_size + 2
    size = memo.get(("head", type_code))
    if size is not None:
        cached: ImageLayout | None = memo.get(("layout", type_code, bytes(body[head_at:size])))
        if cached is not None:
            return cached
    head = parse_rows_head(type_code, body, table_map.table_id_size)
    if head.n_cols != len(table_map.columns):
        return None
    if len(memo) > _MAX_CACHED_LAYOUTS:
        memo.clear()
    memo["head", type_code] = head.images_at
    layout = memo["layout", type_code, bytes(body[head_at : head.images_at])] = _make_image_layout(head)
    return layout


def _make_image_layout(rows_head: RowsHead) -> ImageLayout:
    bitmaps = rows_head.before, rows_head.after
    absent = [
        (side, index)
        for side, bitmap in enumerate(bitmaps)
        if bitmap is not None and not _has_all_columns(bitmap, rows_head.n_cols)
        for index in range(rows_head.n_cols)
        if not _has_column(bitmap, index)
    ]
    sides = (rows_head.before is not None) + 2 * (rows_head.after is not None)
    return ImageLayout(sides, rows_head.images_at, rows_head.compressed, bitmaps, tuple(absent))


def _has_column(bitmap: bytes | None, index: int) -> bool:
    return bitmap is not None and bool(bitmap[index >> 3] >> (index & 7) & 1)


class RowCellFiller:
    """Buffer with typed cells of rows of one table, with any combination of images.

    Attributes:
        rows: number of rows stored.
        target: the buffers.
        table_map: the map of the table.
    """

    def __init__(self, table_map: TableMap, table: TableSchema, level: int = len(_CAPACITIES) - 1) -> None:
        self.table, self.rows, self.level = table, 0, level
        kinds = get_column_encodings(table_map)
        self._kinds = [_choose_cell_storage(*pair) for pair in zip(table_map.columns, kinds, strict=True)]
        self._checked_columns = [index for index, one in enumerate(self._kinds) if one.kind not in _ALWAYS_VALID]
        self.table_map = table_map
        self._plan = array("q", [len(self._kinds), 0, 0, 0])
        self._plans: dict[tuple[bytes | None, bytes | None], array[int]] = {}
        cell_strips = flag_strips = self._text_areas = 0
        for (kind, parameter, words, highest), column_kind in zip(self._kinds, kinds, strict=True):
            width, is_text = max(words, 1), words == 0
            strips = [cell_strips, cell_strips + width, flag_strips, flag_strips + 1]
            areas = [self._text_areas, self._text_areas + 1] if is_text else [0, 0]
            self._plan.extend(
                [
                    kind,
                    parameter,
                    column_kind.fixed_bytes,
                    column_kind.length_prefix_bytes,
                    *strips,
                    *areas,
                    0,
                    words,
                    highest,
                ]
            )
            cell_strips, flag_strips = cell_strips + 2 * width, flag_strips + 2
            self._text_areas += 2 * is_text
        capacity = _CAPACITIES[level]
        stride, text_bytes = capacity + 1, self._text_bytes(level)
        texts_at = flag_strips * stride
        self._row_bytes = 8 * cell_strips + flag_strips
        self._buffer_bytes = 8 * cell_strips * stride, texts_at + self._text_areas * text_bytes + _PAGE_BYTES
        cells, out = (memoryview(mmap(-1, max(size, 1))) for size in self._buffer_bytes)
        self.target = RowCellBuffers(capacity, stride, texts_at, text_bytes, cells.cast("q"), out, array("q", [0, 0]))

    def _text_bytes(self, level: int) -> int:
        if level < len(_MIN_TEXT_AREAS):
            return _MIN_TEXT_AREAS[level]
        return max(_MIN_LAST_TEXT_AREA, _LAST_TEXT_BYTES // max(self._text_areas, 1))

    @property
    def size_in_bytes(self) -> int:
        """Approximate memory of the rows so far: buffer pages that were never written use none."""
        pages = (2 * len(self._kinds) + self._text_areas) * 2 * _PAGE_BYTES
        used = self.rows * self._row_bytes + self.target.counts[TEXT_SIZE] + pages
        return min(sum(self._buffer_bytes), used)

    def get_storage_plan(self, layout: ImageLayout) -> array[int]:
        """Return the plan for images with the layout's columns (cached). It does not depend on the filler's level."""
        plan = self._plans.get(layout.bitmaps)
        if plan is None:
            plan = self._plan[:]
            for index in range(len(self._kinds)):
                presence = [_has_column(bitmap, index) for bitmap in layout.bitmaps]
                plan[PLAN_HEAD_WORDS + PLAN_COLUMN_WORDS * index + 10] = presence[0] + 2 * presence[1]
                plan[1] += presence[0]
                plan[2] += presence[1]
            if len(self._plans) >= _MAX_CACHED_PLANS:
                self._plans.clear()
            self._plans[layout.bitmaps] = plan
        return plan

    def try_append_rows(
        self, store_rows: Kernel, image_bytes: Any, offset: int, layout: ImageLayout, limits: Limits
    ) -> int:
        """Store the rows of the images in `image_bytes` from `offset` on; return their number, or FULL or UNSUPPORTED.

        Args:
            store_rows: compiled `store_rows`.
        """
        old_count = self.target.counts[RAW_COUNT]
        next_row = store_rows(
            image_bytes, offset, len(image_bytes), self.get_storage_plan(layout), 0, self.rows, self.target
        )
        if next_row < 0:
            return int(next_row)
        if self.target.counts[RAW_COUNT] > old_count and not self.can_decode_raw_values(self.rows, next_row, limits):
            return UNSUPPORTED
        count, self.rows = next_row - self.rows, next_row
        return int(count)

    def can_decode_raw_values(self, start: int, stop: int, limits: Limits) -> bool:
        """Return whether the raw values of the rows `[start, stop)` of an event can be decoded."""
        budget = DecodeBudget(limits)
        try:
            for index in self._checked_columns:
                convert = get_budgeted_value_decoder(
                    self.table_map.columns[index], get_column_encodings(self.table_map)[index]
                )
                for side in (0, 1):
                    for _, raw in self.read_column(index, side, start, stop).iter_raw():
                        convert(raw, budget)
        except (MalformedError, DecompressionError, ValueError):
            return False
        return True

    def read_column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """Return the cells of one column of the rows `[start, stop)`; side: before or after image."""
        kind, _, width, _ = self._kinds[index]
        plan_at, target = PLAN_HEAD_WORDS + PLAN_COLUMN_WORDS * index, self.target
        strip, flags, area = (self._plan[plan_at + k + side] for k in (4, 6, 8))
        strip, flags = strip * target.stride, flags * target.stride
        column, column_kind = self.table_map.columns[index], get_column_encodings(self.table_map)[index]
        decode_leaf = _make_leaf_decoder(get_budgeted_value_decoder(column, column_kind))
        all_cells, all_bytes = memoryview(target.cells), memoryview(target.out)  # type: ignore[arg-type]
        valid = all_bytes[flags + start : flags + stop]
        if width == 0:
            ends = all_cells[strip + start : strip + stop + 1]
            base = target.texts_at + area * target.text_bytes
            return ColumnCells(ends, valid, all_bytes[base : base + target.text_bytes], decode_leaf)
        values = all_cells[strip + width * start : strip + width * stop]
        texts = column.values if kind in (ValueKind.ENUM, ValueKind.SET) else None
        return ColumnCells(values, valid, None, decode_leaf, column_kind.fixed_bytes, width == 2, texts)


def _make_leaf_decoder(convert: Callable[[bytes, DecodeBudget], Any]) -> Callable[[bytes, Limits], Any]:
    return lambda raw, limits: convert(raw, DecodeBudget(limits))


class RowCellFillers:
    """The current filler of each table of a log.

    Args:
        compile_kernel: returns the native form of a kernel, or the kernel itself.
    """

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._store_rows = compile_kernel(store_rows_of_event)
        self.is_compiled = self._store_rows is not store_rows_of_event
        self._open: dict[int, tuple[TableMap, RowCellFiller]] = {}
        self._opened_weight = 0

    def try_store_row_event(
        self, type_code: int, body: Any, table_map: TableMap, table: TableSchema, limits: Limits
    ) -> CellSlice | None:
        """Store the rows of an event; return None if compiled code cannot decode them."""
        if (
            not self.is_compiled
            or type_code == EventType.PARTIAL_UPDATE_ROWS
            or len(table_map.columns) > MAX_COMPILED_COLUMNS
        ):
            return None
        try:
            layout = parse_image_layout(type_code, body, table_map)
            if layout is None:
                return None
            offset = layout.images_at
            data, offset = (unpack_compressed_block(body[offset:], limits), 0) if layout.compressed else (body, offset)
            while True:
                filler = self.get_filler_for_next_rows(table_map, table, limits)
                start = filler.rows
                count = filler.try_append_rows(self._store_rows, data, offset, layout, limits)
                if count != FULL or not self.try_open_larger_filler(table_map):
                    break
        except (MalformedError, DecompressionError):
            return None
        return CellSlice(filler, start, count, layout.sides, layout.absent) if count > 0 else None

    def try_open_larger_filler(self, table_map: TableMap) -> bool:
        """Use a new filler for the next rows of this map, a larger one if possible; return False if the current filler
        has no rows and is of the largest size.
        """
        _, filler = self._open[id(table_map)]
        level = min(filler.level + 1, len(_CAPACITIES) - 1)
        if not filler.rows and level == filler.level:
            return False
        self._open[id(table_map)] = table_map, RowCellFiller(table_map, filler.table, level)
        self._opened_weight += _WEIGHTS[level]
        return True

    def get_filler_for_next_rows(self, table_map: TableMap, table: TableSchema, limits: Limits) -> RowCellFiller:
        """Return the filler for the next rows of a table."""
        current = self._open.get(id(table_map))
        if current is None or current[1].rows >= MAX_FILLER_ROWS or current[1].table is not table:
            level = 0 if current is None or current[1].table is not table else current[1].level
            if self._opened_weight >= _WEIGHT_BETWEEN_CHECKS:
                self._close_oldest_fillers(limits.max_memory // _MEMORY_DIVISOR)
            current = self._open[id(table_map)] = table_map, RowCellFiller(table_map, table, level)
            self._opened_weight += _WEIGHTS[level]
        return current[1]

    def _close_oldest_fillers(self, max_bytes: int) -> None:
        """Close the oldest fillers until the others use at most `max_bytes`."""
        self._opened_weight, used_bytes = 0, 0
        for key, (_, filler) in reversed(list(self._open.items())):
            used_bytes += filler.size_in_bytes
            if used_bytes > max_bytes:
                del self._open[key]


def _has_all_columns(bitmap: bytes, count: int) -> bool:
    return int.from_bytes(bitmap, "little") & (1 << count) - 1 == (1 << count) - 1
