"""Canal's flat messages (FlatMessage of its MQ producers): one per row event, one per DDL statement.

All values are texts. `id` and `ts` come from a running Canal and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.formats.changes import DDL, DELETE, END, ROWS, UPDATE, Change, Column, Image, Table
from binlogtool.log.jsonbytes import encoded as _encode
from binlogtool.pipeline.envelopes.values import Line, java_number, plain, spaced

Message = dict[str, Any]
_ACTIONS = {"create": "CREATE", "alter": "ALTER", "drop": "ERASE", "rename": "RENAME", "truncate": "TRUNCATE"}
_INDEX = re.compile(
    r"""^\s*(?:(?P<verb>CREATE|DROP)\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL|OR\s+REPLACE)\s+)*INDEX\b
    |ALTER\b[^,]*?\b(?P<item>ADD|DROP)\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL)\b|(?:INDEX|KEY)\b))""",
    re.IGNORECASE | re.VERBOSE,
)
"""A statement whose first clause is about an index."""
_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TARGET = re.compile(
    rf"\s*(?:INSERT\s+(?:\w+\s+)*?INTO|UPDATE(?:\s+LOW_PRIORITY)?(?:\s+IGNORE)?|DELETE\s+(?:\w+\s+)*?FROM)"
    rf"\s+(?:{_NAME}\s*\.\s*)?(?P<table>{_NAME})", re.IGNORECASE
)  # fmt: skip
"""The table that a statement names first."""
_CLOB, _BLOB, _VARCHAR = 2005, 2004, 12
_JDBC: Mapping[str, int] = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 7, "double": 8, "decimal": 3,
    "bit": -7, "enum": 4, "set": -7, "year": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "char": 1,
    "varchar": 12, "binary": _BLOB, "varbinary": _BLOB, "json": 12, "geometry": _BLOB,
}  # fmt: skip
"""java.sql.Types."""
_WIDER = {"tinyint": (1 << 7, 5), "smallint": (1 << 15, 4), "int": (1 << 31, -5), "bigint": (1 << 63, 3)}
"""Unsigned types: values from the first number on have the second type."""
_OF_NULL = {"set": _BLOB, "json": 1111}
"""JDBC types of NULL that differ from those of values."""
_NOTHING: Message = {
    "data": None, "database": "", "es": None, "gtid": "", "isDdl": False, "mysqlType": None, "old": None,
    "pkNames": None, "sql": "", "sqlType": None, "table": "", "type": "",
}  # fmt: skip


class Canal(msgspec.Struct):
    """Encodes changes as Canal messages. query: the statement of the last QUERY message."""

    query: str | None = None

    def lines(self, changes: Iterable[Change]) -> Iterator[Line]:
        """Yield the messages for the changes of a record."""
        rows, statement = list[Change](), None
        for change in changes:
            if change.kind in ROWS and change.table is not None:
                rows.append(change)
            elif change.kind == DDL and change.action and statement is None:  # only its first table is reported
                statement = change
            elif change.kind == END and change.statement[:3].upper() == "XA ":
                word = change.statement.split()[1].upper()
                yield _encode(_message(change, f"XA{word}", sql=plain(change.statement))), change
        if statement is not None:
            yield _encode(_statement(statement)), statement
        if rows:
            yield from self._query(rows[0])
            yield _encode(_rows(rows)), rows[0]

    def _query(self, change: Change) -> Iterator[Line]:
        """Yield a message for the statement that caused rows, before the first of them."""
        query = change.place.query
        if query is not None and query is not self.query:
            yield _encode(_message(change, "QUERY", table=_first_table(change, query), sql=plain(query))), change
        self.query = query

    def rest(self) -> Iterator[Line]:
        """Return an empty iterator: no message is held back."""
        return iter(())


def _rows(changes: list[Change]) -> Message:
    first, table = changes[0], changes[0].table
    assert table is not None
    columns = {column.name: column for column in table.columns}
    images = [change.before if change.kind == DELETE else change.after for change in changes]
    data, old = [_image(columns, image or {}) for image in images], None
    if first.kind == UPDATE:
        old = list(_old(data, [_image(columns, change.before or {}) for change in changes]))
    shown = [columns[name] for name in images[-1] or ()]
    return _message(
        first,
        first.kind.upper(),
        database=table.database,
        table=table.name,
        data=data,
        old=old,
        pkNames=[column.name for column in table.columns if column.name in table.key] or None,
        mysqlType={column.name: _word(column) for column in shown},
        sqlType={column.name: _jdbc(column, images[-1] or {}) for column in shown},
    )


def _statement(change: Change) -> Message:
    table: Table | None = change.becomes or change.table
    return _message(
        change,
        _type(change, table),
        database=change.database if table is None else table.database,
        table="" if table is None else table.name,
        isDdl=True,
        sql=plain(change.statement),
    )


def _type(change: Change, table: Table | None) -> str:
    if table is None:
        return "QUERY"
    if change.becomes is not None:
        return "RENAME"
    found = _INDEX.search(change.statement) if change.action == "alter" else None
    if found is not None:
        return "DINDEX" if (found["item"] or found["verb"]).upper() == "DROP" else "CINDEX"
    return _ACTIONS.get(change.action, "QUERY")


def _message(change: Change, kind: str, **members: Any) -> Message:
    """Return a message with its members in Canal's order."""
    es = None if change.place.logged is None else change.place.logged * 1000
    return {**_NOTHING, "es": es, "type": kind, **members}


def _first_table(change: Change, query: str) -> str:
    """Return the table that the statement names; empty for MariaDB, and for REPLACE and LOAD."""
    found = _TARGET.match(query) if change.place.engine == "mysql" else None
    return "" if found is None else found["table"].strip("`").replace("``", "`")


def _old(data: list[Message], before: list[Message]) -> Iterator[Message]:
    """Yield the old values of each row for columns that changed in it or in an earlier row of the message."""
    changed = set[str]()
    for row, was in zip(data, before, strict=True):
        changed |= {name for name, value in row.items() if name not in was or was[name] != value}
        yield {name: value for name, value in was.items() if name in changed}


def _image(columns: dict[str, Column], image: Image) -> Message:
    return {name: None if value is None else _text(columns[name], value) for name, value in image.items()}


def _text(column: Column, value: Any) -> str:
    if column.type == "json" and not isinstance(value, bytes):
        return spaced(value)
    if column.type == "enum" and isinstance(value, str):
        return str(column.values.index(value) + 1 if value in column.values else 0)
    if column.type == "set" and isinstance(value, list):
        return str(sum(1 << column.values.index(one) for one in value))
    if column.type == "geometry" and not isinstance(value, bytes):
        value = value["srid"].to_bytes(4, "little") + value["wkb"]
    if isinstance(value, float):
        return java_number(value)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _jdbc(column: Column, image: Image) -> int:
    value = image.get(column.name)
    if value is None:
        return _OF_NULL.get(column.type) or _plain_jdbc(column)
    if column.type in _WIDER and column.unsigned:
        least, wider = _WIDER[column.type]
        if value >= least:
            return wider
    return _plain_jdbc(column)


def _plain_jdbc(column: Column) -> int:
    if column.type.endswith("text"):
        return _CLOB
    return _BLOB if column.type.endswith("blob") else _JDBC.get(column.type, _VARCHAR)


def _word(column: Column) -> str:
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
