"""Turn batches into blocks of records, row batches of tables, SQL fragments and transactions, by compiled code where
possible.

Long values are replaced by placeholders while a body is written. Placeholders are random, so that no log contains one.

Compiled code writes records until it meets one that it does not support, which Python decodes. Where this is frequent,
Python decodes runs of growing length, since each switch costs as much as many records.

This is several times as fast as decoding events one by one. Bodies that plain JSON cannot express (bytes, and
everything else with a `$` marker) are also decoded by Python.
"""

from __future__ import annotations

import codecs
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from operator import and_
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import json
from msgspec.structs import replace

from binlogtool import limits
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    InnerPosition,
    RecordBlock,
    RecordChecksum,
    RowBatch,
    SqlFragment,
)
from binlogtool.core.record_filter import (
    MAX_BLOCK_RECORDS,
    MAX_GAP,
    RecordFilter,
    RecordRange,
    choose_python_record_count,
    find_marked_runs,
    join_marked_runs,
    runs_to_byte_mask,
    split_runs_into_blocks,
)
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.format_api.encode_json import (
    DEFAULT_STYLE,
    JsonStyle,
    encode_json,
    escape_invisible_characters,
    to_json_bytes,
)
from binlogtool.format_api.format import (
    PIECE_SIZE,
    BodyWithFindings,
    BodyWithLongValues,
    EnvelopeColumns,
    Format,
    JsonLine,
    LongValue,
    split_into_pieces,
)
from binlogtool.format_api.layout import (
    Batch,
    Column,
    ColumnTable,
    FlatRecords,
    LogFileLayout,
    RecordPositions,
    flatten_batch,
    to_int_list,
)
from binlogtool.format_api.row_output_interfaces import (
    CompiledTableReader,
    EventGroupReader,
    EventRows,
    PortableEventGroup,
    PriorGtids,
    ScriptWriter,
    TableReader,
    estimate_row_bytes,
)

if TYPE_CHECKING:
    from binlogtool.core.apply_where import CompiledCondition, RowCondition
    from binlogtool.limits import Limits
    from binlogtool.query.evaluate import ColumnValues, Condition
    from binlogtool.schema.frame_scan_loop import Backend
    from binlogtool.schema.json_body_codegen import WrittenRecords
    from binlogtool.schema.json_line_codegen import CellColumns, CellWriter


# --- Long values on their way to JSON output ---

_PLACEHOLDER_BYTES = 16
_PLACEHOLDER = re.compile(rb"@[0-9a-f]{32}@")
_BASE64_GROUP = 3
"""Number of bytes that base64 encodes as one group."""


def extract_long_values(body: Any, max_bytes: int) -> tuple[Any, dict[str, LongValue]]:
    """Return the body with placeholders for values of more than `max_bytes` bytes, and the values by placeholder."""
    extracted: dict[str, LongValue] = {}
    return _replace_long_values_by_placeholders(body, max_bytes, extracted), extracted


def _replace_long_values_by_placeholders(value: Any, max_bytes: int, extracted: dict[str, LongValue]) -> Any:
    """Return the value with each long text or bytes replaced by a random placeholder; add the originals to
    `extracted`.
    """
    kind = type(value)
    if kind is dict:
        return {
            name: _replace_long_values_by_placeholders(inner, max_bytes, extracted) for name, inner in value.items()
        }
    if kind is list or kind is tuple:
        return [_replace_long_values_by_placeholders(inner, max_bytes, extracted) for inner in value]
    if kind is str or kind is bytes:
        value = _to_long_value(value) if len(value) > max_bytes else value
    if not isinstance(value, LongValue):
        return value
    placeholder = f"@{os.urandom(_PLACEHOLDER_BYTES).hex()}@"
    extracted[placeholder] = value
    return placeholder if value.is_text else {"$bytes": placeholder}


def _to_long_value(value: str | bytes) -> LongValue | str | bytes:
    """Return the value as a `LongValue`, which is read in pieces; unchanged if it is a text that cannot be encoded."""
    if isinstance(value, bytes):
        return LongValue(split_into_pieces(value), False)

    def pieces() -> Iterator[bytes]:
        return (value[at : at + PIECE_SIZE].encode() for at in range(0, len(value), PIECE_SIZE))

    try:
        for _ in pieces():
            pass
    except UnicodeEncodeError:
        return value
    return LongValue(pieces, True)


class LongValueWriter:
    """Writer of long values instead of their placeholders. doubles_quotes: double the quotes, as in CSV cells."""

    def __init__(self, style: JsonStyle = DEFAULT_STYLE, *, doubles_quotes: bool = False) -> None:
        self._style = style
        self._doubles_quotes = doubles_quotes
        self._waiting: dict[bytes, LongValue] = {}

    def fill_placeholders(self, records_text: bytes, values_by_placeholder: Mapping[str, LongValue]) -> Iterator[bytes]:
        """Yield the text of some records with the values extracted from them.

        The text of a record may also come in a later call, with the text of other records.
        """
        self._waiting.update((mark.encode(), value) for mark, value in values_by_placeholder.items())
        at = 0
        if self._waiting:
            for match in _PLACEHOLDER.finditer(records_text):
                value = self._waiting.pop(match[0], None)
                if value is not None:
                    yield records_text[at : match.start()]
                    yield from map(self._escape_cell, self._iter_encoded(value))
                    at = match.end()
        yield records_text[at:] if at else records_text

    def _escape_cell(self, text: bytes) -> bytes:
        return text.replace(b'"', b'""') if self._doubles_quotes else text

    def _iter_encoded(self, value: LongValue) -> Iterator[bytes]:
        """Yield the encoded text of a value, to be put between quotation marks."""
        texts = (
            _iter_text(value) if value.is_text else map(self._style.encode_bytes, _iter_base64_aligned_pieces(value))
        )
        return (escape_invisible_characters(encode_json(text))[1:-1] for text in texts)


def _iter_text(value: LongValue) -> Iterator[str]:
    """Yield the text in pieces of whole characters."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    return (decode(piece) for piece in value.pieces())


def _iter_base64_aligned_pieces(value: LongValue) -> Iterator[bytes]:
    """Yield the bytes in pieces that can be encoded one by one, in any form."""
    remainder = b""
    for piece in value.pieces():
        piece = remainder + piece if remainder else piece
        group_bytes = len(piece) - len(piece) % _BASE64_GROUP
        yield piece[:group_bytes]
        remainder = piece[group_bytes:]
    yield remainder


# --- Blocks of records ---

_CHECKSUM_ABSENT = 2

_MEMORY_FRACTION = 16
"""Fraction of the memory (1/16) that the table rows of a block may take, unless they belong to one record."""


class BlockDecoder(msgspec.Struct, frozen=True):
    """Decoder of the batches of one file into blocks of records.

    Args:
        decode: "frame" (no envelope body), "header" or "full".
        raw: also return the raw bytes of each record.
        script: writer of statements, which are the bodies.
        row_condition: selects the rows of these statements.
        reader: reader of table rows, which are the bodies.
    """

    file: str
    format: Format
    layout: LogFileLayout
    limits: Limits
    decode: str = "full"
    raw: bool = False
    script: ScriptWriter | None = None
    row_condition: RowCondition | None = None
    reader: TableReader | None = None

    def decode_batch(self, batch: Batch, record_filter: RecordFilter) -> Iterator[RecordBlock]:
        """Yield the selected records of a batch, in order."""
        reached = 0
        for holder, inner in batch.inner.items():
            yield from self.decode_range(batch, record_filter, reached, holder + 1)
            yield from self.decode_batch(inner, record_filter)
            reached = holder + 1
        yield from self.decode_range(batch, record_filter, reached, batch.records.count)

    def decode_range(self, batch: Batch, record_filter: RecordFilter, start: int, stop: int) -> Iterator[RecordBlock]:
        """Yield the selected records among `[start, stop)`."""
        at = start
        for first, last, envelope in self.select_runs(batch, record_filter, start, stop):
            self._skip_in_script(batch, at, first)
            yield self.make_block(batch, first, last, envelope)
            at = last
        self._skip_in_script(batch, at, stop)

    def _skip_in_script(self, batch: Batch, start: int, stop: int) -> None:
        """Pass records that are not selected to the script writer: they may define tables."""
        if self.script is not None and start < stop:
            self.script.note_unselected_records(self.layout.context, batch, start, stop, self.limits)

    def select_runs(
        self, batch: Batch, record_filter: RecordFilter, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, EnvelopeColumns]]:
        """Yield runs `[first, last)` of selected records among `[begin, end)` with their envelopes."""
        end = batch.records.count if end is None else end
        if record_filter.has_no_statements(batch, begin, end):
            return
        if can_select_compiled(batch, record_filter):
            for runs, envelope in self._select_runs_by_compiled_condition(batch, record_filter, begin, end):
                for first, last in runs:
                    yield first, last, self.decode_envelopes(batch, first, last) if envelope is None else envelope
            return
        for start in range(begin, end, MAX_BLOCK_RECORDS):
            if record_filter.is_done:
                return
            yield from self._select_by_envelope(batch, record_filter, start, min(start + MAX_BLOCK_RECORDS, end))

    def _select_by_envelope(
        self, batch: Batch, record_filter: RecordFilter, start: int, stop: int
    ) -> Iterator[tuple[int, int, EnvelopeColumns]]:
        """Decode all envelopes of the records `[start, stop)`, and yield the selected runs."""
        envelope = self.decode_envelopes(batch, start, stop)
        condition, narrow = record_filter.where, None
        if condition is not None:
            lines = (
                record_filter.lines
                if record_filter.lines is not None and record_filter.lines.prepare_if_supported(batch)
                else None
            )
            narrow = ConditionNarrower(self, condition, batch, start, envelope, lines).select_runs
        for first, last in record_filter.select_runs(batch, start, stop, envelope, narrow):
            yield first, last, envelope.part(first - start, last - start)

    def _select_runs_by_compiled_condition(
        self, batch: Batch, record_filter: RecordFilter, begin: int, end: int
    ) -> Iterator[tuple[list[tuple[int, int]], EnvelopeColumns | None]]:
        """Yield runs of the records in `[begin, end)` for which the condition is true.

        Records that compiled code refuses are yielded one by one, with their envelopes.
        """
        position, python_run, lines = begin, 1, record_filter.lines
        assert lines is not None
        while position < end and not record_filter.is_done:
            marks, refused = lines.evaluate_until_refused(position, end)
            runs = list(record_filter.apply_skip_and_limit(split_runs_into_blocks(find_marked_runs(marks, position))))
            if runs:
                yield runs, None
            position += len(marks)
            if refused and not record_filter.is_done:
                python_run = 1 if len(marks) > MAX_GAP else min(2 * python_run, MAX_BLOCK_RECORDS)
                for first, last, envelope in self._select_by_envelope(
                    batch, record_filter, position, min(position + python_run, end)
                ):
                    yield [(first, last)], envelope
                position = min(position + python_run, end)

    def select_ranges(
        self, batch: Batch, record_filter: RecordFilter, *, include_inner_records: bool = False
    ) -> Iterator[RecordRange | RecordBlock]:
        """Yield the selected records of a batch, as blocks where the selection had to decode them.

        include_inner_records: also yield ranges of records that are inside containers.
        """
        if not batch.inner and can_select_compiled(batch, record_filter):
            for runs, envelope in self._select_runs_by_compiled_condition(batch, record_filter, 0, batch.records.count):
                if envelope is None:
                    yield RecordRange(self, batch, runs[0][0], runs[-1][1], runs_to_byte_mask(runs))
                else:
                    yield self.make_block(batch, *runs[0], envelope)
            return
        if record_filter.is_by_envelope_names_only and self.script is None and not batch.inner:
            if not record_filter.has_no_statements(batch, 0, batch.records.count):
                yield from self._select_masked_range(batch, record_filter)
            return
        if not record_filter.is_by_record_number_only or (batch.inner and not include_inner_records):
            yield from self.decode_batch(batch, record_filter)
            return
        reached = 0
        for holder, inner in batch.inner.items():
            yield from self._select_range(batch, record_filter, reached, holder + 1)
            yield from self._select_range(inner, record_filter, 0, inner.records.count)
            reached = holder + 1
        yield from self._select_range(batch, record_filter, reached, batch.records.count)

    def _select_masked_range(self, batch: Batch, record_filter: RecordFilter) -> Iterator[RecordRange]:
        """Yield one range from the first to the last selected record, with a byte mask; decode a column of all records
        for what the format learns.
        """
        count, context, decode_column = batch.records.count, self.layout.context, self.format.output.decode_column
        if decode_column is None:
            envelope = self.decode_envelopes(batch, 0, count)
            marks = record_filter.make_selection_mask(
                batch, lambda name, first, last: getattr(envelope, name)[first:last]
            )
        else:
            decode_column(context, batch, "type", 0, 0)
            marks = record_filter.make_selection_mask(batch, partial(decode_column, context, batch))
        start, stop = marks.find(1), marks.rfind(1) + 1
        if stop:
            yield RecordRange(self, batch, start, stop, marks[start:stop])

    def _select_range(self, batch: Batch, record_filter: RecordFilter, start: int, stop: int) -> Iterator[RecordRange]:
        for first, last in record_filter.select_runs(batch, start, stop, None):
            self._decode_unselected_envelopes(batch, start, first)
            yield RecordRange(self, batch, first, last)
            start = last
        if not record_filter.is_done:
            self._decode_unselected_envelopes(batch, start, stop)

    def _decode_unselected_envelopes(self, batch: Batch, start: int, stop: int) -> None:
        """Decode envelopes of records that are not selected, as formats learn names from them."""
        if start < stop:
            self.decode_envelopes(batch, start, stop)

    def decode_envelopes(self, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
        """Return the envelopes of the records `[start, stop)`."""
        return self.format.output.decode_envelopes(self.layout.context, batch, start, stop)

    def make_memory_limited_blocks(
        self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns
    ) -> Iterator[RecordBlock]:
        """Yield the records `[start, stop)` of a batch in blocks of limited memory."""
        if self.decode != "full" or self.reader is None:
            yield self.make_block(batch, start, stop, envelope)
            return
        max_bytes, first, held_bytes, bodies = self.limits.max_memory // _MEMORY_FRACTION, start, 0, list[Any]()
        for stop_so_far, body in enumerate(self._iter_bodies(batch, start, stop, envelope), start + 1):
            bodies.append(body)
            held_bytes += sum(map(estimate_row_bytes, body.rows))
            if held_bytes > max_bytes and stop_so_far < stop:
                part = envelope.part(first - start, stop_so_far - start)
                yield self.make_block(batch, first, stop_so_far, part, bodies)
                first, held_bytes, bodies = stop_so_far, 0, []
        part = envelope if first == start else envelope.part(first - start, stop - start)
        yield self.make_block(batch, first, stop, part, bodies)

    def make_block(
        self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns, bodies: list[Any] | None = None
    ) -> RecordBlock:
        """Return the records `[start, stop)` of a batch as one block. bodies: their bodies, if already decoded."""
        locations = RecordLocations(batch, self.layout, start, stop)
        findings: dict[int, tuple[Finding, ...]] = {}
        if self.decode != "full":
            bodies = []
        else:
            bodies = self._decode_bodies(batch, start, stop, envelope) if bodies is None else bodies
            for i, body in enumerate(bodies):
                if isinstance(body, Finding):
                    findings[i] = (body,)
                    bodies[i] = None
                elif isinstance(body, BodyWithFindings):
                    bodies[i], findings[i] = body
        long_values = self._extract_long_values(bodies, locations)
        extras = None if self.reader is not None else self.format.output.decode_extras
        return RecordBlock(
            file=self.file,
            format=self.format.name,
            record=batch.record_numbers(start, stop),
            offset=locations.list_file_offsets(),
            size=locations.list_sizes_in_file(),
            inner=locations.inner_positions(),
            envelope=envelope,
            checksum=locations.checksums(),
            bodies=bodies,
            extras=extras(self.layout.context, batch, start, stop) if extras and self.decode != "frame" else None,
            findings=findings,
            raw=[batch.record_bytes(i) for i in range(start, stop)] if self.raw else None,
            long_values=long_values,
        )

    def _extract_long_values(self, bodies: list[Any], locations: RecordLocations) -> dict[str, LongValue]:
        """Replace values longer than `Limits.max_whole` in these bodies by placeholders; return the values."""
        max_bytes, long_values = self.limits.max_whole, dict[str, LongValue]()
        if max_bytes is None or self.script is not None or self.reader is not None:
            return long_values
        for i, (body, size) in enumerate(zip(bodies, locations.list_sizes_in_file(), strict=False)):
            has_long_values = isinstance(body, BodyWithLongValues)
            if has_long_values or size > max_bytes:
                bodies[i], extracted = extract_long_values(body.body if has_long_values else body, max_bytes)
                long_values |= extracted
        return long_values

    def _decode_bodies(self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns) -> list[Any]:
        return list(self._iter_bodies(batch, start, stop, envelope))

    def _iter_bodies(self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns) -> Iterable[Any]:
        if self.row_condition is not None:
            names = self.row_condition.condition.members
            self.row_condition.set_record_members(
                start, stop, read_member_columns(names, self.layout, batch, start, stop, envelope)
            )
        if self.script is not None:
            return self.script.make_record_texts(self.layout.context, batch, start, stop, self.limits)
        if self.reader is not None:
            return self.reader.read_records(self.layout.context, batch, start, stop, self.limits)
        return self.format.output.decode_bodies(self.layout.context, batch, start, stop, self.limits)


def can_select_compiled(batch: Batch, record_filter: RecordFilter) -> bool:
    """Return True if compiled code can evaluate the selection for most records of a batch; call in file order."""
    return (
        record_filter.is_by_where_only
        and record_filter.lines is not None
        and record_filter.lines.prepare_if_supported(batch)
    )


class RecordLocations:
    """File positions of the records `[start, stop)` of a batch, and the checksums of their frames."""

    def __init__(self, batch: Batch, layout: LogFileLayout, start: int, stop: int) -> None:
        self._batch, self._layout, self._start, self._stop = batch, layout, start, stop
        self._first, self._last = batch.frame_index(start), batch.frame_index(stop - 1)
        self._packed = batch.packed[self._first : self._last + 1] if batch.rows else ()
        self._any_packed = any(self._packed)

    def _record_column(self, name: str) -> list[int]:
        return to_int_list(self._batch.records[name][self._start : self._stop])

    def _frame_column(self, column: Column) -> list[int]:
        return to_int_list(column[self._first : self._last + 1])

    def _own_sizes(self) -> list[int]:
        """Return the size of each record in its own address space."""
        return [end - at for at, end in zip(*map(self._record_column, ("offset", "end")), strict=True)]

    def _frame_indexes(self) -> list[int]:
        """Return the index of each record's frame, counted from the frame of the first record."""
        return [span - self._first for span in self._record_column("span")]

    def list_file_offsets(self) -> list[int]:
        """Return the file offset of each record, or of its container when the container is packed."""
        if self._batch.container is not None:
            return [self._batch.container.offset] * (self._stop - self._start)
        if self._batch.positions is not None:
            return to_int_list(self._batch.positions.offset, self._start, self._stop)
        base, frames, level = self._batch.base, self._batch.frames, self._layout.rows
        if level is None:
            return [base + offset for offset in self._record_column("offset")]
        payloads, starts = self._frame_column(frames[level.start]), self._frame_column(self._batch.span_starts)
        places, spans = zip(payloads, starts, strict=True), self._frame_indexes()
        delta = [base + payload - start for payload, start in places]
        if not self._any_packed:
            return [delta[s] + row for s, row in zip(spans, self._record_column("offset"), strict=True)]
        packed, offsets = self._packed, self._frame_column(frames["offset"])
        return [
            base + offsets[s] if packed[s] else delta[s] + row
            for s, row in zip(spans, self._record_column("offset"), strict=True)
        ]

    def list_sizes_in_file(self) -> list[int]:
        """Return the size in the file of each record, or of its container when the container is packed."""
        if self._batch.container is not None:
            return [self._batch.container.size] * (self._stop - self._start)
        if self._batch.positions is not None:
            return to_int_list(self._batch.positions.size, self._start, self._stop)
        own = self._own_sizes()
        if not self._any_packed:
            return own
        frames, packed = self._batch.frames, self._packed
        whole = [end - at for at, end in zip(*map(self._frame_column, (frames["offset"], frames["end"])), strict=True)]
        return [whole[s] if packed[s] else size for s, size in zip(self._frame_indexes(), own, strict=True)]

    def inner_positions(self) -> Sequence[InnerPosition | None]:
        """Return the positions in the unpacked payload, for records inside packed containers."""
        if self._batch.is_inside:
            sizes = enumerate(self._own_sizes(), self._start)
            return [InnerPosition(self._batch.inner_offset(i), size) for i, size in sizes]
        if not self._any_packed:
            return [None] * (self._stop - self._start)
        packed, starts = self._packed, self._frame_column(self._batch.span_starts)
        return [
            InnerPosition(offset - starts[s], size) if packed[s] else None
            for s, offset, size in zip(
                self._frame_indexes(), self._record_column("offset"), self._own_sizes(), strict=True
            )
        ]

    def checksums(self) -> Sequence[RecordChecksum | None]:
        """Return one checksum per record, shared by the records of a frame."""
        level, frames = self._layout.frame, self._batch.frames
        if level.checksum is None or level.stored is None or level.stored not in frames.columns:
            return [None] * (self._stop - self._start)
        name = level.checksum.name
        stored = [value & 0xFFFFFFFF for value in self._frame_column(frames[level.stored])]
        values = [
            RecordChecksum(name, value, self._compute_checksum(self._first + i), None)
            if state == _CHECKSUM_ABSENT
            else RecordChecksum(name, value, value, True)
            if state
            else None
            for i, (value, state) in enumerate(zip(stored, self._frame_column(frames["checksum"]), strict=True))
        ]
        return values if self._batch.rows is None else [values[s] for s in self._frame_indexes()]

    def _compute_checksum(self, frame: int) -> int:
        level = self._layout.frame
        assert level.covered is not None
        low, high = (self._batch.frames[name][frame] for name in level.covered)
        return int(level.checksum(self._batch.window[low:high]))


def read_member_columns(
    names: Iterable[str], layout: LogFileLayout, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns
) -> ColumnValues:
    """Return these members of the records `[start, stop)` as columns. envelope: their decoded envelopes."""
    from binlogtool.query.evaluate import to_timestamps

    locations, columns = None, dict[str, Sequence[Any]]()
    for name in names:
        if name in ("offset", "size"):
            locations = locations or RecordLocations(batch, layout, start, stop)
            columns[name] = locations.list_file_offsets() if name == "offset" else locations.list_sizes_in_file()
        elif name == "record":
            columns[name] = batch.record_numbers(start, stop)
        else:
            columns[name] = to_timestamps(envelope.time) if name == "time" else getattr(envelope, name)
    return columns


class ConditionNarrower(msgspec.Struct, frozen=True):
    """Applies a condition to the records of a batch from `start` on, using their decoded envelopes.

    lines: compiled condition for the records that compiled code supports.
    """

    decoder: BlockDecoder
    condition: Condition
    batch: Batch
    start: int
    envelope: EnvelopeColumns
    lines: CompiledCondition | None = None

    def select_runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of the records `[first, last)`; decode a body only if its envelope does not rule it out."""
        envelope, condition = self.envelope.part(first - self.start, last - self.start), self.condition
        columns = read_member_columns(condition.members, self.decoder.layout, self.batch, first, last, envelope)
        marks = condition.mark_possible_matches(columns, last - first)
        return find_marked_runs(
            self._iter_selected_flags(columns, first, marks) if condition.needs_body else marks, first
        )

    def _iter_selected_flags(
        self, columns: ColumnValues, first: int, candidate_marks: Sequence[bool]
    ) -> Iterator[bool]:
        """Yield for each record whether it is selected.

        candidate_marks: the records that the envelope does not rule out.
        """
        at = 0
        for low, high in join_marked_runs(candidate_marks, 0 if self.lines is None else MAX_GAP):
            yield from repeat(False, low - at)
            yield from map(and_, candidate_marks[low:high], self._evaluate(columns, first, first + low, first + high))
            at = high

    def _evaluate(self, columns: ColumnValues, first: int, low: int, high: int) -> Iterator[bool]:
        """Yield for each record whether the condition is true; a body that cannot be decoded counts as a match."""
        run = _BODIES_AT_ONCE if self.lines is None else 1
        while low < high:
            if self.lines is not None:
                truths, refused = self.lines.evaluate_until_refused(low, high)
                yield from truths
                low += len(truths)
                if not refused:
                    continue
                run = 1 if len(truths) > MAX_GAP else min(2 * run, _BODIES_AT_ONCE)
            end = min(low + run, high)
            yield from self._evaluate_condition_in_python(columns, first, low, end)
            low = end

    def _evaluate_condition_in_python(self, columns: ColumnValues, first: int, low: int, high: int) -> Iterator[bool]:
        """Yield for each record `[low, high)` whether the condition is true, from bodies decoded by Python."""
        decoder = self.decoder
        limits = replace(decoder.limits, max_whole=None)
        bodies = (
            decoder.format.output.decode_bodies(decoder.layout.context, self.batch, low, high, limits)
            if low < high
            else []
        )
        for index, body in enumerate(bodies, low - first):
            body = body.body if isinstance(body, BodyWithFindings) else body
            record_members = {name: column[index] for name, column in columns.items()}
            yield isinstance(body, Finding) or self.condition.is_true_for_record(record_members, body)


_BODIES_AT_ONCE = 256
"""Number of bodies decoded at once; small, so that few are decoded in vain when a limit is reached."""


# --- Row batches ---

MIN_COMPILED_RUN = 32
"""Minimum number of records in a compiled run that makes up for the switch from Python and back."""


class RowMatcher(Protocol):
    """Evaluates a condition on the rows of records (`core.apply_where.CompiledRowCondition`)."""

    def mark_matching_rows(
        self, decoder: BlockDecoder, batch: Batch, record_indexes: Sequence[int], row_counts: Sequence[int]
    ) -> bytes:
        """Return a byte for each row of these records, 0 where the condition is not true."""


class RowBatchReader:
    """Reader of batches as row batches (`core.open_log.BatchReader`). matcher: evaluates a condition; None = none."""

    def __init__(self, matcher: RowMatcher | None = None) -> None:
        self._matcher = matcher
        self._python_run = 1

    def read_batch(
        self, decoder: BlockDecoder, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[RowBatch | RecordBlock]:
        """Yield the selected records of a batch."""
        if not isinstance(decoder.reader, CompiledTableReader):
            yield from decoder.decode_batch(batch, record_filter)
            return
        reader, context = decoder.reader, decoder.layout.context
        if record_filter.is_by_envelope_only and not record_filter.is_by_record_number_only and not batch.inner:
            marks = record_filter.make_selection_mask(batch, partial(reader.read_column, context, batch))
            start, stop = marks.find(1), marks.rfind(1) + 1
            if stop:
                yield from self._read_range(RecordRange(decoder, batch, start, stop, marks[start:stop]), reader)
            else:
                reader.read_column(context, batch, "type", 0, 0)  # collects state for later batches
            return
        for part in decoder.select_ranges(batch, record_filter, include_inner_records=True):
            if isinstance(part, RecordRange):
                yield from self._read_range(part, reader)
            else:
                yield part

    def _read_range(self, record_range: RecordRange, reader: CompiledTableReader) -> Iterator[RowBatch | RecordBlock]:
        position, stop, decoder, batch = record_range.start, record_range.stop, record_range.decoder, record_range.batch
        while position < stop:
            marks = record_range.marks_from(position)
            rows, reached = reader.read_rows_until_unsupported(
                decoder.layout.context, batch, position, stop, decoder.limits, marks
            )
            if rows is not None:
                row_marks = None
                if self._matcher is not None:
                    row_marks = self._matcher.mark_matching_rows(decoder, batch, rows.record_indexes, rows.row_counts)
                yield _make_row_batch(decoder, batch, reached, rows, row_marks)
            if reached < stop:
                self._python_run = choose_python_record_count(self._python_run, reached - position, MIN_COMPILED_RUN)
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached


def _make_row_batch(
    decoder: BlockDecoder, batch: Batch, reached: int, rows: EventRows, row_marks: bytes | None
) -> RowBatch:
    """Return the rows of the records before `reached` as a row batch."""
    record, base = batch.first_record, batch.base
    if batch.container is None and batch.positions is None:
        end = base + int(batch.frames["end"][reached - 1])
    else:
        places = [batch.container_position(index) for index in rows.record_indexes]
        numbers, offsets = array("q", [one.record for one in places]), array("q", [one.offset for one in places])
        rows, record, base = rows._replace(record_indexes=numbers, offsets=offsets), 0, 0
        last = batch.container_position(reached - 1)
        end = last.offset + last.size
    return RowBatch(decoder.file, decoder.format.name, record, base, end, rows, row_marks)


# --- SQL fragments ---


class SqlFragmentWriter:
    """Writer of the batches of one file as SQL fragments (a `core.open_log.BatchReader`)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._python_run = 1

    def write_batch(
        self, decoder: BlockDecoder, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[SqlFragment | RecordBlock]:
        """Yield the selected records of a batch."""
        if batch.inner and record_filter.selects_all:
            for run in flatten_batch(batch):
                yield from self._write_flat(decoder, run)
            return
        for part in decoder.select_ranges(batch, record_filter, include_inner_records=True):
            if isinstance(part, RecordRange):
                yield from self._write_range(part)
            else:
                yield part

    def _write_flat(self, decoder: BlockDecoder, run: FlatRecords) -> Iterator[SqlFragment | RecordBlock]:
        """Yield a run of records and the records inside them; in parts if it cannot be written as a whole."""
        position, script = 0, decoder.script
        assert script is not None
        while position < run.count:
            start, context = position, decoder.layout.context
            data, position = script.write_until_unsupported(
                context, run, start, run.count, decoder.limits, self._backend.compile_kernel
            )
            if position > start:
                batch, first, _, part_start = run.find_part(position - 1)
                container = batch.container_position(first + position - 1 - part_start)
                yield SqlFragment(decoder.file, run.record_numbers(start, position), (container.offset,), data)
            if position < run.count:
                batch, first, stop, part_start = run.find_part(position)
                yield from self._write_range(RecordRange(decoder, batch, first + position - part_start, stop))
                position = part_start + stop - first

    def _write_range(self, record_range: RecordRange) -> Iterator[SqlFragment | RecordBlock]:
        """Yield the range as SQL fragments; records that compiled code does not support as blocks."""
        position, stop, decoder, batch = record_range.start, record_range.stop, record_range.decoder, record_range.batch
        script = decoder.script
        assert script is not None
        while position < stop:
            data, reached = script.write_until_unsupported(
                decoder.layout.context, batch, position, stop, decoder.limits, self._backend.compile_kernel
            )
            if reached > position:
                container = batch.container_position(reached - 1)
                yield SqlFragment(decoder.file, batch.record_numbers(position, reached), (container.offset,), data)
            if reached < stop:
                self._python_run = (
                    min(2 * self._python_run + 1, MAX_BLOCK_RECORDS) if reached - position < MIN_COMPILED_RUN else 1
                )
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached


# --- Event groups of a server's log, selected like records ---

_NO_BYTES = memoryview(b"")


class SelectedEventGroup(NamedTuple):
    """An event group of a file, or the finding about an incomplete transaction. selected: it is in the selection."""

    file: str
    part: PortableEventGroup | PriorGtids | Finding
    selected: bool = True


def read_event_groups(
    path: str, scan: Scan, record_filter: RecordFilter, limits: Limits
) -> Iterator[SelectedEventGroup | FileFinding]:
    """Yield the event groups of one file, up to the last selected one.

    Raises:
        UsageError: files of this format or kind have no event groups.
    """
    if scan.format.reading.event_groups is None:
        raise UsageError(f"{path}: the records of {scan.format.name} are not events of a server's binary log")
    group_reader = scan.format.reading.event_groups(scan.layout, limits)
    for segment in scan.segments():
        parts: Iterator[PortableEventGroup | PriorGtids | Finding]
        if isinstance(segment, DamagedRange):
            yield from (FileFinding(path, found) for found in segment.findings)
            parts = _read_damaged(group_reader, segment)
        else:
            parts = group_reader.read_groups(segment)
        yield from _mark_selected(path, parts, record_filter)
        if record_filter.is_done:
            return
    yield from _mark_selected(path, group_reader.finish(), record_filter)


def _read_damaged(
    group_reader: EventGroupReader, segment: DamagedRange
) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
    if segment.tail == "damaged":
        yield from group_reader.skip_damage(segment.start, segment.end)


def _mark_selected(
    path: str, parts: Iterator[PortableEventGroup | PriorGtids | Finding], record_filter: RecordFilter
) -> Iterator[SelectedEventGroup]:
    for part in parts:
        yield SelectedEventGroup(
            path, part, not isinstance(part, PortableEventGroup) or _is_group_selected(record_filter, part)
        )


def _is_group_selected(record_filter: RecordFilter, group: PortableEventGroup) -> bool:
    """Return True if the selection includes the group, treated as one record; always for a FORMAT_DESCRIPTION."""
    if group.type == "FORMAT_DESCRIPTION":
        return True
    envelope = EnvelopeColumns([group.type], [group.seq], [group.time], [None], [group.origin], [group.txn])
    positions = RecordPositions([group.offset], [group.size])
    batch = Batch(0, _NO_BYTES, ColumnTable(1, {}), _NO_BYTES, None, (), (), group.record, 0, positions=positions)
    return any(True for _ in record_filter.select_runs(batch, 0, 1, envelope))


# --- Compiled reading of records, with a transparent fallback to Python ---

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)


class CompiledWriter(Protocol[D_co]):
    """Compiled code for the records of one file."""

    def prepare_batch(self, batch: Batch) -> Any:
        """Prepare a batch for `write`; the result is valid as long as the batch. None if the batch is not supported."""

    def write(self, prepared: Any, start: int, stop: int, mask: bytes | None = None) -> WrittenRecords[D_co]:
        """Write as many of the records `[start, stop)` as possible. mask: a byte per record from `start`, 0 = skip."""


class CompiledRun(NamedTuple, Generic[D]):
    """The records `[start, stop)` of a batch, and the output for the selected records; valid until the next run."""

    record_range: RecordRange
    start: int
    stop: int
    data: D


class CompiledRunWriter(Generic[D]):
    """Writes record ranges by compiled code. make_writer: creates the writer of a file whose format has kernels."""

    def __init__(self, make_writer: Callable[[JsonLine, BlockDecoder], CompiledWriter[D]]) -> None:
        self._make_writer = make_writer
        self._decoder: BlockDecoder | None = None
        self._writer: CompiledWriter[D] | None = None
        self._python_run = 1

    def is_current_file(self, decoder: BlockDecoder) -> bool:
        """Return True if the last records came from this file."""
        return decoder is self._decoder

    def write_range(self, record_range: RecordRange) -> Iterator[CompiledRun[D] | RecordBlock]:
        """Yield the records of the range in order: compiled runs, and blocks decoded by Python."""
        writer = self._get_writer(record_range.decoder)
        if writer is None:
            yield from record_range.decode_blocks(record_range.start, record_range.stop)
        else:
            yield from self._write_range(record_range, writer)

    def _write_range(
        self, record_range: RecordRange, writer: CompiledWriter[D]
    ) -> Iterator[CompiledRun[D] | RecordBlock]:
        position, stop = record_range.start, record_range.stop
        if self._python_run > 1 and stop - position < MIN_COMPILED_RUN:  # the last records were refused
            yield from record_range.decode_blocks(position, stop)
            return
        prepared = writer.prepare_batch(record_range.batch)
        if prepared is None:
            yield from record_range.decode_blocks(position, stop)
            return
        while position < stop:
            data, reached, refused = writer.write(prepared, position, stop, record_range.marks_from(position))
            if record_range.has_selected(position, reached):
                yield CompiledRun(record_range, position, reached, data)
            if refused:
                self._python_run = (
                    min(2 * self._python_run, MAX_BLOCK_RECORDS) if reached - position < MIN_COMPILED_RUN else 1
                )
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached

    def _get_writer(self, decoder: BlockDecoder) -> CompiledWriter[D] | None:
        """Return the compiled writer of a file; None if its format has none, or if it nests deeper than the limits."""
        if decoder is not self._decoder:
            self._decoder, self._python_run = decoder, 1
            make_line = decoder.format.output.json_line
            line = None if make_line is None else make_line(decoder.layout.context)
            fits = line is not None and line.depth <= decoder.limits.max_depth
            self._writer = self._make_writer(line, decoder) if line is not None and fits else None
        return self._writer


# --- Blocks whose bodies are decoded by compiled code ---

_MARKER_PREFIX = b'"$'
"""Start of the member names for values that JSON cannot express; rare enough in ordinary text."""

MIN_COMPILED_RECORDS = 256
"""Minimum number of records of a file that is worth the buffers of compiled code, which each file needs anew."""

_decode_json_list = json.Decoder(list[Any]).decode


class CompiledBodyDecoder:
    """Makes blocks of record ranges, file by file. min_records: with fewer records, a file is decoded by Python."""

    def __init__(self, min_records: int = MIN_COMPILED_RECORDS) -> None:
        self._min_records = min_records
        self._compiled: CompiledRunWriter[CellColumns] = CompiledRunWriter(self._make_writer)
        self._header_decoder: tuple[BlockDecoder, BlockDecoder] | None = None

    def decode_range(self, record_range: RecordRange) -> Iterator[RecordBlock]:
        """Yield the records of a range, in order."""
        if record_range.stop - record_range.start < self._min_records and not self._compiled.is_current_file(
            record_range.decoder
        ):
            yield from record_range.decode_blocks(record_range.start, record_range.stop)
            return
        for part in self._compiled.write_range(record_range):
            yield self._make_block(part) if isinstance(part, CompiledRun) else part

    def _make_writer(self, line: JsonLine, decoder: BlockDecoder) -> CellWriter:
        from binlogtool.schema.json_line_codegen import CellWriter

        return CellWriter(line, decoder.layout, to_json_bytes, MAX_BLOCK_RECORDS, extras=False)

    def _make_block(self, run: CompiledRun[CellColumns]) -> RecordBlock:
        decoder, batch = run.record_range.decoder, run.record_range.batch
        if self._header_decoder is None or self._header_decoder[0] is not decoder:
            self._header_decoder = decoder, replace(decoder, decode="header")
        envelope = decoder.decode_envelopes(batch, run.start, run.stop)
        block = self._header_decoder[1].make_block(batch, run.start, run.stop, envelope)
        return replace(block, bodies=_parse_json_bodies(run))


def _parse_json_bodies(run: CompiledRun[CellColumns]) -> Sequence[Any]:
    data, ends = run.data.texts["body"]
    text, end_offsets = bytes(data[: ends[-1]]), ends.tolist()
    parts = [text[low:high] or b"null" for low, high in pairwise(end_offsets)]
    json_list = b"[" + b",".join(parts) + b"]"
    limits.require_json_memory(json_list)
    bodies: list[Any] = _decode_json_list(json_list)
    if _MARKER_PREFIX in text:
        decoder, batch = run.record_range.decoder, run.record_range.batch
        for i, part in enumerate(parts):
            if _MARKER_PREFIX in part:
                index = run.start + i
                bodies[i] = decoder.format.output.decode_bodies(
                    decoder.layout.context, batch, index, index + 1, decoder.limits
                )[0]
    return bodies
