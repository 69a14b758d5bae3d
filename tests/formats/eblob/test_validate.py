"""Records of a group against each other, and what is said about the lack of checksums."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from pathlib import Path

import pytest

from binlogtool.findings import Severity
from binlogtool.formats.eblob import classify_overwrites_and_removals as groups_module
from binlogtool.formats.eblob.classify_overwrites_and_removals import MAX_UNFINISHED
from tests.formats.eblob.make import control, header, key, noticed, overwrite, record, remove, verified, write

KEY_DIFFERS = "control block key differs from record key"
DISK = "control block disk_size implausible / differs from the other control blocks of the same record"
SIZE = "control block data_size implausible"
HASH = "data does not match the checksum in the footer record that follows"


@pytest.fixture(params=["usual shapes as a whole", "record by record"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every rule is tried on the short cut and on the general way."""
    if request.param == "record by record":
        monkeypatch.setattr(groups_module.ConsistentGroupReader, "read_consistent_groups", lambda self, i, kinds: i)
    return str(request.param)


def log(*groups: bytes) -> bytes:
    return header() + b"".join(groups) + overwrite(99, b"the last one", start=900_000)


def test_whole_groups_are_counted_and_their_hashes_compared(way: str) -> None:
    report = verified(
        log(overwrite(1, b"a" * 50), remove(2), overwrite(3, b"12345678"), overwrite(4, b"n", footer=False))
    )
    assert noticed(report) == []
    assert report.transactions == 5
    assert report.record_types == {"DATA": 4, "FOOTER": 3, "CONTROL": 4, "REMOVE": 1}
    covered = report.details["overwrites_with_right_hash"], report.details["data_bytes_with_right_hash"]
    assert covered == (3, 50 + 8 + 12)
    (absent,) = [f for f in report.findings if f.id == "checksum-absent"]
    assert (absent.severity, absent.offset, absent.facts["records_with_right_hash"]) == (Severity.NOTE, 256, 3)
    assert any("SHA-512" in text for text in absent.facts["provable"])


@pytest.mark.parametrize(
    ("wrong", "diagnosis", "at"),
    [
        ({"disk_size": 8}, DISK, 2),
        ({"disk_size": 96 + 9 + 40 + 73}, DISK, 2),
        ({"data_size": 10_000}, SIZE, 2),
        ({"data_size": 8}, SIZE, 0),
        ({"data_size": 10}, SIZE, 0),
        ({"position": 4999}, "control block position differs from the target offset", 2),
    ],
)
def test_a_wrong_member_of_a_control_block_is_an_error(
    way: str, wrong: dict[str, int], diagnosis: str, at: int
) -> None:
    report = verified(log(overwrite(1, b"user data", **wrong)))
    starts = (256, 256 + 145, 256 + 145 + 208)
    assert noticed(report) == [("payload-undecodable", starts[at], diagnosis)]
    assert max(f.severity for f in report.findings) is Severity.ERROR


def test_a_control_block_with_another_key_is_an_error(way: str) -> None:
    group = bytearray(overwrite(1, b"user data"))
    group[145 + 208 + 136] ^= 1
    assert noticed(verified(log(bytes(group)))) == [("payload-undecodable", 256 + 145 + 208, KEY_DIFFERS)]


def test_data_that_is_not_what_its_footer_says_is_a_checksum_mismatch(way: str) -> None:
    group = bytearray(overwrite(1, b"user data"))
    group[140] ^= 1
    assert noticed(verified(log(remove(7), bytes(group)))) == [("checksum-mismatch", 256 + 144, HASH)]


def test_a_part_of_the_data_is_not_compared_with_the_hash_of_the_whole(way: str) -> None:
    """Only the first 4 of 9 bytes are written anew; the footer's hash is over all 9."""
    of, start, size = key(1), 5000, 96 + 9 + 40 + 72
    foot = hashlib.sha512(b"new! rest").digest() + struct.pack("<Q", start)
    block = control(of, 0, 9, size, start)
    group = write(of, start + 96, b"new!") + write(of, start + size - 72, foot) + write(of, start, block)
    report = verified(log(group))
    assert noticed(report) == []
    assert report.details["overwrites_with_right_hash"] == 1  # the last one's


def test_a_footer_without_a_hash_needs_the_flag_that_says_so(way: str) -> None:
    of, start, size = key(1), 5000, 96 + 9 + 72
    for flags, expected in ((2, []), (0, ["checksum-absent"])):
        foot = bytes(64) + struct.pack("<Q", start)
        block = control(of, flags, 9, size, start)
        group = write(of, start + 96, b"user data") + write(of, start + size - 72, foot) + write(of, start, block)
        report = verified(log(group))
        warned = [f.id for f in report.findings if f.severity is Severity.WARNING]
        assert warned == expected
        assert report.details["overwrites_without_hash"] == 1


def test_the_size_of_a_record_of_the_data_file_never_changes(way: str) -> None:
    same = overwrite(1, b"a" * 20, slack=40) + overwrite(1, b"b" * 30, slack=30)
    assert noticed(verified(log(same))) == []
    grown = overwrite(1, b"a" * 20, slack=40) + overwrite(1, b"b" * 30, slack=31)
    assert [diagnosis for _, _, diagnosis in noticed(verified(log(grown)))] == [DISK]


def test_a_removal_elsewhere_than_the_known_place_of_its_key_is_a_warning(way: str) -> None:
    fine = overwrite(1, b"a" * 20, start=5000) + remove(1, start=5000)
    assert noticed(verified(log(fine))) == []
    report = verified(log(overwrite(1, b"a" * 20, start=5000) + remove(1, start=5001)))
    (found,) = noticed(report)
    assert found[0] == "dangling-reference"
    assert max(f.severity for f in report.findings) is Severity.WARNING


def test_an_overwrite_without_its_control_block_is_told_in_the_log_of_a_data_sort_only(way: str) -> None:
    lonely = write(key(1), 5096, b"lonely data")
    assert noticed(verified(log(lonely, remove(2)))) == [("incomplete-transaction", 256, "incomplete group")]
    assert noticed(verified(header() + lonely + lonely)) == []


def test_overwrites_without_an_end_are_told_up_to_a_bound(way: str) -> None:
    lonely = write(key(1), 5096, b"lonely data") * (MAX_UNFINISHED + 50)
    found = [f for f in verified(log(lonely)).findings if f.id == "incomplete-transaction"]
    assert any("50 more" in f.message or "more findings" in f.message for f in found)
    assert len(found) <= MAX_UNFINISHED + 2


def test_other_writers_are_a_note_and_suspicious_in_the_log_of_a_data_sort(way: str) -> None:
    odd = record(key(1), b"", b"no target") + write(key(2), 5096, b"")
    for data, severity in ((header() + odd, Severity.NOTE), (log(odd), Severity.WARNING)):
        report = verified(data)
        found = {f.facts["diagnosis"]: f for f in report.findings if f.id == "payload-undecodable"}
        assert set(found) == {"metadata size is not 8", "record without data"}
        assert {(f.severity, f.facts["records"]) for f in found.values()} == {(severity, 1)}


def test_padding_that_is_not_zero_is_a_warning_at_its_record(way: str) -> None:
    data = bytearray(log(remove(1), remove(2)))
    data[256 + 144 + 96 + 31] = 1
    (found,) = noticed(verified(bytes(data)))
    assert found == ("reserved-bits-set", 256 + 144, "reserved record bytes not zero (warning)")


def test_both_ways_say_the_same_about_real_logs(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (samples / "eblob" / "instance-a.binlog").read_bytes()
    short = verified(data)
    monkeypatch.setattr(groups_module.ConsistentGroupReader, "read_consistent_groups", lambda self, i, kinds: i)
    general = verified(data)
    assert (short.findings, short.details, short.transactions) == (general.findings, general.details, 144)
    assert Counter(short.record_types) == Counter(general.record_types)


@pytest.mark.parametrize("depth", ["frame", "checksum"])
def test_the_frame_depth_looks_at_the_chain_alone(depth: str) -> None:
    report = verified(log(overwrite(1, b"user data", disk_size=8)), depth=depth)
    assert (report.records, report.findings) == (6, ())
