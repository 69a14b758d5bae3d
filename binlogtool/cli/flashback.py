"""`binlogtool flashback`: write the script that reverses selected row changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.convert import print_conversion_when_complete, write_conversion_and_print_summary
from binlogtool.cli.options import (
    PATH,
    HintOptions,
    SelectionOptions,
    hint_options,
    level_option,
    option,
    report_unmatched_schema,
    require_paths,
    script_options,
    selection_options,
    where_option,
    without_options,
)

if TYPE_CHECKING:
    from binlogtool.export.manifest import Manifest

_NOT_FOR_TRANSACTIONS = ("limit", "skip", "tail", "type", "on_damage")
"""Options that select single records or continue after damage: transactions are reversed completely or not at all."""


class FlashbackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    rows: str
    comments: bool
    rewrite: tuple[str, ...]
    skip_ddl: bool
    match_all_columns: bool
    manifest: str | None
    selection: SelectionOptions
    hints: HintOptions


def _run_flashback(run: CommandRun, options: FlashbackOptions) -> int:
    require_paths(options.paths)
    form = run.settings.choose_output_format(("sql", "json"))
    if run.settings.output not in (None, "-"):
        return write_conversion_and_print_summary(run, form, lambda path: _call_convert(run, options, path))
    if form == "json":
        raise click.UsageError("-O json prints the manifest; the script needs --output FILE.")
    return print_conversion_when_complete(run, options.paths, lambda path: _call_convert(run, options, path))


def _call_convert(run: CommandRun, options: FlashbackOptions, output: str) -> Manifest:
    import binlogtool

    settings = run.settings
    manifest = binlogtool.convert(
        options.paths,
        "flashback",
        output,
        **settings.make_read_options(options.hints.read_hint_files()),
        selection=options.selection.build(on_damage="stop"),
        manifest=options.manifest,
        overwrite=settings.overwrite,
        on_step=lambda step: run.progress.update_stage(
            f"flashback: {step.stage}", step.done, total=step.total, records=step.records
        ),
        rows=options.rows,
        comments=options.comments,
        rewrite=options.rewrite,
        skip_ddl=options.skip_ddl,
        match_all=options.match_all_columns,
        database=options.selection.database,
    )
    run.report_skipped_files()
    report_unmatched_schema(run, options.paths, options.hints.read_hint_files())
    return manifest


command = Command(
    "flashback",
    writes_files=True,
    callback=_run_flashback,
    options_type=FlashbackOptions,
    outputs=("sql", "json"),
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        *without_options(script_options(), "with_gtids", "stop_before", "load_files"),
        option("--skip-ddl",
            "Leave table definitions of the selected tables unchanged, with a notice, instead of refusing them "
            "(docs/damage.md). Rows that TRUNCATE or DROP removed remain lost: status 1.", group="Damage",
            is_common=True),
        option("--match-all-columns",
            "With --rows statements: find a row by all its columns, not by its key, so that a row that was changed "
            "again is left unchanged.", group="SQL"),
        option("--manifest FILE", "Save the manifest of inputs, hashes and row changes as JSON.", PATH, group="Output"),
        *hint_options(),
        level_option(),
        *without_options(selection_options(), *_NOT_FOR_TRANSACTIONS),
        where_option(),
    ],
    help="""Write the script that reverses selected row changes, newest first.

    It needs row events with whole images, and reverses whole transactions. If a change cannot be reversed, it is
    reported and nothing is written; a row that was changed again later is reported with status 1. Test the script on a
    copy first. To undo a repair of a log file, see `undo`.
    """,
    notes="""The script contains the log's own events inverted (insert and delete, before and after exchanged), as
    BINLOG, so that triggers do not fire and generated columns do no harm; with --rows statements, INSERT for DELETE,
    DELETE for INSERT, and an UPDATE of the changed columns to the values before.

    What cannot be reversed (statements that change rows, DDL of the selected tables, XA, logged rollbacks, images that
    lack columns) is reported, and nothing is written. DDL of other tables is ignored; with --skip-ddl, also that of the
    selected tables. --where selects rows, also within one event: "before.state = 'x'" reverses only those.

    Select whole histories of rows: if a row was changed again by a change that is not selected, the script does not
    find it, or finds it by its key and gives it older values. Such rows are reported, with status 1, to the end of the
    last log that is given, and in comments at the beginning of the script; so is a later TRUNCATE, DROP or ALTER of
    their table. A selection without row changes is an error. Rows changed by foreign key cascades are not in the log,
    so not in the script: status 1 where the log or --schema has such a key.""",
    examples=(
        (
            "reverse what one transaction did to a table",
            "binlogtool flashback --include-gtids 0-1-42 --object shop.orders -o flashback.sql bin.000007",
        ),
        (
            "reverse only some of the rows of a wrong DELETE",
            "binlogtool flashback --where \"object = 'shop.orders' and before.state = 'paid'\" -o flashback.sql "
            "bin.000007",
        ),
        (
            "review the script before you run it",
            "binlogtool flashback --rows statements --start-datetime -1h --object shop.orders bin.000007 | less",
        ),
    ),
)  # fmt: skip
