"""Format dates and times as row images and binary JSON store them.

See docs/spec/mysql_binlog.md#row-events. Text forms: DATE "YYYY-MM-DD", TIME "[-]HH:MM:SS[.f]", DATETIME
and TIMESTAMP "YYYY-MM-DD HH:MM:SS[.f]", with as many digits of the fraction as the column declares. Zero and impossible
dates stay as they are stored. TIMESTAMP is UTC.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

_MAX_CACHED_DATES = 1 << 16


class _DateTexts(dict[int, str]):
    """Texts of (year * 13 + month) * 32 + day, formatted on first use."""

    def __missing__(self, packed: int) -> str:
        if len(self) >= _MAX_CACHED_DATES:
            self.clear()
        year, month = divmod(packed >> 5, 13)
        self[packed] = text = f"{year:04d}-{month:02d}-{packed & 31:02d}"
        return text


class _TimeTexts(dict[int, str]):
    """Texts of (hour * 64 + minute) * 64 + second below 2 ** 17, formatted on first use."""

    def __missing__(self, packed: int) -> str:
        self[packed] = text = f" {packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
        return text


_dates = _DateTexts()
_times = _TimeTexts()

DATETIME_ZERO = 0x80_0000_0000
TIME_ZERO = 0x80_0000


def format_date(raw: bytes) -> str:
    """Format a DATE of 3 bytes: day 5 bits, month 4, year 15."""
    packed = int.from_bytes(raw, "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


def format_fraction(units: int, width: int, digits: int) -> str:
    """Format a fraction stored in `width` bytes; more digits than declared if it is out of range."""
    text = f"{units:0{2 * width}d}"
    return "." + (text[:digits] if len(text) == 2 * width else text)


def format_datetime2_seconds(raw: bytes) -> str:
    """Format a DATETIME2 without fraction."""
    packed = int.from_bytes(raw, "big") - DATETIME_ZERO
    if packed < 0:
        return "-" + format_datetime(-packed)
    return _dates[packed >> 17] + _times[packed & 0x1FFFF]


def format_datetime(packed: int) -> str:
    """Format year * 13 + month, day, hour, minute, second packed in 40 bits."""
    return _dates[packed >> 17] + _times[packed & 0x1FFFF]


def format_time(packed: int) -> str:
    """Format hour, minute, second packed in 24 bits."""
    return f"{packed >> 12 & 1023:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


@cache
def make_datetime2_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a DATETIME2 with that many digits of a fraction."""
    if not digits:
        return format_datetime2_seconds
    width = (digits + 1) // 2
    zero, shift, mask = DATETIME_ZERO << 8 * width, 8 * width, (1 << 8 * width) - 1

    def read(raw: bytes) -> str:
        packed = int.from_bytes(raw, "big") - zero
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        return sign + format_datetime(packed >> shift) + format_fraction(packed & mask, width, digits)

    return read


@cache
def make_time2_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a TIME2.

    A negative time is stored as the negative of the whole number, fraction included.
    """
    width = (digits + 1) // 2
    zero, shift, mask = TIME_ZERO << 8 * width, 8 * width, (1 << 8 * width) - 1

    def read(raw: bytes) -> str:
        packed = int.from_bytes(raw, "big") - zero
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        text = sign + format_time(packed >> shift)
        return text + format_fraction(packed & mask, width, digits) if digits else text

    return read


@cache
def make_timestamp2_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a TIMESTAMP2."""
    width = (digits + 1) // 2

    def read(raw: bytes) -> str:
        text = format_timestamp(int.from_bytes(raw[:4], "big"))
        return text + format_fraction(int.from_bytes(raw[4:], "big"), width, digits) if digits else text

    return read


def format_timestamp(seconds: int) -> str:
    """Format seconds since 1970 as UTC; 0 is the zero date."""
    if not seconds:
        return "0000-00-00 00:00:00"
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"


def format_old_timestamp(raw: bytes) -> str:
    """Format a TIMESTAMP of MySQL before 5.6: 4 bytes, little-endian."""
    return format_timestamp(int.from_bytes(raw, "little"))


def format_old_time(raw: bytes) -> str:
    """Format a TIME of MySQL before 5.6: HHMMSS as a signed decimal number of 3 bytes."""
    packed = int.from_bytes(raw, "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f"{sign}{packed // 10000:02d}:{packed // 100 % 100:02d}:{packed % 100:02d}"


def format_old_datetime(raw: bytes) -> str:
    """Format a DATETIME of MySQL before 5.6: YYYYMMDDhhmmss as a decimal number of 8 bytes."""
    day, clock = divmod(int.from_bytes(raw, "little"), 1_000_000)
    date_ = f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"
    return f"{date_} {clock // 10000:02d}:{clock // 100 % 100:02d}:{clock % 100:02d}"


def format_json_datetime(packed: int) -> str:
    """Format a DATETIME or TIMESTAMP of binary JSON: as DATETIME2 with 24 bits of microseconds, signed."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f"{sign}{format_datetime(packed >> 24)}.{packed & 0xFFFFFF:06d}"


def format_json_date(packed: int) -> str:
    """Format a DATE of binary JSON: a DATETIME whose time is ignored."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return sign + _dates[packed >> 41]


def format_json_time(packed: int) -> str:
    """Format a TIME of binary JSON: as TIME2 with 24 bits of microseconds, signed."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f"{sign}{format_time(packed >> 24)}.{packed & 0xFFFFFF:06d}"


@cache
def make_mariadb_timestamp_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a TIMESTAMP of MariaDB before 10.1.2 with a fraction.

    The value is the seconds in 4 bytes, then the fraction, big-endian.
    """

    def read(raw: bytes) -> str:
        return f"{format_timestamp(int.from_bytes(raw[:4], 'big'))}.{int.from_bytes(raw[4:], 'big'):0{digits}d}"

    return read


@cache
def make_mariadb_datetime_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a DATETIME of MariaDB before 10.1.2 with a fraction.

    The value is one number, ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + ...) with the fraction.
    """
    unit = 10**digits

    def read(raw: bytes) -> str:
        seconds, part = divmod(int.from_bytes(raw, "big"), unit)
        days, clock = divmod(seconds, 86400)
        return f"{_dates[days]} {clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}.{part:0{digits}d}"

    return read


@cache
def make_mariadb_time_reader(digits: int) -> Callable[[bytes], str]:
    """Create the function that formats a TIME of MariaDB before 10.1.2 with a fraction.

    The value is seconds and fraction as one number, to which 839 hours are added.
    """
    unit = 10**digits
    zero = 839 * 3600 * unit

    def read(raw: bytes) -> str:
        packed = int.from_bytes(raw, "big") - zero
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        seconds, part = divmod(packed, unit)
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:0{digits}d}"

    return read
