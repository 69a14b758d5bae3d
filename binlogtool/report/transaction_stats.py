"""Count the rows that records change, and find the largest and longest transactions of a log."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.core.json_text import encode_document
from binlogtool.core.record_selection import RecordBlock
from binlogtool.format_api.format import RecordDescriber, RowChange
from binlogtool.format_api.json_values import TimeFormatter
from binlogtool.report.dump import encode_csv
from binlogtool.report.dump_text import describe_body, load_describer
from binlogtool.report.stats import align_columns
from binlogtool.report.wording import format_count, format_duration, format_quantity
from binlogtool.terminal.escape import escape

# --- Rows that records change ---


class RowCounts(msgspec.Struct):
    """Numbers of changed rows. A change without a before image counts as an insert (REPLACE)."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        """Total number of rows."""
        return self.inserted + self.updated + self.deleted

    def add(self, row: RowChange) -> None:
        """Add one row change."""
        after, before, key = row.get("after"), row.get("before"), row.get("key")
        if after is not None and before is None and key is None:
            self.inserted += 1
        elif after is None and row.get("operations") is None:
            self.deleted += 1
        else:
            self.updated += 1


class RowCounter:
    """Counter of the rows that records change, by table."""

    def __init__(self) -> None:
        self._format = ""
        self._describe: RecordDescriber | None = None

    def iter_counts(self, block: RecordBlock) -> Iterator[Mapping[str | None, RowCounts]]:
        """Yield table -> counts of changed rows for each record; pass all blocks of a log, in order."""
        if block.format != self._format or self._describe is None:
            self._format, self._describe = block.format, load_describer(block.format)
        for type_name, name, body in zip(block.envelope.type, block.envelope.object, block.bodies, strict=True):
            counts: dict[str | None, RowCounts] = {}
            for changes in describe_body(self._describe, type_name, body, False).changes:
                tally = counts.setdefault(changes.table or name, RowCounts())
                for row in changes.rows:
                    tally.add(row)
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
        for i, rows in enumerate(self._rows.iter_counts(block)):
            txn = envelope.txn[i]
            if txn is None:
                self._close()
                continue
            if self._open is None or self._open.name != str(txn):
                self._close()
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
                tally.rows += counts.total
                if table is not None and (table in tally.tables or len(tally.tables) < _MAX_TABLES):
                    tally.tables[table] = tally.tables.get(table, 0) + counts.total

    def _close(self) -> None:
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
        self._close()
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
            rows = [heading, *map(_make_row, tallies)]
            parts.append(align_columns(rows, right_columns=(1, 2, 3, 4)))
        elif order == "duration" and stats.count:
            text = "no record has a time, or all times of a transaction are equal"
            if stats.time_step is not None and any(one.first_time is not None for one in stats.largest["bytes"]):
                text = f"all durations are below the log's resolution of {stats.time_step} s"
            parts.append(f"{_TITLES[order]}: {text}\n".encode())
    return b"\n".join(parts)


def _make_row(tally: TransactionTally) -> list[str]:
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
