"""`binlogtool stats`: count records and bytes over time, as figures and as a chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.dump import print_finding_and_update_status, read_log_parts, report_statements_without_row_events
from binlogtool.cli.options import (
    PATH,
    HintOptions,
    SelectionOptions,
    hint_options,
    level_option,
    option,
    print_record_types,
    require_paths,
    selection_options,
    where_option,
)
from binlogtool.errors import UsageError

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock
    from binlogtool.report.record_statistics import LogStats, TransactionStats


class StatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    by: str
    top: int | None
    rows: bool
    bucket: str
    chart: str | None
    selection: SelectionOptions
    hints: HintOptions


def _run_stats(run: CommandRun, options: StatsOptions) -> int:
    if options.selection.type == ("list",):
        return print_record_types(run, options.paths)
    require_paths(options.paths)
    if options.by == "transaction":
        return _print_transactions(run, options)
    from binlogtool.report import record_statistics

    if options.chart is not None and not options.chart.lower().endswith(_CHART_SUFFIXES):
        raise UsageError(f"--chart {options.chart}: charts are SVG or HTML; use a name that ends in .svg or .html")
    encoders = {
        "text": record_statistics.encode_series_text,
        "json": record_statistics.encode_series_json,
        "csv": record_statistics.encode_series_csv,
    }
    form = run.settings.choose_output_format(tuple(encoders))
    figures = _count_records(run, options)
    run.report_skipped_files()
    if options.chart is not None:
        title = options.paths[0] if len(options.paths) == 1 else f"{options.paths[0]} and {len(options.paths) - 1} more"
        run.save_file(options.chart, _render_chart_for_suffix(options.chart, figures, title), inputs=options.paths)
    with run.open_output(text=form == "text", inputs=options.paths) as out:
        out.write(encoders[form](figures))
    return run.status


def _print_transactions(run: CommandRun, options: StatsOptions) -> int:
    """Print the largest and longest transactions."""
    from binlogtool.report import record_statistics

    if options.chart is not None or options.bucket != "auto":
        raise UsageError("--by transaction has no time steps: it cannot be combined with --chart or --bucket")
    encoders = {
        "text": record_statistics.encode_transactions_text,
        "json": record_statistics.encode_transactions_json,
        "csv": record_statistics.encode_transactions_csv,
    }
    form = run.settings.choose_output_format(tuple(encoders))
    figures = _count_transactions(run, options)
    run.report_skipped_files()
    with run.open_output(text=form == "text", inputs=options.paths) as out:
        out.write(encoders[form](figures))
    return run.status


_CHART_SUFFIXES = (".svg", ".html", ".htm")


def _render_chart_for_suffix(file_name: str, figures: LogStats, title: str) -> bytes:
    """Render the chart in the format given by the suffix of the file name."""
    from binlogtool.report.record_statistics import render_chart
    from binlogtool.report.verify_html import render_stats_page

    return (render_stats_page if file_name.lower().endswith((".html", ".htm")) else render_chart)(figures, title)


def _count_records(run: CommandRun, options: StatsOptions) -> LogStats:
    from binlogtool.report.record_statistics import RowCounter, SeriesCounter

    series, row_counter = SeriesCounter(options.by, options.bucket), RowCounter() if options.rows else None
    for block in _read_blocks(run, options, reads_rows=options.rows):
        series.add_block(block, None if row_counter is None else row_counter.count_rows_by_table(block))
    return series.finish().limit_groups(options.top)


def _read_blocks(run: CommandRun, options: StatsOptions, *, reads_rows: bool) -> Iterator[RecordBlock]:
    """Yield the selected records, and report damage. reads_rows: decode the bodies, too."""
    from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock

    selection = options.selection.build(on_damage="skip")
    if selection.limit is not None:
        run.print_diagnostic("--limit counts the records that are read; --top N limits the list")
    log_hints = options.hints.read_hint_files(selection, script=reads_rows)
    decode = "full" if reads_rows else "frame"

    def read(log: binlogtool.OpenedLog) -> Iterator[RecordBlock | FileFinding]:
        yield from log.blocks(selection, decode=decode)
        report_statements_without_row_events(run, log, selection)

    for part in read_log_parts(run, options.paths, read, log_hints, selection):
        if isinstance(part, RecordBlock):
            yield part
        elif isinstance(part, FileFinding):
            print_finding_and_update_status(run, part)


def _count_transactions(run: CommandRun, options: StatsOptions) -> TransactionStats:
    from binlogtool.report.record_statistics import TransactionCounter

    counter = TransactionCounter(options.top or _DEFAULT_TOP)
    for block in _read_blocks(run, options, reads_rows=True):
        counter.add_block(block)
    return counter.finish()


_DEFAULT_TOP = 10
"""Number of transactions shown in each ranking."""


command = Command(
    "stats",
    callback=_run_stats,
    options_type=StatsOptions,
    outputs=("text", "json", "csv"),
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--by object|type|origin|transaction",
            "Group by object, type or origin, or find the largest and longest transactions (default: object).",
            is_common=True, default="object"),
        option("--top N",
            "List only the N largest groups; the others are one group (default: all groups). With --by transaction: "
            "the N largest and the N longest (default: 10).", click.IntRange(1, 10000), is_common=True),
        option("--rows", "Also count the rows inserted, updated and deleted; reads all bodies.", is_common=True),
        option("--bucket auto|1m|1h|1d",
            "Time steps in UTC: minutes, hours or days (default: auto, at most about 150 steps).", is_common=True,
            default="auto"),
        option("--chart FILE.svg|FILE.html", "Also draw a chart of the figures into FILE.", PATH, is_common=True),
        *hint_options(),
        level_option(),
        *selection_options(),
        where_option(),
    ],
    help="""Count records, bytes and rows, by object, type or origin; find large and long transactions.

    Compressed records count with their unpacked size. The text output lists the groups, then the time steps, each with
    the named group that has most records (with --rows: most rows). -O json and csv contain every figure; --chart draws
    them. Damage is reported and skipped, as in dump.
    """,
    examples=(
        ("which tables grow, and when", "binlogtool stats /var/lib/mysql/mariadb-bin.000042"),
        ("rows changed per table", "binlogtool stats --rows --top 20 /var/lib/mysql/mariadb-bin.000042"),
        ("large and long transactions", "binlogtool stats --by transaction --top 5 mariadb-bin.000042"),
        ("as a picture", "binlogtool stats --by type --bucket 1h --chart week.svg /var/lib/tarantool"),
        ("for a spreadsheet", "binlogtool stats -O csv --start-datetime -24h transaction.log"),
    ),
)  # fmt: skip
