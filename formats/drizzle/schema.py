"""Schemas of entries and of every message that they carry, and their codes.

Source: Drizzle server, `drizzled/message/*.proto`; `docs/spec/drizzle.md`.

Source: Drizzle server, plugin `transaction_log` and `drizzled/message/*.proto` (release 7.0 and the tree up to March
2012); `docs/spec/drizzle.md`.
"""

from __future__ import annotations

import enum

from construct import Bytes, Check, Int32ul, Struct, Switch, Tell, this

from binlogtool.format_api.field_types import CrcCheck, Magic, NestedSchema
from binlogtool.format_api.layout import CRC32
from binlogtool.formats.drizzle.protobuf.messages import Label, Message, MessageCatalog, MessageMember, MessageType

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


def _create_required(number: int, name: str, type: str) -> MessageMember:
    return MessageMember(number, name, type, Label.REQUIRED)


def _create_optional(number: int, name: str, type: str) -> MessageMember:
    return MessageMember(number, name, type, Label.OPTIONAL)


def _create_repeated(number: int, name: str, type: str) -> MessageMember:
    return MessageMember(number, name, type, Label.REPEATED)


def _create_data_message(name: str, record: str) -> MessageType:
    """Create InsertData, UpdateData or DeleteData, which differ only in their records."""
    return MessageType(
        name,
        (
            _create_required(1, "segment_id", "uint32"),
            _create_required(2, "end_segment", "bool"),
            _create_repeated(3, "record", record),
        ),
    )


TRANSACTION_MESSAGES = (
    MessageType(
        "Transaction",
        (
            _create_required(1, "transaction_context", "TransactionContext"),
            _create_repeated(2, "statement", "Statement"),
            _create_optional(3, "event", "Event"),
            _create_optional(4, "segment_id", "uint32"),
            _create_optional(5, "end_segment", "bool"),
        ),
    ),
    MessageType(
        "TransactionContext",
        (
            _create_required(1, "server_id", "uint32"),
            _create_required(2, "transaction_id", "uint64"),
            _create_required(3, "start_timestamp", "uint64"),
            _create_required(4, "end_timestamp", "uint64"),
        ),
    ),
    MessageType("Event", (_create_required(1, "type", "EventType"),)),
    MessageType(
        "Statement",
        (
            _create_required(1, "type", "StatementType"),
            _create_required(2, "start_timestamp", "uint64"),
            _create_required(3, "end_timestamp", "uint64"),
            _create_optional(4, "sql", "string"),
            _create_optional(5, "insert_header", "InsertHeader"),
            _create_optional(6, "insert_data", "InsertData"),
            _create_optional(7, "update_header", "UpdateHeader"),
            _create_optional(8, "update_data", "UpdateData"),
            _create_optional(9, "delete_header", "DeleteHeader"),
            _create_optional(10, "delete_data", "DeleteData"),
            _create_optional(11, "truncate_table_statement", "TruncateTableStatement"),
            _create_optional(12, "create_schema_statement", "CreateSchemaStatement"),
            _create_optional(13, "drop_schema_statement", "DropSchemaStatement"),
            _create_optional(14, "alter_schema_statement", "AlterSchemaStatement"),
            _create_optional(15, "create_table_statement", "CreateTableStatement"),
            _create_optional(16, "alter_table_statement", "AlterTableStatement"),
            _create_optional(17, "drop_table_statement", "DropTableStatement"),
            _create_optional(18, "set_variable_statement", "SetVariableStatement"),
            _create_optional(19, "raw_sql_schema", "string"),
        ),
    ),
    MessageType("FieldMetadata", (_create_required(1, "type", "FieldType"), _create_required(2, "name", "string"))),
    MessageType(
        "TableMetadata",
        (
            _create_required(1, "schema_name", "string"),
            _create_required(2, "table_name", "string"),
            _create_optional(3, "catalog_name", "string"),
        ),
    ),
    MessageType(
        "InsertHeader",
        (
            _create_required(1, "table_metadata", "TableMetadata"),
            _create_repeated(2, "field_metadata", "FieldMetadata"),
        ),
    ),
    _create_data_message("InsertData", "InsertRecord"),
    MessageType("InsertRecord", (_create_repeated(1, "insert_value", "bytes"), _create_repeated(2, "is_null", "bool"))),
    MessageType(
        "UpdateHeader",
        (
            _create_required(1, "table_metadata", "TableMetadata"),
            _create_repeated(2, "key_field_metadata", "FieldMetadata"),
            _create_repeated(3, "set_field_metadata", "FieldMetadata"),
        ),
    ),
    _create_data_message("UpdateData", "UpdateRecord"),
    MessageType(
        "UpdateRecord",
        (
            _create_repeated(1, "key_value", "bytes"),
            _create_repeated(2, "after_value", "bytes"),
            _create_repeated(3, "before_value", "bytes"),
            _create_repeated(4, "is_null", "bool"),
        ),
    ),
    MessageType(
        "DeleteHeader",
        (
            _create_required(1, "table_metadata", "TableMetadata"),
            _create_repeated(2, "key_field_metadata", "FieldMetadata"),
        ),
    ),
    _create_data_message("DeleteData", "DeleteRecord"),
    MessageType("DeleteRecord", (_create_repeated(1, "key_value", "bytes"),)),
    MessageType("TruncateTableStatement", (_create_required(1, "table_metadata", "TableMetadata"),)),
    MessageType("CreateSchemaStatement", (_create_required(1, "schema", "Schema"),)),
    MessageType(
        "AlterSchemaStatement", (_create_required(1, "before", "Schema"), _create_required(2, "after", "Schema"))
    ),
    MessageType(
        "DropSchemaStatement",
        (_create_required(1, "schema_name", "string"), _create_optional(2, "catalog_name", "string")),
    ),
    MessageType("CreateTableStatement", (_create_required(1, "table", "Table"),)),
    MessageType("AlterTableStatement", (_create_required(1, "before", "Table"), _create_required(2, "after", "Table"))),
    MessageType(
        "DropTableStatement",
        (_create_required(1, "table_metadata", "TableMetadata"), _create_optional(2, "if_exists_clause", "bool")),
    ),
    MessageType(
        "SetVariableStatement",
        (_create_required(1, "variable_metadata", "FieldMetadata"), _create_required(2, "variable_value", "bytes")),
    ),
)

SCHEMA_MESSAGES = (
    MessageType(
        "Schema",
        (
            _create_required(1, "name", "string"),
            _create_optional(2, "collation", "string"),
            _create_required(3, "engine", "Engine"),
            _create_optional(4, "catalog", "string"),
            _create_required(11, "creation_timestamp", "uint64"),
            _create_required(12, "update_timestamp", "uint64"),
            _create_optional(13, "uuid", "string"),
            _create_optional(14, "version", "uint64"),
            _create_optional(15, "options", "SchemaOptions"),
            _create_optional(16, "replication_options", "ReplicationOptions"),
            _create_optional(17, "access", "Access"),
        ),
    ),
    MessageType("SchemaOptions", ()),
    MessageType("Engine", (_create_required(1, "name", "string"), _create_repeated(2, "options", "EngineOption"))),
    MessageType("EngineOption", (_create_required(1, "name", "string"), _create_optional(2, "state", "string"))),
    MessageType("ReplicationOptions", (_create_optional(2, "is_replicated", "bool"),)),
    MessageType("Access", (_create_optional(1, "definer", "string"), _create_optional(2, "invoker", "string"))),
)

TABLE_MESSAGES = (
    MessageType(
        "Table",
        (
            _create_required(1, "name", "string"),
            _create_required(2, "engine", "Engine"),
            _create_repeated(3, "field", "Field"),
            _create_repeated(4, "indexes", "Index"),
            _create_required(5, "type", "TableType"),
            _create_required(6, "schema", "string"),
            _create_repeated(8, "fk_constraint", "ForeignKeyConstraint"),
            _create_optional(9, "options", "TableOptions"),
            _create_required(11, "creation_timestamp", "uint64"),
            _create_required(12, "update_timestamp", "uint64"),
            _create_optional(13, "catalog", "string"),
            _create_optional(14, "uuid", "string"),
            _create_optional(15, "version", "uint64"),
            _create_optional(16, "replication_options", "ReplicationOptions"),
            _create_optional(17, "access", "Access"),
        ),
    ),
    MessageType(
        "TableOptions",
        (
            _create_optional(1, "has_user_set_auto_increment_value", "bool"),
            _create_optional(2, "collation", "string"),
            _create_optional(3, "collation_id", "uint32"),
            _create_optional(5, "data_file_name", "string"),
            _create_optional(6, "index_file_name", "string"),
            _create_optional(7, "max_rows", "uint64"),
            _create_optional(8, "min_rows", "uint64"),
            _create_optional(9, "auto_increment_value", "uint64"),
            _create_optional(11, "avg_row_length", "uint32"),
            _create_optional(13, "block_size", "uint32"),
            _create_optional(14, "comment", "string"),
            _create_optional(16, "pack_record", "bool"),
            _create_optional(17, "checksum", "bool"),
            _create_optional(18, "page_checksum", "bool"),
            _create_optional(19, "delay_key_write", "bool"),
            _create_optional(20, "unused", "bool"),
        ),
    ),
    MessageType(
        "Field",
        (
            _create_required(1, "name", "string"),
            _create_required(2, "type", "FieldType"),
            _create_optional(4, "options", "FieldOptions"),
            _create_optional(5, "constraints", "FieldConstraints"),
            _create_optional(6, "numeric_options", "NumericFieldOptions"),
            _create_optional(7, "string_options", "StringFieldOptions"),
            _create_optional(8, "time_options", "TimeFieldOptions"),
            _create_optional(16, "comment", "string"),
            _create_optional(17, "enumeration_values", "EnumerationValues"),
        ),
    ),
    MessageType(
        "FieldOptions",
        (
            _create_optional(1, "default_value", "string"),
            _create_optional(2, "update_value", "string"),
            _create_optional(3, "default_null", "bool"),
            _create_optional(4, "default_bin_value", "bytes"),
            _create_optional(5, "default_expression", "string"),
            _create_optional(6, "update_expression", "string"),
        ),
    ),
    MessageType(
        "FieldConstraints",
        (
            _create_optional(1, "is_nullable", "bool"),
            _create_optional(2, "is_unsigned", "bool"),
            _create_optional(3, "is_notnull", "bool"),
            _create_optional(4, "is_unique", "bool"),
            _create_repeated(16, "expression", "string"),
        ),
    ),
    MessageType(
        "NumericFieldOptions",
        (
            _create_optional(1, "is_autoincrement", "bool"),
            _create_optional(2, "scale", "uint32"),
            _create_optional(3, "precision", "uint32"),
        ),
    ),
    MessageType(
        "StringFieldOptions",
        (
            _create_optional(1, "is_fixed_width", "bool"),
            _create_optional(2, "length", "uint32"),
            _create_optional(3, "collation_id", "uint32"),
            _create_optional(4, "collation", "string"),
        ),
    ),
    MessageType("TimeFieldOptions", (_create_optional(1, "microseconds", "bool"),)),
    MessageType(
        "EnumerationValues",
        (
            _create_optional(2, "collation_id", "uint32"),
            _create_optional(3, "collation", "string"),
            _create_repeated(4, "field_value", "string"),
        ),
    ),
    MessageType(
        "Index",
        (
            _create_required(1, "name", "string"),
            _create_required(2, "is_primary", "bool"),
            _create_required(3, "is_unique", "bool"),
            _create_required(4, "type", "IndexType"),
            _create_required(5, "key_length", "uint32"),
            _create_repeated(6, "index_part", "IndexPart"),
            _create_optional(7, "options", "IndexOptions"),
            _create_optional(8, "comment", "string"),
        ),
    ),
    MessageType(
        "IndexPart",
        (
            _create_required(1, "fieldnr", "uint32"),
            _create_optional(2, "compare_length", "uint32"),
            _create_optional(3, "in_reverse_order", "bool"),
        ),
    ),
    MessageType(
        "IndexOptions",
        (
            _create_optional(1, "pack_key", "bool"),
            _create_optional(2, "binary_pack_key", "bool"),
            _create_optional(3, "var_length_key", "bool"),
            _create_optional(4, "null_part_key", "bool"),
            _create_optional(5, "key_block_size", "uint32"),
            _create_optional(6, "has_partial_segments", "bool"),
            _create_optional(7, "auto_generated_key", "bool"),
        ),
    ),
    MessageType(
        "ForeignKeyConstraint",
        (
            _create_optional(1, "name", "string"),
            _create_repeated(2, "column_names", "string"),
            _create_required(3, "references_table_name", "string"),
            _create_repeated(4, "references_columns", "string"),
            _create_required(5, "match", "MatchOption"),
            _create_required(6, "update_option", "ReferenceOption"),
            _create_required(7, "delete_option", "ReferenceOption"),
        ),
    ),
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

CATALOG = MessageCatalog(
    {message.name: message for message in TRANSACTION_MESSAGES + SCHEMA_MESSAGES + TABLE_MESSAGES},
    _ENUMS,
)

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
