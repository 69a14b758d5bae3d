"""Position of a record, and findings about it."""

from __future__ import annotations

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.records import Place


class At(msgspec.Struct):
    """A record with its position, for findings."""

    place: Place
    size: int
    record: int
    data: memoryview
    chunks: int = 1
    nested: int = 0
    stop: int = 0


def record_at(batch: Batch, i: int, number: int) -> At:
    """Return record `index` of a batch.

    Args:
        file_number: of its file.
    """
    names = ("offset", "end", "place", "size", "chunks", "nested", "stop")
    low, high, place, size, chunks, nested, stop = (int(batch.frames[name][i]) for name in names)
    return At(Place(number, place), size, batch.first_record + i, batch.window[low:high], chunks, nested, stop)


def about(at: At, id_: str, diagnosis: str, text: str, severity: Severity | None = None) -> Finding:
    """Create a finding about a whole record."""
    return finding(
        id_, at.place.offset, at.size, f"{diagnosis}: {text}", record=at.record, severity=severity, diagnosis=diagnosis
    )
