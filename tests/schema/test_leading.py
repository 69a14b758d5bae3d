"""A number among the first fields of a frame."""

from __future__ import annotations

import struct

import pytest
from construct import Bytes, Check, Int8ul, Int16ub, Int32ul, Struct, Switch, Tell, this

from binlogtool.schema.lower_frame_schema import find_leading_number

FRAME = Struct(
    "at" / Tell,
    "kind" / Int8ul,
    Check(this.kind > 0),
    "count" / Int16ub,
    "size" / Int32ul,
    "rest" / Switch(this.kind, {1: Bytes(2)}),
    "behind" / Int32ul,
)


@pytest.mark.parametrize(("path", "value"), [("kind", 1), ("count", 0x0203), ("size", 0x07060504)])
def test_a_number_is_read_where_only_integers_stand_before_it(path: str, value: int) -> None:
    assert find_leading_number(FRAME, path).read_from(b"--" + bytes([1, 2, 3, 4, 5, 6, 7]), 2) == value


def test_a_number_behind_a_case_has_no_place() -> None:
    with pytest.raises(KeyError):
        find_leading_number(FRAME, "behind")


def test_the_size_of_an_event_stands_where_the_servers_put_it() -> None:
    from binlogtool.formats.binlog_events.event_schemas import EVENTS

    header = struct.pack("<IBIIIH", 1, 2, 3, 123456, 5, 0)
    assert {find_leading_number(schema, "event_size").read_from(header, 0) for schema in EVENTS.values()} == {123456}
