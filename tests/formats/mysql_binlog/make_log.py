"""Hand-made binary logs for tests: events around bodies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

MAGIC = b"\xfebin"
TIME = 1_795_232_544
FORMAT_DESCRIPTION, QUERY, INTVAR, XID, TABLE_MAP, GTID_LOG, GTID = 15, 2, 5, 16, 19, 33, 162
MARIADB, MYSQL = b"10.11.8-MariaDB-log", b"8.4.2"
UUID = bytes.fromhex("3e11fa47-71ca-11e1-9e33-c80aa9429562".replace("-", ""))


def event(
    code: int, body: bytes, checksum: bool = True, time: int = TIME, server: int = 1, flags: int = 0, position: int = 0
) -> bytes:
    """position: end_log_pos."""
    size = 19 + len(body) + 4 * checksum
    data = struct.pack("<IBIIIH", time, code, server, size, position, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def description(version: bytes = MARIADB, checksum: bool = True) -> bytes:
    body = struct.pack("<H50sIB", 4, version, TIME, 19) + bytes(171 if b"Maria" in version else 42)
    return event(FORMAT_DESCRIPTION, body + bytes([checksum]))


def log(events: Iterable[bytes], version: bytes = MARIADB, checksum: bool = True) -> bytes:
    return MAGIC + description(version, checksum) + b"".join(events)


def query(sql: bytes, status: bytes = b"", db: bytes = b"db") -> bytes:
    """The body of QUERY."""
    return struct.pack("<IIBHH", 7, 0, len(db), 0, len(status)) + status + db + b"\0" + sql


def mariadb_gtid(number: int, domain: int = 0, flags: int = 12, more: bytes = bytes(6)) -> bytes:
    """The body of MariaDB's GTID."""
    return struct.pack("<QIB", number, domain, flags) + more


def mysql_gtid(number: int, uuid: bytes = UUID, more: bytes = b"") -> bytes:
    """The body of GTID_LOG."""
    return b"\x00" + uuid + struct.pack("<qBqq", number, 2, number - 1, number) + more
