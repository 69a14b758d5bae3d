"""Hexdump options from the command line and the width of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from binlogtool.cli.destination import OutputDestination
from binlogtool.cli.run import CommandRun

if TYPE_CHECKING:
    from binlogtool.render.hexdump import HexdumpOptions


def hexdump_options(
    run: CommandRun, command_options: dict[str, Any], out: OutputDestination, used_columns: int = 0
) -> HexdumpOptions:
    """Return the options for drawing lines. used_columns: columns of a line that are already used."""
    from binlogtool.render.hexdump import HexdumpOptions, choose_width

    columns = None if out.columns is None else out.columns - used_columns
    return HexdumpOptions(
        width=command_options["width"] or choose_width(columns, command_options["base"]),
        columns=columns,
        group=int(command_options["group"]),
        base=command_options["base"],
        depth=command_options["depth"],
        squeeze=not command_options["no_squeeze"],
        border=command_options["border"] or ("ascii" if out.ascii else "unicode"),
        color=run.use_colour(out),
    )
