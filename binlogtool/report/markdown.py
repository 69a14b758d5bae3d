"""A report for a pull request, a wiki or a step summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.following import after_verify
from binlogtool.report.policy import located
from binlogtool.report.text import byte_account, state
from binlogtool.report.words import count, place, sentence, size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@:])")
MOST_FINDINGS = 200


def plain(text: str) -> str:
    """Escape text so that Markdown shows it unchanged: no markup, links or mentions, one line."""
    return _SPECIAL.sub(lambda m: f"&#{ord(m[1])};", escape(text))


def markdown(report: Report) -> str:
    """Render the report as one Markdown document."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## binlogtool verify: {report.status}"
    yield ""
    yield "| file | state | size | records | format |"
    yield "|---|---|---:|---:|---|"
    for file in report.files:
        records = "" if file.records is None else count(file.records)
        yield f"| {plain(file.path)} | {state(file)} | {size(file.size)} | {records} | {plain(file.variant)} |"
    for failure in report.failures:
        yield f"| {plain(failure.path)} | not read | | | {plain(failure.message)} |"
    found = located(report)
    if found:
        yield ""
        yield "| severity | finding | file | place | what |"
        yield "|---|---|---|---|---|"
    for path, f in sorted(found, key=lambda item: -item[1].severity)[:MOST_FINDINGS]:
        yield f"| {f.severity.label} | {plain(f.id)} | {plain(path)} | {place(f.offset)} | {plain(sentence(f))} |"
    if len(found) > MOST_FINDINGS:
        yield ""
        yield f"{len(found) - MOST_FINDINGS:,} more findings are not shown."
    if report.files:
        yield ""
        yield byte_account(report.files)
    if hint := after_verify(report):
        yield ""
        yield f"next: {plain(hint)}"
