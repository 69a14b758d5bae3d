"""Row events: both ways of reading an image, and nothing that does not fit."""

from __future__ import annotations

import random
import struct
import time
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.rows.rows_event import Row, RowsHead, count_rows, decode_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.wire_format import COMPRESSED_ROW_EVENTS, EventType
from binlogtool.limits import Limits
from tests.formats.mysql_binlog.row_building import image, optional, rows_body, sized, table_map_body

_C, _E = ColumnType, EventType
LIMITS = Limits()
TWICE = 12
"""A row that comes more often than 8 times is read by a generated function from then on."""


def two_columns(more: bytes = b"") -> TableMap:
    return parse_table_map(table_map_body(bytes([_C.LONG, _C.VARCHAR]), b"\x64\x00", more))


def row(number: int, text: bytes | None) -> bytes:
    return image([struct.pack("<i", number), None if text is None else bytes([len(text)]) + text])


def test_the_head_of_an_update_has_two_bitmaps_and_its_extra_data() -> None:
    body = rows_body(9, b"images", [[True] * 9, [False] * 8 + [True]], extra=b"\x00xy")
    assert parse_rows_head(_E.UPDATE_ROWS_V2, body) == RowsHead(7, 1, b"\x00xy", 9, b"\xff\x01", b"\x00\x01", 18)
    assert body[18:] == b"images"


@pytest.mark.parametrize(
    ("type_code", "before", "after"), [(_E.WRITE_ROWS_V1, None, b"\x03"), (_E.DELETE_ROWS_V1, b"\x03", None)]
)
def test_the_head_of_other_events_has_one_bitmap(type_code: int, before: bytes | None, after: bytes | None) -> None:
    assert parse_rows_head(type_code, rows_body(2, b"")) == RowsHead(7, 1, None, 2, before, after, 10)


def test_table_ids_of_four_bytes_are_read() -> None:
    body = rows_body(2, row(5, b"x"))
    assert parse_rows_head(_E.WRITE_ROWS_V1, body[:4] + body[6:], 4).images_at == 8


def test_rows_have_the_images_of_their_event() -> None:
    table = two_columns()
    one, two = row(1, b"a"), row(2, None)
    assert decode_rows(_E.WRITE_ROWS_V1, rows_body(2, one + two), table) == [
        {"after": {"@1": 1, "@2": "a"}},
        {"after": {"@1": 2, "@2": None}},
    ]
    assert decode_rows(_E.DELETE_ROWS_V2, rows_body(2, one, extra=b""), table) == [{"before": {"@1": 1, "@2": "a"}}]
    update = rows_body(2, one + two, [[True, True]] * 2)
    assert decode_rows(_E.UPDATE_ROWS_V1, update, table) == [
        {"before": {"@1": 1, "@2": "a"}, "after": {"@1": 2, "@2": None}}
    ]
    assert count_rows(_E.UPDATE_ROWS_V1, update, table) == 1


def test_columns_are_called_by_their_names_where_the_log_has_them() -> None:
    table = two_columns(optional(4, sized(b"id") + sized("naïve'\\\n".encode())))
    rows = decode_rows(_E.WRITE_ROWS_V1, rows_body(2, row(1, b"a") * TWICE), table)
    assert rows == [{"after": {"id": 1, "naïve'\\\n": "a"}}] * TWICE


def test_columns_that_are_not_in_the_image_are_left_out() -> None:
    table = two_columns()
    body = rows_body(2, image([b"\x05\0\0\0"]) + image([b"\x01z"]), [[True, False], [False, True]])
    assert decode_rows(_E.UPDATE_ROWS_V1, body, table) == [{"before": {"@1": 5}, "after": {"@2": "z"}}]


def test_an_event_without_rows_has_none() -> None:
    assert decode_rows(_E.WRITE_ROWS_V1, rows_body(2, b""), two_columns()) == []


def block(data: bytes, size: int | None = None) -> bytes:
    declared = len(data) if size is None else size
    width = max(1, (declared.bit_length() + 7) // 8)
    return bytes([0x80 | width]) + declared.to_bytes(width, "big") + zlib.compress(data)


@pytest.mark.parametrize("type_code", sorted(COMPRESSED_ROW_EVENTS))
def test_compressed_events_are_unpacked_first(type_code: int) -> None:
    pairs = type_code in (_E.UPDATE_ROWS_COMPRESSED_V1, _E.UPDATE_ROWS_COMPRESSED_V2)
    extra = b"" if type_code >= _E.WRITE_ROWS_COMPRESSED_V2 else None
    images = (row(1, b"a") + row(2, b"b")) * 400
    body = rows_body(2, block(images), [[True, True]] * (2 if pairs else 1), extra)
    rows = decode_rows(type_code, body, two_columns())
    assert len(rows) == count_rows(type_code, body, two_columns()) == (400 if pairs else 800)
    assert next(iter(rows[0].values())) == {"@1": 1, "@2": "a"}


@pytest.mark.parametrize(
    ("packed", "limit", "id_"),
    [
        (block(bytes(5000)), 4000, "inflate-limit"),
        (block(bytes(5000), 100), 4000, "compression-error"),
        (block(bytes(100), 2**32 - 1), 9000, "inflate-limit"),
        (block(bytes(5000))[:-1], 9000, "compression-error"),
        (block(bytes(5000)) + b"!", 9000, "compression-error"),
        (b"\x91\x01" + zlib.compress(b"x"), 9000, "compression-error"),
        (b"\x01\x01" + zlib.compress(b"x"), 9000, "compression-error"),
        (b"\x85\x00\x00\x00\x00\x01" + zlib.compress(b"x"), 9000, "compression-error"),
        (b"\x81\x01nothing", 9000, "compression-error"),
        (b"", 9000, "compression-error"),
    ],
)
def test_a_block_that_is_not_what_it_says_is_an_error(packed: bytes, limit: int, id_: str) -> None:
    with pytest.raises(DecompressionError) as caught:
        decode_rows(_E.WRITE_ROWS_COMPRESSED_V1, rows_body(2, packed), two_columns(), Limits(max_inflate=limit))
    assert caught.value.finding_id == id_


@pytest.mark.parametrize(
    ("type_code", "body", "words"),
    [
        (_E.WRITE_ROWS_V1, b"\x07\0\0", "the table id of 6 bytes"),
        (_E.WRITE_ROWS_V2, rows_body(2, b"", extra=None)[:8] + b"\x01\x00\x02\x03", "length of the extra data is 1"),
        (_E.WRITE_ROWS_V2, rows_body(2, b"")[:8] + b"\xff\x00", "extra data of 253 bytes"),
        (_E.WRITE_ROWS_V1, rows_body(2, b"")[:-1], "the bitmap of columns of 1 bytes"),
        (_E.UPDATE_ROWS_V1, rows_body(2, b""), "the second bitmap of columns of 1 bytes"),
        (_E.WRITE_ROWS_V1, rows_body(3, b""), "has 3 columns, its TABLE_MAP 2"),
        (_E.WRITE_ROWS_V1, rows_body(5000, b""), "declares 5,000 columns"),
        (_E.WRITE_ROWS_V1, rows_body(2, b"\0\1\0\0"), r"column 1 \(LONG\) at byte 11 needs 4 bytes, only 3 are left"),
        (_E.WRITE_ROWS_V1, rows_body(2, row(1, b"abc")[:-1]), r"column 2 \(VARCHAR\) at byte 16 needs 3 bytes, only 2"),
        (_E.WRITE_ROWS_V1, rows_body(2, row(1, b"a")[:-2]), r"column 2 \(VARCHAR\) at byte 15 needs 1 bytes, only 0"),
        (_E.WRITE_ROWS_V1, rows_body(2, row(1, b"a") + b"\0"), r"column 1 \(LONG\) at byte 18 needs 4 bytes, only 0"),
        (_E.WRITE_ROWS_V1, rows_body(2, b"\0", [[False, False]]), "belong to no row"),
        (_E.UPDATE_ROWS_V1, rows_body(2, row(1, b"a"), [[True] * 2] * 2), "row image at byte 18 has 0 of 1 bytes"),
    ],
)
def test_a_part_that_does_not_fit_is_named(type_code: int, body: bytes, words: str) -> None:
    for read in (decode_rows, count_rows):
        with pytest.raises(MalformedError, match=words):
            read(type_code, body, two_columns())


def test_a_cut_behind_many_rows_is_named_as_precisely() -> None:
    whole = rows_body(2, row(1, b"abc") * 50)
    for read in (decode_rows, count_rows):
        with pytest.raises(MalformedError, match=r"column 2 \(VARCHAR\) at byte 457 needs 3 bytes, only 2 are left"):
            read(_E.WRITE_ROWS_V1, whole[:-1], two_columns())
        with pytest.raises(MalformedError, match=r"column 1 \(LONG\) at byte 452 needs 4 bytes, only 1 are left"):
            read(_E.WRITE_ROWS_V1, whole[:-7], two_columns())


def test_a_value_that_is_none_of_its_type_names_column_and_place() -> None:
    table = parse_table_map(table_map_body(bytes([_C.TINY, _C.NEWDECIMAL]), b"\x09\x00"))
    good, bad = image([b"\1", b"\x80\0\0\1"]), image([b"\1", b"\xff\xff\xff\xff"])
    with pytest.raises(MalformedError, match=r"column 2 \(NEWDECIMAL\) at byte 132: .*not decimal digits"):
        decode_rows(_E.WRITE_ROWS_V1, rows_body(2, good * 20 + bad), table)


def test_a_column_of_another_character_set_keeps_bytes_that_are_no_text() -> None:
    table = parse_table_map(table_map_body(bytes([_C.VARCHAR]), b"\x64\x00", optional(3, b"\x2d")))
    images = image([b"\x01a"]) * TWICE + image([b"\x01\xff"])
    assert decode_rows(_E.WRITE_ROWS_V1, rows_body(1, images), table)[-1] == {"after": {"@1": b"\xff"}}


def partial_table() -> TableMap:
    return parse_table_map(table_map_body(bytes([_C.LONG, _C.JSON, _C.JSON]), b"\x04\x04"))


def json_value(raw: bytes) -> bytes:
    return struct.pack("<I", len(raw)) + raw


def test_a_partial_update_has_differences_and_whole_values() -> None:
    number, whole = b"\x05\0\0\0", json_value(b"\x04\x01")
    change = b"\x01\x05$.new\x03\x0c\x01v"
    before = image([number, whole, whole])
    partly = b"\x01\x01" + image([number, json_value(change), whole])
    unchanged = b"\x01\x02" + image([number, None, json_value(b"")])
    plain = b"\x00" + image([number, whole, None])
    body = rows_body(3, before + partly + before + unchanged + before + plain, [[True] * 3] * 2, extra=b"")
    rows = decode_rows(_E.PARTIAL_UPDATE_ROWS, body, partial_table())
    assert [row["after"] for row in rows] == [
        {"@1": 5, "@2": {"$diff": [{"op": "INSERT", "path": "$.new", "value": "v"}]}, "@3": True},
        {"@1": 5, "@2": None, "@3": {"$diff": []}},
        {"@1": 5, "@2": True, "@3": None},
    ]
    assert count_rows(_E.PARTIAL_UPDATE_ROWS, body, partial_table()) == 3


def test_the_bits_of_a_partial_update_count_all_json_columns_of_the_table() -> None:
    after = b"\x01\x02" + image([json_value(b"\x02\x01$")])
    body = rows_body(3, image([b"\x05\0\0\0"]) + after, [[True, False, False], [False, False, True]], extra=b"")
    (only,) = decode_rows(_E.PARTIAL_UPDATE_ROWS, body, partial_table())
    assert only["after"] == {"@3": {"$diff": [{"op": "REMOVE", "path": "$"}]}}


@pytest.mark.parametrize("after", [b"\x02", b"\x01", b"\x01\x01\x00\x05", b"\x01\x01\x00\x05\0\0\0\xff\0\0\0\x04"])
def test_a_partial_image_that_does_not_fit_is_refused(after: bytes) -> None:
    body = rows_body(3, image([b"\x05\0\0\0"]) + after, [[True, False, False], [True] * 3], extra=b"")
    for read in (decode_rows, count_rows):
        with pytest.raises(MalformedError):
            read(_E.PARTIAL_UPDATE_ROWS, body, partial_table())


def stored_text(text: str, prefix: int) -> bytes:
    return len(text.encode()).to_bytes(prefix, "little") + text.encode()


def _column(
    type_: int, metadata: bytes, values: st.SearchStrategy[Any], stored: Any
) -> st.SearchStrategy[tuple[int, bytes, bytes | None, Any]]:
    known = values.map(lambda value: (type_, metadata, stored(value), value))
    return known | st.just((type_, metadata, None, None))


def _integer(type_: int, width: int) -> st.SearchStrategy[Any]:
    bound = 1 << (8 * width - 1)
    return _column(type_, b"", st.integers(-bound, bound - 1), lambda n: n.to_bytes(width, "little", signed=True))


any_column = st.one_of(
    _integer(_C.TINY, 1),
    _integer(_C.SHORT, 2),
    _integer(_C.INT24, 3),
    _integer(_C.LONG, 4),
    _integer(_C.LONGLONG, 8),
    _column(_C.DOUBLE, b"\x08", st.floats(allow_nan=False), lambda number: struct.pack("<d", number)),
    _column(_C.VARCHAR, b"\xff\x00", st.text(max_size=40), lambda text: stored_text(text, 1)),
    _column(_C.VARCHAR, b"\x00\x04", st.text(max_size=90), lambda text: stored_text(text, 2)),
    _column(_C.BLOB, b"\x03", st.text(max_size=90), lambda text: stored_text(text, 3)),
    _column(_C.BLOB, b"\x04", st.text(max_size=90), lambda text: stored_text(text, 4)),
    _column(_C.STRING, b"\xfe\x30", st.text(max_size=10), lambda text: stored_text(text, 1)),
    _column(_C.STRING, b"\xf7\x02", st.integers(0, 65535), lambda ordinal: ordinal.to_bytes(2, "little")),
    _column(_C.BIT, b"\x03\x01", st.integers(0, 2047), lambda mask: mask.to_bytes(2, "big")),
    _column(_C.YEAR, b"", st.integers(1901, 2155), lambda year: bytes([year - 1900])),
    _column(_C.NULL, b"", st.none(), lambda nothing: b""),
)


@given(st.lists(any_column, min_size=1, max_size=12), st.lists(any_column, max_size=3), st.data())
@settings(max_examples=200, deadline=None)
def test_every_row_comes_back_however_often_it_comes(
    cells: list[tuple[int, bytes, bytes | None, Any]], absent: list[tuple[int, bytes, bytes | None, Any]], data: Any
) -> None:
    """The first rows are read column by column, later ones by a generated function."""
    table_columns = cells + absent
    table = parse_table_map(
        table_map_body(bytes(cell[0] for cell in table_columns), b"".join(cell[1] for cell in table_columns))
    )
    table.memo.clear()
    present = [True] * len(cells) + [False] * len(absent)
    body = rows_body(len(table_columns), image(cell[2] for cell in cells) * TWICE, [present])
    expected = {f"@{number}": cell[3] for number, cell in enumerate(cells, 1)}
    rows = decode_rows(_E.WRITE_ROWS_V1, body, table)
    assert [repr(row) for row in rows] == [repr({"after": expected})] * TWICE
    assert count_rows(_E.WRITE_ROWS_V1, body, table) == TWICE
    cut = data.draw(st.integers(parse_rows_head(_E.WRITE_ROWS_V1, body).images_at, len(body) - 1))
    assert outcome(count_rows, body[:cut], table) == outcome(rows_of, body[:cut], table)


def rows_of(type_code: int, body: bytes, table: TableMap) -> int:
    return len(decode_rows(type_code, body, table))


def outcome(read: Any, body: bytes, table: TableMap) -> Any:
    try:
        return read(_E.WRITE_ROWS_V1, body, table)
    except MalformedError as error:
        return str(error)


ALL_TYPES = (
    bytes([_C.TINY, _C.LONGLONG, _C.FLOAT, _C.DOUBLE, _C.NEWDECIMAL, _C.DATE, _C.TIME2, _C.DATETIME2, _C.TIMESTAMP2])
    + bytes([_C.VARCHAR, _C.STRING, _C.STRING, _C.STRING, _C.BLOB, _C.JSON, _C.GEOMETRY, _C.VECTOR, _C.BIT])
    + bytes([_C.VARCHAR_COMPRESSED, _C.YEAR, _C.TIME, _C.DATETIME, _C.TIMESTAMP])
)
ALL_METADATA = (
    b"\x04\x08\x0a\x02\x03\x06\x02" + b"\x64\x00\xfe\x10\xf7\x01\xf8\x02\x02\x04\x04\x04\x05\x01" + b"\xc8\x00"
)


def all_types_row() -> bytes:
    packed = b"\x89\x32" + zlib.compress(b"z" * 50)[2:-4]
    return image(
        [
            b"\x01", bytes(8), struct.pack("<f", 1.5), struct.pack("<d", 2.5), b"\x80\x00\x00\x07\x05", b"\x21\xd0\x0f",
            b"\x80\x10\x00\x00\x01", b"\x99\x9f\x5d\x7e\xfb\x00\x00\x01", b"\x65\x00\x00\x00\x05",
            b"\x03abc", b"\x02xy", b"\x01", b"\x05\x00", b"\x03\x00def", b"\x06\0\0\0\x0c\x04text",
            b"\x09\0\0\0\0\0\0\0\x01\x01\0\0\0", b"\x04\0\0\0\0\0\x80\x3f", b"\x10\x01",
            bytes([len(packed)]) + packed, b"\x7c", b"\x01\x02\x03",
            (20240101000000).to_bytes(8, "little"), b"\1\0\0\0",
        ]
    )  # fmt: skip


def all_types() -> TableMap:
    return parse_table_map(table_map_body(ALL_TYPES, ALL_METADATA))


def test_a_row_of_all_types_is_read_in_the_same_way_by_both_readers() -> None:
    rows = decode_rows(_E.WRITE_ROWS_V1, rows_body(len(ALL_TYPES), all_types_row() * TWICE), all_types())
    assert len(rows) == TWICE
    assert all(repr(row) == repr(rows[0]) for row in rows)
    assert list(rows[0]["after"].values())[:5] == [1, 0, 1.5, 2.5, "7.05"]
    assert rows[0]["after"]["@19"] == "z" * 50


@pytest.mark.parametrize(
    ("type_code", "pairs", "compressed"),
    [
        (_E.WRITE_ROWS_V1, False, False),
        (_E.UPDATE_ROWS_V2, True, False),
        (_E.PARTIAL_UPDATE_ROWS, True, False),
        (_E.DELETE_ROWS_COMPRESSED_V1, False, True),
    ],
)
def test_whatever_the_bytes_are_only_our_own_errors_come(type_code: int, pairs: bool, compressed: bool) -> None:
    dice = random.Random(type_code)
    count, one = len(ALL_TYPES), all_types_row()
    rows = (one + (b"\x00" if type_code == _E.PARTIAL_UPDATE_ROWS else b"") + one) * 6
    extra = b"" if type_code in (_E.UPDATE_ROWS_V2, _E.PARTIAL_UPDATE_ROWS) else None
    bitmaps = [[True] * count] * (2 if pairs else 1)
    head = rows_body(count, b"", bitmaps, extra)
    whole = rows_body(count, block(rows) if compressed else rows, bitmaps, extra)
    table = all_types()
    assert len(decode_rows(type_code, whole, table)) == (6 if pairs else 12)
    wrong = 0
    started = time.process_time()
    for _ in range(1500):
        body = bytearray(whole)
        for _ in range(dice.randint(1, 6)):
            body[dice.randrange(0 if dice.random() < 0.3 else len(head), len(body))] = dice.randrange(256)
        wrong += _fails(type_code, bytes(body[: dice.choice([len(body), dice.randrange(len(body))])]), table)
    assert wrong > 300
    assert time.process_time() - started < 20


def _fails(type_code: int, body: bytes, table: TableMap) -> bool:
    try:
        counted = count_rows(type_code, body, table, Limits(max_inflate=1 << 20))
    except (MalformedError, DecompressionError):
        with pytest.raises((MalformedError, DecompressionError)):
            decode_rows(type_code, body, table, Limits(max_inflate=1 << 20))
        return True
    try:
        rows: list[Row] = decode_rows(type_code, body, table, Limits(max_inflate=1 << 20))
    except (MalformedError, DecompressionError):
        return True
    assert len(rows) == counted
    return False


def test_many_patterns_of_nulls_do_not_make_many_functions() -> None:
    table = parse_table_map(table_map_body(bytes([_C.TINY]) * 10))
    images = b"".join(image([b"\1" if mask >> bit & 1 else None for bit in range(10)]) * 9 for mask in range(1024))
    rows = decode_rows(_E.WRITE_ROWS_V1, rows_body(10, images), table)
    assert len(rows) == count_rows(_E.WRITE_ROWS_V1, rows_body(10, images), table) == 9 * 1024
    assert rows[-1] == {"after": {f"@{number}": 1 for number in range(1, 11)}}
