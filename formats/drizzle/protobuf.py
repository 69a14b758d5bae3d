"""Protocol Buffers wire format (proto2), complete: every byte of a message gets a name, also of unknown fields.

Driven by tables (`Member`, `MessageType`), so the same declaration feeds this reader and the protobuf library. The
library serves the bulk work; this reader serves the annotated hexdump, findings and building.
Source: the encoding chapter of the Protocol Buffers documentation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from construct import Construct, stream_read, stream_read_entire, stream_write

from binlogtool.formats.fields import MALFORMED, SHORT, MalformedError, Part, ScalarKernel, kernel
from binlogtool.limits import Limits

MAX_VARINT = 10
"""Bytes of the longest varint: 64 bits, seven to a byte."""

U64 = (1 << 64) - 1
MAX_TAG = (1 << 32) - 1


class Wire(enum.IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    START_GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


class Label(enum.Enum):
    """How often a member may stand in a message."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    REPEATED = "repeated"


class Member(NamedTuple):
    """One member of a message. type: uint32, uint64, bool, string, bytes, or the name of an enum or a message."""

    number: int
    name: str
    type: str
    label: Label


@dataclass(frozen=True)
class MessageType:
    """One message: its members by number."""

    name: str
    members: tuple[Member, ...]
    by_number: Mapping[int, Member] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_number", {member.number: member for member in self.members})


@dataclass(frozen=True)
class Catalog:
    """All messages and enums of one definition, by name. Enums are enum.IntEnum classes."""

    messages: Mapping[str, MessageType]
    enums: Mapping[str, type[enum.IntEnum]]

    def wire_of(self, member: Member) -> Wire:
        """The wire type in which a member is written."""
        if member.type in ("uint32", "uint64", "bool") or member.type in self.enums:
            return Wire.VARINT
        return Wire.LENGTH_DELIMITED


class Wide(int):
    """A varint that took more bytes than needed (`width`), so that building gives the same bytes again."""

    width: int

    def __new__(cls, value: int, width: int) -> Wide:  # noqa: D102 - see the class
        self = super().__new__(cls, value)
        self.width = width
        return self


@kernel()
def read_varint(buf: Any, p: int, n: int) -> tuple[int, int]:
    """Scalar kernel: the 64-bit pattern (as a signed value) and the next position, SHORT or MALFORMED."""
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


def varint(data: bytes, p: int, end: int) -> tuple[int, int]:
    """The unsigned value at `p` (a `Wide` if it is longer than needed) and the next position.

    Raises:
        MalformedError: more than ten bytes, or cut off by `end`.
    """
    value, q = read_varint(data, p, end)
    if q == MALFORMED:
        raise MalformedError(f"varint at byte {p} is longer than {MAX_VARINT} bytes", None, "varint-overlong")
    if q == SHORT:
        raise MalformedError(f"varint at byte {p} is cut off")
    value &= U64
    return (value if q - p == varint_size(value) else Wide(value, q - p)), q


def varint_size(value: int) -> int:
    """Bytes of the shortest varint of an unsigned value."""
    return max(1, (value.bit_length() + 6) // 7)


def build_varint(value: int) -> bytes:
    """The shortest varint, or as many bytes as a `Wide` says."""
    out = bytearray()
    rest = int(value) & U64
    for _ in range(getattr(value, "width", varint_size(rest)) - 1):
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest & 127)
    return bytes(out)


class Varint(Construct):  # type: ignore[misc]
    """An unsigned varint of at most ten bytes; a longer form than needed is kept (`Wide`)."""

    kernel = ScalarKernel(read_varint)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or (data[-1] >= 128 and len(data) < MAX_VARINT):
            data += stream_read(stream, 1, path)
        return varint(bytes(data), 0, len(data))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj


class Token(NamedTuple):
    """One field as it stands: tag in `[start, size_at)`, its length in `[size_at, at)`, value in `[at, end)`.

    value: the number of a varint or fixed field, else None. A group's value includes its end tag.
    """

    tag: int
    size: int | None
    start: int
    size_at: int
    at: int
    end: int
    value: int | None

    @property
    def number(self) -> int:
        """The field number."""
        return self.tag >> 3

    @property
    def wire(self) -> Wire:
        """The wire type."""
        return Wire(self.tag & 7)


def tokens(data: bytes, p: int, end: int, depth: int) -> Iterator[Token]:
    """The fields of one level of `data[p:end]`, in file order. Each takes at least two bytes.

    Raises:
        MalformedError: the bytes are no field; everything before it was yielded.
    """
    while p < end:
        token = _token(data, p, end, depth)
        yield token
        p = token.end


def _token(data: bytes, p: int, end: int, depth: int) -> Token:
    tag, at = varint(data, p, end)
    if tag > MAX_TAG or tag < 8 or tag & 7 > 5:
        raise MalformedError(f"byte {p}: tag {int(tag)} is no field number with a wire type")
    wire = Wire(tag & 7)
    if wire is Wire.VARINT:
        value, stop = varint(data, at, end)
        return Token(tag, None, p, at, at, stop, value)
    if wire is Wire.LENGTH_DELIMITED:
        size, start = varint(data, at, end)
        return Token(tag, size, p, at, start, _fits(start, size, end, at), None)
    if wire is Wire.START_GROUP:
        return Token(tag, None, p, at, at, _group_end(data, at, end, tag >> 3, depth), None)
    if wire is Wire.END_GROUP:
        raise MalformedError(f"byte {p}: a group ends that was not begun")
    stop = _fits(at, 8 if wire is Wire.FIXED64 else 4, end, at)
    return Token(tag, None, p, at, at, stop, int.from_bytes(data[at:stop], "little"))


def _fits(start: int, size: int, end: int, where: int) -> int:
    if size > end - start:
        left = end - start
        raise MalformedError(f"byte {where}: {int(size)} bytes declared, {left} left")
    return start + size


def _group_end(data: bytes, p: int, end: int, number: int, depth: int) -> int:
    """The position behind the end tag of a group; nested groups are walked with a counter, not with calls."""
    open_groups = [number]
    while open_groups:
        tag, at = varint(data, p, end)
        if tag & 7 == Wire.END_GROUP:
            if tag >> 3 != open_groups.pop():
                raise MalformedError(f"byte {p}: the end tag belongs to another group")
            p = at
        elif tag & 7 == Wire.START_GROUP and tag >> 3:
            open_groups.append(tag >> 3)
            if len(open_groups) > depth:
                raise MalformedError(f"byte {p}: groups nested deeper than {depth}", None, "nesting-too-deep")
            p = at
        else:
            p = _token(data, p, end, depth).end
    return p


class WireField(NamedTuple):
    """One field of a parsed message. value: int (varint, fixed), bytes, or a tuple of fields (a known message).

    tag and size keep the exact varints, so that `build` gives the same bytes.
    """

    tag: int
    size: int | None
    value: Any


class Message(Construct):  # type: ignore[misc]
    """A whole message that fills its stream. Value: a tuple of `WireField` in file order; `build` is its inverse."""

    def __init__(self, catalog: Catalog, name: str, max_depth: int = Limits().max_depth) -> None:
        super().__init__()
        self.catalog = catalog
        self.type = catalog.messages[name]
        self.max_depth = max_depth

    def _parse(self, stream: Any, context: Any, path: str) -> tuple[WireField, ...]:
        data = stream_read_entire(stream, path)
        return self._fields(data, 0, len(data), self.type, self.max_depth)

    def _fields(self, data: bytes, p: int, end: int, of: MessageType, depth: int) -> tuple[WireField, ...]:
        return tuple(
            WireField(token.tag, token.size, self._value(data, token, of, depth))
            for token in tokens(data, p, end, depth)
        )

    def _value(self, data: bytes, token: Token, of: MessageType, depth: int) -> Any:
        if token.value is not None:
            return token.value
        inner = self.submessage(token, of)
        if inner is None:
            return data[token.at : token.end]
        if depth <= 1:
            raise MalformedError(f"byte {token.start}: messages nested too deep", None, "nesting-too-deep")
        return self._fields(data, token.at, token.end, inner, depth - 1)

    def submessage(self, token: Token, of: MessageType) -> MessageType | None:
        """The message that a field of `of` holds, or None."""
        member = of.by_number.get(token.number)
        if member is None or token.wire is not Wire.LENGTH_DELIMITED:
            return None
        return self.catalog.messages.get(member.type)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_fields(obj)
        stream_write(stream, data, len(data), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Rows for `Traceable`: `.statement[0].insert_data.record[3].insert_value[1]`, its `.tag`, `.length`, value."""
        return self._rows(data, start, end, self.type, "", 1, limits)

    def _rows(
        self, data: bytes, start: int, end: int, of: MessageType, path: str, depth: int, limits: Limits
    ) -> Iterator[Part]:
        seen: dict[int, int] = {}
        for token in tokens(data, start, end, limits.max_depth):
            member = of.by_number.get(token.number)
            index = seen.get(token.number, 0)
            seen[token.number] = index + 1
            if member is None:
                here = f"{path}.unknown_field_{token.number}[{index}]"
            else:
                here = f"{path}.{member.name}" + (f"[{index}]" if member.label is Label.REPEATED or index else "")
            yield Part(here, depth, token.start, None, None, _about(member, token))
            yield Part(f"{here}.tag", depth + 1, token.start, token.size_at, int(token.tag), _tag(token))
            if token.size is not None:
                yield Part(f"{here}.length", depth + 1, token.size_at, token.at, int(token.size), _overlong(token.size))
            inner = self.submessage(token, of)
            if inner is None:
                yield from self._leaf(data, token, member, here, depth + 1)
            elif depth >= limits.max_depth:
                raise MalformedError(f"byte {token.start}: messages nested too deep", None, "nesting-too-deep")
            else:
                yield from self._rows(data, token.at, token.end, inner, here, depth + 1, limits)

    def _leaf(self, data: bytes, token: Token, member: Member | None, path: str, depth: int) -> Iterator[Part]:
        if token.at == token.end:
            return
        value: Any = data[token.at : token.end] if token.value is None else int(token.value)
        meaning = _overlong(token.value)
        if member is not None and token.wire is Wire.VARINT and token.value is not None:
            value = scalar(member, token.value, self.catalog)
            if member.type in self.catalog.enums:
                value, meaning = int(value), getattr(value, "name", "unknown")
        yield Part(f"{path}.value", depth, token.at, token.end, value, meaning)


def _about(member: Member | None, token: Token) -> str:
    return f"wire type {token.wire.name}, not in the definition" if member is None else member.type


def _tag(token: Token) -> str:
    return f"field {token.number}, {token.wire.name}" + (", longer than needed" if isinstance(token.tag, Wide) else "")


def _overlong(value: int | None) -> str:
    return "longer than needed" if isinstance(value, Wide) else ""


def build_fields(fields: Sequence[WireField]) -> bytes:
    """The bytes of a parsed (or made) message; a length of None is computed."""
    out = bytearray()
    for wire_field in fields:
        out += build_varint(wire_field.tag)
        out += _build_value(wire_field)
    return bytes(out)


def _build_value(wire_field: WireField) -> bytes:
    wire, value = Wire(wire_field.tag & 7), wire_field.value
    if wire is Wire.VARINT:
        return build_varint(value)
    if wire in (Wire.FIXED32, Wire.FIXED64):
        return int(value).to_bytes(4 if wire is Wire.FIXED32 else 8, "little")
    body = value if isinstance(value, bytes) else build_fields(value)
    if wire is Wire.START_GROUP:
        return body
    size = wire_field.size if wire_field.size == len(body) else len(body)
    return build_varint(size if size is not None else len(body)) + body


def scalar(member: Member, value: int, catalog: Catalog) -> int | bool:
    """A varint as the member's type sees it: cut to 32 bits, truth value, or enum member (a plain int if unknown)."""
    if member.type == "bool":
        return value != 0
    if member.type == "uint32":
        return int(value) & 0xFFFFFFFF
    if member.type in catalog.enums:
        return enum_value(catalog.enums[member.type], value)
    return int(value)


def enum_value(of: type[enum.IntEnum], value: int) -> int:
    """The enum member, or the signed 32-bit number that no member has."""
    number = ((int(value) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    try:
        return of(number)
    except ValueError:
        return number
