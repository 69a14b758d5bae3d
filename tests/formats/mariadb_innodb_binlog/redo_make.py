"""Redo logs made from the specification alone, for tests: no code of the format is used here."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import crc32c

START = 12288
EVEN, ODD = 0xFFFFFFF0, 0xFFFFFFF1


def varint(value: int) -> bytes:
    for size, base, mark in ((5, 270549120, 0xF0), (4, 2113664, 0xE0), (3, 16512, 0xC0), (2, 128, 0x80)):
        if value >= base:
            data = bytearray((value - base).to_bytes(size, "big"))
            data[0] |= mark
            return bytes(data)
    return bytes([value])


def record(first: int, body: bytes) -> bytes:
    """A record: its first byte without the length, and what follows the length."""
    if len(body) <= 15:
        assert body, "the length 0 means a long record"
        return bytes([first | len(body)]) + body
    for size in (1, 2, 3):
        extra = varint(len(body) + size - 15)
        if len(extra) == size:
            return bytes([first]) + extra + body
    raise ValueError("too long")


def write(space: int, page: int, offset: int, data: bytes) -> bytes:
    return record(0x30, varint(space) + varint(page) + varint(offset) + data)


def file_checkpoint(lsn: int) -> bytes:
    return b"\xfa\0\0" + lsn.to_bytes(8, "big")


def mtr(body: bytes, lsn: int, first_lsn: int, capacity: int, nonce: bytes = b"") -> bytes:
    end_byte_lsn = lsn + len(body)
    round_ = (end_byte_lsn - first_lsn) // capacity
    checksum = crc32c.crc32c(body + nonce)
    return body + bytes([1 if round_ % 2 == 0 else 0]) + nonce + checksum.to_bytes(4, "big")


def checkpoint(lsn: int, end_lsn: int) -> bytes:
    data = struct.pack(">QQ", lsn, end_lsn) + bytes(44)
    return data + crc32c.crc32c(data).to_bytes(4, "big")


def header(first_lsn: int, *, format: int = 0x50687973, creator: bytes = b"made", key: bytes = b"") -> bytes:
    data = (struct.pack(">IIQ", format, 0, first_lsn) + creator.ljust(32, b"\0") + key).ljust(508, b"\0")
    return data + crc32c.crc32c(data).to_bytes(4, "big")


def redo_log(
    bodies: Iterable[bytes],
    *,
    size: int = START + 4096,
    first_lsn: int = START,
    lsn: int | None = None,
    nonce: bytes = b"",
    older: bytes = b"\0",
    head: bytes | None = None,
    proof: bool = True,
) -> bytes:
    """A log whose newest checkpoint is at `lsn`, where the first of the mini-transactions stands.

    A FILE_CHECKPOINT goes in front of them unless `proof` is False. older: filler of the ring.
    """
    lsn = first_lsn if lsn is None else lsn
    capacity, at, start = size - START, lsn, lsn
    ring = bytearray((older * (capacity // len(older) + 1))[:capacity])
    for body in [file_checkpoint(lsn), *bodies] if proof else bodies:
        data = mtr(body, at, first_lsn, capacity, nonce)
        for index, byte in enumerate(data):
            ring[(at + index - first_lsn) % capacity] = byte
        at += len(data)
    blocks = (head or header(first_lsn), checkpoint(start, start), checkpoint(start, start))
    return b"".join(block.ljust(4096, b"\0") for block in blocks) + ring


def binlog_header(file_no: int, pages: int, start_lsn: int) -> bytes:
    """The 64 bytes of a header page."""
    return struct.pack("<IIIIQQQQQQ", 0x010DFEFE, 14, 1, 0, file_no, pages, start_lsn, 0, file_no, 2**64 - 1)


def header_page(file_no: int, pages: int, start_lsn: int) -> bytes:
    """The whole header page."""
    data = binlog_header(file_no, pages, start_lsn).ljust(508, b"\0")
    data = (data + crc32c.crc32c(data).to_bytes(4, "little")).ljust(16380, b"\0")
    return data + crc32c.crc32c(data).to_bytes(4, "little")
