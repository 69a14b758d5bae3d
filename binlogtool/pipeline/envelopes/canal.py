"""Canal's flat messages (FlatMessage of its MQ producers): one for each row event, one for each statement about tables.

All values are texts. `id` and `ts` are of a running Canal, and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.formats.changes import DDL, DELETE, ROWS, UPDATE, Change, Column, Image, Table
from binlogtool.log.jsonbytes import encoded as _encode
from binlogtool.pipeline.envelopes.values import json_text, plain

Message = dict[str, Any]
_ACTIONS = {"create": "CREATE", "alter": "ALTER", "drop": "ERASE", "rename": "RENAME", "truncate": "TRUNCATE"}
_CLOB, _BLOB, _VARCHAR = 2005, 2004, 12
_JDBC: Mapping[str, int] = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 7, "double": 8, "decimal": 3,
    "bit": -7, "enum": 4, "set": -7, "year": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "char": 1,
    "varchar": 12, "binary": _BLOB, "varbinary": _BLOB, "json": 12, "geometry": -2,
}  # fmt: skip
"""java.sql.Types."""
_WIDER = {"tinyint": (1 << 7, 5), "smallint": (1 << 15, 4), "int": (1 << 31, -5), "bigint": (1 << 63, 3)}
"""Unsigned numbers from the first on need another type."""


class Canal(msgspec.Struct):
    """Keeps nothing."""

    def lines(self, changes: Iterable[Change]) -> Iterator[bytes]:
        """The messages for the changes of a record."""
        rows = list[Change]()
        for change in changes:
            if change.kind in ROWS and change.table is not None:
                rows.append(change)
            elif change.kind == DDL:
                yield _encode(_statement(change))
        if rows:
            yield _encode(_rows(rows))

    def rest(self) -> Iterator[bytes]:
        """Nothing is held back."""
        return iter(())


def _rows(changes: list[Change]) -> Message:
    first, table = changes[0], changes[0].table
    assert table is not None
    columns = {column.name: column for column in table.columns}
    images = [change.before if change.kind == DELETE else change.after for change in changes]
    old = [_old(columns, change) for change in changes] if first.kind == UPDATE else []
    shown = [columns[name] for name in images[0] or ()]
    return {
        "data": [_image(columns, image or {}) for image in images],
        "database": table.database,
        "es": _millis(first),
        "isDdl": False,
        "mysqlType": {column.name: _word(column) for column in shown},
        "old": [one for one in old if one] or None,
        "pkNames": table.key or None,
        "sql": "",
        "sqlType": {column.name: _jdbc(column, images) for column in shown},
        "table": table.name,
        "type": first.kind.upper(),
    }


def _statement(change: Change) -> Message:
    table: Table | None = change.table
    return {
        "data": None,
        "database": change.database if table is None else table.database,
        "es": _millis(change),
        "isDdl": True,
        "mysqlType": None,
        "old": None,
        "pkNames": None,
        "sql": plain(change.statement),
        "sqlType": None,
        "table": "" if table is None else table.name,
        "type": "QUERY" if table is None else _ACTIONS.get(change.action, "QUERY"),
    }


def _millis(change: Change) -> int | None:
    return None if change.place.time is None else change.place.time // 1_000_000 * 1000


def _old(columns: dict[str, Column], change: Change) -> Message:
    before, after = change.before or {}, change.after or {}
    return _image(columns, {name: v for name, v in before.items() if name not in after or after[name] != v})


def _image(columns: dict[str, Column], image: Image) -> Message:
    return {name: None if value is None else _text(columns[name], value) for name, value in image.items()}


def _text(column: Column, value: Any) -> str:
    if column.type == "json" and not isinstance(value, bytes):
        return json_text(value)
    if column.type == "enum" and isinstance(value, str):
        return str(column.values.index(value) + 1 if value in column.values else 0)
    if column.type == "set" and isinstance(value, list):
        return str(sum(1 << column.values.index(one) for one in value))
    if column.type == "geometry" and not isinstance(value, bytes):
        value = value["srid"].to_bytes(4, "little") + value["wkb"]
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _jdbc(column: Column, images: Iterable[Image | None]) -> int:
    if column.type in _WIDER and column.unsigned:
        least, wider = _WIDER[column.type]
        if any((image or {}).get(column.name) is not None and (image or {})[column.name] >= least for image in images):
            return wider
    if column.type.endswith("text"):
        return _CLOB
    return _BLOB if column.type.endswith("blob") else _JDBC.get(column.type, _VARCHAR)


def _word(column: Column) -> str:
    """The type as far as a log tells it."""
    word = column.type
    if word == "decimal":
        word += f"({column.size},{column.scale})"
    elif word in ("bit", "binary", "varbinary") and column.size:
        word += f"({column.size})"
    elif word in ("time", "datetime", "timestamp") and column.scale:
        word += f"({column.scale})"
    elif column.values:
        word += "(" + ",".join("'" + value.replace("'", "''") + "'" for value in column.values) + ")"
    return word + (" unsigned" if column.unsigned and word != "year" else "")
