"""Event groups of a server's log, selected like records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.formats.bundling import EventGroupReader, PortableEventGroup, PriorGtids
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.layouts import Batch, ColumnTable, RecordPositions
from binlogtool.limits import Limits
from binlogtool.log.filters import RecordFilter
from binlogtool.log.records import FileFinding
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange

_NO_BYTES = memoryview(b"")


class SelectedEventGroup(NamedTuple):
    """A part of a file; a finding stands for an incomplete transaction. selected: the selection includes it."""

    file: str
    part: PortableEventGroup | PriorGtids | Finding
    selected: bool = True


def read_event_groups(
    path: str, scan: Scan, record_filter: RecordFilter, limits: Limits
) -> Iterator[SelectedEventGroup | FileFinding]:
    """Yield the event groups of one file, up to the last selected one.

    Raises:
        UsageError: files of this format, or of this kind, have none.
    """
    if scan.format.reading.event_groups is None:
        raise UsageError(f"{path}: the records of {scan.format.name} are no events of a server's binary log")
    group_reader = scan.format.reading.event_groups(scan.layout, limits)
    for segment in scan.segments():
        parts: Iterator[PortableEventGroup | PriorGtids | Finding]
        if isinstance(segment, DamagedRange):
            yield from (FileFinding(path, found) for found in segment.findings)
            parts = _read_damaged(group_reader, segment)
        else:
            parts = group_reader.read_groups(segment)
        yield from _mark_selected(path, parts, record_filter)
        if record_filter.is_done:
            return
    yield from _mark_selected(path, group_reader.finish(), record_filter)


def _read_damaged(
    group_reader: EventGroupReader, segment: DamagedRange
) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
    if segment.tail == "damaged":
        yield from group_reader.skip_damage(segment.start, segment.end)


def _mark_selected(
    path: str, parts: Iterator[PortableEventGroup | PriorGtids | Finding], record_filter: RecordFilter
) -> Iterator[SelectedEventGroup]:
    for part in parts:
        yield SelectedEventGroup(
            path, part, not isinstance(part, PortableEventGroup) or _is_selected(record_filter, part)
        )


def _is_selected(record_filter: RecordFilter, group: PortableEventGroup) -> bool:
    """Apply the selection to an event group as if it were a record; a FORMAT_DESCRIPTION is always selected."""
    if group.type == "FORMAT_DESCRIPTION":
        return True
    envelope = EnvelopeColumns([group.type], [group.seq], [group.time], [None], [group.origin], [group.txn])
    positions = RecordPositions([group.offset], [group.size])
    batch = Batch(0, _NO_BYTES, ColumnTable(1, {}), _NO_BYTES, None, (), (), group.record, 0, positions=positions)
    return any(True for _ in record_filter.select_runs(batch, 0, 1, envelope))
