"""Borders between records, and the records before them: what one is depends on the two before it (section 4)."""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import Border, Compile, Cutter, Everywhere, behind
from binlogtool.formats.eblob.groups.grouping import Kind, Record, remember
from binlogtool.formats.layouts import Batch, Layout


def cutter(layout: Layout) -> Cutter | None:
    """None where no record can be found."""
    if not layout.readable:
        return None
    return GroupCuts(layout) if layout.context.dialect.grouped else Everywhere(layout)


class GroupCuts(msgspec.Struct):
    """See `formats.cuts.Cutter`."""

    layout: Layout
    _last: tuple[Record, ...] = ()

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Behind all records, also inside a group."""
        context = self.layout.context
        remember(batch, context.tails, context.dialect.byte_order)
        self._last = context.tails.get(batch.first_record + batch.frames.count, ())
        return behind(batch, batch.frames.count)

    def carried(self) -> list[list[Any]]:
        """The last records, with the key as hexadecimal text."""
        return [[*record._replace(key=record.key.hex())] for record in self._last]  # type: ignore[arg-type]

    def resume(self, carried: Any, record: int) -> None:
        """They are those before the next one."""
        self.layout.context.tails[record] = tuple(map(_record, carried))

    def damage(self) -> None:
        """Records tell themselves whether they follow the one before."""


def _record(values: list[Any]) -> Record:
    read = Record(*values)
    return read._replace(kind=Kind(read.kind), key=bytes.fromhex(values[Record._fields.index("key")]))
