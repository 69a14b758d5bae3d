"""Tiny readers of both formats, written from the specifications alone: the harness' own opinion about every byte.

They share nothing with the product: plain loops, slow checksums, msgpack and zstandard as libraries.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import crc32c
import msgpack
import zstandard

MARK = b"\xd5\x10\xad\xed"
PLAIN, PACKED = b"\xd5\xba\x0b\xab", b"\xd5\xba\x0b\xba"


class Field(NamedTuple):
    """A part of a file: `[start, end)`, named as the coverage map names it."""

    name: str
    start: int
    end: int


class Frame(NamedTuple):
    """A provable frame, how many records it holds, and its fields, which tile it.

    steps: (transaction, is it complete) for each row of a transaction of several rows. durable: where the last record
    of the frame ends, if that is not where the frame does; None = no record ends in it.
    """

    start: int
    end: int
    records: int
    fields: tuple[Field, ...]
    steps: tuple[tuple[int, bool], ...] = ()
    durable: int | None = -1


class Walk(NamedTuple):
    """head: where frames can begin; None = the head is unreadable. mark: the end mark, if the file ends in it.

    clean: the frames (and the mark) tile the file behind its head, and their content is whole.
    """

    head: int | None
    frames: tuple[Frame, ...]
    mark: Field | None
    clean: bool
    fields: tuple[Field, ...]


def raw_crc32c(data: bytes) -> int:
    """Tarantool's checksum."""
    return crc32c.crc32c(data, 0xFFFFFFFF) ^ 0xFFFFFFFF


# -- Tarantool -------------------------------------------------------------------------------------------------------


def tarantool(data: bytes) -> Walk:
    """Blocks, with a search behind damage (specification sections 1 and 6.2)."""
    head, clean = data.find(b"\n\n", 0, 2048) + 2, True
    if head < 2 or not re.match(rb"(XLOG|SNAP|VYLOG|RUN|INDEX)\n0\.1[23]\n", data):
        head, clean = mended_head(data), False
    if head is None:
        return Walk(None, (), None, False, ())
    frames, at, mark = list[Frame](), head, None
    while at < len(data):
        frame = block(data, at)
        if frame is not None:
            frames.append(frame)
            clean = clean and (frame.records > 0 or frame.end - at == 19)
            at = frame.end
        elif data[at:] == MARK:
            mark = Field("end mark", at, len(data))
            break
        else:
            clean = False
            at = next_block(data, at + 1)
    return Walk(head, tuple(frames), mark, clean, tuple(head_fields(data[:head])))


_WHOLE_HEAD = re.compile(
    rb"(XLOG|SNAP|VYLOG|RUN|INDEX)\n0\.1[23]\n((Version|Instance|Server|VClock|PrevVClock): [^\n]+\n)+\n\Z"
)


def mended_head(data: bytes) -> int | None:
    """Where the text header ends that exactly one flipped bit has made unreadable; None = there is no such bit."""
    block_at = re.compile(rb"\xd5(\xba\x0b[\xab\xba]|\x10\xad\xed)").search(data, 0, 2048)
    if block_at is None:
        return None
    head = int.from_bytes(data[: block_at.start()], "little")
    flips = (head ^ 1 << bit for bit in range(8 * block_at.start()))
    whole = sum(_WHOLE_HEAD.match(flip.to_bytes(block_at.start(), "little")) is not None for flip in flips)
    return block_at.start() if whole == 1 else None


def next_block(data: bytes, at: int) -> int:
    """The next position from `at` where a block or a last end mark stands."""
    for match in re.compile(rb"\xd5\xba\x0b[\xab\xba]|\xd5\x10\xad\xed\Z").finditer(data, at):
        if match[0] == MARK or block(data, match.start()) is not None:
            return match.start()
    return len(data)


def block(data: bytes, at: int) -> Frame | None:
    """The block at `at`, if its fixed header parses, its payload is there and the checksum agrees."""
    if data[at : at + 4] not in (PLAIN, PACKED) or at + 19 > len(data):
        return None
    try:
        length, p = msgpack_uint(data, at + 4)
        _, q = msgpack_uint(data, p)
        crc, padding = msgpack_uint(data, q)
        if padding < at + 19:
            msgpack.unpackb(data[padding : at + 19], raw=True, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return None
    start, end = at + 19, at + 19 + length
    if padding > start or end > len(data) or raw_crc32c(data[start:end]) != crc:
        return None
    packed = data[at : at + 4] == PACKED
    fields = [("magic", at, at + 4), ("length", at + 4, p), ("previous crc", p, q), ("crc", q, padding)]
    fields += [("padding", padding, start), ("packed payload" if packed else "payload", start, end)]
    records, steps = rows(data[start:end], packed)
    return Frame(at, end, records, tuple(Field(*field) for field in fields if field[1] < field[2]), steps)


def msgpack_uint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at `at`, and where it ends."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    if not 0xCC <= first <= 0xCE:
        raise ValueError(first)
    width = 1 << first - 0xCC
    return int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width


def rows(payload: bytes, packed: bool) -> tuple[int, tuple[tuple[int, bool], ...]]:
    """How many rows a payload holds (0 if it is not whole), and the steps of its transactions of several rows."""
    try:
        payload = unpacked(payload) if packed else payload
        reader = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=1 << 30)
        reader.feed(payload)
        count, steps = 0, []
        while reader.tell() < len(payload):
            header = reader.unpack()
            count += 1
            if 8 in header:
                steps.append(((header.get(3, 0) - header[8]) % (1 << 64), bool(header.get(9, 0) & 1)))
            if reader.tell() < len(payload) and header.get(0) != 12:
                reader.skip()
    except (ValueError, TypeError, AttributeError, zstandard.ZstdError, msgpack.UnpackException):
        return 0, ()
    return count, tuple(steps)


def durable_ends(walk: Walk) -> list[int]:
    """For each number of whole frames, from none on: the last place at which no transaction is unfinished."""
    pending: set[int] = set()
    ends = [walk.head or 0]
    for frame in walk.frames:
        for transaction_, complete in frame.steps:
            (pending.discard if complete else pending.add)(transaction_)
        end = frame.end if frame.durable == -1 else frame.durable
        ends.append(ends[-1] if pending or end is None else end)
    return ends


def unpacked(payload: bytes) -> bytes:
    """The one zstd frame that a packed payload must be."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    whole = unpacker.decompress(payload)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("not exactly one frame")
    return whole


def head_fields(head: bytes) -> Iterator[Field]:
    """The lines of the text header, with key and value told apart."""
    at = 0
    for number, line in enumerate(head.split(b"\n")[:-2]):
        end = at + len(line)
        key, colon, value = line.partition(b":")
        if colon:
            value_at = end - len(value.lstrip())
            yield Field("head: key and colon", at, at + len(key) + 1)
            yield Field("head: blank behind the colon", at + len(key) + 1, value_at)
            yield Field(f"head: {key.decode()}", value_at, end)
        else:
            yield Field(("head: type", "head: format version")[number], at, end)
        yield Field("head: line end", end, end + 1)
        at = end + 1
    yield Field("head: empty line", at, at + 1)


# -- Drizzle ---------------------------------------------------------------------------------------------------------


def drizzle(data: bytes) -> Walk:
    """Entries, with a search behind damage (specification sections 1 and 6)."""
    frames: list[Frame] = []
    at, clean = 0, True
    while at < len(data):
        frame = entry(data, at)
        if frame is not None:
            frames.append(frame)
            at = frame.end
        else:
            clean = False
            at = next_entry(data, at + 1)
    return Walk(0, tuple(frames), None, clean, ())


def next_entry(data: bytes, at: int) -> int:
    """The next position from `at` where an entry stands."""
    for match in re.compile(rb"(?=[\x01\x02]\0\0\0)").finditer(data, at):
        if entry(data, match.start()) is not None:
            return match.start()
    return len(data)


def entry(data: bytes, at: int) -> Frame | None:
    """The entry at `at`, if its checksum is right, or absent with a message that can be one."""
    if at + 12 > len(data):
        return None
    kind, length = struct.unpack_from("<II", data, at)
    start, end = at + 8, at + 8 + length
    if kind not in (1, 2) or length == 0 or end + 4 > len(data):
        return None
    message = data[start:end]
    (stored,) = struct.unpack_from("<I", data, end)
    absent = stored == 0 != zlib.crc32(message)
    if stored != zlib.crc32(message) if not absent else kind != 1 or not transaction(message):
        return None
    state = "no checksum: " if absent else ""
    fields = [("type", at, at + 4), ("length", at + 4, start), ("message", start, end), ("checksum", end, end + 4)]
    return Frame(at, end + 4, 1, tuple(Field(state + name, *place) for name, *place in fields))


def transaction(message: bytes) -> bool:
    """Do the bytes have the shape of a Transaction: a context with its four numbers, and known members?"""
    try:
        members = list(wire(message))
        contexts = [value for number, value in members if number == 1]
        context = dict(wire(contexts[-1]))
    except (ValueError, IndexError, TypeError):
        return False
    return message[0] == 0x0A and all(isinstance(context.get(number), int) for number in (1, 2, 3, 4))


def wire(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The members of one protobuf message, one level deep."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        if tag & 7 == 0:
            value, at = varint(message, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            length, at = varint(message, at)
            if at + length > len(message):
                raise ValueError(length)
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(tag)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 number of at most ten bytes, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(value)
