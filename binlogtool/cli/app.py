"""The command group `binlogtool`."""

from __future__ import annotations

import click

from binlogtool.cli.command_classes import LazyGroup
from binlogtool.cli.commands import COMMANDS
from binlogtool.cli.options import GLOBAL_NAMES, global_options, option
from binlogtool.cli.run import CommandRun
from binlogtool.cli.settings import GlobalSettings, merge_global_values

HELP = """Inspect, verify and repair database binary logs and write-ahead logs.

PATH is a file, a directory (the files of one log, in order), or - for standard input. Reading never changes an input.
Options may stand before or after the command and its paths.
"""


@click.pass_context
def _run_group(context: click.Context, /, version: bool, **_options: object) -> int | None:
    run: CommandRun = context.obj
    run.settings = GlobalSettings.from_values(merge_global_values(context, GLOBAL_NAMES))
    if version:
        context.exit(run.show_version())
    if context.invoked_subcommand is not None:
        return None
    if run.settings.format == "list":
        return run.list_formats()
    click.echo(context.get_help())
    return 0 if context.resilient_parsing else 2


def build_command_group() -> LazyGroup:
    """Build the command group; commands are imported when they are used."""
    version = option(["-V", "--version"], is_flag=True, help="Show the version; with -v also formats and backends.")
    return LazyGroup(
        name="binlogtool",
        lazy=COMMANDS,
        callback=_run_group,
        params=[*global_options(), version],
        help=HELP,
        invoke_without_command=True,
        result_callback=None,
        context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "BINLOGTOOL"},
    )
