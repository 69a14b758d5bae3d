"""Conditions of `--where`: what they mean, worked out by hand, and what is wrong with those that mean nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.errors import UsageError
from binlogtool.query.evaluate import compile_condition, to_timestamps

MEMBERS: dict[str, Any] = {
    "type": "UPDATE_ROWS_V2", "seq": 7, "time": to_timestamps([1_767_225_600_500_000])[0], "object": "shop.orders",
    "origin": None, "txn": "0-1-42", "record": 3, "offset": 400, "size": 90,
}  # fmt: skip
"""The time is 2026-01-01T00:00:00.5Z."""

BODY: dict[str, Any] = {
    "flags": 1,
    "names": ["alpha", "beta"],
    "columns": [{"name": "id", "n": 1}, {"name": "price", "n": None}],
    "rows": [
        {"before": {"id": 1, "price": "10.50"}, "after": {"id": 1, "price": "9.50", "name": "x_y", "raw": b"\x00\xff"}},
        {"before": {"id": 2, "price": None}, "after": {"id": 2, "price": "-0.10", "day": "2026-02-03 04:05:06"}},
        {"before": {"id": 3, "f": 0.1}, "after": {"id": 3, "big": 2**63 + 1, "a b": "tick",
    "flag": True, "set": ["a", "b"]}},
    ],
}  # fmt: skip

TRUE_ONES = [
    "object = 'shop.orders'", "object == 'shop.orders' and seq >= 7", "type ~ '*_ROWS_*'", "type !~ 'WRITE*'",
    "type like 'UPDATE\\_ROWS%'", "type not like 'WRITE%'", "OBJECT IS NULL OR object in ('a', 'shop.orders')".lower(),
    "seq IN (5, 6, 7) AND NOT seq = 8", "origin is null", "not origin is not null", "seq <> 8", "`seq` = 7",
    "time >= '2026-01-01'", "time < '2026-01-01T00:00:00.500001Z'", "time = '2026-01-01T01:00:00.5+01:00'",
    "time > time '2025-12-31T23:59:59Z'", "record = 3 and offset = 400 and size < 91", "txn = '0-1-42'",
    "body.flags = 1", "body.flags = true", "body.names[1] = 'beta'", "body.names = 'alpha'",
    "body.columns.name = 'price'",
    "body.columns.n is null", "body.rows.after.price < 0", "body.rows[0].after.price = 9.5",
    "after.price < 0", "after.price = 9.5", "after.price = 9.500 and before.price = 10.5", "after.price < before.price",
    "after.id = 2 and after.price = -0.1", "not (after.price < 0)", "after.name like 'x\\_y'", "after.name like 'x_y'",
    "after.raw = x'00ff'", "after.raw ~ '??'", "after.raw > x'00'", "after.day >= time '2026-02-03T04:05:06Z'",
    "before.f = 0.1", "after.big > 9223372036854775808", "after.big = 9223372036854775809", "after.`a b` = 'tick'",
    "after.flag = true", "after.flag = 1", "after.nothing is null", "before.id = after.id", "after.set = 'b'",
    "1 = 1", "null is null", "not not seq = 7", "(seq = 1 or seq = 7) and seq = 7", "seq = 7 or seq = 1 and seq = 2",
    "0.1 = 0.10", "'it''s' = 'it''s'", "after.price not in (1, 2)",
]  # fmt: skip

OTHERS = [
    "object = 'shop.Orders'", "seq = 8", "seq = null", "not seq = null", "seq != null", "origin = 1", "origin != 1",
    "not origin = 1", "origin in (1, null)", "origin not in (1)", "seq not in (8, null)", "type ~ 'ROWS'",
    "type like 'ROWS'",
    "after.id = 1 and after.price < 0", "after.id = 4", "after.name = 5", "after.name < 5", "not after.name < 5",
    "after.price = 9.51", "after.day = time '2026-02-03'", "after.big = 9223372036854775808", "body.names[2] = 'gamma'",
    "body.names[2] is not null", "after.raw = x'00'", "seq = time '2026-01-01'",
    "body.rows = 1", "after.id.deeper = 1",
    "seq = 1 and seq = 7 or seq = 2",
    "after.name like 'x'", "after.name like 'x\\%'", "(seq = 7 or seq = 1) and seq = 2",
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE_ONES)
def test_a_condition_that_is_true_chooses_the_record(text: str) -> None:
    condition = compile_condition(text)
    columns = {name: [MEMBERS[name]] for name in condition.members}
    assert condition.mark_possible_matches(columns, 1) == [True]
    assert condition.is_true_for_record(MEMBERS, BODY)


@pytest.mark.parametrize("text", OTHERS)
def test_a_condition_that_is_false_or_unknown_does_not(text: str) -> None:
    assert not compile_condition(text).is_true_for_record(MEMBERS, BODY)


WRONG = [
    ("", 1, "a condition"), ("object = 'x", 10, "a value"), ("seq = ", 7, "a value"), ("(seq=1", 7, "')'"),
    ("seq=1)", 6, "'and', 'or' or the end"), ("seq=1 and", 10, "a condition"), ("seq 1", 5, "a comparison"),
    ("seq is 4", 8, "'null'"), ("after.a like 5", 14, "a text in quotes"), ("after.a = 1e5", 11, "a value"),
    ("after. = 1", 8, "a name"), ("after = 1", 1, "needs the name of a member"),
    ("after[1] = 4", 1, "needs the name of a member"), ("type.x = 1", 1, "has no members"),
    ("seq = 1 and foo = 1", 13, "a record has type, seq"), ("seq = time 'x'", 7, "a time such as"),
    ("__import__('os') = 1", 1, "a record has"), ("after.a in (1,)", 14, "')'"),
    ("after.a = " + "1" * 101, 11, "100 digits"),
    ("(" * 25 + "seq = 1" + ")" * 25, 25, "24 deep"), ("(" * 8000, 25, "24 deep"),
    ("x" * 8193, 8193, "8192 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_told_with_its_column(text: str, column: int, words: str) -> None:
    with pytest.raises(UsageError, match=rf"^--where: column {column}: ") as caught:
        compile_condition(text)
    assert words in str(caught.value)


def test_long_expressions_are_read() -> None:
    assert compile_condition(" or ".join(["seq = 1"] * 700 + ["seq = 7"])).is_true_for_record(MEMBERS, None)
    assert compile_condition("not " * 1000 + "seq = 7").is_true_for_record(MEMBERS, None)
    assert compile_condition("(" * 24 + "seq = 7" + ")" * 24).is_true_for_record(MEMBERS, None)


def test_a_pattern_of_many_stars_does_not_go_back() -> None:
    text = "a" * 100_000
    assert not compile_condition("after.t ~ '" + "*a" * 40 + "*b'").is_true_for_record({}, {"after": {"t": text}})


def test_two_conditions_on_rows_speak_of_the_same_row() -> None:
    assert compile_condition("before.id = 2 and after.price < 0").is_true_for_record({}, BODY)
    assert not compile_condition("before.id = 1 and after.price < 0").is_true_for_record({}, BODY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time = 'yesterday'", "time is compared with 'yesterday', which is not a time"),
        ("5 < time", "time is compared with 5, which is not a time"),
        ("time in ('2026-01-01', 'x')", "time is compared with 'x', which is not a time"),
        ("offset > 'end'", "offset is a number, and is compared with the text 'end'"),
        ('after.a = "x"', "a text has single quotes"),
        ("after.@1 = 4", "write a name such as @1 in backquotes"),
    ],
)
def test_a_comparison_that_can_never_be_true_is_refused_with_advice(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        compile_condition(text)


def test_what_is_known_before_the_body_rules_out_only_what_cannot_be_true() -> None:
    objects = {"object": ["a", "b", None]}
    assert compile_condition("object = 'a' and after.x = 1").mark_possible_matches(objects, 3) == [True, False, False]
    assert compile_condition("object = 'a' or after.x = 1").mark_possible_matches(objects, 3) == [True, True, True]
    assert compile_condition("not (object = 'a' or after.x = 1)").mark_possible_matches(objects, 3) == [
        False,
        True,
        False,
    ]
    assert compile_condition("not (object = 'a' and not after.x = 1)").mark_possible_matches(objects, 3) == [
        True,
        True,
        True,
    ]


LEAVES = ("seq", "after.a", "after.b")
SIGNS = {"=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b}


def _tests() -> st.SearchStrategy[tuple[Any, ...]]:
    compare = st.tuples(st.just("test"), st.sampled_from(LEAVES), st.sampled_from(sorted(SIGNS)), st.integers(-2, 2))
    return compare | st.tuples(st.just("null"), st.sampled_from(LEAVES))


TREES = st.recursive(
    _tests(),
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(("and", "or")), inner, inner),
    max_leaves=8,
)


def _text(tree: tuple[Any, ...]) -> str:
    match tree:
        case ("test", name, sign, value):
            return f"{name} {sign} {value}"
        case ("null", name):
            return f"{name} is null"
        case ("not", one):
            return f"not ({_text(one)})"
        case (word, one, other):
            return f"({_text(one)}) {word} ({_text(other)})"
    raise AssertionError(tree)


def _truth(tree: tuple[Any, ...], values: dict[str, int | None]) -> bool | None:
    """SQL's three values, from their tables."""
    match tree:
        case ("test", name, sign, value):
            found = values[name]
            return None if found is None else SIGNS[sign](found, value)
        case ("null", name):
            return values[name] is None
        case ("not", one):
            inner = _truth(one, values)
            return None if inner is None else not inner
        case (word, one, other):
            both = {_truth(one, values), _truth(other, values)}
            strong = word == "or"
            return strong if strong in both else None if None in both else not strong
    raise AssertionError(tree)


SMALL = st.none() | st.integers(-2, 2)


@settings(max_examples=200, deadline=None)
@given(TREES, SMALL, st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=3))
def test_any_condition_is_true_where_three_valued_logic_says_so(
    tree: tuple[Any, ...], seq: int | None, rows: list[tuple[int | None, int | None]]
) -> None:
    condition = compile_condition(_text(tree))
    body = {"rows": [{"after": {"a": a, "b": b}} for a, b in rows]}
    expected = any(_truth(tree, {"seq": seq, "after.a": a, "after.b": b}) is True for a, b in rows)
    assert condition.is_true_for_record({"seq": seq}, body) is expected
    if expected:
        assert condition.mark_possible_matches({"seq": [seq]} if condition.members else {}, 1) == [True]
