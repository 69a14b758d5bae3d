"""Effects of events: row changes by primary key if known, else as whole rows; statements as text.

The key of a table comes from TABLE_MAP (binlog_row_metadata=FULL), else from the last CREATE TABLE in the log. RENAME
moves the rows to the new name. If a statement changes rows in a way that only a server can know, the table is in
`unknown_objects`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    ADD,
    DELETE,
    DROP,
    PATCH,
    PUT,
    REMOVE,
    RENAME,
    EffectReader,
    StateChange,
    encode_canonical,
)
from binlogtool.format_api.row_output_interfaces import qualify_name
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl, parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    DeclaredKey,
    find_declared_primary_key,
    find_next_word_offset,
    split_words_in_parentheses,
)
from binlogtool.formats.binlog_events.replay.simulated_applier import classify_statement, decode_body_text
from binlogtool.formats.binlog_events.transactions.boundaries import QueryKind
from binlogtool.formats.binlog_events.wire_format import ROW_EVENTS

STATEMENTS = "(statements)"
"""Object name for statements: their texts and variables, as rows without a key."""

MAX_TABLES = 100_000
"""Maximum number of tables whose keys are remembered."""

_WRITES_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH)\b", re.I)

_new_tuple = tuple.__new__
_decode_image = msgspec.msgpack.Decoder().decode

RowValues = Mapping[str, Any]


class KeyedTable(NamedTuple):
    """Table as described by its last TABLE_MAP.

    `columns`: number of columns. `key`: (column name, characters in the key; 0 = all).
    """

    columns: int
    key: tuple[tuple[str, int], ...]


class EventEffectReader(EffectReader):
    """Reader of the state changes that events cause (`EffectReader`)."""

    def __init__(self) -> None:
        self._maps: dict[tuple[Any, ...], KeyedTable] = {}
        self._tables: dict[str, KeyedTable] = {}
        self._create_statements: dict[str, str] = {}
        self._tables_with_rows: set[str] = set()
        self._unknown_tables: dict[str, str] = {}
        self._pending_variables: list[Any] = []
        self._load_data_hash = hashlib.sha256()

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of one event."""
        reader = _EFFECT_READERS.get(records.envelope.type[index])
        body = records.bodies[index]
        return () if reader is None or body is None else reader(self, records.envelope.object[index] or "", body)

    def get_reasons_of_unknown_objects(self) -> Mapping[str, str]:
        """Return the tables whose rows may differ because of the log's statements, with the reason."""
        return self._unknown_tables

    # -- tables ------------------------------------------------------------------------------------------------------

    def _store_table_map(self, name: str, body: RowValues) -> Iterable[StateChange]:
        """Store a TABLE_MAP: until a restart, a server uses a new table id for each definition of a table."""
        map_key = (name, body["table_id"], len(body["columns"]))
        table = self._maps.get(map_key)
        if table is None:
            if len(self._maps) >= MAX_TABLES:
                self._maps.clear()
                self._tables.clear()
            table = self._maps[map_key] = self._make_keyed_table(name, body)
        self._tables[name] = table
        return ()

    def _make_keyed_table(self, name: str, body: RowValues) -> KeyedTable:
        """Return a table with its primary key."""
        columns, key = body["columns"], body.get("primary_key")
        if key is not None:
            return KeyedTable(len(columns), tuple((part["column"], part.get("prefix", 0)) for part in key))
        declared = parse_primary_key(self._create_statements.get(name, ""))
        if declared is None or declared.columns > len(columns):
            return KeyedTable(len(columns), ())
        names = [column.get("name") for column in columns]
        if None in names or len(set(names)) != len(names):
            names = [f"@{number}" for number in range(1, len(columns) + 1)]
        return KeyedTable(len(columns), tuple((names[index], size) for index, size in declared.parts))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _read_row_changes(self, name: str, body: RowValues) -> Iterable[StateChange]:
        """Return the changes of a row event."""
        rows = body.get("rows")
        if not rows:
            return ()
        self._tables_with_rows.add(name)
        table = self._tables.get(name)
        if table is None or not table.key:
            return _iter_whole_rows(name, rows)
        return _iter_keyed_rows(name, rows, table)

    # -- statements --------------------------------------------------------------------------------------------------

    def _keep_variable_for_statement(self, name: str, body: RowValues) -> Iterable[StateChange]:
        """Keep an INTVAR, RAND or USER_VAR event for the next statement."""
        self._pending_variables.append(body)
        return ()

    def _hash_load_data_part(self, name: str, body: RowValues) -> Iterable[StateChange]:
        """Hash a part of the file that LOAD DATA reads."""
        self._load_data_hash.update(body.get("data", b""))
        return ()

    def _read_statement_changes(self, name: str, body: RowValues) -> Iterable[StateChange]:
        """Return the changes of a statement."""
        sql, database = decode_body_text(body.get("sql")), decode_body_text(body.get("db"))
        if classify_statement(sql) is not QueryKind.STATEMENT:
            return ()
        pending, self._pending_variables = self._pending_variables, []
        if "file_id" in body:
            pending.append(self._load_data_hash.hexdigest())
            self._load_data_hash = hashlib.sha256()
        statement = StateChange(STATEMENTS, ADD, b"", encode_canonical([database, body.get("sql"), pending]))
        ddl = parse_ddl(sql, database)
        if ddl.verb:
            return [*self._iter_ddl_changes(ddl), statement]
        if _WRITES_ROWS.match(sql, find_next_word_offset(sql)):
            self._unknown_tables[STATEMENTS] = (
                "statements that write rows: only a server knows their effect on the tables"
            )
        return (statement,)

    def _iter_ddl_changes(self, ddl: ParsedDdl) -> Iterator[StateChange]:
        """Yield the changes of a statement that concerns tables."""
        for name in ddl.tables_losing_rows:
            yield self._empty_table(name, keeps_table=ddl.is_truncate)
        if ddl.dropped_database is not None:
            prefix = qualify_name(ddl.dropped_database, "")
            for name in sorted({*self._tables_with_rows, *self._create_statements}):
                if name.startswith(prefix):
                    yield self._empty_table(name)
        if ddl.clauses.error and not ddl.is_temporary:
            table = ddl.altered or ddl.created
            self._forget_definition(table or "")
            self._mark_rows_unknown(
                table or STATEMENTS, f"a statement about tables cannot be read: {ddl.clauses.error}"
            )
        elif ddl.created is not None:
            has_file = ddl.created in self._create_statements or ddl.created in self._tables_with_rows
            if not (ddl.is_conditional and has_file):
                self._store_created_table(ddl.created, ddl)
        elif ddl.altered is not None and not ddl.clauses.keeps_rows:
            self._mark_altered_rows_unknown(ddl.altered, ddl)
        for old_name, new_name in ddl.renames:
            yield self._rename_table(old_name, new_name)

    def _mark_altered_rows_unknown(self, table: str, ddl: ParsedDdl) -> None:
        """Mark the rows of an altered table, and of one that is exchanged with its partition, as unknown."""
        if ddl.may_change_key:
            self._forget_definition(table)
        changed_tables = (table, ddl.clauses.exchanged)
        for name in changed_tables if self._tables_with_rows.intersection(changed_tables) else ():
            self._mark_rows_unknown(
                name or table, "ALTER TABLE changed the table while it had rows: these are counted as they were logged"
            )

    def _store_created_table(self, table: str, ddl: ParsedDdl) -> None:
        """Store the definition of a created table; if it is filled by a SELECT, mark its rows as unknown."""
        source = ddl.clauses.like_source
        definition = ddl.text if source is None else self._create_statements.get(source)
        self._forget_definition(table)
        if definition is not None and len(self._create_statements) < MAX_TABLES:
            self._create_statements[table] = definition
        if ddl.clauses.has_select:
            self._mark_rows_unknown(table, "CREATE TABLE ... SELECT filled it with rows that only a server knows")

    def _rename_table(self, old_name: str, new_name: str) -> StateChange:
        """Return the change for a rename; the table keeps its rows and its key."""
        definition, had_rows, reason = (
            self._create_statements.get(old_name),
            old_name in self._tables_with_rows,
            self._unknown_tables.get(old_name),
        )
        for name in (old_name, new_name):
            self._empty_table(name)
        if definition is not None:
            self._create_statements[new_name] = definition
        if had_rows:
            self._tables_with_rows.add(new_name)
        if reason is not None:
            self._mark_rows_unknown(new_name, reason)
        return _new_tuple(StateChange, (old_name, RENAME, b"", new_name.encode(errors="surrogatepass")))

    def _empty_table(self, name: str, *, keeps_table: bool = False) -> StateChange:
        """Return the change that empties a table; if the table is dropped, its definition is removed too."""
        if not keeps_table:
            self._forget_definition(name)
        self._tables_with_rows.discard(name)
        self._unknown_tables.pop(name, None)
        return StateChange(name, DROP, b"", b"")

    def _mark_rows_unknown(self, name: str, reason: str) -> None:
        """Mark a table whose rows are no longer known."""
        if len(self._unknown_tables) < MAX_TABLES:
            self._unknown_tables[name] = reason

    def _forget_definition(self, name: str) -> None:
        """Forget the definition of a table."""
        self._create_statements.pop(name, None)
        self._maps.clear()


def parse_primary_key(create_table: str) -> DeclaredKey | None:
    """Return the primary key that a CREATE TABLE declares; None if it declares none, or cannot be read."""
    return find_declared_primary_key(split_words_in_parentheses(parse_ddl(create_table, "").clauses.words)[0])


def _iter_whole_rows(name: str, rows: Sequence[Mapping[str, RowValues]]) -> Iterator[StateChange]:
    """Yield row changes of a table without a key, as whole rows."""
    for row in rows:
        if "before" in row:
            yield _new_tuple(StateChange, (name, REMOVE, b"", encode_canonical(row["before"])))
        if "after" in row:
            yield _new_tuple(StateChange, (name, ADD, b"", encode_canonical(row["after"])))


def _iter_keyed_rows(name: str, rows: Sequence[Mapping[str, RowValues]], table: KeyedTable) -> Iterator[StateChange]:
    """Yield row changes of a table by primary key."""
    count, parts = table
    for row in rows:
        before, after = row.get("before"), row.get("after")
        if after is None:
            yield _new_tuple(StateChange, (name, DELETE, _encode_primary_key(parts, before or {}, {}), b""))
        elif before is None:
            yield _new_tuple(StateChange, (name, PUT, _encode_primary_key(parts, after, {}), encode_canonical(after)))
        else:
            old_key, key = _encode_primary_key(parts, before, after), _encode_primary_key(parts, after, before)
            if key == old_key:
                yield _new_tuple(
                    StateChange, (name, PUT if len(after) == count else PATCH, key, encode_canonical(after))
                )
            else:
                yield _new_tuple(StateChange, (name, DELETE, old_key, b""))
                yield _new_tuple(
                    StateChange,
                    (name, PUT, key, encode_canonical(after if len(after) == count else {**before, **after})),
                )


def _encode_primary_key(key_parts: tuple[tuple[str, int], ...], row: RowValues, other_image: RowValues) -> bytes:
    """Return the key of a row; columns that the image lacks are taken from the other image."""
    values = []
    for name, prefix in key_parts:
        value = row[name] if name in row else other_image.get(name)
        values.append(value[:prefix] if prefix and isinstance(value, str | bytes) else value)
    return encode_canonical(values)


def apply_update_to_row(row_image: bytes, changed_columns: bytes) -> bytes | None:
    """Return a row with the columns that an update changed; None if one of the arguments is not a row image."""
    try:
        old_values, new_values = _decode_image(row_image), _decode_image(changed_columns)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return (
        encode_canonical({**old_values, **new_values})
        if isinstance(old_values, dict) and isinstance(new_values, dict)
        else None
    )


_EFFECT_READERS: Mapping[str, Callable[[EventEffectReader, str, RowValues], Iterable[StateChange]]] = {
    **dict.fromkeys((kind.name for kind in ROW_EVENTS), EventEffectReader._read_row_changes),
    **dict.fromkeys(("INTVAR", "RAND", "USER_VAR"), EventEffectReader._keep_variable_for_statement),
    **dict.fromkeys(("BEGIN_LOAD_QUERY", "APPEND_BLOCK"), EventEffectReader._hash_load_data_part),
    **dict.fromkeys(("QUERY", "QUERY_COMPRESSED", "EXECUTE_LOAD_QUERY"), EventEffectReader._read_statement_changes),
    "TABLE_MAP": EventEffectReader._store_table_map,
}
