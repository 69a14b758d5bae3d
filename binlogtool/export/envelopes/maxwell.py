"""Change messages in Maxwell's format.

Each row of a transaction has the number of its commit, which comes after the rows, so messages are held back. If the
messages of a transaction exceed MAX_HELD_BYTES, they are written at once, and only the last one has the number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

import msgspec

from binlogtool.export.envelopes.convert_values import ChangeMessage, to_json_safe_text, unwrap_typed_json_document
from binlogtool.format_api.encode_json import encode_json
from binlogtool.format_api.row_output_interfaces import (
    BEGIN,
    DDL,
    END,
    ROW_KINDS,
    ChangeEvent,
    Image,
    SqlColumn,
    SqlTable,
)
from binlogtool.limits import MIB

# --- Geometry values as well-known text ---

_POINT, _LINE, _POLYGON, _POINTS, _LINES, _POLYGONS, _COLLECTION = range(1, 8)
_GEOMETRY_NAMES = {
    _POINT: "POINT", _LINE: "LINESTRING", _POLYGON: "POLYGON", _POINTS: "MULTIPOINT", _LINES: "MULTILINESTRING",
    _POLYGONS: "MULTIPOLYGON", _COLLECTION: "GEOMETRYCOLLECTION",
}  # fmt: skip
_MIN_STEP = Decimal(1).scaleb(-16)
_MAX_DEPTH = 32
"""Maximum nesting of geometry collections."""


def wkb_to_wkt(data: bytes) -> str | None:
    """Return the text of a geometry; None if the bytes are invalid, or a coordinate is not finite."""
    reader = _WkbReader(data)
    try:
        text = reader.read_geometry_as_wkt(_MAX_DEPTH)
    except (struct.error, ValueError):
        return None
    return text if reader.offset == len(data) else None


class _WkbReader:
    """Reader of well-known binary. at: current offset."""

    def __init__(self, data: bytes) -> None:
        self._data, self.offset, self._byte_order = data, 0, "<"

    def read_geometry_as_wkt(self, max_depth: int) -> str:
        """Return the text of the next geometry.

        Raises:
            ValueError, struct.error: the bytes are invalid.
        """
        kind, body = self._read_type_and_wkt_body(max_depth)
        return f"{_GEOMETRY_NAMES[kind]} {body}"

    def _read_type_and_wkt_body(self, max_depth: int) -> tuple[int, str]:
        if not max_depth:
            raise ValueError("too deep")
        self._byte_order = "<" if self._data[self.offset : self.offset + 1] == b"\1" else ">"
        self.offset += 1
        kind = self._read_uint32()
        if kind not in _GEOMETRY_NAMES:
            raise ValueError("no geometry")
        return kind, self._read_wkt_body(kind, max_depth)

    def _read_wkt_body(self, geometry_type: int, max_depth: int) -> str:
        if geometry_type == _POINT:
            return f"({self._read_wkt_coordinates()})"
        if geometry_type == _LINE:
            return self._read_wkt_list(self._read_wkt_coordinates)
        if geometry_type == _POLYGON:
            return self._read_wkt_list(lambda: self._read_wkt_list(self._read_wkt_coordinates))
        if geometry_type == _COLLECTION:
            return self._read_wkt_list(lambda: self.read_geometry_as_wkt(max_depth - 1))
        return self._read_wkt_list(lambda: self._read_type_and_wkt_body(max_depth - 1)[1])

    def _read_wkt_list(self, read_member: Callable[[], str]) -> str:
        count = self._read_uint32()
        if count > len(self._data) - self.offset:
            raise ValueError("more than there is")
        return f"({', '.join([read_member() for _ in range(count)])})" if count else "EMPTY"

    def _read_uint32(self) -> int:
        (count,) = struct.unpack_from(f"{self._byte_order}I", self._data, self.offset)
        self.offset += 4
        return int(count)

    def _read_wkt_coordinates(self) -> str:
        x, y = struct.unpack_from(f"{self._byte_order}2d", self._data, self.offset)
        self.offset += 16
        return f"{_format_coordinate(x)} {_format_coordinate(y)}"


def _format_coordinate(value: float) -> str:
    """Return a number with up to 16 decimal places, never in exponent notation."""
    if not math.isfinite(value):
        raise ValueError("no place")
    text = repr(value)
    exact = Decimal(text)
    if -exact.as_tuple().exponent > 16:  # type: ignore[operator]
        exact = exact.quantize(_MIN_STEP, ROUND_HALF_EVEN)
    digits = f"{exact:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# --- Maxwell's messages (its page "Data format") ---

Message = dict[str, Any]
MAX_HELD_BYTES = 32 * MIB
_CHANGE_MEMORY_FACTOR = 8
"""Approximate memory of a message and its change, per byte of the message."""
_DDL_TYPES = {"create": "create", "alter": "alter", "rename": "alter", "drop": "drop"}


class _HeldMessage(NamedTuple):
    """Message in two halves, before and after the members about its commit; without change, the halves are encoded."""

    head: Any
    tail: Any
    change: ChangeEvent | None

    def join_with_commit_members(self, commit_members: Message) -> ChangeMessage:
        """Return the whole message. commit_members: about its commit."""
        if self.change is not None:
            return {**self.head, **commit_members, **self.tail}, self.change
        return b"%b,%b,%b" % (self.head[:-1], encode_json(commit_members)[1:-1], self.tail[1:]), None


class MaxwellEncoder(msgspec.Struct):
    """Encoder of changes as Maxwell messages.

    keeps_changes: return the messages of rows as members with their changes, not encoded. held_messages: messages of
    the open transaction, see `_HeldMessage`. written_rows: number of its rows that were already written. query: the
    last statement, and the offset of its first rows.
    """

    keeps_changes: bool = False
    held_messages: list[_HeldMessage] = msgspec.field(default_factory=list)
    held_bytes: int = 0
    written_rows: int = 0
    query: tuple[str, int] | None = None

    def encode_changes(self, changes: Iterable[ChangeEvent]) -> Iterator[ChangeMessage]:
        """Yield the messages for the changes of a record."""
        for change in changes:
            if change.kind == BEGIN:  # an earlier transaction whose messages are held has no end
                yield from self.release_uncommitted_messages()
            elif change.kind == END:
                yield from self._release_committed_messages(change.xid)
            elif change.kind in ROW_KINDS and change.table is not None:
                yield from self._hold_row_until_commit(change, change.table)
            elif change.kind == DDL and change.action in _DDL_TYPES:
                yield _ddl_message(change), change

    def release_uncommitted_messages(self) -> Iterator[ChangeMessage]:
        """Return the messages of a transaction whose end was not read, without a commit number."""
        written, self.written_rows = list(self._complete_held_messages()), 0
        return iter(written)

    def _complete_held_messages(self) -> Iterator[ChangeMessage]:
        held, self.held_messages, self.held_bytes = self.held_messages, [], 0
        for message in held:
            yield message.join_with_commit_members({"xoffset": self.written_rows})
            self.written_rows += 1

    def _hold_row_until_commit(self, change: ChangeEvent, table: SqlTable) -> Iterator[ChangeMessage]:
        """Hold the message of a row until its commit; yield held messages early if they exceed the memory limit."""
        head, tail = self._build_members_before_commit(change, table), _build_members_after_commit(change, table)
        first, last = encode_json(head), encode_json(tail)
        kept = _HeldMessage(head, tail, change) if self.keeps_changes else _HeldMessage(first, last, None)
        self.held_messages.append(kept)
        self.held_bytes += (len(first) + len(last)) * (_CHANGE_MEMORY_FACTOR if self.keeps_changes else 1)
        if self.held_bytes > MAX_HELD_BYTES:
            newest = self.held_messages.pop()
            yield from self._complete_held_messages()
            self.held_messages.append(newest)

    def _build_members_before_commit(self, change: ChangeEvent, table: SqlTable) -> Message:
        """Return the first members of a message; the statement is included only in rows of its first row event."""
        place = change.place
        if place.query is None:
            self.query = None
        elif self.query is None or self.query[0] is not place.query:
            self.query = (place.query, place.offset)
        is_shown = self.query is not None and self.query[1] == place.offset
        query = {"query": to_json_safe_text(place.query)} if is_shown and place.query is not None else {}
        return {"database": table.database, "table": table.name, **query, "type": change.kind, "ts": place.logged}

    def _release_committed_messages(self, xid: int | None) -> Iterator[ChangeMessage]:
        number = {} if xid is None else {"xid": xid}
        (held, self.held_messages, self.held_bytes), offset, self.written_rows = (
            (self.held_messages, [], 0),
            self.written_rows,
            0,
        )
        for index, message in enumerate(held, 1):
            is_last = index == len(held)
            yield message.join_with_commit_members(
                number | ({"commit": True} if is_last else {"xoffset": offset + index - 1})
            )


def _build_members_after_commit(change: ChangeEvent, table: SqlTable) -> Message:
    place, transaction = change.place, change.transaction
    message: Message = {"position": f"{place.file}:{place.offset}"}
    if transaction is not None and transaction.id is not None:
        message["gtid"] = transaction.id
    message["server_id"] = place.server
    if transaction is not None and transaction.thread is not None:
        message["thread_id"] = transaction.thread
    columns = {column.name: column for column in table.columns}
    image = change.before if change.after is None else change.after
    data = _image_values(columns, image or {})
    message["primary_key"] = [data.get(name) for name in table.key]
    message["primary_key_columns"] = table.key
    message["data"] = data
    if change.before is not None and change.after is not None:
        old = old_values_of_changed_columns(change)
        if old:
            message["old"] = _image_values(columns, old)
    return message


def old_values_of_changed_columns(change: ChangeEvent) -> Image:
    """Return the old values of the columns that an UPDATE changed."""
    after = change.after or {}
    return {name: value for name, value in (change.before or {}).items() if name not in after or after[name] != value}


def _image_values(columns: dict[str, SqlColumn], image: Image) -> Message:
    return {
        name: None if value is None else _value_to_maxwell_json(columns[name], value) for name, value in image.items()
    }


def _value_to_maxwell_json(column: SqlColumn, value: Any) -> Any:
    """Convert a value: bytes to base64, SET to a list, JSON to its document, DECIMAL to a number."""
    if column.type == "decimal":
        return msgspec.Raw(str(value).encode())
    if column.type == "json":
        return unwrap_typed_json_document(value)
    if column.type == "geometry" and not isinstance(value, bytes):
        return wkb_to_wkt(value["wkb"]) or value["wkb"]
    return value


def _ddl_message(change: ChangeEvent) -> Message:
    table, place, transaction = change.table, change.place, change.transaction
    kind = "database" if table is None else "table"
    return {
        "type": f"{kind}-{_DDL_TYPES[change.action]}",
        "database": change.database if table is None else table.database,
        **({} if table is None else {"table": table.name}),
        "ts": None if place.logged is None else place.logged * 1000,
        "sql": to_json_safe_text(change.statement),
        "position": f"{place.file}:{place.offset}",
        **({} if transaction is None or transaction.id is None else {"gtid": transaction.id}),
    }
