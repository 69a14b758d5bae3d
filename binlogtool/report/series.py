"""Count records and bytes over time, by object, type or origin (`stats`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.log.plain import TimeFormatter
from binlogtool.log.records import RecordBlock
from binlogtool.render.escape import escape
from binlogtool.report.dump import encode_csv
from binlogtool.report.json import encode_document
from binlogtool.report.stats import (
    RecordTally,
    TallyByGroup,
    align_columns,
    encode_stats_text,
    iter_measures,
    make_stats_rows,
    sort_by_records,
)
from binlogtool.report.words import format_count

BUCKET_LENGTHS = {"1m": 60_000_000, "1h": 3_600_000_000, "1d": 86_400_000_000}
"""Lengths of the steps of time, in microseconds; they begin at full minutes, hours and days of UTC."""

BY = ("object", "type", "origin")
OTHERS = "(others)"
_MAX_AUTO_STEPS = 150
"""`auto` takes the shortest step that needs no more of them."""
_MAX_CELLS = 500_000
_MAX_GROUPS = 10_000

SeriesCells = dict[tuple[int | None, str | None], RecordTally]


class SeriesCounter(msgspec.Struct):
    """Counts records by step of time and group.

    Attributes:
        by: A column of the envelope.
        bucket: A key of BUCKET_LENGTHS, or auto.
    """

    by: str
    bucket: str = "auto"
    _cells: SeriesCells = msgspec.field(default_factory=dict)
    _names: set[str | None] = msgspec.field(default_factory=set)
    _step: str = ""

    def __post_init__(self) -> None:
        self._step = "1m" if self.bucket == "auto" else self.bucket

    def encode_block(self, block: RecordBlock) -> None:
        """Count the records of a block.

        Raises:
            LimitError: there are too many steps of the wanted length.
        """
        length = BUCKET_LENGTHS[self._step]
        for value, measure in iter_measures(block, self.by):
            time = measure[2]
            cell = (None if time is None else time - time % length, self._limit_group_name(value))
            tally = self._cells.get(cell)
            if tally is None:
                tally = self._cells[cell] = RecordTally()
            tally.add(*measure)
        while len(self._cells) > _MAX_CELLS:
            self._use_longer_bucket()

    def _limit_group_name(self, value: Any) -> str | None:
        name = None if value is None else str(value)
        if name not in self._names:
            if len(self._names) >= _MAX_GROUPS:
                return OTHERS
            self._names.add(name)
        return name

    def _use_longer_bucket(self) -> None:
        """Merge the cells into the next longer bucket."""
        longer = list(BUCKET_LENGTHS)[list(BUCKET_LENGTHS).index(self._step) + 1 :]
        if self.bucket != "auto" or not longer:
            raise LimitError(f"there are more than {_MAX_CELLS:,} figures; choose a longer --bucket, or fewer records")
        self._step, cells = longer[0], dict[tuple[int | None, str | None], RecordTally]()
        for (start, name), tally in self._cells.items():
            cell = (None if start is None else start - start % BUCKET_LENGTHS[self._step], name)
            cells.setdefault(cell, RecordTally()).merge(tally)
        self._cells = cells

    def _count_steps(self) -> int:
        """Return the number of steps from the first to the last; times on 1970-01-01 count as no time."""
        starts = [start for start, _ in self._cells if start is not None and start >= BUCKET_LENGTHS["1d"]]
        return (max(starts) - min(starts)) // BUCKET_LENGTHS[self._step] + 1 if starts else 0

    def finish(self) -> LogStats:
        """Return everything that was counted."""
        while self.bucket == "auto" and self._step != "1d" and self._count_steps() > _MAX_AUTO_STEPS:
            self._use_longer_bucket()
        groups: TallyByGroup = {}
        for (_, name), tally in self._cells.items():
            groups.setdefault(name, RecordTally()).merge(tally)
        order = sorted(self._cells, key=lambda place: (place[0] is None, place[0] or 0, place[1] or ""))
        return LogStats(self.by, self._step, sort_by_records(groups), {place: self._cells[place] for place in order})


class LogStats(msgspec.Struct, frozen=True):
    """Records and bytes over time.

    Attributes:
        groups: Largest first.
        cells: By (start of the step in microseconds, None without time; group).
    """

    by: str
    bucket: str
    groups: TallyByGroup
    cells: SeriesCells

    def sum_steps(self) -> dict[int | None, RecordTally]:
        """Return all groups together, step by step."""
        totals: dict[int | None, RecordTally] = {}
        for (start, _), tally in self.cells.items():
            totals.setdefault(start, RecordTally()).merge(tally)
        return totals


def format_step(start: int | None) -> str | None:
    """Format the start of a step, to the minute."""
    text = TimeFormatter()(start)
    return None if text is None else f"{text[:16]}Z"


def encode_series_text(series: LogStats) -> bytes:
    """Return the groups, then the steps with the group that has most records in each, as text."""
    largest: dict[int | None, str | None] = {}
    for start, name in sorted(series.cells, key=lambda place: -series.cells[place].records):
        largest.setdefault(start, name)
    rows = [[f"time ({series.bucket})", "records", "bytes", f"most records ({series.by})"]]
    for start, tally in series.sum_steps().items():
        name = largest[start]
        rows.append(
            [format_step(start) or "-", format_count(tally.records), format_count(tally.bytes), escape(name or "-")]
        )
    return encode_stats_text(series.by, series.groups) + b"\n" + align_columns(rows, right_columns=(1, 2))


def encode_series_json(series: LogStats) -> bytes:
    """Return one JSON document (binlogtool/series/1)."""
    heading, *rows = make_stats_rows(series.by, series.groups)
    groups = [dict(zip(["name", *heading[1:]], row, strict=True)) for row in rows]
    cells = [
        {"time": format_step(start), "name": name, "records": tally.records, "bytes": tally.bytes}
        for (start, name), tally in series.cells.items()
    ]
    return encode_document(
        {
            "schema": "binlogtool/series/1",
            "by": series.by,
            "bucket": series.bucket,
            "groups": groups,
            "over_time": cells,
        }
    )


def encode_series_csv(series: LogStats) -> bytes:
    """Return CSV with one line for each step and group."""
    return encode_csv([["time", series.by, "records", "bytes"], *_iter_csv_rows(series)])


def _iter_csv_rows(series: LogStats) -> Iterator[list[Any]]:
    for (start, name), tally in series.cells.items():
        yield [format_step(start), None if name is None else escape(name), tally.records, tally.bytes]
