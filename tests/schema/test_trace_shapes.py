"""Elements that are laid out like one before are read without a parse: their rows are those of a parse."""

from __future__ import annotations

import random

import pytest
from construct import (
    Bytes,
    Check,
    Computed,
    Construct,
    Enum,
    GreedyRange,
    If,
    Int8ul,
    Int16ul,
    Int32ul,
    Struct,
    Switch,
    this,
)

from binlogtool.format_api.schema_fields import NestedSchema
from binlogtool.formats.mariadb_innodb_binlog.schema import page_construct
from binlogtool.limits import Limits
from binlogtool.schema import annotated_parse_state
from binlogtool.schema.annotated_parse import make_traced_copy, parse_to_field_rows
from binlogtool.schema.annotation_types import FieldRow
from tests.formats.mariadb_innodb_binlog.ibb_make import cint, group
from tests.harness.hostile_ibb import commit, many


def items() -> Construct:
    """A schema of its own for each test: what was learned in vain counts."""
    item = Struct(
        "size" / Int8ul,
        "kind" / Enum(Int8ul, small=0, is_large=1),
        "free" / Int16ul,
        "flag" / Int8ul,
        Check(this.flag < 200),
        "more" / If(this.flag & 1, Int16ul),
        "double" / Computed(this.size * 2),
        "body"
        / NestedSchema(
            Bytes(this.size),
            Switch(this.kind, {"small": Struct("a" / Int8ul), "large": GreedyRange(Struct("b" / Int16ul))}),
        ),
    )
    return Struct("item" / GreedyRange(item))


def parsed(schema: object, data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[list[FieldRow], list[object]]:
    """The rows and errors without any shape."""
    with monkeypatch.context() as patch:
        patch.setattr(annotated_parse_state.ShapeCache, "find_shape", lambda *_: None)
        patch.setattr(annotated_parse_state.ShapeCache, "is_learning", False)
        found = parse_to_field_rows(schema, data, 100, Limits(), "frame[3]")
    return found.rows, list(found.errors)


def check(schema: object, data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compares; how many rows stood for several?"""
    rows, errors = parsed(schema, data, monkeypatch)
    plain = parse_to_field_rows(schema, data, 100, Limits(), "frame[3]")
    assert (plain.rows, plain.errors) == (rows, errors)
    folded = parse_to_field_rows(schema, data, 100, Limits(), "frame[3]", fold_rows=True)
    assert (list(annotated_parse_state.unfold_rows(folded.rows)), folded.errors) == (rows, errors)
    return sum(row.__class__ is annotated_parse_state.FoldedRow for row in folded.rows)


def test_rows_of_shapes_are_those_of_a_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, folded, schema = random.Random(4), 0, items()
    for _ in range(150):
        data = b""
        for _ in range(rng.randrange(2, 12)):
            size, kind, flag = rng.choice((0, 1, 2, 4, 5)), rng.choice((0, 1, 1, 2)), rng.choice((0, 1, 2, 3, 255))
            more = rng.randbytes(2) if flag & 1 else b""
            data += bytes((size, kind)) + rng.randbytes(2) + bytes((flag,)) + more + rng.randbytes(size)
        folded += check(schema, data[: rng.choice((len(data), len(data) - 1))], monkeypatch)
    assert folded > 100


def test_what_an_expression_reads_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that another field's being there, or its size, hangs on must be the same."""
    one, schema = bytes((1, 0, 7, 7, 0, 9)), items()
    for other in (bytes((1, 0, 8, 8, 1, 5, 5, 9)), bytes((2, 1, 8, 8, 0, 9, 9)), bytes((1, 1, 8, 8, 0, 9))):
        check(schema, one + other + one, monkeypatch)
    assert check(schema, one * 4, monkeypatch) >= 3


def test_an_expression_that_looks_out_of_the_element_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = Struct("wide" / Int8ul, "item" / GreedyRange(Struct("n" / Int32ul, "w" / If(this._.wide == 1, Int16ul))))
    assert check(outer, b"\1" + b"abcdef" * 4, monkeypatch) == check(outer, b"\0" + b"abcd" * 6, monkeypatch) == 0


def test_damaged_pages_have_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    make_traced_copy.cache_clear()  # what other tests of this process learned in vain counts, too
    rng, folded, size = random.Random(9), 0, 16384
    sound = many(3 * size, commit(cint(0) + group(1, 1)))[size : 2 * size]
    for count in (0, 1, 3, 40):
        one = bytearray(sound)
        for _ in range(count):
            one[rng.randrange(size)] = rng.randrange(256)
        folded += check(page_construct(size), bytes(one), monkeypatch)
    assert folded > 300


def test_a_number_in_a_group_that_an_expression_reads_decides_how_an_element_is_read() -> None:
    head = Struct("kind" / Int8ul, "free" / Int16ul)
    body = Switch(this.head.kind, {1: Struct("a" / Int16ul), 2: Struct("b" / Int8ul, "c" / Int8ul)})
    schema = Struct("item" / GreedyRange(Struct("head" / head, "body" / body)))
    found = parse_to_field_rows(schema, b"\1\7\0\5\0\1\10\0\6\0\2\11\0\3\4", 0, Limits())
    assert not found.errors
    assert [(row.path, row.value) for row in found.rows if row.leaf and "head" not in row.path] == [
        ("item[0].body.a", 5), ("item[1].body.a", 6), ("item[2].body.b", 3), ("item[2].body.c", 4),
    ]  # fmt: skip
