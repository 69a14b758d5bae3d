"""Verify a log while its server writes it, without reporting what is wrong only for a moment.

A server creates files before it lists them, removes them after it unlisted them, and writes one file while another one
is read. So a problem must be seen twice: the files are listed again, and what changed is read again.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, Severity
from binlogtool.log.named import LogGroup
from binlogtool.recovery.report import FileReport, Report
from binlogtool.recovery.verify import LogExamination, LogVerifyOptions, VerifiedMember, examine_log

MAX_PASSES = 10
"""Looks at most; a server that is always at it may be wrong in another way each time."""

PASS_INTERVAL = 0.2
"""Seconds between two looks."""

_TIMESTAMP_GRANULARITY = 100_000_000
"""Nanoseconds in which a file can change twice with one modification time."""

FileStamp = tuple[int, int, int]
FindingKey = tuple[str, str, int | str]
"""Path of the file or set, id, place."""


def verify_until_stable(group: LogGroup, relist: Callable[[], LogGroup | None], options: LogVerifyOptions) -> Report:
    """Verify one log that may change; report only problems that two successive passes find.

    Args:
        relist: Lists the files again; returns None if the log is gone.
    """
    stamps = _collect_stamps(group)
    examination = examine_log(group, options)
    problems = _collect_problems(examination.report)
    for _ in range(MAX_PASSES):
        if not problems or examination.report.incomplete:
            break
        time.sleep(PASS_INTERVAL)
        group = _relist_files(relist) or group
        verified, stamps = _select_unchanged(group, examination, stamps), _collect_stamps(group)
        examination = examine_log(group, options, verified=verified)
        previous, problems = problems, _collect_problems(examination.report)
        if problems <= previous:
            break
        problems &= previous
    return _keep_confirmed(examination.report, problems - _select_transient(group, problems))


def _select_transient(group: LogGroup, problems: set[FindingKey]) -> set[FindingKey]:
    """Return the problems of files that a server keeps for a moment only, before it renames or removes them."""
    patterns = () if group.format is None else group.format.files.temporary_patterns
    return {one for one in problems if any(fnmatch.fnmatchcase(os.path.basename(one[0]), p) for p in patterns)}


def _relist_files(relist: Callable[[], LogGroup | None]) -> LogGroup | None:
    try:
        return relist()
    except BinlogtoolError:
        return None


def _collect_stamps(group: LogGroup) -> dict[str, FileStamp]:
    """Return size, modification time and inode of each file that is not being written at this moment."""
    stamps = {}
    for name in group.names:
        try:
            status = os.stat(group.member_path(name))
        except OSError:
            continue
        if abs(time.time_ns() - status.st_mtime_ns) > _TIMESTAMP_GRANULARITY:
            stamps[name] = status.st_size, status.st_mtime_ns, status.st_ino
    return stamps


def _select_unchanged(
    group: LogGroup, examination: LogExamination, old_stamps: dict[str, FileStamp]
) -> dict[str, VerifiedMember]:
    """Return the files that have not changed since before they were read."""
    new_stamps = _collect_stamps(group)
    return {
        name: one
        for name, one in examination.standalone_by_name.items()
        if name in new_stamps and new_stamps[name] == old_stamps.get(name)
    }


def _collect_problems(report: Report) -> set[FindingKey]:
    """Return the keys of all findings above notes."""
    owners = [(one.path, one.findings) for one in report.files] + [(one.path, one.findings) for one in report.sets]
    return {
        make_finding_key(path, found)
        for path, findings in owners
        for found in findings
        if found.severity > Severity.NOTE
    }


def make_finding_key(path: str, finding: Finding) -> FindingKey:
    """Return what identifies a finding between passes; one without an offset by its message, which names the missing
    file.
    """
    return path, finding.id, finding.message if finding.offset is None else finding.offset


def _keep_confirmed(report: Report, confirmed: set[FindingKey]) -> Report:
    """Return the report without the problems that are not confirmed."""

    def filter_findings(path: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            one for one in findings if one.severity is Severity.NOTE or make_finding_key(path, one) in confirmed
        )

    files: tuple[FileReport, ...] = tuple(
        replace(one, findings=filter_findings(one.path, one.findings)) for one in report.files
    )
    sets = tuple(replace(one, findings=filter_findings(one.path, one.findings)) for one in report.sets)
    return replace(report, files=files, sets=sets)
