"""`binlogtool stats`: count records and bytes over time, as figures and as a chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from binlogtool.cli.command import Command, CommandRun
from binlogtool.cli.dump import read_parts, report_trouble
from binlogtool.cli.options import (
    PATH,
    build_selection,
    hint_options,
    level_option,
    option,
    pop_hints,
    print_record_types,
    require_paths,
    selection_options,
    split_selection,
    where_option,
)
from binlogtool.errors import UsageError

if TYPE_CHECKING:
    from binlogtool.core.record_selection import RecordBlock


def _run_stats(run: CommandRun, paths: tuple[str, ...], **options: Any) -> int:
    from binlogtool.report import stats

    selection_values, command_options = split_selection(options)
    if selection_values["type"] == ("list",):
        return print_record_types(run, paths)
    require_paths(paths)
    forms: dict[str, Callable[[Any], bytes]]
    forms = {"text": stats.encode_series_text, "json": stats.encode_series_json, "csv": stats.encode_series_csv}
    by_transaction = command_options["by"] == "transaction"
    if by_transaction:
        if command_options["chart"] is not None or command_options["bucket"] != "auto":
            raise UsageError("--by transaction has no time steps: it cannot be combined with --chart or --bucket")
        from binlogtool.report import transaction_stats as found

        forms = {
            "text": found.encode_transactions_text,
            "json": found.encode_transactions_json,
            "csv": found.encode_transactions_csv,
        }
    form = run.settings.choose_output_format(tuple(forms))
    record_selection = build_selection(selection_values, on_damage="skip")
    figures = (_count_transactions if by_transaction else _count_records)(run, paths, record_selection, command_options)
    run.say_skipped_files()
    if command_options["chart"] is not None:
        title = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        run.save_file(command_options["chart"], _render_chart(command_options["chart"], figures, title), inputs=paths)
    with run.open_output(text=form == "text", inputs=paths) as out:
        out.write(forms[form](figures))
    return run.status


def _render_chart(name: str, figures: Any, title: str) -> bytes:
    """Render the chart in the format that the file name asks for."""
    from binlogtool.report.stats import render_chart
    from binlogtool.report.verify_html import render_chart_page

    return (render_chart_page if name.lower().endswith((".html", ".htm")) else render_chart)(figures, title)


def _count_records(
    run: CommandRun, paths: tuple[str, ...], record_selection: Any, command_options: dict[str, Any]
) -> Any:
    from binlogtool.core.record_selection import FileFinding, RecordBlock
    from binlogtool.report.stats import SeriesCounter

    series = SeriesCounter(command_options["by"], command_options["bucket"])
    log_hints = pop_hints(command_options, record_selection, script=command_options["rows"])
    row_sums = _RowSums(command_options["by"]) if command_options["rows"] else None
    decode = "frame" if row_sums is None else "full"
    for part in read_parts(
        run, paths, lambda log: log.blocks(record_selection, decode=decode), log_hints, record_selection
    ):
        if isinstance(part, RecordBlock):
            series.encode_block(part)
            if row_sums is not None:
                row_sums.add_block(part)
        elif isinstance(part, FileFinding):
            report_trouble(run, part)
    figures = series.finish()
    if row_sums is not None:
        figures = replace(figures, rows=row_sums.rows)
    return figures.limit_groups(command_options["top"])


class _RowSums:
    """Changed rows by group."""

    def __init__(self, by: str) -> None:
        from binlogtool.report.transaction_stats import RowCounter

        self._by, self._counter = by, RowCounter()
        self.rows: dict[str | None, tuple[int, int, int]] = {}

    def add_block(self, block: RecordBlock) -> None:
        """Add the rows of each record to its group, or to their tables."""
        names = getattr(block.envelope, self._by)
        for name, counts_by_table in zip(names, self._counter.iter_counts(block), strict=True):
            for table, counts in counts_by_table.items():
                group = table if self._by == "object" else None if name is None else str(name)
                old = self.rows.get(group, (0, 0, 0))
                self.rows[group] = old[0] + counts.inserted, old[1] + counts.updated, old[2] + counts.deleted


def _count_transactions(
    run: CommandRun, paths: tuple[str, ...], record_selection: Any, command_options: dict[str, Any]
) -> Any:
    from binlogtool.core.record_selection import FileFinding, RecordBlock
    from binlogtool.report.transaction_stats import TransactionCounter

    counter = TransactionCounter(command_options["top"] or _DEFAULT_TOP)
    log_hints = pop_hints(command_options, record_selection, script=True)
    for part in read_parts(run, paths, lambda log: log.blocks(record_selection), log_hints, record_selection):
        if isinstance(part, RecordBlock):
            counter.add_block(part)
        elif isinstance(part, FileFinding):
            report_trouble(run, part)
    return counter.finish()


_DEFAULT_TOP = 10
"""Transactions that are shown in each order."""


command = Command(
    "stats",
    callback=_run_stats,
    outputs=("text", "json", "csv"),
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option(
            ["--by"],
            is_common=True,
            type=click.Choice(["object", "type", "origin", "transaction"]),
            default="object",
            help="Group by object, type or origin, or find the largest and longest transactions (default: object).",
        ),
        option(
            ["--top"],
            type=click.IntRange(1, 10_000),
            metavar="N",
            help="Only the first N groups, and the others as one; of transactions the first N of each order (default: "
            "all groups, 10 transactions).",
        ),
        option(["--rows"], is_flag=True, help="Also count the rows inserted, updated and deleted; reads all bodies."),
        option(
            ["--bucket"],
            is_common=True,
            type=click.Choice(["auto", "1m", "1h", "1d"]),
            default="auto",
            help="Time steps in UTC: minutes, hours or days (default: auto, at most about 150 steps).",
        ),
        option(
            ["--chart"],
            type=PATH,
            metavar="FILE.svg|FILE.html",
            is_common=True,
            help="Also draw a chart of the figures into FILE.",
        ),
        *hint_options(),
        level_option(),
        *selection_options(),
        where_option(),
    ],
    help="""Count records, bytes and rows, by object, type or origin; find large and long transactions.

    Bytes are those of the records in the log. The text output lists the groups, then the time steps, each with the
    group that has most records in it. -O json and csv contain every figure. --chart draws them as SVG, or as a page
    with the figures. Damage is reported and skipped, as in dump.
    """,
    examples=(
        ("which tables grow, and when", "binlogtool stats /var/lib/mysql/mariadb-bin.000042"),
        ("rows changed per table", "binlogtool stats --rows --top 20 /var/lib/mysql/mariadb-bin.000042"),
        ("large and long transactions", "binlogtool stats --by transaction --top 5 mariadb-bin.000042"),
        ("as a picture", "binlogtool stats --by type --bucket 1h --chart week.svg /var/lib/tarantool"),
        ("for a spreadsheet", "binlogtool stats -O csv --start-datetime -24h transaction.log"),
    ),
)
