"""The big files, made on the spot by short generators: valid logs whose records all differ, 1 GB in a few seconds.

A CRC is linear, so a record that differs from a template only in some bytes has the template's checksum xor one table
entry per such byte: whole arrays of records are filled at once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crc32c
import msgspec
import numpy as np
import zstandard

Bytes = Any
"""An array of bytes, one row per record."""

Generator = Callable[[Path, int], int]
"""Fills a file with about so many bytes; returns the number of records."""

MARK = b"\xd5\x10\xad\xed"
FIRST_LSN = 1 << 20
FIRST_ID = 1 << 21
STARTED = 1_795_232_544.0


def raw_crc32c(data: bytes) -> int:
    """CRC-32C with initial value 0 and no final xor."""
    return crc32c.crc32c(data, 0xFFFFFFFF) ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Varying:
    """A field that depends on the record's number: `encode(numbers)` gives its `width` bytes per record."""

    at: int
    width: int
    encode: Callable[[Any], Bytes]


@dataclass(frozen=True)
class Template:
    """One record: its bytes, the fields that vary, what the checksum covers, and where and how it is stored."""

    data: bytes
    covered: tuple[int, int]
    stored_at: int
    byte_order: str
    crc: Callable[[bytes], int]
    varying: list[Varying] = field(default_factory=list)

    def records(self, numbers: Any) -> Bytes:
        """One record per number."""
        rows = np.tile(np.frombuffer(self.data, np.uint8), (len(numbers), 1))
        start, end = self.covered
        stored = np.full(len(numbers), self.crc(self.data[start:end]), np.uint32)
        for part in self.varying:
            filled = part.encode(numbers)
            rows[:, part.at : part.at + part.width] = filled
            for i in range(part.width):
                stored ^= self._changes(part.at + i)[filled[:, i]]
        column = stored.astype(f"{self.byte_order}u4").view(np.uint8).reshape(-1, 4)
        rows[:, self.stored_at : self.stored_at + 4] = column
        return rows

    def _changes(self, at: int) -> Any:
        """How the checksum changes when the byte at `at` becomes 0..255."""
        covered, index = bytearray(self.data[slice(*self.covered)]), at - self.covered[0]
        values = []
        for value in range(256):
            covered[index] = value
            values.append(self.crc(bytes(covered)))
        return np.array(values, np.uint32) ^ np.uint32(self.crc(self.data[slice(*self.covered)]))


def big_endian(numbers: Any) -> Bytes:
    return numbers.astype(">u4").view(np.uint8).reshape(-1, 4)


def seconds(numbers: Any) -> Bytes:
    return (STARTED + (numbers - FIRST_LSN) * 1e-5).astype(">f8").view(np.uint8).reshape(-1, 8)


def varint4(numbers: Any) -> Bytes:
    """The four bytes of a base-128 varint between 2**21 and 2**28 - 1."""
    groups = [numbers >> 7 * i & 0x7F | (0x80 if i < 3 else 0) for i in range(4)]
    return np.stack(groups, axis=1).astype(np.uint8)


def written(path: Path, head: bytes, templates: list[Template], first: int, size: int, tail: bytes) -> int:
    """Fills `path` with rounds of all templates until `size` bytes are reached; returns the number of records."""
    per_round = sum(len(t.data) for t in templates)
    rounds = max(1, -(-(size - len(head) - len(tail)) // per_round))
    step = max(1, (32 << 20) // per_round)
    with path.open("wb") as file:
        file.write(head)
        for done in range(0, rounds, step):
            numbers = first + np.arange(done, min(rounds, done + step), dtype=np.int64) * len(templates)
            file.write(np.hstack([t.records(numbers + i) for i, t in enumerate(templates)]).tobytes())
        file.write(tail)
    return rounds * len(templates)


def xlog_name(first_lsn: int = FIRST_LSN) -> str:
    """The name demanded by the header's vclock."""
    return f"{first_lsn - 1:020d}.xlog"


def xlog_head(first_lsn: int = FIRST_LSN) -> bytes:
    return (
        "XLOG\n0.13\nVersion: 2.6.0-0-g47aa4e01e\nInstance: 5ecb479f-a361-4dcf-836b-59b9375bab5f\n"
        f"VClock: {{1: {first_lsn - 1}}}\n\n"
    ).encode()


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


NUMBER = 0xFFFFFFFF
"""Stands in a template for the record's number."""

SMALL_ROWS: list[tuple[int, dict[int, Any]]] = [
    (3, {0x10: 512, 0x21: [NUMBER, "user123", 3 * FIRST_LSN, 1.5 * FIRST_LSN, 2918273645]}),
    (2, {0x10: 512, 0x21: [NUMBER, "user45", 7, None, "a tag of 18 bytes "]}),
    (3, {0x10: 512, 0x21: [NUMBER, "a-longer-user-name", True, [1, 2, 3]]}),
    (5, {0x10: 513, 0x20: [NUMBER, "second key part"]}),
    (4, {0x10: 512, 0x20: [NUMBER], 0x21: [["+", 2, 1], ["=", 3, "updated"]], 0x15: 1}),
    (3, {0x10: 512, 0x21: [NUMBER, "user678", 3.14159, 2918273645, {"k": 1}]}),
]


def tarantool_small(path: Path, size: int) -> int:
    """One small row per block, 76 bytes in the mean: what single statements leave behind. Returns the blocks."""
    return written(path, xlog_head(), [small_block(*row) for row in SMALL_ROWS], FIRST_LSN, size, MARK)


def small_block(kind: int, row_body: dict[int, Any]) -> Template:
    header = b"\x84\x00" + bytes([kind]) + b"\x02\x01\x03\xce" + bytes(4) + b"\x04\xcb" + bytes(8)
    payload = header + pack(row_body)
    data = fixed_header(len(payload), 0) + payload
    lsn_at = 19 + 7
    return Template(
        data, (19, len(data)), data.index(b"\xce", 4) + 1, ">", raw_crc32c,
        [Varying(lsn_at, 4, big_endian), Varying(lsn_at + 6, 8, seconds),
         Varying(data.index(pack(NUMBER)) + 1, 4, big_endian)],
    )  # fmt: skip


def fixed_header(length: int, crc: int, magic: bytes = b"\xd5\xba\x0b\xab") -> bytes:
    """The 19 bytes in front of a block's payload."""
    fields = magic + pack(length) + b"\x00\xce" + struct.pack(">I", crc)
    padding = 19 - len(fields)
    return fields + bytes([0xA0 + padding - 1]) + bytes(padding - 1)


WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore"


def tarantool_mixed(path: Path, size: int) -> int:
    """Transactions of 1 to 40 rows, blocks of 2 KiB and more packed with zstd. Returns the rows."""
    packer = zstandard.ZstdCompressor(level=3, write_content_size=False)
    words = WORDS.split()
    lsn, done = FIRST_LSN, 0
    with path.open("wb") as file:
        done += file.write(xlog_head())
        while done < size - len(MARK):
            payload, lsn = transaction(lsn, 1 + lsn * 7 % 40 if lsn % 3 else 1, words)
            magic = b"\xd5\xba\x0b\xab"
            if len(payload) + 19 >= 2048:
                payload, magic = packer.compress(payload), b"\xd5\xba\x0b\xba"
            done += file.write(fixed_header(len(payload), raw_crc32c(payload), magic) + payload)
        file.write(MARK)
    return lsn - FIRST_LSN


def transaction(first: int, count: int, words: list[str]) -> tuple[bytes, int]:
    """The rows of one transaction, and the LSN that follows it."""
    rows = []
    for i in range(count):
        lsn = first + i
        text = " ".join(words[(lsn * k) % len(words)] for k in range(1, 12))
        header: dict[int, Any] = {0: 3, 2: 1, 3: lsn, 4: STARTED + (lsn - FIRST_LSN) * 1e-5}
        if count > 1:
            header |= {8: i} | ({9: 1} if i == count - 1 else {})
        rows.append(pack(header) + pack({0x10: 512, 0x21: [lsn, f"doc{lsn}", text, {"n": lsn % 1000}]}))
    return b"".join(rows), first + count


def drizzle(path: Path, size: int, samples: list[Path]) -> int:
    """Entries of 50 to 500 bytes: the small real messages of `samples` over and over, each with an id of its own."""
    messages = [m for sample in samples for m in messages_of(sample.read_bytes()) if 38 <= len(m) <= 480]
    return written(path, b"", [entry(message) for message in messages], FIRST_ID, size, b"")


def messages_of(log: bytes) -> Iterator[bytes]:
    """The messages of an intact Drizzle log."""
    at = 0
    while at < len(log):
        (length,) = struct.unpack_from("<I", log, at + 4)
        yield log[at + 8 : at + 8 + length]
        at += 12 + length


def entry(message: bytes) -> Template:
    """An entry whose transaction id (context field 2, behind the server id) has become four bytes wide."""
    context, rest = message[2 : 2 + message[1]], message[2 + message[1] :]
    assert message[0] == 0x0A and context[0] == 0x08 and context[2] == 0x10
    old = next(i for i in range(3, len(context)) if context[i] < 0x80) + 1
    context = context[:3] + bytes(4) + context[old:]
    message = bytes([0x0A, len(context)]) + context + rest
    data = struct.pack("<II", 1, len(message)) + message + bytes(4)
    return Template(data, (8, len(data) - 4), len(data) - 4, "<", zlib.crc32, [Varying(8 + 2 + 3, 4, varint4)])
