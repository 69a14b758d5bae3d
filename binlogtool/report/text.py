"""Render `verify` and `explain` as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from binlogtool.findings import EXPLANATIONS, Explanation, Finding, Severity
from binlogtool.recovery.report import BYTE_CLASSES, FileReport, Report, SetReport
from binlogtool.render.escape import escape
from binlogtool.report.following import NOTHING_GIVEN, Given, after_verify
from binlogtool.report.left import left_lines
from binlogtool.report.statuses import STATUSES, Status, status_of
from binlogtool.report.words import count, counted, place, sentence, size

Paint = Callable[[str, str], str]
"""(text, style name) -> text, with colour or without."""

SHOWN_PER_ID = 20
_CLASS_WORDS = {"header": "header", "record": "records", "torn_tail": "torn"}


def no_paint(text: str, _style: str) -> str:
    """Return the text without colour."""
    return text


def state(file: FileReport) -> str:
    """Return ok, WARNING or DAMAGED; ENCRYPTED if nothing was checked; PARTIAL if a limit ended the work and nothing
    is wrong.
    """
    worst = max((f.severity for f in file.findings), default=Severity.NOTE)
    if file.encrypted and worst < Severity.ERROR:
        return "ENCRYPTED"
    sound = "PARTIAL" if "incomplete" in file.details else "ok"
    return {Severity.NOTE: sound, Severity.WARNING: "WARNING", Severity.ERROR: "DAMAGED"}[worst]


def shown_name(path: str, sets: Sequence[SetReport]) -> str:
    """Return the path, relative to the log set if there is only one."""
    if len(sets) != 1 or path == sets[0].path:
        return escape(path)
    from pathlib import PurePath

    pure = PurePath(path)
    return escape(str(pure.relative_to(sets[0].path)) if pure.is_relative_to(sets[0].path) else path)


def verify_text(
    report: Report, *, exit_code: int = 0, paint: Paint = no_paint, names: bool = False, given: Given = NOTHING_GIVEN
) -> Iterator[str]:
    """Yield the lines of a verify report, without line ends.

    Args:
        list_names: Also list the files that are not logs.
        read_options: For the suggested command, see `GivenReadOptions`.
    """
    shown = [shown_name(f.path, report.sets) for f in report.files]
    widths = [max((len(c) for c in column), default=0) for column in zip(*map(_cells, report.files), strict=True)]
    width = max(map(len, shown), default=0)
    for name, file in zip(shown, report.files, strict=True):
        yield _file_line(name.ljust(width), file, widths, paint)
        yield from _limit_line(file)
        yield from finding_lines(file.findings, paint)
    for part in report.sets:
        if part.findings:
            yield f"{escape(part.path)}  (set of {counted(len(part.members), 'file')})"
            yield from finding_lines(part.findings, paint)
    if report.left_out:
        ways = ", ".join(f"{count(number)} by --{option}" for option, number in sorted(report.left_out.items()))
        yield f"left out: {counted(sum(report.left_out.values()), 'finding')} ({ways})"
    if report.files:
        yield byte_account(report.files)
    for depth in ("frame", "checksum"):
        if any(file.details.get("depth") == depth for file in report.files):
            yield f"not checked: payloads (--depth {depth})"
    yield from left_lines(report.left, names=names)
    if hint := after_verify(report, given):
        yield f"next: {hint}"
    if exit_code:
        yield f"exit {exit_code}"


def _cells(file: FileReport) -> tuple[str, str]:
    if file.records is None:
        return size(file.size), ""
    return size(file.size), f"{file.records:,} record{' ' if file.records == 1 else 's'}"


def _file_line(name: str, file: FileReport, widths: Sequence[int], paint: Paint) -> str:
    word = state(file)
    style = {"ok": "good", "DAMAGED": "error"}.get(word, "warning")
    cells = [cell.rjust(width) for cell, width in zip(_cells(file), widths, strict=True)]
    span = "" if file.first_seq is None or file.last_seq is None else f"seq {file.first_seq:,}..{file.last_seq:,}"
    parts = [name, paint(word.ljust(7), style), *cells, span, escape(file.variant)]
    return "   ".join(p for p in parts if p).rstrip()


def _limit_line(file: FileReport) -> Iterator[str]:
    """Yield a line about what was not read because of a limit."""
    why, unread = file.details.get("incomplete"), file.details.get("unread", 0)
    if why is not None:
        read = file.size - unread
        where = f"not read behind {place(read)} ({100 * read / file.size:.1f} %): " if unread else ""
        yield f"  {where}{escape(str(why))}"


def finding_lines(findings: Sequence[Finding], paint: Paint = no_paint) -> Iterator[str]:
    """Yield one indented line per finding, at most `MAX_SHOWN_PER_ID` of a kind."""
    seen: dict[str, int] = {}
    for f in findings:
        seen[f.id] = seen.get(f.id, 0) + 1
        if seen[f.id] <= SHOWN_PER_ID:
            label = paint(f.severity.label.ljust(8), f.severity.label)
            yield f"  {label} {place(f.offset):<10}  {f.id:<20} {sentence(f)}".rstrip()
    for id_, number in seen.items():
        if number > SHOWN_PER_ID:
            yield f"  … {counted(number - SHOWN_PER_ID, 'more finding')} {id_} (all of them: -O json)"


def byte_account(files: Sequence[FileReport]) -> str:
    """Return a line with the bytes per class over all files; they add up to the sizes."""
    totals = {name: sum(f.bytes.get(name, 0) for f in files) for name in BYTE_CLASSES}
    unread = sum(f.details.get("unread", 0) for f in files)
    totals["unknown"] -= unread
    totals["not read"] = unread
    parts = [f"{_CLASS_WORDS.get(name, name)} {count(n)}" for name, n in totals.items() if n]
    whole, accounted = sum(f.size for f in files), sum(totals.values())
    percent = "100 %" if whole == accounted else f"{100 * accounted / max(whole, 1):.4f} % accounted for"
    percent = f"{100 * (whole - unread) / whole:.1f} % read" if unread else percent
    return f"bytes: {' · '.join([*parts, f'total {count(whole)}'])} ({percent})"


def explain_text(id_: str, width: int = 100) -> Iterator[str]:
    """Yield the lines about one finding id or exit status."""
    known: Explanation | Status
    if (key := status_of(id_)) is not None:
        known, title = STATUSES[key], f"exit status {id_}"
    else:
        known = EXPLANATIONS[id_]
        title = f"{id_}  (default severity: {known.severity.label})"
    yield title
    for title, text in (("meaning", known.meaning), ("causes", known.causes), ("what to do", known.action)):
        yield ""
        yield title
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def explain_list() -> Iterator[str]:
    """Yield all finding ids, the most serious first, and the exit statuses."""
    ordered = sorted(EXPLANATIONS.items(), key=lambda item: -item[1].severity)
    for severity, group in groupby(ordered, key=lambda item: item[1].severity):
        yield f"{severity.label}:"
        for id_, known in group:
            yield f"  {id_:<24}{known.meaning}"
    yield "exit statuses:"
    for code, status in STATUSES.items():
        yield f"  {code:<24}{status.meaning}"
