"""Iterate over the fields of a TABLE_MAP body in file order; the one reader that all others use.

See docs/spec/mysql_binlog.md#table_map. The parsed map (`table_map`, `table_metadata`) and the annotated
view (`table_map_view`) are built from these fields. Where each field is, and which columns it is about, is defined
only here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.values.columns import (
    BLOBS,
    CHARACTER,
    CHARACTER_MARIADB,
    ENUM_AND_SET,
    NUMERIC,
    ColumnType,
)
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError

_C = ColumnType
NUL_FIELDS = ("db_nul", "table_nul")
REAL_TYPE_BITS = 0x30
"""Bits of the first byte of a STRING's metadata that are all set in a type code; what is missing is length."""


class OptionalField(enum.IntEnum):
    """Types of optional metadata (`Table_map_event::Optional_metadata_field_type`)."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13


MapField = tuple[str, int, int, Any, int, int]
"""Name, bytes `[start, end)` and value of a field; of what is there several times, which, and which inside of that."""
MapFields = Iterator[MapField]


class OptionalMetadataItem(NamedTuple):
    """One item of optional metadata.

    Attributes:
        code: its type.
        value: reader of its bytes.
        types, mariadb: see `iter_optional_metadata`.
    """

    code: int
    value: BoundedReader
    types: Sequence[int]
    mariadb: bool | None

    @property
    def has_parts(self) -> bool:
        """True if the value consists of several fields."""
        value_type = _OPTIONAL_VALUES.get(self.code)
        return value_type is not None and value_type.iter_value is not _iter_bits

    def columns(self) -> Sequence[int]:
        """Return the indexes (from 0) of the columns that the item is about."""
        value_type = _OPTIONAL_VALUES.get(self.code)
        return () if value_type is None else value_type.select_columns(self)

    def iter_fields(self, columns: Sequence[int]) -> MapFields:
        """Iterate over the fields of the value; none if it is empty. Bytes left over belong to no field.

        Args:
            columns: see `columns`.
        """
        value_type = _OPTIONAL_VALUES.get(self.code)
        if not self.value.bytes_left:
            return iter(())
        return _iter_raw(self.value) if value_type is None else value_type.iter_value(self.value, columns)


def iter_head_fields(reader: BoundedReader, table_id_size: int) -> MapFields:
    """Iterate over the fields from the table id up to the length of the metadata."""
    offset = reader.offset
    yield "table_id", offset, offset + table_id_size, reader.read_uint(table_id_size, "the table id"), 0, 0
    offset = reader.offset
    yield "flags", offset, offset + 2, reader.read_uint(2, "flags"), 0, 0
    for name, size_name in (("db", "db_len"), ("table", "tbl_len")):
        offset, size = reader.offset, reader.read_uint(1, f"the length of {name}")
        yield size_name, offset, offset + 1, size, 0, 0
        offset = reader.offset
        yield name, offset, offset + size, reader.read_bytes(size, name), 0, 0
        offset = reader.offset
        yield f"{name}_nul", offset, offset + 1, reader.read_uint(1, f"the end of {name}"), 0, 0
    offset, count = reader.offset, reader.read_lenenc("the number of columns")
    yield "n_cols", offset, reader.offset, count, 0, 0
    offset = reader.offset
    yield "types", offset, offset + count, reader.read_bytes(count, "the column types"), 0, 0
    offset, size = reader.offset, reader.read_lenenc("the length of the metadata")
    yield "meta_len", offset, reader.offset, size, 0, 0


_METADATA_WIDTHS: Mapping[int, tuple[int, str]] = {
    _C.FLOAT: (1, "the size of FLOAT"),
    _C.DOUBLE: (1, "the size of DOUBLE"),
    **dict.fromkeys((*BLOBS, _C.GEOMETRY, _C.JSON, _C.VECTOR, _C.BLOB_COMPRESSED), (1, "the bytes of a length")),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), (1, "the digits of a fraction")),
    **dict.fromkeys((_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED), (2, "the longest value")),
    _C.BIT: (2, "the bits"),
    _C.NEWDECIMAL: (2, "precision and scale"),
    **dict.fromkeys((_C.STRING, _C.ENUM, _C.SET), (2, "the real type and the length")),
}
_METADATA_BY_CODE = tuple(_METADATA_WIDTHS.get(code, (0, "")) for code in range(256))
"""By type code: bytes of metadata of a column, and what they are."""


def iter_metadata_fields(reader: BoundedReader, types: bytes) -> MapFields:
    """Iterate over the metadata of each column; the field is empty and 0 if its type has no metadata."""
    for index, code in enumerate(types):
        offset, (width, label) = reader.offset, _METADATA_BY_CODE[code]
        yield "metadata", offset, offset + width, reader.read_uint(width, label) if width else 0, index, 0
    if reader.bytes_left:
        raise MalformedError(f"{reader.bytes_left:,} bytes of metadata belong to no column")


def split_string_metadata(metadata_value: int) -> tuple[int, int]:
    """Return the real type and the length in a STRING's metadata (docs/spec/mysql_binlog.md#table_map)."""
    first, second = metadata_value & 0xFF, metadata_value >> 8
    return first | REAL_TYPE_BITS, second | (first & REAL_TYPE_BITS ^ REAL_TYPE_BITS) << 4


def read_null_bits(reader: BoundedReader, count: int) -> MapField:
    """Read the bitmap of nullable columns: one bit for each of `count` columns, the first is the lowest."""
    offset = reader.offset
    return (
        "null_bits",
        offset,
        offset + (count + 7) // 8,
        reader.read_bytes((count + 7) // 8, "the nullable bits"),
        0,
        0,
    )


def iter_nullable_bits(bits: bytes, count: int) -> Iterator[bool]:
    """Iterate over the bits of the nullable bitmap: True if the column may be NULL."""
    return (bool(bits[place >> 3] >> (place & 7) & 1) for place in range(count))


def iter_metadata_bits(bits: bytes, count: int) -> Iterator[bool]:
    """Iterate over the bits of optional metadata, one for each of `count` columns, highest first."""
    return (bool(bits[place >> 3] >> (7 - (place & 7)) & 1) for place in range(count))


# -- optional metadata -------------------------------------------------------------------------------------------------


def iter_optional_metadata(
    reader: BoundedReader, types: Sequence[int], mariadb: bool | None
) -> Iterator[MapField | OptionalMetadataItem]:
    """Iterate over the optional metadata up to the reader's end: of each item its type, its length, then the item.

    Args:
        types: the real types of the columns.
        mariadb: whether a MariaDB server wrote it; None = unknown.
    """
    number = 0
    while reader.bytes_left:
        offset, code = reader.offset, reader.read_uint(1, "the type of optional metadata")
        yield "type", offset, offset + 1, code, number, 0
        offset, size = reader.offset, reader.read_lenenc("the length of optional metadata")
        yield "len", offset, reader.offset, size, number, 0
        yield OptionalMetadataItem(code, reader.sub_reader(size, optional_name(code)), types, mariadb)
        number += 1


def optional_name(code: int) -> str:
    """Return the server's name of a type of optional metadata, in lower case."""
    return _OPTIONAL_NAMES.get(code, "unknown")


def peek_lenenc_numbers(value: BoundedReader) -> list[int]:
    """List all length-encoded numbers of a value without consuming it."""
    copy = BoundedReader(value.data, value.label, value.offset, value.end)
    numbers = []
    while copy.bytes_left:
        numbers.append(copy.read_lenenc())
    return numbers


def _read_number(reader: BoundedReader, name: str, index: int = 0) -> MapField:
    offset, value = reader.offset, reader.read_lenenc()
    return name, offset, reader.offset, value, index, 0


def _read_text(reader: BoundedReader, name: str, index: int, number: int, label: str) -> MapField:
    """Read a length and a text as one field."""
    offset, value = reader.offset, reader.read_sized(label)
    return name, offset, reader.offset, value, index, number


def _iter_raw(value: BoundedReader) -> MapFields:
    offset = value.offset
    yield "raw", offset, value.end, value.read_bytes(value.bytes_left, "the value"), 0, 0


def _iter_bits(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read one bit for each column, the first is the highest."""
    offset, size = value.offset, (len(columns) + 7) // 8
    yield "bits", offset, offset + size, value.read_bytes(size, "bits"), 0, 0


def _iter_numbers(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read one number for each column."""
    for index in columns:
        yield _read_number(value, "number", index)


def _iter_names(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    for index in columns:
        yield _read_text(value, "text", index, 0, "a column name")


def _iter_choices(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read, for each column, an empty field that marks its start, a count and that many texts."""
    for index in columns:
        yield "choices", value.offset, value.offset, None, index, 0
        offset, count = value.offset, value.read_lenenc("the number of texts")
        yield "count", offset, value.offset, count, index, 0
        if count > value.bytes_left:
            text = f"{count:,} texts declared, {value.bytes_left:,} bytes left"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        for number in range(count):
            yield _read_text(value, "choice", index, number, "a text")


def _iter_default_charset(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read the default collation, then pairs of a position among these columns and its own collation."""
    yield _read_number(value, "default")
    yield from _iter_pairs(value, "place", "collation")


def _iter_key(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    number = 0
    while value.bytes_left:
        yield _read_number(value, "key", number)
        number += 1


def _iter_key_with_prefix(value: BoundedReader, columns: Sequence[int]) -> MapFields:
    return _iter_pairs(value, "column", "prefix")


def _iter_pairs(value: BoundedReader, *names: str) -> MapFields:
    number = 0
    while value.bytes_left:
        for name in names:
            yield _read_number(value, name, number)
        number += 1


class _OptionalValueType(NamedTuple):
    """How one type of optional metadata is read.

    Attributes:
        iter_value: iterates over the fields of a value.
        types: types of the columns that it is about; None = all columns.
    """

    iter_value: Callable[[BoundedReader, Sequence[int]], MapFields]
    types: frozenset[ColumnType] | None = None

    def select_columns(self, item: OptionalMetadataItem) -> Sequence[int]:
        """Return the columns that an item is about.

        MariaDB counts GEOMETRY among the character columns, MySQL does not.
        """
        types = self.types
        if types is None:
            return range(len(item.types))
        columns = [index for index, code in enumerate(item.types) if code in types]
        if types is not CHARACTER:
            return columns
        if _lists_mariadb_columns(item, len(columns)) if item.mariadb is None else item.mariadb:
            return [index for index, code in enumerate(item.types) if code in CHARACTER_MARIADB]
        return columns


def _lists_mariadb_columns(item: OptionalMetadataItem, column_count: int) -> bool:
    """Guess the server from the list: True if it has more columns than MySQL counts."""
    numbers = peek_lenenc_numbers(item.value)
    if item.code == OptionalField.COLUMN_CHARSET:
        return len(numbers) > column_count
    return max(numbers[1::2], default=-1) >= column_count


_F = OptionalField
_OPTIONAL_NAMES = {int(kind): kind.name.lower() for kind in OptionalField}
_OPTIONAL_VALUES: Mapping[int, _OptionalValueType] = MappingProxyType(
    {
        _F.SIGNEDNESS: _OptionalValueType(_iter_bits, NUMERIC),
        _F.DEFAULT_CHARSET: _OptionalValueType(_iter_default_charset, CHARACTER),
        _F.COLUMN_CHARSET: _OptionalValueType(_iter_numbers, CHARACTER),
        _F.COLUMN_NAME: _OptionalValueType(_iter_names),
        _F.SET_STR_VALUE: _OptionalValueType(_iter_choices, frozenset({_C.SET})),
        _F.ENUM_STR_VALUE: _OptionalValueType(_iter_choices, frozenset({_C.ENUM})),
        _F.GEOMETRY_TYPE: _OptionalValueType(_iter_numbers, frozenset({_C.GEOMETRY})),
        _F.SIMPLE_PRIMARY_KEY: _OptionalValueType(_iter_key),
        _F.PRIMARY_KEY_WITH_PREFIX: _OptionalValueType(_iter_key_with_prefix),
        _F.ENUM_AND_SET_DEFAULT_CHARSET: _OptionalValueType(_iter_default_charset, ENUM_AND_SET),
        _F.ENUM_AND_SET_COLUMN_CHARSET: _OptionalValueType(_iter_numbers, ENUM_AND_SET),
        _F.COLUMN_VISIBILITY: _OptionalValueType(_iter_bits),
        _F.VECTOR_DIMENSIONALITY: _OptionalValueType(_iter_numbers, frozenset({_C.VECTOR})),
    }
)
