"""An independent byte-wise search for intact frames, from the specifications alone: what the product may not lose."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.harness import oracle, oracle_ibb, oracle_mysql
from tests.harness.samples import WALKERS

FORMAT = {"sphinx": "manticore", "mariadb-redo": "mariadb-innodb-binlog"}
"""The format of a target, where it is called otherwise."""

Proof = Callable[[int, int], int]
"""Where the frame at `start` ends that is right to the last bit, 0 = nowhere. end: it must end there, if not 0."""


class Search(NamedTuple):
    """How frames of one file are found. candidates: every place where one can stand, others need no look.

    sure: what is proven may not be missed, and nothing else may be taken for a frame (there are checksums).
    """

    proven: Proof
    candidates: re.Pattern[bytes]
    sure: bool = True

    def between(self, data: bytes, start: int, end: int) -> Iterator[int]:
        """The places in a range where a frame stands; what looks like one inside another is its content."""
        for match in self.candidates.finditer(data, start):
            if match.start() >= end:
                return
            if match.start() >= start and (ends := self.proven(match.start(), 0)):
                yield match.start()
                start = ends


def search(target: str, data: bytes, known_frames: frozenset[bytes] = frozenset()) -> Search | None:
    """The search for this file; None: nothing can be proven in it (no checksums, or its head is damaged).

    known: versions and frames that real servers wrote. Where a frame does not say how long it is, only these are intact
    beyond doubt: a checksum that fits between two marks does not prove that what is between them is a record.
    """
    if target in ("manticore", "sphinx"):
        return manticore(data, known_frames)
    return SEARCHES[target](data)


def tarantool(data: bytes) -> Search | None:
    """Blocks whose checksum is right and whose rows are whole."""
    if not re.match(rb"(XLOG|SNAP|VYLOG|RUN|INDEX)\n0\.1[23]\n", data) or data.find(b"\n\n", 0, 1858) < 0:
        return None

    def proven(at: int, end: int) -> int:
        block = oracle.block(data, at)
        right = block is not None and (end == block.end or (end == 0 and block.records > 0))
        return block.end if block is not None and right else 0

    return Search(proven, re.compile(rb"\xd5\xba\x0b[\xab\xba]"))


def drizzle(data: bytes) -> Search | None:
    """Entries with their checksum."""

    def proven(at: int, end: int) -> int:
        entry = oracle.entry(data, at)
        if end and data[end - 4 : end] == bytes(4):  # none, so that nobody can say
            return end
        check_input = entry is not None and not entry.fields[0].name.startswith("no checksum")
        return entry.end if entry is not None and check_input and end in (0, entry.end) else 0

    return Search(proven, re.compile(rb"(?=[\x01\x02]\0\0\0)"))


def mysql(data: bytes) -> Search | None:
    """Events with their checksum; only where all of the file has them."""
    form = oracle_mysql.description(data, 4)
    if form is None or not form.crc or data[:4] != oracle_mysql.MAGIC:
        return None
    heads = re.compile(rb"(?s)(?=.{4}\x0f.{14}\x04\x00)")
    others = (oracle_mysql.description(data, match.start()) for match in heads.finditer(data))
    if any(other is not None and other != form for other in others):
        return None
    first = 4 + int.from_bytes(data[13:17], "little")
    sealed = re.compile(rb"(?s)(?=.{4}\xa4.{4}.\0\0\0)")
    if sealed.match(data, first):  # also if its checksum is wrong: with the key what follows can still be read
        return None
    if any(oracle_mysql.event_at(data, match.start(), form) for match in sealed.finditer(data)):
        return None
    if not oracle_mysql.crc_right(data, 4, 4 + int.from_bytes(data[13:17], "little")):
        return None

    def proven(at: int, end: int) -> int:
        event = oracle_mysql.event_at(data, at, form)
        if event is None and end:  # a payload that is not whole is still an event
            sized = int.from_bytes(data[at + 9 : at + 13], "little") == end - at
            return end if sized and oracle_mysql.crc_right(data, at, end) else 0
        return event.end if event is not None and end in (0, event.end) else 0

    return Search(proven, re.compile(rb"(?s)(?=.{4}[\x01-\x3f\xa0-\xbf].{6}\0\0)"))  # what servers number their types


def manticore(data: bytes, known_frames: frozenset[bytes]) -> Search | None:
    """Transactions with their checksum: those of old versions say nothing about their size."""
    if len(data) < 8 or data[:4] != b"SPBL":
        return None
    version = int.from_bytes(data[4:8], "little")
    if not 2 <= version <= 16:
        return None

    def sealed(start: int, end: int) -> bool:
        return data[start : start + 4] == b"TXN!" and crc32_right(data, start, end)

    def proven(at: int, end: int) -> int:
        if end:
            absent = version >= 15 and data[at + 4] == 3 and data[end - 4 : end] == bytes(4)  # no server writes it
            return end if sealed(at, end) or (absent and framed_end(data, at) == end) else 0
        if version >= 15:
            return end if sealed(at, end := framed_end(data, at)) else 0
        return next((end for end in next_ends(data, at) if data[4:8] + data[at:end] in known_frames), 0)

    return Search(proven, re.compile(b"TXN!"))


def crc32_right(data: bytes, start: int, end: int) -> bool:
    """Of a transaction: over op and body."""
    return (
        start + 9 <= end <= len(data)
        and zlib.crc32(data[start + 4 : end - 4]) == struct.unpack_from("<I", data, end - 4)[0]
    )


def next_ends(data: bytes, at: int) -> Iterator[int]:
    """Where a transaction of an old version can end: before the next one, or with the file."""
    yield from (match.start() for match in re.compile(b"TXN!").finditer(data, at + 4))
    yield len(data)


def framed_end(data: bytes, at: int) -> int:
    """Where a transaction of version 15 or 16 ends; 0 = it is none."""
    try:
        op, place = data[at + 4], at + 5
        if op == 1:
            _, place = zint(data, place)
            place = zstring(data, place)
        elif op == 2:
            _, place = zint(data, place)
            _, place = zint(data, place)
            place += 4 + struct.unpack_from("<I", data, place)[0]
        elif op == 3:
            count, place = zint(data, place)
            for _ in range(min(count, len(data))):
                place = zstring(data, place)
                for _ in range(3):
                    _, place = zint(data, place)
        else:
            return 0
    except (IndexError, struct.error):
        return 0
    return place + 4 if place + 4 <= len(data) else 0


def zint(data: bytes, at: int) -> tuple[int, int]:
    """Groups of seven bits, the most significant first, and where they end."""
    value = 0
    for place in range(at, at + 10):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    raise IndexError(at)


def zstring(data: bytes, at: int) -> int:
    """Where a text with its length in front ends."""
    length, at = zint(data, at)
    if at + length > len(data):
        raise IndexError(length)
    return at + length


def eblob(data: bytes) -> Search | None:
    """Headers of dialect b behind which another one, zeros or the end of the file stand: there are no checksums."""
    if data[:10] != b"1337833\0\1\0" or len(data) < 256:
        return None

    def following(at: int) -> int:
        if at + 128 > len(data):
            return 0
        kind, meta, size, flags = struct.unpack_from("<QQQQ", data, at)
        end = at + 128 + meta + size
        whole = kind == 1 and flags == 0 and not any(data[at + 96 : at + 128]) and end <= len(data)
        return end if whole else 0

    def proven(at: int, end: int) -> int:
        own = following(at)
        if end or not own:
            return own if own == end else 0
        return own if own == len(data) or following(own) or not any(data[own:]) else 0

    return Search(proven, re.compile(rb"(?=\x01\0{7})"), sure=False)


def frames(target: str, data: bytes) -> list[tuple[int, int]]:
    """The frames of an intact file, in order: what can be left out, doubled, swapped or carried into another file."""
    if target in ("manticore", "sphinx"):
        return list(transactions(data))
    if target == "eblob":
        return list(records(data))
    return [(frame.start, frame.end) for frame in WALKERS[FORMAT.get(target, target)](data).frames]


def transactions(data: bytes) -> Iterator[tuple[int, int]]:
    """Transactions of an intact log, one behind the other."""
    at = 8
    while at < len(data):
        old = data[4] < 15
        ends = (
            (end for end in next_ends(data, at) if crc32_right(data, at, end)) if old else iter([framed_end(data, at)])
        )
        end = next(ends, 0)
        if end <= at:
            return
        yield at, end
        at = end


def records(data: bytes) -> Iterator[tuple[int, int]]:
    """Records of an intact log of dialect b."""
    at = 256
    while at + 128 <= len(data) and data[at : at + 8] == b"\1\0\0\0\0\0\0\0":
        end = at + 128 + sum(struct.unpack_from("<QQ", data, at + 8))
        if end > len(data):
            return
        yield at, end
        at = end


def ibb(data: bytes) -> Search | None:
    """Pages with their checksum."""
    size = oracle_ibb.page_size(data)
    if size is None:
        return None

    def proven(at: int, end: int) -> int:
        page = data[at : at + size]
        if at % size or end not in (0, at + size) or len(page) < size:
            return 0
        return at + size if oracle_ibb.right(page) or (end and not any(page)) else 0

    return Search(proven, re.compile(rb"(?s)(?=.)"))


SEARCHES: dict[str, Callable[[bytes], Search | None]] = {
    "tarantool": tarantool,
    "drizzle": drizzle,
    "mysql-binlog": mysql,
    "eblob": eblob,
    "mariadb-innodb-binlog": ibb,
    "mariadb-redo": ibb,
}
