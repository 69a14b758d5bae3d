"""One pass over one file: batches of good frames, damaged ranges, and the tail; every byte is in one class.

This is the only reader. `verify`, `dump`, `convert`, the annotated hexdump and the plans consume its segments.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import msgspec
from msgspec.structs import replace

from binlogtool.findings import finding
from binlogtool.formats.layouts import Assembler, Batch, FrameLevel, Table
from binlogtool.limits import MIB
from binlogtool.log.booking import Booking
from binlogtool.log.causes import past_the_file
from binlogtool.log.payloads import BadPayload, Holed, Payloads
from binlogtool.log.resync import Landing, Resync
from binlogtool.log.segments import Beside, Damage, Unproven, by_place
from binlogtool.log.source import HEAD_BYTES
from binlogtool.log.window import Window
from binlogtool.schema.scanner import Scanner, Stop, StopReason

_CHUNKS = {"python": MIB, "native": 2 * MIB}
"""Bytes read at a time where records are looked into; else a MiB, which the processor's cache still has when its
checksums are computed."""
_HELD = 4
"""Of a stream, a damaged range that is looked at again may take so much of the working set: one part of so many."""


class Scan(Booking):
    """Walk one file once. After `segments()` is consumed the attributes tell how it went."""

    _deadline: float | None = None
    _resync: Resync | None = None
    _turned_at: int = -1
    _scanners: dict[int, tuple[FrameLevel, Scanner]] = msgspec.field(default_factory=dict)
    """By the id of the schema, which is kept alive beside its scanner: a log may turn between levels often."""
    _payloads: Payloads | None = None

    def segments(self) -> Iterator[Batch | Damage]:
        """Yield batches and damaged ranges in file order, without gaps between them."""
        return (one for one in self.all_there() if not isinstance(one, Unproven))

    def all_there(self) -> Iterator[Batch | Damage | Unproven]:
        """Yield the segments, and what the salvage reader finds, in order."""
        layout = self.layout
        self.window = self.window or Window(self.source, self._chunk())
        self._deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        self.closed = False if layout.frame.end_mark else None
        if not layout.readable:
            yield from self._unreadable(0)
            return
        self.account.header = layout.frames_at
        self.good_end = self.end = layout.frames_at
        first = layout.frames_at if self.begin is None else self.begin
        chain = self._torn_joined(self._chain(self.window, first))
        assemble = layout.assemble if self.rows else None
        if assemble is not None:
            yield from self._assembled(chain, assemble(self.backend.compile))
        elif self.beside is not None:
            yield from self._with_unproven(chain, self.beside)
        else:
            yield from chain
        self.end = self.window.end
        if self.incomplete is not None:
            self._leave_unread()

    @staticmethod
    def _with_unproven(chain: Iterator[Batch | Damage], beside: Beside) -> Iterator[Batch | Damage | Unproven]:
        for segment in chain:
            yield segment
            if isinstance(segment, Damage):
                yield from beside.damage(segment)

    def _assembled(self, chain: Iterator[Batch | Damage], assembler: Assembler) -> Iterator[Batch | Damage | Unproven]:
        """Yield records in place of the frames that hold them."""
        beside = self.beside
        for segment in chain:
            if isinstance(segment, Damage):
                yield segment
                made = self._counted(assembler.damage(segment.start, segment.end))
                yield from made if beside is None else by_place(made, beside.damage(segment))
            else:
                made = self._counted(assembler.feed(segment))
                yield from made if beside is None else by_place(made, beside.good(segment))
                self.records = assembler.count  # at level `event` the items are parts of some of them
        if self.incomplete is None:
            made = self._counted(assembler.finish())
            yield from made if beside is None else by_place(made, beside.finish())

    def _chunk(self) -> int:
        """Return the bytes read at a time: at most one record, so that longer ones are noticed, and at most a file."""
        chunk = _CHUNKS.get(self.backend.name, MIB) if self.rows else MIB
        if self.source.size is not None:
            chunk = min(chunk, max(self.source.size, HEAD_BYTES) + 1)
        return chunk if self.limits.max_record is None else max(min(chunk, self.limits.max_record), HEAD_BYTES)

    def _unreadable(self, start: int) -> Iterator[Batch | Damage]:
        """Account for a file that cannot be walked: every byte is damaged."""
        window = self.window
        assert window is not None
        self._run_out(window, None)
        self.end = window.end
        if self.layout.sealed:  # its content is not known
            self.account.header = self.good_end = min(self.layout.frames_at, self.end)
            self.account.unknown = self.end - self.account.header
            return
        self.first_damage = self.good_end = start
        self.account.damaged = self.end
        if self.end:
            yield Damage(0, self.end, (), landed=False)

    def _torn_joined(self, chain: Iterator[Batch | Damage]) -> Iterator[Batch | Damage]:
        """Join a hollow frame with the zeros up to the end of the file: together they are one torn tail."""
        held: Damage | None = None
        for segment in chain:
            if held is not None and isinstance(segment, Damage) and segment.tail == "preallocated":
                yield self._torn_tail(held, segment.end)
                return
            if held is not None:
                yield held
            held = segment if isinstance(segment, Damage) and segment.hollow else None
            if held is None:
                yield segment
        if held is not None:
            assert self.window is not None
            yield self._torn_tail(held, held.end) if held.end == self.window.end else held

    def _run_out(self, window: Window, finder: Resync | None) -> None:
        """Read to the end, for the byte account only."""
        if finder is not None and finder.exhausted:
            self.incomplete = "the limit of work for finding the next provable record was reached"
        while not window.ended:
            start = window.skip_hole(window.end)
            window.load(start, start + MIB)

    def _chain(self, window: Window, position: int) -> Iterator[Batch | Damage]:
        scanner = self._scanner()
        need = position + 1
        while not self._late():
            window.load(position, need)
            table, stop = scanner.scan(window.buffer, position - window.base, window.length, not window.ended)
            landed = (yield from self._good(window, table)) if table.count else None
            if landed is not None:
                position, need = landed, landed + 1
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
                wanted = window.base + max(stop.need, stop.at + self.layout.frame.min_size)
                if wanted - position <= self.max_frame and not self._beyond(wanted):
                    need = max(need, wanted)
                    continue
                if not self._beyond(wanted):  # it fits into the file, but exceeds the limit
                    stop = stop._replace(reason=StopReason.BOUNDS, need=wanted - window.base)
                    self.over_ceiling = f"a record of {wanted - position:,} bytes is over the ceiling (--max-record)"
            if self._turned(window, position):
                scanner, need = self._scanner(), position + 1
                continue
            landed = yield from self._damage(window, position, stop)
            if landed is None:
                return
            position, need = landed, landed + 1

    def _scanner(self) -> Scanner:
        """Return the scanner of the current level; only frame boundaries are scanned where the content is not read."""
        frame = self.layout.frame
        known = self._scanners.get(id(frame.schema))
        if known is None:
            known = frame, self.backend.scanner(frame.schema, frame.columns if self.rows else ())
            self._scanners[id(frame.schema)] = known
        return known[1]

    def _turned(self, window: Window, position: int) -> bool:
        """Return True if another level applies from the frame at `position` on; never twice at the same offset."""
        frame = self.layout.frame
        if frame.turn is None or position == self._turned_at:
            return False
        window.load(position, position + HEAD_BYTES)
        other = frame.turn(bytes(window.view(position, position + HEAD_BYTES)), self.layout.context)
        if other is None or other is frame:
            return False
        self.layout, self._turned_at = replace(self.layout, frame=other), position
        self._resync = self._payloads = self._causes = None  # they use the old layout
        return True

    def _beyond(self, offset: int) -> bool:
        return self.source.size is not None and offset > self.source.size

    def _late(self) -> bool:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.incomplete = "the time limit ended the work (--timeout, --max-duration)"
        return self.incomplete is not None

    def _good(self, window: Window, table: Table) -> Generator[Batch | Damage, None, int | None]:
        """Yield batches of proven frames; a frame whose content is wrong is separated as damage.

        Returns where the chain continues instead: at a proven frame inside one whose length was wrong.
        """
        view = memoryview(window.buffer)
        if not self.rows:
            yield self._booked(Batch(window.base, view, table, view, None, (), (), self.records, self.frames))
            return None
        self._payloads = self._payloads or Payloads(self.layout, self.backend, self.limits)
        for piece in self._payloads.pieces(view, window.base, table):
            if isinstance(piece, BadPayload):
                landed = self._landed_inside(window, piece)
                if landed is not None:
                    found = self._told_of(window, piece)
                    yield self._skipped(window.base + piece.start, Landing(landed), found)
                    return landed
                yield self._bad_payload(window, piece)
            elif isinstance(piece, Holed):
                yield self._holed(window, piece, view)
            else:
                yield self._booked(self._batch(window.base, view, piece))

        return None

    def _landed_inside(self, window: Window, bad: BadPayload) -> int | None:
        if bad.framed:
            return None
        return self._finder(window).inside(window.base + bad.start + 1, window.base + bad.end)

    def _damage(self, window: Window, position: int, stop: Stop) -> Generator[Damage, None, int | None]:
        """Handle a position without a good frame: end mark, damage or tail; return where to continue, or None."""
        mark = self.layout.frame.end_mark
        if mark is not None and self._at_mark(window, position, mark):
            return (yield from self._marked(window, position, mark))
        found = self._diagnosed(window, position, stop)  # before the window moves on
        declared = window.base + stop.need if stop.reason == StopReason.CHECKSUM else -1
        far = -1
        if self.causes and stop.reason == StopReason.SHORT:
            far = past_the_file(self._scanner(), window.view(position, window.end), position, stop.need - stop.at)
        finder = self._finder(window)
        if self.beside is not None and self.source.size is None:  # it can be read only once
            window.held, window.room = position, self.limits.max_memory // _HELD
        landing = finder.find(position, declared)
        if landing is None:
            self._run_out(window, finder)
            if self.incomplete is not None:
                self._note_damage(position)
                yield Damage(position, window.end, (found,), landed=False)
            else:
                yield self._tail_at(position, declared, finder.data_end, stop, found)
            return None
        yield self._skipped(position, landing, found, max(declared, far))
        window.held = None
        return landing.offset

    def _finder(self, window: Window) -> Resync:
        if self._resync is None:
            self._resync = Resync(self.layout, self.backend, window, self.max_frame)
        return self._resync

    def _at_mark(self, window: Window, position: int, mark: bytes) -> bool:
        window.load(position, position + len(mark) + 1)
        return bytes(window.view(position, position + len(mark))) == mark

    def _marked(self, window: Window, position: int, mark: bytes) -> Generator[Damage, None, int | None]:
        """Handle the end mark: the file is closed, and nothing may follow."""
        self.closed = True
        behind = position + len(mark)
        if window.ended and window.end == behind:
            self.account.header += len(mark)
            return None
        landing = self._finder(window).find(behind - 1)
        stop = window.end if landing is None else landing.offset
        message = f"{stop - behind:,} bytes behind the end mark" if stop > behind else "records behind the end mark"
        found = finding("garbage-tail", position, stop - position, message, record=self.records)
        found = self._explained(found, memoryview(mark))
        if landing is not None:
            yield self._skipped(position, landing, found)
            return landing.offset
        self.account.header += len(mark)
        yield self._ended(behind, found, "unknown")
        return None
