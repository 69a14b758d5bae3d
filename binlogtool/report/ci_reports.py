"""Reports for CI systems: JUnit, SARIF, GitLab, GitHub, Markdown.

A GitLab issue needs a description, a check name, a unique fingerprint, one of five severities, and a location: a path
below the repository and a line. Logs have no lines, so the description begins with the offset.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from binlogtool.findings import EXPLANATIONS, Finding, Severity
from binlogtool.format_api.encode_json import STYLE, encode_text
from binlogtool.report.finding_policy import compute_fingerprint, list_located_findings
from binlogtool.report.format_numbers_and_names import format_count, format_finding, format_offset, format_size
from binlogtool.report.verify_and_plan_text import find_file_state_word, format_byte_account, suggest_after_verify
from binlogtool.terminal.escape_and_fold_text import escape
from binlogtool.verification.verify_report import Report

# --- JUnit XML ---

CHECKS = {
    "header": ("bad-magic", "bad-header", "unsupported-version"),
    "framing": (
        "length-out-of-bounds", "count-out-of-bounds", "varint-overlong", "damaged-range", "valid-after-damage",
        "garbage-tail", "torn-tail", "zero-tail", "preallocated-tail", "unmapped-bytes",
    ),
    "checksums": ("checksum-mismatch", "checksum-absent"),
    "content": (
        "nesting-too-deep", "inflate-limit", "unknown-record-type", "reserved-bits-set", "payload-undecodable",
        "encrypted", "text-undecodable", "duplicate-key", "compression-error",
    ),
    "order": ("gap-in-sequence", "sequence-regression", "duplicate-sequence", "time-regression"),
    "references": ("dangling-reference", "incomplete-transaction"),
    "close": ("unclean-close", "changed-while-read", "changed-since-run", "log-outdated", "age-unknown"),
    "set": ("missing-member", "extra-member", "meta-mismatch", "path-outside-set", "member-not-named"),
}  # fmt: skip
"""Name of a check -> its finding ids. Every finding id belongs to one check."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape_xml_text(text: str) -> str:
    """Return text that XML 1.0 allows, without control characters."""
    return _NOT_XML.sub("\ufffd", escape(text))


def render_junit(report: Report, *, fail_on: Severity | None = Severity.ERROR) -> bytes:
    """Render the report as a JUnit document."""
    root = ElementTree.Element("testsuites", name="binlogtool verify")
    for file in report.files:
        _add_junit_suite(root, file.path, file.findings, fail_on, file.seconds)
    for set_report in report.sets:
        _add_junit_suite(root, f"{set_report.path} (set)", set_report.findings, fail_on, 0.0)
    for failure in report.failures:
        suite = ElementTree.SubElement(
            root, "testsuite", name=escape_xml_text(failure.path), tests="1", errors="1", failures="0"
        )
        case = ElementTree.SubElement(suite, "testcase", name="open", classname=escape_xml_text(failure.path))
        ElementTree.SubElement(case, "error", message=escape_xml_text(failure.message))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_junit_suite(
    root: ElementTree.Element, suite_name: str, findings: Sequence[Finding], fail_on: Severity | None, seconds: float
) -> None:
    """Add the suite of one file. The time is that of the first case, because all checks of a file run in one pass."""
    shown, elapsed = escape_xml_text(suite_name), 0.0 if "SOURCE_DATE_EPOCH" in os.environ else seconds
    suite = ElementTree.SubElement(
        root, "testsuite", name=shown, tests=str(len(CHECKS)), errors="0", time=f"{elapsed:.3f}"
    )
    failures = 0
    for check, ids in CHECKS.items():
        time = elapsed if check == "header" else 0.0
        case = ElementTree.SubElement(suite, "testcase", name=check, classname=shown, time=f"{time:.3f}")
        check_findings = [f for f in findings if f.id in ids]
        failing = [f for f in check_findings if fail_on is not None and f.severity >= fail_on]
        if failing:
            failures += 1
            failure = ElementTree.SubElement(
                case, "failure", type=failing[0].id, message=escape_xml_text(failing[0].message)
            )
            failure.text = _format_findings(failing)
        elif check_findings:
            ElementTree.SubElement(case, "system-out").text = _format_findings(check_findings)
    suite.set("failures", str(failures))


def _format_findings(findings: Sequence[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(
            escape_xml_text(
                f"{finding.severity.label} {format_offset(finding.offset)} {finding.id}: {format_finding(finding)}"
            )
        )
        lines.append(escape_xml_text(f"  what to do: {EXPLANATIONS[finding.id].action}"))
    return "\n".join(lines)


NOT_READ = "not-read"
"""Name of the check that a path could be read and is a log."""

# --- SARIF 2.1.0 ---

MAX_RESULTS = 5000
"""Maximum number of results that GitHub takes from an upload; with more, repeated findings are grouped."""

_MAX_PER_GROUP = 20
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


_NOT_READ_RULE = {
    "id": NOT_READ,
    "shortDescription": {"text": "The file could not be read, or is no log."},
    "fullDescription": {"text": "The file could not be read, or is no log: nothing in it was checked."},
    "help": {"text": "The message says why. Copy the file again, or leave it out of the paths."},
    "defaultConfiguration": {"level": "error"},
}


def report_to_sarif(report: Report, version: str) -> dict[str, Any]:
    """Return the report as a SARIF log."""
    findings = list_located_findings(report)
    used = sorted({f.id for _, f in findings})
    index = {id_: i for i, id_ in enumerate(used)}
    results = [_make_sarif_result(path, f, index) for path, f in findings]
    if len(results) > MAX_RESULTS:
        results = list(_make_limited_sarif_results(findings, index))[:MAX_RESULTS]
    failures = [_make_notification(f.path, f.message) for f in report.failures]
    rules = [_make_sarif_rule(id_) for id_ in used]
    if failures:
        rules.append(_NOT_READ_RULE)
        results = [*(_make_unread_path_result(f.path, f.message, len(used)) for f in report.failures), *results][
            :MAX_RESULTS
        ]
    run = {
        "tool": {"driver": {"name": "binlogtool", "version": version, "rules": rules}},
        "invocations": [{"executionSuccessful": not report.incomplete and not failures,
                         "toolExecutionNotifications": failures}],
        "artifacts": [{"location": {"uri": path_to_uri(f.path)}, "length": f.size} for f in report.files],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }  # fmt: skip
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def path_to_uri(path: str) -> str:
    """Return a path as a URI reference: relative for a path below the working directory, which code scanning takes for
    the root of the repository.
    """
    pure = Path(path)
    if pure.is_absolute() and pure.is_relative_to(Path.cwd()) and pure != Path.cwd():
        pure = pure.relative_to(Path.cwd())
        path = str(pure)
    data = encode_text(path)
    return f"file://{quote(data)}" if pure.is_absolute() else quote(data)


def _make_sarif_rule(finding_id: str) -> dict[str, Any]:
    explanation = EXPLANATIONS[finding_id]
    text = f"{explanation.meaning} Causes: {explanation.causes} What to do: {explanation.action}"
    return {
        "id": finding_id,
        "shortDescription": {"text": explanation.meaning},
        "fullDescription": {"text": f"{explanation.meaning} {explanation.causes}"},
        "help": {"text": text},
        "defaultConfiguration": {"level": explanation.severity.label},
    }


def _make_sarif_result(path: str, finding: Finding, rule_indexes: dict[str, int]) -> dict[str, Any]:
    """Return one SARIF result; `rule_indexes`: finding id -> number of its rule."""
    region = {"startLine": 1}
    if finding.offset is not None:
        region |= {"byteOffset": finding.offset, "byteLength": finding.length}
    return {
        "ruleId": finding.id,
        "ruleIndex": rule_indexes[finding.id],
        "level": finding.severity.label,
        "message": {"text": escape(finding.message)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": path_to_uri(path)}, "region": region}}],
        "partialFingerprints": {"binlogtool/v1": compute_fingerprint(path, finding)},
        "properties": {"facts": STYLE.to_json_value(dict(finding.facts)), "record": finding.record},
    }


def _make_limited_sarif_results(
    findings: list[tuple[str, Finding]], rule_indexes: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the first findings of each kind in each file; the last of them states how many more there are."""
    total, seen = Counter((path, f.id) for path, f in findings), Counter[tuple[str, str]]()
    for path, finding in sorted(findings, key=lambda item: -item[1].severity):
        kind = (path, finding.id)
        seen[kind] += 1
        if seen[kind] < _MAX_PER_GROUP or total[kind] == seen[kind] == _MAX_PER_GROUP:
            yield _make_sarif_result(path, finding, rule_indexes)
        elif seen[kind] == _MAX_PER_GROUP:
            result = _make_sarif_result(path, finding, rule_indexes)
            result["message"]["text"] += (
                f" (and {total[kind] - _MAX_PER_GROUP:,} more findings {finding.id} in this file)"
            )
            result["occurrenceCount"] = total[kind] - _MAX_PER_GROUP + 1
            yield result


def _make_unread_path_result(path: str, message: str, rule_index: int) -> dict[str, Any]:
    """Return the result for a path that could not be read: viewers show results, but no notifications."""
    where = {"artifactLocation": {"uri": path_to_uri(path)}, "region": {"startLine": 1}}
    return {
        "ruleId": NOT_READ,
        "ruleIndex": rule_index,
        "level": "error",
        "message": {"text": escape(message)},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {"binlogtool/v1": _hash_text(f"{NOT_READ} {os.path.basename(path)}")},
    }


def _make_notification(path: str, message: str) -> dict[str, Any]:
    where = {"physicalLocation": {"artifactLocation": {"uri": path_to_uri(path)}}}
    return {"level": "error", "message": {"text": escape(message)}, "locations": [where]}


# --- GitLab code quality report ---

_SEVERITIES = {Severity.NOTE: "info", Severity.WARNING: "minor", Severity.ERROR: "critical"}


def report_to_gitlab(report: Report) -> list[dict[str, Any]]:
    """Return the report as a list of issues."""
    return list(_iter_gitlab_issues(report))


def _iter_gitlab_issues(report: Report) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for path, finding in list_located_findings(report):
        base_fingerprint = compute_fingerprint(path, finding)
        seen[base_fingerprint] = number = seen.get(base_fingerprint, 0) + 1
        unique = base_fingerprint if number == 1 else _hash_text(f"{base_fingerprint} {number}")
        yield _make_issue(path, finding.id, _describe(finding), _SEVERITIES[finding.severity], unique)
    for number, failure in enumerate(report.failures):
        yield _make_issue(
            failure.path, NOT_READ, failure.message, "blocker", _hash_text(f"{NOT_READ} {number} {failure.path}")
        )


def _make_issue(path: str, check: str, text: str, severity: str, issue_fingerprint: str) -> dict[str, Any]:
    return {
        "description": escape(text),
        "check_name": check,
        "fingerprint": issue_fingerprint,
        "severity": severity,
        "location": {"path": escape(posixpath.normpath(path)), "lines": {"begin": 1}},
    }


def _describe(finding: Finding) -> str:
    return finding.message if finding.offset is None else f"{format_offset(finding.offset)}: {finding.message}"


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# --- GitHub workflow annotations ---

MAX_PER_LEVEL = 10
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def escape_message(text: str) -> str:
    """Escape text after the `::` of a workflow command."""
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape a property value of a workflow command."""
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def render_workflow_commands(report: Report) -> Iterator[str]:
    """Yield the workflow commands of a report, one per finding, as lines for standard output."""
    for failure in report.failures:
        yield f"::error file={escape_property(failure.path)},title=not read::{escape_message(failure.message)}"
    findings = list_located_findings(report)
    for severity, word in _COMMANDS.items():
        of_level = [(path, f) for path, f in findings if f.severity is severity]
        yield from (_render_workflow_command(word, path, f) for path, f in of_level[:MAX_PER_LEVEL])
        if len(of_level) > MAX_PER_LEVEL:
            yield f"::{word} title=binlogtool::{len(of_level) - MAX_PER_LEVEL:,} more findings of this level"


def _render_workflow_command(command: str, path: str, finding: Finding) -> str:
    where = "" if finding.offset is None else f"{format_offset(finding.offset)}: "
    text = f"{where}{format_finding(finding)}"
    return (
        f"::{command} file={escape_property(path)},line=1,title={escape_property(finding.id)}::{escape_message(text)}"
    )


# --- A report for a pull request, a wiki or a step summary ---

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$@]|:(?=//|[\w+-]+:))")
MAX_FINDINGS = 200


def escape_markdown(text: str) -> str:
    """Escape text so that Markdown shows it unchanged: no markup, links or mentions, one line."""
    return _SPECIAL.sub(lambda m: f"&#{ord(m[1])};", escape(text))


def render_markdown(report: Report) -> str:
    """Render the report as one Markdown document."""
    return "\n".join(_render_markdown_lines(report)) + "\n"


def _render_markdown_lines(report: Report) -> Iterator[str]:
    yield f"## binlogtool verify: {report.status}"
    yield ""
    yield "| file | state | size | records | format |"
    yield "|---|---|---:|---:|---|"
    for file in report.files:
        records = "" if file.records is None else format_count(file.records)
        yield (
            f"| {escape_markdown(file.path)} | {find_file_state_word(file)} | {format_size(file.size)} | "
            f"{records} | {escape_markdown(file.variant)} |"
        )
    for failure in report.failures:
        yield f"| {escape_markdown(failure.path)} | not read | | | {escape_markdown(failure.message)} |"
    findings = list_located_findings(report)
    if findings:
        yield ""
        yield "| severity | finding | file | place | what |"
        yield "|---|---|---|---|---|"
    for path, finding in sorted(findings, key=lambda item: -item[1].severity)[:MAX_FINDINGS]:
        yield (
            f"| {finding.severity.label} | {escape_markdown(finding.id)} | {escape_markdown(path)} | "
            f"{format_offset(finding.offset)} | {escape_markdown(format_finding(finding))} |"
        )
    if len(findings) > MAX_FINDINGS:
        yield ""
        yield f"{len(findings) - MAX_FINDINGS:,} more findings are not shown."
    if report.files:
        yield ""
        yield format_byte_account(report.files)
    if hint := suggest_after_verify(report):
        yield ""
        yield f"next: {escape_markdown(hint)}"
