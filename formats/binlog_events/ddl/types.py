"""Column definitions in SQL as hints: their types in a log, and what the log may leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from binlogtool.formats.binlog_events.ddl.words import Word
from binlogtool.formats.binlog_events.values.charsets import known_charset
from binlogtool.formats.binlog_events.values.columns import BLOBS, ColumnHint, ColumnType, Logical

_C = ColumnType

_STRING = frozenset({_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED})
_TEXT = BLOBS | {_C.BLOB_COMPRESSED}
_FLOATING = frozenset({_C.FLOAT, _C.DOUBLE})
_DECIMAL = frozenset({_C.NEWDECIMAL, _C.DECIMAL})
_GEOMETRIES = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
    "GEOMETRYCOLLECTION", "GEOMCOLLECTION",
)  # fmt: skip


def _named(types: frozenset[ColumnType], *names: str) -> dict[str, frozenset[ColumnType]]:
    """Return type names mapped to their type codes."""
    return dict.fromkeys(names, types)


_INTEGERS = {
    **_named(frozenset({_C.TINY}), "TINYINT", "INT1", "BOOL", "BOOLEAN"),
    **_named(frozenset({_C.SHORT}), "SMALLINT", "INT2"),
    **_named(frozenset({_C.INT24}), "MEDIUMINT", "INT3", "MIDDLEINT"),
    **_named(frozenset({_C.LONG}), "INT", "INTEGER", "INT4"),
    **_named(frozenset({_C.LONGLONG}), "BIGINT", "INT8", "SERIAL"),
}
_NUMBERS = {
    **_INTEGERS,
    **_named(_FLOATING, "FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"),
    **_named(_DECIMAL, "DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER"),
}
_CHARACTERS = {
    **_named(_STRING | _TEXT, "CHAR", "CHARACTER", "NCHAR", "VARCHAR", "VARCHARACTER", "NVARCHAR", "NATIONAL"),
    **_named(_STRING | _TEXT, "VARCHAR2", "CLOB", "LONG"),
    **_named(_TEXT, "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
}
_BYTES = {
    **_named(_STRING | _TEXT, "BINARY", "VARBINARY", "RAW"),
    **_named(_TEXT, "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
}
_OTHERS = {
    **_named(frozenset({_C.BIT}), "BIT"),
    **_named(frozenset({_C.YEAR}), "YEAR"),
    **_named(frozenset({_C.DATE, _C.NEWDATE}), "DATE"),
    **_named(frozenset({_C.TIME, _C.TIME2}), "TIME"),
    **_named(frozenset({_C.DATETIME, _C.DATETIME2}), "DATETIME"),
    **_named(frozenset({_C.TIMESTAMP, _C.TIMESTAMP2}), "TIMESTAMP"),
    **_named(frozenset({_C.GEOMETRY}), *_GEOMETRIES),
    **_named(_TEXT | {_C.JSON}, "JSON"),
    **_named(frozenset({_C.ENUM}), "ENUM"),
    **_named(frozenset({_C.SET}), "SET"),
    **_named(_STRING, "UUID", "INET4", "INET6"),
    **_named(_STRING | {_C.VECTOR}, "VECTOR"),
}
_TYPES: Mapping[str, frozenset[ColumnType]] = {**_NUMBERS, **_CHARACTERS, **_BYTES, **_OTHERS}
_LOGICAL = {kind.name: kind for kind in Logical}
_NATIONAL = ("NATIONAL", "NCHAR", "NVARCHAR")


def column_hint(name: str, definition: Sequence[Word], default: str | None) -> ColumnHint:
    """Parse the definition of one column into a hint.

    Args:
        definition: the words after the name.
        default: the character set of the table; None if unknown.
    """
    kind = definition[0].upper
    after = [word.upper for word in definition]
    charset = _charset(kind, definition, default)
    return ColumnHint(
        name=name,
        types=frozenset(code.value for code in _TYPES.get(kind, ())),
        unsigned=_unsigned(kind, after) if kind in _NUMBERS else None,
        charset=charset,
        values=_values(definition) if kind in ("ENUM", "SET") else None,
        logical=_LOGICAL.get(kind),
        generated=_generated(after),
        fraction=_fraction(after) if kind in ("TIME", "DATETIME", "TIMESTAMP") else None,
        text=True if kind in _CHARACTERS and charset != "binary" else None,
        nullable=False if _not_null(after) else None,
        metadata=_metadata(kind, after),
    )


def _not_null(after: Sequence[str]) -> bool:
    """Return whether the definition has NOT NULL."""
    outside, depth = list[str](), 0
    for word in after:
        depth += {"(": 1, ")": -1}.get(word, 0)
        outside += [word] if not depth else []
    return ("NOT", "NULL") in pairwise(outside)


def _metadata(kind: str, after: Sequence[str]) -> int | None:
    """Return the table map metadata for the numbers in parentheses after the type; None if it is not compared."""
    sizes = [int(word) for word in _in_brackets(after) if word.isdecimal()]
    if kind in ("DECIMAL", "DEC", "NUMERIC", "FIXED"):
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2]
        return (precision or 10) << 8 | scale
    return None


def _in_brackets(after: Sequence[str]) -> Sequence[str]:
    """Return the words in the parentheses after the type."""
    if len(after) < 3 or after[1] != "(" or ")" not in after:
        return ()
    return after[2 : after.index(")")]


def _fraction(after: Sequence[str]) -> int:
    """Return the fractional digits in the parentheses after the type."""
    digits = after[2] if len(after) > 3 and after[1] == "(" else ""
    return int(digits) if digits.isdecimal() and int(digits) <= 6 else 0


def _unsigned(kind: str, after: Sequence[str]) -> bool:
    """Return whether a number type is unsigned."""
    return kind == "SERIAL" or "UNSIGNED" in after or "ZEROFILL" in after


def _generated(after: Sequence[str]) -> bool:
    """Return whether the column has `[GENERATED ALWAYS] AS (…)` or belongs to a period (`AS ROW START`)."""
    places = [place for place, word in enumerate(after) if word == "AS"]
    return any(after[place + 1 : place + 2] in (["("], ["ROW"]) for place in places)


def _charset(kind: str, definition: Sequence[Word], default: str | None) -> str | None:
    """Return the character set of a column; None if it has none or it is unknown."""
    if kind in _BYTES or (kind == "LONG" and _is_varbinary(definition)):
        return "binary"
    if kind == "JSON":
        return "utf8mb4"
    if kind in _NATIONAL:
        return "utf8mb3"
    if kind not in _CHARACTERS and kind not in ("ENUM", "SET"):
        return None
    named = charset_of_words(definition)
    return named if named is not None else default


def _is_varbinary(definition: Sequence[Word]) -> bool:
    """Return whether the type is LONG VARBINARY."""
    return len(definition) > 1 and definition[1].upper == "VARBINARY"


def charset_of_words(words: Sequence[Word]) -> str | None:
    """Return the character set that a column's attributes or a table's options name; None for none or an unknown
    one.
    """
    named: str | None = None
    for place, word in enumerate(words):
        value = next((w.text for w in words[place + 1 : place + 3] if w != Word("=", False)), "")
        match word.upper:
            case "CHARSET":
                named = known_charset(value)
            case "CHARACTER" | "CHAR" if words[place + 1 : place + 2] == [Word("SET", False)] or _is_set(words, place):
                value = next((w.text for w in words[place + 2 : place + 4] if w != Word("=", False)), "")
                named = known_charset(value)
            case "COLLATE" if named is None:
                named = known_charset(value.partition("_")[0])
            case "ASCII" if place:
                named = "latin1"
            case "UNICODE" if place:
                named = "ucs2"
            case "BYTE" if place:
                named = "binary"
    return named


def _is_set(words: Sequence[Word], place: int) -> bool:
    """Return whether SET follows."""
    return place + 1 < len(words) and words[place + 1].upper == "SET"


def _values(definition: Sequence[Word]) -> tuple[str, ...] | None:
    """Return the texts in the parentheses after ENUM or SET."""
    if len(definition) < 2 or definition[1].upper != "(":
        return None
    found: list[str] = []
    for word in definition[2:]:
        if word.upper == ")":
            return tuple(found)
        if word.quoted:
            found.append(word.text)
    return None
