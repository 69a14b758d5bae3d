"""Seeded damage that knows the formats: half of the time checksums are made right again, so that it gets further in."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import zstandard

from tests.harness import mutate_ibb, mutate_mysql, oracle
from tests.harness.samples import Sample

INTERESTING = (0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xC4, 0xC7, 0xCF, 0xD9, 0xDB, 0xDD, 0xDF, 0xE0, 0xFF)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63), (1 << 64) - 1)
MOST = 1 << 16


def mutated(rng: random.Random, samples: Sequence[Sample]) -> tuple[Sample, bytes]:
    """A sample and what became of it: at most 64 KiB."""
    sample = rng.choice(samples)
    data = bytearray(sample.data)
    if rng.random() < 0.5:
        data = bytearray(INSIDE[sample.format](rng, bytes(data), samples))
    else:
        damage(rng, data, samples)
    if rng.random() < 0.1:
        damage(rng, data, samples)
    return sample, bytes(data[:MOST])


def damage(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    """A few changes anywhere."""
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        rng.choice(CHANGES)(rng, data, samples)


def place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data)) if data else 0


def flip(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    if data:
        data[place(rng, data)] ^= 1 << rng.randrange(8)


def set_byte(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    if data:
        data[place(rng, data)] = rng.choice(INTERESTING)


def set_number(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    width, at = rng.choice((2, 4, 8)), place(rng, data)
    number = rng.choice(NUMBERS) & (1 << 8 * width) - 1
    data[at : at + width] = number.to_bytes(width, rng.choice(("big", "little")))


def cut_out(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    at = place(rng, data)
    del data[at : at + rng.choice((1, 2, 19, rng.randrange(1, 600)))]


def repeat(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    at, size = place(rng, data), rng.randrange(1, 300)
    data[at:at] = data[at : at + size] * rng.choice((1, 1, 3))


def garbage(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    at = place(rng, data)
    data[at:at] = rng.randbytes(rng.randrange(1, 40))


def zeros(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    at, size = place(rng, data), rng.choice((1, 8, 512))
    data[at : at + size] = bytes(len(data[at : at + size]))


def truncate(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    del data[place(rng, data) :]


def splice(rng: random.Random, data: bytearray, samples: Sequence[Sample]) -> None:
    other = rng.choice(samples).data
    at, start = place(rng, data), rng.randrange(len(other) + 1)
    data[at:at] = other[start : start + rng.randrange(1, 2000)]


Change = Callable[[random.Random, bytearray, Sequence[Sample]], None]
CHANGES: tuple[Change, ...] = (flip, set_byte, set_number, cut_out, repeat, garbage, zeros, truncate, splice)


def tarantool_inside(rng: random.Random, data: bytes, samples: Sequence[Sample]) -> bytes:
    """Damages one block's rows (unpacked, if they are packed) and writes the block anew with a right checksum."""
    frames = oracle.tarantool(data).frames
    if not frames:
        return data
    frame = rng.choice(frames)
    payload, packed = bytearray(data[frame.start + 19 : frame.end]), data[frame.start + 3] == 0xBA
    if packed and rng.random() < 0.8:
        payload = bytearray(zstandard.ZstdDecompressor().decompressobj().decompress(bytes(payload)))
        damage(rng, payload, samples)
        payload = bytearray(zstandard.ZstdCompressor(write_content_size=rng.random() < 0.5).compress(bytes(payload)))
    else:
        damage(rng, payload, samples)
    return data[: frame.start] + tarantool_block(bytes(payload), packed) + data[frame.end :]


def tarantool_block(payload: bytes, packed: bool = False) -> bytes:
    """A block with a right checksum."""
    magic = oracle.PACKED if packed else oracle.PLAIN
    fields = (
        magic + b"\xce" + struct.pack(">I", len(payload)) + b"\0\xce" + struct.pack(">I", oracle.raw_crc32c(payload))
    )
    return fields + b"\xa3\0\0\0" + payload


def drizzle_inside(rng: random.Random, data: bytes, samples: Sequence[Sample]) -> bytes:
    """Damages one entry's message and writes the entry anew, with a right checksum or with none."""
    frames = oracle.drizzle(data).frames
    if not frames:
        return data
    frame = rng.choice(frames)
    message = bytearray(data[frame.start + 8 : frame.end - 4])
    damage(rng, message, samples)
    absent = rng.random() < 0.3
    return data[: frame.start] + drizzle_entry(bytes(message), absent=absent) + data[frame.end :]


def drizzle_entry(message: bytes, kind: int = 1, *, absent: bool = False) -> bytes:
    """An entry with a right checksum, or with none."""
    return struct.pack("<II", kind, len(message)) + message + struct.pack("<I", 0 if absent else zlib.crc32(message))


def mysql_inside(rng: random.Random, data: bytes, samples: Sequence[Sample]) -> bytes:
    """Damages one event's body."""
    return mutate_mysql.inside(rng, data, lambda body: damage(rng, body, samples))


def ibb_inside(rng: random.Random, data: bytes, samples: Sequence[Sample]) -> bytes:
    """Damages one page."""
    return mutate_ibb.inside(rng, data, lambda page: damage(rng, page, samples))


INSIDE: dict[str, Callable[[random.Random, bytes, Sequence[Sample]], bytes]] = {
    "tarantool": tarantool_inside,
    "drizzle": drizzle_inside,
    "mysql-binlog": mysql_inside,
    "mariadb-innodb-binlog": ibb_inside,
}
