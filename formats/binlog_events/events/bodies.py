"""Bodies of all event types: the bytes between common header and checksum.

See docs/spec/mysql-mariadb-binlog.md#bodies-after-the-header-without-the-checksum. The body is the whole stream of
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

from binlogtool.formats.binlog_events.codes import ROWS, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.events.statement_text import StatementText
from binlogtool.formats.binlog_events.events.user_var import UserValue, UserVarType
from binlogtool.formats.binlog_events.gtid.schema import GTID, GTID_LIST, GTID_LOG, GTID_TAGGED_LOG, PREVIOUS_GTIDS
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.rows.table_map_view import table_map_body
from binlogtool.formats.binlog_events.rows.view import Lookup, rows_event
from binlogtool.formats.binlog_events.wire.compression import STORED, ZSTD, unpack_block, unpack_payload
from binlogtool.formats.binlog_events.wire.fields import Lenenc, NulPadded
from binlogtool.formats.binlog_events.wire.parts import PayloadFields, PostHeaderLengths
from binlogtool.formats.binlog_events.wire.status import StatusVars
from binlogtool.formats.bodies import (
    Ahead,
    IfMore,
    Shown,
    Text,
    Unshown,
    flagged,
)
from binlogtool.formats.fields import Expanded, Unpacked
from binlogtool.formats.layouts import Codec
from binlogtool.limits import Limits

_T = EventType
_REST = Text(GreedyBytes)
_OPAQUE = Struct("data" / GreedyBytes)

# -- statements --------------------------------------------------------------------------------------------------------

_QUERY_HEAD = (
    "thread_id" / Int32ul,
    "exec_time" / Int32ul,
    "db_len" / Unshown(Int8ul),
    "error_code" / Int16ul,
    "status_len" / Unshown(Int16ul),
)
_QUERY_NAMES = (
    "status_vars" / Expanded(Bytes(this.status_len), StatusVars()),
    "db" / Text(Bytes(this.db_len)),
    "db_nul" / Unshown(Int8ul),
)

QUERY = Struct(*_QUERY_HEAD, *_QUERY_NAMES, "sql" / StatementText(GreedyBytes))

QUERY_COMPRESSED = Struct(
    *_QUERY_HEAD,
    *_QUERY_NAMES,
    "sql" / Expanded(GreedyBytes, Unpacked(Struct("text" / _REST), unpack_block, "zlib")),
)

EXECUTE_LOAD_QUERY = Struct(
    *_QUERY_HEAD,
    "file_id" / Int32ul,
    "fn_pos_start" / Int32ul,
    "fn_pos_end" / Int32ul,
    "dup_handling" / Enum(Int8ul, ERROR=0, IGNORE=1, REPLACE=2),
    *_QUERY_NAMES,
    "sql" / StatementText(GreedyBytes),
)

LOAD_BLOCK = Struct("file_id" / Int32ul, "data" / GreedyBytes)

DELETE_FILE = Struct("file_id" / Int32ul)

ROWS_QUERY = Struct("length" / Unshown(Int8ul), "sql" / _REST)

ANNOTATE_ROWS = Struct("sql" / _REST)

INTVAR = Struct("type" / Enum(Int8ul, LAST_INSERT_ID=1, INSERT_ID=2), "value" / Int64ul)

RAND = Struct("seed1" / Int64ul, "seed2" / Int64ul)

_USER_VALUE = Struct(
    "type" / Enum(Int8ul, UserVarType),
    "charset" / Int32ul,
    "value_len" / Unshown(Int32ul),
    "value" / UserValue(Bytes(this.value_len)),
    "flags" / IfMore(FlagsEnum(Int8ul, UNSIGNED=1)),
    "rest" / IfMore(GreedyBytes),
)

USER_VAR = Struct(
    "name_len" / Unshown(Int32ul),
    "name" / Text(Bytes(this.name_len)),
    "is_null" / Int8ul,
    "content" / If(this.is_null == 0, _USER_VALUE),
)

# -- ends of transactions ----------------------------------------------------------------------------------------------

XID = Struct("xid" / Int64ul)

XA_PREPARE = Struct(
    "one_phase" / Int8ul,
    "format_id" / Int32sl,
    "gtrid_len" / Unshown(Int32sl),
    "bqual_len" / Unshown(Int32sl),
    "gtrid" / Text(Bytes(this.gtrid_len)),
    "bqual" / Text(Bytes(this.bqual_len)),
)

# -- the file and its set ----------------------------------------------------------------------------------------------

FORMAT_DESCRIPTION = Struct(
    "binlog_version" / Int16ul,
    "server_version" / NulPadded(Bytes(50)),
    "create_timestamp" / Int32ul,
    "header_length" / Int8ul,
    "post_header_len" / PostHeaderLengths(),
    "checksum_alg" / IfMore(Enum(Int8ul, ChecksumAlgorithm)),
)

ROTATE = Struct("position" / Int64ul, "name" / _REST)

HEARTBEAT = Struct("name" / _REST)

INCIDENT = Struct(
    "incident" / Enum(Int16ul, LOST_EVENTS=1),
    "message_len" / Unshown(Int8ul),
    "message" / Text(Bytes(this.message_len)),
)

BINLOG_CHECKPOINT = Struct("name_len" / Unshown(Int32ul), "name" / Text(Bytes(this.name_len)))

START_ENCRYPTION = Struct("scheme" / Int8ul, "key_version" / Int32ul, "nonce" / Bytes(12))


def _is_end(field: Any, fields: Any, context: Any) -> bool:
    return int(field.type) == 0


_HEARTBEAT_FIELD = Struct(
    "type" / Enum(Lenenc(), END=0, LOG_FILENAME=1, LOG_POSITION=2),
    "length" / If(this.type != "END", Lenenc()),
    "value"
    / Switch(
        this.type,
        {"END": Pass, "LOG_FILENAME": Text(Bytes(this.length)), "LOG_POSITION": Lenenc()},
        Bytes(this.length),
    ),
)

HEARTBEAT_V2 = Struct("fields" / RepeatUntil(_is_end, _HEARTBEAT_FIELD))
"""Only on the wire; no sample."""

# -- containers --------------------------------------------------------------------------------------------------------


PARTIAL_ROW_DATA = Struct(
    "head" / Ahead(Int64ul),
    "total_first" / Unshown(Computed((this.head & 0xFFFFFFFF) > (this.head >> 32))),
    "fragment"
    / IfThenElse(
        this.total_first,
        Struct("total" / Int32ul, "number" / Int32ul),
        Struct("number" / Int32ul, "total" / Int32ul),
    ),
    "flags" / FlagsEnum(Int8ul, FL_ORIG_EVENT_SIZE=1),
    "original_size" / If(flagged("flags", "FL_ORIG_EVENT_SIZE"), Int64ul),
    "data" / GreedyBytes,
)
"""Sources disagree on the order of the first two numbers; a number is never more than the total."""


def payload_body(events: Construct, codec: Codec) -> Construct:
    """Return the construct of TRANSACTION_PAYLOAD.

    Args:
        events: schema of the unpacked bytes.
        codec: unpacks a whole body (`unpack_payload`).
    """
    packed = Unpacked(events, _PayloadCodec(codec), "zstd")
    return Struct(
        "fields" / PayloadFields(),
        "payload" / Expanded(GreedyBytes, Switch(_compression, {ZSTD: packed, STORED: events})),
    )


def _compression(this_: Any) -> int:
    return int(this_.fields.get("compression", ZSTD))


class _PayloadCodec:
    """Unpacks the bytes after the fields of a payload."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def __call__(self, packed: memoryview, limits: Limits) -> bytes | bytearray:
        """Unpack the bytes.

        Raises:
            CodecError: they cannot be unpacked, or are too many.
        """
        return self.codec(memoryview(b"\0" + bytes(packed)), limits)


# -- by type -----------------------------------------------------------------------------------------------------------


def rows_body(lookup: Lookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the row events by type.

    Args:
        table_map_lookup: table id -> its current table map; None = the images stay opaque.
    """
    return MappingProxyType({int(kind): rows_event(kind, lookup, table_id_size) for kind in ROWS})


MOST_MAPS = 1024
"""Table maps of payloads that are kept."""


def inner_bodies(lookup: Lookup, table_id_size: int = 6) -> Mapping[int, Construct]:
    """Return the constructs of the events inside a TRANSACTION_PAYLOAD by type.

    A TABLE_MAP that the annotated parse finds there applies to the following rows.

    Args:
        table_map_lookup: finds the table map of all other table ids.
    """
    met: dict[int, TableMap] = {}

    def learn(table_map: TableMap) -> None:
        if len(met) >= MOST_MAPS:
            met.clear()
        met[table_map.table_id] = table_map

    def known(table_id: int) -> TableMap | None:
        return met.get(table_id) or lookup(table_id)

    bound = {_T.TABLE_MAP.value: table_map_body(table_id_size, learn, False)}
    return MappingProxyType({**BODIES, **rows_body(known, table_id_size), **bound})


def _no_map(table_id: int) -> None:
    return None


BODIES: Mapping[int, Construct] = MappingProxyType(
    {int(kind): _OPAQUE for kind in EventType}
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
        _T.TABLE_MAP.value: table_map_body(),
        _T.INCIDENT.value: INCIDENT,
        _T.HEARTBEAT.value: HEARTBEAT,
        _T.ROWS_QUERY.value: ROWS_QUERY,
        _T.GTID_LOG.value: GTID_LOG,
        _T.ANONYMOUS_GTID.value: GTID_LOG,
        _T.PREVIOUS_GTIDS.value: PREVIOUS_GTIDS,
        _T.XA_PREPARE.value: XA_PREPARE,
        _T.TRANSACTION_PAYLOAD.value: payload_body(Struct("events" / GreedyBytes), unpack_payload),
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
    | dict(rows_body(_no_map))
)
"""The schema of the body by event type; row images, and the events inside a payload, opaque."""

SHOWN: Mapping[int, Shown] = MappingProxyType(
    {kind: Shown(schema) for kind, schema in BODIES.items()}
    | {
        _T.GTID_LOG.value: Shown(GTID_LOG, ("gtid", "{sid}:{gno}")),
        _T.ANONYMOUS_GTID.value: Shown(GTID_LOG, ("gtid", None)),
        _T.GTID.value: Shown(GTID, ("gtid", "{domain_id}-{server_id}-{seq_no}"), ("server_id",)),
    }
)
"""What is shown of the bodies. server_id: of the common header."""
