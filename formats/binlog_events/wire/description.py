"""Parse FORMAT_DESCRIPTION, which describes the events after it.

See docs/spec/mysql_binlog.md#format_description-and-checksums.
"""

from __future__ import annotations

import re
import struct
import sys

import msgspec

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.wire.header import FLAGS_AT
from binlogtool.formats.fields import MalformedError

_FIXED_FIELDS = struct.Struct("<H50sIB")
_CHECKSUM_FIELDS_SIZE = 1 + CHECKSUM_SIZE
_CHECKSUM_SINCE = (5, 6, 1)
_MARIADB_CHECKSUM_SINCE = (5, 3, 0)
_ZERO_POSITIONS_SINCE = (11, 4, 0)


class FormatDescription(msgspec.Struct, frozen=True):
    """The fields of a FORMAT_DESCRIPTION event, and what follows from them.

    Attributes:
        post_header_len: one byte per event type, for type i + 1 at index i.
        checksum_alg: None = the writer does not support checksums (then the event itself has none either).
        flags: of its common header.
        size: of the whole event.
        event: bytes of the whole event.
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
        """True if this server writes end_log_pos 0 in events from a cache.

        See docs/spec/mysql_binlog.md#common-header.
        """
        return self.is_mariadb and self.version >= _ZERO_POSITIONS_SINCE

    def post_header_size(self, type_code: int) -> int:
        """Return the size in bytes of the fixed part of a body; 0 = not recorded."""
        index = type_code - 1
        return self.post_header_len[index] if 0 <= index < len(self.post_header_len) else 0

    @property
    def table_id_size(self) -> int:
        """Bytes of a table id: 4 in very old logs, else 6."""
        return 4 if self.post_header_size(EventType.TABLE_MAP) == 6 else 6


def parse_version_numbers(text: str) -> tuple[int, ...]:
    """Parse the first three numbers of a version: "10.11.6-MariaDB-log" is (10, 11, 6).

    The prefix "5.5.5-" that a replica puts before MariaDB's own number does not occur in logs and is not handled.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0)


def supports_checksums(server_version: str) -> bool:
    """Check if a server of this version writes checksum_alg and a checksum into FORMAT_DESCRIPTION."""
    since = _MARIADB_CHECKSUM_SINCE if "MariaDB" in server_version else _CHECKSUM_SINCE
    return parse_version_numbers(server_version) >= since


def parse_description(event: bytes | memoryview) -> FormatDescription:
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
