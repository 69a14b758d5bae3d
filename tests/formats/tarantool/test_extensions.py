from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool.msgpack.decode_values import (
    decode_extension,
    format_datetime,
    format_decimal,
    to_civil_date,
)
from binlogtool.limits import Limits
from tests.formats.tarantool.mp_value import MpValue


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("02012345c0", None),  # the sign must be the last half byte
        ("0112345c", "1234.5"),
        ("02000c", "0.00"),
        ("00123d", "-123"),
        ("2a1c", "0.000000000000000000000000000000000000000001"),
        ("fe1c", "100"),
        ("00012a", "12"),
        ("00012b", "-12"),
        ("00012e", "12"),
        ("00012f", "12"),
    ],
)
def test_decimals(content: str, text: str | None) -> None:
    data = bytes.fromhex(content)
    if text is None:
        with pytest.raises(MalformedError):
            format_decimal(data)
        assert decode_extension(1, data) == {"$ext": [1, data]}
    else:
        assert format_decimal(data) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, places=7, min_value=-(10**20), max_value=10**20))
def test_any_decimal_is_exact(number: Decimal) -> None:
    sign, digits, exponent = number.as_tuple()
    nibbles = [*digits, 0xD if sign else 0xC]
    nibbles = [0] * (len(nibbles) % 2) + nibbles
    packed = bytes(a << 4 | b for a, b in zip(nibbles[::2], nibbles[1::2], strict=True))
    assert isinstance(exponent, int)
    text = format_decimal(bytes([-exponent]) + packed)
    assert Decimal(text).as_tuple() == number.as_tuple()


@pytest.mark.parametrize("content", ["", "01", "a1", "001a2c", "c01c", "0a", "01" + "11" * 100 + "1c"])
def test_what_is_no_decimal_stays_bytes(content: str) -> None:
    data = bytes.fromhex(content)
    assert decode_extension(1, data) == {"$ext": [1, data]}


def test_a_scale_beyond_reason_does_not_make_a_long_text() -> None:
    assert format_decimal(bytes.fromhex("d27fffffff1c")) in ("1E-2147483647",)


def test_uuids() -> None:
    data = bytes.fromhex("000000070000400080000000000000ff")
    assert decode_extension(2, data) == {"$uuid": "00000007-0000-4000-8000-0000000000ff"}
    assert decode_extension(2, data[:-1]) == {"$ext": [2, data[:-1]]}


def test_datetimes_are_rfc_3339_in_their_own_zone_with_all_fields() -> None:
    long = struct.pack("<qihh", 1_700_000_000, 5_000_000, 180, 0)
    assert decode_extension(4, long) == {
        "$datetime": "2023-11-15T01:13:20.005+03:00",
        "seconds": 1_700_000_000, "nanoseconds": 5_000_000, "tz_offset": 180, "tz_index": 0,
    }  # fmt: skip
    short = struct.pack("<q", -1)
    assert decode_extension(4, short) == {"$datetime": "1969-12-31T23:59:59Z", "seconds": -1}


@pytest.mark.parametrize("fields", [(0, 10**9, 0, 0), (0, -1, 0, 0), (0, 0, 1440, 0)])
def test_a_datetime_out_of_range_stays_bytes(fields: tuple[int, int, int, int]) -> None:
    data = struct.pack("<qihh", *fields)
    assert decode_extension(4, data) == {"$ext": [4, data]}


@given(st.datetimes(), st.integers(-720, 840))
def test_datetime_text_agrees_with_the_standard_library(moment: datetime.datetime, offset: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=offset))
    utc = moment.replace(tzinfo=datetime.UTC)
    try:
        expected = utc.astimezone(zone).isoformat()
    except OverflowError:
        reject()
    seconds = (utc.replace(microsecond=0) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(
        seconds=1
    )
    text = format_datetime(seconds, utc.microsecond * 1000, offset)
    assert datetime.datetime.fromisoformat(text).isoformat() == expected


def test_years_beyond_four_digits_have_a_sign() -> None:
    assert format_datetime(253_402_300_800) == "+10000-01-01T00:00:00Z"
    assert to_civil_date(-719_528) == (0, 1, 1)
    assert format_datetime(-(2**63)).startswith("-292277022657-")


def test_intervals() -> None:
    data = bytes.fromhex("03" + "00d0ff" + "060a" + "0801")
    assert decode_extension(6, data) == {"$interval": {"year": -1, "second": 10, "adjust": 1}}
    assert decode_extension(6, b"\x00") == {"$interval": {}}
    for broken in ("", "01", "0109ff", "0100a0", "0000", "010001ff"):
        assert decode_extension(6, bytes.fromhex(broken)) == {"$ext": [6, bytes.fromhex(broken)]}


def test_errors_are_a_stack_of_named_fields() -> None:
    data = bytes.fromhex("81009186" + "00a5" + b"Error".hex() + "01a161" + "0205" + "03a16d" + "0400" + "0514")
    expected = {"type": "Error", "file": "a", "line": 5, "message": "m", "errno": 0, "code": 20}
    assert decode_extension(3, data) == {"$error": [expected]}
    assert decode_extension(3, b"\x80") == {"$ext": [3, b"\x80"]}


@pytest.mark.parametrize("code", [5, 7, 8, 9, -1])
def test_other_types_stay_bytes(code: int) -> None:
    assert decode_extension(code, b"ab") == {"$ext": [code, b"ab"]}


@pytest.mark.parametrize(
    ("encoded", "named"),
    [
        ("c7030112345c", {".scale": 18, ".digits": "345c"}),
        ("d802000000070000400080000000000000ff", {".uuid": "00000007-0000-4000-8000-0000000000ff"}),
        ("d7040000000000000000", {".seconds": 0}),
        ("c7030601060a", {".count": 1, ".second": 10}),
        ("d4057f", {".data": b"\x7f"}),
    ],
)
def test_every_byte_of_an_extension_is_named(encoded: str, named: dict[str, object]) -> None:
    data = bytes.fromhex(encoded)
    assert MpValue().parse(data).end == len(data)
    parts = [p for p in MpValue().trace_rows(data, 0, len(data), Limits()) if p.end is not None]
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == len(data)
    found = {p.path: p.value for p in parts}
    assert named.items() <= found.items()
