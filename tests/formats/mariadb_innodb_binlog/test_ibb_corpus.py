"""Every fact of the corpus about pages, records, states, groups, damage and crashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs

SAMPLES = (
    "basic", "oob", "xa", "flush", "bigstate", "edges", "flush-exact-end", "restart", "page4k", "dbase",
)  # fmt: skip
DAMAGED = tuple(range(22))
CRASHES = tuple(range(15))

FOUND_MORE = {"damaged/d04-header-zeroed", "damaged/d18-page-size"}
"""Variants whose lost header the tool can do without, so that it reads groups that the list leaves out."""


def sample(corpus: Path, name: str) -> tuple[Path, dict[str, Any], int]:
    known = next(one for one in logs.manifest(corpus)["samples"] if one["dir"] == name)
    return corpus / logs.FORMAT / "generated" / name, known["facts"], known["parameters"]["page_size"]


def test_all_samples_are_looked_at(corpus: Path) -> None:
    known = logs.manifest(corpus)
    assert {one["dir"] for one in known["samples"]} == set(SAMPLES)
    assert (len(known["damaged"]), len(known["crash_cases"])) == (len(DAMAGED), len(CRASHES))


@pytest.mark.parametrize("name", SAMPLES)
def test_headers_and_numbers_of_pages_are_those_of_the_manifest(corpus: Path, name: str) -> None:
    folder, facts, page_size = sample(corpus, name)
    report = logs.verified(folder)
    assert [Path(one.path).name for one in report.files] == sorted(facts["files"])
    for one in report.files:
        known = facts["files"][Path(one.path).name]
        full = 1 if known["header"] else 0
        assert one.details["frames"] + full == known["non_empty_pages"]
        assert one.size == known["size"]
        if known["header"] is None:
            assert one.variant == "held in reserve"
            continue
        header = dict(known["header"], xa_ref=None if known["header"]["xa_ref"] >> 63 else known["header"]["xa_ref"])
        said = {
            "file_no": one.details["file_no"],
            "page_count": one.details["page_count"],
            "start_lsn": one.details["start_lsn"],
            "interval": one.details["diff_state_interval"],
            "oob_ref": one.details["oob_ref_file_no"],
            "xa_ref": one.details["xa_ref_file_no"],
        }
        assert said == header
        assert one.record_types == known["records_starting_here"]
        assert one.details["page_size"] == page_size


ODD = {"dbase": {"xid-twice"}, "xa": {"xid-twice"}, "oob": {"no-gtid"}}
"""What no server writes, but the makers of these samples did: groups that were used twice, one joined of two."""


@pytest.mark.parametrize("name", SAMPLES)
def test_an_intact_sample_has_no_findings_but_notes(corpus: Path, name: str) -> None:
    folder, facts, _ = sample(corpus, name)
    report = logs.verified(folder)
    assert {one.severity for one in report.findings} <= {Severity.NOTE}
    usual = {"preallocated", "oob-garbage", "flush-exact-end", "unsupported-page-size"}
    assert logs.diagnoses(report) - usual == ODD.get(name, set())
    ends = {Path(one.path).name: one.durable_end for one in report.files}
    last = facts["end_of_log"]
    assert ends[f"binlog-{last['file']:06d}.ibb"] == last["offset"]
    garbage = [one.facts["records"] for one in report.findings if one.facts.get("diagnosis") == "oob-garbage"]
    assert sum(garbage) == facts["oob_records_not_reachable_from_commit"]
    assert sum(one.transactions for one in report.files) == sum(
        one["gtid"] is not None for one in facts["event_groups"]
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_records_and_states_are_those_of_the_manifest(corpus: Path, name: str) -> None:
    folder, facts, page_size = sample(corpus, name)
    found = logs.records(folder)
    assert Counter(one.type for one in found) == facts["records"]
    states = [one for one in found if one.type == "GTID_STATE"]
    assert len(states) == len(facts["gtid_states"])
    for record, known in zip(states, facts["gtid_states"], strict=True):
        body = record.body
        xa_ref = 0 if body["xa_ref_file_no"] is None else body["xa_ref_file_no"] + 1
        said = (_number(record), record.offset // page_size, body["count"], xa_ref, body["nested"], body["chunks"])
        named = [known[key] for key in ("file", "page", "count", "xa_ref_plus_1", "nested", "chunks")]
        assert said == tuple(named)
        listed = [gtid for gtid in known["gtids"] if not gtid.startswith("... ")]
        elided = len(listed) < len(known["gtids"])  # the manifest lists the first ones of a long list
        assert body["gtids"][: len(listed) if elided else None] == listed
    prepared = [one for one in found if one.type.startswith("XA_")]
    known_xa = facts["xa_records"]
    assert {(one["file"], one["offset"], one["type"]) for one in known_xa} == {
        (_number(one), one.offset, one.type) for one in prepared
    }


def _number(record: Any) -> int:
    return int(Path(record.file).name[7:-4])


@pytest.mark.parametrize("name", SAMPLES)
def test_groups_are_put_together_as_the_real_reader_does(corpus: Path, name: str) -> None:
    folder, facts, _ = sample(corpus, name)
    found = logs.whole(folder)
    assert len(found) == len(facts["event_groups"]) == len(list(logs.groups(folder)))
    for group, known in zip(found, facts["event_groups"], strict=True):
        assert group.problem is None
        assert (group.position.file_no, group.position.offset) == (known["file"], known["offset"])
        assert (None if group.gtid is None else str(group.gtid)) == known["gtid"]
        assert (group.payload_size, len(group.data)) == (known["payload_bytes"], known["bytes"])
        assert logs.digest(group.data) == known["sha256"]
        trees = [{"nodes": one.nodes, "first": [*one.first], "last": [*one.last]} for one in group.references]
        assert trees == [{key: one[key] for key in ("nodes", "first", "last")} for one in known["oob"]]


@pytest.mark.parametrize("name", SAMPLES)
def test_at_level_event_each_event_of_each_group_is_decoded(corpus: Path, name: str) -> None:
    folder, facts, _ = sample(corpus, name)
    found = logs.records(folder, "event")
    assert not [one for one in found if one.findings or one.body is None]
    by_group: dict[tuple[str, int], list[Any]] = {}
    for one in found:
        assert one.inner is not None and one.extras is not None
        by_group.setdefault((one.file, one.offset), []).append(one)
    assert len(by_group) == len(facts["event_groups"])
    for events, known in zip(by_group.values(), facts["event_groups"], strict=True):
        assert {one.txn for one in events} == {known["gtid"]}
        assert [[one.extras["header"]["type_code"], one.inner.size] for one in events] == known["events"]
        assert [one.inner.offset for one in events] == [
            sum(size for _, size in known["events"][:i]) for i in range(len(events))
        ]


@pytest.mark.parametrize("name", SAMPLES)
def test_at_level_page_each_page_is_a_record(corpus: Path, name: str) -> None:
    folder, facts, page_size = sample(corpus, name)
    found = logs.records(folder, "page")
    full = sum(one["non_empty_pages"] - bool(one["header"]) for one in facts["files"].values())
    assert len(found) == full
    assert {(one.type, one.size) for one in found} == {("PAGE", page_size)}
    assert all(one.body["page_no"] * page_size == one.offset for one in found)
    chunks = Counter(chunk["type"].removesuffix("_FIRST") for one in found for chunk in one.body["chunks"])
    assert {kind: chunks[kind] for kind in facts["records"]} == facts["records"]


@pytest.mark.parametrize("index", DAMAGED)
def test_every_damage_has_its_diagnosis_and_every_intact_group_is_read(
    corpus: Path, tmp_path: Path, index: int
) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    folder = logs.damaged(corpus, tmp_path / "log", variant)
    report = logs.verified(folder)
    assert variant["expected_diagnosis"] in logs.diagnoses(report)
    cut = variant["truncate_without_redo"]
    if isinstance(cut, str) and cut.startswith("refuse"):
        assert logs.errors(report)
    intact, found = variant["groups_intact_if_everything_readable_is_used"], logs.gtids(folder)
    if variant["dir"] in FOUND_MORE:
        assert set(found) > set(intact)
        assert found == [
            one for one in logs.gtids(corpus / logs.FORMAT / "generated" / variant["base"]) if one in found
        ]
    else:
        assert Counter(found) == Counter(intact)
    if isinstance(cut, dict):
        ends = {Path(one.path).name: one.durable_end for one in report.files}
        assert ends[f"binlog-{cut['cut_file']:06d}.ibb"] == cut["cut_offset"]


@pytest.mark.parametrize("index", DAMAGED)
def test_no_group_that_is_read_from_a_damaged_log_differs_from_the_real_one(
    corpus: Path, tmp_path: Path, index: int
) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    base = {str(one.gtid): one.data for one in logs.whole(corpus / logs.FORMAT / "generated" / variant["base"])}
    for one in logs.whole(logs.damaged(corpus, tmp_path / "log", variant)):
        assert one.data == base[str(one.gtid)]


@pytest.mark.parametrize("index", CRASHES)
def test_files_of_a_crash_end_where_the_independent_reader_says(corpus: Path, tmp_path: Path, index: int) -> None:
    case = logs.manifest(corpus)["crash_cases"][index]
    folder, _ = logs.crashed(corpus, tmp_path, case)
    report, cut = logs.verified(folder), case["truncate_without_redo"]
    assert Counter(logs.gtids(folder)) == Counter(case["before"]["groups_readable"])
    ends = {Path(one.path).name: one.durable_end for one in report.files}
    if cut["cut_file"] is None:
        assert "missing-file" in logs.diagnoses(report)
    else:
        assert ends[f"binlog-{cut['cut_file']:06d}.ibb"] == cut["cut_offset"]
        assert not logs.errors(report)
    if any("incomplete-tail-record" in str(one) for one in case["before"]["problems"]):
        assert "incomplete-tail-record" in logs.diagnoses(report)


@pytest.mark.parametrize("index", CRASHES)
def test_with_the_redo_log_it_is_told_what_real_recovery_does(corpus: Path, tmp_path: Path, index: int) -> None:
    case = logs.manifest(corpus)["crash_cases"][index]
    folder, redo = logs.crashed(corpus, tmp_path, case)
    report = logs.verified(folder, redo=redo)
    lost = [gtid for one in report.findings for gtid in one.facts.get("gtids_lost", ())]
    gained = [gtid for one in report.findings for gtid in one.facts.get("gtids_gained", ())]
    assert (lost, gained) == (case["groups_lost"], case["groups_gained"])
    ends = {
        (one.facts["file_no"], one.facts["offset"])
        for one in report.findings
        if "durable_lsn" in one.facts and "offset" in one.facts
    }
    if lost or gained:
        end = case["real_recovery"]["end_of_log"]
        assert ends == {(end["file"], end["offset"])}
    if case["dir"] == "crash/c07-no-redo-disk-ahead":
        assert "redo-gap" in logs.diagnoses(report)
    if case["dir"] == "crash/c06-clean":
        assert not [one for one in logs.diagnoses(report) if one.startswith("redo")]


@pytest.mark.parametrize("name", SAMPLES)
def test_both_backends_say_the_same_of_a_sample(corpus: Path, name: str) -> None:
    folder, _, _ = sample(corpus, name)
    for level in ("record", "event"):
        assert logs.records(folder, level, "python") == logs.records(folder, level, "native")
    assert _said(folder, "python") == _said(folder, "native")


@pytest.mark.parametrize("index", DAMAGED)
def test_both_backends_say_the_same_of_damage(corpus: Path, tmp_path: Path, index: int) -> None:
    folder = logs.damaged(corpus, tmp_path / "log", logs.manifest(corpus)["damaged"][index])
    assert _said(folder, "python") == _said(folder, "native")


def _said(folder: Path, backend: str) -> list[Any]:
    report = logs.verified(folder, backend=backend)
    return [(one.findings, one.bytes, one.durable_end, one.record_types, one.details) for one in report.files]
