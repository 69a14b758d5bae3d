"""Find offsets where a log file may be split, and carry the records before them: a record's kind depends on two
others.

See docs/spec/eblob.md#records.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.cuts import EveryFrameSplitFinder, KernelCompiler, SplitFinder, SplitPoint, split_after
from binlogtool.formats.eblob.groups.grouping import EblobRecord, EblobRecordKind, remember_last_records
from binlogtool.formats.layouts import Batch, LogFileLayout


def make_split_point_finder(layout: LogFileLayout) -> SplitFinder | None:
    """Create the finder of split points; None if no record can be found."""
    if not layout.readable:
        return None
    return EblobSplitPoints(layout) if layout.context.dialect.is_grouped else EveryFrameSplitFinder(layout)


class EblobSplitPoints(msgspec.Struct):
    """Finds split points of grouped dialects; see `SplitFinder`."""

    layout: LogFileLayout
    _last_records: tuple[EblobRecord, ...] = ()

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the end of all records, even inside a group."""
        context = self.layout.context
        remember_last_records(batch, context.last_records, context.dialect.byte_order)
        self._last_records = context.last_records.get(batch.first_record + batch.frames.count, ())
        return split_after(batch, batch.frames.count)

    def export_state(self) -> list[list[Any]]:
        """Return the last records, with the key as hexadecimal text."""
        return [[*record._replace(key=record.key.hex())] for record in self._last_records]  # type: ignore[arg-type]

    def resume(self, state: Any, record: int) -> None:
        """Restore the records before record `record`."""
        self.layout.context.last_records[record] = tuple(map(_restore_record, state))

    def skip_damage(self) -> None:
        """Do nothing: records show themselves whether they follow the one before."""


def _restore_record(values: list[Any]) -> EblobRecord:
    restored = EblobRecord(*values)
    return restored._replace(
        kind=EblobRecordKind(restored.kind), key=bytes.fromhex(values[EblobRecord._fields.index("key")])
    )
