"""Tables and rows of every kind of column, and the script that is written of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import binlogtool
from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, ScriptText, SqlFragment
from binlogtool.errors import BinlogtoolError
from binlogtool.format_api.row_output_interfaces import ScriptOptions
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.native_logs import (
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DOUBLE,
    FLOAT,
    INT24,
    LONG,
    LONGLONG,
    NEWDECIMAL,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
)
from tests.formats.mysql_binlog.row_building import image, lenenc, optional, rows_body, sized, table_map_body

WORKLOADS = Path(__file__).resolve().parents[2] / "corpus" / "mysql_binlog" / "workloads"


class Made(NamedTuple):
    """A script: its text, what was said of it, and what ended it."""

    text: bytes
    said: list[tuple[str, int | None, str]]
    error: str


def script(path: Path, wording: ScriptOptions, backend: str = "python") -> tuple[Made, int]:
    """The script of a log, and how many of its records kernels wrote."""
    text, said, quick, error = list[bytes](), list[Any](), 0, ""
    try:
        with binlogtool.open(path, backend=backend) as log:
            for part in log.statements(options=wording):
                if isinstance(part, SqlFragment):
                    quick += len(part.record)
                    text.append(bytes(part.data))
                elif isinstance(part, RecordBlock):
                    text += [body for body in part.bodies if body is not None]
                    said += [one for _, ones in sorted(part.findings.items()) for one in ones]
                elif isinstance(part, ScriptText):
                    text.append(part.data)
                elif isinstance(part, FileFinding):
                    said.append(part.finding)
    except BinlogtoolError as problem:
        error = str(problem)
    return Made(b"".join(text), [(one.id, one.offset, one.message) for one in said], error), quick


BINARY, UTF8MB4, LATIN1, ASCII, GBK = 63, 45, 8, 11, 28
CHOICES = [b"", b"one", b"it's", b"a\\b", "h\u00f6".encode(), b"/*!*/;"]
Column = tuple[int, bytes, int | None, Callable[[random.Random], bytes]]
"""Type, metadata, collation, and what makes a value."""


def any_text(source: random.Random) -> bytes:
    """Text, with what must be escaped, and sometimes bytes that are none, or the delimiter of the client."""
    pieces = [b"'", b"\\", b"\0", b"\n", b"\r", b"\x1a", b'"', b"/*!", b"/*", b"abc", "\u00e9\u20ac".encode()]
    pieces += [b"/*!*/;"] * (source.random() < 0.05) + [b"\xff", b"\xe9"] * (source.random() < 0.1)
    return b"".join(source.choices(pieces, k=source.randrange(6)))


def fixed(size: int) -> Callable[[random.Random], bytes]:
    return lambda source: source.choice(
        (source.randbytes(size), bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1))
    )


def long(prefix: int, made: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    def value(source: random.Random) -> bytes:
        data = made(source)
        return len(data).to_bytes(prefix, "little") + data

    return value


def packed(layout: str, *few: float) -> Callable[[random.Random], bytes]:
    return lambda source: struct.pack(layout, source.choice((*few, source.uniform(-1e6, 1e6), source.random() / 1e3)))


def decimal(source: random.Random) -> bytes:
    """DECIMAL(12,2): 99 at most in the first byte behind its sign, nine digits, two digits."""
    plain = (
        bytes([0x80 | source.randrange(10)])
        + struct.pack(">I", source.randrange(10**9))
        + bytes([source.randrange(100)])
    )
    return plain if source.random() < 0.5 else bytes(0xFF ^ byte for byte in plain)


def moment(source: random.Random) -> bytes:
    """DATETIME2(3)"""
    day = (source.randrange(10000) * 13 + source.randrange(1, 13)) << 5 | source.randrange(1, 32)
    clock = source.randrange(24) << 12 | source.randrange(60) << 6 | source.randrange(60)
    return (0x8000000000 + (day << 17 | clock)).to_bytes(5, "big") + (10 * source.randrange(1000)).to_bytes(2, "big")


COLUMNS: list[Column] = [
    (TINY, b"", None, fixed(1)), (SHORT, b"", None, fixed(2)), (INT24, b"", None, fixed(3)),
    (LONG, b"", None, fixed(4)),
    (LONGLONG, b"", None, fixed(8)), (FLOAT, b"\x04", None, packed("<f", 0.0, -0.0, 1e-4, 1e30, float("inf"))),
    (DOUBLE, b"\x08", None, packed("<d", 0.0, -0.0, 1e-4, 9.9e-5, 1e300, float("nan"))),
    (NEWDECIMAL, b"\x0c\x02", None, decimal), (DATE, b"", None, fixed(3)), (YEAR, b"", None, fixed(1)),
    (TIME2, b"\x03", None, fixed(5)), (TIME2, b"\x00", None, fixed(3)), (DATETIME2, b"\x03", None, moment),
    (DATETIME2, b"\x06", None, fixed(8)), (TIMESTAMP2, b"\x00", None, fixed(4)), (TIMESTAMP2, b"\x06", None, fixed(7)),
    (BIT, b"\x03\x02", None, fixed(3)), (BIT, b"\x00\x08", None, fixed(8)),
    (VARCHAR, b"\x64\x00", UTF8MB4, long(1, any_text)), (VARCHAR, b"\x00\x04", LATIN1, long(2, any_text)),
    (VARCHAR, b"\x64\x00", ASCII, long(1, any_text)), (VARCHAR, b"\x64\x00", GBK, long(1, any_text)),
    (VARCHAR, b"\x64\x00", BINARY, long(1, any_text)), (BLOB, b"\x02", UTF8MB4, long(2, any_text)),
    (BLOB, b"\x03", BINARY, long(3, any_text)), (STRING, b"\xfe\x40", BINARY, long(1, any_text)),
    (STRING, b"\xfe\x40", UTF8MB4, long(1, any_text)),
    (STRING, b"\xf7\x01", None, fixed(1)),
    (STRING, b"\xf8\x01", None, lambda s: bytes([s.choice((0, 1, 6, 26, 33, 255))])),
    (STRING, b"\xf7\x01", None, lambda s: bytes([s.randrange(8)])),
]  # fmt: skip


def columns_map(columns: Sequence[Column], source: random.Random) -> bytes:
    """A TABLE_MAP with all that a server says with binlog_row_metadata=FULL."""
    numbers = [c for c in columns if c[0] in (TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL)]
    texts = b"".join(lenenc(c[2]) for c in columns if c[2] is not None)
    names = b"".join(sized(b"c%d" % i + source.choice((b"", b"`", b"'"))) for i in range(len(columns)))
    labels = lenenc(len(CHOICES)) + b"".join(map(sized, CHOICES[: len(CHOICES)]))
    fewer = lenenc(5) + b"".join(map(sized, CHOICES[:5]))
    more = (
        optional(4, names) + optional(1, bits_of([source.random() < 0.5 for _ in numbers]))
        if numbers
        else optional(4, names)
    )
    more += optional(3, texts) if texts else b""
    enums = sum(1 for c in columns if c[1][:1] == b"\xf7")
    sets = sum(1 for c in columns if c[1][:1] == b"\xf8")
    more += optional(6, b"".join(source.choice((labels, fewer)) for _ in range(enums))) if enums else b""
    more += optional(5, fewer * sets) if sets else b""
    more += optional(10, lenenc(UTF8MB4)) if enums or sets else b""
    keys = sorted(source.sample(range(len(columns)), k=min(len(columns), source.choice((0, 1, 1, 2)))))
    more += optional(8, b"".join(map(lenenc, keys))) if keys else b""
    return table_map_body(bytes(c[0] for c in columns), b"".join(c[1] for c in columns), more)


def bits_of(flags: Sequence[bool]) -> bytes:
    """Highest bit first."""
    number = sum(0x80 >> (i & 7) << 8 * (i >> 3) for i, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def a_log(source: random.Random) -> bytes:
    """Transactions of three statements each, with rows of all kinds in tables of some columns."""
    events = []
    for number in range(1, 25):
        columns = source.sample(COLUMNS, k=source.randrange(1, 5))
        table = make.event(make.TABLE_MAP, columns_map(columns, source))
        events.append(make.event(make.GTID, make.mariadb_gtid(number)))
        for code in source.choices((23, 24, 25, 30, 31, 32), k=3):
            present = [[source.random() < 0.9 for _ in columns] for _ in range(2 if code in (24, 31) else 1)]
            images = b""
            for _ in range(source.randrange(1, 4)):
                for bitmap in present:
                    chosen = [c for c, there in zip(columns, bitmap, strict=True) if there]
                    images += image([None if source.random() < 0.1 else c[3](source) for c in chosen])
            extra = source.choice((b"", b"\x01\x05ab")) if code >= 30 else None
            body = rows_body(len(columns), images, present, extra)
            events += [table, make.event(code, body, time=source.choice((0, 5, 6)))]
        events.append(make.event(make.XID, bytes(8)))
    return make.log(events)
