"""Unpack the payloads of frames, split them into rows, and explain why a frame or row is invalid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from construct import Construct, ConstructError
from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.layout import (
    Batch,
    Column,
    ColumnTable,
    ContainerPosition,
    FrameLevel,
    InnerLevel,
    LogFileLayout,
    RowLevel,
    to_int_list,
)
from binlogtool.format_api.schema_fields import ChecksumResult, DecompressionError
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.schema.frame_scan_loop import Backend, Scanner, ScanStop, StopReason
from binlogtool.schema.native_library import concatenate_columns, copy_column, has_any_value

# --- Findings about bad frames and rows ---

EXCERPT_BYTES = 64 * KIB
"""Bytes of a damaged frame that are parsed for an explanation (the checksum covers the whole frame)."""


def explain_checksum_mismatch(layout: LogFileLayout, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame whose stored and computed checksums differ. data: frame, by its length field."""
    verified = _find_checksum_result(layout.frame.schema.parse(data))
    facts: dict[str, Any] = {}
    message = "stored and computed checksum differ"
    if verified is not None:
        covered = [offset + verified.start, offset + verified.end]
        facts = {
            "algorithm": verified.algorithm,
            "stored": f"{verified.stored:08x}",
            "computed": f"{verified.computed:08x}",
            "covered": covered,
        }
        message = f"stored {verified.stored:08x}, computed {verified.computed:08x}"
        flip = _find_flipped_bit(layout, data, offset, verified)
        if flip is not None:
            facts |= flip
            message += f"; one flipped bit explains it: bit {flip['flipped_bit']} of byte {flip['flipped_byte']:#x}"
            message += f" ({flip['flipped_field']})" if flip["flipped_field"] else ""
    return make_finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def explain_frame_hidden_by_bit_flip(
    layout: LogFileLayout, corrected_frame: bytes, data: bytes, offset: int, record: int, flip: tuple[int, int]
) -> Finding:
    """Create the finding for a frame hidden by one flipped bit. flip: byte offset in the corrected frame, and bit."""
    verified, (byte, bit) = _find_checksum_result(layout.frame.schema.parse(corrected_frame)), flip
    assert verified is not None
    stored, computed = verified.stored, layout.frame.checksum(data[verified.start : verified.end])
    rows_inside = [
        r for r in _trace_rows(layout.frame.schema, corrected_frame) if r.unit == "file" and r.start <= byte < r.end
    ]
    field = max(rows_inside, key=lambda row: row.depth).path if rows_inside else ""
    facts: dict[str, Any] = {
        "algorithm": verified.algorithm,
        "stored": f"{stored:08x}",
        "computed": f"{computed:08x}",
        "covered": [offset + verified.start, offset + verified.end],
        "flipped_byte": offset + byte,
        "flipped_bit": bit,
        "flipped_field": field,
    }
    message = f"one flipped bit explains it: bit {bit} of byte {offset + byte:#x}" + (f" ({field})" if field else "")
    return make_finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def correct_flipped_bit(frame: bytes, offset: int, finding: Finding) -> bytes | None:
    """Return the frame with the flipped bit corrected that explains its checksum; None if no bit does."""
    if "flipped_byte" not in finding.facts:
        return None
    fixed_frame = bytearray(frame)
    fixed_frame[finding.facts["flipped_byte"] - offset] ^= 1 << finding.facts["flipped_bit"]
    return bytes(fixed_frame)


def replace_frame_checksum(layout: LogFileLayout, frame: bytes, finding: Finding) -> bytes | None:
    """Return the frame with its checksum recomputed from its current bytes; None if the field is not found."""
    if "stored" not in finding.facts:
        return None
    stored, computed = int(finding.facts["stored"], 16), int(finding.facts["computed"], 16)
    row = _find_checksum_row(_trace_rows(layout.frame.schema, frame), stored)
    if row is None:
        return None
    big = frame[row.start : row.end].endswith(stored.to_bytes(4, "big"))
    order: Literal["little", "big"] = "big" if big else "little"
    return frame[: row.end - 4] + computed.to_bytes(4, order) + frame[row.end :]


def _find_checksum_row(rows: Iterable[Any], stored: int) -> Any:
    """Return the field that holds the checksum: the last field with this value."""
    return next((r for r in reversed(list(rows)) if r.leaf and r.unit == "file" and _holds_checksum(r, stored)), None)


def compute_checksum_difference(level: FrameLevel, data: bytes) -> tuple[int, int, int] | None:
    """Return stored xor computed checksum of a frame, and the range that it covers; None if it has no checksum."""
    try:
        verified = _find_checksum_result(level.schema.parse(data))
    except (ConstructError, OverflowError, ValueError):
        return None
    return None if verified is None else (verified.stored ^ verified.computed, verified.start, verified.end)


def _find_checksum_result(value: Any) -> ChecksumResult | None:
    if isinstance(value, ChecksumResult):
        return value
    if isinstance(value, dict):
        return next((v for v in map(_find_checksum_result, value.values()) if v is not None), None)
    return None


def _find_flipped_bit(
    layout: LogFileLayout, data: bytes, offset: int, verified: ChecksumResult
) -> dict[str, Any] | None:
    from binlogtool.format_api.layout import locate_bit_flip

    if layout.frame.checksum is None:
        return None
    flip = locate_bit_flip(layout.frame.checksum, verified.stored, verified.computed, verified.end - verified.start)
    if flip is None:
        return None
    field, position = _find_field_of_flipped_bit(layout, data, verified, flip)
    return {"flipped_byte": offset + position, "flipped_bit": flip.bit, "flipped_field": field}


def _find_field_of_flipped_bit(
    layout: LogFileLayout, data: bytes, verified: ChecksumResult, flip: Any
) -> tuple[str, int]:
    """Return the innermost named field that holds the flipped bit, and the bit's byte in the frame."""
    corrected = bytearray(data)
    position = verified.start + flip.byte
    if flip.where == "data":
        corrected[position] ^= 1 << flip.bit
    rows = _trace_rows(layout.frame.schema, bytes(corrected))
    if flip.where == "stored":
        row = _find_checksum_row(rows, verified.stored)
        if row is None:
            return "", 0
        little = data[row.start : row.end].endswith(verified.stored.to_bytes(4, "big"))
        return row.path, (row.end - 1 - flip.byte) if little else row.start + flip.byte
    rows_inside = [r for r in rows if r.unit == "file" and r.start <= position < r.end]
    return (max(rows_inside, key=lambda row: row.depth).path if rows_inside else ""), position


def _holds_checksum(row: Any, stored: int) -> bool:
    return isinstance(row.value, int) and row.value == stored and row.end - row.start >= 4


def explain_broken_frame(layout: LogFileLayout, stop: ScanStop, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame that does not parse. data: its bytes, at most EXCERPT_BYTES."""
    field = stop.field or "frame"
    message, position, own_id = _explain_with_schema(layout.frame.schema, data)
    facts: dict[str, Any] = {"field": field, "field_offset": offset + position}
    if stop.reason == StopReason.CONSTANT:
        return make_finding(
            "bad-magic", offset, min(len(data), 4), message or f"{field} is wrong", record=record, **facts
        )
    if stop.reason == StopReason.BOUNDS:
        text = message or f"the value of {field} is impossible"
        return make_finding("length-out-of-bounds", offset, len(data), text, record=record, **facts)
    id_ = own_id if own_id in ("varint-overlong", "count-out-of-bounds") else "bad-header"
    return make_finding(id_, offset, len(data), message or f"{field} is malformed", record=record, **facts)


def explain_past_end(stop: ScanStop, offset: int, need: int, size: int, record: int) -> Finding:
    """Create the finding for a frame that declares bytes beyond the end of the file although provable frames follow."""
    message = f"declares bytes up to {need:#x}, the file ends at {size:#x}"
    return make_finding(
        "length-out-of-bounds", offset, size - offset, message, record=record, field=stop.field or "frame"
    )


def explain_over_limit(stop: ScanStop, offset: int, need: int, limit: int, record: int) -> Finding:
    """Create the finding for a frame that fits into the file, but exceeds the user's or the format's limit."""
    size = need - offset
    message = f"declares at least {size:,} bytes, more than the limit of {limit:,}; --max record=SIZE raises it"
    facts: dict[str, Any] = {"field": stop.field or "frame", "declared": size, "ceiling": limit}
    return make_finding("length-out-of-bounds", offset, size, message, record=record, **facts)


def explain_unproven_frame(layout: LogFileLayout, data: bytes, offset: int) -> Finding:
    """Create the finding for a frame without a checksum that does not pass the format's own proof."""
    message, position, own_id = _explain_with_schema(layout.frame.schema, data)
    return make_finding(
        own_id or "payload-undecodable", offset, len(data), message or "the content does not follow the format",
        field_offset=offset + position,
    )  # fmt: skip


def explain_bad_row(schema: Construct, stop: ScanStop, row: bytes, offset: int, size: int, inner: int) -> Finding:
    """Create the finding for a payload that is not a sequence of whole rows of this schema.

    Args:
        row: bytes from the failing row on.
        inner: offset of the failing row in the payload.
    """
    message, position, own_id = _explain_with_schema(schema, row[:EXCERPT_BYTES])
    message = message or f"{stop.field or 'row'}: {stop.reason.name.lower()}"
    text = f"row at payload offset {inner}: {message}"
    return make_finding(own_id or "payload-undecodable", offset, size, text, inner_offset=inner + position)


def _trace_rows(schema: Any, data: bytes) -> Any:
    """Return the fields as stored in the file, without unpacking anything."""
    return _trace(schema, data, unpacks=False).rows


def _trace(schema: Any, data: bytes, *, unpacks: bool = True) -> Any:
    from binlogtool.schema.annotated_parse import parse_to_field_rows  # rarely needed

    return parse_to_field_rows(schema, data, 0, Limits(), decompress=unpacks)


@lru_cache(maxsize=16)
def _explain_with_schema(schema: Any, data: bytes) -> tuple[str, int, str | None]:
    """Return the schema's error message, its position, and its finding id.

    The last few results are cached: garbage often repeats.
    """
    try:
        error = _trace(schema, data).error
    except ConstructError as trouble:  # pragma: no cover - trace turns these into values
        return str(trouble), 0, None
    if error is None:
        return "", 0, None
    return f"{error.path}: {error.message}", error.position, error.finding_id


# --- Payloads of good frames ---

_MAX_ARENA_BYTES = 8 * MIB
_CHECKSUM_ABSENT = 2
_INNER_CAPACITY = 4096
_MAX_EXPLAINED_ROWS = 16
"""Maximum number of bad rows of a frame that are explained in terms of the schema; further ones only briefly."""


class FrameRun(NamedTuple):
    """A run of frames, with their rows and inner records in formats that have them (see `Batch`)."""

    frames: ColumnTable
    arena: memoryview
    rows: ColumnTable | None
    starts: Column
    packed: Sequence[bool]
    inner: Mapping[int, Batch] = MappingProxyType({})


class BadPayload(NamedTuple):
    """A frame `[start, end)` of the window whose content is wrong.

    stored: its stored checksum, 0 = none. framed: the checksum proves its end; otherwise its length may also be wrong.
    """

    start: int
    end: int
    finding: Finding
    stored: int
    framed: bool = True


class PartlyBadFrame(NamedTuple):
    """A frame `[start, end)` of the window whose checksum matches, but some of whose rows are invalid.

    Args:
        good_rows: the good rows.
        framed_rows: the invalid rows whose beginning can be read.
        findings: findings about the invalid rows; their record numbers count from the first good row.
        lost_bytes: bytes of the payload that are not good rows.
    """

    start: int
    end: int
    good_rows: FrameRun
    framed_rows: FrameRun | None
    findings: tuple[Finding, ...]
    lost_bytes: int


class PayloadSpans(NamedTuple):
    """Payloads of consecutive frames in one buffer. bad: set if the next frame cannot be unpacked."""

    frame_count: int
    arena: memoryview
    starts: Column
    ends: Column
    packed: Sequence[bool]
    bad: BadPayload | None = None


def slice_table(table: ColumnTable, start: int, stop: int) -> ColumnTable:
    """Return the entries `[start, stop)` of a table."""
    return ColumnTable(stop - start, {name: column[start:stop] for name, column in table.columns.items()})


def _concatenate_table_copies(*tables: ColumnTable) -> ColumnTable:
    """Copy the entries of several tables into one table that stays valid when the scanner continues."""
    if len(tables) == 1:
        table = tables[0]
        return ColumnTable(
            table.count, {name: copy_column(column[: table.count]) for name, column in table.columns.items()}
        )
    columns = {
        name: concatenate_columns([table[name][: table.count] for table in tables]) for name in tables[0].columns
    }
    return ColumnTable(sum(table.count for table in tables), columns)


def _join_rows_of_frame(tables: Sequence[ColumnTable]) -> ColumnTable:
    """Join the rows of one frame into one table."""
    filled_tables = [table for table in tables if table.count] or list(tables[:1])
    columns = {name: concatenate_columns([table[name] for table in filled_tables]) for name in filled_tables[0].columns}
    count = sum(table.count for table in filled_tables)
    columns["span"] = [0] * count
    return ColumnTable(count, columns)


class PayloadReader(msgspec.Struct):
    """Reader of the content of frames, the second stage of a scan. It keeps only scanners and buffers between calls."""

    layout: LogFileLayout
    backend: Backend
    limits: Limits
    _row_scanner: Scanner | None = None
    _single_row_scanner: Scanner | None = None
    _framed_row_scanner: Scanner | None = None
    _inner_scanner: Scanner | None = None

    def read_frames(
        self, view: memoryview, base: int, table: ColumnTable
    ) -> Iterator[FrameRun | BadPayload | PartlyBadFrame]:
        """Yield the frames of a table in order. view: the bytes in memory; base: their file offset."""
        for frames, bad in self._split_proven_frames(view, base, table):
            if frames.count and self.layout.inner is not None:
                yield from self._read_frames_with_inner_records(view, base, frames, self.layout.inner)
            elif frames.count and self.layout.rows is None:
                yield FrameRun(frames, view, None, (), ())
            elif frames.count:
                yield from self._read_frames_with_rows(view, base, frames)
            if bad is not None:
                yield bad

    def _split_proven_frames(
        self, view: memoryview, base: int, table: ColumnTable
    ) -> Iterator[tuple[ColumnTable, BadPayload | None]]:
        """Yield runs of proven frames; a frame without a checksum must pass the format's own proof."""
        prove = self.layout.frame.prove
        if prove is None:
            yield table, None
            return
        start = 0
        if has_any_value(table["checksum"], (_CHECKSUM_ABSENT,)):
            states, offsets, ends = table["checksum"], table["offset"], table["end"]
            for i in range(table.count):
                if states[i] != _CHECKSUM_ABSENT:
                    continue
                low, high = int(offsets[i]), int(ends[i])
                data = bytes(view[low:high])
                if not prove(data, self.layout.context):
                    item = explain_unproven_frame(self.layout, data, base + low)
                    bad = BadPayload(low, high, item, self._stored_checksum(table, i), framed=False)
                    yield slice_table(table, start, i), bad
                    start = i + 1
        yield slice_table(table, start, table.count), None

    def _read_frames_with_inner_records(
        self, view: memoryview, base: int, table: ColumnTable, level: InnerLevel
    ) -> Iterator[FrameRun | BadPayload | PartlyBadFrame]:
        """Yield the frames in order, each container with the records inside it; few are unpacked at a time."""
        first, held_bytes, inner = 0, 0, dict[int, Batch]()
        codes = table[level.selector]
        holders = range(table.count) if has_any_value(codes, level.holders) else ()
        for i in holders:
            if int(codes[i]) not in level.holders:
                continue
            batch_or_bad = self._read_inner_records(view, base, table, i, level)
            if isinstance(batch_or_bad, BadPayload):
                if i > first:
                    yield FrameRun(slice_table(table, first, i), view, None, (), (), inner)
                yield batch_or_bad
                first, held_bytes, inner = i + 1, 0, {}
                continue
            inner[i - first] = batch_or_bad
            held_bytes += len(batch_or_bad.window)
            if held_bytes >= _MAX_ARENA_BYTES:
                yield FrameRun(slice_table(table, first, i + 1), view, None, (), (), inner)
                first, held_bytes, inner = i + 1, 0, {}
        if table.count > first:
            yield FrameRun(slice_table(table, first, table.count), view, None, (), (), inner)

    def _read_inner_records(
        self, view: memoryview, base: int, table: ColumnTable, frame_index: int, level: InnerLevel
    ) -> Batch | BadPayload:
        """Return the records inside frame `frame_index`, or what is wrong with them."""
        low, high = int(table["offset"][frame_index]), int(table["end"][frame_index])
        try:
            data = level.unpack(
                view[int(table[level.start][frame_index]) : int(table[level.end][frame_index])], self.limits
            )
        except DecompressionError as error:
            item = make_finding(error.finding_id, base + low, high - low, str(error))
            return BadPayload(low, high, item, self._stored_checksum(table, frame_index))
        if self._inner_scanner is None:
            self._inner_scanner = self.backend.make_scanner(level.frame.schema, level.frame.columns, _INNER_CAPACITY)
        scanner = self._inner_scanner
        tables: list[ColumnTable] = []
        position, stop = 0, None
        while stop is None or stop.reason == StopReason.FULL:
            part, stop = scanner.scan(data, position, len(data))
            tables.append(part if stop.reason == StopReason.END else _concatenate_table_copies(part))
            position = stop.at
        if stop.reason != StopReason.END:
            excerpt = bytes(memoryview(data)[stop.at : stop.at + EXCERPT_BYTES])
            item = explain_bad_row(level.frame.schema, stop, excerpt, base + low, high - low, stop.at)
            return BadPayload(low, high, item, self._stored_checksum(table, frame_index))
        window = memoryview(data)
        return Batch(
            0,
            window,
            _concatenate_table_copies(*tables),
            window,
            None,
            (),
            (),
            0,
            0,
            container=ContainerPosition(base + low, high - low, 0),
        )

    def _read_frames_with_rows(
        self, view: memoryview, base: int, table: ColumnTable
    ) -> Iterator[FrameRun | BadPayload | PartlyBadFrame]:
        level = self.layout.rows
        assert level is not None
        first = 0
        while first < table.count:
            rest = slice_table(table, first, table.count)
            spans = self._unpack_payloads(view, base, rest, level)
            if spans.frame_count:
                yield from self._scan_payload_rows(base, slice_table(rest, 0, spans.frame_count), spans, level)
            first += spans.frame_count
            if spans.bad is not None:
                yield spans.bad
                first += 1

    def _unpack_payloads(self, view: memoryview, base: int, table: ColumnTable, level: RowLevel) -> PayloadSpans:
        """Return the ranges of the payloads: in the window if nothing is packed, else in a buffer of unpacked bytes."""
        starts, ends = table[level.start], table[level.end]
        column = None if level.selector is None else table[level.selector]
        if column is None or not has_any_value(column, level.codecs.keys()):
            return PayloadSpans(table.count, view, starts, ends, [False] * table.count)
        selectors = to_int_list(column)
        packed = [value in level.codecs for value in selectors]
        arena = bytearray()
        boundaries = [0]
        for i in range(table.count):
            payload: bytes | bytearray | memoryview = view[starts[i] : ends[i]]
            if packed[i]:
                try:
                    payload = level.codecs[selectors[i]](view[starts[i] : ends[i]], self.limits)
                except DecompressionError as error:
                    low, high = int(table["offset"][i]), int(table["end"][i])
                    item = make_finding(error.finding_id, base + low, high - low, str(error))
                    bad = BadPayload(low, high, item, self._stored_checksum(table, i))
                    return PayloadSpans(i, memoryview(arena), boundaries[:-1], boundaries[1:], packed[:i], bad)
            if packed[i] and len(payload) >= _MAX_ARENA_BYTES:
                return self._span_large_payload(i, payload, arena, boundaries, packed[:i])
            arena += payload
            boundaries.append(len(arena))
            if len(arena) >= _MAX_ARENA_BYTES:
                break
        count = len(boundaries) - 1
        return PayloadSpans(count, memoryview(arena), boundaries[:-1], boundaries[1:], packed[:count])

    def _span_large_payload(
        self,
        index: int,
        payload: bytes | bytearray | memoryview,
        arena: bytearray,
        boundaries: list[int],
        packed: list[bool],
    ) -> PayloadSpans:
        """Return a large payload without copying it to the buffer; earlier payloads in it are returned first."""
        if index:
            return PayloadSpans(index, memoryview(arena), boundaries[:-1], boundaries[1:], packed)
        return PayloadSpans(1, memoryview(payload), [0], [len(payload)], [True])

    def _scan_payload_rows(
        self, base: int, table: ColumnTable, spans: PayloadSpans, level: RowLevel
    ) -> Iterator[FrameRun | BadPayload | PartlyBadFrame]:
        """Split payloads into rows; a payload that is not exactly a sequence of rows is bad."""
        first = 0
        while first < table.count:
            self._row_scanner = scanner = self._row_scanner or self.backend.make_scanner(level.schema, level.columns)
            starts, ends = spans.starts[first:], spans.ends[first:]
            rows, stop = scanner.scan_spans(spans.arena, starts, ends, 0, table.count - first)
            good_count = table.count - first if stop.reason == StopReason.END else stop.span
            if good_count:
                yield FrameRun(
                    slice_table(table, first, first + good_count), spans.arena, rows, starts, spans.packed[first:]
                )
            first += good_count
            if stop.reason not in (StopReason.FULL, StopReason.END):
                yield self._separate_good_rows(base, slice_table(table, first, first + 1), spans, first, level)
                first += 1

    def _separate_good_rows(
        self, base: int, table: ColumnTable, spans: PayloadSpans, index: int, level: RowLevel
    ) -> BadPayload | PartlyBadFrame:
        """Return the good rows of a frame with invalid rows, and the findings about the invalid ones."""
        walker = _RowWalker(self, level, spans.arena, int(spans.starts[index]), int(spans.ends[index]))
        low, high = int(table["offset"][0]), int(table["end"][0])
        walker.walk_rows(base + low, high - low)
        if not any(good.count for good in walker.good):
            return BadPayload(low, high, walker.findings[0], self._stored_checksum(table, 0))
        packed = spans.packed[index : index + 1]
        pieces = [
            FrameRun(table, spans.arena, _join_rows_of_frame(rows), spans.starts[index : index + 1], packed)
            if rows
            else None
            for rows in (walker.good, walker.framed)
        ]
        assert pieces[0] is not None
        return PartlyBadFrame(low, high, pieces[0], pieces[1], tuple(walker.findings), walker.lost_bytes)

    def get_row_and_row_start_scanners(self, row_level: RowLevel) -> tuple[Scanner, Scanner | None]:
        """Return the scanner of rows, and the scanner that reads only the beginning of rows (None = not supported)."""
        self._single_row_scanner = self._single_row_scanner or self.backend.make_scanner(
            row_level.schema, row_level.columns
        )
        if self._framed_row_scanner is None and row_level.framed is not None:
            self._framed_row_scanner = self.backend.make_scanner(row_level.framed, row_level.columns, 1)
        return self._single_row_scanner, self._framed_row_scanner

    def _stored_checksum(self, table: ColumnTable, index: int) -> int:
        name = self.layout.frame.stored
        return 0 if name is None else int(table[name][index])


class _RowWalker:
    """Walker over the rows of one frame that continues after an invalid row.

    good, framed: tables of the rows; findings: one for each bad row, the first ones explained by the schema.
    """

    def __init__(self, payloads: PayloadReader, level: RowLevel, arena: memoryview, start: int, end: int) -> None:
        self.good: list[ColumnTable] = []
        self.framed: list[ColumnTable] = []
        self.findings: list[Finding] = []
        self.lost_bytes = 0
        self._level, self._arena, self._start, self._end = level, arena, start, end
        self._row_scanner, self._framed_scanner = payloads.get_row_and_row_start_scanners(level)

    def walk_rows(self, frame_offset: int, frame_size: int) -> None:
        """Walk over all rows. frame_offset, frame_size: position and size of the frame in the file."""
        position = self._start
        while position < self._end:
            table, stop = self._row_scanner.scan(self._arena, position, self._end)
            self.good.append(_concatenate_table_copies(table))
            position = stop.at
            if stop.reason == StopReason.END:
                return
            if stop.reason != StopReason.FULL:
                row_end = self._find_bad_row_end(position)
                self._add_finding(stop, position, row_end, frame_offset, frame_size)
                position = row_end

    def _find_bad_row_end(self, row_start: int) -> int:
        """Return where the bad row at `row_start` ends; the end of the payload if that is unknown."""
        if self._framed_scanner is None:
            return self._end
        table, _ = self._framed_scanner.scan(self._arena, row_start, self._end)
        if not table.count:
            return self._end
        self.framed.append(_concatenate_table_copies(table))
        return int(table["end"][0])

    def _add_finding(self, stop: ScanStop, at: int, row_end: int, offset: int, size: int) -> None:
        self.lost_bytes += row_end - at
        record = sum(table.count for table in self.good)
        inner = at - self._start
        if len(self.findings) < _MAX_EXPLAINED_ROWS:
            row = bytes(self._arena[at : min(self._end, at + EXCERPT_BYTES)])
            item = explain_bad_row(self._level.schema, stop, row, offset, size, inner)
        else:
            text = f"row at payload offset {inner}: {stop.field or 'row'}: {stop.reason.name.lower()}"
            item = make_finding("payload-undecodable", offset, size, text, inner_offset=inner)
        self.findings.append(replace(item, record=record))
