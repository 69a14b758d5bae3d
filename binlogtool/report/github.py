"""GitHub workflow annotations: at most ten per level, then one line that counts the rest."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.policy import list_located_findings
from binlogtool.report.words import format_finding, format_offset

MAX_PER_LEVEL = 10
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def escape_message(text: str) -> str:
    """Escape text after the `::` of a workflow command."""
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape a property value of a workflow command."""
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def render_workflow_commands(report: Report) -> Iterator[str]:
    """Yield the lines for standard output."""
    for failure in report.failures:
        yield f"::error file={escape_property(failure.path)},title=not read::{escape_message(failure.message)}"
    findings = list_located_findings(report)
    for severity, word in _COMMANDS.items():
        of_level = [(path, f) for path, f in findings if f.severity is severity]
        yield from (_render_annotation(word, path, f) for path, f in of_level[:MAX_PER_LEVEL])
        if len(of_level) > MAX_PER_LEVEL:
            yield f"::{word} title=binlogtool::{len(of_level) - MAX_PER_LEVEL:,} more findings of this level"


def _render_annotation(word: str, path: str, finding: Finding) -> str:
    text = f"{format_offset(finding.offset)}: {format_finding(finding)}"
    return f"::{word} file={escape_property(path)},line=1,title={escape_property(finding.id)}::{escape_message(text)}"
