"""Map collation numbers to character sets, and character sets to functions that decode their text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

BINARY = 63
"""The collation of columns that hold bytes."""

_NOPAD = 1024
"""MariaDB: added to the number of a collation for its NO PAD form."""
_UCA1400 = 2048
"""MariaDB: the first number of the uca1400 collations, 256 for each of the character sets below."""
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

_COLLATIONS: Mapping[str, tuple[int, ...]] = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "latin7": (20, 41, 42, 79),
    "koi8u": (22, 75),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "utf8mb3": (33, 76, 83, 223),
    "ucs2": (35, 90, 159),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "utf8mb4": (45, 46, 255),
    "utf16": (54, 55),
    "utf16le": (56, 62),
    "cp1256": (57, 67),
    "utf32": (60, 61),
    "binary": (BINARY,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
    "gb18030": (248, 249, 250),
}
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

_CODECS: Mapping[str, str] = MappingProxyType(
    {
        "big5": "big5",
        "latin2": "iso8859_2",
        "dec8": "ascii",
        "cp850": "cp850",
        "hp8": "hp_roman8",
        "koi8r": "koi8_r",
        "ascii": "ascii",
        "ujis": "euc_jp",
        "sjis": "shift_jis",
        "cp1251": "cp1251",
        "hebrew": "iso8859_8",
        "tis620": "tis_620",
        "euckr": "cp949",
        "latin7": "iso8859_13",
        "koi8u": "koi8_u",
        "gb2312": "gb2312",
        "greek": "iso8859_7",
        "cp1250": "cp1250",
        "gbk": "gbk",
        "cp1257": "cp1257",
        "latin5": "iso8859_9",
        "armscii8": "ascii",
        "utf8mb3": "utf_8",
        "ucs2": "utf_16_be",
        "cp866": "cp866",
        "keybcs2": "ascii",
        "macce": "mac_latin2",
        "macroman": "mac_roman",
        "cp852": "cp852",
        "utf8mb4": "utf_8",
        "utf16": "utf_16_be",
        "utf16le": "utf_16_le",
        "cp1256": "cp1256",
        "utf32": "utf_32_be",
        "geostd8": "ascii",
        "cp932": "cp932",
        "eucjpms": "euc_jp",
        "gb18030": "gb18030",
    }
)
"""Sets that Python does not know but that contain ASCII are read as ASCII: the rest stays bytes. swe7 has no codec."""

_ALIASES: Mapping[str, str] = MappingProxyType({"utf8": "utf8mb3"})

MAX_CHARACTER_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "big5": 2, "ujis": 3, "sjis": 2, "euckr": 2, "gb2312": 2, "gbk": 2, "utf8mb3": 3, "ucs2": 2, "utf8mb4": 4,
        "utf16": 4, "utf16le": 4, "utf32": 4, "cp932": 2, "eucjpms": 3, "gb18030": 4,
    }
)  # fmt: skip
"""Bytes of the longest character of sets that have more than one (SHOW CHARACTER SET, Maxlen)."""

TextDecoder = Callable[[bytes], str | bytes]
"""Text, or the bytes as they are where they are not text of the character set."""


@cache
def _charsets_by_collation() -> Mapping[int, str]:
    names = {number: name for name, numbers in _COLLATIONS.items() for number in numbers}
    for first, last, name in _COLLATION_RANGES:
        names.update((number, name) for number in range(first, last + 1))
    return names


def charset_of_collation(collation: int | None) -> str | None:
    """Return the character set of a collation number of MySQL or MariaDB; None if it is unknown."""
    if collation is None:
        return None
    if collation >= _UCA1400:
        index = (collation - _UCA1400) >> 8
        return _UCA1400_CHARSETS[index] if index < len(_UCA1400_CHARSETS) else None
    names = _charsets_by_collation()
    return names.get(collation) or names.get(collation - _NOPAD)


def normalize_charset_name(name: str) -> str | None:
    """Return this module's name of a character set written in SQL; None if it is unknown."""
    name = _ALIASES.get(name.lower(), name.lower())
    return name if name in _COLLATIONS else None


@cache
def charset_decoder(charset: str | None) -> TextDecoder:
    """Return the function that decodes text of a character set.

    Args:
        charset: None = unknown; bytes that are valid UTF-8 are text.
    """
    if charset is None:
        return decode_utf8
    if charset == "latin1":
        return decode_latin1
    codec = _CODECS.get(charset)
    if codec is None:
        return keep_bytes
    return (
        decode_utf8
        if codec == "utf_8"
        else _make_decoder(codec, {ord(one): other for one, other in _SERVER_CHARACTERS.get(charset, {}).items()})
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
"""Characters that the codecs make of bytes for which the servers have another one: every pair of bytes was compared."""


def _make_decoder(codec: str, replacements: Mapping[int, str]) -> TextDecoder:
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
    """Return the decoding table of the servers' latin1: cp1252 with control characters in its five holes."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))


def decode_latin1(raw: bytes) -> str:
    """Decode the servers' latin1, in which every byte is a character."""
    return codecs.charmap_decode(raw, "strict", _latin1_table())[0]
