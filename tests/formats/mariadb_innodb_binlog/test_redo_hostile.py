"""Damaged, cut, forged, old and encrypted logs: a finding that names the place, bounded work, never an exception."""

from __future__ import annotations

import random
import re
import time

import crc32c
import pytest

from binlogtool.findings import Finding, Severity
from binlogtool.formats.innodb.redo_log import (
    MAX_MTR_BYTES,
    RedoEndReason,
    RedoLog,
    RedoSummary,
    iter_page_writes,
    summarize_redo_log,
)
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import BinlogRecovery, make_recovery_file
from tests.formats.mariadb_innodb_binlog import redo_make as make

SIZE = make.START + 8192


def opened(data: bytes) -> RedoLog:
    return RedoLog(lambda offset, size: data[offset : offset + size], len(data))


def read_all(data: bytes) -> RedoSummary:
    """Everything that can be asked of a log; findings must lie inside the file."""
    found = summarize_redo_log(opened(data))
    page = make.header_page(0, 4, make.START)
    recovery = BinlogRecovery(iter_page_writes(opened(data)), [make_recovery_file(0, page, 65536)])
    assert sum(1 for _ in recovery.iter_pages()) <= found.binlog_writes + 1
    for one in found.findings:
        assert one.offset is not None and 0 <= one.offset <= one.offset + one.length <= max(len(data), 1)
    return found


def sample() -> bytes:
    """About 5 KiB of log in a ring of 8 KiB that wraps, with binlog writes, and old records behind the end."""
    bodies, at = [], 0
    for index in range(40):
        data = bytes([65 + index % 26]) * (20 + 5 * index)
        bodies.append(make.write(make.EVEN, 1, at, data))
        row = make.write(7, index, 100, b"row") + make.record(0xB0, b"\0x")
        bodies.append(row + make.record(0x20, bytes([5, index, 3]) + b"undo"))
        at += len(data)
    old = make.mtr(b"\x34abcd", 21_000, 12_288, 8192)
    return make.redo_log(bodies, size=SIZE, first_lsn=12_288, lsn=12_288 + 8192 + 6000, older=old)


def test_the_sample_is_whole() -> None:
    found = read_all(sample())
    assert (
        found.findings == () and found.mtrs == 81 and found.binlog_writes == 40 and found.wraps and found.is_acceptable
    )
    assert found.records == {"FILE_CHECKPOINT": 1, "WRITE": 120, "EXTENDED": 40}


def test_a_log_cut_at_every_512_bytes_has_a_finding() -> None:
    data = sample()
    for end in range(0, len(data), 512):
        found = read_all(data[:end])
        assert found.findings and not found.is_acceptable


def test_an_unwrapped_log_cut_behind_its_end_keeps_its_last_lsn() -> None:
    data = make.redo_log([make.write(make.EVEN, 1, 0, b"x" * 900)] * 3, size=SIZE)
    whole = summarize_redo_log(opened(data))
    assert whole.end_lsn is not None
    for end in range(make.START + 512, len(data), 512):
        found = read_all(data[:end])
        if end - make.START > whole.end_lsn - make.START:
            assert found.end_lsn == whole.end_lsn
            assert [one.facts["diagnosis"] for one in found.findings] == ["redo-odd-size"] * bool(end % 4096)
        else:
            assert found.findings


def test_a_cut_through_the_last_mini_transactions_is_suspected() -> None:
    bodies = [make.write(5, page, 10, b"x" * 300) for page in range(20)]
    data = make.redo_log(bodies, size=SIZE)
    found = read_all(data[: make.START + 4096])
    (one,) = found.findings
    assert (one.id, one.facts["diagnosis"], one.severity) == ("torn-tail", "redo-cut", Severity.WARNING)
    assert found.end_lsn is not None and make.START + 4096 - 320 < found.end_lsn < make.START + 4096


@pytest.mark.full
def test_random_bit_flips_never_raise_and_never_move_the_end_forward() -> None:
    rng, data = random.Random(5), sample()
    whole = summarize_redo_log(opened(data))
    assert whole.end_lsn is not None
    started = time.process_time()
    ends: list[int | None] = []
    for _ in range(1500):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 3, 8))):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        found = read_all(bytes(bad))
        ends.append(found.end_lsn)
    known = [end for end in ends if end is not None]
    assert len(known) > 1000 and max(known) <= whole.end_lsn
    assert time.process_time() - started < 60


def test_every_bit_flip_of_the_header_is_named() -> None:
    data = sample()
    fields = {"format": (0, 4), "zero": (4, 8), "first_lsn": (8, 16), "creator": (16, 48), "encryption": (48, 508)}
    fields["crc32c"] = (508, 512)
    for byte in range(512):
        for bit in range(8):
            bad = bytearray(data)
            bad[byte] ^= 1 << bit
            (found,) = opened(bytes(bad)).findings
            assert (found.id, found.facts["diagnosis"]) == ("checksum-mismatch", "redo-header-damaged")
            assert (found.facts["flipped_byte"], found.facts["flipped_bit"]) == (byte, bit)
            start, end = fields[str(found.facts["flipped_field"])]
            assert start <= byte < end and found.severity is Severity.ERROR


@pytest.mark.full
def test_every_bit_flip_of_a_checkpoint_block_is_named_and_the_other_block_is_used() -> None:
    data = sample()
    for base in (4096, 8192):
        for bit in range(64 * 8):
            bad = bytearray(data)
            bad[base + bit // 8] ^= 1 << bit % 8
            log = opened(bytes(bad))
            (found,) = log.findings
            assert (found.facts["diagnosis"], found.severity) == ("redo-checkpoint-damaged", Severity.WARNING)
            assert (found.offset, found.facts["flipped_byte"]) == (base, base + bit // 8)
            assert log.checkpoint is not None and log.checkpoint.offset == 12288 - base
            assert summarize_redo_log(log).mtrs == 81


def test_every_bit_flip_of_the_log_itself_ends_it_at_the_mini_transaction_that_it_is_in() -> None:
    data = sample()
    log = opened(data)
    for mtr in list(log.walk_mtrs())[::9]:
        for lsn in range(mtr.start_lsn, mtr.end_lsn, 3):
            bad, at = bytearray(data), log.offset_of_lsn(lsn)
            assert at is not None
            bad[at] ^= 1 << lsn % 8
            found = read_all(bytes(bad))
            assert found.end_lsn == mtr.start_lsn


def diagnoses(data: bytes) -> list[tuple[str, object]]:
    return [(one.id, one.facts.get("diagnosis")) for one in read_all(data).findings]


def test_no_checkpoint_and_files_that_are_too_small() -> None:
    data = bytearray(sample())
    data[4096:4160] = data[8192:8256] = bytes(64)
    assert diagnoses(bytes(data))[-1] == ("bad-header", "redo-no-checkpoint")
    for size in (0, 511, 512, 12287, 12288, 12303):
        assert diagnoses(sample()[:size]) == [("bad-header", "redo-too-small")]


def test_a_checkpoint_that_was_never_written_is_no_damage() -> None:
    data = bytearray(sample())
    data[4096:4160] = bytes(64)
    assert diagnoses(bytes(data)) == []


@pytest.mark.parametrize(("lsn", "end"), [(12_287, 20_000), (20_000, 19_999)])
def test_a_checkpoint_block_that_contradicts_itself_is_not_used(lsn: int, end: int) -> None:
    data = bytearray(sample())
    data[8192:8256] = make.checkpoint(lsn, end)
    assert diagnoses(bytes(data)) == [("bad-header", "redo-checkpoint-damaged")]


@pytest.mark.parametrize(
    ("format_", "said"),
    [(0, "3.23"), (1, "10.2"), (103, "10.3"), (104, "10.4"), (0x50485953, "10.5"), (0x80000001, "10.2")],
)
def test_older_formats_are_refused_in_one_line(format_: int, said: str) -> None:
    data = make.redo_log([], size=SIZE, head=make.header(make.START, format=format_))
    (found,) = read_all(data).findings
    assert (found.id, found.facts["diagnosis"]) == ("unsupported-version", "redo-older-format")
    assert said in found.message and "\n" not in found.message


def test_an_unknown_format_says_its_number() -> None:
    data = make.redo_log([], size=SIZE, head=make.header(make.START, format=0x12345678))
    (found,) = read_all(data).findings
    assert found.id == "unsupported-version" and "0x12345678" in found.message and "made" in found.message


@pytest.mark.parametrize("head", [make.header(make.START, format=0xF09F979D), make.header(make.START, key=b"\0\0\0\1")])
def test_of_an_encrypted_log_the_last_durable_lsn_is_found_without_a_key(head: bytes) -> None:
    bodies = [b"\x3c" + bytes(range(100, 112)), b"\x30\x39" + bytes(71)]
    data = make.redo_log(bodies, size=SIZE, head=head, nonce=b"nonce678", proof=False)
    found = read_all(data)
    assert found.end_lsn == make.START + (13 + 13) + (73 + 13) and found.mtrs == 2 and found.records == {}
    assert [one.facts.get("diagnosis") for one in found.findings] == ["redo-encrypted"]
    assert "encrypted" in found.findings[0].message and not list(iter_page_writes(opened(data)))


def test_a_log_without_its_file_checkpoint_proves_nothing() -> None:
    data = make.redo_log([make.write(5, 1, 10, b"a")], size=SIZE, proof=False)
    found = read_all(data)
    assert [one.facts.get("diagnosis") for one in found.findings] == ["redo-damaged-before-file-checkpoint"]
    assert not found.is_acceptable and found.mtrs == 1


def test_damage_inside_the_log_is_told_from_its_end() -> None:
    bodies = [make.write(5, page, 10, b"abc") for page in range(3)]
    data = bytearray(make.redo_log(bodies, size=SIZE))
    data[make.START + 16 + 5] ^= 1
    found = read_all(bytes(data))
    assert (found.end_lsn, found.reason) == (make.START + 16, RedoEndReason.CHECKSUM)
    (one,) = found.findings
    assert (one.id, one.facts["next_valid_lsn"]) == ("valid-after-damage", make.START + 16 + 12)


def test_a_ring_that_is_full_of_valid_mini_transactions_is_walked_once() -> None:
    unit = make.mtr(b"\x34abcd" * 50, make.START, make.START, 1 << 40)
    size = make.START + 4096 * len(unit)
    data = bytearray(make.redo_log([], size=size, older=unit, proof=False))
    found = summarize_redo_log(opened(bytes(data)))
    assert (found.mtrs, found.reason) == (4096, RedoEndReason.ROUND) and not found.is_acceptable
    assert found.end_lsn == make.START + 4096 * len(unit)


def test_records_without_an_end_are_given_up_after_a_mebibyte() -> None:
    data = make.redo_log([], size=make.START + (8 << 20), older=b"\x34abcd", proof=False)
    started = time.process_time()
    found = summarize_redo_log(opened(data))
    assert (found.mtrs, found.reason) == (0, RedoEndReason.TOO_LONG) and time.process_time() - started < 10
    assert MAX_MTR_BYTES < 8 << 20


def test_forged_records_with_right_checksums_never_raise() -> None:
    rng = random.Random(11)
    for _ in range(400):
        bodies = []
        for _ in range(rng.randrange(1, 8)):
            body = b""
            for _ in range(rng.randrange(1, 6)):
                first = rng.choice((0x00, 0x10, 0x20, 0x30, 0x30, 0x40, 0x50, 0x60, 0x70)) | rng.choice((0, 0, 0x80))
                space = rng.choice((make.EVEN, make.ODD, 0, 5, 2**32 - 1))
                content = make.varint(space) + make.varint(rng.choice((0, 1, 2, 200)))
                content += rng.randbytes(rng.randrange(40))
                content = rng.choice((content, rng.randbytes(rng.randrange(1, 30))))
                body += make.record(first, content if first else content[:15].ljust(2, b"\0"))
            bodies.append(body)
        found = read_all(make.redo_log(bodies, size=SIZE))
        assert found.mtrs == len(bodies) + 1


def test_many_corrupted_records_are_reported_within_a_bound() -> None:
    data = make.redo_log([make.record(0x60, b"\1\1a") * 5000], size=make.START + 40960)
    found = read_all(data)
    assert found.records["RESERVED"] == 5000
    assert len(found.findings) == 100 and {one.id for one in found.findings} == {"payload-undecodable"}


def test_header_fields_that_cannot_be_are_named() -> None:
    head = bytearray(make.header(100))
    (found,) = read_all(make.redo_log([], size=SIZE, head=bytes(head), first_lsn=make.START)).findings
    assert found.id == "bad-header" and "first_lsn is 100" in found.message
    head = bytearray(make.header(make.START))
    head[7] = 1
    head[508:] = crc32c.crc32c(bytes(head[:508])).to_bytes(4, "big")
    (found,) = read_all(make.redo_log([], size=SIZE, head=bytes(head))).findings
    assert found.id == "bad-header" and re.search("zero is 1", found.message)


def test_a_log_that_cannot_be_read_any_more_ends_there() -> None:
    data = sample()
    log = RedoLog(lambda offset, size: data[offset : min(offset + size, make.START + 100)], len(data))
    found = summarize_redo_log(log)
    assert found.reason in (RedoEndReason.SHORT, RedoEndReason.EMPTY) and not found.is_acceptable
    assert isinstance(found.findings[0], Finding)
