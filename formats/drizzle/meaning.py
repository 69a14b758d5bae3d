"""Decode entries: kind, ids, object and time of the transaction, and the body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.findings import Finding, finding
from binlogtool.formats.described import Described
from binlogtool.formats.drizzle.codes import EntryType, StatementType
from binlogtool.formats.drizzle.protobuf.decoding import UndecodableError, body, enum_name, transaction_parser
from binlogtool.formats.layouts import Batch
from binlogtool.limits import Limits

TYPES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in StatementType} | {-kind.value: kind.name for kind in EntryType}
)
"""Statement kinds by their number; the two entry types under negative numbers, which no statement has."""

KINDS: Mapping[int, str] = MappingProxyType({kind.value: kind.name for kind in StatementType})

_S = StatementType
PARTS: Mapping[int, tuple[str, ...]] = MappingProxyType(
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
"""The members that a statement of each kind must have (section 5)."""

_NO_OBJECT = frozenset({_S.ROLLBACK, _S.ROLLBACK_STATEMENT})
_ROWS = frozenset({_S.INSERT, _S.UPDATE, _S.DELETE})

_TRANSACTION = EntryType.TRANSACTION.name
WRITER_FROM = 5 * 10**15
NANOSECONDS_FROM = 10**17
UNITS = MappingProxyType({0: "microseconds", 1: "seconds x 10^7 + nanoseconds", 2: "nanoseconds"})
"""Units of raw time stamps."""


class Stamp(NamedTuple):
    """A time in microseconds since 1970-01-01 UTC, and the unit that the raw number seems to have."""

    microseconds: int
    unit: str


def timestamp(raw: int) -> Stamp:
    """Decode a raw time stamp by its magnitude.

    The server writes microseconds. The example writer adds nanoseconds to seconds x 10^7, so its times are up to 100
    seconds late. The published definition says nanoseconds. The three ranges do not overlap before the year 2128.
    """
    if raw < WRITER_FROM:
        return Stamp(raw, UNITS[0])
    if raw < NANOSECONDS_FROM:
        return Stamp(raw // 10, UNITS[1])
    return Stamp(raw // 1000, UNITS[2])


def entry_kind(kinds: set[int]) -> str:
    """Return the record type of an entry with statements of these kinds: the only kind, else TRANSACTION."""
    if len(kinds) != 1:
        return _TRANSACTION
    (kind,) = kinds
    return KINDS.get(kind) or str(kind)


def object_of(statement: Any) -> bytes | None:
    """Return schema.table, or the schema, of a statement; None where it names none."""
    kind = statement.type
    parts = PARTS.get(kind)
    if not parts:
        return None
    if kind == _S.RAW_SQL or kind == _S.SET_VARIABLE:
        return None
    part = getattr(statement, parts[0])
    if kind in _ROWS or kind == _S.TRUNCATE_TABLE or kind == _S.DROP_TABLE:
        table = part.table_metadata
        return bytes(table.schema_name + b"." + table.table_name)
    return _defined(kind, part)


def _defined(kind: int, part: Any) -> bytes:
    """Return the object of a statement that carries a definition."""
    if kind == _S.DROP_SCHEMA:
        return bytes(part.schema_name)
    if kind == _S.CREATE_SCHEMA:
        return bytes(part.schema.name)
    if kind == _S.ALTER_SCHEMA:
        return bytes(part.before.name)
    table = part.table if kind == _S.CREATE_TABLE else part.before
    return bytes(table.schema + b"." + table.name)


def objects(statements: Any) -> set[bytes | None]:
    """Collect the objects of the statements of one entry."""
    return {object_of(statement) for statement in statements if statement.type not in _NO_OBJECT}


def _one_object(statements: Any) -> str | None:
    names = objects(statements)
    name = names.pop() if len(names) == 1 else None
    return None if name is None else name.decode("utf-8", "backslashreplace")


def name_text(name: str | bytes) -> str:
    """Convert a name of a body to text: bodies have bytes where a name is not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _messages(batch: Batch, start: int, stop: int) -> Iterator[tuple[int, bool, memoryview]]:
    """Yield (index, is a transaction, message bytes) of these entries."""
    columns = [batch.frames[name][start:stop] for name in ("type", "message_start", "message_end")]
    for i, (kind, low, high) in enumerate(zip(*columns, strict=False), start):
        yield i, kind == EntryType.TRANSACTION, batch.window[low:high]


_EMPTY = (EntryType.TRANSACTION.name, None, None, None, None, None)


def describe(context: Any, batch: Batch, start: int, stop: int) -> Described:
    """Describe entries as envelope columns. An entry that does not decode has only a type; its body says why."""
    rows = [_envelope(is_transaction, data) for _, is_transaction, data in _messages(batch, start, stop)]
    if not rows:
        return Described([], [], [], [], [], [])
    type_, seq, time, object_, origin, txn = map(list, zip(*rows, strict=True))
    return Described(type_, seq, time, object_, origin, txn)


def _envelope(is_transaction: bool, data: memoryview) -> tuple[Any, ...]:
    if not is_transaction:
        return (EntryType.BLOB.name, None, None, None, None, None)
    try:
        message, _ = transaction_parser()(data)
    except UndecodableError:
        return _EMPTY
    context, statements = message.transaction_context, message.statement
    kind = entry_kind({statement.type for statement in statements})
    number = context.transaction_id
    time = timestamp(context.start_timestamp).microseconds
    return (kind, number, time, _one_object(statements), context.server_id, number)


def bodies(context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per entry: the Transaction message, or the bytes of an opaque BLOB entry."""
    return [_body(batch, i, is_transaction, data) for i, is_transaction, data in _messages(batch, start, stop)]


def _body(batch: Batch, index: int, is_transaction: bool, data: memoryview) -> Any:
    if not is_transaction:
        return {"message": bytes(data)}
    try:
        return body(transaction_parser()(data)[0])
    except UndecodableError as error:
        return undecodable(batch, index, str(error))


def undecodable(batch: Batch, index: int, why: str) -> Finding:
    """Report an entry whose checksum is right (or absent) and whose message is no Transaction."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return finding(
        "payload-undecodable", batch.base + low, high - low, why, record=batch.first_record + index,
        diagnosis="message does not parse",
    )  # fmt: skip


def extras(context: Any, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return the unit that the time stamps of each entry seem to have."""
    return [_extra(data) if is_transaction else None for _, is_transaction, data in _messages(batch, start, stop)]


def _extra(data: memoryview) -> Mapping[str, Any] | None:
    try:
        message, _ = transaction_parser()(data)
    except UndecodableError:
        return None
    return {"timestamp_unit": timestamp(message.transaction_context.start_timestamp).unit}


def kind_name(number: int) -> str:
    """Return the name of a statement kind, or its number as text."""
    return str(enum_name(StatementType, number))
