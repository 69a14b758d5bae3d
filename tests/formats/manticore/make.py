"""A small writer of logs, independent of the reader's code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence


def zint(value: int) -> bytes:
    """Groups of seven bits, the most significant first."""
    out = [value & 127]
    while value := value >> 7:
        out.insert(0, value & 127 | 128)
    return bytes(out)


def zstring(text: bytes) -> bytes:
    """Length and bytes."""
    return zint(len(text)) + text


def txn(body: bytes, crc: int | None = None) -> bytes:
    """One transaction around op and body."""
    return b"TXN!" + body + struct.pack("<I", zlib.crc32(body) if crc is None else crc)


def add_index(number: int, name: bytes) -> bytes:
    """ADD_INDEX of version 15 on."""
    return txn(b"\x01" + zint(number) + zstring(name))


def add_txn(number: int, tid: int, payload: bytes, size: int | None = None) -> bytes:
    """ADD_TXN of version 15 on."""
    return txn(b"\x02" + zint(number) + zint(tid) + struct.pack("<I", len(payload) if size is None else size) + payload)


def killed(*ids: int) -> bytes:
    """The payload of a DELETE."""
    return b"\x01\x00" + zint(len(ids)) + struct.pack(f"<{len(ids)}q", *ids)


def add_cache(*tables: tuple[bytes, int, int, int], crc: int | None = 0) -> bytes:
    """ADD_CACHE of version 15 on, with the writer's checksum 0 unless told otherwise."""
    rows = b"".join(zstring(name) + zint(low) + zint(high) + zint(flushed) for name, low, high, flushed in tables)
    return txn(b"\x03" + zint(len(tables)) + rows, crc)


def log(*txns: bytes, version: int = 16) -> bytes:
    """A log file."""
    return b"SPBL" + struct.pack("<I", version) + b"".join(txns)


def meta(numbers: Sequence[int], version: int = 16, setting: int = 4, count: int | None = None) -> bytes:
    """binlog.meta."""
    head = b"SPLI" + struct.pack("<IB", version, setting)
    return head + zint(len(numbers) if count is None else count) + b"".join(map(zint, numbers))


def old_txn(op: int, *numbers: int, payload: bytes = b"") -> bytes:
    """A transaction of versions 2 to 14: id, TID, time, payload."""
    return txn(bytes([op]) + b"".join(map(zint, numbers)) + payload)


def old_index(number: int, name: bytes, tid: int, time: int) -> bytes:
    """ADD_INDEX of versions 2 to 13."""
    return txn(b"\x03" + zint(number) + struct.pack("<I", len(name)) + name + zint(tid) + zint(time))
