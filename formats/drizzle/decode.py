"""Decode entries: kind, ids, object, time and body; rules for a single statement.

Source: `docs/spec/drizzle.md#validation`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import BodyWithFindings, EnvelopeColumns, RecordText, RowChanges, select_members
from binlogtool.format_api.row_output_interfaces import (
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
    make_database_table,
    qualify_name,
)
from binlogtool.format_api.schema_fields import decode_text
from binlogtool.formats.drizzle.schema import CATALOG, EntryType, Label, MessageCatalog, MessageMember, StatementType

if TYPE_CHECKING:
    from binlogtool.format_api.layout import Batch
    from binlogtool.limits import Limits

# --- Bulk decoding with the protobuf library ---

# The library's classes are created at the first call, so that importing the format costs nothing. Two differences from
# the published definition keep every byte: text members are declared as bytes (never refused, decoded here), enum
# members as numbers (an unknown one stays in its place instead of among the unknown fields).

_PACKAGE = "drizzled.message"


class UndecodableError(Exception):
    """Error: the bytes are not a Transaction message; the text says why."""


@cache
def get_message_class(name: str) -> Any:
    """Return the library's class for a message of the catalog."""
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
    """Create a function that parses the bytes of a Transaction message: (library object, its canonical size in bytes).

    The canonical size differs from the actual size if a number is longer than needed or a member occurs twice. The
    function raises `UndecodableError` if the bytes do not parse or a required member is missing.
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
"""Maximum size in bytes of a message whose missing members are listed; the list may be many times as long."""


def _list_missing_members(message: Any, size: int) -> str:
    return f": {', '.join(message.FindInitializationErrors())}" if size <= MAX_LISTED_MESSAGE_SIZE else ""


def to_json_body(message: Any) -> dict[str, Any]:
    """Convert a message to JSON-able values: member names of the specification, enums by name, bytes unchanged."""
    convert = _create_converter(message.DESCRIPTOR.name, has_unknown_fields(message))
    values: dict[str, Any] = convert(message)
    return values


def has_unknown_fields(message: Any) -> bool:
    """Return whether a message has unknown fields at any level, by two passes of the library's own code."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return len(copy.SerializePartialToString()) != len(message.SerializePartialToString())


def remove_unknown_fields(message: Any) -> bool:
    """Remove unknown fields from a message; return whether it had any. Cheaper than `has_unknown_fields`."""
    before = len(message.SerializePartialToString())
    message.DiscardUnknownFields()
    return len(message.SerializePartialToString()) != before


@cache
def _create_converter(type_: str, with_unknown_fields: bool) -> Callable[[Any], Any]:
    """Create the function that converts one type (message, enum, text, bytes or number) to JSON-able values."""
    if type_ in CATALOG.enums:
        names: dict[int, str | int] = {member.value: member.name for member in CATALOG.enums[type_]}
        return lambda value: names.get(value, value)
    if type_ not in CATALOG.messages:
        return {"string": decode_text, "bytes": decode_column_value}.get(type_, _return_unchanged)
    return _create_message_converter(type_, with_unknown_fields)


def _create_message_converter(type_: str, with_unknown_fields: bool) -> Callable[[Any], Any]:
    members = {
        member.number: (
            member.name,
            member.label is Label.REPEATED,
            _create_converter(member.type, with_unknown_fields),
        )
        for member in CATALOG.messages[type_].members
    }

    def convert(message: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            name, repeated, convert_value = members[descriptor.number]
            result[name] = [convert_value(one) for one in value] if repeated else convert_value(value)
        if with_unknown_fields and (fields := _decode_unknown_fields(message)):
            result["unknown_fields"] = fields
        return result

    return convert


def _return_unchanged(value: Any) -> Any:
    return value


def decode_column_value(value: bytes) -> str | bytes:
    """Decode a column value: text by definition, except that a value with a NUL byte is binary and stays bytes."""
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
    """Decode a field that is not in the catalog. The value of a group is the list of its fields."""
    value = field.data
    if not isinstance(value, int | bytes):
        value = [_decode_unknown_field(inner) for inner in value]
    return {"number": field.field_number, "wire_type": field.wire_type, "value": value}


# --- Decoded entries ---

TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in StatementType} | {-kind.value: kind.name for kind in EntryType}
)
"""Statement kinds by number; the two entry types have negative numbers, which no statement has."""

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
"""Units of raw timestamps."""


class DecodedTimestamp(NamedTuple):
    """Time in microseconds since 1970-01-01 UTC, and the unit that the raw number appears to have."""

    microseconds: int
    unit: str


def decode_timestamp_by_magnitude(raw: int) -> DecodedTimestamp:
    """Decode a raw timestamp by its magnitude.

    The server writes microseconds. The example writer adds nanoseconds to seconds x 10^7, so its times are up to 100
    seconds late. The published definition says nanoseconds. The three ranges do not overlap before the year 2128.
    """
    if raw < EXAMPLE_WRITER_FROM:
        return DecodedTimestamp(raw, TIMESTAMP_UNITS[0])
    if raw < NANOSECONDS_FROM:
        return DecodedTimestamp(raw // 10, TIMESTAMP_UNITS[1])
    return DecodedTimestamp(raw // 1000, TIMESTAMP_UNITS[2])


def choose_record_type(statement_kinds: set[int]) -> str:
    """Return the record type of an entry whose statements have these statement_kinds: the only kind, else
    TRANSACTION.
    """
    if len(statement_kinds) != 1:
        return _TRANSACTION_NAME
    (kind,) = statement_kinds
    return STATEMENT_NAMES.get(kind) or str(kind)


def get_object_name(statement: Any) -> bytes | None:
    """Return schema.table, or the schema, of a statement; None if the statement names neither."""
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
    """Convert a name from a body to text; names in a body are bytes if they are not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _iterate_messages(batch: Batch, start: int, stop: int) -> Iterator[tuple[int, bool, memoryview]]:
    """Yield (index, whether it is a transaction, message bytes) of these entries."""
    columns = [batch.frames[name][start:stop] for name in ("type", "message_start", "message_end")]
    for i, (kind, low, high) in enumerate(zip(*columns, strict=False), start):
        yield i, kind == EntryType.TRANSACTION, batch.window[low:high]


_EMPTY_ENVELOPE = (EntryType.TRANSACTION.name, None, None, None, None, None)


def describe_records(context: Any, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Describe entries as envelope columns. An entry that cannot be decoded has only a type; its body says why."""
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
    time = decode_timestamp_by_magnitude(context.start_timestamp).microseconds
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
    """Report an entry with a right (or no) checksum whose message is not a Transaction."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return make_finding(
        "payload-undecodable", batch.base + low, high - low, reason, record=batch.first_record + index,
        diagnosis="message does not parse",
    )  # fmt: skip


def decode_timestamp_units(context: Any, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return the unit that the timestamps of each entry appear to have."""
    return [
        _decode_timestamp_unit(data) if is_transaction else None
        for _, is_transaction, data in _iterate_messages(batch, start, stop)
    ]


def _decode_timestamp_unit(data: memoryview) -> Mapping[str, Any] | None:
    try:
        message, _ = create_transaction_parser()(data)
    except UndecodableError:
        return None
    return {"timestamp_unit": decode_timestamp_by_magnitude(message.transaction_context.start_timestamp).unit}


def get_statement_name(number: int) -> str:
    """Return the name of a statement kind, or its number as text."""
    return str(get_enum_name(StatementType, number))


# --- Rules for one decodable statement ---


class EntryFault(NamedTuple):
    """Fault of an entry: finding id, text, and the value of `facts["diagnosis"]`."""

    id: str
    text: str
    diagnosis: str


_NO_FAULTS: Sequence[EntryFault] = ()


def find_statement_faults(statement: Any) -> Sequence[EntryFault]:
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


# --- Text for people ---

_HIDDEN = frozenset({"transaction_context", "statement", "segment_id", "end_segment"})
_HIDDEN_IN_STATEMENT = frozenset({"type", "start_timestamp", "end_timestamp", "raw_sql_schema"})
_NUMBERS = frozenset({"INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "EPOCH"})


def make_record_text(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of an entry as `dump` shows it to people."""
    changes: list[RowChanges] = []
    notes: list[str] = []
    statements: list[Any] = []
    members = select_members(body, frozenset({"statement"}) if everything else _HIDDEN)
    if body.get("end_segment") is False:
        members["end_segment"] = False
    for statement in body.get("statement", ()):
        kind = str(statement.get("type", "")).lower()
        if f"{kind}_header" in statement:
            changes.append(_create_row_changes(statement, kind))
        elif "sql" in statement:
            statements.append(statement["sql"])
        else:
            inner = _unwrap_single_member(select_members(statement, _HIDDEN_IN_STATEMENT))
            table = inner.get("table", inner.get("after"))
            if isinstance(table, Mapping) and "field" in table and not everything:
                notes.append(_list_columns(table))
            else:
                members |= inner
    return RecordText(members, " ".join(notes), changes, statements)


def _list_columns(table: Mapping[str, Any]) -> str:
    """Return the columns of a table definition, as in CREATE TABLE."""
    columns = ", ".join(f"{field.get('name')} {field.get('type')}" for field in table["field"])
    return f"({columns}) ENGINE={table.get('engine', {}).get('name', '?')}"


def _unwrap_single_member(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of the only member, without the name of its message."""
    inner = next(iter(members.values()), None)
    return dict(inner) if len(members) == 1 and isinstance(inner, Mapping) else dict(members)


def _create_row_changes(statement: Mapping[str, Any], kind: str) -> RowChanges:
    header, data = statement[f"{kind}_header"], statement.get(f"{kind}_data", {})
    table = header.get("table_metadata", {})
    keys = header.get("key_field_metadata", ())
    values = header.get("field_metadata", header.get("set_field_metadata", ()))
    return RowChanges(
        [_create_row_images(record, kind, _list_names(keys), _list_names(values)) for record in data.get("record", ())],
        table=".".join(str(table[name]) for name in ("schema_name", "table_name") if name in table),
        numbers=frozenset(field.get("name", "") for field in (*keys, *values) if field.get("type") in _NUMBERS),
    )


def _list_names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(field.get("name", f"@{number}")) for number, field in enumerate(fields, start=1)]


def _create_row_images(record: Mapping[str, Any], kind: str, keys: list[str], names: list[str]) -> dict[str, Any]:
    key = dict(zip(keys, record.get("key_value", ()), strict=False))
    nulls = record.get("is_null", ())
    images = {
        side: {
            name: None if number < len(nulls) and nulls[number] and side != "before" else value
            for number, (name, value) in enumerate(zip(names, record[member], strict=False))
        }
        for side, member in (("before", "before_value"), ("after", "after_value"), ("after", "insert_value"))
        if member in record
    }
    return images if kind == "insert" else {"key": key, **images}


# --- Table rows ---

_COLUMN_TYPES = {"INTEGER": "bigint", "BIGINT": "bigint", "DOUBLE": "double", "BLOB": "binary"}
"""Field types that are converted; all others stay text as in the log, which does not state a precision."""

_FieldList = Sequence[Mapping[str, Any]]


class StatementTableReader(msgspec.Struct, TableReader):
    """Table reader over the statements of a log. tables: tables by name, with all columns named so far."""

    tables: dict[str, TableSchema] = msgspec.field(default_factory=dict)

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        for body in decode_bodies(context, batch, start, stop, limits):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            rows = [row for one in body.get("statement", ()) for row in self._decode_rows(one)]
            tables = tuple({row.table.name: row.table for row in rows}.values())
            yield RecordTableRows(
                rows, findings, tables, begins=_begins_transaction(body), ends=_ends_transaction(body)
            )

    def _decode_rows(self, statement: Mapping[str, Any]) -> Iterator[TableRow]:
        kind = str(statement.get("type"))
        header, data = statement.get(f"{kind.lower()}_header"), statement.get(f"{kind.lower()}_data")
        if kind not in _IMAGE_BUILDERS or not isinstance(header, Mapping) or not isinstance(data, Mapping):
            return
        metadata = header["table_metadata"]
        keys, values = header.get("key_field_metadata", ()), header.get(_VALUE_FIELDS[kind], ())
        names = to_text(metadata["schema_name"]), to_text(metadata["table_name"])
        table = self._get_or_extend_table(*names, (*keys, *values), keys)
        for record in data.get("record", ()):
            before, after = _IMAGE_BUILDERS[kind](record, keys, values)
            yield TableRow(table, kind, before, after)

    def _get_or_extend_table(self, schema: str, table: str, fields: _FieldList, keys: _FieldList) -> TableSchema:
        """Return a table, extended by columns that it does not have yet."""
        current = self.tables.get(qualify_name(schema, table))
        columns = {} if current is None else {column.name: column for column in current.columns}
        for field in fields:
            name = to_text(field["name"])
            columns.setdefault(name, TableColumn(name, _COLUMN_TYPES.get(str(field["type"]), "string")))
        key = tuple(to_text(field["name"]) for field in keys) or (() if current is None else current.key)
        extended = make_database_table(schema, table, tuple(columns.values()), key)
        if extended != current:
            self.tables[extended.name] = current = extended
        return current


def _begins_transaction(body: Mapping[str, Any]) -> bool:
    return body.get("segment_id", 1) == 1 and "transaction_context" in body


def _ends_transaction(body: Mapping[str, Any]) -> bool:
    return bool(body.get("end_segment", True)) and "transaction_context" in body


def _create_image(fields: _FieldList, values: Sequence[Any], nulls: Sequence[Any] = ()) -> dict[str, Any]:
    nulls = [*nulls, *[False] * len(fields)]
    return {
        to_text(field["name"]): None if null else _parse_value(str(field["type"]), value)
        for field, value, null in zip(fields, values, nulls, strict=False)
    }


def _parse_value(kind: str, text: Any) -> Any:
    """Convert a text to a value of this type; return the text itself if that is not possible."""
    try:
        return {"bigint": int, "double": float}.get(_COLUMN_TYPES.get(kind, ""), lambda same: same)(text)
    except (TypeError, ValueError):
        return text


def _create_insert_images(record: Mapping[str, Any], _keys: _FieldList, values: _FieldList) -> tuple[Any, Any]:
    return None, _create_image(values, record.get("insert_value", ()), record.get("is_null", ()))


def _create_update_images(record: Mapping[str, Any], keys: _FieldList, values: _FieldList) -> tuple[Any, Any]:
    key = _create_image(keys, record.get("key_value", ()))
    after = _create_image(values, record.get("after_value", ()), record.get("is_null", ()))
    return _create_image(values, record.get("before_value", ())) | key, {**key, **after}


def _create_delete_images(record: Mapping[str, Any], keys: _FieldList, _values: _FieldList) -> tuple[Any, Any]:
    return _create_image(keys, record.get("key_value", ())), None


_IMAGE_BUILDERS = {"INSERT": _create_insert_images, "UPDATE": _create_update_images, "DELETE": _create_delete_images}
_VALUE_FIELDS = {"INSERT": "field_metadata", "UPDATE": "set_field_metadata", "DELETE": ""}
