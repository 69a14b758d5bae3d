"""Draw tables with rich. All data is escaped first, and passed as `Text`: no markup, no links."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from binlogtool.report.dump_output_formats import COLUMNS, CellFormatter, RecordEncoder
from binlogtool.terminal.escape_and_fold_text import terminal_columns

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import RecordBlock
    from binlogtool.format_api.encode_json import JsonStyle

_NUMBER_COLUMNS = {"offset", "size", "record", "seq", "records", "bytes", "first_seq", "last_seq"}
_DEFAULT_WIDTH = 120

MAX_CELL_LENGTH = 240
"""Maximum characters of a cell; longer cells are cut (other outputs contain them completely)."""


_MAX_RICH_ROWS = 24
"""Maximum rows of a table that rich draws completely; for larger tables, rich draws a few rows, and all rows are
written in the same columns, in a tenth of the time."""

_MAX_NARROW_WIDTH = 30
"""Columns of at most so many characters are not folded, if the others keep `_MIN_WIDE_WIDTH` each."""
_MIN_WIDE_WIDTH = 16
_SEPARATOR_WIDTH = 3
_DISPENSABLE_COLUMNS = ("size", "record", "origin", "seq", "offset")
"""Columns of records that are left out one after the other where the screen has no room for them."""

_MIN_COLUMN_WIDTH = 10
"""Minimum screen width per column; below it, rich draws all rows, because some columns may have no space at all."""


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
    widths = _measure_columns(rows)
    min_widths = _choose_min_widths(widths) if _fits(widths, console.width) else [0] * len(widths)
    if len(rows) <= _MAX_RICH_ROWS or console.width < _MIN_COLUMN_WIDTH * len(rows[0]):
        console.print(_make_rich_table(rows, min_widths, ascii_only=ascii_only))
        lines = out.getvalue().splitlines()
    else:
        lines = _render_rows_without_rich(rows, min_widths, console, out, ascii_only=ascii_only)
    return "".join(f"{line.rstrip()}\n" for line in lines).encode("utf-8", "backslashreplace")


def _measure_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the longest line of each column."""
    return [max(map(_longest_line, column)) for column in zip(*rows, strict=True)]


def _choose_min_widths(widths: Sequence[int]) -> list[int]:
    return [width if width <= _MAX_NARROW_WIDTH else _MIN_WIDE_WIDTH for width in widths]


def _fits(widths: Sequence[int], columns: int) -> bool:
    """Return True if narrow columns of these widths need not be folded."""
    return sum(_choose_min_widths(widths)) + _SEPARATOR_WIDTH * len(widths) <= columns


def _make_rich_table(rows: Sequence[Sequence[str]], min_widths: Sequence[int], *, ascii_only: bool) -> Table:
    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False)
    for name, min_width in zip(rows[0], min_widths, strict=True):
        justify: Literal["left", "right"] = "right" if name in _NUMBER_COLUMNS else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", min_width=min_width or None)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _render_rows_without_rich(
    rows: Sequence[Sequence[str]], min_widths: Sequence[int], console: Console, out: io.StringIO, *, ascii_only: bool
) -> Iterator[str]:
    """Yield the lines of a table; rich draws only the rows that determine the column widths."""
    names, columns = rows[0], list(zip(*rows[1:], strict=True))
    widest = [max(column, key=_longest_line) for column in columns]
    wordiest = [max(column, key=_longest_word) for column in columns]
    table = _make_rich_table([names, widest, wordiest], min_widths, ascii_only=ascii_only)
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
    """Return True if a table of these texts, heading first, has space for the longest line of every column."""
    return sum(width + _SEPARATOR_WIDTH for width in _measure_columns(rows)) <= _table_width()


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
    """Return the width of the terminal; other outputs have a fixed width."""
    if "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty()):
        return max(40, terminal_columns())
    return _DEFAULT_WIDTH


class ScreenTableWriter(RecordEncoder):
    """Writer of `dump -O table`: one table per block."""

    def __init__(self, style: JsonStyle, *, columns: tuple[str, ...], ascii_only: bool = False) -> None:
        self._cells = CellFormatter(style)
        self._is_default = set(columns) in ({*COLUMNS}, {*COLUMNS} - {"offset", "size"})
        self._columns = tuple(c for c in columns if c not in ("file", "checksum")) if self._is_default else columns
        self._ascii = ascii_only

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the table of one block."""
        more = "..." if self._ascii else "…"
        rows = [
            [_format_cell(value, name, more) for name, value in zip(self._columns, row, strict=True)]
            for row in self._cells.format_rows(block, self._columns)
        ]
        table = [list(self._columns), *rows]
        return render_table(_fit_table_to_screen(table) if self._is_default else table, ascii_only=self._ascii)


def _fit_table_to_screen(rows: list[list[str]]) -> list[list[str]]:
    """Leave out empty columns, and on a narrow screen the least informative ones; date and time then take two lines."""
    rows = _select_columns(rows, [any(row[i] for row in rows[1:]) for i in range(len(rows[0]))])
    columns = _table_width()
    for name in _DISPENSABLE_COLUMNS:
        if _fits(_measure_columns(rows), columns):
            return rows
        if name == "offset" and "time" in rows[0]:
            place = rows[0].index("time")
            rows = [[text.replace("T", "\n", 1) if i == place else text for i, text in enumerate(row)] for row in rows]
            if _fits(_measure_columns(rows), columns):
                return rows
        if name != "seq" or "txn" in rows[0]:
            rows = _select_columns(rows, [one != name for one in rows[0]])
    return rows


def _select_columns(rows: list[list[str]], is_selected: Sequence[bool]) -> list[list[str]]:
    return [[text for text, chosen in zip(row, is_selected, strict=True) if chosen] for row in rows]


def _format_cell(value: object, name: str, more: str) -> str:
    text = f"0x{value:08x}" if name == "offset" else str(value)
    if name == "time":
        text = text.replace(".000000Z", "Z")
    return text if len(text) <= MAX_CELL_LENGTH else f"{text[: MAX_CELL_LENGTH - len(more)]}{more}"
