"""Describe the columns of a table map, and how their values are encoded in a row image.

See docs/spec/mysql_binlog.md#table_map and docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from binlogtool.formats.fields import MalformedError


class ColumnType(enum.IntEnum):
    """Type codes of the table map (`enum_field_types`); ENUM and SET are stored as STRING with their metadata."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_C = ColumnType

NUMERIC = frozenset({_C.TINY, _C.SHORT, _C.INT24, _C.LONG, _C.LONGLONG, _C.FLOAT, _C.DOUBLE, _C.NEWDECIMAL, _C.YEAR})
"""Columns that have a bit in SIGNEDNESS."""
BLOBS = frozenset({_C.TINY_BLOB, _C.MEDIUM_BLOB, _C.LONG_BLOB, _C.BLOB})
CHARACTER = BLOBS | {
    _C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.VECTOR, _C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED
}  # fmt: skip
"""Columns that have a character set in DEFAULT_CHARSET or COLUMN_CHARSET of MySQL."""
CHARACTER_MARIADB = CHARACTER | {_C.GEOMETRY}
"""The same in MariaDB."""
ENUM_AND_SET = frozenset({_C.ENUM, _C.SET})


class LogicalType(enum.Enum):
    """Types that the log stores as other types and does not name; only a CREATE TABLE reveals them."""

    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"
    JSON = "json"
    VECTOR = "vector"


class TableMapColumn(msgspec.Struct, frozen=True):
    """One column of a table map; None = not in the log.

    Attributes:
        type: the real type code.
        metadata: STRING, VARCHAR, VAR_STRING: the longest value in bytes; BLOB, GEOMETRY, JSON, VECTOR: bytes of the
            length; ENUM, SET: bytes of a value; BIT: bits; NEWDECIMAL: precision * 256 + scale; temporal types: digits
            of the fraction.
        charset: name of the character set.
        values: the texts of an ENUM or SET.
        dimension: numbers of a VECTOR.
        logical: see `LogicalType`.
        generated: computed from other columns.
        fraction: digits of a TIME, DATETIME or TIMESTAMP in MariaDB's old format; not in the log.
        text: its values are text even if the character set is unknown.
    """

    type: int
    metadata: int = 0
    nullable: bool = True
    unsigned: bool | None = None
    collation: int | None = None
    charset: str | None = None
    name: str | None = None
    values: tuple[str, ...] | None = None
    geometry_type: int | None = None
    visible: bool | None = None
    dimension: int | None = None
    logical: LogicalType | None = None
    generated: bool | None = None
    fraction: int | None = None
    text: bool | None = None

    @property
    def type_name(self) -> str:
        """The server's name of the type, or the number of an unknown type."""
        try:
            return ColumnType(self.type).name
        except ValueError:
            return str(self.type)

    @property
    def padded_size(self) -> int:
        """Size of a BINARY column, whose trailing zero bytes are not stored in a row image; 0 for other columns."""
        is_binary = self.type == ColumnType.STRING and self.charset == "binary" and self.logical is None
        return self.metadata if is_binary else 0


class ColumnHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a CREATE TABLE says of one column; used only for what the log does not record.

    Attributes:
        types: type codes that such a column may have in a log; empty = not said. They tell whether the statement is
            about this table: if a column has none of its hint's types, no hint is used.
        charset: spelled as by `normalize_charset_name`.
        text: its values are text.
        nullable: False = NOT NULL.
        metadata: as in the log; None = not compared.
    """

    name: str | None = None
    types: frozenset[int] = frozenset()
    unsigned: bool | None = None
    charset: str | None = None
    values: tuple[str, ...] | None = None
    logical: LogicalType | None = None
    generated: bool | None = None
    fraction: int | None = None
    text: bool | None = None
    nullable: bool | None = None
    metadata: int | None = None


class ValueKind(enum.IntEnum):
    """How the bytes of a value are decoded; the parameter of a kind is in parentheses.

    Fixed width: NOTHING; SIGNED and UNSIGNED (bytes, little-endian); FLOAT; DOUBLE; DECIMAL (precision * 256 +
    scale);
    BIT (bits, big-endian bytes); ENUM, SET (bytes, little-endian); YEAR; DATE; TIME2, DATETIME2, TIMESTAMP2 (digits of
    the fraction); TIME, DATETIME, TIMESTAMP (old formats; digits of MariaDB's).

    With a little-endian length of 1 to 4 bytes: UTF8 (text), TEXT (in another character set), GUESS (text of an unknown
    character set), BYTES, JSON, GEOMETRY, VECTOR, COMPRESSED (MariaDB: unpacks to text or bytes), UUID, INET4, INET6.
    The parameter is the column's metadata. Invalid text is shown as bytes.
    """

    NOTHING = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    BIT = 6
    ENUM = 7
    SET = 8
    YEAR = 9
    DATE = 10
    TIME2 = 11
    DATETIME2 = 12
    TIMESTAMP2 = 13
    TIME = 14
    DATETIME = 15
    TIMESTAMP = 16
    TEXT = 32
    UTF8 = 33
    GUESS = 34
    BYTES = 35
    JSON = 36
    GEOMETRY = 37
    VECTOR = 38
    COMPRESSED = 39
    UUID = 40
    INET4 = 41
    INET6 = 42


class ColumnKind(NamedTuple):
    """How the values of a column are stored, as plain integers.

    Attributes:
        kind: a `ValueKind`.
        parameter: see `ValueKind`.
        fixed: size of a value, if `prefix` is 0.
        prefix: bytes of the little-endian length before a value; 0 = fixed width.
    """

    kind: int
    parameter: int
    fixed: int
    prefix: int


_INTEGER_WIDTHS: Mapping[int, int] = MappingProxyType(
    {_C.TINY: 1, _C.SHORT: 2, _C.INT24: 3, _C.LONG: 4, _C.LONGLONG: 8}
)
_FIXED_KINDS: Mapping[int, tuple[ValueKind, int]] = MappingProxyType(
    {
        _C.NULL: (ValueKind.NOTHING, 0),
        _C.FLOAT: (ValueKind.FLOAT, 4),
        _C.DOUBLE: (ValueKind.DOUBLE, 8),
        _C.YEAR: (ValueKind.YEAR, 1),
        _C.DATE: (ValueKind.DATE, 3),
        _C.NEWDATE: (ValueKind.DATE, 3),
        _C.TIME: (ValueKind.TIME, 3),
        _C.DATETIME: (ValueKind.DATETIME, 8),
        _C.TIMESTAMP: (ValueKind.TIMESTAMP, 4),
    }
)
OLD_TEMPORAL: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {_C.TIMESTAMP: (4, 5, 5, 6, 6, 7, 7), _C.TIME: (3, 4, 4, 5, 5, 5, 6), _C.DATETIME: (8, 6, 6, 7, 7, 7, 8)}
)
"""Bytes of a value in MariaDB's form before MySQL's was taken over (10.1.2), by the digits of the fraction."""
_FRACTION_KINDS: Mapping[int, tuple[ValueKind, int]] = MappingProxyType(
    {_C.TIME2: (ValueKind.TIME2, 3), _C.DATETIME2: (ValueKind.DATETIME2, 5), _C.TIMESTAMP2: (ValueKind.TIMESTAMP2, 4)}
)
_LOGICAL_KINDS: Mapping[LogicalType, ValueKind] = MappingProxyType(
    {
        LogicalType.UUID: ValueKind.UUID,
        LogicalType.INET4: ValueKind.INET4,
        LogicalType.INET6: ValueKind.INET6,
        LogicalType.VECTOR: ValueKind.VECTOR,
    }
)
_STRUCTURED_KINDS: Mapping[int, ValueKind] = MappingProxyType(
    {
        _C.JSON: ValueKind.JSON,
        _C.TYPED_ARRAY: ValueKind.JSON,
        _C.GEOMETRY: ValueKind.GEOMETRY,
        _C.VECTOR: ValueKind.VECTOR,
    }
)
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a group of 0 to 9 decimal digits."""


def packed_decimal_size(precision: int, scale: int) -> int:
    """Return the size in bytes of a packed decimal."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


def column_kind(column: TableMapColumn) -> ColumnKind:
    """Return how the values of a column are stored.

    Raises:
        MalformedError: the type is unknown, or its values have no known length.
    """
    type_, metadata = column.type, column.metadata
    if type_ in _INTEGER_WIDTHS:
        width = _INTEGER_WIDTHS[type_]
        return ColumnKind(ValueKind.UNSIGNED if column.unsigned else ValueKind.SIGNED, width, width, 0)
    if type_ in _FIXED_KINDS:
        kind, width = _FIXED_KINDS[type_]
        if column.fraction and type_ in OLD_TEMPORAL:
            return ColumnKind(kind, column.fraction, OLD_TEMPORAL[type_][column.fraction], 0)
        return ColumnKind(kind, 0, width, 0)
    if type_ in _FRACTION_KINDS:
        kind, width = _FRACTION_KINDS[type_]
        return ColumnKind(kind, metadata, width + (metadata + 1) // 2, 0)
    if type_ == _C.NEWDECIMAL:
        return ColumnKind(ValueKind.DECIMAL, metadata, packed_decimal_size(metadata >> 8, metadata & 0xFF), 0)
    if type_ == _C.BIT:
        return ColumnKind(ValueKind.BIT, metadata, (metadata + 7) // 8, 0)
    if type_ in ENUM_AND_SET:
        return ColumnKind(ValueKind.ENUM if type_ == _C.ENUM else ValueKind.SET, metadata, metadata, 0)
    return ColumnKind(_sized_kind(column), metadata, 0, _length_bytes(column))


def _length_bytes(column: TableMapColumn) -> int:
    if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return 1 if column.metadata < 256 else 2
    return column.metadata


def _sized_kind(column: TableMapColumn) -> ValueKind:
    if column.type in _STRUCTURED_KINDS:
        return _STRUCTURED_KINDS[column.type]
    if column.type in (_C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED):
        return ValueKind.COMPRESSED
    if column.type not in CHARACTER:
        raise MalformedError(f"columns of type {column.type_name} cannot be read", finding_id="unsupported-version")
    if column.logical is not None and column.logical in _LOGICAL_KINDS:
        return _LOGICAL_KINDS[column.logical]
    return _text_kind(column.charset)


def _text_kind(charset: str | None) -> ValueKind:
    if charset is None:
        return ValueKind.GUESS
    if charset == "binary":
        return ValueKind.BYTES
    return ValueKind.UTF8 if charset in ("utf8mb4", "utf8mb3") else ValueKind.TEXT
