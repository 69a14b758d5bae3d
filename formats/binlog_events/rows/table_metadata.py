"""Parse the optional metadata at the end of TABLE_MAP: signedness, character sets, names, keys.

See docs/spec/mysql_binlog.md#table_map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.rows.table_map_fields import (
    OptionalField,
    OptionalMetadataItem,
    iter_metadata_bits,
    iter_optional_metadata,
    peek_lenenc_numbers,
)
from binlogtool.formats.binlog_events.values.charsets import charset_decoder, charset_of_collation
from binlogtool.formats.binlog_events.values.columns import TableMapColumn
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError

PrimaryKey = tuple[tuple[int, int], ...]
"""(index of the column from 0, characters of it; 0 = all)."""


class OptionalMetadata(msgspec.Struct, frozen=True):
    """The parsed optional metadata.

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

    def read_bits(self, item: OptionalMetadataItem, columns: Sequence[int], name: str) -> None:
        """Read one bit per column."""
        bits = b"".join(bits for _, _, _, bits, _, _ in item.iter_fields(columns))
        _check_count(item, 8 * len(bits), columns)
        for index, is_set in zip(columns, iter_metadata_bits(bits, len(columns)), strict=True):
            self.set_member(index, name, is_set)

    def read_default_charset(self, item: OptionalMetadataItem, columns: Sequence[int]) -> None:
        default, *pairs = [number for _, _, _, number, _, _ in item.iter_fields(columns)] or [None]
        if default is None:
            raise MalformedError(f"{item.value.label}: no default collation")
        others = dict(zip(pairs[::2], pairs[1::2], strict=True))
        for place, index in enumerate(columns):
            self.set_collation(index, others.get(place, default))
        if others and max(others) >= len(columns):
            raise MalformedError(f"{item.value.label}: column {max(others)} of {len(columns)} has a character set")

    def read_column_charsets(self, item: OptionalMetadataItem, columns: Sequence[int]) -> None:
        count = len(peek_lenenc_numbers(item.value))
        if count != len(columns):
            raise MalformedError(f"{item.value.label}: {count} collations for {len(columns)} columns")
        for _, _, _, collation, index, _ in item.iter_fields(columns):
            self.set_collation(index, collation)

    def read_names(self, item: OptionalMetadataItem, columns: Sequence[int]) -> None:
        fields = list(item.iter_fields(columns))
        _check_count(item, len(fields), columns)
        for _, _, _, raw, index, _ in fields:
            self.set_member(index, "name", raw.decode("utf-8", "backslashreplace"))

    def read_choices(self, item: OptionalMetadataItem, columns: Sequence[int]) -> None:
        for kind, _, _, raw, index, _ in item.iter_fields(columns):
            if kind == "choices":
                self.texts[index] = []
            elif kind == "choice":
                self.texts[index].append(raw)
        _check_count(item, len(self.texts.keys() & set(columns)), columns)

    def read_numbers(self, item: OptionalMetadataItem, columns: Sequence[int], name: str) -> None:
        fields = list(item.iter_fields(columns))
        _check_count(item, len(fields), columns)
        for _, _, _, number, index, _ in fields:
            self.set_member(index, name, number)

    def read_key(self, item: OptionalMetadataItem, columns: Sequence[int]) -> None:
        """Read the columns of the primary key, and their prefix lengths if `prefix` fields follow them."""
        parts: list[tuple[int, int]] = []
        for kind, _, _, number, _, _ in item.iter_fields(columns):
            if kind == "prefix":
                parts[-1] = parts[-1][0], number
            elif number >= self.count:
                raise MalformedError(f"{item.value.label}: key column {number} of {self.count} columns")
            else:
                parts.append((number, 0))
        self.primary_key = tuple(parts)

    def finish(self) -> OptionalMetadata:
        for index, texts in self.texts.items():
            decode = charset_decoder(self.members.get(index, {}).get("charset"))
            self.set_member(index, "values", tuple(_as_text(decode(raw)) for raw in texts))
        return OptionalMetadata(self.members, self.primary_key)


def _check_count(item: OptionalMetadataItem, count: int, columns: Sequence[int]) -> None:
    """Refuse an item with fewer values than columns: an empty value has no fields even if columns need some."""
    if count < len(columns):
        raise MalformedError(f"{item.value.label}: nothing for {len(columns):,} columns")


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


_F = OptionalField
_ItemReader = Callable[[_OptionalMetadataParser, OptionalMetadataItem, Sequence[int]], None]


def _bits_reader(name: str) -> _ItemReader:
    return lambda parser, item, columns: parser.read_bits(item, columns, name)


def _numbers_reader(name: str) -> _ItemReader:
    return lambda parser, item, columns: parser.read_numbers(item, columns, name)


_READERS: Mapping[int, _ItemReader] = MappingProxyType(
    {
        _F.SIGNEDNESS: _bits_reader("unsigned"),
        _F.DEFAULT_CHARSET: _OptionalMetadataParser.read_default_charset,
        _F.COLUMN_CHARSET: _OptionalMetadataParser.read_column_charsets,
        _F.COLUMN_NAME: _OptionalMetadataParser.read_names,
        _F.SET_STR_VALUE: _OptionalMetadataParser.read_choices,
        _F.ENUM_STR_VALUE: _OptionalMetadataParser.read_choices,
        _F.GEOMETRY_TYPE: _numbers_reader("geometry_type"),
        _F.SIMPLE_PRIMARY_KEY: _OptionalMetadataParser.read_key,
        _F.PRIMARY_KEY_WITH_PREFIX: _OptionalMetadataParser.read_key,
        _F.ENUM_AND_SET_DEFAULT_CHARSET: _OptionalMetadataParser.read_default_charset,
        _F.ENUM_AND_SET_COLUMN_CHARSET: _OptionalMetadataParser.read_column_charsets,
        _F.COLUMN_VISIBILITY: _bits_reader("visible"),
        _F.VECTOR_DIMENSIONALITY: _numbers_reader("dimension"),
    }
)


def parse_optional_metadata(
    reader: BoundedReader, columns: Sequence[TableMapColumn], mariadb: bool | None = None
) -> OptionalMetadata:
    """Parse the optional metadata up to the reader's end; unknown items are skipped by their length.

    Args:
        mariadb: whether a MariaDB server wrote it; None = unknown.

    Raises:
        MalformedError: an item does not fit, has excess bytes, or is a duplicate.
    """
    parser = _OptionalMetadataParser(len(columns))
    seen: set[int] = set()
    for item in iter_optional_metadata(reader, [column.type for column in columns], mariadb):
        if not isinstance(item, OptionalMetadataItem):
            continue
        read = _READERS.get(item.code)
        if read is None:
            continue
        if item.code in seen:
            raise MalformedError(f"TABLE_MAP: optional metadata {OptionalField(item.code).name} stands there twice")
        seen.add(item.code)
        read(parser, item, item.columns())
        if item.value.bytes_left:
            raise MalformedError(f"{item.value.label}: {item.value.bytes_left:,} bytes too many")
    return parser.finish()
