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
from binlogtool.formats.binlog_events.values.charsets import decoder_of
from binlogtool.formats.binlog_events.values.columns import BLOBS, Column, ColumnKind, Kind
from binlogtool.formats.binlog_events.values.decoding import Budget, converter
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError, Kernel
from binlogtool.formats.tables import Cells, ColumnCells, Table
from binlogtool.limits import Limits

ROWS = 8192
"""When a filler has so many rows, another one follows."""
CAPACITY = 4 * ROWS
"""Rows that it has room for."""
_TEXTS = 24 << 20
_LEAST_ROOM = 1 << 18
MOST_COLUMNS = 256
_MOST_PLANS = _MOST_KNOWN = 64
_ASCII, _LATIN = bytes(range(128)), bytes(range(0xA0, 0x100))
_FIXED = {
    Kind.SIGNED: kernels.SIGNED, Kind.FLOAT: kernels.UNSIGNED, Kind.DOUBLE: kernels.REAL, Kind.YEAR: kernels.YEAR,
    Kind.DATE: kernels.DATE, Kind.DATETIME2: kernels.DATETIME, Kind.TIMESTAMP2: kernels.TIMESTAMP,
}  # fmt: skip


def _kind_of(column: Column, kind: ColumnKind) -> tuple[int, int]:
    """Return the kernels' kind of a column, and its parameter; RAW = Python decodes each value."""
    own = kind.kind
    if own == Kind.GUESS and column.type in BLOBS:
        return kernels.BYTES, 0
    if own in _FIXED:
        return _FIXED[Kind(own)], kind.parameter
    if own == Kind.UNSIGNED:
        return (kernels.WIDE if kind.fixed == 8 else kernels.UNSIGNED), 0
    if own == Kind.BIT:
        return (kernels.WIDE_BITS if kind.parameter == 64 else kernels.BITS), 0
    if own == Kind.DECIMAL and kind.parameter >> 8 <= 38:
        return kernels.DECIMAL, kind.parameter
    if own == Kind.ENUM:
        return kernels.CHOICE, (1 << 16) - 1 if column.values is None else len(column.values)
    if own == Kind.SET and column.values is not None and len(column.values) < 63:
        return kernels.CHOICE, (1 << len(column.values)) - 1
    if own == Kind.TIME2:
        return kernels.DURATION, kind.parameter
    if own in (Kind.UTF8, Kind.GUESS):
        return kernels.UTF8, 0
    if own == Kind.BYTES:
        return kernels.BYTES, column.stored_short
    if own == Kind.TEXT:
        decode = decoder_of(column.charset)
        if decode(_ASCII) == _ASCII.decode():
            return kernels.LATIN, 255 if decode(_LATIN) == _LATIN.decode("latin-1") else 127
    return kernels.RAW, 0


_WIDE = (kernels.WIDE, kernels.WIDE_BITS, kernels.DECIMAL)


class Layout(msgspec.Struct, frozen=True):
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


def layout_of(code: int, body: Any, known: TableMap) -> Layout | None:
    """Parse the layout of a row event; None if it does not fit its map. Layouts are cached in the map.

    Raises:
        MalformedError: a part of its head does not fit.
    """
    memo, first = known.memo, known.table_id_size + 2
    size = memo.get(("head", code))
    if size is not None:
        kept: Layout | None = memo.get(("layout", code, bytes(body[first:size])))
        if kept is not None:
            return kept
    head = parse_rows_head(code, body, known.table_id_size)
    if head.n_cols != len(known.columns):
        return None
    if len(memo) > _MOST_KNOWN:
        memo.clear()
    memo["head", code] = head.images_at
    made = memo["layout", code, bytes(body[first : head.images_at])] = _layout(head)
    return made


def _layout(head: RowsHead) -> Layout:
    bitmaps = head.before, head.after
    absent = [
        (side, index)
        for side, bitmap in enumerate(bitmaps)
        if bitmap is not None and not _is_whole(bitmap, head.n_cols)
        for index in range(head.n_cols)
        if not _has(bitmap, index)
    ]
    sides = (head.before is not None) + 2 * (head.after is not None)
    return Layout(sides, head.images_at, head.compressed, bitmaps, tuple(absent))


def _has(bitmap: bytes | None, index: int) -> bool:
    return bitmap is not None and bool(bitmap[index >> 3] >> (index & 7) & 1)


class Filler:
    """Column buffers for rows of one table, with any combination of images.

    Attributes:
        rows: number of rows stored.
        cells: 64-bit integers of the cells.
        out: flags and texts.
    """

    def __init__(self, known: TableMap, table: Table) -> None:
        self.table, self.rows = table, 0
        self._kinds = [_kind_of(*pair) for pair in zip(known.columns, column_kinds(known), strict=True)]
        self._raw = [index for index, (kind, _) in enumerate(self._kinds) if kind == kernels.RAW]
        self._known = known
        texts = 2 * sum(kind >= kernels.DURATION for kind, _ in self._kinds)
        self._room = max(_LEAST_ROOM, _TEXTS // max(texts, 1))
        self._plan = array("q", [len(self._kinds), 0, 0, 0])
        self._plans: dict[tuple[bytes | None, bytes | None], array[int]] = {}
        words = size = 0
        for (kind, parameter), own in zip(self._kinds, column_kinds(known), strict=True):
            places = [0] * 8
            for side in (0, 1):
                places[side], places[2 + side] = words, size
                words += 2 * CAPACITY if kind in _WIDE else CAPACITY + 1
                size += CAPACITY
                if kind >= kernels.DURATION:
                    places[4 + side], places[6] = size, self._room
                    size += self._room
            self._plan.extend([kind, parameter, own.fixed, own.prefix, *places])
        self.cells = memoryview(mmap(-1, 8 * words)).cast("q")
        self.out = memoryview(mmap(-1, size + 64))

    def plan_of(self, layout: Layout) -> array[int]:
        """Return the plan for images with the layout's columns; cached."""
        made = self._plans.get(layout.bitmaps)
        if made is None:
            made = self._plan[:]
            for index in range(len(self._kinds)):
                there = [_has(bitmap, index) for bitmap in layout.bitmaps]
                made[kernels.HEAD + kernels.COLUMN * index + 11] = there[0] + 2 * there[1]
                made[1] += there[0]
                made[2] += there[1]
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[layout.bitmaps] = made
        return made

    def add(self, run: Kernel, data: Any, at: int, layout: Layout) -> int:
        """Store the rows of the images in `data` from `offset` on; returns their number, or FULL, or UNSUPPORTED.

        Args:
            store_rows: compiled `cell_kernels.store_rows`.
        """
        plan = self.plan_of(layout)
        target = kernels.CellTarget(CAPACITY, self.cells, self.out)
        reached = run(data, at, len(data), b"\0", plan, 0, layout.sides, self.rows, target)
        if reached < 0:
            return int(reached)
        count, self.rows = reached - self.rows, reached
        return int(count)

    @property
    def has_raw(self) -> bool:
        """True if some columns are decoded by Python, value by value."""
        return bool(self._raw)

    def is_sound(self, start: int, stop: int, limits: Limits) -> bool:
        """Check if the raw values of the rows `[start, stop)` of an event can be decoded."""
        budget = Budget(limits)
        try:
            for index in self._raw:
                for side in (0, 1):
                    self._make_all(self.column(index, side, start, stop), index, budget)
        except (MalformedError, CodecError, ValueError):
            return False
        return True

    def _make_all(self, cells: ColumnCells, index: int, budget: Budget) -> None:
        make = converter(self._known.columns[index], column_kinds(self._known)[index])
        assert cells.data is not None
        for i, valid in enumerate(cells.valid):
            if valid:
                make(bytes(cells.data[cells.values[i] : cells.values[i + 1]]), budget)

    def column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """See `formats.tables.Cells`."""
        kind, _ = self._kinds[index]
        c = kernels.HEAD + kernels.COLUMN * index
        at, flags, base = (self._plan[c + k + side] for k in (4, 6, 8))
        valid = self.out[flags + start : flags + stop]
        column = self._known.columns[index]
        if kind >= kernels.DURATION:
            ends = self.cells[at + start : at + stop + 1]
            data = self.out[base : base + self._room]
            leaf = None
            if kind == kernels.RAW:
                made = converter(column, column_kinds(self._known)[index])
                leaf = _leaf(made)
            return ColumnCells(ends, valid, data, leaf=leaf)
        wide = kind in _WIDE
        values = self.cells[at + 2 * start : at + 2 * stop] if wide else self.cells[at + start : at + stop]
        texts: Sequence[Any] | None = None
        if kind == kernels.CHOICE and column.values is not None:
            texts = column.values
        return ColumnCells(values, valid, None, wide=wide, texts=texts)


def _leaf(convert: Callable[[bytes, Budget], Any]) -> Callable[[bytes, Limits], Any]:
    return lambda raw, limits: convert(raw, Budget(limits))


class Fillers:
    """The current filler of each table of a log.

    Args:
        compile_kernel: returns the native form of a kernel, or the kernel itself.
    """

    def __init__(self, compile_: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_(kernels.fill_rows)
        self.is_compiled = self._run is not kernels.fill_rows
        self._open: dict[int, tuple[TableMap, Filler]] = {}

    def cells(self, code: int, body: Any, known: TableMap, table: Table, limits: Limits) -> Cells | None:
        """Store the rows of an event; None if compiled code cannot decode them."""
        if not self.is_compiled or code == EventType.PARTIAL_UPDATE_ROWS or len(known.columns) > MOST_COLUMNS:
            return None
        try:
            layout = layout_of(code, body, known)
            if layout is None:
                return None
            at = layout.images_at
            data, at = (unpack_block(body[at:], limits), 0) if layout.compressed else (body, at)
            filler = self.filler(known, table)
            start = filler.rows
            made = filler.add(self._run, data, at, layout)
            if made == kernels.FULL and start:
                self.close(known)
                filler = self.filler(known, table)
                start = 0
                made = filler.add(self._run, data, at, layout)
        except (MalformedError, CodecError):
            return None
        if made <= 0:
            return None
        if not filler.is_sound(start, start + made, limits):
            filler.rows = start
            return None
        return Cells(filler, start, made, layout.sides, layout.absent)

    def close(self, known: TableMap) -> None:
        """Make the next rows of this map go to a new filler."""
        self._open.pop(id(known), None)

    def filler(self, known: TableMap, table: Table) -> Filler:
        """Return the filler for the next rows of a table."""
        kept = self._open.get(id(known))
        if kept is None or kept[1].rows >= ROWS or kept[1].table is not table:
            if len(self._open) >= 16:
                self._open.clear()
            kept = self._open[id(known)] = known, Filler(known, table)
        return kept[1]


def _is_whole(bitmap: bytes, count: int) -> bool:
    return int.from_bytes(bitmap, "little") & (1 << count) - 1 == (1 << count) - 1
