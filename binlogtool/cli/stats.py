"""`binlogtool stats`: count records and bytes over time, as figures and as a chart."""

from __future__ import annotations

from typing import Any

import click

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
    selection_options,
    split_selection,
    where_option,
)


def _run_stats(run: CommandRun, paths: tuple[str, ...], **options: Any) -> int:
    from binlogtool.report import stats

    selection_values, command_options = split_selection(options)
    if selection_values["type"] == ("list",):
        return print_record_types(run, paths)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    forms = {"text": stats.encode_series_text, "json": stats.encode_series_json, "csv": stats.encode_series_csv}
    form = run.settings.choose_output_format(tuple(forms))
    figures = _count_records(run, paths, build_selection(selection_values, on_damage="skip"), command_options)
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
    log_hints = pop_hints(command_options, record_selection)
    for part in read_parts(
        run, paths, lambda log: log.blocks(record_selection, decode="frame"), log_hints, record_selection
    ):
        if isinstance(part, RecordBlock):
            series.encode_block(part)
        elif isinstance(part, FileFinding):
            report_trouble(run, part)
    return series.finish()


command = Command(
    "stats",
    callback=_run_stats,
    outputs=("text", "json", "csv"),
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option(
            ["--by"],
            is_common=True,
            type=click.Choice(["object", "type", "origin"]),
            default="object",
            help="Group by object, type or origin (default: object).",
        ),
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
    help="""Count records and bytes over time, by object, type or origin.

    Bytes are those of the records in the log. The text output lists the groups, then the time steps, each with the
    group that has most records in it. -O json and csv contain every figure. --chart draws them as SVG, or as a page
    with the figures. Damage is reported and skipped, as in dump.
    """,
    examples=(
        ("which tables grow, and when", "binlogtool stats /var/lib/mysql/mariadb-bin.000042"),
        ("as a picture", "binlogtool stats --by type --bucket 1h --chart week.svg /var/lib/tarantool"),
        ("for a spreadsheet", "binlogtool stats -O csv --start-datetime -24h transaction.log"),
    ),
)
