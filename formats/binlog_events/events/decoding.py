"""Bodies of events as JSON-able values for `dump`: readers made of the schemas.

Flags stay numbers, other codes become their names. Text that is no valid UTF-8 stays bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from construct import ConstructError, Container, EnumIntegerString

from binlogtool.formats.binlog_events.codes import ROWS, EventType
from binlogtool.formats.binlog_events.events.bodies import BODIES, EXECUTE_LOAD_QUERY, QUERY, SHOWN, XID
from binlogtool.formats.binlog_events.events.user_var import UserVarType, user_value
from binlogtool.formats.binlog_events.gtid.decoding import (
    gtid_list_body,
    previous_gtids_body,
    tagged_gtid_body,
)
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire.compression import check_block, unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.parts import COMPRESSIONS, PayloadFields
from binlogtool.formats.binlog_events.wire.status import status_values
from binlogtool.formats.bodies import cut, text
from binlogtool.formats.derived import fields_of, number_of, shown_of
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import Limits

_U64 = struct.Struct("<Q")
_VALUE = struct.Struct("<BII")
_FRAGMENT = struct.Struct("<IIB")
_T = EventType
_MARIADB_GTID = EventType.GTID.value
_COMPRESSED = EventType.QUERY_COMPRESSED.value
_TABLE_MAP = EventType.TABLE_MAP.value
_LIMITS = Limits()


class QueryParts(NamedTuple):
    """QUERY without its lengths. status_vars, db and sql are bytes as they stand."""

    thread_id: int
    exec_time: int
    error_code: int
    status_vars: bytes
    db: bytes
    sql: bytes


query_parts = fields_of(QUERY, QueryParts)
load_query_parts = fields_of(EXECUTE_LOAD_QUERY, QueryParts)
xid = number_of(XID, "xid")

# -- those that a schema alone does not say ----------------------------------------------------------------------------


def _query_compressed(body: bytes, limits: Limits) -> dict[str, Any]:
    shown = READERS[_COMPRESSED](body)
    try:
        sql = unpack_block(shown["sql"], limits)
    except CodecError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None
    return {**shown, "sql": text(sql)}


def check_compressed(body: bytes, limits: Limits = _LIMITS) -> None:
    """Looks for what is wrong with a QUERY_COMPRESSED; its text, which may be large, is not kept.

    Raises:
        MalformedError: as `decoded`.
    """
    parts = query_parts(body)
    status_values(parts.status_vars)
    try:
        check_block(parts.sql, limits)
    except CodecError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None


def _user_var(body: bytes) -> dict[str, Any]:
    size = int.from_bytes(body[:4], "little")
    at = 4 + size
    if at >= len(body):
        raise cut("name and is_null", 4 + size + 1, len(body))
    named: dict[str, Any] = {"name": text(body[4:at]), "is_null": bool(body[at])}
    if body[at]:
        return named | {"value": None}
    start = at + 1 + _VALUE.size
    if start > len(body):
        raise cut("type, charset and length", _VALUE.size, len(body) - at - 1)
    kind, charset, length = _VALUE.unpack_from(body, at + 1)
    end = start + length
    if end > len(body):
        raise cut("the value", length, len(body) - start)
    flags = body[end] if end < len(body) else 0
    value = user_value(kind, body[start:end], flags)
    return named | {"type": enum_name(UserVarType, kind), "charset": charset, "value": value, "flags": flags}


def _transaction_payload(body: bytes) -> dict[str, Any]:
    head: dict[str, Any] = dict(PayloadFields().parse(body))
    if "compression" in head:
        head["compression"] = COMPRESSIONS.get(head["compression"], head["compression"])
    return head


_ORIGINAL_SIZE = 1


def _partial_row_data(body: bytes) -> dict[str, Any]:
    if len(body) < _FRAGMENT.size:
        raise cut("the fragment", _FRAGMENT.size, len(body))
    first, second, flags = _FRAGMENT.unpack_from(body)
    out: dict[str, Any] = {"fragment": min(first, second), "fragments": max(first, second), "flags": flags}
    at = _FRAGMENT.size
    if flags & _ORIGINAL_SIZE:
        if at + 8 > len(body):
            raise cut("the original size", 8, len(body) - at)
        out["original_size"], at = _U64.unpack_from(body, at)[0], at + 8
    return out | {"data": body[at:]}


def enum_name(of: type[enum.IntEnum], value: int) -> str | int:
    """The member's name, or the number that has none."""
    try:
        return of(value).name
    except ValueError:
        return value


def _by_schema(type_code: int, body: bytes) -> dict[str, Any]:
    """The value of the type's schema, as plain dictionaries and lists; lengths and padding are left out."""
    schema = BODIES.get(type_code)
    if schema is None:
        return {"data": body} if body else {}
    try:
        value = plain(schema.parse(body))
    except MalformedError:
        raise
    except (ConstructError, ArithmeticError, ValueError, RecursionError) as error:
        message = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
        raise MalformedError(message[:300], finding_id="length-out-of-bounds") from None
    return value if isinstance(value, dict) else {"data": value}


_LEFT_OUT = frozenset({"length"})


def plain(value: Any) -> Any:
    """What a schema gave, as JSON-able values: enums by name, flags as their names, nothing that is absent."""
    if isinstance(value, EnumIntegerString):
        return str(value)
    if isinstance(value, Container):
        if value.get("_flagsenum"):
            return [str(name) for name, is_set in value.items() if is_set is True and name != "_flagsenum"]
        members = ((name, inner) for name, inner in value.items() if name not in _LEFT_OUT and name[:1] != "_")
        return {name: plain(inner) for name, inner in members if inner is not None}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _format_description(body: bytes) -> dict[str, Any]:
    shown = _by_schema(_T.FORMAT_DESCRIPTION, body)
    return {**shown, "post_header_len": list(shown["post_header_len"])}


class _Readers(dict[int, Callable[..., dict[str, Any]]]):
    """By type: made of the schema at the first use, where the schema says all."""

    def __missing__(self, type_code: int) -> Callable[..., dict[str, Any]]:
        shown = SHOWN.get(type_code)
        reader: Callable[..., dict[str, Any]] | None = None
        if shown is not None and type_code not in ROWS:
            reader = shown_of(shown).made()
        self[type_code] = reader or partial(_by_schema, type_code)
        return self[type_code]


READERS: Mapping[int, Callable[..., dict[str, Any]]] = _Readers(
    {
        _T.GTID_TAGGED_LOG: tagged_gtid_body,
        _T.FORMAT_DESCRIPTION: _format_description,
        _T.PREVIOUS_GTIDS: previous_gtids_body,
        _T.GTID_LIST: gtid_list_body,
        _T.USER_VAR: _user_var,
        _T.TRANSACTION_PAYLOAD: _transaction_payload,
        _T.PARTIAL_ROW_DATA: _partial_row_data,
        _T.HEARTBEAT_V2: partial(_by_schema, _T.HEARTBEAT_V2),
    }
)
"""By type: a function of the body; of MariaDB's GTID also of the server's id."""


def decoded(
    type_code: int,
    body: bytes | memoryview,
    description: FormatDescription | None,
    server_id: int = 0,
    limits: Limits = _LIMITS,
) -> dict[str, Any]:
    """The body of an event (without header and checksum) under the specification's field names.

    Of row events only the head; of TRANSACTION_PAYLOAD only the fields before the payload.
    description: only a TABLE_MAP needs it.
    server_id: from the common header, for the middle number of MariaDB's GTIDs.

    Raises:
        MalformedError: the body is not what its type says.
    """
    if body.__class__ is not bytes:
        body = bytes(body)
    if type_code == _MARIADB_GTID:
        return READERS[type_code](body, server_id)
    if type_code == _TABLE_MAP:
        if description is None:
            return parse_table_map(body).as_body()
        return parse_table_map(body, description.table_id_size, description.is_mariadb).as_body()
    if type_code == _COMPRESSED:
        return _query_compressed(body, limits)
    return READERS[type_code](body)
