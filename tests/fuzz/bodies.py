"""Changes that know how a body is built: tokens of MessagePack, members of protobuf, numbers, table maps, chunks.

Each function changes a `bytearray` in place; the caller makes lengths and checksums around it right again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from tests.harness.mysql_writer import lenenc
from tests.harness.oracle import varint

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 65536, (1 << 24) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
           1 << 32, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
DEEP = (60, 64, 65, 200, 3000)
"""Levels of nesting: around the limit of the product, and far beyond it."""


# -- MessagePack (Tarantool) -------------------------------------------------------------------------------------------

HOSTILE_TOKENS = (
    *(b"\xc0", b"\xc1", b"\xc2", b"\xc3", b"\x00", b"\x7f", b"\xff", b"\xe0", b"\x80", b"\x90", b"\xa0"),
    *(b"\xcc\xff", b"\xcd\xff\xff", b"\xce\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7)),
    *(b"\xca\x7f\xc0\0\0", b"\xca\x7f\x80\0\0", b"\xcb\x7f\xf8" + bytes(6), b"\xcb\xff\xf0" + bytes(6)),
    *(b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xde\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdd\0\0\0\x01\x01"),
    *(b"\xd9\xff", b"\xda\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc4\xff", b"\xc5\xff\xff", b"\xc6\xff\xff\xff\xff"),
    *(b"\xc7\xff\x01", b"\xc8\xff\xff\x02", b"\xc9\xff\xff\xff\xff\x04", b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80"),
    *(b"\xc7\x03\x01\x02\x12\x3c", b"\xc7\x0a\x01\xd2\x7f\xff\xff\xff\x12\x34\x56\x78\x9c", b"\xc7\x02\x01\x00\xff"),
    *(b"\xd6\x01\xd1\x80\x00\x1c", b"\xc7\x00\x01", b"\xd8\x02" + b"\xff" * 16, b"\xd7\x02" + bytes(8)),
    *(b"\xd7\x04" + b"\xff" * 8, b"\xd8\x04" + b"\xff" * 16, b"\xd8\x04" + bytes(7) + b"\x80" + b"\x7f" * 8),
    *(b"\xc7\x05\x03\x81\x52\xff\xff\xff", b"\xc7\x04\x06\x01\x00\xd3\xff", b"\xd4\x05\x00", b"\xd4\xff\x00"),
    *(b"\x81\x01\x01", b"\x82\x01\x01\x01\x02", b"\x81\xc0\xc0", b"\x81\x90\x90", b"\x81\xcb" + bytes(8) + b"\x01"),
)
"""Numbers at their limits, texts that are no UTF-8, lengths beyond all bytes, extensions (1 = decimal, 2 = UUID,
3 = error, 4 = datetime, 6 = interval) that are none, maps with equal or strange keys."""


WHOLE_TOKENS = (
    *(b"\xc0", b"\xc2", b"\xc3", b"\x00", b"\x01", b"\x7f", b"\xff", b"\xe0", b"\x80", b"\x90", b"\xa0", b"\xa1+"),
    *(b"\xcc\xff", b"\xcd\xff\xff", b"\xce\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7)),
    *(b"\xd0\x80", b"\xd1\x80\0", b"\xd2\x80\0\0\0", b"\xcf\x80" + bytes(7), b"\xa4null", b"\xc4\x02\xff\0"),
    *(b"\xca\x7f\xc0\0\0", b"\xca\xff\x80\0\0", b"\xcb\x7f\xf8" + bytes(6), b"\xcb\xff\xf0" + bytes(6)),
    *(b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80", b"\xc7\x03\x01\x02\x12\x3c", b"\xd5\x01\x00\xff", b"\xc7\x00\x01"),
    *(b"\xc7\x0a\x01\xd2\x7f\xff\xff\xff\x12\x34\x56\x78\x9c"[:13], b"\xd6\x01\xd1\x80\x00\x1c"),
    *(b"\xd8\x02" + b"\xff" * 16, b"\xd7\x02" + bytes(8), b"\xd7\x04" + b"\xff" * 8, b"\xd8\x04" + b"\xff" * 16),
    *(b"\xd8\x04" + bytes(7) + b"\x80" + b"\x7f" * 8, b"\xd6\x03\x81\x52\xff\xff", b"\xd7\x06\x02\x00\x01" + bytes(5)),
    *(b"\xd4\x05\x00", b"\xd4\xff\x00", b"\x81\x01\x01", b"\x82\x01\x01\x01\x02", b"\x81\xc0\xc0", b"\x81\x90\x90"),
    *(b"\x81\xcb" + bytes(8) + b"\x01", b"\x91\x91\x91\xc0", b"\x93\xa1=\x00\x01", b"\x92\xa1+\x05", b"\xd9\x03abc"),
)
"""Values that are whole: the rows around them can still be read."""


def tokens(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each token of MessagePack begins and ends; a container is its head alone."""
    at = 0
    while at < len(data):
        first, end = data[at], at + 1
        if 0xA0 <= first <= 0xBF:
            end += first & 31
        elif 0xC4 <= first <= 0xC9:
            width = 1 << (first - 0xC4) % 3
            end += width + int.from_bytes(data[at + 1 : at + 1 + width], "big") + (first >= 0xC7)
        elif 0xCA <= first <= 0xD3:
            end += (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)[first - 0xCA]
        elif 0xD4 <= first <= 0xD8:
            end += 1 + (1 << first - 0xD4)
        elif 0xD9 <= first <= 0xDB:
            width = 1 << first - 0xD9
            end += width + int.from_bytes(data[at + 1 : at + 1 + width], "big")
        elif first in (0xDC, 0xDE):
            end += 2
        elif first in (0xDD, 0xDF):
            end += 4
        end = min(end, len(data))
        yield at, end
        at = end


def change_msgpack(rng: random.Random, data: bytearray) -> None:
    """One token is replaced, doubled, left out, swapped, nested, or has another length or small number."""
    found = list(tokens(bytes(data)))
    if not found:
        return
    scalars = [token for token in found if not 0x80 <= data[token[0]] <= 0x9F and not 0xDC <= data[token[0]] <= 0xDF]
    if scalars and rng.random() < 0.7:
        start, end = rng.choice(scalars)
        other, other_end = rng.choice(scalars)
        data[start:end] = rng.choice((*rng.sample(WHOLE_TOKENS, 4), data[other:other_end], bytes([rng.randrange(96)])))
        return
    start, end = rng.choice(found)
    token = bytes(data[start:end])
    kind = rng.randrange(8)
    if kind == 0:
        data[start:end] = rng.choice(HOSTILE_TOKENS)
    elif kind == 1:
        data[start:end] = token * rng.choice((0, 2, 3))
    elif kind == 2:
        data[start:start] = rng.choice((b"\x91", b"\x81\x01", b"\x81", b"\x81\xa1a")) * rng.choice(DEEP)
    elif kind == 3:
        other, other_end = rng.choice(found)
        data[start:end] = data[other:other_end]
    elif kind == 4:
        data[start] = rng.choice((data[start] ^ 1, data[start] ^ 0x80, rng.randrange(256), rng.randrange(96)))
    elif kind == 5 and len(token) > 1:
        at = rng.randrange(start + 1, end)
        data[at] = rng.choice((0, 0xFF, 0x80, rng.randrange(256)))
    elif kind == 6 and len(token) < 256:
        data[start:end] = bytes((0xC7, len(token), rng.choice((1, 2, 3, 4, 6, 99)))) + token
    else:
        data[start:end] = b"\xcf" + struct.pack(">Q", rng.choice(NUMBERS))


# -- protobuf (Drizzle) ------------------------------------------------------------------------------------------------


def encode_varint(value: int, padded: int = 0) -> bytes:
    """A base-128 number; padded: so many bytes more than it needs."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    for _ in range(padded):
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)


def members(data: bytes) -> list[tuple[int, bytes]] | None:
    """The members of a message: tag and value as written; None: it is none."""
    found, at = list[tuple[int, bytes]](), 0
    try:
        while at < len(data):
            tag, at = varint(data, at)
            start = at
            if tag & 7 == 0:
                _, at = varint(data, at)
            elif tag & 7 == 2:
                size, start = varint(data, at)
                at = start + size
            elif tag & 7 in (1, 5):
                at += 8 if tag & 7 == 1 else 4
            else:
                return None
            if at > len(data) or tag >> 3 == 0:
                return None
            found.append((tag, data[start:at]))
    except (ValueError, IndexError):
        return None
    return found


def joined(parts: list[tuple[int, bytes]]) -> bytes:
    """The message of these members."""
    return b"".join(
        encode_varint(tag) + (encode_varint(len(value)) if tag & 7 == 2 else b"") + value for tag, value in parts
    )


def change_protobuf(rng: random.Random, data: bytearray) -> None:
    """One member at any depth is changed; the lengths around it are right."""
    parts = members(bytes(data))
    if not parts:
        return
    at = rng.randrange(len(parts))
    tag, value = parts[at]
    inner = members(value) if tag & 7 == 2 and value else None
    if inner and rng.random() < 0.75:
        nested = bytearray(value)
        change_protobuf(rng, nested)
        parts[at] = (tag, bytes(nested))
    else:
        _change_member(rng, parts, at)
    data[:] = joined(parts)


def _change_member(rng: random.Random, parts: list[tuple[int, bytes]], at: int) -> None:
    tag, value = parts[at]
    kind = rng.randrange(8)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts[at:at] = [parts[at]] * rng.choice((1, 2, 50))
    elif kind == 2:
        parts[at] = (rng.randrange(1, 24) << 3 | tag & 7, value)
    elif kind == 3:
        wire = rng.randrange(6)
        parts[at] = (tag & ~7 | wire, value if wire == 2 else encode_varint(rng.choice(NUMBERS)))
    elif kind == 4 and tag & 7 == 2:
        nested = value
        for _ in range(rng.choice(DEEP[:4])):
            nested = joined([(tag, nested)])
        parts[at] = (tag, nested)
    elif kind == 5:
        other = rng.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif tag & 7 == 2:
        texts = (b"", b"\xff\xfe", b"\0", value[: len(value) // 2], value * 3, b"-" + value, b"9" * 80, b"1e400")
        parts[at] = (tag, rng.choice((*texts, rng.randbytes(rng.randrange(1, 20)))))
    else:
        parts[at] = (tag, encode_varint(rng.choice(NUMBERS), rng.choice((0, 0, 1, 8))))


# -- numbers of Manticore and Sphinx -----------------------------------------------------------------------------------


def encode_zint(value: int, lowest_first: bool = False) -> bytes:
    """Groups of seven bits; the last byte is below 128."""
    groups = [value & 0x7F]
    while value > 0x7F:
        value >>= 7
        groups.append(value & 0x7F)
    if not lowest_first:
        groups.reverse()
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def change_numbers(rng: random.Random, data: bytearray) -> None:
    """A number is written over, put in, or taken out: in groups of seven bits, or of 4 or 8 bytes."""
    if not data:
        return
    at, value = rng.randrange(len(data)), rng.choice(NUMBERS)
    if rng.random() < 0.5:  # what is read next still begins at the same place
        data[at] = data[at] & 0x80 | rng.choice((0, 1, 0x7F, rng.randrange(128), (data[at] + 1) & 0x7F))
        return
    kind = rng.randrange(5)
    if kind == 0:
        new = encode_zint(value, rng.random() < 0.3)
        data[at : at + len(new)] = new
    elif kind == 1:
        end = at
        while end < len(data) - 1 and data[end] >= 0x80:
            end += 1
        data[at : end + 1] = encode_zint(rng.choice((value, rng.randrange(300))), rng.random() < 0.3)
    elif kind == 2:
        size = rng.choice((4, 8))
        data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    elif kind == 3:
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(64)))
    else:
        data[at : at + rng.choice((1, 4, 8))] = b""


# -- binary logs -------------------------------------------------------------------------------------------------------

COLUMN_TYPES = (*range(21), 200, 203, 242, 244, *range(243, 256), 140, 141)
TABLE_MAP, QUERY = 19, 2
ROWS = {20, 21, 22, 23, 24, 25, 30, 31, 32, 39, *range(166, 172)}


def change_event(rng: random.Random, code: int, data: bytearray) -> None:
    """A body of this type: a field that all its readers depend on, if it is a table map or rows."""
    try:
        if code == TABLE_MAP:
            _change_table_map(rng, data)
        elif code in ROWS:
            _change_rows(rng, code, data)
        elif code == QUERY:
            _change_query(rng, data)
        else:
            change_numbers(rng, data)
    except (IndexError, ValueError):
        change_numbers(rng, data)


def _change_table_map(rng: random.Random, data: bytearray) -> None:
    at = 8
    for _ in range(2):
        at += 2 + data[at]
    count, types = _number(data, at)
    size, metadata = _number(data, types + count)
    kind = rng.randrange(8)
    if kind == 0:
        data[at:types] = lenenc(rng.choice((0, 1, count - 1, count + 1, 4096, 70000, 1 << 40)) & (1 << 64) - 1)
    elif kind <= 2 and count:
        data[types + rng.randrange(count)] = rng.choice(COLUMN_TYPES)
    elif kind == 3:
        data[types + count : metadata] = lenenc(rng.choice((0, size - 1, size + 1, 250, 65535)) & (1 << 64) - 1)
    elif kind == 4 and size:
        data[metadata + rng.randrange(size)] = rng.choice((0, 1, 4, 5, 31, 65, 128, 254, 255, rng.randrange(256)))
    elif kind == 5:
        data[rng.choice((0, 6, 7, 8, 9))] = rng.randrange(256)
    else:
        optional = metadata + size + (count + 7) // 8
        if optional < len(data):
            rest = data[optional:]
            change_numbers(rng, rest)
            data[optional:] = rest
        else:
            data += bytes([rng.randrange(1, 16), rng.randrange(12)]) + rng.randbytes(rng.randrange(12))


def _number(data: bytearray, at: int) -> tuple[int, int]:
    """A length-encoded number that lies in the body, and where it ends."""
    first = data[at]
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    return (int.from_bytes(data[at + 1 : at + 1 + width], "little") if width else first), at + 1 + width


def _change_rows(rng: random.Random, code: int, data: bytearray) -> None:
    head = 10 if code in (30, 31, 32, 39) else 8
    if rng.random() < 0.25:
        at = rng.randrange(min(head + 8, len(data)))
        data[at] = rng.choice((0, 1, 2, 6, 7, 8, 0xFC, 0xFD, 0xFE, 0xFF, rng.randrange(256)))
    elif rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    else:
        rest = data[head:]
        change_numbers(rng, rest)
        data[head:] = rest


def _change_query(rng: random.Random, data: bytearray) -> None:
    """Its fixed part, its variables, or its text, which gets what a lexer can take for something else."""
    variables = int.from_bytes(data[11:13], "little")
    text = 13 + variables + data[8] + 1
    kind = rng.randrange(4)
    if kind == 0:
        at = rng.randrange(13)
        data[at] = rng.randrange(256)
    elif kind == 1 and variables:
        at = 13 + rng.randrange(variables)
        data[at] = rng.choice((0, 1, 4, 6, 7, 10, 12, 128, 129, 130, 255, rng.randrange(256)))
    else:
        pieces = (b"'", b'"', b"`", b"\\", b"/*!", b"*/", b"--", b"#", b"\n", b";", b"\0", b"$$", b"(" * 300, b"\xff",
                  b"ALTER TABLE t ADD c INT", b"DELIMITER //", b" SET STATEMENT x=1 FOR ", b"/*!50000 ")  # fmt: skip
        at = rng.randrange(min(text, len(data)), len(data) + 1)
        data[at : at + rng.choice((0, 0, 3))] = rng.choice(pieces)


# -- pages of MariaDB's InnoDB binlog ----------------------------------------------------------------------------------


def change_chunk(rng: random.Random, page: bytearray) -> None:
    """The bytes of one chunk of a page (without its checksum) are changed; its length stays."""
    places, at = list[tuple[int, int]](), 0
    while at + 3 < len(page) and page[at] not in (0, 0xFF):
        size = int.from_bytes(page[at + 1 : at + 3], "little")
        places.append((at + 3, min(at + 3 + size, len(page))))
        at += 3 + size
    places = [place for place in places if place[1] > place[0]]
    if not places:
        return
    start, end = rng.choice(places)
    part = page[start:end]
    for _ in range(rng.choice((1, 1, 2, 4))):
        change_numbers(rng, part)
    page[start:end] = (part + bytes(end - start))[: end - start]
