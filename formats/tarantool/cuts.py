"""Borders between blocks, which hold whole transactions (specification section 3), and the names of spaces there."""

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
    """Any file whose blocks can be walked."""
    return BlockCuts(layout, layout.context) if layout.readable and isinstance(layout.context, FileContext) else None


class BlockCuts(msgspec.Struct):
    """See `formats.cuts.Cutter`."""

    layout: Layout
    context: FileContext

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Behind all blocks. Learns the names of spaces."""
        spaces = integers(batch.records["space_id"], 0, batch.records.count)
        if SPACE in set(spaces):
            for index, space in enumerate(spaces):
                if space == SPACE:
                    learn_space(self.context.spaces, batch, index)
        return behind(batch, batch.frames.count)

    def carried(self) -> dict[str, str]:
        """Names by the id of their space, as text."""
        names = self.context.spaces
        return {str(space): name for space, name in names.items() if name and SYSTEM_SPACES.get(space) != name}

    def resume(self, carried: Any, record: int) -> None:
        """The names are known again."""
        self.context.spaces.update({int(space): name for space, name in carried.items()})

    def damage(self) -> None:
        """Names stay known."""
