"""Tables drawn by rich. Everything from data is escaped before, and handed over as `Text`: no markup, no links."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from binlogtool.log.plain import Style
from binlogtool.log.records import Block
from binlogtool.render.screen import columns
from binlogtool.report.dump import COLUMNS, CellMaker

_NUMBERS = {"offset", "size", "record", "seq", "records", "bytes", "first_seq", "last_seq"}
_WIDTH = 120

LONGEST = 240
"""Characters of a cell; longer ones are cut (other outputs have them whole)."""


def table_bytes(rows: Sequence[Sequence[str]], *, ascii_only: bool = False, width: int | None = None) -> bytes:
    """Rows of escaped text, the heading first, as a drawn table."""
    drawn = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        drawn.add_column(Text(name), justify="right" if name in _NUMBERS else "left", overflow="fold")
    for row in rows[1:]:
        drawn.add_row(*map(Text, row))
    out = io.StringIO()
    console = Console(
        file=out,
        width=width or _width(),
        color_system=None,
        force_terminal=False,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()).encode("utf-8", "backslashreplace")


def _width() -> int:
    """Of the terminal; other outputs have room."""
    if "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty()):
        return max(40, columns())
    return _WIDTH


class TableWriter:
    """`dump -O table`: one table per block."""

    def __init__(self, style: Style, *, columns: tuple[str, ...], ascii_only: bool = False) -> None:
        self._cells = CellMaker(style)
        self._columns = tuple(c for c in columns if c not in ("file", "checksum")) if columns == COLUMNS else columns
        self._ascii = ascii_only

    def block(self, block: Block) -> bytes:
        """The table of one block."""
        more = "..." if self._ascii else "…"
        rows = [
            [_shown(value, name, more) for name, value in zip(self._columns, row, strict=True)]
            for row in self._cells.rows(block, self._columns)
        ]
        return table_bytes([list(self._columns), *rows], ascii_only=self._ascii)

    def end(self) -> bytes:
        """Nothing."""
        return b""


def _shown(value: object, name: str, more: str) -> str:
    text = f"0x{value:08x}" if name == "offset" else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - len(more)]}{more}"
