"""Write row events as INSERT, UPDATE and DELETE statements, or as BINLOG.

Row images are described in docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.format_api.row_output_interfaces import RowFilter, ScriptOptions
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.ddl.table_history import TableCatalog
from binlogtool.formats.binlog_events.decode import (
    NO_TRANSACTION,
    BinlogFileContext,
    OwningTransaction,
    decode_rows_body,
)
from binlogtool.formats.binlog_events.event_schemas import Event
from binlogtool.formats.binlog_events.rows.rows_event import (
    DUMMY_TABLE_ID,
    ColumnReader,
    ImageValueRange,
    ImageValueRanges,
    RowsHead,
    build_body_of_selected_rows,
    count_rows,
    decode_rows,
    list_present_columns,
    open_row_reader,
    parse_rows_head,
    uncompress_rows,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.client_safe_statements import has_lossy_backslashes
from binlogtool.formats.binlog_events.sql.format_literals import (
    format_equality_condition,
    format_json_update_expression,
    format_value_literal,
    quote_identifier,
)
from binlogtool.formats.binlog_events.sql.kernels.row_statement_kernels import MAX_INSERT_BYTES
from binlogtool.formats.binlog_events.sql.script_state import (
    MAX_BINLOG_BYTES,
    EventContext,
    PendingRowEvents,
    Statement,
    Unwritable,
    build_event,
    build_table_map_event,
    format_rows_binlog,
    rename_table_map_database,
    split_large_binlog,
)
from binlogtool.formats.binlog_events.sql.session_statements import ScriptSession
from binlogtool.formats.binlog_events.status_variables import decode_annotation_text
from binlogtool.formats.binlog_events.values.column_types import ColumnType, TableMapColumn
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    HEADER_SIZE,
    ROW_EVENTS,
    STMT_END,
    UNCOMPRESSED_ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
    FormatDescription,
)
from binlogtool.limits import Limits

# --- Reversed row events ---

_T = EventType
_OPPOSITE = {
    _T.WRITE_ROWS_V1: _T.DELETE_ROWS_V1,
    _T.DELETE_ROWS_V1: _T.WRITE_ROWS_V1,
    _T.WRITE_ROWS_V2: _T.DELETE_ROWS_V2,
    _T.DELETE_ROWS_V2: _T.WRITE_ROWS_V2,
    _T.PARTIAL_UPDATE_ROWS: _T.UPDATE_ROWS_V2,
}
_TYPES_WITH_EXTRA = frozenset({_T.WRITE_ROWS_V2, _T.DELETE_ROWS_V2, _T.UPDATE_ROWS_V2})
_EMPTY_EXTRA_DATA = (2).to_bytes(2, "little")
"""Length field of empty extra data: it includes its own two bytes. Servers determine partition ids themselves."""

ReversedEvent = tuple[EventType, bytes]
"""(type, body) of an event, uncompressed."""


class Irreversible(Exception):
    """Error: an event cannot be reversed from the contents of the log; the message says why."""


def get_opposite_event_type(type_code: int) -> EventType:
    """Return the uncompressed event type with the opposite effect."""
    uncompressed = UNCOMPRESSED_ROW_EVENTS.get(type_code) or EventType(type_code)
    return _OPPOSITE.get(uncompressed, uncompressed)


def reverse_row_event_body(type_code: int, body: memoryview, table: TableMap, limits: Limits) -> ReversedEvent:
    """Return the event with the opposite effect: INSERT for DELETE, before for after, last row first.

    Raises:
        Irreversible: images lack columns, or after images hold only diffs and nothing else identifies the row.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    opposite, is_partial = get_opposite_event_type(type_code), type_code == _T.PARTIAL_UPDATE_ROWS
    head = parse_rows_head(type_code, body, table.table_id_size)
    reader, data, at = open_row_reader(type_code, body, table, limits)
    is_minimal = type_code in UPDATE_ROW_EVENTS and _find_missing_columns(head.before, head, table) == []
    is_minimal = is_minimal and _find_missing_columns(head.after, head, table) != []
    if is_partial or not is_minimal:
        _require_full_images(head, table)
    if is_partial and not table.primary_key:
        raise Irreversible("its row images have only changed parts of JSON values, and its primary key is not known")
    if is_partial or is_minimal:
        head, images = _reverse_incomplete_updates(
            reader.iter_row_value_ranges(data, at), data, table, head, is_partial=is_partial
        )
    else:
        rows = (pairwise(bounds) for bounds in reader.iter_row_bounds(data, at))
        images = [b"".join(reversed([data[start:end] for start, end in row])) for row in rows]
    return opposite, _build_reversed_rows_head(opposite, body, head, table) + b"".join(reversed(images))


def _reverse_incomplete_updates(
    rows: Iterable[Mapping[str, ImageValueRanges]],
    data: bytes,
    table: TableMap,
    rows_head: RowsHead,
    *,
    is_partial: bool,
) -> tuple[RowsHead, list[bytes]]:
    """Return header and rows that reverse updates whose before images are complete and whose after images are not.

    Minimal after images come from binlog_row_image FULL_NODUP, or MINIMAL without a key; values not in them are
    unchanged. Partial after images have diffs of JSON values: the new before image identifies the row by its primary
    key and omits all JSON columns, which cannot be part of a key.

    Raises:
        MalformedError: the images do not fit.
    """
    present = {
        i
        for bitmap in (rows_head.before, rows_head.after)
        for i in list_present_columns(bitmap or b"", rows_head.n_cols)
    }
    if is_partial:
        present = set(list_present_columns(rows_head.after or b"", rows_head.n_cols))
        present -= {i for i, column in enumerate(table.columns) if column.type == ColumnType.JSON}
    columns, reversed_rows = sorted(present), list[bytes]()
    for row in rows:
        values = {
            image.present[field.position]: field for image in (row["before"], row["after"]) for field in image.fields
        }
        before = data[row["before"].start : row["before"].end]
        reversed_rows.append(_build_row_image(data, [values[column] for column in columns]) + before)
    bits = sum(1 << column for column in columns).to_bytes((rows_head.n_cols + 7) // 8, "little")
    return replace(rows_head, after=bits), reversed_rows


def _build_row_image(data: bytes, fields: Sequence[ImageValueRange]) -> bytes:
    """Build the row image with these values."""
    nulls = sum(1 << place for place, field in enumerate(fields) if field.start < 0)
    values = b"".join(
        data[field.start - field.column.length_prefix_bytes : field.end] for field in fields if field.start >= 0
    )
    return nulls.to_bytes((len(fields) + 7) // 8, "little") + values


def _find_missing_columns(bitmap: bytes | None, rows_head: RowsHead, table: TableMap) -> list[int]:
    """Return the columns that should be in an image but are not."""
    present = set(list_present_columns(bitmap or b"", rows_head.n_cols))
    return [i for i, column in enumerate(table.columns) if i not in present and not column.generated]


def _require_full_images(rows_head: RowsHead, table: TableMap) -> None:
    """Check that all images of a row event have all columns. Raises Irreversible: they do not."""
    for image, bitmap in (("before", rows_head.before), ("after", rows_head.after)):
        missing = [] if bitmap is None else _find_missing_columns(bitmap, rows_head, table)
        if missing:
            reason = "binlog_row_image is not FULL"
            if table.is_mariadb is not False:  # MySQL logs virtual columns
                reason += ", or they are virtual columns, which MariaDB 11 does not log: --schema declares those"
            raise Irreversible(f"{len(missing)} of {rows_head.n_cols} columns are not in the image {image}: {reason}")


def _build_reversed_rows_head(opposite: EventType, body: memoryview, rows_head: RowsHead, table: TableMap) -> bytes:
    """Return table id, flags, column count and bitmaps of the reversed event; the bitmaps of an update are
    exchanged.
    """
    prefix = bytes(body[: table.table_id_size + 2])
    bitmaps = [bitmap for bitmap in (rows_head.after, rows_head.before) if bitmap is not None]
    count_at = len(prefix) + (0 if rows_head.extra is None else 2 + len(rows_head.extra))
    count = bytes(body[count_at : rows_head.images_at - sum(map(len, bitmaps))])
    return prefix + (_EMPTY_EXTRA_DATA if opposite in _TYPES_WITH_EXTRA else b"") + count + b"".join(bitmaps)


def get_row_effect_name(type_code: int) -> str:
    """Return the effect of a row event: INSERT, UPDATE or DELETE."""
    return "DELETE" if type_code in DELETE_ROW_EVENTS else "UPDATE" if type_code in UPDATE_ROW_EVENTS else "INSERT"


# --- Row events as INSERT, UPDATE and DELETE ---

HAS_TRIGGERS = 0x4000
"""Flag of MariaDB's TABLE_MAP: the table has triggers whose changes are already in the row events."""


AUTO_UPDATED_TYPES = frozenset((ColumnType.TIMESTAMP, ColumnType.DATETIME, ColumnType.TIMESTAMP2, ColumnType.DATETIME2))
"""Column types that an UPDATE may set to the current time although it does not name them (ON UPDATE)."""


class Inexact(Exception):
    """Error: no statements have exactly the effect of a row event; the message says why."""


class ImageValue(NamedTuple):
    """Value of a row image: its column and its bytes, None for NULL.

    `is_difference`: the bytes are only a diff of a JSON value.
    """

    column_index: int
    cell: ColumnReader
    raw: bytes | None
    is_difference: bool = False


Image = list[ImageValue]


def format_flashback_statements(
    type_code: int, body: memoryview, table: TableMap, limits: Limits, *, match_all_columns: bool = False
) -> list[bytes]:
    """Return the statements that reverse a row event, last row first.

    match_all_columns: they find a row by all its columns, so that a row that was changed again is left unchanged.

    Raises:
        Inexact: no statements reverse it exactly.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    event = _create_row_statement_writer(
        get_opposite_event_type(type_code),
        dataclasses.replace(table, primary_key=None, memo={}) if match_all_columns else table,
        limits,
    )
    rows = [
        (build_row_after_change(before, after), before)
        for before, after in iter_row_images(type_code, body, table, limits)
    ]
    return event.write_statements(reversed(rows))


def build_row_after_change(before: Image, after: Image) -> Image:
    """Return the row after a change, as far as its images contain it.

    Columns that the after image lacks keep their old value; columns of which only a diff is known are omitted.
    """
    values = {value.column_index: value for value in before} if after else {}
    for value in after:
        if not value.is_difference:
            values[value.column_index] = value
        elif value.raw:
            values.pop(value.column_index, None)
    return [values[place] for place in sorted(values)]


def explain_why_no_statements(table: TableMap) -> str | None:
    """Return why no row of a table can be written as statements; None if that depends on the row."""
    if table.column_keys != tuple(column.name for column in table.columns):
        return "the names of its columns are unknown"
    if any(map(has_lossy_backslashes, map(quote_identifier, (table.database, table.table, *table.column_keys)))):
        return "some clients drop a part of its name or of a column's name"
    return "statements would fire its triggers again" if table.flags & HAS_TRIGGERS else None


def iter_row_images(type_code: int, body: memoryview, table: TableMap, limits: Limits) -> Iterator[tuple[Image, Image]]:
    """Yield (before, after) of each row; an image that the event does not have is empty."""
    reader, data, at = open_row_reader(type_code, body, table, limits)
    for row in reader.iter_row_value_ranges(data, at):
        yield (
            _make_row_image(row["before"], data) if "before" in row else [],
            _make_row_image(row["after"], data) if "after" in row else [],
        )


def find_changed_values(before: Image, after: Image) -> Image:
    """Return the values after an update that differ from those before, or that were not in the before image."""
    raw_before = {value.column_index: value.raw for value in before}
    return [
        value
        for value in after
        if (
            bool(value.raw)
            if value.is_difference
            else value.column_index not in raw_before or raw_before[value.column_index] != value.raw
        )
    ]


def _make_row_image(image: ImageValueRanges, data: bytes) -> Image:
    """Return the values of an image."""
    return [
        ImageValue(image.present[position], column, data[start:end], position in image.differences)
        if start >= 0
        else ImageValue(image.present[position], column, None)
        for position, column, start, end in image.fields
    ]


def _create_row_statement_writer(type_code: int, table: TableMap, limits: Limits) -> _RowStatementWriter:
    """Return the writer of a row event's statements.

    Raises:
        Inexact: no row of the table can be written as statements.
    """
    reason = explain_why_no_statements(table)
    if reason is not None:
        raise Inexact(reason)
    return _RowStatementWriter(type_code, table, DecodeBudget(limits))


class _RowStatementWriter(msgspec.Struct):
    """Writer of the statements of one row event."""

    code: int
    table: TableMap
    budget: DecodeBudget

    def write_statements(self, rows: Iterable[tuple[Image, Image]]) -> list[bytes]:
        """Return the statements of these rows."""
        if self.code in DELETE_ROW_EVENTS or self.code in UPDATE_ROW_EVENTS:
            return [text for before, after in rows for text in self._write_delete_or_update(before, after)]
        return self._write_inserts([after for _, after in rows])

    @property
    def _table_name(self) -> bytes:
        """The quoted name of the table."""
        return quote_identifier(self.table.database) + b"." + quote_identifier(self.table.table)

    def _get_column(self, value: ImageValue) -> TableMapColumn:
        """Return the column of a value."""
        return self.table.columns[value.column_index]

    def _iter_set_assignments(self, before: Image, after: Image) -> Iterator[tuple[bytes, bytes]]:
        """Yield (name, literal) of each column that an update changes.

        Columns that a server could set by itself are assigned their current value.
        """
        changed = {value.column_index: value for value in find_changed_values(before, after)}
        for place, column in enumerate(self.table.columns):
            value, column_name = changed.get(place), quote_identifier(column.name or "")
            if column.generated:
                continue
            if value is not None:
                yield column_name, self._format_assigned_value(value)
            elif column.type in AUTO_UPDATED_TYPES:
                yield column_name, column_name

    def _format_assigned_value(self, value: ImageValue) -> bytes:
        """Return a value, or the expression for its changes. Raises Inexact: there is no exact one."""
        if value.raw is None:
            return b"NULL"
        if value.is_difference:
            text = format_json_update_expression(quote_identifier(value.cell.key), value.raw, self.budget)
        else:
            text = format_value_literal(value.cell, self._get_column(value), value.raw, self.budget)
        if text is None:
            raise self._inexact_error(value)
        return text

    @staticmethod
    def _inexact_error(value: ImageValue) -> Inexact:
        """Return the error for a value without an exact literal."""
        return Inexact(
            f"its column {value.cell.key} has values without an exact literal, or its type is not known well enough"
        )

    def _write_inserts(self, images: list[Image]) -> list[bytes]:
        """Return rows as INSERT statements, several rows in each."""
        statements: list[bytes] = []
        rows: list[bytes] = []
        length = 0
        for image in images:
            values = [value for value in image if not self._get_column(value).generated]
            columns = b",".join(quote_identifier(value.cell.key) for value in values)
            rows.append(b"(" + b",".join(map(self._format_assigned_value, values)) + b")")
            length += len(rows[-1])
            if length >= MAX_INSERT_BYTES or image is images[-1]:
                statements.append(b"INSERT INTO %b (%b) VALUES\n%b" % (self._table_name, columns, b",\n".join(rows)))
                rows, length = [], 0
        return statements

    def _write_delete_or_update(self, before: Image, after: Image) -> list[bytes]:
        """Return the DELETE or UPDATE of a row; nothing for an update that changes nothing."""
        condition = self._format_where_condition(before)
        if self.code in DELETE_ROW_EVENTS:
            return [b"DELETE FROM %b WHERE %b LIMIT 1" % (self._table_name, condition)]
        changed = find_changed_values(before, after)
        if not changed:
            return []
        if all(self._get_column(value).generated for value in changed):
            raise Inexact("an update changes no column that a statement can set")
        values = b", ".join(column + b"=" + text for column, text in self._iter_set_assignments(before, after))
        return [b"UPDATE %b SET %b WHERE %b LIMIT 1" % (self._table_name, values, condition)]

    def _format_where_condition(self, image: Image) -> bytes:
        """Return the condition that selects the row: by its primary key if known, else by all its values."""
        key_columns = {index for index, _ in self.table.primary_key or ()}
        has_key = bool(key_columns) and key_columns <= {value.column_index for value in image}
        values = [v for v in image if (v.column_index in key_columns if has_key else not self._get_column(v).generated)]
        if not values:
            raise Inexact("the log does not identify the row")
        conditions = []
        for value in values:
            term = format_equality_condition(
                value.cell, self._get_column(value), value.raw, self.budget, is_key=has_key
            )
            if term is None:
                raise self._inexact_error(value)
            conditions.append(term)
        return b" AND ".join(conditions)


# --- Row events in a script ---


class RowEventWriter(msgspec.Struct):
    """Writer of the row events of a script.

    `reported`: (table, reason) of tables that were reported because their rows are not written as the requested
    statements.
    """

    options: ScriptOptions
    session: ScriptSession
    knowledge: TableCatalog = msgspec.field(default_factory=TableCatalog)
    reported: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _filling_owner: tuple[int, OwningTransaction] = (0, NO_TRANSACTION)
    _pending: PendingRowEvents = msgspec.field(default_factory=PendingRowEvents)

    def write_row_event(self, context: EventContext) -> tuple[Sequence[Statement], str | None]:
        """Return the statements that can be written now, and a text about what is inexact in them, or None.

        Raises:
            Unwritable, MalformedError, DecompressionError: the event cannot be written.
        """
        table = self._get_required_table_map(context)
        if table is None:
            return self.end_pending_statement(context.file.description), None
        if self.options.includes_table is not None and not self.options.includes_table(table.qualified_name):
            return [], None
        if context.left_out:
            is_last = context.event.body[table.table_id_size] & STMT_END
            return self.end_pending_statement(context.file.description) if is_last else [], None
        if self.options.rows == "statements":
            return (
                ([], None)
                if context.event.code == EventType.TABLE_MAP
                else self._write_rows_as_statements(context, table)
            )
        table = rename_table_map_database(table, self.options.rename_databases)
        return self._hold_table_map(
            context, table
        ) if context.event.code == EventType.TABLE_MAP else self._append_pending_row_event(context, table), None

    def _get_required_table_map(self, context: EventContext) -> TableMap | None:
        """Return the table of a row event; None if the event only ends its statement.

        Raises:
            Unwritable: the TABLE_MAP is missing or cannot be read.
            MalformedError: the event has no flags.
        """
        size = context.file.description.table_id_size
        if context.event.code != EventType.TABLE_MAP and len(context.event.body) < size + 2:
            raise MalformedError("the row event is truncated")
        if context.table is not None:
            return context.table
        if context.event.code == EventType.TABLE_MAP:
            raise Unwritable("it cannot be read")
        if int.from_bytes(context.event.body[:size], "little") == DUMMY_TABLE_ID:
            return None
        raise Unwritable("its TABLE_MAP is missing")

    # -- exact ---------------------------------------------------------------------------------------------------------

    def _hold_table_map(self, context: EventContext, table: TableMap) -> Sequence[Statement]:
        """Keep a TABLE_MAP until the rows of its statement; return statements that end before it."""
        statements = self.end_pending_statement(context.file.description) if self._pending.last_event else []
        self._pending.table_maps[table.table_id] = self._build_event_for_server(context, table.body)
        return statements

    @staticmethod
    def _build_event_for_server(context: EventContext, body: bytes | None = None) -> bytes:
        """Return the event in the form that a server with the log's FORMAT_DESCRIPTION reads.

        `context`: the event. `body`: body to use instead of the event's own.
        """
        event, description = context.event, context.file.description
        checksum_size = len(context.raw) - HEADER_SIZE - len(event.body)
        if checksum_size == (4 if description.has_checksums else 0) and (body is None or body == event.body):
            return bytes(context.raw)
        return build_event(event, event.code, bytes(event.body) if body is None else body, description)

    def _append_pending_row_event(self, context: EventContext, table: TableMap) -> Sequence[Statement]:
        """Add a row event to the pending BINLOG statement; return the statements that are complete."""
        event, description, pending = context.event, context.file.description, self._pending
        _require_matching_rows(event.code, event.body, table, context.limits)
        statements: list[Statement] = []
        if table.table_id not in pending.table_maps:
            statements = [*pending.format_pending_binlog(description)]
            pending.table_maps[table.table_id] = build_table_map_event(event, table, description)
        if event.code in COMPRESSED_ROW_EVENTS:
            code, uncompressed = uncompress_rows(event.code, event.body, table, context.limits)
            data = build_event(event, code, uncompressed, description)
        else:
            data = self._build_event_for_server(context)
        if pending.last_event and pending.size + len(data) > MAX_BINLOG_BYTES:
            statements += pending.format_pending_binlog(description)
        pending.append_event(data)
        return [
            *statements,
            *(pending.finish_statement(description) if event.body[table.table_id_size] & STMT_END else ()),
        ]

    @property
    def open_statement(self) -> PendingRowEvents | None:
        """Open statement whose row events are written unchanged; None if there is no such statement."""
        wording = self.options
        selects = wording.includes_table is not None or wording.comments or wording.rename_databases
        return self._pending if self._pending.last_event and wording.rows == "exact" and not selects else None

    def end_pending_statement(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the pending events as a statement although their own statement continues.

        To be called if the following events are not selected.
        """
        return self._pending.finish_statement(description)

    @property
    def is_empty(self) -> bool:
        """True if no events wait for the end of their statement."""
        return not self._pending.table_maps and not self._pending.last_event

    def discard_pending_events(self) -> None:
        """Drop the pending events, because their transaction is rolled back."""
        self._pending = PendingRowEvents()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _write_rows_as_statements(
        self, context: EventContext, table: TableMap
    ) -> tuple[Sequence[Statement], str | None]:
        """Return the rows of an event as INSERT, UPDATE and DELETE, or as BINLOG with the reason."""
        event, description = context.event, context.file.description
        if not count_rows(event.code, event.body, table, context.limits):  # raises if the event does not fit its map
            return [], None
        table = self.knowledge.add_known_facts_and_key(table)
        reason, caveat = (
            self.knowledge.explain_why_not_as_statements(table, description),
            self.knowledge.explain_possible_inexactness(table),
        )
        table = rename_table_map_database(table, self.options.rename_databases)
        if self._is_filling_new_table(context):
            return [format_rows_binlog(event, table, description, context.limits)], None
        try:
            statements = (
                _create_row_statement_writer(event.code, table, context.limits).write_statements(
                    iter_row_images(event.code, event.body, table, context.limits)
                )
                if reason is None
                else []
            )
        except Inexact as error:
            reason, statements = str(error), []
        if (
            reason is not None
        ):  # MariaDB's maps say themselves that a table has triggers: its rows were never statements
            report = None if table.flags & HAS_TRIGGERS else self._get_reason_once(table, reason)
            return split_large_binlog(
                format_rows_binlog(event, table, description, context.limits), description
            ), report
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        return [
            *self.session.write_session_for_rows(flags, event.time, description),
            *statements,
        ], self._get_reason_once(table, caveat)

    def _is_filling_new_table(self, context: EventContext) -> bool:
        """Return whether these rows fill a table that is being created; servers accept only row events for it."""
        filling = self.knowledge.filling
        if filling and self._filling_owner[0] != filling:
            self._filling_owner = (filling, context.transaction)
        if filling and self._filling_owner[1] != context.transaction:
            self.knowledge.filling = 0
        return self.knowledge.filling > 0

    def is_unreported(self, table: TableMap, reason: str | None) -> bool:
        """Return whether this reason was not yet reported for the table."""
        return reason is not None and (table.qualified_name, reason) not in self.reported

    def _get_reason_once(self, table: TableMap, reason: str | None) -> str | None:
        """Return the reason with the table's name the first time, and None afterwards."""
        if reason is None or not self.is_unreported(table, reason):
            return None
        self.reported.add((table.qualified_name, reason))
        return f"{table.qualified_name}: {reason}"


def _require_matching_rows(type_code: int, body: bytes | memoryview, table: TableMap, limits: Limits) -> None:
    """Check that rows fit their TABLE_MAP; a server stops at an event whose rows do not.

    Rows of old table maps that do not state the length of some values cannot be checked.

    Raises:
        MalformedError, DecompressionError: the rows do not fit.
    """
    try:
        count_rows(type_code, body, table, limits)
    except MalformedError:
        if not table.has_unknown_fractions:
            raise


# --- Row events as comments in a script (`--comments`) ---

_MAX_VALUE_CHARACTERS = 1 << 12
"""Maximum number of characters of a value that are shown."""


_ESCAPED = "# the log does not name the character set of this statement: bytes that are not ASCII are escaped\n"


def format_row_comments(context: EventContext, table: TableMap) -> bytes:
    """Return the rows of a row event as comments; nothing for other events.

    Raises:
        MalformedError, DecompressionError: the event does not fit its table.
    """
    if context.event.code not in ROW_EVENTS:
        return b""
    rows = decode_rows(context.event.code, context.event.body, table, context.limits)
    lines = (line for row in rows for line in _iter_row_comment_lines(context.event.code, row, table))
    return "".join(f"### {line}\n" for line in lines).encode()


def format_annotation_comments(context: EventContext, status_vars: bytes) -> bytes:
    """Return, as comments, the statement that the following row events belong to, if the log has it.

    Args:
        status_vars: status variables of the last QUERY of the transaction, which name the client's character set.
    """
    code, body = context.event.code, bytes(context.event.body)
    if code not in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return b""
    text, remark = decode_annotation_text(body[code == _T.ROWS_QUERY :], status_vars), ""
    if isinstance(text, bytes):
        text, remark = text.decode("ascii", "backslashreplace"), _ESCAPED
    return (remark + "".join(f"#Q> {_make_printable(line)}\n" for line in text.splitlines())).encode()


def _iter_row_comment_lines(type_code: int, row: Mapping[str, Any], table: TableMap) -> Iterator[str]:
    """Yield the comment lines of one row."""
    target = f"{_quote_name(table.database)}.{_quote_name(table.table)}"
    if type_code in DELETE_ROW_EVENTS:
        yield f"DELETE FROM {target}"
    else:
        yield f"UPDATE {target}" if type_code in UPDATE_ROW_EVENTS or "before" in row else f"INSERT INTO {target}"
    for image, word in (("before", "WHERE"), ("after", "SET")):
        if image in row:
            yield word
            yield from (f"  {_quote_name(key)}={_format_printable_value(value)}" for key, value in row[image].items())


def _quote_name(name: str) -> str:
    """Return a printable name between backticks."""
    return "`" + _make_printable(name.replace("`", "``")) + "`"


def _format_printable_value(value: Any) -> str:
    """Return a value in printable form, shortened."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value[: _MAX_VALUE_CHARACTERS // 2].hex()}'{_format_length(len(value), _MAX_VALUE_CHARACTERS // 2)}"
    text = json.dumps(value, ensure_ascii=False, default=lambda one: one.hex() if isinstance(one, bytes) else str(one))
    return _make_printable(text[:_MAX_VALUE_CHARACTERS]) + _format_length(len(text), _MAX_VALUE_CHARACTERS)


def _format_length(size: int, limit: int) -> str:
    """Return a text with the full length of a value that is shown only in part."""
    return f" … of {size:,}" if size > limit else ""


def _make_printable(text: str) -> str:
    """Return the text without characters that end a line or control a terminal."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text).encode("utf-8", "replace").decode()


# --- Row events reduced to the rows selected by a condition ---


def select_rows_by_filter(
    context: BinlogFileContext, event: Event, table: TableMap, row_filter: RowFilter | None, limits: Limits
) -> tuple[Event | None, bool | Sequence[bool]]:
    """Return the event with its selected rows, and for each row, or for all, whether it is selected.

    The event is None if no row is selected, and uncompressed if rows were removed.

    Args:
        table: its table, with all known facts about its columns.

    Raises:
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP, or the log does not name a column of
            the condition.
    """
    if row_filter is None:
        return event, True
    decode = cache(partial(_decode_rows_for_filter, context, event, table, row_filter, limits))
    selection = row_filter.select_rows(event.batch_index, decode)
    if isinstance(selection, bool):
        return (event if selection else None), selection
    if all(selection) or not count_rows(event.code, event.body, table, limits):
        return event, selection
    if not any(selection):
        return None, selection
    code, uncompressed = uncompress_rows(event.code, event.body, table, limits)
    rows = memoryview(build_body_of_selected_rows(code, uncompressed, table, selection))
    return event._replace(code=int(code), body=rows), selection


def _decode_rows_for_filter(
    context: BinlogFileContext, event: Event, table: TableMap, row_filter: RowFilter, limits: Limits
) -> dict[str, Any]:
    """Decode a row event for a condition."""
    missing = sorted(row_filter.columns - set(table.column_keys))
    if missing and any(column.name is None for column in table.columns):
        message = f"{table.qualified_name}: the log has no column names, so --where cannot find {missing[0]}"
        raise MalformedError(f"{message}; add --schema FILE.sql, or name the column by its number, as in after.`@1`")
    return decode_rows_body(context, event.code, event.body, table, limits)
