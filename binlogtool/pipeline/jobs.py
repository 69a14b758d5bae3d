"""The jobs: logs in, files out, with a manifest that accounts for every row.

A table format runs on Spark; a log-shaped one is an ordered stream in this process. Either way the output appears whole
or not at all, and damage stops the work unless the selection says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from binlogtool.errors import RefusedError, UsageError
from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import OnStep
from binlogtool.pipeline.inputs import Stamp, find_inputs, sha256, stamp
from binlogtool.pipeline.manifest import Input, Manifest
from binlogtool.pipeline.output import discard, staged, staged_set
from binlogtool.pipeline.stream import Lines, StreamJob
from binlogtool.pipeline.writers import scripts
from binlogtool.pipeline.writers.tables import COMPRESSIONS, Shape

if TYPE_CHECKING:
    from binlogtool.pipeline.session import Session

TABLES = tuple(COMPRESSIONS)
SCRIPTS = ("sql", "sql-undo")
STREAMS = ("jsonl", *SCRIPTS, "raw")
LOGS = ("mysql-binlog",)
TARGETS = (*TABLES, *STREAMS, *LOGS)
STOP_AT_DAMAGE = Selection(on_damage="stop")
_MEMBERS = re.compile(r"\.(?:\d{6,}|index)")


def convert(
    paths: Iterable[str | PathLike[str]],
    to: str,
    output: str | PathLike[str],
    *,
    format: str = "auto",
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
    selection: Selection = STOP_AT_DAMAGE,
    master: str = "local[*]",
    manifest: str | PathLike[str] | None = None,
    overwrite: bool = False,
    lines: Lines | None = None,
    session: Session | None = None,
    on_step: OnStep | None = None,
    max_binlog_size: int | None = None,
    partition_by: Sequence[str] = (),
    compression: str | None = None,
    csv_safe: bool = False,
    rewrite: Sequence[str] = (),
    transactions: str = "keep",
) -> Manifest:
    """Writes the selected records of files and directories to `output`.

    to: parquet, orc, csv, json or avro (a directory of part files, rows as in `binlogtool.pipeline.rows`), jsonl (one
    file; `lines` turns a block into its lines), raw (the bytes of the records), sql or sql-undo (a script for a
    server), or mysql-binlog (a log, whose transactions are the records; `output` as in
    `binlogtool.pipeline.output.staged_set`; its files have at most `max_binlog_size` bytes unless a single transaction
    is larger). master: Spark's master URL. manifest: where to write the manifest as JSON. session: a running Spark to
    use. hints: what the logs do not say. partition_by, compression, csv_safe: see `writers.tables.Shape`. rewrite:
    texts `old->new`, names of databases in scripts. transactions: keep or flatten them. `on_damage` "stop": damage of
    severity error ends the work and nothing is published; the manifest (returned, and written) says so with `complete`
    False and the findings. So do changes that an sql-undo cannot take back.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, MissingExtraError, LimitError.
        RefusedError: the output exists, an input changed while it was read, or a transaction to be undone is not whole.
        KeyboardInterrupt: on SIGINT; nothing is published.
    """
    shape = Shape(to, tuple(partition_by), compression, csv_safe)
    _refuse_options(to, shape, rewrite, transactions)
    wording = scripts.wording(to, selection, rewrite, transactions)
    named = [fspath(path) for path in paths]
    inputs = _requested(named, to, format, selection, lines)
    if manifest is not None:
        _refuse_existing(Path(manifest), overwrite=overwrite)
    if to in LOGS:
        from binlogtool.pipeline.binlog import BinlogJob

        log_job = BinlogJob(limits, backend, selection, hints, max_binlog_size)
        with staged_set(output, _MEMBERS) as (stage, base):
            before = [stamp(i.path) for i in inputs]
            done = log_job.write(inputs, named, format, stage, base)
            done = _settled(done, inputs, before, stage, live=selection.live)
    else:
        if to in STREAMS:
            stream = StreamJob(to, limits, backend, selection, hints, lines, wording, on_step)
            work = partial(stream.write, inputs, format, name=Path(output).name)
        else:
            from binlogtool.pipeline.table import TableJob

            table = TableJob(limits, backend, selection, master, session, on_step, hints, shape)
            work = partial(table.write, inputs)
        with staged(Path(output), overwrite=overwrite, inputs=[Path(i.path) for i in inputs]) as stage:
            before = [stamp(i.path) for i in inputs]
            done = _settled(work(stage), inputs, before, stage, live=selection.live)
    done = replace(done, to=to, output=fspath(output))
    if manifest is not None:
        _write_json(done, Path(manifest), overwrite=overwrite)
    return done


def _settled(done: Manifest, inputs: list[Input], before: list[Stamp], stage: Path, *, live: bool) -> Manifest:
    """The account of what may be published; what may not is removed."""
    if not live and before != [stamp(i.path) for i in inputs]:
        raise RefusedError("an input changed while it was read: convert a copy, or allow that with --live")
    if done.complete:
        home = stage if stage.is_dir() else None
        outputs = (replace(o, sha256=sha256(str(home / o.path if home else stage))) for o in done.outputs)
        return replace(done, outputs=tuple(outputs))
    discard(stage)
    return replace(done, outputs=(), rows=0, damage=0, checks=())


def _refuse_options(to: str, shape: Shape, rewrite: Sequence[str], transactions: str) -> None:
    """Raises where an option is not one of this target."""
    if to not in TARGETS:
        raise UsageError(f"cannot convert to {to!r}; choose one of {', '.join(TARGETS)}")
    if to in TABLES:
        shape.check()
    elif given := [n for n in ("partition_by", "compression", "csv_safe") if getattr(shape, n)]:
        raise UsageError(f"--{given[0].replace('_', '-')} is for tables ({', '.join(TABLES)}), not for {to}")
    if to not in SCRIPTS and (rewrite or transactions != "keep"):
        name = "--rewrite" if rewrite else "--transactions"
        raise UsageError(f"{name} is for scripts ({', '.join(SCRIPTS)}), not for {to}")


def _requested(paths: list[str], to: str, format: str, selection: Selection, lines: Lines | None) -> list[Input]:
    if (to == "jsonl") != (lines is not None):
        raise UsageError(f"converting to {to} {'takes no' if lines else 'needs a'} function that makes lines")
    if to in LOGS:
        from binlogtool.pipeline.binlog import in_order, refuse_selection

        refuse_selection(selection)
        return in_order(find_inputs(paths, format))
    inputs = find_inputs(paths, format)
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    if to in TABLES and len(inputs) > 1 and counted:
        raise UsageError("--skip, --limit and --tail need an order of records: convert one file, or to jsonl")
    return inputs


def _refuse_existing(path: Path, *, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise RefusedError(f"{path} exists; name another manifest or give --overwrite")


def _write_json(done: Manifest, path: Path, *, overwrite: bool) -> None:
    with staged(path, overwrite=overwrite, inputs=[]) as stage:
        stage.write_text(json.dumps(done.to_json(), indent=2) + "\n")
