"""JUnit XML: one suite per file, one case per check; a failure text has the finding, its place and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from binlogtool.findings import EXPLANATIONS, Finding, Severity
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.words import format_finding, format_offset

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
    "close": ("unclean-close", "changed-while-read"),
    "set": ("missing-member", "extra-member", "meta-mismatch", "path-outside-set"),
}  # fmt: skip
"""Check -> the findings that it makes. Every finding id belongs to one check."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape_xml_text(text: str) -> str:
    """Return text that XML 1.0 allows, without control characters."""
    return _NOT_XML.sub("\ufffd", escape(text))


def render_junit(report: Report, *, fail_on: Severity | None = Severity.ERROR) -> bytes:
    """Render the report as a JUnit document."""
    root = ElementTree.Element("testsuites", name="binlogtool verify")
    for file in report.files:
        _add_suite(root, file.path, file.findings, fail_on, file.seconds)
    for set_report in report.sets:
        _add_suite(root, f"{set_report.path} (set)", set_report.findings, fail_on, 0.0)
    for failure in report.failures:
        suite = ElementTree.SubElement(
            root, "testsuite", name=escape_xml_text(failure.path), tests="1", errors="1", failures="0"
        )
        case = ElementTree.SubElement(suite, "testcase", name="open", classname=escape_xml_text(failure.path))
        ElementTree.SubElement(case, "error", message=escape_xml_text(failure.message))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_suite(
    root: ElementTree.Element, name: str, findings: Sequence[Finding], fail_on: Severity | None, seconds: float
) -> None:
    """Add the suite of one file. The first case has the time, because all checks of a file run in one pass."""
    shown, elapsed = escape_xml_text(name), 0.0 if "SOURCE_DATE_EPOCH" in os.environ else seconds
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
