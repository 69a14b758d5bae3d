"""Protocol Buffers messages (proto2), complete: every byte of a message gets a name, also of unknown fields.

Driven by tables (`Member`, `MessageType`), so the same declaration feeds this reader and the protobuf library. The
library serves the bulk work; this reader serves the annotated hexdump, findings and building.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from construct import Construct, stream_read_entire, stream_write

from binlogtool.formats.drizzle.wire import CutError, Token, Wide, Wire, build_varint, tokens
from binlogtool.formats.fields import MalformedError, Part
from binlogtool.limits import Limits


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


class WireField(NamedTuple):
    """One field of a parsed message. value: int (varint, fixed), bytes, or a tuple of fields (a known message).

    tag and size keep the exact varints, so that `build` gives the same bytes.
    """

    tag: int
    size: int | None
    value: Any


class Message(Construct):  # type: ignore[misc]
    """A whole message that fills its stream. Value: a tuple of `WireField` in file order; `build` is its inverse."""

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
        for token, cut in _with_cut(tokens(data, start, end, limits.max_depth)):
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
            if cut is not None:
                raise cut
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


def _with_cut(found: Iterator[Token]) -> Iterator[tuple[Token, CutError | None]]:
    """The fields, and at last the one whose value does not fit, with its error."""
    try:
        for token in found:
            yield token, None
    except CutError as error:
        yield error.token, error


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
