"""Small blobs of every kind that is told apart."""

from __future__ import annotations

import struct

from tests.formats.eblob.make import header, key, overwrite, record, remove, total

TARGET = (5096).to_bytes(8, "little")


def packed(*records: bytes, size: int = 255) -> bytes:
    head = b"\x13\x37\xb3\x3f\0" + struct.pack("<HQ", 1, 0)
    return head.ljust(size, b"\0") + b"".join(records)


def packed_record(data: bytes, kind: int = 1, stamp: bytes = b"") -> bytes:
    return struct.pack("<HQQQ", kind, 100, len(data), 0) + stamp + data


def origin(data: bytes, at: int) -> bytes:
    """A record of dialect a0."""
    return struct.pack("<4Q", 1, len(data), 0, at) + key(1) + bytes(32) + data


def swapped(of: bytes, data: bytes) -> bytes:
    return record(of, (5096).to_bytes(8, "big"), data, order=">")


BIG = b"1337833\0" + struct.pack(">H6xQ232x", 1, 4)
STAMP = struct.pack("<Q", 1350_000_000)
FILES = {
    "b": header() + overwrite(1, b"more than eight bytes") + remove(2),
    "b4": header() + record(key(1), TARGET, b"index", 3) + record(key(1), TARGET, b"data", 4) + remove(2),
    "a": header() + total(key(1), bytes(range(88)), b"", 1) + total(key(2), b"", b"", 2),
    "a0": header() + origin(b"some data", 700) + origin(b"more", 9),
    "b-be": BIG + swapped(key(1), b"one") + swapped(key(2), b"two"),
    "p": packed(packed_record(b"x" * 60), packed_record(b"y", 2)),
    "p-257": packed(packed_record(b"x" * 60), packed_record(b"y", 2), size=257),
    "p-ts": packed(packed_record(b"x" * 60, stamp=STAMP), packed_record(b"y", 2, STAMP)),
    "p-ts-257": packed(packed_record(b"x" * 60, stamp=STAMP), packed_record(b"y", 2, STAMP), size=257),
}
