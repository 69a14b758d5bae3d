"""Find offsets where a log file may be split, and carry the records before them: a record's kind depends on two
others.

See docs/spec/eblob-binlog.md#4-record-dialect-b-the-final-one-since-2012-12-22-commit-4616601.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import Border, Compile, Cutter, Everywhere, behind
from binlogtool.formats.eblob.groups.grouping import Kind, Record, remember
from binlogtool.formats.layouts import Batch, Layout


def cutter(layout: Layout) -> Cutter | None:
    """Create the finder of split points; None if no record can be found."""
    if not layout.readable:
        return None
    return GroupCuts(layout) if layout.context.dialect.grouped else Everywhere(layout)


class GroupCuts(msgspec.Struct):
    """Finds split points of grouped dialects; see `SplitFinder`."""

    layout: Layout
    _last: tuple[Record, ...] = ()

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Return the end of all records, even inside a group."""
        context = self.layout.context
        remember(batch, context.tails, context.dialect.byte_order)
        self._last = context.tails.get(batch.first_record + batch.frames.count, ())
        return behind(batch, batch.frames.count)

    def carried(self) -> list[list[Any]]:
        """Return the last records, with the key as hexadecimal text."""
        return [[*record._replace(key=record.key.hex())] for record in self._last]  # type: ignore[arg-type]

    def resume(self, carried: Any, record: int) -> None:
        """Restore the records before record `record`."""
        self.layout.context.tails[record] = tuple(map(_record, carried))

    def damage(self) -> None:
        """Do nothing: records show themselves whether they follow the one before."""


def _record(values: list[Any]) -> Record:
    read = Record(*values)
    return read._replace(kind=Kind(read.kind), key=bytes.fromhex(values[Record._fields.index("key")]))
