"""Values: decimals, times, texts and the types that only a CREATE TABLE names."""

from __future__ import annotations

import struct
import zlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.values import decode_values
from binlogtool.formats.binlog_events.values.column_types import (
    ColumnType,
    LogicalType,
    TableMapColumn,
    choose_column_encoding,
    get_charset_decoder,
    normalize_charset_name,
)
from binlogtool.formats.binlog_events.values.decode_values import (
    DecodeBudget,
    get_budgeted_value_decoder,
    make_decimal_formatter,
    shortest_float,
)
from binlogtool.limits import Limits

_C = ColumnType


def value(column: TableMapColumn, raw: bytes, limits: Limits = Limits()) -> Any:
    return get_budgeted_value_decoder(column, choose_column_encoding(column))(raw, DecodeBudget(limits))


@pytest.mark.parametrize(
    ("precision", "scale", "stored", "text"),
    [
        (14, 4, "810dfb38d204d2", "1234567890.1234"),
        (14, 4, "7ef204c72dfb2d", "-1234567890.1234"),
        (5, 0, "81869f", "99999"),
        (5, 0, "7e7960", "-99999"),
        (4, 2, "8000", "0.00"),
        (4, 2, "7ffe", "-0.01"),
        (20, 18, "8c0756b5b30756b5b3", "12.123123123123123123"),
    ],
)
def test_packed_decimals_have_their_exact_scale(precision: int, scale: int, stored: str, text: str) -> None:
    assert make_decimal_formatter(precision, scale)(bytes.fromhex(stored)) == text


def packed_decimal(units: int, precision: int, scale: int) -> bytes:
    """Written from the specification, digit by digit. units: the number times 10 ** scale."""
    digits = str(abs(units)).rjust(precision, "0")
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = ([whole[:head]] if head else []) + [whole[at : at + 9] for at in range(head, len(whole), 9)]
    groups += [fraction[at : at + 9] for at in range(0, scale, 9)]
    raw = b"".join(int(group).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(group)], "big") for group in groups)
    raw = bytes([raw[0] ^ 0x80]) + raw[1:]
    return bytes(byte ^ 0xFF for byte in raw) if units < 0 else raw


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, int]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 30)))
    return draw(st.integers(-(10**precision) + 1, 10**precision - 1)), precision, scale


@settings(deadline=None)
@given(decimals())
def test_every_decimal_comes_back(case: tuple[int, int, int]) -> None:
    units, precision, scale = case
    exact = Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))
    assert make_decimal_formatter(precision, scale)(packed_decimal(units, precision, scale)) == f"{exact:f}"


def test_a_group_of_ten_digits_is_no_decimal() -> None:
    with pytest.raises(MalformedError, match="not decimal digits"):
        make_decimal_formatter(9, 0)(b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("digits", "stored", "text"),
    [
        (0, "800000", "00:00:00"),
        (2, "80000000", "00:00:00.00"),
        (2, "7fffffff", "-00:00:00.01"),
        (2, "7fffff9d", "-00:00:00.99"),
        (2, "7fffff00", "-00:00:01.00"),
        (2, "7ffffeff", "-00:00:01.01"),
        (2, "7ffffef6", "-00:00:01.10"),
        (1, "7ffffef6", "-00:00:01.1"),
        (4, "7fffffffff", "-00:00:00.0001"),
        (4, "7ffffed8f1", "-00:00:01.9999"),
        (6, "7fffffffffff", "-00:00:00.000001"),
        (0, "4b9105", "-838:59:59"),
        (0, "b46efb", "838:59:59"),
    ],
)
def test_negative_times_count_back_with_their_fraction(digits: int, stored: str, text: str) -> None:
    assert value(TableMapColumn(_C.TIME2, digits), bytes.fromhex(stored)) == text


def packed_datetime(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    return 0x8000000000 + ((((year * 13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | second)


@pytest.mark.parametrize(
    ("column", "stored", "text"),
    [
        (
            TableMapColumn(_C.DATETIME2, 0),
            packed_datetime(2024, 2, 29, 23, 59, 58).to_bytes(5, "big"),
            "2024-02-29 23:59:58",
        ),
        (
            TableMapColumn(_C.DATETIME2, 3),
            packed_datetime(9999, 12, 31, 0, 0, 0).to_bytes(5, "big") + b"\x26\xf7",
            "9999-12-31 00:00:00.997",
        ),
        (TableMapColumn(_C.DATETIME2, 0), b"\x80\0\0\0\0", "0000-00-00 00:00:00"),
        (TableMapColumn(_C.DATETIME2, 1), b"\x80\0\0\0\0\x63", "0000-00-00 00:00:00.9"),
        (TableMapColumn(_C.DATETIME2, 0), b"\x7f\xff\xff\xff\xff", "-0000-00-00 00:00:01"),
        (TableMapColumn(_C.TIMESTAMP2, 0), b"\0\0\0\0", "0000-00-00 00:00:00"),
        (TableMapColumn(_C.TIMESTAMP2, 2), b"\0\0\0\0\0", "0000-00-00 00:00:00.00"),
        (
            TableMapColumn(_C.TIMESTAMP2, 6),
            struct.pack(">I", 1700000000) + b"\x01\xe2\x40",
            "2023-11-14 22:13:20.123456",
        ),
        (TableMapColumn(_C.TIMESTAMP2, 0), b"\xff\xff\xff\xff", "2106-02-07 06:28:15"),
        (TableMapColumn(_C.TIMESTAMP), struct.pack("<I", 1700000000), "2023-11-14 22:13:20"),
        (TableMapColumn(_C.DATE), (2024 << 9 | 2 << 5 | 30).to_bytes(3, "little"), "2024-02-30"),
        (TableMapColumn(_C.DATE), b"\0\0\0", "0000-00-00"),
        (TableMapColumn(_C.TIME), (8385959).to_bytes(3, "little"), "838:59:59"),
        (TableMapColumn(_C.TIME), (-10203).to_bytes(3, "little", signed=True), "-01:02:03"),
        (TableMapColumn(_C.DATETIME), (20240229235958).to_bytes(8, "little"), "2024-02-29 23:59:58"),
        (TableMapColumn(_C.DATETIME), bytes(8), "0000-00-00 00:00:00"),
        (TableMapColumn(_C.YEAR), b"\0", 0),
        (TableMapColumn(_C.YEAR), b"\xff", 2155),
    ],
)
def test_dates_and_times_stand_as_they_are_stored(column: TableMapColumn, stored: bytes, text: Any) -> None:
    assert value(column, stored) == text


@settings(deadline=None)
@given(st.tuples(*(st.integers(0, most) for most in (9999, 12, 31, 23, 59, 59))))
def test_every_datetime_comes_back(parts: tuple[int, int, int, int, int, int]) -> None:
    raw = packed_datetime(*parts).to_bytes(5, "big")
    assert decode_values.make_datetime2_formatter(0)(raw) == "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}".format(*parts)


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=8), st.integers(0, 6))
def test_no_bytes_make_a_time_fail(raw: bytes, digits: int) -> None:
    width = (digits + 1) // 2
    assert isinstance(value(TableMapColumn(_C.TIME2, digits), raw[: 3 + width]), str)
    assert isinstance(value(TableMapColumn(_C.DATETIME2, digits), raw[: 5 + width]), str)
    assert isinstance(value(TableMapColumn(_C.TIMESTAMP2, digits), raw[: 4 + width]), str)
    assert isinstance(value(TableMapColumn(_C.DATETIME), raw), str)
    assert isinstance(value(TableMapColumn(_C.TIME), raw[:3]), str)


@pytest.mark.parametrize(
    ("exact", "short"),
    [
        (0.1, 0.1),
        (3.4028234663852886e38, 3.4028235e38),
        (1e-45, 1e-45),
        (16777216.0, 16777216.0),
        (-0.3, -0.3),
        (1e12, 1e12),
    ],
)
def test_a_float_has_as_few_digits_as_it_needs(exact: float, short: float) -> None:
    assert shortest_float(struct.unpack("<f", struct.pack("<f", exact))[0]) == short


def significant_digits(number: float) -> int:
    return len(Decimal(repr(number)).normalize().as_tuple().digits)


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False))
@example(999999995904.0)  # one digit, 1e12, though Python writes that with more characters
def test_a_short_float_is_still_the_same_float(number: float) -> None:
    short = shortest_float(number)
    assert struct.pack("<f", short) == struct.pack("<f", number)
    assert significant_digits(short) <= significant_digits(number)


@pytest.mark.parametrize(
    ("column", "stored", "expected"),
    [
        (TableMapColumn(_C.TINY), b"\xff", -1),
        (TableMapColumn(_C.TINY, unsigned=True), b"\xff", 255),
        (TableMapColumn(_C.INT24), b"\x00\x00\x80", -8388608),
        (TableMapColumn(_C.INT24, unsigned=True), b"\x00\x00\x80", 8388608),
        (TableMapColumn(_C.LONGLONG, unsigned=True), b"\xff" * 8, 2**64 - 1),
        (TableMapColumn(_C.BIT, 13), b"\x10\x0b", 0x100B),
        (TableMapColumn(_C.ENUM, 1), b"\x02", 2),
        (TableMapColumn(_C.ENUM, 1), b"\x00", 0),
        (TableMapColumn(_C.ENUM, 1, values=("red", "green")), b"\x02", "green"),
        (TableMapColumn(_C.ENUM, 1, values=("red", "green")), b"\x00", ""),
        (TableMapColumn(_C.ENUM, 2, values=("red", "green")), b"\x03\x00", 3),
        (TableMapColumn(_C.SET, 1), b"\x05", 5),
        (TableMapColumn(_C.SET, 1, values=("a", "b", "c")), b"\x05", ["a", "c"]),
        (TableMapColumn(_C.SET, 1, values=("a", "b", "c")), b"\x00", []),
        (TableMapColumn(_C.SET, 1, values=("a", "b", "c")), b"\x09", 9),
        (TableMapColumn(_C.VARCHAR, 9), "é".encode(), "é"),
        (TableMapColumn(_C.VARCHAR, 9), b"\xe9", b"\xe9"),
        (TableMapColumn(_C.VARCHAR, 9, charset="latin1"), b"\xe9\x80\x81", "é€\x81"),
        (TableMapColumn(_C.VARCHAR, 9, charset="utf8mb4"), b"\xe9", b"\xe9"),
        (TableMapColumn(_C.VARCHAR, 9, charset="binary"), b"abc", b"abc"),
        (TableMapColumn(_C.VARCHAR, 9, charset="utf16"), b"\x00a\xd8\x3d\xde\x00", "a😀"),
        (TableMapColumn(_C.VARCHAR, 9, charset="utf16"), b"\x00a\xd8", b"\x00a\xd8"),
        (TableMapColumn(_C.VARCHAR, 9, charset="swe7"), b"abc", b"abc"),
        (TableMapColumn(_C.BLOB, 2, charset="cp1251"), b"\xcf\xf0\xe8", "При"),
        (TableMapColumn(_C.GEOMETRY, 4), b"\xe6\x10\0\0\x01\x01\0\0\0", {"srid": 4326, "wkb": b"\x01\x01\0\0\0"}),
        (TableMapColumn(_C.GEOMETRY, 4), b"", b""),
        (TableMapColumn(_C.VECTOR, 4), struct.pack("<3f", 0.1, -1, 2.5), [0.1, -1.0, 2.5]),
        (TableMapColumn(_C.VECTOR, 4), b"\0\0\0", b"\0\0\0"),
        (TableMapColumn(_C.VARCHAR, 8, logical=LogicalType.VECTOR), struct.pack("<2f", 1, 2), [1.0, 2.0]),
        (
            TableMapColumn(_C.STRING, 16, logical=LogicalType.UUID),
            bytes.fromhex("123e4567e89b12d3a45642665544"),
            "123e4567-e89b-12d3-a456-426655440000",
        ),
        (TableMapColumn(_C.STRING, 16, logical=LogicalType.UUID), bytes(17), bytes(17)),
        (TableMapColumn(_C.STRING, 4, logical=LogicalType.INET4), b"\x0a\x00\x06", "10.0.6.0"),
        (
            TableMapColumn(_C.STRING, 16, logical=LogicalType.INET6),
            bytes(10) + b"\xff\xff\x01\x02\x03\x04",
            "::ffff:1.2.3.4",
        ),
        (TableMapColumn(_C.STRING, 16, logical=LogicalType.INET6), bytes(12) + b"\x01\x02\x03\x04", "::1.2.3.4"),
        (TableMapColumn(_C.STRING, 16, logical=LogicalType.INET6), bytes.fromhex("20010db8"), "2001:db8::"),
        (TableMapColumn(_C.STRING, 16, logical=LogicalType.INET6), bytes(15) + b"\x01", "::1"),
        (TableMapColumn(_C.NULL), b"", None),
    ],
)
def test_values_are_what_their_column_says(column: TableMapColumn, stored: bytes, expected: Any) -> None:
    found = value(column, stored)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("size", [5, 300, 70_000, 20_000_000])
def test_compressed_values_have_lengths_of_one_to_four_bytes(size: int) -> None:
    column = TableMapColumn(_C.BLOB_COMPRESSED, 4, charset="latin1")
    width = (size.bit_length() + 7) // 8
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    stored = bytes([0x88 | width]) + size.to_bytes(width, "big") + packed.compress(b"x" * size) + packed.flush()
    assert value(column, stored) == "x" * size
    with_header = bytes([0x80 | width]) + size.to_bytes(width, "big") + zlib.compress(b"x" * size)
    assert value(column, with_header) == "x" * size


def test_a_compressed_value_may_be_stored_as_it_is() -> None:
    column = TableMapColumn(_C.VARCHAR_COMPRESSED, 100, charset="utf8mb4")
    assert value(column, b"\x00abc") == "abc"
    assert value(column, b"") == ""


@pytest.mark.parametrize(
    "stored",
    [
        b"\x89",
        b"\x89\x05",
        b"\x80abc",
        b"\x19\x05" + zlib.compress(b"xxxxx"),
        b"\x81\x05" + zlib.compress(b"xxxxxx"),
        b"\x81\x07" + zlib.compress(b"xxxxxx"),
        b"\x81\x06" + zlib.compress(b"xxxxxx")[:-1],
        b"\x81\x06" + zlib.compress(b"xxxxxx") + b"!",
    ],
)
def test_a_compressed_value_that_is_not_what_it_says_is_an_error(stored: bytes) -> None:
    with pytest.raises(DecompressionError) as caught:
        value(TableMapColumn(_C.VARCHAR_COMPRESSED, 100), stored)
    assert caught.value.finding_id == "compression-error"


def test_compressed_values_of_one_event_share_one_limit() -> None:
    column = TableMapColumn(_C.VARCHAR_COMPRESSED, 100, charset="binary")
    read = get_budgeted_value_decoder(column, choose_column_encoding(column))
    stored = b"\x82\x03\xe8" + zlib.compress(bytes(1000))
    budget = DecodeBudget(Limits(max_inflate=8 * 2500))
    assert read(stored, budget) == read(stored, budget) == bytes(1000)
    with pytest.raises(DecompressionError) as caught:
        read(stored, budget)
    assert caught.value.finding_id == "inflate-limit"


def test_every_byte_is_a_character_of_latin1() -> None:
    text = get_charset_decoder("latin1")(bytes(range(256)))
    assert isinstance(text, str)
    assert len(set(text)) == 256
    assert text[0x80] == "€"
    assert text[0x81] == "\x81"


def test_the_names_of_character_sets_in_sql_are_known() -> None:
    assert [normalize_charset_name(name) for name in ("UTF8", "utf8mb4", "Latin1", "binary", "klingon")] == [
        "utf8mb3",
        "utf8mb4",
        "latin1",
        "binary",
        None,
    ]
