"""Small binary logs that ask for much: each is valid as far as it must be to get to the weak spot."""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import zstandard

from tests.harness.mysql_writer import (
    GTID_LIST,
    MAGIC,
    MARIADB,
    PAYLOAD,
    PREVIOUS,
    QUERY,
    SERVER,
    TIME,
    XID,
    Made,
    begun,
    binlog,
    block,
    description,
    event,
    group,
    inner,
    payload,
    query,
    rows,
    table_map,
    transaction,
)

MIB = 1 << 20
JSON, LONG, VARCHAR, BLOB = b"\xf5", b"\x03", b"\x0f", b"\xfc"
COMPRESSED_BLOB = b"\x8c"
ESCAPES = b"\x1b]0;owned\x07\x1b[31m\x9b2J\r\n\xe2\x80\xae\xe2\x80\x8b\xc2\x9b[/bold]\xff"
MAP, ROW = table_map(LONG), rows(b"\xfe\1\0\0\0")


MANY = 10 if os.environ.get("BINLOGTOOL_FULL") == "1" else 1
"""Floods are ten times as long where everything is asked for."""


@functools.cache
def zeros(size: int) -> bytes:
    """`size` zero bytes as one zlib stream, made in bounded memory."""
    packer, piece = zlib.compressobj(6), bytes(MIB)
    return b"".join(packer.compress(piece) for _ in range(size // MIB)) + packer.flush()


def zstd(unit: bytes, size: int, *, known: bool = False) -> bytes:
    """About `size` bytes of `unit` over and over, as one zstd frame."""
    piece = unit * max(1, MIB // len(unit))
    count = max(1, size // len(piece))
    packer = zstandard.ZstdCompressor(level=3, write_content_size=known)
    stream = packer.compressobj(size=count * len(piece) if known else -1)
    return b"".join(stream.compress(piece) for _ in range(count)) + stream.flush()


def packed(content: bytes, size: int) -> bytes:
    """A log with one compressed transaction."""
    return binlog(group(payload(content, size)))


def payload_of(*events: Made) -> bytes:
    content = inner(events)
    return packed(zstandard.compress(content), len(content))


def maria_rows(images: bytes, columns: int = 1, *, map_: Made = MAP, code: int = 166) -> bytes:
    """A log of MariaDB with one row event."""
    return binlog(transaction(map_, rows(images, columns, code=code)), MARIADB)


def mysql_rows(
    images: bytes, columns: int = 1, *, map_: Made = MAP, code: int = 30, present: bytes | None = None
) -> bytes:
    """A log of MySQL with one row event."""
    return binlog(begun(map_, rows(images, columns, code=code, present=present)))


def json_row(value: bytes, count: int = 1) -> bytes:
    """Rows with one JSON column."""
    image = b"\xfe" + struct.pack("<I", len(value)) + value
    return mysql_rows(image * count, map_=table_map(JSON, b"\4"))


def json_deep(depth: int) -> bytes:
    """An array in an array in an array."""
    sizes = [4 + 7 * level for level in range(depth)]
    outer = b"".join(struct.pack("<HHBH", 1, size + 7, 2, 7) for size in reversed(sizes))
    return b"\2" + outer + struct.pack("<HH", 0, 4)


def json_shared(width: int, depth: int) -> bytes:
    """Arrays whose elements all share one offset: width ** depth values."""
    level, body = 8 + 5 * width, b""
    for place in range(depth):
        size = level * (depth - place) + 8
        body += struct.pack("<II", width, size) + (b"\3" + struct.pack("<I", level)) * width
    return b"\3" + body + struct.pack("<II", 0, 8)


def json_wide(count: int) -> bytes:
    """An object of many keys that are all the same bytes."""
    head = 8 + count * 6 + count * 5
    entries = (struct.pack("<IH", head, 4)) * count + (b"\4" + struct.pack("<I", 1)) * count
    return b"\1" + struct.pack("<II", count, head + 4) + entries + b"key0"


def json_diffs(count: int) -> bytes:
    """A partial update with this many differences of one value."""
    diff = b"\0" + b"\3$.a" + b"\x03\5\1\0"
    content = diff * count
    before = b"\xfe" + struct.pack("<I", 0)
    after = b"\1\1" + b"\xfe" + struct.pack("<I", len(content)) + content
    return mysql_rows(before + after, map_=table_map(JSON, b"\4"), code=39)


def many(made: Made | Sequence[Made], count: int, server: str = MARIADB, *, crc: bool = True) -> bytes:
    """The same events over and over, made fast: the positions of MariaDB may be 0."""
    one = b"".join(event(each, -1, crc=crc) for each in ([made] if isinstance(made, Made) else made))
    return binlog([], server, crc=crc) + one * count


def maps(count: int) -> Iterator[Made]:
    """Table maps of different tables, in one statement that never ends."""
    for number in range(count):
        yield table_map(LONG, table_id=number + 1, name=b"t%d" % number)


def false_events(size: int, *, crc: bool) -> bytes:
    """Every 19 bytes an event that says it reaches to the end."""
    head, count = binlog([], crc=crc), size // 19
    one = struct.Struct("<IBIIIH")
    end = len(head) + 19 * count
    events = (one.pack(TIME, QUERY, SERVER, 19 * (count - i), end, 0) for i in range(1, count))
    return head + one.pack(TIME, QUERY, SERVER, 7, 0, 0) + b"".join(events)


def with_size(size: int, *, crc: bool = True) -> bytes:
    """A good event whose event_size was replaced."""
    data = bytearray(binlog(begun(MAP, ROW), crc=crc))
    at = len(binlog(group(query(b"BEGIN"), MAP), crc=crc))
    data[at + 9 : at + 13] = struct.pack("<I", size)
    return bytes(data)


def head_of(size: int, fill: bytes = b"", *, version: int = 4, header: int = 19, claimed: int | None = None) -> bytes:
    """A file with a FORMAT_DESCRIPTION of this size."""
    body = struct.pack("<H50sIB", version, fill or b"9.7.4", TIME, header)[: max(size - 23, 0)]
    made = event(Made(15, body + bytes(max(size - 24 - len(body), 0)) + b"\1"[: size > 80]), 4, crc=True)
    made = made[:9] + struct.pack("<I", size if claimed is None else claimed) + made[13:]
    return MAGIC + made[:-4] + struct.pack("<I", zlib.crc32(made[:-4])) + event(Made(3, b""), 4 + size, crc=True)


def turning(count: int) -> bytes:
    """A relay log whose form changes with every second event."""
    pair = description(crc=False) + description(crc=True)
    return binlog([], crc=True, flags=0x40) + pair * count


def sealed() -> bytes:
    """An encrypted log of MariaDB whose events are as short as they can be."""
    head = MAGIC + description(MARIADB)
    head += event(Made(164, b"\1\1\0\0\0" + bytes(12)), len(head), crc=True)
    return head + event(TINY, -1, crc=False) * 10_000 * MANY


def tiny_inside() -> bytes:
    """A payload of nothing but events of 19 bytes."""
    content = event(TINY, -1, crc=False) * (3 * MIB // 19)
    return packed(zstandard.compress(content), len(content))


TINY = Made(200, b"")
GTID_TAGGED = 42
BLOCK_LIES = block(bytes(100), 1)
ODD_TYPES = bytes([16, 246, 19, 18, 17, 254, 254, 247, 248, 252, 255, 242, 15, 253, 4, 5])
ODD_METADATA = (
    b"\xff\xff"
    + b"\xff\xff"
    + b"\xff\xff\xff"
    + b"\0\0"
    + b"\x30\xff"
    + b"\xff\xff" * 2
    + b"\xff\xff\xff"
    + b"\xff" * 6
)

CASES: dict[str, Callable[[], bytes]] = {
    # table maps and rows
    "a row event without a table map": lambda: binlog(begun(ROW)),
    "a row event with more columns than its table map": lambda: mysql_rows(b"\xfe" + bytes(40), 9),
    "a row event of 2**64 - 1 columns": lambda: binlog(
        begun(MAP, Made(30, bytes(6) + b"\1\0\2\0\xfe" + b"\xff" * 8 + b"\xff"))
    ),
    "a table map of 2**64 - 1 columns": lambda: binlog(begun(table_map(LONG, columns=(1 << 64) - 1), ROW)),
    "a table map of 2**24 columns": lambda: binlog(begun(table_map(LONG, columns=1 << 24), ROW)),
    "a table map of 300,000 columns": lambda: mysql_rows(
        bytes(37_500 + 1_200_000), 300_000, map_=table_map(LONG * 300_000)
    ),
    "a table map of no columns, and rows of it": lambda: mysql_rows(bytes(1000), 0, map_=table_map(b"")),
    "row images of no columns: no bytes each": lambda: mysql_rows(bytes(100_000), present=b"\0"),
    "compressed row images of no columns": lambda: binlog(
        transaction(MAP, rows(block(bytes(100_000)), code=166, present=b"\0")), MARIADB
    ),
    "updates of no columns inside a payload": lambda: payload_of(
        query(b"BEGIN"), MAP, rows(bytes(100_000), code=31, present=b"\0"), Made(XID, bytes(8))
    ),
    "300,000 rows of one byte": lambda: mysql_rows(b"\xff" * 300_000),
    "table maps in one statement": lambda: binlog(transaction(*maps(30_000 * MANY)), MARIADB),
    "a value longer than its event": lambda: mysql_rows(b"\xfe\xff\xff\xff\xff", map_=table_map(BLOB, b"\4")),
    "impossible metadata": lambda: mysql_rows(bytes(200), 16, map_=table_map(ODD_TYPES, ODD_METADATA)),
    "optional metadata of 2**63 bytes": lambda: binlog(
        begun(table_map(LONG, optional=b"\4\xfe" + b"\xff" * 7 + b"\x7f"), ROW)
    ),
    "2**62 names of an ENUM": lambda: binlog(
        begun(table_map(b"\xfe", b"\xf7\1", optional=b"\6\x09\xfe" + b"\xff" * 7 + b"\x3f"), ROW)
    ),
    "200,000 empty optional fields": lambda: binlog(begun(table_map(LONG, optional=b"\1\0" * 200_000), ROW)),
    "extra data longer than the event": lambda: binlog(begun(MAP, Made(30, bytes(6) + b"\1\0\xff\xff\1\1\xfe"))),
    "a row event of 3 bytes": lambda: binlog(begun(MAP, Made(30, b"abc"))),
    # JSON
    "JSON 9,000 deep": lambda: json_row(json_deep(9_000)),
    "JSON 99 deep, 1,000 times": lambda: json_row(json_deep(99), 1_000),
    "JSON with shared offsets: 1,000 ** 9 values": lambda: json_row(json_shared(1_000, 9)),
    "JSON with shared offsets: 2 ** 60 values": lambda: json_row(json_shared(2, 60)),
    "JSON of 100,000 keys that share their bytes": lambda: json_row(json_wide(100_000)),
    "JSON array of 2**32 - 1 elements": lambda: json_row(b"\3" + b"\xff" * 8 + bytes(40)),
    "JSON string of 2**63 bytes": lambda: json_row(b"\x0c" + b"\xff" * 9 + b"\x7fabc"),
    "JSON opaque decimal of 255 digits": lambda: json_row(b"\x0f\xf6\x40\xff\x1e" + bytes(62)),
    "a partial update of 100,000 differences": lambda: json_diffs(100_000),
    "a difference of 2**32 - 1 bytes": lambda: mysql_rows(
        b"\xfe\0\0\0\0\1\1\xfe\xff\xff\xff\xff\0", map_=table_map(JSON, b"\4"), code=39
    ),
    # compression
    "payload: zstd, 1 GiB, as stated": lambda: packed(zstd(bytes(MIB), 1 << 30, known=True), 1 << 30),
    "payload: zstd, 1 GiB, 100 stated": lambda: packed(zstd(bytes(MIB), 1 << 30), 100),
    "payload: zstd, 200 MiB of zeros": lambda: packed(zstd(bytes(MIB), 200 * MIB), 200 * MIB),
    "payload: zstd, 2**64 - 1 stated": lambda: packed(zstandard.compress(b"x"), (1 << 64) - 1),
    "payload: zstd frame that states 64 GiB": lambda: packed(
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 64 << 30) + b"\1\0\0", 64 << 30
    ),
    "payload: zstd window of 2 GiB": lambda: packed(b"\x28\xb5\x2f\xfd\0" + bytes([(31 - 10) << 3]) + b"\1\0\0", 100),
    "payload: 200,000 zstd frames that hold nothing": lambda: packed(b"\x50\x2a\x4d\x18\0\0\0\0" * 200_000, 0),
    "payload: 50,000 zstd frames of one byte": lambda: packed(zstandard.compress(b"x") * 50_000, 50_000),
    "payload: 3 MiB of events of 19 bytes": tiny_inside,
    "payload: stored, packed size 2**64 - 1": lambda: binlog(
        group(payload(b"x", 1, compression=255, length=(1 << 64) - 1))
    ),
    "payload: stored, unpacked size 2**64 - 1": lambda: binlog(group(payload(b"x", (1 << 64) - 1, compression=255))),
    "payload: compression 77": lambda: binlog(group(payload(b"x", 1, compression=77))),
    "payload in a payload in a payload": lambda: payload_of(
        payload(inner([payload(inner([query(b"BEGIN")]), 30, compression=255)]), 90, compression=255)
    ),
    "payload: 100,000 fields of no bytes": lambda: binlog(group(Made(PAYLOAD, b"\1\1\1" * 100_000 + b"\0"))),
    "payload: an inner event of 2**32 - 1 bytes": lambda: payload_of(Made(QUERY, b"x" * 20))[:-30] + b"\xff" * 30,
    "payload: an inner event of size 0": lambda: packed(zstandard.compress(bytes(4000)), 4000),
    "5 payloads of 60 MiB": lambda: binlog(
        [m for k in range(5) for m in group(payload(zstd(bytes(MIB), 60 * MIB), 60 * MIB), number=k + 1)]
    ),
    "query: zlib, 1 GiB, as stated": lambda: binlog(
        transaction(query(block(b"", 1 << 30, zeros(1 << 30)), code=165)), MARIADB
    ),
    "query: zlib, 1 GiB, 10 stated": lambda: binlog(
        transaction(query(block(b"", 10, zeros(1 << 30)), code=165)), MARIADB
    ),
    "query: zlib, 2**32 - 1 stated": lambda: binlog(transaction(query(block(b"x", (1 << 32) - 1), code=165)), MARIADB),
    "query: a block without its length": lambda: binlog(transaction(query(b"\x87\1", code=165)), MARIADB),
    "rows: zlib, 1 GiB, as stated": lambda: maria_rows(block(b"", 1 << 30, zeros(1 << 30))),
    "rows: zlib, 1 GiB, 10 stated": lambda: maria_rows(block(b"", 10, zeros(1 << 30))),
    "rows: zlib, 60 MiB of rows": lambda: maria_rows(block(b"", 60 * MIB, zeros(60 * MIB))),
    "rows: a block that lies": lambda: maria_rows(BLOCK_LIES),
    "a COMPRESSED column: 256 MiB": lambda: maria_rows(
        b"\xfe" + struct.pack("<I", len(zeros(256 * MIB)) + 5) + b"\x84\x10\0\0\0" + zeros(256 * MIB),
        map_=table_map(COMPRESSED_BLOB, b"\4"),
        code=23,
    ),
    "64 COMPRESSED columns of 16 MiB": lambda: maria_rows(
        (b"\xfe" + struct.pack("<I", len(zeros(16 * MIB)) + 5) + b"\x84\1\0\0\0" + zeros(16 * MIB)) * 64,
        map_=table_map(COMPRESSED_BLOB, b"\4"),
        code=23,
    ),
    # sizes
    "event_size 0": lambda: with_size(0),
    "event_size 18": lambda: with_size(18),
    "event_size 19": lambda: with_size(19),
    "event_size 2**30 + 1": lambda: with_size((1 << 30) + 1),
    "event_size 2**32 - 1": lambda: with_size((1 << 32) - 1),
    "event_size 0, no checksums": lambda: with_size(0, crc=False),
    "event_size 2**31, no checksums": lambda: with_size(1 << 31, crc=False),
    **{
        f"FORMAT_DESCRIPTION {size}, claims {claimed}": (
            lambda size=size, claimed=claimed: head_of(size, claimed=claimed)
        )
        for size in (23, 76, 80, 95, 4096, 5000)
        for claimed in (0, 18, 75, size, (1 << 32) - 1)
    },
    "FORMAT_DESCRIPTION of 1 MiB": lambda: head_of(MIB),
    "FORMAT_DESCRIPTION of version 65535": lambda: head_of(123, version=65535),
    "FORMAT_DESCRIPTION with headers of 255 bytes": lambda: head_of(123, header=255),
    "FORMAT_DESCRIPTION with headers of 0 bytes": lambda: head_of(123, header=0),
    "FORMAT_DESCRIPTION with a name of 50 characters": lambda: head_of(123, b"9.9.9" + b"9" * 45),
    "FORMAT_DESCRIPTION with escapes in its name": lambda: head_of(123, b"9.9.9-" + ESCAPES),
    # counts
    "GTID_LIST of 2**28 - 1 entries": lambda: binlog(
        [Made(GTID_LIST, struct.pack("<I", (1 << 28) - 1) + bytes(16))], MARIADB
    ),
    "GTID_LIST of 300,000 entries": lambda: binlog(
        [Made(GTID_LIST, struct.pack("<I", 300_000) + b"".join(struct.pack("<IIQ", i, 1, i) for i in range(300_000)))],
        MARIADB,
    ),
    "PREVIOUS_GTIDS of 2**64 - 1 sources": lambda: binlog([Made(PREVIOUS, b"\xff" * 8 + bytes(16))]),
    "PREVIOUS_GTIDS of 2**63 intervals": lambda: binlog(
        [Made(PREVIOUS, struct.pack("<Q16xQ", 1, 1 << 63) + bytes(16))]
    ),
    "PREVIOUS_GTIDS of one interval of 2**62": lambda: binlog(
        [Made(PREVIOUS, struct.pack("<Q16xQQQ", 1, 1, 1, 1 << 62)), *begun(MAP, ROW)]
    ),
    "PREVIOUS_GTIDS of 200,000 intervals": lambda: binlog(
        [
            Made(
                PREVIOUS,
                struct.pack("<Q16xQ", 1, 200_000)
                + b"".join(struct.pack("<QQ", 3 * i + 1, 3 * i + 2) for i in range(200_000)),
            )
        ]
    ),
    "PREVIOUS_GTIDS of 100,000 sources without intervals": lambda: binlog(
        [
            Made(
                PREVIOUS,
                struct.pack("<Q", 100_000) + b"".join(struct.pack("<IQQI", i, 0, 0, 0) for i in range(100_000)),
            )
        ]
    ),
    "PREVIOUS_GTIDS with a tag of 2**60 bytes": lambda: binlog(
        [Made(PREVIOUS, b"\1\1\0\0\0\0\0\1" + bytes(16) + b"\xff" + b"\xff" * 7 + b"\x0f")]
    ),
    "GTID_TAGGED of numbers of 9 bytes": lambda: binlog([Made(GTID_TAGGED, b"\xff" * 900)]),
    "GTID_TAGGED of 100,000 fields": lambda: binlog([Made(GTID_TAGGED, b"\2\x80\x0c\x16" + b"\0\2" * 100_000)]),
    "GTIDs with gaps": lambda: binlog(
        [made for i in range(10_000 * MANY) for made in transaction(number=2 * i + 1)], MARIADB
    ),
    "GTIDs of as many domains": lambda: binlog(
        [Made(162, struct.pack("<QIB6x", 1, i, 1)) for i in range(10_000 * MANY)], MARIADB
    ),
    # text
    "escapes in names and statements": lambda: binlog(
        [
            *transaction(table_map(LONG, name=ESCAPES), ROW, query(ESCAPES, ESCAPES), Made(160, ESCAPES)),
            Made(161, struct.pack("<I", len(ESCAPES)) + ESCAPES),
            Made(26, struct.pack("<HB", 1, len(ESCAPES)) + ESCAPES),
            Made(4, struct.pack("<Q", 4) + ESCAPES),
        ],
        MARIADB,
    ),
    "a statement of 8 MiB of escapes": lambda: binlog(transaction(query(ESCAPES * (8 * MIB // len(ESCAPES)))), MARIADB),
    "status variables longer than the event": lambda: binlog(
        begun(Made(QUERY, struct.pack("<IIBHH", 1, 0, 255, 0, 65535) + b"\1\2"))
    ),
    "200 status variables of nothing": lambda: binlog(begun(query(b"X", status=b"\x0e" * 200 + b"\x0c\xfd"))),
    "a user variable of 2**32 - 1 bytes": lambda: binlog(
        begun(Made(14, b"\1\0\0\0a\0\0" + b"\x21\0\0\0" + b"\xff" * 4))
    ),
    "a user variable: DECIMAL(255,255)": lambda: binlog(
        begun(Made(14, b"\1\0\0\0a\0\4" + b"\x21\0\0\0" + b"\2\0\0\0\xff\xff"))
    ),
    "XA_PREPARE of negative lengths": lambda: binlog(begun(Made(38, b"\0" + b"\xff" * 12 + b"x"))),
    # floods
    "unknown events of 19 bytes": lambda: many(TINY, 100_000 * MANY, crc=False),
    "unknown events with checksums": lambda: many(TINY, 40_000 * MANY),
    "incidents": lambda: many(Made(26, b"\1\0\0"), 30_000 * MANY),
    "FORMAT_DESCRIPTIONs": lambda: binlog([]) + description() * 10_000 * MANY,
    "a relay log that turns all the time": lambda: turning(1_000 * MANY),
    "statements without a transaction": lambda: many(query(b"X"), 30_000 * MANY),
    "row events without a table map": lambda: many(rows(b"\xfe\1\0\0\0", code=23), 30_000 * MANY),
    "damaged events of 23 bytes": lambda: binlog([]) + (event(TINY, -1, crc=True)[:-1] + b"\0") * 20_000 * MANY,
    "false events, each to the end: 60 KiB": lambda: false_events(60 * 1024, crc=True),
    "false events, each to the end: 8 MiB": lambda: false_events(8 * MIB, crc=True),
    "false events without checksums: 60 KiB": lambda: false_events(60 * 1024, crc=False),
    "false events without checksums: 8 MiB": lambda: false_events(8 * MIB, crc=False),
    "8 MiB of zeros behind the head": lambda: binlog([]) + bytes(8 * MIB),
    "8 MiB of the byte 15": lambda: binlog([]) + b"\x0f" * (8 * MIB),
    "no FORMAT_DESCRIPTION": lambda: MAGIC + event(Made(3, b""), 4, crc=True),
    "encrypted, its header all ff": lambda: b"\xfdbin\1" + b"\xff" * 600,
    "encrypted events of 19 bytes without the key": sealed,
}

UNPACKED = {name: 256 for name in CASES if "GiB" in name} | {
    "payload: zstd, 200 MiB of zeros": 200,
    "payload: 3 MiB of events of 19 bytes": 3,
    "5 payloads of 60 MiB": 300,
    "rows: zlib, 60 MiB of rows": 60,
    "a COMPRESSED column: 256 MiB": 256,
    "64 COMPRESSED columns of 16 MiB": 1024,
}
"""Data that a case unpacks, in MiB: never more at a time than the default of --max inflate=SIZE."""

FLOODS = {
    "300,000 rows of one byte": 20_000,
    "payload: 3 MiB of events of 19 bytes": 3 * MIB // 19,
    "table maps in one statement": 30_000 * MANY,
    "GTIDs with gaps": 20_000 * MANY,
    "GTIDs of as many domains": 10_000 * MANY,
    "unknown events of 19 bytes": 100_000 * MANY,
    "unknown events with checksums": 40_000 * MANY,
    "incidents": 30_000 * MANY,
    "FORMAT_DESCRIPTIONs": 10_000 * MANY,
    "a relay log that turns all the time": 2_000 * MANY,
    "statements without a transaction": 30_000 * MANY,
    "row events without a table map": 30_000 * MANY,
    "damaged events of 23 bytes": 20_000 * MANY,
    "encrypted events of 19 bytes without the key": 10_000 * MANY,
}
"""How many events of a case break a rule."""

MANY_VALUES = {"300,000 rows of one byte"}
"""Small files of much more values than bytes: only the ceiling for all files holds for them."""
