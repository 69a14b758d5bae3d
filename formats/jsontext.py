"""Kernels that write JSON, with `formats.jsonnumbers`: building blocks of those of a format (`jsonline.JsonLine`).

All write to `out[o:z]` and return the end of what they wrote, or a code: NO_SPACE, or UNSUPPORTED (the value needs more
than plain JSON, or a text form that is not worth a kernel; the general writer does it). They write what `msgspec.json`
writes for the same value, except the characters that reports escape in addition.

`texts` is a table made by `text_table` or `name_table`: 32-bit big-endian numbers, then the texts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_null, put_unsigned
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s

NO_SPACE = -1
UNSUPPORTED = -2


# -- tables ------------------------------------------------------------------------------------------------------------


def build_text_table(texts: Mapping[int, bytes]) -> bytes:
    """Build the table of `put_text`: texts by small numbers; numbers without a text are UNSUPPORTED."""
    count = max(texts, default=-1) + 1
    return _pack_texts([texts.get(number, b"") for number in range(count)])


def build_name_table(names: Mapping[int, bytes]) -> bytes:
    """Build the table of `put_name`: texts by any signed 64-bit numbers."""
    numbers = sorted(names)
    return struct.pack(f">I{len(numbers)}q", len(numbers), *numbers) + _pack_texts(
        [names[number] for number in numbers]
    )


def _pack_texts(texts: list[bytes]) -> bytes:
    at, places = 8 + 4 * len(texts), []
    for text in texts:
        places.append(at)
        at += len(text)
    return struct.pack(f">{len(texts) + 2}I", len(texts), *places, at) + b"".join(texts)


@kernel()
def _load_uint32(texts: UInt8s, p: int) -> int:
    return texts[p] * 0x1000000 + texts[p + 1] * 0x10000 + texts[p + 2] * 0x100 + texts[p + 3]


@kernel(_load_uint32)
def put_entry(texts: UInt8s, base: int, index: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write entry number `index` of the table of texts at `texts[base]`."""
    if index < 0 or index >= _load_uint32(texts, base):
        return -2
    start = _load_uint32(texts, base + 4 + 4 * index)
    size = _load_uint32(texts, base + 8 + 4 * index) - start
    if size == 0:
        return -2
    if size > z - o:
        return -1
    start += base
    for i in range(size):
        out[o + i] = texts[start + i]
    return o + size


@kernel(put_entry)
def put_text(texts: UInt8s, index: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a text of a table made by `build_text_table`."""
    return put_entry(texts, 0, index, out, o, z)


@kernel(_load_uint32, put_entry)
def put_name(texts: UInt8s, number: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the text of a number in a table made by `build_name_table`; UNSUPPORTED if it has none."""
    count = _load_uint32(texts, 0)
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        top = _load_uint32(texts, 4 + 8 * middle)
        if top >= 0x80000000:
            top -= 0x100000000
        if top * 0x100000000 + _load_uint32(texts, 8 + 8 * middle) < number:
            low = middle + 1
        else:
            high = middle
    if low == count:
        return -2
    top = _load_uint32(texts, 4 + 8 * low)
    if top >= 0x80000000:
        top -= 0x100000000
    if top * 0x100000000 + _load_uint32(texts, 8 + 8 * low) != number:
        return -2
    return put_entry(texts, 4 + 8 * count, low, out, o, z)


# -- text --------------------------------------------------------------------------------------------------------------


@kernel()
def _utf8_sequence_size(buf: UInt8s, p: int, n: int) -> int:
    """Return the size of the UTF-8 sequence at `buf[p]`; 0 if it is invalid, or a character that reports escape."""
    first = buf[p] + 0
    if first < 0xC2 or first > 0xF4 or n - p < 2:
        return 0
    second = buf[p + 1] + 0
    if second < 0x80 or second > 0xBF:
        return 0
    if first < 0xE0:
        if (first == 0xC2 and second < 0xA0) or (first == 0xD8 and second == 0x9C):
            return 0
        return 2
    if n - p < 3:
        return 0
    third = buf[p + 2] + 0
    if third < 0x80 or third > 0xBF:
        return 0
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        if first == 0xE2:
            if second == 0x80 and ((third >= 0x8B and third <= 0x8F) or (third >= 0xA8 and third <= 0xAE)):
                return 0
            if second == 0x81 and third >= 0xA0 and third <= 0xA9:
                return 0
        if first == 0xEF:
            if second == 0xBB and third == 0xBF:
                return 0
            if second == 0xBF and third >= 0xB9 and third <= 0xBB:
                return 0
        return 3
    if n - p < 4 or buf[p + 3] < 0x80 or buf[p + 3] > 0xBF:
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@kernel()
def put_control(c: int, out: MutableUInt8s, o: int) -> int:
    """Write a character below 0x20 as a JSON escape sequence; writes up to six bytes."""
    short = 0
    if c == 8:
        short = 98
    elif c == 9:
        short = 116
    elif c == 10:
        short = 110
    elif c == 12:
        short = 102
    elif c == 13:
        short = 114
    out[o] = 92
    if short > 0:
        out[o + 1] = short
        return o + 2
    out[o + 1] = 117
    out[o + 2] = 48
    out[o + 3] = 48
    out[o + 4] = 48 + (c >> 4)
    digit = c & 15
    out[o + 5] = 48 + digit + (39 if digit > 9 else 0)
    return o + 6


@kernel(_utf8_sequence_size, put_control)
def put_string(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the text `buf[p:n]` as a JSON string; UNSUPPORTED if it is not UTF-8 or reports escape a part of it."""
    if z - o < 6 * (n - p) + 2:
        return -1
    out[o] = 34
    o += 1
    while p < n:
        c = buf[p] + 0
        if c >= 0x20 and c < 0x7F:
            if c == 0x22 or c == 0x5C:
                out[o] = 92
                o += 1
            out[o] = c
            o += 1
            p += 1
        elif c < 0x20:
            o = put_control(c, out, o)
            p += 1
        else:
            size = _utf8_sequence_size(buf, p, n)
            if size == 0:
                return -2
            for i in range(size):
                out[o + i] = buf[p + i]
            o += size
            p += size
    out[o] = 34
    return o + 1


@kernel()
def is_utf8(buf: UInt8s, p: int, n: int) -> bool:
    """Return whether the bytes are valid UTF-8."""
    while p < n:
        first = buf[p] + 0
        p += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        low = 0x80
        high = 0xBF
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
        elif first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
        if more > n - p:
            return False
        for _ in range(more):
            c = buf[p] + 0
            p += 1
            if c < low or c > high:
                return False
            low = 0x80
            high = 0xBF
    return True


@kernel()
def put_bytes(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write `{"$bytes":"…"}`, hexadecimal."""
    if z - o < 2 * (n - p) + 16:
        return -1
    mark = 0x73657479622422
    out[o] = 123
    for i in range(7):
        out[o + 1 + i] = (mark >> 8 * i) & 255
    out[o + 8] = 34
    out[o + 9] = 58
    out[o + 10] = 34
    o += 11
    while p < n:
        c = buf[p] + 0
        high = c >> 4
        low = c & 15
        out[o] = 48 + high + (39 if high > 9 else 0)
        out[o + 1] = 48 + low + (39 if low > 9 else 0)
        o += 2
        p += 1
    out[o] = 34
    out[o + 1] = 125
    return o + 2


@kernel(is_utf8, put_bytes, put_string)
def put_any_text(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write valid UTF-8 as a string, other bytes as `$bytes`."""
    reached = put_string(buf, p, n, out, o, z)
    if reached != -2 or is_utf8(buf, p, n):
        return reached
    return put_bytes(buf, p, n, out, o, z)


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(put_null)
def put_null_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a member that is always null."""
    return put_null(out, o, z)


@kernel(put_text)
def put_text_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, index: int) -> int:
    """Write a member that is one of the member's texts."""
    return put_text(texts, index, out, o, z)


@kernel(put_unsigned)
def put_unsigned_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, value: int
) -> int:
    """Write a member that is an unsigned column."""
    return put_unsigned(value, out, o, z)
