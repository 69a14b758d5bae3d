"""Convert logs to files with a manifest that accounts for every row.

All outputs are written in this process, except that tables of records can be written in worker processes or on Spark.
An output appears whole or not at all, and damage stops the work unless the selection says otherwise.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from binlogtool.core.open_file import is_url
from binlogtool.core.record_and_selection_types import ReadOptions, Selection, add_selection_hints
from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.export import sql_script_output
from binlogtool.export.append_new_records import APPEND_TARGETS as APPENDED
from binlogtool.export.append_new_records import AppendJob
from binlogtool.export.atomic_output import discard_stage, remove_and_report_leftovers, stage_log_set, stage_output
from binlogtool.export.envelopes.encode_change_messages import make_change_message_writer_factory
from binlogtool.export.manifest import (
    FileStamp,
    FindingTally,
    Manifest,
    ManifestInput,
    ProgressCallback,
    ReadRequest,
    check_columns_exist,
    check_names_exist,
    find_broken_links,
    find_inputs,
    hash_file,
    read_stamp,
)
from binlogtool.export.output_options import (
    COMPRESSIONS,
    EnvelopeOptions,
    TableFileOptions,
    TypedRowOptions,
    build_typed_options,
    parse_envelope_options,
    require_modules_lifting_memory_limit,
    typed_selection,
)
from binlogtool.export.run_tasks import OpenRunner, TaskRunner, open_local_runner
from binlogtool.export.spark_settings import SparkMaster
from binlogtool.export.sql_script_output import discard_sidecars_unless_complete
from binlogtool.export.write_json_sql_raw import CompiledLines, LineEncoder, StreamJob
from binlogtool.findings import SET_LINK_IDS, finding_to_value
from binlogtool.format_api.format import Hints
from binlogtool.format_api.row_output_interfaces import ScriptOptions

if TYPE_CHECKING:
    from binlogtool.spark.session import SparkJobSession


# --- Options of a conversion that do not depend on the output format ---

STOP_AT_DAMAGE = Selection(on_damage="stop")


class ConvertOptions(ReadOptions, frozen=True, kw_only=True):
    """Options of a conversion, including the options for reading the logs.

    master, session: the Spark that writes tables of records; None = no Spark, but `jobs` processes (1 = this process).
    manifest: path for the manifest as JSON. lines: encoder of a block as lines of jsonl; compiled_lines: the same for
    ranges of records. max_binlog_size: maximum bytes of a binary log file. allow_rule_breaks: see `BinlogCopyJob`.
    partition_by, compression, csv_safe, target_file_size: see `TableFileOptions`. envelope: see
    `parse_envelope_options`.
    """

    selection: Selection = STOP_AT_DAMAGE
    master: str | SparkMaster | None = None
    session: SparkJobSession | None = None
    jobs: int = 1
    manifest: str | PathLike[str] | None = None
    overwrite: bool = False
    lines: LineEncoder | None = None
    compiled_lines: CompiledLines | None = None
    on_step: ProgressCallback | None = None
    max_binlog_size: int | None = None
    allow_rule_breaks: bool = False
    partition_by: Sequence[str] = ()
    compression: str | None = None
    csv_safe: bool = False
    target_file_size: int | None = None
    envelope: Mapping[str, Any] | None = None

    def read_request(self, *, is_script: bool) -> ReadRequest:
        """Return what is read, without files. is_script: whole transactions are needed, not single records."""
        hints = add_selection_hints(self.selection, self.hints, needs_statements=is_script)
        return ReadRequest((), 1, self.backend, self.limits, self.selection, hints=hints)

    def table_options(self, to: str, *, typed: bool = False) -> TableFileOptions:
        """Return the options of table files."""
        return TableFileOptions(
            to, tuple(self.partition_by), self.compression, self.csv_safe, typed, self.target_file_size
        )


def split_off_common_options(options: Mapping[str, Any]) -> tuple[ConvertOptions, dict[str, Any]]:
    """Split options into the common options of conversions, and the options of one kind of output."""
    common_names = set(ConvertOptions.__struct_fields__)
    kind_options = {name: value for name, value in options.items() if name not in common_names}
    return ConvertOptions(**{name: value for name, value in options.items() if name in common_names}), kind_options


# --- Calls of `convert` ---


def _check_master(to: str, message_options: EnvelopeOptions | None) -> None:
    if to not in TABLE_TARGETS and message_options is None:
        raise UsageError(f"{to} is written in this process: --master is for {_TASK_TARGETS}")
    require_modules_lifting_memory_limit("--master", "pyspark", "pyarrow", extra="spark")


TABLE_TARGETS = tuple(COMPRESSIONS)
_TASK_TARGETS = f"{', '.join(TABLE_TARGETS)}, and jsonl with --envelope"
SCRIPT_TARGETS = ("sql", "flashback")
STREAM_TARGETS = ("jsonl", *SCRIPT_TARGETS, "raw")
LOG_TARGETS = ("mysql-binlog",)
TARGETS = (*TABLE_TARGETS, *STREAM_TARGETS, *LOG_TARGETS)
_WriteJob = Callable[[list[ManifestInput], Path], Manifest]
OpenSparkRunner = Callable[..., AbstractContextManager[TaskRunner]]
_LOG_SET_SUFFIX = re.compile(r"\.(?:\d{6,}|index)")


def convert(
    paths: Iterable[str | PathLike[str]],
    to: str,
    output: str | PathLike[str],
    *,
    open_spark_runner: OpenSparkRunner,
    **options: Any,
) -> Manifest:
    """Write the selected records of files and directories to `output`.

    Args:
        to: parquet, orc, csv, json or avro (a directory of part files, rows as in `export.records_to_arrow`),
            jsonl (one file), raw (the bytes of the records), sql or flashback (a script), or mysql-binlog (a log of
            whole transactions; `output` as in `atomic_output.stage_log_set`).
        open_spark_runner: function (job options, master, session) that opens a runner of tasks on Spark.
        options: fields of `ConvertOptions`; for scripts, fields of `sql_script_output.ScriptRequest`; for typed rows,
            per_table, image and merge. Selecting objects for a table format also gives typed rows.

    With `on_damage` "stop", nothing is published if there is damage with severity error, or a change that a script
    cannot express.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, MissingExtraError, LimitError, KeyboardInterrupt.
        RefusedError: the output exists, an input changed meanwhile, or a transaction to be reversed is incomplete.
    """
    settings, kind_options = split_off_common_options(options)
    selection, master = settings.selection, settings.master
    on_step, overwrite, allow_rule_breaks = settings.on_step, settings.overwrite, settings.allow_rule_breaks
    typed_options = _extract_typed_row_options(
        to, selection, settings.hints, kind_options, parse_envelope_options(settings.envelope)
    )
    message_options, target = _message_options(to, settings.lines, settings.envelope, selection), fspath(output)
    if master is not None:
        _check_master(to, message_options)
    if settings.jobs > 1 and to not in TABLE_TARGETS and message_options is None:
        raise UsageError(f"{to} is written by one process: --jobs is for {_TASK_TARGETS}")
    is_typed = to in TABLE_TARGETS and (typed_options or message_options) is not None
    shape = settings.table_options(to, typed=is_typed)
    wording = _build_script_options(to, target, shape, selection, kind_options)
    request = settings.read_request(is_script=to in SCRIPT_TARGETS or bool(typed_options or message_options))
    inputs = _resolve_inputs(
        path_names := [fspath(p) for p in paths],
        to,
        settings.format,
        selection,
        typed_options,
        allow_rule_breaks=allow_rule_breaks,
    )
    _refuse_existing_manifest(settings.manifest, overwrite=overwrite)
    leftovers = [] if is_url(target) else remove_and_report_leftovers(output, is_log_set=to in LOG_TARGETS)
    if to in LOG_TARGETS:
        manifest = _write_log_set(settings, request, path_names, output, inputs)
        return _save_manifest(
            replace(manifest, to=to, output=target), leftovers, settings.manifest, overwrite=overwrite
        )
    work: _WriteJob
    if to in STREAM_TARGETS and not (message_options is not None and _uses_tasks(settings)):
        job = StreamJob(to, request, settings.lines, wording, on_step, message_options, settings.compiled_lines)
        work = partial(job.write, settings.format)
    else:
        work = _make_table_job(settings, request, shape, open_spark_runner, typed_options, message_options)
    work = _wrap_with_unknown_name_checks(work, to, settings, typed_options) if to not in SCRIPT_TARGETS else work
    with discard_sidecars_unless_complete(wording.sidecar_files) as keep_sidecars:
        manifest = _write_and_publish(work, target, inputs, overwrite=overwrite, live=selection.live, on_step=on_step)
        keep_sidecars(manifest.complete)
    return _save_manifest(replace(manifest, to=to, output=target), leftovers, settings.manifest, overwrite=overwrite)


def append(
    paths: Iterable[str | PathLike[str]],
    to: str,
    output: str | PathLike[str],
    *,
    final: bool = False,
    **options: Any,
) -> Manifest:
    """Append the records that are new since the last run to `output`, a directory of jsonl or table files.

    final: the log is complete (see `AppendJob`). The other options are those of `convert`, except options that do not
    fit an output with one file per run.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, RefusedError, MissingExtraError, LimitError.
    """
    if to not in APPENDED:
        raise UsageError(f"--append is for {', '.join(APPENDED)}, not for {to}")
    if refused := [name for name in _NOT_FOR_APPEND if options.pop(name, None)]:
        raise UsageError(
            f"--append writes one file per run; it cannot be combined with --{refused[0].replace('_', '-')}"
        )
    settings, kind_options = split_off_common_options(options)
    typed_options = _extract_typed_row_options(to, settings.selection, settings.hints, kind_options, None)
    shape = settings.table_options(to, typed=to != "jsonl")
    _refuse_inapplicable_options(to, fspath(output), shape, sql_script_output.ScriptRequest(**kind_options))
    message_options = _message_options(to, settings.lines, settings.envelope, settings.selection)
    if message_options is not None and to != "jsonl":
        raise UsageError("--append writes change messages as jsonl only")
    if settings.master is not None or settings.jobs > 1:
        option = "--jobs" if settings.master is None else "--master"
        raise UsageError(f"--append runs in this process; it cannot be combined with {option}")
    _refuse_existing_manifest(settings.manifest, overwrite=False)
    job = AppendJob(
        shape, settings.read_request(is_script=bool(typed_options or message_options)), settings.lines,
        settings.compiled_lines, settings.on_step, final, typed_options, message_options,
    )  # fmt: skip
    manifest = job.append_new_records([fspath(path) for path in paths], settings.format, output)
    return _save_manifest(manifest, [], settings.manifest, overwrite=False)


_NOT_FOR_APPEND = (
    "merge", "overwrite", "partition_by", "csv_safe", "target_file_size", "max_binlog_size", "allow_rule_breaks",
)  # fmt: skip


def _write_log_set(
    settings: ConvertOptions, request: ReadRequest, paths: list[str], output: str | PathLike[str],
    inputs: list[ManifestInput],
) -> Manifest:  # fmt: skip
    """Write binary log files with a common base name."""
    from binlogtool.export.copy_to_mariadb_binlog import BinlogCopyJob

    job = BinlogCopyJob(request, settings.max_binlog_size, settings.allow_rule_breaks)
    with stage_log_set(output, _LOG_SET_SUFFIX) as (stage, base):
        write = partial(job.copy_and_verify_log, inputs, paths, settings.format, stage, base)
        return _run_job_and_complete_manifest(write, inputs, stage, live=request.selection.live)


def _make_table_job(
    settings: ConvertOptions, request: ReadRequest, shape: TableFileOptions, open_spark_runner: OpenSparkRunner,
    typed_options: TypedRowOptions | None, message_options: EnvelopeOptions | None,
) -> _WriteJob:  # fmt: skip
    """Return the job that writes tables: on Spark if a master or session is given."""
    from binlogtool.export.last_row_per_key import create_current_row_kind
    from binlogtool.export.write_record_tables import make_record_rows
    from binlogtool.export.write_typed_tables import RowTableJob, create_typed_row_kind

    if settings.master is None and settings.session is None:
        open_runner: OpenRunner = partial(open_local_runner, jobs=settings.jobs)
    else:
        open_runner = partial(open_spark_runner, master=settings.master, session=settings.session)
    arguments = shape, open_runner, settings.on_step
    if message_options is not None:
        from binlogtool.export.envelopes.messages_to_arrow import MessageRows
        from binlogtool.export.envelopes.write_messages_by_tasks import MessageLineJob, MessageLines

        if shape.to == "jsonl":
            lines = MessageLines(message_options, None, has_types=False)
            return MessageLineJob(request, *arguments, kind=lines).write
        if shape.partition_by:
            raise UsageError(
                "--partition-by cannot be used with --envelope; --per-table makes a directory for each table"
            )
        if message_options.schema_messages:
            raise UsageError("--schema-messages writes messages about statements, which no table has: use --to jsonl")
        messages = MessageRows(message_options, typed_options, has_types=shape.to != "csv")
        return RowTableJob(request, *arguments, kind=messages).write
    if typed_options is not None and typed_options.merge and _uses_tasks(settings):
        raise UsageError("--merge runs in this process; docs/tables.md has a recipe for Spark, with all changed rows")

    def write(inputs: list[ManifestInput], stage: Path) -> Manifest:
        if typed_options is None:
            records = make_record_rows(request, shape, inputs)
            return RowTableJob(request, *arguments, kind=records).write(inputs, stage)
        make_kind = create_current_row_kind if typed_options.merge else create_typed_row_kind
        kind = make_kind(typed_options, [(i.path, i.format) for i in inputs])
        row_request = replace(request, selection=typed_selection(request.selection))
        return RowTableJob(row_request, *arguments, kind=kind).write(inputs, stage)

    return write


def _uses_tasks(settings: ConvertOptions) -> bool:
    """Return True if processes or Spark are asked for."""
    return settings.jobs > 1 or settings.master is not None or settings.session is not None


def _wrap_with_unknown_name_checks(
    write_job: _WriteJob, to: str, settings: ConvertOptions, typed: TypedRowOptions | None
) -> _WriteJob:
    """Wrap a job so that it raises UsageError for unknown columns or names if it read everything and selected nothing.

    The columns and tables of typed rows are checked elsewhere: tables may have columns that no record names.
    """

    def write_and_check(inputs: list[ManifestInput], stage: Path) -> Manifest:
        manifest = write_job(inputs, stage)
        is_lines_by_tasks = to == "jsonl" and _uses_tasks(settings)
        has_links = not (SET_LINK_IDS - {"gap-in-sequence"}).isdisjoint(manifest.finding_counts)
        if (to in TABLE_TARGETS or is_lines_by_tasks) and not has_links:
            manifest = _add_broken_link_findings(manifest, inputs, settings)
        all_read = manifest.complete and not manifest.finding_counts and not any(one.trouble for one in manifest.inputs)
        if all_read and not manifest.rows:
            paths, selection = [one.path for one in inputs], settings.selection
            if typed is None:
                check_columns_exist(paths, selection.where, settings)
            if to not in STREAM_TARGETS:
                check_names_exist(paths, selection if typed is None else typed_selection(selection), settings)
        return manifest

    return write_and_check


def _add_broken_link_findings(manifest: Manifest, inputs: list[ManifestInput], settings: ConvertOptions) -> Manifest:
    """Add where the files of a log do not follow each other, which tasks that read one file each do not see."""
    paths = [one.path for one in inputs if not (one.trouble or is_url(one.path))]
    if len(paths) < 2:
        return manifest
    read_options = ReadOptions(settings.format, settings.limits, settings.backend, settings.hints)
    tally, reported = FindingTally(), {(one["file"], one["message"]) for one in manifest.findings}
    for one in find_broken_links(paths, settings.selection, read_options):
        if (one.file, one.finding.message) not in reported:
            tally.add(one.file, finding_to_value(one.finding), damage=True)
    return replace(
        manifest,
        complete=manifest.complete and not tally.stops_conversion(settings.selection),
        findings=(*manifest.findings, *tally.listed),
        finding_counts=dict(Counter(manifest.finding_counts) + tally.counts),
    )


def _extract_typed_row_options(
    to: str,
    selection: Selection,
    hints: Hints | None,
    kind_options: dict[str, Any],
    envelope_options: EnvelopeOptions | None,
) -> TypedRowOptions | None:
    """Return the options of typed rows; None = records are written.

    Typed rows are written if tables are selected, unless a record level is given; for messages, if a single table is
    selected or with --per-table. Removes per_table and image from `kind_options`.
    """
    per_table, image = bool(kind_options.pop("per_table", False)), kind_options.pop("image", None)
    if kind_options.pop("merge", False):
        return _build_merge_options(to, selection, image, envelope_options, per_table=per_table)
    if envelope_options is not None and to in TABLE_TARGETS:
        return _message_table_options(selection, image, per_table=per_table)
    if not per_table and image is None and (to not in TABLE_TARGETS or not selection.objects):
        return None
    is_requested = per_table or image is not None
    if to not in TABLE_TARGETS:
        raise UsageError(
            f"--{'per-table' if per_table else 'image'} is for tables ({', '.join(TABLE_TARGETS)}), not for {to}"
            f"{'; rows as JSON lines: --to json, or `binlogtool rows -O jsonl`' if to == 'jsonl' else ''}"
        )
    level = None if hints is None else hints.level
    if level is not None and not is_requested:
        return None
    if to == "csv" and image == "both":
        raise UsageError("--image both cannot be used with csv; choose after, before or changes")
    return build_typed_options(selection, image, per_table=per_table)


def _build_merge_options(
    to: str, selection: Selection, image: str | None, envelope_options: EnvelopeOptions | None, *, per_table: bool
) -> TypedRowOptions:
    """Return the options for the current rows of tables: of one if a single one is selected, otherwise per table."""
    if to not in TABLE_TARGETS:
        raise UsageError(f"--merge is for tables ({', '.join(TABLE_TARGETS)}), not for {to}")
    refused = {
        "--image": image not in (None, "after"), "--envelope": envelope_options is not None,
        "--where": selection.where is not None, "--skip": bool(selection.skip),
        "--limit": selection.limit is not None, "--type": bool(selection.types),
    }  # fmt: skip
    for name in (name for name, is_given in refused.items() if is_given):
        raise UsageError(f"--merge needs all changes of a row; it cannot be combined with {name}")
    return replace(build_typed_options(selection, None, per_table=per_table), merge=True)


def _message_table_options(selection: Selection, image: str | None, *, per_table: bool) -> TypedRowOptions | None:
    """Return the row options for tables of change messages; None = one table for all messages."""
    if image is not None:
        raise UsageError("--image cannot be combined with --envelope, which determines the images")
    typed_options = build_typed_options(replace(selection, where=None), None, per_table=per_table)
    return typed_options if per_table or not typed_options.per_table else None


def _write_and_publish(
    write_job: _WriteJob,
    path: str,
    inputs: list[ManifestInput],
    *,
    overwrite: bool,
    live: bool,
    on_step: ProgressCallback | None,
) -> Manifest:
    """Run the job for a file or directory, which may be in another file system, and publish its output."""
    if is_url(path):
        from binlogtool.export.atomic_output import stage_upload

        with stage_upload(path, overwrite=overwrite, on_step=on_step) as stage:
            return _run_job_and_complete_manifest(lambda: write_job(inputs, stage), inputs, stage, live=live)
    output = Path(path)
    with stage_output(output, overwrite=overwrite, inputs=[Path(i.path) for i in inputs]) as stage:
        manifest = _run_job_and_complete_manifest(lambda: write_job(inputs, stage), inputs, stage, live=live)
        final_names = {stage.name: output.name}
    return replace(manifest, outputs=tuple(replace(o, path=final_names.get(o.path, o.path)) for o in manifest.outputs))


def _save_manifest(
    result: Manifest, leftovers: list[str], manifest_path: str | PathLike[str] | None, *, overwrite: bool
) -> Manifest:
    """Add leftovers of killed runs to the manifest, and write it to the path that the user named."""
    result = replace(result, details={**result.details, "leftovers": leftovers}) if leftovers else result
    if manifest_path is not None:
        with stage_output(Path(manifest_path), overwrite=overwrite, inputs=[]) as stage:
            stage.write_text(json.dumps(result.to_dict(), indent=2) + "\n")
    return result


def _run_job_and_complete_manifest(
    write_job: Callable[[], Manifest], inputs: list[ManifestInput], stage: Path, *, live: bool
) -> Manifest:
    """Run the job; return its manifest with the missing hashes; delete the temporary output if damage stopped the job.

    Raises:
        RefusedError: an input changed while it was read.
    """
    before = {i.path: _stamp_if_readable(i.path) for i in inputs if not i.trouble}
    manifest = write_job()
    hashed_inputs = (i if i.sha256 or i.trouble else replace(i, sha256=hash_file(i.path)) for i in manifest.inputs)
    manifest = replace(manifest, inputs=tuple(hashed_inputs))
    if copies := list(_describe_copies(manifest.inputs)):
        details = {**manifest.details, "remarks": [*copies, *manifest.details.get("remarks", ())]}
        manifest = replace(manifest, details=details)
    if manifest.on_damage != "stop":
        manifest = _mark_unreadable_inputs(manifest)
    unreadable = {i.path for i in manifest.inputs if i.trouble}
    changed = [path for path, was in before.items() if path not in unreadable and not live and read_stamp(path) != was]
    if changed:
        changed_text = " and ".join([changed[0], *([f"{len(changed) - 1:,} more"] if changed[1:] else [])])
        raise RefusedError(f"{changed_text} changed while it was read; convert a copy, or use --live")
    if manifest.complete:
        folder = stage if stage.is_dir() else None
        outputs = (
            o if o.sha256 else replace(o, sha256=hash_file(str(folder / o.path if folder else stage)))
            for o in manifest.outputs
        )
        return replace(manifest, outputs=tuple(outputs))
    discard_stage(stage)
    return replace(manifest, outputs=(), rows=0, damage=0, checks=())


def _describe_copies(inputs: Sequence[ManifestInput]) -> Iterator[str]:
    """Yield a text for each input that is a copy of an earlier one."""
    first_paths = dict[str, str]()
    for one in inputs:
        first = first_paths.setdefault(one.sha256, one.path)
        if one.sha256 and one.size and first != one.path:
            yield f"{one.path} is a copy of {first}: its records are read twice; name only one of them"


def _mark_unreadable_inputs(manifest: Manifest) -> Manifest:
    """Return the manifest with inputs marked and listed that could not be read, or not to the end."""
    text = "removed while it was read; its rows may be incomplete"
    lost = {i.path for i in manifest.inputs if not i.trouble and _stamp_if_readable(i.path) is None}
    inputs = tuple(replace(i, trouble=text) if i.path in lost else i for i in manifest.inputs)
    unreadable = [f"{i.path}: {i.trouble.removeprefix(f'{i.path}: ')}" for i in inputs if i.trouble]
    return replace(
        manifest,
        inputs=inputs,
        details={**manifest.details, "unreadable": unreadable} if unreadable else manifest.details,
    )


def _stamp_if_readable(path: str) -> FileStamp | None:
    """Return the stamp of a file; None if it cannot be read (its reader reports that)."""
    try:
        return read_stamp(path)
    except InputOutputError:
        return None


def _refuse_inapplicable_options(
    to: str, output: str, shape: TableFileOptions, script_request: sql_script_output.ScriptRequest
) -> None:
    """Raise UsageError for an option that does not apply to the output form."""
    if to not in TARGETS:
        raise UsageError(f"cannot convert to {to!r}; choose one of {', '.join(TARGETS)}")
    if to in TABLE_TARGETS:
        shape.check()
    elif refused := [n for n in ("partition_by", "compression", "csv_safe", "file_size") if getattr(shape, n)]:
        option = refused[0].replace("file_size", "target_file_size").replace("_", "-")
        raise UsageError(f"--{option} is for tables ({', '.join(TABLE_TARGETS)}), not for {to}")
    if is_url(output) and to not in TABLE_TARGETS:
        raise UsageError(f"{output}: {to} can only be written to the local disk; copy it from there")
    if to not in SCRIPT_TARGETS and script_request.first_non_default_option is not None:
        raise UsageError(
            f"{script_request.first_non_default_option} is for scripts ({', '.join(SCRIPT_TARGETS)}), not for {to}"
        )


def _message_options(
    to: str, lines: LineEncoder | None, envelope: Mapping[str, Any] | None, selection: Selection
) -> EnvelopeOptions | None:
    """Return the options of change messages; None = records are written.

    Raises:
        UsageError: messages cannot be written in this form, or `lines` is missing or superfluous.
    """
    options = parse_envelope_options(envelope)
    if options is not None:
        if to not in ("jsonl", *TABLE_TARGETS):
            raise UsageError(f"--envelope is for jsonl and tables ({', '.join(TABLE_TARGETS)}), not for {to}")
        make_change_message_writer_factory(options, selection)
    elif to in TARGETS and (to == "jsonl") != (lines is not None):
        raise UsageError(f"converting to {to} {'takes no' if lines else 'needs a'} function that makes lines")
    return options


def _build_script_options(
    to: str, output: str, shape: TableFileOptions, selection: Selection, script_options: Mapping[str, Any]
) -> ScriptOptions:
    """Return the form of a script, whose sidecar files go beside the output. Refuse options of other output forms."""
    request = sql_script_output.ScriptRequest(**script_options)
    _refuse_inapplicable_options(to, output, shape, request)
    if to == "sql" and not request.load_files:
        request = replace(request, load_files=f"{output}.load")
    return sql_script_output.build_script_options(to, selection, request)


def _resolve_inputs(
    paths: list[str],
    to: str,
    format: str,
    selection: Selection,
    typed_options: TypedRowOptions | None,
    *,
    allow_rule_breaks: bool,
) -> list[ManifestInput]:
    """Return the input files, in log order for a log output; raise UsageError for a selection that the output form
    cannot hold.
    """
    if allow_rule_breaks and to not in LOG_TARGETS:
        raise UsageError(f"--allow-rule-breaks is for {', '.join(LOG_TARGETS)}, not for {to}")
    if to in LOG_TARGETS:
        from binlogtool.export.copy_to_mariadb_binlog import check_selects_whole_transactions, order_log_files

        check_selects_whole_transactions(selection)
        return order_log_files(find_inputs(paths, format))
    return find_inputs(
        paths, format, lenient=to in TABLE_TARGETS and typed_options is None and selection.on_damage != "stop"
    )


def _refuse_existing_manifest(manifest: str | PathLike[str] | None, *, overwrite: bool) -> None:
    if manifest is not None and Path(manifest).exists() and not overwrite:
        raise RefusedError(f"{fspath(manifest)} exists; name another manifest or give --overwrite")
