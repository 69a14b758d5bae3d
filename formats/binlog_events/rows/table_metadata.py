"""Parse the optional metadata at the end of TABLE_MAP: signedness, character sets, names, keys.

See docs/spec/mysql-mariadb-binlog.md#6-table_map-v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.rows.table_map_fields import Item, OptionalField, bits_of, listed, optional
from binlogtool.formats.binlog_events.values.charsets import charset_of, decoder_of
from binlogtool.formats.binlog_events.values.columns import Column
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError

PrimaryKey = tuple[tuple[int, int], ...]
"""(index of the column from 0, characters of it; 0 = all)."""


class Optional(msgspec.Struct, frozen=True):
    """The parsed optional metadata.

    Attributes:
        members: index of a column -> members of `TableMapColumn`.
        primary_key: see `PrimaryKey`; None = not in the log.
    """

    members: dict[int, dict[str, Any]] = msgspec.field(default_factory=dict)
    primary_key: PrimaryKey | None = None

    def of(self, index: int) -> Mapping[str, Any]:
        """Return the members of one column."""
        return self.members.get(index, {})


class _Parser:
    """Collects the fields. Texts of ENUM and SET stay bytes until their character sets are known."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.members: dict[int, dict[str, Any]] = {}
        self.primary_key: PrimaryKey | None = None
        self.texts: dict[int, list[bytes]] = {}

    def put(self, index: int, name: str, value: Any) -> None:
        self.members.setdefault(index, {})[name] = value

    def put_collation(self, index: int, collation: int) -> None:
        self.put(index, "collation", collation)
        self.put(index, "charset", charset_of(collation))

    def bits(self, item: Item, columns: Sequence[int], name: str) -> None:
        """Read one bit per column."""
        bits = b"".join(bits for _, _, _, bits, _, _ in item.fields(columns))
        _all_there(item, 8 * len(bits), columns)
        for index, is_set in zip(columns, bits_of(bits, len(columns)), strict=True):
            self.put(index, name, is_set)

    def default_charset(self, item: Item, columns: Sequence[int]) -> None:
        default, *pairs = [number for _, _, _, number, _, _ in item.fields(columns)] or [None]
        if default is None:
            raise MalformedError(f"{item.value.what}: no default collation")
        others = dict(zip(pairs[::2], pairs[1::2], strict=True))
        for place, index in enumerate(columns):
            self.put_collation(index, others.get(place, default))
        if others and max(others) >= len(columns):
            raise MalformedError(f"{item.value.what}: column {max(others)} of {len(columns)} has a character set")

    def column_charset(self, item: Item, columns: Sequence[int]) -> None:
        count = len(listed(item.value))
        if count != len(columns):
            raise MalformedError(f"{item.value.what}: {count} collations for {len(columns)} columns")
        for _, _, _, collation, index, _ in item.fields(columns):
            self.put_collation(index, collation)

    def names(self, item: Item, columns: Sequence[int]) -> None:
        fields = list(item.fields(columns))
        _all_there(item, len(fields), columns)
        for _, _, _, raw, index, _ in fields:
            self.put(index, "name", raw.decode("utf-8", "backslashreplace"))

    def choices(self, item: Item, columns: Sequence[int]) -> None:
        for kind, _, _, raw, index, _ in item.fields(columns):
            if kind == "choices":
                self.texts[index] = []
            elif kind == "choice":
                self.texts[index].append(raw)
        _all_there(item, len(self.texts.keys() & set(columns)), columns)

    def numbers(self, item: Item, columns: Sequence[int], name: str) -> None:
        fields = list(item.fields(columns))
        _all_there(item, len(fields), columns)
        for _, _, _, number, index, _ in fields:
            self.put(index, name, number)

    def key(self, item: Item, columns: Sequence[int]) -> None:
        """Read the columns of the primary key, and their prefix lengths if `prefix` fields follow them."""
        parts: list[tuple[int, int]] = []
        for kind, _, _, number, _, _ in item.fields(columns):
            if kind == "prefix":
                parts[-1] = parts[-1][0], number
            elif number >= self.count:
                raise MalformedError(f"{item.value.what}: key column {number} of {self.count} columns")
            else:
                parts.append((number, 0))
        self.primary_key = tuple(parts)

    def finish(self) -> Optional:
        for index, texts in self.texts.items():
            decode = decoder_of(self.members.get(index, {}).get("charset"))
            self.put(index, "values", tuple(_text(decode(raw)) for raw in texts))
        return Optional(self.members, self.primary_key)


def _all_there(item: Item, count: int, columns: Sequence[int]) -> None:
    """Refuse an item with fewer values than columns: an empty value has no fields even if columns need some."""
    if count < len(columns):
        raise MalformedError(f"{item.value.what}: nothing for {len(columns):,} columns")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


_F = OptionalField
_Read = Callable[[_Parser, Item, Sequence[int]], None]


def _bits(name: str) -> _Read:
    return lambda parser, item, columns: parser.bits(item, columns, name)


def _numbers(name: str) -> _Read:
    return lambda parser, item, columns: parser.numbers(item, columns, name)


_READERS: Mapping[int, _Read] = MappingProxyType(
    {
        _F.SIGNEDNESS: _bits("unsigned"),
        _F.DEFAULT_CHARSET: _Parser.default_charset,
        _F.COLUMN_CHARSET: _Parser.column_charset,
        _F.COLUMN_NAME: _Parser.names,
        _F.SET_STR_VALUE: _Parser.choices,
        _F.ENUM_STR_VALUE: _Parser.choices,
        _F.GEOMETRY_TYPE: _numbers("geometry_type"),
        _F.SIMPLE_PRIMARY_KEY: _Parser.key,
        _F.PRIMARY_KEY_WITH_PREFIX: _Parser.key,
        _F.ENUM_AND_SET_DEFAULT_CHARSET: _Parser.default_charset,
        _F.ENUM_AND_SET_COLUMN_CHARSET: _Parser.column_charset,
        _F.COLUMN_VISIBILITY: _bits("visible"),
        _F.VECTOR_DIMENSIONALITY: _numbers("dimension"),
    }
)


def read_optional(reader: Reader, columns: Sequence[Column], mariadb: bool | None = None) -> Optional:
    """Parse the optional metadata up to the reader's end; unknown items are skipped by their length.

    Args:
        mariadb: whether a MariaDB server wrote it; None = unknown.

    Raises:
        MalformedError: an item does not fit, has excess bytes, or is a duplicate.
    """
    parser = _Parser(len(columns))
    seen: set[int] = set()
    for item in optional(reader, [column.type for column in columns], mariadb):
        if not isinstance(item, Item):
            continue
        read = _READERS.get(item.code)
        if read is None:
            continue
        if item.code in seen:
            raise MalformedError(f"TABLE_MAP: optional metadata {OptionalField(item.code).name} stands there twice")
        seen.add(item.code)
        read(parser, item, item.columns())
        if item.value.left:
            raise MalformedError(f"{item.value.what}: {item.value.left:,} bytes too many")
    return parser.finish()
