"""Every damaged file of the corpus through the whole product, against its manifest; and the words for damage."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Severity, make_finding
from binlogtool.format_api.format import FileHead
from binlogtool.formats.eblob.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.verification.verify_report import FileReport
from tests.formats.eblob.make import header, key, noticed, overwrite, record, remove, verified

HEADER = ("hdr-magic", "hdr-magic-no-nul", "hdr-version2", "hdr-flags-unknown", "big-endian")
"""The header alone is wrong: the manifest counts the records as those readable when it is overridden."""
UNREADABLE = ("hdr-short", "zero-bytes")
WARNED = ("hdr-pad-nonzero", "rec-pad-nonzero")
IN_RECORD = (
    "rec-type-zero", "rec-type-2", "rec-type-65535", "rec-flags", "rec-data-oversize", "rec-data-negative",
    "rec-size-wraps", "stale-records-after-append",
)  # fmt: skip
LATER = ("rec-meta-flip", "zero-hole")
"""The damage shows only at `detectable_at`, behind a record that looks intact."""
TORN = ("torn-header", "torn-one-byte", "torn-meta", "torn-header-only", "torn-data", "garbage-tail")
ZEROS = ("zero-tail", "zero-tail-unaligned")
IN_GROUP = ("instance-control-key", "instance-control-size", "instance-data-flip")
SILENT = (
    "key-flip", "data-flip", "rec-split-shifted", "body-lost-zeroes", "record-missing", "record-duplicated",
    "torn-data-then-appended",
)  # fmt: skip
"""Nothing can be noticed; the manifest says so too."""
CASES = (*HEADER, *UNREADABLE, *WARNED, *IN_RECORD, *LATER, *TORN, *ZEROS, *IN_GROUP, *SILENT)
BACKENDS = ("python", "native")

Expected = dict[str, Any]


def facts(corpus: Path, case: str) -> Any:
    return json.loads((corpus / "eblob/generated/manifest.json").read_text())["damaged"][f"damaged/{case}.binlog"]


def judged(corpus: Path, case: str, backend: str = "python") -> tuple[FileReport, Expected]:
    path, listed = corpus / f"eblob/generated/damaged/{case}.binlog", facts(corpus, case)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == listed["sha256"]
    report = binlogtool.verify([path], format="eblob", backend=backend)
    assert report.failures == ()
    (file,) = report.files
    assert file.size == listed["size"] == sum(file.bytes.values())
    return file, listed["expected"]


def diagnosed(report: FileReport, diagnosis: str) -> Any:
    return next(f for f in report.findings if f.facts.get("diagnosis") == diagnosis)


def after_damage(report: FileReport) -> int:
    return sum(f.facts["records"] for f in report.findings if f.id == "valid-after-damage")


def test_every_damaged_file_is_tested(corpus: Path) -> None:
    listed = json.loads((corpus / "eblob/generated/manifest.json").read_text())["damaged"]
    assert {f"damaged/{case}.binlog" for case in CASES} == set(listed)


@pytest.mark.parametrize("case", HEADER)
def test_a_wrong_header_is_told_and_the_records_are_read_all_the_same(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    found = diagnosed(report, expected["diagnosis"])
    assert found.offset == expected["first_bad_offset"]
    assert found.severity is (Severity.WARNING if case == "big-endian" else Severity.ERROR)
    assert report.records == expected["good_records_after_damage"]


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_without_a_whole_header_has_no_durable_end(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    found = diagnosed(report, expected["diagnosis"])
    assert (found.offset, found.severity) == (expected["first_bad_offset"], Severity.ERROR)
    assert (report.records, report.durable_end) == (0, None)


@pytest.mark.parametrize("case", WARNED)
def test_reserved_bytes_are_a_warning(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    found = diagnosed(report, expected["diagnosis"])
    assert (found.offset, found.severity) == (expected["first_bad_offset"], Severity.WARNING)
    assert (report.records, report.durable_end) == (expected["good_records_before"], expected["truncate_to"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", IN_RECORD)
def test_a_broken_record_is_told_and_the_records_behind_it_are_found(corpus: Path, case: str, backend: str) -> None:
    report, expected = judged(corpus, case, backend)
    found = diagnosed(report, expected["diagnosis"])
    assert (found.offset, found.record) == (expected["first_bad_offset"], expected["good_records_before"])
    assert report.durable_end == expected["first_bad_offset"]
    assert report.records == expected["good_records_before"] + expected["good_records_after_damage"]
    assert after_damage(report) == expected["good_records_after_damage"]
    skipped = next(f for f in report.findings if f.id == "damaged-range")
    assert skipped.facts["next_provable"] == 25541  # record 61 of api-small, as its trace says


@pytest.mark.parametrize(
    ("case", "before", "after", "durable", "landing"),
    [("rec-meta-flip", 61, 58, 25301, 25744), ("zero-hole", 61, 56, 25541, 26651)],
)
def test_damage_that_shows_later_is_told_where_it_shows(
    corpus: Path, case: str, before: int, after: int, durable: int, landing: int
) -> None:
    """58 in place of 59: the search starts behind the record whose header was swallowed; the manifest accepts it."""
    report, expected = judged(corpus, case)
    found = [f for f in report.findings if f.facts.get("diagnosis") == expected["diagnosis"]]
    assert expected["detectable_at"] in {f.offset for f in found}
    assert (report.records, after_damage(report)) == (before + after, after)
    assert before == expected["intact_looking_records_before"]
    assert report.durable_end == durable
    assert next(f for f in report.findings if f.id == "damaged-range").facts["next_provable"] == landing
    if case == "rec-meta-flip":
        assert found[0].offset == expected["first_bad_offset"]
        assert found[0].facts["swallowed_header"] == 25541


@pytest.mark.parametrize("case", TORN + ZEROS)
def test_a_tail_is_told_by_its_kind(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    found = diagnosed(report, expected["diagnosis"])
    assert found.severity < Severity.ERROR
    assert found.offset == expected["truncate_to"] == report.durable_end
    assert report.records == expected["good_records_before"]


@pytest.mark.parametrize("case", IN_GROUP)
def test_records_of_a_group_that_contradict_each_other_are_told(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    (found,) = [f for f in report.findings if f.id != "checksum-absent"]
    assert found.facts["diagnosis"] == expected["diagnosis"]
    assert (found.offset, found.record) == (expected["first_bad_offset"], expected["good_records_before"])
    assert found.severity is Severity.ERROR
    assert report.durable_end == report.size
    assert report.records == expected["good_records_before"] + 1 + expected["good_records_after_damage"]


def test_what_cannot_be_noticed_is_what_the_manifest_says(corpus: Path) -> None:
    listed = json.loads((corpus / "eblob/generated/manifest.json").read_text())["damaged"]
    silent = {Path(name).stem for name, case in listed.items() if "detectable" in case["expected"]["diagnosis"]}
    assert silent == set(SILENT)


@pytest.mark.parametrize("case", SILENT)
def test_what_cannot_be_noticed_is_not_noticed_and_the_report_says_that_it_cannot(corpus: Path, case: str) -> None:
    report, expected = judged(corpus, case)
    assert max(f.severity for f in report.findings) is Severity.NOTE
    assert (report.records, report.durable_end) == (expected["good_records_before"], report.size)
    absent = next(f for f in report.findings if f.id == "checksum-absent")
    assert absent.facts["diagnosis"] == "no checksum"
    if case == "rec-split-shifted":
        intact = binlogtool.verify([corpus / "eblob/generated/api-small.binlog"], format="eblob").files[0]
        counts = [diagnosed(one, "metadata size is not 8").facts["records"] for one in (intact, report)]
        assert counts[1] == counts[0] + 1


@pytest.mark.parametrize("case", CASES)
def test_what_would_be_cut_is_what_the_manifest_says(corpus: Path, case: str) -> None:
    expected = facts(corpus, case)["expected"]
    path = corpus / f"eblob/generated/damaged/{case}.binlog"
    plan = binlogtool.plan_truncate(path, format="eblob", backend="python")
    (file,) = plan.files
    if case in (*WARNED, *SILENT, "big-endian"):
        assert expected["truncate_to"] in (None, file.size)
        assert (plan.refused, file.action) == (False, "none")
    elif expected["truncate_to"] is None:
        assert plan.refused
    else:
        assert not plan.refused
        assert (file.action, file.durable_end) == ("truncate", expected["truncate_to"])


# -- words for damage -----------------------------------------------------------------------------------------------

INTACT = header() + overwrite(1, b"first user data") + remove(2) + overwrite(3, b"second", start=20000)
FIRST, REMOVAL = 256, 256 + (151 + 208 + 232)


def changed(at: int, new: bytes, data: bytes = INTACT) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("at", "new", "diagnosis"),
    [
        (0, b"\0", "end of records inside the data: type 0 with valid records after it"),
        (0, b"\x02", "bad record type"),
        (24, b"\x01", "record flags not zero"),
        (16, b"\xff" * 8, "meta_size + data_size overflows"),
        (16, b"\0" * 7 + b"\x80", "size above 2^63"),
        (16, b"\0" * 7 + b"\x02", "size larger than any file"),
        (16, b"\0\0\0\x01", "record runs past the end of the file"),
        (0, b"any text of forty letters, not a header!", "next record header is not valid"),
        (0, bytes(136), "broken record, resync needed"),
    ],
)
def test_each_broken_header_has_its_word_and_the_next_record_is_found(at: int, new: bytes, diagnosis: str) -> None:
    report = verified(changed(REMOVAL + at, new))
    assert diagnosed(report, diagnosis).offset == REMOVAL
    assert report.records == 6
    assert after_damage(report) == 3
    assert report.durable_end == REMOVAL


def test_a_record_whose_size_reaches_over_the_next_header_is_told_as_the_broken_one() -> None:
    swollen = changed(FIRST + 151 + 208 + 16, (96 + 40).to_bytes(8, "little"))  # the control block before the removal
    report = verified(swollen)
    found = diagnosed(report, "next record header is not valid")
    assert (found.offset, found.facts["swallowed_header"]) == (REMOVAL - 232, REMOVAL)
    assert report.durable_end == REMOVAL - 232
    assert after_damage(report) == 3


def test_records_behind_the_rest_of_an_overwritten_record_may_be_older() -> None:
    """As eblob leaves it: a short record appended over a longer one that it could not read."""
    appended = record(key(9), (5096).to_bytes(8, "little"), b"x")
    stale = header() + appended + overwrite(1, b"u" * 300)[len(appended) :] + remove(2)
    report = verified(stale)
    found = diagnosed(report, "bytes after the last record are not zero; older records follow")
    assert found.offset == 256 + len(appended)
    assert after_damage(report) == 3


def test_a_hostile_size_allocates_nothing_and_ends() -> None:
    for meta in (1 << 63, (1 << 64) - 128, (1 << 64) - 1, 1 << 55):
        for data in (0, (1 << 63) - 128, (1 << 64) - 1):
            hostile = changed(REMOVAL + 8, meta.to_bytes(8, "little") + data.to_bytes(8, "little"))
            report = verified(hostile)
            assert report.durable_end == REMOVAL
            assert after_damage(report) == 3


LAYOUT = FORMAT.reading.layout(FileHead(INTACT, "x.binlog", len(INTACT)), Limits())


@pytest.mark.parametrize("size", [0, 1, 31, 127, 128, 300])
@pytest.mark.parametrize("id_", ["bad-magic", "length-out-of-bounds", "bad-header", "torn-tail", "zero-tail", "x"])
def test_any_bytes_can_be_explained(size: int, id_: str) -> None:
    assert FORMAT.validation.explain_damage is not None
    known = "garbage-tail" if id_ == "x" else id_
    for data in (INTACT[256 : 256 + size], bytes(size), b"\xff" * size):
        told = FORMAT.validation.explain_damage(
            LAYOUT, memoryview(data), 256, make_finding(known, 256, size, "the engine's words")
        )
        assert "the engine's words" in told.message
        assert told.facts["diagnosis"]


def test_zeros_behind_the_last_record_are_reserved_space_where_the_header_says_so() -> None:
    for flags, id_ in ((1, "preallocated-tail"), (4, "zero-tail")):
        (found,) = [f for f in verified(header(flags) + remove(2) + bytes(5000)).findings if f.id != "checksum-absent"]
        assert (found.id, found.severity) == (id_, Severity.NOTE)
    assert noticed(verified(header() + bytes(5000)))[0][0] == "zero-tail"
