"""Produce the tables of row events (`Format.tables`): columns from the maps, --schema or the log's DDL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import DIVERGES, Finding, Severity, finding
from binlogtool.formats.binlog_events.changes import untold
from binlogtool.formats.binlog_events.changes.cascades import Cascades
from binlogtool.formats.binlog_events.changes.cells import Fillers
from binlogtool.formats.binlog_events.changes.runs import Runs
from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, EventType
from binlogtool.formats.binlog_events.ddl.alter import renames
from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge
from binlogtool.formats.binlog_events.ddl.modes import usual_text
from binlogtool.formats.binlog_events.ddl.tables import about_tables, emptied, may_define, truncates, verb
from binlogtool.formats.binlog_events.events.event import Event, events_of
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.gtid.bodies import mysql_gtid_fields
from binlogtool.formats.binlog_events.rows.partial_rows import with_kept
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, decode_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.scene import Scene, query_of, scene_at
from binlogtool.formats.binlog_events.sql.transaction import kind_of
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.values.columns import BLOBS, Column, ColumnType, Logical
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError, Kernel
from binlogtool.formats.table_names import parts_of
from binlogtool.formats.tables import (
    BEGINS,
    GEOMETRY,
    JSON,
    MOST_DIGITS,
    NOTHING,
    Events,
    Row,
    Table,
    Tables,
    Told,
    filled_up,
    in_database,
)
from binlogtool.formats.tables import Column as TableColumn
from binlogtool.limits import Limits

_C = ColumnType
_SMALL = frozenset({_C.TINY, _C.SHORT, _C.INT24, _C.YEAR})
_TYPES: Mapping[int, str] = {
    _C.FLOAT: "float",
    _C.DOUBLE: "double",
    _C.DATE: "date",
    _C.NEWDATE: "date",
    _C.DATETIME: "timestamp_ntz",
    _C.DATETIME2: "timestamp_ntz",
    _C.TIMESTAMP: "timestamp",
    _C.TIMESTAMP2: "timestamp",
    _C.JSON: JSON,
    _C.VECTOR: "array<double>",
    _C.GEOMETRY: GEOMETRY,
}
_LONG_BYTES = BLOBS | {_C.BLOB_COMPRESSED}
_BYTES = _LONG_BYTES | {_C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.VARCHAR_COMPRESSED}


def type_of(column: Column) -> str:
    """Return the type of a column in the exported table; "string" if nothing better is known."""
    type_ = column.type
    if type_ in _SMALL:
        return "int"
    if type_ == _C.LONG:
        return "bigint" if column.unsigned else "int"
    if type_ == _C.LONGLONG:
        return "decimal(20,0)" if column.unsigned else "bigint"
    if type_ == _C.BIT:
        return "bigint" if column.metadata < 64 else "decimal(20,0)"
    if type_ == _C.NEWDECIMAL:
        precision, scale = column.metadata >> 8, column.metadata & 0xFF
        return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else "string"
    if type_ == _C.ENUM:
        return "string" if column.values else "int"
    if type_ == _C.SET:
        return "array<string>" if column.values else "decimal(20,0)"
    if type_ in _BYTES and column.logical is None and not column.text and column.charset in _no_text(type_):
        return "binary"
    if column.logical is Logical.VECTOR:
        return _TYPES[_C.VECTOR]
    return _TYPES.get(type_, "string")


def _no_text(type_: int) -> tuple[str | None, ...]:
    """Return the character sets that mean bytes; a BLOB without a character set in its map is not known to be TEXT."""
    return ("binary", None) if type_ in _LONG_BYTES else ("binary",)


def table_of(known: TableMap) -> Table:
    """Return the exported table of a map; cached in the map."""
    kept: Table | None = known.memo.get("table")
    if kept is None:
        columns = tuple(TableColumn(key, type_of(one)) for key, one in zip(known.keys, known.columns, strict=True))
        key = tuple(known.keys[index] for index, _ in known.primary_key or ())
        kept = known.memo["table"] = in_database(known.database, known.table, columns, key)
    return kept


class RowTables(msgspec.Struct):
    """Follows the events of a log and produces table rows.

    Attributes:
        time: commit time of the open transaction, if its GTID has one.
        is_selected: selects the tables whose rows are reported; None = all.
        reported: reasons for uncertain column names that were reported.
    """

    groups: Groups = msgspec.field(default_factory=Groups)
    knowledge: Knowledge = msgspec.field(default_factory=Knowledge)
    fillers: Fillers | None = None
    runs: Runs | None = None
    cascades: Cascades = msgspec.field(default_factory=Cascades)
    time: int | None = None
    wants: Callable[[Table], bool] | None = None
    said: set[str] = msgspec.field(default_factory=set)

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`."""
        self._seed(context)
        notes = context.tracker.notes(batch)
        for i, event in enumerate(events_of(batch, start, stop), start):
            try:
                if event.code in ROWS:
                    yield self._rows(context, event, notes.maps[i], limits)
                else:
                    yield self._other(scene_at(context, batch, i, event, notes.owners[i], notes.maps[i], limits))
            except (MalformedError, CodecError) as error:
                yield Told(findings=(failed(event, error.finding_id, str(error.args[0])),))

    def events(
        self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> tuple[Events | None, int]:
        """See `formats.tables.EventReader`."""
        if self.runs is None:
            return None, start
        self._seed(context)
        return self.runs.events(self, context, batch, start, stop, limits)

    def _seed(self, context: FileContext) -> None:
        self.knowledge.seed(context.hints.schema)

    def look(self, table: TableMap) -> tuple[TableMap, Table, bool]:
        """Return (the map with all that is known of it, its table, whether rows of the table are selected)."""
        known = self.knowledge.keyed(table)
        own = table_of(known)
        return known, own, self.wants is None or self.wants(own)

    def watches(self, table: Table) -> bool:
        """Check if the table's events must be read one by one, as long as `version` does not change."""
        return self.cascades.watches(self.knowledge.keys, table.name)

    @property
    def version(self) -> int:
        """A number that changes whenever more is known of tables, or was reported."""
        return self.knowledge.version + len(self.cascades.said) + len(self.said)

    def doubts(self, known: TableMap) -> bool:
        """Check if uncertain column names of a map are still to be reported."""
        return bool(known.uncertain) and known.uncertain not in self.said

    def know(self, tables: Iterable[Table]) -> None:
        """Do nothing: each table map describes its table completely."""

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""
        self.wants = wants

    def lost(self) -> None:
        """See `formats.tables.TableReader`."""
        self.groups.lose()
        self.time = None

    def _other(self, scene: Scene) -> Told:
        event, code = scene.event, scene.event.code
        if scene.context.sealed:
            return NOTHING  # a finding about the file reports it once
        if code == EventType.TABLE_MAP:
            known = scene.table
            return NOTHING if known is None else Told(described=(table_of(self.knowledge.keyed(known)),))
        payload = code == EventType.TRANSACTION_PAYLOAD
        step = Step.OUTSIDE if payload else self.groups.take(code, event.body)
        if code in GTIDS:
            self.time = None
            if code != EventType.GTID:
                self.time = mysql_gtid_fields(code, bytes(event.body)).original_commit_timestamp or None
        elif step is Step.OPENS:
            self.time = None
        remark, why, changes, notes, emptied = "", "", None, tuple[Finding, ...](), tuple[Row, ...]()
        if code in QUERIES or code == EventType.EXECUTE_LOAD_QUERY:
            remark, why, changes, notes = self._statement(scene)
            emptied = tuple(_emptied(scene))
            if text := untold.taken_back(kind_of(scene), query_of(scene)[1], ends=step is Step.ENDS):
                return Told(begins=step is Step.ENDS, findings=(failed(event, DIVERGES, text),))  # there is no commit
        elif code == EventType.INCIDENT:
            why = untold.INCIDENT
        if not payload and self.groups.begins and not remark and not why:
            return BEGINS
        found = (failed(event, "payload-undecodable", why), *notes) if why else ()
        return (
            Told(ends=step is Step.ENDS, remark=remark, findings=found, changes=changes, emptied=emptied)
            if remark or found or emptied or step is Step.ENDS
            else NOTHING
        )

    def _statement(self, scene: Scene) -> tuple[str, str, Table | None, tuple[Finding, ...]]:
        """Process a statement that may define a table or change rows.

        Returns:
            (renames in words, why its row changes are unknown, the only table that it changes, findings about other
            tables).
        """
        parts, sql = query_of(scene)
        text, database = usual_text(sql, parts), parts.db.decode("utf-8", "backslashreplace")
        why = untold.STATEMENT if untold.writes_rows(text) else ""
        name = self.knowledge.changed(text, database) if why else None
        changes = None if name is None else in_database(*parts_of(name), ())
        notes = tuple(self.cascades.of_statement(self.knowledge.keys, scene.event, name, text))
        if about_tables(text[:4096]):
            self.knowledge.learn(sql, parts)
            with contextlib.suppress(UsageError):
                told = ", ".join(f"{old} is called {new} from here on" for old, new in renames(text, database))
                return told, why, changes, notes
        return "", why, changes, notes

    def _rows(self, context: FileContext, event: Event, table: TableMap | None, limits: Limits) -> Told:
        size = context.description.table_id_size
        ends = self.groups.take(event.code, event.body) is Step.ENDS
        if table is None:
            if int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID:
                return Told(ends=ends)
            return Told(findings=(failed(event, "dangling-reference", "its TABLE_MAP is missing"),))
        known, own, wanted = self.look(table)
        rows_of = partial(decode_rows, event.code, event.body, known, limits)
        found = tuple(self.cascades.of_event(self.knowledge.keys, event, size, own.name, rows_of))
        if not wanted:
            return Told(described=(own,), ends=ends, findings=found)
        if self.doubts(known):
            self.said.add(known.uncertain)
            found = (*found, failed(event, "meta-mismatch", known.uncertain, Severity.WARNING))
        cells = None if self.fillers is None else self.fillers.cells(event.code, event.body, known, own, limits)
        if cells is not None:
            return Told(cells=cells, time=self.time, ends=ends, findings=found)
        short = _short_bytes(known)
        rows = rows_of()
        if event.code == EventType.PARTIAL_UPDATE_ROWS:
            rows = [{**row, "after": with_kept(row["before"], row["after"])} for row in rows]
        return Told([_row(own, row, short) for row in rows], time=self.time, ends=ends, findings=found)


def _emptied(scene: Scene) -> Iterator[Row]:
    """Iterate over the tables that a statement empties or drops."""
    parts, sql = query_of(scene)
    if may_define(sql) and (verb(text := usual_text(sql, parts)) in ("DROP", "TRUNCATE", "CREATE")):
        operation = "TRUNCATE" if truncates(text) else "DROP"
        for name in emptied(text, parts.db.decode("utf-8", "backslashreplace")):
            yield Row(in_database(*parts_of(name), ()), operation, None, None)


def _short_bytes(known: TableMap) -> dict[str, int]:
    """Return the sizes of BINARY columns, whose trailing zero bytes are not in the log, by column key."""
    kept: dict[str, int] | None = known.memo.get("short")
    if kept is None:
        pairs = zip(known.keys, known.columns, strict=True)
        kept = known.memo["short"] = {key: size for key, one in pairs if (size := one.stored_short)}
    return kept


def _row(table: Table, row: Mapping[str, Any], short: Mapping[str, int]) -> Row:
    before, after = filled_up(row.get("before"), short), filled_up(row.get("after"), short)
    return Row(table, "DELETE" if after is None else "INSERT" if before is None else "UPDATE", before, after)


def failed(event: Event, id_: str, why: str, severity: Severity | None = None) -> Finding:
    """Create a finding about an event whose rows cannot be decoded, or not completely.

    Args:
        severity: None = that of the finding's id.
    """
    text = f"{type_name(event.code)}: {why}"
    return finding(id_, event.start, event.end - event.start, text, record=event.record, severity=severity)


def tables() -> Tables:
    """See `formats.base.Format.tables`."""
    return Tables(RowTables, types=("TABLE_MAP",), compiled=compiled, statements=True)


def compiled(compile_: Callable[[Kernel], Kernel]) -> RowTables:
    """Create a reader that uses compiled code for rows where it can."""
    fillers = Fillers(compile_)
    return RowTables(fillers=fillers, runs=Runs(fillers, compile_) if fillers.is_compiled else None)
