"""Which findings count, and what a run ends with."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.format_api.encode_json import encode_document
from binlogtool.report.finding_policy import (
    FindingPolicy,
    IgnoreRule,
    baseline_to_json,
    compute_exit_code,
    list_located_findings,
    parse_baseline,
    parse_severity,
    select_most_severe_exit_code,
)
from binlogtool.report.verify_and_plan_text import (
    encode_verify_report,
    file_report_from_json,
    file_report_to_json,
    set_report_from_json,
    set_report_to_json,
)
from binlogtool.verification.verify_report import PathFailure
from tests.report.values import report

DAMAGED = "/data/binlog/0002.xlog"


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], 0), ([0, 1], 1), ([1, 6], 6), ([6, 3], 3), ([3, 4], 4), ([4, 5], 5), ([5, 7], 7), ([7, 70], 70),
        ([1, 6, 0, 3], 3),
    ],
)  # fmt: skip
def test_the_most_severe_status_wins(codes: list[int], worst: int) -> None:
    assert select_most_severe_exit_code(codes) == worst


@pytest.mark.parametrize(("level", "code"), [(Severity.NOTE, 1), (Severity.WARNING, 1), (Severity.ERROR, 1), (None, 0)])
def test_findings_at_the_threshold_make_the_status_1(level: Severity | None, code: int) -> None:
    assert compute_exit_code(report(), level) == code


def test_findings_below_the_threshold_do_not_count() -> None:
    calm = FindingPolicy(
        {"checksum-mismatch": Severity.WARNING, "missing-member": Severity.NOTE}
    ).adjust_and_suppress_findings(report())
    assert compute_exit_code(calm, Severity.ERROR) == 0
    assert compute_exit_code(calm, Severity.WARNING) == 1


def test_failures_and_limits_come_before_findings() -> None:
    assert compute_exit_code(report(failures=[PathFailure("x", "m", 3)]), Severity.ERROR) == 3
    assert compute_exit_code(replace(report(), incomplete=True), Severity.ERROR) == 6


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("checksum-mismatch", {"torn-tail", "missing-member"}),
        ("checksum-mismatch@0002.xlog", {"torn-tail", "missing-member"}),
        (f"checksum-mismatch@{DAMAGED}", {"torn-tail", "missing-member"}),
        (f"checksum-mismatch@{DAMAGED}:0xa1f3c0", {"torn-tail", "missing-member"}),
        ("checksum-mismatch@0002.xlog:10613696", {"torn-tail", "missing-member"}),
        ("checksum-mismatch@0002.xlog:5", {"checksum-mismatch", "torn-tail", "missing-member"}),
        ("checksum-mismatch@0001.xlog", {"checksum-mismatch", "torn-tail", "missing-member"}),
        ("missing-member@binlog", {"checksum-mismatch", "torn-tail"}),
    ],
)
def test_findings_can_be_ignored_by_file_and_place(text: str, kept: set[str]) -> None:
    left = FindingPolicy(ignored=[IgnoreRule.parse(text)]).adjust_and_suppress_findings(report())
    assert {f.id for f in left.findings} == kept


def test_a_file_name_with_a_colon_is_no_offset() -> None:
    assert IgnoreRule.parse("torn-tail@a:b") == IgnoreRule("torn-tail", "a:b", None)


@pytest.mark.parametrize("text", ["nothing", "nothing@x", ""])
def test_unknown_ids_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        IgnoreRule.parse(text)


@pytest.mark.parametrize("text", ["torn-tail", "torn-tail=", "torn-tail=fatal", "nothing=error"])
def test_bad_severities_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_severity(text)


def test_a_baseline_hides_what_it_knows_and_nothing_else() -> None:
    known = parse_baseline(json.dumps(baseline_to_json(report())))
    assert len(known) == 3
    assert not FindingPolicy(baseline=known).adjust_and_suppress_findings(report()).findings
    moved = replace(report().files[1], findings=(replace(report().files[1].findings[0], offset=7),))
    assert (
        FindingPolicy(baseline=known).adjust_and_suppress_findings(replace(report(), files=(moved,), sets=())).findings
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "other", "findings": {}}', "\x00"])
def test_other_files_are_no_baseline(text: str) -> None:
    with pytest.raises(UsageError):
        parse_baseline(text)


def test_reports_survive_the_way_through_json() -> None:
    for file in report().files:
        back = file_report_from_json(
            {**json.loads(encode_document(file_report_to_json(file))), "seconds": file.seconds}
        )
        assert file_report_to_json(back) == file_report_to_json(file)
    for part in report().sets:
        assert set_report_from_json(json.loads(encode_document(set_report_to_json(part)))) == part


def test_the_summary_counts_every_finding_once() -> None:
    value = json.loads(b"".join(encode_verify_report(report(), "1")))
    assert value["summary"]["findings"] == {"error": 2, "warning": 0, "note": 1}
    assert list(value["summary"]["findings"]) == ["error", "warning", "note"]
    assert len(list_located_findings(report())) == 3
    assert value["status"] == "findings"
