"""Event types, flags and checksum algorithms of the binary log, by number.

Source: docs/spec/mysql_binlog.md#event-types.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

MAGIC = b"\xfebin"
"""First bytes of a binary or relay log."""

ENCRYPTED_MAGIC = b"\xfdbin"
"""First bytes of an encrypted file of MySQL 8."""

HEADER_SIZE = 19
CHECKSUM_SIZE = 4
MAX_EVENT_SIZE = 1 << 30
"""The servers' max_allowed_packet: no event is longer."""


class EventType(enum.IntEnum):
    """Type of an event: MySQL's and the common ones below 160, MariaDB's from there on."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS_V2 = 30
    UPDATE_ROWS_V2 = 31
    DELETE_ROWS_V2 = 32
    GTID_LOG = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED_LOG = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED_V2 = 169
    UPDATE_ROWS_COMPRESSED_V2 = 170
    DELETE_ROWS_COMPRESSED_V2 = 171
    PARTIAL_ROW_DATA = 172


class EventFlag(enum.IntFlag):
    """Flags of the common event header (docs/spec/mysql_binlog.md#common-header)."""

    BINLOG_IN_USE = 0x0001
    FORCED_ROTATE = 0x0002
    THREAD_SPECIFIC = 0x0004
    SUPPRESS_USE = 0x0008
    UPDATE_TABLE_MAP_VERSION = 0x0010
    ARTIFICIAL = 0x0020
    RELAY_LOG = 0x0040
    IGNORABLE = 0x0080
    NO_FILTER = 0x0100
    MTS_ISOLATE = 0x0200
    ACCEPT_OWN = 0x4000
    SKIP_REPLICATION = 0x8000


class ChecksumAlgorithm(enum.IntEnum):
    """Values of checksum_alg in FORMAT_DESCRIPTION.

    Source: docs/spec/mysql_binlog.md#format_description-and-checksums.
    """

    NONE = 0
    CRC32 = 1
    UNDEFINED = 255


_VERBS = ("WRITE", "UPDATE", "DELETE")
EVENT_TYPE_NAMES: Mapping[int, str] = MappingProxyType({kind.value: kind.name for kind in EventType})

_T = EventType

TYPE_GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "QUERY": frozenset({"QUERY", "QUERY_COMPRESSED"}),
        **{f"{verb}_ROWS": frozenset(n for n in EVENT_TYPE_NAMES.values() if f"{verb}_ROWS" in n) for verb in _VERBS},
        **{
            f"{verb}_ROWS_COMPRESSED": frozenset(
                n for n in EVENT_TYPE_NAMES.values() if n.startswith(f"{verb}_ROWS_COMPRESSED")
            )
            for verb in _VERBS
        },
    }
)
"""Names that stand for several types: of all versions, compressed or not."""

ROW_EVENTS_V1 = frozenset({_T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1})
ROW_EVENTS_V2 = frozenset({_T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.PARTIAL_UPDATE_ROWS})
COMPRESSED_ROW_EVENTS_V1 = frozenset(
    {_T.WRITE_ROWS_COMPRESSED_V1, _T.UPDATE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V1}
)
COMPRESSED_ROW_EVENTS_V2 = frozenset(
    {_T.WRITE_ROWS_COMPRESSED_V2, _T.UPDATE_ROWS_COMPRESSED_V2, _T.DELETE_ROWS_COMPRESSED_V2}
)
COMPRESSED_ROW_EVENTS = COMPRESSED_ROW_EVENTS_V1 | COMPRESSED_ROW_EVENTS_V2
ROW_EVENTS_WITH_EXTRA_DATA = ROW_EVENTS_V2 | COMPRESSED_ROW_EVENTS_V2
"""Row events whose post-header has extra data (v2)."""
ROW_EVENTS = ROW_EVENTS_V1 | ROW_EVENTS_V2 | COMPRESSED_ROW_EVENTS
UPDATE_ROW_EVENTS = frozenset(
    {_T.UPDATE_ROWS_V1, _T.UPDATE_ROWS_V2, _T.PARTIAL_UPDATE_ROWS, _T.UPDATE_ROWS_COMPRESSED_V1,
     _T.UPDATE_ROWS_COMPRESSED_V2}
)  # fmt: skip
"""Row events with a before and an after image per row."""
DELETE_ROW_EVENTS = frozenset(
    {_T.DELETE_ROWS_V1, _T.DELETE_ROWS_V2, _T.DELETE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V2}
)
"""Row events with a before image per row; all others have an after image."""
QUERY_EVENTS = frozenset({_T.QUERY, _T.QUERY_COMPRESSED})
"""Statements as text."""
MYSQL_GTID_EVENTS = frozenset({_T.GTID_LOG, _T.ANONYMOUS_GTID, _T.GTID_TAGGED_LOG})
GTID_EVENTS = MYSQL_GTID_EVENTS | {_T.GTID}
"""Events that open a group (docs/spec/mysql_binlog.md#transactions-and-truncation)."""
