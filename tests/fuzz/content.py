"""Hostile content under right checksums: bodies of records are changed, and all lengths and checksums around them fit.

What comes before the content (frames, blocks, pages, compression, positions) is right, so that the readers of content
are reached.
"""

from __future__ import annotations

import functools
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import zstandard

from tests.fuzz import bodies
from tests.fuzz.mutate import _record, _transaction
from tests.fuzz.search import frames
from tests.fuzz.seeds import Seed, seeds
from tests.harness import mutate_ibb, mutate_mysql, oracle_mysql
from tests.harness.mutate import MOST, damage, drizzle_entry, tarantool_block
from tests.harness.oracle_ibb import page_size
from tests.harness.samples import Sample, samples

TARGETS = ("tarantool", "manticore", "sphinx", "mariadb-innodb-binlog", "eblob", "drizzle", "mysql-binlog")
WINDOW = 6 * 1024
WINDOWS = 6
"""Of a long binary log so many parts of about so many bytes are inputs, too: what is far from its beginning."""

Harm = Callable[[bytearray], None]


class Pieces(NamedTuple):
    """A file: the bytes before its frames, the frames, and the bytes after them."""

    head: bytes
    frames: tuple[bytes, ...]
    tail: bytes


@functools.lru_cache(4096)
def pieces_of(target: str, data: bytes) -> Pieces:
    """The file, taken apart."""
    if target == "mariadb-innodb-binlog":
        size = page_size(data) or len(data)
        return Pieces(b"", tuple(data[at : at + size] for at in range(0, len(data), size)), b"")
    borders = frames(target, data)
    if not borders:
        return Pieces(data, (), b"")
    return Pieces(data[: borders[0][0]], tuple(data[a:b] for a, b in borders), data[borders[-1][1] :])


def content_seeds(corpus: Path, target: str) -> list[Seed]:
    """The files whose content is changed: whole ones with records in them; encrypted ones have none to change."""
    sources = [item for item in seeds(corpus, target) if not item.hints.keyfile and pieces_of(target, item.data).frames]
    return sources + list(_windows(corpus)) if target == "mysql-binlog" else sources


def _windows(corpus: Path) -> Iterator[Seed]:
    """Parts of long binary logs, from the beginning of a transaction on."""
    for sample in samples(corpus, "mysql-binlog", 1 << 20):
        if len(sample.data) <= 16 * 1024 or not sample.walk.clean:
            continue
        whole = pieces_of("mysql-binlog", sample.data).frames
        starts = [i for i, item in enumerate(whole) if item[4] in oracle_mysql.GTIDS]
        for first in starts[1 :: max(1, len(starts) // WINDOWS)][:WINDOWS]:
            events, size = [whole[0]], 0
            for item in whole[first:]:
                size += len(item)
                if size > WINDOW:
                    break
                events.append(item)
            tail = 4 * sample.walk.frames[0].fields[-1].name.endswith("crc32")
            data = join_events(sample.data[:4], events, tail)
            yield Seed("mysql-binlog", f"{Path(sample.name).parent}/{first}/{Path(sample.name).name}", data)


def make_hostile_seed(rng: random.Random, sources: Sequence[Seed]) -> Seed:
    """A file in which the bodies of one to four records are changed."""
    seed = rng.choice(sources)
    donors = [item.sample for item in rng.sample(sources, min(4, len(sources)))]
    pieces = pieces_of(seed.target, seed.data)
    data = WRITERS[seed.target](rng, pieces, donors)
    return seed._replace(data=data[:MOST])


def choose_frames(rng: random.Random, count: int) -> set[int]:
    """Which frames are changed."""
    return set(rng.sample(range(count), min(count, rng.choice((1, 1, 2, 4)))))


def change_body(rng: random.Random, donors: Sequence[Sample], structured: Harm, part: bytearray) -> None:
    """Mostly changes that know the structure; now and then any."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.75:
            structured(part)
        else:
            damage(rng, part, donors)


# -- one writer per format ---------------------------------------------------------------------------------------------


def tarantool(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Rows of blocks, also compressed ones."""
    frames = list(pieces.frames)
    for at in choose_frames(rng, len(frames)):
        frame = frames[at]
        packed, payload = frame[3] == 0xBA, bytearray(frame[19:])
        if packed:
            payload = bytearray(zstandard.ZstdDecompressor().decompressobj().decompress(bytes(payload)))
        change_body(rng, donors, lambda part: bodies.change_msgpack(rng, part), payload)
        if packed:
            payload = bytearray(
                zstandard.ZstdCompressor(write_content_size=rng.random() < 0.5).compress(bytes(payload))
            )
        frames[at] = tarantool_block(bytes(payload), packed)
    return pieces.head + b"".join(frames) + pieces.tail


def drizzle(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Messages of entries; an entry without a checksum stays one."""
    frames = list(pieces.frames)
    for at in choose_frames(rng, len(frames)):
        message, absent = bytearray(frames[at][8:-4]), frames[at][-4:] == bytes(4)
        change_body(rng, donors, lambda part: bodies.change_protobuf(rng, part), message)
        frames[at] = drizzle_entry(bytes(message), int.from_bytes(frames[at][:4], "little"), absent=absent)
    return pieces.head + b"".join(frames) + pieces.tail


def manticore(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Bodies of transactions of all versions."""

    def change(part: bytearray) -> None:
        change_body(rng, donors, lambda inner: bodies.change_numbers(rng, inner), part)

    frames = list(pieces.frames)
    for at in choose_frames(rng, len(frames)):
        frames[at] = _transaction(frames[at], pieces.head[4], change)
    return pieces.head + b"".join(frames) + pieces.tail


def eblob(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Data of records, and the members of their headers that say something about it."""

    def change(part: bytearray) -> None:
        change_body(rng, donors, lambda inner: bodies.change_numbers(rng, inner), part)

    frames = list(pieces.frames)
    for at in choose_frames(rng, len(frames)):
        frame = frames[at]
        if rng.random() < 0.4:
            header = bytearray(frame[:128])
            place = rng.choice((0, 24, 32, rng.randrange(128)))
            header[place : place + 8] = struct.pack("<Q", rng.choice(bodies.NUMBERS))[: 128 - place]
            frames[at] = bytes(header) + frame[128:]
        else:
            frames[at] = _record(frame, 0, change)
    return pieces.head + b"".join(frames) + pieces.tail


def ibb(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Chunks of pages; now and then the header page."""
    frames, size = list(pieces.frames), len(pieces.frames[0])
    for at in choose_frames(rng, len(frames)):
        page = bytearray(frames[at][: size - 4])
        if at == 0:
            if rng.random() < 0.7:
                continue
            mutate_ibb.damage_header(rng, page, lambda part: damage(rng, part, donors))
        elif rng.random() < 0.85:
            bodies.change_chunk(rng, page)
        else:
            mutate_ibb.damage_chunk(rng, page)
        frames[at] = mutate_ibb.resealed(bytes(page), size)
    return b"".join(frames)


def mysql(rng: random.Random, pieces: Pieces, donors: Sequence[Sample]) -> bytes:
    """Bodies of events, also of compressed ones and of those inside a TRANSACTION_PAYLOAD."""
    if not pieces.frames:
        return pieces.head
    tail = 4 * (_crc(pieces.frames[0]))
    frames = list(pieces.frames)
    typed = [i for i, item in enumerate(frames) if item[4] in bodies.ROWS or item[4] == bodies.TABLE_MAP]
    places = choose_frames(rng, len(frames))
    if typed and rng.random() < 0.6:
        places = {rng.choice(typed)}
    for at in places:
        frames[at] = _changed_event(rng, frames[at], tail, donors)
    return join_events(pieces.head, frames, tail) + pieces.tail


def _crc(event: bytes) -> bool:
    """Does this FORMAT_DESCRIPTION say that events have checksums?"""
    plain = bytearray(event)
    plain[17] &= 0xFE
    return len(event) > 23 and zlib.crc32(plain[:-4]) == struct.unpack("<I", event[-4:])[0]


def _changed_event(rng: random.Random, event: bytes, tail: int, donors: Sequence[Sample]) -> bytes:
    code, body = event[4], event[19 : len(event) - tail]

    def change(part: bytearray) -> None:
        change_body(rng, donors, lambda inner: bodies.change_event(rng, code, inner), part)

    def change_events(part: bytearray) -> None:
        _change_inside(rng, part, donors)

    if code == oracle_mysql.PAYLOAD:
        body = mutate_mysql.damaged_content(body, code, change_events if rng.random() < 0.7 else change)
    elif code in (mutate_mysql.QUERY_COMPRESSED, *mutate_mysql.ROWS_COMPRESSED) and rng.random() < 0.8:
        body = mutate_mysql.damaged_content(body, code, change)
    else:
        part = bytearray(body)
        change(part)
        body = bytes(part)
    return event[:19] + body + bytes(tail)


def _change_inside(rng: random.Random, content: bytearray, donors: Sequence[Sample]) -> None:
    """One of the events in an unpacked TRANSACTION_PAYLOAD; its size fits."""
    places, at = list[int](), 0
    while at + 19 <= len(content):
        places.append(at)
        at += max(19, int.from_bytes(content[at + 9 : at + 13], "little"))
    if not places:
        return
    at = rng.choice(places)
    size = max(19, int.from_bytes(content[at + 9 : at + 13], "little"))
    code, part = content[at + 4], content[at + 19 : at + size]
    change_body(rng, donors, lambda inner: bodies.change_event(rng, code, inner), part)
    content[at + 9 : at + 13] = struct.pack("<I", 19 + len(part))
    content[at + 19 : at + size] = part


def join_events(head: bytes, events: Sequence[bytes], tail: int) -> bytes:
    """A file of these events: sizes, positions and checksums fit."""
    parts, at = [head], len(head)
    for event in events:
        rewritten = mutate_mysql.rewritten(event[:19], event[19 : len(event) - tail], at, tail, damage_header=False)
        parts.append(rewritten)
        at += len(rewritten)
    return b"".join(parts)


WRITERS: dict[str, Callable[[random.Random, Pieces, Sequence[Sample]], bytes]] = {
    "tarantool": tarantool,
    "manticore": manticore,
    "sphinx": manticore,
    "mariadb-innodb-binlog": ibb,
    "eblob": eblob,
    "drizzle": drizzle,
    "mysql-binlog": mysql,
}
