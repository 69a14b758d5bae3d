"""Parse TABLE_MAP: the table that the following row events are about.

See docs/spec/mysql-mariadb-binlog.md#6-table_map-v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from binlogtool.formats.binlog_events.rows.table_map_fields import (
    NULS,
    head,
    metadata,
    null_bits,
    nullable_of,
    string_type,
)
from binlogtool.formats.binlog_events.rows.table_metadata import PrimaryKey, read_optional
from binlogtool.formats.binlog_events.values.columns import (
    BLOBS,
    OLD_TEMPORAL,
    Column,
    ColumnHint,
    ColumnKind,
    ColumnType,
    column_kind,
)
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.table_names import full_name

MAX_COLUMNS = 4096
"""No server allows more columns in a table."""

_CACHE_ROOM = 8 << 20
"""Bytes of all maps that are kept for the next time that they stand in the log; a column counts as 64."""

_C = ColumnType
UNTOLD = (
    "the rows cannot be decoded: the log does not tell the fractions of TIME, DATETIME and TIMESTAMP columns in the "
    "form of MariaDB before 10.1.2; --schema with the CREATE TABLE does"
)
"""Said of rows that do not fit the map, where `TableMap.untold`."""


DECLARED = "from the log's DDL"
"""Said of maps whose columns are known from there."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """A parsed TABLE_MAP body.

    Attributes:
        primary_key: (index of the column from 0, prefix length in characters; 0 = whole column), in the key's order;
            None = not in the log.
        body: the bytes that it was parsed from.
        table_id_size: bytes of the table id here and in the row events.
        mariadb: whether a MariaDB server wrote it; None = unknown.
        declared: names and other properties of the columns come from earlier statements of the log.
        uncertain: why the column names of these statements are not used; "" = no doubt.
        memo: what other modules derived from this map and cache here (decoders); not part of its value.
    """

    table_id: int
    flags: int
    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: PrimaryKey | None
    body: bytes = field(repr=False)
    table_id_size: int = 6
    mariadb: bool | None = None
    declared: bool = False
    uncertain: str = ""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the columns in decoded rows: their names if all are known and distinct, else "@1", "@2", …"""
        names = tuple(column.name for column in self.columns)
        if None in names or len(set(names)) != len(names):
            return tuple(f"@{number}" for number in range(1, len(self.columns) + 1))
        return names  # type: ignore[return-value]

    @property
    def qualified_name(self) -> str:
        """database.table as a log shows it; ambiguous if a name contains a dot, see `full_name`."""
        return f"{self.database}.{self.table}"

    @property
    def full_name(self) -> str:
        """Unambiguous form of `qualified_name`."""
        return full_name(self.database, self.table)

    def as_body(self) -> dict[str, Any]:
        """Return the map as a JSON-able body, without members that the log does not give."""
        body: dict[str, Any] = {
            "table_id": self.table_id,
            "flags": self.flags,
            "database": self.database,
            "table": self.table,
            **({"declared": DECLARED} if self.declared else {}),
            "columns": self._shown_columns(),
        }
        if self.primary_key is not None:
            keys = self.keys
            body["primary_key"] = [
                {"column": keys[index]} | ({"prefix": prefix} if prefix else {}) for index, prefix in self.primary_key
            ]
        return body

    def _shown_columns(self) -> list[dict[str, Any]]:
        """Return the JSON-able columns; new objects each time, because callers may change them."""
        kept = self.memo.get("shown")
        if kept is None:
            kept = self.memo["shown"] = [_column_body(column) for column in self.columns]
        return [
            shown.copy() if column.values is None else shown | {"values": list(column.values)}
            for column, shown in zip(self.columns, kept, strict=True)
        ]

    @property
    def untold(self) -> bool:
        """True if values may be longer than the log says: fractions of MariaDB before 10.1.2 with unknown digits."""
        return bool(self.mariadb) and any(c.type in OLD_TEMPORAL and c.fraction is None for c in self.columns)

    def with_hints(self, hints: Sequence[ColumnHint]) -> TableMap:
        """Return the map completed by what a CREATE TABLE says of its columns; the log's own metadata takes
        precedence.

        Returns the map itself if the hints are not about these columns: another number, or other types.

        Args:
            hints: one per column, in order.
        """
        kept = self.memo.get("hinted")
        if kept is not None and kept[0] is hints:
            hinted: TableMap = kept[1]
            return hinted
        usable = len(hints) == len(self.columns) and all(map(fits, self.columns, hints))
        columns = (_hinted(*pair, mariadb=bool(self.mariadb)) for pair in zip(self.columns, hints, strict=False))
        hinted = replace(self, columns=tuple(columns), memo={}) if usable else self
        self.memo["hinted"] = (hints, hinted)
        return hinted


def fits(column: Column, hint: ColumnHint) -> bool:
    """Check if a column may have been declared as the hint says."""
    if hint.types and column.type not in hint.types:
        return False
    if hint.nullable is False and column.nullable:
        return False
    return hint.metadata is None or column.type != _C.NEWDECIMAL or column.metadata == hint.metadata


def _hinted(column: Column, hint: ColumnHint, *, mariadb: bool) -> Column:
    return structs.replace(
        column,
        fraction=hint.fraction if mariadb and column.type in OLD_TEMPORAL else None,
        name=column.name if column.name is not None else hint.name,
        unsigned=column.unsigned if column.unsigned is not None else hint.unsigned,
        charset=column.charset if column.charset is not None else hint.charset,
        values=column.values if column.values is not None else hint.values,
        logical=hint.logical,
        generated=hint.generated,
        text=hint.text,
    )


_SHOWN = (
    "unsigned", "collation", "charset", "values", "geometry_type", "visible", "dimension",
)  # fmt: skip


def _column_body(column: Column) -> dict[str, Any]:
    body: dict[str, Any] = {"name": column.name} if column.name is not None else {}
    body |= {"type": column.type_name, "metadata": column.metadata, "nullable": column.nullable}
    for name in _SHOWN:
        value = getattr(column, name)
        if value is not None:
            body[name] = list(value) if name == "values" else value
    if column.logical is not None:
        body["logical"] = column.logical.value
    return body


def column_kinds(table_map: TableMap) -> tuple[ColumnKind, ...]:
    """Return how the values of each column are encoded, in order (see `columns.ValueKind`).

    Raises:
        MalformedError: a column has an unknown type.
    """
    kept = table_map.memo.get("kinds")
    if kept is None:
        kept = table_map.memo["kinds"] = tuple(map(column_kind, table_map.columns))
    kinds: tuple[ColumnKind, ...] = kept
    return kinds


_Key = tuple[bytes, int, bool | None]


class _Cache:
    """Cache of parsed maps by body; emptied when it is full."""

    def __init__(self) -> None:
        self.maps: dict[_Key, TableMap] = {}
        self.room = _CACHE_ROOM

    def keep(self, key: _Key, table_map: TableMap) -> None:
        cost = len(table_map.body) + 64 * len(table_map.columns)
        if cost > self.room:
            self.maps.clear()
            self.room = _CACHE_ROOM
        self.maps[key] = table_map
        self.room -= cost


_cache = _Cache()


def parse_table_map(body: bytes | memoryview, table_id_size: int = 6, mariadb: bool | None = None) -> TableMap:
    """Parse a TABLE_MAP body (without header and checksum); equal bodies return the same object.

    Args:
        mariadb: whether a MariaDB server wrote it; None = unknown. It only matters for the character sets of tables
            with GEOMETRY columns.

    Raises:
        MalformedError: anything that does not fit.
    """
    key = (bytes(body), table_id_size, mariadb)
    known = _cache.maps.get(key)
    if known is None:
        known = _parse(*key)
        _cache.keep(key, known)
    return known


def _parse(body: bytes, table_id_size: int, mariadb: bool | None) -> TableMap:
    reader = Reader(body, "TABLE_MAP")
    found: dict[str, Any] = {}
    for name, start, _, value, _, _ in head(reader, table_id_size):
        if name in _CHECKED:
            _check(name, start, value)
        found[name] = value
    types, part = found["types"], reader.part(found["meta_len"], "metadata")
    columns = [_column(types[index], value) for _, _, _, value, index, _ in metadata(part, types)]
    nullable = nullable_of(null_bits(reader, len(types))[3], len(types))
    optional = read_optional(reader, columns, mariadb)
    joined = tuple(map(_joined, columns, nullable, map(optional.of, range(len(types)))))
    database, table = (found[name].decode("utf-8", "backslashreplace") for name in ("db", "table"))
    key = optional.primary_key
    return TableMap(found["table_id"], found["flags"], database, table, joined, key, body, table_id_size, mariadb)


_CHECKED = frozenset(("n_cols", *NULS))


def _check(name: str, start: int, value: int) -> None:
    """Check a field for what a server refuses but `table_map_fields` accepts, so that bodies can still be shown."""
    if name == "n_cols" and value > MAX_COLUMNS:
        text = f"TABLE_MAP declares {value:,} columns, no table has more than {MAX_COLUMNS:,}"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    if name in NULS and value:
        what = name.removesuffix("_nul")
        raise MalformedError(f"TABLE_MAP: {what} does not end with a zero byte (at byte {start})")


def _joined(column: Column, nullable: bool, more: Mapping[str, Any]) -> Column:
    make = Column if more else _plain
    return make(column.type, column.metadata, nullable, **more)


@lru_cache(4096)
def _plain(type_: int, metadata: int = 0, nullable: bool = True) -> Column:
    """Return a column without optional metadata: most columns of most logs."""
    return Column(type_, metadata, nullable)


def _column(type_: int, value: int) -> Column:
    """Create a column from its type code and its metadata."""
    if type_ in _STRINGS:
        return _string_column(value)
    check = _METADATA.get(type_)
    return _plain(type_, check(value) if check else value)


def _string_column(value: int) -> Column:
    type_, length = string_type(value)
    if type_ not in _STRINGS:
        first, second = value & 0xFF, value >> 8
        raise MalformedError(f"TABLE_MAP: the metadata {first:02x} {second:02x} of a STRING column names type {type_}")
    most = {_C.ENUM: 2, _C.SET: 8}.get(ColumnType(type_))
    if most is not None and not 1 <= length <= most:
        raise MalformedError(f"TABLE_MAP: values of {length} bytes in a column of type {ColumnType(type_).name}")
    return _plain(type_, length)


def _bounded(low: int, high: int, name: str, value: int) -> int:
    if not low <= value <= high:
        raise MalformedError(f"TABLE_MAP: {name} is {value}, not {low} to {high}")
    return value


def _bits(value: int) -> int:
    bits = (value & 0xFF) + 8 * (value >> 8)
    if bits > 64:
        raise MalformedError(f"TABLE_MAP: a BIT column of {bits} bits")
    return bits


def _decimal(value: int) -> int:
    precision, scale = value & 0xFF, value >> 8
    if not 0 < precision <= 65 or scale > precision:
        raise MalformedError(f"TABLE_MAP: a NEWDECIMAL column of precision {precision} and scale {scale}")
    return precision << 8 | scale


_length = partial(_bounded, 1, 4, "the bytes of a length")
_fraction = partial(_bounded, 0, 6, "the digits of a fraction")
_STRINGS = frozenset(map(int, (_C.STRING, _C.ENUM, _C.SET)))
_METADATA: Mapping[int, Callable[[int], int]] = {
    **dict.fromkeys((*BLOBS, _C.GEOMETRY, _C.JSON, _C.VECTOR, _C.BLOB_COMPRESSED), _length),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), _fraction),
    _C.BIT: _bits,
    _C.NEWDECIMAL: _decimal,
}
"""What a column's metadata must be; that of other types is taken as it is."""
