"""Find pages where a log file may be split: the part before reads an open record to its end, the part after skips it.

See docs/spec/mariadb-innodb-binlog.md#5-chunks-and-records.
"""

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
    """Create the finder of split points; level `event` also walks the records, to find where groups begin."""
    context = layout.context
    if not isinstance(context, FileContext) or context.reserve or not layout.readable:
        return None
    if context.level == "event":
        layout = replace(layout, assemble=assembler(context))
    return PageCuts(layout, context, _stated=Stated(history=TableHistory(context.hints.schema, context.earlier)))


class Stated(msgspec.Struct):
    """The FORMAT_DESCRIPTION and the DDL statements that apply at the last split point, and those that came since."""

    description: bytes = b""
    history: TableHistory = msgspec.field(default_factory=TableHistory)
    _since: list[tuple[int, bytes]] = msgspec.field(default_factory=list)

    def take(self, events: bytes) -> None:
        """Add the events of a group."""
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
        """Record that groups are missing, and with them perhaps a DDL statement."""
        self._since = [one for one in self._since if one[0] == _DESCRIPTION] + [(_LOST, b"")]

    def settle(self) -> None:
        """Apply what came since the last split point."""
        for code, data in self._since:
            if code == _LOST:
                self.history.forget()
            elif code == _DESCRIPTION:
                self.description = data
            else:
                self.history.learn(code, memoryview(data))
        self._since.clear()

    def carried(self) -> dict[str, Any]:
        """Return what applies at the last split point, JSON-able."""
        made: dict[str, Any] = {"description": self.description.hex()} if self.description else {}
        if not self.history.is_empty and (declared := self.history.carried()):
            made["declared"] = declared
        return made

    def resume(self, carried: dict[str, Any]) -> None:
        """Restore what `to_carried` returned."""
        self.history.resume(carried.get("declared", ()))
        self.description = bytes.fromhex(carried.get("description", ""))


class PageCuts(msgspec.Struct):
    """Finds pages where a file may be split; see `SplitFinder`.

    A record that continues over the start of a page belongs to the part before, whose assembler reads it to its end.
    If
    others are nested in it, or it may be nested itself, the page is not a split point: a reader that starts there
    could
    not tell the records apart.
    """

    layout: Layout
    context: FileContext
    _place: int = -1
    _stop: int = _UNKNOWN
    _alone: bool = True
    _stated: Stated = msgspec.field(default_factory=lambda: Stated())
    _groups: Groups | None = None

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Return the start of the last page where a record begins, unless the record before it has nested ones."""
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
        """Collect the FORMAT_DESCRIPTION events and DDL statements of the groups in a batch."""
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
        """Return the definitions of tables."""
        history = self._stated.history
        return None if self.context.level != "event" or history.is_empty else history.carried()

    def carried(self) -> Any:
        """Return what the log said of its events and tables before the split point."""
        return self._stated.carried() if self.context.level == "event" else None

    def resume(self, carried: Any, record: int) -> None:
        """Start from carried definitions; records are counted from `record`."""
        self.context.first_record = record
        if isinstance(carried, str):  # written by a version that carried only the description
            carried = {"description": carried} if carried else None
        if carried:
            self._stated.resume(carried)
            self.context.declared = carried.get("declared", ())
            if "description" in carried:
                self.context.shared[DESCRIBED] = parse_description(bytes.fromhex(carried["description"]))

    def damage(self) -> None:
        """Forget the record before the damage."""
        self._place, self._stop, self._alone = -1, _UNKNOWN, True
        self._stated.forget()


def _readable(event: bytes) -> bool:
    """Check if a FORMAT_DESCRIPTION can be parsed."""
    try:
        parse_description(event)
    except MalformedError:
        return False
    return True
