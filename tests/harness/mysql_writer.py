"""Binary logs made to order, from the specification alone: right checksums and positions around any body."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

MAGIC = b"\xfebin"
TIME = 1_700_000_000
SERVER = 1
MYSQL, MARIADB = "9.7.4", "11.8.6-MariaDB-log"
TYPES_KNOWN = {MYSQL: 42, MARIADB: 171}
FIXED = {2: 13, 4: 8, 19: 8, 23: 8, 24: 8, 25: 8, 26: 2, 30: 10, 31: 10, 32: 10, 33: 42, 34: 42, 39: 10, 40: 40,
         161: 4, 162: 19, 163: 4, 165: 13, 166: 8, 167: 8, 168: 8}  # fmt: skip
QUERY, XID, TABLE_MAP, PAYLOAD, ANONYMOUS, PREVIOUS, GTID, GTID_LIST = 2, 16, 19, 40, 34, 35, 162, 163


class Made(NamedTuple):
    """One event to write."""

    code: int
    body: bytes
    flags: int = 0
    time: int = TIME


def event(made: Made, at: int, *, crc: bool) -> bytes:
    """The event as it stands at an offset."""
    size = 19 + len(made.body) + 4 * crc
    position = 0 if at < 0 else (at + size) & 0xFFFFFFFF
    head = struct.pack("<IBIIIH", made.time, made.code, SERVER, size & 0xFFFFFFFF, position, made.flags)
    data = head + made.body
    return data + struct.pack("<I", zlib.crc32(data)) if crc else data


def description(server: str = MYSQL, *, crc: bool = True, flags: int = 0) -> bytes:
    """FORMAT_DESCRIPTION; its checksum does not see the in-use flag."""
    lengths = bytes(FIXED.get(code, 0) for code in range(1, TYPES_KNOWN[server] + 1))
    body = struct.pack("<H50sIB", 4, server.encode(), TIME, 19) + lengths + bytes([crc])
    data = bytearray(event(Made(15, body, flags & ~1), 4, crc=True))
    data[17] |= flags & 1
    return bytes(data)


def binlog(events: Sequence[Made], server: str = MYSQL, *, crc: bool = True, flags: int = 0) -> bytes:
    """A log with these events behind its head."""
    first = Made(GTID_LIST, bytes(6)) if server == MARIADB else Made(PREVIOUS, bytes(8))
    parts, at = [MAGIC, description(server, crc=crc, flags=flags)], 4
    at += len(parts[1])
    for made in (first, *events):
        parts.append(event(made, at, crc=crc))
        at += len(parts[-1])
    return b"".join(parts)


def inner(events: Sequence[Made]) -> bytes:
    """Events as they stand inside a TRANSACTION_PAYLOAD."""
    return b"".join(event(made, -1, crc=False) for made in events)


def transaction(*events: Made, number: int = 1) -> list[Made]:
    """A group of MariaDB."""
    return [Made(GTID, struct.pack("<QIB6x", number, 0, 4)), *events, Made(XID, struct.pack("<Q", number))]


def group(*events: Made, number: int = 1) -> list[Made]:
    """A group of MySQL; its GTID event is as short as that of 5.7, so its length need not be right."""
    return [Made(ANONYMOUS, struct.pack("<B16xqBqq", 1, 0, 2, number - 1, number)), *events]


def begun(*events: Made, number: int = 1) -> list[Made]:
    """A group of MySQL from BEGIN to XID."""
    return group(query(b"BEGIN"), *events, Made(XID, struct.pack("<Q", number)), number=number)


def query(text: bytes, database: bytes = b"d", status: bytes = b"", code: int = QUERY) -> Made:
    """QUERY, or QUERY_COMPRESSED if the text is a block."""
    head = struct.pack("<IIBHH", 1, 0, len(database), 0, len(status))
    return Made(code, head + status + database + b"\0" + text)


def lenenc(value: int) -> bytes:
    """A length-encoded integer."""
    if value < 0xFB:
        return bytes([value])
    width, mark = (2, 0xFC) if value < 1 << 16 else (3, 0xFD) if value < 1 << 24 else (8, 0xFE)
    return bytes([mark]) + value.to_bytes(width, "little")


def table_map(
    types: bytes, metadata: bytes = b"", *, table_id: int = 7, name: bytes = b"t", columns: int | None = None,
    optional: bytes = b"",
) -> Made:  # fmt: skip
    """TABLE_MAP. columns: what it claims, if that is not the number of types."""
    head = table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + bytes([len(name)]) + name + b"\0"
    nullable = b"\xff" * ((len(types) + 7) // 8)
    claimed = lenenc(len(types) if columns is None else columns)
    return Made(TABLE_MAP, head + claimed + types + lenenc(len(metadata)) + metadata + nullable + optional)


def rows(
    images: bytes, columns: int = 1, *, code: int = 30, table_id: int = 7, flags: int = 1, present: bytes | None = None
) -> Made:
    """A row event; v2 and later with empty extra data."""
    head = table_id.to_bytes(6, "little") + struct.pack("<H", flags)
    head += b"\2\0" if code in (30, 31, 32, 39) else b""
    bitmap = b"\xff" * ((columns + 7) // 8) if present is None else present
    bitmaps = bitmap * 2 if code in (24, 31, 39, 167) else bitmap
    return Made(code, head + lenenc(columns) + bitmaps + images)


def block(content: bytes, declared: int | None = None, packed: bytes | None = None) -> bytes:
    """A compressed block of MariaDB."""
    size = len(content) if declared is None else declared
    return b"\x84" + size.to_bytes(4, "big") + (zlib.compress(content) if packed is None else packed)


def payload(packed: bytes, size: int, *, compression: int = 0, length: int | None = None) -> Made:
    """TRANSACTION_PAYLOAD. size: what it claims to unpack to; length: what it claims to be packed."""
    numbers = ((2, compression), (3, size), (1, len(packed) if length is None else length))
    fields = b"".join(bytes([kind]) + lenenc(len(lenenc(value))) + lenenc(value) for kind, value in numbers)
    return Made(PAYLOAD, fields + b"\0" + packed)
