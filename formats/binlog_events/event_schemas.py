"""Schemas of event frames and of the bodies of all event types; decode bodies to JSON-able values.

See docs/spec/mysql_binlog.md#event-bodies and #format_description-and-checksums. The body is the whole stream of each
schema. Types without a schema are opaque `data`. Flags stay numbers, other codes are shown by name. Text that is not
valid UTF-8 stays bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from construct import (
    Bytes,
    Check,
    Computed,
    Construct,
    ConstructError,
    Container,
    Enum,
    EnumIntegerString,
    FlagsEnum,
    GreedyBytes,
    GreedyRange,
    If,
    IfThenElse,
    Int8ul,
    Int16ul,
    Int32sl,
    Int32ul,
    Int64ul,
    Pass,
    RepeatUntil,
    Struct,
    Subconstruct,
    Switch,
    Tell,
    stream_read,
    stream_seek,
    stream_tell,
    stream_write,
    this,
)

from binlogtool.findings import Severity
from binlogtool.format_api.layout import CRC32, Batch, Decompressor, to_int_list
from binlogtool.format_api.schema_fields import (
    BodySchema,
    CompressedSchema,
    CrcCheck,
    DecompressionError,
    HiddenField,
    IfBytesLeft,
    LeafFormat,
    MalformedError,
    NestedSchema,
    PeekInt,
    ScalarKernel,
    TextField,
    UInt8s,
    decode_text,
    kernel,
    load_uint32,
    make_body_decoder,
    make_fields_decoder,
    make_fields_kernel,
    make_flag_condition,
    make_integer_decoder,
    make_truncation_error,
    make_tuple_decoder,
)
from binlogtool.formats.binlog_events.crypt.decrypt import ENCRYPTED_EVENT_HEAD
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    GTID,
    GTID_LIST,
    GTID_LOG,
    GTID_TAGGED_LOG,
    PREVIOUS_GTIDS,
    decode_gtid_list,
    decode_previous_gtids,
    decode_tagged_gtid,
)
from binlogtool.formats.binlog_events.rows.annotate_row_events import (
    TableMapLookup,
    make_rows_event_construct,
    make_table_map_construct,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.status_variables import (
    StatementText,
    decode_status_variables,
    make_status_variables_field,
    recode_statement_text,
)
from binlogtool.formats.binlog_events.values.decode_values import make_decimal_formatter
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    COMPRESSIONS,
    EVENT_SIZE_AT,
    FLAGS_AT,
    HEADER,
    HEADER_SIZE,
    MAX_EVENT_SIZE,
    ROW_EVENTS,
    UNCOMPRESSED,
    ZSTD,
    ChecksumAlgorithm,
    EventFlag,
    EventType,
    FormatDescription,
    Lenenc,
    NulPaddedText,
    PayloadFields,
    PostHeaderLengths,
    unpack_compressed_block,
    unpack_transaction_payload,
    validate_compressed_block,
)
from binlogtool.limits import Limits

# --- Value of USER_VAR (docs/spec/mysql_binlog.md#event-bodies) ---


class UserVarType(enum.IntEnum):
    """Type of a user variable (`Item_result`)."""

    STRING = 0
    REAL = 1
    INT = 2
    DECIMAL = 4


UNSIGNED = 1


class RawValue:
    """Mixin for a decoded value that keeps its stored bytes."""

    raw: bytes


class RawDecimalText(str, RawValue):
    """DECIMAL as text, with its bytes."""


def decode_user_variable_value(value_type: int, value_bytes: bytes, flags: int | None) -> Any:
    """Decode the value of a user variable: int, float, decimal as text, or text (bytes if not UTF-8).

    Raises:
        MalformedError: the size does not fit the type.
    """
    if value_type == UserVarType.INT or value_type == UserVarType.REAL:
        if len(value_bytes) != 8:
            raise make_truncation_error("the number", 8, len(value_bytes))
        if value_type == UserVarType.REAL:
            return struct.unpack("<d", value_bytes)[0]
        return int.from_bytes(value_bytes, "little", signed=not (flags or 0) & UNSIGNED)
    return decode_user_variable_decimal(value_bytes) if value_type == UserVarType.DECIMAL else decode_text(value_bytes)


def decode_user_variable_decimal(value_bytes: bytes) -> str:
    """Decode a DECIMAL: precision, scale, packed digits.

    Raises:
        MalformedError: precision and scale do not fit each other or the number of bytes.
    """
    if len(value_bytes) < 2:
        raise make_truncation_error("precision and scale", 2, len(value_bytes))
    precision, scale = value_bytes[0], value_bytes[1]
    if not scale <= precision or not 1 <= precision <= 81:
        raise MalformedError(f"DECIMAL({precision},{scale}) is not possible")
    return make_decimal_formatter(precision, scale)(value_bytes[2:])


class UserVariableValue(Subconstruct):  # type: ignore[misc]
    """Construct of `value`: its type is in an earlier field, and the byte after it says whether an INT is unsigned."""

    leaf = LeafFormat(bytes)

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        data = self.subcon._parsereport(stream, context, path)
        offset = stream.tell()
        flags_byte = stream.read(1)
        stream.seek(offset)
        value = decode_user_variable_value(int(context.type), data, flags_byte[0] if flags_byte else None)
        if int(context.type) == UserVarType.DECIMAL:
            value = RawDecimalText(value)
            value.raw = data
        return value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = _encode_user_variable_value(int(context.type), obj)
        stream_write(stream, data, len(data), path)
        return obj


def _encode_user_variable_value(value_type: int, value: Any) -> bytes:
    if value_type == UserVarType.INT:
        return int(value & (1 << 64) - 1).to_bytes(8, "little")
    if value_type == UserVarType.REAL:
        return struct.pack("<d", value)
    if value_type == UserVarType.DECIMAL:
        return bytes(value.raw)
    return value.encode() if isinstance(value, str) else bytes(value)


# --- Bodies of all event types ---

_T = EventType
_TEXT_TO_END = TextField(GreedyBytes)
_OPAQUE_BODY = Struct("data" / GreedyBytes)

# -- statements --------------------------------------------------------------------------------------------------------

_QUERY_HEAD = (
    "thread_id" / Int32ul,
    "exec_time" / Int32ul,
    "db_len" / HiddenField(Int8ul),
    "error_code" / Int16ul,
    "status_len" / HiddenField(Int16ul),
)
_QUERY_VARIABLES_AND_DB = (
    "status_vars" / make_status_variables_field(this.status_len),
    "db" / TextField(Bytes(this.db_len)),
    "db_nul" / HiddenField(Int8ul),
)

QUERY = Struct(*_QUERY_HEAD, *_QUERY_VARIABLES_AND_DB, "sql" / StatementText(GreedyBytes))

QUERY_COMPRESSED = Struct(
    *_QUERY_HEAD,
    *_QUERY_VARIABLES_AND_DB,
    "sql" / NestedSchema(GreedyBytes, CompressedSchema(Struct("text" / _TEXT_TO_END), unpack_compressed_block, "zlib")),
)

EXECUTE_LOAD_QUERY = Struct(
    *_QUERY_HEAD,
    "file_id" / Int32ul,
    "fn_pos_start" / Int32ul,
    "fn_pos_end" / Int32ul,
    "dup_handling" / Enum(Int8ul, ERROR=0, IGNORE=1, REPLACE=2),
    *_QUERY_VARIABLES_AND_DB,
    "sql" / StatementText(GreedyBytes),
)

LOAD_BLOCK = Struct("file_id" / Int32ul, "data" / GreedyBytes)

DELETE_FILE = Struct("file_id" / Int32ul)

ROWS_QUERY = Struct("length" / HiddenField(Int8ul), "sql" / _TEXT_TO_END)

ANNOTATE_ROWS = Struct("sql" / _TEXT_TO_END)

INTVAR = Struct("type" / Enum(Int8ul, LAST_INSERT_ID=1, INSERT_ID=2), "value" / Int64ul)

RAND = Struct("seed1" / Int64ul, "seed2" / Int64ul)

_USER_VALUE = Struct(
    "type" / Enum(Int8ul, UserVarType),
    "charset" / Int32ul,
    "value_len" / HiddenField(Int32ul),
    "value" / UserVariableValue(Bytes(this.value_len)),
    "flags" / IfBytesLeft(FlagsEnum(Int8ul, UNSIGNED=1)),
    "rest" / IfBytesLeft(GreedyBytes),
)

USER_VAR = Struct(
    "name_len" / HiddenField(Int32ul),
    "name" / TextField(Bytes(this.name_len)),
    "is_null" / Int8ul,
    "content" / If(this.is_null == 0, _USER_VALUE),
)

# -- ends of transactions ----------------------------------------------------------------------------------------------

XID = Struct("xid" / Int64ul)

XA_PREPARE_SIZES = Struct(
    "one_phase" / Int8ul,
    "format_id" / Int32sl,
    "gtrid_len" / HiddenField(Int32sl),
    "bqual_len" / HiddenField(Int32sl),
)
"""The fields of an XA_PREPARE before its identifier."""
XA_PREPARE = Struct(
    *XA_PREPARE_SIZES.subcons,
    "gtrid" / TextField(Bytes(this.gtrid_len)),
    "bqual" / TextField(Bytes(this.bqual_len)),
)

# -- the file and its set ----------------------------------------------------------------------------------------------

FORMAT_DESCRIPTION = Struct(
    "binlog_version" / Int16ul,
    "server_version" / NulPaddedText(Bytes(50)),
    "create_timestamp" / Int32ul,
    "header_length" / Int8ul,
    "post_header_len" / PostHeaderLengths(),
    "checksum_alg" / IfBytesLeft(Enum(Int8ul, ChecksumAlgorithm)),
)

ROTATE = Struct("position" / Int64ul, "name" / _TEXT_TO_END)

HEARTBEAT = Struct("name" / _TEXT_TO_END)

INCIDENT = Struct(
    "incident" / Enum(Int16ul, LOST_EVENTS=1),
    "message_len" / HiddenField(Int8ul),
    "message" / TextField(Bytes(this.message_len)),
)

BINLOG_CHECKPOINT = Struct("name_len" / HiddenField(Int32ul), "name" / TextField(Bytes(this.name_len)))

START_ENCRYPTION = Struct("scheme" / Int8ul, "key_version" / Int32ul, "nonce" / Bytes(12))


def _is_end_field(field: Any, fields: Any, context: Any) -> bool:
    return int(field.type) == 0


_HEARTBEAT_FIELD = Struct(
    "type" / Enum(Lenenc(), END=0, LOG_FILENAME=1, LOG_POSITION=2),
    "length" / If(this.type != "END", Lenenc()),
    "value"
    / Switch(
        this.type,
        {"END": Pass, "LOG_FILENAME": TextField(Bytes(this.length)), "LOG_POSITION": Lenenc()},
        Bytes(this.length),
    ),
)

HEARTBEAT_V2 = Struct("fields" / RepeatUntil(_is_end_field, _HEARTBEAT_FIELD))
"""HEARTBEAT_V2 is only sent over the network; no sample is available."""

# -- containers --------------------------------------------------------------------------------------------------------


PARTIAL_ROW_DATA = Struct(
    "head" / PeekInt(Int64ul),
    "total_first" / HiddenField(Computed((this.head & 0xFFFFFFFF) > (this.head >> 32))),
    "fragment"
    / IfThenElse(
        this.total_first,
        Struct("total" / Int32ul, "number" / Int32ul),
        Struct("number" / Int32ul, "total" / Int32ul),
    ),
    "flags" / FlagsEnum(Int8ul, FL_ORIG_EVENT_SIZE=1),
    "original_size" / If(make_flag_condition("flags", "FL_ORIG_EVENT_SIZE"), Int64ul),
    "data" / GreedyBytes,
)
"""Sources disagree on the order of the first two numbers; the fragment number is never higher than the total."""


def make_transaction_payload_construct(events_construct: Construct, unpack_body: Decompressor) -> Construct:
    """Return the construct of TRANSACTION_PAYLOAD.

    Args:
        events_construct: schema of the unpacked bytes.
        unpack_body: unpacks a whole body (`unpack_transaction_payload`).
    """
    packed = CompressedSchema(events_construct, _PayloadUnpacker(unpack_body), "zstd")
    return Struct(
        "fields" / PayloadFields(),
        "payload"
        / NestedSchema(GreedyBytes, Switch(_payload_compression, {ZSTD: packed, UNCOMPRESSED: events_construct})),
    )


def _payload_compression(this_: Any) -> int:
    return int(this_.fields.get("compression", ZSTD))


class _PayloadUnpacker:
    """Unpacks the bytes after the fields of a payload."""

    def __init__(self, codec: Decompressor) -> None:
        self.codec = codec

    def __call__(self, packed: memoryview, limits: Limits) -> bytes | bytearray:
        """Unpack the bytes. Raises DecompressionError: they cannot be unpacked, or are too many."""
        return self.codec(memoryview(b"\0" + bytes(packed)), limits)


# -- by type -----------------------------------------------------------------------------------------------------------


def make_row_event_constructs(table_map_lookup: TableMapLookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the row events by type.

    `table_map_lookup`: table id -> its current table map; None = the images stay opaque.
    """
    return MappingProxyType(
        {int(kind): make_rows_event_construct(kind, table_map_lookup, table_id_size) for kind in ROW_EVENTS}
    )


MAX_PAYLOAD_MAPS = 1024
"""Maximum number of table maps from payloads that are cached."""


def make_payload_event_constructs(table_map_lookup: TableMapLookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the events inside a TRANSACTION_PAYLOAD by type.

    A TABLE_MAP found there by the annotated parse applies to the rows after it.

    Args:
        table_map_lookup: finds the table map of all other table ids.
    """
    payload_maps: dict[int, TableMap] = {}

    def remember_map(table_map: TableMap) -> None:
        if len(payload_maps) >= MAX_PAYLOAD_MAPS:
            payload_maps.clear()
        payload_maps[table_map.table_id] = table_map

    def find_map(table_id: int) -> TableMap | None:
        return payload_maps.get(table_id) or table_map_lookup(table_id)

    table_map_constructs = {_T.TABLE_MAP.value: make_table_map_construct(table_id_size, remember_map, False)}
    return MappingProxyType({**BODIES, **make_row_event_constructs(find_map, table_id_size), **table_map_constructs})


def _find_no_map(table_id: int) -> None:
    return None


BODIES: Mapping[int, Construct] = MappingProxyType(
    {int(kind): _OPAQUE_BODY for kind in EventType}
    | {
        _T.QUERY.value: QUERY,
        _T.STOP.value: Struct(),
        _T.ROTATE.value: ROTATE,
        _T.INTVAR.value: INTVAR,
        _T.APPEND_BLOCK.value: LOAD_BLOCK,
        _T.DELETE_FILE.value: DELETE_FILE,
        _T.RAND.value: RAND,
        _T.USER_VAR.value: USER_VAR,
        _T.FORMAT_DESCRIPTION.value: FORMAT_DESCRIPTION,
        _T.XID.value: XID,
        _T.BEGIN_LOAD_QUERY.value: LOAD_BLOCK,
        _T.EXECUTE_LOAD_QUERY.value: EXECUTE_LOAD_QUERY,
        _T.TABLE_MAP.value: make_table_map_construct(),
        _T.INCIDENT.value: INCIDENT,
        _T.HEARTBEAT.value: HEARTBEAT,
        _T.ROWS_QUERY.value: ROWS_QUERY,
        _T.GTID_LOG.value: GTID_LOG,
        _T.ANONYMOUS_GTID.value: GTID_LOG,
        _T.PREVIOUS_GTIDS.value: PREVIOUS_GTIDS,
        _T.XA_PREPARE.value: XA_PREPARE,
        _T.TRANSACTION_PAYLOAD.value: make_transaction_payload_construct(
            Struct("events" / GreedyBytes), unpack_transaction_payload
        ),
        _T.HEARTBEAT_V2.value: HEARTBEAT_V2,
        _T.GTID_TAGGED_LOG.value: GTID_TAGGED_LOG,
        _T.ANNOTATE_ROWS.value: ANNOTATE_ROWS,
        _T.BINLOG_CHECKPOINT.value: BINLOG_CHECKPOINT,
        _T.GTID.value: GTID,
        _T.GTID_LIST.value: GTID_LIST,
        _T.START_ENCRYPTION.value: START_ENCRYPTION,
        _T.QUERY_COMPRESSED.value: QUERY_COMPRESSED,
        _T.PARTIAL_ROW_DATA.value: PARTIAL_ROW_DATA,
    }
    | dict(make_row_event_constructs(_find_no_map))
)
"""Body schemas by event type; row images and the events inside a payload are opaque."""

SHOWN_BODIES: Mapping[int, BodySchema] = MappingProxyType(
    {kind: BodySchema(schema) for kind, schema in BODIES.items()}
    | {
        _T.GTID_LOG.value: BodySchema(GTID_LOG, ("gtid", "{sid}:{gno}")),
        _T.ANONYMOUS_GTID.value: BodySchema(GTID_LOG, ("gtid", None)),
        _T.GTID.value: BodySchema(GTID, ("gtid", "{domain_id}-{server_id}-{seq_no}"), ("server_id",)),
    }
)
"""Schemas used to show bodies. server_id: from the common header."""


# --- Offsets of fields in the body of QUERY, for kernels ---

find_query_text = make_fields_kernel(QUERY, "sql")
load_query = make_fields_kernel(QUERY, "thread_id", "status_vars", "db", "sql")
load_intvar = make_fields_kernel(INTVAR, "type", "value")
load_rand = make_fields_kernel(RAND, "seed1", "seed2")
load_xid = make_fields_kernel(XID, "xid")
"""Readers for kernels."""
"""Size of the fixed fields of QUERY; then follow status variables, database name, a NUL and the text."""


# --- Events as plain values, and rule violations ---


class Event(NamedTuple):
    """One event.

    `start`, `end`: offsets in the file (of the outer frame, for an event inside a payload). `record`: its number in the
    file. `batch_index`: its index in the batch.
    """

    code: int
    time: int
    server_id: int
    end_log_pos: int
    flags: int
    start: int
    end: int
    record: int
    body: memoryview
    batch_index: int = 0


class EventFault(NamedTuple):
    """Rule that an event violates.

    `id`: id of the finding. `diagnosis`: the rule as a short, machine-readable phrase. `severity`: None = default of
    the id.
    """

    id: str
    text: str
    diagnosis: str
    severity: Severity | None = None
    facts: dict[str, Any] = {}


def get_event(batch: Batch, index: int) -> Event:
    """Return event `index` of a batch; an event inside a payload has the offsets of its outer frame."""
    table = batch.frames
    start, size, record = batch.container_position(index)
    return Event(
        int(table["type_code"][index]), int(table["timestamp"][index]), int(table["server_id"][index]),
        int(table["end_log_pos"][index]), int(table["flags"][index]), start, start + size, record,
        batch.window[int(table["body_start"][index]) : int(table["body_end"][index])], index,
    )  # fmt: skip


def iter_events(batch: Batch, start: int, stop: int) -> Iterator[Event]:
    """Yield the events `[start, stop)` of a batch; faster than `get_event` for many events."""
    table, window = batch.frames, batch.window
    names = ("type_code", "timestamp", "server_id", "end_log_pos", "flags", "body_start", "body_end")
    codes, times, servers, positions, flags, body_starts, body_ends = (
        to_int_list(table[name], start, stop) for name in names
    )
    records = batch.record_numbers(start, stop)
    if batch.is_inside:
        places = [batch.container_position(i) for i in range(start, stop)]
        starts, ends = [one.offset for one in places], [one.offset + one.size for one in places]
    else:
        starts = [batch.base + place for place in to_int_list(table["offset"], start, stop)]
        ends = [batch.base + place for place in to_int_list(table["end"], start, stop)]
    bodies = [window[first:last] for first, last in zip(body_starts, body_ends, strict=True)]
    columns = (codes, times, servers, positions, flags, starts, ends, records, bodies, range(start, stop))
    yield from map(Event, *columns)


# --- Bodies of events as JSON values ---

_MARIADB_GTID = EventType.GTID.value
_COMPRESSED = EventType.QUERY_COMPRESSED.value
_STATEMENTS = frozenset({_T.QUERY.value, _T.EXECUTE_LOAD_QUERY.value})
_TABLE_MAP = EventType.TABLE_MAP.value
_LIMITS = Limits()
_USER_TYPES = {int(kind): kind.name for kind in UserVarType}


class QueryParts(NamedTuple):
    """Fields of QUERY without its length fields; status_vars, db and sql are raw bytes."""

    thread_id: int
    exec_time: int
    error_code: int
    status_vars: bytes
    db: bytes
    sql: bytes


parse_query = make_fields_decoder(QUERY, QueryParts)
parse_load_query = make_fields_decoder(EXECUTE_LOAD_QUERY, QueryParts)
parse_load_file = make_tuple_decoder(EXECUTE_LOAD_QUERY, "file_id", "fn_pos_start", "fn_pos_end", "dup_handling")
parse_xid = make_integer_decoder(XID, "xid")
parse_xa_prepare = make_tuple_decoder(XA_PREPARE, "one_phase", "format_id", "gtrid", "bqual")

# -- special bodies ----------------------------------------------------------------------------------------------------


def _decode_query_compressed(body: bytes, limits: Limits) -> dict[str, Any]:
    fields = BODY_DECODERS[_COMPRESSED](body)
    try:
        sql = unpack_compressed_block(fields["sql"], limits)
    except DecompressionError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None
    return {**fields, "sql": decode_text(sql)}


def check_compressed_query(body: bytes, limits: Limits = _LIMITS) -> None:
    """Check a QUERY_COMPRESSED without keeping its text, which may be large. Raises MalformedError as `decode_body`."""
    parts = parse_query(body)
    decode_status_variables(parts.status_vars)
    try:
        validate_compressed_block(parts.sql, limits)
    except DecompressionError as error:
        raise MalformedError(str(error), finding_id=error.finding_id) from None


_parse_user_var = make_tuple_decoder(USER_VAR, "name", "is_null", "type", "charset", "value", "flags")


def _decode_user_var(body: bytes) -> dict[str, Any]:
    """Decode a USER_VAR body to name, type, collation, value and flags; a NULL variable has no type."""
    name, is_null, kind, charset, raw, flags = _parse_user_var(body)
    if is_null:
        return {"name": decode_text(name), "is_null": True, "value": None}
    flags = flags or 0
    value = decode_user_variable_value(kind, raw, flags)
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
        value = construct_value_to_json(schema.parse(body))
    except MalformedError:
        raise
    except (ConstructError, ArithmeticError, ValueError, RecursionError) as error:
        message = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
        raise MalformedError(message[:300], finding_id="length-out-of-bounds") from None
    return value if isinstance(value, dict) else {"data": value}


_OMITTED_MEMBERS = frozenset({"length"})


def construct_value_to_json(value: Any) -> Any:
    """Convert a parsed value to a JSON-able one: enums and flags by name, absent members omitted."""
    if isinstance(value, EnumIntegerString):
        return str(value)
    if isinstance(value, Container):
        if value.get("_flagsenum"):
            return [str(name) for name, is_set in value.items() if is_set is True and name != "_flagsenum"]
        members = ((name, inner) for name, inner in value.items() if name not in _OMITTED_MEMBERS and name[:1] != "_")
        return {name: construct_value_to_json(inner) for name, inner in members if inner is not None}
    if isinstance(value, list):
        return [construct_value_to_json(inner) for inner in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _decode_format_description(body: bytes) -> dict[str, Any]:
    fields = _decode_by_schema(_T.FORMAT_DESCRIPTION, body)
    return {**fields, "post_header_len": list(fields["post_header_len"])}


class _LazyBodyDecoders(dict[int, Callable[..., dict[str, Any]]]):
    """Body readers by type code, which are generated from the schemas on first use."""

    def __missing__(self, type_code: int) -> Callable[..., dict[str, Any]]:
        shown = SHOWN_BODIES.get(type_code)
        reader: Callable[..., dict[str, Any]] | None = None
        if shown is not None and type_code not in ROW_EVENTS:
            reader = make_body_decoder(shown).generate_decoder()
        self[type_code] = reader or partial(_decode_by_schema, type_code)
        return self[type_code]


BODY_DECODERS: Mapping[int, Callable[..., dict[str, Any]]] = _LazyBodyDecoders(
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
"""Type code -> function that decodes a body; for MariaDB's GTID it also takes the server id."""


def decode_body(
    type_code: int,
    body: bytes | memoryview,
    description: FormatDescription | None,
    server_id: int = 0,
    limits: Limits = _LIMITS,
) -> dict[str, Any]:
    """Decode the body of an event (without header and checksum) to the field names of the specification.

    Row events are only decoded up to the images, TRANSACTION_PAYLOAD only up to the payload.

    Args:
        description: only needed for a TABLE_MAP.
        server_id: from the common header, for the middle number of MariaDB's GTIDs.

    Raises:
        MalformedError: the body does not match its type.
    """
    if body.__class__ is not bytes:
        body = bytes(body)
    if type_code == _MARIADB_GTID:
        return BODY_DECODERS[type_code](body, server_id)
    if type_code == _TABLE_MAP:
        if description is None:
            return parse_table_map(body).to_json_body()
        return parse_table_map(body, description.table_id_size, description.is_mariadb).to_json_body()
    if type_code == _COMPRESSED:
        return recode_statement_text(_decode_query_compressed(body, limits))
    if type_code in _STATEMENTS:
        return recode_statement_text(BODY_DECODERS[type_code](body))
    return BODY_DECODERS[type_code](body)


# --- The event on disk ---

SCAN_COLUMNS = (
    "timestamp",
    "type_code",
    "server_id",
    "event_size",
    "end_log_pos",
    "flags",
    "body_start",
    "body_end",
    "crc32",
)
"""Columns that the scanner yields for each event, in every form. `crc32` is 0 if the event has no checksum."""

_DESCRIPTION = EventType.FORMAT_DESCRIPTION.value
_MAX_DESCRIPTION_BYTES = 4096


class EventChecksumForm(enum.IntEnum):
    """Form of the end of an event (docs/spec/mysql_binlog.md#format_description-and-checksums).

    BARE: servers without checksums. PLAIN: checksum_alg 0, only FORMAT_DESCRIPTION ends with a checksum. CRC: every
    event ends with a checksum.
    """

    BARE = 1
    PLAIN = 2
    CRC = 3


@kernel(load_uint32)
def detect_checksum_form(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return (checksum form that the FORMAT_DESCRIPTION at `buf[pos]` declares, `pos`); negative second number:
    truncated or impossible size.
    """
    size = load_uint32(buf, pos - HEADER_SIZE + EVENT_SIZE_AT)
    if size < 19 + 57 or size > 4096:
        return 0, -2
    if size - 19 > limit - pos:
        return 0, -1
    major = 0
    minor = 0
    patch = 0
    number = 0
    cursor = pos + 2
    while cursor < pos + 12:
        digit = buf[cursor] - 48
        cursor += 1
        if digit >= 0 and digit <= 9:
            if number == 0:
                major = major * 10 + digit
            elif number == 1:
                minor = minor * 10 + digit
            elif number == 2:
                patch = patch * 10 + digit
        elif digit == -2:
            number += 1
        else:
            cursor = pos + 12
    is_mariadb = 0
    for i in range(pos + 2, pos + 45):
        if buf[i] == 77 and buf[i + 1] == 97 and buf[i + 2] == 114 and buf[i + 3] == 105 and buf[i + 4] == 97:
            is_mariadb = 1
    version = major * 1000000 + minor * 1000 + patch
    if version < 5003000 or (is_mariadb == 0 and version < 5006001):
        return 1, pos
    if buf[pos - HEADER_SIZE + size - CHECKSUM_SIZE - 1] == 1:
        return 3, pos
    return 2, pos


@kernel(load_uint32)
def compute_in_use_crc_change(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return (value to XOR to the CRC-32 for the in-use flag, 0 if the flag is clear; `pos`).

    Consumes no bytes. A CRC is linear: the difference is the CRC register of a single 1 bit followed by zeros.
    """
    size = load_uint32(buf, pos - HEADER_SIZE + EVENT_SIZE_AT)
    if buf[pos - HEADER_SIZE + FLAGS_AT] & 1 == 0 or size < 23 or size > 4096:
        return 0, pos
    register = 1
    for _ in range(8 * (size - 4 - 17)):
        if register & 1:
            register = register >> 1 ^ 0xEDB88320
        else:
            register = register >> 1
    return register, pos


class HeaderDerivedNumber(Computed):  # type: ignore[misc]
    """Construct of a number without bytes, computed by a kernel from the common header and the body around it."""

    def __init__(self, read: Callable[..., tuple[int, int]]) -> None:
        super().__init__(None)
        self.scan = ScalarKernel(read)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        offset = stream_tell(stream, path)
        stream_seek(stream, offset - HEADER_SIZE, 0, path)
        data = stream.read(_MAX_DESCRIPTION_BYTES)
        stream_seek(stream, offset, 0, path)
        value, status = self.scan.read(data, HEADER_SIZE, len(data))
        if status == -1:
            stream_read(stream, len(data) + 1, path)
        if status < 0:
            raise MalformedError("FORMAT_DESCRIPTION has an impossible size", path, "bad-header")
        return value


_HEADER_TO_SIZE, _HEADER_AFTER_SIZE = HEADER.subcons[:4], HEADER.subcons[4:]


def make_event_construct(checksum_form: EventChecksumForm, bodies: Mapping[int, Construct]) -> Construct:
    """Return the construct of one event; a FORMAT_DESCRIPTION only fits if it declares the same form.

    `bodies`: constructs of the bodies by type.
    """
    is_description = this.type_code == _DESCRIPTION
    checksum_size = CHECKSUM_SIZE if checksum_form is EventChecksumForm.CRC else 0
    min_event_size = HEADER_SIZE + checksum_size
    checksum_bytes = (
        IfThenElse(is_description, Computed(CHECKSUM_SIZE), Computed(0))
        if checksum_form is EventChecksumForm.PLAIN
        else Computed(checksum_size)
    )
    fields = [
        "start" / Tell,
        *_HEADER_TO_SIZE,
        Check(this.event_size >= min_event_size),
        Check(this.event_size <= MAX_EVENT_SIZE),
        *_HEADER_AFTER_SIZE,
        "form" / IfThenElse(is_description, HeaderDerivedNumber(detect_checksum_form), Computed(checksum_form.value)),
        Check(this.form == checksum_form.value),
        "in_use" / IfThenElse(is_description, HeaderDerivedNumber(compute_in_use_crc_change), Computed(0)),
        "body_start" / Tell,
        "tail" / checksum_bytes,
        "body" / NestedSchema(Bytes(this.event_size - HEADER_SIZE - this.tail), Switch(this.type_code, dict(bodies))),
        "body_end" / Tell,
    ]
    if checksum_form is EventChecksumForm.CRC:
        fields += [
            "crc32" / Int32ul,
            "checksum" / CrcCheck(CRC32, this.crc32, this.start, this.body_end, without=this.in_use),
        ]
    elif checksum_form is EventChecksumForm.PLAIN:
        fields += ["crc32" / If(is_description, Int32ul)]
    else:
        fields += ["crc32" / Computed(0)]
    return Struct(*fields)


ENCRYPTED_TYPE = 255
"""Placeholder for the type of an encrypted event; no real event has this type."""

ENCRYPTED_EVENT_FRAME = Struct(
    *ENCRYPTED_EVENT_HEAD.subcons,
    "timestamp" / Computed(0),
    "type_code" / Computed(ENCRYPTED_TYPE),
    "server_id" / Computed(0),
    "end_log_pos" / Computed(0),
    "flags" / Computed(0),
    "body_start" / Computed(this.start + HEADER_SIZE),
    "body_end" / Tell,
    "crc32" / Computed(0),
)
"""Encrypted event without its key, with the columns of other events and a placeholder type."""


def make_body_constructs(
    table_map_lookup: TableMapLookup, table_id_size: int = 6, is_mariadb: bool | None = None
) -> dict[int, Construct]:
    """Return the constructs of the bodies of all event types.

    Args:
        table_map_lookup: table id -> its current table map.
        is_mariadb: whether a MariaDB server wrote the log; None = unknown.
    """
    events = GreedyRange(
        make_event_construct(EventChecksumForm.BARE, make_payload_event_constructs(table_map_lookup, table_id_size))
    )
    return {
        **BODIES,
        **make_row_event_constructs(table_map_lookup, table_id_size),
        EventType.TABLE_MAP.value: make_table_map_construct(table_id_size, is_mariadb=is_mariadb),
        EventType.TRANSACTION_PAYLOAD.value: make_transaction_payload_construct(events, unpack_transaction_payload),
    }


_OPAQUE_BODIES = make_body_constructs(_find_no_map)
EVENTS: Mapping[EventChecksumForm, Construct] = {
    form: make_event_construct(form, _OPAQUE_BODIES) for form in EventChecksumForm
}
"""Constructs of the three forms, with opaque row images (`make_body_constructs` binds them to a file's table maps)."""

_UNENCRYPTED_FLAGS = EventFlag.BINLOG_IN_USE | EventFlag.RELAY_LOG
_START_ENCRYPTION = EventType.START_ENCRYPTION.value


def _unencrypted_event_construct(form: EventChecksumForm) -> Construct:
    return Struct(
        *make_event_construct(form, _OPAQUE_BODIES).subcons,
        Check((this.type_code == _DESCRIPTION) | (this.type_code == _START_ENCRYPTION)),
        Check(this.flags & (0xFFFF ^ _UNENCRYPTED_FLAGS.value) == 0),
    )


UNENCRYPTED_EVENTS: Mapping[EventChecksumForm, Construct] = {
    form: _unencrypted_event_construct(form) for form in EventChecksumForm
}
"""Unencrypted events at the start of an encrypted log; strict, so that encrypted bytes cannot match by chance."""
