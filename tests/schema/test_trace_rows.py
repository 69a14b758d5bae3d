"""What the annotated engine says about good bytes: literal rows."""

from __future__ import annotations

from typing import Any

import pytest
from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Byte,
    Bytes,
    Check,
    Computed,
    Const,
    Construct,
    Enum,
    FixedSized,
    Flag,
    FlagsEnum,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    Hex,
    If,
    Int16ub,
    Int32ub,
    Int32ul,
    LazyBound,
    Nibble,
    Optional,
    Padded,
    Padding,
    PascalString,
    Peek,
    Pointer,
    Prefixed,
    PrefixedArray,
    RepeatUntil,
    Select,
    Struct,
    Switch,
    Tell,
    this,
)

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import CrcCheck, Magic
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import TraceResult, parse_to_field_rows
from binlogtool.schema.annotation_types import FieldRow, HexInt


def rows(schema: Construct, data: bytes, base: int = 0, root: str = "") -> list[tuple[Any, ...]]:
    traced = parse_to_field_rows(schema, data, base, Limits())
    assert traced.errors == []
    return [(r.path, r.start, r.end, r.value) for r in traced.rows]


def by_path(traced: TraceResult) -> dict[str, FieldRow]:
    return {row.path: row for row in traced.rows}


def test_each_field_is_a_row_at_its_absolute_place() -> None:
    schema = Struct("type" / Byte, "length" / Int16ub, "body" / Bytes(this.length))
    assert rows(schema, b"\x01\x00\x03abc", base=0x100) == [
        ("type", 0x100, 0x101, 1),
        ("length", 0x101, 0x103, 3),
        ("body", 0x103, 0x106, b"abc"),
    ]


def test_a_root_becomes_the_first_row_and_the_prefix_of_all_others() -> None:
    traced = parse_to_field_rows(Struct("a" / Byte, "b" / Struct("c" / Byte)), b"\x01\x02", 10, Limits(), "frame[3]")
    assert traced.rows == [
        FieldRow("frame[3]", 10, 12, None, depth=0, leaf=False),
        FieldRow("frame[3].a", 10, 11, 1, depth=1),
        FieldRow("frame[3].b", 11, 12, None, depth=1, leaf=False),
        FieldRow("frame[3].b.c", 11, 12, 2, depth=2),
    ]


@pytest.mark.parametrize(
    "array",
    [
        Array(2, Struct("x" / Byte)),
        GreedyRange(Struct("x" / Byte)),
        RepeatUntil(lambda element, _list, _context: element.x == 2, Struct("x" / Byte)),
    ],
    ids=["Array", "GreedyRange", "RepeatUntil"],
)
def test_elements_of_arrays_carry_their_index(array: Construct) -> None:
    assert rows(Struct("rows" / array), b"\x01\x02") == [
        ("rows", 0, 2, None),
        ("rows[0]", 0, 1, None),
        ("rows[0].x", 0, 1, 1),
        ("rows[1]", 1, 2, None),
        ("rows[1].x", 1, 2, 2),
    ]


def test_arrays_of_numbers_have_one_leaf_per_number() -> None:
    assert rows(Struct("n" / Int16ub[2]), b"\0\1\0\2") == [("n", 0, 4, None), ("n[0]", 0, 2, 1), ("n[1]", 2, 4, 2)]


def test_the_count_of_a_prefixed_array_is_a_leaf_of_the_array() -> None:
    assert rows(Struct("ids" / PrefixedArray(Byte, Byte)), b"\x02\x07\x08") == [
        ("ids", 0, 3, None),
        ("ids.count", 0, 1, 2),
        ("ids[0]", 1, 2, 7),
        ("ids[1]", 2, 3, 8),
    ]


def test_the_length_in_front_of_a_text_is_a_leaf_beside_the_text() -> None:
    assert rows(Struct("name" / PascalString(Byte, "utf8")), b"\x05test1") == [
        ("name", 0, 6, "test1"),
        ("name.length", 0, 1, 5),
        ("name.value", 1, 6, "test1"),
    ]


def test_prefixed_and_fixed_sized_fields_keep_file_positions() -> None:
    schema = Struct(
        "a" / Prefixed(Byte, Struct("x" / Byte, "rest" / GreedyBytes)),
        "b" / FixedSized(3, Struct("y" / Byte)),
    )
    assert rows(schema, b"\x03\x01ab\x02zz", base=100) == [
        ("a", 100, 104, None),
        ("a.length", 100, 101, 3),
        ("a.x", 101, 102, 1),
        ("a.rest", 102, 104, b"ab"),
        ("b", 104, 107, None),
        ("b.y", 104, 105, 2),
        ("b.unmapped", 105, 107, b"zz"),
    ]


def test_fields_without_a_name_are_named_after_what_they_are() -> None:
    schema = Struct(Const(b"MZ"), Padding(2), "a" / Byte, Byte, Padding(1), Struct("inner" / Byte))
    assert rows(schema, b"MZ\0\0\x07\x08\0\x09") == [
        ("constant", 0, 2, b"MZ"),
        ("padding", 2, 4, b"\0\0"),
        ("a", 4, 5, 7),
        ("unnamed", 5, 6, 8),
        ("padding2", 6, 7, b"\0"),
        ("inner", 7, 8, 9),
    ]


def test_the_padding_behind_a_structure_is_named() -> None:
    assert rows(Struct("page" / Padded(4, Struct("a" / Byte))), b"\x01xyz") == [
        ("page", 0, 4, None),
        ("page.a", 0, 1, 1),
        ("page.padding", 1, 4, b"xyz"),
    ]


def test_an_enum_shows_its_number_and_means_its_name() -> None:
    schema = Struct("type" / Enum(Byte, UPDATE=4), "other" / Enum(Byte, UPDATE=4))
    traced = by_path(parse_to_field_rows(schema, b"\x04\x09", 0, Limits()))
    assert (traced["type"].value, traced["type"].meaning) == (4, "UPDATE")
    assert (traced["other"].value, traced["other"].meaning) == (9, "unknown")
    assert type(traced["type"].value) is int


def test_flags_show_their_number_and_mean_the_names_of_the_bits_that_are_set() -> None:
    schema = Struct("flags" / FlagsEnum(Byte, commit=1, wait_sync=2, wait_ack=4))
    (row,) = parse_to_field_rows(schema, b"\x45", 0, Limits()).rows
    assert (row.value, row.meaning) == (0x45, "commit|wait_ack|0x40")


def test_a_magic_means_the_name_of_its_constant_and_reads_in_hex() -> None:
    (row,) = parse_to_field_rows(
        Struct("magic" / Magic(Int32ub, plain=0xD5BA0BAB)), b"\xd5\xba\x0b\xab", 0, Limits()
    ).rows
    assert (row.value, row.meaning, repr(row.value)) == (0xD5BA0BAB, "plain", "0xd5ba0bab")


def test_a_hex_field_reads_in_hex() -> None:
    (row,) = parse_to_field_rows(Struct("id" / Hex(Int32ub)), b"\0\0\0\x10", 0, Limits()).rows
    assert isinstance(row.value, HexInt) and repr(row.value) == "0x00000010"


def test_bit_fields_say_which_bits_from_the_most_significant_on() -> None:
    schema = Struct("n" / Byte, "bits" / BitStruct("hi" / Nibble, "flag" / Flag, "low" / BitsInteger(11)))
    traced = parse_to_field_rows(schema, b"\x00\xab\xcd", 0x10, Limits())
    assert [(r.path, r.start, r.end, r.value, r.bits) for r in traced.rows] == [
        ("n", 0x10, 0x11, 0, None),
        ("bits", 0x11, 0x13, None, None),
        ("bits.hi", 0x11, 0x12, 0xA, (0, 4)),
        ("bits.flag", 0x11, 0x12, True, (4, 5)),
        ("bits.low", 0x11, 0x13, 0x3CD, (5, 16)),
    ]


def test_only_the_branch_that_was_taken_has_rows() -> None:
    schema = Struct(
        "kind" / Byte,
        "body" / Switch(this.kind, {1: Struct("one" / Byte), 2: Struct("two" / Int16ub)}),
        "more" / If(this.kind == 2, Byte),
    )
    assert rows(schema, b"\x01\x07") == [("kind", 0, 1, 1), ("body", 1, 2, None), ("body.one", 1, 2, 7)]
    assert [row[0] for row in rows(schema, b"\x02\x00\x07\x08")] == ["kind", "body", "body.two", "more"]


def test_rows_of_a_branch_that_did_not_fit_are_cut_back() -> None:
    long, short = Struct("a" / Byte, "b" / Const(b"Z"), "c" / Int32ub), Struct("d" / Int16ub)
    assert rows(Struct("x" / Select(long, short), "y" / Optional(Int32ub)), b"\x00\x07") == [
        ("x", 0, 2, None),
        ("x.d", 0, 2, 7),
    ]


def test_looking_ahead_and_elsewhere_makes_no_rows() -> None:
    schema = Struct("next" / Peek(Struct("n" / Byte)), "far" / Pointer(2, Byte), "a" / Byte, "b" / Int16ub)
    assert rows(schema, b"\x01\x02\x03") == [("a", 0, 1, 1), ("b", 1, 3, 0x203)]


def test_fields_of_no_bytes_make_no_rows() -> None:
    schema = Struct("at" / Tell, "five" / Computed(5), Check(this.five == 5), "none" / Bytes(0), "a" / Byte)
    assert rows(schema, b"\x09") == [("a", 0, 1, 9)]


def test_recursive_structures_are_followed() -> None:
    node = Struct("value" / Byte, "next" / If(this.value > 0, LazyBound(lambda: node)))
    assert rows(node, b"\x02\x01\x00") == [
        ("value", 0, 1, 2),
        ("next", 1, 3, None),
        ("next.value", 1, 2, 1),
        ("next.next", 2, 3, None),
        ("next.next.value", 2, 3, 0),
    ]


def test_the_focus_of_a_sequence_stands_at_the_path_of_the_sequence() -> None:
    schema = Struct("text" / FocusedSeq("body", "size" / Byte, "body" / Bytes(this.size)))
    assert rows(schema, b"\x02ab") == [("text", 0, 3, None), ("text.size", 0, 1, 2), ("text.value", 1, 3, b"ab")]


CHECKED = Struct(
    "header" / Struct("crc32" / Int32ul),
    "start" / Tell,
    "body" / Bytes(9),
    "end" / Tell,
    "checksum" / CrcCheck(CRC32, this.header.crc32, this.start, this.end, absent=0),
)
GOOD = bytes.fromhex("2639f4cb") + b"123456789"  # 0xcbf43926 is CRC-32's published check value of these digits


def test_a_right_checksum_is_said_beside_the_stored_value() -> None:
    traced = parse_to_field_rows(CHECKED, GOOD, 0x70, Limits())
    row = by_path(traced)["header.crc32"]
    assert (row.start, row.end, repr(row.value), row.ok) == (0x70, 0x74, "0xcbf43926", True)
    assert row.meaning == "ok (crc32 of 0x74..0x7d)"
    assert "checksum" not in by_path(traced) and traced.error is None


def test_a_wrong_checksum_is_marked_and_reported() -> None:
    traced = parse_to_field_rows(CHECKED, b"\x27" + GOOD[1:], 0x70, Limits())
    row = by_path(traced)["header.crc32"]
    assert (row.meaning, row.ok) == ("WRONG, computed 0xcbf43926 (crc32 of 0x74..0x7d)", False)
    assert traced.error is not None
    assert (traced.error.path, traced.error.position) == ("header.crc32", 0x70)
    assert traced.error.finding_id == "checksum-mismatch"


def test_a_checksum_that_was_not_written_is_not_called_wrong() -> None:
    traced = parse_to_field_rows(CHECKED, b"\0\0\0\0" + GOOD[4:], 0, Limits())
    row = by_path(traced)["header.crc32"]
    assert (row.meaning, row.ok, traced.errors) == ("not computed (crc32 of 0x4..0xd)", True, [])


def test_the_schema_itself_is_left_as_it_is() -> None:
    schema = Struct("name" / PascalString(Byte, "utf8"), "ids" / PrefixedArray(Byte, Byte))
    before = repr(schema), dict(vars(schema))
    parse_to_field_rows(schema, b"\x01a\x01\x02", 0, Limits())
    assert (repr(schema), dict(vars(schema))) == before
    assert schema.parse(b"\x01a\x01\x02").ids == [2]


def test_two_traces_at_the_same_time_do_not_mix() -> None:
    from concurrent.futures import ThreadPoolExecutor

    schema = Struct("n" / Byte, "body" / Bytes(this.n), "rest" / GreedyRange(Struct("x" / Byte)))
    data = [bytes([n]) + bytes(n) + bytes(range(20)) for n in range(1, 40)]
    expected = [parse_to_field_rows(schema, one, 0, Limits()).rows for one in data]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: parse_to_field_rows(schema, one, 0, Limits()).rows, data * 5))
    assert found == expected * 5


def test_an_element_that_is_laid_out_like_one_before_can_still_be_asked_for_what_is_in_it() -> None:
    items = Array(3, Struct("size" / Int16ub, "left" / Byte))
    schema = Struct("items" / items, "body" / Bytes(this.items[1].size + this.items[2].left))
    found = rows(schema, b"\0\5\0\0\1\0\0\7\2abc")
    assert found[-1] == ("body", 9, 12, b"abc")
