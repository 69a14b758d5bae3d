"""Decode NEWDECIMAL: packed decimal digits, nine to four bytes (docs/spec/mysql_binlog.md#row-events)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from binlogtool.formats.binlog_events.values.columns import DIGIT_BYTES, packed_decimal_size
from binlogtool.formats.fields import MalformedError

_DigitGroup = tuple[int, int, int]
"""Where a group of digits starts and ends in the bytes, and how many digits it has."""


def _lay_out_groups(offset: int, digits: tuple[int, ...]) -> tuple[_DigitGroup, ...]:
    groups = []
    for count in digits:
        end = offset + DIGIT_BYTES[count]
        groups.append((offset, end, count))
        offset = end
    return tuple(groups)


@cache
def make_decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Create a function that formats the bytes of a DECIMAL(precision, scale) as text.

    The text has at least one digit before the point and exactly `scale` digits after it. The function raises
    `MalformedError` if the bytes are not a packed decimal.
    """
    size = packed_decimal_size(precision, scale)
    whole = precision - scale
    leading = (whole % 9,) if whole % 9 else ()
    trailing = (scale % 9,) if scale % 9 else ()
    integer = _lay_out_groups(0, leading + (9,) * (whole // 9))
    decimals = _lay_out_groups(integer[-1][1] if integer else 0, (9,) * (scale // 9) + trailing)
    negative_mask = (1 << 8 * size) - 1
    sign_bit = 1 << (8 * size - 1)

    def read(raw: bytes) -> str:
        if len(raw) != size:
            raise MalformedError(f"a DECIMAL({precision},{scale}) of {len(raw)} bytes, not {size}")
        number = int.from_bytes(raw, "big") ^ sign_bit
        sign = ""
        if number & sign_bit:
            sign, number = "-", number ^ negative_mask
        plain = number.to_bytes(size, "big")
        text = _format_digits(plain, integer).lstrip("0") or "0"
        return f"{sign}{text}.{_format_digits(plain, decimals)}" if scale else sign + text

    return read


def _format_digits(plain: bytes, groups: tuple[_DigitGroup, ...]) -> str:
    text = "".join([f"{int.from_bytes(plain[start:end], 'big'):0{count}d}" for start, end, count in groups])
    if len(text) != sum([count for _, _, count in groups]):
        raise MalformedError(f"{plain.hex()} are no decimal digits")
    return text
