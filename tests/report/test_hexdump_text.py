"""The annotated hexdump, line by line."""

from __future__ import annotations

import re
import struct
import zlib

import pytest
from construct import Byte, Bytes, Const, Enum, GreedyRange, Int8ul, Int32ul, PascalString, Struct, Tell, this
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import CompressedSchema, CrcCheck, NestedSchema
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
from binlogtool.schema.annotation_types import AddressSpace, FieldRow, HexInt
from binlogtool.terminal.hexdump import HexdumpOptions, format_value, render_hexdump

ASCII = HexdumpOptions(border="ascii")

ENTRY = Struct(
    "magic" / Const(b"TXN!"),
    "start" / Tell,
    "type" / Enum(Int8ul, ADD_INDEX=1),
    "index_id" / Byte,
    "name" / PascalString(Byte, "utf8"),
    "end" / Tell,
    "checksum" / Int32ul,
    CrcCheck(CRC32, this.checksum, this.start, this.end),
)
COVERED = b"\x01\x00\x05test1"
DATA = b"TXN!" + COVERED + struct.pack("<I", zlib.crc32(COVERED))


def lines(rows: list[FieldRow], spaces: list[AddressSpace], options: HexdumpOptions = ASCII) -> list[str]:
    return list(render_hexdump(rows, spaces, options))


def test_the_dump_of_a_record_looks_like_the_draft_of_the_contract() -> None:
    traced = parse_to_field_rows(ENTRY, DATA, 8, Limits())
    assert zlib.crc32(COVERED) == 0xB5D565BB  # the value in the contract's draft
    assert lines(traced.rows, traced.spaces) == [
        "           00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f",
        '00000000 |                          54 58 4e 21             |         TXN!     | magic = "TXN!"',
        "00000000 |                                      01          |             .    | type = 1 (ADD_INDEX)",
        "00000000 |                                         00       |              .   | index_id = 0",
        "00000000 |                                            05    |               .  | name.length = 5",
        '00000000 |                                               74 |                t | name = "test1"',
        "00000010 | 65 73 74 31                                      | est1             |",
        "00000010 |             bb 65 d5 b5                          |     .e..         | checksum = 0xb5d565bb"
        "  ok (crc32 of 0xc..0x14)",
    ]  # fmt: skip


def test_damage_is_marked_in_the_gutter_without_any_colour() -> None:
    traced = parse_to_field_rows(ENTRY, DATA[:-1] + b"\0", 8, Limits())
    bad = [line for line in lines(traced.rows, traced.spaces) if "!|" in line]
    assert len(bad) == 1
    assert bad[0].endswith("checksum = 0x00d565bb  WRONG, computed 0xb5d565bb (crc32 of 0xc..0x14)")


def test_a_field_of_no_bytes_that_fails_has_a_line() -> None:
    traced = parse_to_field_rows(Struct("a" / Byte, "b" / Int32ul), b"\x01", 0, Limits())
    bad = lines(traced.rows, traced.spaces)[2:]
    assert [re.sub(" {2,}", "  ", line) for line in bad] == ['00000001!|  |  | b = ""  needs 4 bytes, 0 are left']


ROWS = [FieldRow("a", 0x20, 0x60, bytes(64)), FieldRow("b", 0x60, 0x62, b"\x01\x02")]
SPACES = [AddressSpace("", 0x20, bytes(64) + b"\x01\x02")]


def test_equal_lines_of_a_field_become_one_star() -> None:
    assert [line[:14] for line in lines(ROWS, SPACES)[1:]] == [
        "00000020 | 00 ",
        "00000030 | *  ",
        "00000050 | 00 ",
        "00000060 | 01 ",
    ]
    assert len(lines(ROWS, SPACES, HexdumpOptions(squeeze=False))) == 6


def test_a_narrow_width_cuts_a_field_into_more_lines() -> None:
    made = lines([FieldRow("a", 2, 11, b"abcdefghi")], [AddressSpace("", 0, b"..abcdefghi")], HexdumpOptions(width=4))
    assert made[1:] == [
        '00000000 │       61 62 │   ab │ a = "abcdefghi"',
        "00000004 │ 63 64 65 66 │ cdef │",
        "00000008 │ 67 68 69    │ ghi  │",
    ]


def test_depth_shows_whole_structures() -> None:
    schema = Struct("a" / Struct("b" / Byte, "c" / Struct("d" / Byte, "e" / Byte)))
    traced = parse_to_field_rows(schema, b"\x01\x02\x03", 0, Limits())
    for depth, paths in [(0, ["a"]), (1, ["a.b = 1", "a.c"]), (2, ["a.b = 1", "a.c.d = 2", "a.c.e = 3"])]:
        made = lines(traced.rows, traced.spaces, HexdumpOptions(depth=depth))
        assert [line.rpartition("│ ")[2] for line in made[1:]] == paths


def inflate(data: memoryview, limits: Limits) -> bytes:
    return zlib.decompress(data)


def test_unpacked_bytes_are_a_section_of_their_own_behind_the_record() -> None:
    detail = CompressedSchema(GreedyRange(Struct("k" / Byte)), inflate, "zlib")
    schema = Struct("size" / Byte, "payload" / NestedSchema(Bytes(this.size), detail), "tail" / Byte)
    packed = zlib.compress(b"ABC")
    traced = parse_to_field_rows(schema, bytes([len(packed)]) + packed + b"\x09", 0, Limits(), "block[0]")
    made = lines(traced.rows, traced.spaces)
    assert made[3].endswith("| block[0].tail = 9")
    assert made[4] == "block[0].payload (decompressed, 3 bytes)"
    assert made[5].startswith("00000000 | 41 ") and made[5].endswith("| block[0].payload[0].k = 65")
    assert len(made) == 8


def test_bits_are_shown_beside_their_byte() -> None:
    row = FieldRow("flags.hi", 0, 1, 5, bits=(0, 4))
    assert lines([row], [AddressSpace("", 0, b"\x5a")])[1].endswith("| flags.hi = 5 [bits 0..4]")


def test_a_range_that_was_not_read_to_its_end_says_how_much_is_left() -> None:
    made = lines([FieldRow("damaged", 0, 1_000_001, None, ok=False)], [AddressSpace("", 0, b"\x01")])
    assert [re.sub(" {2,}", "  ", line) for line in made[2:]] == ["00000001!| ... 1,000,000 bytes more  |  |"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (-5, "-5"),
        (1.5, "1.5"),
        (HexInt(0xB5D565BB), "0xb5d565bb"),
        (HexInt(1 << 40), "0x0000010000000000"),
        ("a\x1bb", '"a\\x1bb"'),
        ("x" * 100, '"' + "x" * 64 + '…"'),
        (b"TXN!", '"TXN!"'),
        (b"\x00\x01", "2 bytes"),
        (b"\xff", "1 byte"),
        ("ж".encode(), '"ж"'),
        (bytes(5000), "5,000 bytes"),
        (1 << 5000, "a number of 5,001 bits"),
    ],
)
def test_values_are_short_and_escaped(value: object, text: str) -> None:
    assert format_value(value) == text


VALUES = st.none() | st.integers() | st.text() | st.binary() | st.floats() | st.booleans()


@given(st.text(), VALUES, st.text(), st.binary(max_size=40), st.booleans(), st.booleans())
def test_no_byte_of_the_data_acts_on_the_terminal(
    path: str, value: object, meaning: str, data: bytes, ok: bool, color: bool
) -> None:
    row = FieldRow(path, 0, len(data), value, meaning, ok=ok)
    packed = FieldRow(path, 0, len(data), value, meaning, "decompressed", "\x1b[0m" + path, ok=ok)
    spaces = [AddressSpace("", 0, data), AddressSpace("\x1b[0m" + path, 0, data)]
    for line in render_hexdump([row, packed], spaces, HexdumpOptions(color=color)):
        plain = re.sub("\x1b\\[(?:[0-9]+;)?[0-9]+m", "", line) if color else line
        assert all(char.isprintable() for char in plain)


def test_colour_changes_nothing_but_the_colour() -> None:
    traced = parse_to_field_rows(ENTRY, DATA[:-1] + b"\0", 8, Limits())
    plain = lines(traced.rows, traced.spaces)
    colored = lines(traced.rows, traced.spaces, HexdumpOptions(border="ascii", color=True))
    assert [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in colored] == plain
    assert "\x1b[1;31m!" in colored[-1]
