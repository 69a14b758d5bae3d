"""Tables drawn by rich. All data is escaped before, and passed as `Text`: no markup, no links."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
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


_FEW_ROWS = 24
"""Rows that rich draws alone; of more it draws a few, and all are put into the same columns, in a tenth of the time."""

_LEAST_COLUMN = 10
"""Characters of the screen for each column below which rich draws all rows: some columns may have no room at all."""


def table_bytes(rows: Sequence[Sequence[str]], *, ascii_only: bool = False, width: int | None = None) -> bytes:
    """Render rows of escaped text, the heading first, as a table."""
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
    lines: Iterable[str]
    if len(rows) <= _FEW_ROWS or console.width < _LEAST_COLUMN * len(rows[0]):
        console.print(_drawn(rows, ascii_only=ascii_only))
        lines = out.getvalue().splitlines()
    else:
        lines = _many_rows(rows, console, out, ascii_only=ascii_only)
    return "".join(f"{line.rstrip()}\n" for line in lines).encode("utf-8", "backslashreplace")


def _drawn(rows: Sequence[Sequence[str]], *, ascii_only: bool) -> Table:
    drawn = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        drawn.add_column(Text(name), justify="right" if name in _NUMBERS else "left", overflow="fold")
    for row in rows[1:]:
        drawn.add_row(*map(Text, row))
    return drawn


def _many_rows(rows: Sequence[Sequence[str]], console: Console, out: io.StringIO, *, ascii_only: bool) -> Iterator[str]:
    """Yield the lines of a table of which rich draws only the rows that determine the column widths."""
    names, columns = rows[0], list(zip(*rows[1:], strict=True))
    widest = [max(column, key=_longest_line) for column in columns]
    wordiest = [max(column, key=_longest_word) for column in columns]
    drawn = _drawn([names, widest, wordiest], ascii_only=ascii_only)
    options = console.options.update_width(console.width - drawn._extra_width)
    paddings = [(i > 0) + (i + 1 < len(names)) for i in range(len(names))]
    widths = [
        width - padding
        for width, padding in zip(drawn._calculate_column_widths(console, options), paddings, strict=True)
    ]
    console.print(drawn)
    lines = out.getvalue().splitlines()
    some = sum(max(len(_folded(cell, width, console)) for cell, width in zip(row, widths, strict=True))
               for row in (widest, wordiest))  # fmt: skip
    yield from lines[: len(lines) - some - 1]
    edge = "|" if ascii_only else " "
    right = [name in _NUMBERS for name in names]
    for row in rows[1:]:
        cells = [_folded(cell, width, console) for cell, width in zip(row, widths, strict=True)]
        for at in range(max(map(len, cells))):
            parts = (
                _padded(cell[at] if at < len(cell) else "", width, right=to_right)
                for cell, width, to_right in zip(cells, widths, right, strict=True)
            )
            yield edge + f" {edge} ".join(parts) + edge
    yield lines[-1]


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _folded(text: str, width: int, console: Console) -> list[str]:
    """Return the lines of a cell."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return [text]
    return [line.plain for line in Text(text).wrap(console, width, overflow="fold")] or [""]


def _padded(text: str, width: int, *, right: bool) -> str:
    text = text.rstrip() if right else text
    blank = " " * (width - cell_len(text))
    return blank + text if right else text + blank


def _width() -> int:
    """Return the width of the terminal; other outputs have a fixed one."""
    if "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty()):
        return max(40, columns())
    return _WIDTH


class TableWriter:
    """Write `dump -O table`: one table per block."""

    def __init__(self, style: Style, *, columns: tuple[str, ...], ascii_only: bool = False) -> None:
        self._cells = CellMaker(style)
        self._columns = tuple(c for c in columns if c not in ("file", "checksum")) if columns == COLUMNS else columns
        self._ascii = ascii_only

    def block(self, block: Block) -> bytes:
        """Return the table of one block."""
        more = "..." if self._ascii else "…"
        rows = [
            [_shown(value, name, more) for name, value in zip(self._columns, row, strict=True)]
            for row in self._cells.rows(block, self._columns)
        ]
        return table_bytes([list(self._columns), *rows], ascii_only=self._ascii)

    def end(self) -> bytes:
        """Return nothing."""
        return b""


def _shown(value: object, name: str, more: str) -> str:
    text = f"0x{value:08x}" if name == "offset" else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - len(more)]}{more}"
