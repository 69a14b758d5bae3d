"""What one message must be like, beside being decodable: parts, row shapes, time order (section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.drizzle.meaning import PARTS
from binlogtool.formats.drizzle.schema import StatementType


class Fault(NamedTuple):
    """Something wrong with an entry: finding id, text, and the word for it in `facts["diagnosis"]`."""

    id: str
    text: str
    diagnosis: str


def statement_faults(statement: Any) -> Iterator[Fault]:
    """What is wrong with one statement."""
    kind = statement.type
    if kind not in PARTS:
        yield Fault("unknown-record-type", f"statement type {kind} is unknown", "unknown statement type")
        return
    if statement.start_timestamp > statement.end_timestamp:
        yield Fault("time-regression", "a statement starts after its end", "time order")
    missing = [part for part in PARTS[kind] if not statement.HasField(part)]
    if missing:
        text = f"a statement of type {StatementType(kind).name} has no {' and no '.join(missing)}"
        yield Fault("payload-undecodable", text, "sub-message missing")
    elif kind in _SHAPES:
        shape = _SHAPES[kind](*(getattr(statement, part) for part in PARTS[kind]))
        if shape is not None:
            yield Fault("count-out-of-bounds", shape, "row shape")


def _insert_shape(header: Any, data: Any) -> str | None:
    width = len(header.field_metadata)
    for i, record in enumerate(data.record):
        if len(record.insert_value) != width:
            return _says("insert_value", i, len(record.insert_value), width, "fields")
        if len(record.is_null) not in (0, width):
            return _says("is_null", i, len(record.is_null), width, "fields")
    return None


def _update_shape(header: Any, data: Any) -> str | None:
    keys, sets = len(header.key_field_metadata), len(header.set_field_metadata)
    for i, record in enumerate(data.record):
        if len(record.key_value) != keys:
            return _says("key_value", i, len(record.key_value), keys, "key fields")
        if len(record.after_value) != sets:
            return _says("after_value", i, len(record.after_value), sets, "set fields")
        if len(record.is_null) not in (0, sets):
            return _says("is_null", i, len(record.is_null), sets, "set fields")
    return None


def _delete_shape(header: Any, data: Any) -> str | None:
    keys = len(header.key_field_metadata)
    for i, record in enumerate(data.record):
        if len(record.key_value) != keys:
            return _says("key_value", i, len(record.key_value), keys, "key fields")
    return None


def _says(member: str, row: int, seen: int, wanted: int, what: str) -> str:
    return f"record[{row}] has {seen} {member} members for {wanted} {what}"


_SHAPES: Mapping[int, Callable[[Any, Any], str | None]] = MappingProxyType(
    {
        StatementType.INSERT: _insert_shape,
        StatementType.UPDATE: _update_shape,
        StatementType.DELETE: _delete_shape,
    }
)
