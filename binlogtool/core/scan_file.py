"""Scan one file in one pass: batches of good frames, damaged ranges and the tail; every byte in exactly one class.

This is the only reader. `verify`, `dump`, `convert`, the annotated hexdump and the plans consume its segments.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from binlogtool.core import unpack_payloads
from binlogtool.core.damage_causes import CauseFinder, DamagedRegion, find_frame_end_past_file
from binlogtool.core.open_file import HEAD_BYTES, Source, Window
from binlogtool.core.resync import Resynchronizer, ResyncPoint
from binlogtool.core.unpack_payloads import BadPayload, FrameRun, PartlyBadFrame, PayloadReader
from binlogtool.findings import BEYOND_LIMITS, Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, Format
from binlogtool.format_api.layout import Assembler, Batch, ColumnTable, FrameLevel, LogFileLayout
from binlogtool.limits import MIB, Limits
from binlogtool.schema.frame_scan_loop import Backend, Scanner, ScanStop, StopReason

# --- Segments of one pass over a file, in order ---


class DamagedRange(msgspec.Struct, frozen=True):
    """The bytes `[start, end)` of the file, without a provable record.

    Args:
        tail: the class of these bytes in the byte account.
        is_followed: the chain of frames continues at `end`; False = nothing provable follows.
        payload: the frame is whole, but its content is invalid.
        hollow: the frame ends in zeros and its stored checksum is zero: if only zeros follow, its write was
            interrupted.
        good_records: the good records of a frame that also has bad records.
        framed_records: the bad records that are well framed; the last findings are about them, in order.
    """

    start: int
    end: int
    findings: tuple[Finding, ...]
    tail: str = "damaged"
    is_followed: bool = True
    payload: bool = False
    hollow: bool = False
    good_records: Batch | None = None
    framed_records: Batch | None = None


class SalvagedRecords(NamedTuple):
    """Well-framed records without proof, and the reason. data: bytes of the frame, if there is only one."""

    batch: Batch
    reasons: tuple[Finding, ...]
    data: bytes


class UnprovenReader(Protocol):
    """Reader of unproven records during a scan."""

    def salvage_damaged_range(self, damage: DamagedRange) -> Iterator[SalvagedRecords]:
        """Yield the well-framed records in a damaged range."""

    def salvage_records_ending_in(self, batch: Batch) -> Iterator[SalvagedRecords]:
        """Yield the records that begin in damaged ranges and end in these frames."""

    def finish(self) -> Iterator[SalvagedRecords]:
        """Yield the remaining records at the end of the file."""


class ByteAccount(msgspec.Struct):
    """Number of bytes in each class; their sum is the number of bytes read."""

    header: int = 0
    record: int = 0
    padding: int = 0
    preallocated: int = 0
    torn_tail: int = 0
    damaged: int = 0
    unknown: int = 0

    def add(self, name: str, size: int) -> None:
        """Add `size` bytes to one class."""
        setattr(self, name, getattr(self, name) + size)

    def as_dict(self) -> dict[str, int]:
        """Return the classes in the order of the JSON output."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def merge_by_offset(
    proven: Iterator[Batch | DamagedRange], unproven: Iterator[SalvagedRecords]
) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
    """Merge both iterators by the offsets of the first records; damage keeps its place in `proven`."""
    waiting = next(unproven, None)
    for item in proven:
        while waiting is not None and isinstance(item, Batch) and _start_offset(waiting.batch) < _start_offset(item):
            yield waiting
            waiting = next(unproven, None)
        yield item
    while waiting is not None:
        yield waiting
        waiting = next(unproven, None)


def _start_offset(batch: Batch) -> int:
    """Return the file offset of the first record."""
    return batch.container_position(0).offset


# --- Byte accounting of one pass over a file ---

_TORN_ZEROS = 8


class ScanAccounting(msgspec.Struct):
    """Settings and results of one pass.

    Args:
        rows: False = do not look inside the frames (depth frame and checksum).
        begin: offset of the first frame; None = the start of the frames.
        causes: findings contain the likely cause of damage (`binlogtool.core.damage_causes`).
        unproven_reader: see `read_segments`.
    """

    source: Source
    format: Format
    layout: LogFileLayout
    backend: Backend
    limits: Limits
    rows: bool = True
    live: bool = False
    window: Window | None = None
    begin: int | None = None
    causes: bool = False
    unproven_reader: UnprovenReader | None = None
    account: ByteAccount = msgspec.field(default_factory=ByteAccount)
    frames: int = 0
    records: int = 0
    valid_after_damage: int = 0
    first_damage: int | None = None
    resync_after_damage: int | None = None
    good_end: int = 0
    end: int = 0
    closed: bool | None = None
    tail_findings: tuple[Finding, ...] = ()
    incomplete: str | None = None
    unread_bytes: int = 0
    """Number of bytes at the end that were not read because of a limit; they count as unknown."""
    over_limit: str | None = None
    _cause_finder: CauseFinder | None = None
    _last_frame_offset: int = -1

    def _account_unread(self) -> None:
        """Count the bytes that were not read as unknown."""
        self.end = self.end if self.source.size is None else self.source.size
        self.unread_bytes = max(0, self.end - (self.begin or 0) - sum(self.account.as_dict().values()))
        self.account.unknown += self.unread_bytes
        self.closed = None

    def _count_records(self, items: Iterator[Batch | Finding]) -> Iterator[Batch | DamagedRange]:
        """Count the records; good frames without a complete record are damage that is already accounted for."""
        for item in items:
            if isinstance(item, Finding):
                start = item.offset or 0
                if item.severity is Severity.ERROR:
                    self._record_first_damage(start)
                tail = "damaged" if item.severity is Severity.ERROR else "torn_tail"
                yield DamagedRange(start, start + item.length, (item,), tail=tail, payload=True)
                continue
            self.records += item.records.count
            if self.first_damage is not None:
                self.valid_after_damage += item.records.count
            yield item

    def file_tail(self) -> FileTail:
        """Return how the file ended; call it after the segments are consumed."""
        return FileTail(self.good_end, self.end, self.closed, self.first_damage, self.tail_findings)

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of one frame in bytes."""
        return self.limits.max_record or self.layout.frame.max_size

    def _account_torn_tail(self, hollow: DamagedRange, end: int) -> DamagedRange:
        """Account for a hollow frame and the zeros after it as torn."""
        account = self.account
        account.damaged -= hollow.end - hollow.start
        account.preallocated -= end - hollow.end
        if self.first_damage == hollow.start:
            self.first_damage = None
        self.frames -= 1
        self.tail_findings = ()
        text = f"the last record is incomplete: {end - hollow.start:,} bytes, nothing provable after it"
        item = self._make_tail_finding("torn-tail", hollow.start, text, zeros=end - hollow.end)
        item = self._add_cause(item, DamagedRegion(hollow.start, end, tail=True))
        return self._account_tail(hollow.start, item, "torn_tail")

    def _make_batch(self, base: int, view: memoryview, piece: FrameRun) -> Batch:
        return Batch(
            base, view, piece.frames, piece.arena, piece.rows, piece.starts, piece.packed, self.records, self.frames,
            self._number_inner(piece.inner),
        )  # fmt: skip

    def _account_partial_frame(self, window: Window, partial: PartlyBadFrame, view: memoryview) -> DamagedRange:
        """Account for a frame in which only some rows are good: these count as records, the frame as damage."""
        start, end = window.base + partial.start, window.base + partial.end
        data = view[partial.start : partial.end]
        findings = tuple(
            self._explain_finding(replace(one, record=self.records + (one.record or 0)), data)
            for one in partial.findings
        )
        self._record_first_damage(start)
        framed = None if partial.framed_rows is None else self._make_batch(window.base, view, partial.framed_rows)
        good_batch = self._account_batch(self._make_batch(window.base, view, partial.good_rows))
        lost = 0 if any(partial.good_rows.packed) else partial.lost_bytes
        self.account.record -= lost
        self.account.damaged += lost
        return DamagedRange(start, end, findings, payload=True, good_records=good_batch, framed_records=framed)

    def _number_inner(self, inner: Mapping[int, Batch]) -> Mapping[int, Batch]:
        """Return the same inner batches with the record numbers of the frames that contain them."""
        return {i: batch.copy_with_first_record(self.records + i) for i, batch in inner.items()} if inner else inner

    def _account_bad_payload(self, window: Window, bad: BadPayload) -> DamagedRange:
        """Account for a complete frame at its declared position whose content is wrong."""
        start, end = window.base + bad.start, window.base + bad.end
        item = self._explain_payload(window, bad)
        self.frames += 1
        if item.id in BEYOND_LIMITS:
            self.account.unknown += end - start
            return DamagedRange(start, end, (item,), payload=True)
        self._record_first_damage(start)
        self.account.damaged += end - start
        hollow = bad.stored == 0 and not any(memoryview(window.buffer)[bad.end - _TORN_ZEROS : bad.end])
        return DamagedRange(start, end, (item,), payload=True, hollow=hollow)

    def _explain_payload(self, window: Window, bad: BadPayload) -> Finding:
        item = replace(bad.finding, record=self.records)
        return self._explain_finding(item, memoryview(window.buffer)[bad.start : bad.end])

    def _account_batch(self, batch: Batch) -> Batch:
        """Count a batch as records, show it to the format (`FrameLevel.observe`), update the good end; return it
        unchanged.
        """
        count, frames = batch.records.count, batch.frames.count
        size = int(batch.frames["end"][frames - 1]) - int(batch.frames["offset"][0])
        self.account.record += size
        self.frames += frames
        self._last_frame_offset = batch.base + int(batch.frames["offset"][frames - 1])
        observe = self.layout.frame.observe
        if observe is not None and self.rows:
            observe(self.layout.context, batch)
        if self.layout.make_assembler is not None and self.rows:
            count = 0  # `_count_records` counts the records that are assembled from these frames
        self.records += count
        if self.first_damage is None:
            self.good_end = batch.base + int(batch.frames["end"][frames - 1])
        else:
            if self.resync_after_damage is None:
                self.resync_after_damage = batch.base + int(batch.frames["offset"][0])
            self.valid_after_damage += count
        return batch

    def _record_first_damage(self, start: int) -> None:
        if self.first_damage is None:
            self.first_damage = start

    def _add_cause(self, item: Finding, region: DamagedRegion) -> Finding:
        """Add the most likely cause to a finding, where the file can be read at any offset."""
        if not self.causes or self.source.size is None or self.live:
            return item
        if self._cause_finder is None:
            self._cause_finder = CauseFinder(self.source, self.format.name, self.layout.frame, self.backend)
        return self._cause_finder.add_cause_to_finding(item, region)

    def _explain_finding(self, item: Finding, data: memoryview) -> Finding:
        explain = self.format.validation.explain_damage
        return item if explain is None else explain(self.layout, data, item.offset or 0, item)

    def _diagnose_frame(self, window: Window, position: int, stop: ScanStop) -> Finding:
        """Return the finding about the frame at `position`, in terms of the schema."""
        data = window.view(position, position + unpack_payloads.EXCERPT_BYTES)
        if stop.reason == StopReason.CHECKSUM:
            frame = window.view(position, window.base + stop.need)
            item = unpack_payloads.explain_checksum_mismatch(self.layout, bytes(frame), position, self.records)
            data = max(frame, data, key=len)
        elif stop.reason == StopReason.SHORT:
            need = window.base + stop.need if stop.need >= 0 else position + self.layout.frame.min_size
            size = window.end if self.source.size is None else self.source.size
            item = unpack_payloads.explain_past_end(stop, position, need, size, self.records)
        elif stop.reason == StopReason.BOUNDS and stop.need - stop.at > self.max_frame_bytes:
            need = window.base + stop.need
            item = unpack_payloads.explain_over_limit(stop, position, need, self.max_frame_bytes, self.records)
        else:
            item = unpack_payloads.explain_broken_frame(self.layout, stop, bytes(data), position, self.records)
        return self._explain_finding(item, data)

    def _account_skipped(
        self, position: int, resync_point: ResyncPoint, item: Finding, declared_end: int = -1
    ) -> DamagedRange:
        """Account for damage between good frames (or before the end mark)."""
        item = self._add_cause(
            item, DamagedRegion(position, resync_point.offset, declared_end, self._last_frame_offset)
        )
        size = resync_point.offset - position
        next_name = "the end mark" if resync_point.closing else "next provable record"
        text = f"{size:,} bytes skipped; {next_name} at {resync_point.offset:#010x}"
        skipped = make_finding(
            "damaged-range", position, size, text, record=self.records, next_provable=resync_point.offset
        )
        self._record_first_damage(position)
        self.account.damaged += size
        length = min(
            item.length, resync_point.offset - (item.offset or 0)
        )  # the declared bytes beyond belong to other frames
        return DamagedRange(position, resync_point.offset, (replace(item, length=length), skipped))

    def _classify_tail(
        self, position: int, declared_end: int, data_end: int, stop: ScanStop, item: Finding
    ) -> DamagedRange:
        """Classify a tail without provable records: filler, a torn record, a damaged last record, or garbage."""
        assert self.window is not None
        end = self.window.end
        if data_end <= position:
            text = f"{end - position:,} zero bytes to the end"
            return self._account_tail(position, self._make_tail_finding("zero-tail", position, text), "preallocated")
        if stop.reason == StopReason.SHORT or self._is_torn(position, declared_end, data_end, stop):
            text = f"the last record is incomplete: {end - position:,} bytes, nothing provable after it"
            item = self._make_tail_finding("torn-tail", position, text, zeros=end - data_end)
            item = self._add_cause(item, DamagedRegion(position, end, declared_end, tail=True))
            return self._account_tail(position, item, "torn_tail")
        if stop.reason == StopReason.CONSTANT:
            text = f"{end - position:,} bytes that are neither a record nor filler"
            item = self._make_tail_finding("garbage-tail", position, text)
            return self._account_tail(
                position, self._add_cause(item, DamagedRegion(position, end, tail=True)), "unknown"
            )
        item = self._add_cause(item, DamagedRegion(position, end, declared_end, tail=True))
        rest = end - position - item.length
        if rest <= 0:
            return self._account_tail(position, item, "damaged")
        text = f"{end - position:,} bytes up to the end of the file contain no provable record"
        skipped = make_finding("damaged-range", position, end - position, text, record=self.records)
        return self._account_tail(position, item, "damaged", skipped)

    def _is_torn(self, position: int, declared_end: int, data_end: int, stop: ScanStop) -> bool:
        """Return True if the write of the last record was interrupted: zeros follow, or a part of an end mark."""
        assert self.window is not None
        mark = self.layout.frame.end_mark or b""
        rest = bytes(self.window.view(position, position + len(mark) + 1))
        if rest and len(rest) < len(mark) and mark.startswith(rest):
            return True
        if self.window.end - data_end < _TORN_ZEROS:
            return False
        border = declared_end if stop.reason == StopReason.CHECKSUM else position + self.layout.frame.min_size
        return data_end < border

    def _make_tail_finding(self, id_: str, position: int, text: str, **facts: Any) -> Finding:
        assert self.window is not None
        item = make_finding(id_, position, self.window.end - position, text, record=self.records, **facts)
        return self._explain_finding(item, self.window.view(position, position + unpack_payloads.EXCERPT_BYTES))

    def _account_tail(self, position: int, item: Finding, tail: str, *further_findings: Finding) -> DamagedRange:
        assert self.window is not None
        end = self.window.end
        self.account.add(tail, end - position)
        if tail == "damaged":
            self._record_first_damage(position)
        is_silent = self.live and tail in ("torn_tail", "preallocated")
        findings = () if is_silent else (item, *further_findings)
        self.tail_findings += findings
        return DamagedRange(position, end, findings, tail=tail, is_followed=False)


# --- One pass over one file ---

_CHUNK_BYTES = {"python": MIB, "native": 2 * MIB}
"""Bytes per read if the content of frames is read; otherwise 1 MiB, which still is in the processor's cache when its
checksums are computed."""
_HELD_FRACTION = 4
"""Fraction of the memory limit (1/4) for a damaged range of a stream that is kept to be read again."""


class Scan(ScanAccounting):
    """One pass over a file. After `segments()` is consumed, the attributes hold its results."""

    _deadline: float | None = None
    _resynchronizer: Resynchronizer | None = None
    _level_changed_at: int = -1
    _scanners: dict[int, tuple[FrameLevel, Scanner]] = msgspec.field(default_factory=dict)
    """Scanners by the id of the schema, which is kept alive with its scanner: a log may switch levels often."""
    _payload_reader: PayloadReader | None = None

    def segments(self) -> Iterator[Batch | DamagedRange]:
        """Yield batches and damaged ranges in file order, without gaps between them."""
        return (one for one in self.iter_segments_and_salvaged() if not isinstance(one, SalvagedRecords))

    def iter_segments_and_salvaged(self) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        """Yield the segments and the salvaged records in file order."""
        layout = self.layout
        self.window = self.window or Window(self.source, self._choose_read_bytes())
        self._deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        self.closed = False if layout.frame.end_mark else None
        if not layout.readable:
            yield from self._account_unreadable(0)
            return
        self.account.header = layout.frames_at
        self.good_end = self.end = layout.frames_at
        first = layout.frames_at if self.begin is None else self.begin
        chain = self._join_hollow_frame_and_zeros(self._walk_chain(self.window, first))
        make_assembler = layout.make_assembler if self.rows else None
        if make_assembler is not None:
            yield from self._assemble_records(chain, make_assembler(self.backend.compile_kernel))
        elif self.unproven_reader is not None:
            yield from self._add_unproven(chain, self.unproven_reader)
        else:
            yield from chain
        self.end = self.window.end
        if self.incomplete is not None:
            self._account_unread()

    @staticmethod
    def _add_unproven(
        chain: Iterator[Batch | DamagedRange], unproven_reader: UnprovenReader
    ) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        for segment in chain:
            yield segment
            if isinstance(segment, DamagedRange):
                yield from unproven_reader.salvage_damaged_range(segment)

    def _assemble_records(
        self, chain: Iterator[Batch | DamagedRange], assembler: Assembler
    ) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        """Yield records in place of the frames that hold them."""
        unproven_reader = self.unproven_reader
        for segment in chain:
            if isinstance(segment, DamagedRange):
                yield segment
                items = self._count_records(assembler.skip_damage(segment.start, segment.end))
                yield from (
                    items
                    if unproven_reader is None
                    else merge_by_offset(items, unproven_reader.salvage_damaged_range(segment))
                )
            else:
                items = self._count_records(assembler.assemble(segment))
                yield from (
                    items
                    if unproven_reader is None
                    else merge_by_offset(items, unproven_reader.salvage_records_ending_in(segment))
                )
                self.records = assembler.next_number  # at level `event` the items are parts of some records
        if self.incomplete is None:
            items = self._count_records(assembler.finish())
            yield from items if unproven_reader is None else merge_by_offset(items, unproven_reader.finish())

    def _choose_read_bytes(self) -> int:
        """Return the number of bytes per read: at most the size of a record, to notice longer ones, and of the file."""
        chunk = _CHUNK_BYTES.get(self.backend.name, MIB) if self.rows else MIB
        if self.source.size is not None:
            chunk = min(chunk, max(self.source.size, HEAD_BYTES) + 1)
        return chunk if self.limits.max_record is None else max(min(chunk, self.limits.max_record), HEAD_BYTES)

    def _account_unreadable(self, start: int) -> Iterator[Batch | DamagedRange]:
        """Account for a file whose frames cannot be located: every byte is damaged."""
        window = self.window
        assert window is not None
        self._read_to_end(window, None)
        self.end = window.end
        if self.layout.encrypted_without_key:  # its content is not known
            self.account.header = self.good_end = min(self.layout.frames_at, self.end)
            self.account.unknown = self.end - self.account.header
            return
        self.first_damage = self.good_end = start
        self.account.damaged = self.end
        if self.end:
            yield DamagedRange(0, self.end, (), is_followed=False)

    def _join_hollow_frame_and_zeros(self, segments: Iterator[Batch | DamagedRange]) -> Iterator[Batch | DamagedRange]:
        """Join a hollow frame with the zeros up to the end of the file: together they are one torn tail."""
        hollow: DamagedRange | None = None
        for segment in segments:
            if hollow is not None and isinstance(segment, DamagedRange) and segment.tail == "preallocated":
                yield self._account_torn_tail(hollow, segment.end)
                return
            if hollow is not None:
                yield hollow
            hollow = segment if isinstance(segment, DamagedRange) and segment.hollow else None
            if hollow is None:
                yield segment
        if hollow is not None:
            assert self.window is not None
            yield self._account_torn_tail(hollow, hollow.end) if hollow.end == self.window.end else hollow

    def _read_to_end(self, window: Window, resynchronizer: Resynchronizer | None) -> None:
        """Read to the end of the file, for the byte account only."""
        if resynchronizer is not None and resynchronizer.exhausted:
            self.incomplete = "the work limit of the search for the next provable record was reached"
        while not window.ended:
            start = window.find_hole_end(window.end)
            window.load_range(start, start + MIB)

    def _walk_chain(self, window: Window, position: int) -> Iterator[Batch | DamagedRange]:
        """Yield batches and damaged ranges from `position` on: scan, handle damage, switch levels, until the end of
        the file.
        """
        scanner = self._get_scanner()
        need = position + 1
        while not self._is_incomplete():
            window.load_range(position, need)
            table, stop = scanner.scan(window.buffer, position - window.base, window.length, not window.ended)
            resumed_at = (yield from self._read_good_frames(window, table)) if table.count else None
            if resumed_at is not None:
                position, need = resumed_at, resumed_at + 1
                continue
            position = window.base + stop.at
            need = position + 1 if stop.reason == StopReason.FULL else window.end + 1
            if stop.reason in (StopReason.FULL, StopReason.CUT):
                continue
            if stop.reason == StopReason.END:
                if window.ended:
                    return
                continue
            if stop.reason == StopReason.SHORT and not window.ended:
                needed_end = window.base + max(stop.need, stop.at + self.layout.frame.min_size)
                if needed_end - position <= self.max_frame_bytes and not self._is_past_end(needed_end):
                    need = max(need, needed_end)
                    continue
                if not self._is_past_end(needed_end):  # the frame fits into the file, but exceeds the limit
                    stop = stop._replace(reason=StopReason.BOUNDS, need=needed_end - window.base)
                    self.over_limit = (
                        f"a record of {needed_end - position:,} bytes is over the limit (--max record=SIZE)"
                    )
            if self._switch_level_if_needed(window, position):
                scanner, need = self._get_scanner(), position + 1
                continue
            resumed_at = yield from self._account_damage_and_resync(window, position, stop)
            if resumed_at is None:
                return
            position, need = resumed_at, resumed_at + 1

    def _get_scanner(self) -> Scanner:
        """Return the scanner of the current level; it finds only frame boundaries if the content is not read."""
        frame = self.layout.frame
        level_and_scanner = self._scanners.get(id(frame.schema))
        if level_and_scanner is None:
            level_and_scanner = frame, self.backend.make_scanner(frame.schema, frame.columns if self.rows else ())
            self._scanners[id(frame.schema)] = level_and_scanner
        return level_and_scanner[1]

    def _switch_level_if_needed(self, window: Window, position: int) -> bool:
        """Return True if another level applies from the frame at `position` on; never twice at the same offset."""
        frame = self.layout.frame
        if frame.next_level is None or position == self._level_changed_at:
            return False
        window.load_range(position, position + HEAD_BYTES)
        new_level = frame.next_level(bytes(window.view(position, position + HEAD_BYTES)), self.layout.context)
        if new_level is None or new_level is frame:
            return False
        self.layout, self._level_changed_at = replace(self.layout, frame=new_level), position
        self._resynchronizer = self._payload_reader = self._cause_finder = None  # these frames use the old layout
        return True

    def _is_past_end(self, offset: int) -> bool:
        return self.source.size is not None and offset > self.source.size

    def _is_incomplete(self) -> bool:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.incomplete = "the time limit ended the work (--timeout, --max-duration)"
        return self.incomplete is not None

    def _read_good_frames(
        self, window: Window, table: ColumnTable
    ) -> Generator[Batch | DamagedRange, None, int | None]:
        """Yield batches of proven frames; a frame whose content is wrong is separated as damage.

        Returns the offset where the chain continues: a proven frame inside a frame whose length was wrong; else None.
        """
        view = memoryview(window.buffer)
        if not self.rows:
            yield self._account_batch(Batch(window.base, view, table, view, None, (), (), self.records, self.frames))
            return None
        self._payload_reader = self._payload_reader or PayloadReader(self.layout, self.backend, self.limits)
        for piece in self._payload_reader.read_frames(view, window.base, table):
            if isinstance(piece, BadPayload):
                resumed_at = self._find_frame_inside(window, piece)
                if resumed_at is not None:
                    item = self._explain_payload(window, piece)
                    yield self._account_skipped(window.base + piece.start, ResyncPoint(resumed_at), item)
                    return resumed_at
                yield self._account_bad_payload(window, piece)
            elif isinstance(piece, PartlyBadFrame):
                yield self._account_partial_frame(window, piece, view)
            else:
                yield self._account_batch(self._make_batch(window.base, view, piece))

        return None

    def _find_frame_inside(self, window: Window, bad: BadPayload) -> int | None:
        if bad.framed:
            return None
        return self._get_resynchronizer(window).find_proven_frame_inside(
            window.base + bad.start + 1, window.base + bad.end
        )

    def _account_damage_and_resync(
        self, window: Window, position: int, stop: ScanStop
    ) -> Generator[DamagedRange, None, int | None]:
        """Handle a position without a good frame: end mark, damage or tail; return where to continue, or None."""
        mark = self.layout.frame.end_mark
        if mark is not None and self._is_end_mark_at(window, position, mark):
            return (yield from self._account_end_mark(window, position, mark))
        item = self._diagnose_frame(window, position, stop)  # before the window moves on
        declared_end = window.base + stop.need if stop.reason == StopReason.CHECKSUM else -1
        end_past_file = -1
        if self.causes and stop.reason == StopReason.SHORT:
            end_past_file = find_frame_end_past_file(
                self._get_scanner(), window.view(position, window.end), position, stop.need - stop.at
            )
        resynchronizer = self._get_resynchronizer(window)
        if self.unproven_reader is not None and self.source.size is None:  # a stream can be read only once
            window.kept_from, window.max_kept_bytes = position, self.limits.max_memory // _HELD_FRACTION
        resync_point = resynchronizer.find_resync_point(position, declared_end)
        if resync_point is None:
            self._read_to_end(window, resynchronizer)
            if self.incomplete is not None:
                self._record_first_damage(position)
                yield DamagedRange(position, window.end, (item,), is_followed=False)
            else:
                yield self._classify_tail(position, declared_end, resynchronizer.data_end, stop, item)
            return None
        yield self._account_skipped(position, resync_point, item, max(declared_end, end_past_file))
        window.kept_from = None
        return resync_point.offset

    def _get_resynchronizer(self, window: Window) -> Resynchronizer:
        if self._resynchronizer is None:
            self._resynchronizer = Resynchronizer(self.layout, self.backend, window, self.max_frame_bytes)
        return self._resynchronizer

    def _is_end_mark_at(self, window: Window, position: int, mark: bytes) -> bool:
        window.load_range(position, position + len(mark) + 1)
        return bytes(window.view(position, position + len(mark))) == mark

    def _account_end_mark(
        self, window: Window, position: int, mark: bytes
    ) -> Generator[DamagedRange, None, int | None]:
        """Mark the file as closed; yield bytes after the end mark as damage; return the offset of records after it, or
        None.
        """
        self.closed = True
        mark_end = position + len(mark)
        if window.ended and window.end == mark_end:
            self.account.header += len(mark)
            return None
        resync_point = self._get_resynchronizer(window).find_resync_point(mark_end - 1)
        stop = window.end if resync_point is None else resync_point.offset
        message = f"{stop - mark_end:,} bytes after the end mark" if stop > mark_end else "records after the end mark"
        item = make_finding("garbage-tail", position, stop - position, message, record=self.records)
        item = self._explain_finding(item, memoryview(mark))
        if resync_point is not None:
            yield self._account_skipped(position, resync_point, item)
            return resync_point.offset
        self.account.header += len(mark)
        yield self._account_tail(mark_end, item, "unknown")
        return None
