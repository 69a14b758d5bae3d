"""The wire format of events: types, flags, common header, FORMAT_DESCRIPTION, field types of bodies, compression.

See docs/spec/mysql_binlog.md#event-types and #event-bodies. Declared sizes are not trusted: memory only grows with the
bytes that are actually unpacked, and a wrong declared size is an error.
"""

from __future__ import annotations

import enum
import io
import re
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from construct import Adapter, Construct, Int8ul, Int16ul, Int32ul, Struct, stream_read, stream_write

from binlogtool.format_api.schema_fields import (
    MALFORMED,
    DecompressionError,
    LeafFormat,
    MalformedError,
    ScalarForm,
    ScalarKernel,
    TracePart,
    UInt8s,
    count_bytes_left,
    decode_text,
    get_fixed_field_offset,
    kernel,
    load_big_endian,
    load_little_endian,
    make_fields_kernel,
    make_truncation_error,
)
from binlogtool.limits import Limits

# --- Event types, flags and checksum algorithms ---

MAGIC = b"\xfebin"
"""First bytes of a binary or relay log."""

ENCRYPTED_MAGIC = b"\xfdbin"
"""First bytes of an encrypted file of MySQL 8."""

HEADER_SIZE = 19
CHECKSUM_SIZE = 4
MAX_EVENT_SIZE = 1 << 30
"""Maximum size of an event: the servers' max_allowed_packet."""


class EventType(enum.IntEnum):
    """Type of an event: MySQL's and the common ones below 160, MariaDB's own from 160 on."""

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


KNOWN_FLAGS = int(sum(EventFlag))


START_ALTER, ROLLBACK_ALTER = 0x02, 0x08
"""Flags of MariaDB's GTID event and of the statement after it: an ALTER TABLE begins, or is rolled back.

Neither changes the table; COMMIT ALTER has the statement again."""


class RowsFlag(enum.IntEnum):
    """Flags of a row event; STMT_END: it is the last row event of its statement."""

    STMT_END = 0x01
    NO_FOREIGN_KEY_CHECKS = 0x02
    RELAXED_UNIQUE_CHECKS = 0x04
    COMPLETE_ROWS = 0x08
    USE_SQL_FOREIGN_KEY = 0x10
    NO_CHECK_CONSTRAINT_CHECKS = 0x80


STMT_END = RowsFlag.STMT_END.value
KNOWN_ROWS_FLAGS = int(sum(RowsFlag))


class ChecksumAlgorithm(enum.IntEnum):
    """Values of checksum_alg in FORMAT_DESCRIPTION."""

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
"""Names that select several event types: all versions of a type, compressed or not."""

ROW_EVENTS_V1 = frozenset({_T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1})
ROW_EVENTS_V2 = frozenset({_T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.PARTIAL_UPDATE_ROWS})
COMPRESSED_ROW_EVENTS_V1 = frozenset(
    {_T.WRITE_ROWS_COMPRESSED_V1, _T.UPDATE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V1}
)
COMPRESSED_ROW_EVENTS_V2 = frozenset(
    {_T.WRITE_ROWS_COMPRESSED_V2, _T.UPDATE_ROWS_COMPRESSED_V2, _T.DELETE_ROWS_COMPRESSED_V2}
)
COMPRESSED_ROW_EVENTS = COMPRESSED_ROW_EVENTS_V1 | COMPRESSED_ROW_EVENTS_V2
UNCOMPRESSED_ROW_EVENTS: Mapping[int, EventType] = MappingProxyType(
    {kind: EventType[kind.name.replace("_COMPRESSED", "")] for kind in COMPRESSED_ROW_EVENTS}
)
"""Types of compressed row events -> uncompressed types, the only ones that servers accept in a BINLOG statement."""
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
STATEMENT_EVENTS = QUERY_EVENTS | {_T.EXECUTE_LOAD_QUERY}
"""Events that contain a statement as text."""
MYSQL_GTID_EVENTS = frozenset({_T.GTID_LOG, _T.ANONYMOUS_GTID, _T.GTID_TAGGED_LOG})
GTID_EVENTS = MYSQL_GTID_EVENTS | {_T.GTID}
"""Events that open a group (docs/spec/mysql_binlog.md#transactions-and-truncation)."""


# --- Types and flags as plain numbers for kernels ---

QUERY = EventType.QUERY.value
INTVAR = EventType.INTVAR.value
RAND = EventType.RAND.value
XID = EventType.XID.value
TABLE_MAP = EventType.TABLE_MAP.value
WRITE_ROWS_V1 = EventType.WRITE_ROWS_V1.value
DELETE_ROWS_V1 = EventType.DELETE_ROWS_V1.value
ROWS_QUERY = EventType.ROWS_QUERY.value
WRITE_ROWS_V2 = EventType.WRITE_ROWS_V2.value
DELETE_ROWS_V2 = EventType.DELETE_ROWS_V2.value
GTID_LOG = EventType.GTID_LOG.value
ANONYMOUS_GTID = EventType.ANONYMOUS_GTID.value
PARTIAL_UPDATE_ROWS = EventType.PARTIAL_UPDATE_ROWS.value
TRANSACTION_PAYLOAD = EventType.TRANSACTION_PAYLOAD.value
ANNOTATE_ROWS = EventType.ANNOTATE_ROWS.value
GTID = EventType.GTID.value
QUERY_COMPRESSED = EventType.QUERY_COMPRESSED.value
WRITE_COMPRESSED_V1 = EventType.WRITE_ROWS_COMPRESSED_V1.value
WRITE_COMPRESSED_V2 = EventType.WRITE_ROWS_COMPRESSED_V2.value
DELETE_COMPRESSED_V2 = EventType.DELETE_ROWS_COMPRESSED_V2.value

SUPPRESS_USE = EventFlag.SUPPRESS_USE.value
SKIP_REPLICATION = EventFlag.SKIP_REPLICATION.value

# Operation of a row event: its type minus the first type of its version.
INSERTED, UPDATED, DELETED = range(3)
ROW_KINDS = 3
VERSION_OFFSET = WRITE_ROWS_V2 - WRITE_ROWS_V1

# Type of a compressed row event minus the type of the uncompressed event.
COMPRESSED_V1_OFFSET = WRITE_COMPRESSED_V1 - WRITE_ROWS_V1
COMPRESSED_V2_OFFSET = WRITE_COMPRESSED_V2 - WRITE_ROWS_V2


# --- The common header of every event, and the offsets of its fields ---

HEADER = Struct(
    "timestamp" / Int32ul,
    "type_code" / Int8ul,
    "server_id" / Int32ul,
    "event_size" / Int32ul,
    "end_log_pos" / Int32ul,
    "flags" / Int16ul,
)

load_header = make_fields_kernel(HEADER, "timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")
"""Reader for kernels."""

PACKED_HEADER = struct.Struct("<IBIIIH")
"""Common header, for code that reads it before the schema applies, or that writes it."""

TYPE_AT = get_fixed_field_offset(HEADER, "type_code")
SERVER_ID_AT = get_fixed_field_offset(HEADER, "server_id")
EVENT_SIZE_AT = get_fixed_field_offset(HEADER, "event_size")
END_LOG_POS_AT = get_fixed_field_offset(HEADER, "end_log_pos")
FLAGS_AT = get_fixed_field_offset(HEADER, "flags")


def read_event_size(data: bytes | memoryview, at: int = 0) -> int:
    """Return the event_size of the event at `data[at]`; 0 if there are too few bytes."""
    end = at + END_LOG_POS_AT
    return int.from_bytes(data[at + EVENT_SIZE_AT : end], "little") if len(data) >= end else 0


def has_valid_checksum(event: bytes | memoryview) -> bool:
    """Return whether the CRC-32 in the last bytes of an event is right."""
    return zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")


def clear_in_use_flag(event: bytes) -> bytes:
    """Return a FORMAT_DESCRIPTION event without the in-use flag, over which its checksum was computed."""
    return event[:FLAGS_AT] + bytes([event[FLAGS_AT] & ~EventFlag.BINLOG_IN_USE & 0xFF]) + event[FLAGS_AT + 1 :]


# --- FORMAT_DESCRIPTION ---

_FIXED_FIELDS = struct.Struct("<H50sIB")
_CHECKSUM_FIELDS_SIZE = 1 + CHECKSUM_SIZE
_CHECKSUM_SINCE = (5, 6, 1)
_MARIADB_CHECKSUM_SINCE = (5, 3, 0)
_ZERO_POSITIONS_SINCE = (11, 4, 0)


class FormatDescription(msgspec.Struct, frozen=True):
    """Fields of a FORMAT_DESCRIPTION event, and facts that follow from them.

    `post_header_len`: one byte per event type, for type i + 1 at index i. `checksum_alg`: None = the writer does not
    support checksums (then the event itself has none either). `flags`: flags in its common header. `size`: size of the
    whole event. `event`: bytes of the whole event.
    """

    binlog_version: int
    server_version: str
    create_timestamp: int
    header_length: int
    post_header_len: bytes
    checksum_alg: int | None
    flags: int = 0
    size: int = 0
    event: bytes = msgspec.field(default=b"")

    @property
    def is_mariadb(self) -> bool:
        """True if a MariaDB server wrote it."""
        return "MariaDB" in self.server_version

    @property
    def version(self) -> tuple[int, ...]:
        """The first three numbers of the server's version."""
        return parse_version_numbers(self.server_version)

    @property
    def has_checksums(self) -> bool:
        """True if the events after it end with a checksum."""
        return self.checksum_alg == ChecksumAlgorithm.CRC32

    @property
    def may_have_zero_positions(self) -> bool:
        """True if this server writes end_log_pos 0 in cached events.

        See docs/spec/mysql_binlog.md#common-header.
        """
        return self.is_mariadb and self.version >= _ZERO_POSITIONS_SINCE

    def get_post_header_bytes(self, type_code: int) -> int:
        """Return the size in bytes of the fixed part of a body; 0 = not recorded."""
        index = type_code - 1
        return self.post_header_len[index] if 0 <= index < len(self.post_header_len) else 0

    @property
    def table_id_size(self) -> int:
        """Size of a table id in bytes: 4 in very old logs, else 6."""
        return 4 if self.get_post_header_bytes(EventType.TABLE_MAP) == 6 else 6


def parse_version_numbers(text: str) -> tuple[int, ...]:
    """Parse the first three numbers of a version: "10.11.6-MariaDB-log" gives (10, 11, 6).

    The prefix "5.5.5-" that a replica puts before MariaDB's version does not occur in logs and is not handled.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0)


def supports_checksums(server_version: str) -> bool:
    """Return whether a server of this version writes checksum_alg and a checksum into FORMAT_DESCRIPTION."""
    since = _MARIADB_CHECKSUM_SINCE if "MariaDB" in server_version else _CHECKSUM_SINCE
    return parse_version_numbers(server_version) >= since


def parse_format_description(event: bytes | memoryview) -> FormatDescription:
    """Parse a whole FORMAT_DESCRIPTION event: common header, body and checksum.

    Raises:
        MalformedError: the event is too short for its fixed fields.
    """
    data = bytes(event)
    if len(data) < HEADER_SIZE + _FIXED_FIELDS.size:
        raise MalformedError(f"FORMAT_DESCRIPTION of {len(data)} bytes is too short", finding_id="bad-header")
    binlog_version, name, created, header_length = _FIXED_FIELDS.unpack_from(data, HEADER_SIZE)
    server_version = sys.intern(name.rstrip(b"\0").decode("utf-8", "backslashreplace"))
    lengths_at = HEADER_SIZE + _FIXED_FIELDS.size
    algorithm, end = None, len(data)
    if supports_checksums(server_version):
        end = len(data) - _CHECKSUM_FIELDS_SIZE
        if end < lengths_at:
            raise MalformedError(f"FORMAT_DESCRIPTION of {len(data)} bytes is too short", finding_id="bad-header")
        algorithm = data[end]
    flags = int.from_bytes(data[FLAGS_AT:HEADER_SIZE], "little")
    return FormatDescription(
        binlog_version, server_version, created, header_length, data[lengths_at:end], algorithm, flags, len(data), data
    )


# --- A bounded reader of small structures ---

_LENENC = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""Number of bytes after the first byte of a length-encoded integer."""
_LENENC_NULL = 0xFB


class BoundedReader:
    """Reader of `data[offset:end]` from front to back; all its errors are `MalformedError`.

    `label`: name of the structure in error messages. `offset`: offset of the next byte.
    """

    __slots__ = ("data", "end", "label", "offset")

    def __init__(self, data: bytes, label: str, offset: int = 0, end: int | None = None) -> None:
        self.data = data
        self.label = label
        self.offset = offset
        self.end = len(data) if end is None else end

    @property
    def bytes_left(self) -> int:
        """Number of bytes not yet read."""
        return self.end - self.offset

    def skip_bytes(self, size: int, name: str) -> int:
        """Skip the next `size` bytes; return their start."""
        start = self.offset
        if size > self.end - start:
            text = f"{self.label}: {name} of {size:,} bytes at byte {start:,}, only {self.end - start:,} are left"
            raise MalformedError(text)
        self.offset = start + size
        return start

    def read_bytes(self, size: int, name: str) -> bytes:
        """Read the next `size` bytes."""
        start = self.offset
        end = start + size
        if end > self.end:
            self.skip_bytes(size, name)  # raises an error
        self.offset = end
        return self.data[start:end]

    def take_sub_reader(self, size: int, name: str) -> BoundedReader:
        """Return a reader for the next `size` bytes, with the same offsets."""
        start = self.skip_bytes(size, name)
        return BoundedReader(self.data, f"{self.label}: {name}", start, self.offset)

    def read_uint(self, size: int, name: str) -> int:
        """Read a little-endian number of `size` bytes."""
        start = self.offset
        end = start + size
        if end > self.end:
            self.skip_bytes(size, name)  # raises an error
        self.offset = end
        return self.data[start] if size == 1 else int.from_bytes(self.data[start:end], "little")

    def read_lenenc(self, name: str = "a length-encoded number") -> int:
        """Read a length-encoded number: `<0xfb` itself; `0xfc` + 2, `0xfd` + 3, `0xfe` + 8 bytes."""
        first = self.read_uint(1, name)
        if first < _LENENC_NULL:
            return first
        width = _LENENC.get(first)
        if width is None:
            raise MalformedError(f"{self.label}: {name} at byte {self.offset - 1:,} starts with 0x{first:02x}")
        return self.read_uint(width, name)

    def read_length_and_bytes(self, name: str) -> bytes:
        """Read a length-encoded number and that many bytes."""
        return self.read_bytes(self.read_lenenc(f"the length of {name}"), name)


# --- Field types of event bodies ---

_U64 = (1 << 64) - 1


@kernel(load_little_endian)
def load_lenenc(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Load a length-encoded integer: (value, end position); end -1 = truncated, -2 = invalid."""
    if pos >= limit:
        return 0, -1
    first = buf[pos] + 0
    if first < 0xFB:
        return first, pos + 1
    if first == 0xFB or first == 0xFF:
        return 0, -2
    size = 8 if first == 0xFE else first - 0xFA
    if size > limit - pos - 1:
        return 0, -1
    return load_little_endian(buf, pos + 1, size), pos + 1 + size


def read_lenenc(data: bytes, offset: int, end: int) -> tuple[int, int]:
    """Read the length-encoded integer at `data[offset]`; return (value, end position).

    Raises:
        MalformedError: the integer is cut off by `end`, or its first byte is 0xfb (NULL) or 0xff.
    """
    value, stop = load_lenenc(data, offset, end)
    if stop >= 0:
        return value & _U64, stop
    if offset >= end:
        raise make_truncation_error("a length-encoded integer", 1, end - offset)
    if stop == MALFORMED:
        raise MalformedError(f"0x{data[offset]:02x} does not start a length-encoded integer")
    raise make_truncation_error("a length-encoded integer", 1 + _LENENC[data[offset]], end - offset)


def get_lenenc_first_byte(value: int) -> int:
    """Return the first byte of the shortest encoding of a length-encoded integer."""
    if value < 0xFB:
        return value
    return 0xFC + (value > 0xFFFF) + (value > 0xFFFFFF)


def encode_lenenc(value: int) -> bytes:
    """Encode a length-encoded integer in its shortest form, or in the stored form of a `WideLenenc`."""
    code = getattr(value, "code", get_lenenc_first_byte(value))
    return bytes([code]) + int(value).to_bytes(_LENENC[code], "little") if code >= 0xFB else bytes([code])


class WideLenenc(int):
    """Length-encoded integer that was not stored in its shortest form.

    `code`: its first byte as stored.
    """

    code: int

    def __new__(cls, value: int, code: int) -> WideLenenc:  # noqa: D102 - see the class
        number = super().__new__(cls, value)
        number.code = code
        return number


class Lenenc(Construct):  # type: ignore[misc]
    """Construct of a length-encoded integer; a longer form than needed is preserved (`WideLenenc`)."""

    scan = ScalarKernel(
        load_lenenc, (ScalarForm(0, 0xFA), ScalarForm(0xFC, 0xFC, "<H"), ScalarForm(0xFE, 0xFE, "<Q")), unsigned=True
    )

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = stream_read(stream, 1, path)
        if data[0] in _LENENC:
            data += stream_read(stream, _LENENC[data[0]], path)
        value, _ = read_lenenc(data, 0, len(data))
        return value if data[0] == get_lenenc_first_byte(value) else WideLenenc(value, data[0])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = encode_lenenc(obj)
        stream_write(stream, data, len(data), path)
        return obj


def _strip_nul_padding(value: bytes) -> str | bytes:
    return decode_text(value.rstrip(b"\0"))


class NulPaddedText(Adapter):  # type: ignore[misc]
    """Construct of text in a field of fixed size, padded with NULs."""

    leaf = LeafFormat(_strip_nul_padding)

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return _strip_nul_padding(obj)

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        data = obj.encode() if isinstance(obj, str) else obj
        return data.ljust(self.subcon.sizeof(), b"\0")


def describe_flags(value: int, names: Mapping[int, str]) -> str:
    """Describe flags: names of the bits that are set, then the rest as a number, as in `STMT_END|0x40`."""
    words = [name for mask, name in names.items() if value & mask]
    rest = value & ~sum(names)
    return "|".join([*words, hex(rest)] if rest else words)


# --- Field types of single events ---


class PostHeaderLengths(Construct):  # type: ignore[misc]
    """Construct of post_header_len: one byte per event type from 1 on, up to checksum_alg or the end."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        name = context.server_version
        version = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        size = count_bytes_left(stream) - supports_checksums(version)
        if size < 0:
            raise MalformedError("too short for checksum_alg", path, "length-out-of-bounds")
        data: bytes = stream_read(stream, size, path)
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace one row for each type."""
        for offset in range(start, end):
            yield TracePart(
                f"[{offset - start}]", 1, offset, offset + 1, data[offset], EVENT_TYPE_NAMES.get(offset - start + 1, "")
            )


PAYLOAD_FIELDS = {1: "payload_size", 2: "compression", 3: "uncompressed_size"}
COMPRESSIONS = {0: "ZSTD", 255: "NONE"}


class PayloadFieldValues(dict[str, int]):
    """Fields before a payload, by name; `raw_bytes`: their stored bytes."""

    raw_bytes: bytes


class PayloadFields(Construct):  # type: ignore[misc]
    """Construct of the TRANSACTION_PAYLOAD fields before the payload: type, length, value of each; type 0 ends them."""

    def _parse(self, stream: Any, context: Any, path: str) -> PayloadFieldValues:
        start, data = stream.tell(), stream.read()
        values, size = PayloadFieldValues(), 0
        for part in trace_payload_fields(data, 0, len(data)):
            name = part.path[1:]
            if name.endswith(".value"):
                values[name[:-6]] = part.value
            size = part.end or size
        values.raw_bytes = data[:size]
        stream.seek(start + size)
        return values

    def _build(self, obj: PayloadFieldValues, stream: Any, context: Any, path: str) -> PayloadFieldValues:
        stream_write(stream, obj.raw_bytes, len(obj.raw_bytes), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace each field: type, length and value."""
        return trace_payload_fields(data, start, end)


def trace_payload_fields(data: bytes, offset: int, end: int) -> Iterator[TracePart]:
    """Trace the fields before a payload; an unknown field is named `field_TYPE`.

    Raises:
        MalformedError: a length or value exceeds the remaining bytes.
    """
    while True:
        kind, type_end = read_lenenc(data, offset, end)
        if kind == 0:
            yield TracePart(".end_mark", 1, offset, type_end, kind)
            return
        name = PAYLOAD_FIELDS.get(kind, f"field_{kind}")
        yield TracePart(f".{name}", 1, offset, None)
        yield TracePart(f".{name}.type", 2, offset, type_end, kind)
        size, value_start = read_lenenc(data, type_end, end)
        value_end = value_start + size
        if value_end > end:
            raise make_truncation_error(f"field {kind}", size, end - value_start)
        value: Any = data[value_start:value_end]
        if kind in PAYLOAD_FIELDS:
            value, number_end = read_lenenc(data, value_start, value_end)
            if number_end != value_end:
                raise MalformedError(f"field {kind} has {size} bytes, its number {number_end - value_start}")
        yield TracePart(f".{name}.length", 2, type_end, value_start, size)
        if size:
            yield TracePart(
                f".{name}.value", 2, value_start, value_end, value, COMPRESSIONS.get(value, "") if kind == 2 else ""
            )
        offset = value_end


# --- Compressed parts of a log ---

ZSTD = 0
UNCOMPRESSED = 255
"""Compression type of a payload that is not compressed."""

_BLOCK_MARK = 0x80
_LENGTH_MASK = 0x07
_ALGORITHM_MASK = 0x70
_RAW_DEFLATE = 0x08
_METHOD_MASK = 0xF0
_PIECE_BYTES = 1 << 20
_FEED_BYTES = 1 << 16
"""Number of packed bytes that are unpacked at a time."""
_MAX_WINDOW = 1 << 27
_END_FIELD, _SIZE_FIELD, _COMPRESSION_FIELD, _UNCOMPRESSED_SIZE_FIELD = 0, 1, 2, 3


def unpack_compressed_block(compressed_block: bytes | memoryview, limits: Limits) -> bytes:
    """Unpack a compressed block: the text of QUERY_COMPRESSED, the images of a compressed row event.

    Raises:
        DecompressionError: compression-error (not a block, damaged, truncated, size differs) or inflate-limit.
    """
    return _join_pieces(iter_unpacked_block_pieces(compressed_block, limits))


def iter_unpacked_block_pieces(compressed_block: bytes | memoryview, limits: Limits) -> Iterator[bytes]:
    """Unpack a compressed block piece by piece.

    Raises DecompressionError as `unpack_compressed_block`, before the last piece.
    """
    packed, declared = _parse_compressed_block(compressed_block)
    return _iter_inflated_pieces(packed, declared, limits.max_inflate, zlib.MAX_WBITS)


def read_declared_unpacked_size(compressed_block: bytes | memoryview) -> int:
    """Read the unpacked size that a compressed block declares. Raises DecompressionError: it is not a block."""
    return _parse_compressed_block(compressed_block)[1]


def validate_compressed_block(compressed_block: bytes | memoryview, limits: Limits) -> None:
    """Unpack a compressed block without keeping the result. Raises DecompressionError as `unpack_compressed_block`."""
    for _ in iter_unpacked_block_pieces(compressed_block, limits):
        pass


@kernel(load_big_endian)
def load_compressed_block_head(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Load the declared size of the compressed block at `buf[pos]`; return it and the position of the packed bytes.

    The position is -2 if it is not such a block.
    """
    width = buf[pos] & _LENGTH_MASK if pos < limit else 0
    if width < 1 or width > 4 or buf[pos] - width != _BLOCK_MARK or limit - pos <= width:
        return 0, -2
    return load_big_endian(buf, pos + 1, width), pos + 1 + width


def _parse_compressed_block(compressed_block: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """Return (packed bytes of a block, declared size)."""
    declared, start = load_compressed_block_head(compressed_block, 0, len(compressed_block))
    if start >= 0:
        return compressed_block[start:], declared
    head = compressed_block[0] if len(compressed_block) else 0
    if not head & _BLOCK_MARK or head & _RAW_DEFLATE:
        raise DecompressionError("compression-error", f"not a compressed block: its first byte is 0x{head:02x}")
    if head & _ALGORITHM_MASK:
        raise DecompressionError("compression-error", f"compression algorithm {head >> 4 & 7} of a block is unknown")
    width = head & _LENGTH_MASK
    raise DecompressionError(
        "compression-error", f"a compressed block of {len(compressed_block)} bytes with a length of {width} bytes"
    )


def unpack_compressed_column_value(compressed_value: bytes, max_bytes: int) -> bytes:
    """Unpack a value of a COMPRESSED column to at most `max_bytes` bytes.

    Raises:
        DecompressionError: compression-error or inflate-limit.
    """
    if not compressed_value:
        return compressed_value
    head = compressed_value[0]
    if head == 0:
        return compressed_value[1:]
    width = head & _LENGTH_MASK
    if head & _METHOD_MASK != _BLOCK_MARK or not width or 1 + width > len(compressed_value):
        raise DecompressionError(
            "compression-error", f"a compressed value of {len(compressed_value)} bytes starts with 0x{head:02x}"
        )
    declared = int.from_bytes(compressed_value[1 : 1 + width], "big")
    bits = -zlib.MAX_WBITS if head & _RAW_DEFLATE else zlib.MAX_WBITS
    return _join_pieces(_iter_inflated_pieces(compressed_value[1 + width :], declared, max_bytes, bits))


def _join_pieces(pieces: Iterator[bytes]) -> bytes:
    """Join the pieces of an unpacked value, which is never in memory twice."""
    joined = io.BytesIO()
    joined.writelines(pieces)
    return joined.getvalue()


def _iter_inflated_pieces(
    zlib_stream: bytes | memoryview, declared_bytes: int, max_bytes: int, window_bits: int
) -> Iterator[bytes]:
    """Inflate a zlib stream of exactly `declared_bytes` bytes piece by piece; the last piece only comes if all is
    valid.
    """
    if declared_bytes > max_bytes:
        raise DecompressionError(
            "inflate-limit", f"declares {declared_bytes:,} bytes unpacked, {max_bytes:,} are allowed"
        )
    unpacker, size, offset, has_pending = zlib.decompressobj(window_bits), 0, 0, False
    while size <= declared_bytes and not unpacker.eof and (has_pending or offset < len(zlib_stream)):
        packed = unpacker.unconsumed_tail
        if not packed and not has_pending:
            packed, offset = bytes(zlib_stream[offset : offset + _FEED_BYTES]), offset + _FEED_BYTES
        try:
            piece = unpacker.decompress(packed, max_piece := min(_PIECE_BYTES, declared_bytes + 1 - size))
        except zlib.error as error:
            raise DecompressionError("compression-error", f"zlib: {error}") from None
        size += len(piece)
        has_pending = (
            bool(unpacker.unconsumed_tail) or len(piece) == max_piece
        )  # unpacked bytes may be pending without further input
        if size <= declared_bytes:
            yield piece
    if size != declared_bytes:
        actual = f"more than {declared_bytes:,}" if size > declared_bytes else f"{size:,}"
        raise DecompressionError("compression-error", f"unpacks to {actual} bytes, declared are {declared_bytes:,}")
    if not unpacker.eof or unpacker.unused_data or offset < len(zlib_stream):
        problem = "bytes after the" if unpacker.eof else "the end is missing:"
        raise DecompressionError("compression-error", f"{problem} zlib stream")


class TransactionPayloadHeader(msgspec.Struct, frozen=True):
    """Fields of TRANSACTION_PAYLOAD; None = the field is absent.

    `data_at`: offset of the packed bytes in the body.
    """

    data_at: int
    payload_size: int
    compression: int
    uncompressed_size: int | None


def parse_transaction_payload_header(body: bytes | memoryview) -> TransactionPayloadHeader:
    """Parse the fields before the packed bytes of a TRANSACTION_PAYLOAD body.

    Raises:
        MalformedError: a field does not fit, or the packed bytes do not end with the body.
    """
    reader = BoundedReader(bytes(body[: 1 << 12]), "TRANSACTION_PAYLOAD")
    fields: dict[int, int] = {}
    while (kind := reader.read_lenenc()) != _END_FIELD:
        fields[kind] = reader.take_sub_reader(reader.read_lenenc(), f"field {kind}").read_lenenc()
    payload_size = fields.get(_SIZE_FIELD, len(body) - reader.offset)
    if payload_size != len(body) - reader.offset:
        text = f"TRANSACTION_PAYLOAD declares {payload_size:,} packed bytes, {len(body) - reader.offset:,} follow"
        raise MalformedError(text)
    return TransactionPayloadHeader(
        reader.offset, payload_size, fields.get(_COMPRESSION_FIELD, ZSTD), fields.get(_UNCOMPRESSED_SIZE_FIELD)
    )


def unpack_transaction_payload(body: bytes | memoryview, limits: Limits) -> bytes | bytearray:
    """Unpack the events inside a TRANSACTION_PAYLOAD from its whole body.

    Raises:
        DecompressionError: compression-error or inflate-limit.
    """
    try:
        payload = parse_transaction_payload_header(body)
    except MalformedError as error:
        raise DecompressionError("compression-error", str(error)) from None
    packed = body[payload.data_at :]
    if payload.compression == ZSTD:
        unpacked: bytes | bytearray = _unpack_zstd(packed, payload.uncompressed_size, limits.max_inflate)
    elif payload.compression == UNCOMPRESSED:
        unpacked = bytes(packed)
    else:
        raise DecompressionError("compression-error", f"compression type {payload.compression} of a payload is unknown")
    declared = payload.uncompressed_size
    if declared is not None and len(unpacked) != declared:
        raise DecompressionError("compression-error", f"unpacks to {len(unpacked):,} bytes, declared are {declared:,}")
    return unpacked


def _unpack_zstd(packed: bytes | memoryview, declared_bytes: int | None, max_bytes: int) -> bytearray:
    """Unpack consecutive zstd frames, to at most one piece more than the limit."""
    if declared_bytes is not None and declared_bytes > max_bytes:
        raise DecompressionError(
            "inflate-limit", f"declares {declared_bytes:,} bytes unpacked, {max_bytes:,} are allowed"
        )
    ceiling = max_bytes if declared_bytes is None else declared_bytes
    out, size = bytearray(min(_PIECE_BYTES, ceiling + 1)), 0
    unpacker, zstd_error = _load_zstd()
    try:
        with unpacker.stream_reader(packed, read_across_frames=True) as reader:
            while read_size := reader.readinto(memoryview(out)[size:]):
                size += read_size
                if size > ceiling:
                    raise _oversize_error(ceiling, max_bytes)
                if size == len(out):
                    out += bytes(min(_PIECE_BYTES, ceiling + 1 - size))
    except zstd_error as error:
        raise DecompressionError("compression-error", f"zstd: {error}") from None
    del out[size:]
    return out


def _oversize_error(ceiling: int, limit: int) -> DecompressionError:
    if ceiling == limit:
        return DecompressionError("inflate-limit", f"unpacks to more than {limit:,} bytes")
    return DecompressionError("compression-error", f"unpacks to more than the declared {ceiling:,} bytes")


@cache
def _load_zstd() -> tuple[Any, type[Exception]]:
    """Return (decompressor, its exception class); zstandard is imported at the first call."""
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW), zstandard.ZstdError
