"""Numbers and names of the Drizzle transaction log: entries, statements, and enums of table definitions.

Source: Drizzle server, `drizzled/message/*.proto`; `docs/spec/drizzle.md`.
"""

from __future__ import annotations

import enum


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
