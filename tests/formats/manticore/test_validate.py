"""What is found in logs that are whole by their checksums, and in directories; with hostile ones among them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from binlogtool.findings import Finding, Severity
from binlogtool.formats.manticore.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.verification.verify_logs import LogVerifyOptions
from tests.formats.manticore.make import (
    add_cache,
    add_index,
    add_txn,
    killed,
    log,
    meta,
    old_index,
    old_txn,
    txn,
    zint,
    zstring,
)
from tests.formats.manticore.sets import Directory, annotation, head, records, segments, verified

NAME = "binlog.0000"


def findings(data: bytes, name: str = NAME, backend: str = "python") -> dict[str, Finding]:
    """By diagnosis."""
    return {
        str(one.facts.get("diagnosis")): one for one in verified(name, data, LogVerifyOptions(backend=backend)).findings
    }


def rows(tables: int = 1, count: int = 3) -> list[bytes]:
    """Tables and transactions in order."""
    out = []
    for table in range(tables):
        out.append(add_index(table, b"t%d" % table))
        out += [add_txn(table, tid, killed(tid)) for tid in range(1, count + 1)]
    return out


# -- one file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["python", "native"])
def test_a_healthy_log_has_no_findings_and_its_numbers(backend: str) -> None:
    report = verified(NAME, log(*rows(2, 300)), LogVerifyOptions(backend=backend))
    assert report.findings == ()
    assert report.transactions == 600
    assert [(t["name"], t["min_tid"], t["max_tid"], t["txns"]) for t in report.details["tables"]] == [
        ("t0", 1, 300, 300),
        ("t1", 1, 300, 300),
    ]
    assert report.details["payloads"] == {"COMMIT": 600}
    assert (report.first_seq, report.last_seq) == (None, 300)


@pytest.mark.parametrize("backend", ["python", "native"])
@pytest.mark.parametrize(
    ("tids", "diagnosis", "severity"),
    [
        ((1, 2, 4), "TID gap", Severity.WARNING),
        ((1, 2, 2), "repeated TID", Severity.ERROR),
        ((5, 6, 3), "descending TID", Severity.ERROR),
    ],
)
def test_tids_rise_by_one(tids: tuple[int, ...], diagnosis: str, severity: Severity, backend: str) -> None:
    parts = [add_index(0, b"t"), *(add_txn(0, tid, killed(1)) for tid in tids)]
    found = findings(log(*parts), backend=backend)
    assert set(found) == {diagnosis}
    assert found[diagnosis].severity is severity
    assert found[diagnosis].offset == 8 + sum(map(len, parts[:3]))
    assert found[diagnosis].length == len(parts[3])


def test_a_gap_that_a_damage_explains_is_not_told_again() -> None:
    parts = rows(1, 5)
    parts[3] = b"\xee" * len(parts[3])
    found = findings(log(*parts))
    assert "missing txn magic" in found and "TID gap" not in found


def test_an_undeclared_table_is_told_once_and_ends_what_is_durable() -> None:
    first = rows(1, 2)
    report = verified(NAME, log(*first, add_txn(7, 1, killed(1)), add_txn(7, 2, killed(1))))
    (found,) = report.findings
    assert (found.id, found.facts["table_id"], found.severity) == ("dangling-reference", 7, Severity.ERROR)
    assert report.durable_end == found.offset == len(log(*first))
    assert report.details["server_start"]["action"] == "refuse"


def test_ids_of_tables_are_given_in_order() -> None:
    assert "table ids out of order" in findings(log(add_index(1, b"t"), add_txn(1, 1, killed(1))))


def test_a_name_may_be_declared_once() -> None:
    assert "table declared twice" in findings(log(add_index(0, b"t"), add_index(1, b"t")))


def test_names_lost_with_their_add_index_are_given_back_by_add_cache() -> None:
    parts = rows(2, 2)
    parts[3] = parts[3][:-1] + bytes([parts[3][-1] ^ 1])
    report = verified(NAME, log(*parts, add_cache((b"t0", 1, 2, 0), (b"t1", 1, 2, 0))))
    assert [table["name"] for table in report.details["tables"]] == ["t0", "t1"]


@pytest.mark.parametrize(
    ("cache", "agrees"),
    [
        (add_cache((b"t0", 1, 3, 0)), True),
        (add_cache((b"t0", 1, 3, 0), crc=None), True),
        (add_cache((b"t0", 1, 4, 0)), False),
        (add_cache((b"tx", 1, 3, 0)), False),
        (add_cache((b"t0", 1, 3, 0), (b"t1", 0, 0, 0)), False),
        (add_cache(), False),
    ],
)
def test_add_cache_must_agree_with_the_file(cache: bytes, agrees: bool) -> None:
    found = findings(log(*rows(), cache))
    assert ("cache mismatch" not in found) == agrees
    assert ("known writer defect" in found) == cache.endswith(bytes(4))


def test_the_defect_of_the_writer_is_a_note_and_counts_as_durable() -> None:
    data = log(*rows(), add_cache((b"t0", 1, 3, 3)))
    report = verified(NAME, data)
    assert [(one.id, one.severity) for one in report.findings] == [("checksum-absent", Severity.NOTE)]
    assert report.durable_end == len(data)


def test_a_checksum_of_zero_is_an_error_on_everything_else() -> None:
    report = verified(NAME, log(add_index(0, b"t"), txn(b"\x02\x00\x01" + struct.pack("<I", 3) + b"\x01\x00\x00", 0)))
    assert [one.id for one in report.findings] == ["checksum-mismatch"]


def test_nothing_may_follow_add_cache() -> None:
    found = findings(log(*rows(), add_cache((b"t0", 1, 3, 0)), add_txn(0, 4, killed(1))))
    assert found["ADD_CACHE is not last"].severity is Severity.ERROR


@pytest.mark.parametrize("backend", ["python", "native"])
@pytest.mark.parametrize("payload", [b"", killed(1) + b"x", killed(1)[:-1], b"\x01\x00\xff\xff\xff\x7f", b"\x09abc"])
def test_a_payload_must_be_consumed_exactly(payload: bytes, backend: str) -> None:
    parts = [*rows(), add_txn(0, 4, payload)]
    report = verified(NAME, log(*parts), LogVerifyOptions(backend=backend))
    (found,) = report.findings
    assert (found.id, found.offset) == ("payload-undecodable", len(log(*parts[:-1])))
    assert report.durable_end == found.offset
    assert isinstance(records(NAME, log(*parts))[-1]["body"], Finding)


COMMITS = {
    "its row vector": b"\x01\x02\x00" + b"\x00" * 4 + b"\x03" + bytes(12) + b"\x00\x00\x00\x00\x00",
    ("its number of documents differs"): b"\x01\x02\x00"
    + b"\x00" * 4
    + b"\x02"
    + bytes(8)
    + b"\x00\x00\x01\x01\x00\x00\x00",
    "outside the dictionary": b"\x01\x02\x00\x01a\x01\x01\x00\x00\x00\x02" + bytes(8) + b"\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("backend", ["python", "native"])
@pytest.mark.parametrize("words", COMMITS)
def test_the_numbers_of_a_commit_must_agree(words: str, backend: str) -> None:
    report = verified(NAME, log(*rows(), add_txn(0, 4, COMMITS[words])), LogVerifyOptions(backend=backend))
    (found,) = report.findings
    assert (found.id, found.severity, found.record) == ("count-out-of-bounds", Severity.WARNING, 4)
    assert words in found.message


@pytest.mark.parametrize("backend", ["python", "native"])
def test_a_number_longer_than_needed_is_a_note(backend: str) -> None:
    body = b"\x02\x80\x00" + zint(4) + struct.pack("<I", 3) + b"\x01\x00\x00"
    report = verified(NAME, log(*rows(), txn(body)), LogVerifyOptions(backend=backend))
    assert [(one.id, one.severity) for one in report.findings] == [("varint-overlong", Severity.NOTE)]
    assert report.details["tables"][0]["txns"] == 4


@pytest.mark.parametrize("version", [2, 3])
def test_versions_before_that_of_sphinx_2_0_are_read_like_it_and_said_to_be_best_effort(version: int) -> None:
    """Numbers below 128 and a text's length look the same in both orders, but the text's length is one byte there."""
    index = b"\x03\x00\x01t\x01\x0a"
    data = log(txn(index), txn(b"\x01\x00\x01\x0a\x00\x00"), version=version)
    report = verified("binlog.001", data)
    assert [(one.severity, one.facts["diagnosis"]) for one in report.findings] == [(Severity.NOTE, "best effort")]
    assert report.record_types == {"ADD_INDEX": 1, "COMMIT": 1}


@pytest.mark.parametrize("version", [6, *range(8, 14)])
def test_versions_without_real_files_are_said_to_be_best_effort(version: int) -> None:
    data = log(old_index(0, b"t", 1, 10), old_txn(1, 0, 1, 10, payload=b"\x00\x00"), version=version)
    report = verified("binlog.001", data)
    assert [(one.severity, one.facts["diagnosis"]) for one in report.findings] == [(Severity.NOTE, "best effort")]
    assert report.record_types == {"ADD_INDEX": 1, "COMMIT": 1}


@pytest.mark.parametrize(("op", "starts"), [(0, False), (9, False), (1, True)])
def test_sphinx_does_not_start_where_zeros_follow_the_mark_of_a_transaction_unless_it_knows_its_operation(
    samples: Path, op: int, starts: bool
) -> None:
    """What searchd 2.2.11 did with these files: `unexpected entry (blop=0, pos=625)`; of a commit: a wrong checksum."""
    data = bytearray((samples / "guides" / "sphinx-torn" / "binlog.001").read_bytes())
    assert data[625:629] == b"TXN!" and not any(data[629:])
    data[629] = op
    (found,) = verified("binlog.001", bytes(data)).findings
    assert (found.id, found.facts["server"]) == ("torn-tail", "drop" if starts else "refuse")


def test_time_goes_on_in_old_logs() -> None:
    parts = [
        old_index(0, b"t", 1, 50),
        old_txn(1, 0, 1, 50, payload=b"\x00\x00"),
        old_txn(1, 0, 2, 40, payload=b"\0\0"),
    ]
    report = verified("binlog.001", log(*parts, version=5))
    assert [one.id for one in report.findings] == ["time-regression"]
    assert [one["time"] for one in records("binlog.001", log(*parts, version=5))] == [50, 50, 40]


def test_reconfigure_ends_where_its_checksum_fits() -> None:
    settings = b"opaque TXN! settings" * 3
    parts = [
        old_index(0, b"t", 1, 5),
        old_txn(5, 0, 1, 5, payload=settings),
        old_txn(1, 0, 2, 5, payload=b"\x00\x00"),
        old_txn(5, 0, 3, 5, payload=settings),
    ]
    seen = records("binlog.001", log(*parts, version=5))
    assert [one["type"] for one in seen] == ["ADD_INDEX", "RECONFIGURE", "COMMIT", "RECONFIGURE"]
    assert [one["body"].get("payload") for one in seen[1::2]] == [settings, settings]


@pytest.mark.parametrize("op", [6, 7, 8])
def test_old_percolate_operations_are_decoded(op: int) -> None:
    text = struct.pack("<I", 3) + b"abc"
    query = zint(9) + b"\x01" + text + text + b"\x00\x00"
    payload = {6: query, 7: b"\x01\x09" + text, 8: b"\x01\x05\x01\x09\x01" + query}[op]
    data = log(old_index(0, b"t", 1, 5), old_txn(op, 0, 1, 5, payload=payload), version=12)
    body = records("binlog.001", data)[1]["body"]["payload"]
    if op == 7:
        assert body == {"n_del_ids": 1, "del_ids": [9], "tags": "abc"}
    else:
        stored = body if op == 6 else body["new"][0]
        assert (stored["id"], stored["query"], stored["tags"]) == (9, "abc", "abc")


# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "score"),
    [
        (NAME, log(), 100),
        ("anything", meta([0]), 100),
        (NAME, b"", 20),
        ("binlog.meta", b"nonsense", 30),
        (NAME, b"SPBX" + log(*rows())[4:], 70),
        (NAME, b"\xfebin" + bytes(100), 0),
        ("other", b"", 0),
    ],
)
def test_files_are_told_by_their_content(name: str, data: bytes, score: int) -> None:
    assert FORMAT.reading.detect(head(data, name)).score == score


def test_a_file_without_its_magic_is_read_and_nothing_in_it_is_durable() -> None:
    report = verified(NAME, b"SPBX" + log(*rows())[4:])
    assert (report.records, report.durable_end) == (4, 0)
    assert [one.id for one in report.findings] == ["bad-magic"]


def test_a_cluster_seqno_file_is_named_and_not_read() -> None:
    report = verified("mcrpl_00", b"SPBL" + struct.pack("<I", 1) + b"\x01" + bytes(64))
    assert report.findings[0].facts["diagnosis"] == "cluster seqno file, not a table binlog"
    assert report.records == 0


@pytest.mark.parametrize("version", [0, 17, 0xFFFFFFFF])
def test_an_unknown_version_is_an_error_and_frames_are_still_found(version: int) -> None:
    report = verified(NAME, log(*rows(), version=version))
    assert [one.id for one in report.findings] == ["unsupported-version"]
    assert report.records == 4


# -- directories -------------------------------------------------------------------------------------------------------


def directory(path: Path, **files: bytes) -> Directory:
    """Files by the end of their names."""
    for end, data in files.items():
        (path / f"binlog.{end.strip('_')}").write_bytes(data)
    return Directory(path)


def set_findings(seen: Directory) -> list[tuple[str, str, str]]:
    return [(file, one.id, str(one.facts["diagnosis"])) for file, one in seen.found]


def test_a_whole_directory_has_no_findings(tmp_path: Path) -> None:
    later = log(add_index(0, b"t0"), add_txn(0, 4, killed(1)))
    seen = directory(tmp_path, meta=meta([0, 1]), _0000=log(*rows(), add_cache((b"t0", 1, 3, 0))), _0001=later)
    assert seen.found == []
    assert list(seen.judged) == ["binlog.meta", "binlog.0000", "binlog.0001"]
    assert seen.report("binlog.meta").details["files"] == [0, 1]


def test_the_order_is_that_of_the_meta_file(tmp_path: Path) -> None:
    first, later = log(*rows()), log(add_index(0, b"t0"), add_txn(0, 4, killed(1)))
    assert directory(tmp_path, meta=meta([1, 0]), _0000=later, _0001=first).found[0][1].id == "unclean-close"
    wrong = directory(tmp_path, meta=meta([0, 1]))
    assert ("binlog.0001", "sequence-regression", "TIDs not rising between files") in set_findings(wrong)


def test_missing_and_extra_files_are_found_by_number(tmp_path: Path) -> None:
    seen = directory(tmp_path, meta=meta([0, 3]), _0000=log(*rows()), _0004=log(*rows()), _0009=log())
    assert set_findings(seen) == [
        ("binlog.0003", "missing-member", "meta lists missing file"),
        ("binlog.0004", "extra-member", "orphan log file"),
        ("binlog.0009", "extra-member", "orphan log file"),
    ]
    severities = {file: one.severity for file, one in seen.found}
    assert severities["binlog.0004"] is Severity.ERROR  # the counter's next value: overwritten by the first commit
    assert severities["binlog.0009"] is Severity.NOTE


def test_a_left_over_of_a_rewrite_is_a_note_and_not_the_meta_file(tmp_path: Path) -> None:
    (tmp_path / "binlog.meta.new").write_bytes(meta([7]))
    seen = directory(tmp_path, meta=meta([0]), _0000=log(*rows()))
    assert seen.found == []
    assert [one.severity for one in seen.report("binlog.meta.new").findings] == [Severity.NOTE]


@pytest.mark.parametrize(
    ("data", "diagnosis"),
    [
        (meta([0, 0]), "file listed twice"),
        (meta([0]) + b"rest", "trailing bytes"),
        (meta([0], setting=0), "meta digits"),
        (meta([0], count=2), "meta torn in the file list"),
        (meta([0])[:8], "meta torn"),
        (b"SPLI", "meta torn"),
        (b"", "meta torn"),
        (meta([0], version=99), "meta version newer than known"),
        (meta([0], version=1), "meta version unknown"),
        (meta([0], version=14, setting=0), "meta id64"),
    ],
)
def test_faults_of_the_meta_file_have_names(data: bytes, diagnosis: str) -> None:
    assert diagnosis in findings(data, "binlog.meta")


# -- hostile input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2**31, 2**63, 2**64 - 1])
def test_a_meta_file_that_lists_billions_of_files_is_read_at_once(tmp_path: Path, count: int) -> None:
    seen = directory(tmp_path, meta=meta([0], count=count), _0000=log(*rows()))
    (found,) = seen.report("binlog.meta").findings
    assert (found.id, found.facts["listed"]) == ("count-out-of-bounds", 1)


def test_a_long_meta_file_is_bounded(tmp_path: Path) -> None:
    numbers = range(100_000)
    seen = directory(tmp_path, meta=meta(numbers), _0000=log(*rows()))
    report = seen.report("binlog.meta")
    assert report.size == len(meta(numbers))
    assert report.findings[0].facts["diagnosis"] == "meta too long"
    assert len(seen.found) <= 101


def test_names_of_members_are_made_of_numbers_only(tmp_path: Path) -> None:
    seen = directory(tmp_path, meta=meta([2**64 - 1, 10**6, 5]))
    assert sorted(file for file, _ in seen.found) == [
        "binlog.0005",
        "binlog.1000000",
        "binlog.18446744073709551615",
    ]


@pytest.mark.parametrize("name", [b"../../etc/passwd", b"a\x1b[31m\x00b", b"\xff\xfe", b"", b"x" * 5000])
def test_any_table_name_is_data(name: bytes) -> None:
    data = log(add_index(0, name), add_txn(0, 1, killed(1)), add_cache((name, 1, 1, 0), crc=None))
    report = verified(NAME, data)
    assert report.records == 3
    assert records(NAME, data)[1]["object"] == name.decode("utf-8", "backslashreplace")
    assert [one.facts.get("diagnosis") for one in report.findings] == []


HOSTILE = {
    "usize": txn(b"\x02\x00\x01" + b"\xff\xff\xff\xff" + b"\x01"),
    "zint": txn(b"\x02" + b"\xff" * 30),
    "zint in a name": txn(b"\x01\x00" + b"\xff" * 9 + b"\x7f" + b"t"),
    "cache count": txn(b"\x03" + b"\xff" * 8 + b"\x7f"),
    "id": add_txn(2**64 - 1, 2**64 - 1, killed(1)),
    "index id": add_index(2**63, b"t"),
    "pool": add_txn(0, 4, b"\x00\x00" + zint(2**62) + bytes(20)),
    "docstore": add_txn(0, 4, b"\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01" + zint(2**40)),
    "columnar": add_txn(0, 4, b"\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(40)),
    "queries": add_txn(0, 4, b"\x02\x00\x00" + zint(2**50)),
    "filters": add_txn(0, 4, b"\x02\x00\x00\x01\x01\x01\x00\x00" + zint(2**33) + zint(2**33)),
    "many tags": add_txn(0, 4, b"\x02" + zint(300_000) + b"\x01" * 300_000 + b"\x00\x00"),
    "many rows": add_txn(0, 4, b"\x01" + zint(2**63) + b"\x00" * 12),
    "cache of empties": add_cache(*[(b"", 0, 0, 0)] * 2000, crc=None),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("backend", ["python", "native"])
def test_hostile_numbers_are_findings(case: str, backend: str) -> None:
    data = log(*rows(), HOSTILE[case], add_txn(0, 5, killed(1)))
    report = verified(NAME, data, LogVerifyOptions(backend=backend))
    assert sum(report.bytes.values()) == len(data)
    whole = case == "many tags"  # a long list, and a true one
    assert any(one.severity is Severity.ERROR for one in report.findings) != whole
    assert records(NAME, data)[-1]["seq"] == 5
    assert annotation(NAME, data).rows[-1].end == len(data)


def test_a_usize_beyond_the_file_at_its_end_is_a_torn_tail() -> None:
    report = verified(NAME, log(*rows(), HOSTILE["usize"]))
    (found,) = report.findings
    assert (found.id, found.offset, report.durable_end) == ("torn-tail", len(log(*rows())), len(log(*rows())))


def test_a_body_that_would_take_too_much_memory_is_not_decoded() -> None:
    data = log(add_index(0, b"t"), add_txn(0, 1, b"\x01\x00" + zint(9000) + bytes(72000)))
    context, segment = next(segments(NAME, data))
    body = FORMAT.output.decode_bodies(context, segment, 1, 2, Limits(max_memory=1 << 16))[0]
    assert isinstance(body, Finding) and body.severity is Severity.NOTE


def test_text_in_bodies_is_text_or_bytes() -> None:
    payload = b"\x00\x01" + zstring(b"s") + b"\x07\x02" + struct.pack("<II", 0, 2) + b"\x01" + struct.pack("<q", -5)
    payload += b"\x00" + b"\x04\xff\xfe\x00\x00"
    body = records(NAME, log(add_index(0, b"t"), add_txn(0, 1, payload)))[1]["body"]["payload"]
    assert body["documents"] == [{"docid": -5, "values": {"s": b"\xff\xfe"}}]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_behind_a_header_end_in_findings(seed: int) -> None:
    import random

    noise = random.Random(seed)
    pieces = [
        noise.choice([b"TXN!", b"\x01", b"\x02", b"\x80", b"\xff", b"\x00", noise.randbytes(3)]) for _ in range(800)
    ]
    for version in (5, 14, 16):
        data = log(b"".join(pieces), version=version)
        report = verified(NAME, data)
        assert sum(report.bytes.values()) == len(data)
        assert report.durable_end == 8


def test_the_name_of_the_file_may_be_anything() -> None:
    for name in ("binlog.00001234567890123456789", os.path.join("a", "binlog.x"), "x"):
        assert verified(name, log(*rows())).records == 4
