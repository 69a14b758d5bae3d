"""`binlogtool dump`: print records in every output format."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import limits
from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    DURATION,
    PATH,
    HintOptions,
    SelectionOptions,
    SqlScriptOptions,
    hint_options,
    level_option,
    option,
    print_record_types,
    report_unmatched_schema,
    require_paths,
    script_options,
    selection_options,
    where_option,
)
from binlogtool.errors import BinlogtoolError, LimitError, RefusedError, UsageError
from binlogtool.findings import STATEMENT_LEFT_OUT, UNCHECKED_IDS, Finding, Severity

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, ScriptText, Selection, SqlFragment
    from binlogtool.report.dump_output_formats import EncodedLines, RecordEncoder

    DumpPart = RecordBlock | EncodedLines | SqlFragment | ScriptText | FileFinding
    from binlogtool.cli.click_command_tree import CommandRun
    from binlogtool.core.record_and_selection_types import FileFinding, FollowLoss, RecordBlock

    FollowPart = RecordBlock | FileFinding | FollowLoss

_FORMS = ("text", "jsonl", "json", "table", "csv", "raw", "sql")
_WITH_FIELDS = ("text", "jsonl", "json", "table", "csv")


class DumpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command. poll: seconds."""

    paths: tuple[str, ...]
    decode: str
    fields: tuple[str, ...]
    hex: bool
    bytes: str
    with_offsets: bool
    csv_safe: bool
    follow: bool
    poll: float
    script: SqlScriptOptions
    selection: SelectionOptions
    hints: HintOptions


def _run_dump(run: CommandRun, options: DumpOptions) -> int:
    from binlogtool.core.record_and_selection_types import RecordBlock, ScriptText, SqlFragment, refuse_salvage
    from binlogtool.report.dump_output_formats import EncodedLines, SqlWriter, UnknownFieldDetector, make_value_filler

    paths = options.paths
    if options.selection.type == ("list",):
        return print_record_types(run, paths)
    require_paths(paths)
    form = run.settings.choose_output_format(_FORMS)
    record_selection = options.selection.build(on_damage="skip")
    if form != "sql":
        record_selection = replace(record_selection, statements="also")
    log_hints = options.hints.read_hint_files(record_selection, script=form == "sql")
    raw = form == "raw" or options.hex
    if form == "raw":
        refuse_salvage(record_selection, "a stream of raw bytes")
    if options.follow and (form in ("json", "sql", "table") or record_selection.skip):
        raise UsageError("--follow cannot be combined with -O json, -O sql, -O table or --skip")
    with run.open_output(text=form in ("text", "table"), inputs=paths, page=not options.follow) as out:
        if form == "raw" and out.isatty():
            raise RefusedError("raw bytes could control the terminal; use a pipe or --output FILE")
        writer = _create_writer(run, form, options, out)
        if options.follow:
            if record_selection.limit is not None:
                record_selection = replace(record_selection, limit=None, tail=record_selection.limit)
            return _run_follow(
                run, paths, record_selection, FollowOptions(options.decode, raw, options.poll, log_hints), writer, out
            )
        limits.relax_gc()
        if form == "sql":
            limits.keep_freed_memory()
        reader = _choose_reader(run, form, record_selection, options)
        value_filler = make_value_filler(form, options.bytes)
        field_names = UnknownFieldDetector(_parse_fields(options.fields, form))
        for part in read_log_parts(
            run,
            paths,
            reader,
            log_hints,
            record_selection,
            prints_findings=form == "sql",
            extracts_long_values=form in ("text", "json", "jsonl", "csv") and not options.fields,
        ):
            if isinstance(part, EncodedLines):
                out.write(part.data)
            elif isinstance(part, ScriptText | SqlFragment):
                assert isinstance(writer, SqlWriter)
                out.write(writer.escape_script_if_terminal(part.data))
            elif isinstance(part, RecordBlock):
                field_names.remember_block_members(part)
                for piece in value_filler.fill_placeholders(writer.encode_block(part), part.long_values):
                    out.write(piece)
            else:
                out.flush()  # keeps diagnostics after the records that precede them
                print_finding_and_update_status(run, part)
        for piece in value_filler.fill_placeholders(writer.finish(), {}):
            out.write(piece)
    report_unmatched_schema(run, paths, log_hints)
    for text in field_names.unknown_field_warnings:
        run.print_diagnostic(text, level=-1)
    if field_names.unknown_field_warnings and field_names.are_all_unknown:
        run.status = 2
    return run.status


def _can_use_compiled_lines(options: DumpOptions) -> bool:
    """Return True if the fast writer supports all options in use."""
    has_defaults = (options.bytes, options.decode, options.with_offsets) == ("hex", "full", True)
    return has_defaults and not (options.fields or options.hex)


def _choose_reader(
    run: CommandRun, form: str, record_selection: Selection, options: DumpOptions
) -> Callable[[binlogtool.OpenedLog], Iterator[DumpPart]]:
    """Return the function that reads the parts of an open log."""
    if form == "sql":
        import binlogtool

        script, output = options.script, run.settings.output
        script_selection, wording = binlogtool.prepare_sql_script(
            record_selection,
            rows=script.rows,
            comments=script.comments,
            gtids=script.with_gtids,
            stop_before=script.stop_before,
            rewrite=script.rewrite,
            load_files=script.load_files or (None if output in (None, "-") else f"{output}.load"),
            database=options.selection.database,
        )

        def read_script(log: binlogtool.OpenedLog) -> Iterator[DumpPart]:
            if not log.is_stream and record_selection.is_bounded_by_gtids:
                log.find_unmatched_names(record_selection, 0).refuse_unmatched_gtids()
            return iter(log.statements(script_selection, wording))

        return read_script
    if form == "jsonl" and _can_use_compiled_lines(options):
        from binlogtool.report.dump_output_formats import CompiledLineEncoder

        return lambda log: CompiledLineEncoder().encode_ranges(log.record_ranges(record_selection))
    raw = form == "raw" or options.hex
    return lambda log: log.blocks(record_selection, decode=options.decode, raw=raw)


def read_log_parts(
    run: CommandRun,
    paths: tuple[str, ...],
    read_log: Callable[[binlogtool.OpenedLog], Iterator[DumpPart]],
    log_hints: binlogtool.Hints | None,
    record_selection: Selection,
    *,
    prints_findings: bool = False,
    extracts_long_values: bool = False,
) -> Iterator[DumpPart]:
    """Yield blocks, written lines, texts and findings, until the time limit.

    Args:
        read_log: function that reads the parts of an open log.
        log_hints: information that the logs do not contain themselves; None = none.
        record_selection: the selection; if nothing is selected, its names must exist in the log.
        prints_findings: print the findings of records.
        extracts_long_values: long values are taken out of the blocks (`core.decode_batches`); selected members and
            columns need whole values.
    """
    import binlogtool
    from binlogtool.core.record_and_selection_types import RecordBlock, ScriptText, SqlFragment
    from binlogtool.report.dump_output_formats import EncodedLines

    settings = run.settings
    deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
    read_limits = (
        replace(settings.limits, max_whole=limits.LONG_VALUE_BYTES) if extracts_long_values else settings.limits
    )
    with binlogtool.open(paths, **settings.make_read_options(log_hints) | {"limits": read_limits}) as log:
        run.report_skipped_files()
        log.collect_names_in_next_pass(record_selection)
        is_empty: bool | None = None
        is_undamaged = True
        for part in read_log(log):
            yield part
            is_undamaged = is_undamaged and all(
                one.severity < Severity.ERROR or one.id == STATEMENT_LEFT_OUT for one in _part_findings(part)
            )
            if isinstance(part, ScriptText) and part.end is not None:
                is_empty = part.end.is_empty and is_empty is not False
            if isinstance(part, RecordBlock):
                for findings in part.findings.values():
                    _update_status(run, findings)
                    if prints_findings:
                        _print_findings(run, part.file, findings)
            if isinstance(part, RecordBlock | EncodedLines | SqlFragment):
                run.progress.records += len(part.record)
            if deadline is not None and time.monotonic() >= deadline:
                run.status = 6
                raise LimitError("the time limit was reached (--timeout)")
        if is_undamaged:
            _report_unmatched_names(
                run, log, record_selection, run.progress.records if is_empty is None else int(not is_empty),
                is_script=is_empty is not None,
            )  # fmt: skip


def _part_findings(part: DumpPart) -> Iterator[Finding]:
    """Yield the findings of a part; damage may hide names that a selection refers to."""
    from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock

    if isinstance(part, FileFinding):
        yield part.finding
    elif isinstance(part, RecordBlock):
        yield from (one for findings in part.findings.values() for one in findings)


def _report_unmatched_names(
    run: CommandRun, log: binlogtool.OpenedLog, record_selection: Selection, selected_count: int, *, is_script: bool
) -> None:
    """Report names in the selection that the log does not contain.

    Raises:
        UsageError: nothing was selected because the log lacks a name, or a script lacks the GTID that should bound it.
    """
    from binlogtool.core.record_and_selection_types import is_partial

    if record_selection.where is not None and not selected_count:
        log.require_columns(record_selection.where)
    unmatched = log.find_unmatched_names(record_selection, selected_count)
    if is_script:
        unmatched.refuse_unmatched_gtids()
    if not selected_count:
        unmatched.refuse_missing_names()
    for text in (*unmatched.missing, *unmatched.absent):
        run.print_diagnostic(text, level=-1)
    if (
        not selected_count
        and not run.status
        and not unmatched.absent
        and record_selection.where is None
        and 0 not in (record_selection.limit, record_selection.tail)
        and is_partial(record_selection)
    ):
        run.print_diagnostic("the selection contains no record of the log")


def report_statements_without_row_events(run: CommandRun, log: binlogtool.OpenedLog, selection: Selection) -> None:
    """Report the statements that change rows of the selected objects without row events, in another pass over a log.

    A stream cannot be read again, and is left out.
    """
    from binlogtool.core.record_and_selection_types import RecordBlock
    from binlogtool.report.format_numbers_and_names import format_offset, format_quantity

    if not selection.objects or selection.types or log.is_stream:
        return
    statements = replace(selection, statements="only", limit=None, skip=0, tail=None, where=None)
    places, count = list[str](), 0
    with log.reopen() as second_log:
        for block in second_log.blocks(statements, decode="full"):
            for record in block if isinstance(block, RecordBlock) else ():
                count += 1
                words = str((record.body or {}).get("sql", "")).split(None, 1)
                if len(places) < _MAX_STATEMENTS:
                    verb = words[0].upper() if words else record.type
                    places.append(f"{verb} at {format_offset(record.offset)} in {record.file}")
    if count:
        verb, names = "changes" if count == 1 else "change", ", ".join(selection.objects)
        more = f" and {count - len(places):,} more" if count > len(places) else ""
        run.print_diagnostic(
            f"{format_quantity(count, 'statement')} {verb} {names} without row events: {', '.join(places)}{more}"
        )


_MAX_STATEMENTS = 5


def print_finding_and_update_status(run: CommandRun, file_finding: FileFinding) -> None:
    """Print a finding, and update the exit status."""
    file, finding = file_finding
    _print_findings(run, file, (finding,))
    _update_status(run, (finding,))


def _print_findings(run: CommandRun, file: str, findings: tuple[Finding, ...]) -> None:
    from binlogtool.report.format_numbers_and_names import format_offset

    for finding in findings:
        level = 0 if finding.severity > Severity.NOTE else 1
        run.print_diagnostic(
            f"{file}: {finding.severity.label} {format_offset(finding.offset)} {finding.id}: {finding.message}",
            level=level,
        )


_ACTION_FINDINGS = ("statement-large",)
"""Findings that are no fault of the log, but require action before the script is sent to a server."""


def _update_status(run: CommandRun, findings: tuple[Finding, ...]) -> None:
    if any(f.severity is Severity.ERROR or f.id in _ACTION_FINDINGS for f in findings):
        run.status = max(run.status, 1)
    if any(f.id in UNCHECKED_IDS for f in findings):
        run.status = max(run.status, 6)


def _create_writer(run: CommandRun, form: str, options: DumpOptions, out: OutputDestination) -> RecordEncoder:
    """Return the writer of an output format (`form`)."""
    from binlogtool.format_api.encode_json import JsonStyle
    from binlogtool.report import dump_output_formats
    from binlogtool.report.dump_output_formats import FieldJsonEncoder, RecordJsonEncoder

    style = JsonStyle(options.bytes)
    fields = _parse_fields(options.fields, form)
    lines = FieldJsonEncoder(RecordJsonEncoder(style), fields, options.with_offsets)
    match form:
        case "jsonl":
            return dump_output_formats.JsonLinesWriter(lines)
        case "json":
            return dump_output_formats.JsonWriter(lines)
        case "csv":
            return dump_output_formats.CsvWriter(
                style,
                neutralize=options.csv_safe,
                columns=_select_columns(fields, options.with_offsets),
            )
        case "raw":
            return dump_output_formats.RawWriter()
        case "sql":
            return dump_output_formats.SqlWriter(terminal=out.isatty())
        case "table":
            from binlogtool.terminal.tables import ScreenTableWriter

            return ScreenTableWriter(style, columns=_select_columns(fields, options.with_offsets), ascii_only=out.ascii)
    from binlogtool.report.dump_output_formats import TextOptions, TextWriter
    from binlogtool.terminal.escape_and_fold_text import make_painter

    everything = run.settings.verbosity > 0
    return TextWriter(
        style,
        TextOptions(
            offsets=options.with_offsets,
            hex_bytes=options.hex,
            headings=len(options.paths) > 1 or (os.path.isdir(options.paths[0]) and not options.fields),
            everything=everything,
            fold=not (everything or options.hex or options.selection.type),
            fields=fields,
            ascii_only=out.ascii,
            paint=make_painter(True) if run.is_colour_used(out) else None,
        ),
    )


def _parse_fields(values: tuple[str, ...], form: str) -> tuple[str, ...]:
    """Return the members of `--fields`.

    Raises:
        UsageError: records have no such member, or this output has no fields.
    """
    names = tuple(name for text in values for name in text.split(",") if name)
    if names and form not in _WITH_FIELDS:
        raise UsageError(f"--fields: {form} has no fields; it works with {', '.join(_WITH_FIELDS)} do")
    if names:
        from binlogtool.report.dump_output_formats import list_member_names

        members = list_member_names()
        if unknown := [name for name in names if name.partition(".")[0] not in members]:
            raise UsageError(f"--fields {unknown[0]}: a record has {', '.join(members)}, and body.NAME")
    return names


def _select_columns(fields: tuple[str, ...], offsets: bool) -> tuple[str, ...]:
    from binlogtool.report.dump_output_formats import COLUMNS

    return fields or tuple(c for c in COLUMNS if offsets or c not in ("offset", "size"))


def _run_follow(
    run: CommandRun,
    paths: tuple[str, ...],
    record_selection: Selection,
    follow_options: FollowOptions,
    writer: RecordEncoder,
    out: OutputDestination,
) -> int:
    from binlogtool.core.record_and_selection_types import FollowLoss, RecordBlock
    from binlogtool.report.finding_policy import select_most_severe_exit_code

    run.progress.endless = True
    for part in follow_logs(run, paths, record_selection, follow_options, out):
        if isinstance(part, RecordBlock):
            run.progress.records += len(part.record)
            out.write(writer.encode_block(part))
            out.flush()
            for findings in part.findings.values():
                _update_status(run, findings)
        elif isinstance(part, FollowLoss):
            run.print_diagnostic(f"{part.file}: {part.reason}", level=-1)
            run.status = select_most_severe_exit_code((run.status, part.status))
        else:
            print_finding_and_update_status(run, part)
    out.write(writer.finish())
    return run.status


command = Command(
    "dump",
    callback=_run_dump,
    options_type=DumpOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--decode full|header|frame", "How much of a record to decode (default: full).", default="full"),
        option("--fields A,B",
            "Only these members, in text separated by tabs; `body.NAME` is a member of the body; repeatable.",
            is_common=True, multiple=True),
        option("--hex", "Also show the bytes of each record (text output).", is_common=True),
        option("--bytes hex|base64|escape", "How bytes are written (default: hex).", group="Output", default="hex"),
        option("--with-offsets/--no-offsets", "Show offset and size (default: yes).", default=True),
        option("--csv-safe",
            "CSV: put an apostrophe before cells that a spreadsheet would take for formulas.", group="Output"),
        option("-F --follow",
            "As tail -F: continue with appended records, also in newer files, until --timeout or a signal; -n N "
            "begins with the last N records.", is_common=True),
        option("--poll DURATION",
            "How often --follow checks for new data (default: 1s).", DURATION, hidden=True, default="1s"),
        *script_options(),
        *hint_options(),
        level_option(),
        *selection_options(),
        where_option(),
    ],
    help="""Print records: a header line, then row changes as a diff or SQL.

        The header has the offset, time (UTC), type, transaction or sequence number, and object. Below it: + a new row,
        - a removed row (or its key), ~ a changed row, its key first. Records without data are counted in the last line;
        -v shows them, and values in full.
        Outputs (-O): text, jsonl, json, table, csv, raw (the exact bytes), sql.
        """,
    notes="""-O sql is a script for a server's client, from logs whose records are statements or row changes
        (mysql-binlog and mariadb-innodb-binlog):
        `mariadb --binary-mode < FILE`. Row changes are the log's own events (BINLOG); with
        --rows statements they are INSERT, UPDATE and DELETE where names and types of the columns are known, from the
        log or from --schema. What follows damage in a transaction is left out, and the transaction is rolled back.
        Whatever is left out is reported on stderr, with status 1.

        -F follows files by name and by inode: files may be created, renamed, replaced and removed, and what
        was read of them is not printed again. A file is kept open from the time it is found, so that a
        removed file is still read
        to its end. What can no longer be read is reported, and the status is 4. Damage at the end of a file is
        reported if it is still there after a second; a file that a server is about to rename (.inprogress) is read when
        it has its name.
        """,
    examples=(
        ("records as text", "binlogtool dump 00000000000000000042.xlog"),
        ("for scripts", "binlogtool dump -O jsonl 00000000000000000042.xlog"),
        ("one table, one day", "binlogtool dump --object 512 --start-datetime 2026-01-31 /var/lib/tarantool"),
        ("statements for a server", "binlogtool dump -O sql --start-position gtid:0-1-42 mariadb-bin.000007"),
        ("watch a log grow, from its last 20 records", "binlogtool dump -n 20 -F /var/lib/tarantool"),
    ),
)  # fmt: skip


# --- `dump --follow`: check for new records until `--timeout`, a signal, or the reader closes the pipe ---


class FollowOptions(msgspec.Struct, frozen=True):
    """Options of a followed dump. poll: seconds between checks."""

    decode: str
    raw: bool
    poll: float
    hints: binlogtool.Hints | None


def follow_logs(
    run: CommandRun, paths: Sequence[str], selection: Selection, options: FollowOptions, out: OutputDestination
) -> Iterator[FollowPart]:
    """Yield new records, damage and lost files, until `--timeout` or forever.

    Raises:
        BrokenPipeError: the reader closed the pipe.
        LimitError: the time limit was reached in the middle of a file.
    """
    settings, is_reported, is_first = run.settings, False, True
    deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
    with binlogtool.follow(
        paths, selection, **settings.make_read_options(options.hints), decode=options.decode, raw=options.raw
    ) as follower:
        while is_first or not _is_over(deadline):
            for part in follower.look():
                if _is_over(deadline):  # only now: after the last part of a check, all data was printed
                    run.status = 6
                    raise LimitError("the time limit was reached (--timeout) before all data was read")
                yield part
            if follower.unknown_column is not None and not is_reported and not run.progress.records:
                run.print_diagnostic(f"{follower.unknown_column} (so far; a later table may have it)")
                is_reported = True
            if is_first and not run.progress.records:
                for text in _find_unmatched_names(run, paths, selection, options):
                    run.print_diagnostic(f"{text} (so far; it may appear later)")
            is_first = False
            out.sleep_unless_reader_closes(
                options.poll if deadline is None else min(options.poll, max(0.0, deadline - time.monotonic()))
            )


def _find_unmatched_names(
    run: CommandRun, paths: Sequence[str], selection: Selection, options: FollowOptions
) -> tuple[str, ...]:
    """Return a message for each name in the selection that the files do not contain yet."""
    try:
        with binlogtool.open(paths, **run.settings.make_read_options(options.hints)) as log:
            if log.is_stream:
                return ()
            unmatched = log.find_unmatched_names(selection, 0)
    except BinlogtoolError:
        return ()
    return (*unmatched.missing, *unmatched.absent)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
