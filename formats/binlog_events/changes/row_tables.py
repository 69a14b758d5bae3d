"""Produce the tables of row events (`Format.tables`): columns from the maps, --schema or the log's DDL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import ROWS_DIVERGE, Finding, Severity, make_finding
from binlogtool.formats.binlog_events.changes import untold
from binlogtool.formats.binlog_events.changes.cascades import CascadeReporter
from binlogtool.formats.binlog_events.changes.cells import RowCellFillers
from binlogtool.formats.binlog_events.changes.runs import RowEventRuns
from binlogtool.formats.binlog_events.codes import GTID_EVENTS, QUERY_EVENTS, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.ddl.alter import find_renames
from binlogtool.formats.binlog_events.ddl.knowledge import TableKnowledge
from binlogtool.formats.binlog_events.ddl.modes import normalize_statement
from binlogtool.formats.binlog_events.ddl.tables import (
    first_keyword,
    is_table_statement,
    is_truncate,
    iter_emptied_tables,
    may_be_table_statement,
)
from binlogtool.formats.binlog_events.events.event import Event, iter_events
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.gtid.bodies import read_mysql_gtid
from binlogtool.formats.binlog_events.rows.partial_rows import fill_unchanged_json
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, decode_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.scene import EventContext, get_event_context, read_query
from binlogtool.formats.binlog_events.sql.transaction import get_statement_kind
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.values.columns import BLOBS, ColumnType, LogicalType, TableMapColumn
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError, Kernel
from binlogtool.formats.table_names import split_name
from binlogtool.formats.tables import (
    GEOMETRY,
    JSON,
    MAX_DECIMAL_DIGITS,
    NO_ROWS,
    TRANSACTION_BEGINS,
    EventRows,
    RecordTableRows,
    TableRow,
    TableSchema,
    TableSupport,
    make_database_table,
    pad_image,
)
from binlogtool.formats.tables import TableColumn as TableColumn
from binlogtool.limits import Limits

_C = ColumnType
_INT_TYPES = frozenset({_C.TINY, _C.SHORT, _C.INT24, _C.YEAR})
_TYPE_NAMES: Mapping[int, str] = {
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
_LONG_BYTES_TYPES = BLOBS | {_C.BLOB_COMPRESSED}
_BYTES_TYPES = _LONG_BYTES_TYPES | {_C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.VARCHAR_COMPRESSED}


def column_type_name(column: TableMapColumn) -> str:
    """Return the type of a column in the exported table; "string" if nothing better is known."""
    type_ = column.type
    if type_ in _INT_TYPES:
        return "int"
    if type_ == _C.LONG:
        return "bigint" if column.unsigned else "int"
    if type_ == _C.LONGLONG:
        return "decimal(20,0)" if column.unsigned else "bigint"
    if type_ == _C.BIT:
        return "bigint" if column.metadata < 64 else "decimal(20,0)"
    if type_ == _C.NEWDECIMAL:
        precision, scale = column.metadata >> 8, column.metadata & 0xFF
        return f"decimal({precision},{scale})" if precision <= MAX_DECIMAL_DIGITS else "string"
    if type_ == _C.ENUM:
        return "string" if column.values else "int"
    if type_ == _C.SET:
        return "array<string>" if column.values else "decimal(20,0)"
    if (
        type_ in _BYTES_TYPES
        and column.logical is None
        and not column.text
        and column.charset in _binary_charsets(type_)
    ):
        return "binary"
    if column.logical is LogicalType.VECTOR:
        return _TYPE_NAMES[_C.VECTOR]
    return _TYPE_NAMES.get(type_, "string")


def _binary_charsets(type_: int) -> tuple[str | None, ...]:
    """Return the character sets that mean bytes; a BLOB without a character set in its map is not known to be TEXT."""
    return ("binary", None) if type_ in _LONG_BYTES_TYPES else ("binary",)


def export_table(table_map: TableMap) -> TableSchema:
    """Return the exported table of a map; cached in the map."""
    table: TableSchema | None = table_map.memo.get("table")
    if table is None:
        columns = tuple(
            TableColumn(key, column_type_name(one))
            for key, one in zip(table_map.column_keys, table_map.columns, strict=True)
        )
        key = tuple(table_map.column_keys[index] for index, _ in table_map.primary_key or ())
        table = table_map.memo["table"] = make_database_table(table_map.database, table_map.table, columns, key)
    return table


class RowTables(msgspec.Struct):
    """Follows the events of a log and produces table rows.

    Attributes:
        time: commit time of the open transaction, if its GTID has one.
        is_selected: selects the tables whose rows are reported; None = all.
        reported: reasons for uncertain column names that were reported.
    """

    groups: TransactionGroups = msgspec.field(default_factory=TransactionGroups)
    knowledge: TableKnowledge = msgspec.field(default_factory=TableKnowledge)
    fillers: RowCellFillers | None = None
    runs: RowEventRuns | None = None
    cascades: CascadeReporter = msgspec.field(default_factory=CascadeReporter)
    time: int | None = None
    is_selected: Callable[[TableSchema], bool] | None = None
    reported: set[str] = msgspec.field(default_factory=set)

    def read_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """See `formats.tables.TableReader`."""
        self._seed(context)
        notes = context.tracker.track_batch(batch)
        for i, event in enumerate(iter_events(batch, start, stop), start):
            try:
                if event.code in ROW_EVENTS:
                    yield self._process_rows(context, event, notes.maps[i], limits)
                else:
                    yield self._process_other_event(
                        get_event_context(context, batch, i, event, notes.owners[i], notes.maps[i], limits)
                    )
            except (MalformedError, DecompressionError) as error:
                yield RecordTableRows(findings=(report_event(event, error.finding_id, str(error.args[0])),))

    def read_events(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> tuple[EventRows | None, int]:
        """See `formats.tables.CompiledTableReader`."""
        if self.runs is None:
            return None, start
        self._seed(context)
        return self.runs.events(self, context, batch, start, stop, limits)

    def _seed(self, context: BinlogFileContext) -> None:
        self.knowledge.load_schema(context.hints.schema)

    def resolve_map(self, table_map: TableMap) -> tuple[TableMap, TableSchema, bool]:
        """Return (the map with all that is known of it, its table, whether rows of the table are selected)."""
        keyed_map = self.knowledge.describe_with_key(table_map)
        exported_table = export_table(keyed_map)
        return keyed_map, exported_table, self.is_selected is None or self.is_selected(exported_table)

    def must_check_events(self, table: TableSchema) -> bool:
        """Check if the table's events must be read one by one, as long as `version` does not change."""
        return self.cascades.has_unreported(self.knowledge.foreign_keys, table.name)

    @property
    def version(self) -> int:
        """A number that changes whenever more is known of tables, or was reported."""
        return self.knowledge.version + len(self.cascades.reported) + len(self.reported)

    def has_unreported_doubt(self, table_map: TableMap) -> bool:
        """Check if uncertain column names of a map are still to be reported."""
        return bool(table_map.uncertain) and table_map.uncertain not in self.reported

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Do nothing: each table map describes its table completely."""

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """See `formats.tables.TableReader`."""
        self.is_selected = is_selected

    def note_gap(self) -> None:
        """See `formats.tables.TableReader`."""
        self.groups.reset()
        self.time = None

    def _process_other_event(self, scene: EventContext) -> RecordTableRows:
        event, code = scene.event, scene.event.code
        if scene.file.encrypted_without_key:
            return NO_ROWS  # a finding about the file reports it once
        if code == EventType.TABLE_MAP:
            table_map = scene.table
            return (
                NO_ROWS
                if table_map is None
                else RecordTableRows(described=(export_table(self.knowledge.describe_with_key(table_map)),))
            )
        is_payload = code == EventType.TRANSACTION_PAYLOAD
        step = GroupStep.OUTSIDE if is_payload else self.groups.add_event(code, event.body)
        if code in GTID_EVENTS:
            self.time = None
            if code != EventType.GTID:
                self.time = read_mysql_gtid(code, bytes(event.body)).original_commit_timestamp or None
        elif step is GroupStep.OPENS:
            self.time = None
        remark, reason, changes, notes, emptied = "", "", None, tuple[Finding, ...](), tuple[TableRow, ...]()
        if code in QUERY_EVENTS or code == EventType.EXECUTE_LOAD_QUERY:
            remark, reason, changes, notes = self._process_statement(scene)
            emptied = tuple(_iter_emptied_tables(scene))
            if rollback_text := untold.describe_rollback(
                get_statement_kind(scene), read_query(scene)[1], ends_group=step is GroupStep.ENDS
            ):
                return RecordTableRows(
                    begins=step is GroupStep.ENDS, findings=(report_event(event, ROWS_DIVERGE, rollback_text),)
                )  # there is no commit
        elif code == EventType.INCIDENT:
            reason = untold.INCIDENT
        if not is_payload and self.groups.has_begun_now and not remark and not reason:
            return TRANSACTION_BEGINS
        findings = (report_event(event, "payload-undecodable", reason), *notes) if reason else ()
        return (
            RecordTableRows(
                ends=step is GroupStep.ENDS, remark=remark, findings=findings, changes=changes, emptied=emptied
            )
            if remark or findings or emptied or step is GroupStep.ENDS
            else NO_ROWS
        )

    def _process_statement(self, scene: EventContext) -> tuple[str, str, TableSchema | None, tuple[Finding, ...]]:
        """Process a statement that may define a table or change rows.

        Returns:
            (renames in words, why its row changes are unknown, the only table that it changes, findings about other
            tables).
        """
        parts, sql = read_query(scene)
        text, database = normalize_statement(sql, parts), parts.db.decode("utf-8", "backslashreplace")
        reason = untold.STATEMENT_WITHOUT_ROWS if untold.changes_rows(text) else ""
        name = self.knowledge.find_only_changed_table(text, database) if reason else None
        changes = None if name is None else make_database_table(*split_name(name), ())
        notes = tuple(self.cascades.check_statement(self.knowledge.foreign_keys, scene.event, name, text))
        if is_table_statement(text[:4096]):
            self.knowledge.apply_statement(sql, parts)
            with contextlib.suppress(UsageError):
                renames_text = ", ".join(
                    f"{old} is called {new} from here on" for old, new in find_renames(text, database)
                )
                return renames_text, reason, changes, notes
        return "", reason, changes, notes

    def _process_rows(
        self, context: BinlogFileContext, event: Event, table_map: TableMap | None, limits: Limits
    ) -> RecordTableRows:
        size = context.description.table_id_size
        ends = self.groups.add_event(event.code, event.body) is GroupStep.ENDS
        if table_map is None:
            if int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID:
                return RecordTableRows(ends=ends)
            return RecordTableRows(findings=(report_event(event, "dangling-reference", "its TABLE_MAP is missing"),))
        keyed_map, exported_table, is_wanted = self.resolve_map(table_map)
        decode = partial(decode_rows, event.code, event.body, keyed_map, limits)
        findings = tuple(
            self.cascades.check_event(self.knowledge.foreign_keys, event, size, exported_table.name, decode)
        )
        if not is_wanted:
            return RecordTableRows(described=(exported_table,), ends=ends, findings=findings)
        if self.has_unreported_doubt(keyed_map):
            self.reported.add(keyed_map.uncertain)
            findings = (*findings, report_event(event, "meta-mismatch", keyed_map.uncertain, Severity.WARNING))
        cells = (
            None
            if self.fillers is None
            else self.fillers.store_event(event.code, event.body, keyed_map, exported_table, limits)
        )
        if cells is not None:
            return RecordTableRows(cells=cells, time=self.time, ends=ends, findings=findings)
        padded_sizes = _padded_sizes(keyed_map)
        rows = decode()
        if event.code == EventType.PARTIAL_UPDATE_ROWS:
            rows = [{**row, "after": fill_unchanged_json(row["before"], row["after"])} for row in rows]
        return RecordTableRows(
            [_make_row(exported_table, row, padded_sizes) for row in rows], time=self.time, ends=ends, findings=findings
        )


def _iter_emptied_tables(scene: EventContext) -> Iterator[TableRow]:
    """Iterate over the tables that a statement empties or drops."""
    parts, sql = read_query(scene)
    if may_be_table_statement(sql) and (
        first_keyword(text := normalize_statement(sql, parts)) in ("DROP", "TRUNCATE", "CREATE")
    ):
        operation = "TRUNCATE" if is_truncate(text) else "DROP"
        for name in iter_emptied_tables(text, parts.db.decode("utf-8", "backslashreplace")):
            yield TableRow(make_database_table(*split_name(name), ()), operation, None, None)


def _padded_sizes(table_map: TableMap) -> dict[str, int]:
    """Return the sizes of BINARY columns, whose trailing zero bytes are not in the log, by column key."""
    sizes: dict[str, int] | None = table_map.memo.get("short")
    if sizes is None:
        pairs = zip(table_map.column_keys, table_map.columns, strict=True)
        sizes = table_map.memo["short"] = {key: size for key, one in pairs if (size := one.padded_size)}
    return sizes


def _make_row(table: TableSchema, row: Mapping[str, Any], padded_sizes: Mapping[str, int]) -> TableRow:
    before, after = pad_image(row.get("before"), padded_sizes), pad_image(row.get("after"), padded_sizes)
    return TableRow(table, "DELETE" if after is None else "INSERT" if before is None else "UPDATE", before, after)


def report_event(event: Event, finding_id: str, reason: str, severity: Severity | None = None) -> Finding:
    """Create a finding about an event whose rows cannot be decoded, or not completely.

    Args:
        severity: None = that of the finding's id.
    """
    text = f"{type_name(event.code)}: {reason}"
    return make_finding(finding_id, event.start, event.end - event.start, text, record=event.record, severity=severity)


def make_tables() -> TableSupport:
    """See `formats.base.Format.tables`."""
    return TableSupport(RowTables, types=("TABLE_MAP",), make_compiled_reader=make_compiled_reader, statements=True)


def make_compiled_reader(compile_kernel: Callable[[Kernel], Kernel]) -> RowTables:
    """Create a reader that uses compiled code for rows where it can."""
    fillers = RowCellFillers(compile_kernel)
    return RowTables(fillers=fillers, runs=RowEventRuns(fillers, compile_kernel) if fillers.is_compiled else None)
