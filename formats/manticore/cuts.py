"""Split points: borders between transactions, and the table names that ADD_INDEX gave before them."""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.manticore.layout import LogContext
from binlogtool.formats.manticore.meaning import learn_names


def cutter(layout: Layout) -> TableCuts | None:
    """Create the split-point finder of a log file; None for a meta file."""
    context = layout.context
    return TableCuts(layout, context) if layout.readable and isinstance(context, LogContext) else None


class TableCuts(msgspec.Struct):
    """Split points of one file: every border between transactions (implements `formats.cuts.Cutter`)."""

    layout: Layout
    context: LogContext

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Return the border after the last transaction of a batch; learn the table names in it."""
        learn_names(self.context, batch, batch.frames.count)
        return behind(batch, batch.frames.count)

    def carried(self) -> dict[str, str]:
        """Return the table names, in hexadecimal, by table id (as text)."""
        return {str(number): name.hex() for number, name in self.context.names.items()}

    def resume(self, carried: Any, record: int) -> None:
        """Restore the table names that were known at the border."""
        self.context.names.update({int(number): bytes.fromhex(name) for number, name in carried.items()})
        self.context.described = record

    def damage(self) -> None:
        """Ignore a damaged range: table names stay known."""
