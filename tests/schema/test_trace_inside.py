"""Fields inside sized fields, unpacked payloads, and fields that name their own parts."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from construct import Byte, Bytes, Const, Construct, GreedyRange, Int16ub, Int32ul, Struct, Tell, stream_read, this

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
from binlogtool.schema.annotated_parse import add_unmapped_rows, parse_to_field_rows
from binlogtool.schema.annotated_parse_state import TraceError
from binlogtool.schema.annotation_types import AddressSpace, FieldRow

ROW = Struct("k" / Byte, "v" / Byte)


def entry(detail: Construct) -> Construct:
    return Struct("size" / Byte, "body" / NestedSchema(Bytes(this.size), detail), "tail" / Byte)


def test_a_sized_field_goes_on_inside_and_says_what_is_left_over() -> None:
    traced = parse_to_field_rows(entry(Struct("a" / Byte)), b"\x03\x07xy\x09", 0x40, Limits())
    assert [(r.path, r.start, r.end, r.value, r.leaf) for r in traced.rows] == [
        ("size", 0x40, 0x41, 3, True),
        ("body", 0x41, 0x44, None, False),
        ("body.a", 0x41, 0x42, 7, True),
        ("body.unmapped", 0x42, 0x44, b"xy", True),
        ("tail", 0x44, 0x45, 9, True),
    ]


def test_a_broken_inside_does_not_hide_the_fields_behind_it() -> None:
    schema = Struct(
        "start" / Tell,
        "body" / NestedSchema(Bytes(4), GreedyRange(Struct("m" / Const(b"M"), "v" / Byte))),
        "end" / Tell,
        "crc32" / Int32ul,
        CrcCheck(CRC32, this.crc32, this.start, this.end),
    )
    traced = parse_to_field_rows(schema, b"MaXb" + zlib.crc32(b"MaXb").to_bytes(4, "little"), 0, Limits())
    rows = {row.path: row for row in traced.rows}
    assert rows["crc32"].meaning == "ok (crc32 of 0x0..0x4)"
    assert (rows["body[1].m"].ok, rows["body[1].m"].meaning) == (False, "expected b'M', found b'X'")
    assert rows["body.unmapped"].value == b"b"
    assert [e.path for e in traced.errors] == ["body[1].m"]


def test_plain_parsing_of_a_sized_field_gives_its_bytes() -> None:
    assert entry(Struct("a" / Byte)).parse(b"\x01\x07\x09").body == b"\x07"


def inflate(data: memoryview, limits: Limits) -> bytes:
    engine = zlib.decompressobj()
    try:
        out = engine.decompress(data, limits.max_inflate)
    except zlib.error as error:
        raise DecompressionError("compression-error", str(error)) from error
    if engine.unconsumed_tail:
        raise DecompressionError("inflate-limit", f"more than {limits.max_inflate} bytes")
    return out


PACKED = Struct(
    "body" / NestedSchema(Bytes(this._.size), CompressedSchema(Struct("rows" / GreedyRange(ROW)), inflate, "zlib"))
)
FRAME = Struct("size" / Byte, "in" / PACKED, "tail" / Byte)


def frame(unpacked: bytes) -> bytes:
    packed = zlib.compress(unpacked)
    return bytes([len(packed)]) + packed + b"\x09"


def test_unpacked_bytes_are_a_space_of_their_own() -> None:
    data = frame(b"\x01\x02\x03")
    end = len(data) + 0xF
    traced = parse_to_field_rows(FRAME, data, 0x10, Limits(), "f")
    assert traced.spaces == [AddressSpace("", 0x10, data), AddressSpace("f.in.body", 0, b"\x01\x02\x03")]
    assert [(r.path, r.start, r.end, r.unit, r.space, r.depth) for r in traced.rows] == [
        ("f", 0x10, end + 1, "file", "", 0),
        ("f.size", 0x10, 0x11, "file", "", 1),
        ("f.in", 0x11, end, "file", "", 1),
        ("f.in.body", 0x11, end, "file", "", 2),
        ("f.in.body.packed", 0x11, end, "file", "", 3),
        ("f.in.body.rows", 0, 3, "decompressed", "f.in.body", 3),
        ("f.in.body.rows[0]", 0, 2, "decompressed", "f.in.body", 4),
        ("f.in.body.rows[0].k", 0, 1, "decompressed", "f.in.body", 5),
        ("f.in.body.rows[0].v", 1, 2, "decompressed", "f.in.body", 5),
        ("f.in.body.rows[1]", 2, 3, "decompressed", "f.in.body", 4),
        ("f.in.body.rows[1].k", 2, 3, "decompressed", "f.in.body", 5),
        ("f.in.body.rows[1].v", 3, 3, "decompressed", "f.in.body", 5),
        ("f.tail", end, end + 1, "file", "", 1),
    ]
    assert [(e.path, e.position, e.space) for e in traced.errors] == [("f.in.body.rows[1].v", 3, "f.in.body")]


def test_a_payload_that_cannot_be_unpacked_is_a_bad_row() -> None:
    data = b"\x03abc\x09"
    traced = parse_to_field_rows(FRAME, data, 0, Limits())
    row = next(row for row in traced.rows if row.path == "in.body.packed")
    assert (row.ok, row.value) == (False, b"abc") and row.meaning.startswith("zlib: Error -3")
    assert traced.error is not None and traced.error.finding_id == "compression-error"
    assert traced.rows[-1].path == "tail"


def test_the_ceiling_counts_all_unpacked_bytes_of_a_record() -> None:
    two = Struct("a" / FRAME, "b" / FRAME)
    data = frame(b"\x01\x02" * 30) * 2
    traced = parse_to_field_rows(two, data, 0, Limits(max_inflate=100))
    assert [(e.path, e.finding_id) for e in traced.errors] == [("b.in.body.packed", "inflate-limit")]


class Pairs(Construct):  # type: ignore[misc]
    """A count and so many one-byte numbers: a field type that names its own parts. 0xff is no number."""

    def _parse(self, stream: Any, context: Any, path: str) -> list[int]:
        values = list(stream_read(stream, stream_read(stream, 1, path)[0], path))
        if 0xFF in values:
            raise MalformedError("0xff is no number", path, "varint-overlong")
        return values

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        yield TracePart(".count", 1, start, start + 1, data[start])
        yield TracePart(".list", 1, start + 1, None, None, "numbers")
        for at in range(start + 1, min(end, start + 1 + data[start])):
            if data[at] == 0xFF:
                raise MalformedError("0xff is no number", None, "varint-overlong")
            yield TracePart(f".list[{at - start - 1}]", 2, at, at + 1, data[at])


def test_parts_become_rows_below_the_field() -> None:
    traced = parse_to_field_rows(
        Struct("a" / Byte, "p" / Pairs(), "z" / Byte), b"\x00\x02\x07\x08\x09", 0x10, Limits(), "r"
    )
    assert traced.rows == [
        FieldRow("r", 0x10, 0x15, None, depth=0, leaf=False),
        FieldRow("r.a", 0x10, 0x11, 0, depth=1),
        FieldRow("r.p", 0x11, 0x14, None, depth=1, leaf=False),
        FieldRow("r.p.count", 0x11, 0x12, 2, depth=2),
        FieldRow("r.p.list", 0x12, 0x14, None, "numbers", depth=2, leaf=False),
        FieldRow("r.p.list[0]", 0x12, 0x13, 7, depth=3),
        FieldRow("r.p.list[1]", 0x13, 0x14, 8, depth=3),
        FieldRow("r.z", 0x14, 0x15, 9, depth=1),
    ]


def test_bad_parts_end_in_a_row_with_the_reason() -> None:
    traced = parse_to_field_rows(Struct("p" / Pairs()), b"\x03\x07\xff\x08\x09", 0, Limits())
    assert [(r.path, r.start, r.end, r.meaning, r.ok) for r in traced.rows] == [
        ("p", 0, 5, "", False),
        ("p.count", 0, 1, "", True),
        ("p.list", 1, 5, "numbers", False),
        ("p.list[0]", 1, 2, "", True),
        ("p.list.unmapped", 2, 5, "0xff is no number", False),
    ]
    assert traced.errors == [TraceError("p.list.unmapped", 2, "0xff is no number", "varint-overlong", "")]


class Rest(Pairs):
    """All that is left of the stream."""

    fills_stream = True

    def _parse(self, stream: Any, context: Any, path: str) -> list[int]:
        raise AssertionError("decoded twice")


def test_a_field_that_fills_its_stream_is_decoded_once() -> None:
    traced = parse_to_field_rows(entry(Struct("p" / Rest())), b"\x02\x01\x07\x09", 0, Limits())
    assert [(r.path, r.start, r.end) for r in traced.rows if r.leaf] == [
        ("size", 0, 1),
        ("body.p.count", 1, 2),
        ("body.p.list[0]", 2, 3),
        ("tail", 3, 4),
    ]
    broken = parse_to_field_rows(entry(Struct("p" / Rest())), b"\x02\x01\xff\x09", 0, Limits())
    assert [e.message for e in broken.errors] == ["0xff is no number"]
    assert broken.rows[-1].path == "tail"


class Endless(Construct):  # type: ignore[misc]
    """A field type with a mistake: it yields parts for ever."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, 1, path))

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        while True:
            yield TracePart(".x", 1, start, start, None)


def test_parts_that_make_no_progress_are_stopped() -> None:
    traced = parse_to_field_rows(Struct("p" / Endless(), "z" / Byte), b"\x01\x02", 0, Limits())
    assert traced.error is not None and traced.error.finding_id == "count-out-of-bounds"
    assert traced.rows[-1] == FieldRow("z", 1, 2, 2)


def test_the_parts_of_elements_carry_the_elements_path() -> None:
    traced = parse_to_field_rows(Struct("ps" / GreedyRange(Pairs())), b"\x01\x07\x00", 0, Limits())
    paths = [row.path for row in traced.rows]
    assert paths == ["ps", "ps[0]", "ps[0].count", "ps[0].list", "ps[0].list[0]", "ps[1]", "ps[1].count"]


def test_fill_names_what_no_leaf_covers() -> None:
    data = bytes(range(16))
    rows = [
        FieldRow("a", 0x12, 0x14, 1),
        FieldRow("b", 0x16, 0x1C, None, leaf=False),
        FieldRow("b.c", 0x17, 0x18, 1, depth=1),
        FieldRow("b.d", 0x18, 0x19, 1, depth=1),
        FieldRow("e", 0x1C, 0x1D, 1),
    ]
    filled = add_unmapped_rows(rows, 0x10, 0x20, AddressSpace("", 0x10, data))
    assert [(r.path, r.start, r.end, r.depth) for r in filled] == [
        ("unmapped", 0x10, 0x12, 0),
        ("a", 0x12, 0x14, 0),
        ("unmapped", 0x14, 0x16, 0),
        ("b", 0x16, 0x1C, 0),
        ("b.unmapped", 0x16, 0x17, 1),
        ("b.c", 0x17, 0x18, 1),
        ("b.d", 0x18, 0x19, 1),
        ("b.unmapped", 0x19, 0x1C, 1),
        ("e", 0x1C, 0x1D, 0),
        ("unmapped", 0x1D, 0x20, 0),
    ]
    assert filled[0].value == b"\x00\x01" and filled[-1].value == b"\x0d\x0e\x0f"


def test_int16_elements_inside_a_sized_field_keep_file_positions() -> None:
    traced = parse_to_field_rows(entry(GreedyRange(Struct("k" / Int16ub))), b"\x04\0\1\0\2\x09", 0x100, Limits())
    assert [(r.path, r.start, r.value) for r in traced.rows if r.path.endswith(".k")] == [
        ("body[0].k", 0x101, 1),
        ("body[1].k", 0x103, 2),
    ]
