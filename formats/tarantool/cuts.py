"""Split points: borders between blocks, which hold whole transactions, and the space names known there.

Source: `docs/spec/tarantool.md#transactions`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.columns import to_int_list
from binlogtool.formats.cuts import KernelCompiler, SplitPoint, split_after
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.tarantool.codes import SYSTEM_SPACES
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.meaning import BOX_SPACE_ID, learn_space_name


def create_split_points(layout: LogFileLayout) -> BlockSplitPoints | None:
    """Create the split-point finder of a file; None if its blocks cannot be read."""
    return (
        BlockSplitPoints(layout, layout.context)
        if layout.readable and isinstance(layout.context, TarantoolContext)
        else None
    )


class BlockSplitPoints(msgspec.Struct):
    """Split points of one file: every border between blocks (implements `formats.cuts.SplitFinder`)."""

    layout: LogFileLayout
    context: TarantoolContext

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the border after the last block of a batch; learn the space names in it."""
        spaces = to_int_list(batch.records["space_id"], 0, batch.records.count)
        if BOX_SPACE_ID in set(spaces):
            for index, space in enumerate(spaces):
                if space == BOX_SPACE_ID:
                    learn_space_name(self.context.spaces, batch, index)
        return split_after(batch, batch.frames.count)

    def export_state(self) -> dict[str, str]:
        """Return the names of user spaces by space id (as text)."""
        names = self.context.spaces
        return {str(space): name for space, name in names.items() if name and SYSTEM_SPACES.get(space) != name}

    def resume(self, state: Any, record: int) -> None:
        """Restore the space names that were known at the border."""
        self.context.spaces.update({int(space): name for space, name in state.items()})

    def skip_damage(self) -> None:
        """Ignore a damaged range: space names stay known."""
