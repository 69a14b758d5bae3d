"""Salvage: read well-framed but unproven records in damaged ranges, each marked with the reason.

A frame is well framed if everything but its checksum is right: its fields, its content, the format's own proof, and
what follows it. Then its checksum is stale, or one flipped bit explains the difference; in that case the record is
shown with the bit corrected, and a finding reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from binlogtool.core import unpack_payloads
from binlogtool.core.damage_causes import MAX_FRAME_BYTES, find_frame_hidden_by_bit_flip, get_candidate_header_bits
from binlogtool.core.open_file import Source, Window, WindowSource
from binlogtool.core.record_and_selection_types import RecordBlock, RecordChecksum
from binlogtool.core.scan_file import DamagedRange, SalvagedRecords, Scan
from binlogtool.core.unpack_payloads import FrameRun, PayloadReader
from binlogtool.format_api.layout import Batch, SalvageAssembler, UnprovenRecords
from binlogtool.schema.frame_scan_loop import Scanner, StopReason

if TYPE_CHECKING:
    from binlogtool.core.decode_batches import BlockDecoder
    from binlogtool.core.record_filter import RecordFilter
    from binlogtool.findings import Finding

_READ_BYTES = 1 << 20
_LOOKAHEAD_BYTES = 64
_MIN_BIT_TRIES, _BYTES_PER_TRY = 16_384, 256
"""Budget of bits tried per file to find hidden frames: a minimum, plus one bit per this number of bytes."""
STALE, CORRECTED = "stale checksum", "one corrected bit"


class UnprovenRecordReader:
    """Find well-framed records in the damaged ranges of one scan (`core.scan_file.UnprovenReader`).

    Records that span several frames are found even if one of the frames is unproven.
    """

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        layout, apart = scan.layout, scan.format.reading.clone_context
        self._adopt_layout()
        self._tries_left = _MIN_BIT_TRIES + (scan.source.size or 0) // _BYTES_PER_TRY
        self._assembler: SalvageAssembler | None = None
        if layout.make_assembler is not None and layout.make_salvage_assembler is not None:
            context = layout.context if apart is None else apart(layout.context)
            self._assembler = layout.make_salvage_assembler(context, scan.backend.compile_kernel, self._correct_frame)

    def _adopt_layout(self) -> None:
        """Adopt the current layout of the scan: after a FORMAT_DESCRIPTION inside a file events may end differently."""
        layout, scan = self.scan.layout, self.scan
        self._frame_level = layout.frame
        self._probe: Scanner = scan.backend.make_scanner(layout.frame.schema, layout.frame.columns, 1)
        self._payloads = PayloadReader(layout, scan.backend, scan.limits)

    def salvage_damaged_range(self, damage: DamagedRange) -> Iterator[SalvagedRecords]:
        """Yield the frames of a damaged range, or the records that end in them; for a stream, only those in memory."""
        if self._frame_level is not self.scan.layout.frame:
            self._adopt_layout()
        source, assembler = self._get_rereadable_source(damage), self._assembler
        if damage.payload:
            return
        if damage.tail == "preallocated":
            yield from (
                () if assembler is None else self._number_salvaged(assembler.skip_damage(damage.start, damage.end))
            )
            return
        if self.scan.layout.make_assembler is None:
            yield from () if source is None else self._salvage_frames(damage, Window(source, _READ_BYTES))
        elif assembler is not None and source is not None:
            yield from self._salvage_assembled_records(damage, Window(source, _READ_BYTES), assembler)
        elif assembler is not None:
            yield from self._number_salvaged(assembler.skip_damage(damage.start, damage.end))

    def salvage_records_ending_in(self, batch: Batch) -> Iterator[SalvagedRecords]:
        """Yield the records that end in these frames; see `UnprovenReader`."""
        return iter(()) if self._assembler is None else self._number_salvaged(self._assembler.assemble_unproven(batch))

    def finish(self) -> Iterator[SalvagedRecords]:
        """Yield the remaining records at the end of the file; see `UnprovenReader`."""
        return iter(()) if self._assembler is None else self._number_salvaged(self._assembler.finish())

    def _salvage_assembled_records(
        self, damage: DamagedRange, window: Window, assembler: SalvageAssembler
    ) -> Iterator[SalvagedRecords]:
        """Yield the records that end in frames of a damaged range; the frames are at fixed distances."""
        step = self.scan.layout.frame.align
        for at in range(damage.start, damage.end, step):
            data = self._read_frame_with_bad_checksum(window, at, damage.end)
            corrected = None if data is None else self._correct_frame(data, at)
            batch = None if corrected is None else self._make_batch(corrected[0], at, self.scan.records)
            if batch is None or corrected is None:
                yield from self._number_salvaged(assembler.skip_damage(at, min(at + step, damage.end)))
            else:
                yield from self._number_salvaged(assembler.assemble_unproven(batch, corrected[1]))

    def _number_salvaged(self, unproven: Iterator[UnprovenRecords]) -> Iterator[SalvagedRecords]:
        for batch, findings in unproven:
            yield SalvagedRecords(batch.copy_with_first_record(self.scan.records), findings, b"")

    def _correct_frame(self, frame: bytes, at: int) -> tuple[bytes, Finding] | None:
        """Correct a frame; see `format_api.layout.FrameCorrector`."""
        layout = self.scan.layout
        item = unpack_payloads.explain_checksum_mismatch(layout, frame, at, self.scan.records)
        for reason, corrected in self._iter_corrected(frame, at, item):
            return corrected, _mark_finding(item, reason)
        return None

    def _iter_corrected(self, data: bytes, at: int, item: Finding) -> Iterator[tuple[str, bytes]]:
        """Yield the frame with the flipped bit corrected, then the frame with the checksum recomputed."""
        if (corrected := unpack_payloads.correct_flipped_bit(data, at, item)) is not None:
            yield CORRECTED, corrected
        if (corrected := unpack_payloads.replace_frame_checksum(self.scan.layout, data, item)) is not None:
            yield STALE, corrected

    def _get_rereadable_source(self, damage: DamagedRange) -> Source | None:
        """Return a source from which the bytes of the range can be read again; None if there is none."""
        source, window = self.scan.source, self.scan.window
        if source.size is not None:
            return source
        return None if window is None or window.base > damage.start else WindowSource(source.name, window)

    def _salvage_frames(self, damage: DamagedRange, window: Window) -> Iterator[SalvagedRecords]:
        at = damage.start
        number = damage.findings[0].record or 0 if damage.findings else 0
        while at < damage.end:
            salvaged = self._read_unproven_frame(window, at, damage.end, number) or self._read_bit_flipped_frame(
                window, at, damage.end, number
            )
            if salvaged is None:
                following = self._find_next_candidate(window, at + 1, damage.end)
                if following is None:
                    return
                at = following
            else:
                yield salvaged
                number += salvaged.batch.records.count
                at += len(salvaged.data)

    def _find_next_candidate(self, window: Window, at: int, end: int) -> int | None:
        """Return where the next frame can begin."""
        sync, align = self.scan.layout.frame.sync, self.scan.layout.frame.align
        if align > 1:
            candidate = at + (self.scan.layout.frames_at - at) % align
            return candidate if candidate < end else None
        if sync is None:
            return None
        while at < end:
            window.load_range(at, min(end, at + _READ_BYTES))
            match = re.compile(sync, re.DOTALL).search(window.buffer, at - window.base, window.length)
            if match is not None:
                candidate = window.base + match.start()
                del match  # releases the buffer
                return candidate if candidate < end else None
            at = max(at + 1, window.end - _LOOKAHEAD_BYTES)
            if window.ended:
                return None
        return None

    def _read_unproven_frame(self, window: Window, at: int, end: int, number: int) -> SalvagedRecords | None:
        """Return the frame at `at`, if it is well framed and ends where it must."""
        data = self._read_frame_with_bad_checksum(window, at, end)
        if data is None:
            return None
        layout = self.scan.layout
        item = unpack_payloads.explain_checksum_mismatch(layout, data, at, number)
        for reason, corrected in self._iter_corrected(data, at, item):
            batch = self._make_batch(corrected, at, number)
            if batch is not None and (reason == CORRECTED or self._is_plausible(window, corrected, at, end)):
                return SalvagedRecords(batch, (_mark_finding(item, reason),), data)
        return None

    def _read_bit_flipped_frame(self, window: Window, at: int, end: int, number: int) -> SalvagedRecords | None:
        """Return the frame at `at`, if its start or end is hidden by one flipped bit."""
        layout = self.scan.layout
        if self._tries_left <= 0 or layout.frame.checksum is None or layout.frame.align > 1:
            return None
        self._tries_left -= len(get_candidate_header_bits(layout.frame))
        window.load_range(at, min(end, at + MAX_FRAME_BYTES))
        data = bytes(window.view(at, min(end, at + MAX_FRAME_BYTES)))
        hidden_frame = find_frame_hidden_by_bit_flip(layout.frame, self._probe, data)
        batch = None if hidden_frame is None else self._make_batch(hidden_frame.frame, at, number)
        if hidden_frame is None or batch is None:
            return None
        stored_frame = data[: len(hidden_frame.frame)]
        explanation = unpack_payloads.explain_frame_hidden_by_bit_flip(
            layout, hidden_frame.frame, stored_frame, at, number, (hidden_frame.byte_offset, hidden_frame.bit_number)
        )
        return SalvagedRecords(batch, (_mark_finding(explanation, CORRECTED),), stored_frame)

    def _read_frame_with_bad_checksum(self, window: Window, at: int, end: int) -> bytes | None:
        """Return the bytes of the frame at `at`, if its checksum is the only thing wrong with it."""
        need = at + self.scan.layout.frame.min_size
        while True:
            window.load_range(at, min(need, end))
            table, stop = self._probe.scan(window.buffer, at - window.base, window.length)
            if table.count:
                return None
            if stop.reason == StopReason.CHECKSUM:
                frame_end = window.base + stop.need
                return bytes(window.view(at, frame_end)) if frame_end <= end else None
            needed_end = window.base + stop.need
            if stop.reason != StopReason.SHORT or needed_end > end or needed_end <= max(need, window.end):
                return None
            if needed_end - at > self.scan.max_frame_bytes:
                return None
            need = needed_end

    def _make_batch(self, frame: bytes, at: int, number: int) -> Batch | None:
        """Return the records of a frame with a matching checksum; None if they do not follow the format."""
        table, _ = self._probe.scan(frame, 0, len(frame))
        if not table.count or int(table["end"][0]) != len(frame):
            return None
        view = memoryview(frame)
        frame_runs = list(self._payloads.read_frames(view, at, table))
        if len(frame_runs) != 1 or not isinstance(frame_runs[0], FrameRun):
            return None
        frame_run = frame_runs[0]
        batch = Batch(
            at,
            view,
            frame_run.frames,
            frame_run.arena,
            frame_run.rows,
            frame_run.starts,
            frame_run.packed,
            number,
            self.scan.frames,
        )
        return replace(batch, inner={i: one.copy_with_first_record(number + i) for i, one in frame_run.inner.items()})

    def _is_plausible(self, window: Window, frame: bytes, at: int, end: int) -> bool:
        """Return True if the frame passes the format's own proof, and another frame can begin after it."""
        level, frame_end = self.scan.layout.frame, at + len(frame)
        if frame_end == end and level.align == 1:
            return True
        if level.prove is not None and not level.prove(frame, self.scan.layout.context):
            return False
        window.load_range(at, frame_end + _LOOKAHEAD_BYTES)
        rest = bytes(window.view(frame_end, frame_end + _LOOKAHEAD_BYTES))
        return level.sync is None or re.compile(level.sync, re.DOTALL).match(rest) is not None


def decode_good_and_bad_rows(
    damage: DamagedRange, decoder: BlockDecoder, record_filter: RecordFilter
) -> Iterator[RecordBlock]:
    """Yield the rows of a frame in order: good rows decoded, bad but framed rows with their finding and no body."""
    good_rows, framed_rows, reached = damage.good_records, damage.framed_records, 0
    if good_rows is None or framed_rows is None:
        return
    header_decoder = replace(decoder, decode="header")
    for i, item in enumerate(damage.findings):
        row_index = (item.record or 0) - good_rows.first_record
        yield from decoder.decode_range(good_rows, record_filter, reached, row_index)
        reached = row_index
        for block in (
            header_decoder.decode_range(framed_rows, record_filter, i, i + 1) if i < framed_rows.records.count else ()
        ):
            yield replace(block, findings={0: (item,)}, bodies=[None] if decoder.decode == "full" else [])
    yield from decoder.decode_range(good_rows, record_filter, reached, good_rows.records.count)


class UnprovenRecordDecoder:
    """Decoder of salvaged records that marks them as unproven.

    State that the format learns from them (such as names) applies only up to the next proven record.
    """

    def __init__(self, decoder: BlockDecoder, record_filter: RecordFilter) -> None:
        self._decoder, self._record_filter = decoder, record_filter
        self._salvage_decoder: BlockDecoder | None = None

    def decode_salvaged(self, salvaged: SalvagedRecords) -> Iterator[RecordBlock]:
        """Yield the marked records. Compiled conditions are not used here: their state follows proven records only."""
        if self._salvage_decoder is None:
            clone_context, layout = self._decoder.format.reading.clone_context, self._decoder.layout
            context = layout.context if clone_context is None else clone_context(layout.context)
            self._salvage_decoder = replace(self._decoder, layout=replace(layout, context=context))
        lines, self._record_filter.lines = self._record_filter.lines, None
        for block in self._salvage_decoder.decode_batch(salvaged.batch, self._record_filter):
            yield _mark_block(block, salvaged)
        self._record_filter.lines = lines

    def forget_salvaged_state(self) -> None:
        """Discard what was learned from salvaged records: proven records follow."""
        self._salvage_decoder = None


def _mark_finding(item: Finding, reason: str) -> Finding:
    marked = replace(item, message=f"unproven ({reason}): {item.message}")
    return replace(marked, facts={**item.facts, "unproven": reason})


def _mark_block(block: RecordBlock, salvaged: SalvagedRecords) -> RecordBlock:
    facts = salvaged.reasons[0].facts
    stored, computed = int(facts["stored"], 16), int(facts["computed"], 16)
    checksum = RecordChecksum(
        facts["algorithm"], stored, computed, stored == computed
    )  # the checksum does not cover all of a frame
    raw = [salvaged.data] if salvaged.data and salvaged.batch.rows is None and block.raw is not None else block.raw
    findings = {i: (*salvaged.reasons, *block.findings.get(i, ())) for i in range(len(block))}
    return replace(block, checksum=[checksum] * len(block), findings=findings, raw=raw)
