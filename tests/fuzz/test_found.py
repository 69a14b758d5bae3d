"""Test the faults that the fuzz targets found, each with a small input."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

import binlogtool
from tests.formats.mariadb_innodb_binlog.ibb_make import CONT, group, header, sealed
from tests.fuzz.search import framed_end
from tests.harness.engine import account_holds
from tests.harness.hostile_ibb import chunk
from tests.harness.mysql_writer import binlog, query

P = 4096


def test_a_record_that_has_no_end_in_the_next_file_is_told_with_its_bytes_in_this_one(tmp_path: Path) -> None:
    """The bytes of the next file were counted, too, so that the finding reached past the end of the file."""
    data = (b"\0" + group(1)).ljust(P - 4 - 3, b"x")
    for number, flags in enumerate((0, CONT)):
        page = sealed(chunk(1 | flags, data), P)
        (tmp_path / f"binlog-{number:06}.ibb").write_bytes(header(number, 1, P, 4) + page)
    report = binlogtool.verify([tmp_path])
    for file in report.files:
        account_holds(file, 2 * P)
    (finding,) = (entry for entry in report.files[0].findings if entry.id in ("torn-tail", "gap-in-sequence"))
    assert (finding.offset, finding.length) == (P, P - 4)


@pytest.mark.parametrize("size", [478, P - 1, P])
def test_a_damaged_header_page_is_told_with_those_of_its_bytes_that_are_there(tmp_path: Path, size: int) -> None:
    """Of a file that is shorter than a page, the rest of the page was reported, too."""
    for number in (0, 1):
        page = sealed(chunk(1, (b"\0" + group(1))), P)
        (tmp_path / f"binlog-{number:06}.ibb").write_bytes(header(number, 1, P, 4) + page)
    last = tmp_path / "binlog-000001.ibb"
    data = bytearray(last.read_bytes()[:size])
    data[100:160] = bytes(range(60))
    last.write_bytes(data)
    report = binlogtool.verify([tmp_path], format="mariadb-innodb-binlog")
    (file,) = (entry for entry in report.files if entry.path == str(last))
    account_holds(file, size)
    (finding,) = (entry for entry in file.findings if entry.id == "torn-tail")
    assert (finding.offset, finding.length) == (0, min(size, P))


@pytest.mark.parametrize("at_front", [True, False])
def test_one_transaction_of_another_version_does_not_make_the_whole_log_one_of_that_version(
    corpus: Path, tmp_path: Path, at_front: bool
) -> None:
    """At the front it was believed to prove that a bit of the version had flipped, and all others were given up."""
    old = (corpus / "manticore/generated/v14/mixed-kill9/binlog.001").read_bytes()
    new = next(corpus.glob("manticore/generated/v15/common-mixed-kill9/binlog.0000")).read_bytes()
    carried = new[8 : framed_end(new, 8)]
    assert carried[:4] == b"TXN!" and (old[4], new[4]) == (14, 15)
    path = tmp_path / "binlog.001"
    path.write_bytes(old)
    (intact,) = binlogtool.verify([path], format="manticore").files
    path.write_bytes(old[:8] + carried + old[8:] if at_front else old + carried)
    (file,) = binlogtool.verify([path], format="manticore").files
    assert (file.records, file.variant) == (intact.records, "v14")
    assert file.records is not None and file.records > 1


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_drizzle_log_that_lost_its_first_bytes_is_not_one_of_an_older_layout(tmp_path: Path, lost: int) -> None:
    """With four of them gone it looked as if its entries had no type, and it was refused as a whole."""
    message = bytes.fromhex("0a160802100118e0c8b48c8cb4ae0220aaedb48c8cb4ae021a02080020012801")
    entry = struct.pack("<II", 1, len(message)) + message + struct.pack("<I", zlib.crc32(message))
    path = tmp_path / "transaction.log"
    path.write_bytes((entry * 4)[lost:])
    (file,) = binlogtool.verify([path], format="drizzle").files
    assert (file.records, file.bytes["damaged"]) == (3, len(entry) - lost)
    assert "unsupported-version" not in {entry.id for entry in file.findings}


def test_garbage_in_a_relay_log_is_no_description_of_a_server_without_checksums(tmp_path: Path) -> None:
    """It was taken for one, as nothing but a number of the version says that there is none to look at, and all events
    after it were accepted without a check of their checksums."""
    whole = binlog([query(b"BEGIN"), query(b"COMMIT")])
    head, events = whole[4:127], whole[127:]
    inner = bytearray(head)
    assert inner[4] == 15 and inner[19:26] == b"\4\x009.7.4"
    inner[21:71], inner[75] = b"\xd7\x05garbage".ljust(50, b"\1"), 0
    path = tmp_path / "relay-bin.000008"
    path.write_bytes(whole[:127] + bytes(inner) + bytes(events[:-4]) + b"\0\0\0\0")
    report = binlogtool.verify([path])
    with binlogtool.open([path]) as log:
        records = [record.offset for record in log.records()]
    assert 127 not in records and report.files[0].records == len(records)
    assert any(entry.id == "checksum-mismatch" for entry in report.files[0].findings)
