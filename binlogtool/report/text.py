"""Render `verify` and `explain` as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from binlogtool.findings import EXPLANATIONS, Explanation, Finding, Severity
from binlogtool.recovery.report import BYTE_CLASSES, FileReport, Report, SetReport
from binlogtool.render.escape import escape
from binlogtool.report.following import NO_READ_OPTIONS, GivenReadOptions, suggest_after_verify
from binlogtool.report.left import render_skipped_files
from binlogtool.report.statuses import STATUSES, StatusExplanation, find_status_key
from binlogtool.report.words import format_count, format_finding, format_offset, format_quantity, format_size

Paint = Callable[[str, str], str]
"""(text, style name) -> text, with colour or without."""

MAX_SHOWN_PER_ID = 20
_CLASS_LABELS = {"header": "header", "record": "records", "torn_tail": "torn"}


def paint_plain(text: str, _style: str) -> str:
    """Return the text without colour."""
    return text


def describe_state(file: FileReport) -> str:
    """Return ok, WARNING or DAMAGED; ENCRYPTED if nothing was checked; PARTIAL if a limit ended the work and nothing
    is wrong.
    """
    worst = max((f.severity for f in file.findings), default=Severity.NOTE)
    if file.is_encrypted and worst < Severity.ERROR:
        return "ENCRYPTED"
    sound = "PARTIAL" if "incomplete" in file.details else "ok"
    return {Severity.NOTE: sound, Severity.WARNING: "WARNING", Severity.ERROR: "DAMAGED"}[worst]


def shorten_path(path: str, sets: Sequence[SetReport]) -> str:
    """Return the path, relative to the log set if there is only one."""
    if len(sets) != 1 or path == sets[0].path:
        return escape(path)
    from pathlib import PurePath

    pure = PurePath(path)
    return escape(str(pure.relative_to(sets[0].path)) if pure.is_relative_to(sets[0].path) else path)


def render_verify_text(
    report: Report,
    *,
    exit_code: int = 0,
    paint: Paint = paint_plain,
    list_names: bool = False,
    read_options: GivenReadOptions = NO_READ_OPTIONS,
) -> Iterator[str]:
    """Yield the lines of a verify report, without line ends.

    Args:
        list_names: Also list the files that are not logs.
        read_options: For the suggested command, see `GivenReadOptions`.
    """
    shown = [shorten_path(f.path, report.sets) for f in report.files]
    widths = [
        max((len(c) for c in column), default=0) for column in zip(*map(_format_sizes, report.files), strict=True)
    ]
    width = max(map(len, shown), default=0)
    for name, file in zip(shown, report.files, strict=True):
        yield _format_file_line(name.ljust(width), file, widths, paint)
        yield from _format_limit_line(file)
        yield from render_findings(file.findings, paint)
    for set_report in report.sets:
        if set_report.findings:
            yield f"{escape(set_report.path)}  (set of {format_quantity(len(set_report.members), 'file')})"
            yield from render_findings(set_report.findings, paint)
    if report.suppressed:
        counts_by_option = ", ".join(
            f"{format_count(number)} by --{option}" for option, number in sorted(report.suppressed.items())
        )
        yield f"left out: {format_quantity(sum(report.suppressed.values()), 'finding')} ({counts_by_option})"
    if report.files:
        yield format_byte_account(report.files)
    for depth in ("frame", "checksum"):
        if any(file.details.get("depth") == depth for file in report.files):
            yield f"not checked: payloads (--depth {depth})"
    yield from render_skipped_files(report.skipped, list_names=list_names)
    if hint := suggest_after_verify(report, read_options):
        yield f"next: {hint}"
    if exit_code:
        yield f"exit {exit_code}"


def _format_sizes(file: FileReport) -> tuple[str, str]:
    if file.records is None:
        return format_size(file.size), ""
    return format_size(file.size), f"{file.records:,} record{' ' if file.records == 1 else 's'}"


def _format_file_line(name: str, file: FileReport, widths: Sequence[int], paint: Paint) -> str:
    word = describe_state(file)
    style = {"ok": "good", "DAMAGED": "error"}.get(word, "warning")
    cells = [cell.rjust(width) for cell, width in zip(_format_sizes(file), widths, strict=True)]
    span = "" if file.first_seq is None or file.last_seq is None else f"seq {file.first_seq:,}..{file.last_seq:,}"
    parts = [name, paint(word.ljust(7), style), *cells, span, escape(file.variant)]
    return "   ".join(p for p in parts if p).rstrip()


def _format_limit_line(file: FileReport) -> Iterator[str]:
    """Yield a line about what was not read because of a limit."""
    why, unread = file.details.get("incomplete"), file.details.get("unread", 0)
    if why is not None:
        read = file.size - unread
        where = f"not read behind {format_offset(read)} ({100 * read / file.size:.1f} %): " if unread else ""
        yield f"  {where}{escape(str(why))}"


def render_findings(findings: Sequence[Finding], paint: Paint = paint_plain) -> Iterator[str]:
    """Yield one indented line per finding, at most `MAX_SHOWN_PER_ID` of a kind."""
    seen: dict[str, int] = {}
    for finding in findings:
        seen[finding.id] = seen.get(finding.id, 0) + 1
        if seen[finding.id] <= MAX_SHOWN_PER_ID:
            label = paint(finding.severity.label.ljust(8), finding.severity.label)
            yield f"  {label} {format_offset(finding.offset):<10}  {finding.id:<20} {format_finding(finding)}".rstrip()
    for id_, number in seen.items():
        if number > MAX_SHOWN_PER_ID:
            yield f"  … {format_quantity(number - MAX_SHOWN_PER_ID, 'more finding')} {id_} (all of them: -O json)"


def format_byte_account(files: Sequence[FileReport]) -> str:
    """Return a line with the bytes per class over all files; they add up to the sizes."""
    totals = {name: sum(f.bytes.get(name, 0) for f in files) for name in BYTE_CLASSES}
    unread = sum(f.details.get("unread", 0) for f in files)
    totals["unknown"] -= unread
    totals["not read"] = unread
    parts = [f"{_CLASS_LABELS.get(name, name)} {format_count(n)}" for name, n in totals.items() if n]
    total_size, accounted = sum(f.size for f in files), sum(totals.values())
    percent = "100 %" if total_size == accounted else f"{100 * accounted / max(total_size, 1):.4f} % accounted for"
    percent = f"{100 * (total_size - unread) / total_size:.1f} % read" if unread else percent
    return f"bytes: {' · '.join([*parts, f'total {format_count(total_size)}'])} ({percent})"


def render_explanation(id_: str, width: int = 100) -> Iterator[str]:
    """Yield the lines about one finding id or exit status."""
    explanation: Explanation | StatusExplanation
    if (key := find_status_key(id_)) is not None:
        explanation, title = STATUSES[key], f"exit status {id_}"
    else:
        explanation = EXPLANATIONS[id_]
        title = f"{id_}  (default severity: {explanation.severity.label})"
    yield title
    for title, text in (
        ("meaning", explanation.meaning),
        ("causes", explanation.causes),
        ("what to do", explanation.action),
    ):
        yield ""
        yield title
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def render_explanation_list() -> Iterator[str]:
    """Yield all finding ids, the most serious first, and the exit statuses."""
    ordered = sorted(EXPLANATIONS.items(), key=lambda item: -item[1].severity)
    for severity, group in groupby(ordered, key=lambda item: item[1].severity):
        yield f"{severity.label}:"
        for id_, explanation in group:
            yield f"  {id_:<24}{explanation.meaning}"
    yield "exit statuses:"
    for code, status in STATUSES.items():
        yield f"  {code:<24}{status.meaning}"
