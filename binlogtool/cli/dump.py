"""`binlogtool dump`: print records in every output format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from binlogtool import limits, memory
from binlogtool.cli.command_classes import Command
from binlogtool.cli.options import (
    DURATION,
    PATH,
    hint_options,
    level_option,
    o,
    script_options,
    selection_options,
    where_option,
)
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints, list_types, script, selection, split
from binlogtool.errors import LimitError, RefusedError, UsageError
from binlogtool.findings import ENCRYPTED, LEFT_OUT, Finding, Severity

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.cli.destination import Output
    from binlogtool.cli.follow import How
    from binlogtool.log.records import Block, Passage, Text, Trouble
    from binlogtool.log.select import Selection
    from binlogtool.report.dump import Writer
    from binlogtool.report.native import Lines

    Part = Block | Lines | Passage | Text | Trouble

_FORMS = ("text", "jsonl", "json", "table", "csv", "raw", "sql")
_WITH_FIELDS = ("text", "jsonl", "json", "table", "csv")


def _dump(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    from binlogtool.log.records import Block, Passage, Text
    from binlogtool.log.select import proven_only
    from binlogtool.report.dump import filler
    from binlogtool.report.field_names import FieldNames
    from binlogtool.report.native import Lines

    chosen, o = split(options)
    if chosen["type"] == ("list",):
        return list_types(run, paths)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    form = run.settings.choose(_FORMS)
    wanted = selection(chosen, on_damage="skip")
    known = hints(o, wanted, script=form == "sql")
    if form == "sql" and o["load_files"] is None and run.settings.output not in (None, "-"):
        o["load_files"] = f"{run.settings.output}.load"
    raw = form == "raw" or o["hex"]
    if form == "raw":
        proven_only(wanted, "a stream of raw bytes")
    if o["follow"] and (form in ("json", "sql") or wanted.tail is not None or wanted.skip):
        raise UsageError("--follow never ends: not with json, sql, --tail or --skip")
    with run.output(text=form in ("text", "table"), inputs=paths, page=not o["follow"]) as out:
        if form == "raw" and out.isatty():
            raise RefusedError("raw bytes could drive the terminal; use a pipe or --output FILE")
        writer = _writer(run, form, o, len(paths) > 1, out)
        if o["follow"]:
            from binlogtool.cli.follow import How

            return _follow(run, paths, wanted, How(o["decode"], raw, o["poll"], known), writer, out)
        memory.collect_rarely()
        if form == "sql":
            memory.reuse_freed()
        read = _read(form, wanted, o | {"script": script(o, chosen)}, raw)
        values = filler(form, o["bytes"])
        fields = FieldNames(_fields(o["fields"], form))
        for part in parts(run, paths, read, known, wanted, aloud=form == "sql", pieces=_in_pieces(form, o)):
            if isinstance(part, Lines):
                out.write(part.data)
            elif isinstance(part, Text | Passage):
                out.write(writer.text(part.data))
            elif isinstance(part, Block):
                fields.look(part)
                for piece in values.filled(writer.block(part), part.taken):
                    out.write(piece)
            else:
                out.flush()  # diagnostics appear after the records before them
                tell(run, part)
        for piece in values.filled(writer.end(), {}):
            out.write(piece)
    for text in fields.unknown:
        run.say(text, level=-1)
    if fields.unknown and fields.none_is_known:
        run.status = 2
    return run.status


def _in_pieces(form: str, o: dict[str, Any]) -> bool:
    """Return True if long values can be written in pieces; selected members and columns need whole values."""
    return form in ("text", "json", "jsonl", "csv") and not o["fields"]


def _is_default(o: dict[str, Any]) -> bool:
    """Return True if no option is used that only the general writer supports."""
    style = (o["bytes"], o["bigint"], o["decode"], o["with_offsets"]) == ("hex", "number", "full", True)
    return style and not (o["fields"] or o["hex"])


def _read(form: str, wanted: Selection, o: dict[str, Any], raw: bool) -> Callable[[Any], Iterator[Part]]:
    """Return the function that reads the parts of an open log."""
    if form == "sql":
        import binlogtool

        reached, wording = binlogtool.script_of(wanted, **o["script"])
        return lambda log: log.statements(reached, wording)
    if form == "jsonl" and _is_default(o):
        from binlogtool.report.native import NativeLines

        return lambda log: NativeLines().of(log.stretches(wanted))
    return lambda log: log.blocks(wanted, decode=o["decode"], raw=raw)


def parts(
    run: Run,
    paths: tuple[str, ...],
    read: Callable[[Any], Iterator[Part]],
    known: binlogtool.Hints | None,
    wanted: Selection,
    *,
    aloud: bool = False,
    pieces: bool = False,
) -> Iterator[Part]:
    """Yield blocks, finished lines, texts and findings until the time limit.

    Args:
        read: reads the parts of an open log.
        known: hints.
        wanted: the selection; if nothing is selected, its names must exist in the log.
        aloud: print the findings of records.
        pieces: long values are taken out of the blocks (`log.longvalues`).
    """
    import binlogtool
    from binlogtool.log.records import Block, Passage, Text
    from binlogtool.report.native import Lines

    s = run.settings
    deadline = None if s.timeout is None else time.monotonic() + s.timeout
    bounds = replace(s.limits, max_whole=limits.LONG) if pieces else s.limits
    with binlogtool.open(paths, format=s.format, limits=bounds, backend=s.backend, hints=known) as log:
        run.say_left()
        log.watch_names(wanted)
        is_empty: bool | None = None
        is_sure = True
        for part in read(log):
            yield part
            is_sure = is_sure and all(one.severity < Severity.ERROR or one.id == LEFT_OUT for one in _found(part))
            if isinstance(part, Text) and part.end is not None:
                is_empty = part.end.is_empty and is_empty is not False
            if isinstance(part, Block):
                for findings in part.findings.values():
                    _judge(run, findings)
                    if aloud:
                        _say(run, part.file, findings)
            if isinstance(part, Block | Lines | Passage):
                run.progress.records += len(part.record)
            if deadline is not None and time.monotonic() >= deadline:
                run.status = 6
                raise LimitError("the time limit (--timeout) ended the work")
        if is_sure:
            _demand_names(run, log, wanted, run.progress.records if is_empty is None else int(not is_empty))


def _found(part: Part) -> Iterator[Finding]:
    """Yield the findings of a part; damage may hide what a selection names."""
    from binlogtool.log.records import Block, Trouble

    if isinstance(part, Trouble):
        yield part.finding
    elif isinstance(part, Block):
        yield from (one for findings in part.findings.values() for one in findings)


def _demand_names(run: Run, log: binlogtool.Log, wanted: Selection, chosen: int) -> None:
    """Report names in the selection that the log does not contain.

    Raises:
        UsageError: nothing was selected because of that.
    """
    from binlogtool.log.select import is_partial

    if wanted.where is not None and not chosen:
        log.demand_columns(wanted.where)
    found = log.unmatched(wanted, chosen)
    if not chosen:
        found.demand_none()
    for text in (*found.missing, *found.absent):
        run.say(text, level=-1)
    if not chosen and not run.status and not found.absent and wanted.where is None and is_partial(wanted):
        run.say("no record of the log is in the selection")


def tell(run: Run, trouble: Trouble) -> None:
    """Print a finding, and update the exit status."""
    file, finding = trouble
    _say(run, file, (finding,))
    _judge(run, (finding,))


def _say(run: Run, file: str, findings: tuple[Finding, ...]) -> None:
    from binlogtool.report.words import place

    for one in findings:
        level = 0 if one.severity > Severity.NOTE else 1
        run.say(f"{file}: {one.severity.label} {place(one.offset)} {one.id}: {one.message}", level=level)


_DEMANDING = ("statement-large",)
"""The log is fine, but the user has to act before sending the script to a server."""


def _judge(run: Run, findings: tuple[Finding, ...]) -> None:
    if any(f.severity is Severity.ERROR or f.id in _DEMANDING for f in findings):
        run.status = max(run.status, 1)
    if any(f.id == ENCRYPTED for f in findings):
        run.status = max(run.status, 6)


def _writer(run: Run, form: str, o: dict[str, Any], several: bool, out: Output) -> Any:
    """Return the writer of an output format."""
    from binlogtool.log.plain import Style
    from binlogtool.report import dump
    from binlogtool.report.records import FieldLines, RecordLines

    style = Style(o["bytes"], o["bigint"])
    fields = _fields(o["fields"], form)
    lines = FieldLines(RecordLines(style), fields, o["with_offsets"])
    match form:
        case "jsonl":
            return dump.JsonLinesWriter(lines)
        case "json":
            return dump.JsonWriter(lines)
        case "csv":
            return dump.CsvWriter(style, neutral=o["csv_safe"], columns=_columns(fields, o["with_offsets"]))
        case "raw":
            return dump.RawWriter()
        case "sql":
            from binlogtool.report.sql import SqlWriter

            return SqlWriter(terminal=out.isatty())
        case "table":
            from binlogtool.render.screen_tables import TableWriter

            return TableWriter(style, columns=_columns(fields, o["with_offsets"]), ascii_only=out.ascii)
    return dump.TextWriter(
        style, offsets=o["with_offsets"], hex_bytes=o["hex"], headings=several, hold=not o["follow"], fields=fields
    )


def _fields(given: tuple[str, ...], form: str) -> tuple[str, ...]:
    """Return the members of `--fields`.

    Raises:
        UsageError: records have no such member, or this output has no fields.
    """
    names = tuple(name for text in given for name in text.split(",") if name)
    if names and form not in _WITH_FIELDS:
        raise UsageError(f"--fields: {form} has no fields; those of {', '.join(_WITH_FIELDS)} do")
    if names:
        from binlogtool.report.records import members_known

        known = members_known()
        if unknown := [name for name in names if name.partition(".")[0] not in known]:
            raise UsageError(f"--fields {unknown[0]}: a record has {', '.join(known)}, and body.NAME")
    return names


def _columns(fields: tuple[str, ...], offsets: bool) -> tuple[str, ...]:
    from binlogtool.report.dump import COLUMNS

    return fields or tuple(c for c in COLUMNS if offsets or c not in ("offset", "size"))


def _follow(
    run: Run,
    paths: tuple[str, ...],
    wanted: Selection,
    how: How,
    writer: Writer,
    out: Output,
) -> int:
    from binlogtool.cli.follow import follow
    from binlogtool.log.records import Block, Lost
    from binlogtool.report.policy import most_severe

    run.progress.endless = True
    for part in follow(run, paths, wanted, how, out):
        if isinstance(part, Block):
            run.progress.records += len(part.record)
            out.write(writer.block(part))
            out.flush()
            for findings in part.findings.values():
                _judge(run, findings)
        elif isinstance(part, Lost):
            run.say(f"{part.file}: {part.why}", level=-1)
            run.status = most_severe((run.status, part.status))
        else:
            tell(run, part)
    out.write(writer.end())
    return run.status


command = Command(
    "dump",
    callback=_dump,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(
            ["--decode"],
            type=click.Choice(["full", "header", "frame"]),
            default="full",
            help="How much of a record to decode (default: full).",
        ),
        o(
            ["--fields"],
            multiple=True,
            metavar="A,B",
            help="Only these members, in text separated by tabs; `body.NAME` reaches into the body; repeatable.",
        ),
        o(["--hex"], is_flag=True, help="Show the bytes of each record, too (text output)."),
        o(
            ["--bytes"],
            type=click.Choice(["hex", "base64", "escape"]),
            default="hex",
            help="How bytes are written (default: hex).",
        ),
        o(
            ["--bigint"],
            type=click.Choice(["number", "string"]),
            default="number",
            help="Integers beyond 2**53: numbers, or strings for readers that would round them.",
        ),
        o(["--with-offsets/--no-offsets"], default=True, help="With offset and size (default: with)."),
        o(
            ["--csv-safe"],
            is_flag=True,
            help="CSV: an apostrophe before cells that a spreadsheet takes for formulas.",
        ),
        o(
            ["-F", "--follow"],
            is_flag=True,
            help="Go on with what is appended, also in newer files, until --limit, --timeout or a signal.",
        ),
        o(
            ["--poll"],
            type=DURATION,
            default="1s",
            metavar="DURATION",
            help="How often --follow looks (default: 1s).",
        ),
        *script_options(),
        *hint_options(),
        level_option(),
        *selection_options(),
        where_option(),
    ],
    help="""Print records: one line each.

        Text lines read: offset, size, type, sequence number, time, object, a colon, and the body. Outputs (-O): text,
        jsonl, json, table, csv, raw (the exact bytes), sql.

        sql is a script for a server's client, of logs whose records are statements or changes of rows (mysql-binlog and
        mariadb-innodb-binlog): `mariadb --binary-mode < FILE`. Changes of rows are the log's own events (BINLOG); with
        --rows statements they are INSERT, UPDATE and DELETE where names and types of the columns are known, from the
        log or from --schema. What follows damage in a transaction is left out, and the transaction is rolled back.
        Whatever is left out is told on stderr, with status 1.

        -F follows files by name and by inode: files come, are renamed, replaced and removed, and what was read of them
        is not printed again. A file is held open from the look that finds it, so that one that is removed is still read
        to its end. What cannot be read any more is told in a line, and the status is 4. Damage at the end of a file is
        told when it is still there after a second; a file that a server is about to rename (.inprogress) is read when
        it has its name.
        """,
    examples=(
        ("records as text", "binlogtool dump 00000000000000000042.xlog"),
        ("for scripts", "binlogtool dump -O jsonl 00000000000000000042.xlog"),
        ("one table, one day", "binlogtool dump --object 512 --start-datetime 2026-01-31 /var/lib/tarantool"),
        ("statements for a server", "binlogtool dump -O sql --start-position gtid:0-1-42 mariadb-bin.000007"),
        ("watch a log grow", "binlogtool dump -F /var/lib/tarantool"),
    ),
)
