"""Statistics of records: totals, series over time with their chart as SVG, and the largest and longest transactions.

The same figures give the same bytes. Text from the log is escaped twice: for the screen, then for XML.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape as xml_escaped

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api.encode_json import TimeFormatter, encode_document
from binlogtool.report.dump_output_formats import describe_body, encode_csv, load_describer
from binlogtool.report.format_numbers_and_names import format_count, format_duration, format_quantity, format_size
from binlogtool.terminal.escape_and_fold_text import escape

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import RecordBlock
    from binlogtool.format_api.format import RecordDescriber, RowChange

# --- Totals by object, type or origin ---

RecordMeasure = tuple[int, int | None, int | None]
"""(bytes, sequence number, time in microseconds) of a record."""


class RowCounts(msgspec.Struct):
    """Numbers of changed rows. A change without a before image counts as an insert (REPLACE)."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def rows(self) -> int:
        """Number of changed rows."""
        return self.inserted + self.updated + self.deleted

    def add_rows(self, inserted: int, updated: int, deleted: int) -> None:
        """Add numbers of changed rows."""
        self.inserted += inserted
        self.updated += updated
        self.deleted += deleted

    def add_change(self, row: RowChange) -> None:
        """Add one row change."""
        count = row.get("count", 1)
        after, before, key = row.get("after"), row.get("before"), row.get("key")
        if after is not None and before is None and key is None:
            self.inserted += count
        elif after is None and row.get("operations") is None:
            self.deleted += count
        else:
            self.updated += count


class RecordTally(RowCounts):
    """Totals of a group of records. Times are in microseconds since 1970-01-01 UTC."""

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
        self.add_rows(other.inserted, other.updated, other.deleted)


RowCountsByTable = Mapping[str | None, RowCounts]
TallyByGroup = dict[str | None, RecordTally]


def iter_groups_and_measures(block: RecordBlock, group_column: str) -> Iterator[tuple[Any, RecordMeasure]]:
    """Yield, for each record, its group (the envelope column `group_column`) and the figures for a tally."""
    envelope = block.envelope
    for value, length, inner, seq, time in zip(
        getattr(envelope, group_column), block.size, block.inner, envelope.seq, envelope.time, strict=True
    ):
        yield value, (length if inner is None else inner.size, seq, time)


def sort_by_records(groups: TallyByGroup) -> TallyByGroup:
    """Sort groups by number of records, largest first."""
    return dict(sorted(groups.items(), key=lambda group: (-group[1].records, group[0] or "")))


_ROW_COLUMNS = ("inserted", "updated", "deleted")


def make_stats_rows(by: str, groups: TallyByGroup, *, has_rows: bool) -> list[list[Any]]:
    """Return the rows of the table, heading first; names are not escaped. has_rows: changed rows were counted."""
    time = TimeFormatter()
    counts = _ROW_COLUMNS if has_rows else ()
    heading = [by, "records", "bytes", *counts, "first_seq", "last_seq", "first_time", "last_time"]
    rows = [
        [
            name, t.records, t.bytes, *(getattr(t, one) for one in counts), t.first_seq, t.last_seq,
            time(t.first_time), time(t.last_time),
        ]
        for name, t in groups.items()
    ]  # fmt: skip
    return [heading, *rows]


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


# --- Counts over time ---

BUCKET_LENGTHS = {"1m": 60_000_000, "1h": 3_600_000_000, "1d": 86_400_000_000}
"""Bucket name -> length in microseconds; steps begin at full minutes, hours and days of UTC."""

BY = ("object", "type", "origin")
OTHERS = "(others)"
_MAX_AUTO_STEPS = 150
"""Maximum number of steps for `auto`, which takes the shortest bucket within it."""
_MAX_CELLS = 500_000
_MAX_GROUPS = 10_000

SeriesCells = dict[tuple[int | None, str | None], RecordTally]


class SeriesCounter(msgspec.Struct):
    """Counter of records by time step and group.

    Attributes:
        by: A column of the envelope.
        bucket: A key of BUCKET_LENGTHS, or auto.
    """

    by: str
    bucket: str = "auto"
    _cells: SeriesCells = msgspec.field(default_factory=dict)
    _names: set[str | None] = msgspec.field(default_factory=set)
    _step: str = ""
    _has_rows: bool = False

    def __post_init__(self) -> None:
        self._step = "1m" if self.bucket == "auto" else self.bucket

    def add_block(self, block: RecordBlock, row_counts: Iterable[RowCountsByTable] | None = None) -> None:
        """Count the records of a block. row_counts: the changed rows of each record; None = they are not counted.

        Raises:
            LimitError: there are too many steps of the requested length.
        """
        length = BUCKET_LENGTHS[self._step]
        self._has_rows = self._has_rows or row_counts is not None
        for (value, measure), rows in zip(
            iter_groups_and_measures(block, self.by), repeat({}) if row_counts is None else row_counts, strict=False
        ):
            time = measure[2]
            start = None if time is None else time - time % length
            self._get_tally(start, value).add(*measure)
            for table, counts in rows.items():
                tally = self._get_tally(start, table if self.by == "object" else value)
                tally.add_rows(counts.inserted, counts.updated, counts.deleted)
        while len(self._cells) > _MAX_CELLS:
            self._use_longer_bucket()

    def _get_tally(self, start: int | None, value: Any) -> RecordTally:
        cell = (start, self._limit_group_name(value))
        tally = self._cells.get(cell)
        if tally is None:
            tally = self._cells[cell] = RecordTally()
        return tally

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
        """Return the statistics of all counted records."""
        while self.bucket == "auto" and self._step != "1d" and self._count_steps() > _MAX_AUTO_STEPS:
            self._use_longer_bucket()
        groups: TallyByGroup = {}
        for (_, name), tally in self._cells.items():
            groups.setdefault(name, RecordTally()).merge(tally)
        order = sorted(self._cells, key=lambda place: (place[0] is None, place[0] or 0, place[1] or ""))
        cells = {place: self._cells[place] for place in order}
        return LogStats(self.by, self._step, sort_by_records(groups), cells, self._has_rows)


class LogStats(msgspec.Struct, frozen=True):
    """Records and bytes over time.

    Attributes:
        groups: Largest first.
        cells: (start of the step in microseconds, or None without a time; group) -> tally.
        has_rows: changed rows were counted.
    """

    by: str
    bucket: str
    groups: TallyByGroup
    cells: SeriesCells
    has_rows: bool = False

    def limit_groups(self, top: int | None) -> LogStats:
        """Return the same figures with the `top` largest groups; the others are merged into one last group."""
        if top is None or len(self.groups) <= top:
            return self
        shown, others = dict(list(self.groups.items())[:top]), RecordTally()
        for name in list(self.groups)[top:]:
            others.merge(self.groups[name])
        cells: SeriesCells = {}
        for (start, name), tally in self.cells.items():
            cells.setdefault((start, name if name in shown else OTHERS), RecordTally()).merge(tally)
        return LogStats(self.by, self.bucket, {**shown, OTHERS: others}, cells, self.has_rows)

    def sum_steps(self) -> dict[int | None, RecordTally]:
        """Return the totals of all groups for each step."""
        totals: dict[int | None, RecordTally] = {}
        for (start, _), tally in self.cells.items():
            totals.setdefault(start, RecordTally()).merge(tally)
        return totals


def format_step(start: int | None) -> str | None:
    """Format the start of a step, to the minute."""
    text = TimeFormatter()(start)
    return None if text is None else f"{text[:16]}Z"


def encode_series_text(series: LogStats) -> bytes:
    """Return as text: the groups, then the steps, each with its named group of most records, or of most rows."""
    unit = "rows" if series.has_rows else "records"
    largest: dict[int | None, str] = {}
    for (start, name), tally in sorted(series.cells.items(), key=lambda cell: -getattr(cell[1], unit)):
        if name is not None and getattr(tally, unit):
            largest.setdefault(start, name)
    counts = ["rows"] if series.has_rows else []
    table = [[f"time ({series.bucket})", "records", "bytes", *counts, f"most {unit} ({series.by})"]]
    for start, tally in series.sum_steps().items():
        figures = [tally.records, tally.bytes, *([tally.rows] if series.has_rows else [])]
        table.append([format_step(start) or "-", *map(format_count, figures), escape(largest.get(start, "-"))])
    # The table as aligned, escaped text
    has_rows = series.has_rows
    rows = [
        ["-" if v is None else f"{v:,}" if isinstance(v, int) else escape(v) for v in r]
        for r in make_stats_rows(series.by, series.groups, has_rows=has_rows)
    ]
    groups = align_columns(rows, right_columns=range(1, 8 if has_rows else 5))
    return groups + b"\n" + align_columns(table, right_columns=range(1, 4 if series.has_rows else 3))


def encode_series_json(series: LogStats) -> bytes:
    """Return one JSON document (binlogtool/series/1)."""
    heading, *rows = make_stats_rows(series.by, series.groups, has_rows=series.has_rows)
    groups = [dict(zip(["name", *heading[1:]], row, strict=True)) for row in rows]
    cells = [
        {"time": format_step(start), "name": name, "records": tally.records, "bytes": tally.bytes}
        | ({one: getattr(tally, one) for one in _ROW_COLUMNS} if series.has_rows else {})
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
    counts = _ROW_COLUMNS if series.has_rows else ()
    return encode_csv([["time", series.by, "records", "bytes", *counts], *_iter_csv_rows(series, counts)])


def _iter_csv_rows(series: LogStats, counts: Sequence[str]) -> Iterator[list[Any]]:
    for (start, name), tally in series.cells.items():
        figures = [tally.records, tally.bytes, *(getattr(tally, one) for one in counts)]
        yield [format_step(start), None if name is None else escape(name), *figures]


# --- Chart of records and bytes over time as SVG ---

WIDTH, HEIGHT = 960, 520
_LEFT, _RIGHT, _TOP, _PANEL, _GAP = 84, 220, 44, 180, 44
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#444444")
_OTHERS_COLOUR = "#bbbbbb"
_MAX_NAME_LENGTH = 26
_MAX_STEPS = 1000
_MAX_TIME_LABELS = 5

Bar = dict[str | None, int]


class Panel(msgspec.Struct, frozen=True):
    """One diagram of a chart.

    Attributes:
        bars: For each step, the value of each group.
        format_value: Formats a value for the scale.
        unit_size: Base of the units (1024 for bytes, 1 = none), for round scale ends.
    """

    title: str
    top: int
    bars: Sequence[Bar]
    format_value: Callable[[int], str]
    unit_size: int

    @property
    def scale_maximum(self) -> int:
        """The value at the upper end of the scale."""
        value, unit = max((sum(bar.values()) for bar in self.bars), default=0), 1
        while self.unit_size > 1 and unit * self.unit_size <= value:
            unit *= self.unit_size
        return round_up_scale(-(-value // unit)) * unit


def render_chart(series: LogStats, title: str) -> bytes:
    """Render the chart as one SVG document."""
    starts = list(series.sum_steps())
    times = [start for start in starts if start is not None]
    length = BUCKET_LENGTHS[series.bucket]
    if times and (times[-1] - times[0]) // length < _MAX_STEPS:
        times = list(range(times[0], times[-1] + length, length))
    steps = [*times, *([None] if None in starts else [])]
    shown = list(series.groups)[: len(_COLOURS)]
    colours = dict(zip(shown, _COLOURS, strict=False))
    has_others = len(series.groups) > len(shown)
    panels = (
        Panel(
            "records",
            _TOP + 20,
            _sum_bars_by_step(series, steps, colours, lambda tally: tally.records),
            format_count,
            1,
        ),
        Panel(
            "bytes",
            _TOP + 20 + _PANEL + _GAP,
            _sum_bars_by_step(series, steps, colours, lambda tally: tally.bytes),
            format_size,
            1024,
        ),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _render_text(_LEFT, 24, f"{_shorten(title, 70)}: by {series.by}, steps of {series.bucket}", font_size=16),
        *(line for panel in panels for line in _render_panel(panel, colours)),
        *_render_time_labels(steps, panels[1].top + _PANEL + 18),
        *_render_legend(series, colours, has_others),
        "</svg>",
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def round_up_scale(value: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is not less than the value."""
    unit = 1
    while True:
        for factor in (1, 2, 5):
            if factor * unit >= value:
                return factor * unit
        unit *= 10


def _sum_bars_by_step(
    series: LogStats, steps: Sequence[int | None], colours: dict[str | None, str], measure: Callable[[RecordTally], int]
) -> list[Bar]:
    bars: dict[int | None, Bar] = {start: {} for start in steps}
    for (start, name), tally in series.cells.items():
        shown = name if name in colours else OTHERS
        bars[start][shown] = bars[start].get(shown, 0) + measure(tally)
    return list(bars.values())


def _render_panel(panel: Panel, colours: dict[str | None, str]) -> Iterator[str]:
    """Render the scale, then the bars; coordinates are rounded so that the parts of a bar have no gaps between them."""
    right, bottom = WIDTH - _RIGHT, panel.top + _PANEL
    yield _render_text(_LEFT, panel.top - 8, panel.title, weight="bold")
    for part in (0, 1, 2):
        y = bottom - _PANEL * part // 2
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#dddddd"/>'
        if part != 1 or panel.scale_maximum % 2 == 0:
            yield _render_text(_LEFT - 6, y + 4, panel.format_value(panel.scale_maximum * part // 2), anchor="end")
    width = (right - _LEFT) / max(len(panel.bars), 1)
    for i, bar in enumerate(panel.bars):
        x, below = _LEFT + i * width, 0
        for name in [*colours, OTHERS]:
            value = bar.get(name, 0)
            if not value:
                continue
            y0, y1 = (bottom - round(_PANEL * amount / panel.scale_maximum, 2) for amount in (below, below + value))
            below += value
            yield (
                f'<rect x="{x:.2f}" y="{y1:.2f}" width="{max(width * 0.9, 0.5):.2f}" height="{y0 - y1:.2f}"'
                f' fill="{colours.get(name, _OTHERS_COLOUR)}"/>'
            )


def _render_time_labels(steps: Sequence[int | None], y: int) -> Iterator[str]:
    """Render the start times of some of the steps."""
    width = (WIDTH - _RIGHT - _LEFT) / max(len(steps), 1)
    every = max(1, -(-len(steps) // _MAX_TIME_LABELS))
    for i in range(0, len(steps), every):
        if steps[i] is not None or i == 0 or len(steps) <= _MAX_TIME_LABELS:
            text = (format_step(steps[i]) or "no time").replace("T", " ")
            yield _render_text(round(_LEFT + i * width), y, text, font_size=11)


def _render_legend(series: LogStats, colours: dict[str | None, str], has_others: bool) -> Iterator[str]:
    x, y = WIDTH - _RIGHT + 24, _TOP + 20
    entries = [(name, colour, series.groups[name].records) for name, colour in colours.items()]
    if has_others:
        others = sum(tally.records for name, tally in series.groups.items() if name not in colours)
        entries.append((f"({len(series.groups) - len(colours)} others)", _OTHERS_COLOUR, others))
    for name, colour, records in entries:
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>'
        yield _render_text(x + 18, y + 10, _shorten("-" if name is None else name, _MAX_NAME_LENGTH))
        yield _render_text(x + 18, y + 24, f"{format_count(records)} records", font_size=10)
        y += 36


def _shorten(text: str, max_length: int) -> str:
    shown = escape(text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"


def _render_text(
    x: int, y: int, text: str, *, anchor: str = "start", font_size: int = 12, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{font_size}" font-weight="{weight}">'
        f"{xml_escaped(text)}</text>"
    )


# --- Rows that records change, and the largest and longest transactions of a log ---


class RowCounter:
    """Counter of the rows that records change, by table."""

    def __init__(self) -> None:
        self._format = ""
        self._describe: RecordDescriber | None = None

    def count_rows_by_table(self, block: RecordBlock) -> Iterator[Mapping[str | None, RowCounts]]:
        """Yield table -> counts of changed rows for each record; pass all blocks of a log, in order."""
        if block.format != self._format or self._describe is None:
            self._format, self._describe = block.format, load_describer(block.format)
        for type_name, name, body in zip(block.envelope.type, block.envelope.object, block.bodies, strict=True):
            counts: dict[str | None, RowCounts] = {}
            for changes in describe_body(self._describe, type_name, body, False).changes:
                tally = counts.setdefault(changes.table or name, RowCounts())
                for row in changes.rows:
                    tally.add_change(row)
            yield counts


# --- Largest and longest transactions ---

_SECOND = 1_000_000
_MAX_TABLES = 100
"""Maximum number of tables kept for one transaction."""


class TransactionTally(msgspec.Struct):
    """Totals of one transaction. Times are in microseconds since 1970-01-01 UTC."""

    file: str
    offset: int
    name: str
    records: int = 0
    bytes: int = 0
    rows: int = 0
    first_time: int | None = None
    last_time: int | None = None
    tables: dict[str, int] = {}

    @property
    def duration(self) -> int:
        """Microseconds from its first to its last record."""
        return 0 if self.first_time is None or self.last_time is None else self.last_time - self.first_time


class TransactionCounter:
    """Counter that finds the transactions with the most bytes, the most rows and the longest duration.

    A transaction is a run of records with the same transaction id. Records without an id are not counted.

    Args:
        top: Number of transactions kept for each ranking.
    """

    ORDERS = ("bytes", "rows", "duration")

    def __init__(self, top: int) -> None:
        self._top = top
        self._rows = RowCounter()
        self._open: TransactionTally | None = None
        self._heaps: dict[str, list[tuple[int, int, TransactionTally]]] = {order: [] for order in self.ORDERS}
        self.count = 0
        self._has_unpacked = self._has_fractions = False

    def add_block(self, block: RecordBlock) -> None:
        """Count the records of a block, whose bodies are decoded."""
        envelope = block.envelope
        for i, rows in enumerate(self._rows.count_rows_by_table(block)):
            txn = envelope.txn[i]
            if txn is None:
                self._rank_open_transaction()
                continue
            if self._open is None or self._open.name != str(txn):
                self._rank_open_transaction()
                self._open = TransactionTally(block.file, block.offset[i], str(txn), tables={})
            tally, time, inner = self._open, envelope.time[i], block.inner[i]
            tally.records += 1
            tally.bytes += block.size[i] if inner is None else inner.size
            self._has_unpacked = self._has_unpacked or inner is not None
            if time is not None:
                self._has_fractions = self._has_fractions or time % _SECOND != 0
                tally.first_time = time if tally.first_time is None else min(tally.first_time, time)
                tally.last_time = time if tally.last_time is None else max(tally.last_time, time)
            for table, counts in rows.items():
                tally.rows += counts.rows
                if table is not None and (table in tally.tables or len(tally.tables) < _MAX_TABLES):
                    tally.tables[table] = tally.tables.get(table, 0) + counts.rows

    def _rank_open_transaction(self) -> None:
        """Enter the open transaction into the rankings and count it."""
        if self._open is None:
            return
        for order, heap in self._heaps.items():
            item = (getattr(self._open, order), -self.count, self._open)
            if len(heap) < self._top:
                heapq.heappush(heap, item)
            elif item[:2] > heap[0][:2]:
                heapq.heapreplace(heap, item)
        self.count += 1
        self._open = None

    def finish(self) -> TransactionStats:
        """Return the statistics of all counted transactions."""
        self._rank_open_transaction()
        return TransactionStats(
            self.count,
            {
                order: [one for *_, one in sorted(heap, key=lambda item: (-item[0], -item[1])) if getattr(one, order)]
                for order, heap in self._heaps.items()
            },
            self._has_unpacked,
            None if self._has_fractions else 1,
        )


class TransactionStats(msgspec.Struct, frozen=True):
    """Statistics of the transactions of a log.

    Attributes:
        count: Number of transactions.
        largest: Ranking (bytes, rows, duration) -> its first transactions, without those that have none of it.
        has_unpacked: Bytes of records that the log holds compressed are counted unpacked, besides their container.
        time_step: Seconds to which all times are rounded; None = they have fractions of a second.
    """

    count: int
    largest: Mapping[str, list[TransactionTally]]
    has_unpacked: bool = False
    time_step: int | None = None


_TITLES = {"bytes": "most bytes", "rows": "most rows", "duration": "longest"}


def encode_transactions_text(stats: TransactionStats) -> bytes:
    """Return a text table for each ranking in which any transaction has a place."""
    parts = [f"{format_quantity(stats.count, 'transaction')}\n".encode()]
    for order, tallies in stats.largest.items():
        if tallies:
            size = "bytes (unpacked)" if stats.has_unpacked else "bytes"
            heading = [_TITLES[order], size, "rows", "records", "duration", "begins", "position", "tables (rows)"]
            rows = [heading, *map(_make_transaction_row, tallies)]
            parts.append(align_columns(rows, right_columns=(1, 2, 3, 4)))
        elif order == "duration" and stats.count:
            has_times = any(one.first_time is not None for one in stats.largest["bytes"])
            text = "the records of each transaction have the same time" if has_times else "no record has a time"
            if stats.time_step is not None and has_times:
                text = f"all durations are below the log's resolution of {stats.time_step} s"
            parts.append(f"{_TITLES[order]}: {text}\n".encode())
    return b"\n".join(parts)


def _make_transaction_row(tally: TransactionTally) -> list[str]:
    begin = TimeFormatter()(tally.first_time)
    tables = sorted(tally.tables.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{escape(name)} ({format_count(rows)})" for name, rows in tables[:3])
    more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
    return [
        escape(tally.name), format_count(tally.bytes), format_count(tally.rows), format_count(tally.records),
        format_duration(tally.duration / 1_000_000), "-" if begin is None else f"{begin[:19]}Z",
        f"{escape(tally.file.rpartition('/')[2])}:{tally.offset}", shown + more,
    ]  # fmt: skip


def encode_transactions_json(stats: TransactionStats) -> bytes:
    """Return one JSON document (binlogtool/transactions/1)."""
    lists = {order: [_to_json(one) for one in tallies] for order, tallies in stats.largest.items()}
    return encode_document(
        {
            "schema": "binlogtool/transactions/1",
            "transactions": stats.count,
            "most": lists,
            "unpacked": stats.has_unpacked,
        }
    )


def _to_json(tally: TransactionTally) -> dict[str, Any]:
    time = TimeFormatter()
    return {
        "transaction": tally.name, "file": tally.file, "offset": tally.offset, "records": tally.records,
        "bytes": tally.bytes, "rows": tally.rows, "seconds": tally.duration / 1_000_000,
        "first_time": time(tally.first_time), "last_time": time(tally.last_time), "tables": tally.tables,
    }  # fmt: skip


def encode_transactions_csv(stats: TransactionStats) -> bytes:
    """Return CSV with one line for each ranking and transaction."""
    heading = [
        "most",
        "transaction",
        "file",
        "offset",
        "records",
        "bytes",
        "rows",
        "seconds",
        "first_time",
        "last_time",
    ]
    rows = [
        [order, *(escape(v) if isinstance(v, str) else v for name, v in _to_json(one).items() if name != "tables")]
        for order, tallies in stats.largest.items()
        for one in tallies
    ]
    return encode_csv([heading, *rows])
