"""Text of the numbers, dates and times of row images, as kernels for the sinks that write text.

`quote` is the character before and after a text; 0 = none.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.json_text_kernels import (
    count_digits,
    write_json_binary_fraction,
    write_json_date,
    write_json_signed,
    write_json_unsigned,
    write_last_digits,
)
from binlogtool.format_api.schema_fields import MutableUInt8s, UInt8s, kernel

# ruff: noqa: D102 - `decoders.ValueSink` describes the methods of sinks

# --- Numbers ---


@kernel(write_last_digits)
def write_padded_digits(value: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write the last `size` (1 to 9) digits of a number below 10**9, with leading zeros; may write up to nine bytes."""
    if size < 9:
        return write_last_digits(value, size, out, out_pos)
    top = value // 100000000
    out[out_pos] = 48 + top
    return write_last_digits(value - top * 100000000, 8, out, out_pos + 1)


@kernel(write_json_binary_fraction)
def write_float_text(bits: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the shortest decimal that reads back as the 32-bit float with these bits.

    Only for 0 and magnitudes from 2**-16 to 2**24, else -2: there all algorithms for the shortest decimal agree,
    because no boundary between neighbours is as short as a shortest decimal.
    """
    if out_limit - out_pos < 65:
        return -1
    if bits >= 0x80000000:
        out[out_pos] = 45
        out_pos += 1
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if exponent == 0 and mantissa == 0:
        return write_json_binary_fraction(0, 0, False, out, out_pos, out_limit)
    if exponent < 111 or exponent > 150:
        return -2
    return write_json_binary_fraction(mantissa + 0x800000, 150 - exponent, mantissa == 0, out, out_pos, out_limit)


# --- Dates and times ---


@kernel()
def write_quote_if_any(quote: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a quote, if there is one."""
    if quote == 0:
        return out_pos
    out[out_pos] = quote
    return out_pos + 1


@kernel(write_last_digits)
def write_year_month_day(date: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write YYYY-MM-DD; -2 for years of more than four digits."""
    year = date >> 9
    if year > 9999:
        return -2
    out_pos = write_last_digits(year, 4, out, out_pos)
    out[out_pos] = 45
    out_pos = write_last_digits(date >> 5 & 15, 2, out, out_pos + 1)
    out[out_pos] = 45
    return write_last_digits(date & 31, 2, out, out_pos + 1)


@kernel(write_last_digits)
def write_time_of_day_text(clock: int, micros: int, digits: int, quote: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write HH:MM:SS, the fraction if it has digits, and the closing quote; hours may have up to four digits."""
    hour = clock >> 12
    out_pos = write_last_digits(hour, 2 + (hour >= 100) + (hour >= 1000), out, out_pos)
    out[out_pos] = 58
    out_pos = write_last_digits(clock >> 6 & 63, 2, out, out_pos + 1)
    out[out_pos] = 58
    out_pos = write_last_digits(clock & 63, 2, out, out_pos + 1)
    if digits > 0:
        out[out_pos] = 46
        write_last_digits(micros, 6, out, out_pos + 1)
        out_pos += 1 + digits
    if quote > 0:
        out[out_pos] = quote
        out_pos += 1
    return out_pos


@kernel(write_time_of_day_text, write_quote_if_any)
def write_time_text(
    is_negative: bool, clock: int, micros: int, digits: int, quote: int, out: MutableUInt8s, out_pos: int
) -> int:
    """Write a TIME."""
    out_pos = write_quote_if_any(quote, out, out_pos)
    if is_negative:
        out[out_pos] = 45
        out_pos += 1
    return write_time_of_day_text(clock, micros, digits, quote, out, out_pos)


# --- The sink of text ---


class TextValueSink(NamedTuple):
    """Common part of the sinks of text (`decoders.ValueSink`): they write to `out[:z]`.

    quote: the character before and after a text. base: position in `texts` of the texts of an ENUM or SET, or of what
    precedes hexadecimal digits; -1 = none. length: size of the latter.
    """

    quote: int
    texts: UInt8s
    base: int
    length: int
    out: MutableUInt8s
    z: int

    @kernel(write_json_signed)
    def write_signed(self, value: int, out_pos: int) -> int:
        return write_json_signed(value, self.out, out_pos, self.z)

    @kernel(write_json_unsigned)
    def write_unsigned(self, value: int, size: int, out_pos: int) -> int:
        return write_json_unsigned(value, self.out, out_pos, self.z)

    @kernel()
    def begin_decimal(self, is_negative: bool, out_pos: int) -> int:
        if self.z - out_pos < 112:
            return -1
        if is_negative:
            self.out[out_pos] = 45
            out_pos += 1
        return out_pos

    @kernel(count_digits, write_padded_digits)
    def write_digit_group(self, value: int, digit_count: int, number_start: int, out_pos: int) -> int:
        """Write a group of digits; without leading zeros if no digit precedes it."""
        if number_start == out_pos:
            if value == 0:
                return out_pos
            digit_count = 9 if value >= 100000000 else count_digits(value)
        return write_padded_digits(value, digit_count, self.out, out_pos)

    @kernel()
    def write_decimal_point(self, number_start: int, out_pos: int) -> int:
        """Write a decimal point, with a zero before it if no digit precedes it."""
        if number_start == out_pos:
            self.out[out_pos] = 48
            out_pos += 1
        self.out[out_pos] = 46
        return out_pos + 1

    @kernel()
    def end_decimal(self, is_negative: bool, number_start: int, out_pos: int) -> int:
        if number_start == out_pos:
            self.out[out_pos] = 48
            out_pos += 1
        return out_pos

    @kernel(write_quote_if_any, write_year_month_day)
    def write_date(self, packed_date: int, out_pos: int) -> int:
        out_pos = write_year_month_day(packed_date, self.out, write_quote_if_any(self.quote, self.out, out_pos))
        return out_pos if out_pos < 0 else write_quote_if_any(self.quote, self.out, out_pos)

    @kernel(write_time_text)
    def write_time(self, is_negative: bool, packed_time: int, micros: int, fraction_digits: int, out_pos: int) -> int:
        return write_time_text(is_negative, packed_time, micros, fraction_digits, self.quote, self.out, out_pos)

    @kernel(write_time_of_day_text, write_quote_if_any, write_year_month_day)
    def write_datetime(
        self, packed_date: int, packed_time: int, micros: int, fraction_digits: int, out_pos: int
    ) -> int:
        out_pos = write_year_month_day(packed_date, self.out, write_quote_if_any(self.quote, self.out, out_pos))
        if out_pos < 0:
            return out_pos
        self.out[out_pos] = 32
        return write_time_of_day_text(packed_time, micros, fraction_digits, self.quote, self.out, out_pos + 1)

    @kernel(write_time_of_day_text, write_json_date, write_quote_if_any, write_year_month_day)
    def write_timestamp(self, seconds: int, micros: int, fraction_digits: int, out_pos: int) -> int:
        days = seconds // 86400
        out_pos = write_quote_if_any(self.quote, self.out, out_pos)
        out_pos = (
            write_year_month_day(0, self.out, out_pos) if seconds == 0 else write_json_date(days, self.out, out_pos)
        )
        self.out[out_pos] = 32
        minutes = (seconds - days * 86400) // 60
        clock = (minutes // 60) << 12 | (minutes % 60) << 6 | seconds % 60
        return write_time_of_day_text(clock, micros, fraction_digits, self.quote, self.out, out_pos + 1)

    @kernel(write_quote_if_any)
    def begin_text(self, out_pos: int) -> int:
        return write_quote_if_any(self.quote, self.out, out_pos)

    @kernel()
    def write_char(self, char: int, out_pos: int) -> int:
        self.out[out_pos] = char
        return out_pos + 1

    @kernel(write_quote_if_any)
    def end_text(self, out_pos: int) -> int:
        return write_quote_if_any(self.quote, self.out, out_pos)
