"""`binlogtool stats`: count records and bytes over time, as figures and as a chart."""

from __future__ import annotations

from typing import Any

import click

from binlogtool.cli.command_classes import Command
from binlogtool.cli.dump import parts, tell
from binlogtool.cli.options import PATH, hint_options, level_option, o, selection_options, where_option
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints, list_types, selection, split


def _stats(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    from binlogtool.report import series

    chosen, o = split(options)
    if chosen["type"] == ("list",):
        return list_types(run, paths)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    forms = {"text": series.series_text, "json": series.series_json, "csv": series.series_csv}
    form = run.settings.choose(tuple(forms))
    found = _counted(run, paths, selection(chosen, on_damage="skip"), o)
    run.say_left()
    if o["chart"] is not None:
        title = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        run.save(o["chart"], _drawn(o["chart"], found, title), inputs=paths)
    with run.output(text=form == "text", inputs=paths) as out:
        out.write(forms[form](found))
    return run.status


def _drawn(name: str, found: Any, title: str) -> bytes:
    """Render the chart in the format that the file name asks for."""
    from binlogtool.report.chart import chart
    from binlogtool.report.chart_page import chart_page

    return (chart_page if name.lower().endswith((".html", ".htm")) else chart)(found, title)


def _counted(run: Run, paths: tuple[str, ...], wanted: Any, o: dict[str, Any]) -> Any:
    from binlogtool.log.records import Block, Trouble
    from binlogtool.report.series import Series

    series = Series(o["by"], o["bucket"])
    known = hints(o, wanted)
    for part in parts(run, paths, lambda log: log.blocks(wanted, decode="frame"), known, wanted):
        if isinstance(part, Block):
            series.block(part)
        elif isinstance(part, Trouble):
            tell(run, part)
    return series.end()


command = Command(
    "stats",
    callback=_stats,
    outputs=("text", "json", "csv"),
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(
            ["--by"],
            type=click.Choice(["object", "type", "origin"]),
            default="object",
            help="What is counted apart (default: object).",
        ),
        o(
            ["--bucket"],
            type=click.Choice(["auto", "1m", "1h", "1d"]),
            default="auto",
            help="Steps of time, in UTC: minutes, hours or days (default: auto, at most about 150 steps).",
        ),
        o(["--chart"], type=PATH, metavar="FILE.svg|FILE.html", help="Draw the figures into FILE, too."),
        *hint_options(),
        level_option(),
        *selection_options(),
        where_option(),
    ],
    help="""Count records and bytes over time, by object, type or origin.

    Bytes are those of the records in the log. Text is for reading: the groups, then the steps of time, each with the
    group that has most records in it. Every figure is in json and csv (-O). --chart draws them as SVG, or as a page
    with the figures. Damage is told and passed over, as in dump.
    """,
    examples=(
        ("which tables grow, and when", "binlogtool stats /var/lib/mysql/mariadb-bin.000042"),
        ("as a picture", "binlogtool stats --by type --bucket 1h --chart week.svg /var/lib/tarantool"),
        ("for a spreadsheet", "binlogtool stats -O csv --start-datetime -24h transaction.log"),
    ),
)
