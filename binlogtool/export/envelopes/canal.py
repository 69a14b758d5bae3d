"""Canal's flat messages (FlatMessage of its MQ producers): one per row event, one per DDL statement.

All values are texts. `id` and `ts` come from a running Canal and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.export.envelopes.convert_values import (
    ChangeMessage,
    document_to_spaced_json,
    format_java_double,
    to_json_safe_text,
)
from binlogtool.format_api.row_output_interfaces import (
    DDL,
    DELETE,
    END,
    ROW_KINDS,
    UPDATE,
    ChangeEvent,
    Image,
    SqlColumn,
    SqlTable,
)

Message = dict[str, Any]
_ACTIONS = {"create": "CREATE", "alter": "ALTER", "drop": "ERASE", "rename": "RENAME", "truncate": "TRUNCATE"}
_INDEX_STATEMENT = re.compile(
    r"""^\s*(?:(?P<verb>CREATE|DROP)\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL|OR\s+REPLACE)\s+)*INDEX\b
    |ALTER\b[^,]*?\b(?P<item>ADD|DROP)\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL)\b|(?:INDEX|KEY)\b))""",
    re.IGNORECASE | re.VERBOSE,
)
"""Pattern of a statement whose first clause is about an index."""
_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_STATEMENT_TABLE = re.compile(
    rf"\s*(?:INSERT\s+(?:\w+\s+)*?INTO|UPDATE(?:\s+LOW_PRIORITY)?(?:\s+IGNORE)?|DELETE\s+(?:\w+\s+)*?FROM)"
    rf"\s+(?:{_NAME}\s*\.\s*)?(?P<table>{_NAME})", re.IGNORECASE
)  # fmt: skip
"""Pattern of the first table name in a statement."""
_CLOB, _BLOB, _VARCHAR = 2005, 2004, 12
_JDBC_TYPES: Mapping[str, int] = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 7, "double": 8, "decimal": 3,
    "bit": -7, "enum": 4, "set": -7, "year": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "char": 1,
    "varchar": 12, "binary": _BLOB, "varbinary": _BLOB, "json": 12, "geometry": _BLOB,
}  # fmt: skip
"""MySQL type -> type number of java.sql.Types."""
_UNSIGNED_JDBC = {"tinyint": (1 << 7, 5), "smallint": (1 << 15, 4), "int": (1 << 31, -5), "bigint": (1 << 63, 3)}
"""Unsigned type -> (limit, JDBC type of values from this limit on)."""
_NULL_JDBC_TYPES = {"set": _BLOB, "json": 1111}
"""MySQL type -> JDBC type of NULL, where it differs from the JDBC type of values."""
_EMPTY_MESSAGE: Message = {
    "data": None, "database": "", "es": None, "gtid": "", "isDdl": False, "mysqlType": None, "old": None,
    "pkNames": None, "sql": "", "sqlType": None, "table": "", "type": "",
}  # fmt: skip


class CanalEncoder(msgspec.Struct):
    """Encoder of changes as Canal messages. query: the statement of the last QUERY message."""

    query: str | None = None

    def encode_changes(self, changes: Iterable[ChangeEvent]) -> Iterator[ChangeMessage]:
        """Yield the messages for the changes of a record."""
        rows, statement = list[ChangeEvent](), None
        for change in changes:
            if change.kind in ROW_KINDS and change.table is not None:
                rows.append(change)
            elif change.kind == DDL and change.action and statement is None:  # only its first table is reported
                statement = change
            elif change.kind == END and change.statement[:3].upper() == "XA ":
                word = change.statement.split()[1].upper()
                yield _build_message(change, f"XA{word}", sql=to_json_safe_text(change.statement)), change
        if statement is not None:
            yield _ddl_message(statement), statement
        if rows:
            yield from self._encode_query_if_new(rows[0])
            yield _rows_message(rows), rows[0]

    def _encode_query_if_new(self, change: ChangeEvent) -> Iterator[ChangeMessage]:
        """Yield a message for the statement that changed rows, before its first row."""
        query = change.place.query
        if query is not None and query is not self.query:
            table = _find_table_name_in_query(change, query)
            yield _build_message(change, "QUERY", table=table, sql=to_json_safe_text(query)), change
        self.query = query

    def release_uncommitted_messages(self) -> Iterator[ChangeMessage]:
        """Return an empty iterator: no message is held back."""
        return iter(())


def _rows_message(changes: list[ChangeEvent]) -> Message:
    first, table = changes[0], changes[0].table
    assert table is not None
    columns = {column.name: column for column in table.columns}
    images = [change.before if change.kind == DELETE else change.after for change in changes]
    data, old = [_image_texts(columns, image or {}) for image in images], None
    if first.kind == UPDATE:
        old = list(
            _old_values_of_changed_columns(data, [_image_texts(columns, change.before or {}) for change in changes])
        )
    columns_shown = [columns[name] for name in images[-1] or ()]
    return _build_message(
        first,
        first.kind.upper(),
        database=table.database,
        table=table.name,
        data=data,
        old=old,
        pkNames=[column.name for column in table.columns if column.name in table.key] or None,
        mysqlType={column.name: _mysql_type(column) for column in columns_shown},
        sqlType={column.name: _jdbc_type_code(column, images[-1] or {}) for column in columns_shown},
    )


def _ddl_message(change: ChangeEvent) -> Message:
    table: SqlTable | None = change.becomes or change.table
    return _build_message(
        change,
        _classify_ddl_for_canal(change, table),
        database=change.database if table is None else table.database,
        table="" if table is None else table.name,
        isDdl=True,
        sql=to_json_safe_text(change.statement),
    )


def _classify_ddl_for_canal(change: ChangeEvent, table: SqlTable | None) -> str:
    """Return Canal's message type of a DDL statement: CREATE, ALTER, ERASE, RENAME, TRUNCATE, CINDEX, DINDEX or
    QUERY.
    """
    if table is None:
        return "QUERY"
    if change.becomes is not None:
        return "RENAME"
    match = _INDEX_STATEMENT.search(change.statement) if change.action == "alter" else None
    if match is not None:
        return "DINDEX" if (match["item"] or match["verb"]).upper() == "DROP" else "CINDEX"
    return _ACTIONS.get(change.action, "QUERY")


def _build_message(change: ChangeEvent, kind: str, **members: Any) -> Message:
    """Return a message with its members in Canal's order."""
    es = None if change.place.logged is None else change.place.logged * 1000
    return {**_EMPTY_MESSAGE, "es": es, "type": kind, **members}


def _find_table_name_in_query(change: ChangeEvent, query: str) -> str:
    """Return the table that the statement names; empty for MariaDB, and for REPLACE and LOAD."""
    match = _STATEMENT_TABLE.match(query) if change.place.engine == "mysql" else None
    return "" if match is None else match["table"].strip("`").replace("``", "`")


def _old_values_of_changed_columns(after_rows: list[Message], before_rows: list[Message]) -> Iterator[Message]:
    """Yield the old values of each row for columns that changed in it or in an earlier row of the message."""
    changed = set[str]()
    for row, old_row in zip(after_rows, before_rows, strict=True):
        changed |= {name for name, value in row.items() if name not in old_row or old_row[name] != value}
        yield {name: value for name, value in old_row.items() if name in changed}


def _image_texts(columns: dict[str, SqlColumn], image: Image) -> Message:
    return {name: None if value is None else _to_text(columns[name], value) for name, value in image.items()}


def _to_text(column: SqlColumn, value: Any) -> str:
    if column.type == "json" and not isinstance(value, bytes):
        return document_to_spaced_json(value)
    if column.type == "enum" and isinstance(value, str):
        return str(column.values.index(value) + 1 if value in column.values else 0)
    if column.type == "set" and isinstance(value, list):
        return str(sum(1 << column.values.index(one) for one in value))
    if column.type == "geometry" and not isinstance(value, bytes):
        value = value["srid"].to_bytes(4, "little") + value["wkb"]
    if isinstance(value, float):
        return format_java_double(value)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _jdbc_type_code(column: SqlColumn, image: Image) -> int:
    """Return the java.sql.Types number of a column's value in this row image; unsigned values may need a wider type."""
    value = image.get(column.name)
    if value is None:
        return _NULL_JDBC_TYPES.get(column.type) or _default_jdbc_type_code(column)
    if column.type in _UNSIGNED_JDBC and column.unsigned:
        first_wider, wider_type = _UNSIGNED_JDBC[column.type]
        if value >= first_wider:
            return wider_type
    return _default_jdbc_type_code(column)


def _default_jdbc_type_code(column: SqlColumn) -> int:
    if column.type.endswith("text"):
        return _CLOB
    return _BLOB if column.type.endswith("blob") else _JDBC_TYPES.get(column.type, _VARCHAR)


def _mysql_type(column: SqlColumn) -> str:
    """Return the column's MySQL type, as far as the log contains it."""
    word = column.geometry or column.type
    if word == "decimal":
        word += f"({column.size},{column.scale})"
    elif column.length or (word in ("bit", "binary", "varbinary") and column.size):
        word += f"({column.length or column.size})"
    elif word in ("time", "datetime", "timestamp") and column.scale:
        word += f"({column.scale})"
    elif column.values:
        word += "(" + ",".join("'" + value.replace("'", "''") + "'" for value in column.values) + ")"
    return word + (" unsigned" if column.unsigned and word != "year" else "")
