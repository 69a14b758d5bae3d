"""Byte accounting of one pass over a file: every byte in one class, record counts, damage and tail findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.base import Format
from binlogtool.formats.judging import Tail
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.limits import Limits
from binlogtool.log import damage as damages
from binlogtool.log.causes import Causes
from binlogtool.log.clues import Region
from binlogtool.log.payloads import BadPayload, Holed, Piece
from binlogtool.log.resync import Landing
from binlogtool.log.segments import Account, Beside, Damage
from binlogtool.log.source import Source
from binlogtool.log.window import Window
from binlogtool.schema.scanner import Backend, Stop, StopReason

_TORN_ZEROS = 8


class Booking(msgspec.Struct):
    """Settings and results of one pass.

    Args:
        rows: False = do not look inside the frames (depth frame and checksum).
        begin: offset of the first frame; None = the start of the frames.
        causes: findings name the likely cause of damage (`binlogtool.log.forensics`).
        salvage_reader: see `read_segments`.
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
    _causes: Causes | None = None
    _last: int = -1

    def _leave_unread(self) -> None:
        """Count the bytes that were not read as unknown."""
        self.end = self.end if self.source.size is None else self.source.size
        self.unread = max(0, self.end - (self.begin or 0) - sum(self.account.as_dict().values()))
        self.account.unknown += self.unread
        self.closed = None

    def _counted(self, made: Iterator[Batch | Finding]) -> Iterator[Batch | Damage]:
        """Count the records; good frames without a complete record are damage that is already accounted for."""
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
        """Return how the file ended; to be called after the segments are consumed."""
        return Tail(self.good_end, self.end, self.closed, self.first_damage, self.tail_findings)

    @property
    def max_frame(self) -> int:
        """The limit of one frame in bytes."""
        return self.limits.max_record or self.layout.frame.max_size

    def _torn_tail(self, hollow: Damage, end: int) -> Damage:
        """Account for a hollow frame and the zeros after it as torn."""
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

    def _batch(self, base: int, view: memoryview, piece: Piece) -> Batch:
        return Batch(
            base, view, piece.frames, piece.arena, piece.rows, piece.starts, piece.packed, self.records, self.frames,
            self._numbered(piece.inner),
        )  # fmt: skip

    def _holed(self, window: Window, holed: Holed, view: memoryview) -> Damage:
        """Account for a frame some of whose rows are good: they count, and the frame is damage."""
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
        """Return the same inner batches with the record numbers of the frames that contain them."""
        return {i: batch.numbered(self.records + i) for i, batch in inner.items()} if inner else inner

    def _bad_payload(self, window: Window, bad: BadPayload) -> Damage:
        """Account for a frame at its declared position, complete by its checksum, whose content is wrong."""
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
            count = 0  # `_count_records` counts the records that are made of these frames
        self.records += count
        if self.first_damage is None:
            self.good_end = batch.base + int(batch.frames["end"][frames - 1])
        else:
            if self.landing_after_damage is None:
                self.landing_after_damage = batch.base + int(batch.frames["offset"][0])
            self.valid_after_damage += count
        return batch

    def _note_damage(self, start: int) -> None:
        if self.first_damage is None:
            self.first_damage = start

    def _caused(self, found: Finding, region: Region) -> Finding:
        """Add the most likely cause to a finding, where the file can be read at any offset."""
        if not self.causes or self.source.size is None or self.live:
            return found
        if self._causes is None:
            self._causes = Causes(self.source, self.format.name, self.layout.frame, self.backend)
        return self._causes.told(found, region)

    def _explained(self, found: Finding, data: memoryview) -> Finding:
        explain = self.format.judging.explain_damage
        return found if explain is None else explain(self.layout, data, found.offset or 0, found)

    def _diagnosed(self, window: Window, position: int, stop: Stop) -> Finding:
        """Return the finding about the frame at `position`, in terms of the schema."""
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

    def _skipped(self, position: int, landing: Landing, found: Finding, declared: int = -1) -> Damage:
        """Account for damage between good frames (or before the end mark)."""
        found = self._caused(found, Region(position, landing.offset, declared, self._last))
        size = landing.offset - position
        what = "the end mark" if landing.closing else "next provable record"
        text = f"{size:,} bytes skipped; {what} at {landing.offset:#010x}"
        skipped = finding("damaged-range", position, size, text, record=self.records, next_provable=landing.offset)
        self._note_damage(position)
        self.account.damaged += size
        length = min(
            found.length, landing.offset - (found.offset or 0)
        )  # the declared bytes beyond belong to other frames
        return Damage(position, landing.offset, (replace(found, length=length), skipped))

    def _tail_at(self, position: int, declared: int, data_end: int, stop: Stop, found: Finding) -> Damage:
        """Classify a tail without provable records: filler, a torn record, a damaged last record, or garbage."""
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
        """Return True if the write of the last record was interrupted: zeros follow, or a part of an end mark."""
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
