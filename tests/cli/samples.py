"""Drizzle logs made by hand: protobuf members and CRC-32, with the standard library alone."""

from __future__ import annotations

import struct
import zlib

START = 1_330_000_000_000_000
"""Start of the first transaction, in microseconds since 1970: 2012-02-23T12:26:40Z."""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def member(number: int, value: int | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def entry(message: bytes) -> bytes:
    """A transaction entry: type, length, message, checksum."""
    return struct.pack("<II", 1, len(message)) + message + struct.pack("<I", zlib.crc32(message))


def transaction(number: int, statement: bytes) -> bytes:
    at = START + number * 1_000_000
    context = member(1, 7) + member(2, number) + member(3, at) + member(4, at + 5)
    return entry(member(1, context) + member(2, statement) + member(4, 1) + member(5, 1))


def raw_sql(number: int, sql: bytes) -> bytes:
    """A transaction of one RAW_SQL statement."""
    at = START + number * 1_000_000
    return transaction(number, member(1, 99) + member(2, at) + member(3, at) + member(4, sql))


def insert(number: int, schema: bytes, table: bytes, value: bytes) -> bytes:
    """A transaction that inserts one row of one column."""
    at = START + number * 1_000_000
    header = member(1, member(1, schema) + member(2, table)) + member(2, member(1, 1) + member(2, b"c"))
    data = member(1, 1) + member(2, 1) + member(3, member(1, value) + member(2, 0))
    return transaction(number, member(1, 1) + member(2, at) + member(3, at) + member(5, header) + member(6, data))


def plain_log(count: int = 3) -> bytes:
    """INSERTs into shop.t, numbered from 1."""
    return b"".join(insert(i, b"shop", b"t", str(i).encode()) for i in range(1, count + 1))


def damaged_log(count: int = 5) -> bytes:
    """The same, with a changed letter in the second record."""
    first = insert(1, b"shop", b"t", b"1")
    data = bytearray(plain_log(count))
    data[len(first) + 20] ^= 0x10
    return bytes(data)
