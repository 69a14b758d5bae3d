"""`binlogtool convert`: records as Parquet, JSON lines or another log, with a manifest that accounts for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from binlogtool.cli.command import Command
from binlogtool.cli.options import PATH, SIZE, hint_options, level_option, selection_options
from binlogtool.cli.output import Output
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints, list_types, selection, split

if TYPE_CHECKING:
    from binlogtool.pipeline.manifest import Manifest

_SHOWN = 5


def _convert(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    import binlogtool
    from binlogtool.report.json import document
    from binlogtool.report.records import RecordLines

    chosen, o = split(options)
    if chosen["type"] == ("list",):
        return list_types(run, paths)
    s = run.settings
    form = s.choose(("text", "json"))
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    if o["to"] is None or s.output in (None, "-"):
        raise click.UsageError("--to and --output are needed: what to write, and where.")
    done: Manifest = binlogtool.convert(
        paths,
        o["to"],
        str(s.output),
        format=s.format,
        limits=s.limits,
        backend=s.backend,
        hints=hints(o),
        selection=selection(chosen, on_damage="stop"),
        master=o["master"],
        manifest=o["manifest"],
        overwrite=s.overwrite,
        max_binlog_size=o["max_binlog_size"],
        lines=RecordLines().lines if o["to"] == "jsonl" else None,
        on_progress=lambda p: run.progress.update(f"convert: {p.done} of {p.total} parts", 0),
    )
    run.status = done.exit_code
    with Output(replace(s, output=None), text=form == "text", page=False) as out:
        if form == "json":
            out.write(document(done.to_json()))
        else:
            for line in _lines(done):
                out.line(line)
    return done.exit_code


def _lines(done: Manifest) -> Iterator[str]:
    from binlogtool.render.escape import escape
    from binlogtool.report.words import count, counted, size

    noun = "transaction" if done.to == "mysql-binlog" else None
    for i in done.inputs:
        yield f"read   {escape(i.path)}  {size(i.size)}  {counted(i.records, noun or 'record')}"
    for check in done.checks if done.complete else ():
        yield f"check  {escape(check.name)}: {escape(check.detail)}"
    if done.finding_counts:
        yield f"found  {', '.join(f'{count(n)} {escape(id_)}' for id_, n in sorted(done.finding_counts.items()))}"
    if left_out := done.details.get("gtids_left_out"):
        yield f"lost   {escape(', '.join(left_out))}"
    if not done.complete:
        for one in [f for f in done.findings if f["severity"] == "error"][:_SHOWN]:
            yield f"error  {escape(one['file'])}  {one['id']}: {escape(one['message'])}"
        if done.details.get("stopped_by") == "result":
            yield "nothing was written: some events break the rules of a log; --on-damage skip writes them as they are"
            return
        yield "nothing was written: the input is damaged; `binlogtool verify` shows it, --on-damage skip leaves it out"
        return
    written = f"{counted(len(done.outputs), 'file')}, {size(sum(o.size for o in done.outputs))}"
    yield f"wrote  {escape(done.output)}  {counted(done.rows, noun or 'row')}  {written}"


o = click.Option
command = Command(
    "convert",
    callback=_convert,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(["--to"], type=click.Choice(["parquet", "jsonl", "mysql-binlog"]), help="What to write."),
        o(
            ["--master"],
            default="local[*]",
            metavar="URL",
            help="Spark's master for tables (default: local[*], embedded).",
        ),
        o(
            ["--max-binlog-size"],
            type=SIZE,
            metavar="SIZE",
            help="mysql-binlog: begin a new file at this size, between transactions (default: 1GiB).",
        ),
        o(["--manifest"], type=PATH, metavar="FILE", help="Save the account of inputs, hashes and rows as JSON."),
        *hint_options(),
        level_option(),
        *selection_options(),
    ],
    help="""Write records as Parquet (a directory, made on the embedded Spark), as JSON lines (one file), or the
    transactions of a MariaDB log as files of a classic binary log.

    The output appears complete or not at all. Damage stops the work and nothing is written, unless --on-damage says
    otherwise. The manifest proves that every input record is in the output. Parquet needs the extra `spark`.

    --to mysql-binlog takes the files of one log (.ibb, or a binary log of MariaDB, also an encrypted one) as one stream
    and writes NAME.000001, ... and NAME.index; --output is NAME with its directory, or a directory, where NAME is
    `binlog`. Each file has its own FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT, and CRC-32 checksums. In the
    events of transactions only event_size, end_log_pos and the checksum change; that is proven by reading the files
    again, which must also pass `verify`. Transactions are chosen as a whole: by GTID, time, origin, position or number.
    With --on-damage skip exactly those that are damaged are left out, and named.
    """,
    examples=(
        ("a directory as Parquet", "binlogtool convert --to parquet --output rows.parquet /var/lib/tarantool"),
        (
            "JSON lines with an account",
            "binlogtool convert --to jsonl -o log.jsonl --manifest log.json transaction.log",
        ),
        (
            "MariaDB's InnoDB binlog as a classic one",
            "binlogtool convert --to mysql-binlog -o restored/mariadb-bin --max-binlog-size 100MiB /var/lib/mysql",
        ),
    ),
)
