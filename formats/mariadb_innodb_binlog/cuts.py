"""Borders between pages (specification section 5): who begins there skips what goes on, and who ends there reads on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from binlogtool.formats.base import Batch, Layout
from binlogtool.formats.cuts import Border, behind
from binlogtool.formats.mariadb_innodb_binlog.assemble import columns_of
from binlogtool.formats.mariadb_innodb_binlog.codes import NESTED
from binlogtool.formats.mariadb_innodb_binlog.layout import FileContext

_UNKNOWN = 1 << 63


def cutter(layout: Layout) -> PageCuts | None:
    """None where events are wanted: they need the groups, which lie over many records."""
    context = layout.context
    usable = isinstance(context, FileContext) and not context.reserve and context.level != "event"
    return PageCuts(context) if usable and layout.readable else None


@dataclass(slots=True)
class PageCuts:
    """See `formats.cuts.Cutter`.

    The record that goes on over the start of a page belongs to the pages before, which the assembler reads to its end.
    If others are nested in it, or it can be nested itself, the page is no border: who begins there could not tell which
    is which.
    """

    context: FileContext
    _place: int = -1
    _stop: int = _UNKNOWN
    _alone: bool = True

    def feed(self, batch: Batch) -> Border | None:
        """The start of the last page where a record begins, unless the one before it has nested ones."""
        if batch.places is None:
            return behind(batch, batch.frames.count)
        found, size = None, self.context.page_size
        columns = columns_of(batch, 0, batch.frames.count, "type_code", "place", "stop", "nested")
        for i, (kind, place, stop, nested) in enumerate(zip(*columns, strict=True)):
            if nested:
                self._alone = False
                continue
            page = place - place % size
            if page > self._place and (self._alone or page >= self._stop):
                found = Border(page, i)
            self._place, self._stop, self._alone = place, stop, kind not in NESTED
        return found

    def carried(self) -> None:
        """Nothing: pages say themselves what goes on in them."""

    def resume(self, carried: Any, record: int) -> None:
        """Records are counted from there."""
        self.context.first_record = record

    def damage(self) -> None:
        """The record before is not known."""
        self._place, self._stop, self._alone = -1, _UNKNOWN, True
