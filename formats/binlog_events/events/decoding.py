"""Decode bodies of events to JSON-able values for `dump`, with readers generated from the schemas.

Flags stay numbers, other codes become their names. Text that is not valid UTF-8 stays bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from construct import ConstructError, Container, EnumIntegerString

from binlogtool.formats.binlog_events.codes import ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.events.bodies import (
    BODIES,
    EXECUTE_LOAD_QUERY,
    PARTIAL_ROW_DATA,
    QUERY,
    SHOWN_BODIES,
    USER_VAR,
    XID,
)
from binlogtool.formats.binlog_events.events.statement_text import recode_statement_text
from binlogtool.formats.binlog_events.events.user_var import UserVarType, decode_user_value
from binlogtool.formats.binlog_events.gtid.decoding import (
    decode_gtid_list,
    decode_previous_gtids,
    decode_tagged_gtid,
)
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire.compression import check_block, unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.parts import COMPRESSIONS, PayloadFields
from binlogtool.formats.binlog_events.wire.status import decode_status_variables
from binlogtool.formats.bodies import decode_text
from binlogtool.formats.derived import make_body_decoder, make_fields_decoder, make_integer_decoder, make_tuple_decoder
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits

_T = EventType
_MARIADB_GTID = EventType.GTID.value
_COMPRESSED = EventType.QUERY_COMPRESSED.value
_STATEMENTS = frozenset({_T.QUERY.value, _T.EXECUTE_LOAD_QUERY.value})
_TABLE_MAP = EventType.TABLE_MAP.value
_LIMITS = Limits()
_USER_TYPES = {int(kind): kind.name for kind in UserVarType}


class QueryParts(NamedTuple):
    """Fields of QUERY without its lengths; status_vars, db and sql are raw bytes."""

    thread_id: int
    exec_time: int
    error_code: int
    status_vars: bytes
    db: bytes
    sql: bytes


parse_query = make_fields_decoder(QUERY, QueryParts)
parse_load_query = make_fields_decoder(EXECUTE_LOAD_QUERY, QueryParts)
parse_xid = make_integer_decoder(XID, "xid")

# -- those that a schema alone does not say ----------------------------------------------------------------------------


def _decode_query_compressed(body: bytes, limits: Limits) -> dict[str, Any]:
    fields = BODY_READERS[_COMPRESSED](body)
    try:
        sql = unpack_block(fields["sql"], limits)
    except DecompressionError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None
    return {**fields, "sql": decode_text(sql)}


def check_compressed_query(body: bytes, limits: Limits = _LIMITS) -> None:
    """Check a QUERY_COMPRESSED without keeping its text, which may be large.

    Raises:
        MalformedError: as `decode_body`.
    """
    parts = parse_query(body)
    decode_status_variables(parts.status_vars)
    try:
        check_block(parts.sql, limits)
    except DecompressionError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None


_parse_user_var = make_tuple_decoder(USER_VAR, "name", "is_null", "type", "charset", "value", "flags")


def _decode_user_var(body: bytes) -> dict[str, Any]:
    name, is_null, kind, charset, raw, flags = _parse_user_var(body)
    if is_null:
        return {"name": decode_text(name), "is_null": True, "value": None}
    flags = flags or 0
    value = decode_user_value(kind, raw, flags)
    type_ = _USER_TYPES.get(kind, kind)
    return {
        "name": decode_text(name),
        "is_null": False,
        "type": type_,
        "charset": charset,
        "value": value,
        "flags": flags,
    }


def _decode_payload_fields(body: bytes) -> dict[str, Any]:
    head: dict[str, Any] = dict(PayloadFields().parse(body))
    if "compression" in head:
        head["compression"] = COMPRESSIONS.get(head["compression"], head["compression"])
    return head


_parse_fragment = make_tuple_decoder(PARTIAL_ROW_DATA, "number", "total", "flags", "original_size", "data")


def _decode_partial_row_data(body: bytes) -> dict[str, Any]:
    number, total, flags, size, data = _parse_fragment(body)
    if size is None:
        return {"fragment": number, "fragments": total, "flags": flags, "data": data}
    return {"fragment": number, "fragments": total, "flags": flags, "original_size": size, "data": data}


def _decode_by_schema(type_code: int, body: bytes) -> dict[str, Any]:
    """Decode a body with the type's schema to plain dictionaries and lists, without lengths and padding."""
    schema = BODIES.get(type_code)
    if schema is None:
        return {"data": body} if body else {}
    try:
        value = to_plain_value(schema.parse(body))
    except MalformedError:
        raise
    except (ConstructError, ArithmeticError, ValueError, RecursionError) as error:
        message = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
        raise MalformedError(message[:300], finding_id="length-out-of-bounds") from None
    return value if isinstance(value, dict) else {"data": value}


_OMITTED_MEMBERS = frozenset({"length"})


def to_plain_value(value: Any) -> Any:
    """Convert a parsed value to a JSON-able one: enums and flags by name, without absent members."""
    if isinstance(value, EnumIntegerString):
        return str(value)
    if isinstance(value, Container):
        if value.get("_flagsenum"):
            return [str(name) for name, is_set in value.items() if is_set is True and name != "_flagsenum"]
        members = ((name, inner) for name, inner in value.items() if name not in _OMITTED_MEMBERS and name[:1] != "_")
        return {name: to_plain_value(inner) for name, inner in members if inner is not None}
    if isinstance(value, list):
        return [to_plain_value(inner) for inner in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _decode_format_description(body: bytes) -> dict[str, Any]:
    fields = _decode_by_schema(_T.FORMAT_DESCRIPTION, body)
    return {**fields, "post_header_len": list(fields["post_header_len"])}


class _BodyReaders(dict[int, Callable[..., dict[str, Any]]]):
    """Body readers by type code, generated from the schema on first use."""

    def __missing__(self, type_code: int) -> Callable[..., dict[str, Any]]:
        shown = SHOWN_BODIES.get(type_code)
        reader: Callable[..., dict[str, Any]] | None = None
        if shown is not None and type_code not in ROW_EVENTS:
            reader = make_body_decoder(shown).build()
        self[type_code] = reader or partial(_decode_by_schema, type_code)
        return self[type_code]


BODY_READERS: Mapping[int, Callable[..., dict[str, Any]]] = _BodyReaders(
    {
        _T.GTID_TAGGED_LOG: decode_tagged_gtid,
        _T.FORMAT_DESCRIPTION: _decode_format_description,
        _T.PREVIOUS_GTIDS: decode_previous_gtids,
        _T.GTID_LIST: decode_gtid_list,
        _T.USER_VAR: _decode_user_var,
        _T.TRANSACTION_PAYLOAD: _decode_payload_fields,
        _T.PARTIAL_ROW_DATA: _decode_partial_row_data,
        _T.HEARTBEAT_V2: partial(_decode_by_schema, _T.HEARTBEAT_V2),
    }
)
"""By type: a function of the body; of MariaDB's GTID also of the server's id."""


def decode_body(
    type_code: int,
    body: bytes | memoryview,
    description: FormatDescription | None,
    server_id: int = 0,
    limits: Limits = _LIMITS,
) -> dict[str, Any]:
    """Decode the body of an event (without header and checksum) to the field names of the specification.

    Of row events only the head; of TRANSACTION_PAYLOAD only the fields before the payload.

    Args:
        description: only needed for a TABLE_MAP.
        server_id: from the common header, for the middle number of MariaDB's GTIDs.

    Raises:
        MalformedError: the body does not match its type.
    """
    if body.__class__ is not bytes:
        body = bytes(body)
    if type_code == _MARIADB_GTID:
        return BODY_READERS[type_code](body, server_id)
    if type_code == _TABLE_MAP:
        if description is None:
            return parse_table_map(body).as_body()
        return parse_table_map(body, description.table_id_size, description.is_mariadb).as_body()
    if type_code == _COMPRESSED:
        return recode_statement_text(_decode_query_compressed(body, limits))
    if type_code in _STATEMENTS:
        return recode_statement_text(BODY_READERS[type_code](body))
    return BODY_READERS[type_code](body)
