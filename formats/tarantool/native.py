"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.header import HeaderText
from binlogtool.formats.tarantool.layout.layout import FRAME, ROWS, TarantoolContext


def layouts() -> list[LogFileLayout]:
    """Return one layout per kind of file."""
    header_text = HeaderText([], None)
    return [
        LogFileLayout(kind.name, 0, FRAME, rows=ROWS, context=TarantoolContext(kind, header_text)) for kind in FileKind
    ]
