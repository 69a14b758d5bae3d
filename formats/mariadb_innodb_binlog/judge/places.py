"""Position of a record, and findings about it."""

from __future__ import annotations

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbPosition


class LocatedRecord(msgspec.Struct):
    """A record with its position, for findings."""

    position: IbbPosition
    size: int
    record: int
    data: memoryview
    chunks: int = 1
    nested: int = 0
    stop: int = 0


def locate_record(batch: Batch, index: int, file_number: int) -> LocatedRecord:
    """Return record `index` of a batch.

    Args:
        file_number: of its file.
    """
    names = ("offset", "end", "place", "size", "chunks", "nested", "stop")
    low, high, offset, size, chunks, nested, stop = (int(batch.frames[name][index]) for name in names)
    return LocatedRecord(
        IbbPosition(file_number, offset), size, batch.first_record + index, batch.window[low:high], chunks, nested, stop
    )


def report_record(
    record: LocatedRecord, finding_id: str, diagnosis: str, text: str, severity: Severity | None = None
) -> Finding:
    """Create a finding about a whole record."""
    return make_finding(
        finding_id,
        record.position.offset,
        record.size,
        f"{diagnosis}: {text}",
        record=record.record,
        severity=severity,
        diagnosis=diagnosis,
    )
