"""Diagnose why a database does not start: verify, replay and plan every log below a path."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core.lost_records import LostRange, find_lost_ranges
from binlogtool.core.notify_progress_listener import SkippedFile, is_compressed_log
from binlogtool.core.open_file import is_url
from binlogtool.core.open_file_holders import find_holders
from binlogtool.core.record_and_selection_types import ReadOptions
from binlogtool.core.resolve_paths import MAX_DEPTH, LogGroup, NoLogFoundError, find_newest_files, resolve_path
from binlogtool.errors import BinlogtoolError, LimitError, UnknownFormatError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.prediction.predict_replay import ReplayResult, replay_log
from binlogtool.prediction.replay_options import ReplayOptions
from binlogtool.repair.plan_truncate import plan_truncate
from binlogtool.repair.plan_types import LIST_FIX_OPTION, RepairPlan, RepairPolicy
from binlogtool.repair.system_calls import describe_unusable_files
from binlogtool.verification.verify_logs import (
    MAX_PASSES,
    PASS_INTERVAL,
    LogExamination,
    LogVerifyOptions,
    examine_log,
    make_finding_key,
)
from binlogtool.verification.verify_report import (
    PathFailure,
    Report,
    SkippedFiles,
    merge_reports,
    report_failure,
    report_skipped_files,
)

# --- Results of `diagnose` (JSON shape binlogtool/diagnose/1) ---

STARTS, REFUSES, OPEN, UNKNOWN = "yes", "no", "open", "unknown"
"""Answers to "does the server start?". OPEN: it cannot be determined from this log. UNKNOWN: it was not read to its
end."""

SILENT_LOSS = "silent-loss"


def list_unchecked(replay: ReplayResult) -> tuple[str, ...]:
    """Describe the conditions of a server start that the replay could not check."""
    return tuple(replay.details.get("startup", {}).get("not_checked", ()))


class DirectoryFacts(msgspec.Struct, frozen=True):
    """Owner, mode and free space of the directory of a log; a user or group without a name is given by number."""

    owner: str
    group: str
    mode: int
    free_bytes: int

    @classmethod
    def read_directory_facts(cls, path: str) -> DirectoryFacts | None:
        """Read the facts about a directory, or the directory of a file; None if it does not exist."""
        directory = path if os.path.isdir(path) else os.path.dirname(path) or os.curdir
        try:
            status, space = os.stat(directory), os.statvfs(directory)
        except OSError:
            return None
        return cls(
            _find_name(pwd.getpwuid, status.st_uid),
            _find_name(grp.getgrgid, status.st_gid),
            stat.S_IMODE(status.st_mode),
            space.f_bavail * space.f_frsize,
        )


def _find_name(look_up: Callable[[int], tuple[Any, ...]], number: int) -> str:
    """Return the name of a user or a group, or its number if it has none."""
    with suppress(KeyError):
        return str(look_up(number)[0])
    return str(number)


class Diagnosis(msgspec.Struct, frozen=True):
    """Diagnosis of one place: a directory as its server reads it, or a single file.

    Attributes:
        plan: The plan of a truncation to the durable end; None if nothing is wrong.
        incomplete_reason: Why nothing, or not everything, could be determined.
        redo: The redo log that was found beside the log and read with it.
        holder: The process that has the newest file open for writing, most likely the server.
        unusable_files: Lines about files that the owner of the directory cannot open.
        unstable_reason: What was not checked because a running server kept changing the log and no problem showed up in
            every pass.
        live: True if the files were read as files that a server is writing.
        directory: Facts about the directory; None if it is not local.
        lost: What damage and torn ends took, by name where the records around them prove it.
    """

    path: str
    report: Report
    replays: tuple[ReplayResult, ...] = ()
    plan: RepairPlan | None = None
    incomplete_reason: str | None = None
    redo: str | None = None
    holder: str | None = None
    unusable_files: tuple[str, ...] = ()
    unstable_reason: str | None = None
    live: bool = False
    directory: DirectoryFacts | None = None
    lost: tuple[LostRange, ...] = ()

    @property
    def start(self) -> str:
        """Prediction for the server's start: STARTS, REFUSES, OPEN or UNKNOWN."""
        if self.unstable_reason is not None:
            return OPEN
        if any(one.starts is False and not one.is_encrypted for one in self.replays):
            return REFUSES
        if (
            self.incomplete_reason is not None
            or not self.replays
            or self.report.status == "incomplete"
            or self._has_unread
        ):
            return UNKNOWN
        return STARTS if any(one.starts for one in self.replays) else OPEN

    @property
    def _has_unread(self) -> bool:
        return any(one.is_encrypted or one.incomplete_reason is not None for one in self.replays)

    @property
    def losses(self) -> tuple[tuple[str, Finding], ...]:
        """(file, finding) pairs about records that the server would skip or drop without an error."""
        return tuple(item for one in self.replays for item in one.findings if item[1].id == SILENT_LOSS)

    @property
    def rejected_records(self) -> int:
        """Number of records that the server would reject."""
        return sum(one.decisions["rejected"] for one in self.replays)

    @property
    def is_healthy(self) -> bool:
        """True if everything was checked, nothing is wrong and nothing is lost. Accepted torn ends count as healthy."""
        if self.unstable_reason is not None:
            return True
        errors = any(found.severity is Severity.ERROR for found in self.report.findings)
        complete = self.incomplete_reason is None and self.report.status != "incomplete" and not self._has_unread
        complete = complete and not any(one.starts is None and list_unchecked(one) for one in self.replays)
        return (
            complete
            and not (errors or self.losses)
            and bool(self.replays)
            and all(one.is_clean for one in self.replays)
        )


class DiagnosisReport(msgspec.Struct, frozen=True):
    """Diagnoses of all logs that were found. failures: places that could not be read."""

    logs: tuple[Diagnosis, ...]
    failures: tuple[PathFailure, ...] = ()

    @property
    def exit_codes(self) -> list[int]:
        """Exit status of each log and of each failure."""
        codes = [LimitError.exit_code if one.start == UNKNOWN else int(not one.is_healthy) for one in self.logs]
        return codes + [failure.exit_code for failure in self.failures]


# --- Diagnosis of a failed start ---

STABLE_PASSES = 3
"""Number of passes over a live log that must find the same problems before they are reported."""


def diagnose_paths(paths: Iterable[str], format: str, options: ReplayOptions, *, live: bool = False) -> DiagnosisReport:
    """Diagnose every log below the paths; nothing is written.

    Args:
        options: How the logs are read and replayed.
        live: The files may be growing, even if no process of this host has them open.

    Raises:
        UnknownFormatError: there is no log below a path. UsageError.
    """
    logs: list[Diagnosis] = []
    failures: list[PathFailure] = []
    for path in paths:
        before = len(logs) + len(failures)
        for place in _find_log_places(path, format):
            if isinstance(place, PathFailure):
                failures.append(place)
                continue
            diagnosis = _diagnose_place(place, format, options, live)
            diagnosis = replace(
                diagnosis,
                directory=None if is_url(place) else DirectoryFacts.read_directory_facts(place),
                lost=() if diagnosis.live else _find_lost(diagnosis, options),
            )
            if diagnosis.report.failures and not diagnosis.report.files:  # only failures to report
                failures += diagnosis.report.failures
            else:
                logs.append(diagnosis)
        if len(logs) + len(failures) == before:
            raise UnknownFormatError(f"{path}: no log of a known format in it or below it")
    return DiagnosisReport(tuple(logs), tuple(failures))


def _find_log_places(path: str, format: str) -> Iterator[str | PathFailure]:
    """Yield the directories with logs below a path (or the file itself), and a failure for each unreadable directory.

    Links to directories are not followed. A log below the directory of another log is diagnosed together with it.
    """
    if not os.path.isdir(path):
        yield path
        return
    pending = [path]
    while pending:
        top = pending.pop()
        try:
            resolved = resolve_path(top, format)
            yield from _drop_nested({group.path for group in resolved.groups})
            yield from _find_unread_logs(top, resolved.groups, resolved.skipped)
        except NoLogFoundError as error:
            yield from _find_unread_logs(top, (), error.skipped)
        except UnknownFormatError:
            pass
        except UsageError:
            raise
        except BinlogtoolError as error:
            yield PathFailure(top, str(error), error.exit_code)
            continue
        pending += reversed(_list_directories_at_depth(top, MAX_DEPTH + 1))


_COMPRESSED = "its logs are compressed, and a server reads no compressed files: unpack them first"


def _find_unread_logs(top: str, groups: Sequence[LogGroup], files: Sequence[SkippedFile]) -> Iterator[PathFailure]:
    """Yield a failure for each destroyed log, and for each directory whose logs are all compressed."""
    skipped = SkippedFiles(top, tuple(files))
    yield from skipped.destroyed_logs
    compressed = {os.path.dirname(path) or os.curdir for path in skipped.compressed_paths}
    for directory in sorted(compressed - {os.path.normpath(group.path) for group in groups}):
        yield PathFailure(directory, _COMPRESSED, LimitError.exit_code)


def _drop_nested(directories: set[str]) -> Iterator[str]:
    """Yield, sorted, the directories that are not below another of them."""
    last: str | None = None
    for directory in sorted(directories, key=lambda one: os.path.join(one, "")):
        if last is None or not directory.startswith(os.path.join(last, "")):
            yield (last := directory)


def _list_directories_at_depth(top: str, depth: int) -> list[str]:
    """Return the directories `depth` levels below `top`, which the search for the logs of `top` does not reach."""
    level = [top]
    for _ in range(depth):
        level = [entry for folder in level for entry in _list_subdirectories(folder)]
    return level


def _list_subdirectories(folder: str) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # an unreadable directory was reported by the search for logs
        return []


def _diagnose_place(path: str, format: str, options: ReplayOptions, live: bool) -> Diagnosis:
    """Diagnose one place, together with its redo log if that is named or is where the server keeps it.

    A server that rotates its log has no file open for a moment: before a problem is reported, its process is looked for
    again.
    """
    holder, diagnosis = _find_process_writing_newest_file(path, format), None
    if holder is None and not live:
        diagnosis = _diagnose_once(path, format, options)
        holder = None if diagnosis.is_healthy else _find_process_writing_newest_file(path, format)
    if diagnosis is None or holder is not None:
        return replace(_diagnose_live(path, format, options), holder=holder, live=True)
    diagnosis = replace(diagnosis, unusable_files=_describe_unusable_files(diagnosis))
    redo = None if options.hints.redo is not None else _find_redo_log(diagnosis)
    if redo is None:
        return diagnosis
    with_redo = _diagnose_once(path, format, replace(options, hints=replace(options.hints, redo=redo)))
    return replace(with_redo, redo=redo, unusable_files=diagnosis.unusable_files)


def _find_lost(diagnosis: Diagnosis, options: ReplayOptions) -> tuple[LostRange, ...]:
    """List the records lost to damage and torn ends; empty for files that cannot be reread or that the server rebuilds
    from its redo log.
    """
    hints = options.hints if diagnosis.redo is None else replace(options.hints, redo=diagnosis.redo)
    if hints.redo is not None and diagnosis.start == STARTS:
        return ()
    read_options = ReadOptions("auto", options.limits, options.backend, hints)
    lost: list[LostRange] = []
    for file in diagnosis.report.files:
        if not file.is_encrypted and "incomplete" not in file.details:
            with suppress(BinlogtoolError):
                lost += find_lost_ranges(file.path, file.format, file.findings, read_options)
    return tuple(lost)


def _describe_unusable_files(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Describe the files of a directory that the server may not be allowed to open."""
    if not os.path.isdir(diagnosis.path):
        return ()
    return tuple(describe_unusable_files(diagnosis.path, (one.path for one in diagnosis.report.files)))


def _find_process_writing_newest_file(path: str, format: str) -> str | None:
    """Return the process that has the newest file of a log open for writing, most likely its server; None if no process
    has. A process that only reads the file, such as a backup, does not count.
    """
    if not os.path.isdir(path):
        with suppress(OSError):
            return next(find_holders(os.stat(path), writers_only=True), None)
        return None
    with suppress(BinlogtoolError):
        for group in resolve_path(path, format).groups:
            for _, name in find_newest_files(group.names).values():
                with suppress(OSError):
                    for holder in find_holders(os.stat(group.member_path(name)), writers_only=True):
                        return holder
    return None


def _diagnose_live(path: str, format: str, options: ReplayOptions) -> Diagnosis:
    """Diagnose a log while a server writes it; report only problems that every pass finds."""
    diagnosis = _diagnose_once(path, format, options, live=True)
    problems, stable_passes = _collect_problems(diagnosis), 0
    for _ in range(MAX_PASSES):
        if diagnosis.is_healthy or stable_passes == STABLE_PASSES:
            break
        time.sleep(PASS_INTERVAL)
        diagnosis = _diagnose_once(path, format, options, live=True)
        before, problems = problems, problems & _collect_problems(diagnosis)
        stable_passes = stable_passes + 1 if problems and problems == before else 0
    if diagnosis.is_healthy or problems:
        return diagnosis
    text = (
        f"not checked: the server changed the log during each of {MAX_PASSES + 1} passes; nothing was "
        f"wrong in all of them"
    )
    report = replace(diagnosis.report, failures=())
    return replace(diagnosis, report=report, replays=(), plan=None, incomplete_reason=None, unstable_reason=text)


def _collect_problems(diagnosis: Diagnosis) -> frozenset[tuple[str, ...]]:
    """Return keys of the problems of a log; the keys do not change while the log grows."""
    errors = [
        tuple(map(str, make_finding_key(path, one)))
        for log in diagnosis.replays
        for path, one in _select_errors(log.findings)
    ]
    stops = [("", log.stop.file, log.stop.why) for log in diagnosis.replays if log.stop is not None]
    starts = [("starts", str(log.details.get("startup"))) for log in diagnosis.replays if log.starts is False]
    rejected = [("rejected", log.path) for log in diagnosis.replays if log.decisions["rejected"]]
    failed = [("failed", one.path, one.message) for one in diagnosis.report.failures if os.path.lexists(one.path)]
    return frozenset([*errors, *stops, *starts, *rejected, *failed])


def _select_errors(findings: Iterable[tuple[str, Finding]]) -> Iterator[tuple[str, Finding]]:
    return ((path, one) for path, one in findings if one.severity is Severity.ERROR)


def _find_redo_log(diagnosis: Diagnosis) -> str | None:
    """Return the redo log of a stopped server; None if there is none, or if a running server is ahead of it."""
    if not os.path.isdir(diagnosis.path):
        return None
    for format in dict.fromkeys(file.format for file in diagnosis.report.files):
        for name in formats.load_format(format).repair.redo:
            path = os.path.normpath(os.path.join(diagnosis.path, name))
            if os.path.isfile(path):
                return None if any(find_holders(os.stat(path), writers_only=True)) else path
    return None


def _diagnose_once(path: str, format: str, replay_options: ReplayOptions, *, live: bool = False) -> Diagnosis:
    """Verify a place and replay each of its logs, with a single verification pass.

    Args:
        live: A server has the files open; they may grow and vanish.
    """
    reports: list[Report] = []

    def verify_and_collect(group: LogGroup, options: LogVerifyOptions) -> LogExamination:
        examination = examine_log(group, replace(options, live=live))
        reports.append(examination.report)
        return examination

    try:
        resolved = resolve_path(path, format)
        replays = tuple(replay_log(group, replay_options, verify=verify_and_collect) for group in resolved.groups)
        if not any(file.records for report in reports for file in report.files) and any(
            map(is_compressed_log, resolved.skipped)
        ):
            raise LimitError(_COMPRESSED)
        diagnosis = Diagnosis(
            path, merge_reports([*reports, replace(report_skipped_files(path, resolved.skipped), failures=())]), replays
        )
    except UsageError:
        raise
    except BinlogtoolError as error:
        return Diagnosis(path, report_failure(path, error), incomplete_reason=str(error))
    how = ReadOptions(format, replay_options.limits, replay_options.backend, replay_options.hints)
    return diagnosis if diagnosis.is_healthy else _add_plan(diagnosis, how)


def _add_plan(diagnosis: Diagnosis, read_options: ReadOptions) -> Diagnosis:
    """Add the repair plan; if nothing else has to change, it also corrects the list of files (`--fix-meta`)."""
    try:
        plan = plan_truncate(diagnosis.path, read_options, RepairPolicy())
        if plan.refused or not plan.changes:
            list_fix_plan = plan_truncate(diagnosis.path, read_options, RepairPolicy(fix_meta=True))
            refused_for_list = plan.refused and any(LIST_FIX_OPTION in reason for reason in plan.reasons)
            plan = list_fix_plan if refused_for_list or (list_fix_plan.changes and not list_fix_plan.refused) else plan
    except BinlogtoolError as error:
        return replace(diagnosis, incomplete_reason=str(error))
    return replace(diagnosis, plan=plan)
