"""GitLab code quality report: one issue for each finding, and one for each path that could not be read.

An issue needs a description, a check name, a unique fingerprint, one of five severities, and a place: a path below the
repository and a line. Logs have no lines; the description begins with the offset.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from typing import Any

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.policy import compute_fingerprint, list_located_findings
from binlogtool.report.words import format_offset

NOT_READ = "not-read"
"""The check name of a path that could not be read or recognised."""

_SEVERITIES = {Severity.NOTE: "info", Severity.WARNING: "minor", Severity.ERROR: "critical"}


def report_to_gitlab(report: Report) -> list[dict[str, Any]]:
    """Return the report as a list of issues."""
    return list(_iter_issues(report))


def _iter_issues(report: Report) -> Iterator[dict[str, Any]]:
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
