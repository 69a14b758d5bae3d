"""Quick expressions and structures give what construct's own give."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from construct import (
    Byte,
    Bytes,
    Check,
    Computed,
    Container,
    If,
    Int8ul,
    Int16ub,
    Int16ul,
    Int32ul,
    StopIf,
    Struct,
    Tell,
    len_,
    this,
)

from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import make_traced_copy, parse_to_field_rows
from binlogtool.schema.annotated_parse_nodes import compile_this_expression

CONTEXT = Container(a=7, b=3, text=b"xyz", inner=Container(c=5, deep=Container(d=2)), _=Container(a=1))

EXPRESSIONS: list[tuple[Any, Any]] = [
    (this.a, 7),
    (this.inner.c, 5),
    (this.inner.deep.d, 2),
    (this._.a, 1),
    (this.a + this.b * 2, 13),
    (10 - this.b, 7),
    (this.a <= 7, True),
    ((this.a > 7) | (this.inner.c == 5), True),
    (-this.a, -7),
    (~(this.a == 7), False),
    (len_(this.text), 3),
    (len_(this.text) + this.b, 6),
    (4, 4),
]


@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS, ids=lambda e: repr(e))
def test_a_quick_expression_has_the_same_value(expression: Any, value: Any) -> None:
    made = compile_this_expression(expression)
    assert (made(CONTEXT) if callable(made) else made) == value


def test_a_field_that_is_not_there_is_a_key_error_still() -> None:
    for expression in (this.nothing, this.inner.nothing, this.a + this.nothing):
        with pytest.raises(KeyError):
            compile_this_expression(expression)(CONTEXT)


SCHEMA = Struct(
    "start" / Tell,
    "size" / Byte,
    "inner" / Struct("outer_size" / Computed(this._.size), "root_size" / Computed(this._root.size), "x" / Byte),
    Check(this.inner.x < 9),
    "more" / If(this.size > 1, Bytes(this.size)),
    StopIf(this.size == 0),
    "last" / Byte,
)


@pytest.mark.parametrize("data", [b"\x01\x02\x03", b"\x02\x02ab\x03", b"\x00\x02"])
def test_a_traced_schema_parses_to_the_same_values(data: bytes) -> None:
    assert make_traced_copy(SCHEMA).parse(data) == SCHEMA.parse(data)
    assert parse_to_field_rows(SCHEMA, data, 0, Limits()).end == len(data)


NUMBERS = Struct("a" / Int16ul, "b" / Byte, "c" / Int32ul, "d" / Int16ub, Check(this.c > 4), "e" / Int8ul, "f" / Int8ul)


def test_numbers_that_are_read_at_once_are_rows_of_their_own() -> None:
    rows = parse_to_field_rows(NUMBERS, b"\x01\x02\x03\x05\0\0\0\x01\x02\x07\x08", 100, Limits()).rows
    assert [(row.path, row.start, row.end, row.value) for row in rows] == [
        ("a", 100, 102, 0x201), ("b", 102, 103, 3), ("c", 103, 107, 5), ("d", 107, 109, 0x102), ("e", 109, 110, 7),
        ("f", 110, 111, 8),
    ]  # fmt: skip
    assert make_traced_copy(NUMBERS).parse(bytes(3) + b"\x05" + bytes(7)) == NUMBERS.parse(
        bytes(3) + b"\x05" + bytes(7)
    )


@pytest.mark.parametrize(("size", "name"), [(0, "a"), (1, "a"), (2, "b"), (3, "c"), (6, "c"), (8, "d"), (10, "f")])
def test_of_numbers_that_are_cut_the_first_incomplete_one_is_wrong(size: int, name: str) -> None:
    found = parse_to_field_rows(NUMBERS, (bytes(3) + b"\x05" + bytes(7))[:size], 0, Limits())
    assert [row.path for row in found.rows if row.ok] == list("abcdef"[: "abcdef".index(name)])
    assert found.error is not None and found.error.path == name


def test_a_parse_leaves_no_garbage_for_the_collector() -> None:
    code = """
import gc
from construct import Byte, Bytes, Computed, Struct, Tell, this
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
inner = Struct("n" / Computed(this._.size), "x" / Byte)
schema = Struct("start" / Tell, "size" / Byte, "inner" / inner, "more" / Bytes(2))
parse_to_field_rows(schema, bytes(4), 0, Limits())
gc.collect()
gc.disable()
for _ in range(20):
    parse_to_field_rows(schema, bytes(4), 0, Limits())
print(gc.collect())
"""
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # no other thread's garbage
    assert alone.stdout.split() == [b"0"]
