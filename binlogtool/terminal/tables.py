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

from binlogtool.core.record_selection import RecordBlock
from binlogtool.format_api.json_values import JsonStyle
from binlogtool.report.dump import COLUMNS, CellFormatter
from binlogtool.terminal.escape import terminal_columns

_NUMBER_COLUMNS = {"offset", "size", "record", "seq", "records", "bytes", "first_seq", "last_seq"}
_DEFAULT_WIDTH = 120

MAX_CELL_LENGTH = 240
"""Longer cells are cut to so many characters (other outputs have them whole)."""


_MAX_RICH_ROWS = 24
"""Tables of at most so many rows are drawn by rich; of larger ones rich draws a few rows, and all are written in the
same columns, in a tenth of the time.
"""

_MIN_COLUMN_WIDTH = 10
"""With fewer characters of the screen per column rich draws all rows: some columns may have no space at all."""


def render_table(rows: Sequence[Sequence[str]], *, ascii_only: bool = False, width: int | None = None) -> bytes:
    """Render rows of escaped text, the heading first, as a table."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width or _table_width(),
        color_system=None,
        force_terminal=False,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    lines: Iterable[str]
    if len(rows) <= _MAX_RICH_ROWS or console.width < _MIN_COLUMN_WIDTH * len(rows[0]):
        console.print(_make_rich_table(rows, ascii_only=ascii_only))
        lines = out.getvalue().splitlines()
    else:
        lines = _render_many_rows(rows, console, out, ascii_only=ascii_only)
    return "".join(f"{line.rstrip()}\n" for line in lines).encode("utf-8", "backslashreplace")


def _make_rich_table(rows: Sequence[Sequence[str]], *, ascii_only: bool) -> Table:
    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        table.add_column(Text(name), justify="right" if name in _NUMBER_COLUMNS else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _render_many_rows(
    rows: Sequence[Sequence[str]], console: Console, out: io.StringIO, *, ascii_only: bool
) -> Iterator[str]:
    """Yield the lines of a table of which rich draws only the rows that determine the column widths."""
    names, columns = rows[0], list(zip(*rows[1:], strict=True))
    widest = [max(column, key=_longest_line) for column in columns]
    wordiest = [max(column, key=_longest_word) for column in columns]
    table = _make_rich_table([names, widest, wordiest], ascii_only=ascii_only)
    options = console.options.update_width(console.width - table._extra_width)
    paddings = [(i > 0) + (i + 1 < len(names)) for i in range(len(names))]
    widths = [
        width - padding
        for width, padding in zip(table._calculate_column_widths(console, options), paddings, strict=True)
    ]
    console.print(table)
    lines = out.getvalue().splitlines()
    body_lines = sum(max(len(_fold_cell(cell, width, console)) for cell, width in zip(row, widths, strict=True))
               for row in (widest, wordiest))  # fmt: skip
    yield from lines[: len(lines) - body_lines - 1]
    edge = "|" if ascii_only else " "
    right = [name in _NUMBER_COLUMNS for name in names]
    for row in rows[1:]:
        cells = [_fold_cell(cell, width, console) for cell, width in zip(row, widths, strict=True)]
        for line_index in range(max(map(len, cells))):
            parts = (
                _pad_cell(cell[line_index] if line_index < len(cell) else "", width, right=to_right)
                for cell, width, to_right in zip(cells, widths, right, strict=True)
            )
            yield edge + f" {edge} ".join(parts) + edge
    yield lines[-1]


def fits_as_table(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a table of these texts, the heading first, has room for the longest line of every column."""
    widths = (max(map(_longest_line, column)) for column in zip(*rows, strict=True))
    return sum(width + 3 for width in widths) <= _table_width()


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _fold_cell(text: str, width: int, console: Console) -> list[str]:
    """Return the lines of a cell."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return [text]
    return [line.plain for line in Text(text).wrap(console, width, overflow="fold")] or [""]


def _pad_cell(text: str, width: int, *, right: bool) -> str:
    text = text.rstrip() if right else text
    blank = " " * (width - cell_len(text))
    return blank + text if right else text + blank


def _table_width() -> int:
    """Return the width of the terminal; other outputs have a fixed one."""
    if "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty()):
        return max(40, terminal_columns())
    return _DEFAULT_WIDTH


class ScreenTableWriter:
    """Write `dump -O table`: one table per block."""

    def __init__(self, style: JsonStyle, *, columns: tuple[str, ...], ascii_only: bool = False) -> None:
        self._cells = CellFormatter(style)
        self._columns = tuple(c for c in columns if c not in ("file", "checksum")) if columns == COLUMNS else columns
        self._ascii = ascii_only

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the table of one block."""
        more = "..." if self._ascii else "…"
        rows = [
            [_format_cell(value, name, more) for name, value in zip(self._columns, row, strict=True)]
            for row in self._cells.format_rows(block, self._columns)
        ]
        return render_table([list(self._columns), *rows], ascii_only=self._ascii)

    def finish(self) -> bytes:
        """Return nothing."""
        return b""


def _format_cell(value: object, name: str, more: str) -> str:
    text = f"0x{value:08x}" if name == "offset" else str(value)
    return text if len(text) <= MAX_CELL_LENGTH else f"{text[: MAX_CELL_LENGTH - len(more)]}{more}"
