"""GitHub workflow annotations: at most ten per level, then one line that counts the rest."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.policy import located
from binlogtool.report.words import place, sentence

PER_LEVEL = 10
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def message(text: str) -> str:
    """Escape text after the `::` of a workflow command."""
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def value(text: str) -> str:
    """Escape a property value of a workflow command."""
    return message(text).replace(":", "%3A").replace(",", "%2C")


def workflow_commands(report: Report) -> Iterator[str]:
    """Yield the lines for standard output."""
    for failure in report.failures:
        yield f"::error file={value(failure.path)},title=not read::{message(failure.message)}"
    found = located(report)
    for severity, word in _COMMANDS.items():
        own = [(path, f) for path, f in found if f.severity is severity]
        yield from (_annotation(word, path, f) for path, f in own[:PER_LEVEL])
        if len(own) > PER_LEVEL:
            yield f"::{word} title=binlogtool::{len(own) - PER_LEVEL:,} more findings of this level"


def _annotation(word: str, path: str, finding: Finding) -> str:
    text = f"{place(finding.offset)}: {sentence(finding)}"
    return f"::{word} file={value(path)},line=1,title={value(finding.id)}::{message(text)}"
