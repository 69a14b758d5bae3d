"""Adjust findings and compute exit statuses: severities, ignored findings, a baseline. Pure functions of reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import EXPLANATIONS, UNCHECKED_IDS, Finding, Severity, make_finding
from binlogtool.report.format_numbers_and_names import format_duration

if TYPE_CHECKING:
    from binlogtool.verification.verify_report import Report

EXIT_SEVERITY_ORDER = (70, 7, 5, 4, 3, 6, 1, 0)
"""All exit statuses, the most severe first."""


def select_most_severe_exit_code(codes: Iterable[int]) -> int:
    """Return the most severe of several exit statuses."""
    present = set(codes)
    return next((code for code in EXIT_SEVERITY_ORDER if code in present), max(present, default=0))


def check_finding_id(text: str) -> str:
    """Check a finding id, and return it.

    Raises:
        UsageError: there is no such finding.
    """
    if text not in EXPLANATIONS:
        raise UsageError(f"unknown finding id {text!r}; `binlogtool explain` lists them")
    return text


class IgnoreRule(msgspec.Struct, frozen=True):
    """Rule `ID[@FILE[:OFFSET]]` for findings to ignore.

    Attributes:
        file: A path, or the last part of one; None = any.
    """

    id: str
    file: str | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> IgnoreRule:
        """Parse the option's text.

        Raises:
            UsageError: unknown id.
        """
        id_, _, where = text.partition("@")
        path, colon, number = where.rpartition(":")
        try:
            offset = int(number, 0) if colon else None
        except ValueError:
            path, offset = where, None
        return cls(check_finding_id(id_), (path if offset is not None else where) or None, offset)

    def covers(self, path: str, finding: Finding) -> bool:
        """Return True if the rule covers the finding."""
        path_matches = self.file in (None, path, _get_base_name(path))
        return finding.id == self.id and path_matches and self.offset in (None, finding.offset)


def parse_severity(text: str) -> tuple[str, Severity]:
    """Parse `ID=LEVEL`.

    Raises:
        UsageError: unknown id or level.
    """
    id_, _, level = text.partition("=")
    if level.upper() not in Severity.__members__:
        raise UsageError(f"{text!r}: write ID=note, ID=warning or ID=error")
    return check_finding_id(id_), Severity[level.upper()]


def _get_base_name(path: str) -> str:
    from pathlib import PurePath

    return PurePath(path).name


def list_located_findings(report: Report) -> list[tuple[str, Finding]]:
    """Return (path, finding) of all findings, file findings first."""
    files = [(file.path, f) for file in report.files for f in file.findings]
    return files + [(part.path, f) for part in report.sets for f in part.findings]


def compute_fingerprint(path: str, finding: Finding) -> str:
    """Return a hash that identifies a finding in a file, whatever the file's directory is."""
    parts = (finding.id, _get_base_name(path), finding.offset, finding.length, sorted(map(str, finding.facts.items())))
    import hashlib

    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class FindingPolicy(msgspec.Struct, frozen=True):
    """Changes that the options of `verify` make to findings.

    Attributes:
        severities: Finding id -> severity in place of the default.
        baseline: Fingerprints of known findings.
    """

    severities: Mapping[str, Severity] = msgspec.field(default_factory=dict)
    ignored: Sequence[IgnoreRule] = ()
    baseline: frozenset[str] = frozenset()

    def adjust_and_suppress_findings(self, report: Report) -> Report:
        """Return the report with adjusted severities, and with suppressed findings only counted."""
        from binlogtool.verification.verify_report import replace_findings

        suppressed = Counter(
            rule
            for path, f in list_located_findings(report)
            if (rule := self._find_suppressing_option(path, f)) is not None
        )
        return replace(replace_findings(report, self._filter_findings), suppressed=dict(suppressed))

    def _filter_findings(self, path: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(self._adjust_severity(f) for f in findings if self._find_suppressing_option(path, f) is None)

    def _find_suppressing_option(self, path: str, finding: Finding) -> str | None:
        """Return the name of the option that suppresses a finding; None if no option does."""
        if any(i.covers(path, finding) for i in self.ignored):
            return "ignore"
        return "baseline" if self.baseline and compute_fingerprint(path, finding) in self.baseline else None

    def _adjust_severity(self, finding: Finding) -> Finding:
        level = self.severities.get(finding.id)
        return finding if level is None else finding.copy_with_severity(level)


def add_log_age_findings(report: Report, max_age_seconds: float, now: datetime) -> Report:
    """Return the report with a finding for each log whose newest record is older than `max_age_seconds` seconds, and a
    note for each log without times.

    The files of a set, or single files in one directory, count as one log. The times are in `details.newest_time`.
    """
    logs: dict[tuple[str, str], list[int]] = {}
    set_paths = {
        os.path.normpath(os.path.join(one.path, name)): (one.path, one.format)
        for one in report.sets
        for name in one.members
    }
    for number, file in enumerate(report.files):
        log = set_paths.get(os.path.normpath(file.path), (os.path.dirname(file.path), file.format))
        logs.setdefault(log, []).append(number)
    files = list(report.files)
    for numbers in logs.values():
        newest = max(numbers, key=lambda number: (files[number].details.get("newest_time") or "", number))
        file = files[newest]
        modified = max(
            (time for n in numbers if (time := _get_modification_time(files[n].path)) is not None), default=None
        )
        found = _find_age_problem(file.details.get("newest_time"), modified, max_age_seconds, now)
        if found is not None and not any("unread" in files[number].details for number in numbers):
            files[newest] = replace(file, findings=(*file.findings, found))
    return replace(report, files=tuple(files))


def _get_modification_time(path: str) -> datetime | None:
    """Return when a local file was modified; None if that is not known."""
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None


def _find_age_problem(
    newest_time: str | None, modification_time: datetime | None, max_age_seconds: float, now: datetime
) -> Finding | None:
    """Return the finding for a log that is too old, or whose age is not known; None if it is recent enough.

    modification_time: the modification time of its newest file, which counts if no record has a time.
    """
    if newest_time is None and modification_time is None:
        return make_finding("age-unknown", None, 0, "--max-age was not checked: no record has a time")
    time = modification_time if newest_time is None else datetime.fromisoformat(newest_time)
    assert time is not None
    age = (now - time).total_seconds()
    if age <= max_age_seconds:
        text = "no record has a time: --max-age was compared with the file's modification time, which a copy may change"
        return make_finding("age-unknown", None, 0, text) if newest_time is None else None
    what = "no record has a time, and the file was modified at" if newest_time is None else "the newest record is from"
    text = (
        f"{what} {time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z, {format_duration(age)} ago; "
        f"--max-age allows {format_duration(max_age_seconds)}"
    )
    return make_finding("log-outdated", None, 0, text)


def compute_exit_code(report: Report, fail_on: Severity | None) -> int:
    """Return the exit status of a report.

    Args:
        fail_on: The lowest severity that counts; None = findings never count.
    """
    codes = [f.exit_code for f in report.failures]
    if report.incomplete or any(one.is_unchecked for one in report.files):
        codes.append(6)
    if fail_on is not None and any(f.severity >= fail_on and f.id not in UNCHECKED_IDS for f in report.findings):
        codes.append(1)
    return select_most_severe_exit_code(codes)


def baseline_to_json(report: Report) -> dict[str, Any]:
    """Return the value for `--write-baseline` (binlogtool/baseline/1); only its fingerprints are compared later."""
    findings = {
        compute_fingerprint(path, f): {
            "id": f.id,
            "file": _get_base_name(path),
            "offset": f.offset,
            "message": f.message,
        }
        for path, f in list_located_findings(report)
    }
    return {"schema": "binlogtool/baseline/1", "findings": dict(sorted(findings.items()))}


def parse_baseline(text: str | bytes) -> frozenset[str]:
    """Return the fingerprints of a baseline file.

    Raises:
        UsageError: the text is not a baseline.
    """
    import json

    try:
        value = json.loads(text)
        fingerprints = frozenset(value["findings"])
        if value["schema"] == "binlogtool/baseline/1" and all(isinstance(one, str) for one in fingerprints):
            return fingerprints
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    raise UsageError("the baseline is not a file written by --write-baseline")
