"""Every intact log of the corpus, against the counts of an independent reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from tests.formats.mysql_binlog.validated_events import errors, judged_file

EXPLICIT_TIME = {"compressed-events", "mixed-ddl", "row-load-data", "stmt"}
"""Scenarios that set the session's time stamp to another year."""

OPEN_AT_END = {
    "mariadb-11.8/crash-disk-full-before/crash-bin.000001",
    "mariadb-11.8/crash-disk-full-after/crash-bin.000001",
    "mysql-9.7/crash-disk-full-before/crash-bin.000001",
    "mariadb-11.8/relay/relay.000002",
    "mariadb-11.8/relay/relay.000003",
}
"""Files that end inside their last group: torn, or a relay log that goes on in the next file."""


def _manifest(corpus: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((corpus / "mysql-binlog/generated/manifest.json").read_text())
    plain = [one for one in entries if "/encrypted/" not in one["file"]]
    assert len(plain) == 121
    return plain


def _name(type_name: str) -> str:
    return {"ANONYMOUS_GTID_LOG": "ANONYMOUS_GTID"}.get(type_name, type_name.removeprefix("MARIA_"))


@pytest.mark.parametrize("backend", ["python", "native"])
def test_every_intact_log_has_the_events_that_an_independent_reader_counted(corpus: Path, backend: str) -> None:
    for one in _manifest(corpus):
        report = judged_file(corpus / "mysql-binlog/generated" / one["file"], backend)
        expected = {_name(kind): count for kind, count in one["events_by_type"].items()}
        assert (one["file"], report.records) == (one["file"], one["events"])
        assert (one["file"], report.record_types) == (one["file"], expected)
        assert report.details.get("events_inside_payloads") == one.get("events_inside_payloads"), one["file"]


def test_an_intact_log_has_no_error(corpus: Path) -> None:
    for one in _manifest(corpus):
        report = judged_file(corpus / "mysql-binlog/generated" / one["file"])
        assert (one["file"], errors(report)) == (one["file"], [])


def test_the_warnings_about_intact_logs_are_the_ones_that_have_a_reason(corpus: Path) -> None:
    for one in _manifest(corpus):
        report = judged_file(corpus / "mysql-binlog/generated" / one["file"])
        scenario = one["file"].split("/")[1]
        allowed = set()
        if scenario in EXPLICIT_TIME:
            allowed = {"time-regression"}
        elif scenario == "domains":  # the scenario sets gtid_seq_no to 500
            allowed = {"gap-in-sequence"}
        elif one["file"].endswith("-after/crash-bin.000001") and not one["in_use_flag"]:  # cut by MySQL's recovery
            allowed = {"unclean-close"}
        found = {f.id for f in report.findings if f.severity is Severity.WARNING}
        assert (one["file"], found) == (one["file"], allowed)


def test_groups_gtids_and_the_way_a_log_was_closed(corpus: Path) -> None:
    for one in _manifest(corpus):
        report = judged_file(corpus / "mysql-binlog/generated" / one["file"])
        complete = one["gtid_count"] - (one["file"] in OPEN_AT_END)
        assert (one["file"], report.transactions) == (one["file"], complete)
        assert report.details["in_use"] == one["in_use_flag"]
        assert report.details["checksum"] == one["checksum"]
        if one.get("gtid_first") not in (None, "ANONYMOUS"):
            assert report.first_seq == int(one["gtid_first"].replace(":", "-").rsplit("-", 1)[1])
            assert report.last_seq == int(one["gtid_last"].replace(":", "-").rsplit("-", 1)[1])


def test_the_durable_end_of_a_crashed_log_is_that_of_the_server_and_of_others_their_end(corpus: Path) -> None:
    for one in _manifest(corpus):
        report = judged_file(corpus / "mysql-binlog/generated" / one["file"])
        assert (one["file"], report.durable_end) == (one["file"], one.get("durable_end", one["size"]))


def test_mysql_cut_a_torn_log_at_the_durable_end(corpus: Path) -> None:
    root = corpus / "mysql-binlog/generated/mysql-9.7"
    before = judged_file(root / "crash-disk-full-before/crash-bin.000001")
    after = root / "crash-disk-full-after/crash-bin.000001"
    assert before.durable_end == after.stat().st_size == 309120
    assert judged_file(after).transactions == before.transactions


def test_a_crash_is_told_with_what_the_server_will_do(corpus: Path) -> None:
    root = corpus / "mysql-binlog/generated"
    mysql = judged_file(root / "mysql-9.7/crash-disk-full-before/crash-bin.000001")
    maria = judged_file(root / "mariadb-11.8/crash-disk-full-before/crash-bin.000001")
    for report, words in ((mysql, "MySQL truncates"), (maria, "MariaDB leaves")):
        assert [(f.id, f.severity) for f in report.findings] == [
            ("unclean-close", Severity.NOTE),
            ("torn-tail", Severity.NOTE),
            ("incomplete-transaction", Severity.NOTE),
        ]
        assert words in report.findings[0].message
    assert mysql.findings[2].facts["begins_at"] == 309120


OLD_RULES = {
    "binlog_invalid_row_v2_tag.001": "made by hand, with a wrong checksum",
    "invalid_row_v2_tag.001": "the same",
    "mdev-39404-binlog.000001": "made by hand, with an event longer than the file",
    "mdev-4645-binlog_checksum.binlog": "an event header that belonged to another server",
    "mdev-4645-binlog_group_id.binlog": "the same",
    "mdev-4645-binlog_group_id_checksum.binlog": "the same",
    "corrupt-relay-bin.000624": "a query whose lengths are wrong",
    "binlog_no_fd_event.000001": "its first event is of an unknown type",
    "binlog_truncated_event.000001": "cut in its first event",
    "ver_5_1-wl2325_r.001": "a test version of 5.2 with other type numbers",
    "ver_5_1-wl2325_s.001": "the same",
    "binlog_before_20574.bin": "encrypted",
    "rpl_nogtid_encryption_master-bin.000002": "encrypted",
}
"""Logs of the servers' own test suites that are broken on purpose, or cannot be read."""


@pytest.mark.full_corpus
def test_logs_of_twenty_years_of_servers_have_no_error(corpus: Path) -> None:
    paths = [path for path in (corpus / "mysql-binlog/third-party").rglob("*") if path.is_file()]
    told = []
    for path in paths:
        if path.suffix == ".md" or path.parent.name == "binlog_recovery" or path.name in OLD_RULES:
            continue
        told += [(path.name, one.id, one.message) for one in errors(judged_file(path))]
    assert len(paths) > 80
    assert told == []


@pytest.mark.full_corpus
def test_logs_that_are_broken_on_purpose_have_an_error(corpus: Path) -> None:
    paths = (corpus / "mysql-binlog/third-party").rglob("*")
    broken = [path for path in paths if path.name in OLD_RULES]
    assert {path.name for path in broken} == set(OLD_RULES)
    for path in broken:
        report = judged_file(path)
        assert bool(errors(report)) != report.is_encrypted, path.name  # without a key nothing is known of it
