"""Parse TABLE_MAP events: columns, types, optional metadata.

See docs/spec/mysql_binlog.md#table_map. The position of each field, and the columns that it applies to, are defined
only here: the parsed map (`TableMap`) and the annotated view (`row_event_byte_ranges`) are both built from them.

Table maps as bytes for the JSON kernels:

    table    number of maps, an unused number, offset of each map's record (0 = left to the general writer)
    record   number of columns, bytes of the table id, then (offset, size) of the texts: object, body, title, names
             then per column: kind, parameter, width, bytes of the length, (offset, size) of its key, offset of its
             values

All numbers are 32 bits, big-endian. Offsets in a record count from its start, the others from the start of the table.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from binlogtool.format_api.format import JsonEncoder
from binlogtool.format_api.json_text_kernels import build_text_table
from binlogtool.format_api.row_output_interfaces import qualify_name
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.values.column_types import (
    CHARACTER,
    CHARACTER_MARIADB,
    ENUM_AND_SET,
    NUMERIC,
    OLD_TEMPORAL,
    WITH_LENGTH_SIZE,
    ColumnEncoding,
    ColumnType,
    DeclaredColumn,
    TableMapColumn,
    ValueKind,
    adapt_encoding_for_kernels,
    charset_of_collation,
    choose_column_encoding,
    get_charset_decoder,
)
from binlogtool.formats.binlog_events.wire_format import BoundedReader

# --- Fields of a TABLE_MAP body ---

_C = ColumnType
NUL_FIELDS = ("db_nul", "table_nul")
REAL_TYPE_BITS = 0x30
"""Bits of the first byte of a STRING's metadata that are all set in a type code; cleared bits belong to the length."""


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
"""Name, bytes `[start, end)` and value of a field; for repeated fields also the index, and the index inside that."""
MapFields = Iterator[MapField]


class OptionalMetadataItem(NamedTuple):
    """One item of optional metadata.

    Attributes:
        code: type of the item.
        value: reader of its bytes.
        types, is_mariadb: see `iter_optional_metadata`.
    """

    code: int
    value: BoundedReader
    types: Sequence[int]
    is_mariadb: bool | None

    @property
    def has_several_fields(self) -> bool:
        """True if the value consists of several fields."""
        value_type = _OPTIONAL_VALUES.get(self.code)
        return value_type is not None and value_type.iter_value is not _iter_bits

    def list_column_indexes(self) -> Sequence[int]:
        """Return the indexes (from 0) of the columns that the item applies to."""
        value_type = _OPTIONAL_VALUES.get(self.code)
        return () if value_type is None else value_type.select_columns(self)

    def iter_value_fields(self, columns: Sequence[int]) -> MapFields:
        """Yield the fields of the value; none if it is empty. Bytes left over belong to no field.

        Args:
            columns: see `columns`.
        """
        value_type = _OPTIONAL_VALUES.get(self.code)
        if not self.value.bytes_left:
            return iter(())
        return _iter_raw(self.value) if value_type is None else value_type.iter_value(self.value, columns)


def _read_field(
    reader: BoundedReader, name: str, read: Callable[..., Any], *arguments: Any, index: int = 0
) -> MapField:
    """Read a field with a method of the reader."""
    offset, value = reader.offset, read(*arguments)
    return name, offset, reader.offset, value, index, 0


def iter_head_fields(reader: BoundedReader, table_id_size: int) -> MapFields:
    """Yield the fields from the table id up to the length of the metadata."""
    yield _read_field(reader, "table_id", reader.read_uint, table_id_size, "the table id")
    yield _read_field(reader, "flags", reader.read_uint, 2, "flags")
    for name, size_name in (("db", "db_len"), ("table", "tbl_len")):
        yield (size := _read_field(reader, size_name, reader.read_uint, 1, f"the length of {name}"))
        yield _read_field(reader, name, reader.read_bytes, size[3], name)
        yield _read_field(reader, f"{name}_nul", reader.read_uint, 1, f"the end of {name}")
    yield (count := _read_field(reader, "n_cols", reader.read_lenenc, "the number of columns"))
    yield _read_field(reader, "types", reader.read_bytes, count[3], "the column types")
    yield _read_field(reader, "meta_len", reader.read_lenenc, "the length of the metadata")


_METADATA_WIDTHS: Mapping[int, tuple[int, str]] = {
    _C.FLOAT: (1, "the size of FLOAT"),
    _C.DOUBLE: (1, "the size of DOUBLE"),
    **dict.fromkeys(WITH_LENGTH_SIZE, (1, "the bytes of a length")),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), (1, "the digits of a fraction")),
    **dict.fromkeys((_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED), (2, "the longest value")),
    _C.BIT: (2, "the bits"),
    _C.NEWDECIMAL: (2, "precision and scale"),
    **dict.fromkeys((_C.STRING, _C.ENUM, _C.SET), (2, "the real type and the length")),
}
_METADATA_BY_CODE = tuple(_METADATA_WIDTHS.get(code, (0, "")) for code in range(256))
"""Size in bytes and meaning of a column's metadata, by type code."""


def get_metadata_size(column_type: int) -> int:
    """Return the size in bytes of the metadata of a column by its type code."""
    return _METADATA_BY_CODE[column_type][0]


def iter_metadata_fields(reader: BoundedReader, types: bytes) -> MapFields:
    """Yield the metadata of each column; the field is empty and 0 if its type has no metadata."""
    for index, code in enumerate(types):
        offset, (width, label) = reader.offset, _METADATA_BY_CODE[code]
        yield "metadata", offset, offset + width, reader.read_uint(width, label) if width else 0, index, 0
    if reader.bytes_left:
        raise MalformedError(f"{reader.bytes_left:,} bytes of metadata belong to no column")


def split_string_metadata(metadata_value: int) -> tuple[int, int]:
    """Return the real type and the length from a STRING's metadata (docs/spec/mysql_binlog.md#table_map)."""
    first, second = metadata_value & 0xFF, metadata_value >> 8
    return first | REAL_TYPE_BITS, second | (first & REAL_TYPE_BITS ^ REAL_TYPE_BITS) << 4


def read_null_bits(reader: BoundedReader, count: int) -> MapField:
    """Read the bitmap of nullable columns: one bit per column, the first column in the lowest bit."""
    return _read_field(reader, "null_bits", reader.read_bytes, (count + 7) // 8, "the nullable bits")


def iter_nullable_bits(bits: bytes, count: int) -> Iterator[bool]:
    """Yield the bits of the nullable bitmap: True if the column may be NULL."""
    return (bool(bits[place >> 3] >> (place & 7) & 1) for place in range(count))


def iter_metadata_bits(bits: bytes, count: int) -> Iterator[bool]:
    """Yield the bits of optional metadata, one per column, highest bit first."""
    return (bool(bits[place >> 3] >> (7 - (place & 7)) & 1) for place in range(count))


# -- optional metadata -------------------------------------------------------------------------------------------------


def iter_optional_metadata(
    reader: BoundedReader, types: Sequence[int], is_mariadb: bool | None
) -> Iterator[MapField | OptionalMetadataItem]:
    """Yield the optional metadata up to the reader's end: of each item its type, its length, then the item.

    Args:
        types: the real types of the columns.
        is_mariadb: whether a MariaDB server wrote it; None = unknown.
    """
    number = 0
    while reader.bytes_left:
        yield (kind := _read_field(reader, "type", reader.read_uint, 1, "the type of optional metadata", index=number))
        yield (size := _read_field(reader, "len", reader.read_lenenc, "the length of optional metadata", index=number))
        yield OptionalMetadataItem(
            kind[3], reader.take_sub_reader(size[3], get_optional_metadata_name(kind[3])), types, is_mariadb
        )
        number += 1


def get_optional_metadata_name(optional_metadata_type: int) -> str:
    """Return the server's name for a type of optional metadata, in lower case."""
    return _OPTIONAL_NAMES.get(optional_metadata_type, "unknown")


def peek_lenenc_numbers(value_reader: BoundedReader) -> list[int]:
    """List all length-encoded numbers of a value without consuming it."""
    copy = BoundedReader(value_reader.data, value_reader.label, value_reader.offset, value_reader.end)
    numbers = []
    while copy.bytes_left:
        numbers.append(copy.read_lenenc())
    return numbers


def _read_number(reader: BoundedReader, name: str, index: int = 0) -> MapField:
    return _read_field(reader, name, reader.read_lenenc, index=index)


def _read_sized_text(reader: BoundedReader, name: str, index: int, number: int, label: str) -> MapField:
    """Read a length and a text as one field."""
    offset, value = reader.offset, reader.read_length_and_bytes(label)
    return name, offset, reader.offset, value, index, number


def _iter_raw(value_reader: BoundedReader) -> MapFields:
    yield _read_field(value_reader, "raw", value_reader.read_bytes, value_reader.bytes_left, "the value")


def _iter_bits(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read one bit per column, highest bit first."""
    yield _read_field(value_reader, "bits", value_reader.read_bytes, (len(columns) + 7) // 8, "bits")


def _iter_numbers(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read one number per column."""
    for index in columns:
        yield _read_number(value_reader, "number", index)


def _iter_column_names(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    for index in columns:
        yield _read_sized_text(value_reader, "text", index, 0, "a column name")


def _iter_enum_texts(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read, for each column, an empty field that marks its start, a count, and that many texts."""
    for index in columns:
        yield "choices", value_reader.offset, value_reader.offset, None, index, 0
        yield (
            counted := _read_field(value_reader, "count", value_reader.read_lenenc, "the number of texts", index=index)
        )
        count = counted[3]
        if count > value_reader.bytes_left:
            text = f"{count:,} texts declared, {value_reader.bytes_left:,} bytes left"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        for number in range(count):
            yield _read_sized_text(value_reader, "choice", index, number, "a text")


def _iter_default_charset(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    """Read the default collation, then pairs: a position among these columns, and the collation of that column."""
    yield _read_number(value_reader, "default")
    yield from _iter_pairs(value_reader, "place", "collation")


def _iter_key(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    number = 0
    while value_reader.bytes_left:
        yield _read_number(value_reader, "key", number)
        number += 1


def _iter_key_with_prefix(value_reader: BoundedReader, columns: Sequence[int]) -> MapFields:
    return _iter_pairs(value_reader, "column", "prefix")


def _iter_pairs(value_reader: BoundedReader, *names: str) -> MapFields:
    number = 0
    while value_reader.bytes_left:
        for name in names:
            yield _read_number(value_reader, name, number)
        number += 1


def _has_mariadb_column_count(metadata_item: OptionalMetadataItem, column_count: int) -> bool:
    """Guess the server from the list: return True if it has more columns than MySQL counts."""
    numbers = peek_lenenc_numbers(metadata_item.value)
    if metadata_item.code == OptionalField.COLUMN_CHARSET:
        return len(numbers) > column_count
    return max(numbers[1::2], default=-1) >= column_count


# --- Optional metadata of TABLE_MAP ---

PrimaryKey = tuple[tuple[int, int], ...]
"""(index of the column from 0, number of its characters in the key; 0 = all)."""


class OptionalMetadata(msgspec.Struct, frozen=True):
    """Parsed optional metadata.

    Attributes:
        members: index of a column -> members of `TableMapColumn`.
        primary_key: see `PrimaryKey`; None = not in the log.
    """

    members: dict[int, dict[str, Any]] = msgspec.field(default_factory=dict)
    primary_key: PrimaryKey | None = None

    def column_members(self, index: int) -> Mapping[str, Any]:
        """Return the members of one column."""
        return self.members.get(index, {})


class _OptionalMetadataParser:
    """Collects the fields. Texts of ENUM and SET stay bytes until their character sets are known."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.members: dict[int, dict[str, Any]] = {}
        self.primary_key: PrimaryKey | None = None
        self.texts: dict[int, list[bytes]] = {}

    def set_member(self, index: int, name: str, value: Any) -> None:
        self.members.setdefault(index, {})[name] = value

    def set_collation(self, index: int, collation: int) -> None:
        self.set_member(index, "collation", collation)
        self.set_member(index, "charset", charset_of_collation(collation))

    def collect_bits(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        """Collect one bit per column."""
        bits = b"".join(bits for _, _, _, bits, _, _ in metadata_item.iter_value_fields(columns))
        _check_count(metadata_item, 8 * len(bits), columns)
        for index, is_set in zip(columns, iter_metadata_bits(bits, len(columns)), strict=True):
            self.set_member(index, member, is_set)

    def collect_default_charset(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        default, *pairs = [number for _, _, _, number, _, _ in metadata_item.iter_value_fields(columns)] or [None]
        if default is None:
            raise MalformedError(f"{metadata_item.value.label}: no default collation")
        others = dict(zip(pairs[::2], pairs[1::2], strict=True))
        for place, index in enumerate(columns):
            self.set_collation(index, others.get(place, default))
        if others and max(others) >= len(columns):
            raise MalformedError(
                f"{metadata_item.value.label}: column {max(others)} of {len(columns)} has a character set"
            )

    def collect_column_charsets(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        count = len(peek_lenenc_numbers(metadata_item.value))
        if count != len(columns):
            raise MalformedError(f"{metadata_item.value.label}: {count} collations for {len(columns)} columns")
        for _, _, _, collation, index, _ in metadata_item.iter_value_fields(columns):
            self.set_collation(index, collation)

    def collect_names(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        fields = list(metadata_item.iter_value_fields(columns))
        _check_count(metadata_item, len(fields), columns)
        for _, _, _, raw, index, _ in fields:
            self.set_member(index, member, raw.decode("utf-8", "backslashreplace"))

    def collect_enum_texts(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        for kind, _, _, raw, index, _ in metadata_item.iter_value_fields(columns):
            if kind == "choices":
                self.texts[index] = []
            elif kind == "choice":
                self.texts[index].append(raw)
        _check_count(metadata_item, len(self.texts.keys() & set(columns)), columns)

    def collect_numbers(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        fields = list(metadata_item.iter_value_fields(columns))
        _check_count(metadata_item, len(fields), columns)
        for _, _, _, number, index, _ in fields:
            self.set_member(index, member, number)

    def collect_primary_key(self, metadata_item: OptionalMetadataItem, columns: Sequence[int], member: str) -> None:
        """Collect the columns of the primary key, and their prefix lengths if `prefix` fields follow them."""
        parts: list[tuple[int, int]] = []
        for kind, _, _, number, _, _ in metadata_item.iter_value_fields(columns):
            if kind == "prefix":
                parts[-1] = parts[-1][0], number
            elif number >= self.count:
                raise MalformedError(f"{metadata_item.value.label}: key column {number} of {self.count} columns")
            else:
                parts.append((number, 0))
        self.primary_key = tuple(parts)

    def finish(self) -> OptionalMetadata:
        for index, texts in self.texts.items():
            decode = get_charset_decoder(self.members.get(index, {}).get("charset"))
            self.set_member(index, "values", tuple(_as_text(decode(raw)) for raw in texts))
        return OptionalMetadata(self.members, self.primary_key)


def _check_count(metadata_item: OptionalMetadataItem, count: int, columns: Sequence[int]) -> None:
    """Reject an item with fewer values than columns: an empty value has no fields even if columns need some."""
    if count < len(columns):
        raise MalformedError(f"{metadata_item.value.label}: no entries for {len(columns):,} columns")


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


_ItemReader = Callable[[_OptionalMetadataParser, OptionalMetadataItem, Sequence[int], str], None]


class _OptionalMetadataType(NamedTuple):
    """Reader of one type of optional metadata.

    Attributes:
        iter_value: yields the fields of a value.
        types: types of the columns that it applies to; None = all columns.
        collect: collects a value for the member `member` of its columns.
    """

    iter_value: Callable[[BoundedReader, Sequence[int]], MapFields]
    types: frozenset[ColumnType] | None
    collect: _ItemReader
    member: str = ""

    def select_columns(self, metadata_item: OptionalMetadataItem) -> Sequence[int]:
        """Return the columns that an item applies to.

        MariaDB counts GEOMETRY among the character columns, MySQL does not.
        """
        types = self.types
        if types is None:
            return range(len(metadata_item.types))
        columns = [index for index, code in enumerate(metadata_item.types) if code in types]
        if types is not CHARACTER:
            return columns
        if (
            _has_mariadb_column_count(metadata_item, len(columns))
            if metadata_item.is_mariadb is None
            else metadata_item.is_mariadb
        ):
            return [index for index, code in enumerate(metadata_item.types) if code in CHARACTER_MARIADB]
        return columns


_F, _P, _V = OptionalField, _OptionalMetadataParser, _OptionalMetadataType
_OPTIONAL_NAMES = {int(kind): kind.name.lower() for kind in OptionalField}
_OPTIONAL_VALUES: Mapping[int, _OptionalMetadataType] = MappingProxyType(
    {
        _F.SIGNEDNESS: _V(_iter_bits, NUMERIC, _P.collect_bits, "unsigned"),
        _F.DEFAULT_CHARSET: _V(_iter_default_charset, CHARACTER, _P.collect_default_charset),
        _F.COLUMN_CHARSET: _V(_iter_numbers, CHARACTER, _P.collect_column_charsets),
        _F.COLUMN_NAME: _V(_iter_column_names, None, _P.collect_names, "name"),
        _F.SET_STR_VALUE: _V(_iter_enum_texts, frozenset({_C.SET}), _P.collect_enum_texts),
        _F.ENUM_STR_VALUE: _V(_iter_enum_texts, frozenset({_C.ENUM}), _P.collect_enum_texts),
        _F.GEOMETRY_TYPE: _V(_iter_numbers, frozenset({_C.GEOMETRY}), _P.collect_numbers, "geometry_type"),
        _F.SIMPLE_PRIMARY_KEY: _V(_iter_key, None, _P.collect_primary_key),
        _F.PRIMARY_KEY_WITH_PREFIX: _V(_iter_key_with_prefix, None, _P.collect_primary_key),
        _F.ENUM_AND_SET_DEFAULT_CHARSET: _V(_iter_default_charset, ENUM_AND_SET, _P.collect_default_charset),
        _F.ENUM_AND_SET_COLUMN_CHARSET: _V(_iter_numbers, ENUM_AND_SET, _P.collect_column_charsets),
        _F.COLUMN_VISIBILITY: _V(_iter_bits, None, _P.collect_bits, "visible"),
        _F.VECTOR_DIMENSIONALITY: _V(_iter_numbers, frozenset({_C.VECTOR}), _P.collect_numbers, "dimension"),
    }
)


def parse_optional_metadata(
    reader: BoundedReader, columns: Sequence[TableMapColumn], is_mariadb: bool | None = None
) -> OptionalMetadata:
    """Parse the optional metadata up to the reader's end; unknown items are skipped by their length.

    Args:
        is_mariadb: whether a MariaDB server wrote it; None = unknown.

    Raises:
        MalformedError: an item does not fit, has extra bytes, or is a duplicate.
    """
    parser = _OptionalMetadataParser(len(columns))
    seen: set[int] = set()
    for item in iter_optional_metadata(reader, [column.type for column in columns], is_mariadb):
        if not isinstance(item, OptionalMetadataItem):
            continue
        value_type = _OPTIONAL_VALUES.get(item.code)
        if value_type is None:
            continue
        if item.code in seen:
            raise MalformedError(f"TABLE_MAP: duplicate optional metadata {OptionalField(item.code).name}")
        seen.add(item.code)
        value_type.collect(parser, item, item.list_column_indexes(), value_type.member)
        if item.value.bytes_left:
            raise MalformedError(f"{item.value.label}: {item.value.bytes_left:,} bytes too many")
    return parser.finish()


# --- TABLE_MAP as values ---

MAX_COLUMNS = 4096
"""Maximum number of columns that any server allows in a table."""

_CACHE_BYTES = 8 << 20
"""Maximum total size of cached maps in bytes; a column counts as 64 bytes."""
UNKNOWN_FRACTIONS = (
    "the rows cannot be decoded: the log does not record the fractional digits of TIME, DATETIME and "
    "TIMESTAMP columns in the "
    "format of MariaDB before 10.1.2; give the CREATE TABLE with --schema"
)
"""Message about rows that do not fit the map, if `TableMap.has_unknown_fractions`."""


DECLARED_FROM_DDL = "from the log's DDL"
"""Value of `declared` for maps whose columns come from DDL statements."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """Parsed TABLE_MAP body.

    Attributes:
        primary_key: (index of the column from 0, prefix length in characters; 0 = whole column), in the key's order;
            None = not in the log.
        body: the bytes from which it was parsed.
        table_id_size: size of the table id in bytes, here and in the row events.
        is_mariadb: whether a MariaDB server wrote it; None = unknown.
        declared: names and other properties of the columns come from earlier statements of the log.
        uncertain: why the column names from these statements are not used, or only assumed; "" = they are certain.
        memo: objects that other modules derive from this map and cache here (decoders); not part of its value.
    """

    table_id: int
    flags: int
    database: str
    table: str
    columns: tuple[TableMapColumn, ...]
    primary_key: PrimaryKey | None
    body: bytes = field(repr=False)
    table_id_size: int = 6
    is_mariadb: bool | None = None
    declared: bool = False
    uncertain: str = ""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)

    @property
    def column_keys(self) -> tuple[str, ...]:
        """Keys of the columns in decoded rows: their names if all are known and distinct, else "@1", "@2", …"""
        names = tuple(column.name for column in self.columns)
        if None in names or len(set(names)) != len(names):
            return tuple(f"@{number}" for number in range(1, len(self.columns) + 1))
        return names  # type: ignore[return-value]

    @property
    def qualified_name(self) -> str:
        """database.table as shown; ambiguous if a name contains a dot, see `full_name`."""
        return f"{self.database}.{self.table}"

    @property
    def full_name(self) -> str:
        """Unambiguous form of `qualified_name`."""
        return qualify_name(self.database, self.table)

    def to_json_body(self) -> dict[str, Any]:
        """Return the map as a JSON-able body, without members that are not in the log."""
        body: dict[str, Any] = {
            "table_id": self.table_id,
            "flags": self.flags,
            "database": self.database,
            "table": self.table,
            **({"declared": DECLARED_FROM_DDL} if self.declared else {}),
            **({"assumed": True} if self.declared and self.uncertain else {}),
            "columns": self._columns_as_json(),
        }
        if self.primary_key is not None:
            keys = self.column_keys
            body["primary_key"] = [
                {"column": keys[index]} | ({"prefix": prefix} if prefix else {}) for index, prefix in self.primary_key
            ]
        return body

    def _columns_as_json(self) -> list[dict[str, Any]]:
        """Return the JSON-able columns; new objects each time, because callers may change them."""
        cached = self.memo.get("shown")
        if cached is None:
            cached = self.memo["shown"] = [_column_as_json(column) for column in self.columns]
        return [
            shown.copy() if column.values is None else shown | {"values": list(column.values)}
            for column, shown in zip(self.columns, cached, strict=True)
        ]

    @property
    def has_unknown_fractions(self) -> bool:
        """True if values may be longer than the log says: MariaDB before 10.1.2 logs no digits of fractions."""
        return bool(self.is_mariadb) and any(c.type in OLD_TEMPORAL and c.fraction is None for c in self.columns)

    def complete_with_declared_columns(self, declared_columns: Sequence[DeclaredColumn]) -> TableMap:
        """Return the map completed by a CREATE TABLE's column definitions; the log's own metadata takes precedence.

        Returns the map itself if the hints do not match these columns: a different number, or different types.

        Args:
            declared_columns: one per column, in order.
        """
        cached = self.memo.get("hinted")
        if cached is not None and cached[0] is declared_columns:
            hinted: TableMap = cached[1]
            return hinted
        usable = len(declared_columns) == len(self.columns) and all(
            map(matches_declared_column, self.columns, declared_columns)
        )
        columns = (
            _complete_with_declared_column(*pair, is_mariadb=bool(self.is_mariadb))
            for pair in zip(self.columns, declared_columns, strict=False)
        )
        hinted = replace(self, columns=tuple(columns), memo={}) if usable else self
        self.memo["hinted"] = (declared_columns, hinted)
        return hinted


def matches_declared_column(column: TableMapColumn, declared_column: DeclaredColumn) -> bool:
    """Return whether a column may have been declared as the hint says."""
    if declared_column.types and column.type not in declared_column.types:
        return False
    if declared_column.nullable is False and column.nullable:
        return False
    return (
        declared_column.metadata is None or column.type != _C.NEWDECIMAL or column.metadata == declared_column.metadata
    )


def _complete_with_declared_column(
    column: TableMapColumn, declared_column: DeclaredColumn, *, is_mariadb: bool
) -> TableMapColumn:
    return structs.replace(
        column,
        fraction=declared_column.fraction if is_mariadb and column.type in OLD_TEMPORAL else None,
        name=column.name if column.name is not None else declared_column.name,
        unsigned=column.unsigned if column.unsigned is not None else declared_column.unsigned,
        charset=column.charset if column.charset is not None else declared_column.charset,
        values=column.values if column.values is not None else declared_column.values,
        logical=declared_column.logical,
        generated=declared_column.generated,
        text=declared_column.text,
    )


_OPTIONAL_MEMBERS = (
    "unsigned", "collation", "charset", "values", "geometry_type", "visible", "dimension",
)  # fmt: skip


def _column_as_json(column: TableMapColumn) -> dict[str, Any]:
    body: dict[str, Any] = {"name": column.name} if column.name is not None else {}
    body |= {"type": column.type_name, "metadata": column.metadata, "nullable": column.nullable}
    for name in _OPTIONAL_MEMBERS:
        value = getattr(column, name)
        if value is not None:
            body[name] = list(value) if name == "values" else value
    if column.logical is not None:
        body["logical"] = column.logical.value
    return body


def get_column_encodings(table_map: TableMap) -> tuple[ColumnEncoding, ...]:
    """Return the encoding of the values of each column, in order (see `column_types.ValueKind`).

    Raises:
        MalformedError: a column has an unknown type.
    """
    cached = table_map.memo.get("kinds")
    if cached is None:
        cached = table_map.memo["kinds"] = tuple(map(choose_column_encoding, table_map.columns))
    kinds: tuple[ColumnEncoding, ...] = cached
    return kinds


_CacheKey = tuple[bytes, int, bool | None]


class _TableMapCache:
    """Cache of parsed maps by body; emptied when it is full."""

    def __init__(self) -> None:
        self.maps: dict[_CacheKey, TableMap] = {}
        self.bytes_left = _CACHE_BYTES

    def add_map(self, key: _CacheKey, table_map: TableMap) -> None:
        cost = len(table_map.body) + 64 * len(table_map.columns)
        if cost > self.bytes_left:
            self.maps.clear()
            self.bytes_left = _CACHE_BYTES
        self.maps[key] = table_map
        self.bytes_left -= cost


_table_map_cache = _TableMapCache()


def parse_table_map(body: bytes | memoryview, table_id_size: int = 6, is_mariadb: bool | None = None) -> TableMap:
    """Parse a TABLE_MAP body (without header and checksum); equal bodies return the same object.

    Args:
        is_mariadb: whether a MariaDB server wrote it; None = unknown. It only matters for the character sets of tables
            with GEOMETRY columns.

    Raises:
        MalformedError: a part of the body does not fit.
    """
    key = (bytes(body), table_id_size, is_mariadb)
    table_map = _table_map_cache.maps.get(key)
    if table_map is None:
        table_map = _parse_table_map_uncached(*key)
        _table_map_cache.add_map(key, table_map)
    return table_map


def _parse_table_map_uncached(body: bytes, table_id_size: int, is_mariadb: bool | None) -> TableMap:
    reader = BoundedReader(body, "TABLE_MAP")
    fields, columns, nullable = _read_required_fields(reader, table_id_size)
    optional = parse_optional_metadata(reader, columns, is_mariadb)
    complete_columns = tuple(
        map(_complete_column, columns, nullable, map(optional.column_members, range(len(columns))))
    )
    database, table = (fields[name].decode("utf-8", "backslashreplace") for name in ("db", "table"))
    key = optional.primary_key
    return TableMap(
        fields["table_id"], fields["flags"], database, table, complete_columns, key, body, table_id_size, is_mariadb
    )


class _RequiredFields(NamedTuple):
    """Fields of a TABLE_MAP before its optional metadata. nullable: whether each column may be NULL."""

    fields: Mapping[str, Any]
    columns: list[TableMapColumn]
    nullable: Iterator[bool]


def _read_required_fields(reader: BoundedReader, table_id_size: int) -> _RequiredFields:
    """Read a TABLE_MAP up to its optional metadata."""
    fields: dict[str, Any] = {}
    for name, start, _, value, _, _ in iter_head_fields(reader, table_id_size):
        if name in _CHECKED_FIELDS:
            _reject_impossible_field(name, start, value)
        fields[name] = value
    types, metadata_reader = fields["types"], reader.take_sub_reader(fields["meta_len"], "metadata")
    columns = [
        _make_column(types[index], value) for _, _, _, value, index, _ in iter_metadata_fields(metadata_reader, types)
    ]
    return _RequiredFields(fields, columns, iter_nullable_bits(read_null_bits(reader, len(types))[3], len(types)))


def validate_required_table_map_fields(body: bytes, table_id_size: int) -> None:
    """Check the fields of a TABLE_MAP before its optional metadata.

    Raises:
        MalformedError: one of them cannot be decoded.
    """
    _read_required_fields(BoundedReader(body, "TABLE_MAP"), table_id_size)


_CHECKED_FIELDS = frozenset(("n_cols", *NUL_FIELDS))


def _reject_impossible_field(name: str, start: int, value: int) -> None:
    """Reject fields that a server refuses but `iter_head_fields` accepts, so that such bodies can still be shown."""
    if name == "n_cols" and value > MAX_COLUMNS:
        text = f"TABLE_MAP declares {value:,} columns, no table has more than {MAX_COLUMNS:,}"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    if name in NUL_FIELDS and value:
        what = name.removesuffix("_nul")
        raise MalformedError(f"TABLE_MAP: {what} does not end with a zero byte (at byte {start})")


def _complete_column(column: TableMapColumn, nullable: bool, members: Mapping[str, Any]) -> TableMapColumn:
    make = TableMapColumn if members else _plain_column
    return make(column.type, column.metadata, nullable, **members)


@lru_cache(4096)
def _plain_column(column_type: int, metadata: int = 0, nullable: bool = True) -> TableMapColumn:
    """Return a column without optional metadata, as in most logs."""
    return TableMapColumn(column_type, metadata, nullable)


def _make_column(column_type: int, metadata: int) -> TableMapColumn:
    """Create a column from its type code and its metadata."""
    if column_type in _STRING_TYPES:
        return _make_string_column(metadata)
    check = _METADATA_CHECKS.get(column_type)
    return _plain_column(column_type, check(metadata) if check else metadata)


def _make_string_column(metadata_value: int) -> TableMapColumn:
    type_, length = split_string_metadata(metadata_value)
    if type_ not in _STRING_TYPES:
        first, second = metadata_value & 0xFF, metadata_value >> 8
        raise MalformedError(f"TABLE_MAP: the metadata {first:02x} {second:02x} of a STRING column names type {type_}")
    max_length = {_C.ENUM: 2, _C.SET: 8}.get(ColumnType(type_))
    if max_length is not None and not 1 <= length <= max_length:
        raise MalformedError(f"TABLE_MAP: values of {length} bytes in a column of type {ColumnType(type_).name}")
    return _plain_column(type_, length)


def _require_range(low: int, high: int, name: str, value: int) -> int:
    if not low <= value <= high:
        raise MalformedError(f"TABLE_MAP: {name} is {value}, not {low} to {high}")
    return value


def _parse_bit_metadata(metadata: int) -> int:
    """Return the number of bits from a BIT column's metadata (bits, bytes). Raises MalformedError: more than 64."""
    bits = (metadata & 0xFF) + 8 * (metadata >> 8)
    if bits > 64:
        raise MalformedError(f"TABLE_MAP: a BIT column of {bits} bits")
    return bits


def _parse_decimal_metadata(metadata: int) -> int:
    """Return precision * 256 + scale from a NEWDECIMAL's metadata. Raises MalformedError: not a possible pair."""
    precision, scale = metadata & 0xFF, metadata >> 8
    if not 0 < precision <= 65 or scale > precision:
        raise MalformedError(f"TABLE_MAP: a NEWDECIMAL column of precision {precision} and scale {scale}")
    return precision << 8 | scale


_check_length_bytes = partial(_require_range, 1, 4, "the bytes of a length")
_check_fraction_digits = partial(_require_range, 0, 6, "the digits of a fraction")
_STRING_TYPES = frozenset(map(int, (_C.STRING, _C.ENUM, _C.SET)))
_METADATA_CHECKS: Mapping[int, Callable[[int], int]] = {
    **dict.fromkeys(WITH_LENGTH_SIZE, _check_length_bytes),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), _check_fraction_digits),
    _C.BIT: _parse_bit_metadata,
    _C.NEWDECIMAL: _parse_decimal_metadata,
}
"""Checks of a column's metadata by column type; metadata of other types is used unchanged."""


# --- Table maps as bytes for the JSON kernels ---

RECORD_HEAD, COLUMN_SIZE = 40, 40
"""Bytes of the head of a record (of a template in `sql.script_writer_with_kernels`), and of each column's entry."""
PAD = bytes(8)
"""Padding after the last text: texts are copied in steps of eight bytes."""

MAX_COMPILED_COLUMNS = 1024
"""Maximum number of columns for the kernels; wider tables are left to the general writer."""

_UNCHECKED_KINDS = frozenset(ValueKind) - {ValueKind.DECIMAL, ValueKind.JSON, ValueKind.COMPRESSED}
"""Kinds that accept any bytes as a value."""


def join_json_kernel_table_maps(records: Sequence[bytes]) -> bytes:
    """Join records (see `encode_json_kernel_table_map`) into a table of maps."""
    at = 8 + 4 * len(records)
    head, parts = [len(records), 0], list[bytes]()
    for record in records:
        head.append(at if record else 0)
        parts.append(record)
        at += len(record)
    return b"".join([struct.pack(f">{len(head)}I", *head), *parts, PAD])


def encode_json_kernel_table_map(
    table_map: TableMap,
    quote: JsonEncoder,
    include_body: bool = True,
    column_keys: frozenset[str] | None = None,
    *,
    rows_only: bool = False,
) -> bytes:
    """Encode the record of a table map; empty if the kernels cannot read the map's rows.

    Args:
        quote: writes a value as JSON.
        include_body: False = the general writer prints the TABLE_MAP event itself.
        column_keys: keys of the columns to write; None = all.
        rows_only: write only the rows of a body.
    """
    try:
        kinds = get_column_encodings(table_map)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS:
        return b""
    texts = TextPool(RECORD_HEAD + COLUMN_SIZE * len(kinds))
    name = quote(table_map.qualified_name)
    title, rows_title = b'{"table_id":%d,"flags":' % table_map.table_id, b',"table":' + name + b',"rows":['
    body = quote(table_map.to_json_body()) if include_body else b""
    head = [len(kinds), table_map.table_id_size]
    for text in (name, b"{}", b'{"flags":', b',"rows":[') if rows_only else (name, body, title, rows_title):
        head += texts.add(text)
    columns = []
    for column, kind, key in zip(table_map.columns, kinds, table_map.column_keys, strict=True):
        kernel_kind, values = adapt_encoding_for_kernels(column, kind), _encode_enum_texts(column, quote)
        if column_keys is None or key in column_keys:
            name_place = texts.add(b"," + quote(key) + b":")
            entry = [*kernel_kind, *name_place, texts.add(values)[0] if values else 0]
        else:
            entry = [*(kernel_kind._replace(kind=0) if kind.kind in _UNCHECKED_KINDS else kernel_kind)]
        columns += entry + [0] * (COLUMN_SIZE // 4 - len(entry))
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + texts.text


def build_row_event_template(table_map: TableMap) -> bytes:
    """Build the template of a table whose rows are written as events; empty if kernels cannot read them."""
    try:
        kinds = get_column_encodings(table_map)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS or not kinds:
        return b""
    head = [len(kinds), 0, 0, 0, RECORD_HEAD + COLUMN_SIZE * len(kinds), len(table_map.body), 0, 0, 0, 0]
    columns = [number for kind in kinds for number in (*kind, 0, 0, 0, 0, 0, 0)]
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + table_map.body + PAD


class TextPool:
    """Concatenated texts; `start`: offset of the first one."""

    def __init__(self, start: int) -> None:
        self._at, self.text = start, b""

    def add(self, text: bytes) -> tuple[int, int]:
        """Append a text; return its offset and size."""
        place = self._at + len(self.text)
        self.text += text
        return place, len(text)


def _encode_enum_texts(column: TableMapColumn, quote: JsonEncoder) -> bytes:
    """Encode the texts of an ENUM or SET by number; empty if they are unknown."""
    return b"" if column.values is None else build_text_table({i: quote(text) for i, text in enumerate(column.values)})
