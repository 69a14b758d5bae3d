"""The jobs: logs in, files out, with a manifest that accounts for every row.

A table format runs on Spark; a log-shaped one is an ordered stream in this process. Either way the output appears whole
or not at all, and damage stops the work unless the selection says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import binlogtool
from binlogtool.errors import RefusedError, UsageError
from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.inputs import Stamp, find_inputs, stamp
from binlogtool.pipeline.manifest import Input, Manifest
from binlogtool.pipeline.output import discard, staged, staged_set
from binlogtool.pipeline.stream import Lines, write_lines

if TYPE_CHECKING:
    from binlogtool.pipeline.session import OnProgress, Session

TABLES = ("parquet",)
STREAMS = ("jsonl",)
LOGS = ("mysql-binlog",)
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
    on_progress: OnProgress | None = None,
    max_binlog_size: int | None = None,
) -> Manifest:
    """Writes the selected records of files and directories to `output`.

    to: parquet (a directory of part files, rows as in `binlogtool.pipeline.rows`), jsonl (one file; `lines` turns a
    block into its lines) or mysql-binlog (a log, whose transactions are the records; `output` as in
    `binlogtool.pipeline.output.staged_set`; its files have at most `max_binlog_size` bytes unless a single transaction
    is larger). master: Spark's master URL. manifest: where to write the manifest as JSON. session: a running Spark to
    use. hints: what the logs do not say. `on_damage` "stop": damage of severity error ends the work and nothing is
    published; the manifest (returned, and written) says so with `complete` False and the findings.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, MissingExtraError, LimitError.
        RefusedError: the output exists, or an input changed while it was read.
        KeyboardInterrupt: on SIGINT; nothing is published.
    """
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
        with staged(Path(output), overwrite=overwrite, inputs=[Path(i.path) for i in inputs]) as stage:
            before = [stamp(i.path) for i in inputs]
            if lines is not None:
                name, files = Path(output).name, [i.path for i in inputs]
                with binlogtool.open(files, format=format, limits=limits, backend=backend, hints=hints) as log:
                    done = write_lines(log.blocks(selection), lines, stage, name, inputs, selection.on_damage)
            else:
                from binlogtool.pipeline.table import TableJob

                done = TableJob(limits, backend, selection, master, session, on_progress, hints).write(inputs, stage)
            done = _settled(done, inputs, before, stage, live=selection.live)
    done = replace(done, to=to, output=fspath(output))
    if manifest is not None:
        _write_json(done, Path(manifest), overwrite=overwrite)
    return done


def _settled(done: Manifest, inputs: list[Input], before: list[Stamp], stage: Path, *, live: bool) -> Manifest:
    """The account of what may be published; what may not is removed."""
    if not live and before != [stamp(i.path) for i in inputs]:
        raise RefusedError("an input changed while it was read: convert a copy, or allow that with --live")
    if done.complete:
        return done
    discard(stage)
    return replace(done, outputs=(), rows=0, damage=0, checks=())


def _requested(paths: list[str], to: str, format: str, selection: Selection, lines: Lines | None) -> list[Input]:
    if to not in (*TABLES, *STREAMS, *LOGS):
        raise UsageError(f"cannot convert to {to!r}; choose one of {', '.join((*TABLES, *STREAMS, *LOGS))}")
    if (to in STREAMS) != (lines is not None):
        raise UsageError(f"converting to {to} {'needs' if to in STREAMS else 'takes no'} function that makes lines")
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
