"""One pass over one file: batches of good frames, damaged ranges, and the tail; every byte is in one class.

This is the only reader. `verify`, `dump`, `convert`, the annotated hexdump and the plans consume its segments.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import msgspec
from msgspec.structs import replace

from binlogtool.findings import make_finding
from binlogtool.formats.layouts import Assembler, Batch, ColumnTable, FrameLevel
from binlogtool.limits import MIB
from binlogtool.log.booking import ScanAccounting
from binlogtool.log.causes import find_end_past_file
from binlogtool.log.payloads import BadPayload, PartialFrame, PayloadReader
from binlogtool.log.resync import Resynchronizer, ResyncPoint
from binlogtool.log.segments import DamagedRange, SalvagedRecords, UnprovenReader, merge_by_offset
from binlogtool.log.source import HEAD_BYTES
from binlogtool.log.window import Window
from binlogtool.schema.scanner import Scanner, ScanStop, StopReason

_CHUNK_BYTES = {"python": MIB, "native": 2 * MIB}
"""Bytes read at a time where records are looked into; else a MiB, which the processor's cache still has when its
checksums are computed."""
_HELD_FRACTION = 4
"""Of a stream, a damaged range that is looked at again may take so much of the working set: one part of so many."""


class Scan(ScanAccounting):
    """Walk one file once. After `segments()` is consumed the attributes tell how it went."""

    _deadline: float | None = None
    _resynchronizer: Resynchronizer | None = None
    _level_changed_at: int = -1
    _scanners: dict[int, tuple[FrameLevel, Scanner]] = msgspec.field(default_factory=dict)
    """By the id of the schema, which is kept alive beside its scanner: a log may turn between levels often."""
    _payload_reader: PayloadReader | None = None

    def segments(self) -> Iterator[Batch | DamagedRange]:
        """Yield batches and damaged ranges in file order, without gaps between them."""
        return (one for one in self.read_segments() if not isinstance(one, SalvagedRecords))

    def read_segments(self) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        """Yield the segments, and what the salvage reader finds, in order."""
        layout = self.layout
        self.window = self.window or Window(self.source, self._chunk_bytes())
        self._deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        self.closed = False if layout.frame.end_mark else None
        if not layout.readable:
            yield from self._account_unreadable(0)
            return
        self.account.header = layout.frames_at
        self.good_end = self.end = layout.frames_at
        first = layout.frames_at if self.begin is None else self.begin
        chain = self._join_torn_tail(self._walk_chain(self.window, first))
        make_assembler = layout.make_assembler if self.rows else None
        if make_assembler is not None:
            yield from self._assemble_records(chain, make_assembler(self.backend.compile_kernel))
        elif self.salvage_reader is not None:
            yield from self._add_unproven(chain, self.salvage_reader)
        else:
            yield from chain
        self.end = self.window.end
        if self.incomplete is not None:
            self._account_unread()

    @staticmethod
    def _add_unproven(
        chain: Iterator[Batch | DamagedRange], salvage_reader: UnprovenReader
    ) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        for segment in chain:
            yield segment
            if isinstance(segment, DamagedRange):
                yield from salvage_reader.read_damage(segment)

    def _assemble_records(
        self, chain: Iterator[Batch | DamagedRange], assembler: Assembler
    ) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
        """Yield records in place of the frames that hold them."""
        salvage_reader = self.salvage_reader
        for segment in chain:
            if isinstance(segment, DamagedRange):
                yield segment
                items = self._count_records(assembler.skip_damage(segment.start, segment.end))
                yield from (
                    items if salvage_reader is None else merge_by_offset(items, salvage_reader.read_damage(segment))
                )
            else:
                items = self._count_records(assembler.feed(segment))
                yield from (
                    items if salvage_reader is None else merge_by_offset(items, salvage_reader.read_batch(segment))
                )
                self.records = assembler.next_number  # at level `event` the items are parts of some of them
        if self.incomplete is None:
            items = self._count_records(assembler.finish())
            yield from items if salvage_reader is None else merge_by_offset(items, salvage_reader.finish())

    def _chunk_bytes(self) -> int:
        """Return the bytes read at a time: at most one record, so that longer ones are noticed, and at most a file."""
        chunk = _CHUNK_BYTES.get(self.backend.name, MIB) if self.rows else MIB
        if self.source.size is not None:
            chunk = min(chunk, max(self.source.size, HEAD_BYTES) + 1)
        return chunk if self.limits.max_record is None else max(min(chunk, self.limits.max_record), HEAD_BYTES)

    def _account_unreadable(self, start: int) -> Iterator[Batch | DamagedRange]:
        """Account for a file that cannot be walked: every byte is damaged."""
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

    def _join_torn_tail(self, chain: Iterator[Batch | DamagedRange]) -> Iterator[Batch | DamagedRange]:
        """Join a hollow frame with the zeros up to the end of the file: together they are one torn tail."""
        hollow: DamagedRange | None = None
        for segment in chain:
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
        """Read to the end, for the byte account only."""
        if resynchronizer is not None and resynchronizer.exhausted:
            self.incomplete = "the limit of work for finding the next provable record was reached"
        while not window.ended:
            start = window.skip_hole(window.end)
            window.load(start, start + MIB)

    def _walk_chain(self, window: Window, position: int) -> Iterator[Batch | DamagedRange]:
        scanner = self._get_scanner()
        need = position + 1
        while not self._is_incomplete():
            window.load(position, need)
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
                if not self._is_past_end(needed_end):  # it fits into the file, but exceeds the limit
                    stop = stop._replace(reason=StopReason.BOUNDS, need=needed_end - window.base)
                    self.over_limit = f"a record of {needed_end - position:,} bytes is over the ceiling (--max-record)"
            if self._switch_level(window, position):
                scanner, need = self._get_scanner(), position + 1
                continue
            resumed_at = yield from self._handle_damage(window, position, stop)
            if resumed_at is None:
                return
            position, need = resumed_at, resumed_at + 1

    def _get_scanner(self) -> Scanner:
        """Return the scanner of the current level; only frame boundaries are scanned where the content is not read."""
        frame = self.layout.frame
        level_and_scanner = self._scanners.get(id(frame.schema))
        if level_and_scanner is None:
            level_and_scanner = frame, self.backend.make_scanner(frame.schema, frame.columns if self.rows else ())
            self._scanners[id(frame.schema)] = level_and_scanner
        return level_and_scanner[1]

    def _switch_level(self, window: Window, position: int) -> bool:
        """Return True if another level applies from the frame at `position` on; never twice at the same offset."""
        frame = self.layout.frame
        if frame.next_level is None or position == self._level_changed_at:
            return False
        window.load(position, position + HEAD_BYTES)
        new_level = frame.next_level(bytes(window.view(position, position + HEAD_BYTES)), self.layout.context)
        if new_level is None or new_level is frame:
            return False
        self.layout, self._level_changed_at = replace(self.layout, frame=new_level), position
        self._resynchronizer = self._payload_reader = self._cause_finder = None  # they use the old layout
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

        Returns where the chain continues instead: at a proven frame inside one whose length was wrong.
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
            elif isinstance(piece, PartialFrame):
                yield self._account_partial_frame(window, piece, view)
            else:
                yield self._account_batch(self._make_batch(window.base, view, piece))

        return None

    def _find_frame_inside(self, window: Window, bad: BadPayload) -> int | None:
        if bad.framed:
            return None
        return self._get_resynchronizer(window).find_inside(window.base + bad.start + 1, window.base + bad.end)

    def _handle_damage(
        self, window: Window, position: int, stop: ScanStop
    ) -> Generator[DamagedRange, None, int | None]:
        """Handle a position without a good frame: end mark, damage or tail; return where to continue, or None."""
        mark = self.layout.frame.end_mark
        if mark is not None and self._is_end_mark_at(window, position, mark):
            return (yield from self._handle_end_mark(window, position, mark))
        item = self._diagnose_frame(window, position, stop)  # before the window moves on
        declared_end = window.base + stop.need if stop.reason == StopReason.CHECKSUM else -1
        end_past_file = -1
        if self.causes and stop.reason == StopReason.SHORT:
            end_past_file = find_end_past_file(
                self._get_scanner(), window.view(position, window.end), position, stop.need - stop.at
            )
        resynchronizer = self._get_resynchronizer(window)
        if self.salvage_reader is not None and self.source.size is None:  # it can be read only once
            window.kept_from, window.max_kept_bytes = position, self.limits.max_memory // _HELD_FRACTION
        resync_point = resynchronizer.find(position, declared_end)
        if resync_point is None:
            self._read_to_end(window, resynchronizer)
            if self.incomplete is not None:
                self._note_damage(position)
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
        window.load(position, position + len(mark) + 1)
        return bytes(window.view(position, position + len(mark))) == mark

    def _handle_end_mark(self, window: Window, position: int, mark: bytes) -> Generator[DamagedRange, None, int | None]:
        """Handle the end mark: the file is closed, and nothing may follow."""
        self.closed = True
        mark_end = position + len(mark)
        if window.ended and window.end == mark_end:
            self.account.header += len(mark)
            return None
        resync_point = self._get_resynchronizer(window).find(mark_end - 1)
        stop = window.end if resync_point is None else resync_point.offset
        message = f"{stop - mark_end:,} bytes behind the end mark" if stop > mark_end else "records behind the end mark"
        item = make_finding("garbage-tail", position, stop - position, message, record=self.records)
        item = self._explain_finding(item, memoryview(mark))
        if resync_point is not None:
            yield self._account_skipped(position, resync_point, item)
            return resync_point.offset
        self.account.header += len(mark)
        yield self._account_tail(mark_end, item, "unknown")
        return None
