"""Damage of known cause, done to sound files: what the verdicts are held against."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

SECTORS = (512, 4096)


class Done(NamedTuple):
    """A damaged file, and what is right to say of it: kinds of causes; a bit that must be named."""

    data: bytes
    right: frozenset[str]
    bit: tuple[int, int] | None = None


Kind = Callable[[random.Random, bytes, bytes], Done | None]
"""A generator, a sound file, and another file (of any format) -> the damage; None = not possible here."""


def flipped_bit(rng: random.Random, data: bytes, other: bytes) -> Done:
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    out = bytearray(data)
    out[at] ^= 1 << bit
    return Done(bytes(out), frozenset({"flipped-bit"}), (at, bit))


def _sector(rng: random.Random, data: bytes) -> tuple[int, int] | None:
    """A place for whole sectors: behind the first one, and in front of the last bytes."""
    size = rng.choice(SECTORS)
    most = (len(data) - 64) // size - 1
    return (size * rng.randint(1, most), size) if most >= 1 else None


def _placed(data: bytes, at: int, piece: bytes, kind: str) -> Done | None:
    """The piece in place of what stood there; None if most of that was the same."""
    here = data[at : at + len(piece)]
    if sum(a != b for a, b in zip(here, piece, strict=True)) < len(piece) // 4:
        return None
    return Done(data[:at] + piece + data[at + len(piece) :], frozenset({kind}))


def zeroed_sector(rng: random.Random, data: bytes, other: bytes) -> Done | None:
    place = _sector(rng, data)
    return None if place is None else _placed(data, place[0], bytes(place[1]), "zeroed-sector")


def stale_sector(rng: random.Random, data: bytes, other: bytes) -> Done | None:
    place = _sector(rng, data)
    if place is None:
        return None
    at, size = place
    source = size * rng.randrange(len(data) // size)
    piece = data[source : source + size]
    return _placed(data, at, piece, "stale-sector") if source != at and piece.strip(b"\0") else None


def torn_write(rng: random.Random, data: bytes, other: bytes) -> Done | None:
    """The last sectors of the file never reached the disk: zeros stand there."""
    size = rng.choice(SECTORS)
    last = (len(data) - 1) // size
    at = size * rng.randint(max(1, last - 3), last) if last else 0
    return None if not data[at:].rstrip(b"\0") or not at else Done(_zeros(data, at), frozenset({"torn-write"}))


def _zeros(data: bytes, at: int) -> bytes:
    return data[:at] + bytes(len(data) - at)


def truncated(rng: random.Random, data: bytes, other: bytes) -> Done:
    return Done(data[: rng.randrange(len(data) // 2, len(data))], frozenset({"truncated"}))


def foreign_bytes(rng: random.Random, data: bytes, other: bytes) -> Done | None:
    """Sectors of another file, from its beginning."""
    place = _sector(rng, data)
    if place is None or len(other) < place[1]:
        return None
    return _placed(data, place[0], other[: place[1]], "foreign-bytes")


def inserted_bytes(rng: random.Random, data: bytes, other: bytes) -> Done:
    at, count = rng.randrange(64, len(data)), rng.randint(1, 64)
    return Done(data[:at] + rng.randbytes(count) + data[at:], frozenset({"inserted-bytes"}))


def removed_bytes(rng: random.Random, data: bytes, other: bytes) -> Done:
    """Not near the end: a last record that lacks bytes cannot be told from one that was cut."""
    at, count = rng.randrange(64, len(data) * 3 // 4), rng.randint(1, 64)
    return Done(data[:at] + data[at + count :], frozenset({"removed-bytes"}))


def two_bits(rng: random.Random, data: bytes, other: bytes) -> Done:
    """None of the causes that there is a word for."""
    at, out = rng.randrange(len(data)), bytearray(data)
    out[at] ^= 0b101 << rng.randrange(6)
    return Done(bytes(out), frozenset())


def overwritten(rng: random.Random, data: bytes, other: bytes) -> Done:
    """Random bytes in place of some: nothing shows where they come from."""
    count = rng.randint(2, 64)
    at = rng.randrange(len(data) - count)
    return Done(data[:at] + rng.randbytes(count) + data[at + count :], frozenset())


KINDS: dict[str, Kind] = {
    "one flipped bit": flipped_bit,
    "zeroed sectors": zeroed_sector,
    "stale sectors": stale_sector,
    "torn write": torn_write,
    "truncated": truncated,
    "foreign bytes": foreign_bytes,
    "inserted bytes": inserted_bytes,
    "removed bytes": removed_bytes,
    "control: two flipped bits": two_bits,
    "control: random bytes": overwritten,
}
