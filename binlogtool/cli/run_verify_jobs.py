"""Verify paths in this process, in other processes or on Spark, with a time limit and a state file of earlier runs.

The state file has one JSON line per path and run; lines are only ever appended.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import __version__, formats
from binlogtool import limits as limits_module
from binlogtool.cli.options import PATH
from binlogtool.errors import UsageError, name_os_errors
from binlogtool.findings import make_finding
from binlogtool.verification.verify_report import (
    FileReport,
    PathFailure,
    Report,
    SetReport,
    add_findings_for_unpurged_missing_files,
    merge_reports,
)

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from binlogtool.cli.click_command_tree import CommandRun
    from binlogtool.limits import Limits


class VerifyJob(msgspec.Struct, frozen=True):
    """Arguments of one library call, to be sent to a process. more_paths: files to check together with `path`."""

    path: str
    format: str
    depth: str
    limits: Limits
    backend: str
    live: bool
    expect_closed: bool
    hints: binlogtool.Hints | None = None
    times: bool = False
    more_paths: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the call."""
        return (self.path, *self.more_paths)

    def run_verify(self) -> Report:
        """Return the library's report."""
        return binlogtool.verify(self.paths, times=self.times, **self.to_common_options())

    def to_common_options(self) -> dict[str, Any]:
        """Return the arguments that local and Spark calls have in common."""
        other = ("path", "more_paths", "times")
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in other}


class VerifyOptions(msgspec.Struct, frozen=True):
    """Options for verifying all paths.

    job: the arguments of every call, without paths. state: results of earlier runs. max_duration: seconds. master: None
    = no Spark.
    """

    job: VerifyJob
    state: VerifyState | None = None
    max_duration: float | None = None
    master: str | binlogtool.SparkMaster | None = None


def verify_paths_into_one_report(run: CommandRun, paths: Sequence[str], options: VerifyOptions) -> Report:
    """Verify all paths, and return one report about them."""
    deadline = _compute_deadline(run, options)
    if options.state is not None:
        reports = _verify_changed_paths_with_state(run, paths, options, deadline, options.state)
    else:
        reports = _verify_path_groups(run, _group_paths_by_directory(paths, options), options, deadline)
    return merge_reports(reports)


def _verify_path_groups(
    run: CommandRun, path_groups: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    """Yield a report for each unit of `_group_paths_by_directory`, in order, until the deadline."""
    if options.master is not None:
        return _verify_on_spark(run, [path for unit in path_groups for path in unit], options, deadline, options.master)
    if run.settings.jobs > 1 and sum(map(len, path_groups)) > 1:
        return _verify_in_processes(run, path_groups, options, deadline)
    return _verify_sequentially(run, path_groups, options, deadline)


def _compute_deadline(run: CommandRun, options: VerifyOptions) -> float | None:
    durations = [seconds for seconds in (run.settings.timeout, options.max_duration) if seconds is not None]
    return time.monotonic() + min(durations) if durations else None


def _build_verify_job(paths: Sequence[str], options: VerifyOptions, deadline: float | None) -> VerifyJob:
    remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
    limits = replace(options.job.limits, timeout=remaining)
    return replace(options.job, path=paths[0], more_paths=tuple(paths[1:]), limits=limits)


def _verify_sequentially(
    run: CommandRun, units: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    number, count = 0, sum(map(len, units))
    for unit in units:
        if deadline is not None and time.monotonic() >= deadline:
            yield _make_report_of_unverified_paths(unit[0], count - number, count)
            return
        number += len(unit)
        run.progress.part = f" ({number} of {count})" if count > 1 else ""
        yield _build_verify_job(unit, options, deadline).run_verify()


def _group_paths_by_directory(paths: Sequence[str], options: VerifyOptions) -> list[list[str]]:
    """Return consecutive paths of files in the same directory as one unit, other paths as one each, as Spark needs."""
    if options.master is not None:
        return [[path] for path in paths]
    by_directory = groupby(enumerate(paths), key=lambda one: os.path.dirname(one[1]) if os.path.isfile(one[1]) else one)
    return [[path for _, path in unit] for _, unit in by_directory]


def _make_report_of_unverified_paths(first_path: str, unverified_count: int, total_count: int) -> Report:
    """Report the paths that were not verified in time. first_path: the first of them."""
    why = "because the time limit was reached (--timeout, --max-duration)"
    text = f"{unverified_count:,} of {total_count:,} paths were not verified {why}"
    return Report((), (), (PathFailure(first_path, text, 6),), True)


def _verify_changed_paths_with_state(
    run: CommandRun, paths: Sequence[str], options: VerifyOptions, deadline: float | None, state: VerifyState
) -> Iterator[Report]:
    """Yield a report per path: the stored one if nothing changed, else a new one, which is compared and stored."""
    calls = [_build_verify_job(unit, options, deadline) for unit in _group_paths_by_directory(paths, options)]
    reports = [state.find_reusable_report(call) for call in calls]
    if state.other_options_count:
        count = f"{state.other_options_count:,} of {len(calls):,}"
        run.print_diagnostic(
            f"--state: {count} paths or sets were recorded with other options or by another version: read again"
        )
    if unchanged_count := sum(len(c.paths) for c, report in zip(calls, reports, strict=True) if report is not None):
        run.print_diagnostic(
            f"--state: {unchanged_count:,} of {len(paths):,} paths not read: unchanged since the last run"
        )
    changed_units = [call.paths for call, report in zip(calls, reports, strict=True) if report is None]
    new_reports = _verify_path_groups(run, changed_units, options, deadline)
    for call, report in zip(calls, reports, strict=True):
        if report is not None:
            for path in call.paths:
                run.print_diagnostic(f"{path}: unchanged since it was verified", level=1)
            yield report
        elif (report := next(new_reports, None)) is not None:
            yield state.compare_and_store_result(call, report)
    if missing := state.report_missing_recorded_files(calls):
        yield Report((), missing)


def _verify_on_spark(
    run: CommandRun,
    paths: Sequence[str],
    options: VerifyOptions,
    deadline: float | None,
    master: str | binlogtool.SparkMaster,
) -> Iterator[Report]:
    call = _build_verify_job([""], options, deadline)
    parts = binlogtool.verify_fleet(
        paths,
        master=master,
        on_step=lambda step: run.progress.update_stage(*step[:2], total=step[2]),
        **call.to_common_options(),
    )
    run.print_cluster_messages_once()
    if late_count := sum(part is None for part in parts):
        reason = "the time limit was reached (--timeout, --max-duration)"
        run.print_diagnostic(f"{late_count:,} of {len(paths):,} paths were not completely verified: {reason}")
    yield from (Report((), (), (), True) if part is None else part for part in parts)


def _verify_in_processes(
    run: CommandRun, units: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    paths = [path for unit in units for path in unit]
    pool = _create_process_pool(run, min(run.settings.jobs, len(paths)))
    if pool is None:
        yield from _verify_sequentially(run, units, options, deadline)
        return
    calls = [_build_verify_job(unit, options, deadline) for unit in units]
    done_bytes, total = 0, sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    with pool:
        for number, value in enumerate(pool.map(_verify_in_child, calls), start=1):
            report = report_from_dict(value)
            done_bytes += sum(file.size for file in report.files)
            run.progress.update_stage(f"verify: {number} of {len(calls)} logs", done_bytes, total=total or None)
            yield report


def _create_process_pool(run: CommandRun, number: int) -> ProcessPoolExecutor | None:
    """Create worker processes; None if the system lacks what they need to communicate (/dev/shm)."""
    try:
        return limits_module.create_worker_pool(number)
    except (OSError, ImportError) as error:
        run.print_diagnostic(
            f"--jobs: cannot start worker processes ({error}; check /dev/shm); continuing in one process"
        )
        return None


def _verify_in_child(call: VerifyJob) -> dict[str, Any]:
    return report_to_dict(call.run_verify())


def report_to_dict(report: Report) -> dict[str, Any]:
    """Convert a report to plain values: findings hold read-only mappings, which cannot be pickled."""
    from binlogtool.report.format_numbers_and_names import skipped_files_to_json
    from binlogtool.report.verify_and_plan_text import failure_to_json, file_report_to_json, set_report_to_json

    return {
        "files": [{**file_report_to_json(f), "seconds": f.seconds} for f in report.files],
        "sets": [set_report_to_json(s) for s in report.sets],
        "failures": [failure_to_json(f) for f in report.failures],
        "incomplete": report.incomplete,
        "left": [skipped_files_to_json(one) for one in report.skipped],
    }


def report_from_dict(value: dict[str, Any]) -> Report:
    """Restore a report from `report_to_dict`."""
    from binlogtool.report.verify_and_plan_text import (
        file_report_from_json,
        set_report_from_json,
        skipped_files_from_json,
    )

    return Report(
        tuple(file_report_from_json(f) for f in value["files"]),
        tuple(set_report_from_json(s) for s in value["sets"]),
        tuple(PathFailure(**f) for f in value["failures"]),
        bool(value["incomplete"]),
        tuple(skipped_files_from_json(one) for one in value.get("left", ())),
    )


# --- `verify --state`: results of earlier runs, one JSON line per path and run; lines are only ever appended ---

_LINE_PREFIX = b'{"schema": "binlogtool/state/1"'
_DEPTHS = ("frame", "checksum", "payload", "set")
_CHUNK_BYTES = 1 << 20
_MAX_DEPTH = 4
"""Number of directory levels below a path that are searched, as in the search for logs."""

RESULT_NEUTRAL_OPTIONS = frozenset(
    {
        "paths", "depth", "fail_on", "severity", "ignore", "baseline", "write_baseline", "report", "state",
        "max_duration", "master", "conf", "output_format", "output", "overwrite", "color", "pager",
        "ascii", "progress", "verbose", "quiet", "timeout", "jobs", "config", "no_config", "debug", "version",
    }
)  # fmt: skip
"""Options of verify that do not affect a stored result: those about output, and about how the work is divided. The
depth is compared separately; a result that a time limit ended is never stored."""
SECRET_OPTIONS = frozenset({"keyfile_secret"})
"""Options that name a secret file: only its size, times and inode are part of the fingerprint."""


class _FilePrefix(msgspec.Struct, frozen=True):
    """Durable part of a file when it was verified.

    steady: its hash without the bytes that a server rewrites, which depend on the format.
    """

    path: str
    end: int
    steady: str | None = None
    format: str | None = None


class _StateLine(msgspec.Struct, frozen=True):
    """One line of the state file."""

    schema: Literal["binlogtool/state/1"]
    path: str
    depth: Literal["frame", "checksum", "payload", "set"]
    options: Any
    stamp: dict[str, list[int]] | None
    prefixes: list[_FilePrefix]
    report: dict[str, Any]


def fingerprint_options(params: Iterable[click.Parameter], values: Mapping[str, Any]) -> str:
    """Return a digest of everything on the command line that affects results, with the contents of named files.

    Raises:
        InputOutputError: a file cannot be read.
    """
    import json

    parts: list[Any] = [__version__]
    for param in sorted(params, key=lambda one: one.name or ""):
        name, value = param.name or "", values.get(param.name or "")
        if name in RESULT_NEUTRAL_OPTIONS:
            continue
        if param.type is PATH and isinstance(value, tuple):
            value = [_hash_file(path) for path in value] or None
        elif param.type is PATH and value is not None:
            value = _file_stamp(value) if name in SECRET_OPTIONS else _hash_file(value)
        parts.append([name, value])
    return hashlib.sha256(json.dumps(parts, default=str).encode("utf-8", "backslashreplace")).hexdigest()


class VerifyState:
    """The last stored result of each path."""

    def __init__(self, path: str, entries: dict[str, _StateLine], options: str) -> None:
        self._path = path
        self._entries = entries
        self._options = options
        self._stamps = dict[str, dict[str, list[int]] | None]()
        """Stamps of the files, taken before they were verified in this run."""
        self.other_options_count = 0
        """Number of unchanged calls whose result was recorded with other options."""

    @classmethod
    def load(cls, path: str, options: str) -> VerifyState:
        """Read the state in a file, or start an empty one. options: fingerprint of this command line.

        Raises:
            InputOutputError: the file cannot be read.
            UsageError: the file is of another kind, or was modified.
        """
        lines, entries = list[bytes](), dict[str, _StateLine]()
        with name_os_errors(path):
            if os.path.exists(path):
                if not stat.S_ISREG(os.stat(path).st_mode):
                    raise UsageError(f"--state {path}: not a regular file; name a file that keeps the results")
                with open(path, "rb") as file:
                    lines = file.read().split(b"\n")
        for number, line in enumerate(lines):
            if not line:
                continue
            is_last = number == len(lines) - 1
            try:
                entry = _parse_line(line)
            except ValueError as error:
                if is_last and _is_torn(line):
                    continue
                text = f"line {number + 1} was not written by --state ({error}); nothing was changed"
                raise UsageError(f"{path}: {text}") from None
            entries[entry.path] = entry
        return cls(path, entries, options)

    def find_reusable_report(self, call: VerifyJob) -> Report | None:
        """Return the earlier report if its depth suffices and neither files nor options have changed since; else None.

        Raises:
            UsageError: the stored result is not a report.
        """
        key = _make_state_key(call)
        entry, stamp = self._entries.get(key), _stamp_files_of_job(call)
        self._stamps[key] = stamp
        if entry is None or stamp is None or entry.stamp != stamp:
            return None
        if entry.options != self._options:
            self.other_options_count += 1
            return None
        if _DEPTHS.index(entry.depth) < _DEPTHS.index(call.depth):
            return None
        try:
            return _mark_unchanged(_check_report_types(report_from_dict(entry.report)))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            text = f"the stored result of {call.path} is not a report ({type(error).__name__}: {error})"
            raise UsageError(f"{self._path}: {text}; remove the file to verify again") from error

    def compare_and_store_result(self, job: VerifyJob, report: Report) -> Report:
        """Add findings about missing files and changed durable parts of files to the report, store it if complete, and
        return it.
        """
        entry = self._entries.get(_make_state_key(job))
        old_prefixes = {_make_absolute(one.path): one for one in entry.prefixes} if entry is not None else {}
        changed = [_add_finding_if_prefix_changed(f, old_prefixes.get(_make_absolute(f.path))) for f in report.files]
        result, lost_paths = add_findings_for_unpurged_missing_files(
            replace(report, files=tuple(changed)), old_prefixes
        )
        if not report.incomplete and not report.failures and job.path != "-":
            self._append_line(job, result, [old_prefixes[path] for path in lost_paths])
        return result

    def report_missing_recorded_files(self, jobs: Sequence[VerifyJob]) -> tuple[SetReport, ...]:
        """Return the missing files of recorded paths that are not named now, but lie beside named paths."""
        keys = {_make_state_key(call) for call in jobs}
        parents = {os.path.dirname(os.path.abspath(path)) for call in jobs for path in (call.path, *call.more_paths)}
        recorded = {
            _make_absolute(one.path)
            for key, entry in self._entries.items()
            if key not in keys and {os.path.dirname(key), os.path.dirname(os.path.dirname(key))} & parents
            for one in entry.prefixes
        }
        named = {_make_absolute(one.path) for key in keys & self._entries.keys() for one in self._entries[key].prefixes}
        return add_findings_for_unpurged_missing_files(Report((), ()), recorded - named)[0].sets

    def _append_line(self, call: VerifyJob, report: Report, lost_prefixes: Sequence[_FilePrefix]) -> None:
        """Append the result of a call. lost_prefixes: those of missing files, which stay recorded."""
        import json

        prefixes = [*(_build_prefix(file) for file in report.files), *lost_prefixes]
        entry = _StateLine(
            "binlogtool/state/1",
            _make_state_key(call),
            call.depth,  # type: ignore[arg-type]
            self._options,
            self._stamps.get(_make_state_key(call)),
            prefixes,
            report_to_dict(report),
        )
        line = json.dumps({**msgspec.structs.asdict(entry), "prefixes": [msgspec.structs.asdict(p) for p in prefixes]})
        with name_os_errors(self._path), open(self._path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _repair_torn_last_line(file.fileno())
            file.write(line.encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._entries[entry.path] = entry


def _parse_line(line: bytes) -> _StateLine:
    """Parse one line of the state file.

    Raises:
        ValueError: the line was not written by --state.
    """
    import json

    try:
        return msgspec.convert(json.loads(line), _StateLine, strict=True)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from None


def _is_torn(line: bytes) -> bool:
    """Return True if an unterminated last line is the beginning of a line that --state writes."""
    return line.startswith(_LINE_PREFIX) or _LINE_PREFIX.startswith(line)


def _repair_torn_last_line(fd: int) -> None:
    """Remove an unterminated last line that is incomplete; terminate one that is complete."""
    size = os.fstat(fd).st_size
    offset, tail = size, b""
    while offset and b"\n" not in tail:
        start = max(0, offset - _CHUNK_BYTES)
        tail, offset = os.pread(fd, offset - start, start) + tail, start
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        _parse_line(torn)
    except ValueError:
        os.ftruncate(fd, size - len(torn))
    else:
        os.write(fd, b"\n")


def _check_report_types(report: Report) -> Report:
    """Return the report after checking that its members have the types that every output relies on.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, RecursionError: a member has a wrong type.
    """
    from binlogtool.report.verify_and_plan_text import encode_verify_report, render_verify_text

    parts: tuple[FileReport | SetReport, ...] = (*report.files, *report.sets)
    for part in parts:
        msgspec.convert(msgspec.to_builtins(replace(part, findings=())), type(part), strict=True)
        for finding_ in part.findings:
            msgspec.convert({**msgspec.structs.asdict(finding_), "severity": 0}, type(finding_), strict=True)
    for failure in report.failures:
        msgspec.convert(msgspec.structs.asdict(failure), type(failure), strict=True)
    for _ in render_verify_text(report, list_names=True):
        pass
    for _ in encode_verify_report(report, __version__):
        pass
    return report


def _make_state_key(job: VerifyJob) -> str:
    """Return the key of a job: its path; for several files of a directory, a name that no file can have."""
    path = os.path.abspath(job.path)
    return f"{os.path.dirname(path)}{os.sep}*{os.sep}" if job.more_paths else path


def _stamp_files_of_job(job: VerifyJob) -> dict[str, list[int]] | None:
    """Return the stamps of the files of a call, by name."""
    stamps = [_stamp_files(path) for path in job.paths]
    known = [one for one in stamps if one is not None]
    return {name: numbers for one in known for name, numbers in one.items()} if len(known) == len(stamps) else None


def _stamp_files(path: str) -> dict[str, list[int]] | None:
    """Return size, modification time, inode and its change time of the file, or of every file in and below the
    directory.
    """
    try:
        if not os.path.isdir(path):
            return {os.path.basename(path): _stat_numbers(os.stat(path))}
        stamps = dict[str, list[int]]()
        for folder, folders, names in os.walk(path):
            if folder != path and os.path.relpath(folder, path).count(os.sep) + 1 >= _MAX_DEPTH:
                folders.clear()
            for name in names:
                status = os.stat(os.path.join(folder, name))
                if stat.S_ISREG(status.st_mode):
                    stamps[os.path.relpath(os.path.join(folder, name), path)] = _stat_numbers(status)
    except (OSError, ValueError):
        return None
    return stamps


def _stat_numbers(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def _file_stamp(path: str) -> list[int] | None:
    try:
        return _stat_numbers(os.stat(path))
    except OSError:
        return None


def _hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with name_os_errors(path), open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _mark_unchanged(report: Report) -> Report:
    """Return an earlier report, marked in the details: its files were not read again."""
    return replace(report, files=tuple(replace(f, details={**f.details, "unchanged": True}) for f in report.files))


def _make_absolute(path: str) -> str:
    """Return the absolute path of a file; a URL unchanged."""
    return path if "://" in path else os.path.abspath(path)


def _build_prefix(file: FileReport) -> _FilePrefix:
    end = file.durable_end or 0
    return _FilePrefix(_make_absolute(file.path), end, _hash_steady_bytes(file.path, file.format, end), file.format)


def _add_finding_if_prefix_changed(file: FileReport, old_prefix: _FilePrefix | None) -> FileReport:
    """Return the report, with a finding if the part that was durable in the last run has changed."""
    if old_prefix is None or old_prefix.steady is None:
        return file
    end = old_prefix.end
    if _hash_steady_bytes(file.path, old_prefix.format or file.format, end) == old_prefix.steady:
        return file
    text = (
        f"the first {end:,} bytes differ from those that an earlier run recorded (--state)"
        if file.size >= end
        else f"shorter than the {end:,} bytes that an earlier run recorded (--state)"
    )
    text = f"{text}; compare the file with its source, then use a new FILE"
    changed = make_finding("changed-since-run", 0, min(end, file.size), text, size_before=end, size_after=file.size)
    return replace(file, findings=(changed, *file.findings))


def _hash_steady_bytes(path: str, format_name: str, end: int) -> str | None:
    """Return the hash of the first `end` bytes without those that a server rewrites when it closes the file.

    None if the file is shorter.
    """
    first, last = (
        formats.load_format(format_name).files.mutable_header if format_name in formats.list_names() else (0, 0)
    )
    digest, remaining = hashlib.sha256(), end
    try:
        with open(path, "rb") as data:
            head = data.read(min(last, end))
            digest.update(head[:first] + head[last:])
            remaining -= len(head)
            while remaining > 0 and (chunk := data.read(min(remaining, _CHUNK_BYTES))):
                digest.update(chunk)
                remaining -= len(chunk)
    except (OSError, ValueError):
        return None
    return digest.hexdigest() if remaining == 0 else None
