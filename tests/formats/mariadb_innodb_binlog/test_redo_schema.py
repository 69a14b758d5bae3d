"""The worked bytes of the specification, varints at their borders, and schemas that give back the bytes they read."""

from __future__ import annotations

import pytest

from binlogtool.formats.innodb.redo_log import CHECKPOINT, HEADER
from binlogtool.formats.innodb.redo_records import (
    RedoRecordType,
    decode_redo_records,
    encode_varint,
    find_end_byte_after_records,
    read_varint,
)
from tests.formats.mariadb_innodb_binlog import redo_make as make

BORDERS = (0, 1, 127, 128, 16511, 16512, 2113663, 2113664, 270549119, 270549120, 0xFFFFFFF0, 2**32 - 1)


def test_varints_at_the_borders_of_their_lengths() -> None:
    sizes = []
    for value in BORDERS:
        data = make.varint(value)
        assert encode_varint(value) == data
        assert read_varint(data, 0, len(data)) == (value, len(data))
        assert all(read_varint(data, 0, cut)[1] == -1 for cut in range(len(data)))
        sizes.append(len(data))
    assert sizes == [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5]
    assert make.varint(0xFFFFFFF0).hex() == "f0efdfbf70" and make.varint(0xFFFFFFF1).hex() == "f0efdfbf71"


@pytest.mark.parametrize("data", [b"\xf8\0\0\0\0", b"\xff\0\0\0\0", b"\xf0\xf0\0\0\0", b"\xf1\0\0\0\0"])
def test_reserved_first_bytes_and_values_over_32_bits_are_no_varints(data: bytes) -> None:
    assert read_varint(data, 0, 5)[1] == -2


def test_the_worked_records_of_the_specification() -> None:
    five = bytes.fromhex("3c f0efdfbf70 01 00 dddddddddd")
    (write,) = decode_redo_records(five, 1000)
    assert (write.type, write.space_id, write.page_no) == (RedoRecordType.WRITE, 0xFFFFFFF0, 1)
    assert (write.offset, write.length, write.data, write.lsn, write.size) == (0, 5, b"\xdd" * 5, 1000, 13)
    long = bytes.fromhex("30 39 f0efdfbf70 00 00") + b"h" * 64
    (header,) = decode_redo_records(long, 0)
    assert (header.page_no, header.offset, header.data, header.size) == (0, 0, b"h" * 64, 73)
    (checkpoint,) = decode_redo_records(bytes.fromhex("fa0000 0000000000123456"), 0)
    assert (checkpoint.type, checkpoint.checkpoint_lsn) == (RedoRecordType.FILE_CHECKPOINT, 0x123456)
    first, second = decode_redo_records(bytes.fromhex("36 40 57 60 123456 b5 7f 23345678".replace("57 60", "5760")), 0)
    assert (first.space_id, first.page_no, first.offset, first.data.hex()) == (0x40, 0x57, 0x60, "123456")
    assert (second.page_no, second.offset, second.data.hex(), second.same_page) == (0x57, 0x7F + 0x63, "23345678", True)


def test_records_of_every_type() -> None:
    page = b"\x05\x07"
    body = b"".join(
        [
            make.record(0xB0, b"\x05\0db/t.ibd"),
            make.record(0xA0, b"\x05\0old.ibd\0new.ibd"),
            make.record(0x10, page),
            make.record(0xB0, make.varint(0) + b"\x45\xbf"),  # same page: where INIT_PAGE leaves off
            make.record(0x40, page + make.varint(100) + make.varint(8) + b"\xff"),
            make.record(0xD0, make.varint(2) + make.varint(3) + make.varint(11)),
            make.record(0x20, page + b"\x03undo"),
            make.record(0x70, page + b"\x00abcd"),
            make.record(0x00, page),
        ]
    )
    found = list(decode_redo_records(body, 50))
    assert [one.problem for one in found] == [""] * 9
    assert [one.type.name for one in found] == [
        "FILE_MODIFY", "FILE_RENAME", "INIT_PAGE", "WRITE", "MEMSET", "MEMMOVE", "EXTENDED", "OPTION", "FREE_PAGE",
    ]  # fmt: skip
    assert found[0].file_names == ("db/t.ibd",) and found[1].file_names == ("old.ibd", "new.ibd")
    ranges = [(one.offset, one.length, one.source) for one in found[3:6]]
    assert ranges == [(24, 2, None), (100, 8, None), (110, 3, 104)]
    assert (found[6].subtype, found[6].data) == (3, b"undo")
    assert sum(one.size for one in found) == len(body) and found[-1].lsn == 50 + len(body) - 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (make.record(0x60, b"\1\2\3"), "reserved"),
        (make.record(0x30, b"\xff\1\1a"), "number"),
        (make.record(0x30, b"\1\2\3"), "data"),
        (make.record(0x10, b"\1\2\3"), "page id"),
        (make.record(0x00, b"\1\2") + make.record(0xB0, b"\1a"), "same_page"),
        (make.record(0x50, b"\1\2\x10\1\xff"), "number"),
        (make.record(0x50, b"\1\2\x10\1\x7f"), "source"),
        (make.record(0x40, b"\1\2\x10" + make.varint(70000) + b"a"), "end of the page"),
        (make.record(0xC0, b"\1\0a"), "is not a file record"),
        (make.record(0xB0, b"\1\1a.ibd"), "names a page"),
        (make.record(0xA0, b"\1\0a.ibd"), "file names"),
        (make.file_checkpoint(9) + make.record(0x10, b"\1\2"), "not the last"),
    ],
)
def test_a_record_that_the_server_would_refuse_says_why(body: bytes, said: str) -> None:
    assert said in " ".join(one.problem for one in decode_redo_records(body, 0))


def test_a_length_that_no_record_can_have_ends_the_mini_transaction() -> None:
    assert find_end_byte_after_records(b"\x30\xe0\xff\xff\xff", 0, 5) == -2
    assert find_end_byte_after_records(b"\x01", 0, 1) == -2
    assert find_end_byte_after_records(b"\x34abcd", 0, 5) == -1
    assert find_end_byte_after_records(b"\x34abcd\x01", 0, 6) == 5
    many = b"\x34abcd" * (1 << 18) + b"\x01"
    assert find_end_byte_after_records(many, 0, len(many)) == -2


def test_header_and_checkpoint_build_back_to_their_bytes() -> None:
    data = make.redo_log([make.write(make.EVEN, 1, 0, b"x" * 300)])
    for schema, part in ((HEADER, data[:512]), (CHECKPOINT, data[4096:4160])):
        parsed = schema.parse(part)
        assert schema.build(parsed) == part
    assert HEADER.parse(data[:512]).checksum.ok and CHECKPOINT.parse(data[4096:4160]).checksum.ok
