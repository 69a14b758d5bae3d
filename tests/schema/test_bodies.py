"""Readers and writers that are made of the schema of a body, on schemas of no format."""

from __future__ import annotations

from struct import error
from typing import NamedTuple

import pytest
from construct import (
    Array,
    Bytes,
    BytesInteger,
    Check,
    Computed,
    Enum,
    FlagsEnum,
    GreedyBytes,
    If,
    IfThenElse,
    Int8ub,
    Int8ul,
    Int16ub,
    Int16ul,
    Int32sl,
    Int64ul,
    Struct,
    Tell,
    this,
)

from binlogtool.format_api.schema_fields import (
    BodySchema,
    BoundedCount,
    FieldPresent,
    HiddenField,
    HighBitInt,
    HighBitSet,
    IfBytesLeft,
    MalformedError,
    PeekInt,
    SplitInt,
    TextField,
    Uuid,
    ZeroMeansAbsent,
    get_fixed_field_offset,
    make_flag_condition,
    make_unpacker,
)
from binlogtool.schema.lower_frame_schema import UnlowerableError
from binlogtool.schema.python_body_codegen import make_decoder, make_fields_reader
from tests.json_bodies import json_of

KINDS = Enum(Int8ub, A=1, B=2)
WHOLE = Struct(
    "size" / HiddenField(Int8ub),
    "kind" / KINDS,
    "name" / TextField(Bytes(this.size)),
    "flags" / ZeroMeansAbsent(IfBytesLeft(FlagsEnum(Int8ub, X=1, Y=2))),
    "point" / If(make_flag_condition("flags", "X"), Struct("x" / Int16ub, "y" / Int32sl)),
    "time" / IfBytesLeft(HighBitInt(2)),
    "other"
    / If(FieldPresent("time"), IfThenElse(HighBitSet("time"), BytesInteger(3, swapped=True), Computed(this.time))),
    "rest" / IfBytesLeft(GreedyBytes),
)

CASES = {
    b"\x02\x01ab": ({"kind": "A", "name": "ab"}, b'{"kind":"A","name":"ab"}'),
    b"\x01\x09\xff\x00": ({"kind": 9, "name": b"\xff"}, b'{"kind":9,"name":{"$bytes":"ff"}}'),
    b"\x00\x02\x05\x01\x02\xff\xff\xff\xff\x07\x00": (
        {"kind": "B", "name": "", "flags": 5, "point": {"x": 258, "y": -1}, "time": 7, "other": 7},
        b'{"kind":"B","name":"","flags":5,"point":{"x":258,"y":-1},"time":7,"other":7}',
    ),
    b"\x00\x02\x02\x07\x80\x01\x00\x01\xaa": (
        {"kind": "B", "name": "", "flags": 2, "time": 7, "other": 65537, "rest": b"\xaa"},
        b'{"kind":"B","name":"","flags":2,"time":7,"other":65537,"rest":{"$bytes":"aa"}}',
    ),
}


@pytest.mark.parametrize("body", CASES)
def test_what_is_there_is_shown_and_what_is_marked_is_not(body: bytes) -> None:
    shown, text = CASES[body]
    value = make_decoder(BodySchema(WHOLE))(body)
    assert value == shown
    assert list(value) == list(shown)
    assert json_of(BodySchema(WHOLE), body) == text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "size needs 1 bytes, 0 left"),
        (b"\x05", "kind needs 1 bytes, 0 left"),
        (b"\x05\x01abc", "name needs 5 bytes, 3 left"),
        (b"\x00\x01\x01\x00\x01\x00", "point.y needs 4 bytes, 1 left"),
        (b"\x00\x01\x00\x07", "time.stored needs 2 bytes, 1 left"),
        (b"\x00\x01\x00\x07\x80\x01", "other needs 3 bytes, 1 left"),
    ],
)
def test_a_body_that_is_cut_short_says_which_field_lacks_what(body: bytes, message: str) -> None:
    with pytest.raises(MalformedError) as caught:
        make_decoder(BodySchema(WHOLE))(body)
    assert caught.value.args[0] == message
    assert json_of(BodySchema(WHOLE), body) == -2


class Pair(NamedTuple):
    name: bytes
    y: int | None
    missing: str = "default"


def test_fields_are_taken_by_name_wherever_they_stand() -> None:
    read = make_fields_reader(WHOLE, Pair)
    assert read(b"\x02\x01ab") == Pair(b"ab", None)
    assert read(b"\x00\x02\x01\x00\x00\x05\x00\x00\x00") == Pair(b"", 5)
    assert make_fields_reader(WHOLE, ("kind", "flags"))(b"\x00\x02\x02") == (2, 2)
    assert make_fields_reader(WHOLE, "kind")(b"\xff\x02") == 2  # no more is read than is wanted


def test_a_title_is_made_of_fields_and_of_what_is_given() -> None:
    schema = Struct("id" / Uuid(), "number" / Int64ul)
    shown = BodySchema(schema, ("key", "{id}:{number}@{place}"), ("place",))
    body = bytes(range(16)) + b"\xff" * 8
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    key = f"{uuid}:{(1 << 64) - 1}@3"
    assert make_decoder(shown)(body, 3) == {"key": key, "id": uuid, "number": (1 << 64) - 1}
    assert json_of(shown, body, 3) == f'{{"key":"{key}","id":"{uuid}","number":{(1 << 64) - 1}}}'.encode()


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (Struct("n" / Int8ul, "list" / Array(this.n, Bytes(this.n))), "list"),
        (Struct("a" / If(FieldPresent("b"), Int8ul)), "a"),
        (Struct("a" / Int8ul, "b" / If(make_flag_condition("a", "X"), Int8ul)), "b"),
        (Struct("a" / If(lambda this_: True, Int8ul)), "a"),
    ],
)
def test_what_cannot_be_derived_is_named(schema: Struct, path: str) -> None:
    with pytest.raises(UnlowerableError) as caught:
        make_decoder(BodySchema(schema))
    assert caught.value.path == path


POINT = Struct("x" / Int16ub, "y" / Int32sl)
LISTS = Struct(
    "head" / PeekInt(Int8ub),
    "named" / HiddenField(Computed(this.head > 2)),
    "count" / BoundedCount(Int8ub, 2, "entries"),
    "list"
    / Array(
        this.count,
        Struct(
            "name_len" / HiddenField(IfThenElse(this._.named, Int8ub, Computed(0))),
            "name" / TextField(Bytes(this.name_len)),
            "few" / BoundedCount(SplitInt(1, 4), 1, "numbers"),
            "numbers" / Array(this.few, Int16ul),
        ),
    ),
    "points" / Array(2, POINT),
    "bytes" / Array(this.count, Int8ul),
)
FEW = b"\x02" + b"\xf2\x01\x00\x00\x01" + b"\x00" + b"\x00\x01\xff\xff\xff\xff" + b"\x01\x00\x00\x00\x00\x00" + b"ab"
NAMED = b"\x03" + b"\x01a\x00" + b"\x00\x01\x05\x00" + b"\x02bc\x00" + bytes(12) + b"abc"


class Entry(NamedTuple):
    numbers: tuple[int, ...]
    name: bytes


def test_arrays_are_lists_of_what_their_elements_show() -> None:
    assert make_decoder(BodySchema(LISTS))(FEW) == {
        "list": [{"name": "", "numbers": [1, 256]}, {"name": "", "numbers": []}],
        "points": [{"x": 1, "y": -1}, {"x": 256, "y": 0}],
        "bytes": [97, 98],
    }
    assert make_decoder(BodySchema(LISTS))(NAMED)["list"] == [
        {"name": "a", "numbers": []}, {"name": "", "numbers": [5]}, {"name": "bc", "numbers": []},
    ]  # fmt: skip


def test_arrays_are_tuples_of_fields() -> None:
    assert make_fields_reader(LISTS, "list", Entry)(NAMED) == (Entry((), b"a"), Entry((5,), b""), Entry((), b"bc"))
    assert make_fields_reader(LISTS, ("list", "points", "bytes"))(FEW) == (
        ((b"", (1, 256)), (b"", ())), ((1, -1), (256, 0)), (97, 98),
    )  # fmt: skip
    assert make_fields_reader(LISTS, "points")(NAMED) == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("body", "finding_id", "message"),
    [
        (b"", "length-out-of-bounds", "count needs 1 bytes, 0 left"),
        (b"\x09abc", "count-out-of-bounds", "9 entries cannot fit into 3 bytes"),
        (b"\x02\x0f" + bytes(9), "count-out-of-bounds", "15 numbers cannot fit into 9 bytes"),
        (b"\x01\x03" + bytes(4), "length-out-of-bounds", "list.numbers needs 6 bytes, 4 left"),
        (FEW[:-3], "length-out-of-bounds", "points.y needs 4 bytes, 3 left"),
        (FEW[:-1], "length-out-of-bounds", "bytes needs 2 bytes, 1 left"),
    ],
)
def test_a_list_that_the_body_has_no_room_for_is_refused(body: bytes, finding_id: str, message: str) -> None:
    with pytest.raises(MalformedError) as caught:
        make_decoder(BodySchema(LISTS))(body)
    assert (caught.value.finding_id, caught.value.args[0]) == (finding_id, message)


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (
            FEW,
            b'{"list":[{"name":"","numbers":[1,256]},{"name":"","numbers":[]}],'
            b'"points":[{"x":1,"y":-1},{"x":256,"y":0}],"bytes":[97,98]}',
        ),
        (
            NAMED,
            b'{"list":[{"name":"a","numbers":[]},{"name":"","numbers":[5]},{"name":"bc","numbers":[]}],'
            b'"points":[{"x":0,"y":0},{"x":0,"y":0}],"bytes":[97,98,99]}',
        ),
        (b"\x00" + bytes(12), b'{"list":[],"points":[{"x":0,"y":0},{"x":0,"y":0}],"bytes":[]}'),
    ],
)
def test_lists_are_written_by_compiled_code(body: bytes, written: bytes) -> None:
    assert json_of(BodySchema(LISTS), body) == written
    for end in range(len(body)):
        assert json_of(BodySchema(LISTS), body[:end]) == -2
    for room in range(len(written)):
        assert json_of(BodySchema(LISTS), body, room=room) == -1


def test_the_place_of_a_field_is_the_size_of_those_before_it() -> None:
    schema = Struct(
        "id" / Uuid(),
        "a" / IfBytesLeft(Int16ub),
        "b" / If(FieldPresent("a"), HighBitInt(7)),
        "c" / TextField(GreedyBytes),
    )
    assert [get_fixed_field_offset(schema, name) for name in ("id", "a", "b", "c")] == [0, 16, 18, 25]
    with pytest.raises(ValueError, match="d is not a field"):
        get_fixed_field_offset(Struct("a" / Int8ul), "d")
    with pytest.raises(ValueError):
        get_fixed_field_offset(WHOLE, "flags")


def test_fields_of_fixed_places_are_one_unpack() -> None:
    schema = Struct(
        "start" / Tell, "kind" / KINDS, "size" / HiddenField(Int16ul), Check(this.size > 0), "pad" / Bytes(3),
        "point" / POINT, "key" / Bytes(2), "last" / Int64ul, "rest" / GreedyBytes,
    )  # fmt: skip
    data = b"??\x09\x01\x02abc\xff\xff\xff\xff\xff\xffxy\x07" + bytes(7)
    assert make_unpacker(schema, "kind", "size", "key", "last")(data, 2) == (9, 513, b"xy", 7)
    assert make_unpacker(schema, "size")(data[:5], 2) == (513,)
    assert make_unpacker(Struct("a" / Int8ub, "b" / Int16ub), "b", "a")(b"\x01\x02\x03") == (1, 515)
    with pytest.raises(error):
        make_unpacker(schema, "size")(data[:4], 2)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (Struct("a" / Int8ul), ("b",)),
        (Struct("a" / Int16ul, "b" / Int16ub), ("a", "b")),
        (Struct("a" / BytesInteger(3)), ("a",)),
        (Struct("a" / Int8ul, "b" / Bytes(this.a), "c" / Int8ul), ("c",)),
    ],
)
def test_fields_without_a_fixed_place_or_form_have_no_unpack(schema: Struct, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make_unpacker(schema, *names)
