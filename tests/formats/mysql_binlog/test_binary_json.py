"""MySQL's binary JSON against an encoder that was written for this test, and against damage."""

from __future__ import annotations

import random
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.values.decode_values import decode_binary_json, decode_json_diffs
from tests.formats.mysql_binlog.row_building import lenenc, sized
from tests.harness.slowness import slowness

DEPTH = 32


class Opaque:
    def __init__(self, type_: int, raw: bytes) -> None:
        self.type, self.raw = type_, raw


def groups_of_seven(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def encoded(value: Any, large: bool = False) -> bytes:
    """Type byte and value."""
    type_, raw = _parts(value, large)
    return bytes([type_]) + raw


def _parts(value: Any, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, {None: b"\0", True: b"\1", False: b"\2"}[value]
    if isinstance(value, int):
        for type_, layout, low, high in (
            (5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31), (8, "<I", 0, 2**32),
            (9, "<q", -(2**63), 2**63), (10, "<Q", 0, 2**64),
        ):  # fmt: skip
            if low <= value < high:
                return type_, struct.pack(layout, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, groups_of_seven(len(value.encode())) + value.encode()
    if isinstance(value, Opaque):
        return 15, bytes([value.type]) + groups_of_seven(len(value.raw)) + value.raw
    if isinstance(value, dict):
        return (1 if large else 0), _container(list(value), list(value.values()), large)
    return (3 if large else 2), _container(None, value, large)


def _container(keys: list[str] | None, values: list[Any], large: bool) -> bytes:
    width = 4 if large else 2
    inlined = (4, 5, 6, 7, 8) if large else (4, 5, 6)
    head = 2 * width + len(values) * (width + 1) + (len(keys) * (width + 2) if keys is not None else 0)
    key_entries, value_entries, tail = b"", b"", b""
    for key in keys or []:
        raw = key.encode()
        key_entries += (head + len(tail)).to_bytes(width, "little") + struct.pack("<H", len(raw))
        tail += raw
    for value in values:
        type_, raw = _parts(value, large)
        if type_ in inlined:
            value_entries += bytes([type_]) + raw.ljust(width, b"\xff" if raw[-1] & 0x80 and type_ in (5, 7) else b"\0")
        else:
            value_entries += bytes([type_]) + (head + len(tail)).to_bytes(width, "little")
            tail += raw
    size = head + len(tail)
    return len(values).to_bytes(width, "little") + size.to_bytes(width, "little") + key_entries + value_entries + tail


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200)
)
keys = st.text(max_size=20).filter(lambda key: key[:1] != "$")
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6), max_leaves=20
)


@pytest.mark.full
@given(documents, st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_document_comes_back_in_both_sizes(document: Any, large: bool) -> None:
    found = decode_binary_json(encoded(document, large), DEPTH)
    assert found == document
    assert repr(found) == repr(document)


def test_documents_beyond_64_kib_are_read() -> None:
    document = {"numbers": [-1, 70_000, 2**40], "long": "é" * 100_000}
    assert decode_binary_json(encoded(document, large=True), DEPTH) == document


def test_no_bytes_mean_null() -> None:
    assert decode_binary_json(b"", DEPTH) is None


def packed(year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int) -> int:
    return ((((year * 13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | second) << 24 | micros


@pytest.mark.parametrize(
    ("opaque", "expected"),
    [
        (Opaque(246, bytes([4, 2]) + bytes.fromhex("8c22")), {"$decimal": "12.34"}),
        (Opaque(246, bytes([4, 2]) + bytes.fromhex("73dd")), {"$decimal": "-12.34"}),
        (
            Opaque(12, packed(2015, 1, 15, 23, 24, 25, 12).to_bytes(8, "little")),
            {"$datetime": "2015-01-15 23:24:25.000012"},
        ),
        (
            Opaque(7, packed(2015, 1, 15, 23, 24, 25, 0).to_bytes(8, "little")),
            {"$timestamp": "2015-01-15 23:24:25.000000"},
        ),
        (Opaque(10, packed(2015, 1, 15, 0, 0, 0, 0).to_bytes(8, "little")), {"$date": "2015-01-15"}),
        (Opaque(11, (((23 << 12 | 24 << 6 | 25) << 24) + 12).to_bytes(8, "little")), {"$time": "23:24:25.000012"}),
        (Opaque(11, (-((1 << 24) + 5)).to_bytes(8, "little", signed=True)), {"$time": "-00:00:01.000005"}),
        (Opaque(252, b"\x00\xff"), b"\x00\xff"),
        (Opaque(10, b"\x00"), b"\x00"),
    ],
)
def test_values_of_column_types_inside_json_are_marked_with_their_type(opaque: Opaque, expected: Any) -> None:
    assert decode_binary_json(encoded([opaque]), DEPTH) == [expected]
    assert decode_binary_json(encoded(opaque), DEPTH) == expected


def test_an_object_that_looks_like_one_of_our_marks_is_shown_as_pairs() -> None:
    assert decode_binary_json(encoded({"$bytes": "00"}), DEPTH) == {"$map": [["$bytes", "00"]]}


def test_a_key_that_stands_there_twice_loses_nothing() -> None:
    twice = encoded({"a": 1, "b": 2}).replace(b"b", b"a")
    assert decode_binary_json(twice, DEPTH) == {"$map": [["a", 1], ["a", 2]]}


def test_nesting_is_bounded() -> None:
    document: Any = []
    for _ in range(DEPTH - 1):
        document = [document]
    assert decode_binary_json(encoded(document), DEPTH) == document
    with pytest.raises(MalformedError, match="deeper than 32") as caught:
        decode_binary_json(encoded([document]), DEPTH)
    assert caught.value.finding_id == "nesting-too-deep"


def test_containers_that_share_their_parts_cost_no_more_than_their_bytes() -> None:
    level = encoded(["x" * 50] * 50)[1:]
    for _ in range(20):
        head = 4 + 50 * 3
        level = struct.pack("<HH", 50, head + len(level)) + (b"\x02" + struct.pack("<H", head)) * 50 + level
    started = time.process_time()
    with pytest.raises(MalformedError, match="parts overlap"):
        decode_binary_json(b"\x02" + level, DEPTH)
    assert time.process_time() - started < 3 * slowness()


def test_many_elements_that_are_the_same_long_text_are_refused() -> None:
    text = groups_of_seven(30_000) + b"x" * 30_000
    head = 4 + 1000 * 3
    data = struct.pack("<HH", 1000, head + len(text)) + (b"\x0c" + struct.pack("<H", head)) * 1000 + text
    with pytest.raises(MalformedError, match="parts overlap"):
        decode_binary_json(b"\x02" + data, DEPTH)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x02\x05\x00\x04\x00", "5 elements in a container of 4 bytes"),
        (b"\x02\x00\x00\x09\x00", "goes beyond byte 5"),
        (b"\x02\x01\x00\x07\x00\x0c\x00\x00", "points to the container's head"),
        (b"\x02\x01\x00\x07\x00\x0c\xff\x00", "goes beyond byte 8"),
        (b"\x0c\x05abc", "a string of 5 bytes"),
        (b"\x0c\xff\xff\xff\xff\xff\x00", "has no end"),
        (b"\x04\x03", "literal 3"),
        (b"\x0d\x00", "value type 0x0d"),
        (b"\x05\x00", "a number of 2 bytes"),
        (b"\x00\x01\x00\x0b\x00\xff\x00\x01\x00\x04\x00\x00", "a key of 1 bytes"),
        (b"\x0f\xf6\x03\x42\x01\x80", "precision 66"),
    ],
)
def test_a_part_that_does_not_fit_is_named(data: bytes, words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        decode_binary_json(data, DEPTH)


def test_whatever_the_bytes_are_only_malformed_errors_come() -> None:
    whole = encoded({"a": [1, 2.5, "text", {"b": None, "c": [True, 2**40]}], "d": Opaque(246, b"\x04\x02\x8c\x22")})
    dice = random.Random(3)
    wrong = 0
    started = time.process_time()
    for _ in range(5000):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 5)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            decode_binary_json(bytes(data), DEPTH)
        except MalformedError:
            wrong += 1
    assert wrong > 1000
    assert time.process_time() - started < 10


def test_changes_are_listed_in_their_order() -> None:
    changes = (
        b"\x01" + sized(b"$.new") + sized(encoded("v"))
        + b"\x00" + sized(b"$.a[0]") + sized(encoded({"z": [1]}))
        + b"\x02" + sized("$.é".encode())
    )  # fmt: skip
    assert decode_json_diffs(changes, DEPTH) == [
        {"op": "INSERT", "path": "$.new", "value": "v"},
        {"op": "REPLACE", "path": "$.a[0]", "value": {"z": [1]}},
        {"op": "REMOVE", "path": "$.é"},
    ]
    assert decode_json_diffs(b"", DEPTH) == []


@pytest.mark.parametrize(
    "data",
    [b"\x03\x01$", b"\x00", b"\x00\x05$", b"\x00\x01$", b"\x00\x01$" + lenenc(9) + b"\x04\x01", b"\x00\x01$\xff"],
)
def test_a_change_that_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_json_diffs(data, DEPTH)
