"""Hexdump options from the command line and the width of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from binlogtool.cli.destination import Output
from binlogtool.cli.run import Run

if TYPE_CHECKING:
    from binlogtool.render.hexdump import HexdumpOptions


def drawing(run: Run, o: dict[str, Any], out: Output, before: int = 0) -> HexdumpOptions:
    """Return the options for drawing lines. before: columns of a line that are already used."""
    from binlogtool.render.hexdump import HexdumpOptions, fitting_width

    columns = None if out.columns is None else out.columns - before
    return HexdumpOptions(
        width=o["width"] or fitting_width(columns, o["base"]),
        columns=columns,
        group=int(o["group"]),
        base=o["base"],
        depth=o["depth"],
        squeeze=not o["no_squeeze"],
        border=o["border"] or ("ascii" if out.ascii else "unicode"),
        color=run.colour(out),
    )
