"""JUnit, SARIF, Markdown and workflow annotations: strict readers accept them, and data cannot break out of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

import jsonschema
import pytest

from binlogtool.findings import EXPLANATIONS, Severity, make_finding
from binlogtool.format_api.encode_json import encode_document
from binlogtool.report.ci_reports import (
    CHECKS,
    MAX_RESULTS,
    escape_markdown,
    escape_message,
    escape_property,
    path_to_uri,
    render_junit,
    render_markdown,
    render_workflow_commands,
    report_to_gitlab,
    report_to_sarif,
)
from binlogtool.verification.verify_report import PathFailure, Report
from tests.report.values import MISMATCH, TORN, file_report, report

HOSTILE = "a\x1b[31m<b>&\"'\x00%\r\n::error::x,y:z|`@me`\u202e\ud83d]]>\ufffe"
FAILED = [PathFailure("/data/gone", "No such file", 4)]


def hostile() -> Report:
    bad = make_finding("checksum-mismatch", 5, 3, HOSTILE, record=1, stored=HOSTILE, list=[HOSTILE])
    return Report((file_report(f"/data/{HOSTILE}", bad),), (), (PathFailure(HOSTILE, HOSTILE, 4),))


def test_junit_has_a_suite_per_file_and_a_case_per_check() -> None:
    root = ElementTree.fromstring(render_junit(report(failures=FAILED)))
    suites = {s.get("name"): s for s in root}
    assert list(suites) == ["/data/binlog/0001.xlog", "/data/binlog/0002.xlog", "/data/binlog (set)", "/data/gone"]
    damaged = suites["/data/binlog/0002.xlog"]
    assert [c.get("name") for c in damaged] == list(CHECKS)
    assert (damaged.get("tests"), damaged.get("failures"), damaged.get("time")) == (str(len(CHECKS)), "1", "1.500")
    assert suites["/data/gone"].find("testcase/error").get("message") == "No such file"


def test_a_junit_failure_says_where_and_what_to_do() -> None:
    root = ElementTree.fromstring(render_junit(report()))
    (failure,) = root.findall("testsuite[2]/testcase[@name='checksums']/failure")
    assert failure.get("type") == "checksum-mismatch"
    assert "0x00a1f3c0" in failure.text
    assert f"what to do: {EXPLANATIONS['checksum-mismatch'].action}" in failure.text


def test_findings_below_the_threshold_are_no_failures() -> None:
    root = ElementTree.fromstring(render_junit(report()))
    case = root.find("testsuite[2]/testcase[@name='framing']")
    assert case.find("failure") is None
    assert "torn-tail" in case.find("system-out").text
    strict = ElementTree.fromstring(render_junit(report(), fail_on=Severity.NOTE))
    assert strict.find("testsuite[2]/testcase[@name='framing']/failure") is not None


def test_a_stable_junit_report_holds_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert b'time="1.500"' not in render_junit(report())


def test_hostile_text_leaves_junit_well_formed() -> None:
    text = render_junit(hostile())
    root = ElementTree.fromstring(text)
    assert len(root) == 2
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", text)


def check_sarif(log: dict) -> None:
    """The rules of SARIF 2.1.0 for what is used here."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("note", "warning", "error")
        assert result["message"]["text"]
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert urlparse(place["artifactLocation"]["uri"]).scheme in ("", "file")
        assert place["region"]["startLine"] >= 1
        if "byteOffset" in place["region"]:
            assert place["region"]["byteOffset"] >= 0 and place["region"]["byteLength"] >= 0
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
        for notification in invocation["toolExecutionNotifications"]:
            assert notification["level"] == "error" and notification["message"]["text"]


def test_sarif_follows_the_rules() -> None:
    log = json.loads(encode_document(report_to_sarif(report(failures=FAILED), "1.2.3")))
    check_sarif(log)
    run = log["runs"][0]
    ids = [r["ruleId"] for r in run["results"]]
    assert ids == ["not-read", "checksum-mismatch", "torn-tail", "missing-member"]
    assert run["results"][1]["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 1, "byteOffset": 0xA1F3C0, "byteLength": 88,
    }  # fmt: skip
    assert run["tool"]["driver"]["version"] == "1.2.3"
    assert run["invocations"][0]["executionSuccessful"] is False


def test_hostile_text_leaves_sarif_valid() -> None:
    text = encode_document(report_to_sarif(hostile(), "1"))
    check_sarif(json.loads(text))
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_sarif_fingerprints_do_not_depend_on_the_directory() -> None:
    one, two = (
        report_to_sarif(Report((file_report(path, MISMATCH),), ()), "1")["runs"][0]["results"][0]["partialFingerprints"]
        for path in ("/a/x.log", "/b/x.log")
    )
    assert one == two


def test_many_results_are_grouped_and_counted() -> None:
    many = [make_finding("checksum-mismatch", i, 1, "m") for i in range(MAX_RESULTS)]
    rare = make_finding("bad-magic", 1, 1, "n")
    log = report_to_sarif(Report((file_report("a", *many, rare),), ()), "1")
    check_sarif(log)
    results = log["runs"][0]["results"]
    assert len(results) < 50
    assert [r["ruleId"] for r in results].count("bad-magic") == 1
    shown = [r for r in results if r["ruleId"] == "checksum-mismatch"]
    assert len(shown) - 1 + shown[-1]["occurrenceCount"] == MAX_RESULTS


CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^(?!\\./)."},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""What GitLab's documentation of the code quality report asks for, as a schema: an array, members, words."""


def check_gitlab(issues: list) -> None:
    jsonschema.validate(issues, CODE_QUALITY)
    marks = [one["fingerprint"] for one in issues]
    assert len(set(marks)) == len(marks), "only the first issue with a fingerprint is shown"


def test_gitlab_gets_an_issue_for_each_finding_and_each_path_that_was_not_read() -> None:
    issues = json.loads(encode_document(report_to_gitlab(report(failures=FAILED))))
    check_gitlab(issues)
    assert [(one["check_name"], one["severity"]) for one in issues] == [
        ("checksum-mismatch", "critical"), ("torn-tail", "info"), ("missing-member", "critical"),
        ("not-read", "blocker"),
    ]  # fmt: skip
    assert issues[0]["description"].startswith("0x00a1f3c0: ")
    assert issues[0]["location"] == {"path": "/data/binlog/0002.xlog", "lines": {"begin": 1}}


def test_the_same_finding_twice_has_two_fingerprints_and_a_path_no_dot_before_it() -> None:
    issues = report_to_gitlab(Report((file_report("./logs/x.xlog", MISMATCH, MISMATCH),), ()))
    check_gitlab(issues)
    assert {one["location"]["path"] for one in issues} == {"logs/x.xlog"}


def test_hostile_text_leaves_the_gitlab_report_valid() -> None:
    text = encode_document(report_to_gitlab(hostile()))
    check_gitlab(json.loads(text))
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", text)


@pytest.mark.parametrize("path", ["/a b/c#d?.log", "rel/a%20b", f"/x/{'é'}", "/bad\udcff"])
def test_paths_become_uris_and_come_back(path: str) -> None:
    shown = path_to_uri(path)
    assert shown.isascii() and " " not in shown
    back = unquote(shown.removeprefix("file://"), errors="surrogateescape")
    assert Path(back) == Path(path)


def test_annotations_stay_on_their_line() -> None:
    for line in render_workflow_commands(hostile()):
        assert "\n" not in line and "\r" not in line and "\x1b" not in line
        assert line.startswith("::error file=")
        head, _, _ = line[2:].partition("::")
        assert re.fullmatch(r"error file=[^:]*,title=[^:,]*|error file=[^:,]*,line=1,title=[^:,]*", head)


def test_values_of_annotations_are_encoded() -> None:
    assert escape_property("a:b,c%") == "a%3Ab%2Cc%25"
    assert escape_message("50 %: a,b") == "50 %25: a,b"


def test_at_most_ten_annotations_of_a_level() -> None:
    many = [make_finding("checksum-mismatch", i, 1, "m") for i in range(25)]
    shown = list(render_workflow_commands(Report((file_report("a", *many, TORN),), ())))
    assert len([line for line in shown if line.startswith("::error file=")]) == 10
    assert "::error title=binlogtool::15 more findings of this level" in shown
    assert len([line for line in shown if line.startswith("::notice")]) == 1


def test_markdown_has_a_row_per_file_and_finding() -> None:
    shown = render_markdown(report(failures=FAILED)).splitlines()
    assert "| /data/binlog/0001.xlog | ok | 64.0 MiB | 181,204 | XLOG 0.13 |" in shown
    assert any(line.startswith("| error | checksum-mismatch | /data/binlog/0002.xlog | 0x00a1f3c0 |") for line in shown)
    assert any("not read" in line for line in shown)


def test_hostile_text_cannot_leave_its_markdown_cell() -> None:
    shown = render_markdown(hostile())
    assert "<b>" not in shown and "@me" not in shown and "](" not in shown
    widths = {line.count("|") for line in shown.splitlines() if line.startswith("| error")}
    assert widths == {6}


def test_plain_markdown_text_reads_as_before() -> None:
    assert escape_markdown("0001.xlog, 5 records") == "0001.xlog, 5 records"
