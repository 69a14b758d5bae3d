"""The catalog of messages in the form of the kernels of `protobuf.jsonlines`: `rules` and `texts`."""

from __future__ import annotations

import json
import struct
from array import array
from functools import cache
from typing import NamedTuple

from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import PARTS
from binlogtool.formats.drizzle.protobuf import jsonlines as kernels
from binlogtool.formats.drizzle.protobuf.messages import Label, Member
from binlogtool.formats.drizzle.schema import CATALOG

_KINDS = {
    "uint32": kernels.UINT32, "uint64": kernels.UINT64, "bool": kernels.BOOL, "string": kernels.STRING,
    "bytes": kernels.BYTES,
}  # fmt: skip
_LABELS = {
    Label.OPTIONAL: kernels.OPTIONAL, Label.REQUIRED: kernels.REQUIRED, Label.REPEATED: kernels.REPEATED,
}  # fmt: skip
_S = StatementType
_ABOUT = {
    **dict.fromkeys((_S.ROLLBACK, _S.ROLLBACK_STATEMENT), kernels.NOBODY),
    **dict.fromkeys((_S.SET_VARIABLE, _S.RAW_SQL), kernels.NAMELESS),
    **dict.fromkeys((_S.CREATE_TABLE, _S.ALTER_TABLE), kernels.OF_TABLE),
    _S.DROP_SCHEMA: kernels.WHOLE,
    **dict.fromkeys((_S.CREATE_SCHEMA, _S.ALTER_SCHEMA), kernels.OF_SCHEMA),
}
"""What `meaning.object_of` says about each kind of statements; all others name a table."""


def _kind(member: Member) -> int:
    if member.type in CATALOG.enums:
        return kernels.ENUM
    return _KINDS.get(member.type, kernels.MESSAGE)


class _Sizes(NamedTuple):
    """Sizes of the parts of a table: before everything, before the members of a message, of a member, before the
    values
    of an enum, of a value.
    """

    head: int
    message: int
    member: int
    enum: int
    value: int


def _places(sizes: _Sizes) -> dict[str, int]:
    """Compute the position of each message and enum, and (under the name "") the end of them all."""
    places, at = {}, sizes.head
    for one in CATALOG.messages.values():
        places[one.name] = at
        at += sizes.message + sizes.member * len(one.members)
    for name, values in CATALOG.enums.items():
        places[name] = at
        at += sizes.enum + sizes.value * len(values)
    places[""] = at
    return places


@cache
def rules() -> array[int]:
    """Create the table of `derive_entry_columns`: positions of Transaction and of the objects, messages, enums,
    objects.
    """
    places, out = _places(_Sizes(2, 1, kernels.MEMBER, 1, 1)), array("q")
    out.extend((places["Transaction"], places[""]))
    for message in CATALOG.messages.values():
        out.append(len(message.members))
        for one in message.members:
            out.extend((one.number, _kind(one), _LABELS[one.label], places.get(one.type, 0)))
    for values in CATALOG.enums.values():
        out.extend((len(values), *(int(value) for value in values)))
    out.append(len(_S))
    for kind in _S:
        parts = PARTS[kind]
        number = _number("Statement", parts[0]) if parts else 0
        out.extend((kind, _ABOUT.get(kind, kernels.INSIDE), number))
    return out


def _number(message: str, name: str) -> int:
    return next(one.number for one in CATALOG.messages[message].members if one.name == name)


@cache
def texts() -> bytes:
    """Create the table of `put_message`: position of Transaction, then the messages, the enums, and their names."""
    places = _places(_Sizes(4, 0, kernels.TEXT, 4, kernels.NAMED))
    out, names = bytearray(), bytearray()
    behind = places[""]

    def named(text: str) -> tuple[int, int]:
        at = behind + len(names)
        names.extend(text.encode())
        return at, len(text)

    out += struct.pack("<I", places["Transaction"])
    for message in CATALOG.messages.values():
        for one in message.members:
            head = one.number, _kind(one), _LABELS[one.label], places.get(one.type, 0)
            out += struct.pack("<6I", *head, *named(f"{json.dumps(one.name)}:"))
    for values in CATALOG.enums.values():
        out += struct.pack("<I", len(values))
        for value in values:
            out += struct.pack("<3I", value, *named(json.dumps(value.name)))
    return bytes(out + names)


@cache
def depth(message: str = "Transaction") -> int:
    """Compute how deep the objects and lists of a message are nested."""
    inner = [
        (one.label is Label.REPEATED) + (depth(one.type) if one.type in CATALOG.messages else 0)
        for one in CATALOG.messages[message].members
    ]
    return 1 + max(inner, default=0)
