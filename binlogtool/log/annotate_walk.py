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
from binlogtool.log.annotate_choice import AnnotationFilter, AnnotationTarget, RecordRuns
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange
from binlogtool.log.source import HEAD_BYTES, FileSource
from binlogtool.schema.annotation import AddressSpace, AnnotatedPiece, FieldRow
from binlogtool.schema.trace import TraceResult, fill_unmapped, trace_record

EXCERPT_BYTES = 16 * MIB
"""Bytes of a damaged range that are looked at (and drawn); the row names the whole range."""

MAX_VALUE_BYTES = 64 * KIB
"""Ranges without fields that are longer than this have no value of their own."""

MAX_INNER_FRAMES = 64
"""Frames that are looked for inside one damaged range."""

_TAIL_NAMES = {"torn_tail": "torn_tail", "preallocated": "preallocated", "unknown": "unmapped"}


@dataclass(slots=True)
class AnnotationWalker:
    """One pass over the file; makes only the selected pieces.

    folds: rows of good frames may stand for several (`trace_shapes.FoldedRow`).
    """

    file: LogFile
    target: AnnotationTarget
    limits: Limits
    scan: Scan
    folds: bool = False
    filter: AnnotationFilter = attribute(init=False)
    frame_name: str = attribute(init=False)
    _cached_schema: tuple[FrameLevel, Construct] | None = attribute(init=False, default=None)
    """The schema of the level that holds, as this file's context makes it."""

    def __post_init__(self) -> None:
        self.frame_name = self.file.layout.frame.name
        self.filter = AnnotationFilter(self.file, self.target, self.scan)

    def iter_pieces(self) -> Iterator[AnnotatedPiece]:
        """Yield header, frames, damage and gaps."""
        reached = 0
        layout, choice = self.file.layout, self.filter
        if (layout.readable or layout.encrypted_without_key) and layout.frames_at:
            reached = layout.frames_at
            if choice.includes_range(0, reached):
                yield self.annotate_header(reached)
        for segment in self.scan.segments():
            start, end = self.bounds(segment)
            if start > reached and choice.includes_range(reached, start):
                yield self.annotate_gap(reached, start)
            reached = end
            if isinstance(segment, Batch):
                self.learn(segment)
                yield from (
                    self._annotate_batch_frame(segment, frame, runs) for frame, runs in choice.select_frames(segment)
                )
            else:
                yield from self._annotate_if_selected(segment)
                if choice.stops_at(segment):
                    return
            if choice.is_complete(reached):
                return
        if self.scan.end > reached and choice.includes_range(reached, self.scan.end):
            yield self.annotate_gap(reached, self.scan.end)

    def learn(self, batch: Batch) -> None:
        """Decode the envelopes of a batch if the file's schema depends on them (`FrameLevel.annotated_schema`)."""
        layout = self.scan.layout
        if layout.frame.annotated_schema is not None:
            self.file.format.output.decode_envelopes(layout.context, batch, 0, batch.records.count)

    def _schema(self) -> Construct:
        frame = self.scan.layout.frame
        if frame.annotated_schema is None:
            return frame.schema
        if self._cached_schema is None or self._cached_schema[0] is not frame:
            self._cached_schema = frame, frame.annotated_schema(self.scan.layout.context)
        return self._cached_schema[1]

    def iter_near_damage(self) -> Iterator[AnnotatedPiece]:
        """Yield damaged ranges and tails, with the fields of `context` bytes before and after them."""
        before: list[AnnotatedPiece] = []
        shown_end, context = 0, self.target.context
        for piece in self.iter_pieces():
            if not piece.rows:
                yield piece
                continue
            nearby = [piece] if piece.damaged else [_clip_piece(piece, shown_end, self.filter.context_end)]
            if piece.damaged:
                low = max(piece.start - context, shown_end)
                nearby = [_clip_piece(old, low, piece.start) for old in before] + nearby
            before = [] if piece.damaged else [*(old for old in before if old.end > piece.end - context), piece]
            for item in nearby:
                if item.rows:
                    yield item
                    shown_end = max((row.end for row in item.rows if row.leaf or item.damaged), default=shown_end)

    @staticmethod
    def bounds(segment: Batch | DamagedRange) -> tuple[int, int]:
        """Return where a segment begins and ends in the file."""
        if isinstance(segment, DamagedRange):
            return segment.start, segment.end
        frames = segment.frames
        return segment.base + int(frames["offset"][0]), segment.base + int(frames["end"][frames.count - 1])

    # -- pieces --------------------------------------------------------------------------------------------------

    def annotate_header(self, end: int) -> AnnotatedPiece:
        """Annotate the bytes before the frames."""
        data = self._read(0, end)
        schema = self.file.layout.header
        if schema is None:
            return self._make_piece(0, end, data, [FieldRow("header", 0, end, data)])
        traced = trace_record(schema, data, 0, self.limits)
        return self._make_piece(0, end, data, traced.rows, traced.spaces[1:])

    def _annotate_batch_frame(self, batch: Batch, frame: int, runs: RecordRuns) -> AnnotatedPiece:
        start = batch.base + int(batch.frames["offset"][frame])
        data = batch.frame_bytes(frame)
        traced = self._trace_frame(start, data, batch.first_frame + frame, folds=self.folds and runs is None)
        rows = traced.rows
        if runs is not None and batch.rows is not None and batch.packed[frame]:
            origin, offsets, ends = int(batch.span_starts[frame]), batch.rows["offset"], batch.rows["end"]
            starts = [int(offsets[first]) - origin for first, _ in runs]
            stops = [int(ends[last - 1]) - origin for _, last in runs]
            rows = [row for row in rows if row.unit == "file" or _is_in_ranges(row, starts, stops)]
        return self._make_piece(start, start + len(data), data, rows, traced.spaces[1:])

    def annotate_frame(self, start: int, data: bytes, number: int) -> AnnotatedPiece:
        """Annotate one good frame whose bytes and number are known."""
        traced = self._trace_frame(start, data, number)
        return self._make_piece(start, start + len(data), data, traced.rows, traced.spaces[1:])

    def _trace_frame(self, start: int, data: bytes, number: int, *, folds: bool = False) -> TraceResult:
        return trace_record(self._schema(), data, start, self.limits, f"{self.frame_name}[{number}]", fold_rows=folds)

    def _annotate_if_selected(self, damage: DamagedRange) -> Iterator[AnnotatedPiece]:
        """Yield a damaged range; of one that is not selected only the findings."""
        if self.filter.includes_damage(damage):
            self.filter.context_end = damage.end + self.target.context
            yield self.annotate_damage(damage, self.scan.frames - 1)
        elif self.target.selection is not None and damage.findings:
            yield AnnotatedPiece(damage.start, damage.end, [], (), damage.findings)

    def annotate_damage(self, damage: DamagedRange, number: int) -> AnnotatedPiece:
        """Annotate a frame with wrong content, a damaged range, or a tail. number: of the scan's last frame so far."""
        start, end = damage.start, damage.end
        data = self._read(start, min(end, start + EXCERPT_BYTES))
        message = "; ".join(found.message for found in damage.findings[:1])
        if damage.payload:
            traced = self._trace_frame(start, data, number)
            rows = [traced.rows[0]._replace(ok=False, meaning=message), *traced.rows[1:]]
            return self._make_piece(start, end, data, rows, traced.spaces[1:], damage.findings, True)
        name = _TAIL_NAMES.get(damage.tail, "damaged")
        inside, spaces = self._trace_inside(damage, data, name)
        top = FieldRow(name, start, end, None, message, leaf=not inside, ok=name == "preallocated")
        if not inside and end - start <= MAX_VALUE_BYTES:
            top = top._replace(value=data)
        return self._make_piece(start, end, data, [top, *inside], spaces, damage.findings, not top.ok)

    def _trace_inside(self, damage: DamagedRange, data: bytes, name: str) -> tuple[list[FieldRow], list[AddressSpace]]:
        """Return what the schema finds in a damaged range: whole frames, and the field where parsing fails."""
        layout = self.file.layout
        rows: list[FieldRow] = []
        spaces: list[AddressSpace] = []
        if damage.tail in ("preallocated", "unknown"):
            return rows, spaces
        if not layout.readable:
            head = data[:HEAD_BYTES]
            header_rows = trace_record(layout.header, head, 0, self.limits).rows if layout.header is not None else []
            return [row._replace(path=f"{name}.{row.path}", depth=row.depth + 1) for row in header_rows], spaces
        at = 0
        for index in range(MAX_INNER_FRAMES):
            root = f"{name}.{self.frame_name}[{index}]"
            traced = trace_record(self._schema(), data[at:], damage.start + at, self.limits, root)
            rows += [row._replace(depth=row.depth + 1) for row in traced.rows]
            spaces += traced.spaces[1:]
            at = traced.end - damage.start
            broken = any(error.finding_id != "checksum-mismatch" for error in traced.errors)
            if broken or not traced.rows or at >= len(data):
                break
        return rows, spaces

    def annotate_gap(self, start: int, end: int) -> AnnotatedPiece:
        """Annotate bytes between the frames: the end mark, or everything that is encrypted."""
        data = self._read(start, min(end, start + EXCERPT_BYTES))
        is_end_mark = data == self.file.layout.frame.end_mark
        is_encrypted = self.file.layout.encrypted_without_key
        name = "end_mark" if is_end_mark else "encrypted" if is_encrypted else "unmapped"
        row = FieldRow(name, start, end, data if len(data) <= MAX_VALUE_BYTES else None, ok=is_end_mark or is_encrypted)
        return self._make_piece(start, end, data, [row])

    def _make_piece(
        self,
        start: int,
        end: int,
        data: bytes,
        rows: list[FieldRow],
        spaces: list[AddressSpace] | None = None,
        findings: tuple[Finding, ...] = (),
        damaged: bool = False,
    ) -> AnnotatedPiece:
        whole = AddressSpace("", start, data)
        filled = fill_unmapped(rows, start, end, whole)
        if len(data) < end - start:  # the rest of a long range was not read
            filled = [row._replace(value=None) if row.end > start + len(data) else row for row in filled]
        return AnnotatedPiece(start, end, filled, (whole, *(spaces or ())), findings, damaged)

    def _read(self, start: int, end: int) -> bytes:
        """Read bytes of the file; of a stream only what is still in memory."""
        if not isinstance(self.file.source, FileSource) and self.file.size is None:
            window = self.scan.window or self.file.window
            return bytes(window.view(start, end))
        buffer = bytearray(end - start)
        with memoryview(buffer) as view:
            size = self.file.source.read_at(start, view)
        return bytes(buffer[:size])


def _is_in_ranges(row: FieldRow, starts: list[int], stops: list[int]) -> bool:
    """Return True if a row of the unpacked bytes is inside one of the ranges, or contains one; these are in order."""
    at = bisect_right(stops, row.start)
    if at == len(stops):
        return False
    inside = starts[at] <= row.start and row.end <= stops[at]
    return inside or (not row.leaf and row.start <= starts[at] and stops[at] <= row.end)


def _clip_piece(piece: AnnotatedPiece, low: int, high: int) -> AnnotatedPiece:
    """Return the rows of a piece that overlap `[low, high)`, without unpacked bytes."""
    rows = [row for row in piece.rows if not row.space and row.start < high and row.end > low]
    return replace(piece, rows=rows, spaces=piece.spaces[:1], findings=())
