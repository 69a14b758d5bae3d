"""GitLab code quality report: one issue for each finding, and one for each path that could not be read.

An issue needs a description, a check name, a unique fingerprint, one of five severities, and a place: a path below
the
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
from binlogtool.report.policy import fingerprint, located
from binlogtool.report.words import place

NOT_READ = "not-read"
"""The check name of a path that could not be read or recognised."""

_SEVERITIES = {Severity.NOTE: "info", Severity.WARNING: "minor", Severity.ERROR: "critical"}


def gitlab(report: Report) -> list[dict[str, Any]]:
    """Return the report as a list of issues."""
    return list(_issues(report))


def _issues(report: Report) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for path, found in located(report):
        mark = fingerprint(path, found)
        seen[mark] = number = seen.get(mark, 0) + 1
        unique = mark if number == 1 else _digest(f"{mark} {number}")
        yield _issue(path, found.id, _said(found), _SEVERITIES[found.severity], unique)
    for number, failure in enumerate(report.failures):
        yield _issue(failure.path, NOT_READ, failure.message, "blocker", _digest(f"{NOT_READ} {number} {failure.path}"))


def _issue(path: str, check: str, text: str, severity: str, mark: str) -> dict[str, Any]:
    return {
        "description": escape(text),
        "check_name": check,
        "fingerprint": mark,
        "severity": severity,
        "location": {"path": escape(posixpath.normpath(path)), "lines": {"begin": 1}},
    }


def _said(found: Finding) -> str:
    return found.message if found.offset is None else f"{place(found.offset)}: {found.message}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
