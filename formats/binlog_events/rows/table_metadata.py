"""The optional metadata at the end of TABLE_MAP: signedness, character sets, names, keys (specification section 6)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.values.charsets import charset_of, decoder_of
from binlogtool.formats.binlog_events.values.columns import (
    CHARACTER,
    CHARACTER_MARIADB,
    CHOICES,
    NUMERIC,
    Column,
    ColumnType,
)
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError

PrimaryKey = tuple[tuple[int, int], ...]
"""(index of the column from 0, characters of it; 0 = all)."""


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


class Optional(msgspec.Struct, frozen=True):
    """What was found. members: index of a column -> members of `Column`."""

    members: dict[int, dict[str, Any]] = msgspec.field(default_factory=dict)
    primary_key: PrimaryKey | None = None

    def of(self, index: int) -> Mapping[str, Any]:
        """The members of one column."""
        return self.members.get(index, {})


class _Parser:
    """Collects the fields. Texts of ENUM and SET are kept as bytes until their character sets are known."""

    def __init__(self, columns: Sequence[Column], mariadb: bool | None) -> None:
        self.columns = columns
        self.mariadb = mariadb
        self.members: dict[int, dict[str, Any]] = {}
        self.primary_key: PrimaryKey | None = None
        self.texts: dict[int, tuple[bytes, ...]] = {}

    def indexes(self, types: frozenset[int] | frozenset[ColumnType] | None = None) -> list[int]:
        return [index for index, column in enumerate(self.columns) if types is None or column.type in types]

    def put(self, index: int, name: str, value: Any) -> None:
        self.members.setdefault(index, {})[name] = value

    def put_collation(self, index: int, collation: int) -> None:
        self.put(index, "collation", collation)
        self.put(index, "charset", charset_of(collation))

    def bits(self, reader: Reader, indexes: list[int], name: str) -> None:
        """One bit per column, the highest bit of a byte first."""
        raw = reader.take((len(indexes) + 7) // 8, "bits")
        for place, index in enumerate(indexes):
            self.put(index, name, bool(raw[place >> 3] >> (7 - (place & 7)) & 1))

    def default_charset(self, reader: Reader, choices: bool = False) -> None:
        default = reader.lenenc("the default collation")
        others: dict[int, int] = {}
        while reader.left:
            place = reader.lenenc("the number of a column")
            others[place] = reader.lenenc("a collation")
        indexes = self.with_collation(max(others, default=-1) + 1, choices)
        for place, index in enumerate(indexes):
            self.put_collation(index, others.get(place, default))
        if others and max(others) >= len(indexes):
            raise MalformedError(f"{reader.what}: column {max(others)} of {len(indexes)} has a character set")

    def column_charset(self, reader: Reader, choices: bool = False) -> None:
        collations = []
        while reader.left:
            collations.append(reader.lenenc("a collation"))
        indexes = self.with_collation(len(collations), choices)
        if len(indexes) != len(collations):
            raise MalformedError(f"{reader.what}: {len(collations)} collations for {len(indexes)} columns")
        for index, collation in zip(indexes, collations, strict=True):
            self.put_collation(index, collation)

    def with_collation(self, least: int, choices: bool) -> list[int]:
        """The columns that a collation is listed for. MariaDB counts GEOMETRY among them, MySQL does not: where the
        server is not known, `least` of them decide."""
        if choices:
            return self.indexes(CHOICES)
        mysql, mariadb = self.indexes(CHARACTER), self.indexes(CHARACTER_MARIADB)
        if self.mariadb is None:
            return mariadb if least > len(mysql) else mysql
        return mariadb if self.mariadb else mysql

    def names(self, reader: Reader) -> None:
        for index in self.indexes():
            self.put(index, "name", reader.sized("a column name").decode("utf-8", "backslashreplace"))

    def choices(self, reader: Reader, indexes: list[int]) -> None:
        for index in indexes:
            count = reader.lenenc("the number of texts")
            if count > reader.left:
                text = f"{reader.what}: {count:,} texts declared, {reader.left:,} bytes are left"
                raise MalformedError(text, finding_id="count-out-of-bounds")
            self.texts[index] = tuple(reader.sized("a text") for _ in range(count))

    def numbers(self, reader: Reader, indexes: list[int], name: str) -> None:
        for index in indexes:
            self.put(index, name, reader.lenenc(name))

    def key(self, reader: Reader, with_prefix: bool) -> None:
        parts = []
        while reader.left:
            index = reader.lenenc("a key column")
            if index >= len(self.columns):
                raise MalformedError(f"{reader.what}: key column {index} of {len(self.columns)} columns")
            parts.append((index, reader.lenenc("a key prefix") if with_prefix else 0))
        self.primary_key = tuple(parts)

    def finish(self) -> Optional:
        for index, texts in self.texts.items():
            decode = decoder_of(self.members.get(index, {}).get("charset"))
            self.put(index, "values", tuple(_text(decode(raw)) for raw in texts))
        return Optional(self.members, self.primary_key)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


_F = OptionalField
_ENUM, _SET = frozenset({ColumnType.ENUM}), frozenset({ColumnType.SET})
_GEOMETRY, _VECTOR = frozenset({ColumnType.GEOMETRY}), frozenset({ColumnType.VECTOR})

_READERS: Mapping[int, Callable[[_Parser, Reader], None]] = MappingProxyType(
    {
        _F.SIGNEDNESS: lambda parser, reader: parser.bits(reader, parser.indexes(NUMERIC), "unsigned"),
        _F.DEFAULT_CHARSET: lambda parser, reader: parser.default_charset(reader),
        _F.COLUMN_CHARSET: lambda parser, reader: parser.column_charset(reader),
        _F.COLUMN_NAME: lambda parser, reader: parser.names(reader),
        _F.SET_STR_VALUE: lambda parser, reader: parser.choices(reader, parser.indexes(_SET)),
        _F.ENUM_STR_VALUE: lambda parser, reader: parser.choices(reader, parser.indexes(_ENUM)),
        _F.GEOMETRY_TYPE: lambda parser, reader: parser.numbers(reader, parser.indexes(_GEOMETRY), "geometry_type"),
        _F.SIMPLE_PRIMARY_KEY: lambda parser, reader: parser.key(reader, False),
        _F.PRIMARY_KEY_WITH_PREFIX: lambda parser, reader: parser.key(reader, True),
        _F.ENUM_AND_SET_DEFAULT_CHARSET: lambda parser, reader: parser.default_charset(reader, choices=True),
        _F.ENUM_AND_SET_COLUMN_CHARSET: lambda parser, reader: parser.column_charset(reader, choices=True),
        _F.COLUMN_VISIBILITY: lambda parser, reader: parser.bits(reader, parser.indexes(), "visible"),
        _F.VECTOR_DIMENSIONALITY: lambda parser, reader: parser.numbers(reader, parser.indexes(_VECTOR), "dimension"),
    }
)


def read_optional(reader: Reader, columns: Sequence[Column], mariadb: bool | None = None) -> Optional:
    """Reads the fields up to the reader's end; unknown ones are skipped by their length. mariadb: None = not known.

    Raises:
        MalformedError: a field does not fit, has bytes too many, or stands there twice.
    """
    parser = _Parser(columns, mariadb)
    seen: set[int] = set()
    while reader.left:
        type_ = reader.uint(1, "the type of optional metadata")
        value = reader.part(reader.lenenc("the length of optional metadata"), f"optional metadata {type_}")
        read = _READERS.get(type_)
        if read is None:
            continue
        if type_ in seen:
            raise MalformedError(f"TABLE_MAP: optional metadata {OptionalField(type_).name} stands there twice")
        seen.add(type_)
        read(parser, value)
        if value.left:
            raise MalformedError(f"{value.what} ({OptionalField(type_).name}): {value.left:,} bytes too many")
    return parser.finish()
