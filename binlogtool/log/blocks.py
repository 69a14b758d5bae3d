"""From batches to blocks of records: select, decode envelopes, decode bodies; at most BLOCK records at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import and_
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.base import Format
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.described import BodyWithFindings, EnvelopeColumns
from binlogtool.formats.layouts import Batch, Column, LogFileLayout
from binlogtool.formats.longvalues import BodyWithLongValues, LongValue
from binlogtool.formats.scripting import ScriptWriter
from binlogtool.formats.tables import TableReader, estimate_row_bytes
from binlogtool.limits import Limits
from binlogtool.log.filters import MAX_GAP, RecordFilter, find_runs, join_runs
from binlogtool.log.longvalues import extract_long_values
from binlogtool.log.records import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.log.stretches import MAX_BLOCK_RECORDS, RecordRange, make_marks, split_runs

if TYPE_CHECKING:
    from binlogtool.log.where import ColumnValues, Condition
    from binlogtool.log.where_lines import CompiledCondition
    from binlogtool.log.where_rows import RowCondition

_CHECKSUM_ABSENT = 2

_MEMORY_FRACTION = 16
"""What the records of a block tell of tables takes this part of the memory at most, or is of one record."""


class BlockDecoder(msgspec.Struct, frozen=True):
    """Turn the batches of one file into blocks of records.

    Args:
        decode: "frame" (no envelope body), "header" or "full".
        raw: also return the raw bytes of each record.
        script: the bodies are its statements.
        row_condition: selects the rows of these statements.
        reader: the bodies are its table rows.
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
        """Yield the selected ones among the records `[start, stop)`."""
        at = start
        for first, last, envelope in self.select_runs(batch, record_filter, start, stop):
            self._skip_in_script(batch, at, first)
            yield self.make_block(batch, first, last, envelope)
            at = last
        self._skip_in_script(batch, at, stop)

    def _skip_in_script(self, batch: Batch, start: int, stop: int) -> None:
        """Show the script the records that are not selected: they may define tables."""
        if self.script is not None and start < stop:
            self.script.skip_records(self.layout.context, batch, start, stop, self.limits)

    def select_runs(
        self, batch: Batch, record_filter: RecordFilter, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, EnvelopeColumns]]:
        """Yield runs `[first, last)` of selected records among `[begin, end)` with their envelopes."""
        end = batch.records.count if end is None else end
        if can_select_compiled(batch, record_filter):
            for runs, envelope in self._select_compiled(batch, record_filter, begin, end):
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
        """Yield the selected ones among the records `[start, stop)`, whose envelopes are all decoded."""
        envelope = self.decode_envelopes(batch, start, stop)
        condition, narrow = record_filter.where, None
        if condition is not None:
            lines = (
                record_filter.lines
                if record_filter.lines is not None and record_filter.lines.supports_batch(batch)
                else None
            )
            narrow = ConditionNarrower(self, condition, batch, start, envelope, lines).select_runs
        for first, last in record_filter.select_runs(batch, start, stop, envelope, narrow):
            yield first, last, envelope.part(first - start, last - start)

    def _select_compiled(
        self, batch: Batch, record_filter: RecordFilter, begin: int, end: int
    ) -> Iterator[tuple[list[tuple[int, int]], EnvelopeColumns | None]]:
        """Yield runs of the records in `[begin, end)` for which the condition is true.

        Records that compiled code refuses are yielded one by one, with their envelopes.
        """
        position, python_run, lines = begin, 1, record_filter.lines
        assert lines is not None
        while position < end and not record_filter.is_done:
            marks, refused = lines.evaluate(position, end)
            runs = list(record_filter.limit_runs(split_runs(find_runs(marks, position))))
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

    def split_batch(
        self, batch: Batch, record_filter: RecordFilter, *, inside: bool = False
    ) -> Iterator[RecordRange | RecordBlock]:
        """Yield the selected records of a batch, as blocks where the selection had to decode them.

        inside: also yield ranges of records that are inside others.
        """
        if not batch.inner and can_select_compiled(batch, record_filter):
            for runs, envelope in self._select_compiled(batch, record_filter, 0, batch.records.count):
                if envelope is None:
                    yield RecordRange(self, batch, runs[0][0], runs[-1][1], make_marks(runs))
                else:
                    yield self.make_block(batch, *runs[0], envelope)
            return
        if not record_filter.is_by_number_only or (batch.inner and not inside):
            yield from self.decode_batch(batch, record_filter)
            return
        reached = 0
        for holder, inner in batch.inner.items():
            yield from self._split_range(batch, record_filter, reached, holder + 1)
            yield from self._split_range(inner, record_filter, 0, inner.records.count)
            reached = holder + 1
        yield from self._split_range(batch, record_filter, reached, batch.records.count)

    def _split_range(self, batch: Batch, record_filter: RecordFilter, start: int, stop: int) -> Iterator[RecordRange]:
        for first, last in record_filter.select_runs(batch, start, stop, None):
            self._learn_from(batch, start, first)
            yield RecordRange(self, batch, first, last)
            start = last
        if not record_filter.is_done:
            self._learn_from(batch, start, stop)

    def _learn_from(self, batch: Batch, start: int, stop: int) -> None:
        """Decode envelopes of records that are not selected: a format learns names from them."""
        if start < stop:
            self.decode_envelopes(batch, start, stop)

    def decode_envelopes(self, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
        """Return the envelopes of the records `[start, stop)`."""
        return self.format.output.decode_envelopes(self.layout.context, batch, start, stop)

    def make_blocks(self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns) -> Iterator[RecordBlock]:
        """Yield the records `[start, stop)` of a batch, with at most a part of the memory in one block."""
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
            offset=locations.offsets(),
            size=locations.sizes(),
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
        for i, (body, size) in enumerate(zip(bodies, locations.sizes(), strict=False)):
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
            self.row_condition.set_records(
                start, stop, member_columns(names, self.layout, batch, start, stop, envelope)
            )
        if self.script is not None:
            return self.script.read_records(self.layout.context, batch, start, stop, self.limits)
        if self.reader is not None:
            return self.reader.read_records(self.layout.context, batch, start, stop, self.limits)
        return self.format.output.decode_bodies(self.layout.context, batch, start, stop, self.limits)


def can_select_compiled(batch: Batch, record_filter: RecordFilter) -> bool:
    """Return True if compiled code can evaluate the selection for most records of a batch; ask in file order."""
    return (
        record_filter.is_by_condition_only
        and record_filter.lines is not None
        and record_filter.lines.supports_batch(batch)
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

    def _frame_indexes(self) -> list[int]:
        """Return the frame of each record, counted from the first one."""
        return [span - self._first for span in self._record_column("span")]

    def offsets(self) -> list[int]:
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

    def sizes(self) -> list[int]:
        """Return the bytes of the file that each record (or its packed container) takes."""
        if self._batch.container is not None:
            return [self._batch.container.size] * (self._stop - self._start)
        if self._batch.positions is not None:
            return to_int_list(self._batch.positions.size, self._start, self._stop)
        own = [
            end - offset for offset, end in zip(self._record_column("offset"), self._record_column("end"), strict=True)
        ]
        if not self._any_packed:
            return own
        frames, packed = self._batch.frames, self._packed
        whole = [end - at for at, end in zip(*map(self._frame_column, (frames["offset"], frames["end"])), strict=True)]
        return [whole[s] if packed[s] else size for s, size in zip(self._frame_indexes(), own, strict=True)]

    def inner_positions(self) -> Sequence[InnerPosition | None]:
        """Return the positions in the unpacked payload, for records inside packed containers."""
        if self._batch.is_inside:
            sizes = [
                end - offset
                for offset, end in zip(self._record_column("offset"), self._record_column("end"), strict=True)
            ]
            return [InnerPosition(self._batch.inner_offset(i), size) for i, size in enumerate(sizes, self._start)]
        if not self._any_packed:
            return [None] * (self._stop - self._start)
        packed, starts = self._packed, self._frame_column(self._batch.span_starts)
        return [
            InnerPosition(offset - starts[s], end - offset) if packed[s] else None
            for s, offset, end in zip(
                self._frame_indexes(), self._record_column("offset"), self._record_column("end"), strict=True
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


def member_columns(
    names: Iterable[str], layout: LogFileLayout, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns
) -> ColumnValues:
    """Return these members of the records `[start, stop)` as columns; their envelopes are given."""
    from binlogtool.log.where import to_timestamps

    locations, columns = None, dict[str, Sequence[Any]]()
    for name in names:
        if name in ("offset", "size"):
            locations = locations or RecordLocations(batch, layout, start, stop)
            columns[name] = locations.offsets() if name == "offset" else locations.sizes()
        elif name == "record":
            columns[name] = batch.record_numbers(start, stop)
        else:
            columns[name] = to_timestamps(envelope.time) if name == "time" else getattr(envelope, name)
    return columns


class ConditionNarrower(msgspec.Struct, frozen=True):
    """Apply a condition to the records of a batch from `start` on, whose envelopes are given.

    lines: compiled condition that decides most of their rows.
    """

    decoder: BlockDecoder
    condition: Condition
    batch: Batch
    start: int
    envelope: EnvelopeColumns
    lines: CompiledCondition | None = None

    def select_runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of the records `[first, last)`; only bodies that the envelope does not rule out are decoded."""
        envelope, condition = self.envelope.part(first - self.start, last - self.start), self.condition
        columns = member_columns(condition.members, self.decoder.layout, self.batch, first, last, envelope)
        marks = condition.find_candidates(columns, last - first)
        return find_runs(self._decide_marks(columns, first, marks) if condition.needs_body else marks, first)

    def _decide_marks(self, columns: ColumnValues, first: int, marks: Sequence[bool]) -> Iterator[bool]:
        """Yield for each record whether it is selected, given the candidates."""
        at = 0
        for low, high in join_runs(marks, 0 if self.lines is None else MAX_GAP):
            yield from repeat(False, low - at)
            yield from map(and_, marks[low:high], self._evaluate(columns, first, first + low, first + high))
            at = high

    def _evaluate(self, columns: ColumnValues, first: int, low: int, high: int) -> Iterator[bool]:
        """Yield whether the condition is true of each record; a body that cannot be decoded could match anything."""
        run = _BODIES_AT_ONCE if self.lines is None else 1
        while low < high:
            if self.lines is not None:
                truths, refused = self.lines.evaluate(low, high)
                yield from truths
                low += len(truths)
                if not refused:
                    continue
                run = 1 if len(truths) > MAX_GAP else min(2 * run, _BODIES_AT_ONCE)
            end = min(low + run, high)
            yield from self._evaluate_bodies(columns, first, low, end)
            low = end

    def _evaluate_bodies(self, columns: ColumnValues, first: int, low: int, high: int) -> Iterator[bool]:
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
            yield isinstance(body, Finding) or self.condition.matches_record(record_members, body)


_BODIES_AT_ONCE = 256
"""Bodies that are decoded at once: few of them in vain when a limit is reached."""
