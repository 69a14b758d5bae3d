"""Rows of one table in columns of memory, filled by compiled code (`cell_kernels`)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

from binlogtool.formats.base import CodecError, Kernel
from binlogtool.formats.binlog_events.changes import cell_kernels as kernels
from binlogtool.formats.binlog_events.rows.rows import parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.values.charsets import decoder_of
from binlogtool.formats.binlog_events.values.columns import BLOBS, Column, ColumnKind, Kind
from binlogtool.formats.binlog_events.values.decoding import Budget, converter
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.tables import Cells, ColumnCells, Table
from binlogtool.limits import Limits

ROWS = 8192
"""When a filler has so many rows, another one follows."""
_CAPACITY = 4 * ROWS
_TEXTS = 24 << 20
_LEAST_ROOM = 1 << 18
_MOST_COLUMNS = 256
_ASCII, _LATIN = bytes(range(128)), bytes(range(0xA0, 0x100))
_FIXED = {
    Kind.SIGNED: kernels.SIGNED, Kind.FLOAT: kernels.UNSIGNED, Kind.DOUBLE: kernels.REAL, Kind.YEAR: kernels.YEAR,
    Kind.DATE: kernels.DATE, Kind.DATETIME2: kernels.DATETIME, Kind.TIMESTAMP2: kernels.TIMESTAMP,
}  # fmt: skip


def _kind_of(column: Column, kind: ColumnKind) -> tuple[int, int]:
    """The kind of the kernels, and its parameter; RAW = values are made one by one."""
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
        return kernels.BYTES, 0
    if own == Kind.TEXT:
        decode = decoder_of(column.charset)
        if decode(_ASCII) == _ASCII.decode():
            return kernels.LATIN, 255 if decode(_LATIN) == _LATIN.decode("latin-1") else 127
    return kernels.RAW, 0


_WIDE = (kernels.WIDE, kernels.WIDE_BITS, kernels.DECIMAL)


class Filler:
    """Room for rows with these images. sides: 1 = before, 2 = after. rows: so many are there."""

    def __init__(self, known: TableMap, table: Table, sides: int) -> None:
        self.table, self.sides, self.rows = table, sides, 0
        self._kinds = [_kind_of(*pair) for pair in zip(known.columns, column_kinds(known), strict=True)]
        self._known = known
        texts = sum(kind >= kernels.DURATION for kind, _ in self._kinds) * sides.bit_count()
        self._room = max(_LEAST_ROOM, _TEXTS // max(texts, 1))
        self._plan = array("q", [len(self._kinds), 0, 0, 0])
        words = size = 0
        for (kind, parameter), own in zip(self._kinds, column_kinds(known), strict=True):
            places = [0] * 8
            for side in (0, 1):
                if not sides >> side & 1:
                    continue
                places[side], places[2 + side] = words, size
                words += 2 * _CAPACITY if kind in _WIDE else _CAPACITY + 1
                size += _CAPACITY
                if kind >= kernels.DURATION:
                    places[4 + side], places[6] = size, self._room
                    size += self._room
            self._plan.extend([kind, parameter, own.fixed, own.prefix, *places])
        self.cells = memoryview(mmap(-1, 8 * words)).cast("q")
        self.out = memoryview(mmap(-1, size + 64))

    def add(self, run: Kernel, data: Any, at: int) -> int:
        """The rows of the images in `data` from `at` on: how many, or why there are none (FULL, NOT_MINE)."""
        reached = run(data, at, len(data), b"\0", self._plan, self.sides, self.rows, _CAPACITY, self.cells, self.out)
        if reached < 0:
            return int(reached)
        count, self.rows = reached - self.rows, reached
        return int(count)

    def is_sound(self, start: int, limits: Limits) -> bool:
        """Can the values that are made one by one be made, of the rows from `start` on? If not, these rows are none."""
        budget = Budget(limits)
        try:
            for index, (kind, _) in enumerate(self._kinds):
                for side in (0, 1) if kind == kernels.RAW else ():
                    if self.sides >> side & 1:
                        self._make_all(index, side, start, budget)
        except (MalformedError, CodecError, ValueError):
            self.rows = start
            return False
        return True

    def _make_all(self, index: int, side: int, start: int, budget: Budget) -> None:
        cells = self.column(index, side, start, self.rows)
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


_SIDES = {"WRITE": 2, "UPDATE": 3, "DELETE": 1}
LEAST = 512
"""Bytes of an event that is worth it."""


class Fillers:
    """The fillers of a log, by table and kind of event."""

    def __init__(self, compile_: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_(kernels.fill_rows)
        self.is_compiled = self._run is not kernels.fill_rows
        self._open: dict[tuple[int, int], tuple[TableMap, Filler]] = {}

    def cells(self, code: int, body: Any, known: TableMap, table: Table, limits: Limits) -> Cells | None:
        """The rows of an event; None = they are none for compiled code."""
        if not self.is_compiled or len(body) < LEAST or not _is_plain(code) or len(known.columns) > _MOST_COLUMNS:
            return None
        head = parse_rows_head(code, body, known.table_id_size)
        count = len(known.columns)
        whole = all(image is None or _is_whole(image, count) for image in (head.before, head.after))
        if head.n_cols != count or not whole:
            return None
        sides = (head.before is not None) + 2 * (head.after is not None)
        try:
            filler = self._filler(known, table, sides)
            start = filler.rows
            made = filler.add(self._run, body, head.images_at)
            if made == kernels.FULL and start:
                self._open.pop((id(known), sides))
                filler = self._filler(known, table, sides)
                start = 0
                made = filler.add(self._run, body, head.images_at)
        except MalformedError:
            return None
        return Cells(filler, start, made) if made > 0 and filler.is_sound(start, limits) else None

    def _filler(self, known: TableMap, table: Table, sides: int) -> Filler:
        kept = self._open.get((id(known), sides))
        if kept is None or kept[1].rows >= ROWS or kept[1].table is not table:
            if len(self._open) >= 16:
                self._open.clear()
            kept = self._open[id(known), sides] = known, Filler(known, table, sides)
        return kept[1]


def _is_plain(code: int) -> bool:
    """A row event without compression and differences."""
    return 23 <= code <= 25 or 30 <= code <= 32


def _is_whole(bitmap: bytes, count: int) -> bool:
    return int.from_bytes(bitmap, "little") & (1 << count) - 1 == (1 << count) - 1
