"""Schemas of entries and of all messages in them, and their codes.

Source: Drizzle server, plugin `transaction_log` and `drizzled/message/*.proto` (release 7.0 and the tree up to March
2012); `docs/spec/drizzle.md`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from construct import Bytes, Check, Construct, Int32ul, Struct, Switch, Tell, stream_read_entire, stream_write, this

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import (
    CrcCheck,
    Magic,
    MalformedError,
    NestedSchema,
    PlainPart,
    TracePart,
    WideVarint,
    build_varint,
    parse_varint,
)
from binlogtool.limits import Limits

# --- Protocol Buffers wire format ---

MAX_TAG = (1 << 32) - 1


class WireType(enum.IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    START_GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


WIRE_TYPES = tuple(WireType)
"""Wire types in the order of their numbers."""

_new_tuple = tuple.__new__  # half the cost of a NamedTuple's own constructor


class FieldToken(NamedTuple):
    """One stored field: tag in `[start, size_at)`, length in `[size_at, value_start)`, value in `[value_start, end)`.

    Attributes:
        value: the number in a varint or fixed field, else None. The bytes of a group include its end tag.
    """

    tag: int
    size: int | None
    start: int
    size_at: int
    value_start: int
    end: int
    value: int | None

    @property
    def number(self) -> int:
        """The field number."""
        return self.tag >> 3

    @property
    def wire(self) -> WireType:
        """The wire type."""
        return WIRE_TYPES[self.tag & 7]


class TruncatedFieldError(MalformedError):
    """Error: the declared size of a field exceeds the remaining bytes; `token` has its tag and length, but no value."""

    def __init__(self, token: FieldToken, left: int) -> None:
        super().__init__(f"byte {token.start}: {int(token.size or 0)} bytes declared, {left} left")
        self.token = token


def read_fields(data: bytes, p: int, end: int, max_group_depth: int) -> Iterator[FieldToken]:
    """Yield the fields of one level of `data[p:end]`, in file order. Each field has at least two bytes.

    Raises:
        MalformedError: the bytes are not a field; all fields before it were yielded.
    """
    while p < end:
        token = read_field(data, p, end, max_group_depth)
        yield token
        p = token.end


def read_field(data: bytes, p: int, end: int, max_group_depth: int) -> FieldToken:
    """Read the field at `p`.

    Args:
        max_group_depth: how deeply groups may be nested.

    Raises:
        MalformedError: the bytes are not a field.
        CutError: only its value is incomplete.
    """
    tag, at = (data[p], p + 1) if p < end and data[p] < 128 else parse_varint(data, p, end)
    wire = tag & 7
    if tag > MAX_TAG or tag < 8 or wire > 5:
        raise MalformedError(f"byte {p}: tag {int(tag)} is no field number with a wire type")
    if wire == 0:
        value, stop = parse_varint(data, at, end)
        return _new_tuple(FieldToken, (tag, None, p, at, at, stop, value))
    if wire == 2:
        size, start = (data[at], at + 1) if at < end and data[at] < 128 else parse_varint(data, at, end)
        if start + size > end:
            raise TruncatedFieldError(FieldToken(tag, size, p, at, start, start, None), end - start)
        return _new_tuple(FieldToken, (tag, size, p, at, start, start + size, None))
    if wire == WireType.START_GROUP:
        return FieldToken(tag, None, p, at, at, _find_group_end(data, at, end, tag >> 3, max_group_depth), None)
    if wire == WireType.END_GROUP:
        raise MalformedError(f"byte {p}: the end tag of a group without a start tag")
    stop = at + (8 if wire == WireType.FIXED64 else 4)
    if stop > end:
        raise MalformedError(f"byte {at}: {stop - at} bytes needed, {end - at} left")
    return FieldToken(tag, None, p, at, at, stop, int.from_bytes(data[at:stop], "little"))


def _find_group_end(data: bytes, p: int, end: int, group_number: int, max_group_depth: int) -> int:
    """Return the position after the end tag of a group; nested groups are tracked in a list, without recursion."""
    open_groups = [group_number]
    while open_groups:
        tag, at = parse_varint(data, p, end)
        if tag & 7 == WireType.END_GROUP:
            if tag >> 3 != open_groups.pop():
                raise MalformedError(f"byte {p}: the end tag belongs to another group")
            p = at
        elif tag & 7 == WireType.START_GROUP and tag >> 3:
            open_groups.append(tag >> 3)
            if len(open_groups) > max_group_depth:
                raise MalformedError(f"byte {p}: groups nested deeper than {max_group_depth}", None, "nesting-too-deep")
            p = at
        else:
            p = _skip_group_field(data, p, end, max_group_depth)
    return p


def _skip_group_field(data: bytes, p: int, end: int, depth: int) -> int:
    """Return the position after a field of a group. A field truncated there has no token at the outer level."""
    try:
        return read_field(data, p, end, depth).end
    except TruncatedFieldError as error:
        raise MalformedError(str(error)) from None


# --- Protocol Buffers messages (proto2), complete ---


class Label(enum.Enum):
    """Label of a member: how often it may occur in a message."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    REPEATED = "repeated"


class MessageMember(NamedTuple):
    """One member of a message. type: uint32, uint64, bool, string, bytes, or the name of an enum or message."""

    number: int
    name: str
    type: str
    label: Label


@dataclass(frozen=True)
class MessageType:
    """Message type: its members by number."""

    name: str
    members: tuple[MessageMember, ...]
    by_number: Mapping[int, MessageMember] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_number", {member.number: member for member in self.members})


@dataclass(frozen=True)
class MessageCatalog:
    """All messages and enums of one definition, by name. Enums are enum.IntEnum classes."""

    messages: Mapping[str, MessageType]
    enums: Mapping[str, type[enum.IntEnum]]

    def get_wire_type(self, member: MessageMember) -> WireType:
        """Return the wire type of a member."""
        if member.type in ("uint32", "uint64", "bool") or member.type in self.enums:
            return WireType.VARINT
        return WireType.LENGTH_DELIMITED


class WireField(NamedTuple):
    """One field of a parsed message.

    Attributes:
        value: int (varint, fixed), bytes, or a tuple of fields (a known message).
        tag, size: exact varints, so that `build_fields` gives the same bytes.
    """

    tag: int
    size: int | None
    value: Any


class MessageConstruct(Construct):  # type: ignore[misc]
    """Construct type of a whole message that fills its stream. Its value is a tuple of `WireField` in file order."""

    fills_stream = True

    def __init__(self, catalog: MessageCatalog, name: str, max_depth: int = Limits().max_depth) -> None:
        super().__init__()
        self.catalog = catalog
        self.type = catalog.messages[name]
        self.max_depth = max_depth

    def _parse(self, stream: Any, context: Any, path: str) -> tuple[WireField, ...]:
        data = stream_read_entire(stream, path)
        return self._parse_fields(data, 0, len(data), self.type, self.max_depth)

    def _parse_fields(
        self, data: bytes, p: int, end: int, message_type: MessageType, depth: int
    ) -> tuple[WireField, ...]:
        return tuple(
            WireField(token.tag, token.size, self._parse_value(data, token, message_type, depth))
            for token in read_fields(data, p, end, depth)
        )

    def _parse_value(self, data: bytes, token: FieldToken, message_type: MessageType, depth: int) -> Any:
        if token.value is not None:
            return token.value
        inner = self.get_submessage_type(token, message_type)
        if inner is None:
            return data[token.value_start : token.end]
        if depth <= 1:
            raise MalformedError(f"byte {token.start}: messages nested too deep", None, "nesting-too-deep")
        return self._parse_fields(data, token.value_start, token.end, inner, depth - 1)

    def get_submessage_type(self, token: FieldToken, parent_type: MessageType) -> MessageType | None:
        """Return the message type of a field of message `parent_type`; None if the field is not a message."""
        member = parent_type.by_number.get(token.number)
        if member is None or token.wire is not WireType.LENGTH_DELIMITED:
            return None
        return self.catalog.messages.get(member.type)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_fields(obj)
        stream_write(stream, data, len(data), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield parts such as `.statement[0].insert_data.record[3].insert_value[1]`, each with `.tag`, `.length`,
        value.
        """
        return map(TracePart._make, self.trace_plain_parts(data, start, end, limits))

    def trace_plain_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Yield the same parts as plain tuples. Iterative."""
        outer: list[tuple[int, MessageType, str, dict[int, int]]] = []
        message_type, path, depth = self.type, "", 1
        seen: dict[int, int] = {}
        while start < end or outer:
            if start >= end:
                end, message_type, path, seen = outer.pop()
                depth -= 1
                continue
            token, cut = _read_field_or_cut(data, start, end, limits.max_depth)
            tag, size, _, size_at, at, stop, _ = token
            number = tag >> 3
            index = seen[number] = seen.get(number, -1) + 1
            member = message_type.by_number.get(number)
            field_path, meaning = _get_field_path_and_meaning(path, member, token, index)
            yield field_path, depth, start, None, None, meaning
            yield (
                f"{field_path}.tag",
                depth + 1,
                start,
                size_at,
                int(tag),
                _describe_tag(tag, tag.__class__ is WideVarint),
            )
            if size is not None:
                yield f"{field_path}.length", depth + 1, size_at, at, int(size), _describe_width(size)
            if cut is not None:
                raise cut
            inner = None if size is None or member is None else self.catalog.messages.get(meaning)
            if inner is not None:
                if depth >= limits.max_depth:
                    raise MalformedError(f"byte {start}: messages nested too deep", None, "nesting-too-deep")
                outer.append((end, message_type, path, seen))
                start, end, message_type, path, seen, depth = at, stop, inner, field_path, {}, depth + 1
                continue
            if at < stop:
                yield self._create_value_part(data, token, member, f"{field_path}.value", depth + 1)
            start = stop

    def _create_value_part(
        self, data: bytes, token: FieldToken, member: MessageMember | None, path: str, depth: int
    ) -> PlainPart:
        number, meaning = token.value, ""
        value: Any = data[token.value_start : token.end]
        if number is not None:
            value, meaning = int(number), _describe_width(number)
            if member is not None and not token.tag & 7:
                value = convert_varint_to_member_type(member, number, self.catalog)
                if member.type in self.catalog.enums:
                    value, meaning = int(value), getattr(value, "name", "unknown")
        return path, depth, token.value_start, token.end, value, meaning


def _read_field_or_cut(data: bytes, start: int, end: int, depth: int) -> tuple[FieldToken, TruncatedFieldError | None]:
    """Read a field; if its value is truncated, return the available part and the error."""
    try:
        return read_field(data, start, end, depth), None
    except TruncatedFieldError as error:
        return error.token, error


def _get_field_path_and_meaning(
    path: str, member: MessageMember | None, token: FieldToken, index: int
) -> tuple[str, str]:
    """Return (path, meaning) of a field."""
    if member is None:
        return f"{path}.unknown_field_{token.number}[{index}]", f"wire type {token.wire.name}, not in the definition"
    _, name, type_name, label = member
    return f"{path}.{name}[{index}]" if index or label is Label.REPEATED else f"{path}.{name}", type_name


@lru_cache(maxsize=512)
def _describe_tag(tag: int, is_wide: bool) -> str:
    return f"field {tag >> 3}, {WIRE_TYPES[tag & 7].name}" + (", longer than needed" if is_wide else "")


def _describe_width(value: int) -> str:
    return "longer than needed" if value.__class__ is WideVarint else ""


def build_fields(fields: Sequence[WireField]) -> bytes:
    """Build the bytes of a message from its fields; a length of None is computed."""
    out = bytearray()
    for wire_field in fields:
        out += build_varint(wire_field.tag)
        out += _build_value(wire_field)
    return bytes(out)


def _build_value(wire_field: WireField) -> bytes:
    wire, value = WireType(wire_field.tag & 7), wire_field.value
    if wire is WireType.VARINT:
        return build_varint(value)
    if wire in (WireType.FIXED32, WireType.FIXED64):
        return int(value).to_bytes(4 if wire is WireType.FIXED32 else 8, "little")
    body = value if isinstance(value, bytes) else build_fields(value)
    if wire is WireType.START_GROUP:
        return body
    size = wire_field.size if wire_field.size == len(body) else len(body)
    return build_varint(size if size is not None else len(body)) + body


def convert_varint_to_member_type(member: MessageMember, varint: int, catalog: MessageCatalog) -> int | bool:
    """Convert a varint to the member's type: cut to 32 bits, bool, or enum member (a plain int if unknown)."""
    if member.type == "bool":
        return varint != 0
    if member.type == "uint32":
        return int(varint) & 0xFFFFFFFF
    if member.type in catalog.enums:
        return convert_to_enum_or_int32(catalog.enums[member.type], varint)
    return int(varint)


def convert_to_enum_or_int32(enum_class: type[enum.IntEnum], value: int) -> int:
    """Convert a number to the enum member with this value, or to a signed 32-bit number if there is none."""
    number = ((int(value) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    try:
        return enum_class(number)
    except ValueError:
        return number


# --- Numbers and names of the Drizzle transaction log ---


class EntryType(enum.IntEnum):
    """Type of an entry (`docs/spec/drizzle.md#file-layout`)."""

    TRANSACTION = 1
    BLOB = 2


class StatementType(enum.IntEnum):
    """Type of a statement: Statement.Type."""

    ROLLBACK = 0
    INSERT = 1
    DELETE = 2
    UPDATE = 3
    TRUNCATE_TABLE = 4
    CREATE_SCHEMA = 5
    ALTER_SCHEMA = 6
    DROP_SCHEMA = 7
    CREATE_TABLE = 8
    ALTER_TABLE = 9
    DROP_TABLE = 10
    ROLLBACK_STATEMENT = 11
    SET_VARIABLE = 98
    RAW_SQL = 99


class ServerEventType(enum.IntEnum):
    """Type of a server event: Event.Type."""

    STARTUP = 0
    SHUTDOWN = 1


class FieldType(enum.IntEnum):
    """Table.Field.FieldType; EPOCH is a timestamp. Older logs contain numbers that were retired later."""

    DOUBLE = 0
    VARCHAR = 1
    BLOB = 2
    ENUM = 3
    INTEGER = 4
    BIGINT = 5
    DECIMAL = 6
    DATE = 7
    EPOCH = 9
    DATETIME = 10
    UUID = 11
    TIME = 12
    BOOLEAN = 13
    IPV6 = 14


class TableType(enum.IntEnum):
    """Table.TableType."""

    STANDARD = 0
    TEMPORARY = 1
    INTERNAL = 2
    FUNCTION = 3


class IndexType(enum.IntEnum):
    """Table.Index.IndexType."""

    UNKNOWN_INDEX = 0
    BTREE = 1
    RTREE = 2
    HASH = 3
    FULLTEXT = 4


class MatchOption(enum.IntEnum):
    """Table.ForeignKeyConstraint.ForeignKeyMatchOption."""

    MATCH_UNDEFINED = 0
    MATCH_FULL = 1
    MATCH_PARTIAL = 2
    MATCH_SIMPLE = 3


class ReferenceOption(enum.IntEnum):
    """Table.ForeignKeyConstraint.ForeignKeyOption."""

    OPTION_UNDEF = 0
    OPTION_RESTRICT = 1
    OPTION_CASCADE = 2
    OPTION_SET_NULL = 3
    OPTION_NO_ACTION = 4
    OPTION_SET_DEFAULT = 5


# --- The Drizzle transaction log on disk ---

MAX_MESSAGE_SIZE = 2**31 - 1
"""Maximum size of a message in bytes: INT_MAX in writer and reader (docs/spec/drizzle.md#file-layout)."""

ENVELOPE_SIZE = 12
"""Size of an entry without its message in bytes: type, length, checksum."""

CONTEXT_TAG = 0x0A
"""First byte of a Transaction message: field 1 (transaction_context), length-delimited."""


_MESSAGES = """
message Transaction {
  required TransactionContext transaction_context = 1;
  repeated Statement statement = 2;
  optional Event event = 3;
  optional uint32 segment_id = 4;
  optional bool end_segment = 5;
}
message TransactionContext {
  required uint32 server_id = 1;
  required uint64 transaction_id = 2;
  required uint64 start_timestamp = 3;
  required uint64 end_timestamp = 4;
}
message Event {
  required EventType type = 1;
}
message Statement {
  required StatementType type = 1;
  required uint64 start_timestamp = 2;
  required uint64 end_timestamp = 3;
  optional string sql = 4;
  optional InsertHeader insert_header = 5;
  optional InsertData insert_data = 6;
  optional UpdateHeader update_header = 7;
  optional UpdateData update_data = 8;
  optional DeleteHeader delete_header = 9;
  optional DeleteData delete_data = 10;
  optional TruncateTableStatement truncate_table_statement = 11;
  optional CreateSchemaStatement create_schema_statement = 12;
  optional DropSchemaStatement drop_schema_statement = 13;
  optional AlterSchemaStatement alter_schema_statement = 14;
  optional CreateTableStatement create_table_statement = 15;
  optional AlterTableStatement alter_table_statement = 16;
  optional DropTableStatement drop_table_statement = 17;
  optional SetVariableStatement set_variable_statement = 18;
  optional string raw_sql_schema = 19;
}
message FieldMetadata {
  required FieldType type = 1;
  required string name = 2;
}
message TableMetadata {
  required string schema_name = 1;
  required string table_name = 2;
  optional string catalog_name = 3;
}
message InsertHeader {
  required TableMetadata table_metadata = 1;
  repeated FieldMetadata field_metadata = 2;
}
message InsertData {
  required uint32 segment_id = 1;
  required bool end_segment = 2;
  repeated InsertRecord record = 3;
}
message InsertRecord {
  repeated bytes insert_value = 1;
  repeated bool is_null = 2;
}
message UpdateHeader {
  required TableMetadata table_metadata = 1;
  repeated FieldMetadata key_field_metadata = 2;
  repeated FieldMetadata set_field_metadata = 3;
}
message UpdateData {
  required uint32 segment_id = 1;
  required bool end_segment = 2;
  repeated UpdateRecord record = 3;
}
message UpdateRecord {
  repeated bytes key_value = 1;
  repeated bytes after_value = 2;
  repeated bytes before_value = 3;
  repeated bool is_null = 4;
}
message DeleteHeader {
  required TableMetadata table_metadata = 1;
  repeated FieldMetadata key_field_metadata = 2;
}
message DeleteData {
  required uint32 segment_id = 1;
  required bool end_segment = 2;
  repeated DeleteRecord record = 3;
}
message DeleteRecord {
  repeated bytes key_value = 1;
}
message TruncateTableStatement {
  required TableMetadata table_metadata = 1;
}
message CreateSchemaStatement {
  required Schema schema = 1;
}
message AlterSchemaStatement {
  required Schema before = 1;
  required Schema after = 2;
}
message DropSchemaStatement {
  required string schema_name = 1;
  optional string catalog_name = 2;
}
message CreateTableStatement {
  required Table table = 1;
}
message AlterTableStatement {
  required Table before = 1;
  required Table after = 2;
}
message DropTableStatement {
  required TableMetadata table_metadata = 1;
  optional bool if_exists_clause = 2;
}
message SetVariableStatement {
  required FieldMetadata variable_metadata = 1;
  required bytes variable_value = 2;
}
message Schema {
  required string name = 1;
  optional string collation = 2;
  required Engine engine = 3;
  optional string catalog = 4;
  required uint64 creation_timestamp = 11;
  required uint64 update_timestamp = 12;
  optional string uuid = 13;
  optional uint64 version = 14;
  optional SchemaOptions options = 15;
  optional ReplicationOptions replication_options = 16;
  optional Access access = 17;
}
message SchemaOptions {
}
message Engine {
  required string name = 1;
  repeated EngineOption options = 2;
}
message EngineOption {
  required string name = 1;
  optional string state = 2;
}
message ReplicationOptions {
  optional bool is_replicated = 2;
}
message Access {
  optional string definer = 1;
  optional string invoker = 2;
}
message Table {
  required string name = 1;
  required Engine engine = 2;
  repeated Field field = 3;
  repeated Index indexes = 4;
  required TableType type = 5;
  required string schema = 6;
  repeated ForeignKeyConstraint fk_constraint = 8;
  optional TableOptions options = 9;
  required uint64 creation_timestamp = 11;
  required uint64 update_timestamp = 12;
  optional string catalog = 13;
  optional string uuid = 14;
  optional uint64 version = 15;
  optional ReplicationOptions replication_options = 16;
  optional Access access = 17;
}
message TableOptions {
  optional bool has_user_set_auto_increment_value = 1;
  optional string collation = 2;
  optional uint32 collation_id = 3;
  optional string data_file_name = 5;
  optional string index_file_name = 6;
  optional uint64 max_rows = 7;
  optional uint64 min_rows = 8;
  optional uint64 auto_increment_value = 9;
  optional uint32 avg_row_length = 11;
  optional uint32 block_size = 13;
  optional string comment = 14;
  optional bool pack_record = 16;
  optional bool checksum = 17;
  optional bool page_checksum = 18;
  optional bool delay_key_write = 19;
  optional bool unused = 20;
}
message Field {
  required string name = 1;
  required FieldType type = 2;
  optional FieldOptions options = 4;
  optional FieldConstraints constraints = 5;
  optional NumericFieldOptions numeric_options = 6;
  optional StringFieldOptions string_options = 7;
  optional TimeFieldOptions time_options = 8;
  optional string comment = 16;
  optional EnumerationValues enumeration_values = 17;
}
message FieldOptions {
  optional string default_value = 1;
  optional string update_value = 2;
  optional bool default_null = 3;
  optional bytes default_bin_value = 4;
  optional string default_expression = 5;
  optional string update_expression = 6;
}
message FieldConstraints {
  optional bool is_nullable = 1;
  optional bool is_unsigned = 2;
  optional bool is_notnull = 3;
  optional bool is_unique = 4;
  repeated string expression = 16;
}
message NumericFieldOptions {
  optional bool is_autoincrement = 1;
  optional uint32 scale = 2;
  optional uint32 precision = 3;
}
message StringFieldOptions {
  optional bool is_fixed_width = 1;
  optional uint32 length = 2;
  optional uint32 collation_id = 3;
  optional string collation = 4;
}
message TimeFieldOptions {
  optional bool microseconds = 1;
}
message EnumerationValues {
  optional uint32 collation_id = 2;
  optional string collation = 3;
  repeated string field_value = 4;
}
message Index {
  required string name = 1;
  required bool is_primary = 2;
  required bool is_unique = 3;
  required IndexType type = 4;
  required uint32 key_length = 5;
  repeated IndexPart index_part = 6;
  optional IndexOptions options = 7;
  optional string comment = 8;
}
message IndexPart {
  required uint32 fieldnr = 1;
  optional uint32 compare_length = 2;
  optional bool in_reverse_order = 3;
}
message IndexOptions {
  optional bool pack_key = 1;
  optional bool binary_pack_key = 2;
  optional bool var_length_key = 3;
  optional bool null_part_key = 4;
  optional uint32 key_block_size = 5;
  optional bool has_partial_segments = 6;
  optional bool auto_generated_key = 7;
}
message ForeignKeyConstraint {
  optional string name = 1;
  repeated string column_names = 2;
  required string references_table_name = 3;
  repeated string references_columns = 4;
  required MatchOption match = 5;
  required ReferenceOption update_option = 6;
  required ReferenceOption delete_option = 7;
}
"""
"""The messages in Protocol Buffers notation; nested types by their last name."""


def _parse_messages(text: str) -> Iterator[MessageType]:
    for name, members in re.findall(r"message (\w+) \{(.*?)\}", text, re.DOTALL):
        fields = re.findall(r"(\w+) (\w+) (\w+) = (\d+);", members)
        yield MessageType(
            name, tuple(MessageMember(int(n), field, kind, Label(label)) for label, kind, field, n in fields)
        )


_ENUMS = {
    "StatementType": StatementType,
    "EventType": ServerEventType,
    "FieldType": FieldType,
    "TableType": TableType,
    "IndexType": IndexType,
    "MatchOption": MatchOption,
    "ReferenceOption": ReferenceOption,
}

CATALOG = MessageCatalog({message.name: message for message in _parse_messages(_MESSAGES)}, _ENUMS)

TRANSACTION = MessageConstruct(CATALOG, "Transaction")

ENTRY = Struct(
    "type" / Magic(Int32ul, **{kind.name: kind.value for kind in EntryType}),
    "length" / Int32ul,
    Check(this.length > 0),  # a message has required members; this also keeps a run of zeros from being an entry
    Check(this.length <= MAX_MESSAGE_SIZE),
    "message_start" / Tell,
    "message" / NestedSchema(Bytes(this.length), Switch(this.type, {EntryType.TRANSACTION: TRANSACTION})),
    "message_end" / Tell,
    "crc32" / Int32ul,
    "checksum" / CrcCheck(CRC32, stored=this.crc32, start=this.message_start, end=this.message_end, absent=0),
)
"""One entry (docs/spec/drizzle.md#file-layout). `crc32` is the stored checksum, over the message bytes only (0 = not
computed); `checksum` is the comparison."""
