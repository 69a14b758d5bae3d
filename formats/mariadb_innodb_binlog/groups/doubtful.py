"""Salvage events of groups with an unproven part: the COMMIT record, or out-of-band data, is in an unproven page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, FrameCorrector, Kernel, SalvageAssembler, UnprovenRecords
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.events import EventAssembler
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import CommitGroupReader, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.doubtful import (
    IbbSalvagedRecords,
    find_framed_end,
    is_sound_record,
    relocate_finding,
)
from binlogtool.formats.mariadb_innodb_binlog.records.store import PageStore

_COMMIT = int(IbbRecordType.COMMIT)
_NO_OOB_BYTE = 0
"""First byte of a COMMIT record without out-of-band data."""


class _SalvagePageStore(PageStore):
    """Reads pages anywhere in the log, also unproven ones.

    Attributes:
        used: unproven pages that were read, and why they are unproven.
    """

    def __init__(self, context: IbbFileContext, correct_page: FrameCorrector) -> None:
        super().__init__(context)
        self.used: dict[tuple[int, int], Finding] = {}
        self._correct_page = correct_page
        self._reasons: dict[tuple[int, int], Finding] = {}

    def read_page(self, file_no: int, page_no: int) -> bytes:
        """See `Store.page`."""
        data = super().read_page(file_no, page_no)
        reason = self._reasons.get((file_no, page_no))
        if reason is not None:
            self.used[file_no, page_no] = reason
        return data

    def replace_unproven_page(self, file_no: int, page_no: int, data: bytes) -> bytes | None:
        """See `Store.unproven`."""
        doubtful_page = self._correct_page(data, page_no * len(data)) if any(data) else None
        if doubtful_page is None or not find_framed_end(doubtful_page[0]):
            return None
        self._reasons[file_no, page_no] = doubtful_page[1]
        return doubtful_page[0]


class IbbSalvagedEvents:
    """`formats.layouts.SalvageAssembler` at level `event`."""

    def __init__(
        self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel], correct_page: FrameCorrector
    ) -> None:
        self._context = context
        self._records = IbbSalvagedRecords(context, compile_kernel, correct_page)
        self._pages = _SalvagePageStore(context, correct_page)
        self._groups = CommitGroupReader(context, self._pages)
        self._events = EventAssembler(context, RecordAssembler(context, compile_kernel), compile_kernel)

    def feed(self, batch: Batch, reason: Finding | None = None) -> Iterator[UnprovenRecords]:
        """See `formats.layouts.SalvageAssembler`."""
        return self._salvage_batches(self._records.iter_all_records(batch, reason))

    def skip_damage(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Yield the events of groups that skipped pages cut off."""
        return self._salvage_batches(self._records.skip_pages(start, end))

    def finish(self) -> Iterator[UnprovenRecords]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        return self._salvage_batches(self._records.iter_remaining_records())

    def _salvage_batches(self, batches: Iterator[UnprovenRecords]) -> Iterator[UnprovenRecords]:
        for batch, reasons in batches:
            codes, lows = batch.frames["type_code"], batch.frames["offset"]
            for i in range(batch.frames.count):
                if codes[i] == _COMMIT and (reasons or batch.window[lows[i]] != _NO_OOB_BYTE):
                    yield from self._salvage_group(batch, i, reasons)

    def _salvage_group(self, batch: Batch, index: int, reasons: tuple[Finding, ...]) -> Iterator[UnprovenRecords]:
        self._pages.used.clear()
        group = self._groups.read_group(batch, index)
        if isinstance(group, Finding):
            return
        known_offsets = {why.offset for why in reasons}
        used_reasons = (self._page_reason(group, *one) for one in self._pages.used.items())
        all_reasons = (*reasons, *(why for why in used_reasons if why.offset not in known_offsets))
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        if all_reasons and is_sound_record(_COMMIT, batch.window[low:high], group.position):
            events = self._events.iter_group_events(group)
            yield from ((one, all_reasons) for one in events if isinstance(one, Batch))

    def _page_reason(self, group: EventGroup, page: tuple[int, int], reason: Finding) -> Finding:
        """Return why a page is unproven; for a page of another file, as a finding about the group."""
        if page[0] == self._context.number:
            return reason
        return relocate_finding(reason, group.position.offset, group.size, *page)


def make_salvaged_events(
    context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel], correct_page: FrameCorrector
) -> SalvageAssembler:
    """Create the reader for `LogFileLayout.make_salvage_assembler` at level `event`."""
    return IbbSalvagedEvents(context, compile_kernel, correct_page)
