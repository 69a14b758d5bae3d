from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import binlogtool
from binlogtool.findings import Severity
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool.format import FORMAT, schema
from binlogtool.formats.tarantool.schema import format_vclock, parse_uuid, parse_vclock
from binlogtool.limits import Limits
from tests.formats.tarantool.make import INSTANCE, header

V12 = b"XLOG\n0.12\nServer: 0e82a45f-d1ff-4f19-bf2c-b815ad567dab\nVClock: {}\n\n"


def layout(data: bytes, name: str = "00000000000000000000.xlog") -> LogFileLayout:
    return FORMAT.reading.layout(FileHead(data, name, len(data)), Limits())


def only(data: bytes, name: str = "00000000000000000000.xlog") -> tuple[str, str, int | None, int]:
    (found,) = layout(data, name).findings
    return found.id, found.facts["diagnosis"], found.offset, found.length


def test_a_header_of_2_6_is_read() -> None:
    data = header(vclock="{0: 6, 1: 696}", previous="{1: 5}") + b"\xd5\x10\xad\xed"
    found = layout(data, "00000000000000000702.xlog")
    assert (found.variant, found.frames_at, found.readable, found.findings) == ("XLOG 0.13", len(data) - 4, True, ())
    context = found.context
    assert (context.vclock, context.prev_vclock, context.instance) == ({0: 6, 1: 696}, {1: 5}, INSTANCE)
    assert context.version == "2.6.0-0-g47aa4e01e"


def test_a_header_of_0_12_is_read() -> None:
    found = layout(V12)
    assert (found.variant, found.frames_at, found.findings) == ("XLOG 0.12", len(V12), ())
    assert found.context.instance == "0e82a45f-d1ff-4f19-bf2c-b815ad567dab"


@pytest.mark.parametrize(
    ("text", "vclock"),
    [
        ("{}", {}),
        ("{ }", {}),
        ("{1: 5, 2: 7}", {1: 5, 2: 7}),
        (" { 1 :5 ,\t2: 7 }", {1: 5, 2: 7}),
        ("{31: 9223372036854775807}", {31: 2**63 - 1}),
        ("{1: 0, 1: 5}", {1: 5}),
    ],
)
def test_vclocks(text: str, vclock: dict[int, int]) -> None:
    assert parse_vclock(text) == vclock


@pytest.mark.parametrize(
    "text",
    ["", "{", "}", "{1}", "{1:}", "{:1}", "[1: 2}", "{1: 2", "{1: 2} x", "{32: 1}", "{1: 9223372036854775808}",
     "{1: 5, 1: 6}", "{-1: 5}", "{1: -5}", "{1: 2,, 2: 3}", "{1: 2 2: 3}", "{" + "1" * 5000 + ": 1}"],
)  # fmt: skip
def test_what_is_no_vclock(text: str) -> None:
    with pytest.raises(ValueError, match="vclock"):
        parse_vclock(text)


@given(st.dictionaries(st.integers(0, 31), st.integers(1, 2**63 - 1)))
def test_a_written_vclock_is_read_again(vclock: dict[int, int]) -> None:
    assert parse_vclock(format_vclock(vclock)) == vclock


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"XLOG", b"XLOF", ("bad-header", "bad_header_type", 0, 5)),
        (b"0.13", b"0.14", ("unsupported-version", "bad_header_version", 5, 5)),
        (b"Instance: 5", b"Instance: g", ("bad-header", "bad_uuid", 38, 47)),
        (b"Instance: 5", b"Instance: 55", ("bad-header", "bad_uuid", 38, 48)),
        (b"VClock: {", b"VClock: [", ("bad-header", "bad_vclock", 85, 11)),
        (b"VClock: {}", b"VClokk: {}", ("bad-header", "unknown_header_key", 85, 11)),
        (b"VClock: {}", b"VClock  {}", ("bad-header", "bad_header", 85, 11)),
        (b"VClock: {}", b"VClock: {1: 5}", ("meta-mismatch", "vclock_name_mismatch", 85, 15)),
        (b"}\n\n", b"}\n", ("bad-header", "bad_header", 0, 96)),
    ],
)
def test_each_damage_of_a_header_has_its_place(old: bytes, new: bytes, expected: tuple[Any, ...]) -> None:
    assert only(header().replace(old, new)) == expected


def test_an_unknown_key_is_only_a_warning_about_the_header() -> None:
    data = header().replace(b"\n\n", b"\nMemtxUsed: 5\n\n")
    (found,) = layout(data).findings
    assert (found.id, found.severity, found.offset) == ("bad-header", Severity.WARNING, 0)
    assert found.facts["key"] == "MemtxUsed"
    assert found.facts["line_offset"] == 96


@pytest.mark.parametrize("data", [b"", b"XLOG\n0.13\nVersion: 2.6.0-0-g47"])
def test_a_file_without_a_whole_header_cannot_be_read(data: bytes) -> None:
    found = layout(data)
    assert not found.readable
    assert [(f.id, f.offset) for f in found.findings] == [("bad-header", 0)]


def test_the_empty_line_must_come_early_enough() -> None:
    comment = b"\nComment: " + b"x" * 2000
    assert not layout(header().replace(b"\n\n", comment + b"\n\n")).readable


def test_the_name_says_another_kind_than_the_first_line() -> None:
    assert only(header("SNAP")) == ("bad-header", "bad_header_type", 0, 5)


@pytest.mark.parametrize("name", ["test.xlog", "copy of 5.xlog", "00000000000000000005.xlog.bak"])
def test_a_name_that_the_server_would_not_read_proves_nothing(name: str) -> None:
    assert layout(header(vclock="{1: 7}"), name).findings == ()


def test_an_unfinished_file_is_remarked_and_never_an_error() -> None:
    found = layout(b"XLOG\n0.13\nVersion", "00000000000000005334.xlog.inprogress").findings
    assert {f.facts["diagnosis"]: f.severity for f in found} == {
        "bad_header": Severity.NOTE,
        "inprogress_left": Severity.WARNING,
    }


def test_a_file_that_was_put_aside_is_remarked() -> None:
    (found,) = layout(header(), "00000000000000000000.xlog.corrupted").findings
    assert (found.id, found.severity) == ("extra-member", Severity.WARNING)


@pytest.mark.parametrize(
    ("data", "name", "score"),
    [
        (header(), "x", 100),
        (V12, "x", 100),
        (b"SNAP\n0.14\n", "x", 95),
        (header().replace(b"XLOG", b"XLOF"), "x", 60),
        (b"", "00000000000000000000.xlog", 20),
        (b"\0\1\2\3", "00000000000000000000.snap", 20),
        (b"\0\1\2\3", "1.snap", 10),
        (b"TXLOG", "transaction.log", 0),
        (b"", "notes.txt", 0),
        (b"XLOG", "notes.txt", 95),
    ],
)
def test_detection_looks_at_the_content_first(data: bytes, name: str, score: int) -> None:
    match = FORMAT.reading.detect(FileHead(data, name, len(data)))
    assert match.score == score
    assert match.reason


def test_the_schema_builds_the_same_header_and_names_each_line() -> None:
    data = header(previous="{}")
    parsed = schema.HEADER.parse(data + b"rest")
    assert schema.HEADER.build(parsed) == data
    parts = list(schema.HEADER.header.trace_rows(data, 0, len(data), Limits()))
    assert [p.path for p in parts] == [".type", ".format", ".version", ".instance", ".vclock", ".prev_vclock", ".end"]
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == len(data)


def test_the_schema_refuses_a_header_without_end() -> None:
    with pytest.raises(MalformedError, match="no empty line"):
        schema.HEADER.parse(b"XLOG\n0.13\n")


UUIDS = {
    "4D930F9D-F135-4281-942A-3171DE88913E": "4d930f9d-f135-4281-942a-3171de88913e",
    "4d930f9d-f135-4281-942a-3171de88913q": "4d930f9d-f135-4281-942a-3171de889103",
    "4d930f9d-f135-4281-942a-3171de8891+e": "4d930f9d-f135-4281-942a-3171de88910e",
    "4d930f9-f135-4281-942a-3171de88913ex": "04d930f9-f135-4281-942a-3171de88913e",
    "4d930f9d-f135-4281-942a- 171de88913e": "4d930f9d-f135-4281-942a-171de889130e",
    "4d930f9d-f135-4281-9q2a-3171de88913e": None, "4d930f9d-f135-4281-942a-31q1de88913e": None,
    "4d930f9d-f135-4281-e42a-3171de88913e": None, "4d930f9d_f135-4281-942a-3171de88913e": None,
    "4d930f9d-f135-4281-942a-3171de88913": None,
}  # fmt: skip
"""Instance of an older snapshot -> what Tarantool 2.6 reads; None: it stopped (can't parse instance UUID)."""


@pytest.mark.parametrize(("text", "uuid"), UUIDS.items())
def test_an_instance_is_parsed_as_the_server_does(text: str, uuid: str | None) -> None:
    assert parse_uuid(text) == uuid
    data = header().replace(INSTANCE.encode(), text.encode()) + b"\xd5\x10\xad\xed"
    assert ("bad_uuid" in {one.facts.get("diagnosis") for one in layout(data).findings}) is (uuid is None)


@pytest.mark.parametrize("data", [b"\xbbLOG", b"\n", b"garbage" * 300, b"\xbbLOG\n0.13\n"])
def test_a_file_without_a_header_is_opened_where_its_name_has_20_digits(data: bytes, tmp_path: Path) -> None:
    """Tarantool 2.6: Unexpected end of file, run with 'force_recovery = true'."""
    last = header(vclock="{1: 5}") + b"\xd5\x10\xad\xed"
    (tmp_path / f"{5:020d}.snap").write_bytes(last.replace(b"XLOG", b"SNAP"))
    (tmp_path / f"{6:020d}.xlog").write_bytes(data)
    (found,) = binlogtool.replay([tmp_path])
    assert found.starts is False and found.stop is not None
    assert found.stop.why.startswith("Unexpected end of file")
