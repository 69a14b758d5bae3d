"""`binlogtool help`: show the help of a command, as `COMMAND --help` does."""

from __future__ import annotations

import click

from binlogtool.cli import options
from binlogtool.cli.command import Command, CommandRun, print_help
from binlogtool.cli.command_table import COMMANDS
from binlogtool.errors import unknown_name_error


def _run_help(run: CommandRun, name: str | None) -> int:
    context = click.get_current_context()
    group = context.find_root()
    if name is None:
        print_help(group, is_full=True)
        return 0
    if name not in COMMANDS:
        raise unknown_name_error("command", name, COMMANDS)
    assert isinstance(group.command, click.Group)
    command = group.command.get_command(group, name)
    assert command is not None
    print_help(click.Context(command, info_name=name, parent=group, obj=run), is_full=True)
    return 0


command = Command(
    "help",
    callback=_run_help,
    outputs=(),
    params=[
        click.Argument(["name"], required=False, metavar="[COMMAND]", shell_complete=options.complete_command_name)
    ],
    help="Show the help of a command, or of binlogtool, with the global options.",
    examples=(("one command", "binlogtool help verify"),),
)
