"""Walk one log file and turn its selected parts into annotated pieces: header, frames, damage, gaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as attribute

from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, FrameLevel
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.log.annotate_choice import Choice, Runs, Wanted
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage
from binlogtool.log.source import HEAD_BYTES, FileSource
from binlogtool.schema.annotation import FieldRow, Piece, Space
from binlogtool.schema.trace import Traced, fill, trace

EXCERPT = 16 * MIB
"""Bytes of a damaged range that are looked at (and drawn); the row names the whole range."""

LONG = 64 * KIB
"""Ranges without fields that are longer than this have no value of their own."""

INNER_FRAMES = 64
"""Frames that are looked for inside one damaged range."""

_NAMES = {"torn_tail": "torn_tail", "preallocated": "preallocated", "unknown": "unmapped"}


@dataclass(slots=True)
class Walk:
    """One pass over the file; makes only the selected pieces.

    folds: rows of good frames may stand for several (`trace_shapes.Folded`).
    """

    file: LogFile
    wanted: Wanted
    limits: Limits
    scan: Scan
    folds: bool = False
    choice: Choice = attribute(init=False)
    name: str = attribute(init=False)
    _shown: tuple[FrameLevel, Construct] | None = attribute(init=False, default=None)
    """The schema of the level that holds, as this file's context makes it."""

    def __post_init__(self) -> None:
        self.name = self.file.layout.frame.name
        self.choice = Choice(self.file, self.wanted, self.scan)

    def pieces(self) -> Iterator[Piece]:
        """Yield header, frames, damage and gaps."""
        reached = 0
        layout, choice = self.file.layout, self.choice
        if (layout.readable or layout.sealed) and layout.frames_at:
            reached = layout.frames_at
            if choice.covers(0, reached):
                yield self.header(reached)
        for segment in self.scan.segments():
            start, end = self.bounds(segment)
            if start > reached and choice.covers(reached, start):
                yield self.gap(reached, start)
            reached = end
            if isinstance(segment, Batch):
                self.learn(segment)
                yield from (self._frame(segment, frame, runs) for frame, runs in choice.frames(segment))
            else:
                yield from self._met(segment)
                if choice.stops(segment):
                    return
            if choice.past(reached):
                return
        if self.scan.end > reached and choice.covers(reached, self.scan.end):
            yield self.gap(reached, self.scan.end)

    def learn(self, batch: Batch) -> None:
        """Decode the envelopes of a batch if the file's schema depends on them (`FrameLevel.annotated_schema`)."""
        layout = self.scan.layout
        if layout.frame.shown is not None:
            self.file.format.output.describe(layout.context, batch, 0, batch.records.count)

    def _schema(self) -> Construct:
        frame = self.scan.layout.frame
        if frame.shown is None:
            return frame.schema
        if self._shown is None or self._shown[0] is not frame:
            self._shown = frame, frame.shown(self.scan.layout.context)
        return self._shown[1]

    def near_damage(self) -> Iterator[Piece]:
        """Yield damaged ranges and tails, with the fields of `context` bytes before and after them."""
        before: list[Piece] = []
        drawn, context = 0, self.wanted.context
        for piece in self.pieces():
            if not piece.rows:
                yield piece
                continue
            near = [piece] if piece.damaged else [_cut(piece, drawn, self.choice.until)]
            if piece.damaged:
                low = max(piece.start - context, drawn)
                near = [_cut(old, low, piece.start) for old in before] + near
            before = [] if piece.damaged else [*(old for old in before if old.end > piece.end - context), piece]
            for one in near:
                if one.rows:
                    yield one
                    drawn = max((row.end for row in one.rows if row.leaf or one.damaged), default=drawn)

    @staticmethod
    def bounds(segment: Batch | Damage) -> tuple[int, int]:
        """Return where a segment begins and ends in the file."""
        if isinstance(segment, Damage):
            return segment.start, segment.end
        frames = segment.frames
        return segment.base + int(frames["offset"][0]), segment.base + int(frames["end"][frames.count - 1])

    # -- pieces --------------------------------------------------------------------------------------------------

    def header(self, end: int) -> Piece:
        """Annotate the bytes before the frames."""
        data = self._read(0, end)
        schema = self.file.layout.header
        if schema is None:
            return self._piece(0, end, data, [FieldRow("header", 0, end, data)])
        traced = trace(schema, data, 0, self.limits)
        return self._piece(0, end, data, traced.rows, traced.spaces[1:])

    def _frame(self, batch: Batch, frame: int, runs: Runs) -> Piece:
        start = batch.base + int(batch.frames["offset"][frame])
        data = batch.frame_bytes(frame)
        traced = self._traced(start, data, batch.first_frame + frame, folds=self.folds and runs is None)
        rows = traced.rows
        if runs is not None and batch.rows is not None and batch.packed[frame]:
            origin, offsets, ends = int(batch.span_starts[frame]), batch.rows["offset"], batch.rows["end"]
            starts = [int(offsets[first]) - origin for first, _ in runs]
            stops = [int(ends[last - 1]) - origin for _, last in runs]
            rows = [row for row in rows if row.unit == "file" or _holds(row, starts, stops)]
        return self._piece(start, start + len(data), data, rows, traced.spaces[1:])

    def frame(self, start: int, data: bytes, number: int) -> Piece:
        """Annotate one good frame whose bytes and number are known."""
        traced = self._traced(start, data, number)
        return self._piece(start, start + len(data), data, traced.rows, traced.spaces[1:])

    def _traced(self, start: int, data: bytes, number: int, *, folds: bool = False) -> Traced:
        return trace(self._schema(), data, start, self.limits, f"{self.name}[{number}]", folds=folds)

    def _met(self, damage: Damage) -> Iterator[Piece]:
        """Yield a damaged range; of one that is not selected only the findings."""
        if self.choice.damage(damage):
            self.choice.until = damage.end + self.wanted.context
            yield self.damage(damage, self.scan.frames - 1)
        elif self.wanted.selection is not None and damage.findings:
            yield Piece(damage.start, damage.end, [], (), damage.findings)

    def damage(self, damage: Damage, number: int) -> Piece:
        """Annotate a frame with wrong content, a damaged range, or a tail. number: of the scan's last frame so far."""
        start, end = damage.start, damage.end
        data = self._read(start, min(end, start + EXCERPT))
        message = "; ".join(found.message for found in damage.findings[:1])
        if damage.payload:
            traced = self._traced(start, data, number)
            rows = [traced.rows[0]._replace(ok=False, meaning=message), *traced.rows[1:]]
            return self._piece(start, end, data, rows, traced.spaces[1:], damage.findings, True)
        name = _NAMES.get(damage.tail, "damaged")
        inside, spaces = self._inside(damage, data, name)
        top = FieldRow(name, start, end, None, message, leaf=not inside, ok=name == "preallocated")
        if not inside and end - start <= LONG:
            top = top._replace(value=data)
        return self._piece(start, end, data, [top, *inside], spaces, damage.findings, not top.ok)

    def _inside(self, damage: Damage, data: bytes, name: str) -> tuple[list[FieldRow], list[Space]]:
        """Return what the schema finds in a damaged range: whole frames, and the field where parsing fails."""
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
            traced = trace(self._schema(), data[at:], damage.start + at, self.limits, root)
            rows += [row._replace(depth=row.depth + 1) for row in traced.rows]
            spaces += traced.spaces[1:]
            at = traced.end - damage.start
            broken = any(error.finding_id != "checksum-mismatch" for error in traced.errors)
            if broken or not traced.rows or at >= len(data):
                break
        return rows, spaces

    def gap(self, start: int, end: int) -> Piece:
        """Annotate bytes between the frames: the end mark, or everything that is encrypted."""
        data = self._read(start, min(end, start + EXCERPT))
        closed = data == self.file.layout.frame.end_mark
        sealed = self.file.layout.sealed
        name = "end_mark" if closed else "encrypted" if sealed else "unmapped"
        row = FieldRow(name, start, end, data if len(data) <= LONG else None, ok=closed or sealed)
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
        """Read bytes of the file; of a stream only what is still in memory."""
        if not isinstance(self.file.source, FileSource) and self.file.size is None:
            window = self.scan.window or self.file.window
            return bytes(window.view(start, end))
        buffer = bytearray(end - start)
        with memoryview(buffer) as view:
            size = self.file.source.read_at(start, view)
        return bytes(buffer[:size])


def _holds(row: FieldRow, starts: list[int], stops: list[int]) -> bool:
    """Return True if a row of the unpacked bytes is inside one of the ranges, or contains one; these are in order."""
    at = bisect_right(stops, row.start)
    if at == len(stops):
        return False
    inside = starts[at] <= row.start and row.end <= stops[at]
    return inside or (not row.leaf and row.start <= starts[at] and stops[at] <= row.end)


def _cut(piece: Piece, low: int, high: int) -> Piece:
    """Return the rows of a piece that overlap `[low, high)`, without unpacked bytes."""
    rows = [row for row in piece.rows if not row.space and row.start < high and row.end > low]
    return replace(piece, rows=rows, spaces=piece.spaces[:1], findings=())
