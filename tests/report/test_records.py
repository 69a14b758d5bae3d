"""`dump -O jsonl`: nothing is lost, nothing is changed in silence."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.findings import make_finding
from binlogtool.format_api.encode_json import JsonStyle, TimeFormatter, collect_types, escape_invisible_characters
from binlogtool.report.dump_output_formats import FieldJsonEncoder, RecordJsonEncoder
from tests.report.values import NEW_YEAR_2026, block


def lines(made: RecordBlock, style: JsonStyle = JsonStyle()) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RecordJsonEncoder(style).encode_lines(made).splitlines()]


def test_a_line_has_the_members_of_the_contract_in_order() -> None:
    text = RecordJsonEncoder().encode_lines(block([{"space_id": 512, "tuple": [1, "a"]}]))
    assert text == (
        b'{"file":"a.xlog","offset":130,"size":44,"record":0,"type":"INSERT","seq":100,'
        b'"time":"2026-01-01T00:00:00.000000Z","object":"512","origin":1,"txn":"1:100",'
        b'"checksum":{"algorithm":"crc32c","stored":"0000009a","computed":"0000009a","ok":true},'
        b'"body":{"space_id":512,"tuple":[1,"a"]},"findings":[]}\n'
    )


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\xff",
        {"a": b"\x00\xff"},
        {"a": [1, {"b": (2, b"\x00\xff")}]},
        [[[[b"\x00\xff"]]]],
        {"a": bytearray(b"\x00\xff")},
        {"a": memoryview(b"\x00\xff")},
    ],
)
def test_bytes_anywhere_in_a_body_are_marked(body: Any) -> None:
    text = RecordJsonEncoder().encode_lines(block([{"plain": 1}, body, {"plain": 2}]))
    assert b'{"$bytes":"00ff"}' in text
    assert [r["record"] for r in map(json.loads, text.splitlines())] == [0, 1, 2]


def test_bytes_as_keys_are_marked() -> None:
    assert lines(block([{b"\xff": 1}]))[0]["body"] == {"$bytes:ff": 1}


@pytest.mark.parametrize(
    ("form", "shown"), [("hex", "61ff0a"), ("base64", base64.b64encode(b"a\xff\n").decode()), ("escape", "a\\xff\\x0a")]
)
def test_the_form_of_bytes_can_be_chosen(form: str, shown: str) -> None:
    assert lines(block([[b"a\xff\n"]]), JsonStyle(bytes_form=form))[0]["body"] == [{"$bytes": shown}]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_marked(number: float) -> None:
    assert lines(block([{"x": [number, 1.5]}]))[0]["body"] == {"x": [{"$float": str(number)}, 1.5]}


def test_integers_of_any_size_are_exact() -> None:
    numbers = [2**53 + 1, 2**64 - 1, -(2**63), 2**200]
    assert lines(block([numbers]))[0]["body"] == numbers


def test_text_that_is_no_text_becomes_bytes() -> None:
    record = lines(block([{"a": "x\udcff"}], file="bad\udcff.xlog"))[0]
    assert record["body"] == {"a": {"$bytes": b"x\xff".hex()}}
    assert record["file"] == {"$bytes": b"bad\xff.xlog".hex()}


def test_a_missing_body_is_null() -> None:
    assert lines(replace(block([1]), bodies=[]))[0]["body"] is None


def test_a_record_in_a_packed_frame_says_where_it_is_inside() -> None:
    shown = lines(block([1, 2], inner=[InnerPosition(7, 20), None]))
    assert shown[0]["inner"] == {"offset": 7, "size": 20}
    assert "inner" not in shown[1]


def test_the_members_that_a_format_adds_stand_at_the_top() -> None:
    shown = lines(block([1, 2, 3], extras=[{"header": {"a": b"\x01"}}, None, {"unit": "s"}]))
    assert shown[0]["header"] == {"a": {"$bytes": "01"}}
    assert set(shown[2]) - set(shown[1]) == {"unit"}


def test_added_members_have_any_name_and_survive_bad_text() -> None:
    shown = lines(block([1], extras=[{"a-b": "x\udcff", "n": 1}]))[0]
    assert (shown["a-b"], shown["n"]) == ({"$bytes": "78ff"}, 1)


def test_an_absent_checksum_is_neither_right_nor_wrong() -> None:
    shown = lines(block([1, 2], checksum=[RecordChecksum("crc32", 0, 5, None), None]))
    assert shown[0]["checksum"] == {"algorithm": "crc32", "stored": "00000000", "computed": "00000005", "ok": None}
    assert shown[1]["checksum"] is None


def test_findings_stand_at_their_record() -> None:
    found = make_finding("payload-undecodable", 174, 44, "no map", record=1, key=b"\xff")
    shown = lines(block([1, None, 3], findings={1: (found,)}))
    assert [len(r["findings"]) for r in shown] == [0, 1, 0]
    assert shown[1]["findings"][0]["facts"] == {"key": {"$bytes": "ff"}}


def test_controls_are_escaped_and_come_back_unchanged() -> None:
    hostile = "\x00\x1b[31m\x7f\x85\x9b1m\u202e\u2028\u200f\ufeff é"
    text = RecordJsonEncoder().encode_lines(block([hostile]))
    assert not {c for c in text.decode() if not c.isprintable()} - {"\n"}
    assert json.loads(text)["body"] == hostile


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_plain_bodies_come_back_as_they_were(bodies: list[Any]) -> None:
    assert [r["body"] for r in lines(block(bodies))] == bodies


@given(st.lists(VALUES | st.binary(), min_size=1, max_size=5))
def test_bodies_with_bytes_come_back_marked(bodies: list[Any]) -> None:
    expected = [{"$bytes": b.hex()} if isinstance(b, bytes) else b for b in bodies]
    assert [r["body"] for r in lines(block(bodies))] == expected


def test_kinds_sees_the_deepest_value() -> None:
    assert bytes in collect_types([1, {"a": [{"b": (b"x",)}]}])
    assert complex in collect_types([[1.0, [math.nan]]])
    assert collect_types([1, "a", None, True, [2.5], {}]) == {int, str, type(None), bool, list, float, dict}


def test_fields_choose_members_and_reach_into_the_body() -> None:
    made = block([{"tuple": [1], "a.b": 2}])
    picked = FieldJsonEncoder(RecordJsonEncoder(), ("seq", "body.tuple", "body.a.b", "nothing")).encode_lines(made)
    assert json.loads(picked) == {"seq": 100, "body.tuple": [1], "body.a.b": 2, "nothing": None}


def test_offsets_can_be_left_out() -> None:
    shown = json.loads(FieldJsonEncoder(RecordJsonEncoder(), (), offsets=False).encode_lines(block([1])))
    assert not {"offset", "size", "inner"} & set(shown)
    assert "record" in shown


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (NEW_YEAR_2026 + 1, "2026-01-01T00:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, None),
        (2**63 - 1, None),
        (None, None),
    ],
)
def test_times_are_rfc_3339_in_utc(microseconds: int | None, shown: str | None) -> None:
    assert TimeFormatter()(microseconds) == shown


def test_times_in_one_second_differ_in_their_fraction() -> None:
    time = TimeFormatter()
    assert [time(NEW_YEAR_2026 + i) for i in (0, 5, 999_999)] == [
        f"2026-01-01T00:00:00.{fraction}Z" for fraction in ("000000", "000005", "999999")
    ]


def test_safe_json_leaves_harmless_text_alone() -> None:
    document = '{"a":"é中"}'.encode()
    assert escape_invisible_characters(document) == document
