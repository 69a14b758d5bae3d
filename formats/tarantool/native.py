"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import Layout
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.header import HeaderText
from binlogtool.formats.tarantool.layout.layout import FRAME, ROWS, FileContext


def layouts() -> list[Layout]:
    """Return one layout per kind of file."""
    text = HeaderText([], None)
    return [Layout(kind.name, 0, FRAME, rows=ROWS, context=FileContext(kind, text)) for kind in FileKind]
