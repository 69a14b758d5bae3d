"""Sets of GTIDs and positions as people write them."""

from __future__ import annotations

import re

import pytest

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.gtid.gtid_sets import GTID_PARSERS, format_gtid_set, parse_gtid_set

U = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
V = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (f"{U}:1-5:7", [f"{U}:1", f"{U}:5", f"{U}:7"], [f"{U}:6", f"{U}:8", f"{V}:1", f"{U}:t:1", None, "0-1-1"]),
        (f"{U.upper()}:3", [f"{U}:3"], [f"{U}:2", f"{U}:4"]),
        (f" {U} : 1 - 2 ,\n{V}:9", [f"{U}:2", f"{V}:9"], [f"{V}:8"]),
        (f"{U}:1:Tag:3-9:_b:4", [f"{U}:1", f"{U}:tag:3", f"{U}:_b:4"], [f"{U}:3", f"{U}:tag:4711", f"{U}:_b:3"]),
        (U.replace("-", "") + ":1", [f"{U}:1"], [f"{U}:2"]),
        ("0-1-42", ["0-1-42"], ["0-1-41", "0-2-42", "1-1-42", f"{U}:42", None]),
        ("0-1-2..4, 0-2-9", ["0-1-2", "0-1-4", "0-2-9"], ["0-1-1", "0-1-5", "0-2-2"]),
        ("7-3", ["7-3-1", "7-3-18446744073709551615"], ["7-4-1", "8-3-1"]),
        ("7", ["7-3-1", "7-4-1"], ["8-3-1", f"{U}:7", None, ""]),
        (f"0-1-1,{U}:1", ["0-1-1", f"{U}:1"], ["0-1-2"]),
    ],
)
def test_a_set_holds_what_its_text_names_and_nothing_else(
    text: str, inside: list[str], outside: list[str | None]
) -> None:
    within = GTID_PARSERS.parse_set(text)
    assert [gtid for gtid in inside if not within(gtid)] == []
    assert [gtid for gtid in outside if within(gtid)] == []


@pytest.mark.parametrize(
    "text",
    [
        "", " , ", "x", "0-1-", "0-1-2-3", "-1", "0-1-5..4", "0-1-99999999999999999999", f"{U}", f"{U}:", f"{U}:tag",
        f"{U}:1:tag", f"{U}:5-4", f"{U}:1-", f"{U}:9tag:1", f"{U[:-1]}:1", "uuid:1", "0-1-1;0-1-2",
    ],
)  # fmt: skip
def test_a_text_that_is_no_set_is_refused_in_one_line(text: str) -> None:
    why = r"; write |: empty interval from 5 to 4|: 9{20} is above the largest sequence number"
    with pytest.raises(UsageError, match=why) as refused:
        GTID_PARSERS.parse_set(text)
    assert "\n" not in str(refused.value)


def test_a_set_with_more_holes_than_are_kept_is_refused() -> None:
    numbers = ":".join(str(n) for n in range(1, 300_000, 2))
    with pytest.raises(UsageError, match="too many gaps"):
        parse_gtid_set(f"{U}:{numbers}")


@pytest.mark.parametrize(
    ("gtids", "text"),
    [
        ([f"{U}:3", f"{U}:1", f"{U}:2", f"{U}:9"], f"{U}:1-3:9"),
        ([f"{V}:1", f"{U}:1", f"{U}:tag:5"], f"{U}:1,{U}:tag:5,{V}:1"),
        (["0-1-1", "0-1-2", "0-1-3", "0-2-4", "0-1-7"], "0-1-1..3,0-1-7,0-2-4"),
        ([], ""),
    ],
)
def test_single_gtids_are_written_as_the_shortest_set(gtids: list[str], text: str) -> None:
    assert format_gtid_set(gtids) == text


@pytest.mark.parametrize("text", [f"{U}:1-3:9", "0-1-1..3,0-1-7,0-2-4", "5,7-3", f"{U}:tag:5"])
def test_a_set_is_written_as_it_is_read(text: str) -> None:
    assert format_gtid_set(parse_gtid_set(text)) == text


def test_a_start_position_is_exclusive_and_an_unnamed_domain_is_behind_it() -> None:
    after = GTID_PARSERS.parse_after("0-1-3,1-8-4")
    assert [after(g) for g in ("0-1-3", "0-9-4", "0-1-2", "1-1-4", "1-1-5", "2-1-1", None)] == [
        False, True, False, False, True, True, False,
    ]  # fmt: skip


def test_a_stop_position_is_inclusive_and_ends_unnamed_domains() -> None:
    until = GTID_PARSERS.parse_until("0-1-3")
    assert [until(g) for g in ("0-1-3", "0-9-3", "0-1-4", "2-1-1", None)] == [True, True, False, False, False]


def test_the_last_number_of_a_mysql_set_is_the_position() -> None:
    after = GTID_PARSERS.parse_after(f"{U}:1-42,{U}:tag:7")
    assert [after(g) for g in (f"{U}:42", f"{U}:43", f"{U}:tag:7", f"{U}:tag:8", f"{V}:1")] == [
        False, True, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["0-1-1,0-2-5", "0-1-1..4", "0", "0-1", "x"])
def test_a_text_that_names_no_single_place_is_no_position(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text.partition(",")[0]) if text == "x" else "position"):
        GTID_PARSERS.parse_after(text)
