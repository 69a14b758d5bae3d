"""Byte accounting of one pass over a file: every byte in one class, record counts, damage and tail findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.base import Format
from binlogtool.formats.judging import FileTail
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.limits import Limits
from binlogtool.log import damage as damages
from binlogtool.log.causes import CauseFinder
from binlogtool.log.clues import DamagedRegion
from binlogtool.log.payloads import BadPayload, FrameRun, PartialFrame
from binlogtool.log.resync import ResyncPoint
from binlogtool.log.segments import ByteAccount, DamagedRange, UnprovenReader
from binlogtool.log.source import Source
from binlogtool.log.window import Window
from binlogtool.schema.scanner import Backend, ScanStop, StopReason

_TORN_ZEROS = 8


class ScanAccounting(msgspec.Struct):
    """Settings and results of one pass.

    Args:
        rows: False = do not look inside the frames (depth frame and checksum).
        begin: offset of the first frame; None = the start of the frames.
        causes: findings name the likely cause of damage (`binlogtool.log.forensics`).
        salvage_reader: see `read_segments`.
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
    salvage_reader: UnprovenReader | None = None
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
    """Bytes at the end that a limit kept from being looked at; they are booked as unknown."""
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
                    self._note_damage(start)
                tail = "damaged" if item.severity is Severity.ERROR else "torn_tail"
                yield DamagedRange(start, start + item.length, (item,), tail=tail, payload=True)
                continue
            self.records += item.records.count
            if self.first_damage is not None:
                self.valid_after_damage += item.records.count
            yield item

    def file_tail(self) -> FileTail:
        """Return how the file ended; to be called after the segments are consumed."""
        return FileTail(self.good_end, self.end, self.closed, self.first_damage, self.tail_findings)

    @property
    def max_frame_bytes(self) -> int:
        """The limit of one frame in bytes."""
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

    def _account_partial_frame(self, window: Window, partial: PartialFrame, view: memoryview) -> DamagedRange:
        """Account for a frame some of whose rows are good: they count, and the frame is damage."""
        start, end = window.base + partial.start, window.base + partial.end
        data = view[partial.start : partial.end]
        findings = tuple(
            self._explain_finding(replace(one, record=self.records + (one.record or 0)), data)
            for one in partial.findings
        )
        self._note_damage(start)
        framed = None if partial.framed_rows is None else self._make_batch(window.base, view, partial.framed_rows)
        good_batch = self._account_batch(self._make_batch(window.base, view, partial.good_rows))
        lost = 0 if any(partial.good_rows.packed) else partial.lost_bytes
        self.account.record -= lost
        self.account.damaged += lost
        return DamagedRange(start, end, findings, payload=True, good_records=good_batch, framed_records=framed)

    def _number_inner(self, inner: Mapping[int, Batch]) -> Mapping[int, Batch]:
        """Return the same inner batches with the record numbers of the frames that contain them."""
        return {i: batch.with_first_record(self.records + i) for i, batch in inner.items()} if inner else inner

    def _account_bad_payload(self, window: Window, bad: BadPayload) -> DamagedRange:
        """Account for a frame at its declared position, complete by its checksum, whose content is wrong."""
        start, end = window.base + bad.start, window.base + bad.end
        item = self._explain_payload(window, bad)
        self._note_damage(start)
        self.frames += 1
        self.account.damaged += end - start
        hollow = bad.stored == 0 and not any(memoryview(window.buffer)[bad.end - _TORN_ZEROS : bad.end])
        return DamagedRange(start, end, (item,), payload=True, hollow=hollow)

    def _explain_payload(self, window: Window, bad: BadPayload) -> Finding:
        item = replace(bad.finding, record=self.records)
        return self._explain_finding(item, memoryview(window.buffer)[bad.start : bad.end])

    def _account_batch(self, batch: Batch) -> Batch:
        count, frames = batch.records.count, batch.frames.count
        size = int(batch.frames["end"][frames - 1]) - int(batch.frames["offset"][0])
        self.account.record += size
        self.frames += frames
        self._last_frame_offset = batch.base + int(batch.frames["offset"][frames - 1])
        observe = self.layout.frame.observe
        if observe is not None and self.rows:
            observe(self.layout.context, batch)
        if self.layout.make_assembler is not None and self.rows:
            count = 0  # `_count_records` counts the records that are made of these frames
        self.records += count
        if self.first_damage is None:
            self.good_end = batch.base + int(batch.frames["end"][frames - 1])
        else:
            if self.resync_after_damage is None:
                self.resync_after_damage = batch.base + int(batch.frames["offset"][0])
            self.valid_after_damage += count
        return batch

    def _note_damage(self, start: int) -> None:
        if self.first_damage is None:
            self.first_damage = start

    def _add_cause(self, item: Finding, region: DamagedRegion) -> Finding:
        """Add the most likely cause to a finding, where the file can be read at any offset."""
        if not self.causes or self.source.size is None or self.live:
            return item
        if self._cause_finder is None:
            self._cause_finder = CauseFinder(self.source, self.format.name, self.layout.frame, self.backend)
        return self._cause_finder.add_cause(item, region)

    def _explain_finding(self, item: Finding, data: memoryview) -> Finding:
        explain = self.format.validation.explain_damage
        return item if explain is None else explain(self.layout, data, item.offset or 0, item)

    def _diagnose_frame(self, window: Window, position: int, stop: ScanStop) -> Finding:
        """Return the finding about the frame at `position`, in terms of the schema."""
        data = window.view(position, position + damages.EXCERPT_BYTES)
        if stop.reason == StopReason.CHECKSUM:
            frame = window.view(position, window.base + stop.need)
            item = damages.explain_checksum_mismatch(self.layout, bytes(frame), position, self.records)
            data = max(frame, data, key=len)
        elif stop.reason == StopReason.SHORT:
            need = window.base + stop.need if stop.need >= 0 else position + self.layout.frame.min_size
            size = window.end if self.source.size is None else self.source.size
            item = damages.explain_past_end(stop, position, need, size, self.records)
        elif stop.reason == StopReason.BOUNDS and stop.need - stop.at > self.max_frame_bytes:
            need = window.base + stop.need
            item = damages.explain_over_limit(stop, position, need, self.max_frame_bytes, self.records)
        else:
            item = damages.explain_broken_frame(self.layout, stop, bytes(data), position, self.records)
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
        self._note_damage(position)
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
            text = f"{end - position:,} bytes that are no record and no filler"
            item = self._make_tail_finding("garbage-tail", position, text)
            return self._account_tail(
                position, self._add_cause(item, DamagedRegion(position, end, tail=True)), "unknown"
            )
        item = self._add_cause(item, DamagedRegion(position, end, declared_end, tail=True))
        rest = end - position - item.length
        if rest <= 0:
            return self._account_tail(position, item, "damaged")
        text = f"{end - position:,} bytes to the end hold nothing provable"
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
        return self._explain_finding(item, self.window.view(position, position + damages.EXCERPT_BYTES))

    def _account_tail(self, position: int, item: Finding, tail: str, *further_findings: Finding) -> DamagedRange:
        assert self.window is not None
        end = self.window.end
        self.account.add(tail, end - position)
        if tail == "damaged":
            self._note_damage(position)
        is_silent = self.live and tail in ("torn_tail", "preallocated")
        findings = () if is_silent else (item, *further_findings)
        self.tail_findings += findings
        return DamagedRange(position, end, findings, tail=tail, is_followed=False)
