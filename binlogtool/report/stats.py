"""Sum up records by object, type or origin: the tallies of `stats`."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import msgspec

from binlogtool.log.plain import TimeFormatter
from binlogtool.log.records import RecordBlock
from binlogtool.render.escape import escape

RecordMeasure = tuple[int, int | None, int | None]
"""Bytes, sequence number and time of a record."""


class RecordTally(msgspec.Struct):
    """The sums of a group of records. Times in microseconds since 1970-01-01 UTC."""

    records: int = 0
    bytes: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    first_time: int | None = None
    last_time: int | None = None

    def add(self, length: int, seq: int | None, time: int | None) -> None:
        """Add one record."""
        self.records += 1
        self.bytes += length
        if seq is not None:
            self.first_seq = seq if self.first_seq is None else min(self.first_seq, seq)
            self.last_seq = seq if self.last_seq is None else max(self.last_seq, seq)
        if time is not None:
            self.first_time = time if self.first_time is None else min(self.first_time, time)
            self.last_time = time if self.last_time is None else max(self.last_time, time)

    def merge(self, other: RecordTally) -> None:
        """Add all records of another tally."""
        records, size = self.records + other.records, self.bytes + other.bytes
        self.add(0, other.first_seq, other.first_time)
        self.add(0, other.last_seq, other.last_time)
        self.records, self.bytes = records, size


TallyByGroup = dict[str | None, RecordTally]


def iter_measures(block: RecordBlock, by: str) -> Iterator[tuple[Any, RecordMeasure]]:
    """Yield, for each record, the value of a column of the envelope and the figures for a tally."""
    envelope = block.envelope
    for value, length, inner, seq, time in zip(
        getattr(envelope, by), block.size, block.inner, envelope.seq, envelope.time, strict=True
    ):
        yield value, (length if inner is None else inner.size, seq, time)


def sort_by_records(groups: TallyByGroup) -> TallyByGroup:
    """Sort groups by number of records, largest first."""
    return dict(sorted(groups.items(), key=lambda group: (-group[1].records, group[0] or "")))


def make_stats_rows(by: str, groups: TallyByGroup) -> list[list[Any]]:
    """Return the table with its heading; names are not escaped."""
    time = TimeFormatter()
    heading = [by, "records", "bytes", "first_seq", "last_seq", "first_time", "last_time"]
    rows = [
        [k, t.records, t.bytes, t.first_seq, t.last_seq, time(t.first_time), time(t.last_time)]
        for k, t in groups.items()
    ]
    return [heading, *rows]


def format_stats_rows(by: str, groups: TallyByGroup) -> list[list[str]]:
    """Return the table as escaped text cells."""
    return [
        ["-" if v is None else f"{v:,}" if isinstance(v, int) else escape(v) for v in r]
        for r in make_stats_rows(by, groups)
    ]


def encode_stats_text(by: str, groups: TallyByGroup) -> bytes:
    """Return the table as aligned text."""
    return align_columns(format_stats_rows(by, groups), right_columns=range(1, 5))


def align_columns(rows: list[list[str]], right_columns: Container[int]) -> bytes:
    """Return rows of cells as text with aligned columns.

    Args:
        right_columns: Indexes of the columns that are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([c.rjust(w) if i in right_columns else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths,
    strict=True))]
             for row in rows)  # fmt: skip
    return "".join(f"{'  '.join(row).rstrip()}\n" for row in cells).encode("utf-8", "backslashreplace")
