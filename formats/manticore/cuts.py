"""Split points: borders between transactions, and the table names that ADD_INDEX gave before them."""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import KernelCompiler, SplitPoint, split_after
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.manticore.layout import ManticoreLogContext
from binlogtool.formats.manticore.meaning import learn_table_names


def create_split_points(layout: LogFileLayout) -> TransactionSplitPoints | None:
    """Create the split-point finder of a log file; None for a meta file."""
    context = layout.context
    return (
        TransactionSplitPoints(layout, context)
        if layout.readable and isinstance(context, ManticoreLogContext)
        else None
    )


class TransactionSplitPoints(msgspec.Struct):
    """Split points of one file: every border between transactions (implements `formats.cuts.SplitFinder`)."""

    layout: LogFileLayout
    context: ManticoreLogContext

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the border after the last transaction of a batch; learn the table names in it."""
        learn_table_names(self.context, batch, batch.frames.count)
        return split_after(batch, batch.frames.count)

    def export_state(self) -> dict[str, str]:
        """Return the table names, in hexadecimal, by table id (as text)."""
        return {str(number): name.hex() for number, name in self.context.names.items()}

    def resume(self, state: Any, record: int) -> None:
        """Restore the table names that were known at the border."""
        self.context.names.update({int(number): bytes.fromhex(name) for number, name in state.items()})
        self.context.described = record

    def skip_damage(self) -> None:
        """Ignore a damaged range: table names stay known."""
