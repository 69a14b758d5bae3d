"""What is done to a file: bits, sectors, whole records, pieces of others; checksums are renewed half of the time."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import crc32c

from tests.fuzz.search import frames, zint
from tests.fuzz.seeds import Seed
from tests.harness.mutate import INSIDE, MOST, damage, flip, truncate
from tests.harness.samples import Sample

SECTORS = (512, 512, 4096)
Pieces = list[bytes]


def mutate_seed(rng: random.Random, seeds: Sequence[Seed]) -> Seed:
    """A file, and what became of it: of longer ones the first 64 KiB (of directories with a redo log all)."""
    seed = rng.choice(seeds)
    donors = [donor.sample for donor in rng.sample(seeds, min(8, len(seeds)))]
    if seed.beside:
        return _mutate_directory(rng, seed, donors)
    data = _mutate_once(rng, seed, donors, seeds)
    if rng.random() < 0.1:
        again = bytearray(data)
        damage(rng, again, donors)
        data = bytes(again)
    return seed._replace(data=data[:MOST])


def _mutate_once(rng: random.Random, seed: Seed, donors: Sequence[Sample], seeds: Sequence[Seed]) -> bytes:
    data, kind = bytearray(seed.data), rng.random()
    if kind < 0.35:
        return damage_record(rng, seed, donors)
    if kind < 0.55:
        return move_records(rng, seed, rng.choice(seeds))
    if kind < 0.7:
        return sectors(rng, seed.data, rng.choice(seeds).data)
    if kind < 0.8:
        flip(rng, data, donors)
    elif kind < 0.85:
        truncate(rng, data, donors)
    else:
        damage(rng, data, donors)
    return bytes(data)


def _mutate_directory(rng: random.Random, seed: Seed, donors: Sequence[Sample]) -> Seed:
    """Damage in the redo log (its own checksums renewed now and then), in the file, or in both."""
    (name, redo), *others = seed.beside
    what = rng.random()
    if what < 0.8:
        redo = damage_redo_log(rng, redo, donors)
    data = seed.data if what < 0.6 else _mutate_once(rng, seed, donors, [seed])
    return seed._replace(data=data, beside=((name, redo), *others))


def damage_redo_log(rng: random.Random, redo: bytes, donors: Sequence[Sample]) -> bytes:
    """Damage mostly where the log is written: the rest of the ring is zeros."""
    used = max(len(redo.rstrip(b"\0")), 1)
    damaged = bytearray(redo[:used])
    damage(rng, damaged, donors)
    damaged = damaged.ljust(len(redo), b"\0")[: max(len(redo), used)] if rng.random() < 0.9 else damaged
    for at in (0, 4096, 8192):
        size = 508 if at == 0 else 60
        if rng.random() < 0.5 and len(damaged) >= at + size + 4:
            struct.pack_into("<I", damaged, at + size, crc32c.crc32c(bytes(damaged[at : at + size])))
    return bytes(damaged)


# -- sectors -----------------------------------------------------------------------------------------------------------


def sectors(rng: random.Random, data: bytes, other: bytes = b"", size: int | None = None) -> bytes:
    """One to three sectors are stale (they are elsewhere in the file, or in `other`), zero or swapped."""
    damaged = bytearray(data)
    size = size or rng.choice(SECTORS)
    for _ in range(rng.randrange(1, 4)):
        a, b = (rng.randrange(max(len(damaged) // size, 1)) * size for _ in range(2))
        first, second = bytes(damaged[a : a + size]), bytes(damaged[b : b + size])
        kind = rng.choice(("stale", "zero", "swapped", *(["foreign"] if other else [])))
        new = {"zero": bytes(len(first)), "foreign": other[b : b + size]}.get(kind, second)[: len(first)]
        damaged[a : a + len(new)] = new
        if kind == "swapped":
            damaged[b : b + size] = first[: len(second)]
    return bytes(damaged)


# -- records -----------------------------------------------------------------------------------------------------------


def move_records(rng: random.Random, seed: Seed, other: Seed) -> bytes:
    """Whole records left out, doubled, swapped, or taken from another file."""
    borders = frames(seed.target, seed.data)
    if not borders:
        return seed.data
    head, tail = seed.data[: borders[0][0]], seed.data[borders[-1][1] :]
    pieces = [seed.data[start:end] for start, end in borders]
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice((remove, double, swap, carry))(rng, pieces, other)
    return head + b"".join(pieces) + tail


def remove(rng: random.Random, pieces: Pieces, other: Seed) -> None:
    at = rng.randrange(len(pieces) + 1)
    del pieces[at : at + rng.choice((1, 1, 2, 5))]


def double(rng: random.Random, pieces: Pieces, other: Seed) -> None:
    at, to = rng.randrange(len(pieces) + 1), rng.randrange(len(pieces) + 1)
    pieces[to:to] = pieces[at : at + rng.choice((1, 1, 3))]


def swap(rng: random.Random, pieces: Pieces, other: Seed) -> None:
    if pieces:
        a, b = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        pieces[a], pieces[b] = pieces[b], pieces[a]


def carry(rng: random.Random, pieces: Pieces, other: Seed) -> None:
    borders = frames(other.target, other.data)
    if borders:
        at, first = rng.randrange(len(pieces) + 1), rng.randrange(len(borders))
        taken = borders[first : first + rng.choice((1, 2))]
        pieces[at:at] = [other.data[start:end] for start, end in taken]


# -- inside records ----------------------------------------------------------------------------------------------------


def damage_record(rng: random.Random, seed: Seed, donors: Sequence[Sample]) -> bytes:
    """Damage inside one record; lengths and checksums are made right again."""
    writers = {"manticore": _transaction, "eblob": _record}
    if seed.format in INSIDE:
        return INSIDE[seed.format](rng, seed.data, donors)
    borders = frames(seed.target, seed.data)
    if not borders:
        return seed.data
    start, end = rng.choice(borders)
    damaged = writers[seed.format](seed.data[start:end], seed.data[4], lambda part: damage(rng, part, donors))
    return seed.data[:start] + damaged + seed.data[end:]


def _transaction(frame: bytes, version: int, harm: Callable[[bytearray], None]) -> bytes:
    """A transaction of Manticore or Sphinx: the length of its payload and the checksum fit."""
    at = 5
    if version >= 15 and frame[4] == 2:
        for _ in range(2):
            _, at = zint(frame, at)
        at += 4
    body = bytearray(frame[at:-4])
    harm(body)
    head = frame[: at - 4] + struct.pack("<I", len(body)) if at > 5 else frame[:at]
    content = head[4:] + body
    return b"TXN!" + content + struct.pack("<I", zlib.crc32(content))


def _record(frame: bytes, _: int, harm: Callable[[bytearray], None]) -> bytes:
    """A record of eblob: its sizes fit."""
    meta, _size = struct.unpack_from("<QQ", frame, 8)
    body = bytearray(frame[128 + meta :])
    harm(body)
    return frame[:16] + struct.pack("<Q", len(body)) + frame[24 : 128 + meta] + body
