"""Split points: borders between blocks, which hold whole transactions, and the space names known there.

Source: `docs/spec/tarantool-xlog.md#22-transactions`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.columns import integers
from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.tarantool.codes import SYSTEM_SPACES
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.meaning import SPACE, learn_space


def cutter(layout: Layout) -> BlockCuts | None:
    """Create the split-point finder of a file; None if its blocks cannot be read."""
    return BlockCuts(layout, layout.context) if layout.readable and isinstance(layout.context, FileContext) else None


class BlockCuts(msgspec.Struct):
    """Split points of one file: every border between blocks (implements `formats.cuts.Cutter`)."""

    layout: Layout
    context: FileContext

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Return the border after the last block of a batch; learn the space names in it."""
        spaces = integers(batch.records["space_id"], 0, batch.records.count)
        if SPACE in set(spaces):
            for index, space in enumerate(spaces):
                if space == SPACE:
                    learn_space(self.context.spaces, batch, index)
        return behind(batch, batch.frames.count)

    def carried(self) -> dict[str, str]:
        """Return the names of user spaces by space id (as text)."""
        names = self.context.spaces
        return {str(space): name for space, name in names.items() if name and SYSTEM_SPACES.get(space) != name}

    def resume(self, carried: Any, record: int) -> None:
        """Restore the space names that were known at the border."""
        self.context.spaces.update({int(space): name for space, name in carried.items()})

    def damage(self) -> None:
        """Ignore a damaged range: space names stay known."""
