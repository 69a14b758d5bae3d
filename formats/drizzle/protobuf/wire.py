"""Protocol Buffers wire format: bounded varints and the fields of one level, with the position of every byte.

Source: the encoding chapter of the Protocol Buffers documentation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MALFORMED, SHORT, MalformedError, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

MAX_VARINT_SIZE = 10
"""Bytes of the longest varint: 64 bits, seven to a byte."""

UINT64_MASK = (1 << 64) - 1
MAX_TAG = (1 << 32) - 1


class WireType(enum.IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    START_GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


WIRE_TYPES = tuple(WireType)
"""By their numbers."""

_new_tuple = tuple.__new__  # half the cost of a NamedTuple's own constructor


class WideVarint(int):
    """A varint that took more bytes than needed (`width`), so that building gives the same bytes again."""

    width: int

    def __new__(cls, value: int, width: int) -> WideVarint:  # noqa: D102 - see the class
        self = super().__new__(cls, value)
        self.width = width
        return self


@kernel()
def read_varint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a varint: its 64-bit pattern (as a signed value) and the next position, SHORT or MALFORMED."""
    value = 0
    shift = 0
    while p < n:
        byte = int(buf[p])
        p += 1
        if shift < 63:
            value |= (byte & 127) << shift
        elif byte & 1:
            value += -9223372036854775808
        if byte < 128:
            return value, p
        shift += 7
        if shift > 63:
            return 0, -2
    return 0, -1


def parse_varint(data: bytes, p: int, end: int) -> tuple[int, int]:
    """Return the unsigned value at `p` (a `WideVarint` if it is longer than needed) and the next position.

    Raises:
        MalformedError: more than ten bytes, or cut off by `end`.
    """
    if p < end and data[p] < 128:
        return data[p], p + 1
    value, q = read_varint(data, p, end)
    if q == MALFORMED:
        raise MalformedError(f"varint at byte {p} is longer than {MAX_VARINT_SIZE} bytes", None, "varint-overlong")
    if q == SHORT:
        raise MalformedError(f"varint at byte {p} is cut off")
    value &= UINT64_MASK
    return (value if q - p == varint_size(value) else WideVarint(value, q - p)), q


def varint_size(value: int) -> int:
    """Return the bytes of the shortest varint of an unsigned value."""
    return max(1, (value.bit_length() + 6) // 7)


def build_varint(value: int) -> bytes:
    """Encode a value as the shortest varint, or in the width of a `WideVarint`."""
    out = bytearray()
    rest = int(value) & UINT64_MASK
    for _ in range(getattr(value, "width", varint_size(rest)) - 1):
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest & 127)
    return bytes(out)


class VarintConstruct(Construct):  # type: ignore[misc]
    """Construct type of an unsigned varint of at most ten bytes; a longer form than needed is kept (`WideVarint`)."""

    kernel = ScalarKernel(read_varint)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or (data[-1] >= 128 and len(data) < MAX_VARINT_SIZE):
            data += stream_read(stream, 1, path)
        return parse_varint(bytes(data), 0, len(data))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj


class FieldToken(NamedTuple):
    """One stored field: tag in `[start, size_at)`, its length in `[size_at, value_start)`, value in `[value_start,
    end)`.

    Attributes:
        value: the number of a varint or fixed field, else None. A group's bytes include its end tag.
    """

    tag: int
    size: int | None
    start: int
    size_at: int
    value_start: int
    end: int
    value: int | None

    @property
    def number(self) -> int:
        """The field number."""
        return self.tag >> 3

    @property
    def wire(self) -> WireType:
        """The wire type."""
        return WIRE_TYPES[self.tag & 7]


class CutError(MalformedError):
    """A field whose declared size exceeds the remaining bytes; `token` has its tag and its length, and no value."""

    def __init__(self, token: FieldToken, left: int) -> None:
        super().__init__(f"byte {token.start}: {int(token.size or 0)} bytes declared, {left} left")
        self.token = token


def read_fields(data: bytes, p: int, end: int, depth: int) -> Iterator[FieldToken]:
    """Yield the fields of one level of `data[p:end]`, in file order. Each takes at least two bytes.

    Raises:
        MalformedError: the bytes are no field; everything before it was yielded.
    """
    while p < end:
        token = read_field(data, p, end, depth)
        yield token
        p = token.end


def read_field(data: bytes, p: int, end: int, depth: int) -> FieldToken:
    """Read the field at `p`.

    Args:
        depth: how deep groups may be nested.

    Raises:
        MalformedError: the bytes are no field.
        CutError: only its value is incomplete.
    """
    tag, at = (data[p], p + 1) if p < end and data[p] < 128 else parse_varint(data, p, end)
    wire = tag & 7
    if tag > MAX_TAG or tag < 8 or wire > 5:
        raise MalformedError(f"byte {p}: tag {int(tag)} is no field number with a wire type")
    if wire == 0:
        value, stop = parse_varint(data, at, end)
        return _new_tuple(FieldToken, (tag, None, p, at, at, stop, value))
    if wire == 2:
        size, start = (data[at], at + 1) if at < end and data[at] < 128 else parse_varint(data, at, end)
        if start + size > end:
            raise CutError(FieldToken(tag, size, p, at, start, start, None), end - start)
        return _new_tuple(FieldToken, (tag, size, p, at, start, start + size, None))
    if wire == WireType.START_GROUP:
        return FieldToken(tag, None, p, at, at, _find_group_end(data, at, end, tag >> 3, depth), None)
    if wire == WireType.END_GROUP:
        raise MalformedError(f"byte {p}: a group ends that was not begun")
    stop = at + (8 if wire == WireType.FIXED64 else 4)
    if stop > end:
        raise MalformedError(f"byte {at}: {stop - at} bytes needed, {end - at} left")
    return FieldToken(tag, None, p, at, at, stop, int.from_bytes(data[at:stop], "little"))


def _find_group_end(data: bytes, p: int, end: int, number: int, depth: int) -> int:
    """Return the position after the end tag of a group; nested groups are followed with a list, without recursion."""
    open_groups = [number]
    while open_groups:
        tag, at = parse_varint(data, p, end)
        if tag & 7 == WireType.END_GROUP:
            if tag >> 3 != open_groups.pop():
                raise MalformedError(f"byte {p}: the end tag belongs to another group")
            p = at
        elif tag & 7 == WireType.START_GROUP and tag >> 3:
            open_groups.append(tag >> 3)
            if len(open_groups) > depth:
                raise MalformedError(f"byte {p}: groups nested deeper than {depth}", None, "nesting-too-deep")
            p = at
        else:
            p = _skip_group_field(data, p, end, depth)
    return p


def _skip_group_field(data: bytes, p: int, end: int, depth: int) -> int:
    """Return the position after a field of a group. A field that is cut there has no token in the outer level."""
    try:
        return read_field(data, p, end, depth).end
    except CutError as error:
        raise MalformedError(str(error)) from None
