"""Statements of single events (GTIDs, statements, variables, commits) and the script state that they depend
on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import QUERIES, EventFlag, EventType
from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge
from binlogtool.formats.binlog_events.ddl.modes import NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.events.decoding import QueryParts, decoded
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.binlog_events.groups.marks import STANDALONE
from binlogtool.formats.binlog_events.gtid.bodies import (
    PREPARED_XA,
    ROLLBACK_ALTER,
    START_ALTER,
    mariadb_gtid_fields,
    mysql_gtid_fields,
)
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import Done, Statement
from binlogtool.formats.binlog_events.sql.choice import Choice
from binlogtool.formats.binlog_events.sql.frame import Frame
from binlogtool.formats.binlog_events.sql.gtids import mariadb_gtid, mysql_gtid, parallel
from binlogtool.formats.binlog_events.sql.hidden_statements import is_program, reason_to_leave_out
from binlogtool.formats.binlog_events.sql.load import PARTS, Loads
from binlogtool.formats.binlog_events.sql.packets import Packets
from binlogtool.formats.binlog_events.sql.renames import named_database
from binlogtool.formats.binlog_events.sql.row_events import RowEvents
from binlogtool.formats.binlog_events.sql.scene import Scene, Unwritable, query_of
from binlogtool.formats.binlog_events.sql.session import Query, Session, refused
from binlogtool.formats.binlog_events.sql.transaction import Transaction, kind_of, xid_text
from binlogtool.formats.binlog_events.sql.variables import VARIABLES, Variable, statements_of, variable
from binlogtool.formats.binlog_events.wire.status import status_values
from binlogtool.formats.scripting import Wording

_T = EventType
TEXTS = (*QUERIES, _T.EXECUTE_LOAD_QUERY)
_CREATE = re.compile(rb"\s*CREATE\b", re.IGNORECASE)
_PLAIN_NAME = re.compile(rb"[\w$.\x80-\xff-]+")
"""A database that a client without --binary-mode may take from a USE of its own; others are hidden from it."""
_ALLOW_PARALLEL = 8
"""Bit of flags2 of MariaDB's GTID."""


@dataclass(slots=True)
class Writers:
    """Writer of single events as statements, with the state of the script.

    `is_create_open`: a MySQL CREATE TABLE … START TRANSACTION is open, after which a server accepts only rows
    and COMMIT. `skips_next`: the next statement is an ALTER that is completed later or never.
    `pending_variables`: variables to set for the next statement; they are dropped together with it.
    """

    wording: Wording = Wording()
    session: Session = field(default_factory=Session)
    transaction: Transaction = field(default_factory=Transaction)
    choice: Choice = field(init=False)
    skipped: bool = False
    ahead: list[Variable] = field(default_factory=list)
    frame: Frame = field(default_factory=Frame)
    creates: bool = False
    knowledge: Knowledge = field(default_factory=Knowledge)
    rows: RowEvents = field(init=False)
    loads: Loads = field(init=False)
    packets: Packets = field(default_factory=Packets)

    def __post_init__(self) -> None:
        self.rows = RowEvents(self.wording, self.session, self.knowledge)
        self.loads = Loads(self.wording.shelf)
        self.choice = Choice(self.wording)

    @property
    def stopped(self) -> Finding | None:
        """Finding about the option that ended the script; None while it continues."""
        return self.choice.stopped

    @property
    def learns(self) -> bool:
        """True if the script depends on table definitions found in statements."""
        return self.wording.comments or self.wording.rows == "statements" or self.wording.where is not None

    @property
    def sets_gtids(self) -> bool:
        """True if transactions get the GTIDs that they had."""
        return self.wording.gtids and not self.wording.flat

    def _mariadb_gtid(self, scene: Scene) -> list[bytes]:
        """Return the statements of MariaDB's GTID event."""
        gtid = mariadb_gtid_fields(bytes(scene.event.body))
        self.transaction.current = scene.owner
        self.skipped = bool((gtid.flags_extra or 0) & (START_ALTER | ROLLBACK_ALTER))
        self.choice.wait(self.session)
        made = [] if self.wording.flat else parallel(self.session, allowed=bool(gtid.flags2 & _ALLOW_PARALLEL))
        made += mariadb_gtid(scene.event, gtid, self.session) if self.sets_gtids else []
        if gtid.flags2 & PREPARED_XA:
            if self.wording.flat:
                self._flattened(QueryKind.XA_START)
            xid = xid_text(gtid.gtrid or b"", gtid.bqual or b"", gtid.format_id or 0)
            return [*made, self.transaction.begin_xa(xid)]
        if not gtid.flags2 & STANDALONE and not self.wording.flat:
            self.transaction.begin()
            made.append(b"START TRANSACTION")
        return made

    def _mysql_gtid(self, scene: Scene) -> list[bytes]:
        """Return the statements of MySQL's GTID events."""
        self.transaction.current = scene.owner
        self.choice.wait(self.session)
        if not self.sets_gtids:
            return []
        gtid = mysql_gtid_fields(scene.event.code, bytes(scene.event.body))
        made = mysql_gtid(scene.event, gtid, scene.owner.gtid, self.session)
        self.transaction.claimed = self.session.gtid_next != "AUTOMATIC"
        return made

    def _query(self, scene: Scene) -> Sequence[Statement]:
        """Return the statements of a QUERY or EXECUTE_LOAD_QUERY event."""
        (parts, sql), kind = query_of(scene), kind_of(scene)
        if kind is None or kind is QueryKind.STATEMENT:
            return self._statement(scene, parts, sql)
        if self.wording.flat:
            return self._commit(scene) if kind is QueryKind.COMMIT else self._flattened(kind)
        if kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self.choice.wait(self.session)
        made: list[Statement] = [*self._context(scene, parts)]
        self.transaction.follow(kind, sql)
        return made + self._checked(sql)

    def _statement(self, scene: Scene, parts: QueryParts, sql: bytes) -> list[Statement]:
        """Return a statement other than BEGIN, COMMIT and the like, with the session that it needs."""
        ahead, self.ahead = self.ahead, []
        if self.skipped:
            return []
        if self.choice.stops_at(scene, parts, sql):
            return []
        if self.learns:
            self.knowledge.learn(sql, parts)
        if self.choice.leaves_out(scene, parts, sql):
            return []
        named = named_database(sql, self.wording.databases)
        if named is not None:
            raise Unwritable(f"its text has the name {named}, and --rewrite does not change texts")
        made: list[Statement] = [*statements_of(ahead, self.session), *self._use(parts.db, scene.event.flags)]
        made += self._context(scene, parts)
        if scene.event.code == _T.EXECUTE_LOAD_QUERY:
            sql = self.loads.statement(scene, sql)
        text = self._checked(sql, loads=scene.event.code == _T.EXECUTE_LOAD_QUERY)
        self.transaction.claimed = False
        if self.wording.flat and self._creates(sql):
            self.transaction.begin()
            self.creates = True
        return [*made, *text]

    def _creates(self, sql: bytes) -> bool:
        """Return whether the statement is CREATE TABLE … START TRANSACTION."""
        if sql[-64:].upper().split()[-2:] != [b"START", b"TRANSACTION"]:
            return False
        return _CREATE.match(client.outside(sql, self.session.charset, self.session.mode)) is not None

    def _context(self, scene: Scene, parts: QueryParts) -> list[bytes]:
        """Return the SET statements for the session of a statement."""
        event = scene.event
        status = status_values(parts.status_vars)
        reason = refused(status)
        if reason is not None:
            raise Unwritable(reason)
        query = Query(status, event.time, parts.thread_id, bool(self.transaction.undo))
        return self.session.for_query(query, scene.context.description)

    @staticmethod
    def _flattened(kind: QueryKind) -> list[bytes]:
        """Write nothing for BEGIN and COMMIT in a script without transactions.

        Raises:
            Unwritable: the statement needs its transaction.
        """
        if kind not in (QueryKind.BEGIN, QueryKind.COMMIT):
            raise Unwritable(f"{kind.name} needs its transaction, and --transactions flatten has none")
        return []

    def _checked(self, sql: bytes, *, loads: bool = False) -> list[Statement]:
        """Return a text of the log, after the sql_mode that a client needs to read it.

        Args:
            is_load_data: whether it is a LOAD DATA, see `reason_to_leave_out`.

        Raises:
            Unwritable: clients or servers would misread it.
        """
        charset, mode = self.session.charset, self.session.mode
        text, reason = client.read(sql, charset, mode)
        if reason is not None and client.is_same_without_escapes(sql, charset, mode):
            return self._checked_without_escapes(sql, reason, loads=loads)
        reason = reason or reason_to_leave_out(sql, charset, mode, loads=loads)
        if reason is not None:
            raise Unwritable(reason)
        return [*(self.session.assert_mode() if client.depends_on_mode(sql, charset) else ()), text]

    def _checked_without_escapes(self, sql: bytes, reason: str, *, loads: bool) -> list[Statement]:
        """Return a text that clients agree on only under NO_BACKSLASH_ESCAPES: its names have backslashes at line
        ends.

        Args:
            reason: why it cannot be written without.

        Raises:
            Unwritable: clients disagree there too, or it defines a stored program, which keeps its sql_mode.
        """
        charset, mode = self.session.charset, self.session.mode | NO_BACKSLASH_ESCAPES
        text, other = client.read(sql, charset, mode)
        other = other or reason_to_leave_out(sql, charset, mode, loads=loads)
        if other is not None or is_program(sql, charset, mode):
            raise Unwritable(reason)
        before, after = self.session.without_escapes(mode)
        return [*before, Done((client.ended(text, charset),)), *after]

    def _use(self, database: bytes, flags: int) -> list[bytes]:
        """Return the USE statement for a database that is not the session's."""
        if flags & EventFlag.SUPPRESS_USE:
            self.session.database = None  # it may be a CREATE or DROP DATABASE
            return []
        if not database or database == self.session.database:
            return []
        self.session.database = database
        text = database.decode("utf-8", "surrogateescape")
        name = self.wording.databases.get(text, text).encode("utf-8", "surrogateescape")
        made = [] if name.isascii() else self.session.for_names()
        own, mode = b" `" + name.replace(b"`", b"``") + b"`", NO_BACKSLASH_ESCAPES
        if _PLAIN_NAME.fullmatch(name):
            return [*made, b"USE" + own]
        hidden, reason = client.read(b"/*!USE*/" + own, self.session.client, mode)
        if reason is not None:
            raise Unwritable(f"the name of its database is not written: {reason}")
        before, after = self.session.without_escapes(mode) if client.loses_backslashes(name) else ([], [])
        return [*made, *before, hidden, *after]

    def _commit(self, scene: Scene) -> list[bytes]:
        """End the transaction and return COMMIT, if one is needed."""
        self.transaction.end()
        ends, self.creates = self.creates or not self.wording.flat, False
        return [b"COMMIT"] if ends else []

    def _xa_prepare(self, scene: Scene) -> list[bytes]:
        """Return XA PREPARE, or XA COMMIT … ONE PHASE."""
        body = decoded(_T.XA_PREPARE, bytes(scene.event.body), scene.context.description)
        data = bytes(scene.event.body)[13:]
        middle = body["gtrid_len"] if "gtrid_len" in body else int.from_bytes(scene.event.body[5:9], "little")
        xid = xid_text(data[:middle], data[middle:], int.from_bytes(scene.event.body[1:5], "little", signed=True))
        self.transaction.take_undo()
        return [b"XA COMMIT " + xid + b" ONE PHASE" if scene.event.body[0] else b"XA PREPARE " + xid]

    def _variable(self, scene: Scene) -> list[bytes]:
        """Keep a variable for the next statement."""
        self.ahead.append(variable(scene))
        return []

    def _load(self, scene: Scene) -> list[bytes]:
        """Take a part of a file for LOAD DATA."""
        self.loads.part(scene)
        return []


WRITERS: Mapping[int, Callable[[Writers, Scene], Sequence[Statement]]] = {
    _T.GTID: Writers._mariadb_gtid,
    **dict.fromkeys((_T.GTID_LOG, _T.GTID_TAGGED_LOG, _T.ANONYMOUS_GTID), Writers._mysql_gtid),
    **dict.fromkeys(TEXTS, Writers._query),
    **dict.fromkeys(VARIABLES, Writers._variable),
    **dict.fromkeys(PARTS, Writers._load),
    _T.XID: Writers._commit,
    _T.XA_PREPARE: Writers._xa_prepare,
}
