"""Iterate over the fields of a TABLE_MAP body in file order; the one reader that all others use.

See docs/spec/mysql-mariadb-binlog.md#6-table_map-v. The parsed map (`table_map`, `table_metadata`) and the annotated
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
    CHOICES,
    NUMERIC,
    ColumnType,
)
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError

_C = ColumnType
NULS = ("db_nul", "table_nul")
REAL_TYPE = 0x30
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


Field = tuple[str, int, int, Any, int, int]
"""Name, bytes `[start, end)` and value of a field; of what is there several times, which, and which inside of that."""
Fields = Iterator[Field]


class Item(NamedTuple):
    """One item of optional metadata.

    Attributes:
        code: its type.
        value: reader of its bytes.
        types, mariadb: see `iter_optional_metadata`.
    """

    code: int
    value: Reader
    types: Sequence[int]
    mariadb: bool | None

    @property
    def has_parts(self) -> bool:
        """True if the value consists of several fields."""
        known = _VALUES.get(self.code)
        return known is not None and known.walk is not _bits

    def columns(self) -> Sequence[int]:
        """Return the indexes (from 0) of the columns that the item is about."""
        known = _VALUES.get(self.code)
        return () if known is None else known.about(self)

    def fields(self, columns: Sequence[int]) -> Fields:
        """Iterate over the fields of the value; none if it is empty. Bytes left over belong to no field.

        Args:
            columns: see `columns`.
        """
        known = _VALUES.get(self.code)
        if not self.value.left:
            return iter(())
        return _raw(self.value) if known is None else known.walk(self.value, columns)


def head(reader: Reader, table_id_size: int) -> Fields:
    """Iterate over the fields from the table id up to the length of the metadata."""
    at = reader.at
    yield "table_id", at, at + table_id_size, reader.uint(table_id_size, "the table id"), 0, 0
    at = reader.at
    yield "flags", at, at + 2, reader.uint(2, "flags"), 0, 0
    for name, size_name in (("db", "db_len"), ("table", "tbl_len")):
        at, size = reader.at, reader.uint(1, f"the length of {name}")
        yield size_name, at, at + 1, size, 0, 0
        at = reader.at
        yield name, at, at + size, reader.take(size, name), 0, 0
        at = reader.at
        yield f"{name}_nul", at, at + 1, reader.uint(1, f"the end of {name}"), 0, 0
    at, count = reader.at, reader.lenenc("the number of columns")
    yield "n_cols", at, reader.at, count, 0, 0
    at = reader.at
    yield "types", at, at + count, reader.take(count, "the column types"), 0, 0
    at, size = reader.at, reader.lenenc("the length of the metadata")
    yield "meta_len", at, reader.at, size, 0, 0


_KINDS: Mapping[int, tuple[int, str]] = {
    _C.FLOAT: (1, "the size of FLOAT"),
    _C.DOUBLE: (1, "the size of DOUBLE"),
    **dict.fromkeys((*BLOBS, _C.GEOMETRY, _C.JSON, _C.VECTOR, _C.BLOB_COMPRESSED), (1, "the bytes of a length")),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), (1, "the digits of a fraction")),
    **dict.fromkeys((_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED), (2, "the longest value")),
    _C.BIT: (2, "the bits"),
    _C.NEWDECIMAL: (2, "precision and scale"),
    **dict.fromkeys((_C.STRING, _C.ENUM, _C.SET), (2, "the real type and the length")),
}
_METADATA = tuple(_KINDS.get(code, (0, "")) for code in range(256))
"""By type code: bytes of metadata of a column, and what they are."""


def metadata(reader: Reader, types: bytes) -> Fields:
    """Iterate over the metadata of each column; the field is empty and 0 if its type has no metadata."""
    for index, code in enumerate(types):
        at, (width, what) = reader.at, _METADATA[code]
        yield "metadata", at, at + width, reader.uint(width, what) if width else 0, index, 0
    if reader.left:
        raise MalformedError(f"{reader.left:,} bytes of metadata belong to no column")


def string_type(value: int) -> tuple[int, int]:
    """Return the real type and the length in a STRING's metadata (docs/spec/mysql-mariadb-binlog.md#6-table_map-v)."""
    first, second = value & 0xFF, value >> 8
    return first | REAL_TYPE, second | (first & REAL_TYPE ^ REAL_TYPE) << 4


def null_bits(reader: Reader, count: int) -> Field:
    """Read the bitmap of nullable columns: one bit for each of `count` columns, the first is the lowest."""
    at = reader.at
    return "null_bits", at, at + (count + 7) // 8, reader.take((count + 7) // 8, "the nullable bits"), 0, 0


def nullable_of(bits: bytes, count: int) -> Iterator[bool]:
    """Iterate over the bits of the nullable bitmap: True if the column may be NULL."""
    return (bool(bits[place >> 3] >> (place & 7) & 1) for place in range(count))


def bits_of(bits: bytes, count: int) -> Iterator[bool]:
    """Iterate over the bits of optional metadata, one for each of `count` columns, highest first."""
    return (bool(bits[place >> 3] >> (7 - (place & 7)) & 1) for place in range(count))


# -- optional metadata -------------------------------------------------------------------------------------------------


def optional(reader: Reader, types: Sequence[int], mariadb: bool | None) -> Iterator[Field | Item]:
    """Iterate over the optional metadata up to the reader's end: of each item its type, its length, then the item.

    Args:
        types: the real types of the columns.
        mariadb: whether a MariaDB server wrote it; None = unknown.
    """
    number = 0
    while reader.left:
        at, code = reader.at, reader.uint(1, "the type of optional metadata")
        yield "type", at, at + 1, code, number, 0
        at, size = reader.at, reader.lenenc("the length of optional metadata")
        yield "len", at, reader.at, size, number, 0
        yield Item(code, reader.part(size, optional_name(code)), types, mariadb)
        number += 1


def optional_name(code: int) -> str:
    """Return the server's name of a type of optional metadata, in lower case."""
    return _NAMES.get(code, "unknown")


def listed(value: Reader) -> list[int]:
    """List all length-encoded numbers of a value without consuming it."""
    copy = Reader(value.data, value.what, value.at, value.end)
    numbers = []
    while copy.left:
        numbers.append(copy.lenenc())
    return numbers


def _number(reader: Reader, name: str, index: int = 0) -> Field:
    at, value = reader.at, reader.lenenc()
    return name, at, reader.at, value, index, 0


def _text(reader: Reader, name: str, index: int, number: int, what: str) -> Field:
    """Read a length and a text as one field."""
    at, value = reader.at, reader.sized(what)
    return name, at, reader.at, value, index, number


def _raw(value: Reader) -> Fields:
    at = value.at
    yield "raw", at, value.end, value.take(value.left, "the value"), 0, 0


def _bits(value: Reader, columns: Sequence[int]) -> Fields:
    """Read one bit for each column, the first is the highest."""
    at, size = value.at, (len(columns) + 7) // 8
    yield "bits", at, at + size, value.take(size, "bits"), 0, 0


def _numbers(value: Reader, columns: Sequence[int]) -> Fields:
    """Read one number for each column."""
    for index in columns:
        yield _number(value, "number", index)


def _names(value: Reader, columns: Sequence[int]) -> Fields:
    for index in columns:
        yield _text(value, "text", index, 0, "a column name")


def _choices(value: Reader, columns: Sequence[int]) -> Fields:
    """Read, for each column, an empty field that marks its start, a count and that many texts."""
    for index in columns:
        yield "choices", value.at, value.at, None, index, 0
        at, count = value.at, value.lenenc("the number of texts")
        yield "count", at, value.at, count, index, 0
        if count > value.left:
            text = f"{count:,} texts declared, {value.left:,} bytes left"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        for number in range(count):
            yield _text(value, "choice", index, number, "a text")


def _default(value: Reader, columns: Sequence[int]) -> Fields:
    """Read the default collation, then pairs of a position among these columns and its own collation."""
    yield _number(value, "default")
    yield from _pairs(value, "place", "collation")


def _key(value: Reader, columns: Sequence[int]) -> Fields:
    number = 0
    while value.left:
        yield _number(value, "key", number)
        number += 1


def _key_with_prefix(value: Reader, columns: Sequence[int]) -> Fields:
    return _pairs(value, "column", "prefix")


def _pairs(value: Reader, *names: str) -> Fields:
    number = 0
    while value.left:
        for name in names:
            yield _number(value, name, number)
        number += 1


class _Value(NamedTuple):
    """How one type of optional metadata is read.

    Attributes:
        iter_value: iterates over the fields of a value.
        types: types of the columns that it is about; None = all columns.
    """

    walk: Callable[[Reader, Sequence[int]], Fields]
    types: frozenset[ColumnType] | None = None

    def about(self, item: Item) -> Sequence[int]:
        """Return the columns that an item is about.

        MariaDB counts GEOMETRY among the character columns, MySQL does not.
        """
        types = self.types
        if types is None:
            return range(len(item.types))
        columns = [index for index, code in enumerate(item.types) if code in types]
        if types is not CHARACTER:
            return columns
        if _lists_more(item, len(columns)) if item.mariadb is None else item.mariadb:
            return [index for index, code in enumerate(item.types) if code in CHARACTER_MARIADB]
        return columns


def _lists_more(item: Item, columns: int) -> bool:
    """Guess the server from the list: True if it has more columns than MySQL counts."""
    numbers = listed(item.value)
    if item.code == OptionalField.COLUMN_CHARSET:
        return len(numbers) > columns
    return max(numbers[1::2], default=-1) >= columns


_F = OptionalField
_NAMES = {int(kind): kind.name.lower() for kind in OptionalField}
_VALUES: Mapping[int, _Value] = MappingProxyType(
    {
        _F.SIGNEDNESS: _Value(_bits, NUMERIC),
        _F.DEFAULT_CHARSET: _Value(_default, CHARACTER),
        _F.COLUMN_CHARSET: _Value(_numbers, CHARACTER),
        _F.COLUMN_NAME: _Value(_names),
        _F.SET_STR_VALUE: _Value(_choices, frozenset({_C.SET})),
        _F.ENUM_STR_VALUE: _Value(_choices, frozenset({_C.ENUM})),
        _F.GEOMETRY_TYPE: _Value(_numbers, frozenset({_C.GEOMETRY})),
        _F.SIMPLE_PRIMARY_KEY: _Value(_key),
        _F.PRIMARY_KEY_WITH_PREFIX: _Value(_key_with_prefix),
        _F.ENUM_AND_SET_DEFAULT_CHARSET: _Value(_default, CHOICES),
        _F.ENUM_AND_SET_COLUMN_CHARSET: _Value(_numbers, CHOICES),
        _F.COLUMN_VISIBILITY: _Value(_bits),
        _F.VECTOR_DIMENSIONALITY: _Value(_numbers, frozenset({_C.VECTOR})),
    }
)
