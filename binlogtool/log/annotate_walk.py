"""Walks one log file and turns what is wanted of it into annotated pieces: header, frames, damage, gaps."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from dataclasses import field as attribute

from binlogtool.findings import Finding
from binlogtool.formats.base import Batch
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.log.filters import Position
from binlogtool.log.open import LogFile
from binlogtool.log.scan import Damage, Scan
from binlogtool.log.source import HEAD_BYTES, FileSource
from binlogtool.schema.annotation import FieldRow, Space
from binlogtool.schema.trace import fill, trace

EXCERPT = 16 * MIB
"""Bytes of a damaged range that are looked at (and drawn); the row names the whole range."""

LONG = 64 * KIB
"""Ranges without fields that are longer than this have no value of their own."""

INNER_FRAMES = 64
"""Frames that are looked for inside one damaged range."""

_NAMES = {"torn_tail": "torn_tail", "preallocated": "preallocated", "unknown": "unmapped"}
_INDEX = re.compile(r"(\w+)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown. All None = the whole file.

    at: the frame (header, damaged range) that contains this place. field: only rows at or below this path, which may
    leave out the frame (`header.crc32c`). damage_only: damaged ranges with `context` bytes of fields around them.
    """

    at: Position | None = None
    field: str | None = None
    damage_only: bool = False
    context: int = 64

    @property
    def one(self) -> bool:
        """Is it a single place?"""
        return self.at is not None


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that cover `[start, end)` of the file: one header, frame, damaged range, or gap."""

    start: int
    end: int
    rows: list[FieldRow]
    spaces: tuple[Space, ...]
    findings: tuple[Finding, ...] = ()
    damaged: bool = False


@dataclass(slots=True)
class Walk:
    """One pass over the file; makes pieces of what is wanted only."""

    file: LogFile
    wanted: Wanted
    limits: Limits
    scan: Scan
    name: str = attribute(init=False)
    only_frame: int | None = attribute(init=False)
    until: int = 0
    found: bool = False

    def __post_init__(self) -> None:
        self.name = self.file.layout.frame.name
        match = _INDEX.match(self.wanted.field or "")
        self.only_frame = int(match[2]) if match and match[1] == self.name else None

    def pieces(self) -> Iterator[Piece]:
        """Header, frames, damage and gaps."""
        reached = 0
        layout = self.file.layout
        if layout.readable and layout.frames_at:
            reached = layout.frames_at
            if self._in(0, reached):
                yield self._header(reached)
        for segment in self.scan.segments():
            start, end = self._bounds(segment)
            if start > reached and self._in(reached, start):
                yield self._gap(reached, start)
            reached = end
            if isinstance(segment, Batch):
                yield from (self._frame(segment, frame) for frame in self._frames(segment))
            elif self._in(start, end) or (segment.payload and self._is_frame(self.scan.frames - 1)):
                self.until = end + self.wanted.context
                yield self._damage(segment)
            if self._past(reached):
                return
        if self.scan.end > reached and self._in(reached, self.scan.end):
            yield self._gap(reached, self.scan.end)

    def near_damage(self) -> Iterator[Piece]:
        """Damaged ranges and tails, with the fields of `context` bytes before and behind them."""
        before: list[Piece] = []
        drawn, context = 0, self.wanted.context
        for piece in self.pieces():
            near = [piece] if piece.damaged else [_cut(piece, drawn, self.until)]
            if piece.damaged:
                low = max(piece.start - context, drawn)
                near = [_cut(old, low, piece.start) for old in before] + near
            before = [] if piece.damaged else [*(old for old in before if old.end > piece.end - context), piece]
            for one in near:
                if one.rows:
                    yield one
                    drawn = max((row.end for row in one.rows if row.leaf or one.damaged), default=drawn)

    # -- what is wanted ------------------------------------------------------------------------------------------

    @staticmethod
    def _bounds(segment: Batch | Damage) -> tuple[int, int]:
        if isinstance(segment, Damage):
            return segment.start, segment.end
        frames = segment.frames
        return segment.base + int(frames["offset"][0]), segment.base + int(frames["end"][frames.count - 1])

    def _in(self, start: int, end: int) -> bool:
        """Is a range without records wanted?"""
        at = self.wanted.at
        if self.only_frame is not None:
            return False
        return at is None or (at.kind == "offset" and start <= at.value < end)

    def _is_frame(self, index: int) -> bool:
        return self.wanted.at is None and self.only_frame == index

    def _past(self, reached: int) -> bool:
        """Is everything found that was asked for?"""
        at = self.wanted.at
        if self.only_frame is not None and self.scan.frames > self.only_frame:
            return True
        if at is None or at.kind == "seq":
            return at is not None and self.found
        return (reached if at.kind == "offset" else self.scan.records) > at.value

    def _frames(self, batch: Batch) -> Iterable[int]:
        """The wanted frames of a batch, as indexes in it."""
        at, count = self.wanted.at, batch.frames.count
        if self.wanted.damage_only:
            return self._at_the_rims(batch)
        if self.only_frame is not None:
            first = self.only_frame - batch.first_frame
            return range(max(first, 0), min(first + 1, count)) if at is None else range(0)
        if at is None:
            return range(count)
        if at.kind == "offset":
            offset = at.value - batch.base
            first = bisect_right(batch.frames["offset"], offset, 0, count) - 1
            inside = first >= 0 and offset < batch.frames["end"][first]
            return range(first, first + 1) if inside else range(0)
        record = self._record(batch)
        return range(0) if record is None else range(frame := batch.frame_of(record), frame + 1)

    def _at_the_rims(self, batch: Batch) -> list[int]:
        """Frames behind the last damage, and those that may stand before the next one."""
        offsets, ends, count = batch.frames["offset"], batch.frames["end"], batch.frames.count
        first = bisect_left(offsets, self.until - batch.base, 0, count)
        last = bisect_right(ends, int(ends[count - 1]) - self.wanted.context, 0, count)
        return [*range(first), *range(max(first, last), count)]

    def _record(self, batch: Batch) -> int | None:
        """The wanted record, as an index in the batch."""
        at = self.wanted.at
        if at is None or at.kind == "offset":
            return None
        if at.kind == "seq":
            layout = self.file.layout
            numbers = self.file.format.describe(layout.context, batch, 0, batch.records.count).seq
            return next((i for i, number in enumerate(numbers) if number == at.value), None)
        index = at.value - batch.first_record
        return index if 0 <= index < batch.records.count else None

    # -- pieces --------------------------------------------------------------------------------------------------

    def _header(self, end: int) -> Piece:
        data = self._read(0, end)
        schema = self.file.layout.header
        if schema is None:
            return self._piece(0, end, data, [FieldRow("header", 0, end, data)])
        traced = trace(schema, data, 0, self.limits)
        return self._piece(0, end, data, traced.rows, traced.spaces[1:])

    def _frame(self, batch: Batch, frame: int) -> Piece:
        self.found = True
        start = batch.base + int(batch.frames["offset"][frame])
        data = batch.frame_bytes(frame)
        root = f"{self.name}[{batch.first_frame + frame}]"
        traced = trace(self.file.layout.frame.schema, data, start, self.limits, root)
        record = self._record(batch)
        rows = traced.rows
        if record is not None and batch.rows is not None and batch.packed[frame]:
            origin = int(batch.span_starts[frame])
            first, last = (int(batch.rows[name][record]) - origin for name in ("offset", "end"))
            rows = [row for row in rows if _keeps(row, first, last)]
        return self._piece(start, start + len(data), data, rows, traced.spaces[1:])

    def _damage(self, damage: Damage) -> Piece:
        """A frame whose content is wrong, a damaged range, or a tail."""
        start, end = damage.start, damage.end
        data = self._read(start, min(end, start + EXCERPT))
        message = "; ".join(found.message for found in damage.findings[:1])
        if damage.payload:
            root = f"{self.name}[{self.scan.frames - 1}]"
            traced = trace(self.file.layout.frame.schema, data, start, self.limits, root)
            rows = [traced.rows[0]._replace(ok=False, meaning=message), *traced.rows[1:]]
            return self._piece(start, end, data, rows, traced.spaces[1:], damage.findings, True)
        name = _NAMES.get(damage.tail, "damaged")
        inside, spaces = self._inside(damage, data, name)
        top = FieldRow(name, start, end, None, message, leaf=not inside, ok=name == "preallocated")
        if not inside and end - start <= LONG:
            top = top._replace(value=data)
        return self._piece(start, end, data, [top, *inside], spaces, damage.findings, not top.ok)

    def _inside(self, damage: Damage, data: bytes, name: str) -> tuple[list[FieldRow], list[Space]]:
        """What the schema sees in a damaged range: whole frames, and the field where it goes wrong."""
        layout = self.file.layout
        rows: list[FieldRow] = []
        spaces: list[Space] = []
        if damage.tail in ("preallocated", "unknown"):
            return rows, spaces
        if not layout.readable:
            head = data[:HEAD_BYTES]
            found = trace(layout.header, head, 0, self.limits).rows if layout.header is not None else []
            return [row._replace(path=f"{name}.{row.path}", depth=row.depth + 1) for row in found], spaces
        at = 0
        for index in range(INNER_FRAMES):
            root = f"{name}.{self.name}[{index}]"
            traced = trace(layout.frame.schema, data[at:], damage.start + at, self.limits, root)
            rows += [row._replace(depth=row.depth + 1) for row in traced.rows]
            spaces += traced.spaces[1:]
            at = traced.end - damage.start
            broken = any(error.finding_id != "checksum-mismatch" for error in traced.errors)
            if broken or not traced.rows or at >= len(data):
                break
        return rows, spaces

    def _gap(self, start: int, end: int) -> Piece:
        """Bytes between the frames: the end mark."""
        data = self._read(start, min(end, start + EXCERPT))
        closed = data == self.file.layout.frame.end_mark
        row = FieldRow("end_mark" if closed else "unmapped", start, end, data if len(data) <= LONG else None, ok=closed)
        return self._piece(start, end, data, [row])

    def _piece(
        self,
        start: int,
        end: int,
        data: bytes,
        rows: list[FieldRow],
        spaces: list[Space] | None = None,
        findings: tuple[Finding, ...] = (),
        damaged: bool = False,
    ) -> Piece:
        whole = Space("", start, data)
        filled = fill(rows, start, end, whole)
        if len(data) < end - start:  # the rest of a long range was not read
            filled = [row._replace(value=None) if row.end > start + len(data) else row for row in filled]
        return Piece(start, end, filled, (whole, *(spaces or ())), findings, damaged)

    def _read(self, start: int, end: int) -> bytes:
        """Bytes of the file; of a stream only what is still in memory."""
        if not isinstance(self.file.source, FileSource) and self.file.size is None:
            window = self.scan.window or self.file.window
            return bytes(window.view(start, end))
        buffer = bytearray(end - start)
        with memoryview(buffer) as view:
            size = self.file.source.read_at(start, view)
        return bytes(buffer[:size])


def _keeps(row: FieldRow, first: int, last: int) -> bool:
    """Rows of the file, and of the unpacked bytes those that belong to `[first, last)` or hold it."""
    if row.unit == "file" or (first <= row.start and row.end <= last):
        return True
    return not row.leaf and row.start <= first and last <= row.end


def _cut(piece: Piece, low: int, high: int) -> Piece:
    """The rows of a piece that touch `[low, high)`, without unpacked bytes."""
    rows = [row for row in piece.rows if not row.space and row.start < high and row.end > low]
    return replace(piece, rows=rows, spaces=piece.spaces[:1], findings=())
