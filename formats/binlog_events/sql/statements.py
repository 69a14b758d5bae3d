"""The log as statements that a server accepts: `dump -O sql` (`ScriptWriter`).

Statements come out as they were logged, in the session that the log describes; row events as BINLOG or, on
request, as INSERT, UPDATE and DELETE; all in the order in which the servers' own tools write them. A
transaction of which a part is lost is rolled back: its statements up to there are already in the script,
the rest is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, ROWS_COMPRESSED, TYPES, EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import event_at
from binlogtool.formats.binlog_events.groups.groups import Step
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import OUTSIDE
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Owner
from binlogtool.formats.binlog_events.rows.rows import count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import Statement, framed, texts
from binlogtool.formats.binlog_events.sql.choice import PartedTransactions, told
from binlogtool.formats.binlog_events.sql.comments import row_comments, statement_comments
from binlogtool.formats.binlog_events.sql.frame import one_line
from binlogtool.formats.binlog_events.sql.quick import Quick
from binlogtool.formats.binlog_events.sql.scene import Scene, Unwritable, comment, query_of, scene_at
from binlogtool.formats.binlog_events.sql.session import doubt
from binlogtool.formats.binlog_events.sql.transaction import FINISH, kind_of
from binlogtool.formats.binlog_events.sql.where import chosen_rows
from binlogtool.formats.binlog_events.sql.writers import TEXTS, WRITERS, Writers
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import status_values
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Noted
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError, Kernel
from binlogtool.formats.scripting import Wording
from binlogtool.formats.unrolled import Unrolled
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.undo import Undo

_T = EventType
_SILENT = OUTSIDE - {_T.INCIDENT} | {
    _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE,
}  # fmt: skip
_ROW_EVENTS = ROWS | {_T.TABLE_MAP}
_CHANGING = ROWS | {_T.QUERY, _T.QUERY_COMPRESSED, _T.EXECUTE_LOAD_QUERY}
_COMMITS = frozenset({_T.XID, _T.XA_PREPARE})
_PLAIN_ROWS = ROWS - ROWS_COMPRESSED


@dataclass(slots=True)
class Statements(Writers):
    """Script that replays the selected events of a log."""

    row_changes: int | None = None
    """See `formats.scripting.Script`: of scripts that have only some of the rows."""
    is_empty: bool = True
    """See `formats.scripting.Script`."""
    parted: PartedTransactions = field(default_factory=PartedTransactions)
    _quick: tuple[FileContext, Quick] | None = None

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """Return the text for each record."""
        self.knowledge.seed(context.hints.schema)
        notes = context.tracker.notes(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        made = list[bytes | Noted]()
        lows, highs, ends = (integers(batch.frames[name], start, stop) for name in ("offset", "end", "body_end"))
        codes, window = integers(batch.frames["type_code"], start, stop), batch.window
        tail = 4 if context.description.has_checksums else 0
        plain = _PLAIN_ROWS if self.rows.is_plain and not self.transaction.adrift and tail else ()
        for i, (code, low, high, end) in enumerate(zip(codes, lows, highs, ends, strict=True)):
            index, owner, table = start + i, owners[i], maps[i]
            if code in plain and high - end == tail and self._goes_on(window[low:high], table, context, limits):
                made.append(b"")
                continue
            made.append(self._record(scene_at(context, batch, index, event_at(batch, index), owner, table, limits)))
        self.rows.keep()
        return made

    def _goes_on(self, own: memoryview, table: TableMap | None, context: FileContext, limits: Limits) -> bool:
        """Append a row event in the middle of its statement unchanged; return whether that was done."""
        try:
            return self.rows.plain(own, table, context.description, limits)
        except (MalformedError, CodecError):
            return False  # `_write_record` reports what is wrong

    def quick(
        self,
        context: FileContext,
        batch: Batch | Unrolled,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Write the first of these records with compiled code (`ScriptWriter.write_compiled`)."""
        if self._quick is None or self._quick[0] is not context:
            self._quick = (context, Quick(context, compile_))
        if self.frame.announced is not context.description or start == stop:
            return b"", start
        made, reached = self._quick[1].write(self, batch, start, stop, limits)
        self.packets.count_text(made, context.description)
        self.is_empty = self.is_empty and reached == start
        return made, reached

    def pass_by(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note what records that are not selected say about tables and transactions."""
        owners = context.tracker.notes(batch).owners
        self.knowledge.seed(context.hints.schema if self.learns else None)
        for index, code in enumerate(integers(batch.frames["type_code"], start, stop), start):
            if code in _CHANGING or code in _COMMITS:
                self._see(context, batch, index, owners[index], limits)

    def _see(self, context: FileContext, batch: Batch, index: int, owner: Owner, limits: Limits) -> None:
        """Note an event that is not selected."""
        event = event_at(batch, index)
        kind = query_kind(event.code, event.body) if event.code in QUERIES else None
        if kind in (None, QueryKind.STATEMENT) or kind in FINISH:
            if event.code in _CHANGING and kind not in FINISH:
                self.parted.passed = owner
            self.parted.see(owner, self.parted.written)
        if self.learns and kind is QueryKind.STATEMENT:
            with suppress(MalformedError, CodecError):
                parts, sql = query_of(scene_at(context, batch, index, event, owner, None, limits))
                self.knowledge.learn(sql, parts)

    @property
    def is_settled(self) -> bool:
        """True if nothing waits for the next event."""
        calm = not (self.ahead or self.skipped) and self.rows.is_empty
        return calm and self.transaction.is_settled and self.choice.is_settled

    # -- the beginning and the end -------------------------------------------------------------------------------------

    def lost(self, what: str = "") -> bytes:
        """Roll back the open transaction; write nothing until the next one begins."""
        self.frame.lose(what)
        self.transaction.lose()
        return self._dropped()

    def end(self) -> bytes:
        """Close what is open, list what is missing, and restore the client's state."""
        if self.frame.announced is None:
            return b""
        ended = not (self.transaction.adrift or self.stopped)
        last = self._ended_rows(self.frame.announced) if ended else b""
        last += self._without_implied(NOBODY) + self._dropped()
        return last + self.frame.end(self.session, [self.stopped.message] if self.stopped else [])

    def remarks(self) -> Sequence[Finding]:
        """Return findings about what the options left out and what the script needs."""
        described = self.frame.announced
        return [*self.choice.remarks(), *self.parted.remarks(), *self.packets.remarks(described)]

    # -- one record ----------------------------------------------------------------------------------------------------

    def _record(self, scene: Scene) -> bytes | Noted:
        """Return the text for one record."""
        code = scene.event.code
        before = self.frame.announce(scene.context, is_open=self.transaction.groups.open)
        if (scene.context.sealed and code not in TYPES) or self.stopped is not None:
            return before  # the finding about the file covers all of them
        was_open = self.transaction.groups.open
        payload = code == _T.TRANSACTION_PAYLOAD
        step = Step.OUTSIDE if payload else self.transaction.groups.take(code, scene.event.body)
        if self.transaction.adrift and not self.transaction.ashore(scene, step):
            return before
        if code not in _ROW_EVENTS:
            before += self._ended_rows(scene.context.description)
        before += self._without_implied(scene.owner)
        if code in GTIDS or (step is Step.OPENS and not was_open):
            before += self._dropped()  # the previous transaction has no end
        return self._written(scene, step, before)

    def _written(self, scene: Scene, step: Step, before: bytes) -> bytes | Noted:
        """Return the text of a record, with findings where something is missing.

        Args:
            context: the event.
            step: its place in its transaction.
            prefix: the text before it.
        """
        session = self.session.copy()
        try:
            scene = self._chosen(scene)
            made, found = self._statements(scene)
        except (MalformedError, CodecError, Unwritable) as error:
            self.transaction.adrift = self.transaction.groups.open
            self.session = self.rows.session = session  # the statements that would change it are not written either
            why = f"{type_name(scene.event.code)} is not written as a statement: {error.args[0]}"
            left = self._dropped() if self.transaction.adrift or self.transaction.claimed else b""
            return Noted(before + left, (told(scene, "payload-undecodable", why),))
        text = self._placed(scene, step, made, self._comments(scene) if self.wording.comments else b"")
        return Noted(before + text, found) if found else before + text

    def _chosen(self, scene: Scene) -> Scene:
        """Return the event with only its selected rows."""
        choice, table, event = self.wording.where, scene.table, scene.event
        if choice is None or table is None or event.code not in ROWS:
            return scene
        cut = chosen_rows(scene.context, event, self.knowledge.of(table), choice, scene.limits)
        if cut is None or cut is event:
            return replace(scene, left_out=cut is None)
        own = framed(event, cut.code, bytes(cut.body), scene.context.description)
        return replace(scene, event=cut, own=memoryview(own))

    def _comments(self, scene: Scene) -> bytes:
        """Return the event's content as comments."""
        if scene.event.code not in ROWS or scene.table is None:
            return statement_comments(scene)
        if scene.left_out or (self.wording.tables is not None and not self.wording.tables(scene.table.qualified_name)):
            return b""
        try:
            return row_comments(scene, self.knowledge.of(scene.table))
        except (MalformedError, CodecError) as error:
            return f"### not shown: {one_line(str(error.args[0]))}\n".encode()

    def _placed(self, scene: Scene, step: Step, made: Sequence[Statement], comments: bytes) -> bytes:
        """Return the text of an event, or what its transaction may write of it while only parts are selected."""
        self.choice.passed(scene, step)
        self.packets.count(made)
        if made and scene.event.code in _CHANGING:
            self.is_empty = False
            if kind_of(scene) in (None, QueryKind.STATEMENT):
                self.parted.written = scene.owner
                self.parted.see(scene.owner, self.parted.passed)
        parts = texts(made, self.session.charset if scene.event.code in TEXTS else None)
        if made and self.transaction.implies(scene) and not self.wording.flat:
            parts.insert(0, client.quick(b"START TRANSACTION"))
        if made or comments or scene.event.code in GTIDS or scene.event.code == _T.FORMAT_DESCRIPTION:
            parts[:0] = [comment(scene), comments]
        text = self.choice.place(scene, step, b"".join(parts), changes=bool(made), shows=bool(made or comments))
        if text is None:
            self._never_mind()
        return text or b""

    def _never_mind(self) -> None:
        """Restore the session from before a transaction of which nothing was selected."""
        before = self.choice.forget()
        if before is not None:
            self.session = self.rows.session = before
            self.transaction.end()

    def _ended_rows(self, described: FormatDescription) -> bytes:
        """Return the pending row events of a statement whose end is not selected."""
        made = self.rows.flush(described)
        self.packets.count(made)
        return b"".join(texts(made, None))

    def _dropped(self) -> bytes:
        """Return the rollback of the open transaction and forget what was prepared."""
        self.rows.drop()
        self.ahead.clear()
        self._never_mind()
        undo = self.transaction.take_undo()
        note = b"# the rest of this transaction is not there\n" if undo else b""
        return note + b"".join(map(client.quick, undo))

    def _without_implied(self, owner: Owner) -> bytes:
        """Return COMMIT for a transaction that this script began itself, when another one comes."""
        return client.quick(b"COMMIT") if self.transaction.leaves_implied(owner) and not self.wording.flat else b""

    # -- statements ----------------------------------------------------------------------------------------------------

    def _statements(self, scene: Scene) -> tuple[Sequence[Statement], tuple[Finding, ...]]:
        """Return the statements of an event and findings about them."""
        code = scene.event.code
        if code in _ROW_EVENTS:
            made, inexact = self.rows.take(scene)
            self._count(scene)
            return made, (told(scene, "statement-inexact", inexact),) if inexact else ()
        if code in _SILENT:
            if code == _T.FORMAT_DESCRIPTION and not scene.context.relay:
                return [*self.transaction.take_undo()], ()  # the server crashed in the open transaction
            return [], ()
        write = WRITERS.get(code)
        if write is not None:
            made = write(self, scene)
            return made, tuple(self._doubts(scene)) if made and code in TEXTS else ()
        if scene.event.flags & EventFlag.IGNORABLE:
            return [], ()
        raise Unwritable(_REASONS.get(code, "this type is not known"))

    def _count(self, scene: Scene) -> None:
        """Count the row changes of an event that are written."""
        tables, event, table = self.wording.tables, scene.event, scene.table
        if tables is None or table is None or scene.left_out or event.code not in ROWS:
            return
        count = count_rows(event.code, event.body, table, scene.limits) if tables(table.qualified_name) else 0
        self.row_changes = (self.row_changes or 0) + count

    @staticmethod
    def _doubts(scene: Scene) -> Iterator[Finding]:
        """Yield a finding if a statement has a different effect in a script than it had."""
        parts, sql = query_of(scene)
        why = doubt(status_values(parts.status_vars), sql)
        if why is not None:
            yield told(scene, "statement-inexact", why)


_REASONS: Mapping[int, str] = {
    _T.INCIDENT: "the server lost events here",
    _T.PARTIAL_ROW_DATA: "it is a piece of a row event, and only MariaDB from 12.3 can put these together",
}


def script(wording: Wording) -> Statements | Undo:
    """Create the script that the options ask for (`OutputRules.start_script`)."""
    if not wording.undo:
        return Statements(wording)
    from binlogtool.formats.binlog_events.sql.undo import Undo

    return Undo(wording)
