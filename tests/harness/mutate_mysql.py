"""Damage inside events of the binary log: sizes, positions and checksums are made right again around it."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import zstandard

from tests.harness import oracle_mysql as reader
from tests.harness.mysql_writer import block

Damage = Callable[[bytearray], None]
QUERY_COMPRESSED = reader.QUERY_COMPRESSED
ROWS_COMPRESSED = range(166, 172)


def inside(rng: random.Random, data: bytes, damage: Damage) -> bytes:
    """Damages one event's body (unpacked, if it is packed) and writes the event anew."""
    frames = reader.mysql_binlog(data).frames
    if not frames:
        return data
    packed = [
        frame for frame in frames if data[frame.start + 4] in (reader.PAYLOAD, QUERY_COMPRESSED, *ROWS_COMPRESSED)
    ]
    frame = rng.choice(packed if packed and rng.random() < 0.3 else frames)
    tail = 4 * frame.fields[-1].name.endswith("crc32")
    header, body = data[frame.start : frame.start + 19], data[frame.start + 19 : frame.end - tail]
    if rng.random() < 0.8 and data[frame.start + 4] in (reader.PAYLOAD, QUERY_COMPRESSED, *ROWS_COMPRESSED):
        body = damaged_content(body, data[frame.start + 4], damage)
    else:
        changed = bytearray(body)
        damage(changed)
        body = bytes(changed)
    return data[: frame.start] + rewritten(header, body, frame.start, tail, rng.random() < 0.1) + data[frame.end :]


def rewritten(header: bytes, body: bytes, at: int, tail: int, damage_header: bool) -> bytes:
    """The event with its new body: event_size, end_log_pos and checksum fit."""
    size = 19 + len(body) + tail
    position = 0 if header[13:17] == bytes(4) else at + size
    event = bytearray(header[:9] + struct.pack("<II", size, position & 0xFFFFFFFF) + header[17:] + body)
    if damage_header:
        event[random.Random(size).choice((0, 4, 5, 17, 18))] ^= 1 << size % 8
    plain = bytearray(event)
    plain[17] &= 0xFE if event[4] == reader.DESCRIPTION else 0xFF
    return bytes(event) + (struct.pack("<I", zlib.crc32(plain)) if tail else b"")


def damaged_content(body: bytes, code: int, damage: Damage) -> bytes:
    """The content of a packed body, damaged and packed again."""
    try:
        return damaged_payload(body, damage) if code == reader.PAYLOAD else damaged_block(body, damage)
    except (ValueError, IndexError, zlib.error, zstandard.ZstdError):
        return body


def damaged_payload(body: bytes, damage: Damage) -> bytes:
    """TRANSACTION_PAYLOAD with other events inside, of the size that it states."""
    at = 0
    while body[at]:
        length, following = reader.lenenc(body, at + 1)
        at = following + length
    content = bytearray(reader.unzstd(body[at + 1 :]))
    damage(content)
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(content))
    numbers = ((2, 0), (3, len(content)), (1, len(packed)))
    return b"".join(b"%c\x09\xfe" % kind + struct.pack("<Q", value) for kind, value in numbers) + b"\0" + packed


def damaged_block(body: bytes, damage: Damage) -> bytes:
    """A compressed event with another content: the block is where a zlib stream begins."""
    at = body.rindex(b"\x78\x9c", 0)
    start = at - 1 - next(width for width in (1, 2, 3, 4) if body[at - 1 - width] == 0x80 | width)
    content = bytearray(zlib.decompress(body[at:]))
    damage(content)
    return body[:start] + block(bytes(content))
