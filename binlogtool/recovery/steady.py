"""Verify a log while its server writes it, without reporting what is wrong only for a moment.

A server creates files before it lists them, removes them after it unlisted them, and writes one file while another
one
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
from binlogtool.log.named import Group
from binlogtool.recovery.report import FileReport, Report
from binlogtool.recovery.verify import Examination, Judged, Options, examine

LOOKS = 10
"""Looks at most; a server that is always at it may be wrong in another way each time."""

PAUSE = 0.2
"""Seconds between two looks."""

_TICK = 100_000_000
"""Nanoseconds in which a file can change twice with one modification time."""

Stamp = tuple[int, int, int]
Key = tuple[str, str, int | str]
"""Path of the file or set, id, place."""


def steady(group: Group, again: Callable[[], Group | None], options: Options) -> Report:
    """Verify one log that may change; report only problems that two successive passes find.

    Args:
        relist: Lists the files again; returns None if the log is gone.
    """
    stamps = _stamps(group)
    seen = examine(group, options)
    doubts = _doubts(seen.report)
    for _ in range(LOOKS):
        if not doubts or seen.report.incomplete:
            break
        time.sleep(PAUSE)
        group = _listed(again) or group
        known, stamps = _unchanged(group, seen, stamps), _stamps(group)
        seen = examine(group, options, known=known)
        before, doubts = doubts, _doubts(seen.report)
        if doubts <= before:
            break
        doubts &= before
    return _without(seen.report, doubts - _passing(group, doubts))


def _passing(group: Group, doubts: set[Key]) -> set[Key]:
    """Return the problems of files that a server keeps for a moment only, before it renames or removes them."""
    patterns = () if group.format is None else group.format.files.passing
    return {one for one in doubts if any(fnmatch.fnmatchcase(os.path.basename(one[0]), p) for p in patterns)}


def _listed(again: Callable[[], Group | None]) -> Group | None:
    try:
        return again()
    except BinlogtoolError:
        return None


def _stamps(group: Group) -> dict[str, Stamp]:
    """Return size, modification time and inode of each file that is not being written at this moment."""
    found = {}
    for name in group.names:
        try:
            status = os.stat(group.member_path(name))
        except OSError:
            continue
        if abs(time.time_ns() - status.st_mtime_ns) > _TICK:
            found[name] = status.st_size, status.st_mtime_ns, status.st_ino
    return found


def _unchanged(group: Group, seen: Examination, before: dict[str, Stamp]) -> dict[str, Judged]:
    """Return the files that have not changed since before they were read."""
    now = _stamps(group)
    return {name: one for name, one in seen.alone.items() if name in now and now[name] == before.get(name)}


def _doubts(report: Report) -> set[Key]:
    """Return the keys of all findings above notes."""
    owners = [(one.path, one.findings) for one in report.files] + [(one.path, one.findings) for one in report.sets]
    return {
        finding_key(path, found) for path, findings in owners for found in findings if found.severity > Severity.NOTE
    }


def finding_key(path: str, found: Finding) -> Key:
    """Return what identifies a finding between passes; one without an offset by its message, which names the missing
    file.
    """
    return path, found.id, found.message if found.offset is None else found.offset


def _without(report: Report, sure: set[Key]) -> Report:
    """Return the report without the problems that are not confirmed."""

    def kept(path: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(one for one in findings if one.severity is Severity.NOTE or finding_key(path, one) in sure)

    files: tuple[FileReport, ...] = tuple(replace(one, findings=kept(one.path, one.findings)) for one in report.files)
    sets = tuple(replace(one, findings=kept(one.path, one.findings)) for one in report.sets)
    return replace(report, files=files, sets=sets)
