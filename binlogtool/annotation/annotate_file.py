"""Annotate the bytes of a log file: header, frames, damage and tail become rows that cover every byte."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.core.decode_batches import BlockDecoder
from binlogtool.core.open_file import HEAD_BYTES, FileSource, LogFile
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import (
    LogPosition,
    ReadOptions,
    Selection,
    is_gtid_position,
    limit_selection_to_files,
    parse_position,
    split_file_prefix,
)
from binlogtool.core.record_filter import RecordFilter
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import LimitError, UsageError
from binlogtool.format_api.layout import Batch, FrameLevel
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.schema import backends
from binlogtool.schema.annotated_parse import TraceResult, add_unmapped_rows, parse_to_field_rows
from binlogtool.schema.annotated_parse_state import ROW_BYTES
from binlogtool.schema.annotation_types import AddressSpace, AnnotatedPiece, Annotation, FieldRow

if TYPE_CHECKING:
    from binlogtool.findings import Finding
    from binlogtool.format_api.format import Hints

# --- Selection of the parts of a file that an annotated dump shows ---

RecordRuns = list[tuple[int, int]] | None
"""Selected records of a frame, as runs `[first, last)` of records of the batch; None = all."""

_INDEX = re.compile(r"(\w+)\[(\d+)\]")
_POSITION_DEFAULTS = {"start": None, "stop": None, "on_damage": "skip", "live": False}


class AnnotationTarget(msgspec.Struct, frozen=True):
    """Part of a file to show; all None = the whole file.

    Args:
        at: the frame (header, damaged range) that contains this position; for an offset, all parts that overlap the
            `length` bytes from there on.
        selection: only parts with selected records (not together with `at`); its `tail` is ignored.
        field: only rows at or below this path, which may leave out the frame (`header.crc32c`).
        damage_only: damaged ranges with `context` bytes of fields around them.
    """

    at: LogPosition | None = None
    length: int = 1
    field: str | None = None
    damage_only: bool = False
    context: int = 64
    selection: Selection | None = None

    @property
    def is_single(self) -> bool:
        """True for a single position."""
        return self.at is not None

    def overlaps(self, start: int, end: int) -> bool:
        """Return True if the range overlaps the selected bytes."""
        at = self.at
        return at is not None and at.kind == "offset" and start < at.value + self.length and at.value < end


@dataclass(slots=True)
class AnnotationFilter:
    """Filter that decides for each part of a file, in file order, whether it is shown.

    context_end: end of the context of the last damage.
    """

    file: LogFile
    target: AnnotationTarget
    scan: Scan
    context_end: int = 0
    _is_found: bool = False
    _is_in_run: bool = False
    _frame_number: int | None = field(init=False, default=None)
    _filter: RecordFilter | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        match = _INDEX.match(self.target.field or "")
        if self.target.at is None and match and match[1] == self.file.layout.frame.name:
            self._frame_number = int(match[2])
        if self.target.selection is not None:
            self._filter = RecordFilter(self.target.selection)
            (share,) = limit_selection_to_files(self.target.selection, [self.file.path])
            self._filter.start_file(share, self.file.size, self.file.format.output, self.file.layout.page_size)

    def includes_range(self, start: int, end: int) -> bool:
        """Return True if a range without records is shown: the header, a damaged range, a gap."""
        at = self.target.at
        if self._frame_number is not None:
            return False
        if at is not None:
            return self.target.overlaps(start, end)
        return self._filter is None or self._in_selection(self._filter, start, end)

    def _in_selection(self, record_filter: RecordFilter, start: int, end: int) -> bool:
        """Return True if a range without records is in a selection by position; other selections have no such range."""
        if record_filter.transactions or replace(record_filter.selection, **_POSITION_DEFAULTS) != Selection():
            return False
        first, last = record_filter.start, record_filter.stop
        if any(place is not None and place.kind != "offset" for place in (first, last)):
            return self._is_in_run
        return (first is None or end > first.value) and (last is None or start < last.value)

    def includes_damage(self, damage: DamagedRange) -> bool:
        """Return True if a damaged range is shown; it may be a whole frame, or a record that is selected by number."""
        if self._frame_number is not None:
            return damage.payload and self._frame_number == self.scan.frames - 1
        at = self.target.at
        if at is not None and at.kind == "record":  # the record number in its findings
            return any(found.record == at.value for found in damage.findings)
        return self.includes_range(damage.start, damage.end)

    def stops_at(self, damage: DamagedRange) -> bool:
        """Return True if the selection ends at this damage."""
        selection = self.target.selection
        return selection is not None and selection.on_damage == "stop" and damage.tail == "damaged"

    def is_complete(self, reached: int) -> bool:
        """Return True if everything selected has been found."""
        at = self.target.at
        if self._frame_number is not None and self.scan.frames > self._frame_number:
            return True
        if self._filter is not None:
            return self._filter.is_done or self._is_after(self._filter.stop, reached)
        return (
            self._is_found if at is not None and at.kind == "seq" else self._is_after(at, reached, self.target.length)
        )

    def _is_after(self, position: LogPosition | None, reached: int, length: int = 1) -> bool:
        if position is None or position.kind == "seq":
            return False
        return reached >= position.value + length if position.kind == "offset" else self.scan.records > position.value

    # -- frames --------------------------------------------------------------------------------------------------

    def select_frames(self, batch: Batch) -> Iterator[tuple[int, RecordRuns]]:
        """Yield (index in the batch, selected records) of the selected frames."""
        if self.target.at is not None:
            yield from self._select_frames_at(batch, self.target.at)
        elif self._filter is None:
            yield from ((frame, None) for frame in self._candidate_frames(batch))
        else:
            frames: Container[int] = self._candidate_frames(batch)
            yield from (found for found in self._select_frames_by_filter(batch, self._filter) if found[0] in frames)

    def _candidate_frames(self, batch: Batch) -> range | dict[int, None]:
        """Return the frames that match the options other than the selection."""
        count = batch.frames.count
        if self.target.damage_only:
            return self._frames_near_damage(batch)
        if self._frame_number is not None:
            first = self._frame_number - batch.first_frame
            return range(max(first, 0), min(first + 1, count))
        return range(count)

    def _frames_near_damage(self, batch: Batch) -> dict[int, None]:
        """Return the frames near the last damage, and those that may be near the next damage."""
        offsets, ends, count = batch.frames["offset"], batch.frames["end"], batch.frames.count
        first = bisect_left(offsets, self.context_end - batch.base, 0, count)
        last = bisect_right(ends, int(ends[count - 1]) - self.target.context, 0, count)
        return dict.fromkeys([*range(first), *range(max(first, last), count)])

    def _select_frames_by_filter(
        self, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        decoder = BlockDecoder(self.file.path, self.file.format, self.file.layout, self.scan.limits)
        frame = -1
        runs: list[tuple[int, int]] = []
        self._is_in_run = False
        for first, last, _ in decoder.select_runs(batch, record_filter):
            self._is_in_run = last == batch.records.count
            for index in range(batch.frame_index(first), batch.frame_index(last - 1) + 1):
                if index != frame and runs:
                    yield frame, runs
                    runs = []
                frame = index
                runs.append((first, last))
        if runs:
            yield frame, runs

    def _select_frames_at(self, batch: Batch, position: LogPosition) -> Iterator[tuple[int, RecordRuns]]:
        if position.kind == "offset":
            first, count = position.value - batch.base, batch.frames.count
            start = bisect_right(batch.frames["end"], first, 0, count)
            stop = bisect_left(batch.frames["offset"], first + self.target.length, 0, count)
            yield from ((frame, None) for frame in range(start, stop))
            return
        record = self._find_record(batch, position)
        if record is not None:
            self._is_found = True
            yield batch.frame_index(record), [(record, record + 1)]

    def _find_record(self, batch: Batch, position: LogPosition) -> int | None:
        """Return the index in the batch of the record at a position; None if it is not in the batch."""
        if position.kind == "seq":
            layout = self.file.layout
            numbers = self.file.format.output.decode_envelopes(layout.context, batch, 0, batch.records.count).seq
            return next((i for i, number in enumerate(numbers) if number == position.value), None)
        index = position.value - batch.first_record
        return index if 0 <= index < batch.records.count else None


# --- Walk over one log file ---

EXCERPT_BYTES = 16 * MIB
"""Maximum bytes of a damaged range that are read and shown; the row names the whole range."""

MAX_VALUE_BYTES = 64 * KIB
"""Maximum bytes of a range without fields that has a value."""

MAX_INNER_FRAMES = 64
"""Maximum number of frames that are searched for inside one damaged range."""

_TAIL_NAMES = {"torn_tail": "torn_tail", "preallocated": "preallocated", "unknown": "unmapped"}


@dataclass(slots=True)
class AnnotationWalker:
    """Pass over a file that annotates only the selected parts.

    folds: a row of a good frame may represent several rows (`schema.annotated_parse_state.FoldedRow`).
    """

    file: LogFile
    target: AnnotationTarget
    limits: Limits
    scan: Scan
    folds: bool = False
    filter: AnnotationFilter = field(init=False)
    frame_name: str = field(init=False)
    _cached_schema: tuple[FrameLevel, Construct] | None = field(init=False, default=None)
    """Schema of the current frame level, made with this file's context."""

    def __post_init__(self) -> None:
        self.frame_name = self.file.layout.frame.name
        self.filter = AnnotationFilter(self.file, self.target, self.scan)

    def iter_pieces(self) -> Iterator[AnnotatedPiece]:
        """Yield the selected pieces: header, frames, damage and gaps."""
        reached = 0
        layout, choice = self.file.layout, self.filter
        if (layout.readable or layout.encrypted_without_key) and layout.frames_at:
            reached = layout.frames_at
            if choice.includes_range(0, reached):
                yield self.annotate_header(reached)
        for segment in self.scan.segments():
            start, end = self.get_segment_bounds(segment)
            if start > reached and choice.includes_range(reached, start):
                yield self.annotate_gap(reached, start)
            reached = end
            if isinstance(segment, Batch):
                self.decode_envelopes_if_needed(segment)
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

    def decode_envelopes_if_needed(self, batch: Batch) -> None:
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

    def iter_pieces_near_damage(self) -> Iterator[AnnotatedPiece]:
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
    def get_segment_bounds(segment: Batch | DamagedRange) -> tuple[int, int]:
        """Return the start and end of a segment in the file."""
        if isinstance(segment, DamagedRange):
            return segment.start, segment.end
        frames = segment.frames
        return segment.base + int(frames["offset"][0]), segment.base + int(frames["end"][frames.count - 1])

    # -- pieces --------------------------------------------------------------------------------------------------

    def annotate_header(self, end: int) -> AnnotatedPiece:
        """Annotate the bytes before the frames."""
        data = self._read_file_bytes(0, end)
        schema = self.file.layout.header
        if schema is None:
            return self._make_piece(0, end, data, [FieldRow("header", 0, end, data)])
        traced = parse_to_field_rows(schema, data, 0, self.limits)
        return self._make_piece(0, end, data, traced.rows, traced.spaces[1:])

    def _annotate_batch_frame(self, batch: Batch, frame: int, runs: RecordRuns) -> AnnotatedPiece:
        start = batch.base + int(batch.frames["offset"][frame])
        data, layout = batch.frame_bytes(frame), self.scan.layout
        if (select := layout.frame.select_annotated) is not None:
            select(layout.context, batch, frame)
        traced = self._trace_frame(start, data, batch.first_frame + frame, folds=self.folds and runs is None)
        if select is not None:
            select(layout.context, None, 0)
        rows = traced.rows
        if runs is not None and batch.rows is not None and batch.packed[frame]:
            origin, offsets, ends = int(batch.span_starts[frame]), batch.rows["offset"], batch.rows["end"]
            starts = [int(offsets[first]) - origin for first, _ in runs]
            stops = [int(ends[last - 1]) - origin for _, last in runs]
            rows = [row for row in rows if row.unit == "file" or _is_in_ranges(row, starts, stops)]
        return self._make_piece(start, start + len(data), data, rows, traced.spaces[1:])

    def annotate_frame(self, start: int, data: bytes, frame_number: int) -> AnnotatedPiece:
        """Annotate one good frame whose bytes and number are known."""
        traced = self._trace_frame(start, data, frame_number)
        return self._make_piece(start, start + len(data), data, traced.rows, traced.spaces[1:])

    def _trace_frame(self, start: int, data: bytes, number: int, *, folds: bool = False) -> TraceResult:
        return parse_to_field_rows(
            self._schema(), data, start, self.limits, f"{self.frame_name}[{number}]", fold_rows=folds
        )

    def _annotate_if_selected(self, damage: DamagedRange) -> Iterator[AnnotatedPiece]:
        """Yield a damaged range; if it is not selected, only its findings."""
        if self.filter.includes_damage(damage):
            self.filter.context_end = damage.end + self.target.context
            yield self.annotate_damage(damage, self.scan.frames - 1)
        elif self.target.selection is not None and damage.findings:
            yield AnnotatedPiece(damage.start, damage.end, [], (), damage.findings)

    def annotate_damage(self, damage: DamagedRange, last_frame_number: int) -> AnnotatedPiece:
        """Annotate a frame with wrong content, a damaged range, or a tail.

        last_frame_number: that of the scan's last frame.
        """
        start, end = damage.start, damage.end
        data = self._read_file_bytes(start, min(end, start + EXCERPT_BYTES))
        message = "; ".join(found.message for found in damage.findings[:1])
        if damage.payload:
            traced = self._trace_frame(start, data, last_frame_number)
            rows = [traced.rows[0]._replace(ok=False, meaning=message), *traced.rows[1:]]
            return self._make_piece(start, end, data, rows, traced.spaces[1:], damage.findings, True)
        name = _TAIL_NAMES.get(damage.tail, "damaged")
        inside, spaces = self._trace_damaged_bytes(damage, data, name)
        top = FieldRow(name, start, end, None, message, leaf=not inside, ok=name == "preallocated")
        if not inside and end - start <= MAX_VALUE_BYTES:
            top = top._replace(value=data)
        return self._make_piece(start, end, data, [top, *inside], spaces, damage.findings, not top.ok)

    def _trace_damaged_bytes(
        self, damage: DamagedRange, data: bytes, name: str
    ) -> tuple[list[FieldRow], list[AddressSpace]]:
        """Return the rows that the schema finds in a damaged range: whole frames, and the field where parsing fails."""
        layout = self.file.layout
        rows: list[FieldRow] = []
        spaces: list[AddressSpace] = []
        if damage.tail in ("preallocated", "unknown"):
            return rows, spaces
        if not layout.readable:
            head = data[:HEAD_BYTES]
            header_rows = (
                parse_to_field_rows(layout.header, head, 0, self.limits).rows if layout.header is not None else []
            )
            return [row._replace(path=f"{name}.{row.path}", depth=row.depth + 1) for row in header_rows], spaces
        at = 0
        for index in range(MAX_INNER_FRAMES):
            root = f"{name}.{self.frame_name}[{index}]"
            traced = parse_to_field_rows(self._schema(), data[at:], damage.start + at, self.limits, root)
            rows += [row._replace(depth=row.depth + 1) for row in traced.rows]
            spaces += traced.spaces[1:]
            at = traced.end - damage.start
            broken = any(error.finding_id != "checksum-mismatch" for error in traced.errors)
            if broken or not traced.rows or at >= len(data):
                break
        return rows, spaces

    def annotate_gap(self, start: int, end: int) -> AnnotatedPiece:
        """Annotate bytes between the frames: the end mark, or all encrypted bytes."""
        data = self._read_file_bytes(start, min(end, start + EXCERPT_BYTES))
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
        filled = add_unmapped_rows(rows, start, end, whole)
        if len(data) < end - start:  # the rest of a long range was not read
            filled = [row._replace(value=None) if row.end > start + len(data) else row for row in filled]
        return AnnotatedPiece(start, end, filled, (whole, *(spaces or ())), findings, damaged)

    def _read_file_bytes(self, start: int, end: int) -> bytes:
        """Read bytes of the file; for a stream, only those that are still in memory."""
        if not isinstance(self.file.source, FileSource) and self.file.size is None:
            window = self.scan.window or self.file.window
            return bytes(window.view(start, end))
        buffer = bytearray(end - start)
        with memoryview(buffer) as view:
            size = self.file.source.read_at(start, view)
        return bytes(buffer[:size])


def _is_in_ranges(row: FieldRow, starts: list[int], stops: list[int]) -> bool:
    """Return True if a row of unpacked bytes is inside one of the ranges, which are in order, or contains one."""
    at = bisect_right(stops, row.start)
    if at == len(stops):
        return False
    inside = starts[at] <= row.start and row.end <= stops[at]
    return inside or (not row.leaf and row.start <= starts[at] and stops[at] <= row.end)


def _clip_piece(piece: AnnotatedPiece, low: int, high: int) -> AnnotatedPiece:
    """Return the rows of a piece that overlap `[low, high)`, without unpacked bytes."""
    rows = [row for row in piece.rows if not row.space and row.start < high and row.end > low]
    return replace(piece, rows=rows, spaces=piece.spaces[:1], findings=())


# --- Annotated bytes of one log file ---


class AnnotateRequest(msgspec.Struct, frozen=True):
    """Part of a file to annotate; without arguments the whole file, from the header on.

    Args:
        record: number of a record, from 0.
        at: a position (`0x4f8`, `end-4KiB`, `record:5`, `seq:7`).
        length: with `at` as an offset (not given = 0): all parts that overlap this number of bytes from there on.
        selection: only the frames with selected records, and in unpacked payloads only the rows of these records.
        field: only rows at or below this path, with or without the frame.
        damage_only: damaged ranges with `context` bytes of fields around them.
    """

    record: int | None = None
    at: int | str | None = None
    length: int | None = None
    field: str | None = None
    damage_only: bool = False
    context: int = 64
    selection: Selection | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.record, self.at, self.selection)) > 1:
            raise UsageError("choose one: a record, a position, or a selection of records")
        if self.length is not None and (self.record is not None or self.selection is not None or self.length < 1):
            raise UsageError("--length needs a position, and must be at least 1")
        if self.selection is not None and self.selection.tail is not None:
            raise UsageError("--tail cannot be annotated; give the positions of the records")

    @property
    def named_file(self) -> str | None:
        """The file named in a position of the request; None = no file."""
        selected = () if self.selection is None else (self.selection.start, self.selection.stop)
        texts = [text for text in (self.at, *selected) if isinstance(text, str) and not is_gtid_position(text)]
        return next((name for name, _ in map(split_file_prefix, texts) if name is not None), None)

    def resolve_target(self, file_size: int | None, page_size: int | None) -> AnnotationTarget:
        """Resolve the request for a file of this size, with pages of this size (None = no pages).

        Raises:
            UsageError: the position is invalid.
        """
        place = parse_position(self.at, file_size, page_size) if isinstance(self.at, str) else None
        if self.record is not None:
            place = LogPosition("record", self.record)
        elif isinstance(self.at, int):
            place = LogPosition("offset", self.at)
        if self.length is not None:
            place = place or LogPosition("offset", 0)
            if place.kind != "offset":
                raise UsageError(f"--length needs an offset in --at, not {place.kind}:{place.value}")
        return AnnotationTarget(place, self.length or 1, self.field, self.damage_only, self.context, self.selection)


_WHOLE_FILE = AnnotateRequest()


class LogAnnotation(msgspec.Struct, frozen=True):
    """Annotated part of one file, piece by piece in file order, with the memory of one piece.

    `pieces` can be consumed once. Pieces without rows have only findings: about the whole file, and about damage
    between selected records. Iteration may raise UsageError (the record, position or field does not exist) and
    LimitError (a limit ended the scan).
    """

    log_file: LogFile
    pieces: Iterator[AnnotatedPiece]

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.log_file.path

    @property
    def size(self) -> int | None:
        """Size of the file in bytes; None for a stream, whose size is known after it was read."""
        return self.log_file.size

    def collect_annotation(self, limits: Limits = Limits()) -> Annotation:
        """Return all pieces as one annotation.

        Raises:
            UsageError: the record, position or field does not exist.
            LimitError: there are more rows than fit into `limits.max_memory`, or a limit ended the scan.
        """
        file, held = self.log_file, 0
        rows: list[FieldRow] = []
        spaces: list[AddressSpace] = []
        findings: list[Finding] = []
        for piece in self.pieces:
            rows += piece.rows
            spaces += piece.spaces
            findings += piece.findings
            held += sum(len(space.data) for space in piece.spaces)
            if len(rows) * ROW_BYTES + held > limits.max_memory:
                raise LimitError(
                    f"{file.path}: more fields than --max-memory allows; select a smaller part, or use text output"
                )
        size = file.size if file.size is not None else file.window.end
        return Annotation(file.path, file.format.name, size, tuple(rows), tuple(spaces), tuple(findings))


def annotate_file(
    file: LogFile,
    request: AnnotateRequest = _WHOLE_FILE,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
) -> LogAnnotation:
    """Annotate one open file. folds: a row may represent several (`schema.annotated_parse_state.FoldedRow`)."""
    return LogAnnotation(file, _iter_pieces(file, request, limits, backend=backend, live=live, folds=folds))


def annotate_log(
    log: LogReader,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
    **request_options: Any,
) -> LogAnnotation:
    """Annotate the file of a log, or the member that `at` names (`FILE:POS`).

    Args:
        folds: a row may represent several rows, as the fast hexdump supports.
        request_options: members of `AnnotateRequest`.

    Raises:
        UsageError: the log has several files and `at` names none, or the request contradicts itself.
    """
    request = AnnotateRequest(**request_options)
    return annotate_file(_select_file(log, request), request, limits=limits, backend=backend, live=live, folds=folds)


def annotate_path(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
    **options: Any,
) -> Annotation:
    """Annotate a part of one file; return all rows in file order. The options are those of `annotate_log`.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    with open_log(path, ReadOptions(format, limits, backend, hints), LogReader) as log:
        return annotate_log(log, limits=limits, backend=backend, **options).collect_annotation(limits)


def _select_file(log: LogReader, request: AnnotateRequest) -> LogFile:
    files = log.files
    if len(files) > 1 and request.named_file is not None:
        files = tuple(file for file in files if request.named_file in (file.path, os.path.basename(file.path)))
    if len(files) != 1:
        raise UsageError("name one file of the log")
    return files[0]


def _iter_pieces(
    file: LogFile, request: AnnotateRequest, limits: Limits, *, backend: str, live: bool, folds: bool
) -> Iterator[AnnotatedPiece]:
    target = request.resolve_target(file.size, file.layout.page_size)
    if file.layout.findings and not target.is_single:
        yield AnnotatedPiece(0, 0, [], (), file.layout.findings)
    walk = make_walker(file, target, limits, backend, live=live)
    walk.folds = folds and target.field is None and not target.damage_only
    row_count = 0
    for piece in walk.iter_pieces_near_damage() if target.damage_only else walk.iter_pieces():
        selected = piece if target.field is None else replace(piece, rows=_select_path(piece.rows, target.field))
        row_count += len(selected.rows)
        if selected.rows or not piece.rows:
            yield selected
    if walk.scan.incomplete:
        raise LimitError(f"{file.path}: {walk.scan.incomplete}")
    if not row_count and (target.at is not None or target.field is not None):
        raise UsageError(f"{file.path}: {_describe_missing(target, walk.scan)}")
    if changed := file.find_change_since_open():
        yield AnnotatedPiece(0, 0, [], (), (changed,))


def make_walker(
    file: LogFile, target: AnnotationTarget, limits: Limits, backend: str, *, live: bool = False
) -> AnnotationWalker:
    """Create the walker of one pass over a file, within the memory limits."""
    limits = replace(limits, max_inflate=min(limits.max_inflate, limits.max_memory // 4))
    return AnnotationWalker(file, target, limits, _make_scan(file, limits, backend, live))


def _make_scan(file: LogFile, limits: Limits, backend: str, live: bool) -> Scan:
    """Create a scan of the frames; records that span several frames are not joined."""
    engine = backends.choose_backend(backend)
    window = file.window if file.size is None else None
    layout = replace(file.layout, make_assembler=None)
    return Scan(file.source, file.format, layout, engine, limits, True, live, window)


def _describe_missing(target: AnnotationTarget, scan: Scan) -> str:
    if target.field is not None:
        return f"there is no field {target.field!r} at this place"
    assert target.at is not None
    if target.at.kind == "record":
        return f"there is no record {target.at.value}; number of records: {scan.records:,}"
    if target.at.kind == "offset":
        return f"nothing at {target.at.value:#x}; the file has {scan.end:,} bytes"
    return f"no record with {target.at.kind} {target.at.value}"


def _select_path(rows: list[FieldRow], path: str) -> list[FieldRow]:
    """Return the rows at or below a path, given in full or from the frame on."""
    return [row for row in rows if _is_at_or_below(row.path, path) or _is_at_or_below(row.path.partition(".")[2], path)]


def _is_at_or_below(row: str, path: str) -> bool:
    return row.startswith(path) and row[len(path) : len(path) + 1] in ("", ".", "[")
