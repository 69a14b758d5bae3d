"""Row events in a script: as BINLOG statements with their own bytes, or as INSERT, UPDATE and DELETE."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, ROWS_COMPRESSED, EventType
from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Owner
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.binlog import (
    MOST,
    Collected,
    Statement,
    framed,
    in_parts,
    map_event,
    rows_with_map,
    unpacked,
)
from binlogtool.formats.binlog_events.sql.renames import renamed
from binlogtool.formats.binlog_events.sql.rows import HAS_TRIGGERS, Inexact, row_statements
from binlogtool.formats.binlog_events.sql.scene import Scene, Unwritable
from binlogtool.formats.binlog_events.sql.session import Session
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.header import TYPE_AT
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import Wording
from binlogtool.limits import Limits


class RowEvents(msgspec.Struct):
    """Writer of the row events of a script.

    `reported` holds (table, reason) of what was already reported as not written as statements although that was
    requested.
    """

    wording: Wording
    session: Session
    knowledge: Knowledge = msgspec.field(default_factory=Knowledge)
    inexact: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _filled: tuple[int, Owner] = (0, NOBODY)
    _collected: Collected = msgspec.field(default_factory=Collected)

    def take(self, scene: Scene) -> tuple[Sequence[Statement], str | None]:
        """Return the statements that can be written now, and what is inexact about them (None if nothing is).

        Raises:
            Unwritable, MalformedError, DecompressionError: the event cannot be written.
        """
        table = self._table(scene)
        if table is None:
            return self.flush(scene.context.description), None
        if self.wording.tables is not None and not self.wording.tables(table.qualified_name):
            return [], None
        if scene.left_out:
            ends = scene.event.body[table.table_id_size] & STMT_END
            return self.flush(scene.context.description) if ends else [], None
        if self.wording.rows == "statements":
            return ([], None) if scene.event.code == EventType.TABLE_MAP else self._said(scene, table)
        table = renamed(table, self.wording.databases)
        return self._map(scene, table) if scene.event.code == EventType.TABLE_MAP else self._exact(scene, table), None

    def _table(self, scene: Scene) -> TableMap | None:
        """Return the table of a row event; None if the event only ends its statement.

        Raises:
            Unwritable: the TABLE_MAP is missing or cannot be read.
            MalformedError: the event has no flags.
        """
        size = scene.context.description.table_id_size
        if scene.event.code != EventType.TABLE_MAP and len(scene.event.body) < size + 2:
            raise MalformedError("the row event is cut short")
        if scene.table is not None:
            return scene.table
        if scene.event.code == EventType.TABLE_MAP:
            raise Unwritable("it cannot be read")
        if int.from_bytes(scene.event.body[:size], "little") == DUMMY_TABLE_ID:
            return None
        raise Unwritable("its TABLE_MAP is missing")

    # -- exact ---------------------------------------------------------------------------------------------------------

    def _map(self, scene: Scene, table: TableMap) -> Sequence[Statement]:
        """Keep a TABLE_MAP until the rows of its statement; return what ends before it."""
        made = self.flush(scene.context.description) if self._collected.last else []
        self._collected.maps[table.table_id] = self._bytes(scene, table.body)
        return made

    @staticmethod
    def _bytes(scene: Scene, body: bytes | None = None) -> bytes:
        """Return the event as a server with the log's FORMAT_DESCRIPTION reads it.

        Args:
            context: the event.
            body: a body to use in place of the event's own.
        """
        event, described = scene.event, scene.context.description
        if _tail(scene) == (4 if described.has_checksums else 0) and (body is None or body == event.body):
            return bytes(scene.own)
        return framed(event, event.code, bytes(event.body) if body is None else body, described)

    def _exact(self, scene: Scene, table: TableMap) -> Sequence[Statement]:
        """Add a row event to the pending BINLOG statement and return the statements that are complete."""
        event, described, c = scene.event, scene.context.description, self._collected
        _check_rows(event.code, event.body, table, scene.limits)
        made: list[Statement] = []
        if table.table_id not in c.maps:
            made = [*c.take(described)]
            c.maps[table.table_id] = map_event(event, table, described)
        if event.code in ROWS_COMPRESSED:
            code, plain = unpacked(event, scene.limits, table.table_id_size)
            data: bytes | memoryview = framed(event, code, plain, described)
        else:
            data = self._bytes(scene)
        if c.last and c.size + len(data) > MOST:
            made += c.take(described)
        c.add(data)
        return [*made, *(c.end(described) if event.body[table.table_id_size] & STMT_END else ())]

    def plain(self, own: memoryview, table: TableMap | None, described: FormatDescription, limits: Limits) -> bool:
        """Append a row event unchanged if its statement is open and continues after it; return whether that was done.

        Raises:
            MalformedError: its rows do not fit its TABLE_MAP.
        """
        c, at = self._collected, HEADER_SIZE + described.table_id_size
        known = bool(c.last) and int.from_bytes(own[HEADER_SIZE:at], "little") in c.maps
        if not known or table is None or own[at] & STMT_END or c.size + len(own) > MOST:
            return False
        _check_rows(own[TYPE_AT], own[HEADER_SIZE:-4], table, limits)
        c.add(own)
        return True

    @property
    def is_plain(self) -> bool:
        """True if all row events are written unchanged."""
        w = self.wording
        return w.rows == "exact" and w.tables is None and not (w.comments or w.databases)

    @property
    def begun(self) -> Collected | None:
        """The statement that is open and whose row events are written unchanged; None if there is none."""
        return self._collected if self._collected.last and self.is_plain else None

    def keep(self) -> None:
        """Copy what still refers to the current batch, so that its memory may be released."""
        self._collected.keep()

    def flush(self, described: FormatDescription) -> Sequence[Statement]:
        """Return the pending events as a statement although their own statement continues.

        The events that follow are not selected.
        """
        return self._collected.end(described)

    @property
    def is_empty(self) -> bool:
        """True if nothing waits for the end of its statement."""
        return not self._collected.maps and not self._collected.last

    def drop(self) -> None:
        """Forget the pending events: their transaction is rolled back."""
        self._collected = Collected()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _said(self, scene: Scene, table: TableMap) -> tuple[Sequence[Statement], str | None]:
        """Return the rows of an event as INSERT, UPDATE and DELETE, or as BINLOG with the reason."""
        event, described = scene.event, scene.context.description
        if not count_rows(event.code, event.body, table, scene.limits):  # raises where the event does not fit its map
            return [], None
        table = self.knowledge.keyed(table)
        why, unsure = self.knowledge.doubt(table, described), self.knowledge.unsure(table)
        table = renamed(table, self.wording.databases)
        if self._fills(scene):
            return [rows_with_map(event, table, described, scene.limits)], None
        try:
            made = row_statements(event.code, event.body, table, scene.limits) if why is None else []
        except Inexact as error:
            why, made = str(error), []
        if why is not None:  # MariaDB's maps say themselves that a table has triggers: its rows were never statements
            told = None if table.flags & HAS_TRIGGERS else self._told(table, why)
            return in_parts(rows_with_map(event, table, described, scene.limits), described), told
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        return [*self.session.for_rows(flags, event.time, described), *made], self._told(table, unsure)

    def _fills(self, scene: Scene) -> bool:
        """Return whether these rows fill a table that is being created; a server accepts only row events there."""
        number = self.knowledge.filling
        if number and self._filled[0] != number:
            self._filled = (number, scene.owner)
        if number and self._filled[1] != scene.owner:
            self.knowledge.filling = 0
        return self.knowledge.filling > 0

    def is_news(self, table: TableMap, why: str | None) -> bool:
        """Return whether this reason was not yet reported for the table."""
        return why is not None and (table.qualified_name, why) not in self.inexact

    def _told(self, table: TableMap, why: str | None) -> str | None:
        """Return the reason with the table's name the first time, None afterwards."""
        if why is None or not self.is_news(table, why):
            return None
        self.inexact.add((table.qualified_name, why))
        return f"{table.qualified_name}: {why}"


def _check_rows(code: int, body: bytes | memoryview, table: TableMap, limits: Limits) -> None:
    """Check that rows fit their TABLE_MAP; a server stops at an event whose rows do not.

    Old table maps that do not say how long some values are cannot be checked.

    Raises:
        MalformedError, DecompressionError: the rows do not fit.
    """
    try:
        count_rows(code, body, table, limits)
    except MalformedError:
        if not table.untold:
            raise


def _tail(scene: Scene) -> int:
    """Return the number of checksum bytes at the end of the event."""
    return len(scene.own) - HEADER_SIZE - len(scene.event.body)
