"""Column types of a table map, the encoding of their values in a row image, and their character sets.

See docs/spec/mysql_binlog.md#table_map and docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

import codecs
import enum
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from binlogtool.format_api import row_output_interfaces
from binlogtool.format_api.schema_fields import MalformedError

# --- Collations and character sets ---

_NOPAD = 1024
"""MariaDB: number added to a collation's number for its NO PAD form."""
_UCA1400 = 2048
"""MariaDB: first number of the uca1400 collations; each of the character sets below has 256 numbers."""
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

_CHARSETS: Mapping[str, tuple[str | None, int, tuple[int, ...]]] = {
    "big5": ("big5", 2, (1, 84)),
    "latin2": ("iso8859_2", 1, (2, 9, 21, 27, 77)),
    "dec8": ("ascii", 1, (3, 69)),
    "cp850": ("cp850", 1, (4, 80)),
    "latin1": (None, 1, (5, 8, 15, 31, 47, 48, 49, 94)),
    "hp8": ("hp_roman8", 1, (6, 72)),
    "koi8r": ("koi8_r", 1, (7, 74)),
    "swe7": (None, 1, (10, 82)),
    "ascii": ("ascii", 1, (11, 65)),
    "ujis": ("euc_jp", 3, (12, 91)),
    "sjis": ("shift_jis", 2, (13, 88)),
    "cp1251": ("cp1251", 1, (14, 23, 50, 51, 52)),
    "hebrew": ("iso8859_8", 1, (16, 71)),
    "tis620": ("tis_620", 1, (18, 89)),
    "euckr": ("cp949", 2, (19, 85)),
    "latin7": ("iso8859_13", 1, (20, 41, 42, 79)),
    "koi8u": ("koi8_u", 1, (22, 75)),
    "gb2312": ("gb2312", 2, (24, 86)),
    "greek": ("iso8859_7", 1, (25, 70)),
    "cp1250": ("cp1250", 1, (26, 34, 44, 66, 99)),
    "gbk": ("gbk", 2, (28, 87)),
    "cp1257": ("cp1257", 1, (29, 58, 59)),
    "latin5": ("iso8859_9", 1, (30, 78)),
    "armscii8": ("ascii", 1, (32, 64)),
    "utf8mb3": ("utf_8", 3, (33, 76, 83, 223)),
    "ucs2": ("utf_16_be", 2, (35, 90, 159)),
    "cp866": ("cp866", 1, (36, 68)),
    "keybcs2": ("ascii", 1, (37, 73)),
    "macce": ("mac_latin2", 1, (38, 43)),
    "macroman": ("mac_roman", 1, (39, 53)),
    "cp852": ("cp852", 1, (40, 81)),
    "utf8mb4": ("utf_8", 4, (45, 46, 255)),
    "utf16": ("utf_16_be", 4, (54, 55)),
    "utf16le": ("utf_16_le", 4, (56, 62)),
    "cp1256": ("cp1256", 1, (57, 67)),
    "utf32": ("utf_32_be", 4, (60, 61)),
    "binary": (None, 1, (63,)),
    "geostd8": ("ascii", 1, (92, 93)),
    "cp932": ("cp932", 2, (95, 96)),
    "eucjpms": ("euc_jp", 3, (97, 98)),
    "gb18030": ("gb18030", 4, (248, 249, 250)),
}
"""Character set -> its Python codec, the size in bytes of its longest character (SHOW CHARACTER SET, Maxlen), and its
collations.

Sets that Python lacks but that contain ASCII are decoded as ASCII; other text stays bytes. swe7 has no codec.
"""
_COLLATION_RANGES = (
    (101, 124, "utf16"),
    (128, 151, "ucs2"),
    (160, 183, "utf32"),
    (192, 215, "utf8mb3"),
    (224, 247, "utf8mb4"),
    (256, 323, "utf8mb4"),
    (576, 579, "utf8mb3"),
    (608, 611, "utf8mb4"),
    (640, 642, "ucs2"),
    (672, 674, "utf16"),
    (736, 738, "utf32"),
)

_ALIASES: Mapping[str, str] = MappingProxyType({"utf8": "utf8mb3"})

MAX_CHARACTER_BYTES: Mapping[str, int] = MappingProxyType({name: size for name, (_, size, _) in _CHARSETS.items()})
"""Size in bytes of the longest character of a character set."""

TextDecoder = Callable[[bytes], str | bytes]
"""Function that returns text, or the unchanged bytes if they are not valid in the character set."""


@cache
def _charsets_by_collation() -> Mapping[int, str]:
    names = {number: name for name, (_, _, numbers) in _CHARSETS.items() for number in numbers}
    for first, last, name in _COLLATION_RANGES:
        names.update((number, name) for number in range(first, last + 1))
    return names


def charset_of_collation(collation: int | None) -> str | None:
    """Return the character set of a MySQL or MariaDB collation number; None if it is unknown."""
    if collation is None:
        return None
    if collation >= _UCA1400:
        index = (collation - _UCA1400) >> 8
        return _UCA1400_CHARSETS[index] if index < len(_UCA1400_CHARSETS) else None
    names = _charsets_by_collation()
    return names.get(collation) or names.get(collation - _NOPAD)


def normalize_charset_name(name: str) -> str | None:
    """Return this module's name for a character set written in SQL; None if it is unknown."""
    name = _ALIASES.get(name.lower(), name.lower())
    return name if name in _CHARSETS else None


@cache
def get_charset_decoder(charset: str | None) -> TextDecoder:
    """Return the function that decodes text of a character set.

    `charset`: None = unknown; then bytes are text if they are valid UTF-8.
    """
    if charset is None:
        return decode_utf8
    if charset == "latin1":
        return decode_latin1
    codec = _CHARSETS[charset][0] if charset in _CHARSETS else None
    if codec is None:
        return keep_bytes
    return (
        decode_utf8
        if codec == "utf_8"
        else _make_text_decoder(codec, {ord(one): other for one, other in _SERVER_CHARACTERS.get(charset, {}).items()})
    )


_SERVER_CHARACTERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "sjis": {"\uff3c": "\\"},
        "ujis": {"\uff3c": "\\"},
        "eucjpms": {
            "\u301c": "\uff5e", "\u2016": "\u2225", "\u2212": "\uff0d", "\xa2": "\uffe0", "\xa3": "\uffe1",
            "\xac": "\uffe2",
        },
    }
)  # fmt: skip
"""Characters in which Python's codecs differ from the servers: codec's character -> server's character (all pairs of
bytes were compared).
"""


def _make_text_decoder(codec: str, replacements: Mapping[int, str]) -> TextDecoder:
    decode = codecs.getdecoder(codec)

    def decode_text(raw: bytes) -> str | bytes:
        try:
            text = decode(raw)[0]
        except UnicodeDecodeError:
            return raw
        return text.translate(replacements) if replacements else text

    return decode_text


def decode_utf8(raw: bytes) -> str | bytes:
    """Decode UTF-8; invalid bytes are returned unchanged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def keep_bytes(raw: bytes) -> bytes:
    """Return bytes unchanged."""
    return raw


@cache
def _latin1_table() -> str:
    """Return the decoding table of the servers' latin1: cp1252 with control characters at its five undefined codes."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))


def decode_latin1(raw: bytes) -> str:
    """Decode the servers' latin1, in which every byte is a character."""
    return codecs.charmap_decode(raw, "strict", _latin1_table())[0]


# --- Columns of a table map and their encoding ---


class ColumnType(enum.IntEnum):
    """Type codes of the table map (`enum_field_types`); ENUM and SET are stored as STRING with their metadata."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_C = ColumnType

NUMERIC = frozenset({_C.TINY, _C.SHORT, _C.INT24, _C.LONG, _C.LONGLONG, _C.FLOAT, _C.DOUBLE, _C.NEWDECIMAL, _C.YEAR})
"""Columns that have a bit in SIGNEDNESS."""
BLOBS = frozenset({_C.TINY_BLOB, _C.MEDIUM_BLOB, _C.LONG_BLOB, _C.BLOB})
WITH_LENGTH_SIZE = BLOBS | {_C.GEOMETRY, _C.JSON, _C.VECTOR, _C.BLOB_COMPRESSED}
"""Columns whose metadata is the size of the length of their values."""
CHARACTER = BLOBS | {
    _C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.VECTOR, _C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED
}  # fmt: skip
"""Columns that have a character set in DEFAULT_CHARSET or COLUMN_CHARSET of MySQL."""
CHARACTER_MARIADB = CHARACTER | {_C.GEOMETRY}
"""Columns that have a character set in DEFAULT_CHARSET or COLUMN_CHARSET of MariaDB."""
ENUM_AND_SET = frozenset({_C.ENUM, _C.SET})


class LogicalType(enum.Enum):
    """Types that the log stores as other types; only a CREATE TABLE reveals them."""

    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"
    JSON = "json"
    VECTOR = "vector"


EXPORTED_TYPES: Mapping[int | LogicalType | None, str] = MappingProxyType(
    {
        _C.FLOAT: "float",
        _C.DOUBLE: "double",
        _C.DATE: "date",
        _C.NEWDATE: "date",
        _C.DATETIME: "timestamp_ntz",
        _C.DATETIME2: "timestamp_ntz",
        _C.TIMESTAMP: "timestamp",
        _C.TIMESTAMP2: "timestamp",
        _C.JSON: row_output_interfaces.JSON,
        _C.VECTOR: "array<double>",
        LogicalType.VECTOR: "array<double>",
        _C.GEOMETRY: row_output_interfaces.GEOMETRY,
    }
)
"""Types of columns in exported tables, where neither "string", bytes, nor dependent on more than the type."""


class TableMapColumn(msgspec.Struct, frozen=True):
    """One column of a table map; None = not in the log.

    `type`: the real type code. `metadata`: STRING, VARCHAR, VAR_STRING: maximum size in bytes; BLOB, GEOMETRY, JSON,
    VECTOR: size of the length in bytes; ENUM, SET: size of a value in bytes; BIT: bits; NEWDECIMAL: precision * 256 +
    scale; temporal types: digits of the fraction. `charset`: name of the character set. `values`: the texts of an ENUM
    or SET. `dimension`: numbers of a VECTOR. `logical`: see `LogicalType`. `generated`: computed from other columns.
    `fraction`: digits of a TIME, DATETIME or TIMESTAMP in MariaDB's old format; not in the log. `text`: its values are
    text even if the character set is unknown.
    """

    type: int
    metadata: int = 0
    nullable: bool = True
    unsigned: bool | None = None
    collation: int | None = None
    charset: str | None = None
    name: str | None = None
    values: tuple[str, ...] | None = None
    geometry_type: int | None = None
    visible: bool | None = None
    dimension: int | None = None
    logical: LogicalType | None = None
    generated: bool | None = None
    fraction: int | None = None
    text: bool | None = None

    @property
    def type_name(self) -> str:
        """The server's name for the type, or the number of an unknown type."""
        try:
            return ColumnType(self.type).name
        except ValueError:
            return str(self.type)

    @property
    def padded_size(self) -> int:
        """Size of a BINARY column, whose trailing zero bytes are not stored in a row image; 0 for other columns."""
        is_binary = self.type == ColumnType.STRING and self.charset == "binary" and self.logical is None
        return self.metadata if is_binary else 0


class DeclaredColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Definition of a column in a CREATE TABLE, used only for properties that the log does not record.

    `types`: type codes that such a column may have in a log; empty = unknown. They show whether the statement matches
    this table: if a column has none of its hint's types, no hint is used. `charset`: spelled as by
    `normalize_charset_name`. `text`: its values are text. `nullable`: False = NOT NULL. `metadata`: as in the log; None
    = not compared.
    """

    name: str | None = None
    types: frozenset[int] = frozenset()
    unsigned: bool | None = None
    charset: str | None = None
    values: tuple[str, ...] | None = None
    logical: LogicalType | None = None
    generated: bool | None = None
    fraction: int | None = None
    text: bool | None = None
    nullable: bool | None = None
    metadata: int | None = None


class ValueKind(enum.IntEnum):
    """Encoding of a value's bytes; the parameter of each kind is in parentheses.

    Fixed width: NOTHING; SIGNED and UNSIGNED (bytes, little-endian); FLOAT; DOUBLE; DECIMAL (precision * 256 + scale);
    BIT (bits, big-endian bytes); ENUM, SET (bytes, little-endian); YEAR; DATE; TIME2, DATETIME2, TIMESTAMP2 (digits of
    the fraction); TIME, DATETIME, TIMESTAMP (old formats; digits of MariaDB's).

    With a little-endian length of 1 to 4 bytes: UTF8 (text), TEXT (in another character set), GUESS (text of an unknown
    character set), BYTES, JSON, GEOMETRY, VECTOR, COMPRESSED (MariaDB: unpacks to text or bytes), UUID, INET4, INET6.
    The parameter is the column's metadata. Invalid text is shown as bytes.
    """

    NOTHING = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    BIT = 6
    ENUM = 7
    SET = 8
    YEAR = 9
    DATE = 10
    TIME2 = 11
    DATETIME2 = 12
    TIMESTAMP2 = 13
    TIME = 14
    DATETIME = 15
    TIMESTAMP = 16
    TEXT = 32
    UTF8 = 33
    GUESS = 34
    BYTES = 35
    JSON = 36
    GEOMETRY = 37
    VECTOR = 38
    COMPRESSED = 39
    UUID = 40
    INET4 = 41
    INET6 = 42


HEX_KINDS = frozenset({ValueKind.GEOMETRY, ValueKind.VECTOR})
"""Kinds whose literal in SQL is their bytes; SQL does not compare them."""


FIRST_SIZED = ValueKind.TEXT
"""First kind with a length before its bytes; all later kinds have one too."""


class ColumnEncoding(NamedTuple):
    """Encoding of the values of a column, as plain integers.

    `kind`: a `ValueKind`. `parameter`: see `ValueKind`. `fixed_bytes`: size of a value, if `length_prefix_bytes` is 0.
    `length_prefix_bytes`: size of the little-endian length before a value; 0 = fixed width.
    """

    kind: int
    parameter: int
    fixed_bytes: int
    length_prefix_bytes: int


_INTEGER_WIDTHS: Mapping[int, int] = MappingProxyType(
    {_C.TINY: 1, _C.SHORT: 2, _C.INT24: 3, _C.LONG: 4, _C.LONGLONG: 8}
)
_FIXED_KINDS: Mapping[int, tuple[ValueKind, int]] = MappingProxyType(
    {
        _C.NULL: (ValueKind.NOTHING, 0),
        _C.FLOAT: (ValueKind.FLOAT, 4),
        _C.DOUBLE: (ValueKind.DOUBLE, 8),
        _C.YEAR: (ValueKind.YEAR, 1),
        _C.DATE: (ValueKind.DATE, 3),
        _C.NEWDATE: (ValueKind.DATE, 3),
        _C.TIME: (ValueKind.TIME, 3),
        _C.DATETIME: (ValueKind.DATETIME, 8),
        _C.TIMESTAMP: (ValueKind.TIMESTAMP, 4),
    }
)
OLD_TEMPORAL: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {_C.TIMESTAMP: (4, 5, 5, 6, 6, 7, 7), _C.TIME: (3, 4, 4, 5, 5, 5, 6), _C.DATETIME: (8, 6, 6, 7, 7, 7, 8)}
)
"""Size of a value in MariaDB's old format (before 10.1.2 adopted MySQL's), by the number of fractional digits."""
_FRACTION_KINDS: Mapping[int, tuple[ValueKind, int]] = MappingProxyType(
    {_C.TIME2: (ValueKind.TIME2, 3), _C.DATETIME2: (ValueKind.DATETIME2, 5), _C.TIMESTAMP2: (ValueKind.TIMESTAMP2, 4)}
)
_LOGICAL_KINDS: Mapping[LogicalType, ValueKind] = MappingProxyType(
    {
        LogicalType.UUID: ValueKind.UUID,
        LogicalType.INET4: ValueKind.INET4,
        LogicalType.INET6: ValueKind.INET6,
        LogicalType.VECTOR: ValueKind.VECTOR,
    }
)
_STRUCTURED_KINDS: Mapping[int, ValueKind] = MappingProxyType(
    {
        _C.JSON: ValueKind.JSON,
        _C.TYPED_ARRAY: ValueKind.JSON,
        _C.GEOMETRY: ValueKind.GEOMETRY,
        _C.VECTOR: ValueKind.VECTOR,
    }
)
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Size in bytes of a group of 0 to 9 decimal digits."""


def packed_decimal_size(precision: int, scale: int) -> int:
    """Return the size in bytes of a packed decimal."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


def choose_column_encoding(column: TableMapColumn) -> ColumnEncoding:
    """Return the encoding of a column's values.

    Raises:
        MalformedError: the type is unknown, or its values have no known length.
    """
    type_, metadata = column.type, column.metadata
    if type_ in _INTEGER_WIDTHS:
        width = _INTEGER_WIDTHS[type_]
        return ColumnEncoding(ValueKind.UNSIGNED if column.unsigned else ValueKind.SIGNED, width, width, 0)
    if type_ in _FIXED_KINDS:
        kind, width = _FIXED_KINDS[type_]
        if column.fraction and type_ in OLD_TEMPORAL:
            return ColumnEncoding(kind, column.fraction, OLD_TEMPORAL[type_][column.fraction], 0)
        return ColumnEncoding(kind, 0, width, 0)
    if type_ in _FRACTION_KINDS:
        kind, width = _FRACTION_KINDS[type_]
        return ColumnEncoding(kind, metadata, width + (metadata + 1) // 2, 0)
    if type_ == _C.NEWDECIMAL:
        return ColumnEncoding(ValueKind.DECIMAL, metadata, packed_decimal_size(metadata >> 8, metadata & 0xFF), 0)
    if type_ == _C.BIT:
        return ColumnEncoding(ValueKind.BIT, metadata, (metadata + 7) // 8, 0)
    if type_ in ENUM_AND_SET:
        return ColumnEncoding(ValueKind.ENUM if type_ == _C.ENUM else ValueKind.SET, metadata, metadata, 0)
    return ColumnEncoding(_choose_sized_value_kind(column), metadata, 0, _length_bytes(column))


def _length_bytes(column: TableMapColumn) -> int:
    if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return 1 if column.metadata < 256 else 2
    return column.metadata


def _choose_sized_value_kind(column: TableMapColumn) -> ValueKind:
    if column.type in _STRUCTURED_KINDS:
        return _STRUCTURED_KINDS[column.type]
    if column.type in (_C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED):
        return ValueKind.COMPRESSED
    if column.type not in CHARACTER:
        raise MalformedError(f"columns of type {column.type_name} cannot be read", finding_id="unsupported-version")
    if column.logical is not None and column.logical in _LOGICAL_KINDS:
        return _LOGICAL_KINDS[column.logical]
    charset = column.charset
    if charset is None:
        return ValueKind.GUESS
    if charset == "binary":
        return ValueKind.BYTES
    return ValueKind.UTF8 if charset in ("utf8mb4", "utf8mb3") else ValueKind.TEXT


_ASCII, _LATIN1_UPPER = bytes(range(128)), bytes(range(0xA0, 0x100))
UNSUPPORTED_KIND = 255
"""The kind of columns whose values `values.decoders` leaves to the general writer."""


def adapt_encoding_for_kernels(column: TableMapColumn, encoding: ColumnEncoding) -> ColumnEncoding:
    """Return the kind as `values.decoders` takes it: of TEXT, the parameter is the highest byte that equals its Unicode
    character.
    """
    if encoding.kind != ValueKind.TEXT:
        return encoding
    decode = get_charset_decoder(column.charset)
    if decode(_ASCII) != _ASCII.decode():
        return encoding._replace(kind=UNSUPPORTED_KIND)
    return encoding._replace(parameter=255 if decode(_LATIN1_UPPER) == _LATIN1_UPPER.decode("latin-1") else 127)
