"""Constants of files and rows, and the names of row types, keys and spaces.

Source: Tarantool `src/box/xlog.c`, `src/box/xrow.c`, `src/box/iproto_constants.h`, `src/box/vy_log.c`,
`src/box/vy_run.c`; `docs/spec/tarantool.md`.
"""

from __future__ import annotations

import enum
from typing import Any

# --- Tarantool journal files ---

PLAIN_MAGIC = 0xD5BA0BAB
ZSTD_MAGIC = 0xD5BA0BBA
END_MARK = bytes.fromhex("d510aded")
MAGIC_PATTERN = rb"\xd5\xba\x0b[\xab\xba]"
"""Pattern that matches both magic numbers of a block."""

BLOCK_START_PATTERN = MAGIC_PATTERN + rb"(?:[\x00-\x7f\xcc-\xcf]|\Z)"
"""Pattern for the start of a block: a magic, then a possible first byte of an unsigned integer."""

FIXHEADER_SIZE = 19
"""Size of the fixed header of a block, before its payload, in bytes (XLOG_FIXHEADER_SIZE)."""

MAX_SPACE_ID = 2**31 - 1
"""Largest id of a space (BOX_SPACE_MAX)."""

MAX_PAYLOAD_SIZE = 2**31
"""Maximum size of a payload that the server accepts, in bytes (IPROTO_BODY_LEN_MAX)."""

UINT32_MASK = (1 << 32) - 1
"""Mask for the bits that the server keeps of numbers in a fixed header."""

COMPRESS_THRESHOLD = 2048
"""Size in bytes, fixed header included, from which the server compresses a block (XLOG_TX_COMPRESS_THRESHOLD)."""

VCLOCK_MAX = 32
"""Number of components of a vclock."""

BOX_SYSTEM_ID_MAX = 511
"""Highest id of a system space; user spaces have higher ids."""


class FileKind(enum.StrEnum):
    """Kind of a file, by its first line (`docs/spec/tarantool.md#text-header`)."""

    XLOG = "XLOG"
    SNAP = "SNAP"
    VYLOG = "VYLOG"
    RUN = "RUN"
    INDEX = "INDEX"


class RowType(enum.IntEnum):
    """Type of a row (`docs/spec/tarantool.md#row-types`)."""

    SELECT = 1
    INSERT = 2
    REPLACE = 3
    UPDATE = 4
    DELETE = 5
    UPSERT = 9
    NOP = 12
    INSERT_ARROW = 17
    DELETE_RANGE = 18
    RAFT = 30
    RAFT_PROMOTE = 31
    RAFT_DEMOTE = 32
    CONFIRM = 40
    ROLLBACK = 41
    RUNINFO = 100
    PAGEINFO = 101
    ROWINDEX = 102


class HeaderKey(enum.IntEnum):
    """Keys of a row's header map (`docs/spec/tarantool.md#row-header`)."""

    TYPE = 0x00
    SYNC = 0x01
    REPLICA_ID = 0x02
    LSN = 0x03
    TIMESTAMP = 0x04
    SCHEMA_VERSION = 0x05
    SERVER_VERSION = 0x06
    GROUP_ID = 0x07
    TSN = 0x08
    FLAGS = 0x09
    STREAM_ID = 0x0A
    THREAD_ID = 0x0B


class BodyKey(enum.IntEnum):
    """Keys of a row's body map (`docs/spec/tarantool.md#row-types`)."""

    REPLICA_ID = 0x02
    LSN = 0x03
    SPACE_ID = 0x10
    INDEX_ID = 0x11
    LIMIT = 0x12
    OFFSET = 0x13
    ITERATOR = 0x14
    INDEX_BASE = 0x15
    KEY = 0x20
    TUPLE = 0x21
    FUNCTION_NAME = 0x22
    USER_NAME = 0x23
    INSTANCE_UUID = 0x24
    REPLICASET_UUID = 0x25
    VCLOCK = 0x26
    EXPR = 0x27
    OPS = 0x28
    BALLOT = 0x29
    TUPLE_META = 0x2A
    OPTIONS = 0x2B
    OLD_TUPLE = 0x2C
    NEW_TUPLE = 0x2D
    DATA = 0x30
    ERROR_24 = 0x31
    ARROW = 0x36
    BEGIN_KEY = 0x37
    END_KEY = 0x38
    SQL_TEXT = 0x40
    SQL_BIND = 0x41
    REPLICA_ANON = 0x50
    TERM = 0x53
    VERSION = 0x54
    SPACE_NAME = 0x5E
    INDEX_NAME = 0x5F


KEY_TYPES = (
    1, 1, 1, 1, 9, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0,
    1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    5, 5, 3, 3, 3, 3, 6, 3, 5, 6, 6, 6, 5, 5, 3, 5,
    5, 3, 5, 5, 1, 3, 10, 5, 5, 0, 0, 0, 0, 0, 0, 0,
    3, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 5, 6, 1, 1, 5, 9, 3, 0, 1, 1, 3, 3, 3, 3, 3,
    6, 7, 7, 6, 1,
)  # fmt: skip
"""Value types by key number (`iproto_key_type`): 1 uint, 3 str, 5 array, 6 map, 7 bool, 9 double, 10 ext; 0 varies."""


class RaftKey(enum.IntEnum):
    """Keys of the body of a RAFT row (`docs/spec/tarantool.md#row-types`)."""

    TERM = 0
    VOTE = 1
    STATE = 2
    VCLOCK = 3
    LEADER_ID = 4
    IS_LEADER_SEEN = 5


class RunInfoKey(enum.IntEnum):
    """Keys of RUNINFO (`docs/spec/tarantool.md#vinyl-files`)."""

    MIN_KEY = 1
    MAX_KEY = 2
    MIN_LSN = 3
    MAX_LSN = 4
    PAGE_COUNT = 5
    BLOOM_FILTER_LEGACY = 6
    BLOOM_FILTER = 7
    STMT_STAT = 8
    BLOOM = 9


class PageInfoKey(enum.IntEnum):
    """Keys of PAGEINFO (`docs/spec/tarantool.md#vinyl-files`)."""

    OFFSET = 1
    SIZE = 2
    UNPACKED_SIZE = 3
    ROW_COUNT = 4
    MIN_KEY = 5
    ROW_INDEX_OFFSET = 6


class RowIndexKey(enum.IntEnum):
    """Key of ROWINDEX (`docs/spec/tarantool.md#vinyl-files`)."""

    ROW_INDEX = 1


class RowFlag(enum.IntFlag):
    """Bits of the header key `flags` (`docs/spec/tarantool.md#row-header`)."""

    COMMIT = 1
    WAIT_SYNC = 2
    WAIT_ACK = 4


class VylogType(enum.IntEnum):
    """Record types of the vinyl metadata log (`docs/spec/tarantool.md#vinyl-files`)."""

    CREATE_LSM = 0
    DROP_LSM = 1
    INSERT_RANGE = 2
    DELETE_RANGE = 3
    PREPARE_RUN = 4
    CREATE_RUN = 5
    DROP_RUN = 6
    FORGET_RUN = 7
    INSERT_SLICE = 8
    DELETE_SLICE = 9
    DUMP_LSM = 10
    SNAPSHOT = 11
    TRUNCATE_LSM = 12
    MODIFY_LSM = 13
    FORGET_LSM = 14
    PREPARE_LSM = 15
    REBOOTSTRAP = 16
    ABORT_REBOOTSTRAP = 17


class VylogKey(enum.IntEnum):
    """Keys of the records of the vinyl metadata log (`docs/spec/tarantool.md#vinyl-files`)."""

    LSM_ID = 0
    RANGE_ID = 1
    RUN_ID = 2
    BEGIN = 3
    END = 4
    INDEX_ID = 5
    SPACE_ID = 6
    KEY_DEF = 7
    SLICE_ID = 8
    DUMP_LSN = 9
    GC_LSN = 10
    TRUNCATE_COUNT = 11
    CREATE_LSN = 12
    MODIFY_LSN = 13
    DROP_LSN = 14
    GROUP_ID = 15
    DUMP_COUNT = 16


SYSTEM_SPACES = {
    272: "_schema", 276: "_collation", 277: "_vcollation", 280: "_space", 281: "_vspace", 284: "_sequence",
    285: "_sequence_data", 286: "_vsequence", 288: "_index", 289: "_vindex", 296: "_func", 297: "_vfunc", 304: "_user",
    305: "_vuser", 312: "_priv", 313: "_vpriv", 320: "_cluster", 328: "_trigger", 330: "_truncate",
    340: "_space_sequence", 341: "_vspace_sequence", 356: "_fk_constraint", 364: "_ck_constraint", 372: "_func_index",
    380: "_session_settings",
}  # fmt: skip

UPDATE_OPERATIONS = {
    "=": "set", "+": "add", "-": "subtract", "&": "and", "|": "or", "^": "xor", ":": "splice", "!": "insert",
    "#": "delete",
}  # fmt: skip
"""Names of the update operations (docs/spec/tarantool.md#update-operations)."""


# --- Names of row types, keys and spaces ---

UINT64_MASK = (1 << 64) - 1


class TypeNames(dict[int, str]):
    """Dict of row type -> name; an unknown type is shown as its number."""

    def __missing__(self, row_type: int) -> str:
        return str(row_type & UINT64_MASK)


class SpaceNames(dict[int, str | None]):
    """Dict of space id -> name, extended from `_space` rows as they are read; an unknown id is shown as its number."""

    def __init__(self) -> None:
        super().__init__(SYSTEM_SPACES)
        self[-1] = None

    def __missing__(self, space_id: int) -> str:
        return str(space_id & UINT64_MASK)


def _lower_case_names(members: Any) -> dict[int, str]:
    return {int(member): member.name.lower() for member in members}


TYPE_NAMES = TypeNames({int(member): member.name for member in RowType})
ROW_KINDS = ("INSERT", "REPLACE", "UPDATE", "UPSERT", "DELETE")
"""Types of rows that change tuples."""
HEADER_NAMES = _lower_case_names(HeaderKey)
BODY_NAMES = _lower_case_names(BodyKey)
VYLOG_TYPES = _lower_case_names(VylogType)
VYLOG_KEYS = _lower_case_names(VylogKey)
BODY_NAMES_BY_TYPE: dict[int, dict[int, str]] = {
    RowType.RAFT: _lower_case_names(RaftKey),
    RowType.RUNINFO: _lower_case_names(RunInfoKey),
    RowType.PAGEINFO: _lower_case_names(PageInfoKey),
    RowType.ROWINDEX: _lower_case_names(RowIndexKey),
}
"""Names of body keys for row types with their own set of keys."""


def name_body_key(row_type: int, key: Any) -> str:
    """Return the name of a body key in a row of this type; `key_0x..` if unknown, `key_'..'` if it is not a number."""
    if type(key) is not int:
        return f"key_{key!r}"[:80]
    return BODY_NAMES_BY_TYPE.get(row_type, BODY_NAMES).get(key) or f"key_0x{key:02x}"
