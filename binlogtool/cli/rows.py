"""`binlogtool rows`: print the changed rows of tables, with the columns and types of each table."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, TypeAlias

import click
import msgspec
from msgspec.structs import replace

from binlogtool.api import spool_standard_input
from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.dump import print_finding_and_update_status, report_statements_without_row_events
from binlogtool.cli.options import (
    PATH,
    HintOptions,
    SelectionOptions,
    hint_options,
    level_option,
    option,
    report_unmatched_schema,
    require_paths,
    selection_options,
    where_option,
    without_options,
)
from binlogtool.core.record_and_selection_types import FileFinding
from binlogtool.errors import RefusedError, UsageError, format_name_suggestions, join_names
from binlogtool.findings import ENCRYPTED

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.core.record_and_selection_types import Selection

OpenRows: TypeAlias = "Callable[[str, int | None], binlogtool.LogRows]"
"""Function that opens the rows of a table, at most so many; None = all."""

_FORMS = ("text", "csv", "jsonl", "arrow")
_MANY_TABLES = ("text", "jsonl")
"""Outputs that can hold the rows of several tables."""
_ROWS_PER_TABLE = 1000
_MAX_LISTED = 10
_NOT_FOR_ROWS = ("tail", "type", "on_damage")


class RowsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    image: str | None
    selection: SelectionOptions
    hints: HintOptions


def _run_rows(run: CommandRun, options: RowsOptions) -> int:
    import binlogtool

    require_paths(options.paths)
    form, settings = run.settings.choose_output_format(_FORMS), run.settings
    selection, troubles = options.selection.build(on_damage="skip"), list[FileFinding]()
    with (
        spool_standard_input() if "-" in options.paths else nullcontext(),
        binlogtool.open(options.paths, **settings.make_read_options(options.hints.read_hint_files())) as log,
        run.open_output(text=form == "text", inputs=options.paths) as out,
        ExitStack() as held,
    ):  # fmt: skip
        if form == "arrow" and out.isatty():
            raise RefusedError("an Arrow stream could control the terminal; use a pipe or --output FILE")
        run.report_skipped_files()
        try:
            tables, open_rows = _open_selected_table_rows(run, log, options, selection, form, held)
        except UsageError:
            report_statements_without_row_events(run, log, selection)
            raise
        remaining, nameless = selection.limit, list[str]()
        for table in tables:
            if remaining == 0:
                break
            rows = open_rows(table, remaining)
            if form == "text":
                _print_text(out, table, rows, options.image or "after")
            else:
                for data in rows.encode(form):
                    out.write(data)
            run.progress.records += rows.row_count or 0
            remaining = None if remaining is None else remaining - (rows.row_count or 0)
            if not rows.row_count and table in selection.objects:
                run.print_diagnostic(f"the selection contains no row of {table}")
            if "@1" in rows.schema.names:
                nameless.append(table)
            troubles += rows.findings
        _report_nameless(run, nameless)
        report_statements_without_row_events(run, log, selection)
        has_times, is_empty = (selection.start_time, selection.stop_time) != (None, None), not run.progress.records
        if tables and (has_times or (is_empty and selection.where is not None)):
            without_objects = replace(selection, objects=(), exclude_objects=())
            unmatched = log.find_unmatched_names(without_objects, run.progress.records)
            for text in (*unmatched.missing, *unmatched.absent):
                run.print_diagnostic(text)
    report_unmatched_schema(run, options.paths, options.hints.read_hint_files())
    _report_findings_once(run, troubles)
    return run.status


def _report_nameless(run: CommandRun, tables: Sequence[str]) -> None:
    """Report the tables whose columns have no names, in one line."""
    if len(tables) == 1:
        run.print_diagnostic(f"{tables[0]}: its column names are unknown; give its CREATE TABLE with --schema FILE.sql")
    elif tables:
        run.print_diagnostic(
            f"the column names of {join_names(tables)} are unknown; give their CREATE TABLE with --schema FILE.sql"
        )


def _report_findings_once(run: CommandRun, file_findings: Iterable[FileFinding]) -> None:
    """Report each finding once; one for those that say the same of one file."""
    from binlogtool.report.format_numbers_and_names import format_repeats, group_and_count_by_key

    places = group_and_count_by_key(
        file_findings, lambda one: (one.file, one.finding.id, one.finding.offset, one.finding.message)
    )
    groups = group_and_count_by_key(
        (one for one, _ in places), lambda one: (one.file, one.finding.id, one.finding.message)
    )
    for one, count in groups:
        message = f"{one.finding.message}{format_repeats(count)}"
        print_finding_and_update_status(run, FileFinding(one.file, replace(one.finding, message=message)))


def _open_selected_table_rows(
    run: CommandRun, log: binlogtool.OpenedLog, options: RowsOptions, selection: Selection, form: str, held: ExitStack
) -> tuple[list[str], OpenRows]:
    """Return the names of the selected tables, and the function that opens the rows of one of them.

    Args:
        held: is left when the rows have been read.

    Raises:
        UsageError: the log has no such table, or several tables are selected for an output that holds only one.
    """
    if len(selection.objects) == 1 and not selection.exclude_objects:
        rows = _open_table_rows(log, options, selection, selection.objects[0])
        if _has_table(rows):
            return [selection.objects[0]], lambda _name, _limit: rows
    tables = _select_tables(run, log, selection)
    if len(tables) > 1 and form not in _MANY_TABLES:
        raise UsageError(
            f"-O {form} holds the rows of one table; name one with --object: {join_names(tables)}"
            f" (or convert --to {'csv' if form == 'csv' else 'parquet'} --per-table writes a directory for each)"
        )
    if len(tables) < 2:
        return tables, lambda name, _limit: _open_table_rows(log, options, selection, name)
    columns, row_selection = _list_columns(options), replace(selection, objects=(), exclude_objects=())
    spooled = held.enter_context(
        log.spool_tables(tables, image=options.image, columns=columns, selection=row_selection)
    )
    _require_columns({name: spooled.open_rows(name) for name in tables if columns}, columns)
    return tables, spooled.open_rows


def _list_columns(options: RowsOptions) -> list[str]:
    return [name for text in options.columns for name in text.split(",") if name]


def _require_columns(tables: dict[str, binlogtool.LogRows], columns: Sequence[str]) -> None:
    """Check that each requested column is in one of the tables; the others have null there.

    Raises:
        UsageError: no table has one of the columns.
    """
    schemas = [rows.schema for rows in tables.values()]
    for name in columns:
        if all(str(schema.field(name).type) == "null" for schema in schemas):
            raise UsageError(f"--columns {name}: none of the tables {join_names(list(tables))} has this column")


def _open_table_rows(
    log: binlogtool.OpenedLog, options: RowsOptions, selection: Selection, table_name: str
) -> binlogtool.LogRows:
    """Return the rows of one table."""
    row_selection = replace(selection, objects=(), exclude_objects=())
    rows: binlogtool.LogRows = log.rows(
        table_name, image=options.image, columns=_list_columns(options), selection=row_selection
    )
    return rows


def _has_table(rows: binlogtool.LogRows) -> bool:
    """Return True if the selected records have a table with exactly this name; False for a pattern."""
    try:
        return bool(rows.schema.names)
    except UsageError:
        return False


def _select_tables(run: CommandRun, log: binlogtool.OpenedLog, selection: Selection) -> list[str]:
    """Return the names of the selected tables that occur in the selected records.

    Raises:
        UsageError: the log has no such table.
    """
    where_to_look = replace(selection, objects=(), exclude_objects=(), limit=None, skip=0, where=None)
    if tables := _filter_tables(log.tables(where_to_look), selection):
        return tables
    known = log.tables()
    if not known:
        _report_no_tables(run, log)
        return []
    if absent := _filter_tables(known, selection):
        unmatched = log.find_unmatched_names(where_to_look, 0)
        unmatched.refuse_missing_names()
        for text in (f"the selection contains no row of {join_names(absent)}", *unmatched.absent):
            run.print_diagnostic(text)
        return []
    if not selection.objects:
        raise UsageError(f"--exclude-object leaves out all tables of the log: {join_names(known)}")
    wanted = selection.objects[-1].removeprefix("*.")
    databases = [f"{name.rpartition('.')[0]}.*" for name in known if "." in name]
    same_names = [name for name in known if name.rpartition(".")[2] == wanted]
    names = databases if wanted.endswith(".*") else known if "." in wanted else [n.rpartition(".")[2] for n in known]
    suggestion = f"; did you mean {' or '.join(same_names[:_MAX_LISTED])}?" if same_names else ""
    suggestion = suggestion or format_name_suggestions(wanted, names) or f"; it has {join_names(known)}"
    raise UsageError(f"{wanted}: the log contains no such table{suggestion}")


def _report_no_tables(run: CommandRun, log: binlogtool.OpenedLog) -> None:
    """Report why there are no tables: the log is encrypted and has no key, or it has no rows.

    Raises:
        UsageError: the log has no rows.
    """
    for part in log.blocks(decode="frame"):
        if isinstance(part, FileFinding) and part.finding.id == ENCRYPTED:
            print_finding_and_update_status(run, part)
            return
    raise UsageError(
        "the log has no rows of tables; with binlog_format=STATEMENT, MySQL and MariaDB log statements (see dump)"
    )


def _filter_tables(names: Sequence[str], selection: Selection) -> list[str]:
    """Return the names that match the object patterns of the selection; one without `*?[` matches only itself."""

    def is_among(name: str, globs: Sequence[str]) -> bool:
        return any(name == glob or fnmatch.fnmatchcase(name, glob) for glob in globs)

    wanted = selection.objects or ("*",)
    return [name for name in names if is_among(name, wanted) and not is_among(name, selection.exclude_objects)]


def _print_text(out: OutputDestination, table: str, rows: binlogtool.LogRows, image: str) -> None:
    from binlogtool.terminal.escape_and_fold_text import escape
    from binlogtool.terminal.tables import MAX_CELL_LENGTH, fits_as_table, render_table

    def format_cell(text: str | None) -> str:
        if text is None:
            return "NULL"
        return escape(text if len(text) <= MAX_CELL_LENGTH else f"{text[:MAX_CELL_LENGTH]}…")

    number = 0
    for names, cells in rows.text_rows(_ROWS_PER_TABLE, image):
        out.write_line(escape(table))
        lines = [list(map(escape, names)), *(list(map(format_cell, row)) for row in cells)]
        if fits_as_table(lines):
            out.write(render_table(lines, ascii_only=out.ascii))
            continue
        for row in lines[1:]:
            number += 1
            out.write_line(f"  row {number}")
            for name, text in zip(lines[0], row, strict=True):
                out.write_line(f"    {name}: {text}")


command = Command(
    "rows",
    callback=_run_rows,
    options_type=RowsOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--columns A,B", "Only these columns, in this order; repeatable.", multiple=True, is_common=True),
        option("--image after|before|both|changes",
            "Which row image to print: after the change (default), before it, both, or only the changed columns. A "
            "DELETE always has the row before it; changes has the key and the changed columns of an UPDATE.",
            is_common=True),
        *hint_options(),
        level_option(),
        *without_options(selection_options(), *_NOT_FOR_ROWS),
        where_option(),
    ],
    help="""Print the changed rows of tables, with the columns and types of their table.

    Name tables with --object or --table; without, all tables are printed, one after the other. CSV and Arrow hold one
    table. Columns about the change (op, time, txn, file, offset, ...) are before the table's own; text shows txn, op
    and time only. Damage is reported and skipped. The command needs the extra `arrow`.
    """,
    notes="""--limit counts the rows of all tables, --skip those of each table. docs/tables.md describes the columns
    and types. For files of Parquet, ORC or Avro, partitions, and a proof that nothing is missing, use `binlogtool
    convert`.""",
    examples=(
        ("what happened to a table", "binlogtool rows --object shop.orders mariadb-bin.000002"),
        ("for a spreadsheet", "binlogtool rows -O csv --object shop.orders -o orders.csv mariadb-bin.0000*"),
        (
            "rows that a condition selects, as JSON lines",
            "binlogtool rows -O jsonl --object shop.orders --where 'after.total > 100' /var/lib/mysql",
        ),
        ("into DuckDB, polars or pandas", "binlogtool rows -O arrow --object shop.orders bin.000002 > orders.arrows"),
    ),
)  # fmt: skip
