"""Decode entries: kind, ids, object, time and body; rules about one statement.

Source: `docs/spec/drizzle.md#validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import EnvelopeColumns
from binlogtool.format_api.layout import Batch
from binlogtool.formats.drizzle.protobuf.decode import (
    UndecodableError,
    create_transaction_parser,
    get_enum_name,
    to_json_body,
)
from binlogtool.formats.drizzle.schema import EntryType, StatementType
from binlogtool.limits import Limits

# --- Decoded entries ---

TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in StatementType} | {-kind.value: kind.name for kind in EntryType}
)
"""Statement kinds by their number; the two entry types under negative numbers, which no statement has."""

STATEMENT_NAMES: Mapping[int, str] = MappingProxyType({kind.value: kind.name for kind in StatementType})

_S = StatementType
REQUIRED_MEMBERS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        _S.ROLLBACK: (),
        _S.INSERT: ("insert_header", "insert_data"),
        _S.DELETE: ("delete_header", "delete_data"),
        _S.UPDATE: ("update_header", "update_data"),
        _S.TRUNCATE_TABLE: ("truncate_table_statement",),
        _S.CREATE_SCHEMA: ("create_schema_statement",),
        _S.ALTER_SCHEMA: ("alter_schema_statement",),
        _S.DROP_SCHEMA: ("drop_schema_statement",),
        _S.CREATE_TABLE: ("create_table_statement",),
        _S.ALTER_TABLE: ("alter_table_statement",),
        _S.DROP_TABLE: ("drop_table_statement",),
        _S.ROLLBACK_STATEMENT: (),
        _S.SET_VARIABLE: ("set_variable_statement",),
        _S.RAW_SQL: ("sql",),
    }
)
"""The members that a statement of each kind must have (docs/spec/drizzle.md#validation)."""

_KINDS_WITHOUT_OBJECT = frozenset({_S.ROLLBACK, _S.ROLLBACK_STATEMENT})
_ROW_KINDS = frozenset({_S.INSERT, _S.UPDATE, _S.DELETE})

_TRANSACTION_NAME = EntryType.TRANSACTION.name
EXAMPLE_WRITER_FROM = 5 * 10**15
NANOSECONDS_FROM = 10**17
TIMESTAMP_UNITS = MappingProxyType({0: "microseconds", 1: "seconds x 10^7 + nanoseconds", 2: "nanoseconds"})
"""Units of raw time stamps."""


class DecodedTimestamp(NamedTuple):
    """A time in microseconds since 1970-01-01 UTC, and the unit that the raw number seems to have."""

    microseconds: int
    unit: str


def decode_timestamp(raw: int) -> DecodedTimestamp:
    """Decode a raw time stamp by its magnitude.

    The server writes microseconds. The example writer adds nanoseconds to seconds x 10^7, so its times are up to 100
    seconds late. The published definition says nanoseconds. The three ranges do not overlap before the year 2128.
    """
    if raw < EXAMPLE_WRITER_FROM:
        return DecodedTimestamp(raw, TIMESTAMP_UNITS[0])
    if raw < NANOSECONDS_FROM:
        return DecodedTimestamp(raw // 10, TIMESTAMP_UNITS[1])
    return DecodedTimestamp(raw // 1000, TIMESTAMP_UNITS[2])


def choose_record_type(kinds: set[int]) -> str:
    """Return the record type of an entry with statements of these kinds: the only kind, else TRANSACTION."""
    if len(kinds) != 1:
        return _TRANSACTION_NAME
    (kind,) = kinds
    return STATEMENT_NAMES.get(kind) or str(kind)


def get_object_name(statement: Any) -> bytes | None:
    """Return schema.table, or the schema, of a statement; None where it names none."""
    kind = statement.type
    parts = REQUIRED_MEMBERS.get(kind)
    if not parts:
        return None
    if kind == _S.RAW_SQL or kind == _S.SET_VARIABLE:
        return None
    part = getattr(statement, parts[0])
    if kind in _ROW_KINDS or kind == _S.TRUNCATE_TABLE or kind == _S.DROP_TABLE:
        table = part.table_metadata
        return bytes(table.schema_name + b"." + table.table_name)
    return _get_defined_object(kind, part)


def _get_defined_object(kind: int, part: Any) -> bytes:
    """Return the object of a statement that carries a definition."""
    if kind == _S.DROP_SCHEMA:
        return bytes(part.schema_name)
    if kind == _S.CREATE_SCHEMA:
        return bytes(part.schema.name)
    if kind == _S.ALTER_SCHEMA:
        return bytes(part.before.name)
    table = part.table if kind == _S.CREATE_TABLE else part.before
    return bytes(table.schema + b"." + table.name)


def collect_object_names(statements: Any) -> set[bytes | None]:
    """Collect the objects of the statements of one entry."""
    return {get_object_name(statement) for statement in statements if statement.type not in _KINDS_WITHOUT_OBJECT}


def _get_single_object(statements: Any) -> str | None:
    names = collect_object_names(statements)
    name = names.pop() if len(names) == 1 else None
    return None if name is None else name.decode("utf-8", "backslashreplace")


def to_text(name: str | bytes) -> str:
    """Convert a name of a body to text: bodies have bytes where a name is not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _iterate_messages(batch: Batch, start: int, stop: int) -> Iterator[tuple[int, bool, memoryview]]:
    """Yield (index, is a transaction, message bytes) of these entries."""
    columns = [batch.frames[name][start:stop] for name in ("type", "message_start", "message_end")]
    for i, (kind, low, high) in enumerate(zip(*columns, strict=False), start):
        yield i, kind == EntryType.TRANSACTION, batch.window[low:high]


_EMPTY_ENVELOPE = (EntryType.TRANSACTION.name, None, None, None, None, None)


def describe_records(context: Any, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Describe entries as envelope columns. An entry that does not decode has only a type; its body says why."""
    rows = [_decode_envelope(is_transaction, data) for _, is_transaction, data in _iterate_messages(batch, start, stop)]
    if not rows:
        return EnvelopeColumns([], [], [], [], [], [])
    type_, seq, time, object_, origin, txn = map(list, zip(*rows, strict=True))
    return EnvelopeColumns(type_, seq, time, object_, origin, txn)


def _decode_envelope(is_transaction: bool, data: memoryview) -> tuple[Any, ...]:
    if not is_transaction:
        return (EntryType.BLOB.name, None, None, None, None, None)
    try:
        message, _ = create_transaction_parser()(data)
    except UndecodableError:
        return _EMPTY_ENVELOPE
    context, statements = message.transaction_context, message.statement
    kind = choose_record_type({statement.type for statement in statements})
    number = context.transaction_id
    time = decode_timestamp(context.start_timestamp).microseconds
    return (kind, number, time, _get_single_object(statements), context.server_id, number)


def decode_bodies(context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per entry: the Transaction message, or the bytes of an opaque BLOB entry."""
    return [
        _decode_body(batch, i, is_transaction, data)
        for i, is_transaction, data in _iterate_messages(batch, start, stop)
    ]


def _decode_body(batch: Batch, index: int, is_transaction: bool, data: memoryview) -> Any:
    if not is_transaction:
        return {"message": bytes(data)}
    try:
        return to_json_body(create_transaction_parser()(data)[0])
    except UndecodableError as error:
        return report_undecodable(batch, index, str(error))


def report_undecodable(batch: Batch, index: int, reason: str) -> Finding:
    """Report an entry whose checksum is right (or absent) and whose message is no Transaction."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return make_finding(
        "payload-undecodable", batch.base + low, high - low, reason, record=batch.first_record + index,
        diagnosis="message does not parse",
    )  # fmt: skip


def decode_timestamp_units(context: Any, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return the unit that the time stamps of each entry seem to have."""
    return [
        _decode_timestamp_unit(data) if is_transaction else None
        for _, is_transaction, data in _iterate_messages(batch, start, stop)
    ]


def _decode_timestamp_unit(data: memoryview) -> Mapping[str, Any] | None:
    try:
        message, _ = create_transaction_parser()(data)
    except UndecodableError:
        return None
    return {"timestamp_unit": decode_timestamp(message.transaction_context.start_timestamp).unit}


def get_statement_name(number: int) -> str:
    """Return the name of a statement kind, or its number as text."""
    return str(get_enum_name(StatementType, number))


# --- Rules for one decodable statement ---


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
