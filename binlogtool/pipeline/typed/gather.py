"""Table router: sort the row changes of a log by table, in the log's order, and build batches."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import structs

from binlogtool import memory
from binlogtool.errors import UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.tables import CellRows, Cells, Row, Table, Told, row_bytes
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.body_json import findings_text
from binlogtool.log.open import Log
from binlogtool.log.records import Block, Crowd, Trouble
from binlogtool.log.select import Selection
from binlogtool.log.unknown_columns import Columns
from binlogtool.log.where_rows import row_choice
from binlogtool.pipeline import rows
from binlogtool.pipeline.account import MAX_LISTED
from binlogtool.pipeline.images import cells_of
from binlogtool.pipeline.object_columns import Field, demand_one
from binlogtool.pipeline.typed.batches import Piece, piece_of
from binlogtool.pipeline.typed.directories import told_apart
from binlogtool.pipeline.typed.filled import OPS, Run, Runs, absent_of, piece_of_cells, runs_of
from binlogtool.pipeline.typed.wishes import Wanted, Wishes, of_another

_BATCH = 8192
_HELD_PART, _ALL_PART = 32, 8
"""Pending rows of one table, and of all tables, use at most these fractions of the memory limit."""
_NAMED = 8
_PIECE_TIMES = 2
"""Memory for building a batch, as a multiple of the size of its rows."""


class Home(Protocol):
    """Receives the rows of tables. name: of a table, or DAMAGE for rows that belong to none."""

    def describe(self, name: str, table: Table, place: str) -> None:
        """Set the definition of a table that is valid from this place in the log."""

    def take(self, name: str, piece: Piece) -> None:
        """Receive rows of a table."""

    def found(self, file: str, finding: Finding) -> None:
        """Receive a finding about a record."""


class _Waiting(msgspec.Struct):
    """Approximate memory of the pending rows of all tables, in bytes."""

    bytes: int = 0


class _Pending:
    """Rows of one table that will become a batch, as dictionaries or as cells."""

    def __init__(self, name: str, home: Home, limits: Limits, waiting: _Waiting) -> None:
        self.name, self._home, self._limits, self._waiting = name, home, limits, waiting
        self.filled: CellRows | None = None
        self._start = self._stop = 0
        self._runs: list[Run | Runs] = []
        self.fields: tuple[Field, ...] = ()
        self.table: Table | None = None
        self.rows: list[dict[str, Any]] = []
        self.size = 0

    def flush(self) -> None:
        """Build a batch of the pending rows, and pass it on."""
        if self.rows:
            memory.demand(_PIECE_TIMES * self.size)
            self._waiting.bytes -= self.size
            rows, self.rows, self.size = self.rows, [], 0
            self._home.take(self.name, piece_of(self.fields, rows))
        if self.filled is not None:
            made = piece_of_cells(self.filled, self._start, self._stop, self._runs, self.fields, self._limits)
            self._home.take(self.name, made)
            self.filled, self._runs = None, []

    def add_cells(self, filled: CellRows, start: int, size: int, run: Run | Runs) -> None:
        """Add `size` rows of cells from `start`."""
        if filled is not self.filled or start != self._stop or self.rows:
            self.flush()
            self.filled, self._start = filled, start
        self._stop = start + size
        self._runs.append(run)

    def describe(self, table: Table, place: str) -> None:
        """Set the definition of the table for the following rows. place: in the log, as text."""
        if self.table is None or self.table.columns != table.columns:
            self.flush()
            self.fields = tuple(Field(c.name, c.type) for c in table.columns)
        self._home.describe(self.name, table, place)
        self.table = table


class Gatherer:
    """Takes blocks and row batches of `Log.tables` and `Log.crowds`, and passes their rows to a sink.

    strays: create rows for records that cannot be decoded.

    Attributes:
        seen: tables of the log, selected or not.
        remarks: texts about changes of tables, with their place; at most MAX_LISTED_FINDINGS.
        untold: number of records whose rows are not in the log.
        others: number of further such records, of tables that are not selected.
        taken: number of rows by file.
    """

    def __init__(self, wishes: Wishes, home: Home, limits: Limits, *, strays: bool = True) -> None:
        self.seen: dict[str, Table] = {}
        self.remarks: list[str] = []
        self.untold = self.others = 0
        self._said = set[str]()
        self.taken = Counter[str]()
        self._wishes, self._home, self._limits, self._strays = wishes, home, limits, strays
        self._tables: dict[str, _Pending] = {}
        self._last: tuple[Any, Any] | None = None
        self._choice = None if wishes.where is None else row_choice(wishes.where)
        self._columns = None if wishes.where is None else Columns(wishes.where)
        self._passed, self._waiting = 0, _Waiting()
        self._most_held, self._most_of_all = limits.max_memory // _HELD_PART, limits.max_memory // _ALL_PART
        self.wants = Wanted(wishes)

    def read(self, log: Log, selection: Selection, known: Sequence[Table]) -> Iterator[Crowd | Block | Trouble]:
        """Return the parts of a log in the fastest form that the options allow. known: tables described by other
        files.
        """
        if self._choice is None and not self._wishes.skip and self._wishes.limit is None:
            return log.crowds(selection, known=known, wants=self.wants)
        looks = self._wishes.skip or (self._choice is not None and self._choice.condition.needs_body)
        return log.tables(selection, known=known, cells=not looks, wants=self.wants)

    @property
    def full(self) -> bool:
        """True if the limit of rows is reached."""
        return self._wishes.limit is not None and self.taken.total() >= self._wishes.limit

    def block(self, block: Block) -> None:
        """Route the rows of a block of records."""
        if self._choice is not None:
            self._choice.look_at(block)
        for i, told in enumerate(block.bodies):
            if told is not None and told.begins:
                self._last = None
            if told is not None and told.described:
                self._see(told.described)
            if block.findings.get(i) or (told is not None and _says_something(told)):
                self._record(block, i, Told() if told is None else told)

    def crowd(self, crowd: Crowd) -> None:
        """Route the rows of a batch of records that compiled code decoded."""
        told = crowd.told
        self._see(told.described)
        if told.closes:
            self._end()
        elif told.begins:
            self._last = None
        for run in told.runs:
            first = run.picks[0]
            place = f"{rows.file_name(crowd.file)} at {crowd.base + told.places[first]:,}"
            pending = self._home_of(run.filled.table, place)
            made = runs_of(told, run, pending.fields, crowd)
            size = int(made.sizes.sum())
            pending.add_cells(run.filled, run.start, size, made)
            self.taken[crowd.file] += size
            if run.picks[-1] == len(told.which) - 1:
                self._last = (made.commits, -1) if told.open else None

    def _see(self, tables: Iterable[Table]) -> None:
        """Note tables that the log contains."""
        for one in tables:
            self.seen[one.name] = one
            if self._columns is not None:
                self._columns.take(column.name for column in one.columns)

    def flush(self) -> None:
        """Build batches of all pending rows."""
        for pending in self._tables.values():
            pending.flush()

    def _record(self, block: Block, i: int, told: Told) -> None:
        if told.changes is not None and not self._wishes.may_want(told.changes):
            told = self._of_another(block, i, told, told.changes)
        found = tuple(filter(self._wishes.concerns, (*block.findings.get(i, ()), *told.findings)))
        meta = _meta(block, i, told, found) | {"commit": False if _tells_ends(block.format) else None}
        if told.remark and len(self.remarks) < MAX_LISTED:
            self.remarks.append(f"{_place(block, i)}: {told.remark}")
        for one in found:
            self._home.found(block.file, one)
        if max((one.severity for one in found), default=0) > Severity.NOTE and not told.rows and not told.cells:
            self.untold += any(one.severity is Severity.ERROR for one in found)
            self._nowhere(meta, block.envelope.object[i])
        if told.cells is not None:
            self._cells(told.cells, meta, block, i)
        for n, row in self._chosen(told.rows, i):
            self._row(row, meta | {"row": n}, block, i)
        if told.ends:
            self._end()

    def _of_another(self, block: Block, i: int, told: Told, table: Table) -> Told:
        """Note an unlogged change of a table that is not selected, and drop its findings except notes."""
        self.others += 1
        self._last = None
        if table.name not in self._said and len(self.remarks) < MAX_LISTED:
            self._said.add(table.name)
            self.remarks.append(f"{_place(block, i)}: {of_another(table.name)}")
        return structs.replace(told, findings=tuple(one for one in told.findings if one.severity is Severity.NOTE))

    def _end(self) -> None:
        """Mark the last row as the end of its transaction."""
        if self._last is not None:
            made, place = self._last
            made[place] = True
        self._last = None

    def _chosen(self, given: Sequence[Row], i: int) -> Iterator[tuple[int, Row]]:
        """Yield the selected rows of a record, with their indexes in it."""
        marks: bool | Sequence[bool] = True
        if self._choice is not None and given:
            marks = self._choice.rows(i, lambda: {"rows": [{"before": r.before, "after": r.after} for r in given]})
        for n, row in enumerate(given):
            if self.seen.get(row.table.name) is not row.table:
                self._see((row.table,))
            if not self.wants(row.table) or not (marks if isinstance(marks, bool) else marks[n]):
                continue
            if self._passed < self._wishes.skip:
                self._passed += 1
            elif not self.full:
                yield n, row

    def _cells(self, cells: Cells, meta: dict[str, Any], block: Block, i: int) -> None:
        """Add the rows of a record that compiled code decoded."""
        filled, limit = cells.filled, self._wishes.limit
        left = cells.size if limit is None else min(cells.size, limit - self.taken.total())
        if not left or not self.wants(filled.table) or (self._choice and not self._choice.rows(i, dict)):
            return
        pending = self._home_of(filled.table, _place(block, i))
        made = meta | {"op": OPS[cells.sides]}
        self._last = made, "commit"
        if cells.absent:
            made["absent"] = absent_of(cells.absent, pending.fields)
        pending.add_cells(filled, cells.start, left, Run(left, cells.sides, made))
        self.taken[block.file] += left

    def _row(self, row: Row, meta: dict[str, Any], block: Block, i: int) -> None:
        pending = self._home_of(row.table, _place(block, i))
        size, waiting = row_bytes(row), self._waiting
        if pending.filled is not None or len(pending.rows) >= _BATCH or pending.size + size > self._most_held:
            pending.flush()
        if waiting.bytes + size > self._most_of_all:
            self.flush()
        made = meta | cells_of(row, pending.fields) | {"op": row.op}
        self._last = made, "commit"
        pending.rows.append(made)
        self.taken[block.file] += 1
        pending.size += size
        waiting.bytes += size

    def _home_of(self, table: Table, place: str) -> _Pending:
        """Return the pending rows of a table, after setting its current definition."""
        pending = self._pending(told_apart(table.name))
        if pending.table is not table:
            demand_one(pending.table or table, table)
            pending.describe(table, place)
        return pending

    def _pending(self, name: str) -> _Pending:
        if not self._wishes.per_table:
            name = next(iter(self._tables), name)
        if name not in self._tables:
            self._tables[name] = _Pending(name, self._home, self._limits, self._waiting)
        return self._tables[name]

    # -- rows without a table --------------------------------------------------------------------------------------

    def _nowhere(self, meta: dict[str, Any], name: str | None) -> None:
        """Add a row for a record whose rows are unknown; one of them may have been the last of its transaction."""
        self._last = None
        if self._strays:
            home = self._tables.get(told_apart(name)) if name is not None else None
            self._told_of(home or self._damaged(), meta)

    def lost(self, one: Trouble) -> None:
        """Note unreadable bytes, which may have contained the end of the open transaction."""
        if one.finding.severity is Severity.ERROR:
            self._last = None

    def damage(self, one: Trouble) -> None:
        """Add a row for bytes that could not be read."""
        meta = {"op": rows.DAMAGE, "file": rows.file_name(one.file), "offset": one.finding.offset}
        self._told_of(self._damaged(), meta | {"findings": findings_text([one.finding])})

    def _damaged(self) -> _Pending:
        """Return where rows without a table go: DAMAGE, or the table if there is only one."""
        return self._pending(rows.DAMAGE if self._wishes.per_table else self._wishes.objects[0])

    def _told_of(self, pending: _Pending, meta: dict[str, Any]) -> None:
        if pending.filled is not None:
            pending.flush()
        pending.rows.append(meta | {"before": None, "after": None})

    # -- the end -------------------------------------------------------------------------------------------------------

    def demand_tables(self) -> None:
        """Raise UsageError if a pattern matches no table of the log."""
        self._see(one.table for one in self._tables.values() if one.table is not None)
        for pattern in self._wishes.objects:
            if not any(self._wishes.only(pattern).wants(one) for one in self.seen.values()):
                told = no_such_table(self.seen)
                if count := self.untold + self.others:
                    told += f" (and not which rows {count:,} of its statements changed: binlog_format)"
                raise UsageError(f"--object {pattern}: {told}")

    def demand_columns(self) -> None:
        """Raise UsageError if no row was selected and no table has a column that the condition names."""
        if self._columns is not None and not self.taken.total() and not self._passed:
            self._columns.demand()


def no_such_table(seen: Iterable[str]) -> str:
    """Return a text that a table is not among these."""
    names = sorted(seen)
    more = ", …" if names[_NAMED:] else ""
    known = f"it has {', '.join(names[:_NAMED])}{more}" if names else "it has none"
    return f"the log tells of no such table; {known}"


def _meta(block: Block, i: int, told: Told, found: tuple[Finding, ...]) -> dict[str, Any]:
    e = block.envelope
    return {
        "op": e.type[i],
        "seq": _in_a_column(e.seq[i]),
        "txn": None if e.txn[i] is None else str(e.txn[i]),
        "time": _in_a_column(e.time[i] if told.time is None else told.time),
        "server": _in_a_column(e.origin[i]),
        "file": rows.file_name(block.file),
        "record": int(block.record[i]),
        "offset": int(block.offset[i]),
        "findings": findings_text(found),
    }


@functools.cache
def _tells_ends(format: str) -> bool:
    """Return True if logs of this format contain the end of transactions."""
    rules = detect.by_name(format).tables
    return rules is None or rules().transactions


def _in_a_column(value: int | None) -> int | None:
    """Return a number that fits a signed 64-bit column; otherwise None."""
    return value if value is not None and -1 << 63 <= value < 1 << 63 else None


def _says_something(told: Told) -> bool:
    return bool(told.rows or told.cells or told.ends or told.findings or told.remark)


def _place(block: Block, i: int) -> str:
    return f"{rows.file_name(block.file)} at {int(block.offset[i]):,}"
