"""Diagnose why a database does not start: verify, replay and plan a repair for every log below a path."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, UnknownFormatError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.log.how import How
from binlogtool.log.logset import MAX_DEPTH
from binlogtool.log.named import Group, named
from binlogtool.log.rotated import newest
from binlogtool.recovery.diagnosis_result import Diagnoses, Diagnosis
from binlogtool.recovery.durable import plan_truncate
from binlogtool.recovery.ownership import unusable
from binlogtool.recovery.plan import Asked
from binlogtool.recovery.refusals import LIST
from binlogtool.recovery.replay import replay_group
from binlogtool.recovery.report import Failure, Report, failed, joined, left_of
from binlogtool.recovery.steady import LOOKS, PAUSE, finding_key
from binlogtool.recovery.system import System
from binlogtool.recovery.verify import Examination, Options, examine
from binlogtool.recovery.wish import Wish

ENOUGH = 3
"""Looks beside a server that find the same before it is believed."""


def diagnose_paths(paths: Iterable[str], format: str, wish: Wish) -> Diagnoses:
    """Diagnose every log below the paths; nothing is written.

    Args:
        options: How the logs are read and replayed.

    Raises:
        UnknownFormatError: there is no log below a path. UsageError.
    """
    logs: list[Diagnosis] = []
    failures: list[Failure] = []
    for path in paths:
        before = len(logs) + len(failures)
        for one in _places(path, format):
            if isinstance(one, Failure):
                failures.append(one)
                continue
            found = _diagnosed(one, format, wish)
            if found.report.failures and not found.report.files:  # nothing but failures to report
                failures += found.report.failures
            else:
                logs.append(found)
        if len(logs) + len(failures) == before:
            raise UnknownFormatError(f"{path}: there is no log of a known format in it or below it")
    return Diagnoses(tuple(logs), tuple(failures))


def _places(path: str, format: str) -> Iterator[str | Failure]:
    """Yield the directories with logs below a path (a file by itself), and a failure for each that cannot be read.

    Links to directories are not followed. A log below the directory of another log is diagnosed together with it.
    """
    if not os.path.isdir(path):
        yield path
        return
    pending = [path]
    while pending:
        top = pending.pop()
        try:
            yield from _outermost({group.path for group in named(top, format).groups})
        except UnknownFormatError:
            pass
        except UsageError:
            raise
        except BinlogtoolError as error:
            yield Failure(top, str(error), error.exit_code)
            continue
        pending += reversed(_deeper(top, MAX_DEPTH + 1))


def _outermost(homes: set[str]) -> Iterator[str]:
    """Yield, sorted, the directories that lie below none of the others."""
    last: str | None = None
    for home in sorted(homes, key=lambda one: os.path.join(one, "")):
        if last is None or not home.startswith(os.path.join(last, "")):
            yield (last := home)


def _deeper(top: str, depth: int) -> list[str]:
    """Return the directories `depth` levels below `top`, which the search for the logs of `top` does not reach."""
    level = [top]
    for _ in range(depth):
        level = [entry for folder in level for entry in _folders(folder)]
    return level


def _folders(folder: str) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # an unreadable directory was reported when its logs were searched
        return []


def _diagnosed(path: str, format: str, wish: Wish) -> Diagnosis:
    """Diagnose one place, with the redo log that recovers it if one is named or lies where the server keeps it."""
    holder = _holder(path, format)
    if holder is not None:
        return replace(_looked_again(path, format, wish), holder=holder)
    found = _looked(path, format, wish)
    found = replace(found, unusable=_unusable(found))
    redo = None if wish.hints.redo is not None else _redo_of(found)
    if redo is None:
        return found
    again = _looked(path, format, replace(wish, hints=replace(wish.hints, redo=redo)))
    return replace(again, redo=redo, unusable=found.unusable)


def _unusable(found: Diagnosis) -> tuple[str, ...]:
    """Describe the files of a directory that the server may not be allowed to open."""
    if not os.path.isdir(found.path):
        return ()
    return tuple(unusable(found.path, (one.path for one in found.report.files)))


def _holder(path: str, format: str) -> str | None:
    """Return the process that has the newest file of a log open, most likely its server; None if there is none."""
    if not os.path.isdir(path):
        return None
    system = System()
    with suppress(BinlogtoolError):
        for group in named(path, format).groups:
            for _, name in newest(group.names).values():
                with suppress(OSError):
                    for holder in system.holders(os.stat(group.member_path(name))):
                        return holder
    return None


def _looked_again(path: str, format: str, wish: Wish) -> Diagnosis:
    """Diagnose a log while a server writes it: only problems that every pass finds are reported (see `steady`)."""
    found = _looked(path, format, wish, live=True)
    doubts, same = _doubts(found), 0
    for _ in range(LOOKS):
        if found.well or same == ENOUGH:
            break
        time.sleep(PAUSE)
        found = _looked(path, format, wish, live=True)
        before, doubts = doubts, doubts & _doubts(found)
        same = same + 1 if doubts and doubts == before else 0
    if found.well or doubts:
        return found
    text = f"not checked: the server changed the log during each of {LOOKS + 1} looks; nothing was wrong in all of them"
    report = replace(found.report, failures=())
    return replace(found, report=report, replays=(), plan=None, trouble=None, unsettled=text)


def _doubts(found: Diagnosis) -> frozenset[tuple[str, ...]]:
    """Return what is wrong with a log as keys that do not change while the log grows."""
    errors = [tuple(map(str, finding_key(path, one))) for log in found.replays for path, one in _errors(log.findings)]
    stops = [("", log.stop.file, log.stop.why) for log in found.replays if log.stop is not None]
    starts = [("starts", str(log.details.get("startup"))) for log in found.replays if log.starts is False]
    rejected = [("rejected", log.path) for log in found.replays if log.decisions["rejected"]]
    failed = [("failed", one.path, one.message) for one in found.report.failures if os.path.lexists(one.path)]
    return frozenset([*errors, *stops, *starts, *rejected, *failed])


def _errors(findings: Iterable[tuple[str, Finding]]) -> Iterator[tuple[str, Finding]]:
    return ((path, one) for path, one in findings if one.severity is Severity.ERROR)


def _redo_of(found: Diagnosis) -> str | None:
    """Return the redo log of a server that is not running; None if there is none, or a running server is ahead of
    it.
    """
    if not os.path.isdir(found.path):
        return None
    for format in dict.fromkeys(file.format for file in found.report.files):
        for name in formats.get(format).repair.redo:
            path = os.path.normpath(os.path.join(found.path, name))
            if os.path.isfile(path):
                return None if System().holders(os.stat(path)) else path
    return None


def _looked(path: str, format: str, wish: Wish, *, live: bool = False) -> Diagnosis:
    """Verify a place and replay each of its logs, both from a single verification pass.

    Args:
        live: A server has the files open, which may grow and vanish.
    """
    reports: list[Report] = []

    def look(group: Group, options: Options) -> Examination:
        found = examine(group, replace(options, live=live))
        reports.append(found.report)
        return found

    try:
        there = named(path, format)
        replays = tuple(replay_group(group, wish, look=look) for group in there.groups)
        found = Diagnosis(path, joined([*reports, replace(left_of(path, there.left), failures=())]), replays)
    except UsageError:
        raise
    except BinlogtoolError as error:
        return Diagnosis(path, failed(path, error), trouble=str(error))
    how = How(format, wish.limits, wish.backend, wish.hints)
    return found if found.well else _with_plan(found, how)


def _with_plan(found: Diagnosis, how: How) -> Diagnosis:
    """Add the repair plan; it also fixes the list of files (`--fix-meta`) where nothing else has to change."""
    try:
        plan = plan_truncate(found.path, how, Asked())
        if plan.refused or not plan.changes:
            listed = plan_truncate(found.path, how, Asked(fix_meta=True))
            of_list = plan.refused and any(LIST in reason for reason in plan.reasons)
            plan = listed if of_list or (listed.changes and not listed.refused) else plan
    except BinlogtoolError as error:
        return replace(found, trouble=str(error))
    return replace(found, plan=plan)
