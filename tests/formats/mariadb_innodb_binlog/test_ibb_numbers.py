"""Compressed integers and the contents of records, from the tables of the specification (sections 4 and 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.transactions.boundaries import XaId
from binlogtool.formats.mariadb_innodb_binlog import schema
from binlogtool.formats.mariadb_innodb_binlog.records import parse_records
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CompressedInteger,
    encode_compressed_integer,
    file_name,
    file_number,
    parse_compressed_integer,
    read_compressed_integer,
    sort_file_names,
)
from binlogtool.schema import backends
from tests.formats.mariadb_innodb_binlog.ibb_make import cint, cints

TABLE = [
    (0, "00"), (1, "08"), (31, "f8"), (32, "0101"), (300, "6109"), (0xD34A, "529a06"), (16384, "020002"),
    (16387, "1a0002"), (2**21 - 1, "faffff"), (2**21, "03000001"), (2**53 - 1, "feffffffffffff"),
    (2**53, "070000000000000100"), (2**64 - 1, "ffffffffffffffff07"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), TABLE)
def test_the_table_of_the_specification(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_compressed_integer(value) == data == CompressedInteger().build(value) == cint(value)
    assert parse_compressed_integer(data, 0) == (value, len(data))
    assert CompressedInteger().parse(data) == value


@given(st.integers(0, 2**64 - 1), st.binary(max_size=4))
def test_what_is_built_is_read_again_at_any_place(value: int, before: bytes) -> None:
    data = before + encode_compressed_integer(value) + b"\xff"
    assert parse_compressed_integer(data, len(before)) == (value, len(data) - 1)
    assert encode_compressed_integer(value) == cint(value)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_number_or_a_finding_in_both_backends(data: bytes) -> None:
    compiled = backends.choose_backend("native").compile_kernel(read_compressed_integer)
    assert tuple(map(int, compiled(data, 0, len(data)))) == read_compressed_integer(data, 0, len(data))


def test_a_number_that_is_cut_or_too_large_is_refused() -> None:
    for data in (b"", b"\x01", b"\xff" * 8, b"\xff" * 9):
        with pytest.raises(MalformedError):
            parse_compressed_integer(data, 0)


def test_a_commit_record_of_the_corpus_with_one_reference() -> None:
    head = bytes.fromhex("a000caf00608b2c20a00")
    commit = parse_records.parse_commit_header(head + b"events")
    assert commit.references == (
        parse_records.OobReference(20, parse_records.IbbPosition(0, 56857), parse_records.IbbPosition(1, 88150)),
    )
    assert commit.payload_at == len(head)
    parsed = schema.COMMIT.parse(head)
    assert (parsed.n1, parsed.reference1.first.offset, parsed.reference1.last.offset, parsed.n2) == (
        20,
        56857,
        88150,
        0,
    )


def test_a_node_of_the_corpus() -> None:
    node = parse_records.parse_oob_node_header(bytes.fromhex("2800da0804002a8904") + b"x")
    assert node == parse_records.OobNode(5, parse_records.IbbPosition(0, 33051), parse_records.IbbPosition(0, 37157), 9)


def test_a_commit_record_with_two_references() -> None:
    data = cints(3, 0, 100, 0, 300, 2, 1, 50, 1, 70) + b"e"
    commit = parse_records.parse_commit_header(data)
    assert [one.nodes for one in commit.references] == [3, 2] and commit.payload_at == len(data) - 1
    assert parse_records.has_shortest_integers(commit)


def test_a_state_with_a_huge_count_is_refused_at_once() -> None:
    with pytest.raises(MalformedError) as caught:
        parse_records.parse_gtid_state(cints(2**60, 0) + b"\0" * 30)
    assert caught.value.finding_id == "count-out-of-bounds"


def test_a_state_with_numbers_over_32_bits_is_refused() -> None:
    with pytest.raises(MalformedError, match="over 32 bits"):
        parse_records.parse_gtid_state(cints(1, 0, 2**32, 1, 1))


def test_xa_records_have_bounded_parts() -> None:
    xid = (1).to_bytes(4, "little") + bytes([3, 2]) + b"abcde"
    prepared = parse_records.parse_xa_prepare(b"\1" + xid + cints(2, 0, 17000, 0, 18000))
    assert prepared.xid == XaId(1, b"abc", b"de") and prepared.reference.nodes == 2
    completed = parse_records.parse_xa_complete(b"\1" + xid)
    assert completed.is_rollback and completed.xid == prepared.xid
    for bad in (b"\1" + xid[:-1], b"\1" + xid + b"x", b"\1" + xid[:4] + bytes([65, 0]) + b"a" * 65):
        with pytest.raises(MalformedError):
            parse_records.parse_xa_complete(bad)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("binlog-000000.ibb", 0), ("binlog-1234567.ibb", 1234567), ("binlog-7.ibb", 7), ("binlog-.ibb", None),
        ("binlog-00000a.ibb", None), ("binlog-000000.ibb.gz", None), ("xbinlog-000000.ibb", None),
        (f"binlog-{2**64}.ibb", None),
    ],
)  # fmt: skip
def test_names_of_files(name: str, number: int | None) -> None:
    assert file_number(name) == number


@pytest.mark.parametrize("number", [0, 1234567, 7])
def test_the_name_of_a_number_has_that_number(number: int) -> None:
    assert file_number(file_name(number)) == number


def test_files_are_ordered_by_number() -> None:
    names = ["binlog-1000000.ibb", "binlog-999999.ibb", "binlog-000002.ibb"]
    assert sort_file_names(names) == names[::-1]
