"""Borders between pages (specification section 5): who begins there skips what goes on, and who ends there reads on."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.base import Batch, Layout
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.wire.description import parse_description
from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import NESTED, RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.events import DESCRIBED
from binlogtool.formats.mariadb_innodb_binlog.layout import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import assembler, columns_of
from binlogtool.formats.mariadb_innodb_binlog.records.records import parse_commit

_UNKNOWN = 1 << 63
_COMMIT = int(RecordType.COMMIT)
_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)


def cutter(layout: Layout) -> PageCuts | None:
    """At level `event` the records are walked all the same: they say where the groups begin."""
    context = layout.context
    if not isinstance(context, FileContext) or context.reserve or not layout.readable:
        return None
    if context.level == "event":
        layout = replace(layout, assemble=assembler(context))
    return PageCuts(layout, context)


class PageCuts(msgspec.Struct):
    """See `formats.cuts.Cutter`.

    The record that goes on over the start of a page belongs to the pages before, which the assembler reads to its end.
    If others are nested in it, or it can be nested itself, the page is no border: who begins there could not tell which
    is which.
    """

    layout: Layout
    context: FileContext
    _place: int = -1
    _stop: int = _UNKNOWN
    _alone: bool = True
    _newest: bytes = b""
    _described: bytes = b""

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
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
        if self.context.level == "event":
            self._learn(batch, None if found is None else found.frames)
        return found

    def _learn(self, batch: Batch, border: int | None) -> None:
        """Follows what the servers that started say of their events."""
        for i, kind in enumerate(batch.frames["type_code"][: batch.frames.count]):
            if i == border:
                self._described = self._newest
            if kind == _COMMIT:
                low, high = int(batch.frames["offset"][i]), int(batch.frames["end"][i])
                self._newest = _description(batch.window[low:high]) or self._newest

    def carried(self) -> str:
        """The FORMAT_DESCRIPTION that holds for the events of groups, as hexadecimal text; pages say what goes on."""
        return self._described.hex()

    def resume(self, carried: Any, record: int) -> None:
        """Records are counted from there."""
        self.context.first_record = record
        if carried:
            self._described = self._newest = bytes.fromhex(carried)
            self.context.shared[DESCRIBED] = parse_description(self._newest)

    def damage(self) -> None:
        """The record before is not known."""
        self._place, self._stop, self._alone = -1, _UNKNOWN, True


def _description(data: memoryview) -> bytes:
    """The FORMAT_DESCRIPTION in a COMMIT record: a server that starts writes it as a group of its own."""
    try:
        commit = parse_commit(data)
        event = data[commit.payload :]
        if commit.references or len(event) < HEADER_SIZE or event[4] != _DESCRIPTION:
            return b""
        return parse_description(event[: int.from_bytes(event[9:13], "little")]).event
    except MalformedError:
        return b""
