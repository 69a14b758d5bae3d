"""Update operations one by one: values computed by hand from specification section 2.4."""

from __future__ import annotations

from typing import Any

import pytest

from binlogtool.format_api.replay_rules import encode_canonical
from binlogtool.formats.tarantool.replay.row_effects import apply_patch
from binlogtool.formats.tarantool.replay.update_operations import apply_upsert, parse_operations, parse_path, try_update

ROW = [1, "a", 10, 0xFF, "splice me", {"k": [1, 2, {"deep": 5}]}, 7, {"$decimal": "1.5"}]


def updated(*operations: list[Any], base: int = 1) -> list[Any] | None:
    read = parse_operations([list(one) for one in operations], base, {"name": 1, "m": 5, "a.b": 6})
    assert read is not None
    return try_update(ROW, read)


def changed(field: int, value: Any) -> list[Any]:
    return [*ROW[:field], value, *ROW[field + 1 :]]


@pytest.mark.parametrize(
    ("operation", "field", "value"),
    [
        (["=", 2, "A"], 1, "A"),
        (["=", "name", "A"], 1, "A"),
        (["=", -1, "neg"], 7, "neg"),
        (["+", 3, 5], 2, 15),
        (["-", 3, 12], 2, -2),
        (["+", 3, 0.5], 2, 10.5),
        (["&", 4, 0x3C], 3, 0x3C),
        (["|", 4, 0x100], 3, 0x1FF),
        (["^", 4, 0x0F], 3, 0xF0),
        ([":", 5, 1, 6, "SPLICE"], 4, "SPLICE me"),
        ([":", 5, -3, 2, "yo"], 4, "splice yo"),
        ([":", 5, 8, -1, "x"], 4, "splice xe"),
        ([":", 5, 100, 5, "!"], 4, "splice me!"),
        (["=", "[6].k[3].deep", 55], 5, {"k": [1, 2, {"deep": 55}]}),
        (["!", "m.k[1]", 0], 5, {"k": [0, 1, 2, {"deep": 5}]}),
        (["#", "m.k", 1], 5, {}),
        (["+", "a.b", 1], 6, 8),
        (["+", 8, {"$decimal": "0.25"}], 7, {"$decimal": "1.75"}),
        (["-", 8, 2], 7, {"$decimal": "-0.5"}),
        (["+", 8, 0.1], 7, {"$decimal": "1.6"}),
    ],
)
def test_one_operation(operation: list[Any], field: int, value: Any) -> None:
    assert updated(operation) == changed(field, value)


def test_operations_see_what_those_before_them_left() -> None:
    assert updated(["!", 2, "new"], ["=", 3, "A"], ["#", 4, 6]) == [1, "new", "A"]
    assert updated(["!", -1, "last"], ["#", 9, 1]) == ROW
    assert updated(["=", 9, "ninth"]) == [*ROW, "ninth"]


def test_field_numbers_count_from_the_base() -> None:
    assert updated(["=", 1, "A"], base=0) == changed(1, "A")
    assert updated([":", 4, 0, 6, "SPLICE"], base=0) == changed(4, "SPLICE me")


@pytest.mark.parametrize(
    "operation",
    [
        ["+", 2, 1], ["&", 3, -1], ["=", 0, 1], ["#", 20, 1], ["#", 1, 0], ["=", "unknown", 1], [":", 5, 0, 1, "x"],
        ["+", 3, 2**64], ["=", "[6].none.deep", 1]
    ],
)  # fmt: skip
def test_what_cannot_be_applied_gives_nothing(operation: list[Any]) -> None:
    assert updated(operation) is None


def test_a_newer_server_had_filled_a_row_up_with_null() -> None:
    assert updated(["=", 11, "x"]) == [*ROW, None, None, "x"]


@pytest.mark.parametrize("stored", [None, 5, [["=", 1]], [["?", 1, 2]], ["="], [["=", 1, 2, 3]], [[]], [[["="], 1, 2]]])
def test_operations_of_another_shape_are_not_read(stored: Any) -> None:
    assert parse_operations(stored, 1, {}) is None


def test_paths() -> None:
    assert parse_path("[6].k[3].deep") == [5, "k", 2, "deep"]
    assert parse_path('["a b"].c') == ["a b", "c"]
    for text in ("[0]", "a..b", "[", "a b", "", "[x]"):
        assert parse_path(text) is None, text


def test_an_upsert_leaves_out_what_fails() -> None:
    read = parse_operations([["+", 2, 1], ["+", 3, 1], ["-", 3, 5], ["=", 20, 0]], 1, {})
    assert read is not None
    assert apply_upsert(ROW, read) == changed(2, 11)  # text; done; the same field again; no such field


def test_a_patch_of_a_row_that_is_not_there() -> None:
    put = encode_canonical([1, [7, 0], [["+", [1], [1]]], None, None])
    assert apply_patch(b"", put) == encode_canonical([7, 0])
    assert apply_patch(encode_canonical([7, 1]), put) == encode_canonical([7, 2])
    assert apply_patch(b"", encode_canonical([0, None, [["+", [1], [1]]], None, None])) is None


@pytest.mark.parametrize("operation", [b"", b"\xc1", b"\x93\x01", encode_canonical("text"), encode_canonical([1, 2])])
def test_bytes_that_are_no_operation_give_nothing(operation: bytes) -> None:
    assert apply_patch(encode_canonical([7, 1]), operation) is None
