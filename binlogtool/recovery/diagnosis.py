"""Why a database does not start: every log below a place, verified, replayed and planned, as one answer each."""

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
    """Looks at every log below the paths; reads only. wish: how a replay reads.

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
            if found.report.failures and not found.report.files:  # there is nothing to say of it
                failures += found.report.failures
            else:
                logs.append(found)
        if len(logs) + len(failures) == before:
            raise UnknownFormatError(f"{path}: there is no log of a known format in it or below it")
    return Diagnoses(tuple(logs), tuple(failures))


def _places(path: str, format: str) -> Iterator[str | Failure]:
    """The directories of logs, and a file by itself. Links to directories are not followed.

    A log that lies below the directory of another one is looked at together with it.
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
    """Those that lie below none of the others, in order."""
    last: str | None = None
    for home in sorted(homes, key=lambda one: os.path.join(one, "")):
        if last is None or not home.startswith(os.path.join(last, "")):
            yield (last := home)


def _deeper(top: str, depth: int) -> list[str]:
    """The directories that a look at the logs of `top` does not reach, in order."""
    level = [top]
    for _ in range(depth):
        level = [entry for folder in level for entry in _folders(folder)]
    return level


def _folders(folder: str) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # what cannot be listed was told when its logs were looked for
        return []


def _diagnosed(path: str, format: str, wish: Wish) -> Diagnosis:
    """With the redo log that recovers it, where one is given, or lies where the server has it."""
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
    """Files that the server may not be allowed to open; of a directory."""
    if not os.path.isdir(found.path):
        return ()
    return tuple(unusable(found.path, (one.path for one in found.report.files)))


def _holder(path: str, format: str) -> str | None:
    """The process that has the newest file of a log open: most likely its server."""
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
    """Look again while a server writes: what is wrong must be wrong in every look (see `steady`)."""
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
    """What is wrong with a log, in words that do not change while it grows."""
    errors = [tuple(map(str, finding_key(path, one))) for log in found.replays for path, one in _errors(log.findings)]
    stops = [("", log.stop.file, log.stop.why) for log in found.replays if log.stop is not None]
    starts = [("starts", str(log.details.get("startup"))) for log in found.replays if log.starts is False]
    rejected = [("rejected", log.path) for log in found.replays if log.decisions["rejected"]]
    failed = [("failed", one.path, one.message) for one in found.report.failures if os.path.lexists(one.path)]
    return frozenset([*errors, *stops, *starts, *rejected, *failed])


def _errors(findings: Iterable[tuple[str, Finding]]) -> Iterator[tuple[str, Finding]]:
    return ((path, one) for path, one in findings if one.severity is Severity.ERROR)


def _redo_of(found: Diagnosis) -> str | None:
    """The redo log of a server that does not run: that of a running one is ahead of what was read by now."""
    if not os.path.isdir(found.path):
        return None
    for format in dict.fromkeys(file.format for file in found.report.files):
        for name in formats.get(format).repair.redo:
            path = os.path.normpath(os.path.join(found.path, name))
            if os.path.isfile(path):
                return None if System().holders(os.stat(path)) else path
    return None


def _looked(path: str, format: str, wish: Wish, *, live: bool = False) -> Diagnosis:
    """What `verify` says of a place, and what the replay says of each log there: both from one look at it. live: a
    server has the files open, which may grow and go."""
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
    """The plan, with the list of files put in line too where it takes no more than that."""
    try:
        plan = plan_truncate(found.path, how, Asked())
        if plan.refused or not plan.changes:
            listed = plan_truncate(found.path, how, Asked(fix_meta=True))
            of_list = plan.refused and any(LIST in reason for reason in plan.reasons)
            plan = listed if of_list or (listed.changes and not listed.refused) else plan
    except BinlogtoolError as error:
        return replace(found, trouble=str(error))
    return replace(found, plan=plan)
