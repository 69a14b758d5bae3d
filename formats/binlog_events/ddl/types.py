"""Column definitions in SQL as hints: their types in a log, and what the log may leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from binlogtool.formats.binlog_events.ddl.words import SqlWord
from binlogtool.formats.binlog_events.values.charsets import normalize_charset_name
from binlogtool.formats.binlog_events.values.columns import BLOBS, ColumnHint, ColumnType, LogicalType

_C = ColumnType

_STRING_CODES = frozenset({_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED})
_BLOB_CODES = BLOBS | {_C.BLOB_COMPRESSED}
_FLOAT_CODES = frozenset({_C.FLOAT, _C.DOUBLE})
_DECIMAL_CODES = frozenset({_C.NEWDECIMAL, _C.DECIMAL})
_GEOMETRIES = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
    "GEOMETRYCOLLECTION", "GEOMCOLLECTION",
)  # fmt: skip


def _map_names(types: frozenset[ColumnType], *names: str) -> dict[str, frozenset[ColumnType]]:
    """Return type names mapped to their type codes."""
    return dict.fromkeys(names, types)


_INTEGER_TYPES = {
    **_map_names(frozenset({_C.TINY}), "TINYINT", "INT1", "BOOL", "BOOLEAN"),
    **_map_names(frozenset({_C.SHORT}), "SMALLINT", "INT2"),
    **_map_names(frozenset({_C.INT24}), "MEDIUMINT", "INT3", "MIDDLEINT"),
    **_map_names(frozenset({_C.LONG}), "INT", "INTEGER", "INT4"),
    **_map_names(frozenset({_C.LONGLONG}), "BIGINT", "INT8", "SERIAL"),
}
_NUMBER_TYPES = {
    **_INTEGER_TYPES,
    **_map_names(_FLOAT_CODES, "FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"),
    **_map_names(_DECIMAL_CODES, "DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER"),
}
_CHARACTER_TYPES = {
    **_map_names(
        _STRING_CODES | _BLOB_CODES, "CHAR", "CHARACTER", "NCHAR", "VARCHAR", "VARCHARACTER", "NVARCHAR", "NATIONAL"
    ),
    **_map_names(_STRING_CODES | _BLOB_CODES, "VARCHAR2", "CLOB", "LONG"),
    **_map_names(_BLOB_CODES, "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
}
_BYTE_TYPES = {
    **_map_names(_STRING_CODES | _BLOB_CODES, "BINARY", "VARBINARY", "RAW"),
    **_map_names(_BLOB_CODES, "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
}
_OTHER_TYPES = {
    **_map_names(frozenset({_C.BIT}), "BIT"),
    **_map_names(frozenset({_C.YEAR}), "YEAR"),
    **_map_names(frozenset({_C.DATE, _C.NEWDATE}), "DATE"),
    **_map_names(frozenset({_C.TIME, _C.TIME2}), "TIME"),
    **_map_names(frozenset({_C.DATETIME, _C.DATETIME2}), "DATETIME"),
    **_map_names(frozenset({_C.TIMESTAMP, _C.TIMESTAMP2}), "TIMESTAMP"),
    **_map_names(frozenset({_C.GEOMETRY}), *_GEOMETRIES),
    **_map_names(_BLOB_CODES | {_C.JSON}, "JSON"),
    **_map_names(frozenset({_C.ENUM}), "ENUM"),
    **_map_names(frozenset({_C.SET}), "SET"),
    **_map_names(_STRING_CODES, "UUID", "INET4", "INET6"),
    **_map_names(_STRING_CODES | {_C.VECTOR}, "VECTOR"),
}
_TYPE_CODES: Mapping[str, frozenset[ColumnType]] = {**_NUMBER_TYPES, **_CHARACTER_TYPES, **_BYTE_TYPES, **_OTHER_TYPES}
_LOGICAL_TYPES = {kind.name: kind for kind in LogicalType}
_NATIONAL_TYPES = ("NATIONAL", "NCHAR", "NVARCHAR")


def parse_column(name: str, definition: Sequence[SqlWord], default: str | None) -> ColumnHint:
    """Parse the definition of one column into a hint.

    Args:
        definition: the words after the name.
        default: the character set of the table; None if unknown.
    """
    type_name = definition[0].upper
    upper_words = [word.upper for word in definition]
    charset = _column_charset(type_name, definition, default)
    return ColumnHint(
        name=name,
        types=frozenset(code.value for code in _TYPE_CODES.get(type_name, ())),
        unsigned=_is_unsigned(type_name, upper_words) if type_name in _NUMBER_TYPES else None,
        charset=charset,
        values=_parse_enum_values(definition) if type_name in ("ENUM", "SET") else None,
        logical=_LOGICAL_TYPES.get(type_name),
        generated=_is_generated(upper_words),
        fraction=_fraction_digits(upper_words) if type_name in ("TIME", "DATETIME", "TIMESTAMP") else None,
        text=True if type_name in _CHARACTER_TYPES and charset != "binary" else None,
        nullable=False if _is_not_null(upper_words) else None,
        metadata=_type_metadata(type_name, upper_words),
    )


def _is_not_null(upper_words: Sequence[str]) -> bool:
    """Return whether the definition has NOT NULL."""
    outside, depth = list[str](), 0
    for word in upper_words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        outside += [word] if not depth else []
    return ("NOT", "NULL") in pairwise(outside)


def _type_metadata(type_name: str, upper_words: Sequence[str]) -> int | None:
    """Return the table map metadata for the numbers in parentheses after the type; None if it is not compared."""
    sizes = [int(word) for word in _parenthesized(upper_words) if word.isdecimal()]
    if type_name in ("DECIMAL", "DEC", "NUMERIC", "FIXED"):
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2]
        return (precision or 10) << 8 | scale
    return None


def _parenthesized(upper_words: Sequence[str]) -> Sequence[str]:
    """Return the words in the parentheses after the type."""
    if len(upper_words) < 3 or upper_words[1] != "(" or ")" not in upper_words:
        return ()
    return upper_words[2 : upper_words.index(")")]


def _fraction_digits(upper_words: Sequence[str]) -> int:
    """Return the fractional digits in the parentheses after the type."""
    digits = upper_words[2] if len(upper_words) > 3 and upper_words[1] == "(" else ""
    return int(digits) if digits.isdecimal() and int(digits) <= 6 else 0


def _is_unsigned(type_name: str, upper_words: Sequence[str]) -> bool:
    """Return whether a number type is unsigned."""
    return type_name == "SERIAL" or "UNSIGNED" in upper_words or "ZEROFILL" in upper_words


def _is_generated(upper_words: Sequence[str]) -> bool:
    """Return whether the column has `[GENERATED ALWAYS] AS (…)` or belongs to a period (`AS ROW START`)."""
    positions = [place for place, word in enumerate(upper_words) if word == "AS"]
    return any(upper_words[place + 1 : place + 2] in (["("], ["ROW"]) for place in positions)


def _column_charset(type_name: str, definition: Sequence[SqlWord], default: str | None) -> str | None:
    """Return the character set of a column; None if it has none or it is unknown."""
    if type_name in _BYTE_TYPES or (type_name == "LONG" and _is_varbinary(definition)):
        return "binary"
    if type_name == "JSON":
        return "utf8mb4"
    if type_name in _NATIONAL_TYPES:
        return "utf8mb3"
    if type_name not in _CHARACTER_TYPES and type_name not in ("ENUM", "SET"):
        return None
    explicit = find_charset(definition)
    return explicit if explicit is not None else default


def _is_varbinary(definition: Sequence[SqlWord]) -> bool:
    """Return whether the type is LONG VARBINARY."""
    return len(definition) > 1 and definition[1].upper == "VARBINARY"


def find_charset(words: Sequence[SqlWord]) -> str | None:
    """Return the character set that a column's attributes or a table's options name; None for none or an unknown
    one.
    """
    found: str | None = None
    for index, word in enumerate(words):
        value = next((w.text for w in words[index + 1 : index + 3] if w != SqlWord("=", False)), "")
        match word.upper:
            case "CHARSET":
                found = normalize_charset_name(value)
            case "CHARACTER" | "CHAR" if words[index + 1 : index + 2] == [SqlWord("SET", False)] or _is_set(
                words, index
            ):
                value = next((w.text for w in words[index + 2 : index + 4] if w != SqlWord("=", False)), "")
                found = normalize_charset_name(value)
            case "COLLATE" if found is None:
                found = normalize_charset_name(value.partition("_")[0])
            case "ASCII" if index:
                found = "latin1"
            case "UNICODE" if index:
                found = "ucs2"
            case "BYTE" if index:
                found = "binary"
    return found


def _is_set(words: Sequence[SqlWord], index: int) -> bool:
    """Return whether SET follows."""
    return index + 1 < len(words) and words[index + 1].upper == "SET"


def _parse_enum_values(definition: Sequence[SqlWord]) -> tuple[str, ...] | None:
    """Return the texts in the parentheses after ENUM or SET."""
    if len(definition) < 2 or definition[1].upper != "(":
        return None
    texts: list[str] = []
    for word in definition[2:]:
        if word.upper == ")":
            return tuple(texts)
        if word.quoted:
            texts.append(word.text)
    return None
