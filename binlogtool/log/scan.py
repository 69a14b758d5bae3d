"""One pass over one file: batches of good frames, damaged ranges, and the tail; every byte goes into one class.

This is the only reader. `verify`, `dump`, `convert`, the annotated hexdump and the plans consume its segments.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.base import Format
from binlogtool.formats.judging import Tail
from binlogtool.formats.layouts import Assembler, Batch, FrameLevel, Layout, Table
from binlogtool.limits import MIB, Limits
from binlogtool.log import damage as damages
from binlogtool.log.causes import Causes, past_the_file
from binlogtool.log.forensics import Region
from binlogtool.log.payloads import BadPayload, Holed, Payloads, Piece
from binlogtool.log.resync import Landing, Resync
from binlogtool.log.segments import Account, Beside, Damage, Unproven, by_place
from binlogtool.log.source import HEAD_BYTES, Source
from binlogtool.log.window import Window
from binlogtool.schema.scanner import Backend, Scanner, Stop, StopReason

_CHUNKS = {"python": MIB, "native": 2 * MIB}
"""Bytes read at a time where records are looked into; else a MiB, which the processor's cache still has when its
checksums are computed."""
_TORN_ZEROS = 8
_HELD = 4
"""Of a stream, a damaged range that is looked at again may take so much of the working set: one part of so many."""


class Scan(msgspec.Struct):
    """Walks one file once. After `segments()` is used up the other attributes tell how it went.

    rows: False = do not look inside the frames (depth frame and checksum). begin: the frame to start with; None = the
    first one. causes: findings name the likely cause of a damage (`binlogtool.log.forensics`). beside: see `all_there`.
    """

    source: Source
    format: Format
    layout: Layout
    backend: Backend
    limits: Limits
    rows: bool = True
    live: bool = False
    window: Window | None = None
    begin: int | None = None
    causes: bool = False
    beside: Beside | None = None
    account: Account = msgspec.field(default_factory=Account)
    frames: int = 0
    records: int = 0
    valid_after_damage: int = 0
    first_damage: int | None = None
    landing_after_damage: int | None = None
    good_end: int = 0
    end: int = 0
    closed: bool | None = None
    tail_findings: tuple[Finding, ...] = ()
    incomplete: str | None = None
    unread: int = 0
    """Bytes at the end that a limit kept from being looked at; they are booked as unknown."""
    over_ceiling: str | None = None
    _deadline: float | None = None
    _resync: Resync | None = None
    _causes: Causes | None = None
    _last: int = -1
    _turned_at: int = -1
    _scanners: dict[int, tuple[FrameLevel, Scanner]] = msgspec.field(default_factory=dict)
    """By the id of the schema, which is kept alive beside its scanner: a log may turn between levels often."""
    _payloads: Payloads | None = None

    def segments(self) -> Iterator[Batch | Damage]:
        """Batches and damaged ranges in file order, without holes between them."""
        return (one for one in self.all_there() if not isinstance(one, Unproven))

    def all_there(self) -> Iterator[Batch | Damage | Unproven]:
        """The same, and what `beside` finds, at its place."""
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

    def _leave_unread(self) -> None:
        """Books what was not looked at: nothing is said of it."""
        self.end = self.end if self.source.size is None else self.source.size
        self.unread = max(0, self.end - (self.begin or 0) - sum(self.account.as_dict().values()))
        self.account.unknown += self.unread
        self.closed = None

    @staticmethod
    def _with_unproven(chain: Iterator[Batch | Damage], beside: Beside) -> Iterator[Batch | Damage | Unproven]:
        for segment in chain:
            yield segment
            if isinstance(segment, Damage):
                yield from beside.damage(segment)

    def _assembled(self, chain: Iterator[Batch | Damage], assembler: Assembler) -> Iterator[Batch | Damage | Unproven]:
        """Records in place of the frames that they lie in."""
        beside = self.beside
        for segment in chain:
            if isinstance(segment, Damage):
                yield segment
                made = self._counted(assembler.damage(segment.start, segment.end))
                yield from made if beside is None else by_place(made, beside.damage(segment))
            else:
                made = self._counted(assembler.feed(segment))
                yield from made if beside is None else by_place(made, beside.good(segment))
                self.records = assembler.count  # at level `event` what came are parts of some of them
        if self.incomplete is None:
            made = self._counted(assembler.finish())
            yield from made if beside is None else by_place(made, beside.finish())

    def _counted(self, made: Iterator[Batch | Finding]) -> Iterator[Batch | Damage]:
        """Counts the records; good frames of which none can be made are damage of another kind, already booked."""
        for one in made:
            if isinstance(one, Finding):
                start = one.offset or 0
                if one.severity is Severity.ERROR:
                    self._note_damage(start)
                tail = "damaged" if one.severity is Severity.ERROR else "torn_tail"
                yield Damage(start, start + one.length, (one,), tail=tail, payload=True)
                continue
            self.records += one.records.count
            if self.first_damage is not None:
                self.valid_after_damage += one.records.count
            yield one

    def tail(self) -> Tail:
        """How the file ended (call it when the segments are used up)."""
        return Tail(self.good_end, self.end, self.closed, self.first_damage, self.tail_findings)

    def _chunk(self) -> int:
        """Bytes read at a time; no more than one record may have, so that a longer one is always noticed, and no more
        than the file has."""
        chunk = _CHUNKS.get(self.backend.name, MIB) if self.rows else MIB
        if self.source.size is not None:
            chunk = min(chunk, max(self.source.size, HEAD_BYTES) + 1)
        return chunk if self.limits.max_record is None else max(min(chunk, self.limits.max_record), HEAD_BYTES)

    @property
    def max_frame(self) -> int:
        """The ceiling of one frame in bytes."""
        return self.limits.max_record or self.layout.frame.max_size

    def _unreadable(self, start: int) -> Iterator[Batch | Damage]:
        """Nothing can be walked: every byte is damaged."""
        window = self.window
        assert window is not None
        self._run_out(window, None)
        self.end = window.end
        if self.layout.sealed:  # nobody knows what is in it
            self.account.header = self.good_end = min(self.layout.frames_at, self.end)
            self.account.unknown = self.end - self.account.header
            return
        self.first_damage = self.good_end = start
        self.account.damaged = self.end
        if self.end:
            yield Damage(0, self.end, (), landed=False)

    def _torn_joined(self, chain: Iterator[Batch | Damage]) -> Iterator[Batch | Damage]:
        """Joins a hollow frame with the zeros up to the end of the file: together they are one torn tail."""
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

    def _torn_tail(self, hollow: Damage, end: int) -> Damage:
        """Books a hollow frame and the zeros behind it as torn."""
        account = self.account
        account.damaged -= hollow.end - hollow.start
        account.preallocated -= end - hollow.end
        if self.first_damage == hollow.start:
            self.first_damage = None
        self.frames -= 1
        self.tail_findings = ()
        text = f"the last record is incomplete: {end - hollow.start:,} bytes, nothing provable after it"
        found = self._tail_finding("torn-tail", hollow.start, text, zeros=end - hollow.end)
        found = self._caused(found, Region(hollow.start, end, tail=True))
        return self._ended(hollow.start, found, "torn_tail")

    def _run_out(self, window: Window, finder: Resync | None) -> None:
        """Reads on to the end, for the byte account only."""
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
                if not self._beyond(wanted):  # the file could hold it: the ceiling forbids it
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
        """Of the level that holds. Where nobody looks into the frames, their borders are all that is asked for."""
        frame = self.layout.frame
        known = self._scanners.get(id(frame.schema))
        if known is None:
            known = frame, self.backend.scanner(frame.schema, frame.columns if self.rows else ())
            self._scanners[id(frame.schema)] = known
        return known[1]

    def _turned(self, window: Window, position: int) -> bool:
        """Does another level hold from the frame at `position` on? Never twice at the same place."""
        frame = self.layout.frame
        if frame.turn is None or position == self._turned_at:
            return False
        window.load(position, position + HEAD_BYTES)
        other = frame.turn(bytes(window.view(position, position + HEAD_BYTES)), self.layout.context)
        if other is None or other is frame:
            return False
        self.layout, self._turned_at = replace(self.layout, frame=other), position
        self._resync = self._payloads = self._causes = None  # they read as before
        return True

    def _beyond(self, offset: int) -> bool:
        return self.source.size is not None and offset > self.source.size

    def _late(self) -> bool:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.incomplete = "the time limit ended the work (--timeout, --max-duration)"
        return self.incomplete is not None

    # -- good frames ---------------------------------------------------------------------------------------------

    def _good(self, window: Window, table: Table) -> Generator[Batch | Damage, None, int | None]:
        """Batches of proven frames; a frame whose content is wrong is cut out as damage.

        Returns where the chain goes on instead: at a proven frame inside one that only claimed to be one.
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

    def _batch(self, base: int, view: memoryview, piece: Piece) -> Batch:
        return Batch(
            base, view, piece.frames, piece.arena, piece.rows, piece.starts, piece.packed, self.records, self.frames,
            self._numbered(piece.inner),
        )  # fmt: skip

    def _holed(self, window: Window, holed: Holed, view: memoryview) -> Damage:
        """A frame some of whose rows are good: they count, and the frame is damage."""
        start, end = window.base + holed.start, window.base + holed.end
        data = view[holed.start : holed.end]
        found = tuple(
            self._explained(replace(one, record=self.records + (one.record or 0)), data) for one in holed.findings
        )
        self._note_damage(start)
        framed = None if holed.framed is None else self._batch(window.base, view, holed.framed)
        kept = self._booked(self._batch(window.base, view, holed.kept))
        lost = 0 if any(holed.kept.packed) else holed.lost
        self.account.record -= lost
        self.account.damaged += lost
        return Damage(start, end, found, payload=True, kept=kept, framed=framed)

    def _numbered(self, inner: Mapping[int, Batch]) -> Mapping[int, Batch]:
        """The same inner batches with the record numbers of the frames that they are inside of."""
        if not inner:
            return inner
        return {
            i: replace(batch, holder=batch.holder._replace(record=self.records + i)) for i, batch in inner.items()
            if batch.holder is not None
        }  # fmt: skip

    def _bad_payload(self, window: Window, bad: BadPayload) -> Damage:
        """A frame that is where it says, whole by its checksum, and whose content is wrong."""
        start, end = window.base + bad.start, window.base + bad.end
        found = self._told_of(window, bad)
        self._note_damage(start)
        self.frames += 1
        self.account.damaged += end - start
        hollow = bad.stored == 0 and not any(memoryview(window.buffer)[bad.end - _TORN_ZEROS : bad.end])
        return Damage(start, end, (found,), payload=True, hollow=hollow)

    def _told_of(self, window: Window, bad: BadPayload) -> Finding:
        found = replace(bad.finding, record=self.records)
        return self._explained(found, memoryview(window.buffer)[bad.start : bad.end])

    def _booked(self, batch: Batch) -> Batch:
        count, frames = batch.records.count, batch.frames.count
        size = int(batch.frames["end"][frames - 1]) - int(batch.frames["offset"][0])
        self.account.record += size
        self.frames += frames
        self._last = batch.base + int(batch.frames["offset"][frames - 1])
        witness = self.layout.frame.witness
        if witness is not None and self.rows:
            witness(self.layout.context, batch)
        if self.layout.assemble is not None and self.rows:
            count = 0  # of records that are made of these frames, `_counted` knows
        self.records += count
        if self.first_damage is None:
            self.good_end = batch.base + int(batch.frames["end"][frames - 1])
        else:
            if self.landing_after_damage is None:
                self.landing_after_damage = batch.base + int(batch.frames["offset"][0])
            self.valid_after_damage += count
        return batch

    # -- damage and tail -----------------------------------------------------------------------------------------

    def _note_damage(self, start: int) -> None:
        if self.first_damage is None:
            self.first_damage = start

    def _caused(self, found: Finding, region: Region) -> Finding:
        """The finding with what most likely did it, where the file can be read at any place."""
        if not self.causes or self.source.size is None or self.live:
            return found
        if self._causes is None:
            self._causes = Causes(self.source, self.format.name, self.layout.frame, self.backend)
        return self._causes.told(found, region)

    def _explained(self, found: Finding, data: memoryview) -> Finding:
        explain = self.format.judging.explain_damage
        return found if explain is None else explain(self.layout, data, found.offset or 0, found)

    def _damage(self, window: Window, position: int, stop: Stop) -> Generator[Damage, None, int | None]:
        """No good frame at `position`: end mark, damage or tail. Returns where the chain goes on, or None."""
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

    def _diagnosed(self, window: Window, position: int, stop: Stop) -> Finding:
        """What is wrong with the frame at `position`, in the schema's words."""
        data = window.view(position, position + damages.EXCERPT)
        if stop.reason == StopReason.CHECKSUM:
            frame = window.view(position, window.base + stop.need)
            found = damages.checksum_mismatch(self.layout, bytes(frame), position, self.records)
            data = max(frame, data, key=len)
        elif stop.reason == StopReason.SHORT:
            need = window.base + stop.need if stop.need >= 0 else position + self.layout.frame.min_size
            size = window.end if self.source.size is None else self.source.size
            found = damages.past_the_end(stop, position, need, size, self.records)
        elif stop.reason == StopReason.BOUNDS and stop.need - stop.at > self.max_frame:
            need = window.base + stop.need
            found = damages.over_ceiling(stop, position, need, self.max_frame, self.records)
        else:
            found = damages.broken_frame(self.layout, stop, bytes(data), position, self.records)
        return self._explained(found, data)

    def _at_mark(self, window: Window, position: int, mark: bytes) -> bool:
        window.load(position, position + len(mark) + 1)
        return bytes(window.view(position, position + len(mark))) == mark

    def _marked(self, window: Window, position: int, mark: bytes) -> Generator[Damage, None, int | None]:
        """The end mark stands here: the file is closed, and nothing may follow."""
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

    def _skipped(self, position: int, landing: Landing, found: Finding, declared: int = -1) -> Damage:
        """Damage between good frames (or before the end mark)."""
        found = self._caused(found, Region(position, landing.offset, declared, self._last))
        size = landing.offset - position
        what = "the end mark" if landing.closing else "next provable record"
        text = f"{size:,} bytes skipped; {what} at {landing.offset:#010x}"
        skipped = finding("damaged-range", position, size, text, record=self.records, next_provable=landing.offset)
        self._note_damage(position)
        self.account.damaged += size
        length = min(found.length, landing.offset - (found.offset or 0))  # what it claimed beyond belongs to others
        return Damage(position, landing.offset, (replace(found, length=length), skipped))

    def _tail_at(self, position: int, declared: int, data_end: int, stop: Stop, found: Finding) -> Damage:
        """Nothing provable follows: filler, a torn record, a damaged last record, or garbage."""
        assert self.window is not None
        end = self.window.end
        if data_end <= position:
            text = f"{end - position:,} zero bytes to the end"
            return self._ended(position, self._tail_finding("zero-tail", position, text), "preallocated")
        if stop.reason == StopReason.SHORT or self._torn(position, declared, data_end, stop):
            text = f"the last record is incomplete: {end - position:,} bytes, nothing provable after it"
            found = self._tail_finding("torn-tail", position, text, zeros=end - data_end)
            found = self._caused(found, Region(position, end, declared, tail=True))
            return self._ended(position, found, "torn_tail")
        if stop.reason == StopReason.CONSTANT:
            text = f"{end - position:,} bytes that are no record and no filler"
            found = self._tail_finding("garbage-tail", position, text)
            return self._ended(position, self._caused(found, Region(position, end, tail=True)), "unknown")
        found = self._caused(found, Region(position, end, declared, tail=True))
        rest = end - position - found.length
        if rest <= 0:
            return self._ended(position, found, "damaged")
        text = f"{end - position:,} bytes to the end hold nothing provable"
        skipped = finding("damaged-range", position, end - position, text, record=self.records)
        return self._ended(position, found, "damaged", skipped)

    def _torn(self, position: int, declared: int, data_end: int, stop: Stop) -> bool:
        """Did the write of the last record break off? Its rest is zeros, or the file ends within an end mark."""
        assert self.window is not None
        mark = self.layout.frame.end_mark or b""
        rest = bytes(self.window.view(position, position + len(mark) + 1))
        if rest and len(rest) < len(mark) and mark.startswith(rest):
            return True
        if self.window.end - data_end < _TORN_ZEROS:
            return False
        border = declared if stop.reason == StopReason.CHECKSUM else position + self.layout.frame.min_size
        return data_end < border

    def _tail_finding(self, id_: str, position: int, text: str, **facts: Any) -> Finding:
        assert self.window is not None
        found = finding(id_, position, self.window.end - position, text, record=self.records, **facts)
        return self._explained(found, self.window.view(position, position + damages.EXCERPT))

    def _ended(self, position: int, found: Finding, tail: str, *more: Finding) -> Damage:
        assert self.window is not None
        end = self.window.end
        self.account.add(tail, end - position)
        if tail == "damaged":
            self._note_damage(position)
        silent = self.live and tail in ("torn_tail", "preallocated")
        findings = () if silent else (found, *more)
        self.tail_findings += findings
        return Damage(position, end, findings, tail=tail, landed=False)
