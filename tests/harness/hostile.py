"""Small files that ask for much: each is valid as far as it must be to get to the weak spot."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable

import zstandard

from tests.harness import hostile_ibb, hostile_mysql, oracle
from tests.harness.mutate import drizzle_entry, tarantool_block

MIB = 1 << 20
UUID = "5ecb479f-a361-4dcf-836b-59b9375bab5f"
HEAD = f"XLOG\n0.13\nVersion: 2.6.0\nInstance: {UUID}\nVClock: {{}}\n\n".encode()
ROW = b"\x84\x00\x02\x02\x01\x03\x01\x04\xcb\x41\xda\xc0\x44\xc8\x39\x77\x84\x82\x10\xcd\x02\x00\x21"
"""An INSERT up to where its tuple begins."""
CONTEXT = b"\x0a\x08\x08\x01\x10\x01\x18\x01\x20\x02"
INSERT = b"\x12\x06\x08\x01\x10\x01\x18\x02"


def xlog(*payloads: bytes, head: bytes = HEAD) -> bytes:
    return head + b"".join(tarantool_block(payload) for payload in payloads) + oracle.MARK


def no_ops(lsns: Iterable[int]) -> bytes:
    """A log with a block for each NOP of replica 1."""
    return xlog(*(b"\x83\x00\x0c\x02\x01\x03\xce" + struct.pack(">I", lsn) for lsn in lsns))


def packed_xlog(frame: bytes) -> bytes:
    return HEAD + tarantool_block(frame, packed=True) + oracle.MARK


def squeezed(unit: bytes, size: int, *, known: bool) -> bytes:
    """`size` bytes of `unit` over and over, as one zstd frame made in bounded memory."""
    count = size // len(unit)
    packer = zstandard.ZstdCompressor(level=3, write_content_size=known)
    stream = packer.compressobj(size=count * len(unit) if known else -1)
    piece, out = unit * max(1, MIB // len(unit)), []
    left = count * len(unit)
    while left:
        out.append(stream.compress(piece[:left]))
        left -= len(piece[:left])
    return b"".join(out) + stream.flush()


def claims_64_gib() -> bytes:
    """A frame header with a content size of 64 GiB in front of one empty block."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 64 << 30) + b"\x01\x00\x00"


def wants_a_window_of_2_gib() -> bytes:
    """A frame header without content size whose window is 2 GiB."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"


def skippable_frames() -> bytes:
    """Frames that a decoder skips; none with content."""
    return b"\x50\x2a\x4d\x18\x00\x00\x00\x00" * 1000


def false_blocks(size: int) -> bytes:
    """Every 19 bytes a block that says it reaches to the end: a search that checks each in full is quadratic."""
    head = b"\xd5\xba\x0b\xab\xce%s\x00\xce\x01\x02\x03\x04\xa3\0\0\0"
    count = size // 19
    return HEAD + b"".join(head % struct.pack(">I", 19 * (count - 1 - i)) for i in range(count)) + b"\x01"


def false_entries(size: int) -> bytes:
    """Every 8 bytes an entry that says it reaches to the end."""
    count = size // 8
    return b"".join(struct.pack("<II", 1, 8 * (count - 2 - i)) for i in range(count - 2)) + bytes(range(1, 14))


def group_nest(depth: int) -> bytes:
    """A message with a group in a group in a group."""
    return CONTEXT + b"\xa3\x06" * depth + b"\xa4\x06" * depth


def message_nest(depth: int) -> bytes:
    """An unknown member in an unknown member in an unknown member."""
    inner = b""
    for _ in range(depth):
        inner = b"\x82\x10" + _varint(len(inner)) + inner
    return CONTEXT + inner


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


NOP = b"\x81\x00\x0c"

TARANTOOL: dict[str, Callable[[], bytes]] = {
    "zstd bomb, size stated: 1 GiB": lambda: packed_xlog(squeezed(bytes(MIB), 1 << 30, known=True)),
    "zstd bomb, size not stated: 1 GiB": lambda: packed_xlog(squeezed(bytes(MIB), 1 << 30, known=False)),
    "zstd bomb, 200 MiB, under the ceiling": lambda: packed_xlog(squeezed(bytes(MIB), 200 * MIB, known=False)),
    "zstd bomb of good rows: 60 MiB of 3 bytes each": lambda: packed_xlog(squeezed(NOP, 60 * MIB, known=False)),
    "zstd frame that states 64 GiB": lambda: packed_xlog(claims_64_gib()),
    "zstd frame with a window of 2 GiB": lambda: packed_xlog(wants_a_window_of_2_gib()),
    "zstd frames that hold nothing": lambda: packed_xlog(skippable_frames()),
    "array of 2**32 - 1 elements": lambda: xlog(ROW + b"\xdd\xff\xff\xff\xff"),
    "map of 2**32 - 1 pairs": lambda: xlog(ROW + b"\xdf\xff\xff\xff\xff\x01"),
    "row header of 2**32 - 1 keys": lambda: xlog(b"\xdf\xff\xff\xff\xff\x00\x02"),
    "text of 2**32 - 1 bytes": lambda: xlog(ROW + b"\x91\xdb\xff\xff\xff\xff"),
    "binary of 2**32 - 1 bytes": lambda: xlog(ROW + b"\x91\xc6\xff\xff\xff\xffabc"),
    "extension of 2**32 - 1 bytes": lambda: xlog(ROW + b"\x91\xc9\xff\xff\xff\xff\x01abc"),
    "10,000 nested arrays": lambda: xlog(ROW + b"\x91" * 10_000 + b"\x01"),
    "10,000 nested maps": lambda: xlog(ROW + b"\x91" + b"\x81\x01" * 10_000 + b"\x01"),
    "1,000,000 nested arrays in a row header": lambda: xlog(b"\x81" + b"\x91" * 1_000_000),
    "200,000 elements of one byte": lambda: xlog(ROW + b"\xdd" + struct.pack(">I", 200_000) + bytes(200_000)),
    "30,000 rows without a body": lambda: xlog(NOP * 30_000),
    "10,000 rows that belong into the last of 10,000 gaps": lambda: no_ops([*range(2, 20_002, 2), *[19_999] * 10_000]),
    "decimal with a scale of 2**31": lambda: xlog(ROW + b"\x91\xc7\x06\x01\xd2\x80\x00\x00\x00\x1c"),
    "decimal with a scale of -2**63": lambda: xlog(ROW + b"\x91\xc7\x0a\x01\xd3\x80" + bytes(7) + b"\x1c"),
    "datetime far outside the calendar": lambda: xlog(ROW + b"\x91\xd8\x04" + b"\xff" * 7 + b"\x7f" + b"\xff" * 8),
    "interval of 2**63 years": lambda: xlog(ROW + b"\x91\xc7\x0b\x06\x01\x00\xcf" + b"\xff" * 8),
    "time that is not a number": lambda: xlog(ROW[:9] + b"\x7f\xf8" + bytes(6) + ROW[17:] + b"\x91\x01"),
    "time that is infinite": lambda: xlog(ROW[:9] + b"\x7f\xf0" + bytes(6) + ROW[17:] + b"\x91\x01"),
    "length of 2**31": lambda: HEAD + b"\xd5\xba\x0b\xab\xce\x80\x00\x00\x00\x00\x00" + b"\xa7" + bytes(7),
    "length of 2**64 - 1": lambda: HEAD + b"\xd5\xba\x0b\xab\xcf" + b"\xff" * 8 + b"\x00\x00\xa3" + bytes(3),
    "end marks over and over": lambda: HEAD + oracle.MARK * 200_000,
    "false blocks, each to the end: 60 KiB": lambda: false_blocks(60 * 1024),
    "false blocks, each to the end: 8 MiB": lambda: false_blocks(8 * MIB),
    "one header line of 8 MiB": lambda: b"XLOG\n0.13\nVersion: " + b"x" * (8 * MIB),
    "100,000 header lines": lambda: b"XLOG\n0.13\n" + b"A: b\n" * 100_000 + b"\n" + oracle.MARK,
    "vclock with a number of 900 digits": lambda: HEAD.replace(b"{}", b"{1: " + b"9" * 900 + b"}") + oracle.MARK,
    "vclock with 200 components": lambda: HEAD.replace(b"{}", b"{" + b"1: 0, " * 200 + b"1: 0}") + oracle.MARK,
    "control characters in the header": lambda: HEAD.replace(b"2.6.0", b"\x1b]0;x\x07\x1b[31m") + oracle.MARK,
}

DRIZZLE: dict[str, Callable[[], bytes]] = {
    "length of 2**31 - 1": lambda: struct.pack("<II", 1, (1 << 31) - 1) + CONTEXT,
    "length of 2**32 - 1": lambda: struct.pack("<II", 1, (1 << 32) - 1) + CONTEXT,
    "entries of length 0": lambda: struct.pack("<III", 1, 0, 0) * 5000,
    "60,000 groups in groups": lambda: drizzle_entry(group_nest(10_000)),
    "10,000 messages in messages": lambda: drizzle_entry(message_nest(10_000)),
    "a statement of 10,000 messages in messages": lambda: drizzle_entry(
        CONTEXT + b"\x12" + _varint(len(message_nest(5000))) + message_nest(5000)
    ),
    "endless varint": lambda: drizzle_entry(CONTEXT + b"\x20" + b"\x80" * 60_000 + b"\x01"),
    "endless tag": lambda: drizzle_entry(CONTEXT + b"\xff" * 60_000),
    "member of 2**63 bytes": lambda: drizzle_entry(CONTEXT + b"\x12" + b"\xff" * 8 + b"\x7f"),
    "member number 0": lambda: drizzle_entry(CONTEXT + b"\x00\x00"),
    "100,000 empty statements": lambda: drizzle_entry(CONTEXT + b"\x12\x00" * 100_000),
    "50,000 statements without their data": lambda: drizzle_entry(CONTEXT + INSERT * 50_000),
    "100,000 contexts": lambda: drizzle_entry(CONTEXT * 100_000),
    "100,000 unknown members": lambda: drizzle_entry(CONTEXT + b"\xa0\x06\x01" * 100_000),
    "times of 2**64 - 1": lambda: drizzle_entry(b"\x0a\x1a\x08\x01\x10\x01" + (b"\x18" + b"\xff" * 9 + b"\x01") * 2),
    "false entries, each to the end: 60 KiB": lambda: false_entries(60 * 1024),
    "false entries, each to the end: 8 MiB": lambda: false_entries(8 * MIB),
    "5,000 entries without checksum and sense": lambda: drizzle_entry(b"\x0a", absent=True) * 5000,
    "blob of 8 MiB without checksum": lambda: drizzle_entry(bytes(8 * MIB), 2, absent=True),
    "8 MiB of the byte 1": lambda: b"\x01" * (8 * MIB),
}

CASES = {
    "tarantool": TARANTOOL,
    "drizzle": DRIZZLE,
    "mysql-binlog": hostile_mysql.CASES,
    "mariadb-innodb-binlog": hostile_ibb.CASES,
}


@functools.cache
def case(format: str, name: str) -> bytes:
    """The bytes of one hostile file."""
    return CASES[format][name]()
