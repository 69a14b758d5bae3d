"""Public calls of the library: open, verify, replay, convert, plan and carry out repairs, render results.

Each call imports what it needs when it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from binlogtool import limits
from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.annotation.annotate_file import LogAnnotation
    from binlogtool.annotation.compare_logs import LogComparison
    from binlogtool.core.follow_growing_logs import LogFollower
    from binlogtool.core.notify_progress_listener import ProgressListener
    from binlogtool.core.open_log import LogReader
    from binlogtool.core.record_and_selection_types import ReadOptionArguments, Selection
    from binlogtool.export.manifest import Manifest, ProgressCallback
    from binlogtool.export.public_log_class import Log as OpenedLog
    from binlogtool.export.run_tasks import JobOptions, TaskRunner
    from binlogtool.export.spark_settings import SparkMaster
    from binlogtool.format_api.format import Hints
    from binlogtool.format_api.row_output_interfaces import ScriptOptions
    from binlogtool.prediction.predict_replay import OnDecision, ReplayResult
    from binlogtool.prediction.replay_options import ReplayKeywords
    from binlogtool.repair.diagnose_startup import DiagnosisReport
    from binlogtool.repair.plan_types import FinishPlan, RepairPlan, RepairPolicy, RepairResult, UndoPlan
    from binlogtool.report.record_statistics import LogStats
    from binlogtool.report.verify_and_plan_text import GivenReadOptions
    from binlogtool.schema.annotation_types import Annotation
    from binlogtool.spark.session import SparkJobSession
    from binlogtool.verification.verify_report import Report


# --- Public calls that read, check and convert logs ---

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
    schema: Path | Sequence[Path] | None = None,
    keyfile: Path | None = None,
    keyfile_secret: Path | None = None,
    level: str | None = None,
    redo: Path | None = None,
) -> Hints:
    """Read the files that supply what a log does not contain itself.

    Args:
        schema: a file with CREATE TABLE statements, or several.
        keyfile: the keys of encrypted logs (a key file or a keyring).
        keyfile_secret: a file with the secret that the key file itself is encrypted with.
        level: which units count as records, where the format has several levels.
        redo: path of the InnoDB redo log; it is read when it is needed.

    Raises:
        InputOutputError: a file cannot be read.
        UsageError: a file is larger than a file of its kind can be.
    """
    from binlogtool.core.record_and_selection_types import read_hints as read

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
    from binlogtool.core.open_log import open_log
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.export.public_log_class import Log

    return open_log(path, ReadOptions(**read_options), Log)


def follow(
    paths: Path | Iterable[Path],
    selection: Selection | None = None,
    *,
    decode: str = "full",
    raw: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> LogFollower:
    """Follow growing files and directories; each `look()` of the returned context manager yields the new records.

    Args:
        paths: files and directories.
        selection: as for `Log.blocks`, without `limit` and `skip`; `tail` = begin with the last records.
        decode: how much of each record to decode, as for `Log.blocks`.
        raw: also return the raw bytes of each record.
        read_options: as for `open`; `limits.timeout` is ignored.
    """
    from binlogtool.core.follow_growing_logs import LogFollower
    from binlogtool.core.record_and_selection_types import ReadOptions, Selection

    return LogFollower(
        _to_path_list(paths), selection or Selection(), ReadOptions(**read_options), decode=decode, raw=raw
    )


def progress_listener(listener: ProgressListener) -> AbstractContextManager[None]:
    """Return a context manager; calls inside it report their reading progress to the listener."""
    from binlogtool.core.notify_progress_listener import progress_listener as watched_by

    return watched_by(listener)


def spool_standard_input() -> AbstractContextManager[None]:
    """Return a context manager; inside it, `-` can be opened several times, from an unnamed temporary file.

    Raises:
        InputOutputError: standard input cannot be read, or the temporary file cannot be written.
    """
    from binlogtool.core.open_file import spool_standard_input as spool

    return spool()


def verify(
    paths: Path | Iterable[Path],
    *,
    depth: str = "set",
    live: bool = False,
    expect_closed: bool = False,
    times: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> Report:
    """Check files and log sets and return a report; named files of one log are checked as a set.

    A path that cannot be read or recognised becomes a `PathFailure` in the report; no exception is raised for it.

    Args:
        paths: files and directories.
        depth: "frame", "checksum", "payload" or "set"; each includes the ones before.
        live: the files may grow while they are read.
        expect_closed: treat a missing end mark or a torn tail as an error.
        times: report the time of the newest record of each file (`details["newest_time"]`).
        read_options: as for `open`; `limits.timeout` is that of the whole call.
    """
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.verification.verify_logs import LogVerifyOptions, verify_paths

    options = ReadOptions(**read_options)
    return verify_paths(
        _to_path_list(paths),
        options.format,
        LogVerifyOptions.from_read_options(options, depth, live, expect_closed, times),
    )


def verify_fleet(
    paths: Path | Iterable[Path],
    *,
    master: str | SparkMaster = "local[*]",
    on_step: ProgressCallback | None = None,
    **options: Any,
) -> list[Report | None]:
    """Verify many files on Spark; return one report per path, None if the run's `limits.timeout` passed before.

    Args:
        paths: files and directories.
        master: Spark's master URL; its executors must see the files under the same paths.
        on_step: called with the progress of the run.
        options: those of `verify`; `session` = a running Spark session.

    Raises:
        UsageError, MissingExtraError.
        InputOutputError: Spark cannot start, or failed.
    """
    from binlogtool.export.spark_settings import format_spark_job_name
    from binlogtool.format_api.format import Hints
    from binlogtool.spark.verify_and_replay_jobs import SparkJobRunner
    from binlogtool.spark.verify_and_replay_jobs import verify_on_spark as verify_all
    from binlogtool.verification.verify_logs import LogVerifyOptions

    path_names, format_name = _to_path_list(paths), options.pop("format", "auto")
    fleet = SparkJobRunner(
        master, options.pop("session", None), on_step, work=format_spark_job_name("verify", path_names)
    )
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
    """Predict what the server does with each log when it starts or replays the log; return one result per log.

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
    from binlogtool.format_api.format import Hints
    from binlogtool.prediction.predict_replay import replay_paths
    from binlogtool.prediction.replay_options import ReplayOptions, refuse_unused_server_version

    arguments: dict[str, Any] = {**options, "hints": options.get("hints") or Hints()}
    format_name, start_position = arguments.pop("format", "auto"), arguments.get("against")
    replay_options = ReplayOptions(
        **(arguments | {"against": fspath(start_position) if isinstance(start_position, PathLike) else start_position})
    )
    if master is None and session is None:
        results = replay_paths(_to_path_list(paths), format_name, replay_options, on_decision)
        refuse_unused_server_version(replay_options.server_version, (one.format for one in results))
        return results
    if on_decision is not None:
        raise UsageError("single decisions cannot be reported from Spark; leave out master and session")
    from binlogtool.export.spark_settings import format_spark_job_name
    from binlogtool.spark.verify_and_replay_jobs import SparkJobRunner, replay_on_spark

    path_names = _to_path_list(paths)
    timeout = replay_options.limits.timeout
    deadline = None if timeout is None else time.monotonic() + timeout
    fleet = SparkJobRunner(
        master or "", session, on_step, deadline, work=format_spark_job_name("replay-dry-run", path_names)
    )
    return replay_on_spark(path_names, format_name, replay_options, fleet)


def diagnose(
    paths: Path | Iterable[Path],
    *,
    server_version: str | None = None,
    live: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> DiagnosisReport:
    """Diagnose every log in and below the paths: whether its server starts, what it would lose, what can be kept.

    Nothing is written.

    Args:
        paths: files and directories.
        server_version: the server that starts, such as "3.9"; None = the one that wrote the files.
        live: the files may grow while they are read; always so for files that a process of this host has open.
        read_options: as for `open`.

    Raises:
        UnknownFormatError: there is no log in or below a path.
        InputOutputError, UsageError.
    """
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.format_api.format import Hints
    from binlogtool.prediction.replay_options import ReplayOptions, refuse_unused_server_version
    from binlogtool.repair.diagnose_startup import diagnose_paths

    options = ReadOptions(**read_options)
    hints = options.hints or Hints()
    replay_options = ReplayOptions(
        limits=options.limits, backend=options.backend, hints=hints, digest=False, server_version=server_version
    )
    diagnoses = diagnose_paths(_to_path_list(paths), options.format, replay_options, live=live)
    refuse_unused_server_version(server_version, (file.format for log in diagnoses.logs for file in log.report.files))
    return diagnoses


def annotate(path: Path, **options: Any) -> Annotation:
    """Map every byte in a part of one file to the field that it belongs to.

    Args:
        path: the file.
        options: as in `binlogtool.annotation.annotate_file.annotate_path`.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    from binlogtool.annotation.annotate_file import annotate_path

    return annotate_path(path, **options)


def annotate_log(log: LogReader, **options: Any) -> LogAnnotation:
    """Annotate an open log piece by piece, with bounded memory; otherwise like `annotate`.

    Raises:
        UsageError.
    """
    from binlogtool.annotation.annotate_file import annotate_log

    return annotate_log(log, **options)


def compare(left: LogReader, right: LogReader, *, limits: Limits = Limits(), backend: str = "auto") -> LogComparison:
    """Compare two open logs of one file each: records that are equal, that differ, or that only one log has.

    Raises:
        UsageError: the two logs cannot be compared.
    """
    from binlogtool.annotation.compare_logs import compare_logs as compare

    return compare(left, right, limits=limits, backend=backend)


def prepare_sql_script(selection: Selection, **options: Any) -> tuple[Selection, ScriptOptions]:
    """Return the selection and the options with which `Log.statements` writes the selected records as a script.

    Args:
        selection: the records to write.
        options: the members of `binlogtool.export.sql_script_output.ScriptRequest`.

    Raises:
        UsageError: the options contradict each other or the selection.
    """
    from binlogtool.export import sql_script_output

    return sql_script_output.script_selection(selection), sql_script_output.build_script_options(
        "sql", selection, sql_script_output.ScriptRequest(**options)
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
        selection: the records to convert; None = all, and damage stops the conversion (`Selection.on_damage`).
        options: members of the conversion options, and the options of a script or a table. `append` = True writes only
            the records that are new since the last run; `final` (only with append) = True marks the last run.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, RefusedError, MissingExtraError.
    """
    from binlogtool.export import convert_logs as convert_module
    from binlogtool.export.convert_logs import STOP_AT_DAMAGE

    append, final = options.pop("append", False), options.pop("final", False)
    if to == "jsonl" and options.get("lines") is None:
        from binlogtool.report.dump_output_formats import CompiledLineEncoder, RecordJsonEncoder

        options["lines"] = RecordJsonEncoder().encode_lines
        options["compiled_lines"] = CompiledLineEncoder().encode_ranges
        options["limits"] = replace(options.get("limits", Limits()), max_whole=limits.LONG_VALUE_BYTES)
    options["selection"] = selection or STOP_AT_DAMAGE
    if append:
        return convert_module.append(_to_path_list(paths), to, output, final=final, **options)
    if final:
        raise UsageError("--final needs --append")
    return convert_module.convert(_to_path_list(paths), to, output, open_spark_runner=_open_spark_runner, **options)


def _open_spark_runner(
    options: JobOptions, master: str | SparkMaster | None, session: SparkJobSession | None
) -> AbstractContextManager[TaskRunner]:
    """Open the runner of a conversion's Spark tasks; see `spark.verify_and_replay_jobs.open_spark_runner`."""
    from binlogtool.spark.verify_and_replay_jobs import open_spark_runner

    return open_spark_runner(options, master, session)


# --- Public calls that plan repairs, apply them and undo them ---


def plan_truncate(
    path: Path,
    *,
    policy: RepairPolicy | None = None,
    **read_options: Unpack[ReadOptionArguments],
) -> RepairPlan:
    """Plan the truncation of a log to its durable end; nothing is written.

    Args:
        path: a file or a directory.
        policy: what the plan may discard, and what else it should repair; None = the defaults.
        read_options: as for `binlogtool.open`.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, RefusedError.
    """
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.repair.plan_truncate import plan_truncate as plan
    from binlogtool.repair.plan_types import RepairPolicy

    return plan(path, ReadOptions(**read_options), policy or RepairPolicy())


def load_plan(plan_file: Path, paths: Iterable[Path] = (), **read_options: Unpack[ReadOptionArguments]) -> RepairPlan:
    """Load a saved plan, provided that the log has not changed since the plan was made.

    Args:
        plan_file: a file with the output of `plan_as_json`.
        paths: the log, where its path differs from the one in the plan.
        read_options: as for `binlogtool.open`.

    Raises:
        RefusedError: the log differs from the plan.
    """
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.repair.apply_plan_or_salvage import read_saved_plan_json, recreate_plan

    path_names = tuple(fspath(one) for one in paths)
    return recreate_plan(read_saved_plan_json(plan_file), path_names, ReadOptions(**read_options))


def apply_plan(
    plan: RepairPlan,
    *,
    undo_dir: str | None = None,
    backup: str = "tail",
    network: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> RepairResult:
    """Apply a plan; after a crash at any moment each file has either its old or its new content.

    The removed bytes are kept in an undo file.

    Args:
        plan: the plan.
        undo_dir: directory of the undo file; None = beside the log.
        backup: "tail" (keep the removed bytes) or "full" (keep the whole file).
        network: allow a network file system.
        read_options: as for `plan_truncate`.

    Raises:
        RefusedError, InputOutputError: nothing was changed.
        RepairFailedError: the check after the write failed; the message says whether the original was restored.
    """
    from binlogtool.repair.apply_plan_or_salvage import apply_plan as apply

    return apply(plan, undo_dir=undo_dir, backup=backup, allow_network=network, **read_options)


def write_repaired_copy(plan: RepairPlan, output: Path, **read_options: Unpack[ReadOptionArguments]) -> RepairResult:
    """Write the result of a plan for one file to a new file; the log is only read.

    Raises:
        RefusedError, InputOutputError: nothing was written.
    """
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.repair.apply_plan_or_salvage import write_result_to_new_file

    return write_result_to_new_file(plan, output, ReadOptions(**read_options))


def finish_repair(path: Path) -> RepairResult | None:
    """Finish an interrupted repair of several files in the directory of `path`; return None if there is none.

    Raises:
        RefusedError, InputOutputError.
    """
    from binlogtool.repair.undo_repair import finish_interrupted

    return finish_interrupted(path)


def plan_finish(path: Path) -> FinishPlan | None:
    """Return what `finish_repair` would write to which paths; None if no repair was interrupted in `path`'s directory.

    Raises:
        RefusedError: the repair must not be finished.
        InputOutputError.
    """
    from binlogtool.repair.undo_repair import plan_finish as plan

    return plan(path)


def plan_undo(undo_file: Path | Iterable[Path]) -> UndoPlan:
    """Plan the undo of a repair; nothing is written.

    Args:
        undo_file: the file that `apply_plan` wrote; of several, or of those in a directory, the newest one that is not
            undone yet is taken.

    Raises:
        RefusedError: the undo file is incomplete or not an undo file.
        InputOutputError.
    """
    from binlogtool.repair.undo_repair import choose_undo_file
    from binlogtool.repair.undo_repair import plan_undo as plan

    return plan(choose_undo_file(_to_path_list(undo_file)))


def undo(undo_file: Path, *, network: bool = False) -> RepairResult:
    """Undo a repair: restore the original bytes, mode and times (and the owner where allowed).

    Args:
        undo_file: the file that `apply_plan` wrote.
        network: allow a network file system.

    Raises:
        RefusedError: nothing was changed.
        InputOutputError: no file is half-written; the call can be repeated.
    """
    from binlogtool.repair.undo_repair import apply_undo

    return apply_undo(undo_file, allow_network=network)


# --- Public calls for reports and statistics ---


def render_report(
    report: Report,
    kind: str,
    *,
    fail_on: Severity | None = Severity.ERROR,
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
) -> bytes:
    """Render a report as `verify --report KIND=FILE` writes it.

    Args:
        report: the result of `verify`.
        kind: "json", "junit", "sarif", "gitlab", "markdown" or "html".
        fail_on: the lowest severity that counts as a failure in junit; None = none does.
        limits, backend, hints: for html only, which rereads damaged files to show their bytes, and all files to count
            records over time.

    Raises:
        UsageError: the kind is unknown.
    """
    if kind == "html":
        from binlogtool.report.verify_html import build_verify_page

        return build_verify_page(report, limits, backend, hints)
    if kind not in _REPORT_RENDERERS:
        raise UsageError(f"unknown report kind {kind!r}; use one of {', '.join(REPORT_KINDS)}")
    return _REPORT_RENDERERS[kind](report, fail_on)


def plan_as_json(plan: RepairPlan, result: RepairResult | None = None) -> bytes:
    """Render a plan as `truncate-to-durable -O json` does (binlogtool/plan/1); `load_plan` reads it.

    Args:
        plan: the plan.
        result: what was carried out; None = nothing yet.
    """
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    return encode_document(plan_to_json(plan, result))


def replay_as_json(result: ReplayResult) -> bytes:
    """Render a replay as `replay-dry-run -O json` does (binlogtool/replay/1)."""
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.diagnosis_and_replay import replay_to_json

    return encode_document(replay_to_json(result))


def manifest_as_json(manifest: Manifest) -> bytes:
    """Render a manifest as `convert -O json` does (binlogtool/manifest/1)."""
    from binlogtool.format_api.encode_json import encode_document

    return encode_document(manifest.to_dict())


def render_diagnosis(
    report: DiagnosisReport, kind: str, *, next_command_options: GivenReadOptions | None = None
) -> bytes:
    """Render a diagnosis as `diagnose -O KIND` does.

    Args:
        report: the result of `diagnose`.
        kind: "json" (binlogtool/diagnose/1) or "markdown".
        next_command_options: the read options that the commands of the steps repeat; None = none.

    Raises:
        UsageError: the kind is unknown.
    """
    from binlogtool._version import __version__
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.diagnosis_and_replay import diagnosis_to_json, render_diagnosis_markdown
    from binlogtool.report.verify_and_plan_text import NO_READ_OPTIONS

    read_options = NO_READ_OPTIONS if next_command_options is None else next_command_options
    if kind == "json":
        return encode_document(diagnosis_to_json(report, __version__, read_options))
    if kind == "markdown":
        return render_diagnosis_markdown(report, read_options).encode("utf-8", "backslashreplace")
    raise UsageError(f"a diagnosis can be rendered as json or markdown, not as {kind!r}")


def collect_stats(
    paths: Path | Iterable[Path],
    *,
    by: str = "object",
    bucket: str = "auto",
    selection: Selection | None = None,
    **read_options: Unpack[ReadOptionArguments],
) -> LogStats:
    """Count records and bytes over time; damaged ranges are skipped.

    Args:
        paths: files and directories of one log.
        by: "object", "type" or "origin".
        bucket: "1m", "1h", "1d" (time steps, UTC) or "auto".
        selection: the records to count; None = all.
        read_options: as for `open`.

    Returns:
        Totals by name (`groups`), and by time step and name (`cells`).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
        LimitError: too many time steps, or a limit ended the reading.
    """
    from binlogtool.core.record_and_selection_types import RecordBlock, Selection, add_selection_hints
    from binlogtool.report.record_statistics import BUCKET_LENGTHS, BY, SeriesCounter

    if by not in BY or bucket not in ("auto", *BUCKET_LENGTHS):
        raise UsageError(f"by must be one of {', '.join(BY)}; bucket must be one of auto, {', '.join(BUCKET_LENGTHS)}")
    selected, series = selection or Selection(), SeriesCounter(by, bucket)
    read_options["hints"] = add_selection_hints(selected, read_options.get("hints"))
    with open(paths, **read_options) as log:
        for item in log.blocks(selected, decode="frame"):
            if isinstance(item, RecordBlock):
                series.add_block(item)
    return series.finish()


def _render_json(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool._version import __version__
    from binlogtool.report.verify_and_plan_text import encode_verify_report

    return b"".join(encode_verify_report(report, __version__))


def _render_junit(report: Report, fail_on: Severity | None) -> bytes:
    from binlogtool.report.ci_reports import render_junit

    return render_junit(report, fail_on=fail_on)


def _render_sarif(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool._version import __version__
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.ci_reports import report_to_sarif

    return encode_document(report_to_sarif(report, __version__))


def _render_gitlab(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.ci_reports import report_to_gitlab

    return encode_document(report_to_gitlab(report))


def _render_markdown(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.report.ci_reports import render_markdown

    return render_markdown(report).encode("utf-8", "backslashreplace")


_REPORT_RENDERERS: Mapping[str, Callable[[Report, Severity | None], bytes]] = {
    "junit": _render_junit,
    "sarif": _render_sarif,
    "gitlab": _render_gitlab,
    "json": _render_json,
    "markdown": _render_markdown,
}
REPORT_KINDS = (*_REPORT_RENDERERS, "html")
"""The kinds that `render_report` accepts."""
