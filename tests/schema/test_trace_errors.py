"""What the annotated engine says about bad bytes; nothing raises, hangs, or grows without bound."""

from __future__ import annotations

import time

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
    Error,
    GreedyRange,
    Int8sb,
    Int32ub,
    Int64ub,
    LazyBound,
    Nibble,
    PascalString,
    Pass,
    RepeatUntil,
    Sequence,
    Struct,
    Terminated,
    this,
)

from binlogtool.format_api.schema_fields import Magic
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import TraceResult, parse_to_field_rows
from tests.harness.slowness import slowness


def last(traced: TraceResult) -> tuple[str, int, int, str, bool]:
    row = traced.rows[-1]
    return row.path, row.start, row.end, row.meaning, row.ok


def test_the_field_that_the_data_is_too_short_for_is_the_last_row() -> None:
    traced = parse_to_field_rows(
        Struct("a" / Byte, "b" / Int32ub, "c" / Byte), b"\x01\x02\x03", 0x20, Limits(), "frame[0]"
    )
    assert [(r.path, r.ok) for r in traced.rows] == [("frame[0]", False), ("frame[0].a", True), ("frame[0].b", False)]
    assert last(traced) == ("frame[0].b", 0x21, 0x23, "needs 4 bytes, 2 are left", False)
    assert traced.rows[-1].value == b"\x02\x03"
    assert traced.errors == [("frame[0].b", 0x21, "needs 4 bytes, 2 are left", "length-out-of-bounds", "")]


def test_a_wrong_magic_names_what_was_expected() -> None:
    traced = parse_to_field_rows(Struct("magic" / Magic(Int32ub, plain=0xD5BA0BAB)), b"\0\0\0\x01", 0, Limits())
    assert last(traced) == ("magic", 0, 4, "magic is 00000001, expected d5ba0bab", False)
    assert traced.error is not None and traced.error.finding_id == "bad-magic"


def test_a_wrong_constant_names_what_was_expected() -> None:
    traced = parse_to_field_rows(Struct("m" / Const(b"AB")), b"AC", 0, Limits())
    assert last(traced) == ("m", 0, 2, "expected b'AB', found b'AC'", False)


def test_a_failed_check_marks_the_field_that_it_is_about() -> None:
    schema = Struct("h" / Struct("length" / Byte), Check(this.h.length <= 4), "body" / Bytes(this.h.length))
    traced = parse_to_field_rows(schema, b"\x05aaaaa", 0, Limits())
    assert last(traced) == ("h.length", 0, 1, "must hold: h.length <= 4", False)
    assert traced.error is not None and traced.error.path == "h.length"


def test_an_element_that_ends_an_open_range_early_is_shown() -> None:
    schema = Struct("rows" / GreedyRange(Struct("m" / Const(b"M"), "v" / Byte)))
    traced = parse_to_field_rows(schema, b"MaXbc", 0, Limits(), "f")
    assert [(r.path, r.start, r.end, r.ok) for r in traced.rows] == [
        ("f", 0, 5, False),
        ("f.rows", 0, 3, False),
        ("f.rows[0]", 0, 2, True),
        ("f.rows[0].m", 0, 1, True),
        ("f.rows[0].v", 1, 2, True),
        ("f.rows[1]", 2, 3, False),
        ("f.rows[1].m", 2, 3, False),
        ("f.unmapped", 3, 5, True),
    ]
    assert [e.path for e in traced.errors] == ["f.rows[1].m"]


def test_an_open_range_that_ends_with_the_data_is_no_error() -> None:
    traced = parse_to_field_rows(Struct("rows" / GreedyRange(Struct("v" / Byte))), b"ab", 0, Limits())
    assert traced.errors == []


def test_ten_thousand_levels_end_at_the_ceiling() -> None:
    node = Struct("v" / Byte, "next" / LazyBound(lambda: node))
    traced = parse_to_field_rows(node, b"\x01" * 10_000, 0, Limits())
    assert traced.error is not None and traced.error.finding_id == "nesting-too-deep"
    assert max(row.depth for row in traced.rows) <= 64


@pytest.mark.parametrize("root", ["", "r"])
def test_levels_beyond_the_interpreters_stack_end_without_an_exception(root: str) -> None:
    named = Struct("v" / Byte, "next" / LazyBound(lambda: named))
    unnamed = Sequence(Byte, LazyBound(lambda: unnamed))
    for schema in (named, unnamed):
        traced = parse_to_field_rows(schema, b"\x01" * 10_000, 0, Limits(max_depth=1_000_000), root)
        assert traced.error is not None and traced.error.finding_id == "nesting-too-deep"


def test_a_huge_count_stops_where_the_data_ends() -> None:
    schema = Struct("n" / Int32ub, "a" / Array(this.n, Struct("x" / Byte)))
    traced = parse_to_field_rows(schema, b"\xff\xff\xff\xff\x01\x02", 0, Limits())
    assert last(traced) == ("a[2].x", 6, 6, "needs 1 byte, 0 are left", False)


def test_rows_stop_at_the_memory_ceiling() -> None:
    schema = Struct("n" / Int32ub, "a" / Array(this.n, Byte))
    traced = parse_to_field_rows(schema, b"\xff\xff\xff\xff" + bytes(100_000), 0, Limits(max_memory=512 * 1000))
    assert traced.error is not None and traced.error.finding_id == "count-out-of-bounds"
    assert len(traced.rows) < 1100


@pytest.mark.parametrize(
    "schema",
    [
        Struct("n" / Int32ub, "a" / Array(this.n, Struct("c" / Computed(3)))),
        Struct("n" / Int32ub, "a" / Array(this.n, Pass)),
        Struct("a" / GreedyRange(Pass)),
        GreedyRange(Struct("x" / Computed(1))),
        RepeatUntil(lambda _value, _list, _context: False, Pass),
        Struct("a" / GreedyRange(GreedyRange(Pass))),
    ],
)
def test_elements_without_bytes_never_loop(schema: Construct) -> None:
    started = time.thread_time()
    parse_to_field_rows(schema, b"\xff\xff\xff\xff", 0, Limits())
    assert time.thread_time() - started < 2 * slowness()


@pytest.mark.parametrize(
    "schema",
    [
        Struct("n" / Int64ub, "b" / Bytes(this.n)),
        Struct("n" / Int64ub, "b" / Bytes(this.n * this.n)),
        Struct("n" / Int8sb, "b" / Bytes(this.n)),
        Struct("n" / Byte, "b" / Array(this.n - 300, Byte)),
        Struct("n" / Byte, "b" / Computed(this.n / 0)),
        Struct("n" / Byte, "b" / Bytes(this.missing)),
        Struct("n" / Byte, Check(this.missing == 1)),
        Struct("n" / Byte, "b" / Bytes(this.n.x)),
        Struct("s" / PascalString(Byte, "utf8")),
        Struct("b" / BitStruct("a" / Nibble, "b" / BitsInteger(200))),
        Struct("a" / Byte, Terminated),
        Struct("a" / Byte, Error),
        Byte,
        Int64ub,
    ],
)
@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff" * 8 + b"abc"])
@pytest.mark.parametrize("root", ["", "frame[0]"])
def test_no_exception_leaves_the_trace(schema: Construct, data: bytes, root: str) -> None:
    traced = parse_to_field_rows(schema, data, 0, Limits(), root)
    assert all(isinstance(row.meaning, str) and len(row.meaning) <= 300 for row in traced.rows)
    assert traced.end <= len(data)


def test_an_overlong_error_text_is_cut() -> None:
    traced = parse_to_field_rows(Struct("s" / PascalString(Byte, "utf8")), b"\xfa" + b"\xff" * 250, 0, Limits())
    assert traced.error is not None
    assert traced.error.finding_id == "text-undecodable" and len(traced.error.message) == 300
