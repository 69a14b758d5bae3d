"""Flashback: the log as statements that reverse its row changes (`ScriptOptions.flashback`).

Each record gets its text as in `statements`, but in an order to be read from the end: the caller joins the
texts in reverse. So the newest transaction comes first, and in it the newest row. What cannot be reversed
is an error; nothing is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from binlogtool.errors import RefusedError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import DELETES, GTIDS, ROWS, UPDATES, EventFlag, EventType
from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge
from binlogtool.formats.binlog_events.ddl.modes import usual_text
from binlogtool.formats.binlog_events.ddl.targets import target
from binlogtool.formats.binlog_events.events.decoding import QueryParts, load_query_parts, query_parts
from binlogtool.formats.binlog_events.events.event import Event, event_at
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import OUTSIDE
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Owner
from binlogtool.formats.binlog_events.gtid.bodies import PREPARED_XA, mariadb_gtid_fields
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import described_binlog, in_parts, rows_with_map
from binlogtool.formats.binlog_events.sql.packets import Packets
from binlogtool.formats.binlog_events.sql.renames import renamed
from binlogtool.formats.binlog_events.sql.reverse import Irreversible, effect_of, reversed_rows
from binlogtool.formats.binlog_events.sql.rows import Inexact, undo_statements
from binlogtool.formats.binlog_events.sql.session import Session, row_flags
from binlogtool.formats.binlog_events.sql.undo_conflicts import UndoConflicts
from binlogtool.formats.binlog_events.sql.undo_ddl import defined_tables, first_words
from binlogtool.formats.binlog_events.sql.where import body_of, with_rows
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Noted
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError, Kernel
from binlogtool.formats.scripting import Wording
from binlogtool.formats.table_names import shown_name
from binlogtool.formats.unrolled import Unrolled
from binlogtool.limits import Limits

_T = EventType
_SILENT = OUTSIDE - {_T.INCIDENT} | GTIDS | {
    _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT,
    _T.VIEW_CHANGE, _T.INTVAR, _T.RAND, _T.USER_VAR, _T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE, _T.XID,
}  # fmt: skip
"""Events that change nothing by themselves; what some of them prepare is refused where it is done."""

_GTIDS = (5, 6, 5)
"""MySQL has GTIDs since then."""

_LOGGED_CASCADES = (9, 6)
"""MySQL logs the rows that a foreign key changes since then."""

_QUERIES = (_T.QUERY, _T.QUERY_COMPRESSED)
_STATEMENTS = (*_QUERIES, _T.EXECUTE_LOAD_QUERY)
_UNKNOWN_CHANGES = (_T.INCIDENT, _T.PARTIAL_ROW_DATA)
_HARMLESS = re.compile(rb"\s*(?:DROP\s+(?:/\*!\d+\s*)?TEMPORARY\b|FLUSH\b|ANALYZE\b|#|--)", re.IGNORECASE)
_XA = (QueryKind.XA_START, QueryKind.XA_END, QueryKind.XA_FINISH)


class Undo(msgspec.Struct):
    """Script that reverses the row changes of a log.

    `label` names the open transaction in messages. `changed`: some of its changes were written; None if none is
    open.
    """

    wording: Wording = Wording(undo=True)
    groups: Groups = msgspec.field(default_factory=Groups)
    label: str = ""
    changed: bool | None = None
    described: FormatDescription | None = None
    stopped: Finding | None = None
    knowledge: Knowledge = msgspec.field(default_factory=Knowledge)
    seen: set[str] = msgspec.field(default_factory=set)
    """Tables whose rows were changed so far."""
    unsure: set[str] = msgspec.field(default_factory=set)
    """What was said of tables whose columns nothing declares."""
    packets: Packets = msgspec.field(default_factory=Packets)
    conflicts: UndoConflicts = msgspec.field(default_factory=UndoConflicts)
    row_changes: int = 0
    """See `formats.scripting.Script`."""
    announced: bool = False
    """A BINLOG statement behind the last FORMAT_DESCRIPTION needs that one before it."""

    # -- the script ----------------------------------------------------------------------------------------------------

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """Return the text for each record, to be written in reverse order."""
        notes = context.tracker.notes(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        return [
            self._record(context, event_at(batch, index), owner, table, limits)
            for index, owner, table in zip(range(start, stop), owners, maps, strict=True)
        ]

    def quick(
        self,
        context: FileContext,
        batch: Batch | Unrolled,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Write nothing: flashback has no compiled path."""
        return b"", start

    @property
    def is_empty(self) -> bool:
        """True if no row change was written."""
        return not self.row_changes

    def remarks(self) -> Sequence[Finding]:
        """Return findings about large statements and about conflicts with later changes."""
        return [*self.packets.remarks(self.described), *self.conflicts.remarks()]

    def lost(self, what: str = "") -> bytes:
        """Write nothing: flashback covers an unbroken range, and its caller stops at damage."""
        self.groups.lose()
        self.changed = None
        return b""

    def end(self) -> bytes:
        """Return the beginning of the script.

        Raises:
            RefusedError: the last transaction is incomplete.
        """
        if self.changed:
            raise RefusedError(f"{self.label} is not whole: it cannot be undone; choose an earlier --stop-position")
        if self.described is None:
            return b""
        writer = self.described.server_version
        mode = b"SET @@session.pseudo_slave_mode=1, @@session.completion_type=0"
        head = client.script_start(writer if writer.isprintable() else "a server")
        session = Session().for_rows(0, 0, self.described)
        return head + b"".join(map(client.ended, [mode, *session])) + self._announcement()

    def _announcement(self) -> bytes:
        """Return the FORMAT_DESCRIPTION of the file whose events come next in the script, if they need it."""
        needed, self.announced = self.announced, False
        if not needed or self.described is None:
            return b""
        made = client.ended(described_binlog(self.described))
        if (
            not self.described.is_mariadb and self.described.version >= _GTIDS
        ):  # a BINLOG statement leaves gtid_next unset
            made += client.ended(b"SET @@session.gtid_next='AUTOMATIC'")
        return made

    # -- one record ----------------------------------------------------------------------------------------------------

    def _record(
        self, context: FileContext, event: Event, owner: Owner, table: TableMap | None, limits: Limits
    ) -> bytes | Noted:
        """Return the text for one record."""
        behind = b"" if context.description is self.described else self._next_file(context)
        broken = self._broken(context, event)
        if broken is not None:
            return self._refused(event, broken, behind)
        was_open, step = self.groups.open, Step.OUTSIDE
        if event.code != _T.TRANSACTION_PAYLOAD:
            step = self.groups.take(event.code, event.body)
        try:
            self._open(event, owner, step)
            text, remarks = self._undone(context, event, table, limits, known=was_open or step is Step.OPENS)
        except (MalformedError, CodecError, Irreversible) as error:
            self.changed = None if step is Step.ENDS else self.changed
            return self._refused(event, str(error.args[0]), behind)
        if step is Step.ENDS:
            text = self._closed(event) + text
        return Noted(text + behind, remarks) if remarks else text + behind

    def _next_file(self, context: FileContext) -> bytes:
        """Return what the script needs after the events of a file, before those of the preceding file."""
        text = self._announcement()
        if self.described is None:
            text += client.ended(b"SET @@session.pseudo_slave_mode=0") + client.SCRIPT_END
        self.described = context.description
        self.knowledge.seed(context.hints.schema)
        return text

    def _broken(self, context: FileContext, event: Event) -> str | None:
        """Return why the open transaction never ends; None if it may, or if nothing of it was written."""
        starts_anew = event.code == _T.FORMAT_DESCRIPTION and not context.relay
        if not self.changed or not (starts_anew or event.code in GTIDS):
            return None
        self.changed = None
        self.groups.lose()
        return "the transaction has no end: the server stopped in it, or records of it are not among the chosen ones"

    def _refused(self, event: Event, why: str, before: bytes = b"") -> Noted:
        """Return a finding that the event cannot be reversed."""
        text = f"{self.label or 'outside of a transaction'}: {type_name(event.code)} cannot be undone: {why}"
        size = event.end - event.start
        found = finding("payload-undecodable", event.start, size, text, record=event.record, severity=Severity.ERROR)
        return Noted(before, (found,))

    def _open(self, event: Event, owner: Owner, step: Step) -> None:
        """Note the beginning of a transaction.

        Raises:
            Irreversible: it is only prepared.
        """
        if step is not Step.OPENS:
            return
        self.label = _label(owner) or f"the transaction at {event.start}"
        self.changed = False
        if event.code == _T.GTID and mariadb_gtid_fields(bytes(event.body)).flags2 & PREPARED_XA:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")

    def _closed(self, event: Event) -> bytes:
        """Return START TRANSACTION for the end of a transaction whose changes were reversed."""
        changed, self.changed = self.changed, None
        if not changed:
            return b""
        note = f"# {self.label}, at {event.start}\n".encode("utf-8", "backslashreplace") if self.label else b""
        return note + (b"" if self.wording.flat else client.ended(b"START TRANSACTION"))

    # -- what it takes back --------------------------------------------------------------------------------------------

    def _undone(
        self, context: FileContext, event: Event, table: TableMap | None, limits: Limits, *, known: bool
    ) -> tuple[bytes, tuple[Finding, ...]]:
        """Return the text that reverses an event, and findings about it.

        Args:
            has_beginning: whether the beginning of its transaction is selected.

        Raises:
            Irreversible, MalformedError, DecompressionError: the event cannot be reversed.
        """
        if event.code in ROWS:
            if table is not None and self.knowledge.is_sequence(table):
                return b"", self._sequence(event, table.qualified_name)
            text = self._rows(context, event, table, limits, known=known)
            return text, self._unsure(event, table) if text and table is not None else ()
        if event.code in _QUERIES:
            left = self._query(event, limits)
            return b"", () if left is None else (self._left(event, f"{left} is not undone, as --skip-ddl says"),)
        if event.code == _T.XA_PREPARE:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")
        if event.code not in _SILENT and not event.flags & EventFlag.IGNORABLE:
            raise Irreversible("it does not say which rows it changed")
        return b"", ()

    def _unsure(self, event: Event, table: TableMap) -> tuple[Finding, ...]:
        """Return, once a table, a warning about statements that may be inexact."""
        why = self.knowledge.unsure(table) if self.wording.rows == "statements" else None
        text = f"{table.qualified_name}: {why}"
        if why is None or text in self.unsure:
            return ()
        self.unsure.add(text)
        size = event.end - event.start
        return (finding("statement-inexact", event.start, size, text, record=event.record, severity=Severity.WARNING),)

    def _sequence(self, event: Event, name: str) -> tuple[Finding, ...]:
        """Return, once a sequence, a warning that its numbers are not reversed."""
        wanted = self.wording.tables
        if name in self.seen or (wanted is not None and not wanted(shown_name(name))):
            return ()
        self.seen.add(name)
        return (self._left(event, f"{name} is a sequence: the numbers that it gave are not taken back"),)

    def _left(self, event: Event, what: str) -> Finding:
        """Return a warning about what is left out."""
        text = f"{self.label or 'outside of a transaction'}: {what}"
        size = event.end - event.start
        return finding("statement-left-out", event.start, size, text, record=event.record, severity=Severity.WARNING)

    def _query(self, event: Event, limits: Limits) -> str | None:
        """Check a QUERY event; return the definition statement that stays, None if the event changes nothing.

        Raises:
            Irreversible: the statement cannot be reversed.
        """
        kind = query_kind(event.code, event.body)
        if kind in _XA:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")
        parts = query_parts(bytes(event.body))
        sql = unpack_block(parts.sql, limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        if kind is QueryKind.ROLLBACK or (kind is QueryKind.SAVEPOINT and sql[:8].upper() == b"ROLLBACK"):
            if self.changed:
                raise Irreversible("it takes back changes itself, and the log does not say which ones stayed")
        elif kind is QueryKind.STATEMENT and not _HARMLESS.match(sql):
            return self._statement(sql, parts)
        return None

    def _statement(self, sql: bytes, parts: QueryParts) -> str | None:
        """Check a statement other than BEGIN, COMMIT and the like; return its name if it defines selected tables.

        Raises:
            Irreversible: it changes rows, or definitions while --skip-ddl is not given.
        """
        self.knowledge.learn(sql, parts)
        text, home = usual_text(sql, parts), parts.db.decode("utf-8", "surrogateescape")
        words, wanted = first_words(text), self.wording.tables
        names = defined_tables(text, home, self.seen)
        if names is None:
            raise Irreversible(f"the log has {words} as a statement, not the rows that it changed")
        own = names if wanted is None else [name for name in names if wanted(shown_name(name))]
        if not own and wanted is not None:
            return None
        what = f"{words} ({', '.join(own[:3])})" if own else words
        if self.wording.skip_ddl:
            return what
        raise Irreversible(f"the log has {words} as a statement{what[len(words) :]}, which has no reverse")

    def _rows(
        self, context: FileContext, event: Event, table: TableMap | None, limits: Limits, *, known: bool
    ) -> bytes:
        """Return the text that reverses a row event, and check it against later changes.

        Raises:
            Irreversible, MalformedError, DecompressionError: the event cannot be reversed.
        """
        described = context.description
        if table is None:
            if int.from_bytes(event.body[: described.table_id_size], "little") == DUMMY_TABLE_ID:
                return b""
            raise Irreversible("its TABLE_MAP is missing")
        wanted = self.wording.tables
        if wanted is not None and not wanted(table.qualified_name):
            return b""
        self.seen.add(table.full_name)
        table = self.knowledge.keyed(table)
        chosen, own = self._chosen(context, event, table, limits)
        turned = None if chosen is None else self._turned(chosen, table, limits, known=known)
        text, exact = b"", True
        if chosen is not None and turned is not None:
            text, exact = self._statements(chosen, turned, renamed(table, self.wording.databases), described, limits)
        if self.wording.partial:
            place = self._place(context, event, self.label)
            self.conflicts.take(place, table, (event.code, event.body), own, limits, whole=exact)
        if chosen is None:
            return b""
        self.row_changes += count_rows(chosen.code, chosen.body, table, limits)
        first, self.changed = not self.changed, True
        return text + (client.ended(b"COMMIT") if first and not self.wording.flat else b"")

    @staticmethod
    def _place(context: FileContext, event: Event, label: str) -> str:
        """Return "by transaction … at file:offset" for messages."""
        return (f"by {label} " if label else "") + f"at {context.name}:{event.start}"

    def _turned(self, event: Event, table: TableMap, limits: Limits, *, known: bool) -> Event:
        """Return the row event with the opposite effect.

        Raises:
            Irreversible: the beginning of its transaction is not selected, or its images lack columns.
        """
        if not known:
            raise Irreversible(f"{table.qualified_name}: the beginning of its transaction is not among the records")
        try:
            code, body = reversed_rows(event.code, event.body, table, limits)
        except Irreversible as error:
            raise Irreversible(f"{effect_of(event.code)} of {table.qualified_name}: {error}") from None
        return event._replace(code=code.value, body=memoryview(body))

    def _chosen(
        self, context: FileContext, event: Event, table: TableMap, limits: Limits
    ) -> tuple[Event | None, bool | Sequence[bool]]:
        """Return the event with its selected rows (None if there are none), and which of its rows these are."""
        choice = self.wording.where
        if choice is None:
            return event, True
        wanted = choice.rows(event.place, body_of(context, event, table, choice, limits))
        return with_rows(event, table, wanted, limits), wanted

    def _statements(
        self, event: Event, turned: Event, table: TableMap, described: FormatDescription, limits: Limits
    ) -> tuple[bytes, bool]:
        """Return the reversing statements and whether they are the reversed event itself.

        They are INSERT, UPDATE and DELETE where these were requested and have the same effect.
        """
        made = None
        if self.wording.rows == "statements" and self.knowledge.doubt(table, described) is None:
            with suppress(Inexact):
                made = undo_statements(event.code, event.body, table, limits)
        if made is None:
            self.announced = True
            made = in_parts(rows_with_map(turned, table, described, limits), described)
            self.packets.count(made)
            return b"".join(map(client.ended, made)), True
        self.packets.count(made)
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        before, behind = row_flags(flags, described)
        return b"".join(map(client.ended, [*before, *made, *behind])), False

    # -- what is not chosen --------------------------------------------------------------------------------------------

    def pass_by(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note what records that are not selected say about tables and change in selected rows."""
        self.knowledge.seed(context.hints.schema)
        notes, codes = context.tracker.notes(batch), integers(batch.frames["type_code"], start, stop)
        for index, code in enumerate(codes, start):
            table = notes.maps[index]
            if code in ROWS and table is not None:
                if table.full_name in self.conflicts.chosen or self.knowledge.keys.keys:
                    event = event_at(batch, index)
                    place = self._place(context, event, _label(notes.owners[index]))
                    self._see_rows(event, self.knowledge.keyed(table), place, context.description, limits)
            elif code in ROWS or code in _STATEMENTS or code in _UNKNOWN_CHANGES:
                event = event_at(batch, index)
                self._see_statement(event, self._place(context, event, _label(notes.owners[index])), limits)

    def _see_rows(
        self, event: Event, table: TableMap, place: str, described: FormatDescription, limits: Limits
    ) -> None:
        """Note the rows of an event that is not selected, and rows that foreign keys changed with them."""
        tables = self.conflicts.tables
        if table.full_name in tables:
            self.conflicts.see_rows(place, table, (event.code, event.body), limits)
        if event.code not in DELETES | UPDATES or (not described.is_mariadb and described.version >= _LOGGED_CASCADES):
            return
        changed = None if event.code in DELETES else frozenset((column.name or "").lower() for column in table.columns)
        for key, action in self.knowledge.keys.reached(table.full_name, changed):
            self.conflicts.see_statement(key.child, f"{action} of {table.qualified_name} {place}")

    def _see_statement(self, event: Event, place: str, limits: Limits) -> None:
        """Note a statement, or an unreadable change, that is not selected."""
        if event.code not in _STATEMENTS:
            if self.conflicts.tables and int.from_bytes(event.body[:6], "little") != DUMMY_TABLE_ID:
                self.conflicts.skip(f"{type_name(event.code)} {place}: it does not say which rows it changed")
            return
        try:
            parts = (load_query_parts if event.code == _T.EXECUTE_LOAD_QUERY else query_parts)(bytes(event.body))
            sql = unpack_block(parts.sql, limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        except (MalformedError, CodecError) as error:
            self.conflicts.skip(f"the statement {place}: {error.args[0]}")
            return
        tables = self.conflicts.tables
        kind = query_kind(event.code, event.body) if event.code in _QUERIES else QueryKind.STATEMENT
        if tables and kind is QueryKind.STATEMENT and not _HARMLESS.match(sql):
            self._see_text(usual_text(sql, parts), parts.db.decode("utf-8", "surrogateescape"), place, tables)
        self.knowledge.learn(sql, parts)

    def _see_text(self, text: str, home: str, place: str, tables: Sequence[str]) -> None:
        """Note a later statement that redefines a selected table or may change its rows."""
        what, names = f"{first_words(text)} {place}", defined_tables(text, home, tables)
        if names is None:
            name = target(text, home)
            names = [] if name is None else [name]
            if self.knowledge.changed(text, home) is None and (name is None or self.knowledge.triggers.of(name)):
                self.conflicts.skip(f"{what}, a statement that may change any table")
        for name in names:
            self.conflicts.see_statement(name, what)


def _label(owner: Owner) -> str:
    """Return "transaction GTID" for messages; empty outside of transactions."""
    return f"transaction {owner.gtid}" if owner != NOBODY else ""
