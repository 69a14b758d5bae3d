"""Schemas of entries and of every message that they carry, and their codes.

Source: Drizzle server, plugin `transaction_log` and `drizzled/message/*.proto` (release 7.0 and the tree up to March
2012); `docs/spec/drizzle.md`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from construct import Bytes, Check, Int32ul, Struct, Switch, Tell, this

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import CrcCheck, Magic, NestedSchema
from binlogtool.formats.drizzle.protobuf.wire_reader import Label, Message, MessageCatalog, MessageMember, MessageType

# --- Numbers and names of the Drizzle transaction log ---


class EntryType(enum.IntEnum):
    """Type of an entry (`docs/spec/drizzle.md#file-layout`)."""

    TRANSACTION = 1
    BLOB = 2


class StatementType(enum.IntEnum):
    """Statement.Type."""

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
    """Event.Type."""

    STARTUP = 0
    SHUTDOWN = 1


class FieldType(enum.IntEnum):
    """Table.Field.FieldType; EPOCH is a timestamp. Older logs hold numbers retired since."""

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
"""Longest message, in bytes: the writer's and the reader's INT_MAX (docs/spec/drizzle.md#file-layout)."""

ENVELOPE_SIZE = 12
"""Bytes of an entry besides its message: type, length, checksum."""

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
"""The messages in the notation of Protocol Buffers; nested types by their last name."""


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

TRANSACTION = Message(CATALOG, "Transaction")

ENTRY = Struct(
    "type" / Magic(Int32ul, **{kind.name: kind.value for kind in EntryType}),
    "length" / Int32ul,
    Check(this.length > 0),  # a message has required members; also keeps a run of zeros from being an entry
    Check(this.length <= MAX_MESSAGE_SIZE),
    "message_start" / Tell,
    "message" / NestedSchema(Bytes(this.length), Switch(this.type, {EntryType.TRANSACTION: TRANSACTION})),
    "message_end" / Tell,
    "crc32" / Int32ul,
    "checksum" / CrcCheck(CRC32, stored=this.crc32, start=this.message_start, end=this.message_end, absent=0),
)
"""One entry (docs/spec/drizzle.md#file-layout). `crc32` is the stored checksum, over the message bytes only (0 = not
computed); `checksum` is the comparison."""
