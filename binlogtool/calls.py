"""Public calls that read, check and convert logs; calls that change files are in `repairs`.

Each call imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from binlogtool import limits
from binlogtool.errors import UsageError
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from binlogtool.formats.detecting import Hints
    from binlogtool.formats.scripting import ScriptOptions
    from binlogtool.log.annotate import LogAnnotation
    from binlogtool.log.compare import LogComparison
    from binlogtool.log.follow import LogFollower
    from binlogtool.log.how import ReadOptionArguments
    from binlogtool.log.open import LogReader
    from binlogtool.log.select import Selection
    from binlogtool.log.watch import ProgressListener
    from binlogtool.pipeline.account import ProgressCallback
    from binlogtool.pipeline.manifest import Manifest, ManifestInput
    from binlogtool.pipeline.master import SparkMaster
    from binlogtool.pipeline.opened import Log as OpenedLog
    from binlogtool.pipeline.session import SparkJobSession
    from binlogtool.recovery.diagnosis_result import DiagnosisReport
    from binlogtool.recovery.replay_result import OnDecision, ReplayResult
    from binlogtool.recovery.report import Report
    from binlogtool.recovery.wish import ReplayKeywords
    from binlogtool.schema.annotation import Annotation

Path = str | PathLike[str]


def _to_path_list(paths: Path | Iterable[Path]) -> list[str]:
    """Return the paths of a call as a list; a single path is accepted as well."""
    return [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(path) for path in paths]


def resolve_backend(name: str = "auto") -> str:
    """Return the backend that would run the kernels: "native" or "python".

    The kernels of plug-in formats always run as Python: native code is compiled when this package is built.

    Args:
        name: "auto", "native" or "python". The environment variable BINLOGTOOL_BACKEND takes precedence.

    Raises:
        UsageError: the name is unknown.
        InputOutputError: native code was requested, and there is none for this machine.
    """
    from binlogtool.schema import backends

    return backends.choose_backend(name).name


def read_hints(
    *,
    schema: Path | None = None,
    keyfile: Path | None = None,
    keyfile_secret: Path | None = None,
    level: str | None = None,
    redo: Path | None = None,
) -> Hints:
    """Read the files that supply what a log does not contain itself.

    Args:
        schema: a file with CREATE TABLE statements.
        keyfile: the keys of encrypted logs (a key file or a keyring).
        keyfile_secret: a file with the secret that the key file itself is encrypted with.
        level: which units count as records, where the format has several levels.
        redo: path of the InnoDB redo log; it is read when it is needed.

    Raises:
        InputOutputError: a file cannot be read.
        UsageError: a file is larger than such a file can be.
    """
    from binlogtool.log.hints import read_hints as read

    return read(schema=schema, keyfile=keyfile, keyfile_secret=keyfile_secret, level=level, redo=redo)


def open(path: Path | Iterable[Path], **read_options: Unpack[ReadOptionArguments]) -> OpenedLog:
    """Open a file, a directory (a log set), several files of one log, or `-` (standard input), read-only.

    Args:
        path: one path, or the files of one log.
        read_options: as in all other calls: `format` (a name or "auto"), `limits`, `backend` ("auto", "native" or
            "python") and `hints` (see `read_hints`).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    from binlogtool.log.how import ReadOptions
    from binlogtool.log.open import open_log
    from binlogtool.pipeline.opened import Log

    return open_log(path, ReadOptions(**read_options), Log)


def follow(
    paths: Path | Iterable[Path],
    selection: Selection | None = None,
    *,
    decode: str = "full",
    raw: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> LogFollower:
    """Follow files and directories that grow; each `look()` of the returned context manager yields what is new.

    Args:
        paths: files and directories.
        selection: as for `Log.blocks`, without `limit`, `skip` and `tail`.
        decode: how much of each record to decode, as for `Log.blocks`.
        raw: also return the raw bytes of each record.
        read_options: as for `open`; `limits.timeout` is ignored.
    """
    from binlogtool.log.follow import LogFollower
    from binlogtool.log.how import ReadOptions
    from binlogtool.log.select import Selection

    return LogFollower(
        _to_path_list(paths), selection or Selection(), ReadOptions(**read_options), decode=decode, raw=raw
    )


def progress_listener(listener: ProgressListener) -> AbstractContextManager[None]:
    """Return a context manager; calls inside it report their reading progress to the listener."""
    from binlogtool.log.watch import progress_listener as watched_by

    return watched_by(listener)


def verify(
    paths: Path | Iterable[Path],
    *,
    depth: str = "set",
    live: bool = False,
    expect_closed: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> Report:
    """Check files and log sets and return a report.

    A path that cannot be read or recognised becomes a `Failure` in the report; no exception is raised for it.

    Args:
        paths: files and directories.
        depth: "frame", "checksum", "payload" or "set"; each includes the ones before.
        live: the files may grow while they are read.
        expect_closed: treat a missing end mark or a torn tail as an error.
        read_options: as for `open`.
    """
    from binlogtool.log.how import ReadOptions
    from binlogtool.recovery.verify import LogVerifyOptions
    from binlogtool.recovery.verify_paths import verify_paths

    options = ReadOptions(**read_options)
    return verify_paths(
        _to_path_list(paths), options.format, LogVerifyOptions.from_read_options(options, depth, live, expect_closed)
    )


def verify_fleet(
    paths: Path | Iterable[Path],
    *,
    master: str | SparkMaster = "local[*]",
    on_step: ProgressCallback | None = None,
    **options: Any,
) -> list[Report | None]:
    """Verify many files on Spark; return one report per path, None where `limits.timeout` (for the whole run) ended
    it.

    Args:
        paths: files and directories.
        master: Spark's master URL; its executors must see the files under the same paths.
        on_step: called with the progress.
        options: those of `verify`; `session` = a running Spark session.

    Raises:
        UsageError, MissingExtraError.
        InputOutputError: Spark cannot start, or failed.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.pipeline.fleet import SparkJobRunner
    from binlogtool.pipeline.fleet import verify_on_spark as verify_all
    from binlogtool.pipeline.master import describe_work
    from binlogtool.recovery.verify import LogVerifyOptions

    path_names, format_name = _to_path_list(paths), options.pop("format", "auto")
    fleet = SparkJobRunner(master, options.pop("session", None), on_step, work=describe_work("verify", path_names))
    hints = options.pop("hints", None) or Hints()
    return verify_all(path_names, format_name, LogVerifyOptions(**options, hints=hints, causes=True), fleet)


def replay(
    paths: Path | Iterable[Path],
    *,
    on_decision: OnDecision | None = None,
    master: str | SparkMaster | None = None,
    session: SparkJobSession | None = None,
    on_step: ProgressCallback | None = None,
    **options: Unpack[ReplayKeywords],
) -> list[ReplayResult]:
    """Predict what the server of each log does with it when it starts or replays it; return one result per log.

    Args:
        paths: files and directories.
        on_decision: called for each record that was read, as soon as its outcome is decided.
        master, session: run on this Spark (not together with on_decision).
        on_step: called with the progress of a run on Spark.
        options: `policy` = "server" (the engine's own rules), "strict" (stop at the first error) or "force" (the
            engine's own way to continue after errors); `against` = the last applied position: the `position` of an
            earlier result, or a file that holds one; `until` = a position at which the replay ends; `server_version` =
            the server that starts, such as "3.9" (None = the one that wrote the files); `digest` = False to skip the
            digest of the state; the others as for `open`.

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
        LimitError: undecided records or keys do not fit into memory.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.recovery.replay import replay_paths
    from binlogtool.recovery.wish import ReplayOptions

    arguments: dict[str, Any] = {**options, "hints": options.get("hints") or Hints()}
    format_name, start_position = arguments.pop("format", "auto"), arguments.get("against")
    replay_options = ReplayOptions(
        **(arguments | {"against": fspath(start_position) if isinstance(start_position, PathLike) else start_position})
    )
    if master is None and session is None:
        return replay_paths(_to_path_list(paths), format_name, replay_options, on_decision)
    if on_decision is not None:
        raise UsageError("single decisions are made known in the process, not on Spark")
    from binlogtool.pipeline.fleet import SparkJobRunner
    from binlogtool.pipeline.master import describe_work
    from binlogtool.pipeline.replay_jobs import replay_on_spark

    path_names = _to_path_list(paths)
    fleet = SparkJobRunner(
        master or "", session, on_step, replay_options.limits.timeout, work=describe_work("replay-dry-run", path_names)
    )
    return replay_on_spark(path_names, format_name, replay_options, fleet)


def diagnose(
    paths: Path | Iterable[Path], *, server_version: str | None = None, **read_options: Unpack[ReadOptionArguments]
) -> DiagnosisReport:
    """Diagnose every log in and below the paths: does its server start, what would it lose, what can be kept.

    Nothing is written.

    Args:
        paths: files and directories.
        server_version: the server that starts, such as "3.9"; None = the one that wrote the files.
        read_options: as for `open`.

    Raises:
        UnknownFormatError: there is no log in or below a path.
        InputOutputError, UsageError.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.log.how import ReadOptions
    from binlogtool.recovery.diagnosis import diagnose_paths
    from binlogtool.recovery.wish import ReplayOptions

    options = ReadOptions(**read_options)
    hints = options.hints or Hints()
    replay_options = ReplayOptions(
        limits=options.limits, backend=options.backend, hints=hints, digest=False, server_version=server_version
    )
    return diagnose_paths(_to_path_list(paths), options.format, replay_options)


def annotate(path: Path, **options: Any) -> Annotation:
    """Return every byte of a part of one file with the field that it belongs to.

    Args:
        path: the file.
        options: as in `binlogtool.log.annotate.annotate_path`.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    from binlogtool.log.annotate import annotate_path

    return annotate_path(path, **options)


def annotate_log(log: LogReader, **options: Any) -> LogAnnotation:
    """Annotate an open log piece by piece, with bounded memory; otherwise like `annotate`.

    Raises:
        UsageError.
    """
    from binlogtool.log.annotate import annotate_log

    return annotate_log(log, **options)


def compare(left: LogReader, right: LogReader, *, limits: Limits = Limits(), backend: str = "auto") -> LogComparison:
    """Compare two open logs of one file each: what is the same, what differs, what only one of them has.

    Raises:
        UsageError: they cannot be compared.
    """
    from binlogtool.log.compare import compare_logs as compare

    return compare(left, right, limits=limits, backend=backend)


def prepare_sql_script(selection: Selection, **options: Any) -> tuple[Selection, ScriptOptions]:
    """Return the selection and the script options that `Log.statements` needs for a script of the selected records.

    Args:
        selection: the records to write.
        options: the members of `binlogtool.pipeline.writers.scripts.ScriptRequest`.

    Raises:
        UsageError: the options contradict each other or the selection.
    """
    from binlogtool.pipeline.writers import scripts

    return scripts.script_selection(selection), scripts.build_wording(
        "sql", selection, scripts.ScriptRequest(**options)
    )


def convert(
    paths: Path | Iterable[Path], to: str, output: Path, *, selection: Selection | None = None, **options: Any
) -> Manifest:
    """Convert records to a table, lines, a script or another log, with a manifest that accounts for all input.

    With `to="jsonl"` the lines are those of `dump`, unless the option `lines` replaces them.

    Args:
        paths: files and directories.
        to: the output form, as for `convert --to`.
        output: the file or directory to write.
        selection: the records to convert; None = all, and damage stops the conversion.
        options: members of the conversion options, and those of a script or a table. `append` = True writes only what
            is new since the last run; `final` (only with append) = True marks the last run.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, RefusedError, MissingExtraError.
    """
    from binlogtool.pipeline import conversions
    from binlogtool.pipeline.wanted import STOP_AT_DAMAGE

    append, final = options.pop("append", False), options.pop("final", False)
    if to == "jsonl" and options.get("lines") is None:
        from binlogtool.report.records import RecordJsonEncoder

        options["lines"] = RecordJsonEncoder().encode_lines
        if not append:
            options["limits"] = replace(options.get("limits", Limits()), max_whole=limits.LONG_VALUE_BYTES)
    options["selection"] = selection or STOP_AT_DAMAGE
    if append:
        return conversions.append(_to_path_list(paths), to, output, final=final, **options)
    if final:
        raise UsageError("--final is for --append")
    return conversions.convert(_to_path_list(paths), to, output, make_table_writer=_make_table_writer, **options)


def _make_table_writer(*job_arguments: Any) -> Callable[[list[ManifestInput], FilePath], Manifest]:
    """Return the function that writes tables of records on Spark. job_arguments: as for `TableJob`."""
    from binlogtool.pipeline.table_outputs import TableJob

    return TableJob(*job_arguments).write
