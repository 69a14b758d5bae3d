"""Agreement with the real server: what its own recovery log says, and the files that its recovery class left."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.formats.innodb import redo_log as redo_log_module
from binlogtool.formats.innodb.redo_log import RedoLog, iter_page_writes, summarize_redo_log
from binlogtool.formats.innodb.redo_records import RedoRecordType
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    PageRelation,
    compare_page_with_recovered,
    make_recovery_file,
)
from tests.formats.mariadb_innodb_binlog.redo_make import START, redo_log

CASES = 15
"""Crash cases of the corpus."""


@pytest.fixture(scope="session")
def samples(corpus: Path) -> Path:
    return corpus / "mariadb-innodb-binlog" / "generated"


@pytest.fixture(scope="session")
def manifest(samples: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((samples / "manifest.json").read_text())
    return loaded


def opened(data: bytes) -> RedoLog:
    return RedoLog(lambda offset, size: data[offset : offset + size], len(data))


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def test_last_lsn_and_checkpoint_are_those_of_the_servers_own_recovery_log(
    samples: Path, manifest: dict[str, Any]
) -> None:
    logs = mtrs = records = 0
    for sample in manifest["redo"]:
        log = opened(unpacked(samples / sample["file"]))
        found, said, facts = summarize_redo_log(log), sample["server_reported"], sample["facts"]
        assert found.checkpoint_lsn == said["starting_crash_recovery_from_checkpoint_lsn"]
        assert found.end_lsn == said["end_of_log_lsn"] == said["log_sequence_number_after_start"]
        assert log.header is not None
        assert f"{log.header.format:#010x}" == facts["format"]
        assert (log.header.creator, log.header.first_lsn) == (facts["creator"], facts["first_lsn"])
        assert [
            {"offset": one.offset, "checkpoint_lsn": one.checkpoint_lsn, "end_lsn": one.end_lsn, "valid": one.is_valid}
            for one in log.checkpoints
        ] == facts["checkpoint_blocks"]
        assert found.mtrs == facts["mtrs_from_checkpoint"]
        assert found.records == facts["records_by_type"]
        assert [list(pair) for pair in found.file_checkpoints] == facts["file_checkpoint_records"]
        assert found.file_checkpoint_lsn == facts["end_lsn"]
        assert found.findings == () and found.is_acceptable and not found.is_clean_shutdown
        assert not list(iter_page_writes(log))
        logs, mtrs, records = logs + 1, mtrs + found.mtrs, records + sum(found.records.values())
    print(f"{logs} real redo logs, {mtrs} mini-transactions, {records} records: 0 differences")
    assert logs == 2 and mtrs == 8559


def test_damaged_real_logs_end_where_the_server_said(samples: Path, manifest: dict[str, Any]) -> None:
    seen = 0
    for sample in manifest["redo"]:
        for variant in sample["damage_variants"]:
            data = bytearray(unpacked(samples / sample["file"]))
            for offset, mask in variant["xor"]:
                data[offset] ^= mask
            found, expected = summarize_redo_log(opened(bytes(data))), variant["expected"]
            assert found.checkpoint_lsn == expected.get("checkpoint_lsn")
            assert found.end_lsn == expected.get("durable_lsn")
            diagnoses = [one.facts.get("diagnosis") for one in found.findings]
            assert expected.get("diagnosis", diagnoses[0]) == diagnoses[0]
            assert found.is_acceptable == ("diagnosis" not in expected)
            seen += 1
    assert seen == 4


def test_every_crash_case_has_the_redo_facts_of_the_manifest(samples: Path, manifest: dict[str, Any]) -> None:
    for case in manifest["crash_cases"]:
        log, facts = opened(unpacked(samples / case["dir"] / "ib_logfile0.gz")), case["redo"]
        found, writes = summarize_redo_log(log), list(iter_page_writes(log))
        assert (found.checkpoint_lsn, found.end_lsn) == (facts["checkpoint_lsn"], facts["durable_lsn"])
        assert found.file_checkpoint_lsn == facts["file_checkpoint_found_at"]
        assert found.mtrs == facts["mtrs_after_checkpoint"]
        assert found.binlog_writes == len(writes) == facts["binlog_write_records"]
        assert found.findings == ()
        assert found.is_clean_shutdown == (case["dir"] in ("crash/c06-clean", "crash/c07-no-redo-disk-ahead"))
        last = facts["last_binlog_write"]
        if last is not None:
            record = writes[-1].record
            assert record.space_id is not None
            assert (record.space_id & 1, record.page_no, record.offset, record.length, writes[-1].end_lsn) == (
                last["space_bit"], last["page"], last["offset"], last["length"], last["mtr_end_lsn"]
            )  # fmt: skip
    assert len(manifest["crash_cases"]) == CASES


def test_recovery_leaves_every_file_byte_for_byte_as_the_real_class_did(
    samples: Path, manifest: dict[str, Any]
) -> None:
    relations: Counter[str] = Counter()
    for case in manifest["crash_cases"]:
        folder, real = samples / case["dir"], case["real_recovery"]
        disk = {int(path.name[7:13]): unpacked(path) for path in folder.glob("binlog-*.ibb.gz")}
        log = opened(unpacked(folder / "ib_logfile0.gz"))
        files = [make_recovery_file(number, data[:PAGE_SIZE], len(data)) for number, data in disk.items()]
        recovery = BinlogRecovery(iter_page_writes(log), files)
        for page in recovery.iter_pages():
            data = disk.get(page.file_no, b"")
            at = page.page_no * PAGE_SIZE
            relations[compare_page_with_recovered(data[at : at + PAGE_SIZE], page)] += 1
            disk[page.file_no] = data[:at].ljust(at, b"\0") + page.data + data[at + PAGE_SIZE :]
        outcome = recovery.outcome
        if outcome.page_count is not None and outcome.file_no is not None and outcome.page_no is not None:
            kept = disk[outcome.file_no][: (outcome.page_no + 1) * PAGE_SIZE]
            disk[outcome.file_no] = kept.ljust(outcome.page_count * PAGE_SIZE, b"\0")
        after = {number: data for number, data in disk.items() if number not in outcome.removed}
        assert {
            f"binlog-{number:06}.ibb": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for number, data in after.items()
        } == real["files_after"], case["dir"]
        assert [f"binlog-{number:06}.ibb" for number in outcome.removed] == real["files_removed"]
        said = json.loads(real["stdout"])
        assert outcome.writes == said["records"] and outcome.succeeds
        end = (outcome.file_no or 0, outcome.page_no or 0, outcome.offset or 0)
        assert end == (said.get("file", 0), said.get("page", 0), said.get("off", 0))
        missing = case["dir"] == "crash/c15-file-missing"
        assert [one.facts["diagnosis"] for one in outcome.findings] == ["missing-file"] * missing
    print(f"{CASES} crash cases equal byte for byte; recovered pages against disk: {dict(relations)}")
    assert relations[PageRelation.CONFLICT] == 0
    assert set(relations) == {"equal", "disk ahead", "disk behind", "torn"}


@pytest.mark.full
def test_cut_and_flipped_logs_of_the_corpus_end_in_findings(samples: Path, manifest: dict[str, Any]) -> None:
    rng, cuts, silent, flips, ended = random.Random(3), 0, 0, 0, 0
    names = [(case["dir"] + "/ib_logfile0.gz", 1) for case in manifest["crash_cases"]]
    names += [(sample["file"], 128) for sample in manifest["redo"]]
    for name, stride in names:
        data = unpacked(samples / name)
        log = opened(data)
        whole = summarize_redo_log(log)
        assert whole.end_lsn is not None and whole.checkpoint_lsn is not None and log.header is not None
        for end in range(0, len(data), 512 * stride):
            found, cuts = summarize_redo_log(opened(data[:end])), cuts + 1
            if not found.findings:
                silent += 1  # cut behind the end of a log in its first round: nothing that recovery needs is missing
                assert (
                    found.end_lsn
                    == whole.end_lsn
                    == log.header.first_lsn + (log.offset_of_lsn(whole.end_lsn) or 0) - START
                )
                assert (log.offset_of_lsn(whole.end_lsn) or 0) <= end and end % 4096 == 0
        used = (log.offset_of_lsn(whole.checkpoint_lsn) or 0, log.offset_of_lsn(whole.end_lsn - 1) or 0)
        for _ in range(60 // (1 + stride // 16)):
            bad, at = bytearray(data), rng.choice((rng.randrange(len(data)), rng.randrange(used[0], max(used) + 1)))
            bad[at] ^= 1 << rng.randrange(8)
            found, flips = summarize_redo_log(opened(bytes(bad))), flips + 1
            if found.end_lsn is not None:
                assert found.end_lsn <= whole.end_lsn
                ended += 1
            if at < 512:
                assert found.findings
    print(f"{cuts} cuts ({silent} behind the end of the log, without a finding), {flips} flipped bits: no exception")
    assert silent > 0 and ended > flips // 2


def test_offsets_that_are_relative_to_the_write_before_stay_inside_the_page(
    samples: Path, manifest: dict[str, Any]
) -> None:
    """innodb_page_size was 16384; the server writes nothing into the first 8 bytes of a page."""
    changes = types = copies = 0
    for sample in manifest["redo"]:
        previous = None
        for mtr in opened(unpacked(samples / sample["file"])).walk_mtrs():
            for record in mtr.decode_records():
                assert record.problem == ""
                if record.offset is not None:
                    assert record.offset >= 8 and record.offset + record.length <= 16384
                    changes += 1
                    if record.source is not None:
                        assert 8 <= record.source <= 16384 - record.length
                        copies += 1
                if previous is not None and previous.type is RedoRecordType.INIT_PAGE and record.same_page:
                    # INIT_PAGE leaves the current offset at the type of the page, of which the low byte is written
                    assert (record.offset, record.length) == (25, 1) and record.data[0] in (2, 3, 5, 6, 8, 10)
                    types += 1
                previous = record
    print(f"{changes} changes of pages inside their page; {types} page types behind INIT_PAGE")
    assert changes == 14958 + 3419 + 1060 + 10498 + 2009 and types == 8
    assert copies > 0


def test_a_real_log_reads_the_same_from_every_place_in_the_ring_and_through_small_windows(
    samples: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(unpacked(samples / "crash" / "c09-lagging-checkpoint" / "ib_logfile0.gz"))
    assert log.checkpoint is not None
    plain, bodies = summarize_redo_log(log), [mtr.body for mtr in log.walk_mtrs()]
    for place in range(0, 20480, 509):
        first = 10_000_000 + (-place % 20480)
        moved = redo_log(bodies, size=START + 20480, first_lsn=first, lsn=10_020_480 + 20480, proof=False)
        found = summarize_redo_log(opened(moved))
        assert (found.mtrs, found.records) == (plain.mtrs, plain.records)
        assert plain.end_lsn is not None and plain.checkpoint_lsn is not None and found.end_lsn is not None
        assert found.end_lsn - 10_040_960 == plain.end_lsn - plain.checkpoint_lsn
    big = opened(unpacked(samples / "redo" / "crash-wrapped.ib_logfile0.gz"))
    whole = [(mtr.start_lsn, mtr.end_lsn) for mtr in big.walk_mtrs()]
    monkeypatch.setattr(redo_log_module, "_WINDOW_BYTES", redo_log_module.MAX_MTR_BYTES)
    assert [(mtr.start_lsn, mtr.end_lsn) for mtr in big.walk_mtrs()] == whole
