"""Bodies of events as JSON-able values for `dump`: hand-made readers for frequent types, the schemas for the others.

Flags stay numbers, other codes become their names. Text that is no valid UTF-8 stays bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from construct import ConstructError, Container, EnumIntegerString

from binlogtool.formats.base import CodecError
from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.bodies import BODIES
from binlogtool.formats.binlog_events.events.user_var import UserVarType, user_value
from binlogtool.formats.binlog_events.gtid.decoding import (
    gtid_list_body,
    mariadb_gtid_body,
    mysql_gtid_body,
    previous_gtids_body,
)
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire.compression import check_block, unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.fields import cut, text
from binlogtool.formats.binlog_events.wire.parts import COMPRESSIONS, PayloadFields
from binlogtool.formats.binlog_events.wire.status import status_values
from binlogtool.formats.fields import MalformedError
from binlogtool.limits import Limits

_QUERY = struct.Struct("<IIBHH")
_INTVAR = struct.Struct("<BQ")
_U64 = struct.Struct("<Q")
_VALUE = struct.Struct("<BII")
_FRAGMENT = struct.Struct("<IIB")
_RAND = struct.Struct("<QQ")
_T = EventType
_MARIADB_GTID = EventType.GTID.value
_COMPRESSED = EventType.QUERY_COMPRESSED.value
_TABLE_MAP = EventType.TABLE_MAP.value
_LIMITS = Limits()
_new = tuple.__new__


class QueryParts(NamedTuple):
    """QUERY without its lengths. status, db and sql are bytes as they stand."""

    thread_id: int
    exec_time: int
    error_code: int
    status: bytes
    db: bytes
    sql: bytes


def query_parts(body: bytes, extra: int = 0) -> QueryParts:
    """The parts of QUERY. extra: bytes behind its fixed part that belong to another type (EXECUTE_LOAD_QUERY: 13).

    Raises:
        MalformedError: a length is more than what is left.
    """
    if len(body) < 13 + extra:
        raise cut("the fixed part", 13 + extra, len(body))
    thread_id, exec_time, db_len, error_code, status_len = _QUERY.unpack_from(body)
    start = 13 + extra
    names = start + status_len
    end = names + db_len
    if end >= len(body):
        raise cut("status variables and database name", status_len + db_len + 1, len(body) - start)
    return _new(QueryParts, (thread_id, exec_time, error_code, body[start:names], body[names:end], body[end + 1 :]))


def xid(body: bytes) -> int:
    """The number of XID.

    Raises:
        MalformedError: fewer than 8 bytes.
    """
    if len(body) < 8:
        raise cut("an XID", 8, len(body))
    number: int = _U64.unpack_from(body)[0]
    return number


def rotate(body: bytes) -> tuple[int, str | bytes]:
    """Position in, and name of, the next file.

    Raises:
        MalformedError: fewer than 8 bytes.
    """
    if len(body) < 8:
        raise cut("a position", 8, len(body))
    return _U64.unpack_from(body)[0], text(body[8:])


# -- frequent types ----------------------------------------------------------------------------------------------------


def _query(body: bytes) -> dict[str, Any]:
    thread_id, exec_time, error_code, status, db, sql = query_parts(body)
    return {
        "thread_id": thread_id,
        "exec_time": exec_time,
        "error_code": error_code,
        "status_vars": status_values(status).copy(),
        "db": text(db),
        "sql": text(sql),
    }


def _xid(body: bytes) -> dict[str, Any]:
    return {"xid": xid(body)}


_INTVARS = {1: "LAST_INSERT_ID", 2: "INSERT_ID"}


def _intvar(body: bytes) -> dict[str, Any]:
    if len(body) < 9:
        raise cut("an integer variable", 9, len(body))
    kind, value = _INTVAR.unpack_from(body)
    return {"type": _INTVARS.get(kind, kind), "value": value}


def _rand(body: bytes) -> dict[str, Any]:
    if len(body) < 16:
        raise cut("the seeds", 16, len(body))
    seed1, seed2 = _RAND.unpack_from(body)
    return {"seed1": seed1, "seed2": seed2}


def _annotate_rows(body: bytes) -> dict[str, Any]:
    return {"sql": text(body)}


def _rows_query(body: bytes) -> dict[str, Any]:
    if not body:
        raise cut("the statement", 1, 0)
    return {"sql": text(body[1:])}


def _rotate(body: bytes) -> dict[str, Any]:
    position, name = rotate(body)
    return {"position": position, "name": name}


# -- others ------------------------------------------------------------------------------------------------------------


_DUPLICATES = {0: "ERROR", 1: "IGNORE", 2: "REPLACE"}


def _execute_load_query(body: bytes) -> dict[str, Any]:
    parts = query_parts(body, 13)
    file_id, fn_pos_start, fn_pos_end, dup = struct.unpack_from("<IIIB", body, 13)
    return {
        "thread_id": parts.thread_id,
        "exec_time": parts.exec_time,
        "error_code": parts.error_code,
        "file_id": file_id,
        "fn_pos_start": fn_pos_start,
        "fn_pos_end": fn_pos_end,
        "dup_handling": _DUPLICATES.get(dup, dup),
        "status_vars": status_values(parts.status).copy(),
        "db": text(parts.db),
        "sql": text(parts.sql),
    }


def _query_compressed(body: bytes, limits: Limits) -> dict[str, Any]:
    parts = query_parts(body)
    try:
        sql = unpack_block(parts.sql, limits)
    except CodecError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None
    return {
        "thread_id": parts.thread_id,
        "exec_time": parts.exec_time,
        "error_code": parts.error_code,
        "status_vars": status_values(parts.status).copy(),
        "db": text(parts.db),
        "sql": text(sql),
    }


def check_compressed(body: bytes, limits: Limits = _LIMITS) -> None:
    """Looks for what is wrong with a QUERY_COMPRESSED; its text, which may be large, is not kept.

    Raises:
        MalformedError: as `decoded`.
    """
    parts = query_parts(body)
    status_values(parts.status)
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


_LEFT_OUT = frozenset({"gtrid_len", "bqual_len", "message_len", "name_len", "length"})


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


_READERS: Mapping[int, Callable[[bytes], dict[str, Any]]] = {
    _T.QUERY: _query,
    _T.XID: _xid,
    _T.INTVAR: _intvar,
    _T.RAND: _rand,
    _T.ANNOTATE_ROWS: _annotate_rows,
    _T.ROWS_QUERY: _rows_query,
    _T.ROTATE: _rotate,
    _T.GTID_LOG: mysql_gtid_body(_T.GTID_LOG),
    _T.ANONYMOUS_GTID: mysql_gtid_body(_T.ANONYMOUS_GTID),
    _T.GTID_TAGGED_LOG: mysql_gtid_body(_T.GTID_TAGGED_LOG),
    _T.FORMAT_DESCRIPTION: _format_description,
    _T.PREVIOUS_GTIDS: previous_gtids_body,
    _T.GTID_LIST: gtid_list_body,
    _T.EXECUTE_LOAD_QUERY: _execute_load_query,
    _T.USER_VAR: _user_var,
    _T.TRANSACTION_PAYLOAD: _transaction_payload,
    _T.PARTIAL_ROW_DATA: _partial_row_data,
}


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
    reader = _READERS.get(type_code)
    if reader is not None:
        return reader(body)
    if type_code == _MARIADB_GTID:
        return mariadb_gtid_body(body, server_id)
    if type_code == _TABLE_MAP:
        if description is None:
            return parse_table_map(body).as_body()
        return parse_table_map(body, description.table_id_size, description.is_mariadb).as_body()
    if type_code == _COMPRESSED:
        return _query_compressed(body, limits)
    return _by_schema(type_code, body)
