"""The `convert` calls: logs in, files out, with a manifest that accounts for every row.

Tables are written on Spark or, if typed, in this process; log-shaped outputs are an ordered stream in this process.
The
output appears whole or not at all, and damage stops the work unless the selection says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.formats.scripting import Wording
from binlogtool.log.select import Selection, hints_for
from binlogtool.log.source import is_url
from binlogtool.pipeline.account import OnStep
from binlogtool.pipeline.append import TARGETS as APPENDED
from binlogtool.pipeline.append import AppendJob
from binlogtool.pipeline.atomic_output import clear, discard, staged, staged_set
from binlogtool.pipeline.envelopes.messages import beginning
from binlogtool.pipeline.envelopes.wishes import Options, options_of
from binlogtool.pipeline.inputs import Stamp, demand_columns, demand_names, find_inputs, sha256, stamp
from binlogtool.pipeline.log_shaped import Lines, StreamJob
from binlogtool.pipeline.manifest import Input, Manifest
from binlogtool.pipeline.master import Master
from binlogtool.pipeline.typed.wishes import Wishes, wishes
from binlogtool.pipeline.wanted import Wanted, asked
from binlogtool.pipeline.writers import scripts
from binlogtool.pipeline.writers.shelf import shelved
from binlogtool.pipeline.writers.table_form import COMPRESSIONS, Shape

TABLES = tuple(COMPRESSIONS)
SCRIPTS = ("sql", "sql-undo")
STREAMS = ("jsonl", *SCRIPTS, "raw")
LOGS = ("mysql-binlog",)
TARGETS = (*TABLES, *STREAMS, *LOGS)
_MEMBERS = re.compile(r"\.(?:\d{6,}|index)")


def convert(paths: Iterable[str | PathLike[str]], to: str, output: str | PathLike[str], **options: Any) -> Manifest:
    """Write the selected records of files and directories to `output`.

    Args:
        to: parquet, orc, csv, json or avro (a directory of part files, rows as in `binlogtool.pipeline.rows`), jsonl
            (one
            file), raw (the bytes of the records), sql or sql-undo (a script), or mysql-binlog (a log of whole
            transactions; `output` as in `atomic_output.stage_log_set`).
        options: fields of `ConvertOptions`; for scripts those of `scripts.ScriptOptions`; for typed rows per_table
            and
            image. Selecting objects for a table format also gives typed rows.

    With `on_damage` "stop", nothing is published if there is damage of severity error, or a change that a script
    cannot
    express.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, MissingExtraError, LimitError, KeyboardInterrupt.
        RefusedError: the output exists, an input changed meanwhile, or a transaction to be reversed is incomplete.
    """
    wanted, script = asked(options)
    limits, backend, selection, master = wanted.limits, wanted.backend, wanted.selection, wanted.master
    on_step, overwrite, breaks = wanted.on_step, wanted.overwrite, wanted.allow_rule_breaks
    typed = _typed(to, selection, wanted.hints, master, script, options_of(wanted.envelope))
    messages, target = _messages(to, wanted.lines, wanted.envelope, selection), fspath(output)
    if to not in TABLES and not Master.of(master).is_local:
        raise UsageError(f"{to} is written in this process: --master is for {', '.join(TABLES)}")
    shape = wanted.shape(to, typed=_own(to, typed or messages))
    wording = _wording(to, target, shape, selection, script)
    hints = hints_for(selection, wanted.hints, script=to in SCRIPTS or messages is not None)
    inputs = _requested(named := [fspath(p) for p in paths], to, wanted.format, selection, typed, breaks=breaks)
    _refuse_existing(wanted.manifest, overwrite=overwrite)
    left = [] if is_url(target) else clear(output, is_set=to in LOGS)
    if to in LOGS:
        rules = limits, backend, selection, hints, wanted.max_binlog_size, breaks
        done = _as_log(rules, named, wanted.format, output, inputs, live=selection.live)
        return _told(replace(done, to=to, output=target), left, wanted.manifest, overwrite=overwrite)
    own = typed, limits, backend, selection, master, wanted.session, on_step, hints, shape
    if to in STREAMS:
        job = StreamJob(to, *own[1:4], hints, wanted.lines, wording, on_step, messages)
        work: _Work = partial(job.write, wanted.format)
    else:
        work = _as_table(*own) if messages is None else _as_messages(messages, wanted.format, *own)
    work = _demanding(work, to, wanted, typed) if to not in SCRIPTS else work
    with shelved(wording.shelf) as keep:
        done = _in_place(work, target, inputs, overwrite=overwrite, live=selection.live, on_step=on_step)
        keep(done.complete)
    return _told(replace(done, to=to, output=target), left, wanted.manifest, overwrite=overwrite)


def append(
    paths: Iterable[str | PathLike[str]],
    to: str,
    output: str | PathLike[str],
    *,
    final: bool = False,
    **options: Any,
) -> Manifest:
    """Append what is new since the last run to `output`, a directory of jsonl or table files (see `AppendJob`).

    final: the log is complete (see `AppendJob`). The rest is as for `convert`; options that do not fit one file per
      run are
    refused.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, RefusedError, MissingExtraError, LimitError.
    """
    if to not in APPENDED:
        raise UsageError(f"--append is for {', '.join(APPENDED)}, not for {to}")
    if given := [name for name in _NOT_APPENDED if options.pop(name, None)]:
        raise UsageError(f"--append adds one file each run; --{given[0].replace('_', '-')} is not for it")
    wanted, script = asked(options)
    shape = wanted.shape(to, typed=to != "jsonl")
    _refuse_options(to, fspath(output), shape, scripts.Request(**script))
    if _messages(to, wanted.lines, wanted.envelope, wanted.selection) is not None:
        raise UsageError("--append adds records; --envelope is not for it")
    if not Master.of(wanted.master).is_local:
        raise UsageError("--append works in this process: --master is not for it")
    _refuse_typed_rows(to, wanted.selection, wanted.hints)
    _refuse_existing(wanted.manifest, overwrite=False)
    hints = hints_for(wanted.selection, wanted.hints)
    job = AppendJob(
        shape, wanted.limits, wanted.backend, wanted.selection, hints, wanted.lines, wanted.on_step, final
    )  # fmt: skip
    done = job.run([fspath(path) for path in paths], wanted.format, output)
    return _told(done, [], wanted.manifest, overwrite=False)


def _refuse_typed_rows(to: str, selection: Selection, hints: Hints | None) -> None:
    """Raise UsageError if the same options without --append would give typed rows of tables."""
    if to in TABLES and selection.objects and (hints is None or hints.level is None):
        text = "--append adds records, and --object (--database, --table) with a table asks for its typed rows"
        raise UsageError(f"{text}: choose records with --where \"object = 'NAME'\", or convert without --append")


_NOT_APPENDED = (
    "overwrite", "partition_by", "csv_safe", "target_file_size", "max_binlog_size", "allow_rule_breaks", "per_table",
    "image",
)  # fmt: skip


def _as_log(
    own: tuple[Any, ...], paths: list[str], format: str, output: str | PathLike[str], inputs: list[Input], *, live: bool
) -> Manifest:
    """Write binary log files with one base name. own: arguments of `BinlogJob`."""
    from binlogtool.pipeline.binlog import BinlogJob

    job = BinlogJob(*own)
    with staged_set(output, _MEMBERS) as (stage, base):
        return _settled(lambda: job.write(inputs, paths, format, stage, base), inputs, stage, live=live)


_Work = Callable[[list[Input], Path], Manifest]


def _as_table(typed: Wishes | None, *own: Any) -> _Work:
    """Return the job that writes a directory of part files or of tables. own: arguments of `TableJob`."""
    if typed is not None:
        from binlogtool.pipeline.typed.job import TypedJob

        limits, backend, selection, _, _, on_step, hints, shape = own
        return TypedJob(limits, backend, selection, hints, shape, typed, on_step).write
    from binlogtool.pipeline.table_outputs import TableJob

    return TableJob(*own).write


def _demanding(work: _Work, to: str, wanted: Wanted, typed: Wishes | None) -> _Work:
    """Wrap a job: if it selected nothing and read everything, raise UsageError for columns or names that do not
    exist.

    Typed rows are excepted, as their tables may have columns that no record names.
    """

    def demanded(inputs: list[Input], stage: Path) -> Manifest:
        done = work(inputs, stage)
        all_read = done.complete and not done.finding_counts and not any(one.trouble for one in done.inputs)
        if typed is None and all_read and not done.rows:
            demand_columns([one.path for one in inputs], wanted.selection.where, wanted)
            if to not in STREAMS:
                demand_names([one.path for one in inputs], wanted.selection, wanted)
        return done

    return demanded


def _own(to: str, wanted: Wishes | Options | None) -> bool:
    """Return True if table rows are built in this process, because they are not records."""
    return to in TABLES and wanted is not None


def _as_messages(messages: Options, format: str, typed: Wishes | None, *own: Any) -> _Work:
    """Return the job that writes messages as one table or as one table each. own: as for `_make_table_job`."""
    from binlogtool.pipeline.envelopes.job import MessagesJob

    limits, backend, selection, _, _, on_step, hints, shape = own
    job = MessagesJob(limits, backend, selection, hints, shape, messages, typed, on_step)
    return partial(job.write, format)


def _typed(
    to: str,
    selection: Selection,
    hints: Hints | None,
    master: str | Master | None,
    options: dict[str, Any],
    messages: Options | None,
) -> Wishes | None:
    """Return the options of typed rows; None = records are written.

    Typed rows are written if tables are selected, unless a record level is given; of messages for a single table or
    with
    --per-table. Removes per_table and image from `options`.
    """
    per_table, image = bool(options.pop("per_table", False)), options.pop("image", None)
    if messages is not None and to in TABLES:
        return _of_messages(selection, image, master, per_table=per_table)
    if not per_table and image is None and (to not in TABLES or not selection.objects):
        return None
    named = per_table or image is not None
    if to not in TABLES:
        raise UsageError(f"--{'per-table' if per_table else 'image'} is for tables ({', '.join(TABLES)}), not for {to}")
    level = None if hints is None else hints.level
    if level is not None and not named:
        return None
    if to == "csv" and image == "both":
        raise UsageError("--image both: cells of CSV hold one value; choose after, before or changes")
    found = wishes(selection, image, per_table=per_table)
    if master is not None:
        text = "rows of tables are made in this process: --master and --conf are not for them"
        raise UsageError(f"{text}; on a cluster the option `object` of Spark's reader makes those of a table")
    return found


def _of_messages(
    selection: Selection, image: str | None, master: str | Master | None, *, per_table: bool
) -> Wishes | None:
    """Return the options for tables of messages; None = one table for all messages."""
    if image is not None:
        raise UsageError("--image: an envelope says itself which images a message has")
    if master is not None:
        raise UsageError("messages are made in this process: --master and --conf are not for them")
    found = wishes(replace(selection, where=None), None, per_table=per_table)
    return found if per_table or not found.per_table else None


def _in_place(
    work: _Work, path: str, inputs: list[Input], *, overwrite: bool, live: bool, on_step: OnStep | None
) -> Manifest:
    """Run the job for a file or directory, which may be in another file system, and publish its output."""
    if is_url(path):
        from binlogtool.pipeline.upload import uploaded

        with uploaded(path, overwrite=overwrite, on_step=on_step) as stage:
            return _settled(lambda: work(inputs, stage), inputs, stage, live=live)
    output = Path(path)
    with staged(output, overwrite=overwrite, inputs=[Path(i.path) for i in inputs]) as stage:
        done = _settled(lambda: work(inputs, stage), inputs, stage, live=live)
        own = {stage.name: output.name}
    return replace(done, outputs=tuple(replace(o, path=own.get(o.path, o.path)) for o in done.outputs))


def _told(done: Manifest, left: list[str], manifest: str | PathLike[str] | None, *, overwrite: bool) -> Manifest:
    """Add leftovers of killed runs to the manifest, and write it where the user asked for it."""
    done = replace(done, details={**done.details, "leftovers": left}) if left else done
    if manifest is not None:
        _write_json(done, Path(manifest), overwrite=overwrite)
    return done


def _settled(work: Callable[[], Manifest], inputs: list[Input], stage: Path, *, live: bool) -> Manifest:
    """Run the job and return the manifest of what may be published, with the hashes that the job did not compute.

    Raises:
        RefusedError: an input changed while it was read.
    """
    before = {i.path: _stamped(i.path) for i in inputs if not i.trouble}
    done = work()
    known = (i if i.sha256 or i.trouble else replace(i, sha256=sha256(i.path)) for i in done.inputs)
    done = replace(done, inputs=tuple(known))
    if done.on_damage != "stop":
        done = _without_lost(done)
    gone = {i.path for i in done.inputs if i.trouble}
    changed = [path for path, was in before.items() if path not in gone and not live and stamp(path) != was]
    if changed:
        named = " and ".join([changed[0], *([f"{len(changed) - 1:,} more"] if changed[1:] else [])])
        raise RefusedError(f"{named} changed while it was read: convert a copy, or allow that with --live")
    if done.complete:
        home = stage if stage.is_dir() else None
        outputs = (
            o if o.sha256 else replace(o, sha256=sha256(str(home / o.path if home else stage))) for o in done.outputs
        )
        return replace(done, outputs=tuple(outputs))
    discard(stage)
    return replace(done, outputs=(), rows=0, damage=0, checks=())


def _without_lost(done: Manifest) -> Manifest:
    """Return the manifest with the inputs that could not be read, or not to the end, marked and listed."""
    inputs = tuple(i if i.trouble else replace(i, trouble=_lost(i.path)) for i in done.inputs)
    told = [f"{i.path}: {i.trouble.removeprefix(f'{i.path}: ')}" for i in inputs if i.trouble]
    return replace(done, inputs=inputs, details={**done.details, "unreadable": told} if told else done.details)


def _lost(path: str) -> str:
    return "" if _stamped(path) else "removed while it was read: rows of it may be missing"


def _stamped(path: str) -> Stamp | None:
    """Return the stamp of a file; None if it cannot be read, which its reader reports."""
    try:
        return stamp(path)
    except InputOutputError:
        return None


def _refuse_options(to: str, output: str, shape: Shape, request: scripts.Request) -> None:
    """Raise UsageError for an option that does not belong to the target."""
    if to not in TARGETS:
        raise UsageError(f"cannot convert to {to!r}; choose one of {', '.join(TARGETS)}")
    if to in TABLES:
        shape.check()
    elif given := [n for n in ("partition_by", "compression", "csv_safe", "file_size") if getattr(shape, n)]:
        option = given[0].replace("file_size", "target_file_size").replace("_", "-")
        raise UsageError(f"--{option} is for tables ({', '.join(TABLES)}), not for {to}")
    if is_url(output) and to not in TABLES:
        raise UsageError(f"{output}: {to} is written to the local disk only; copy it from there")
    if to not in SCRIPTS and request.given is not None:
        raise UsageError(f"{request.given} is for scripts ({', '.join(SCRIPTS)}), not for {to}")


def _messages(to: str, lines: Lines | None, envelope: Mapping[str, Any] | None, selection: Selection) -> Options | None:
    """Return the options of change messages; None = records are written.

    Raises:
        UsageError: messages cannot be written to this target, or `lines` is missing or superfluous.
    """
    options = options_of(envelope)
    if options is not None:
        if to not in ("jsonl", *TABLES):
            raise UsageError(f"--envelope is for jsonl and tables ({', '.join(TABLES)}), not for {to}")
        beginning(options, selection)
    elif to in TARGETS and (to == "jsonl") != (lines is not None):
        raise UsageError(f"converting to {to} {'takes no' if lines else 'needs a'} function that makes lines")
    return options


def _wording(to: str, output: str, shape: Shape, selection: Selection, script: Mapping[str, Any]) -> Wording:
    """Return the form of a script; its sidecar files go beside the output. Refuse options of other targets."""
    request = scripts.Request(**script)
    _refuse_options(to, output, shape, request)
    if to == "sql" and not request.load_files:
        request = replace(request, load_files=f"{output}.load")
    return scripts.wording(to, selection, request)


def _requested(
    paths: list[str], to: str, format: str, selection: Selection, typed: Wishes | None, *, breaks: bool
) -> list[Input]:
    if breaks and to not in LOGS:
        raise UsageError(f"--allow-rule-breaks is for {', '.join(LOGS)}, not for {to}")
    if to in LOGS:
        from binlogtool.pipeline.binlog import in_order, refuse_selection

        refuse_selection(selection)
        return in_order(find_inputs(paths, format))
    return find_inputs(paths, format, lenient=to in TABLES and typed is None and selection.on_damage != "stop")


def _refuse_existing(manifest: str | PathLike[str] | None, *, overwrite: bool) -> None:
    if manifest is not None and Path(manifest).exists() and not overwrite:
        raise RefusedError(f"{fspath(manifest)} exists; name another manifest or give --overwrite")


def _write_json(done: Manifest, path: Path, *, overwrite: bool) -> None:
    with staged(path, overwrite=overwrite, inputs=[]) as stage:
        stage.write_text(json.dumps(done.as_value(), indent=2) + "\n")
