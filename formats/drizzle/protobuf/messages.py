"""Protocol Buffers messages (proto2), complete: every byte of a message gets a name, also of unknown fields.

Driven by tables (`MessageMember`, `MessageType`), so the same declaration feeds this reader and the protobuf library.
The library serves the bulk work; this reader serves the annotated hexdump, findings and building.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from construct import Construct, stream_read_entire, stream_write

from binlogtool.formats.drizzle.protobuf.wire import (
    WIRES,
    CutError,
    Token,
    Wide,
    Wire,
    build_varint,
    read_field,
    tokens,
)
from binlogtool.formats.fields import MalformedError, Part, PlainPart
from binlogtool.limits import Limits


class Label(enum.Enum):
    """Label of a member: how often it may occur in a message."""

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
        """Return the wire type of a member."""
        if member.type in ("uint32", "uint64", "bool") or member.type in self.enums:
            return Wire.VARINT
        return Wire.LENGTH_DELIMITED


class WireField(NamedTuple):
    """One field of a parsed message.

    Attributes:
        value: int (varint, fixed), bytes, or a tuple of fields (a known message).
        tag, size: exact varints, so that `build_fields` gives the same bytes.
    """

    tag: int
    size: int | None
    value: Any


class Message(Construct):  # type: ignore[misc]
    """Construct type of a whole message that fills its stream. Its value is a tuple of `WireField` in file order."""

    fills_stream = True

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
        """Return the message type that a field of `of` holds, or None."""
        member = of.by_number.get(token.number)
        if member is None or token.wire is not Wire.LENGTH_DELIMITED:
            return None
        return self.catalog.messages.get(member.type)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_fields(obj)
        stream_write(stream, data, len(data), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Yield parts such as `.statement[0].insert_data.record[3].insert_value[1]`, each with `.tag`, `.length`,
        value.
        """
        return map(Part._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Yield the same parts as plain tuples. Iterative."""
        outer: list[tuple[int, MessageType, str, dict[int, int]]] = []
        of, path, depth = self.type, "", 1
        seen: dict[int, int] = {}
        while start < end or outer:
            if start >= end:
                end, of, path, seen = outer.pop()
                depth -= 1
                continue
            token, cut = _read_field(data, start, end, limits.max_depth)
            tag, size, _, size_at, at, stop, _ = token
            number = tag >> 3
            index = seen[number] = seen.get(number, -1) + 1
            member = of.by_number.get(number)
            here, about = _named(path, member, token, index)
            yield here, depth, start, None, None, about
            yield f"{here}.tag", depth + 1, start, size_at, int(tag), _tag(tag, tag.__class__ is Wide)
            if size is not None:
                yield f"{here}.length", depth + 1, size_at, at, int(size), _overlong(size)
            if cut is not None:
                raise cut
            inner = None if size is None or member is None else self.catalog.messages.get(about)
            if inner is not None:
                if depth >= limits.max_depth:
                    raise MalformedError(f"byte {start}: messages nested too deep", None, "nesting-too-deep")
                outer.append((end, of, path, seen))
                start, end, of, path, seen, depth = at, stop, inner, here, {}, depth + 1
                continue
            if at < stop:
                yield self._value_part(data, token, member, f"{here}.value", depth + 1)
            start = stop

    def _value_part(self, data: bytes, token: Token, member: Member | None, path: str, depth: int) -> PlainPart:
        number, meaning = token.value, ""
        value: Any = data[token.at : token.end]
        if number is not None:
            value, meaning = int(number), _overlong(number)
            if member is not None and not token.tag & 7:
                value = scalar(member, number, self.catalog)
                if member.type in self.catalog.enums:
                    value, meaning = int(value), getattr(value, "name", "unknown")
        return path, depth, token.at, token.end, value, meaning


def _read_field(data: bytes, start: int, end: int, depth: int) -> tuple[Token, CutError | None]:
    """Read a field, or the available part of one whose value is cut off, with its error."""
    try:
        return read_field(data, start, end, depth), None
    except CutError as error:
        return error.token, error


def _named(path: str, member: Member | None, token: Token, index: int) -> tuple[str, str]:
    """Return path and meaning of a field."""
    if member is None:
        return f"{path}.unknown_field_{token.number}[{index}]", f"wire type {token.wire.name}, not in the definition"
    _, name, about, label = member
    return f"{path}.{name}[{index}]" if index or label is Label.REPEATED else f"{path}.{name}", about


@lru_cache(maxsize=512)
def _tag(tag: int, wide: bool) -> str:
    return f"field {tag >> 3}, {WIRES[tag & 7].name}" + (", longer than needed" if wide else "")


def _overlong(value: int) -> str:
    return "longer than needed" if value.__class__ is Wide else ""


def build_fields(fields: Sequence[WireField]) -> bytes:
    """Build the bytes of a message from its fields; a length of None is computed."""
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
    """Convert a varint to the member's type: cut to 32 bits, truth value, or enum member (a plain int if unknown)."""
    if member.type == "bool":
        return value != 0
    if member.type == "uint32":
        return int(value) & 0xFFFFFFFF
    if member.type in catalog.enums:
        return enum_value(catalog.enums[member.type], value)
    return int(value)


def enum_value(of: type[enum.IntEnum], value: int) -> int:
    """Convert a number to the enum member, or to the signed 32-bit number if no member has it."""
    number = ((int(value) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    try:
        return of(number)
    except ValueError:
        return number
