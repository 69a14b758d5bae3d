"""Bulk decoding of messages with the protobuf library, from the same table that the annotated reader uses.

The library's classes are made at the first call, so that importing the format costs nothing. Two differences from the
published definition keep every byte: text members are declared as bytes (never refused, decoded by us), enum members as
numbers (an unknown one stays where it stands instead of among the unknown fields).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from typing import Any

from binlogtool.formats.drizzle.protobuf import Catalog, Label, Member
from binlogtool.formats.drizzle.schema import CATALOG

_PACKAGE = "drizzled.message"


class UndecodableError(Exception):
    """The bytes are no Transaction message; the text says why."""


@cache
def message_class(name: str) -> Any:
    """The library's class of a message of the catalog."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file_descriptor(CATALOG))
    return pool


def _file_descriptor(catalog: Catalog) -> Any:
    """The table as a FileDescriptorProto of proto2."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto(name="transaction.proto", package=_PACKAGE, syntax="proto2")
    for message in catalog.messages.values():
        described = proto.message_type.add(name=message.name)
        for member in message.members:
            _describe(described.field.add(), member)
    return proto


def _describe(described: Any, member: Member) -> None:
    described.name, described.number = member.name, member.number
    described.label = getattr(described, f"LABEL_{member.label.name}")
    if member.type in CATALOG.messages:
        described.type = described.TYPE_MESSAGE
        described.type_name = f".{_PACKAGE}.{member.type}"
    else:
        described.type = getattr(described, f"TYPE_{_library_type(member.type)}")


def _library_type(type_: str) -> str:
    if type_ in CATALOG.enums:
        return "INT32"
    return {"string": "BYTES"}.get(type_, type_.upper())


@cache
def transaction_parser() -> Callable[[Any], tuple[Any, int]]:
    """A function from the bytes of a Transaction message to the library's object and its canonical size in bytes.

    The size differs from that of the bytes where a number is longer than needed or a member stands twice. The function
    raises `UndecodableError` where the bytes do not parse or a required member is missing.
    """
    from google.protobuf.message import DecodeError, EncodeError

    parse = message_class("Transaction").FromString

    def transaction(data: Any) -> tuple[Any, int]:
        try:
            message = parse(data)
        except DecodeError:
            raise UndecodableError("the message does not parse") from None
        try:  # writing checks the required members in the library's own code, and gives the canonical size
            return message, len(message.SerializeToString())
        except EncodeError:
            missing = ", ".join(message.FindInitializationErrors())
            raise UndecodableError(f"required members are missing: {missing}") from None

    return transaction


def text(value: bytes) -> str | bytes:
    """Text where the bytes are valid UTF-8 (encoding gives them back), else the bytes as they are."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def body(message: Any) -> dict[str, Any]:
    """A message as JSON-able values: the specification's member names, enums by name, bytes left as bytes."""
    return _body(message, message.DESCRIPTOR.name, holds_unknown_fields(message))


def holds_unknown_fields(message: Any) -> bool:
    """Anywhere inside? Two passes in the library's own code."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return bool(copy.ByteSize() != message.ByteSize())


def _body(message: Any, name: str, unknown: bool) -> dict[str, Any]:
    members = CATALOG.messages[name].by_number
    out: dict[str, Any] = {}
    for described, value in message.ListFields():
        member = members[described.number]
        if member.label is Label.REPEATED:
            out[member.name] = [_value(member, one, unknown) for one in value]
        else:
            out[member.name] = _value(member, value, unknown)
    if unknown and (fields := _unknown_fields(message)):
        out["unknown_fields"] = fields
    return out


def _value(member: Member, value: Any, unknown: bool) -> Any:
    if member.type in CATALOG.messages:
        return _body(value, member.type, unknown)
    return plain(member, value)


def plain(member: Member, value: Any) -> Any:
    """A scalar as a JSON-able value. Column values are text by definition (section 3), so they decode like strings.

    A value with a NUL is binary data and stays bytes.
    """
    if isinstance(value, bytes):
        return value if member.type == "bytes" and b"\0" in value else text(value)
    of: type[enum.IntEnum] | None = CATALOG.enums.get(member.type)
    if of is None:
        return value
    return enum_name(of, value)


def enum_name(of: type[enum.IntEnum], value: int) -> str | int:
    """The member's name, or the number that has none."""
    try:
        return of(value).name
    except ValueError:
        return value


def _unknown_fields(message: Any) -> list[dict[str, Any]]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    return [_unknown_field(field) for field in UnknownFieldSet(message)]


def _unknown_field(field: Any) -> dict[str, Any]:
    """A field that the table does not know. A group's value is the list of its fields."""
    value = field.data
    if not isinstance(value, int | bytes):
        value = [_unknown_field(inner) for inner in value]
    return {"number": field.field_number, "wire_type": field.wire_type, "value": value}
