"""Every damaged file of the corpus through the whole product, against its manifest; and the words for damage."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Severity, make_finding
from binlogtool.format_api.format import FileHead
from binlogtool.formats.drizzle.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.verification.verify_report import FileReport
from tests.formats.drizzle.make import insert, log, message
from tests.formats.drizzle.walk import entries, judge, pack
from tests.harness.slowness import slowness

TORN = ("header", "type-only", "payload", "checksum", "no-checksum-bytes", "then-restarted")
CASES = [f"torn-{case}" for case in TORN] + [
    "bitflip-checksum", "bitflip-length-small", "bitflip-payload", "bitflip-type", "entry-duplicated", "entry-missing",
    "garbage-tail", "length-above-int-max", "length-oversize", "length-zero", "nochecksum-parse-error",
    "nochecksum-silent-flip", "nochecksum-torn-payload", "segment-missing", "unterminated-transaction", "zero-hole",
    "zero-hole-whole-entries", "zero-tail", "zero-tail-short",
]  # fmt: skip
INTACT = {"entry-missing", "nochecksum-silent-flip"}
"""Nothing can be noticed here; the manifest says so too."""
MISLABELLED = {"segment-missing"}
"""The file is the intact beginning of segmented.log: nothing is missing in it. See the test about it."""
BYTES_VALID = {"entry-duplicated", "unterminated-transaction"}
"""Every entry is good; the finding is about what they say together."""


def verified(path: Path, backend: str = "python") -> FileReport:
    report = binlogtool.verify([path], format="drizzle", backend=backend)
    assert report.failures == ()
    return report.files[0]


def first(report: FileReport) -> Any:
    """The first finding that is about the data's damage."""
    return next((one for one in report.findings if one.id != "checksum-absent"), None)


def after_damage(report: FileReport) -> int:
    return sum(one.facts["records"] for one in report.findings if one.id == "valid-after-damage")


def test_every_damaged_file_is_tested(corpus: Path) -> None:
    listed = json.loads((corpus / "drizzle/generated/manifest.json").read_text())["damaged"]
    assert {f"damaged/{case}.log" for case in CASES} == set(listed)


@pytest.mark.parametrize("case", CASES)
def test_the_diagnosis_is_that_of_the_manifest(corpus: Path, case: str) -> None:
    root = corpus / "drizzle" / "generated"
    manifest = json.loads((root / "manifest.json").read_text())["damaged"][f"damaged/{case}.log"]
    expected = manifest["expected"]
    report = verified(root / f"damaged/{case}.log")
    assert hashlib.sha256((root / f"damaged/{case}.log").read_bytes()).hexdigest() == manifest["sha256"]
    assert sum(report.bytes.values()) == report.size == manifest["size"]
    found = first(report)
    if case in INTACT | MISLABELLED:
        assert found is None
        assert report.durable_end == report.size
        return
    assert found.facts["diagnosis"] == expected["diagnosis"]
    assert found.offset == expected["first_bad_offset"]
    if case in BYTES_VALID:
        assert report.durable_end == report.size
        assert found.severity < Severity.ERROR
        return
    assert report.records == expected["good_entries_before"] + expected["good_entries_after_damage"]
    assert after_damage(report) == expected["good_entries_after_damage"]
    assert found.record == expected["good_entries_before"]
    assert report.durable_end == expected["first_bad_offset"]


@pytest.mark.parametrize("case", CASES)
def test_what_would_be_cut_is_what_the_manifest_says(corpus: Path, case: str) -> None:
    root = corpus / "drizzle" / "generated"
    expected = json.loads((root / "manifest.json").read_text())["damaged"][f"damaged/{case}.log"]["expected"]
    plan = binlogtool.plan_truncate(root / f"damaged/{case}.log", format="drizzle", backend="python")
    (file,) = plan.files
    if case in INTACT | MISLABELLED | BYTES_VALID:
        assert expected["truncate_to"] is None
        assert (plan.refused, file.action) == (False, "none")
    elif expected["truncate_to"] is None:
        assert plan.refused and "valid-after-damage" in plan.reasons[0]
    else:
        assert not plan.refused
        assert (file.action, file.durable_end) == ("truncate", expected["truncate_to"])


def test_the_file_called_segment_missing_is_an_intact_beginning(corpus: Path) -> None:
    """Its manifest speaks of a gap; its bytes are the first three entries of segmented.log, none of them missing."""
    root = corpus / "drizzle" / "generated"
    data, whole = (root / "damaged/segment-missing.log").read_bytes(), (root / "segmented.log").read_bytes()
    assert whole.startswith(data)
    assert [offset for offset, _ in entries(data)] == [0, 276, 137051]
    assert judge(data)[0] == []


@pytest.mark.parametrize(("removed", "where"), [(1, 276), (4, 236393 + 160)])
def test_a_segment_that_is_really_missing_is_a_gap(corpus: Path, removed: int, where: int) -> None:
    data = (corpus / "drizzle/generated/segmented.log").read_bytes()
    offsets = [offset for offset, _ in entries(data)] + [len(data)]
    assert offsets[removed] == where
    found, _ = judge(data[: offsets[removed]] + data[offsets[removed + 1] :])
    gap = next(one for one in found if one.id == "gap-in-sequence")
    assert gap.severity is Severity.ERROR
    assert gap.facts["diagnosis"] == "segment gap"
    assert "segment 2, expected 1" in gap.message


# -- small samples that ship with the project -----------------------------------------------------------------------


def test_the_shipped_samples_are_read_as_their_list_says(samples: Path) -> None:
    root = samples / "drizzle"
    expected = json.loads((root / "expected.json").read_text())
    for name, facts in expected["files"].items():
        report = verified(root / name)
        assert hashlib.sha256((root / name).read_bytes()).hexdigest() == facts["sha256"]
        assert report.records == facts["entries"]
        assert report.details["statements"] == facts["statements_by_type"]
        assert all(one.severity < Severity.ERROR for one in report.findings)
    for name, facts in expected["damaged"].items():
        report = verified(root / name)
        assert first(report).facts["diagnosis"] == facts["diagnosis"]
        assert first(report).offset == facts["first_bad_offset"]
        assert after_damage(report) == facts["good_entries_after_damage"]


# -- words for damage -----------------------------------------------------------------------------------------------

GOOD = log(message(1, insert()), message(2, insert()))
ENTRY = pack(message(1, insert()))
LAYOUT = FORMAT.reading.layout(FileHead(GOOD, "x", len(GOOD)), Limits())


def explained(data: bytes, id_: str, length: int | None = None) -> Any:
    assert FORMAT.validation.explain_damage is not None
    found = make_finding(id_, 1000, len(data) if length is None else length, "what the engine says", more=1)
    return FORMAT.validation.explain_damage(LAYOUT, memoryview(data), 1000, found)


def header(length: int) -> bytes:
    return struct.pack("<II", 1, length) + ENTRY[8:]


def test_the_engines_facts_and_words_are_kept() -> None:
    got = explained(b"\x03" + ENTRY[1:], "bad-magic")
    assert got.message == "bad entry type: what the engine says"
    assert got.facts == {"more": 1, "diagnosis": "bad entry type"}
    assert (got.id, got.offset) == ("bad-magic", 1000)


def test_a_wrong_length_of_an_intact_message_is_given_right() -> None:
    size = len(ENTRY) - 12
    for length, diagnosis in [
        (0, "empty message / framing lost"),
        (2**31, "length above INT_MAX"),
        (2**31 - 1, "length beyond end of file"),
    ]:
        got = explained(header(length) + ENTRY, "length-out-of-bounds")
        assert (got.facts["diagnosis"], got.facts["length_should_be"]) == (diagnosis, size)
    got = explained(header(size - 4) + ENTRY, "checksum-mismatch")
    assert (got.facts["diagnosis"], got.facts["length_should_be"]) == ("framing lost", size)
    got = explained(header(size + 9) + ENTRY, "checksum-mismatch")
    assert (got.facts["diagnosis"], got.facts["length_should_be"]) == ("framing lost", size)


def test_an_entry_that_was_torn_before_another_is_told() -> None:
    torn = ENTRY[:30] + ENTRY
    for id_ in ("checksum-mismatch", "length-out-of-bounds"):
        got = explained(torn, id_)
        assert got.facts["diagnosis"] == "torn entry inside the log (server restarted after a crash)"
        assert got.facts["next_entry"] == 1030


def test_a_changed_byte_is_a_checksum_mismatch_and_nothing_more() -> None:
    damaged = bytearray(ENTRY + ENTRY)
    damaged[30] ^= 0x40
    assert explained(bytes(damaged), "checksum-mismatch").facts["diagnosis"] == "checksum mismatch"
    assert explained(bytes(damaged[: len(ENTRY)]), "checksum-mismatch").facts["diagnosis"] == "checksum mismatch"


def test_a_hole_of_zeros_is_told() -> None:
    holed = ENTRY[:20] + bytes(len(ENTRY) - 24) + ENTRY[-4:]
    for data, id_ in [(bytes(64), "bad-magic"), (holed, "checksum-mismatch"), (holed, "payload-undecodable")]:
        assert explained(data, id_).facts["diagnosis"] == "zero hole / framing lost"


def test_a_message_that_does_not_parse_says_where() -> None:
    message_ = b"\x0a\x16" + ENTRY[10:20]
    got = explained(pack(message_, checksum=False), "payload-undecodable")
    assert got.facts["diagnosis"] == "message does not parse"
    assert "transaction_context" in got.message
    assert "22 bytes declared, 10 left" in got.message
    got = explained(pack(b"\x28\x01", checksum=False), "payload-undecodable")
    assert "required members are missing: transaction_context" in got.message


def test_a_blob_without_checksum_is_not_provable() -> None:
    assert (
        explained(pack(b"x" * 20, checksum=False, kind=2), "payload-undecodable").facts["diagnosis"] == "not provable"
    )


@pytest.mark.parametrize(
    ("size", "missing"), [(3, "header"), (9, "message"), (-5, "message"), (-4, "checksum"), (-1, "checksum")]
)
def test_a_torn_tail_tells_what_is_missing(size: int, missing: str) -> None:
    got = explained(ENTRY[:size], "torn-tail")
    assert (got.facts["diagnosis"], got.facts["missing"]) == ("torn tail", missing)


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8, 11, 12, 20])
@pytest.mark.parametrize(
    "id_",
    ["bad-magic", "length-out-of-bounds", "checksum-mismatch", "payload-undecodable", "torn-tail", "unclean-close"],
)
def test_any_bytes_can_be_explained(size: int, id_: str) -> None:
    for data in (ENTRY[:size], bytes(size), b"\xff" * size):
        assert explained(data, id_).id == id_


def test_the_search_for_an_intact_message_is_bounded() -> None:
    import time

    entries_of_lies = b"\x01\x00\x00\x00\x00\x00\x02\x00" * (1 << 21)  # each claims 128 KiB
    for hostile in (entries_of_lies, header(2**30)[:8] + b"\x28\x01" * (1 << 22)):
        began = time.process_time()
        explained(hostile, "checksum-mismatch")
        explained(hostile, "length-out-of-bounds")
        assert time.process_time() - began < 2 * slowness()
