from __future__ import annotations

import io
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool.msgpack.decode_values import to_python
from binlogtool.formats.tarantool.msgpack.parse import (
    MpKind,
    MpNode,
    MpUint,
    WideUint,
    decode_value,
    encode_value,
    load_big_endian_int64,
    read_uint,
    skip_value_and_count,
)
from binlogtool.limits import Limits
from tests.formats.tarantool.mp_value import MpValue

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=300)
)
names = st.text(st.characters(codec="ascii", exclude_characters="$"))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(names, inner, max_size=20),
    max_leaves=60,
)  # fmt: skip


@given(values)
def test_what_the_msgpack_library_packs_is_read_as_the_same_value(value: Any) -> None:
    data = msgpack.packb(value)
    assert to_python(decode_value(data, 0, len(data))) == value


@given(values)
def test_a_parsed_value_builds_the_same_bytes(value: Any) -> None:
    data = msgpack.packb(value)
    assert encode_value(decode_value(data, 0, len(data))) == data
    assert MpValue().build(MpValue().parse(data)) == data


@given(values, st.binary(max_size=5))
def test_skipping_a_value_ends_where_the_library_ends_it(value: Any, behind: bytes) -> None:
    data = msgpack.packb(value)
    after, _, _, _ = skip_value_and_count(data + behind, 0, len(data) + len(behind))
    assert after == len(data)


@given(values)
def test_skipping_a_cut_value_says_so(value: Any) -> None:
    data = msgpack.packb(value)
    assert skip_value_and_count(data, 0, len(data) - 1)[0] == -1


@given(st.binary(max_size=60))
def test_skipping_and_decoding_agree_on_any_bytes(data: bytes) -> None:
    try:
        end = decode_value(data, 0, len(data)).end
    except MalformedError:
        end = None
    after = skip_value_and_count(data, 0, len(data))[0]
    assert (after if after >= 0 else None) == end


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("00", 0), ("7f", 127), ("cc80", 128), ("ccff", 255), ("cd0100", 256), ("ce00010000", 65536),
        ("cf0000000100000000", 1 << 32), ("cfffffffffffffffff", 2**64 - 1), ("cc05", 5), ("ce00000005", 5),
    ],
)  # fmt: skip
def test_unsigned_integers_of_every_width(encoded: str, value: int) -> None:
    data = bytes.fromhex(encoded)
    number = MpUint().parse(data)
    assert number == value
    assert MpUint().build(number) == data
    scanned, after = read_uint(data, 0, len(data))
    assert (scanned % 2**64, after) == (value, len(data))


def test_a_number_in_its_shortest_form_needs_no_memory_of_its_form() -> None:
    assert type(MpUint().parse(b"\xcc\x80")) is int
    assert type(MpUint().parse(b"\xcc\x05")) is WideUint


@pytest.mark.parametrize("encoded", ["ff", "d0ff", "c0", "a0", "cb3ff0000000000000", "c1", "80"])
def test_what_is_no_unsigned_integer_is_refused(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    with pytest.raises(MalformedError, match="does not start an unsigned integer"):
        MpUint().parse(data)
    assert read_uint(data, 0, len(data))[1] == -2


@pytest.mark.parametrize("encoded", ["", "cc", "cd00", "ce000000", "cf00000000000000"])
def test_a_cut_integer_is_short(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert read_uint(data, 0, len(data))[1] == -1


def test_64_bits_keep_their_pattern() -> None:
    assert load_big_endian_int64(struct.pack(">Q", 2**64 - 2), 0) == -2
    assert load_big_endian_int64(struct.pack(">q", -(2**63)), 0) == -(2**63)


@pytest.mark.parametrize(
    ("encoded", "kind", "value"),
    [
        ("c0", MpKind.NIL, None), ("c2", MpKind.BOOL, False), ("c3", MpKind.BOOL, True), ("e0", MpKind.INT, -32),
        ("d080", MpKind.INT, -128), ("d18000", MpKind.INT, -32768), ("d280000000", MpKind.INT, -(2**31)),
        ("d38000000000000000", MpKind.INT, -(2**63)), ("ca3fc00000", MpKind.FLOAT, 1.5),
        ("cb3ff8000000000000", MpKind.DOUBLE, 1.5), ("a161", MpKind.STR, b"a"), ("d90161", MpKind.STR, b"a"),
        ("da000161", MpKind.STR, b"a"), ("db0000000161", MpKind.STR, b"a"), ("c40161", MpKind.BIN, b"a"),
        ("c5000161", MpKind.BIN, b"a"), ("c60000000161", MpKind.BIN, b"a"), ("d4017f", MpKind.EXT, (1, b"\x7f")),
        ("d5010001", MpKind.EXT, (1, b"\0\1")), ("d60100010203", MpKind.EXT, (1, b"\0\1\2\3")),
        ("c701ff61", MpKind.EXT, (-1, b"a")), ("c800010161", MpKind.EXT, (1, b"a")),
        ("c9000000010161", MpKind.EXT, (1, b"a")),
    ],
)  # fmt: skip
def test_every_encoding_of_every_scalar(encoded: str, kind: MpKind, value: Any) -> None:
    data = bytes.fromhex(encoded)
    parsed = decode_value(data, 0, len(data))
    assert (parsed.kind, parsed.value, parsed.end) == (kind, value, len(data))
    assert encode_value(parsed) == data
    assert skip_value_and_count(data, 0, len(data))[0] == len(data)


@pytest.mark.parametrize("encoded", ["dc000101", "dd0000000101", "9101"])
def test_every_encoding_of_an_array(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert to_python(decode_value(data, 0, len(data))) == [1]
    assert encode_value(decode_value(data, 0, len(data))) == data


@pytest.mark.parametrize("encoded", ["81a16105", "de0001a16105", "df00000001a16105"])
def test_every_encoding_of_a_map(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert to_python(decode_value(data, 0, len(data))) == {"a": 5}
    assert skip_value_and_count(data, 0, len(data)) == (len(data), 0, 1, 1)


def test_a_count_that_cannot_fit_is_refused_at_once() -> None:
    with pytest.raises(MalformedError, match="4294967295 elements cannot fit") as trouble:
        decode_value(b"\xdd\xff\xff\xff\xff\x01", 0, 6)
    assert trouble.value.finding_id == "count-out-of-bounds"
    assert skip_value_and_count(b"\xdd\xff\xff\xff\xff\x01", 0, 6)[0] == -1


def test_nesting_over_the_ceiling_is_refused_and_skipping_needs_no_stack() -> None:
    data = b"\x91" * 100_000 + b"\x01"
    with pytest.raises(MalformedError, match="nested too deep"):
        decode_value(data, 0, len(data), 64)
    assert skip_value_and_count(data, 0, len(data)) == (len(data), 0, 0, 100_000)


def test_the_marks_of_a_skipped_value_name_what_needs_care() -> None:
    assert skip_value_and_count(bytes.fromhex("c40161"), 0, 3)[1] == 1
    assert skip_value_and_count(bytes.fromhex("d4017f"), 0, 3)[1] == 2
    assert skip_value_and_count(bytes.fromhex("d4097f"), 0, 3)[1] == 4
    assert skip_value_and_count(bytes.fromhex("d4ff7f"), 0, 3)[1] == 4
    assert skip_value_and_count(msgpack.packb(float("nan")), 0, 9)[1] == 4
    assert skip_value_and_count(msgpack.packb(float("-inf")), 0, 9)[1] == 4
    assert skip_value_and_count(msgpack.packb(1e308), 0, 9)[1] == 0
    assert skip_value_and_count(struct.pack(">Bf", 0xCA, float("inf")), 0, 5)[1] == 4


def test_maps_keep_what_json_cannot_say() -> None:
    assert to_python(_parsed("82a16101a16102")) == {"$map": [["a", 1], ["a", 2]]}
    assert to_python(_parsed("810105")) == {"1": 5}
    assert to_python(_parsed("8201a0a13101")) == {"$map": [[1, ""], ["1", 1]]}
    assert to_python(_parsed("819101a0")) == {"$map": [[[1], ""]]}
    assert to_python(_parsed("81a52475756964a0")) == {"$map": [["$uuid", ""]]}


def test_text_that_is_no_utf8_becomes_bytes_and_odd_numbers_words() -> None:
    assert to_python(_parsed("a2c328")) == b"\xc3\x28"
    assert to_python(_parsed("cb7ff0000000000000")) == {"$float": "Infinity"}
    assert to_python(_parsed("cbfff0000000000000")) == {"$float": "-Infinity"}
    assert to_python(_parsed("cb7ff8000000000000")) == {"$float": "NaN"}


def test_parts_of_a_value_tile_it() -> None:
    data = msgpack.packb({"a": [1, "x", {"b": None}], "c c": b"\0", 5: 1.5})
    parts = [p for p in MpValue().trace_rows(data, 0, len(data), Limits()) if p.end is not None]
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == len(data)
    named = {p.path: p.value for p in parts}
    assert named[".a[0]"] == 1
    assert named[".a[2].b"] is None
    assert named["[5]"] == 1.5
    assert named[".value[1]"] == b"\0"


def test_the_parts_before_a_broken_one_are_given() -> None:
    given_parts = []
    with pytest.raises(MalformedError, match="0xc1"):
        given_parts.extend(MpValue().trace_rows(b"\x92\x01\xc1", 0, 3, Limits()))
    seen = iter(MpValue().trace_rows(b"\x92\x01\xc1", 0, 3, Limits()))
    assert [next(seen).path, next(seen).path] == [".count", "[0]"]


def test_a_value_is_read_in_the_middle_of_a_stream() -> None:
    stream = io.BytesIO(b"xx\x93\x01\x02\x03yy")
    stream.seek(2)
    assert to_python(MpValue().parse_stream(stream)) == [1, 2, 3]
    assert stream.tell() == 6


def _parsed(encoded: str) -> MpNode:
    data = bytes.fromhex(encoded)
    return decode_value(data, 0, len(data))
