"""The JSON kernels against msgspec (which writes what they must write), Python's repr, and datetime."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binlogtool.format_api import json_text_kernels
from binlogtool.format_api.encode_json import escape_invisible_characters
from binlogtool.format_api.json_text_kernels import NO_SPACE, UNSUPPORTED

ROOM = 4096


def written(put: Callable[..., int], *given: Any, room: int = ROOM) -> bytes | int:
    out = bytearray(room)
    end = put(*given, out, 0, room)
    return end if end < 0 else bytes(out[:end])


def bits(value: float) -> int:
    number: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return number


def from_bits(number: int) -> float:
    value: float = struct.unpack(">d", struct.pack(">Q", number))[0]
    return value


ordinary = st.builds(
    lambda sign, exponent, fraction: from_bits(sign << 63 | exponent << 52 | fraction),
    st.integers(0, 1), st.integers(1007, 1075), st.integers(0, 2**52 - 1),
)  # fmt: skip
decimals = st.builds(lambda digits, places: digits / 10**places, st.integers(1, 10**17), st.integers(0, 12))
dyadic = st.builds(lambda number, k: (2 * number + 1) / 2.0**k, st.integers(0, 2**52 - 1), st.integers(0, 60))
seconds = st.floats(1.6e9, 2.2e9)


@given(st.one_of(ordinary, decimals, dyadic, seconds, st.floats()))
@example(1 + 1 / 2**17)
@example(1 + 3 / 2**17)
@example(0.1 + 0.2)
@example(9007199254740991.5)
@example(-0.0)
@example(2.0**-16)
def test_a_double_is_written_as_msgspec_writes_it_or_not_at_all(value: float) -> None:
    text = written(json_text_kernels.write_json_double, bits(value))
    if value == 0 or 2.0**-16 <= abs(value) < 2.0**53:
        assert text == msgspec.json.encode(value)
        assert isinstance(text, bytes)
        assert float(text) == value
        if value == 0 or abs(value) >= 1e-4:  # Python writes smaller ones in another form
            assert text.decode() == repr(value)
    else:
        assert text == UNSUPPORTED


def test_powers_of_two_have_a_nearer_neighbour_below_and_are_still_shortest() -> None:
    for exponent in range(-16, 53):
        for sign in (1, -1):
            value = sign * 2.0**exponent
            assert written(json_text_kernels.write_json_double, bits(value)) == msgspec.json.encode(value)


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(-1)
@example(-(2**63))
@example(2**63 - 1)
@example(10**16)
@example(10**16 - 1)
@example(10**18)
def test_numbers_are_written_in_full(value: int) -> None:
    assert written(json_text_kernels.write_json_signed, value) == b"%d" % value
    assert written(json_text_kernels.write_json_unsigned, value) == b"%d" % (value & 2**64 - 1)


@pytest.mark.parametrize("size", range(1, 20))
def test_the_borders_of_each_number_of_digits(size: int) -> None:
    for value in (10 ** (size - 1), 10 ** (size - 1) + 1, 10**size - 1):
        if value < 2**63:
            assert written(json_text_kernels.write_json_unsigned, value) == str(value).encode()


@given(st.integers(0, 253402300800 * 10**6 - 1))
@example(951782400 * 10**6)
@example(4107542399999999)
def test_a_time_is_written_as_datetime_says(microseconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    text = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert written(json_text_kernels.write_json_time, microseconds) == f'"{text}"'.encode()


def test_times_outside_the_calendar_are_not_written() -> None:
    assert written(json_text_kernels.write_json_time, -1) == UNSUPPORTED
    assert written(json_text_kernels.write_json_time, 253402300800 * 10**6) == UNSUPPORTED


@given(st.integers(0, 2**32 - 1))
def test_checksums_have_eight_digits(value: int) -> None:
    assert written(json_text_kernels.write_uint32_hex, value) == f"{value:08x}".encode()


def string(raw: bytes) -> bytes | int:
    return written(json_text_kernels.write_json_string, raw, 0, len(raw))


@pytest.mark.full
def test_each_character_is_written_as_the_general_writer_does_or_not_at_all() -> None:
    """The ones that are refused are those that reports escape in addition, and no others."""
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            assert string(chr(code).encode("utf-8", "surrogatepass")) == UNSUPPORTED
            continue
        plain = msgspec.json.encode(chr(code))
        expected = plain if escape_invisible_characters(plain) == plain else UNSUPPORTED
        assert string(chr(code).encode()) == expected, hex(code)


hostile = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from([b"\xe2\x80", b"\xf0\x9f\x98", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]),
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
    )
).map(b"".join)


@given(hostile)
def test_bytes_that_are_no_text_are_refused_and_text_is_never_changed(raw: bytes) -> None:
    try:
        expected: bytes | int = msgspec.json.encode(raw.decode())
        expected = expected if escape_invisible_characters(expected) == expected else UNSUPPORTED
    except UnicodeDecodeError:
        expected = UNSUPPORTED
    assert string(raw) == expected


@given(st.integers(0, 40), st.text("ab\x01é", max_size=8), st.integers(-(2**63), 2**63 - 1), ordinary)
def test_nothing_is_written_behind_the_end_of_the_room(room: int, text: str, number: int, value: float) -> None:
    raw = text.encode()
    for put, *arguments in (
        (json_text_kernels.write_json_string, raw, 0, len(raw)),
        (json_text_kernels.write_json_signed, number),
        (json_text_kernels.write_json_double, bits(value)),
        (json_text_kernels.write_json_time, number & 2**40),
        (json_text_kernels.write_uint32_hex, number),
        (json_text_kernels.write_json_null,),
    ):
        out = bytearray(b"\xaa" * (room + 64))
        end = put(*arguments, out, 0, room)
        whole = bytearray(256)
        length = put(*arguments, whole, 0, len(whole))
        assert length > 0
        assert (end, bytes(out[: max(end, 0)])) in ((NO_SPACE, b""), (length, bytes(whole[:length])))
        assert end <= room
        assert out[room:] == b"\xaa" * 64


names = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.binary(min_size=1, max_size=9))


@given(names, st.integers(-(2**63), 2**63 - 1))
def test_names_are_found_by_any_number(known: dict[int, bytes], other: int) -> None:
    table = json_text_kernels.build_name_table(known)
    for number in {*known, other, 0, -1}:
        assert written(json_text_kernels.write_text_of_number, table, number) == known.get(number, UNSUPPORTED)


@given(st.dictionaries(st.integers(0, 99), st.binary(min_size=1, max_size=9)))
def test_texts_are_found_by_small_numbers_and_holes_have_none(known: dict[int, bytes]) -> None:
    table = json_text_kernels.build_text_table(known)
    for number in range(-2, 103):
        assert written(json_text_kernels.write_text_of_table, table, number) == known.get(number, UNSUPPORTED)
