"""Find pages where a log file may be split: the part before reads an open record to its end, the part after skips it.

See docs/spec/mariadb_innodb_binlog.md#chunks-and-records.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.ddl.kernels import is_possible_ddl
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.wire.description import parse_description
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, TYPE_AT
from binlogtool.formats.cuts import KernelCompiler, SplitPoint, split_after
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.mariadb_innodb_binlog.codes import NESTABLE_TYPES, IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.events import DESCRIPTION_KEY
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import CommitGroupReader
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import column_slices, make_record_assembler
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext

_UNKNOWN_STOP = 1 << 63
_COMMIT = int(IbbRecordType.COMMIT)
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_GAP_CODE = -1


def make_split_point_finder(layout: LogFileLayout) -> PageSplitPoints | None:
    """Create the finder of split points; level `event` also walks the records, to find where groups begin."""
    context = layout.context
    if not isinstance(context, IbbFileContext) or context.is_preallocated or not layout.readable:
        return None
    if context.level == "event":
        layout = replace(layout, make_assembler=make_record_assembler(context))
    return PageSplitPoints(
        layout, context, _definitions=CarriedDefinitions(history=TableHistory(context.hints.schema, context.earlier))
    )


class CarriedDefinitions(msgspec.Struct):
    """The FORMAT_DESCRIPTION and the DDL statements that apply at the last split point, and those that came since."""

    description: bytes = b""
    history: TableHistory = msgspec.field(default_factory=TableHistory)
    _pending: list[tuple[int, bytes]] = msgspec.field(default_factory=list)

    def add_events(self, events: bytes) -> None:
        """Add the events of a group."""
        offset = 0
        while len(events) - offset >= HEADER_SIZE:
            code, size = (
                events[offset + TYPE_AT],
                int.from_bytes(events[offset + EVENT_SIZE_AT : offset + END_LOG_POS_AT], "little"),
            )
            if not HEADER_SIZE <= size <= len(events) - offset:
                return self.add_gap()
            if code == EventType.QUERY_COMPRESSED or (
                code == EventType.QUERY and is_possible_ddl(events, offset + HEADER_SIZE, offset + size)
            ):
                self._pending.append((code, events[offset + HEADER_SIZE : offset + size]))
            elif code == _FORMAT_DESCRIPTION and _is_readable_description(events[offset : offset + size]):
                self._pending.append((code, events[offset : offset + size]))
            offset += size
        return None

    def add_gap(self) -> None:
        """Record that groups are missing, and with them perhaps a DDL statement."""
        self._pending = [one for one in self._pending if one[0] == _FORMAT_DESCRIPTION] + [(_GAP_CODE, b"")]

    def apply_pending(self) -> None:
        """Apply what came since the last split point."""
        for code, data in self._pending:
            if code == _GAP_CODE:
                self.history.discard()
            elif code == _FORMAT_DESCRIPTION:
                self.description = data
            else:
                self.history.add_query(code, memoryview(data))
        self._pending.clear()

    def to_carried(self) -> dict[str, Any]:
        """Return what applies at the last split point, JSON-able."""
        carried: dict[str, Any] = {"description": self.description.hex()} if self.description else {}
        if not self.history.is_empty and (declared := self.history.export_state()):
            carried["declared"] = declared
        return carried

    def restore(self, carried: dict[str, Any]) -> None:
        """Restore what `to_carried` returned."""
        self.history.import_state(carried.get("declared", ()))
        self.description = bytes.fromhex(carried.get("description", ""))


class PageSplitPoints(msgspec.Struct):
    """Finds pages where a file may be split; see `SplitFinder`.

    A record that continues over the start of a page belongs to the part before, whose assembler reads it to its end. If
    others are nested in it, or it may be nested itself, the page is not a split point: a reader that starts there could
    not tell the records apart.
    """

    layout: LogFileLayout
    context: IbbFileContext
    _last_place: int = -1
    _last_stop: int = _UNKNOWN_STOP
    _is_unnested: bool = True
    _definitions: CarriedDefinitions = msgspec.field(default_factory=lambda: CarriedDefinitions())
    _groups: CommitGroupReader | None = None

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the start of the last page where a record begins, unless the record before it has nested ones."""
        if batch.positions is None:
            return split_after(batch, batch.frames.count)
        border, size = None, self.context.page_size
        columns = column_slices(batch, 0, batch.frames.count, "type_code", "place", "stop", "nested")
        for i, (type_code, place, stop, nested) in enumerate(zip(*columns, strict=True)):
            if nested:
                self._is_unnested = False
                continue
            page = place - place % size
            if page > self._last_place and (self._is_unnested or page >= self._last_stop):
                border = SplitPoint(page, i)
            self._last_place, self._last_stop, self._is_unnested = place, stop, type_code not in NESTABLE_TYPES
        if self.context.level == "event":
            self._collect_definitions(batch, None if border is None else border.frame_count)
        return border

    def _collect_definitions(self, batch: Batch, border_record: int | None) -> None:
        """Collect the FORMAT_DESCRIPTION events and DDL statements of the groups in a batch."""
        self._groups = self._groups or CommitGroupReader(self.context)
        for i, type_code in enumerate(batch.frames["type_code"][: batch.frames.count]):
            if i == border_record:
                self._definitions.apply_pending()
            if type_code == _COMMIT:
                group = self._groups.read_group(batch, i)
                if isinstance(group, Finding):
                    self._definitions.add_gap()
                else:
                    self._definitions.add_events(group.data)

    def export_state_for_next_file(self) -> Any:
        """Return the definitions of tables."""
        history = self._definitions.history
        return None if self.context.level != "event" or history.is_empty else history.export_state()

    def export_state(self) -> Any:
        """Return what the log said of its events and tables before the split point."""
        return self._definitions.to_carried() if self.context.level == "event" else None

    def resume(self, state: Any, record: int) -> None:
        """Start from carried definitions; records are counted from `record`."""
        self.context.first_record = record
        if isinstance(state, str):  # written by a version that carried only the description
            state = {"description": state} if state else None
        if state:
            self._definitions.restore(state)
            self.context.declared = state.get("declared", ())
            if "description" in state:
                self.context.shared[DESCRIPTION_KEY] = parse_description(bytes.fromhex(state["description"]))

    def skip_damage(self) -> None:
        """Forget the record before the damage."""
        self._last_place, self._last_stop, self._is_unnested = -1, _UNKNOWN_STOP, True
        self._definitions.add_gap()


def _is_readable_description(event: bytes) -> bool:
    """Check if a FORMAT_DESCRIPTION can be parsed."""
    try:
        parse_description(event)
    except MalformedError:
        return False
    return True
