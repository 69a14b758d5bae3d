"""Goal R6: each number of 2, 4 or 8 bytes overwritten with 0, 1, the largest, the sign bit, one more, one less."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from binlogtool.findings import Severity
from tests.harness import mutate_ibb, mutate_mysql, oracle, oracle_ibb, oracle_mysql
from tests.harness.engine import opinion
from tests.harness.mutate import tarantool_block
from tests.harness.samples import FORMATS, FULL, WALKERS, Sample, pieces, samples
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = pytest.mark.full

LIMIT = (1 << 16) if FULL else 9 * 1024
LENGTH = {"length-out-of-bounds", "checksum-mismatch", "torn-tail", "payload-undecodable", "damaged-range"}

IBB_HEADER = tuple(f"header: {name}" for name, start, end in oracle_ibb.HEADER if end - start in (2, 4, 8))

RIGHT: dict[str, set[str]] = {
    "magic": {"bad-magic", "torn-tail", "garbage-tail"},
    "length": LENGTH,
    "crc": {"checksum-mismatch"},
    "type": {"unknown-record-type", "bad-magic", "garbage-tail", "damaged-range", "payload-undecodable"},
    "message length": LENGTH | {"zero-tail"},
    "checksum": {"checksum-mismatch", "checksum-absent", "payload-undecodable"},
    **{key: {"checksum-mismatch"} for key in ("server id", "timestamp", "end_log_pos", "flags")},
    "crc32": {"checksum-mismatch", "torn-tail"},
    "event size": {"length-out-of-bounds", "checksum-mismatch", "torn-tail"},
    "no checksum: event size": {
        "length-out-of-bounds",
        "torn-tail",
        "bad-header",
        "payload-undecodable",
        "garbage-tail",
        "damaged-range",
        "incomplete-transaction",
        "zero-tail",
    },
    "no checksum: type": {"unknown-record-type"},
    "chunk length": {"checksum-mismatch", "torn-tail"},
    "page crc32c": {"checksum-mismatch", "torn-tail"},
    **{key: {"bad-header", "bad-magic", "checksum-mismatch"} for key in IBB_HEADER},
}
"""Any of these says what is wrong with the field."""

HEADER = (("timestamp", 0, 4), ("server id", 5, 4), ("event size", 9, 4), ("end_log_pos", 13, 4), ("flags", 17, 2))
"""Of an event of the binary log (section 2)."""


class Place(NamedTuple):
    """A number in a file. order: byte order."""

    name: str
    at: int
    width: int
    order: str


def places(format: str, data: bytes) -> Iterator[Place]:
    """The numbers of the frames' own fields."""
    walk = WALKERS[format](data)
    for field in walk.fields if format == "mariadb-innodb-binlog" else ():
        if field.name in IBB_HEADER:
            yield Place(field.name, field.start, field.end - field.start, "little")
    for frame in walk.frames:
        if format == "mysql-binlog":
            yield from header_places(frame, data)
            continue
        if format == "mariadb-innodb-binlog":
            yield from page_places(frame)
            continue
        if format == "drizzle":
            yield Place("type", frame.start, 4, "little")
            yield Place("message length", frame.start + 4, 4, "little")
            yield Place("checksum", frame.end - 4, 4, "little")
            continue
        for field in frame.fields:
            if field.name == "magic":
                yield Place("magic", field.start, 4, "big")
            elif field.name in ("length", "crc") and field.end - field.start in (3, 5, 9):
                yield Place(field.name, field.start + 1, field.end - field.start - 1, "big")


def page_places(frame: oracle.Frame) -> Iterator[Place]:
    """The lengths of some chunks, and the checksum: one of 4 bytes covers all of them."""
    lengths = [field for field in frame.fields if field.name == "chunk length"]
    for field in lengths[:: 1 if FULL else 8]:
        yield Place("chunk length", field.start, 2, "little")
    yield Place("page crc32c", frame.end - 4, 4, "little")


def header_places(frame: oracle.Frame, data: bytes) -> Iterator[Place]:
    """The numbers of a common header, and the checksum; without one only event_size must be noticed."""
    checked = frame.fields[-1].name == "crc32"
    if frame.fields[0].name.startswith("encrypted") or data[frame.start + 4] == oracle_mysql.DESCRIPTION:
        return
    for name, at, width in HEADER if checked else HEADER[2:3]:
        yield Place(name if checked else f"no checksum: {name}", frame.start + at, width, "little")
    if checked:
        yield Place("crc32", frame.end - 4, 4, "little")


def overwrites(data: bytes, place: Place) -> Iterator[bytes]:
    """The file with each of the values that tend to break readers (not type 2: a BLOB is opaque, and may follow)."""
    old = int.from_bytes(data[place.at : place.at + place.width], place.order)  # type: ignore[arg-type]
    most = (1 << 8 * place.width) - 1
    values = {0, 1, most, most // 2 + 1, (old + 1) & most, (old - 1) & most}
    for value in values - ({1, 2} if place.name == "type" else {old}):
        changed = value.to_bytes(place.width, place.order)  # type: ignore[arg-type]
        yield data[: place.at] + changed + data[place.at + place.width :]


PARTS = (12, 4) if EXHAUSTIVE else (6, 2)
"""So many intact files are changed, and so many of the binary log."""


def chosen(corpus: Path, format: str) -> Iterator[Sample]:
    """Intact files; a stated part of them unless everything is asked for."""
    limit = max(LIMIT, 23_000) if format == "drizzle" else LIMIT
    found = pieces(corpus, format, 16 * 1024) if format == "mariadb-innodb-binlog" else samples(corpus, format, limit)
    intact = [sample for sample in found if sample.walk.clean and sample.walk.frames]
    yield from intact if FULL else intact[:: max(1, len(intact) // PARTS[format == "mysql-binlog"])]


@pytest.mark.parametrize("format", FORMATS)
def test_an_overwritten_field_is_named(corpus: Path, format: str) -> None:
    tried: Counter[str] = Counter()
    wrong = []
    for sample in chosen(corpus, format):
        before = opinion(format, sample.name, sample.data).signature
        for place in take_sample(places(format, sample.data), 5):
            for data in overwrites(sample.data, place):
                tried[place.name] += 1
                seen = opinion(format, sample.name, data)
                fresh = {found[0] for found in seen.signature - before}
                if not fresh & RIGHT[place.name]:
                    wrong.append((sample.name, place, data[place.at : place.at + place.width].hex(), sorted(fresh)))
    print(f"\nR6 {format}: {sum(tried.values()):,} overwritten fields {dict(tried)}, {len(wrong)} not named")
    assert not wrong, wrong[:10]
    assert tried


class Token(NamedTuple):
    """A msgpack value with a number of 2, 4 or 8 bytes: where the number is. sized: it says how much follows."""

    at: int
    width: int
    sized: bool


WIDE = {0xCA: 4, 0xCB: 8, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD1: 2, 0xD2: 4, 0xD3: 8}
SIZED = {0xC5: 2, 0xC6: 4, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
NARROW = {0xCC: 1, 0xD0: 1, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}


def tokens(payload: bytes) -> Iterator[Token]:
    """The wide numbers of well-formed msgpack."""
    at = 0
    while at < len(payload):
        first = payload[at]
        at += 1
        if first in WIDE:
            yield Token(at, WIDE[first], False)
            at += WIDE[first]
        elif first in SIZED:
            yield Token(at, SIZED[first], True)
            size = int.from_bytes(payload[at : at + SIZED[first]], "big")
            at += SIZED[first] + (size if first <= 0xDB else 0)
        elif 0xA0 <= first <= 0xBF:
            at += first - 0xA0
        elif first in (0xC4, 0xD9):
            at += 1 + payload[at]
        elif 0xC7 <= first <= 0xC9:
            width = 1 << first - 0xC7
            at += width + 1 + int.from_bytes(payload[at : at + width], "big")
        else:
            at += NARROW.get(first, 0)


def test_an_overwritten_number_in_a_row_never_goes_wrong_even_with_a_right_checksum(corpus: Path) -> None:
    """A size that cannot be true is an error; any other number is data, and must only do no harm."""
    tried = sized = 0
    wrong = []
    for sample in chosen(corpus, "tarantool"):
        before = opinion("tarantool", sample.name, sample.data).signature
        for frame in sample.walk.frames:
            packed = sample.data[frame.start + 3] == 0xBA
            payload = sample.data[frame.start + 19 : frame.end]
            payload = oracle.unpacked(payload) if packed else payload
            some = list(tokens(payload))
            for token in some if FULL else some[:: max(1, len(some) // (20 if EXHAUSTIVE else 5))]:
                for changed in overwrites(payload, Place("row", token.at, token.width, "big")):
                    tried, sized = tried + 1, sized + token.sized
                    block = tarantool_block(changed)
                    data = sample.data[: frame.start] + block + sample.data[frame.end :]
                    seen = opinion("tarantool", sample.name, data)
                    grave = any(found[1] == Severity.ERROR for found in seen.signature - before)
                    if token.sized and oracle.rows(changed, False)[0] == 0 and not grave:
                        wrong.append((sample.name, frame.start, token))
    print(
        f"\nR6 tarantool: {tried:,} overwritten numbers in rows ({sized:,} sizes), {len(wrong)} broken ones unreported"
    )
    assert not wrong, wrong[:10]
    assert sized


def test_an_overwritten_number_in_a_body_never_goes_wrong_even_with_a_right_checksum(corpus: Path) -> None:
    """Every 2nd byte of some bodies, and every byte in the full run, overwritten as a number of 1, 2, 4 and 8 bytes."""
    tried = 0
    for sample in list(chosen(corpus, "mysql-binlog"))[: None if FULL else 4]:
        for frame in take_sample(sample.walk.frames[: None if FULL else 12], 3):
            tail = 4 * frame.fields[-1].name.endswith("crc32")
            header, body = sample.data[frame.start : frame.start + 19], sample.data[frame.start + 19 : frame.end - tail]
            for at in range(0, len(body), 1 if FULL else 1 + len(body) // 12):
                width = min((1, 2, 4, 8)[at % 4], len(body) - at)
                for changed in overwrites(body, Place("body", at, width, "little")):
                    tried += 1
                    event = mutate_mysql.rewritten(header, changed, frame.start, tail, False)
                    data = sample.data[: frame.start] + event + sample.data[frame.end :]
                    opinion("mysql-binlog", sample.name, data)
    print(f"\nR6 mysql-binlog: {tried:,} overwritten numbers in bodies, no exception")
    assert tried


def test_an_overwritten_member_of_a_message_never_goes_wrong_even_with_a_right_checksum(corpus: Path) -> None:
    """Every byte of some messages set to 0, 1, the largest and the sign bit: tags, lengths, numbers and text alike."""
    tried = 0
    for sample in list(chosen(corpus, "drizzle"))[:3]:
        for frame in take_sample(sample.walk.frames[: None if FULL else 6], 3):
            message = sample.data[frame.start + 8 : frame.end - 4]
            for at in range(0, min(len(message), 1 << 16), 1 if FULL else 3):
                for value in (0, 1, 0xFF, 0x80):
                    tried += 1
                    changed = message[:at] + bytes([value]) + message[at + 1 :]
                    entry = struct.pack("<II", 1, len(changed)) + changed
                    entry += struct.pack("<I", oracle.zlib.crc32(changed))
                    opinion("drizzle", sample.name, sample.data[: frame.start] + entry + sample.data[frame.end :])
    print(f"\nR6 drizzle: {tried:,} overwritten bytes of messages, no exception")
    assert tried


def test_an_overwritten_length_in_a_page_never_goes_wrong_even_with_a_right_checksum(corpus: Path) -> None:
    """A length that does not fit its page is an error; none invents a record."""
    tried = impossible = 0
    wrong = []
    for sample in chosen(corpus, "mariadb-innodb-binlog"):
        before, size = opinion(sample.format, sample.name, sample.data).signature, sample.walk.head
        assert size is not None
        for frame in sample.walk.frames:
            lengths = [field.start for field in frame.fields if field.name == "chunk length"]
            for at in lengths if FULL else lengths[:: 1 + len(lengths) // (4 if EXHAUSTIVE else 2)]:
                for changed in overwrites(sample.data, Place("chunk length", at, 2, "little")):
                    page = mutate_ibb.resealed(changed[frame.start : frame.end], size)
                    data = changed[: frame.start] + page + changed[frame.end :]
                    seen = opinion(sample.format, sample.name, data)
                    length, tried = int.from_bytes(changed[at : at + 2], "little"), tried + 1
                    fits = 0 < length <= frame.end - 4 - at - 2
                    impossible += not fits
                    grave = any(found[1] == Severity.ERROR for found in seen.signature - before)
                    expected = sum(one.records for one in WALKERS[sample.format](data).frames)
                    if (not fits and not grave) or seen.records != expected:
                        wrong.append((sample.name, at, length, seen.records, expected))
    print(f"\nR6 mariadb-innodb-binlog: {tried:,} overwritten lengths ({impossible:,} impossible), {len(wrong)} wrong")
    assert not wrong, wrong[:10]
    assert impossible
