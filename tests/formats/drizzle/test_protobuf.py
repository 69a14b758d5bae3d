from __future__ import annotations

import io
import json

import pytest
from construct import ConstructError, Struct
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import (
    MALFORMED,
    SHORT,
    MalformedError,
    Traceable,
    Varint,
    WideVarint,
    build_varint,
    parse_varint,
    read_varint,
    varint_size,
)
from binlogtool.formats.drizzle import decode
from binlogtool.formats.drizzle.schema import CATALOG, TRANSACTION, WireField, WireType, build_fields, read_fields
from binlogtool.limits import Limits
from tests.formats.drizzle.reference import encode, plain

CONTEXT = bytes.fromhex("0a08 0802 1007 1803 2004")
U64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("8001", 128),
        ("ac02", 300),
        ("ffffffff0f", 2**32 - 1),
        ("ffffffffffffffffff01", 2**64 - 1),
        ("80808080808080808001", 2**63),
    ],
)
def test_a_varint_has_the_value_of_the_documentation(data: str, value: int) -> None:
    raw = bytes.fromhex(data)
    assert parse_varint(raw, 0, len(raw)) == (value, len(raw))
    assert build_varint(value) == raw
    assert varint_size(value) == len(raw)
    assert Varint().parse(raw) == value
    assert Varint().build(value) == raw


def test_a_varint_longer_than_ten_bytes_is_refused_after_ten() -> None:
    with pytest.raises(MalformedError, match="longer than 10 bytes") as error:
        parse_varint(b"\x80" * 1000, 0, 1000)
    assert error.value.finding_id == "varint-overlong"
    assert read_varint(b"\x80" * 1000, 0, 1000)[1] == MALFORMED
    stream = io.BytesIO(b"\x80" * 1000)
    with pytest.raises(MalformedError):
        Varint().parse_stream(stream)
    assert stream.tell() == 10


def test_a_varint_that_is_cut_off_is_short() -> None:
    assert read_varint(b"\x80\x80", 0, 2) == (0, SHORT)
    assert read_varint(b"", 0, 0) == (0, SHORT)
    with pytest.raises(ConstructError):
        Varint().parse(b"\x80")


def test_a_varint_never_reads_beyond_its_bound() -> None:
    assert read_varint(b"\x80\x01", 0, 1) == (0, SHORT)


def test_a_longer_varint_than_needed_keeps_its_width() -> None:
    value = Varint().parse(b"\x81\x80\x00")
    assert value == 1
    assert isinstance(value, WideVarint)
    assert value.width == 3
    assert Varint().build(value) == b"\x81\x80\x00"


@given(U64)
def test_every_number_survives_building_and_reading(value: int) -> None:
    data = build_varint(value)
    assert parse_varint(data, 0, len(data)) == (value, len(data))
    signed, end = read_varint(data, 0, len(data))
    assert signed & (2**64 - 1) == value
    assert -(2**63) <= signed < 2**63
    assert end == len(data)


@given(U64, st.integers(1, 10))
def test_every_width_survives_parsing_and_building(value: int, width: int) -> None:
    value &= (1 << min(64, 7 * width)) - 1
    data = build_varint(WideVarint(value, width))
    assert len(data) == width
    assert Varint().build(Varint().parse(data)) == data
    assert Varint().parse(data) == value


@given(st.binary(max_size=24))
def test_the_kernel_and_the_library_agree_on_every_varint(data: bytes) -> None:
    """The library sees the bytes as an unknown field of a message; ours must accept, refuse and end alike."""
    value, end = read_varint(data, 0, len(data))
    engine = decode.get_message_class("SchemaOptions")()
    raw = b"\x08" + (data if end < 0 else data[:end])
    if end < 0:
        with pytest.raises(DecodeError):
            engine.MergeFromString(raw)
    else:
        from google.protobuf.unknown_fields import UnknownFieldSet

        engine.MergeFromString(raw)
        assert UnknownFieldSet(engine)[0].data == value & (2**64 - 1)


def test_a_field_gives_tag_length_and_value_positions() -> None:
    (first, second) = read_fields(b"\x08\x96\x01\x12\x02hi", 0, 7, 8)
    assert (first.number, first.wire, first.start, first.value_start, first.end, first.value) == (
        1,
        WireType.VARINT,
        0,
        1,
        3,
        150,
    )
    assert (second.number, second.wire, second.size) == (2, WireType.LENGTH_DELIMITED, 2)
    assert (second.start, second.size_at, second.value_start, second.end, second.value) == (3, 4, 5, 7, None)


def test_fixed_fields_are_little_endian() -> None:
    data = bytes.fromhex("0d 01000000 11 0200000000000000")
    assert [(t.wire, t.value) for t in read_fields(data, 0, len(data), 8)] == [
        (WireType.FIXED32, 1),
        (WireType.FIXED64, 2),
    ]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ("00", "no field number"),  # field number 0
        ("0e", "wire type"),  # wire type 6
        ("0f", "wire type"),  # wire type 7
        ("8080808010", "no field number"),  # tag above 32 bits
        ("0c", "the end tag of a group without a start tag"),
        ("0b08", "cut off"),
        ("0b14", "another group"),
        ("0d0102", "4 bytes needed, 2 left"),
        ("0901", "8 bytes needed, 1 left"),
        ("0a05616263", "5 bytes declared, 3 left"),
        ("0affffffffffffffffff01", "declared, 0 left"),
        ("0880", "cut off"),
    ],
)
def test_bytes_that_are_no_field_are_refused_as_the_library_refuses_them(data: str, match: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(MalformedError, match=match):
        list(read_fields(raw, 0, len(raw), 8))
    with pytest.raises(DecodeError):
        decode.get_message_class("SchemaOptions").FromString(raw)


def test_groups_nested_deeper_than_the_ceiling_are_refused() -> None:
    deep = b"\x0b" * 100_000
    with pytest.raises(MalformedError) as error:
        list(read_fields(deep, 0, len(deep), 64))
    assert error.value.finding_id == "nesting-too-deep"


def test_a_whole_group_is_one_field() -> None:
    data = bytes.fromhex("0b 0801 13 14 0c")
    (group,) = read_fields(data, 0, len(data), 8)
    assert (group.wire, group.value_start, group.end) == (WireType.START_GROUP, 1, len(data))


def test_a_message_parses_into_fields_and_builds_back() -> None:
    tree = TRANSACTION.parse(CONTEXT + b"\x28\x01")
    assert tree == (
        WireField(0x0A, 8, tuple(WireField(tag, None, value) for tag, value in ((8, 2), (16, 7), (24, 3), (32, 4)))),
        WireField(0x28, None, 1),
    )
    assert TRANSACTION.build(tree) == CONTEXT + b"\x28\x01"


def test_lengths_left_out_are_computed() -> None:
    made = (WireField(0x0A, None, (WireField(0x08, None, 2),)),)
    assert build_fields(made) == b"\x0a\x02\x08\x02"


def test_overlong_tags_lengths_and_values_build_back_exactly() -> None:
    data = bytes.fromhex("8a00 8900 0802 1007 1803 208400") + bytes.fromhex("a88000 81808000")
    assert TRANSACTION.build(TRANSACTION.parse(data)) == data


def test_every_byte_of_a_message_has_a_name() -> None:
    rows = list(TRANSACTION.trace_rows(CONTEXT, 0, len(CONTEXT), Limits()))
    leaves = [(row.path, row.start, row.end, row.value) for row in rows if row.end is not None]
    assert leaves == [
        (".transaction_context.tag", 0, 1, 10),
        (".transaction_context.length", 1, 2, 8),
        (".transaction_context.server_id.tag", 2, 3, 8),
        (".transaction_context.server_id.value", 3, 4, 2),
        (".transaction_context.transaction_id.tag", 4, 5, 16),
        (".transaction_context.transaction_id.value", 5, 6, 7),
        (".transaction_context.start_timestamp.tag", 6, 7, 24),
        (".transaction_context.start_timestamp.value", 7, 8, 3),
        (".transaction_context.end_timestamp.tag", 8, 9, 32),
        (".transaction_context.end_timestamp.value", 9, 10, 4),
    ]
    assert [row.path for row in rows if row.end is None][:2] == [
        ".transaction_context",
        ".transaction_context.server_id",
    ]


def test_rows_of_repeated_members_are_numbered_and_unknown_fields_are_named() -> None:
    record = {"key_value": [b"3"], "after_value": [b"x", b""], "is_null": [0, 1]}
    statement = {"type": 3, "update_data": {"segment_id": 1, "end_segment": 1, "record": [record, record]}}
    data = encode("Transaction", {"statement": [statement]}) + bytes.fromhex("b23f0161")
    rows = {row.path: row for row in TRANSACTION.trace_rows(data, 0, len(data), Limits())}
    assert rows[".statement[0].update_data.record[1].after_value[0].value"].value == b"x"
    assert ".statement[0].update_data.record[1].after_value[1].value" not in rows  # no bytes, no leaf
    assert rows[".statement[0].update_data.record[1].is_null[1].value"].value is True
    assert rows[".statement[0].type.value"].meaning == "UPDATE"
    assert rows[".unknown_field_1014[0].value"].value == b"a"
    assert "not in the definition" in rows[".unknown_field_1014[0]"].meaning


def test_a_broken_message_yields_its_good_rows_and_then_refuses() -> None:
    rows = []
    with pytest.raises(MalformedError, match="9 bytes declared, 8 left"):
        for row in TRANSACTION.trace_rows(b"\x28\x01\x0a\x09" + CONTEXT[2:], 0, 12, Limits()):
            rows.append(row.path)
    assert rows[:3] == [".end_segment", ".end_segment.tag", ".end_segment.value"]
    assert rows[3:] == [".transaction_context", ".transaction_context.tag", ".transaction_context.length"]


def test_the_depth_ceiling_holds_for_messages() -> None:
    data = encode("Transaction", {"statement": [{"insert_header": {"table_metadata": {"schema_name": b"s"}}}]})
    with pytest.raises(MalformedError) as error:
        list(TRANSACTION.trace_rows(data, 0, len(data), Limits(max_depth=2)))
    assert error.value.finding_id == "nesting-too-deep"


def test_the_message_is_traceable() -> None:
    assert isinstance(TRANSACTION, Traceable)
    assert Struct("message" / TRANSACTION).parse(CONTEXT).message == TRANSACTION.parse(CONTEXT)


# -- hypothesis: any wire data, ours against the library ----------------------------------------------------------


def _wire(depth: int) -> st.SearchStrategy[bytes]:
    """Fields with numbers near the known ones, with and without sense."""
    number = st.integers(1, 20)
    number_width = st.integers(1, 3)
    scalar = st.builds(
        lambda n, v, w: build_varint(WideVarint(n << 3, max(w, varint_size(n << 3)))) + build_varint(v),
        number,
        U64 | st.integers(0, 3),
        number_width,
    )
    fixed = st.builds(lambda n, v: build_varint(n << 3 | 5) + v, number, st.binary(min_size=4, max_size=4))
    body = st.binary(max_size=6) if depth == 0 else st.lists(_wire(depth - 1), max_size=4).map(b"".join)
    sized = st.builds(lambda n, v: build_varint(n << 3 | 2) + build_varint(len(v)) + v, number, body)
    group = st.builds(lambda n, v: build_varint(n << 3 | 3) + v + build_varint(n << 3 | 4), number, scalar)
    return st.one_of(scalar, sized, sized, sized, fixed, group)


MESSAGES = st.sampled_from(sorted(CATALOG.messages))


@given(MESSAGES, st.lists(_wire(3), max_size=5).map(b"".join))
def test_the_reader_and_the_library_agree_on_any_fields(name: str, data: bytes) -> None:
    ours: object
    theirs: object
    from binlogtool.formats.drizzle.schema import MessageConstruct

    reader = MessageConstruct(CATALOG, name)
    try:
        tree = reader.parse(data)
        assert reader.build(tree) == data
        ours = plain(name, tree)
    except MalformedError:
        ours = None
    try:
        theirs = decode.to_json_body(decode.get_message_class(name).FromString(data))
    except DecodeError:
        theirs = None
    assert _shape(ours) == _shape(theirs)


def _shape(value: object) -> str:
    """JSON text, so that True and 1 differ; unknown fields in the order of their numbers and values."""
    return json.dumps(value, default=lambda b: {"$bytes": b.hex()}, sort_keys=True)


@given(st.binary(max_size=80))
def test_any_bytes_give_rows_that_tile_or_a_refusal(data: bytes) -> None:
    end = 0
    try:
        for row in TRANSACTION.trace_rows(data, 0, len(data), Limits()):
            assert row.start == end
            if row.end is not None:
                assert row.end > row.start
                end = row.end
        assert end == len(data)
    except MalformedError:
        with pytest.raises(MalformedError):
            TRANSACTION.parse(data)
