"""Bodies of all event types: the bytes between common header and checksum.

See docs/spec/mysql_binlog.md#event-bodies. The body is the whole stream of
each
schema. Types without a described body are opaque `data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from construct import (
    Bytes,
    Computed,
    Construct,
    Enum,
    FlagsEnum,
    GreedyBytes,
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
    Switch,
    this,
)

from binlogtool.formats.binlog_events.codes import ROW_EVENTS, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.events.statement_text import StatementText
from binlogtool.formats.binlog_events.events.user_var import UserValue, UserVarType
from binlogtool.formats.binlog_events.gtid.schema import GTID, GTID_LIST, GTID_LOG, GTID_TAGGED_LOG, PREVIOUS_GTIDS
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.rows.table_map_view import table_map_construct
from binlogtool.formats.binlog_events.rows.view import TableMapLookup, rows_event_construct
from binlogtool.formats.binlog_events.wire.compression import UNCOMPRESSED, ZSTD, unpack_block, unpack_payload
from binlogtool.formats.binlog_events.wire.fields import Lenenc, NulPadded
from binlogtool.formats.binlog_events.wire.parts import PayloadFields, PostHeaderLengths
from binlogtool.formats.binlog_events.wire.status import StatusVars
from binlogtool.formats.bodies import (
    BodySchema,
    HiddenField,
    IfBytesLeft,
    PeekInt,
    TextField,
    make_flag_condition,
)
from binlogtool.formats.fields import CompressedSchema, NestedSchema
from binlogtool.formats.layouts import Decompressor
from binlogtool.limits import Limits

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
    "status_vars" / NestedSchema(Bytes(this.status_len), StatusVars()),
    "db" / TextField(Bytes(this.db_len)),
    "db_nul" / HiddenField(Int8ul),
)

QUERY = Struct(*_QUERY_HEAD, *_QUERY_VARIABLES_AND_DB, "sql" / StatementText(GreedyBytes))

QUERY_COMPRESSED = Struct(
    *_QUERY_HEAD,
    *_QUERY_VARIABLES_AND_DB,
    "sql" / NestedSchema(GreedyBytes, CompressedSchema(Struct("text" / _TEXT_TO_END), unpack_block, "zlib")),
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
    "value" / UserValue(Bytes(this.value_len)),
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

XA_PREPARE = Struct(
    "one_phase" / Int8ul,
    "format_id" / Int32sl,
    "gtrid_len" / HiddenField(Int32sl),
    "bqual_len" / HiddenField(Int32sl),
    "gtrid" / TextField(Bytes(this.gtrid_len)),
    "bqual" / TextField(Bytes(this.bqual_len)),
)

# -- the file and its set ----------------------------------------------------------------------------------------------

FORMAT_DESCRIPTION = Struct(
    "binlog_version" / Int16ul,
    "server_version" / NulPadded(Bytes(50)),
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
"""Only on the wire; no sample."""

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
"""Sources disagree on the order of the first two numbers; a number is never more than the total."""


def payload_construct(events: Construct, codec: Decompressor) -> Construct:
    """Return the construct of TRANSACTION_PAYLOAD.

    Args:
        events: schema of the unpacked bytes.
        codec: unpacks a whole body (`unpack_payload`).
    """
    packed = CompressedSchema(events, _PayloadCodec(codec), "zstd")
    return Struct(
        "fields" / PayloadFields(),
        "payload" / NestedSchema(GreedyBytes, Switch(_payload_compression, {ZSTD: packed, UNCOMPRESSED: events})),
    )


def _payload_compression(this_: Any) -> int:
    return int(this_.fields.get("compression", ZSTD))


class _PayloadCodec:
    """Unpacks the bytes after the fields of a payload."""

    def __init__(self, codec: Decompressor) -> None:
        self.codec = codec

    def __call__(self, packed: memoryview, limits: Limits) -> bytes | bytearray:
        """Unpack the bytes.

        Raises:
            CodecError: they cannot be unpacked, or are too many.
        """
        return self.codec(memoryview(b"\0" + bytes(packed)), limits)


# -- by type -----------------------------------------------------------------------------------------------------------


def row_event_constructs(table_map_lookup: TableMapLookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the row events by type.

    Args:
        table_map_lookup: table id -> its current table map; None = the images stay opaque.
    """
    return MappingProxyType(
        {int(kind): rows_event_construct(kind, table_map_lookup, table_id_size) for kind in ROW_EVENTS}
    )


MAX_PAYLOAD_MAPS = 1024
"""Table maps of payloads that are kept."""


def payload_event_constructs(table_map_lookup: TableMapLookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the events inside a TRANSACTION_PAYLOAD by type.

    A TABLE_MAP that the annotated parse finds there applies to the following rows.

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

    table_map_constructs = {_T.TABLE_MAP.value: table_map_construct(table_id_size, remember_map, False)}
    return MappingProxyType({**BODIES, **row_event_constructs(find_map, table_id_size), **table_map_constructs})


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
        _T.TABLE_MAP.value: table_map_construct(),
        _T.INCIDENT.value: INCIDENT,
        _T.HEARTBEAT.value: HEARTBEAT,
        _T.ROWS_QUERY.value: ROWS_QUERY,
        _T.GTID_LOG.value: GTID_LOG,
        _T.ANONYMOUS_GTID.value: GTID_LOG,
        _T.PREVIOUS_GTIDS.value: PREVIOUS_GTIDS,
        _T.XA_PREPARE.value: XA_PREPARE,
        _T.TRANSACTION_PAYLOAD.value: payload_construct(Struct("events" / GreedyBytes), unpack_payload),
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
    | dict(row_event_constructs(_find_no_map))
)
"""The schema of the body by event type; row images, and the events inside a payload, opaque."""

SHOWN_BODIES: Mapping[int, BodySchema] = MappingProxyType(
    {kind: BodySchema(schema) for kind, schema in BODIES.items()}
    | {
        _T.GTID_LOG.value: BodySchema(GTID_LOG, ("gtid", "{sid}:{gno}")),
        _T.ANONYMOUS_GTID.value: BodySchema(GTID_LOG, ("gtid", None)),
        _T.GTID.value: BodySchema(GTID, ("gtid", "{domain_id}-{server_id}-{seq_no}"), ("server_id",)),
    }
)
"""What is shown of the bodies. server_id: of the common header."""
