"""Damage inside pages of MariaDB's InnoDB binlog: their CRCs are made right again around it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import crc32c

from tests.harness.oracle_ibb import page_size

Damage = Callable[[bytearray], None]
CHUNK_TYPES = (0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x01, 0x02, 0x03, 0x81, 0x83, 0xC1, 0xC2, 0xC3, 0x00, 0xFF, 0x47)
NUMBERS = (16, 24, 32, 40, 48, 56)
"""Of 8 bytes each, in the header page."""


def inside(rng: random.Random, data: bytes, damage: Damage) -> bytes:
    """Damages a page, a chunk's head in it, or the header page, and writes the checksums anew."""
    size = page_size(data)
    if size is None or len(data) < 2 * size:
        return data
    at = rng.randrange(len(data) // size) * size
    page = bytearray(data[at : at + size - 4])
    if at == 0:
        damage_header(rng, page, damage)
    elif rng.random() < 0.5:
        damage_chunk(rng, page)
    else:
        damage(page)
    return data[:at] + resealed(bytes(page), size) + data[at + size :]


def resealed(page: bytes, size: int) -> bytes:
    """A page of `size` bytes with this content and a right CRC."""
    content = page[: size - 4].ljust(size - 4, b"\0")
    return content + struct.pack("<I", crc32c.crc32c(content))


def damage_header(rng: random.Random, page: bytearray, damage: Damage) -> None:
    """Another number in the header; or any damage. Its own CRC is right again."""
    if rng.random() < 0.6:
        number = rng.choice((0, 1, 2, 3, 7, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1))
        struct.pack_into("<Q", page, rng.choice(NUMBERS), number)
    else:
        damage(page)
    if len(page) >= 512:
        struct.pack_into("<I", page, 508, crc32c.crc32c(bytes(page[:508])))


def damage_chunk(rng: random.Random, page: bytearray) -> None:
    """Another type, or another length, in front of a chunk of the page."""
    places, at = [0], 0
    while at + 3 < len(page) and page[at] not in (0, 0xFF):
        places.append(at)
        at += 3 + int.from_bytes(page[at + 1 : at + 3], "little")
    at = rng.choice(places)
    if rng.random() < 0.5:
        page[at] = rng.choice(CHUNK_TYPES)
    else:
        struct.pack_into("<H", page, at + 1, rng.choice((0, 1, 2, len(page) - at - 3, len(page), 0xFFFF, 0x8000)))
