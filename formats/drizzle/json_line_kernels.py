"""Write messages as JSON lines, in compiled kernels.

They handle messages as servers write them: members in ascending order, no single member repeated, none unknown, no
required one missing. `texts` holds the catalog (`create_catalog_table`).
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from binlogtool.format_api.format import JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    write_json_bool,
    write_json_bytes,
    write_json_null,
    write_json_string,
    write_json_text_or_bytes,
    write_json_time,
    write_json_unsigned,
    write_text_member,
    write_unsigned_member,
)
from binlogtool.format_api.layout import Batch, Column, Kernel
from binlogtool.format_api.row_store_kernels import copy_bytes
from binlogtool.format_api.schema_fields import (
    Int64s,
    MutableInt64s,
    MutableUInt8s,
    UInt8s,
    are_bytes_equal,
    kernel,
    load_uint32,
    read_varint,
)
from binlogtool.formats.drizzle.decode import (
    EXAMPLE_WRITER_FROM,
    NANOSECONDS_FROM,
    REQUIRED_MEMBERS,
    STATEMENT_NAMES,
    TIMESTAMP_UNITS,
)
from binlogtool.formats.drizzle.schema import CATALOG, EntryType, Label, MessageMember, StatementType

# --- Kernels that write messages as JSON ---

UINT32, UINT64, BOOL, ENUM, STRING, BYTES, MESSAGE = range(7)
"""Kinds of members; kinds up to ENUM are varints on the wire."""

OPTIONAL, REQUIRED, REPEATED = range(3)

MEMBER_SIZE, ENUM_VALUE_SIZE, OBJECT_RULE_SIZE = 24, 12, 12
"""Bytes in `texts` of a member: number, kind, label, position of its enum or message, position and size of its name; of
an enum value: number, position and size of its name; of a statement kind: number, object kind (see NO_OBJECT), member
that names the object. Their number precedes those of a message, of an enum, and all statement kinds."""

TRANSACTION_TYPE = 1
"""Entry type of transactions (`drizzle.schema.EntryType`)."""

MAX_LENGTH = 0x7FFFFFFF
MAX_UINT32 = 0xFFFFFFFF
MAX_TAG_SIZE = 5


@kernel(read_varint)
def read_field_bounds(buf: UInt8s, pos: int, limit: int) -> tuple[int, int, int, int]:
    """Read the field at `buf[pos]`: (tag, start and end of its value, value of a varint); end -1 = not handled."""
    tag, at = read_varint(buf, pos, limit)
    if at < 0 or at - pos > MAX_TAG_SIZE or tag < 8 or tag > MAX_UINT32:
        return 0, -1, -1, 0
    value, end = read_varint(buf, at, limit)
    if end < 0:
        return 0, -1, -1, 0
    if tag & 7 == 0:
        return tag, at, end, value
    if tag & 7 != 2 or value < 0 or value > MAX_LENGTH or value > limit - end:
        return 0, -1, -1, 0
    return tag, end, end + value, 0


@kernel(load_uint32)
def find_catalog_entry_offset(catalog_table: UInt8s, list_at: int, entry_size: int, number: int) -> int:
    """Return the position of the entry with this number in the list at `list_at`; -1 = there is none."""
    for i in range(load_uint32(catalog_table, list_at)):
        if load_uint32(catalog_table, list_at + 4 + entry_size * i) == number:
            return list_at + 4 + entry_size * i
    return -1


@kernel(find_catalog_entry_offset, load_uint32, read_field_bounds)
def is_plain_message(buf: UInt8s, pos: int, limit: int, catalog_table: UInt8s, message_type_at: int) -> bool:
    """Return whether the bytes are a message of this type, in the form that servers write."""
    at = message_type_at + 4 - MEMBER_SIZE
    stop = message_type_at + 4 + MEMBER_SIZE * load_uint32(catalog_table, message_type_at)
    while pos < limit:
        tag, start, end, value = read_field_bounds(buf, pos, limit)
        if end < 0:
            return False
        number = tag >> 3
        if (
            at < message_type_at
            or load_uint32(catalog_table, at) != number
            or load_uint32(catalog_table, at + 8) != REPEATED
        ):
            at += MEMBER_SIZE
            while at < stop and load_uint32(catalog_table, at) < number:
                if load_uint32(catalog_table, at + 8) == REQUIRED:
                    return False
                at += MEMBER_SIZE
            if at >= stop or load_uint32(catalog_table, at) != number:
                return False
        kind = load_uint32(catalog_table, at + 4)
        inner = load_uint32(catalog_table, at + 12)
        if (tag & 7 == 0) != (kind <= ENUM):
            return False
        if kind == UINT32 and not 0 <= value <= MAX_UINT32:
            return False
        if kind == ENUM and find_catalog_entry_offset(catalog_table, inner, ENUM_VALUE_SIZE, value) < 0:
            return False
        if kind == MESSAGE and not is_plain_message(buf, start, end, catalog_table, inner):
            return False
        pos = end
    at += MEMBER_SIZE
    while at < stop:
        if load_uint32(catalog_table, at + 8) == REQUIRED:
            return False
        at += MEMBER_SIZE
    return True


# -- JSON --------------------------------------------------------------------------------------------------------------


@kernel(write_json_text_or_bytes, write_json_bytes)
def write_json_column(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the value of a column as text; if it contains a NUL, as binary data."""
    for i in range(pos, limit):
        if buf[i] == 0:
            return write_json_bytes(buf, pos, limit, out, out_pos, out_limit)
    return write_json_text_or_bytes(buf, pos, limit, out, out_pos, out_limit)


@kernel(copy_bytes, load_uint32)
def write_catalog_name(catalog_table: UInt8s, at: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the name whose position and size are at `texts[at]`, if 64 bytes remain after it."""
    p = load_uint32(catalog_table, at)
    size = load_uint32(catalog_table, at + 4)
    return copy_bytes(catalog_table, p, p + size, out, out_pos) if out_limit - out_pos >= size + 64 else -1


@kernel(load_uint32, write_catalog_name)
def end_and_begin_json_member(
    catalog_table: UInt8s,
    message_type_at: int,
    member_at: int,
    member_number: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> tuple[int, int]:
    """End the JSON member at `member_at`, if any, and begin the one with this number: write its name and an opening
    bracket for a list; return (its position in the table, output position).

    Returns:
        (position of the member in the table, output position for its value, -1 = no room).
    """
    if member_at >= message_type_at:
        if load_uint32(catalog_table, member_at + 8) == REPEATED:
            out[out_pos] = 93
            out_pos += 1
        out[out_pos] = 44
        out_pos += 1
    member_at += MEMBER_SIZE
    while load_uint32(catalog_table, member_at) < member_number:
        member_at += MEMBER_SIZE
    out_pos = write_catalog_name(catalog_table, member_at + 16, out, out_pos, out_limit)
    if out_pos >= 0 and load_uint32(catalog_table, member_at + 8) == REPEATED:
        out[out_pos] = 91
        out_pos += 1
    return member_at, out_pos


@kernel(
    end_and_begin_json_member, find_catalog_entry_offset, read_field_bounds, write_json_text_or_bytes,
    write_json_bool, write_json_column,
    write_catalog_name, write_json_unsigned, load_uint32,
)  # fmt: skip
def write_json_message(
    buf: UInt8s,
    pos: int,
    limit: int,
    catalog_table: UInt8s,
    message_type_at: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write a message for which `is_plain_message` is true as a JSON object."""
    if out_limit - out_pos < 8:
        return -1
    out[out_pos] = 123
    out_pos += 1
    at = message_type_at + 4 - MEMBER_SIZE
    while pos < limit:
        tag, start, end, value = read_field_bounds(buf, pos, limit)
        if end < 0:
            return -2
        pos = end
        if at >= message_type_at and load_uint32(catalog_table, at) == tag >> 3:
            out[out_pos] = 44
            out_pos += 1
        else:
            at, out_pos = end_and_begin_json_member(
                catalog_table, message_type_at, at, tag >> 3, out, out_pos, out_limit
            )
        if out_pos < 0 or out_limit - out_pos < 64:
            return -1
        kind = load_uint32(catalog_table, at + 4)
        inner = load_uint32(catalog_table, at + 12)
        if kind == MESSAGE:
            out_pos = write_json_message(buf, start, end, catalog_table, inner, out, out_pos, out_limit - 8)
        elif kind == STRING:
            out_pos = write_json_text_or_bytes(buf, start, end, out, out_pos, out_limit - 8)
        elif kind == BYTES:
            out_pos = write_json_column(buf, start, end, out, out_pos, out_limit - 8)
        elif kind == ENUM:
            name = find_catalog_entry_offset(catalog_table, inner, ENUM_VALUE_SIZE, value)
            out_pos = write_catalog_name(catalog_table, name + 4, out, out_pos, out_limit) if name > 0 else -2
        elif kind == BOOL:
            out_pos = write_json_bool(1 if value != 0 else 0, out, out_pos, out_limit)
        else:
            out_pos = write_json_unsigned(value, out, out_pos, out_limit - 8)
        if out_pos < 0:
            return out_pos
    if at >= message_type_at and load_uint32(catalog_table, at + 8) == REPEATED:
        out[out_pos] = 93
        out_pos += 1
    out[out_pos] = 125
    return out_pos + 1


# -- derived columns of an entry
# ------------------------------------------------------------------------------------------------

DERIVED_COLUMNS = ("kind", "number", "time", "server", "unit", "first_at", "first_end", "second_at", "second_end")
"""Derived columns: kind of the statements (MANY_KINDS = several, -1 = not handled), transaction id, microseconds since
1970, server id, unit of the timestamps, and bounds of the names of the object, -1 = none.
"""

MANY_KINDS = 100
"""Kind of an entry whose statements have several kinds; no statement has this number."""

NO_OBJECT, UNNAMED_OBJECT, NAME_IN_MEMBER, NAME_IN_SCHEMA, NAMES_IN_METADATA, NAMES_IN_TABLE = range(6)
"""Ways in which a statement names its object: none; no name; in the member itself; in the first message in the
member: the name of a `Schema`, the names of a `TableMetadata` or of a `Table`.
"""


@kernel(read_field_bounds)
def find_field_value_bounds(buf: UInt8s, pos: int, limit: int, field_number: int) -> tuple[int, int]:
    """Return start and end of the value of the first field with this number; -1 = there is no such field."""
    while pos < limit:
        tag, start, end, _ = read_field_bounds(buf, pos, limit)
        if end < 0:
            break
        if tag >> 3 == field_number:
            return start, end
        pos = end
    return -1, -1


@kernel(find_field_value_bounds)
def find_object_names(
    buf: UInt8s, pos: int, limit: int, object_kind: int, member_number: int
) -> tuple[int, int, int, int]:
    """Return the bounds of the names of a statement's object; (-2, …) = the names are missing."""
    start, end = find_field_value_bounds(buf, pos, limit, member_number)
    if start >= 0 and object_kind != NAME_IN_MEMBER:
        start, end = find_field_value_bounds(buf, start, end, 1)
    if start < 0:
        return -2, -1, -1, -1
    low, high = find_field_value_bounds(buf, start, end, 6 if object_kind == NAMES_IN_TABLE else 1)
    if object_kind <= NAME_IN_SCHEMA:
        return low, high, -1, -1
    first, last = find_field_value_bounds(buf, start, end, 1 if object_kind == NAMES_IN_TABLE else 2)
    return low, high, first, last


@kernel(find_catalog_entry_offset, read_field_bounds, find_object_names, are_bytes_equal, load_uint32)
def write_kind_and_object_columns(
    buf: UInt8s, pos: int, limit: int, catalog_table: UInt8s, out: MutableInt64s, first_slot: int, entry_count: int
) -> bool:
    """Read kind and object of an entry from its statements; column c is `out[first_slot + count * c]`.

    Returns:
        False if the entry is not handled.
    """
    kind = -1
    object_count = 0
    while pos < limit:
        tag, start, end, _ = read_field_bounds(buf, pos, limit)
        if end < 0:
            return False
        pos = end
        if tag >> 3 != 2:
            continue
        _, _, _, statement_kind = read_field_bounds(buf, start, end)
        kind = statement_kind if kind < 0 or kind == statement_kind else MANY_KINDS
        rule = find_catalog_entry_offset(catalog_table, load_uint32(catalog_table, 4), OBJECT_RULE_SIZE, statement_kind)
        object_kind = load_uint32(catalog_table, rule + 4) if rule > 0 else NO_OBJECT
        if object_kind == NO_OBJECT:
            continue
        low, high, first, last = -1, -1, -1, -1
        if object_kind != UNNAMED_OBJECT:
            low, high, first, last = find_object_names(
                buf, start, end, object_kind, load_uint32(catalog_table, rule + 8)
            )
            if low < -1:
                return False
        a, b, c, d = (
            out[first_slot + 5 * entry_count],
            out[first_slot + 6 * entry_count],
            out[first_slot + 7 * entry_count],
            out[first_slot + 8 * entry_count],
        )
        if object_count == 0:
            out[first_slot + 5 * entry_count] = low
            out[first_slot + 6 * entry_count] = high
            out[first_slot + 7 * entry_count] = first
            out[first_slot + 8 * entry_count] = last
            object_count = 1
        elif object_count == 1 and not (
            b - a == high - low
            and d - c == last - first
            and are_bytes_equal(buf, a, buf, low, b - a) != 0
            and are_bytes_equal(buf, c, buf, first, d - c) != 0
        ):
            if b - a + d - c + (c >= 0) == high - low + last - first + (first >= 0):
                return False  # perhaps the same text with the dot at another position
            object_count = 2
            out[first_slot + 5 * entry_count] = -1
    out[first_slot] = MANY_KINDS if kind < 0 else kind
    return True


@kernel(is_plain_message, find_field_value_bounds, load_uint32, read_field_bounds, write_kind_and_object_columns)
def write_derived_columns_of_entries(
    buf: UInt8s,
    catalog_table: UInt8s,
    types: Int64s,
    message_starts: Int64s,
    message_ends: Int64s,
    out: MutableInt64s,
    entry_count: int,
) -> int:
    """Write the `DERIVED_COLUMNS` of entries to `out`."""
    for i in range(entry_count):
        for column in range(9):
            out[i + entry_count * column] = -1
        if types[i] != TRANSACTION_TYPE or not is_plain_message(
            buf, message_starts[i], message_ends[i], catalog_table, load_uint32(catalog_table, 0)
        ):
            continue
        low, high = find_field_value_bounds(buf, message_starts[i], message_ends[i], 1)
        _, _, low, server = read_field_bounds(buf, low, high)
        _, _, low, number = read_field_bounds(buf, low, high)
        _, _, low, time = read_field_bounds(buf, low, high)
        unit = 0
        if time >= NANOSECONDS_FROM:
            time = time // 1000
            unit = 2
        elif time >= EXAMPLE_WRITER_FROM:
            time = time // 10
            unit = 1
        out[i + entry_count] = number
        out[i + 2 * entry_count] = time
        out[i + 3 * entry_count] = server
        out[i + 4 * entry_count] = unit
        if time < 0 or not write_kind_and_object_columns(
            buf, message_starts[i], message_ends[i], catalog_table, out, i, entry_count
        ):
            out[i] = -1
    return entry_count


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(write_json_time)
def write_time_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, time: int
) -> int:
    """Write the time when the transaction began."""
    return write_json_time(time, out, out_pos, out_limit)


class ObjectNameBounds(NamedTuple):
    """Bounds of the names of a schema (`a` to `b`) and of a table (`c` to `d`); -1 = no name."""

    kind: int
    a: int
    b: int
    c: int
    d: int


@kernel(write_json_null, write_json_string)
def write_object_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    name_bounds: ObjectNameBounds,
) -> int:
    """Write `"schema.table"`, or the name of a schema."""
    if name_bounds.kind < 0:
        return -2
    if name_bounds.a < 0:
        return write_json_null(out, out_pos, out_limit)
    out_pos = write_json_string(buf, name_bounds.a, name_bounds.b, out, out_pos, out_limit)
    if out_pos < 0 or name_bounds.c < 0:
        return out_pos
    dot = out_pos - 1  # overwrites the quotes between the names
    out_pos = write_json_string(buf, name_bounds.c, name_bounds.d, out, dot, out_limit)
    if out_pos >= 0:
        out[dot] = 46
    return out_pos


@kernel(write_json_message, load_uint32)
def write_body_member(
    buf: UInt8s,
    catalog_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    kind: int,
    pos: int,
    limit: int,
) -> int:
    """Write the transaction of an entry that `derive_entry_columns` handles."""
    return (
        -2
        if kind < 0
        else write_json_message(buf, pos, limit, catalog_table, load_uint32(catalog_table, 0), out, out_pos, out_limit)
    )


# --- Catalog of messages for the kernels ---

_KINDS = {
    "uint32": UINT32, "uint64": UINT64, "bool": BOOL, "string": STRING,
    "bytes": BYTES,
}  # fmt: skip
_LABELS = {
    Label.OPTIONAL: OPTIONAL, Label.REQUIRED: REQUIRED, Label.REPEATED: REPEATED,
}  # fmt: skip
_S = StatementType
_OBJECT_KINDS = {
    **dict.fromkeys((_S.ROLLBACK, _S.ROLLBACK_STATEMENT), NO_OBJECT),
    **dict.fromkeys((_S.SET_VARIABLE, _S.RAW_SQL), UNNAMED_OBJECT),
    **dict.fromkeys((_S.CREATE_TABLE, _S.ALTER_TABLE), NAMES_IN_TABLE),
    _S.DROP_SCHEMA: NAME_IN_MEMBER,
    **dict.fromkeys((_S.CREATE_SCHEMA, _S.ALTER_SCHEMA), NAME_IN_SCHEMA),
}
"""Object kind by statement kind (as in `get_object_name`); all other statements name a table."""


def _get_kind(member: MessageMember) -> int:
    if member.type in CATALOG.enums:
        return ENUM
    return _KINDS.get(member.type, MESSAGE)


def _get_member_number(message: str, name: str) -> int:
    return next(one.number for one in CATALOG.messages[message].members if one.name == name)


@cache
def create_catalog_table() -> bytes:
    """Create the table of the kernels: position of Transaction and of the statement kinds; messages, enums, statement
    kinds, and the names.
    """
    positions, end = {}, 8
    for name, message in CATALOG.messages.items():
        positions[name], end = end, end + 4 + MEMBER_SIZE * len(message.members)
    for name, values in CATALOG.enums.items():
        positions[name], end = end, end + 4 + ENUM_VALUE_SIZE * len(values)
    table, names = bytearray(struct.pack("<2I", positions["Transaction"], end)), bytearray()
    names_start = end + 4 + OBJECT_RULE_SIZE * len(_S)

    def add_name(text: str) -> tuple[int, int]:
        names.extend(text.encode())
        return names_start + len(names) - len(text), len(text)

    for message in CATALOG.messages.values():
        table += struct.pack("<I", len(message.members))
        for member in message.members:
            head = member.number, _get_kind(member), _LABELS[member.label], positions.get(member.type, 0)
            table += struct.pack("<6I", *head, *add_name(f"{json.dumps(member.name)}:"))
    for values in CATALOG.enums.values():
        table += struct.pack("<I", len(values))
        for value in values:
            table += struct.pack("<3I", value, *add_name(json.dumps(value.name)))
    table += struct.pack("<I", len(_S))
    for kind in _S:
        parts = REQUIRED_MEMBERS[kind]
        number = _get_member_number("Statement", parts[0]) if parts else 0
        table += struct.pack("<3I", kind, _OBJECT_KINDS.get(kind, NAMES_IN_METADATA), number)
    return bytes(table + names)


@cache
def compute_json_depth(message_name: str = "Transaction") -> int:
    """Return how deeply the objects and lists of a message are nested."""
    member_depths = [
        (one.label is Label.REPEATED) + (compute_json_depth(one.type) if one.type in CATALOG.messages else 0)
        for one in CATALOG.messages[message_name].members
    ]
    return 1 + max(member_depths, default=0)


# --- The JSON line of an entry in compiled code ---

_TYPE_NAMES = {**STATEMENT_NAMES, MANY_KINDS: EntryType.TRANSACTION.name}
_OBJECT_COLUMNS = ("kind", "first_at", "first_end", "second_at", "second_end")


class EntryColumnDeriver:
    """Derives columns of a batch from the messages of its entries."""

    def __init__(self) -> None:
        self._out = memoryview(array("q"))

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column]:
        """Return the derived columns of a batch (`JsonLine.derive`)."""
        count, frames = batch.frames.count, batch.frames
        if len(self._out) < len(DERIVED_COLUMNS) * count:
            self._out = memoryview(array("q", bytes(8 * len(DERIVED_COLUMNS) * count)))
        arguments = (frames[name] for name in ("type", "message_start", "message_end"))
        compile_(write_derived_columns_of_entries)(batch.window, create_catalog_table(), *arguments, self._out, count)
        return {name: self._out[k * count : (k + 1) * count] for k, name in enumerate(DERIVED_COLUMNS)}


def _get_catalog_table(_quote: Any) -> bytes:
    return create_catalog_table()


def create_json_line(_context: object) -> JsonLine:
    """Return the writer of JSON lines for entries."""
    return JsonLine(
        type=JsonMember(write_text_member, ("kind",), texts=_TYPE_NAMES),
        seq=JsonMember(write_unsigned_member, ("number",)),
        time=JsonMember(write_time_member, ("time",)),
        object=JsonMember(write_object_member, _OBJECT_COLUMNS),
        origin=JsonMember(write_unsigned_member, ("server",)),
        txn=JsonMember(write_unsigned_member, ("number",)),
        body=JsonMember(write_body_member, ("kind", "message_start", "message_end"), table=_get_catalog_table),
        extras=(("timestamp_unit", JsonMember(write_text_member, ("unit",), texts=TIMESTAMP_UNITS)),),
        depth=1 + compute_json_depth(),
        derive=EntryColumnDeriver(),
    )
