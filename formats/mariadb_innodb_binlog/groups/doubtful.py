"""Salvage events of groups with an unproven part: the COMMIT record, or out-of-band data, is in an unproven page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, Doubt, Doubted, Doubtful, Kernel
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.events import EventAssembler
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import EventGroup, Groups
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import Records
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.doubtful import DoubtfulRecords, elsewhere, is_sound, well_framed
from binlogtool.formats.mariadb_innodb_binlog.records.store import Store

_COMMIT = int(RecordType.COMMIT)
_ALONE = 0
"""First byte of a COMMIT record without out-of-band data."""


class _Pages(Store):
    """Reads pages anywhere in the log, also unproven ones.

    Attributes:
        used: unproven pages that were read, and why they are unproven.
    """

    def __init__(self, context: FileContext, doubt: Doubt) -> None:
        super().__init__(context)
        self.used: dict[tuple[int, int], Finding] = {}
        self._doubt = doubt
        self._whys: dict[tuple[int, int], Finding] = {}

    def page(self, file_no: int, page_no: int) -> bytes:
        """See `Store.page`."""
        data = super().page(file_no, page_no)
        why = self._whys.get((file_no, page_no))
        if why is not None:
            self.used[file_no, page_no] = why
        return data

    def unproven(self, file_no: int, page_no: int, data: bytes) -> bytes | None:
        """See `Store.unproven`."""
        found = self._doubt(data, page_no * len(data)) if any(data) else None
        if found is None or not well_framed(found[0]):
            return None
        self._whys[file_no, page_no] = found[1]
        return found[0]


class DoubtfulEvents:
    """`formats.layouts.Doubtful` at level `event`."""

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel], doubt: Doubt) -> None:
        self._context = context
        self._records = DoubtfulRecords(context, compile_, doubt)
        self._pages = _Pages(context, doubt)
        self._groups = Groups(context, self._pages)
        self._events = EventAssembler(context, Records(context, compile_), compile_)

    def feed(self, batch: Batch, why: Finding | None = None) -> Iterator[Doubted]:
        """See `formats.layouts.Doubtful`."""
        return self._of(self._records.all(batch, why))

    def damage(self, start: int, end: int) -> Iterator[Doubted]:
        """Yield the events of groups that skipped pages cut off."""
        return self._of(self._records.skip(start, end))

    def finish(self) -> Iterator[Doubted]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        return self._of(self._records.rest())

    def _of(self, made: Iterator[Doubted]) -> Iterator[Doubted]:
        for batch, whys in made:
            codes, lows = batch.frames["type_code"], batch.frames["offset"]
            for i in range(batch.frames.count):
                if codes[i] == _COMMIT and (whys or batch.window[lows[i]] != _ALONE):
                    yield from self._group(batch, i, whys)

    def _group(self, batch: Batch, index: int, whys: tuple[Finding, ...]) -> Iterator[Doubted]:
        self._pages.used.clear()
        group = self._groups.at(batch, index)
        if isinstance(group, Finding):
            return
        known = {why.offset for why in whys}
        used = (self._about(group, *one) for one in self._pages.used.items())
        all_whys = (*whys, *(why for why in used if why.offset not in known))
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        if all_whys and is_sound(_COMMIT, batch.window[low:high], group.place):
            events = self._events.events_of(group)
            yield from ((one, all_whys) for one in events if isinstance(one, Batch))

    def _about(self, group: EventGroup, page: tuple[int, int], why: Finding) -> Finding:
        """Return why a page is unproven; for a page of another file, as a finding about the group."""
        if page[0] == self._context.number:
            return why
        return elsewhere(why, group.place.offset, group.size, *page)


def doubtful_events(context: FileContext, compile_: Callable[[Kernel], Kernel], doubt: Doubt) -> Doubtful:
    """Create the reader for `FileLayout.make_salvage_assembler` at level `event`."""
    return DoubtfulEvents(context, compile_, doubt)
