from __future__ import annotations

import struct

import msgpack
import pytest
from construct import ConstructError, StreamError
from hypothesis import example, given
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.tarantool import schema
from binlogtool.formats.tarantool.decode import FRAME
from binlogtool.formats.tarantool.explain_damage import find_payload_by_crc
from binlogtool.formats.tarantool.msgpack.parse import WideUint
from binlogtool.formats.tarantool.rows.parse_rows import (
    DUPLICATE_KEY,
    ROW_COLUMNS,
    ROW_TABLE,
    UNKNOWN_KEY,
    parse_row,
    read_row,
)
from binlogtool.formats.tarantool.schema import unpack_zstd
from binlogtool.limits import Limits
from binlogtool.schema.backends import PythonBackend
from tests.formats.tarantool.make import block, dml, row

EXAMPLE = bytes.fromhex(
    "d5ba0bab 28 00 cee565f642 a700000000000000"
    "84 0004 0201 0301 04cb41dac044c8397784"
    "84 10cd0110 1501 2091a66d61785f6964 219193a12b0201"
)
"""The worked example of section 1.2: an UPDATE of `_schema`."""

PAYLOAD = EXAMPLE[19:]


def scanned(data: bytes) -> dict[str, int] | int:
    columns = [77] * len(ROW_COLUMNS)
    after = read_row(data, 0, len(data), ROW_TABLE, columns, 0)
    return dict(zip(ROW_COLUMNS, columns, strict=True)) | {"after": after} if after >= 0 else after


def test_the_worked_example_is_one_block_of_59_bytes() -> None:
    parsed = schema.BLOCK.parse(EXAMPLE)
    assert parsed.magic == 0xD5BA0BAB
    assert (parsed.header.length, parsed.header.crc32p, parsed.header.crc32c) == (40, 0, 0xE565F642)
    assert parsed.checksum.ok is True
    assert (parsed.payload_start, parsed.payload_end) == (19, 59)
    assert schema.BLOCK.build(parsed) == EXAMPLE


def test_the_worked_example_holds_one_update_of_schema() -> None:
    (only,) = schema.PAYLOAD.parse(PAYLOAD).rows
    assert {k.value: v.value for k, v in only.header.value} == {0: 4, 2: 1, 3: 1, 4: 1795232544.8979197}
    assert only.body is not None
    assert only.body.get(0x10).value == 272
    assert schema.ROW.build(only) == PAYLOAD
    assert schema.PAYLOAD.build({"rows": [only]}) == PAYLOAD


def test_the_kernel_gives_the_columns_of_the_worked_example() -> None:
    columns = scanned(PAYLOAD)
    assert columns == {
        "header_keys": 0b11101, "type": 4, "replica_id": 1, "lsn": 1, "group_id": 0, "tsn": 0, "flags": 0,
        "timestamp": struct.unpack(">q", bytes.fromhex("41dac044c8397784"))[0],
        "body": 17, "body_keys": 1 << 0x10 | 1 << 0x15 | 1 << 0x20 | 1 << 0x21, "space_id": 272, "tuple": 34,
        "shape": 3 << 8, "after": 40,
    }  # fmt: skip


def test_every_byte_of_the_worked_example_has_a_name() -> None:
    parts = [p for p in schema.PAYLOAD.rows.trace_rows(PAYLOAD, 0, 40, Limits()) if p.end is not None]
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == 40
    values = {p.path: (p.value, p.meaning) for p in parts}
    assert values["[0].header.type"] == (4, "UPDATE")
    assert values["[0].header.keys[2]"] == (3, "lsn")
    assert values["[0].header.lsn"] == (1, "")
    assert values["[0].body.space_id"] == (272, "_schema")
    assert values["[0].body.key[0]"] == ("max_id", "")
    assert values["[0].body.tuple[0].op"] == ("+", "add")
    assert values["[0].body.tuple[0].field"] == (2, "")
    assert values["[0].body.tuple[0].argument[0]"] == (1, "")


def test_a_multi_statement_row_keeps_the_pattern_of_its_difference() -> None:
    data = dml(3, replica=0, tsn=81, commit=True)
    columns = scanned(data)
    assert isinstance(columns, dict)
    assert (columns["tsn"], columns["flags"], columns["replica_id"]) == (-78, 1, 0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "end inside"),
        (b"\x90", "header is not a map"),
        (row({0: 3, 0x10: "x"}), "header key 16"),
        (row({0: 3, 0x30: "x", 0x0C: 1}), "header key 48"),
        (b"\x81\x00\xa1x", "another type than uint"),
        (b"\x82\x00\x03\x04\x05", "another type than double"),
        (b"\x82\x00\x03\x04\xca\x00\x00\x00\x00", "another type than double"),
        (b"\x81\xa1x\x05", "not an unsigned integer"),
        (b"\x81\x00\x03\x05", "body is not a map"),
        (row({0: 3}, {0x10: "x"}), "key 0x10"),
        (row({0: 3}, {0x21: {}}), "key 0x21"),
        (row({0: 4}, {0x20: 5}), "key 0x20"),
        (row({0: 9}, {0x28: 5}), "key 0x28"),
        (row({0: 40}, {3: "x"}), "key 0x03"),
        (row({0: 3}, {0x2A: 5}), "key 0x2a"),
        (row({0: 40}, {"x": 5}), "not an unsigned integer"),
        (row({0: 3}, {0x10: 5, 0x21: [1]})[:-1], "end inside|cannot fit"),
    ],
)
def test_rows_that_are_none(data: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        schema.ROW.parse(data)
    assert scanned(data) in (-1, -2)


def test_a_nop_has_no_body_whatever_follows_and_an_empty_one_in_old_files() -> None:
    nop = row({0: 12, 2: 1, 3: 5})
    assert parse_row(nop + dml(6), 0, 99)[1] == len(nop)
    assert parse_row(nop + b"\x80" + dml(6), 0, 99)[1] == len(nop) + 1
    parsed = schema.PAYLOAD.parse(nop + b"\x80" + dml(6)).rows
    assert [r.type for r in parsed] == [12, 3]
    columns = scanned(nop)
    assert isinstance(columns, dict)
    assert columns["body"] == -1


def test_the_last_row_of_a_block_may_have_no_body() -> None:
    columns = scanned(row({0: 30, 3: 5}))
    assert isinstance(columns, dict)
    assert (columns["body"], columns["body_keys"]) == (-1, 0)


def test_unknown_keys_are_passed_over_and_marked() -> None:
    columns = scanned(row({0: 3, 200: {"a": [1, {}]}, 0x60: {}}, {0x10: 7, 0x21: [], 0x7F: "x", 300: None}))
    assert isinstance(columns, dict)
    assert columns["header_keys"] == 1 | UNKNOWN_KEY
    assert columns["body_keys"] == 1 << 0x10 | 1 << 0x21 | UNKNOWN_KEY
    assert columns["space_id"] == 7


def test_keys_of_a_body_that_are_no_numbers_are_passed_over_and_marked() -> None:
    """As `xrow_decode_dml` does: a key 16.0 is no space id, a text "tuple" no tuple."""
    body = b"\x85\x10\x07" + b"".join(map(msgpack.packb, (16.0, 9, "tuple", [8], True, {}))) + b"\x21\x91\x05"
    columns = scanned(msgpack.packb({0: 3}) + body)
    assert isinstance(columns, dict)
    assert columns["body_keys"] == 1 << 0x10 | 1 << 0x21 | UNKNOWN_KEY
    assert columns["space_id"] == 7
    assert schema.ROW.parse(msgpack.packb({0: 3}) + body).body.get(0x10).value == 7


@pytest.mark.parametrize("data", [b"\x80", b"\x81\x03\x05"])
def test_a_header_without_a_type_has_the_type_0(data: bytes) -> None:
    assert schema.ROW.parse(data).type == 0
    columns = scanned(data)
    assert isinstance(columns, dict)
    assert columns["type"] == 0


def test_keys_that_stand_twice_are_marked_and_the_last_one_counts() -> None:
    columns = scanned(b"\x82\x00\x02\x00\x03" + b"\x82\x10\x05\x10\x06")
    assert isinstance(columns, dict)
    assert columns["header_keys"] == 1 | DUPLICATE_KEY
    assert columns["body_keys"] == 1 << 0x10 | DUPLICATE_KEY
    assert (columns["type"], columns["space_id"]) == (3, 6)


def test_keys_of_any_width_mean_the_same() -> None:
    wide = b"\x82\xcc\x00\xcd\x00\x03\xce\x00\x00\x00\x03\xcc\x09" + b"\x82\xcc\x10\x05\xcd\x00\x21\x90"
    columns = scanned(wide)
    assert isinstance(columns, dict)
    assert (columns["type"], columns["lsn"], columns["space_id"]) == (3, 9, 5)
    assert schema.ROW.build(schema.ROW.parse(wide)) == wide


@given(st.binary(max_size=80))
@example(PAYLOAD)
@example(PAYLOAD[:-1])
def test_kernel_and_parser_agree_on_any_bytes(data: bytes) -> None:
    try:
        after = parse_row(data, 0, len(data))[1]
    except MalformedError:
        after = -1
    columns = scanned(data)
    assert (columns["after"] if isinstance(columns, dict) else -1) == after


@given(st.integers(0, 39), st.integers(0, 255))
def test_kernel_and_parser_agree_on_a_changed_example(place: int, byte: int) -> None:
    data = PAYLOAD[:place] + bytes([byte]) + PAYLOAD[place + 1 :]
    try:
        after = parse_row(data, 0, len(data))[1]
    except MalformedError:
        after = -1
    columns = scanned(data)
    assert (columns["after"] if isinstance(columns, dict) else -1) == after


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filler", [b"\xa7PPPPPPP", b"\xc4\x06garbag", b"\x97" + bytes(7), b"\xda\0\x05abcde"])
def test_padding_of_any_kind_that_ends_at_byte_19_is_accepted_and_kept(filler: bytes) -> None:
    data = block(dml(1), filler=filler)
    parsed = schema.BLOCK.parse(data)
    assert parsed.header.padding == filler
    assert schema.BLOCK.build(parsed) == data


def test_a_header_that_fills_all_19_bytes_needs_no_padding() -> None:
    payload = dml(1)
    crc = int.from_bytes(block(payload)[7:11], "big")
    data = struct.pack(">4sBQBBI", b"\xd5\xba\x0b\xab", 0xCF, len(payload), 0, 0xCE, crc) + payload
    parsed = schema.BLOCK.parse(data)
    assert (type(parsed.header.length), parsed.header.padding) == (WideUint, None)
    assert parsed.checksum.ok
    assert schema.BLOCK.build(parsed) == data


@pytest.mark.parametrize(
    "filler", [b"\xa6" + bytes(6) + b"\x01", b"\xa8" + bytes(7), b"\xc1" + bytes(7), b"\xa7" + bytes(6)]
)
def test_padding_that_does_not_end_at_byte_19_is_refused(filler: bytes) -> None:
    with pytest.raises(ConstructError):
        schema.BLOCK.parse(block(dml(1), filler=filler))


def test_a_length_over_two_gigabytes_is_refused_before_it_is_used() -> None:
    with pytest.raises(ConstructError) as trouble:
        schema.BLOCK.parse(b"\xd5\xba\x0b\xab\xce\x80\x00\x00\x01\x00\x00" + b"\xa7" + bytes(7) + b"x" * 50)
    assert not isinstance(trouble.value, StreamError)


def test_another_magic_is_named_in_the_error() -> None:
    with pytest.raises(MalformedError, match="d5bb0bab, expected d5ba0bab or d5ba0bba"):
        schema.BLOCK.parse(b"\xd5\xbb" + EXAMPLE[2:])


def test_the_scanner_gives_the_columns_of_blocks() -> None:
    data = EXAMPLE + block(dml(2), zstd=True)
    table, stop = PythonBackend().make_scanner(FRAME.schema, FRAME.columns).scan(data, 0, len(data))
    assert table.count == 2
    assert list(table["magic"][:2]) == [0xD5BA0BAB, 0xD5BA0BBA]
    assert list(table["payload_start"][:2]) == [19, 78]
    assert table["header.crc32c"][0] == 0xE565F642
    assert stop.at == len(data)


# -- zstd --------------------------------------------------------------------------------------------------------------


def zstd(payload: bytes) -> bytes:
    return block(payload, zstd=True)[19:]


@given(st.binary(max_size=5000))
def test_one_frame_is_unpacked(payload: bytes) -> None:
    assert unpack_zstd(memoryview(zstd(payload)), Limits()) == payload


def test_large_payloads_are_unpacked() -> None:
    payload = msgpack.packb(list(range(300_000)))
    assert unpack_zstd(memoryview(zstd(payload)), Limits()) == payload


@pytest.mark.parametrize("cut", [1, 2, 3, 8])
def test_a_frame_that_is_cut_short_is_an_error(cut: int) -> None:
    packed = zstd(b"some text that repeats, some text that repeats" * 5)
    with pytest.raises(DecompressionError, match="cut short") as trouble:
        unpack_zstd(memoryview(packed[:-cut]), Limits())
    assert trouble.value.finding_id == "compression-error"


def test_bytes_behind_a_frame_are_an_error() -> None:
    with pytest.raises(DecompressionError, match="3 bytes after the zstd frame"):
        unpack_zstd(memoryview(zstd(b"abc") + b"xyz"), Limits())


def test_frames_follow_each_other_as_the_server_reads_them() -> None:
    """`ZSTD_decompressStream` is called until the input is used up; a skippable frame has no content."""
    skippable = bytes.fromhex("5f2a4d18") + (3).to_bytes(4, "little") + b"xyz"
    payload = zstd(b"abc") + skippable + zstd(b"def" * 9)
    assert unpack_zstd(memoryview(payload), Limits()) == b"abc" + b"def" * 9
    assert unpack_zstd(memoryview(b""), Limits()) == b""
    with pytest.raises(DecompressionError, match="cut short"):
        unpack_zstd(memoryview(zstd(b"abc") + skippable[:-1]), Limits())


def test_a_bomb_of_two_frames_is_stopped_at_the_ceiling() -> None:
    with pytest.raises(DecompressionError, match="more than 1,048,576 bytes"):
        unpack_zstd(memoryview(zstd(bytes(900_000)) * 2), Limits(max_inflate=1 << 20))


def test_what_is_no_frame_is_an_error() -> None:
    for data in (b"\x28\xb5\x2f\xfd", b"plain text"):
        with pytest.raises(DecompressionError):
            unpack_zstd(memoryview(data), Limits())


def test_a_bomb_is_stopped_at_the_ceiling() -> None:
    bomb = zstd(bytes(64 << 20))
    with pytest.raises(DecompressionError, match="more than 1,048,576 bytes") as trouble:
        unpack_zstd(memoryview(bomb), Limits(max_inflate=1 << 20))
    assert trouble.value.finding_id == "inflate-limit"
    assert len(unpack_zstd(memoryview(bomb), Limits(max_inflate=64 << 20))) == 64 << 20


# -- damaged headers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        b"\xd5\xbb\x0b\xab" + EXAMPLE[4:],
        EXAMPLE[:4] + b"\x7f" + EXAMPLE[5:],
        EXAMPLE[:4] + b"\xc1" + EXAMPLE[5:],
        EXAMPLE[:11] + b"\xa3" + EXAMPLE[12:],
    ],
)
def test_a_whole_payload_behind_a_damaged_header_is_proven_by_its_crc(changed: bytes) -> None:
    assert find_payload_by_crc(memoryview(changed + EXAMPLE)) == (59, 0xE565F642)
    assert find_payload_by_crc(memoryview(changed + bytes.fromhex("d510aded"))) == (59, 0xE565F642)
    assert find_payload_by_crc(memoryview(changed), may_end_with_data=True) == (59, 0xE565F642)


def test_a_damaged_payload_is_not_called_whole() -> None:
    changed = EXAMPLE[:4] + b"\x7f" + EXAMPLE[5:-1] + b"\x02"
    assert find_payload_by_crc(memoryview(changed + EXAMPLE), may_end_with_data=True) is None
    assert find_payload_by_crc(memoryview(b"\xd5\xba"), may_end_with_data=True) is None


def test_a_space_id_of_another_type_is_shown_as_what_it_is() -> None:
    data = bytes.fromhex("8100 02 81 10 92 01 02".replace(" ", ""))
    parts = {p.path: p.value for p in schema.PAYLOAD.rows.trace_rows(data, 0, len(data), Limits())}
    assert (parts["[0].body.space_id.count"], parts["[0].body.space_id[1]"]) == (2, 2)
