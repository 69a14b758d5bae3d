"""Count records and bytes over time, by object, type or origin (`stats`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.log.plain import TimeText
from binlogtool.log.records import Block
from binlogtool.render.escape import escape
from binlogtool.report.dump import csv_bytes
from binlogtool.report.json import document
from binlogtool.report.stats import Groups, Tally, aligned, biggest_first, measured, stats_rows, stats_text
from binlogtool.report.words import count

BUCKETS = {"1m": 60_000_000, "1h": 3_600_000_000, "1d": 86_400_000_000}
"""Lengths of the steps of time, in microseconds; they begin at full minutes, hours and days of UTC."""

BY = ("object", "type", "origin")
OTHERS = "(others)"
_FEW = 150
"""`auto` takes the shortest step that needs no more of them."""
_MOST_CELLS = 500_000
_MOST_GROUPS = 10_000

Cells = dict[tuple[int | None, str | None], Tally]


class Series(msgspec.Struct):
    """Counts records by step of time and group.

    Attributes:
        by: A column of the envelope.
        bucket: A key of BUCKET_LENGTHS, or auto.
    """

    by: str
    bucket: str = "auto"
    _cells: Cells = msgspec.field(default_factory=dict)
    _names: set[str | None] = msgspec.field(default_factory=set)
    _step: str = ""

    def __post_init__(self) -> None:
        self._step = "1m" if self.bucket == "auto" else self.bucket

    def block(self, block: Block) -> None:
        """Count the records of a block.

        Raises:
            LimitError: there are too many steps of the wanted length.
        """
        length = BUCKETS[self._step]
        for value, measure in measured(block, self.by):
            time = measure[2]
            place = (None if time is None else time - time % length, self._name(value))
            tally = self._cells.get(place)
            if tally is None:
                tally = self._cells[place] = Tally()
            tally.add(*measure)
        while len(self._cells) > _MOST_CELLS:
            self._lengthen()

    def _name(self, value: Any) -> str | None:
        name = None if value is None else str(value)
        if name not in self._names:
            if len(self._names) >= _MOST_GROUPS:
                return OTHERS
            self._names.add(name)
        return name

    def _lengthen(self) -> None:
        """Merge the cells into the next longer bucket."""
        longer = list(BUCKETS)[list(BUCKETS).index(self._step) + 1 :]
        if self.bucket != "auto" or not longer:
            raise LimitError(f"there are more than {_MOST_CELLS:,} figures; choose a longer --bucket, or fewer records")
        self._step, cells = longer[0], dict[tuple[int | None, str | None], Tally]()
        for (start, name), tally in self._cells.items():
            place = (None if start is None else start - start % BUCKETS[self._step], name)
            cells.setdefault(place, Tally()).join(tally)
        self._cells = cells

    def _span(self) -> int:
        """Return the number of steps from the first to the last; times on 1970-01-01 count as no time."""
        starts = [start for start, _ in self._cells if start is not None and start >= BUCKETS["1d"]]
        return (max(starts) - min(starts)) // BUCKETS[self._step] + 1 if starts else 0

    def end(self) -> Counted:
        """Return everything that was counted."""
        while self.bucket == "auto" and self._step != "1d" and self._span() > _FEW:
            self._lengthen()
        groups: Groups = {}
        for (_, name), tally in self._cells.items():
            groups.setdefault(name, Tally()).join(tally)
        order = sorted(self._cells, key=lambda place: (place[0] is None, place[0] or 0, place[1] or ""))
        return Counted(self.by, self._step, biggest_first(groups), {place: self._cells[place] for place in order})


class Counted(msgspec.Struct, frozen=True):
    """Records and bytes over time.

    Attributes:
        groups: Largest first.
        cells: By (start of the step in microseconds, None without time; group).
    """

    by: str
    bucket: str
    groups: Groups
    cells: Cells

    def steps(self) -> dict[int | None, Tally]:
        """Return all groups together, step by step."""
        found: dict[int | None, Tally] = {}
        for (start, _), tally in self.cells.items():
            found.setdefault(start, Tally()).join(tally)
        return found


def step_text(start: int | None) -> str | None:
    """Format the start of a step, to the minute."""
    text = TimeText()(start)
    return None if text is None else f"{text[:16]}Z"


def series_text(found: Counted) -> bytes:
    """Return the groups, then the steps with the group that has most records in each, as text."""
    first: dict[int | None, str | None] = {}
    for start, name in sorted(found.cells, key=lambda place: -found.cells[place].records):
        first.setdefault(start, name)
    rows = [[f"time ({found.bucket})", "records", "bytes", f"most records ({found.by})"]]
    for start, tally in found.steps().items():
        name = first[start]
        rows.append([step_text(start) or "-", count(tally.records), count(tally.bytes), escape(name or "-")])
    return stats_text(found.by, found.groups) + b"\n" + aligned(rows, numbers=(1, 2))


def series_json(found: Counted) -> bytes:
    """Return one JSON document (binlogtool/series/1)."""
    head, *rows = stats_rows(found.by, found.groups)
    groups = [dict(zip(["name", *head[1:]], row, strict=True)) for row in rows]
    cells = [
        {"time": step_text(start), "name": name, "records": tally.records, "bytes": tally.bytes}
        for (start, name), tally in found.cells.items()
    ]
    return document(
        {"schema": "binlogtool/series/1", "by": found.by, "bucket": found.bucket, "groups": groups, "over_time": cells}
    )


def series_csv(found: Counted) -> bytes:
    """Return CSV with one line for each step and group."""
    return csv_bytes([["time", found.by, "records", "bytes"], *_lines(found)])


def _lines(found: Counted) -> Iterator[list[Any]]:
    for (start, name), tally in found.cells.items():
        yield [step_text(start), None if name is None else escape(name), tally.records, tally.bytes]
