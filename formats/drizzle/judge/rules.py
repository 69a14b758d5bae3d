"""Rules for one decodable statement: required members, row shapes, time order.

Source: `docs/spec/drizzle-transaction-log.md#5-verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import PARTS


class Fault(NamedTuple):
    """A fault of an entry: finding id, text, and the value of `facts["diagnosis"]`."""

    id: str
    text: str
    diagnosis: str


_NONE: Sequence[Fault] = ()


def statement_faults(statement: Any) -> Sequence[Fault]:
    """Return the faults of one statement."""
    kind = statement.type
    parts = PARTS.get(kind)
    if parts is None:
        return [Fault("unknown-record-type", f"statement type {kind} is unknown", "unknown statement type")]
    late = statement.start_timestamp > statement.end_timestamp
    for part in parts:
        if not statement.HasField(part):
            return [*_late(late), _missing(kind, part)]
    shape = _SHAPES.get(kind)
    text = None if shape is None else shape(statement)
    if text is None and not late:
        return _NONE
    return [*_late(late), *([] if text is None else [Fault("count-out-of-bounds", text, "row shape")])]


def _late(late: bool) -> Sequence[Fault]:
    return [Fault("time-regression", "a statement starts after its end", "time order")] if late else _NONE


def _missing(kind: int, part: str) -> Fault:
    text = f"a statement of type {StatementType(kind).name} has no {part}"
    return Fault("payload-undecodable", text, "sub-message missing")


def _insert_shape(statement: Any) -> str | None:
    width = len(statement.insert_header.field_metadata)
    for i, record in enumerate(statement.insert_data.record):
        if len(record.insert_value) != width:
            return _says("insert_value", i, len(record.insert_value), width, "fields")
        if len(record.is_null) not in (0, width):
            return _says("is_null", i, len(record.is_null), width, "fields")
    return None


def _update_shape(statement: Any) -> str | None:
    header = statement.update_header
    keys, sets = len(header.key_field_metadata), len(header.set_field_metadata)
    for i, record in enumerate(statement.update_data.record):
        if len(record.key_value) != keys:
            return _says("key_value", i, len(record.key_value), keys, "key fields")
        if len(record.after_value) != sets:
            return _says("after_value", i, len(record.after_value), sets, "set fields")
        if len(record.is_null) not in (0, sets):
            return _says("is_null", i, len(record.is_null), sets, "set fields")
    return None


def _delete_shape(statement: Any) -> str | None:
    keys = len(statement.delete_header.key_field_metadata)
    for i, record in enumerate(statement.delete_data.record):
        if len(record.key_value) != keys:
            return _says("key_value", i, len(record.key_value), keys, "key fields")
    return None


def _says(member: str, row: int, seen: int, wanted: int, what: str) -> str:
    return f"record[{row}] has {seen} {member} members for {wanted} {what}"


_SHAPES: Mapping[int, Callable[[Any], str | None]] = MappingProxyType(
    {
        StatementType.INSERT: _insert_shape,
        StatementType.UPDATE: _update_shape,
        StatementType.DELETE: _delete_shape,
    }
)
