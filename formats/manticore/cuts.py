"""Borders between transactions, and the names of tables that ADD_INDEX gave before them."""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.manticore.layout import LogContext
from binlogtool.formats.manticore.meaning import learn_names


def cutter(layout: Layout) -> TableCuts | None:
    """None for a meta file."""
    context = layout.context
    return TableCuts(layout, context) if layout.readable and isinstance(context, LogContext) else None


class TableCuts(msgspec.Struct):
    """See `formats.cuts.Cutter`."""

    layout: Layout
    context: LogContext

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Behind all transactions. Learns the names of tables."""
        learn_names(self.context, batch, batch.frames.count)
        return behind(batch, batch.frames.count)

    def carried(self) -> dict[str, str]:
        """Names by the id of their table, as hexadecimal text."""
        return {str(number): name.hex() for number, name in self.context.names.items()}

    def resume(self, carried: Any, record: int) -> None:
        """The names are known again."""
        self.context.names.update({int(number): bytes.fromhex(name) for number, name in carried.items()})
        self.context.described = record

    def damage(self) -> None:
        """Names stay known."""
