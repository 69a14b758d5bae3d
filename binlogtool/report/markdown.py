"""A report for a pull request, a wiki or a step summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.following import suggest_after_verify
from binlogtool.report.policy import list_located_findings
from binlogtool.report.text import describe_state, format_byte_account
from binlogtool.report.words import format_count, format_finding, format_offset, format_size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@:])")
MAX_FINDINGS = 200


def escape_markdown(text: str) -> str:
    """Escape text so that Markdown shows it unchanged: no markup, links or mentions, one line."""
    return _SPECIAL.sub(lambda m: f"&#{ord(m[1])};", escape(text))


def render_markdown(report: Report) -> str:
    """Render the report as one Markdown document."""
    return "\n".join(_render_lines(report)) + "\n"


def _render_lines(report: Report) -> Iterator[str]:
    yield f"## binlogtool verify: {report.status}"
    yield ""
    yield "| file | state | size | records | format |"
    yield "|---|---|---:|---:|---|"
    for file in report.files:
        records = "" if file.records is None else format_count(file.records)
        yield (
            f"| {escape_markdown(file.path)} | {describe_state(file)} | {format_size(file.size)} | "
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
