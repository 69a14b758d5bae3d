"""TABLE_MAP field by field, in the order of the body (specification section 6): the one walk that all readers share.

What a table map means (`table_map`, `table_metadata`) and how it is shown byte by byte (`table_map_view`) are made of
these fields; where each stands, and which columns it is about, is said here alone.
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
    """Types of optional metadata."""

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
    """A piece of optional metadata. value: its bytes. types, mariadb: see `optional`."""

    code: int
    value: Reader
    types: Sequence[int]
    mariadb: bool | None

    @property
    def has_parts(self) -> bool:
        """Is its value made of several fields?"""
        known = _VALUES.get(self.code)
        return known is not None and known.walk is not _bits

    def columns(self) -> Sequence[int]:
        """The columns that it is about, counted from 0."""
        known = _VALUES.get(self.code)
        return () if known is None else known.about(self)

    def fields(self, columns: Sequence[int]) -> Fields:
        """The fields of the value; none if it is empty. What they leave (`value.left`) belongs to nothing.

        columns: see `columns`.
        """
        known = _VALUES.get(self.code)
        if not self.value.left:
            return iter(())
        return _raw(self.value) if known is None else known.walk(self.value, columns)


def head(reader: Reader, table_id_size: int) -> Fields:
    """From the table id up to the length of the metadata."""
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
    """A number for each column, 0 where its type has no metadata: such a field takes no bytes."""
    for index, code in enumerate(types):
        at, (width, what) = reader.at, _METADATA[code]
        yield "metadata", at, at + width, reader.uint(width, what) if width else 0, index, 0
    if reader.left:
        raise MalformedError(f"{reader.left:,} bytes of metadata belong to no column")


def string_type(value: int) -> tuple[int, int]:
    """The metadata of a STRING: its real type and its length (section 6, "STRING metadata")."""
    first, second = value & 0xFF, value >> 8
    return first | REAL_TYPE, second | (first & REAL_TYPE ^ REAL_TYPE) << 4


def null_bits(reader: Reader, count: int) -> Field:
    """A bit for each of `count` columns: may it be NULL? The first is the lowest bit."""
    at = reader.at
    return "null_bits", at, at + (count + 7) // 8, reader.take((count + 7) // 8, "the nullable bits"), 0, 0


def nullable_of(bits: bytes, count: int) -> Iterator[bool]:
    """Of each of `count` columns: may it be NULL?"""
    return (bool(bits[place >> 3] >> (place & 7) & 1) for place in range(count))


def bits_of(bits: bytes, count: int) -> Iterator[bool]:
    """The bits of optional metadata, one for each of `count` columns."""
    return (bool(bits[place >> 3] >> (7 - (place & 7)) & 1) for place in range(count))


# -- optional metadata -------------------------------------------------------------------------------------------------


def optional(reader: Reader, types: Sequence[int], mariadb: bool | None) -> Iterator[Field | Item]:
    """The optional metadata up to the reader's end: of each piece its type, its length, and then itself.

    types: the real types of the columns. mariadb: was it written by a MariaDB server? None = not known.
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
    """The specification's name of a type of optional metadata, in small letters."""
    return _NAMES.get(code, "unknown")


def listed(value: Reader) -> list[int]:
    """All length-encoded numbers of a value, which stays as it is."""
    copy = Reader(value.data, value.what, value.at, value.end)
    numbers = []
    while copy.left:
        numbers.append(copy.lenenc())
    return numbers


def _number(reader: Reader, name: str, index: int = 0) -> Field:
    at, value = reader.at, reader.lenenc()
    return name, at, reader.at, value, index, 0


def _text(reader: Reader, name: str, index: int, number: int, what: str) -> Field:
    """A length and text, as one field."""
    at, value = reader.at, reader.sized(what)
    return name, at, reader.at, value, index, number


def _raw(value: Reader) -> Fields:
    at = value.at
    yield "raw", at, value.end, value.take(value.left, "the value"), 0, 0


def _bits(value: Reader, columns: Sequence[int]) -> Fields:
    """A bit for each column, the first is the highest."""
    at, size = value.at, (len(columns) + 7) // 8
    yield "bits", at, at + size, value.take(size, "bits"), 0, 0


def _numbers(value: Reader, columns: Sequence[int]) -> Fields:
    """One number for each column."""
    for index in columns:
        yield _number(value, "number", index)


def _names(value: Reader, columns: Sequence[int]) -> Fields:
    for index in columns:
        yield _text(value, "text", index, 0, "a column name")


def _choices(value: Reader, columns: Sequence[int]) -> Fields:
    """For each column, which a field without bytes begins, a count and that many texts."""
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
    """The default, then pairs of a place among these columns and its own collation."""
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
    """What is known of one type of optional metadata. types: those of the columns that it is about; None = all."""

    walk: Callable[[Reader, Sequence[int]], Fields]
    types: frozenset[ColumnType] | None = None

    def about(self, item: Item) -> Sequence[int]:
        """The columns that it is about. MariaDB counts GEOMETRY among the character columns, MySQL does not."""
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
    """Where the server is not known: are more columns listed than MySQL has?"""
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
