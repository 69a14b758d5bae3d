"""The catalog of messages in the form of the kernels of `protobuf.jsonlines`: `rules` and `texts`."""

from __future__ import annotations

import json
import struct
from array import array
from functools import cache
from typing import NamedTuple

from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import REQUIRED_MEMBERS
from binlogtool.formats.drizzle.protobuf import jsonlines as kernels
from binlogtool.formats.drizzle.protobuf.messages import Label, MessageMember
from binlogtool.formats.drizzle.schema import CATALOG

_KINDS = {
    "uint32": kernels.UINT32, "uint64": kernels.UINT64, "bool": kernels.BOOL, "string": kernels.STRING,
    "bytes": kernels.BYTES,
}  # fmt: skip
_LABELS = {
    Label.OPTIONAL: kernels.OPTIONAL, Label.REQUIRED: kernels.REQUIRED, Label.REPEATED: kernels.REPEATED,
}  # fmt: skip
_S = StatementType
_OBJECT_KINDS = {
    **dict.fromkeys((_S.ROLLBACK, _S.ROLLBACK_STATEMENT), kernels.NO_OBJECT),
    **dict.fromkeys((_S.SET_VARIABLE, _S.RAW_SQL), kernels.UNNAMED_OBJECT),
    **dict.fromkeys((_S.CREATE_TABLE, _S.ALTER_TABLE), kernels.NAMES_IN_TABLE),
    _S.DROP_SCHEMA: kernels.NAME_IN_MEMBER,
    **dict.fromkeys((_S.CREATE_SCHEMA, _S.ALTER_SCHEMA), kernels.NAME_IN_SCHEMA),
}
"""What `meaning.object_of` says about each kind of statements; all others name a table."""


def _get_kind(member: MessageMember) -> int:
    if member.type in CATALOG.enums:
        return kernels.ENUM
    return _KINDS.get(member.type, kernels.MESSAGE)


class _TableSizes(NamedTuple):
    """Sizes of the parts of a table: before everything, before the members of a message, of a member, before the
    values
    of an enum, of a value.
    """

    head: int
    message: int
    member: int
    enum: int
    value: int


def _compute_positions(sizes: _TableSizes) -> dict[str, int]:
    """Compute the position of each message and enum, and (under the name "") the end of them all."""
    positions, position = {}, sizes.head
    for message in CATALOG.messages.values():
        positions[message.name] = position
        position += sizes.message + sizes.member * len(message.members)
    for name, values in CATALOG.enums.items():
        positions[name] = position
        position += sizes.enum + sizes.value * len(values)
    positions[""] = position
    return positions


@cache
def create_rules() -> array[int]:
    """Create the table of `derive_entry_columns`: positions of Transaction and of the objects, messages, enums,
    objects.
    """
    positions, table = _compute_positions(_TableSizes(2, 1, kernels.MEMBER_SIZE, 1, 1)), array("q")
    table.extend((positions["Transaction"], positions[""]))
    for message in CATALOG.messages.values():
        table.append(len(message.members))
        for member in message.members:
            table.extend((member.number, _get_kind(member), _LABELS[member.label], positions.get(member.type, 0)))
    for values in CATALOG.enums.values():
        table.extend((len(values), *(int(value) for value in values)))
    table.append(len(_S))
    for kind in _S:
        parts = REQUIRED_MEMBERS[kind]
        number = _get_member_number("Statement", parts[0]) if parts else 0
        table.extend((kind, _OBJECT_KINDS.get(kind, kernels.NAMES_IN_METADATA), number))
    return table


def _get_member_number(message: str, name: str) -> int:
    return next(one.number for one in CATALOG.messages[message].members if one.name == name)


@cache
def create_texts() -> bytes:
    """Create the table of `put_message`: position of Transaction, then the messages, the enums, and their names."""
    positions = _compute_positions(_TableSizes(4, 0, kernels.TEXT_MEMBER_SIZE, 4, kernels.ENUM_TEXT_SIZE))
    table, names = bytearray(), bytearray()
    names_start = positions[""]

    def add_name(text: str) -> tuple[int, int]:
        position = names_start + len(names)
        names.extend(text.encode())
        return position, len(text)

    table += struct.pack("<I", positions["Transaction"])
    for message in CATALOG.messages.values():
        for member in message.members:
            head = member.number, _get_kind(member), _LABELS[member.label], positions.get(member.type, 0)
            table += struct.pack("<6I", *head, *add_name(f"{json.dumps(member.name)}:"))
    for values in CATALOG.enums.values():
        table += struct.pack("<I", len(values))
        for value in values:
            table += struct.pack("<3I", value, *add_name(json.dumps(value.name)))
    return bytes(table + names)


@cache
def compute_depth(message: str = "Transaction") -> int:
    """Compute how deep the objects and lists of a message are nested."""
    member_depths = [
        (one.label is Label.REPEATED) + (compute_depth(one.type) if one.type in CATALOG.messages else 0)
        for one in CATALOG.messages[message].members
    ]
    return 1 + max(member_depths, default=0)
