"""Payloads of good frames: unpack them, split them into rows, and separate the rows that do not follow the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.layouts import Batch, CodecError, Column, Holder, InnerLevel, Layout, RowLevel, Table
from binlogtool.limits import MIB, Limits
from binlogtool.log import damage as damages
from binlogtool.schema.scanner import Backend, Scanner, Stop, StopReason
from binlogtool.schema.whole_columns import holds_any, joined, kept

_ARENA = 8 * MIB
_CHECKSUM_ABSENT = 2
_INNER_CAPACITY = 4096
_EXPLAINED = 16
"""Bad rows of a frame that are told in the words of the schema."""


class Piece(NamedTuple):
    """A run of frames and, where the format has them, their rows and the records inside them (see `Batch`)."""

    frames: Table
    arena: memoryview
    rows: Table | None
    starts: Column
    packed: Sequence[bool]
    inner: Mapping[int, Batch] = MappingProxyType({})


class BadPayload(NamedTuple):
    """A frame `[start, end)` of the window whose content is wrong.

    stored: its stored checksum, 0 = none. framed: the checksum proves its end; otherwise its length may be wrong,
      too.
    """

    start: int
    end: int
    finding: Finding
    stored: int
    framed: bool = True


class Holed(NamedTuple):
    """A frame `[start, end)` of the window, whole by its checksum, some of whose rows are invalid.

    Args:
        kept: the good rows.
        framed: those of the others whose beginning can be read.
        findings: about these; their record numbers count from the first good row.
        lost: bytes of the payload that are not good rows.
    """

    start: int
    end: int
    kept: Piece
    framed: Piece | None
    findings: tuple[Finding, ...]
    lost: int


class Spans(NamedTuple):
    """Payloads of consecutive frames in one arena. bad: the frame after them cannot be unpacked."""

    frames: int
    arena: memoryview
    starts: Column
    ends: Column
    packed: Sequence[bool]
    bad: BadPayload | None = None


def part(table: Table, start: int, stop: int) -> Table:
    """Return the entries `[start, stop)` of a table."""
    return Table(stop - start, {name: column[start:stop] for name, column in table.columns.items()})


def _copied(*tables: Table) -> Table:
    """Copy the entries of several tables into one that stays valid when the scanner continues."""
    if len(tables) == 1:
        table = tables[0]
        return Table(table.count, {name: kept(column[: table.count]) for name, column in table.columns.items()})
    columns = {name: joined([table[name][: table.count] for table in tables]) for name in tables[0].columns}
    return Table(sum(table.count for table in tables), columns)


def _rows_of_one(tables: Sequence[Table]) -> Table:
    """Join the rows of one frame into one table."""
    some = [table for table in tables if table.count] or list(tables[:1])
    columns = {name: joined([table[name] for table in some]) for name in some[0].columns}
    count = sum(table.count for table in some)
    columns["span"] = [0] * count
    return Table(count, columns)


class Payloads(msgspec.Struct):
    """The second stage of a scan: the content of frames. Only its scanners and buffers are kept between calls."""

    layout: Layout
    backend: Backend
    limits: Limits
    _scanner: Scanner | None = None
    _single: Scanner | None = None
    _framed: Scanner | None = None
    _inner: Scanner | None = None

    def pieces(self, view: memoryview, base: int, table: Table) -> Iterator[Piece | BadPayload | Holed]:
        """Yield the frames of a table in order. view: the window; base: its file offset."""
        for frames, bad in self._proven(view, base, table):
            if frames.count and self.layout.inner is not None:
                yield from self._with_inner(view, base, frames, self.layout.inner)
            elif frames.count and self.layout.rows is None:
                yield Piece(frames, view, None, (), ())
            elif frames.count:
                yield from self._unpacked(view, base, frames)
            if bad is not None:
                yield bad

    def _proven(self, view: memoryview, base: int, table: Table) -> Iterator[tuple[Table, BadPayload | None]]:
        """Yield runs of frames; one without a checksum must pass the format's own proof."""
        prove = self.layout.frame.prove
        if prove is None:
            yield table, None
            return
        start = 0
        if holds_any(table["checksum"], (_CHECKSUM_ABSENT,)):
            states, offsets, ends = table["checksum"], table["offset"], table["end"]
            for i in range(table.count):
                if states[i] != _CHECKSUM_ABSENT:
                    continue
                low, high = int(offsets[i]), int(ends[i])
                data = bytes(view[low:high])
                if not prove(data, self.layout.context):
                    found = damages.undecodable(self.layout, data, base + low)
                    bad = BadPayload(low, high, found, self._stored(table, i), framed=False)
                    yield part(table, start, i), bad
                    start = i + 1
        yield part(table, start, table.count), None

    def _with_inner(
        self, view: memoryview, base: int, table: Table, level: InnerLevel
    ) -> Iterator[Piece | BadPayload | Holed]:
        """Yield the frames in order, each container with the records inside it; few are unpacked at a time."""
        first, held, inner = 0, 0, dict[int, Batch]()
        codes = table[level.selector]
        holders = range(table.count) if holds_any(codes, level.holders) else ()
        for i in holders:
            if int(codes[i]) not in level.holders:
                continue
            found = self._inside(view, base, table, i, level)
            if isinstance(found, BadPayload):
                if i > first:
                    yield Piece(part(table, first, i), view, None, (), (), inner)
                yield found
                first, held, inner = i + 1, 0, {}
                continue
            inner[i - first] = found
            held += len(found.window)
            if held >= _ARENA:
                yield Piece(part(table, first, i + 1), view, None, (), (), inner)
                first, held, inner = i + 1, 0, {}
        if table.count > first:
            yield Piece(part(table, first, table.count), view, None, (), (), inner)

    def _inside(self, view: memoryview, base: int, table: Table, i: int, level: InnerLevel) -> Batch | BadPayload:
        """Return the records inside frame `i`, or what is wrong with them."""
        low, high = int(table["offset"][i]), int(table["end"][i])
        try:
            data = level.unpack(view[int(table[level.start][i]) : int(table[level.end][i])], self.limits)
        except CodecError as error:
            found = finding(error.finding_id, base + low, high - low, str(error))
            return BadPayload(low, high, found, self._stored(table, i))
        if self._inner is None:
            self._inner = self.backend.scanner(level.frame.schema, level.frame.columns, _INNER_CAPACITY)
        scanner = self._inner
        tables: list[Table] = []
        at, stop = 0, None
        while stop is None or stop.reason == StopReason.FULL:
            some, stop = scanner.scan(data, at, len(data))
            tables.append(some if stop.reason == StopReason.END else _copied(some))
            at = stop.at
        if stop.reason != StopReason.END:
            excerpt = bytes(memoryview(data)[stop.at : stop.at + damages.EXCERPT])
            found = damages.bad_row(level.frame.schema, stop, excerpt, base + low, high - low, stop.at)
            return BadPayload(low, high, found, self._stored(table, i))
        window = memoryview(data)
        return Batch(0, window, _copied(*tables), window, None, (), (), 0, 0, holder=Holder(base + low, high - low, 0))

    def _unpacked(self, view: memoryview, base: int, table: Table) -> Iterator[Piece | BadPayload | Holed]:
        level = self.layout.rows
        assert level is not None
        first = 0
        while first < table.count:
            rest = part(table, first, table.count)
            spans = self._spans(view, base, rest, level)
            if spans.frames:
                yield from self._rows(view, base, part(rest, 0, spans.frames), spans, level)
            first += spans.frames
            if spans.bad is not None:
                yield spans.bad
                first += 1

    def _spans(self, view: memoryview, base: int, table: Table, level: RowLevel) -> Spans:
        """Return the ranges of the payloads: in the window when nothing is packed, else copied into an arena."""
        starts, ends = table[level.start], table[level.end]
        column = None if level.selector is None else table[level.selector]
        if column is None or not holds_any(column, level.codecs.keys()):
            return Spans(table.count, view, starts, ends, [False] * table.count)
        selectors = integers(column)
        packed = [value in level.codecs for value in selectors]
        arena = bytearray()
        borders = [0]
        for i in range(table.count):
            payload: bytes | bytearray | memoryview = view[starts[i] : ends[i]]
            if packed[i]:
                try:
                    payload = level.codecs[selectors[i]](view[starts[i] : ends[i]], self.limits)
                except CodecError as error:
                    low, high = int(table["offset"][i]), int(table["end"][i])
                    found = finding(error.finding_id, base + low, high - low, str(error))
                    bad = BadPayload(low, high, found, self._stored(table, i))
                    return Spans(i, memoryview(arena), borders[:-1], borders[1:], packed[:i], bad)
            if packed[i] and len(payload) >= _ARENA:
                return self._large(i, payload, arena, borders, packed[:i])
            arena += payload
            borders.append(len(arena))
            if len(arena) >= _ARENA:
                break
        count = len(borders) - 1
        return Spans(count, memoryview(arena), borders[:-1], borders[1:], packed[:count])

    def _large(
        self,
        index: int,
        payload: bytes | bytearray | memoryview,
        arena: bytearray,
        borders: list[int],
        packed: list[bool],
    ) -> Spans:
        """Return a payload that fills an arena alone, without copying it; the frames before it are returned first."""
        if index:
            return Spans(index, memoryview(arena), borders[:-1], borders[1:], packed)
        return Spans(1, memoryview(payload), [0], [len(payload)], [True])

    def _rows(
        self, view: memoryview, base: int, table: Table, spans: Spans, level: RowLevel
    ) -> Iterator[Piece | BadPayload | Holed]:
        """Split payloads into rows; a payload that rows do not tile exactly is bad."""
        first = 0
        while first < table.count:
            self._scanner = scanner = self._scanner or self.backend.scanner(level.schema, level.columns)
            starts, ends = spans.starts[first:], spans.ends[first:]
            rows, stop = scanner.scan_spans(spans.arena, starts, ends, 0, table.count - first)
            good = table.count - first if stop.reason == StopReason.END else stop.span
            if good:
                yield Piece(part(table, first, first + good), spans.arena, rows, starts, spans.packed[first:])
            first += good
            if stop.reason not in (StopReason.FULL, StopReason.END):
                yield self._one_by_one(view, base, part(table, first, first + 1), spans, first, level)
                first += 1

    def _one_by_one(
        self, view: memoryview, base: int, table: Table, spans: Spans, index: int, level: RowLevel
    ) -> BadPayload | Holed:
        """Return the good rows of a frame that rows do not tile, and the findings about the others."""
        walk = _Walk(self, level, spans.arena, int(spans.starts[index]), int(spans.ends[index]))
        low, high = int(table["offset"][0]), int(table["end"][0])
        walk.go(base + low, high - low)
        if not any(good.count for good in walk.good):
            return BadPayload(low, high, walk.found[0], self._stored(table, 0))
        packed = spans.packed[index : index + 1]
        pieces = [
            Piece(table, spans.arena, _rows_of_one(rows), spans.starts[index : index + 1], packed) if rows else None
            for rows in (walk.good, walk.framed)
        ]
        assert pieces[0] is not None
        return Holed(low, high, pieces[0], pieces[1], tuple(walk.found), walk.lost)

    def row_scanners(self, level: RowLevel) -> tuple[Scanner, Scanner | None]:
        """Return the scanners of single rows, and of rows of which only the beginning is understood."""
        self._single = self._single or self.backend.scanner(level.schema, level.columns)
        if self._framed is None and level.framed is not None:
            self._framed = self.backend.scanner(level.framed, level.columns, 1)
        return self._single, self._framed

    def _stored(self, table: Table, index: int) -> int:
        name = self.layout.frame.stored
        return 0 if name is None else int(table[name][index])


class _Walk:
    """The rows of one frame, one after the other, also after one that does not fit.

    good, framed: tables of the rows; findings: one for each bad row, the first ones explained by the schema.
    """

    def __init__(self, payloads: Payloads, level: RowLevel, arena: memoryview, start: int, end: int) -> None:
        self.good: list[Table] = []
        self.framed: list[Table] = []
        self.found: list[Finding] = []
        self.lost = 0
        self._level, self._arena, self._start, self._end = level, arena, start, end
        self._rows, self._frames = payloads.row_scanners(level)

    def go(self, offset: int, size: int) -> None:
        """Walk all rows. offset, size: of the frame in the file."""
        at = self._start
        while at < self._end:
            table, stop = self._rows.scan(self._arena, at, self._end)
            self.good.append(_copied(table))
            at = stop.at
            if stop.reason == StopReason.END:
                return
            if stop.reason != StopReason.FULL:
                behind = self._behind(at)
                self._tell(stop, at, behind, offset, size)
                at = behind

    def _behind(self, at: int) -> int:
        """Return where the bad row at `at` ends; the end of the payload where that is unknown."""
        if self._frames is None:
            return self._end
        table, _ = self._frames.scan(self._arena, at, self._end)
        if not table.count:
            return self._end
        self.framed.append(_copied(table))
        return int(table["end"][0])

    def _tell(self, stop: Stop, at: int, behind: int, offset: int, size: int) -> None:
        self.lost += behind - at
        record = sum(table.count for table in self.good)
        inner = at - self._start
        if len(self.found) < _EXPLAINED:
            row = bytes(self._arena[at : min(self._end, at + damages.EXCERPT)])
            found = damages.bad_row(self._level.schema, stop, row, offset, size, inner)
        else:
            text = f"row at payload offset {inner}: {stop.field or 'row'}: {stop.reason.name.lower()}"
            found = finding("payload-undecodable", offset, size, text, inner_offset=inner)
        self.found.append(replace(found, record=record))
