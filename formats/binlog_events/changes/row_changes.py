"""Row changes of a log: who, where, in which transaction, before and after image.

Names, keys and types of columns come from table maps, --schema, or the DDL in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import COLUMNS_UNKNOWN, ROWS_DIVERGE, ROWS_NOT_LOGGED, Finding, Severity
from binlogtool.format_api import row_output_interfaces
from binlogtool.format_api.layout import Batch, Kernel
from binlogtool.format_api.row_output_interfaces import (
    BEGIN,
    DDL,
    DELETE,
    END,
    INSERT,
    TRUNCATE,
    UPDATE,
    ChangeEvent,
    ChangePosition,
    ChangeTransaction,
    RecordChanges,
    SqlTable,
    qualify_name,
    split_table_name,
)
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.changes import row_event_table_reader
from binlogtool.formats.binlog_events.changes.row_event_table_reader import RowEventTableReader, exported_type_name
from binlogtool.formats.binlog_events.ddl.parse_ddl import DATABASE, TABLE, ParsedDdl
from binlogtool.formats.binlog_events.ddl.table_history import CascadeReporter, TableCatalog
from binlogtool.formats.binlog_events.decode import BinlogFileContext, type_name
from binlogtool.formats.binlog_events.event_schemas import get_event, parse_xid
from binlogtool.formats.binlog_events.gtid.gtid_events import read_mariadb_gtid, read_mysql_gtid
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID, decode_rows, fill_unchanged_json
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.script_state import (
    EventContext,
    get_statement_kind,
    make_context_event_finding,
    make_event_context,
    read_query_and_text,
)
from binlogtool.formats.binlog_events.status_variables import decode_annotation_text
from binlogtool.formats.binlog_events.transactions.boundaries import GroupStep, QueryKind, TransactionGroupState
from binlogtool.formats.binlog_events.values.column_types import (
    BLOBS,
    MAX_CHARACTER_BYTES,
    ColumnType,
    LogicalType,
    TableMapColumn,
)
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    MYSQL_GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    STMT_END,
    EventType,
)
from binlogtool.limits import Limits

# --- Tables of change messages (Debezium, Maxwell, Canal) ---

_C = ColumnType
_TYPE_NAMES: Mapping[int, str] = {
    _C.TINY: "tinyint",
    _C.SHORT: "smallint",
    _C.INT24: "mediumint",
    _C.LONG: "int",
    _C.LONGLONG: "bigint",
    _C.NEWDECIMAL: "decimal",
    _C.NEWDATE: "date",
    _C.TYPED_ARRAY: "json",
}
"""Names of types in SQL; of all others, the name of the code without a 2 at its end."""
_SIZE_PREFIXES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
"""Size of a value's length in bytes -> prefix of TEXT or BLOB."""
_BLOB_LENGTH_BYTES: Mapping[int, int] = {_C.TINY_BLOB: 1, _C.MEDIUM_BLOB: 3, _C.LONG_BLOB: 4}
_FRACTION_TYPES = frozenset({_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2})
_GEOMETRIES: Mapping[int | None, str] = {
    1: "point", 2: "linestring", 3: "polygon", 4: "multipoint", 5: "multilinestring", 6: "multipolygon",
    7: "geometrycollection",
}  # fmt: skip


def build_sql_table_from_map(table_map: TableMap) -> row_output_interfaces.SqlTable | None:
    """Return the table of a map for change messages; None if its column names are unknown."""
    change_table_: row_output_interfaces.SqlTable | None = table_map.memo.get("change")
    if change_table_ is None and table_map.column_keys == tuple(column.name for column in table_map.columns):
        columns = tuple(map(_build_sql_column, table_map.columns, table_map.column_keys))
        key = tuple(table_map.column_keys[index] for index, _ in table_map.primary_key or ())
        change_table_ = table_map.memo["change"] = row_output_interfaces.SqlTable(
            table_map.database, table_map.table, columns, key
        )
    return change_table_


def _build_sql_column(column: TableMapColumn, name: str) -> row_output_interfaces.SqlColumn:
    """Return the column of change messages: SQL type, size, scale, ENUM texts and exported type of a table map's
    column.
    """
    scale = column.metadata & 0xFF if column.type == _C.NEWDECIMAL else column.fraction or 0
    if column.type in _FRACTION_TYPES:
        scale = column.metadata
    return row_output_interfaces.SqlColumn(
        name,
        _sql_type_name(column),
        column.nullable,
        bool(column.unsigned),
        _precision_or_max_bytes(column),
        scale,
        column.values or (),
        _max_length_in_characters(column),
        _GEOMETRIES.get(column.geometry_type, "") if column.type == _C.GEOMETRY else "",
        exported_type_name(column),
    )


def _precision_or_max_bytes(column: TableMapColumn) -> int:
    """Return the precision of a DECIMAL, the metadata of a character or BIT column (bytes, bits), 0 for other types."""
    if column.type == _C.NEWDECIMAL:
        return column.metadata >> 8
    return column.metadata if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.BIT) else 0


def _max_length_in_characters(column: TableMapColumn) -> int:
    """Return the maximum length of a value in characters; 0 if the character set is unknown."""
    if column.type not in (_C.STRING, _C.VARCHAR, _C.VAR_STRING) or column.charset is None:
        return 0
    return column.metadata // MAX_CHARACTER_BYTES.get(column.charset, 1)


def _sql_type_name(column: TableMapColumn) -> str:
    """Return the type as SQL writes it, without its size: `int`, `varchar`, `mediumtext`."""
    if column.logical is not None and column.logical is not LogicalType.JSON:
        return str(column.logical.value)
    is_binary = column.charset == "binary"
    if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return ("" if column.type == _C.STRING else "var") + ("binary" if is_binary else "char")
    if column.type not in BLOBS and column.type != _C.BLOB_COMPRESSED:
        return _TYPE_NAMES.get(column.type) or column.type_name.lower().removesuffix("2")
    size = _BLOB_LENGTH_BYTES.get(column.type, column.metadata if column.type == _C.BLOB else 2)
    return _SIZE_PREFIXES.get(size, "") + ("blob" if is_binary else "text")


# --- Row changes of a log (`OutputRules.start_changes`) ---

_T = EventType
_XA_DECISION = re.compile(rb"XA\s+(?:COMMIT|ROLLBACK)\b", re.IGNORECASE)
_NO_MAP = "its TABLE_MAP is missing"
_UNKNOWN_NAMES = "its column names are unknown; give its CREATE TABLE with --schema FILE.sql"
_PARTIAL_IMAGES = "the log does not record all of its columns (binlog_row_image); they are left out"
_DIFF_MEMBER = "$diff"
_TRANSACTION_EVENTS = GTID_EVENTS | QUERY_EVENTS
_GTID_HEAD_BYTES = 13
"""Bytes of a GTID event of MariaDB before those that only some have, such as the number of the session."""
_NULL_JSON = b"null"


class RowChangeReader(msgspec.Struct):
    """Tracks the events of a log and produces row changes.

    Attributes:
        current: the open transaction.
        query: statement that the next row events belong to.
        status_vars: status variables of the last QUERY of the transaction.
        reported: (table, text) of findings that were already reported.
    """

    groups: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    knowledge: TableCatalog = msgspec.field(default_factory=TableCatalog)
    current: ChangeTransaction | None = None
    query: str | None = None
    status_vars: bytes = b""
    reported: set[tuple[str, str]] = msgspec.field(default_factory=set)
    cascades: CascadeReporter = msgspec.field(default_factory=CascadeReporter)
    _tables: RowEventTableReader | None = None

    def read_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """Yield the changes of each of these records; must be consumed in order."""
        self.knowledge.load_starting_definitions(context.tracker.maps.history)
        self.cascades.reported.update(context.hints.reported_tables)
        notes = context.tracker.track_batch(batch)
        for i in range(start, stop):
            scene = make_event_context(
                context, batch, i, get_event(batch, i), notes.transactions[i], notes.maps[i], limits
            )
            try:
                yield self._read_event_changes(scene)
            except (MalformedError, DecompressionError) as error:
                yield _report_unexported_event(scene, error.finding_id, str(error.args[0]))

    def encode_rows_until_unsupported(
        self,
        context: BinlogFileContext,
        batch: Batch,
        start: int,
        stop: int,
        limits: Limits,
        compile_kernel: Callable[[Kernel], Kernel],
        encode: row_output_interfaces.EncodeRows,
    ) -> tuple[bytes, int]:
        """Return the lines for the first of these records, and the next record, which needs `read_records`."""
        if self._is_file_start_in_transaction(context, batch.frames["type_code"][start]):
            return b"", start
        reader = self._tables
        if reader is None:
            reader = self._tables = row_event_table_reader.create_compiled_table_reader(compile_kernel)
            reader.groups, reader.knowledge, reader.cascades = self.groups, self.knowledge, self.cascades
        group, reader.time = self.groups.group, None if self.current is None else self.current.time
        events, reached = reader.read_rows_until_unsupported(context, batch, start, stop, limits)
        if events is None or reached == start:
            return b"", start
        tables = [self._find_table_unless_finding_due(run.buffer, events, run.event_numbers) for run in events.runs]
        known_tables = [one for one in tables if one is not None]
        lines: bytes | None = None
        if len(known_tables) == len(tables):
            codes, engine = batch.frames["type_code"], "mariadb" if context.description.is_mariadb else "mysql"
            threads = list(self._iter_json_thread_ids(batch, codes, start, events.record_indexes))
            name = context.name.rpartition("/")[2]
            offset = None if batch.container is None else batch.container.offset
            lines = encode(
                row_output_interfaces.ChangeRows(events, known_tables, threads, engine, name, batch.base, offset)
            )
        if lines is None:
            self.groups.group = group
            return b"", start
        self._rebuild_open_transaction(context, batch, start, reached, limits)
        return lines, reached

    def _find_table_unless_finding_due(
        self, buffer: Any, events: row_output_interfaces.EventRows, event_numbers: Sequence[int]
    ) -> SqlTable | None:
        """Return the table of rows; None if `read_records` has something to report about them."""
        table, doubt = build_sql_table_from_map(buffer.table_map), buffer.table_map.uncertain
        if table is not None and doubt and (table.full_name, doubt) not in self.reported:
            return None
        if table is None or (table.full_name, _PARTIAL_IMAGES) in self.reported:
            return table
        is_partial = any(events.kinds[events.kind_indexes[number]][1] for number in event_numbers)
        return None if is_partial else table

    def _iter_json_thread_ids(
        self, batch: Batch, type_codes: Any, start: int, row_event_indexes: Sequence[int]
    ) -> Iterator[bytes]:
        """Yield the session of each row event as JSON; row_event_indexes: where these are."""
        thread, position = None if self.current is None else self.current.thread, start
        starts, ends = batch.frames["body_start"], batch.frames["body_end"]
        text = _NULL_JSON if thread is None else b"%d" % thread
        for index in row_event_indexes:
            while position < index:
                code = type_codes[position]
                if code in _TRANSACTION_EVENTS:
                    body = bytes(batch.window[starts[position] : ends[position]])
                    if code not in QUERY_EVENTS:
                        has_more = code == _T.GTID and any(body[_GTID_HEAD_BYTES:])
                        number = read_mariadb_gtid(body).thread_id if has_more else None
                        text = _NULL_JSON if number is None else b"%d" % number
                    elif body.endswith(b"BEGIN"):
                        text = b"%d" % int.from_bytes(body[:4], "little")
                position += 1
            yield text

    def _rebuild_open_transaction(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> None:
        """Set the open transaction after these events, which compiled code has read."""
        group, self.query = self.groups.group, None
        if not self.groups.is_open:
            self.current = None
            return
        codes = batch.frames["type_code"]
        begin = next((i for i in range(stop - 1, start - 1, -1) if codes[i] in _TRANSACTION_EVENTS), None)
        if begin is None:
            return
        if begin > start and codes[begin] in QUERY_EVENTS and codes[begin - 1] in GTID_EVENTS:
            begin -= 1
        self.groups.reset()
        self.current = None
        notes = context.tracker.track_batch(batch)
        for i in (one for one in range(begin, stop) if codes[one] in _TRANSACTION_EVENTS):
            event = get_event(batch, i)
            self._read_event_changes(
                make_event_context(context, batch, i, event, notes.transactions[i], notes.maps[i], limits)
            )
        self.groups.group = group

    @property
    def open_transaction(self) -> str:
        """Name of the transaction whose end was not read; "" = there is none."""
        if not self.groups.is_open or self.current is None:
            return ""
        return f"{self.current.file} at {self.current.offset:,}: transaction {self.current.id or 'without GTID'}"

    def _is_file_start_in_transaction(self, context: BinlogFileContext, type_code: int) -> bool:
        """Return whether an event of this type is the start of a file before which a transaction has no end."""
        return type_code == _T.FORMAT_DESCRIPTION and self.open_transaction != "" and not context.is_relay_log

    def note_missing_records(self) -> None:
        """Handle a gap: records may be missing here, so the beginnings of open transactions are unknown."""
        self.groups.reset()
        self.current = self.query = None

    # -- events --------------------------------------------------------------------------------------------------------

    def _read_event_changes(self, event_context: EventContext) -> RecordChanges:
        """Return the change messages and findings for one event, and update the open transaction."""
        event, code = event_context.event, event_context.event.code
        if event_context.file.encrypted_without_key and code not in EVENT_TYPE_NAMES:
            return RecordChanges()  # a finding about the file reports it once
        if self._is_file_start_in_transaction(event_context.file, code):
            unfinished = row_output_interfaces.UNFINISHED_TRANSACTION.format(self.open_transaction)
            finding = make_context_event_finding(event_context, "incomplete-transaction", unfinished, Severity.WARNING)
            self.note_missing_records()
            self.groups.advance_to_event(code, event.body)
            return RecordChanges(findings=(finding,))
        step = GroupStep.OUTSIDE if code == _T.TRANSACTION_PAYLOAD else self.groups.advance_to_event(code, event.body)
        if code in GTID_EVENTS or (step is GroupStep.OPENS and self.current is None):
            self._begin_transaction(event_context)
            if code == _T.GTID:
                return RecordChanges(
                    (ChangeEvent(BEGIN, self._make_change_position(event_context, self.current), self.current),)
                )
        if code in ROW_EVENTS:
            return self._read_row_changes(event_context)
        if code in (_T.ROWS_QUERY, _T.ANNOTATE_ROWS):
            text = decode_annotation_text(bytes(event.body[code == _T.ROWS_QUERY :]), self.status_vars)
            self.query = text if isinstance(text, str) else text.decode("ascii", "backslashreplace")
        if code in QUERY_EVENTS or code == _T.EXECUTE_LOAD_QUERY:
            return self._read_query_changes(event_context, step)
        if step is GroupStep.ENDS:
            return RecordChanges(
                (self._end_transaction(event_context, parse_xid(bytes(event.body)) if code == _T.XID else None),)
            )
        if code == _T.INCIDENT:
            return _report_unexported_event(event_context, ROWS_NOT_LOGGED, row_event_table_reader.INCIDENT)
        return RecordChanges()

    def _begin_transaction(self, event_context: EventContext) -> None:
        """Set the open transaction from a GTID event, a BEGIN or the first event without a GTID."""
        event, time, thread_id = event_context.event, None, None
        if event.code == _T.GTID:
            thread_id = read_mariadb_gtid(bytes(event.body)).thread_id
        elif event.code in GTID_EVENTS and event.code != _T.ANONYMOUS_GTID:
            time = read_mysql_gtid(event.code, bytes(event.body)).original_commit_timestamp or None
        elif event.code in QUERY_EVENTS:
            thread_id = read_query_and_text(event_context)[0].thread_id
        self.query, self.status_vars = None, b""
        begun = event.code not in MYSQL_GTID_EVENTS
        self.current = ChangeTransaction(
            event_context.transaction.gtid, _file_name(event_context), event.start, time, thread_id, begun
        )

    def _end_transaction(
        self, event_context: EventContext, xid_number: int | None = None, statement: str = ""
    ) -> ChangeEvent:
        ended, self.current, self.query = self.current, None, None
        return ChangeEvent(
            END, self._make_change_position(event_context, ended), ended, statement=statement, xid=xid_number
        )

    def _end_transaction_by_statement(self, event_context: EventContext, step: GroupStep, sql: bytes) -> RecordChanges:
        """Process a statement about a transaction; a statement about a prepared transaction is a group by itself."""
        if step is not GroupStep.ENDS and not _XA_DECISION.match(sql):
            return RecordChanges()
        return RecordChanges((self._end_transaction(event_context, statement=sql.decode("utf-8", "backslashreplace")),))

    def _make_change_position(
        self, event_context: EventContext, transaction: ChangeTransaction | None
    ) -> ChangePosition:
        """Return file, offsets, server id and times of a change; the time is the transaction's commit time, else the
        event's.
        """
        event = event_context.event
        time = transaction.time if transaction is not None else None
        if time is None and event.time:
            time = event.time * 1_000_000
        engine = "mariadb" if event_context.file.description.is_mariadb else "mysql"
        logged_time = event.time or None
        return ChangePosition(
            _file_name(event_context), event.start, event.end, event.server_id, engine, time, logged_time, 0, self.query
        )

    def _read_query_changes(self, event_context: EventContext, step: GroupStep) -> RecordChanges:
        """Return the changes of a QUERY: BEGIN, DDL, and the end of a transaction; report row changes that have no row
        events.
        """
        kind, (parts, sql) = get_statement_kind(event_context), read_query_and_text(event_context)
        self.status_vars = parts.status_vars
        if kind is QueryKind.BEGIN and self.current is not None:
            self.current = msgspec.structs.replace(
                self.current, thread=parts.thread_id, has_begin=True, offset=event_context.event.start
            )
            return RecordChanges(
                (ChangeEvent(BEGIN, self._make_change_position(event_context, self.current), self.current),)
            )
        if kind is not None and kind is not QueryKind.STATEMENT:
            text = row_event_table_reader.describe_rollback(kind, sql, ends_group=step is GroupStep.ENDS)
            notes = (make_context_event_finding(event_context, ROWS_DIVERGE, text, Severity.NOTE),) if text else ()
            return msgspec.structs.replace(self._end_transaction_by_statement(event_context, step, sql), findings=notes)
        statement = row_event_table_reader.read_and_apply_statement(event_context, self.knowledge, self.cascades)
        changes, findings, table = (
            list(self._iter_ddl_changes(event_context, statement.ddl)),
            tuple[Finding, ...](),
            None,
        )
        if statement.reason:
            findings = (
                _report_unexported_event(event_context, ROWS_NOT_LOGGED, statement.reason).findings + statement.cascades
            )
            table = _make_table_without_columns(statement.table or "")
        if step in (GroupStep.ENDS, GroupStep.ALONE):
            changes.append(self._end_transaction(event_context))
        return RecordChanges(changes, findings, table)

    def _iter_ddl_changes(self, event_context: EventContext, ddl: ParsedDdl) -> Iterator[ChangeEvent]:
        """Produce the changes of a statement that defines or empties tables."""
        if not ddl.verb:
            return
        place, current = self._make_change_position(event_context, self.current), self.current
        new_names, action = dict(ddl.renames), ddl.verb.lower()
        for name in _list_ddl_targets(ddl) or [""]:
            table_database, table = split_table_name(name)[0], _make_table_without_columns(name)
            if ddl.is_truncate:
                yield ChangeEvent(TRUNCATE, place, current, table)
            yield ChangeEvent(
                DDL, place, current, table, database=table_database or ddl.database, statement=ddl.text,
                action=action if name else "", becomes=_make_table_without_columns(new_names.get(name, "")),
            )  # fmt: skip

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _read_row_changes(self, event_context: EventContext) -> RecordChanges:
        """Return one change per row of a row event; or a finding if its TABLE_MAP or column names are missing."""
        event = event_context.event
        size = event_context.file.description.table_id_size
        if event_context.table is None:
            ends_only = int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID
            return (
                RecordChanges() if ends_only else _report_unexported_event(event_context, "dangling-reference", _NO_MAP)
            )
        table_map = self.knowledge.add_known_facts_and_key(event_context.table)
        table = build_sql_table_from_map(table_map)
        if table is None:
            text = table_map.uncertain or f"{table_map.qualified_name}: {_UNKNOWN_NAMES}"
            return _report_unexported_event(event_context, COLUMNS_UNKNOWN, text)
        rows = decode_rows(event.code, event.body, table_map, event_context.limits)
        place, transaction = self._make_change_position(event_context, self.current), self.current
        if event.body[size] & STMT_END:
            self.query = None
        if event.code == _T.PARTIAL_UPDATE_ROWS:
            rows = [
                {**row, "after": _omit_partial_json_columns(fill_unchanged_json(row["before"], row["after"]))}
                for row in rows
            ]
        cascade_findings = self.cascades.report_row_event_cascades(
            self.knowledge.foreign_keys, event, size, table.full_name, lambda: rows
        )
        return RecordChanges(
            _iter_row_changes(rows, place, transaction, table),
            (
                *self._report_assumed_column_names(event_context, table_map),
                *self._report_partial_images(event_context, table, rows),
                *cascade_findings,
            ),
        )

    def _report_assumed_column_names(self, event_context: EventContext, table_map: TableMap) -> Iterator[Finding]:
        """Report column names that are only assumed, once per table."""
        text = table_map.uncertain
        if text and (table_map.full_name, text) not in self.reported:
            self.reported.add((table_map.full_name, text))
            yield make_context_event_finding(event_context, "meta-mismatch", text, Severity.WARNING)

    def _report_partial_images(
        self, event_context: EventContext, table: SqlTable, rows: list[dict[str, dict[str, object]]]
    ) -> tuple[Finding, ...]:
        """Report images that lack columns, once per table."""
        name = table.full_name
        count, findings = len(table.columns), []
        is_full = all(len(image) == count for row in rows[:1] for image in row.values())
        if not is_full and (name, _PARTIAL_IMAGES) not in self.reported:
            self.reported.add((name, _PARTIAL_IMAGES))
            findings.append(
                make_context_event_finding(
                    event_context, "statement-inexact", f"{name}: {_PARTIAL_IMAGES}", Severity.WARNING
                )
            )
        return tuple(findings)


def _list_ddl_targets(ddl: ParsedDdl) -> list[str]:
    """Return the "database.table" of each table, or the database, that change messages report as defined or emptied."""
    if ddl.kind == DATABASE:
        return [qualify_name(name, "") for name in ddl.names]
    if ddl.verb == "RENAME":
        return [old_name for old_name, _ in ddl.renames]
    return [*ddl.names] if ddl.kind == TABLE and not ddl.is_temporary else []


def _make_table_without_columns(name: str) -> SqlTable | None:
    """Return a table without columns for the name "database.table"; None if the name has no table."""
    database, table = split_table_name(name)
    return SqlTable(database, table, ()) if table else None


def _iter_row_changes(
    rows: list[dict[str, dict[str, object]]],
    position: ChangePosition,
    transaction: ChangeTransaction | None,
    table: SqlTable,
) -> Iterator[ChangeEvent]:
    """Yield the changes of an event, one per row."""
    for number, row in enumerate(rows):
        before, after = row.get("before"), row.get("after")
        kind = DELETE if after is None else INSERT if before is None else UPDATE
        row_place = position if not number else msgspec.structs.replace(position, row=number)
        yield ChangeEvent(kind, row_place, transaction, table, before, after)


def _omit_partial_json_columns(image: dict[str, object]) -> dict[str, object]:
    """Drop JSON columns for which the log has only a diff: their value is unknown."""
    if not any(isinstance(value, dict) and _DIFF_MEMBER in value for value in image.values()):
        return image
    return {name: v for name, v in image.items() if not (isinstance(v, dict) and _DIFF_MEMBER in v)}


def _report_unexported_event(event_context: EventContext, finding_id: str, reason: str) -> RecordChanges:
    """Report an event that is not exported. finding_id: damage, or the kind of information that is missing."""
    text = reason if finding_id == COLUMNS_UNKNOWN else f"{type_name(event_context.event.code)}: {reason}"
    table = event_context.table if event_context.event.code in ROW_EVENTS else None
    described_table = None if table is None else SqlTable(table.database, table.table, ())
    return RecordChanges((), (make_context_event_finding(event_context, finding_id, text),), described_table)


def _file_name(event_context: EventContext) -> str:
    return event_context.file.name.rpartition("/")[2]


def create_row_change_reader() -> RowChangeReader:
    """Create the reader of row changes (`format_api.format.OutputRules.start_changes`)."""
    return RowChangeReader()
