"""The one pass: damage, tails, limits. Expectations are computed from the bytes that the test itself put together."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from binlogtool.limits import Limits
from binlogtool.verification.verify_logs import LogVerifyOptions
from binlogtool.verification.verify_report import FileReport
from tests.verify_bytes import verify_bytes

MESSAGE = (
    bytes.fromhex("0a1608021001")
    + bytes.fromhex("18e0c8b48c8cb4ae0220aaedb48c8cb4ae02")
    + b"\x1a\x02\x08\x00\x20\x01\x28\x01"
)
"""A Transaction message with context, STARTUP event, segment_id 1 and end_segment."""


def entry(message: bytes = MESSAGE) -> bytes:
    return struct.pack("<II", 1, len(message)) + message + struct.pack("<I", zlib.crc32(message))


SIZE = len(entry())


def verify(data: bytes, **limits: int) -> FileReport:
    report = verify_bytes("transaction.log", data, format="drizzle", options=LogVerifyOptions(limits=Limits(**limits)))
    assert sum(report.bytes.values()) == report.size == len(data)
    return report


def ids(report: FileReport) -> list[str]:
    return [f.id for f in report.findings if f.id != "duplicate-sequence"]


def test_garbage_between_records_is_one_damaged_range_with_the_next_record_named() -> None:
    garbage = b"\xee" * 77
    report = verify(entry() * 3 + garbage + entry() * 2)
    assert ids(report) == ["bad-magic", "damaged-range", "valid-after-damage"]
    damaged = next(f for f in report.findings if f.id == "damaged-range")
    assert (damaged.offset, damaged.length, damaged.facts["next_provable"]) == (3 * SIZE, 77, 3 * SIZE + 77)
    assert (report.records, report.durable_end, report.bytes["damaged"]) == (5, 3 * SIZE, 77)


def test_a_record_inside_the_payload_of_a_good_record_is_not_taken_for_one() -> None:
    blob = b"\x0a" + entry() * 20
    inner = struct.pack("<II", 2, len(blob)) + blob + struct.pack("<I", zlib.crc32(blob))
    report = verify(entry() + inner + entry())
    assert (report.records, ids(report)) == (3, [])


def test_damage_that_spans_many_windows_is_passed_over() -> None:
    noise = random.Random(1).randbytes(3_000_000)
    report = verify(entry() * 2 + noise + entry())
    assert (report.records, report.bytes["damaged"]) == (3, 3_000_000)


def test_zeros_in_the_middle_are_damage_and_at_the_end_are_a_zero_tail() -> None:
    assert ids(verify(entry() + bytes(5000) + entry())) == ["bad-magic", "damaged-range", "valid-after-damage"]
    report = verify(entry() + bytes(5000))
    assert (ids(report), report.bytes["preallocated"]) == (["zero-tail"], 5000)


@pytest.mark.parametrize("cut", range(1, SIZE))
def test_every_cut_of_the_last_record_is_a_torn_tail(cut: int) -> None:
    report = verify(entry() * 2 + entry()[:cut])
    assert (ids(report), report.durable_end, report.bytes["torn_tail"]) == (["torn-tail"], 2 * SIZE, cut)


def test_a_torn_record_that_is_filled_up_with_zeros_is_a_torn_tail() -> None:
    report = verify(entry() * 2 + entry()[:20] + bytes(4096))
    assert (ids(report), report.durable_end) == (["torn-tail"], 2 * SIZE)


def test_a_wrong_last_record_is_damage_not_a_tail() -> None:
    wrong = bytearray(entry())
    wrong[20] ^= 0xFF
    report = verify(entry() * 2 + bytes(wrong))
    assert (ids(report), report.durable_end, report.bytes["damaged"]) == (["checksum-mismatch"], 2 * SIZE, SIZE)


def test_a_flipped_bit_is_named_with_byte_bit_and_field() -> None:
    wrong = bytearray(entry() * 3)
    wrong[SIZE + 12] ^= 0x04
    (found,) = (f for f in verify(bytes(wrong)).findings if f.id == "checksum-mismatch")
    assert (found.facts["flipped_byte"], found.facts["flipped_bit"]) == (SIZE + 12, 2)
    assert found.facts["flipped_field"].startswith("message.transaction_context")


def test_a_flipped_bit_of_the_stored_checksum_is_named_too() -> None:
    wrong = bytearray(entry() * 3)
    wrong[2 * SIZE - 3] ^= 0x80
    (found,) = (f for f in verify(bytes(wrong)).findings if f.id == "checksum-mismatch")
    assert (found.facts["flipped_byte"], found.facts["flipped_bit"]) == (2 * SIZE - 3, 7)


def test_a_hostile_length_is_a_finding_and_not_an_allocation() -> None:
    hostile = struct.pack("<II", 1, 2**31 - 1) + MESSAGE
    report = verify(entry() + hostile + entry())
    assert ids(report) == ["length-out-of-bounds", "damaged-range", "valid-after-damage"]


def test_a_record_over_the_ceiling_is_said_to_be_one() -> None:
    blob = bytes(20_000)
    large = struct.pack("<II", 2, len(blob)) + blob + struct.pack("<I", zlib.crc32(blob))
    report = verify(entry() + large + entry(), max_record=8192)
    found = next(f for f in report.findings if f.id == "length-out-of-bounds")
    assert (found.offset, found.facts["declared"], found.facts["ceiling"]) == (SIZE, 20_008, 8192)
    assert report.records == 2
    assert verify(entry() + large + entry()).records == 3


def test_many_equal_findings_are_capped_and_counted() -> None:
    report = verify((entry() + b"\xee" * 5) * 50 + entry(), max_findings_per_id=10)
    bad = [f for f in report.findings if f.id == "bad-magic"]
    assert len(bad) == 11
    assert bad[-1].facts["not_listed"] == 40


def test_python_and_native_say_the_same_of_every_damaged_file(corpus: Path) -> None:
    compared = 0
    for path in sorted((corpus / "drizzle/generated/damaged").iterdir()):
        reports = [
            verify_bytes(path.name, path.read_bytes(), format="drizzle", options=LogVerifyOptions(backend=backend))
            for backend in ("python", "native")
        ]
        assert reports[0].findings == reports[1].findings, path.name
        assert reports[0].bytes == reports[1].bytes, path.name
        compared += 1
    assert compared == 25
