"""Every damaged case of the corpus: diagnosis, place, durable end, next provable block, and the server's own answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Finding, Severity
from binlogtool.verification.verify_report import Report
from tests.formats.tarantool.damages import build, cases, load

HARMLESS = {
    "none", "unknown_header_key", "inprogress_left", "torn_tail", "not_closed", "tx_crosses_block",
}  # fmt: skip
"""Diagnoses that need not be errors: the server copes with them and loses nothing that was durable."""


def everything(report: Report) -> list[tuple[str, Finding]]:
    """(file name, finding): those about files that are not there have the name of the set."""
    found = [(Path(one.path).name, f) for one in report.files for f in one.findings]
    return found + [("", f) for one in report.sets for f in one.findings]


def is_diagnosed(found: Finding, diagnosis: str) -> bool:
    return diagnosis in (found.facts.get("diagnosis"), found.id.replace("-", "_"))


@pytest.mark.parametrize("kind", ["damaged", "damaged_vinyl"])
def test_no_case_of_the_corpus_is_left_out(corpus: Path, kind: str) -> None:
    assert sorted(load(corpus, kind)) == sorted(cases(kind))


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("damaged", "damaged_vinyl") for name in cases(kind)]
)
def test_a_damage_is_diagnosed_at_its_place(corpus: Path, tmp_path: Path, kind: str, name: str) -> None:
    case = load(corpus, kind)[name]
    expected, server = case["expected"], case["tarantool_2_6"]
    report = binlogtool.verify([build(corpus, kind, case, tmp_path / "data")])
    found = everything(report)
    errors = [f for _, f in found if f.severity is Severity.ERROR]
    if expected["diagnosis"] == "none":
        assert errors == []
        return
    hits = [f for _, f in found if is_diagnosed(f, expected["diagnosis"])]
    assert hits, [f.message for _, f in found]
    if expected["offset"] is not None:
        assert expected["offset"] in {f.offset for f in hits}
    assert _check_file(report, expected) == (name in LOST_BEFORE_SOUND_ROWS)
    if expected["diagnosis"] not in HARMLESS or not server["start"]["started"]:
        assert errors
    else:
        assert errors == []


LOST_BEFORE_SOUND_ROWS = {
    "flip_plain_block", "flip_zstd_block", "flip_stored_crc", "fixheader_length_past_eof", "fixheader_length_too_big",
    "fixheader_length_too_small", "fixheader_length_not_uint", "fixheader_padding_broken", "magic_broken",
    "zeroed_512_bytes", "good_crc_bad_msgpack_header", "good_crc_row_cut_short", "good_crc_zstd_frame_cut",
}  # fmt: skip
"""Cases in whose damaged file sound rows follow the lost ones, which the report names then."""


def _check_file(report: Report, expected: dict[str, Any]) -> bool:
    """Holds what is said of the damaged file against the manifest; True if the lost rows were among it."""
    about = [one for one in report.files if one.path.endswith(expected["file"])]
    for one in about:
        assert sum(one.bytes.values()) == one.size
        if any("proof" in f.facts for f in one.findings):  # read with that bit put right: all of it is durable
            assert (one.durable_end, one.size) == (8032, 8036)
        elif "durable_end" in expected:
            assert one.durable_end == expected["durable_end"]
        if "closed" in expected:
            assert one.closed == expected["closed"]
        if "next_good_block" in expected:
            ends = {f.facts.get("next_provable") for f in one.findings}
            ends |= {(f.offset or 0) + f.length for f in one.findings if f.offset == expected["offset"]}
            assert expected["next_good_block"] in ends
    lost = {tuple(row) for row in expected.get("rows_lost", ())}
    if about and lost and "valid-after-damage" in {f.id for f in about[0].findings}:
        named = {(r, n) for r, low, high in about[0].details.get("lost", ()) for n in range(low, high + 1)}
        assert named == lost
        return True
    return False


@pytest.mark.parametrize("name", ["fixheader_length_past_eof", "fixheader_length_too_big", "magic_broken",
                                  "fixheader_length_not_uint", "fixheader_padding_broken"])  # fmt: skip
def test_a_whole_payload_behind_a_broken_header_is_proven(corpus: Path, tmp_path: Path, name: str) -> None:
    case = load(corpus, "damaged")[name]
    report = binlogtool.verify([build(corpus, "damaged", case, tmp_path / "data")])
    proven = [f.facts for _, f in everything(report) if f.facts.get("payload_intact")]
    assert [facts["payload_end"] for facts in proven] == [case["expected"]["next_good_block"]]


def test_blocks_that_were_appended_behind_torn_bytes_are_found(corpus: Path) -> None:
    report = binlogtool.verify([corpus / "tarantool" / "generated" / "appended_after_torn"])
    (bad,) = [one for one in report.files if one.findings]
    assert bad.path.endswith("00000000000000000334.xlog")
    assert {f.id for f in bad.findings} == {"checksum-mismatch", "damaged-range", "valid-after-damage"}
    assert bad.durable_end == 138


THIRD_PARTY_FAULTS = {
    "crc.bad.xlog", "eof.bad.xlog", "format.bad.xlog", "version.bad.xlog", "bad_xlog", "good_xlog", "not_finished_xlog",
    "gh_8146_data",
}  # fmt: skip
"""Samples that other projects broke on purpose: mixed transactions, a row without its space id, broken headers."""


@pytest.mark.full_corpus
def test_intact_files_of_other_projects_have_no_errors(corpus: Path) -> None:
    root = corpus / "tarantool" / "third-party"
    checked = 0
    for one in json.loads((root / "manifest.json").read_text()):
        path = root / one.get("file", "")
        if path.suffix not in (".xlog", ".snap", ".vylog", ".run", ".index"):
            continue
        (report,) = binlogtool.verify([path]).files
        broken = bool(THIRD_PARTY_FAULTS & {path.name, path.parent.name})
        errors = [f.message for f in report.findings if f.severity is Severity.ERROR]
        assert bool(errors) == broken, (path, errors)
        checked += 1
    assert checked > 100


@pytest.mark.full_corpus
def test_directories_of_other_projects_agree_with_themselves(corpus: Path) -> None:
    root = corpus / "tarantool" / "third-party"
    for folder in (
        "go-xlog/testdata/historical/2.11", "go-xlog/testdata/historical/3.0", "go-xlog/testdata/historical/3.8",
        "tarantool/test/vinyl/upgrade/2.5.1/gh-5107-upsert-upgrade", "tarantool/test/vinyl-luatest/gh_9965_data",
        "tarantool/test/replication-luatest/upgrade/2.11.1/master",
        "tarantool/test/replication-luatest/upgrade/2.11.1/replica",
    ):  # fmt: skip
        assert everything(binlogtool.verify([root / folder])) == [], folder
