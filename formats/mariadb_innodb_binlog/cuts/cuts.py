"""Borders between pages (specification section 5): who begins there skips what goes on, and who ends there reads on."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.wire.description import parse_description
from binlogtool.formats.binlog_events.wire.header import END_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import NESTED, RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.events import DESCRIBED
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import Groups
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import assembler, columns_of
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext

_UNKNOWN = 1 << 63
_COMMIT = int(RecordType.COMMIT)
_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_LOST = -1


def cutter(layout: Layout) -> PageCuts | None:
    """At level `event` the records are walked all the same: they say where the groups begin."""
    context = layout.context
    if not isinstance(context, FileContext) or context.reserve or not layout.readable:
        return None
    if context.level == "event":
        layout = replace(layout, assemble=assembler(context))
    return PageCuts(layout, context, _stated=Stated(history=TableHistory(context.hints.schema, context.earlier)))


class Stated(msgspec.Struct):
    """What the events of groups say of those behind them: the FORMAT_DESCRIPTION that holds, and statements about
    tables; as it is at the last border, and what came since."""

    description: bytes = b""
    history: TableHistory = msgspec.field(default_factory=TableHistory)
    _since: list[tuple[int, bytes]] = msgspec.field(default_factory=list)

    def take(self, events: bytes) -> None:
        """The events of a group."""
        at = 0
        while len(events) - at >= HEADER_SIZE:
            code, size = events[at + TYPE_AT], int.from_bytes(events[at + SIZE_AT : at + END_AT], "little")
            if not HEADER_SIZE <= size <= len(events) - at:
                return self.forget()
            if code == EventType.QUERY_COMPRESSED or (
                code == EventType.QUERY and may_declare(events, at + HEADER_SIZE, at + size)
            ):
                self._since.append((code, events[at + HEADER_SIZE : at + size]))
            elif code == _DESCRIPTION and _readable(events[at : at + size]):
                self._since.append((code, events[at : at + size]))
            at += size
        return None

    def forget(self) -> None:
        """Groups are missing, and with them perhaps a statement."""
        self._since = [one for one in self._since if one[0] == _DESCRIPTION] + [(_LOST, b"")]

    def settle(self) -> None:
        """A border: what came since the last one holds."""
        for code, data in self._since:
            if code == _LOST:
                self.history.forget()
            elif code == _DESCRIPTION:
                self.description = data
            else:
                self.history.learn(code, memoryview(data))
        self._since.clear()

    def carried(self) -> dict[str, Any]:
        """What holds at the last border."""
        made: dict[str, Any] = {"description": self.description.hex()} if self.description else {}
        if not self.history.is_empty and (declared := self.history.carried()):
            made["declared"] = declared
        return made

    def resume(self, carried: dict[str, Any]) -> None:
        """It holds again."""
        self.history.resume(carried.get("declared", ()))
        self.description = bytes.fromhex(carried.get("description", ""))


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
    _stated: Stated = msgspec.field(default_factory=lambda: Stated())
    _groups: Groups | None = None

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
        """Follows what the servers that started say of their events, and what statements say of tables."""
        self._groups = self._groups or Groups(self.context)
        for i, kind in enumerate(batch.frames["type_code"][: batch.frames.count]):
            if i == border:
                self._stated.settle()
            if kind == _COMMIT:
                group = self._groups.at(batch, i)
                if isinstance(group, Finding):
                    self._stated.forget()
                else:
                    self._stated.take(group.data)

    def carried_over(self) -> Any:
        """The definitions of tables."""
        history = self._stated.history
        return None if self.context.level != "event" or history.is_empty else history.carried()

    def carried(self) -> Any:
        """What the log said of its events and tables before the border; pages say what goes on."""
        return self._stated.carried() if self.context.level == "event" else None

    def resume(self, carried: Any, record: int) -> None:
        """Records are counted from there."""
        self.context.first_record = record
        if isinstance(carried, str):  # of a version that carried nothing else
            carried = {"description": carried} if carried else None
        if carried:
            self._stated.resume(carried)
            self.context.declared = carried.get("declared", ())
            if "description" in carried:
                self.context.shared[DESCRIBED] = parse_description(bytes.fromhex(carried["description"]))

    def damage(self) -> None:
        """The record before is not known."""
        self._place, self._stop, self._alone = -1, _UNKNOWN, True
        self._stated.forget()


def _readable(event: bytes) -> bool:
    """Is it a FORMAT_DESCRIPTION that says something?"""
    try:
        parse_description(event)
    except MalformedError:
        return False
    return True
