"""Parse TABLE_MAP: the table that the following row events are about.

See docs/spec/mysql_binlog.md#table_map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from binlogtool.formats.binlog_events.rows.table_map_fields import (
    NUL_FIELDS,
    iter_head_fields,
    iter_metadata_fields,
    iter_nullable_bits,
    read_null_bits,
    split_string_metadata,
)
from binlogtool.formats.binlog_events.rows.table_metadata import PrimaryKey, parse_optional_metadata
from binlogtool.formats.binlog_events.values.columns import (
    BLOBS,
    OLD_TEMPORAL,
    ColumnHint,
    ColumnKind,
    ColumnType,
    TableMapColumn,
    column_kind,
)
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.table_names import qualify_name

MAX_COLUMNS = 4096
"""No server allows more columns in a table."""

_CACHE_BYTES = 8 << 20
"""Bytes of all maps that are kept for the next time that they stand in the log; a column counts as 64."""

_C = ColumnType
UNKNOWN_FRACTIONS = (
    "the rows cannot be decoded: the log does not tell the fractions of TIME, DATETIME and TIMESTAMP columns in the "
    "form of MariaDB before 10.1.2; --schema with the CREATE TABLE does"
)
"""Said of rows that do not fit the map, where `TableMap.has_unknown_fractions`."""


DECLARED_FROM_DDL = "from the log's DDL"
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
    columns: tuple[TableMapColumn, ...]
    primary_key: PrimaryKey | None
    body: bytes = field(repr=False)
    table_id_size: int = 6
    mariadb: bool | None = None
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
        """database.table as a log shows it; ambiguous if a name contains a dot, see `full_name`."""
        return f"{self.database}.{self.table}"

    @property
    def full_name(self) -> str:
        """Unambiguous form of `qualified_name`."""
        return qualify_name(self.database, self.table)

    def as_body(self) -> dict[str, Any]:
        """Return the map as a JSON-able body, without members that the log does not give."""
        body: dict[str, Any] = {
            "table_id": self.table_id,
            "flags": self.flags,
            "database": self.database,
            "table": self.table,
            **({"declared": DECLARED_FROM_DDL} if self.declared else {}),
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
        """True if values may be longer than the log says: fractions of MariaDB before 10.1.2 with unknown digits."""
        return bool(self.mariadb) and any(c.type in OLD_TEMPORAL and c.fraction is None for c in self.columns)

    def with_hints(self, hints: Sequence[ColumnHint]) -> TableMap:
        """Return the map completed by what a CREATE TABLE says of its columns; the log's own metadata takes
        precedence.

        Returns the map itself if the hints are not about these columns: another number, or other types.

        Args:
            hints: one per column, in order.
        """
        cached = self.memo.get("hinted")
        if cached is not None and cached[0] is hints:
            hinted: TableMap = cached[1]
            return hinted
        usable = len(hints) == len(self.columns) and all(map(matches_hint, self.columns, hints))
        columns = (_apply_hint(*pair, mariadb=bool(self.mariadb)) for pair in zip(self.columns, hints, strict=False))
        hinted = replace(self, columns=tuple(columns), memo={}) if usable else self
        self.memo["hinted"] = (hints, hinted)
        return hinted


def matches_hint(column: TableMapColumn, hint: ColumnHint) -> bool:
    """Check if a column may have been declared as the hint says."""
    if hint.types and column.type not in hint.types:
        return False
    if hint.nullable is False and column.nullable:
        return False
    return hint.metadata is None or column.type != _C.NEWDECIMAL or column.metadata == hint.metadata


def _apply_hint(column: TableMapColumn, hint: ColumnHint, *, mariadb: bool) -> TableMapColumn:
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


def column_kinds(table_map: TableMap) -> tuple[ColumnKind, ...]:
    """Return how the values of each column are encoded, in order (see `columns.ValueKind`).

    Raises:
        MalformedError: a column has an unknown type.
    """
    cached = table_map.memo.get("kinds")
    if cached is None:
        cached = table_map.memo["kinds"] = tuple(map(column_kind, table_map.columns))
    kinds: tuple[ColumnKind, ...] = cached
    return kinds


_CacheKey = tuple[bytes, int, bool | None]


class _TableMapCache:
    """Cache of parsed maps by body; emptied when it is full."""

    def __init__(self) -> None:
        self.maps: dict[_CacheKey, TableMap] = {}
        self.bytes_left = _CACHE_BYTES

    def add(self, key: _CacheKey, table_map: TableMap) -> None:
        cost = len(table_map.body) + 64 * len(table_map.columns)
        if cost > self.bytes_left:
            self.maps.clear()
            self.bytes_left = _CACHE_BYTES
        self.maps[key] = table_map
        self.bytes_left -= cost


_table_map_cache = _TableMapCache()


def parse_table_map(body: bytes | memoryview, table_id_size: int = 6, mariadb: bool | None = None) -> TableMap:
    """Parse a TABLE_MAP body (without header and checksum); equal bodies return the same object.

    Args:
        mariadb: whether a MariaDB server wrote it; None = unknown. It only matters for the character sets of tables
            with GEOMETRY columns.

    Raises:
        MalformedError: anything that does not fit.
    """
    key = (bytes(body), table_id_size, mariadb)
    table_map = _table_map_cache.maps.get(key)
    if table_map is None:
        table_map = _parse_body(*key)
        _table_map_cache.add(key, table_map)
    return table_map


def _parse_body(body: bytes, table_id_size: int, mariadb: bool | None) -> TableMap:
    reader = BoundedReader(body, "TABLE_MAP")
    fields: dict[str, Any] = {}
    for name, start, _, value, _, _ in iter_head_fields(reader, table_id_size):
        if name in _CHECKED_FIELDS:
            _check_field(name, start, value)
        fields[name] = value
    types, metadata_reader = fields["types"], reader.sub_reader(fields["meta_len"], "metadata")
    columns = [
        _parse_column(types[index], value) for _, _, _, value, index, _ in iter_metadata_fields(metadata_reader, types)
    ]
    nullable = iter_nullable_bits(read_null_bits(reader, len(types))[3], len(types))
    optional = parse_optional_metadata(reader, columns, mariadb)
    complete_columns = tuple(map(_complete_column, columns, nullable, map(optional.column_members, range(len(types)))))
    database, table = (fields[name].decode("utf-8", "backslashreplace") for name in ("db", "table"))
    key = optional.primary_key
    return TableMap(
        fields["table_id"], fields["flags"], database, table, complete_columns, key, body, table_id_size, mariadb
    )


_CHECKED_FIELDS = frozenset(("n_cols", *NUL_FIELDS))


def _check_field(name: str, start: int, value: int) -> None:
    """Check a field for what a server refuses but `table_map_fields` accepts, so that bodies can still be shown."""
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
def _plain_column(type_: int, metadata: int = 0, nullable: bool = True) -> TableMapColumn:
    """Return a column without optional metadata: most columns of most logs."""
    return TableMapColumn(type_, metadata, nullable)


def _parse_column(type_: int, metadata_value: int) -> TableMapColumn:
    """Create a column from its type code and its metadata."""
    if type_ in _STRING_TYPES:
        return _parse_string_column(metadata_value)
    check = _METADATA_CHECKS.get(type_)
    return _plain_column(type_, check(metadata_value) if check else metadata_value)


def _parse_string_column(metadata_value: int) -> TableMapColumn:
    type_, length = split_string_metadata(metadata_value)
    if type_ not in _STRING_TYPES:
        first, second = metadata_value & 0xFF, metadata_value >> 8
        raise MalformedError(f"TABLE_MAP: the metadata {first:02x} {second:02x} of a STRING column names type {type_}")
    max_length = {_C.ENUM: 2, _C.SET: 8}.get(ColumnType(type_))
    if max_length is not None and not 1 <= length <= max_length:
        raise MalformedError(f"TABLE_MAP: values of {length} bytes in a column of type {ColumnType(type_).name}")
    return _plain_column(type_, length)


def _check_range(low: int, high: int, name: str, value: int) -> int:
    if not low <= value <= high:
        raise MalformedError(f"TABLE_MAP: {name} is {value}, not {low} to {high}")
    return value


def _bit_count(value: int) -> int:
    bits = (value & 0xFF) + 8 * (value >> 8)
    if bits > 64:
        raise MalformedError(f"TABLE_MAP: a BIT column of {bits} bits")
    return bits


def _decimal_metadata(value: int) -> int:
    precision, scale = value & 0xFF, value >> 8
    if not 0 < precision <= 65 or scale > precision:
        raise MalformedError(f"TABLE_MAP: a NEWDECIMAL column of precision {precision} and scale {scale}")
    return precision << 8 | scale


_check_length_bytes = partial(_check_range, 1, 4, "the bytes of a length")
_check_fraction_digits = partial(_check_range, 0, 6, "the digits of a fraction")
_STRING_TYPES = frozenset(map(int, (_C.STRING, _C.ENUM, _C.SET)))
_METADATA_CHECKS: Mapping[int, Callable[[int], int]] = {
    **dict.fromkeys((*BLOBS, _C.GEOMETRY, _C.JSON, _C.VECTOR, _C.BLOB_COMPRESSED), _check_length_bytes),
    **dict.fromkeys((_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2), _check_fraction_digits),
    _C.BIT: _bit_count,
    _C.NEWDECIMAL: _decimal_metadata,
}
"""What a column's metadata must be; that of other types is taken as it is."""
