"""Every damaged directory of the corpus: diagnosis, offset, durable end, what follows, and what the server does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from tests.formats.manticore.oracle import ROOTS, expected_records, manifest
from tests.formats.manticore.sets import Directory

DIAGNOSES = {
    "flip-payload": "bad CRC",
    "flip-crc": "bad CRC",
    "flip-in-flushed-table": "bad CRC",
    "flip-first-add-index": "bad CRC",
    "table-id-wrong": "bad CRC",
    "length-plus-7": "wrong length",
    "length-huge": "wrong length",
    "torn-mid-txn": "torn tail",
    "torn-last-byte": "torn tail",
    "torn-in-magic": "torn tail",
    "torn-after-magic": "torn tail",
    "cache-torn": "torn tail",
    "garbage-between": "missing txn magic",
    "zero-tail": "zero tail",
    "zero-hole": "zero hole",
    "lost-txn": "TID gap",
    "dup-last-txn": "repeated TID",
    "swapped-txns": "descending TID",
    "no-add-index": "unknown table id",
    "payload-op-unknown": "unknown payload op",
    "unknown-op": "unknown op",
    "log-magic": "file magic bad",
    "log-version-older": "header version differs from meta",
    "log-version-newer": "header version differs from meta",
    "log-empty": "empty file",
    "log-header-only": "empty file",
    "log-short-header": "header torn",
    "log-missing": "meta lists missing file",
    "meta-magic": "meta magic bad",
    "meta-torn": "meta torn in the file list",
    "meta-version-newer": "meta version newer than known",
    "meta-no-files": "orphan log file",
    "meta-missing": "log files without meta",
    "orphan-log": "orphan log file",
    "meta-digits": "meta digits do not match file names",
    "cache-mismatch": "cache mismatch",
    "cache-lost": "ADD_CACHE missing",
}
"""The manifests say it in sentences; these are the words for `facts["diagnosis"]`."""


NAMED_OTHERWISE = {
    ("v15", "meta-version-newer"): "header version differs from meta",  # 16, which is known here
    ("sphinx", "meta-version-newer"): "header version differs from meta",  # 6
}


NOT_IN_SPHINX = {"length-plus-7", "length-huge", "meta-digits", "payload-op-unknown", "flip-in-flushed-table"}


def cases() -> list[tuple[str, str]]:
    names = {
        "v16": set(DIAGNOSES) | {"flip-in-flushed-table"},
        "v15": {
            "flip-crc", "length-huge", "torn-mid-txn", "garbage-between", "flip-first-add-index", "log-version-older",
            "log-version-newer", "log-short-header", "meta-version-newer",
        },
        "v14": {
            "flip-payload", "flip-crc", "torn-mid-txn", "garbage-between", "swapped-txns", "flip-first-add-index",
            "unknown-op", "log-version-older",
        },
        "sphinx": set(DIAGNOSES) - NOT_IN_SPHINX,
    }  # fmt: skip
    return [(version, name) for version, own in names.items() for name in sorted(own)]


each_case = pytest.mark.parametrize(("version", "name"), cases(), ids=[f"{v}-{n}" for v, n in cases()])


def case(corpus: Path, version: str, name: str) -> Any:
    return next(one for one in manifest(corpus, version)["damaged"] if one["name"] == name)


def directory(corpus: Path, version: str, name: str) -> Directory:
    return Directory(corpus / ROOTS[version] / "damaged" / name)


@pytest.mark.parametrize("version", ROOTS)
def test_the_cases_tested_here_are_those_of_the_manifest(corpus: Path, version: str) -> None:
    listed = {one["name"] for one in manifest(corpus, version)["damaged"]}
    assert {name for at, name in cases() if at == version} == listed


@each_case
def test_the_damage_is_found_and_named(corpus: Path, version: str, name: str) -> None:
    seen = directory(corpus, version, name)
    found = [one for file in seen.judged for one in seen.judged[file].report.findings] + [one for _, one in seen.found]
    wanted = NAMED_OTHERWISE.get((version, name), DIAGNOSES[name])
    named = [one for one in found if one.facts.get("diagnosis") == wanted]
    assert named, [(one.id, dict(one.facts)) for one in found]
    # normal states; and the very first TID of a table, which may as well have been saved
    quiet = name in ("log-empty", "log-header-only", "cache-lost") or (version, name) == ("v16", "lost-txn")
    assert (max(one.severity for one in named) > Severity.NOTE) != quiet


@each_case
def test_durable_end_and_place_are_those_of_the_reference_scan(corpus: Path, version: str, name: str) -> None:
    facts = case(corpus, version, name)
    reference = facts.get("reference_scan")
    seen = directory(corpus, version, name)
    if not reference or facts["file"] not in seen.judged:
        pytest.skip("the damage is in the meta file, the log is missing, or the reference scan did not read it")
    report = seen.report(facts["file"])
    assert report.size == reference["file_size"]
    if (version, name) == ("v15", "log-version-older"):  # the reference believes the head; here one bit is put right
        assert (report.durable_end, report.records) == (
            5453,
            31,
        )  # the server read 27 commits and 4 tables of the original
        return
    assert report.durable_end == reference["durable_end"]
    if reference["bad_at"] is not None:
        bad = [one for one in report.findings if one.severity > Severity.NOTE and (one.offset or 0) >= 8]
        assert bad[0].offset == reference["bad_at"]


HOLES = (
    "flip-payload", "flip-crc", "table-id-wrong", "length-plus-7", "length-huge", "zero-hole",
    "unknown-op", "flip-first-add-index", "garbage-between",
)  # fmt: skip


@pytest.mark.parametrize(("version", "name"), [one for one in cases() if one[1] in HOLES])
def test_the_next_provable_transaction_is_the_one_that_follows(corpus: Path, version: str, name: str) -> None:
    facts = case(corpus, version, name)
    base = expected_records(corpus / ROOTS[version] / facts["based_on"])[facts["file"]]
    bad = facts["reference_scan"]["bad_at"]
    following = next(one["offset"] for one in base if one["offset"] > bad)
    if name == "garbage-between":
        following = bad + 23
    report = directory(corpus, version, name).report(facts["file"])
    (skipped,) = [one for one in report.findings if one.id == "damaged-range"]
    assert (skipped.offset, skipped.facts["next_provable"]) == (bad, following)
    (behind,) = [one for one in report.findings if one.id == "valid-after-damage"]
    assert behind.facts["records"] == sum(one["offset"] >= bad for one in base) - (name != "garbage-between")


@pytest.mark.parametrize("version", ["v16", "v15"])
def test_the_right_usize_is_proven_by_the_checksum(corpus: Path, version: str) -> None:
    for name in ("length-plus-7", "length-huge"):
        listed = [one for one in manifest(corpus, version)["damaged"] if one["name"] == name]
        for facts in listed:
            base = expected_records(corpus / ROOTS[version] / facts["based_on"])[facts["file"]]
            whole = next(one for one in base if one["offset"] == facts["reference_scan"]["bad_at"])
            report = directory(corpus, version, name).report(facts["file"])
            said = next(one.facts["uSize_should_be"] for one in report.findings if "uSize_should_be" in one.facts)
            assert said == whole["usize"]


def actions(seen: Directory) -> set[str]:
    """All that findings and files say about a start of the server."""
    files = {one.report.details.get("server_start", {}).get("action") for one in seen.judged.values()}
    found = {one.facts.get("server") for file in seen.judged for one in seen.judged[file].report.findings}
    return (files | found | {one.facts.get("server") for _, one in seen.found}) - {None}


@each_case
def test_a_start_of_the_server_is_foretold(corpus: Path, version: str, name: str) -> None:
    """Refusal, and deletion of the log, as the real server did it. It had saved nothing but what the case names."""
    said = case(corpus, version, name)["server_says"]
    seen = directory(corpus, version, name)
    if "server_started" not in said:
        pytest.fail(json.dumps(said)[:500])
    if (version, name) in SAVED_BEFORE:
        pytest.skip("the tables had saved what the log holds, which is not in the corpus")
    assert ("refuse" in actions(seen)) == (not said["server_started"])
    if said["server_started"]:
        left = {file for file, _ in said["binlog_dir_after_start"]}
        logs = {file: judged for file, judged in seen.judged.items() if file.startswith("binlog.0")}
        for file, judged in logs.items():
            assert (judged.report.details["server_start"]["action"] == "delete") == (file not in left), file
        orphans = [file for file in logs
                   if any(one.facts.get("diagnosis") == "orphan log file" for one in seen.all(file))]  # fmt: skip
        assert len(orphans) == (name in ("orphan-log", "meta-no-files"))


@pytest.mark.parametrize(("version", "name"), [(v, n) for v, n in cases() if n in ("meta-missing", "meta-no-files")])
def test_an_overwriting_start_is_foretold(corpus: Path, version: str, name: str) -> None:
    """Specification, section 12.3, and the manifest's key `special`: overwritten at the first commit."""
    seen = directory(corpus, version, name)
    errors = [one for _, one in seen.found if one.severity is Severity.ERROR]
    assert [one.facts["server"] for one in errors] == ["overwrite"]


SAVED_BEFORE = {
    ("v16", "flip-in-flushed-table"),  # the table had saved this transaction: the server only drops the rest
}
