"""Every transaction of the corpus against an independent decoder, the manifests, and the servers' own words."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from tests.formats.manticore.oracle import ROOTS, expected_records, manifest, same_record
from tests.formats.manticore.sets import Directory, records

SETS = {
    "v16": (
        "clean-stop", "clean-stop-save-failed", "common-big-commit", "common-mixed-kill9", "common-one-table-flushed",
        "common-rotation-24k", "common-three-starts", "pertable-flushed", "pertable-mixed-kill9",
        "pertable-rotation-16k-digits6", "rtmode-create-drop-alter",
    ),
    "v15": (
        "clean-stop", "clean-stop-save-failed", "common-mixed-kill9", "common-one-table-flushed", "common-rotation-24k",
        "common-three-starts", "first-start-log-unlinked", "pertable-flushed", "pertable-mixed-kill9",
        "pertable-rotation-16k-digits6", "rtmode-create-drop-alter",
    ),
    "v14": ("clean-stop", "mixed-kill9", "rotation-24k"),
    "sphinx": ("clean-stop", "mixed-kill9", "one-index-flushed", "rotation-24k"),
}  # fmt: skip
ALL = [(version, name) for version, names in SETS.items() for name in names]
each_set = pytest.mark.parametrize(("version", "name"), ALL, ids=[f"{v}-{n}" for v, n in ALL])

PAYLOADS = {"update": "UPDATE_ATTRS", "commit": "COMMIT", "pq_add_delete": "PQ_ADD_DELETE"}


def dataset(corpus: Path, version: str, name: str) -> Any:
    return manifest(corpus, version)["datasets"][name]


def folder(corpus: Path, version: str, name: str) -> Path:
    return corpus / ROOTS[version] / name


@pytest.mark.parametrize("version", ROOTS)
def test_the_sets_tested_here_are_those_of_the_manifest(corpus: Path, version: str) -> None:
    assert set(SETS[version]) == set(manifest(corpus, version)["datasets"])


@each_set
def test_files_types_tables_and_tids_are_those_of_the_manifest(corpus: Path, version: str, name: str) -> None:
    seen = Directory(folder(corpus, version, name))
    files = dataset(corpus, version, name)["files"]
    assert set(seen.judged) == {file for file, facts in files.items() if not facts.get("lock")}
    for file, facts in files.items():
        if facts.get("lock"):
            continue
        report = seen.report(file)
        assert report.size == facts["size"]
        if "meta" in facts:
            _same_meta(report.details, facts["meta"])
            continue
        assert report.durable_end == facts["good_end"]
        assert report.records == facts["txns_total"]
        assert _types(report) == facts["txns_by_type"]
        assert {
            row["name"]: {k: v for k, v in row.items() if k != "name"} for row in report.details["tables"]
        } == facts["tables"]
        assert any(f.id == "checksum-absent" for f in report.findings) == facts["cache_crc_zero"]
        assert seen.facts(file).closed == facts["ends_with_cache"]


def _same_meta(details: Any, meta: Any) -> None:
    assert details["version"] == meta["version"]
    assert details["files"] == meta["files"]
    key = "digits" if "digits" in meta else "id64"
    assert details[key] == meta[key]


def _types(report: Any) -> dict[str, int]:
    types = dict(report.record_types)
    names = {value: key for key, value in PAYLOADS.items()}
    total = types.pop("ADD_TXN", 0)
    if total:
        inner = report.details["payloads"]
        assert sum(inner.values()) == total
        types |= {f"ADD_TXN/{names[kind]}": count for kind, count in inner.items()}
    return types


@each_set
def test_healthy_directories_have_notes_only(corpus: Path, version: str, name: str) -> None:
    seen = Directory(folder(corpus, version, name))
    found = [one for file in seen.judged for one in seen.all(file)]
    loud = [one for one in found if one.severity > Severity.NOTE]
    outside = [one for file, one in seen.found if file not in seen.judged]
    assert loud == []
    if name == "first-start-log-unlinked":  # the server's defect: the listed file never existed
        assert [(one.id, one.facts["diagnosis"]) for one in outside] == [("missing-member", "meta lists missing file")]
    else:
        assert outside == []


@each_set
def test_every_transaction_is_that_of_the_independent_decoder(corpus: Path, version: str, name: str) -> None:
    path = folder(corpus, version, name)
    for file, expected in expected_records(path).items():
        seen = records(file, (path / file).read_bytes())
        assert len(seen) == len(expected)
        for ours, theirs in zip(seen, expected, strict=True):
            same_record(ours, theirs)


RECOVERED = re.compile(
    r"binlog: (?:table|index) (\S+): (?:recovered from tid (\d+) to tid (\d+)|skipped at tid (\d+) .*)"
)
STATS = re.compile(r"binlog: replay stats: (?:\d+ rows in )?(\d+) commits")


@each_set
def test_the_server_replayed_what_is_seen_here(corpus: Path, version: str, name: str) -> None:
    """Counts and TIDs of the server's log at its next start, file by file in the order of the meta file."""
    log = (dataset(corpus, version, name).get("server_replay") or {}).get("log") or []
    seen, file, checked = Directory(folder(corpus, version, name)), "", 0
    reached: Counter[str] = Counter()
    for line in log:
        if match := re.search(r"replaying log <BINLOG_DIR>/(\S+)", line):
            file = match[1]
        elif match := RECOVERED.fullmatch(line):
            tables = {row["name"]: row for row in seen.report(file).details["tables"]}
            if match[3]:
                assert tables[match[1]]["max_tid"] == int(match[3])
                reached[match[1]] = int(match[3])
            checked += 1
        elif match := STATS.match(line):
            start = seen.report(file).details["server_start"]
            types = seen.report(file).record_types
            only = types.get("COMMIT", 0) if version in ("v14", "sphinx") else start["commits"]
            assert (only, start["action"]) == (int(match[1]), "replay")
            if tables_said := re.search(r"(\d+) (?:tables|indexes)$", line):
                assert start["tables"] == int(tables_said[1])
    assert checked == sum("recovered from tid" in line or "skipped at tid" in line for line in log)
