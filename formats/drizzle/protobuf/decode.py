"""Bulk decoding of messages with the protobuf library, from the same catalog that the annotated reader uses.

The library's classes are created at the first call, so that importing the format costs nothing. Two differences from
the published definition keep every byte: text members are declared as bytes (never refused, decoded here), enum members
as numbers (an unknown one stays in its place instead of among the unknown fields).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from typing import Any

from binlogtool.formats.drizzle.protobuf.wire_reader import Label, MessageCatalog, MessageMember
from binlogtool.formats.drizzle.schema import CATALOG

_PACKAGE = "drizzled.message"


class UndecodableError(Exception):
    """The bytes are no Transaction message; the text says why."""


@cache
def get_message_class(name: str) -> Any:
    """Return the library's class of a message of the catalog."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_create_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _create_pool() -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_create_file_descriptor(CATALOG))
    return pool


def _create_file_descriptor(catalog: MessageCatalog) -> Any:
    """Convert the catalog to a FileDescriptorProto of proto2."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto(name="transaction.proto", package=_PACKAGE, syntax="proto2")
    for message in catalog.messages.values():
        message_proto = proto.message_type.add(name=message.name)
        for member in message.members:
            _fill_field_descriptor(message_proto.field.add(), member)
    return proto


def _fill_field_descriptor(field_proto: Any, member: MessageMember) -> None:
    field_proto.name, field_proto.number = member.name, member.number
    field_proto.label = getattr(field_proto, f"LABEL_{member.label.name}")
    if member.type in CATALOG.messages:
        field_proto.type = field_proto.TYPE_MESSAGE
        field_proto.type_name = f".{_PACKAGE}.{member.type}"
    else:
        field_proto.type = getattr(field_proto, f"TYPE_{_map_library_type(member.type)}")


def _map_library_type(type_: str) -> str:
    if type_ in CATALOG.enums:
        return "INT32"
    return {"string": "BYTES"}.get(type_, type_.upper())


@cache
def create_transaction_parser() -> Callable[[Any], tuple[Any, int]]:
    """Create a function from the bytes of a Transaction message to the library's object and its canonical size in
    bytes.

    The size differs from that of the bytes where a number is longer than needed or a member occurs twice. The function
    raises `UndecodableError` where the bytes do not parse or a required member is missing.
    """
    from google.protobuf.message import DecodeError

    parse = get_message_class("Transaction").FromString

    def parse_transaction(data: Any) -> tuple[Any, int]:
        try:
            message = parse(data)
        except DecodeError:
            raise UndecodableError("the message does not parse") from None
        if not message.IsInitialized():
            raise UndecodableError(f"required members are missing{_list_missing_members(message, len(data))}")
        return message, message.ByteSize()  # the canonical size

    return parse_transaction


MAX_LISTED_MESSAGE_SIZE = 16384
"""Largest message whose missing members are listed: the list of a large one may be many times as long."""


def _list_missing_members(message: Any, size: int) -> str:
    return f": {', '.join(message.FindInitializationErrors())}" if size <= MAX_LISTED_MESSAGE_SIZE else ""


def decode_text(value: bytes) -> str | bytes:
    """Decode UTF-8 text; return the bytes if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def to_json_body(message: Any) -> dict[str, Any]:
    """Convert a message to JSON-able values: the specification's member names, enums by name, bytes left as bytes."""
    convert = _create_converter(message.DESCRIPTOR.name, has_unknown_fields(message))
    values: dict[str, Any] = convert(message)
    return values


def has_unknown_fields(message: Any) -> bool:
    """Check for unknown fields at any level, in two passes of the library's own code."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return len(copy.SerializePartialToString()) != len(message.SerializePartialToString())


def drop_unknown_fields(message: Any) -> bool:
    """Remove unknown fields from the message; return True if there were any. Cheaper than `has_unknown_fields`."""
    before = len(message.SerializePartialToString())
    message.DiscardUnknownFields()
    return len(message.SerializePartialToString()) != before


@cache
def _create_converter(type_: str, with_unknown: bool) -> Callable[[Any], Any]:
    """Create the function that makes JSON-able values of one type: a message, an enum, text, bytes or a number."""
    if type_ in CATALOG.enums:
        names: dict[int, str | int] = {member.value: member.name for member in CATALOG.enums[type_]}
        return lambda value: names.get(value, value)
    if type_ not in CATALOG.messages:
        return {"string": decode_text, "bytes": decode_column_value}.get(type_, _return_unchanged)
    return _create_message_converter(type_, with_unknown)


def _create_message_converter(type_: str, with_unknown: bool) -> Callable[[Any], Any]:
    members = {
        member.number: (member.name, member.label is Label.REPEATED, _create_converter(member.type, with_unknown))
        for member in CATALOG.messages[type_].members
    }

    def convert(message: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            name, repeated, convert_value = members[descriptor.number]
            result[name] = [convert_value(one) for one in value] if repeated else convert_value(value)
        if with_unknown and (fields := _decode_unknown_fields(message)):
            result["unknown_fields"] = fields
        return result

    return convert


def _return_unchanged(value: Any) -> Any:
    return value


def decode_column_value(value: bytes) -> str | bytes:
    """Decode a column value: text by definition; one that holds a NUL is binary data and stays bytes."""
    return value if b"\0" in value else decode_text(value)


def get_enum_name(enum_class: type[enum.IntEnum], value: int) -> str | int:
    """Return the name of an enum value, or the number if it has none."""
    try:
        return enum_class(value).name
    except ValueError:
        return value


def _decode_unknown_fields(message: Any) -> list[dict[str, Any]]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    return [_decode_unknown_field(field) for field in UnknownFieldSet(message)]


def _decode_unknown_field(field: Any) -> dict[str, Any]:
    """Decode a field that the catalog does not know. A group's value is the list of its fields."""
    value = field.data
    if not isinstance(value, int | bytes):
        value = [_decode_unknown_field(inner) for inner in value]
    return {"number": field.field_number, "wire_type": field.wire_type, "value": value}
