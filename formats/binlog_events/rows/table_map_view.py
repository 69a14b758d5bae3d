"""TABLE_MAP for the annotated view: every byte down to single columns and texts (specification section 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from construct import Construct, stream_write

from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.table_metadata import OptionalField
from binlogtool.formats.binlog_events.values.columns import CHARACTER, CHARACTER_MARIADB, CHOICES, NUMERIC, ColumnType
from binlogtool.formats.binlog_events.wire.fields import flag_words
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.bodies import text
from binlogtool.formats.fields import MalformedError, Part, PlainPart
from binlogtool.limits import Limits

FLAGS = {0x0001: "BIT_LEN_EXACT", 0x0002: "REFERRED_FK_DB", 0x4000: "HAS_TRIGGERS"}
_C = ColumnType
_ONE_BYTE = frozenset(
    {_C.FLOAT, _C.DOUBLE, _C.TINY_BLOB, _C.MEDIUM_BLOB, _C.LONG_BLOB, _C.BLOB, _C.GEOMETRY, _C.JSON, _C.VECTOR,
     _C.TIMESTAMP2, _C.DATETIME2, _C.TIME2, _C.BLOB_COMPRESSED}
)  # fmt: skip
_TWO_BYTES = frozenset(
    {_C.VARCHAR, _C.VAR_STRING, _C.BIT, _C.NEWDECIMAL, _C.STRING, _C.ENUM, _C.SET, _C.VARCHAR_COMPRESSED}
)
_NAMES = {int(kind): kind.name for kind in ColumnType}
_FIELD_NAMES = {int(kind): kind.name.lower() for kind in OptionalField}
Parts = Iterator[PlainPart]
Learn = Callable[[TableMap], None]


class TableMapBody(Construct):  # type: ignore[misc]
    """The whole body. Its value is a `TableMap`; `learn` is told each one that the annotated parse has shown.

    mariadb: was it written by a MariaDB server? None = not known.
    """

    fills_stream = True

    def __init__(self, table_id_size: int = 6, learn: Learn | None = None, mariadb: bool | None = None) -> None:
        super().__init__()
        self.table_id_size, self.learn, self.mariadb = table_id_size, learn, mariadb

    def _parse(self, stream: Any, context: Any, path: str) -> TableMap:
        return parse_table_map(stream.read(), self.table_id_size, self.mariadb)

    def _build(self, obj: TableMap, stream: Any, context: Any, path: str) -> TableMap:
        stream_write(stream, obj.body, len(obj.body), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """The fields, each column's type and metadata, and the optional metadata item by item."""
        return map(Part._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Parts:
        """The same as plain tuples."""
        reader = Reader(data, "TABLE_MAP", start, end)
        at, table_id = start, reader.uint(self.table_id_size, "the table id")
        yield ".table_id", 1, at, reader.at, table_id, ""
        at, flags = reader.at, reader.uint(2, "flags")
        yield ".flags", 1, at, reader.at, flags, flag_words(flags, FLAGS)
        for name in ("db", "table"):
            yield from _name(reader, name)
        at, count = reader.at, reader.lenenc("the number of columns")
        yield ".n_cols", 1, at, reader.at, count, ""
        at, types = reader.at, reader.take(count, "the column types")
        yield ".types", 1, at, None, None, ""
        for index, code in enumerate(types):
            yield f".types[{index}]", 2, at + index, at + index + 1, code, _NAMES.get(code, "unknown")
        real = yield from _metadata(reader, types)
        at = reader.at
        null_bits = reader.take((count + 7) // 8, "the nullable bits")
        if null_bits:
            yield ".null_bits", 1, at, reader.at, null_bits, _bits_words(null_bits, range(count), False)
        if reader.left:
            yield from _optional(reader, real, self.mariadb)
        if self.learn is not None:
            self.learn(parse_table_map(data[start:end], self.table_id_size, self.mariadb))


def _name(reader: Reader, name: str) -> Parts:
    at, size = reader.at, reader.uint(1, f"the length of {name}")
    yield f".{'db' if name == 'db' else 'tbl'}_len", 1, at, reader.at, size, ""
    at, raw = reader.at, reader.take(size, name)
    if raw:
        yield f".{name}", 1, at, reader.at, text(raw), ""
    at, nul = reader.at, reader.uint(1, f"the end of {name}")
    yield f".{name}_nul", 1, at, reader.at, nul, ""


def _metadata(reader: Reader, types: bytes) -> Generator[PlainPart, None, list[int]]:
    """Gives back the real types of the columns: ENUM and SET stand among the types as STRING."""
    at, size = reader.at, reader.lenenc("the length of the metadata")
    yield ".meta_len", 1, at, reader.at, size, ""
    part = reader.part(size, "metadata")
    if size:
        yield ".metadata", 1, part.at, None, None, ""
    real = list(types)
    for index, code in enumerate(types):
        width = 2 if code in _TWO_BYTES else 1 if code in _ONE_BYTE else 0
        if width:
            at, raw = part.at, part.take(width, "metadata")
            words = _metadata_words(code, raw)
            yield f".metadata[{index}]", 2, at, part.at, int.from_bytes(raw, "little"), words
            if code == _C.STRING:
                real[index] = raw[0] | 0x30
    if part.left:
        raise MalformedError(f"{part.left:,} bytes of metadata belong to no column")
    return real


def _metadata_words(code: int, raw: bytes) -> str:
    """What the metadata of a column says."""
    if code in (_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return f"{_NAMES[code]}, at most {int.from_bytes(raw, 'little')} bytes"
    if code == _C.BIT:
        return f"BIT({raw[0] + 8 * raw[1]})"
    if code == _C.NEWDECIMAL:
        return f"NEWDECIMAL({raw[0]},{raw[1]})"
    if len(raw) == 2:
        return _string_words(*raw)
    if code in (_C.TIMESTAMP2, _C.DATETIME2, _C.TIME2):
        return f"{_NAMES[code]}({raw[0]})"
    what = "" if code in (_C.FLOAT, _C.DOUBLE) else "length of "
    return f"{_NAMES[code]}, {what}{raw[0]} bytes"


def _string_words(first: int, second: int) -> str:
    """Real type and length (section 6, "STRING metadata")."""
    if first & 0x30 != 0x30:
        first, second = first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return f"{_NAMES.get(first, first)}, {second} bytes"


def _bits_words(bits: bytes, columns: Sequence[int], high_first: bool) -> str:
    """The columns whose bits are set, as people count them: @1 is the first."""
    chosen = (
        column
        for place, column in enumerate(columns)
        if bits[place >> 3] >> (7 - (place & 7) if high_first else place & 7) & 1
    )
    return " ".join(f"@{column + 1}" for column in chosen)


# -- optional metadata -------------------------------------------------------------------------------------------------

Walk = Callable[[Reader, str, Sequence[int]], Parts]
"""The parts of one field's value. Arguments: its bytes, its path, the columns that it is about."""


def _optional(reader: Reader, types: Sequence[int], mariadb: bool | None) -> Parts:
    yield ".optional_metadata", 1, reader.at, None, None, ""
    index = 0
    while reader.left:
        path = f".optional_metadata[{index}]"
        at, type_ = reader.at, reader.uint(1, "the type of optional metadata")
        name = _FIELD_NAMES.get(type_, "unknown")
        yield path, 2, at, None, None, name.upper()
        yield f"{path}.type", 3, at, reader.at, type_, name.upper()
        at, size = reader.at, reader.lenenc("the length of optional metadata")
        yield f"{path}.len", 3, at, reader.at, size, ""
        part = reader.part(size, name)
        yield from _value(part, f"{path}.{name}", type_, types, mariadb)
        index += 1


def _value(part: Reader, path: str, type_: int, types: Sequence[int], mariadb: bool | None) -> Parts:
    walk, about = _WALKS.get(type_, (None, None))
    if not part.left:
        return
    if walk is None:
        yield path, 3, part.at, part.end, part.take(part.left, "the value"), ""
        return
    if about is CHARACTER:
        listed = _of_mariadb(part, type_, sum(code in CHARACTER for code in types)) if mariadb is None else mariadb
        about = CHARACTER_MARIADB if listed else CHARACTER
    indexes = [index for index, code in enumerate(types) if about is None or code in about]
    yield from walk(part, path, indexes)
    if part.left:
        raise MalformedError(f"{part.left:,} bytes too many in {path.rpartition('.')[2]}")


def _of_mariadb(part: Reader, type_: int, columns: int) -> bool:
    """MariaDB counts GEOMETRY among the character columns: are more listed than there are without it?"""
    copy = Reader(part.data, part.what, part.at, part.end)
    numbers = []
    while copy.left:
        numbers.append(copy.lenenc())
    if type_ == OptionalField.COLUMN_CHARSET:
        return len(numbers) > columns
    return max(numbers[1::2], default=0) >= columns


def _bits(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    at, raw = part.at, part.take((len(indexes) + 7) // 8, "bits")
    if raw:
        yield path, 3, at, part.at, raw, _bits_words(raw, indexes, True)


def _numbers(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    """One number per column."""
    yield path, 3, part.at, None, None, ""
    for index in indexes:
        at, value = part.at, part.lenenc()
        yield f"{path}[{index}]", 4, at, part.at, value, ""


def _names(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    yield path, 3, part.at, None, None, ""
    for index in indexes:
        yield from _sized(part, f"{path}[{index}]", 4)


def _sized(part: Reader, path: str, depth: int) -> Parts:
    """A length and text, as one row."""
    at, raw = part.at, part.sized("a text")
    yield path, depth, at, part.at, text(raw), ""


def _choices(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    """Per column a count and that many texts."""
    yield path, 3, part.at, None, None, ""
    for index in indexes:
        yield f"{path}[{index}]", 4, part.at, None, None, ""
        at, count = part.at, part.lenenc("the number of texts")
        yield f"{path}[{index}].count", 5, at, part.at, count, ""
        if count > part.left:
            raise MalformedError(f"{count:,} texts, {part.left:,} bytes left", finding_id="count-out-of-bounds")
        for number in range(count):
            yield from _sized(part, f"{path}[{index}].values[{number}]", 5)


def _default(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    """The default, then pairs of a place among these columns and its own one."""
    yield path, 3, part.at, None, None, ""
    at, value = part.at, part.lenenc()
    yield f"{path}.default", 4, at, part.at, value, ""
    yield from _pairs(part, path, indexes)


def _pairs(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    number = 0
    while part.left:
        for name in ("column", "collation"):
            at, value = part.at, part.lenenc()
            known = name == "column" and value < len(indexes)
            yield f"{path}[{number}].{name}", 4, at, part.at, value, f"@{indexes[value] + 1}" if known else ""
        number += 1


def _key(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    yield path, 3, part.at, None, None, ""
    number = 0
    while part.left:
        at, value = part.at, part.lenenc()
        yield f"{path}[{number}]", 4, at, part.at, value, f"@{value + 1}"
        number += 1


def _key_with_prefix(part: Reader, path: str, indexes: Sequence[int]) -> Parts:
    yield path, 3, part.at, None, None, ""
    number = 0
    while part.left:
        at, value = part.at, part.lenenc()
        yield f"{path}[{number}].column", 4, at, part.at, value, f"@{value + 1}"
        at, value = part.at, part.lenenc()
        yield f"{path}[{number}].prefix", 4, at, part.at, value, "" if value else "all of it"
        number += 1


_F = OptionalField
_WALKS: dict[int, tuple[Walk, frozenset[ColumnType] | None]] = {
    _F.SIGNEDNESS: (_bits, NUMERIC),
    _F.DEFAULT_CHARSET: (_default, CHARACTER),
    _F.COLUMN_CHARSET: (_numbers, CHARACTER),
    _F.COLUMN_NAME: (_names, None),
    _F.SET_STR_VALUE: (_choices, frozenset({_C.SET})),
    _F.ENUM_STR_VALUE: (_choices, frozenset({_C.ENUM})),
    _F.GEOMETRY_TYPE: (_numbers, frozenset({_C.GEOMETRY})),
    _F.SIMPLE_PRIMARY_KEY: (_key, None),
    _F.PRIMARY_KEY_WITH_PREFIX: (_key_with_prefix, None),
    _F.ENUM_AND_SET_DEFAULT_CHARSET: (_default, CHOICES),
    _F.ENUM_AND_SET_COLUMN_CHARSET: (_numbers, CHOICES),
    _F.COLUMN_VISIBILITY: (_bits, None),
    _F.VECTOR_DIMENSIONALITY: (_numbers, frozenset({_C.VECTOR})),
}
"""How the value of each type is walked, and the types of the columns that it is about (None: all)."""


def table_map_body(table_id_size: int = 6, learn: Learn | None = None, mariadb: bool | None = None) -> Construct:
    """The schema of TABLE_MAP. table_id_size: 4 in very old logs."""
    return TableMapBody(table_id_size, learn, mariadb)
