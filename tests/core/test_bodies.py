from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.encode_json import encode_bodies, findings_to_json, to_json_text

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [b"\x00\xff", 1.5, None, True]}, '{"a":[{"$bytes":"00ff"},1.5,null,true]}'),
        ({1: 2, None: 3}, '{"1":2,"null":3}'),
        ({b"\x01": 1}, '{"$bytes:01":1}'),
        ((1, (2, 3)), "[1,[2,3]]"),
        (float("inf"), '{"$float":"inf"}'),
        ([float("nan"), b"x"], '[{"$float":"nan"},{"$bytes":"78"}]'),
        ("grün", '"grün"'),
        (b"\xe4".decode(errors="surrogateescape"), '{"$bytes":"e4"}'),
        (1 << 70, "1180591620717411303424"),
        (MappingProxyType({"k": bytearray(b"z")}), '{"k":{"$bytes":"7a"}}'),
    ],
)
def test_values_that_json_lacks_are_marked_and_never_changed_silently(value: Any, expected: str) -> None:
    assert to_json_text(value) == expected


@given(TREES)
def test_plain_json_values_come_back_as_they_were(tree: Any) -> None:
    try:
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        reject()
    assert json.loads(to_json_text(tree)) == tree


@given(st.recursive(LEAVES | st.binary(), lambda inner: st.lists(inner), max_leaves=10))
def test_the_text_is_always_json_that_utf8_can_hold(tree: Any) -> None:
    json.loads(to_json_text(tree).encode())


def test_a_body_that_could_not_be_decoded_is_no_text() -> None:
    assert encode_bodies([Finding("payload-undecodable", Severity.ERROR, 0, 1, "m"), {}, None]) == [None, b"{}", None]
    assert findings_to_json(()) is None
