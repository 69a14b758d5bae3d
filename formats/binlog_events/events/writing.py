"""Write events for a new file of a MariaDB log: those between transactions, and any event at a new position.

An event keeps its bytes except event_size and end_log_pos, and ends with its checksum
(docs/spec/mysql_binlog.md#common-header).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT
from binlogtool.formats.fields import MalformedError

_T = EventType
_HEADER = struct.Struct("<IBIIIH")
_SIZES = struct.Struct("<II")
_SIZES_AT = 9
_DESCRIPTION = struct.Struct("<H50sIB")
_GTID = struct.Struct("<IIQ")
_UINT32_MASK: Final = 0xFFFFFFFF
_MIN_GTID_LIST_BYTES: Final = 6
_MAX_LISTED_GTIDS: Final = (1 << 28) - 1

DEFAULT_SERVER_VERSION: Final = "12.3.0-MariaDB"
"""What a log of which no server's version is known says: the first version that keeps its binary log in InnoDB."""

_LAST_TYPE: Final = EventType.PARTIAL_ROW_DATA
_POST_HEADER_SIZES: Final[dict[int, int]] = {
    _T.START_V3: 56, _T.QUERY: 13, _T.ROTATE: 8, _T.LOAD: 18, _T.CREATE_FILE: 4, _T.APPEND_BLOCK: 4, _T.EXEC_LOAD: 4,
    _T.DELETE_FILE: 4, _T.NEW_LOAD: 18, _T.FORMAT_DESCRIPTION: _DESCRIPTION.size + _LAST_TYPE,
    _T.BEGIN_LOAD_QUERY: 4, _T.EXECUTE_LOAD_QUERY: 26, _T.TABLE_MAP: 8, _T.WRITE_ROWS_V1: 8, _T.UPDATE_ROWS_V1: 8,
    _T.DELETE_ROWS_V1: 8, _T.INCIDENT: 2, _T.WRITE_ROWS_V2: 10, _T.UPDATE_ROWS_V2: 10, _T.DELETE_ROWS_V2: 10,
    _T.PARTIAL_UPDATE_ROWS: 10, _T.TRANSACTION_PAYLOAD: 10, _T.HEARTBEAT_V2: 10, _T.BINLOG_CHECKPOINT: 4, _T.GTID: 19,
    _T.GTID_LIST: 4, _T.QUERY_COMPRESSED: 13, _T.WRITE_ROWS_COMPRESSED_V1: 8, _T.UPDATE_ROWS_COMPRESSED_V1: 8,
    _T.DELETE_ROWS_COMPRESSED_V1: 8, _T.WRITE_ROWS_COMPRESSED_V2: 10, _T.UPDATE_ROWS_COMPRESSED_V2: 10,
    _T.DELETE_ROWS_COMPRESSED_V2: 10, _T.PARTIAL_ROW_DATA: 9,
}  # fmt: skip

DEFAULT_DESCRIPTION: Final = FormatDescription(
    binlog_version=4,
    server_version=DEFAULT_SERVER_VERSION,
    create_timestamp=0,
    header_length=HEADER_SIZE,
    post_header_len=bytes(_POST_HEADER_SIZES.get(code, 0) for code in range(1, _LAST_TYPE + 1)),
    checksum_alg=ChecksumAlgorithm.CRC32.value,
)
"""What a MariaDB server of that version writes."""


def split_events(data: bytes) -> list[bytes]:
    """Split consecutive events.

    Raises:
        MalformedError: an event size is less than a header, or more than the bytes left.
    """
    events: list[bytes] = []
    offset, size = 0, len(data)
    while offset < size:
        length = int.from_bytes(data[offset + EVENT_SIZE_AT : offset + END_LOG_POS_AT], "little")
        if size - offset < HEADER_SIZE or not HEADER_SIZE <= length <= size - offset:
            raise MalformedError(f"{size - offset:,} bytes behind event {len(events)} of the group are no event")
        events.append(data[offset : offset + length])
        offset += length
    return events


def reframe_event(event: bytes, position: int) -> bytes:
    """Return an event without checksum as it is stored at `position` of a file with checksums."""
    size = len(event) + CHECKSUM_SIZE
    unchecked = (
        event[:_SIZES_AT] + _SIZES.pack(size, (position + size) & _UINT32_MASK) + event[_SIZES_AT + _SIZES.size :]
    )
    return unchecked + zlib.crc32(unchecked).to_bytes(CHECKSUM_SIZE, "little")


def encode_event(code: EventType, time: int, server_id: int, body: bytes) -> bytes:
    """Encode an event without checksum; its position is set later.

    Args:
        time: in seconds.
    """
    return _HEADER.pack(time, code, server_id, HEADER_SIZE + len(body), 0, 0) + body


def description_for_new_file(description: FormatDescription, created: int) -> FormatDescription:
    """Return the description for the start of a new file with checksums.

    Args:
        created: see `create_timestamp`.
    """
    post_headers = description.post_header_len or DEFAULT_DESCRIPTION.post_header_len
    crc32 = ChecksumAlgorithm.CRC32.value
    return replace(
        description, post_header_len=post_headers, create_timestamp=created, checksum_alg=crc32, flags=0, event=b""
    )


def encode_description_body(description: FormatDescription) -> bytes:
    """Encode the body of FORMAT_DESCRIPTION without its checksum."""
    version = description.server_version.encode("utf-8", "replace")[:49]
    fixed = _DESCRIPTION.pack(4, version, description.create_timestamp, HEADER_SIZE)
    return fixed + description.post_header_len + bytes([ChecksumAlgorithm.CRC32])


def encode_gtid_list_body(gtids: Iterable[tuple[int, int, int]]) -> bytes:
    """Encode the body of GTID_LIST.

    Args:
        gtids: (domain, server, sequence number); within a domain the newest is last.

    Raises:
        MalformedError: there are more than the event can count.
    """
    packed = b"".join(_GTID.pack(domain, server, number) for domain, server, number in gtids)
    count = len(packed) // _GTID.size
    if count > _MAX_LISTED_GTIDS:
        raise MalformedError(f"{count:,} pairs of domain and server do not go into a GTID_LIST")
    return (count.to_bytes(4, "little") + packed).ljust(_MIN_GTID_LIST_BYTES, b"\0")


def encode_checkpoint_body(name: str) -> bytes:
    """Encode the body of BINLOG_CHECKPOINT.

    Args:
        name: the oldest file that crash recovery needs.
    """
    encoded = name.encode("utf-8", "surrogateescape")
    return len(encoded).to_bytes(4, "little") + encoded


def encode_rotate_body(name: str) -> bytes:
    """Encode the body of a ROTATE to the start of the next file."""
    return len(MAGIC).to_bytes(8, "little") + name.encode("utf-8", "surrogateescape")
