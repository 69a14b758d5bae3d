"""Decode Tarantool's MessagePack extension types to JSON-able values.

Source: `docs/spec/tarantool.md#extension-types`.
"""

from __future__ import annotations

import enum
import struct
from decimal import Decimal, InvalidOperation

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.tarantool.msgpack.messages import MpKind, read_token


class ExtType(enum.IntEnum):
    """Codes of the extension types (`mp_extension_type`)."""

    DECIMAL = 1
    UUID = 2
    ERROR = 3
    DATETIME = 4
    COMPRESSION = 5
    INTERVAL = 6
    TUPLE = 7
    ARROW = 8


INTERVAL_FIELDS = ("year", "month", "week", "day", "hour", "minute", "second", "nanosecond", "adjust")
ERROR_FIELDS = ("type", "file", "line", "message", "errno", "code", "fields")
MAX_DIGITS = 128
"""Ceiling of packed decimal digits that are shown as a number; the server stores up to 38."""

_SIGN_NIBBLES = {0xA: 0, 0xB: 1, 0xC: 0, 0xD: 1, 0xE: 0, 0xF: 0}
_SHORT_DATETIME = struct.Struct("<q")
_LONG_DATETIME = struct.Struct("<qihh")
_SECONDS_PER_DAY = 86400


def format_decimal(data: bytes) -> str:
    """Format a decimal exactly as the server prints it ("1.50", "100000"); with an exponent where that is very long.

    Raises:
        MalformedError: no scale, a digit over 9, or no sign.
    """
    token = read_token(data, 0, len(data))
    if token.kind not in (MpKind.UINT, MpKind.INT):
        raise MalformedError("a decimal's scale is no integer")
    nibbles = [half for byte in data[token.end :] for half in (byte >> 4, byte & 15)]
    if not nibbles or nibbles[-1] not in _SIGN_NIBBLES or len(nibbles) > MAX_DIGITS or any(n > 9 for n in nibbles[:-1]):
        raise MalformedError("a decimal's digits are not packed BCD")
    try:
        value = Decimal((_SIGN_NIBBLES[nibbles[-1]], tuple(nibbles[:-1]), -token.value))
        return f"{value:f}" if abs(token.value) <= MAX_DIGITS else str(value)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise MalformedError("a decimal's scale is out of range") from error


def format_uuid(data: bytes) -> str:
    """Format a uuid as 36 characters (RFC 4122).

    Raises:
        MalformedError: not 16 bytes.
    """
    if len(data) != 16:
        raise MalformedError(f"a uuid has {len(data)} bytes instead of 16")
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def decode_datetime(data: bytes) -> dict[str, int]:
    """Decode the stored fields of a datetime: seconds since 1970 (UTC), nanoseconds, tz_offset in minutes, tz_index.

    Raises:
        MalformedError: neither 8 nor 16 bytes, or a part out of its range.
    """
    if len(data) == _SHORT_DATETIME.size:
        return {"seconds": _SHORT_DATETIME.unpack(data)[0]}
    if len(data) != _LONG_DATETIME.size:
        raise MalformedError(f"a datetime has {len(data)} bytes instead of 8 or 16")
    seconds, nanoseconds, tz_offset, tz_index = _LONG_DATETIME.unpack(data)
    if not 0 <= nanoseconds < 10**9 or abs(tz_offset) >= 24 * 60:
        raise MalformedError("a datetime's nanoseconds or zone offset are out of range")
    return {"seconds": seconds, "nanoseconds": nanoseconds, "tz_offset": tz_offset, "tz_index": tz_index}


def format_datetime(seconds: int, nanoseconds: int = 0, tz_offset: int = 0, tz_index: int = 0) -> str:
    """Format a datetime as RFC 3339 in its own zone; years beyond 0000..9999 get a sign."""
    days, second = divmod(seconds + tz_offset * 60, _SECONDS_PER_DAY)
    year, month, day = to_civil_date(days)
    years = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    sign, minutes = "-" if tz_offset < 0 else "+", abs(tz_offset)
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if tz_offset else "Z"
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{years}-{month:02d}-{day:02d}T{clock}{fraction}{zone}"


def to_civil_date(days: int) -> tuple[int, int, int]:
    """Convert a day counted from 1970-01-01 to (year, month, day), proleptic Gregorian, any year."""
    era, of_era = divmod(days + 719468, 146097)  # eras of 400 years that begin on 1 March
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + 400 * era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def decode_interval(data: bytes) -> list[tuple[str, int, int, int]]:
    """Decode the stored fields of an interval to (name, value, start, end), positions in `data`.

    Raises:
        MalformedError: unknown field, value no integer, or bytes left over.
    """
    if not data:
        raise MalformedError("an interval is empty")
    parts = []
    position = 1
    for _ in range(data[0]):
        if position >= len(data) or data[position] >= len(INTERVAL_FIELDS):
            raise MalformedError("an interval has an unknown field")
        token = read_token(data, position + 1, len(data))
        if token.kind not in (MpKind.UINT, MpKind.INT):
            raise MalformedError("an interval's value is no integer")
        parts.append((INTERVAL_FIELDS[data[position]], token.value, position, token.end))
        position = token.end
    if position != len(data):
        raise MalformedError("an interval has bytes left over")
    return parts
