"""For any bytes: the leaves of a container tile it, in order, and `fill` leaves out no byte of the asked range."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Byte,
    Bytes,
    Check,
    Const,
    Construct,
    Enum,
    FixedSized,
    FlagsEnum,
    GreedyRange,
    If,
    Int16ub,
    Int16ul,
    Int32ul,
    LazyBound,
    Nibble,
    Optional,
    Padded,
    Padding,
    PascalString,
    Peek,
    Prefixed,
    PrefixedArray,
    Select,
    Struct,
    Switch,
    Tell,
    stream_read,
    this,
)
from hypothesis import example, given
from hypothesis import strategies as st

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import (
    CompressedSchema,
    CrcCheck,
    DecompressionError,
    MalformedError,
    NestedSchema,
    TracePart,
)
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import TraceResult, add_unmapped_rows, parse_to_field_rows
from binlogtool.schema.annotation_types import FieldRow


class Pairs(Construct):  # type: ignore[misc]
    """A count and so many one-byte numbers below 0x80; names its own parts."""

    def _parse(self, stream: Any, context: Any, path: str) -> list[int]:
        values = list(stream_read(stream, stream_read(stream, 1, path)[0], path))
        if any(value > 0x7F for value in values):
            raise MalformedError("too large", path)
        return values

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        if start == end:
            raise MalformedError("no count")
        yield TracePart(".count", 1, start, start + 1, data[start])
        yield TracePart(".list", 1, start + 1, None, None)
        for at in range(start + 1, start + 1 + data[start]):
            if at >= end or data[at] > 0x7F:
                raise MalformedError("too large, or cut off")
            yield TracePart(f".list[{at - start - 1}]", 2, at, at + 1, data[at])


def inflate(data: memoryview, limits: Limits) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, limits.max_inflate)
    except zlib.error as error:
        raise DecompressionError("compression-error", str(error)) from error


TREE = Struct("n" / Byte, "kids" / If(this.n > 100, Array(this.n % 3, LazyBound(lambda: TREE))))

SCHEMAS: dict[str, Construct] = {
    "counted": Struct("n" / Byte, "rows" / Array(this.n % 5, Struct("a" / Byte, "b" / Int16ub)), "end" / Const(b"\0")),
    "open": Struct("rows" / GreedyRange(Struct("m" / Const(b"\x01"), "v" / Int16ul))),
    "choice": Struct(
        "x" / Select(Struct("m" / Const(b"\x02"), "v" / Int32ul), Struct("w" / Int16ub)),
        "y" / Optional(Struct("m" / Const(b"\x03"), "v" / Byte)),
        "z" / Peek(Byte),
        "rest" / GreedyRange(Byte),
    ),
    "sized": Struct(
        Padding(1),
        "a" / Prefixed(Byte, GreedyRange(Struct("k" / Byte, "v" / PascalString(Byte, "utf8")))),
        "b" / FixedSized(4, Struct("x" / Byte)),
        "c" / Padded(3, Struct("y" / Int16ub)),
        "d" / PrefixedArray(Byte, Int16ub),
    ),
    "bits": Struct(
        "type" / Enum(Byte, ONE=1),
        "flags" / FlagsEnum(Byte, one=1),
        "bits" / BitStruct("a" / Nibble, Padding(1), "b" / BitsInteger(11)),
    ),
    "frame": Struct(
        "n" / Byte,
        Check(this.n < 200),
        "start" / Tell,
        "body"
        / NestedSchema(
            Bytes(this.n % 16),
            Switch(
                this.n % 3,
                {0: GreedyRange(Struct("k" / Int16ub)), 1: Pairs(), 2: CompressedSchema(Pairs(), inflate, "z")},
            ),
        ),
        "end" / Tell,
        "crc32" / Int32ul,
        CrcCheck(CRC32, this.crc32, this.start, this.end),
    ),
    "parts": Struct("ps" / GreedyRange(Pairs())),
    "tree": TREE,
}


def assert_tiled(rows: list[FieldRow], start: int, end: int) -> None:
    """Every bit of `[start, end)` lies in exactly one leaf: bytes, or bit fields that share a byte."""
    reached = 8 * start
    for row in (row for row in rows if row.leaf):
        low, high = row.bits or (0, 8 * (row.end - row.start))
        assert 8 * row.start + low == reached, row
        reached = 8 * row.start + high
    assert reached == 8 * end


def assert_nested(rows: list[FieldRow], space: str) -> None:
    """The leaves below each container tile it."""
    own = [row for row in rows if row.space == space]
    for at, row in enumerate(own):
        if not row.leaf:
            inside = [child for child in own[at + 1 :] if child.path.startswith((f"{row.path}.", f"{row.path}["))]
            assert inside, row
            assert_tiled(inside, row.start, row.end)
            assert all(child.depth > row.depth for child in inside)


def check(traced: TraceResult, data: bytes, base: int) -> None:
    for space in traced.spaces:
        assert_nested(traced.rows, space.name)
        end = space.base + len(space.data)
        whole = add_unmapped_rows(traced.rows, space.base, end, space)
        assert_tiled([row for row in whole if row.space == space.name], space.base, end)
    assert traced.spaces[0].data == data
    assert base <= traced.end <= base + len(data)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("root", ["", "frame[0]"])
def test_leaves_tile_their_parents_for_any_bytes(name: str, root: str) -> None:
    @given(st.binary(max_size=48) | st.lists(st.integers(0, 4), max_size=48).map(bytes), st.integers(0, 1 << 40))
    @example(b"\x01\x01\x01\x01\x09", 7)
    @example(b"\x0b" + zlib.compress(b"\x02\x01\x02")[:11] + b"abcd", 0)
    def run(data: bytes, base: int) -> None:
        check(parse_to_field_rows(SCHEMAS[name], data, base, Limits(), root), data, base)

    run()
