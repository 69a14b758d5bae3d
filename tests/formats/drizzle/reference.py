"""Helpers that know protobuf but not the code under test's shortcuts: building by hand, exact classes, plain values."""

from __future__ import annotations

from functools import cache
from typing import Any

from binlogtool.format_api.schema_fields import parse_varint
from binlogtool.formats.drizzle.schema import (
    CATALOG,
    Label,
    WireField,
    WireType,
    build_fields,
    convert_varint_to_member_type,
    read_fields,
)

Values = dict[str, Any]


@cache
def exact_class(name: str) -> Any:
    """The library's class with the published types (text as string, enums as closed enums)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    proto = descriptor_pb2.FileDescriptorProto(name="exact.proto", package="exact", syntax="proto2")
    for name_, enum in CATALOG.enums.items():
        described = proto.enum_type.add(name=name_)
        for member in enum:
            described.value.add(name=f"{name_}_{member.name}", number=member.value)
    for message in CATALOG.messages.values():
        described = proto.message_type.add(name=message.name)
        for m in message.members:
            field = described.field.add(name=m.name, number=m.number)
            field.label = getattr(field, f"LABEL_{m.label.name}")
            if m.type in CATALOG.messages or m.type in CATALOG.enums:
                field.type = field.TYPE_MESSAGE if m.type in CATALOG.messages else field.TYPE_ENUM
                field.type_name = f".exact.{m.type}"
            else:
                field.type = getattr(field, f"TYPE_{m.type.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"exact.{name}"))


def text_form(data: bytes) -> str:
    """The protobuf text form of a Transaction message, as the library prints it."""
    from google.protobuf import text_format

    printed = text_format.MessageToString(exact_class("Transaction").FromString(data))
    for enum in CATALOG.enums:
        printed = printed.replace(f": {enum}_", ": ")
    return printed


def encode(name: str, values: Values) -> bytes:
    """A message from plain values, members in the order of the dict; numbers as numbers, text as bytes."""
    members = {m.name: m for m in CATALOG.messages[name].members}
    fields = []
    for key, value in values.items():
        member = members[key]
        for one in value if member.label is Label.REPEATED else [value]:
            if member.type in CATALOG.messages:
                one = encode(member.type, one)
            wire = WireType.LENGTH_DELIMITED if isinstance(one, bytes) else WireType.VARINT
            fields.append(WireField(member.number << 3 | wire, None, one))
    return build_fields(fields)


def plain(name: str, fields: tuple[WireField, ...]) -> Values:
    """A tree of the annotated reader as values: last one wins, messages merge, packed numbers are unpacked."""
    by_number = CATALOG.messages[name].by_number
    out: Values = {}
    merged: dict[str, tuple[WireField, ...]] = {}
    unknown = []
    for field in fields:
        member = by_number.get(field.tag >> 3)
        wire = WireType(field.tag & 7)
        expected = None if member is None else CATALOG.get_wire_type(member)
        if member is None or (wire is not expected and not _packed(member, wire)):
            unknown.append(_unknown(field))
        elif member.label is Label.REPEATED:
            values = _all(member, field)
            if values:  # an empty packed list leaves no trace
                out.setdefault(member.name, []).extend(values)
        elif member.type in CATALOG.messages:
            merged[member.name] = merged.get(member.name, ()) + field.value
            out[member.name] = plain(member.type, merged[member.name])
        else:
            out[member.name] = _one(member, field.value)
    if unknown:
        out["unknown_fields"] = unknown
    return out


def _packed(member: Any, wire: WireType) -> bool:
    return (
        member.label is Label.REPEATED
        and CATALOG.get_wire_type(member) is WireType.VARINT
        and wire is WireType.LENGTH_DELIMITED
    )


def _all(member: Any, field: WireField) -> list[Any]:
    if member.type in CATALOG.messages:
        return [plain(member.type, field.value)]
    if not _packed(member, WireType(field.tag & 7)):
        return [_one(member, field.value)]
    values, p = [], 0
    while p < len(field.value):
        value, p = parse_varint(field.value, p, len(field.value))
        values.append(_one(member, value))
    return values


def _one(member: Any, value: Any) -> Any:
    if isinstance(value, bytes):
        if member.type == "bytes" and b"\0" in value:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    number = convert_varint_to_member_type(member, value, CATALOG)
    return getattr(number, "name", number)


def _unknown(field: WireField) -> Values:
    value = field.value
    wire = WireType(field.tag & 7)
    if wire is WireType.START_GROUP:
        inner = []
        for token in read_fields(value, 0, len(value) - _end_tag_size(value), 64):
            part = value[token.value_start : token.end] if token.value is None else token.value
            inner.append(_unknown(WireField(token.tag, token.size, part)))
        value = inner
    return {"number": field.tag >> 3, "wire_type": int(wire), "value": int(value) if isinstance(value, int) else value}


def _end_tag_size(value: bytes) -> int:
    size = 1
    while size < len(value) and value[-size - 1] & 0x80:
        size += 1
    return size
