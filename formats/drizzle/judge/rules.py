"""Rules for one decodable statement: required members, row shapes, time order.

Source: `docs/spec/drizzle.md#validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import REQUIRED_MEMBERS


class EntryFault(NamedTuple):
    """A fault of an entry: finding id, text, and the value of `facts["diagnosis"]`."""

    id: str
    text: str
    diagnosis: str


_NO_FAULTS: Sequence[EntryFault] = ()


def check_statement(statement: Any) -> Sequence[EntryFault]:
    """Return the faults of one statement."""
    kind = statement.type
    parts = REQUIRED_MEMBERS.get(kind)
    if parts is None:
        return [EntryFault("unknown-record-type", f"statement type {kind} is unknown", "unknown statement type")]
    is_late = statement.start_timestamp > statement.end_timestamp
    for part in parts:
        if not statement.HasField(part):
            return [*_report_late_start(is_late), _report_missing_member(kind, part)]
    check_shape = _SHAPE_CHECKS.get(kind)
    text = None if check_shape is None else check_shape(statement)
    if text is None and not is_late:
        return _NO_FAULTS
    return [
        *_report_late_start(is_late),
        *([] if text is None else [EntryFault("count-out-of-bounds", text, "row shape")]),
    ]


def _report_late_start(is_late: bool) -> Sequence[EntryFault]:
    return [EntryFault("time-regression", "a statement starts after its end", "time order")] if is_late else _NO_FAULTS


def _report_missing_member(kind: int, part: str) -> EntryFault:
    text = f"a statement of type {StatementType(kind).name} has no {part}"
    return EntryFault("payload-undecodable", text, "sub-message missing")


def _check_insert_shape(statement: Any) -> str | None:
    width = len(statement.insert_header.field_metadata)
    for i, record in enumerate(statement.insert_data.record):
        if len(record.insert_value) != width:
            return _format_shape_error("insert_value", i, len(record.insert_value), width, "fields")
        if len(record.is_null) not in (0, width):
            return _format_shape_error("is_null", i, len(record.is_null), width, "fields")
    return None


def _check_update_shape(statement: Any) -> str | None:
    header = statement.update_header
    keys, sets = len(header.key_field_metadata), len(header.set_field_metadata)
    for i, record in enumerate(statement.update_data.record):
        if len(record.key_value) != keys:
            return _format_shape_error("key_value", i, len(record.key_value), keys, "key fields")
        if len(record.after_value) != sets:
            return _format_shape_error("after_value", i, len(record.after_value), sets, "set fields")
        if len(record.is_null) not in (0, sets):
            return _format_shape_error("is_null", i, len(record.is_null), sets, "set fields")
    return None


def _check_delete_shape(statement: Any) -> str | None:
    keys = len(statement.delete_header.key_field_metadata)
    for i, record in enumerate(statement.delete_data.record):
        if len(record.key_value) != keys:
            return _format_shape_error("key_value", i, len(record.key_value), keys, "key fields")
    return None


def _format_shape_error(member: str, row: int, actual: int, expected: int, unit: str) -> str:
    return f"record[{row}] has {actual} {member} members for {expected} {unit}"


_SHAPE_CHECKS: Mapping[int, Callable[[Any], str | None]] = MappingProxyType(
    {
        StatementType.INSERT: _check_insert_shape,
        StatementType.UPDATE: _check_update_shape,
        StatementType.DELETE: _check_delete_shape,
    }
)
