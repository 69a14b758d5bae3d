"""Our row values in the text forms of the servers' own tools: the other side of the comparison with `vvv`."""

from __future__ import annotations

import calendar
import json
import re
import struct
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from binlogtool.formats.binlog_events.values.column_types import ColumnType, TableMapColumn

_C = ColumnType
_WIDTHS = {_C.TINY: 1, _C.SHORT: 2, _C.INT24: 3, _C.LONG: 4, _C.LONGLONG: 8}
_ENCODINGS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "latin1": "cp1252", None: "utf-8"}


_MARKS = frozenset({"$date", "$time", "$datetime", "$timestamp"})


def text_of(value: Any, column: TableMapColumn, number: int, mysql: bool) -> bytes:
    """What the tool prints for a value of this column, the `number`-th of the table."""
    if value is None:
        return b"NULL"
    if isinstance(value, dict) and "$diff" in value:
        return _diff(value["$diff"], number)
    return _FORMS.get(column.type, _string)(value, column, mysql)


def same(ours: bytes, printed: bytes, column: TableMapColumn) -> bool:
    """Are the two texts equal? JSON documents are compared as values: the tool's spaces and order are its own. Decimal
    numbers and times inside JSON are marked in ours.
    """
    if column.type == _C.JSON and ours[:1] == printed[:1] == b"'":
        return _same_json(json.loads(_unescaped(ours)), json.loads(_unescaped(printed), parse_float=Decimal))
    if column.type == _C.JSON:
        ours = re.sub(rb'\{"\$decimal": "(-?\d+\.\d+)"\}', rb"\1", ours)
        ours = re.sub(rb'\{"\$(?:date|time|datetime|timestamp)": ("[-0-9:. ]+")\}', rb"\1", ours)
    return ours == printed.rstrip()


def _same_json(ours: Any, printed: Any) -> bool:
    if isinstance(printed, dict):
        return list(ours) == list(printed) and all(_same_json(ours[key], printed[key]) for key in printed)
    if isinstance(printed, list):
        return len(ours) == len(printed) and all(map(_same_json, ours, printed))
    if isinstance(printed, Decimal) and isinstance(ours, dict):
        return ours == {"$decimal": str(printed)}
    if isinstance(printed, str) and isinstance(ours, dict):
        return len(ours) == 1 and not _MARKS.isdisjoint(ours) and printed in ours.values()
    expected = float(printed) if isinstance(printed, Decimal) else printed
    return type(ours) is type(expected) and bool(ours == expected)


def _unescaped(quoted: bytes) -> bytes:
    return quoted[1:-1].replace(b"\\\\", b"\\")


def _integer(value: int, column: TableMapColumn, _mysql: bool) -> bytes:
    """Signed, and unsigned behind it where they differ."""
    width = _WIDTHS[ColumnType(column.type)]
    raw = (value % (1 << 8 * width)).to_bytes(width, "little")
    signed, unsigned = int.from_bytes(raw, "little", signed=True), int.from_bytes(raw, "little")
    return f"{signed} ({unsigned})".encode() if signed < 0 else str(signed).encode()


def _float(value: float, _column: TableMapColumn, _mysql: bool) -> bytes:
    exact = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"{exact:g}".encode()


def _double(value: float, _column: TableMapColumn, _mysql: bool) -> bytes:
    return f"{value:.20g}".encode()


def _plain(value: Any, _column: TableMapColumn, _mysql: bool) -> bytes:
    return str(value).encode()


def _bits(value: int, column: TableMapColumn, _mysql: bool) -> bytes:
    return f"b'{value:0{column.metadata}b}'".encode()


def _date(value: str, _column: TableMapColumn, _mysql: bool) -> bytes:
    return f"'{value.replace('-', ':')}'".encode()


def _quoted(value: str, _column: TableMapColumn, _mysql: bool) -> bytes:
    return f"'{value}'".encode()


def _timestamp(value: str, _column: TableMapColumn, _mysql: bool) -> bytes:
    """Seconds since 1970; the zero date is 0."""
    whole, point, fraction = value.partition(".")
    zero = whole == "0000-00-00 00:00:00"
    seconds = 0 if zero else calendar.timegm(time.strptime(whole, "%Y-%m-%d %H:%M:%S"))
    return f"{seconds}{point}{fraction}".encode()


def _enum(value: int | str, column: TableMapColumn, _mysql: bool) -> bytes:
    if isinstance(value, str):
        assert column.values is not None
        value = column.values.index(value) + 1 if value else 0
    return str(value).encode()


def _set(value: int | list[str], column: TableMapColumn, _mysql: bool) -> bytes:
    """The bytes in their stored order, each as eight bits."""
    if isinstance(value, list):
        assert column.values is not None
        value = sum(1 << column.values.index(text) for text in value)
    raw = value.to_bytes(column.metadata, "little")
    return ("b'" + "".join(f"{byte:08b}" for byte in raw) + "'").encode()


def _string(value: str | bytes, column: TableMapColumn, mysql: bool) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode(_ENCODINGS[column.charset])
    return b"'" + b"".join(map(_mysql_byte if mysql else _mariadb_byte, raw)) + b"'"


def _mariadb_byte(byte: int) -> bytes:
    return bytes([byte]) if byte > 0x1F else b"\\x%02x" % byte


_MYSQL_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 0x27: b"\\'", 0x5C: b"\\\\"}


def _mysql_byte(byte: int) -> bytes:
    return _MYSQL_ESCAPES.get(byte, _mariadb_byte(byte))


def _geometry(value: Any, column: TableMapColumn, mysql: bool) -> bytes:
    raw = value["srid"].to_bytes(4, "little") + value["wkb"] if isinstance(value, dict) else value
    return _string(raw, column, mysql)


def _vector(value: list[float], _column: TableMapColumn, _mysql: bool) -> bytes:
    return ("[" + ",".join(f"{number:.5e}" for number in value) + "]").encode()


def _json(value: Any, column: TableMapColumn, mysql: bool) -> bytes:
    return _string(json.dumps(value, ensure_ascii=False), column, mysql)


def _diff(changes: list[dict[str, Any]], number: int) -> bytes:
    text = f"@{number}"
    for change in changes:
        value = "" if change["op"] == "REMOVE" else ", " + _literal(change["value"])
        text = f"JSON_{change['op']}({text}, '{change['path']}'{value})"
    return text.encode()


def _literal(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"CAST('{json.dumps(value)}' AS JSON)"
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


_FORMS: dict[int, Callable[[Any, TableMapColumn, bool], bytes]] = {
    **dict.fromkeys(_WIDTHS, _integer),
    _C.FLOAT: _float,
    _C.DOUBLE: _double,
    _C.NEWDECIMAL: _plain,
    _C.YEAR: _plain,
    _C.BIT: _bits,
    _C.DATE: _date,
    **dict.fromkeys((_C.TIME, _C.TIME2, _C.DATETIME, _C.DATETIME2), _quoted),
    **dict.fromkeys((_C.TIMESTAMP, _C.TIMESTAMP2), _timestamp),
    _C.ENUM: _enum,
    _C.SET: _set,
    _C.GEOMETRY: _geometry,
    _C.VECTOR: _vector,
    _C.JSON: _json,
}
