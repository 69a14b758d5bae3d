"""The log as statements that a server accepts: `dump -O sql` (`formats.base.Script`).

Statements come out as they were logged, in the session that the log describes; row events as BINLOG or, on demand, as
INSERT, UPDATE and DELETE; all in the order in which the servers' own tools give them. A transaction of which a part is
lost is rolled back: its statements up to there are in the script already, the rest is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.base import Batch, CodecError, Kernel, Noted
from binlogtool.formats.columns import integers
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog import sql_client as client
from binlogtool.formats.mysql_binlog.codes import GTIDS, ROWS, ROWS_COMPRESSED, TYPES, EventFlag, EventType
from binlogtool.formats.mysql_binlog.compression import unpack_block
from binlogtool.formats.mysql_binlog.decode import QueryParts, decoded, query_parts
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.event import event_at
from binlogtool.formats.mysql_binlog.groups import ENDINGS, OUTSIDE, STANDALONE, Groups, QueryKind, Step, query_kind
from binlogtool.formats.mysql_binlog.gtid_bodies import (
    PREPARED_XA,
    ROLLBACK_ALTER,
    START_ALTER,
    mariadb_gtid_fields,
    mysql_gtid_fields,
)
from binlogtool.formats.mysql_binlog.layout import FileContext
from binlogtool.formats.mysql_binlog.meaning import type_name
from binlogtool.formats.mysql_binlog.sql_binlog import Done, Statement, described_binlog
from binlogtool.formats.mysql_binlog.sql_comments import row_comments, statement_comments
from binlogtool.formats.mysql_binlog.sql_gtids import AUTOMATIC, knows_gtids, mariadb_gtid, mysql_gtid, parallel
from binlogtool.formats.mysql_binlog.sql_knowledge import Knowledge
from binlogtool.formats.mysql_binlog.sql_literals import in_hex
from binlogtool.formats.mysql_binlog.sql_load import PARTS, Loads
from binlogtool.formats.mysql_binlog.sql_names import named_database
from binlogtool.formats.mysql_binlog.sql_quick import Begun, Quick
from binlogtool.formats.mysql_binlog.sql_row_events import RowEvents
from binlogtool.formats.mysql_binlog.sql_scene import Scene, Unwritable, comment, scene_at
from binlogtool.formats.mysql_binlog.sql_session import Query, Session
from binlogtool.formats.mysql_binlog.sql_undo import Undo
from binlogtool.formats.mysql_binlog.sql_until import Pattern
from binlogtool.formats.mysql_binlog.sql_variables import VARIABLES, Variable, statements_of, variable
from binlogtool.formats.mysql_binlog.status import status_values
from binlogtool.formats.mysql_binlog.tracking import NOBODY, Owner
from binlogtool.formats.scripting import Wording
from binlogtool.limits import Limits

_T = EventType
_SILENT = OUTSIDE - {_T.INCIDENT} | {
    _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE,
}  # fmt: skip
_ROW_EVENTS = ROWS | {_T.TABLE_MAP}
_PLAIN_ROWS = ROWS - ROWS_COMPRESSED
_QUERIES = (_T.QUERY, _T.QUERY_COMPRESSED)
_TEXTS = (*_QUERIES, _T.EXECUTE_LOAD_QUERY)
_FINISH = (QueryKind.COMMIT, QueryKind.ROLLBACK)
_ROLLBACK = (b"ROLLBACK",)
_ALLOW_PARALLEL = 8
"""Bit of flags2 of MariaDB's GTID."""


@dataclass(slots=True)
class Statements:
    """One script.

    undo: the statements that roll back what is open. adrift: a part of the open transaction is lost, its rest must not
    be written. current: the transaction whose beginning was written. implied: the one that was begun here because
    its beginning is not among the chosen records. skipped: the next statement is an ALTER that is done later or never.
    ahead: what sets variables for the next statement; it is dropped with that. waiting: the beginning of a transaction
    of which nothing chosen was seen yet, and the session before it. announced: what the server was told of the log.
    """

    wording: Wording = Wording()
    session: Session = field(default_factory=Session)
    groups: Groups = field(default_factory=Groups)
    undo: tuple[bytes, ...] = ()
    adrift: bool = False
    current: Owner = NOBODY
    implied: Owner = NOBODY
    skipped: bool = False
    ahead: list[Variable] = field(default_factory=list)
    waiting: tuple[bytes, Session] | None = None
    announced: FormatDescription | None = None
    stopped: Finding | None = None
    missing: list[str] = field(default_factory=list)
    knowledge: Knowledge = field(default_factory=Knowledge)
    rows: RowEvents = field(init=False)
    loads: Loads = field(init=False)
    pattern: Pattern | None = field(init=False)
    _left_out: int = 0
    _first_left_out: Finding | None = None
    _last_done: str = ""
    begun: Begun | None = None
    _quick: tuple[FileContext, Quick] | None = None

    def __post_init__(self) -> None:
        self.rows = RowEvents(self.wording, self.session, self.knowledge)
        self.loads = Loads(self.wording.shelf)
        self.pattern = None if self.wording.until is None else Pattern(self.wording.until)

    @property
    def sets_gtids(self) -> bool:
        """Do transactions get their GTIDs?"""
        return self.wording.gtids and not self.wording.flat

    @property
    def _chooses(self) -> bool:
        """Is only a part of each transaction written?"""
        return self.wording.tables is not None or bool(self.wording.only)

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """The text for each record."""
        if context.schema is not None:
            self.knowledge.seed(context.schema.sql)
        notes = context.tracker.notes(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        made = list[bytes | Noted]()
        lows, highs, ends = (integers(batch.frames[name], start, stop) for name in ("offset", "end", "body_end"))
        codes, window = integers(batch.frames["type_code"], start, stop), batch.window
        tail = 4 if context.description.has_checksums else 0
        plain = _PLAIN_ROWS if self._is_plain and not self.adrift and tail else ()
        for i, (code, low, high, end) in enumerate(zip(codes, lows, highs, ends, strict=True)):
            if code in plain and high - end == tail and self.rows.plain(window[low:high], context.description):
                made.append(b"")
                continue
            index, owner, table = start + i, owners[i], maps[i]
            made.append(self._record(scene_at(context, batch, index, event_at(batch, index), owner, table, limits)))
        self.rows.keep()
        return made

    @property
    def _is_plain(self) -> bool:
        """Are row events written as they stand, all of them?"""
        w = self.wording
        return w.rows == "exact" and w.tables is None and not (w.comments or w.databases)

    def quick(
        self, context: FileContext, batch: Batch, start: int, stop: int, compile_: Callable[[Kernel], Kernel]
    ) -> tuple[bytes | memoryview, int]:
        """See `formats.scripting.Script`."""
        if self._quick is None or self._quick[0] is not context:
            self._quick = (context, Quick(context, compile_))
        if self.announced is not context.description or not batch.frames.count:
            return b"", start
        return self._quick[1].write(self, batch, start, stop)

    @property
    def is_settled(self) -> bool:
        """Does nothing wait for the next event?"""
        calm = not (self.adrift or self.ahead or self.skipped) and self.stopped is None and self.waiting is None
        return calm and self.implied == NOBODY and self.rows.is_empty

    # -- the beginning and the end -------------------------------------------------------------------------------------

    def lost(self, what: str = "") -> bytes:
        """What is open is rolled back; nothing is written until the next transaction begins."""
        if what and len(self.missing) < _MOST_TOLD:
            self.missing.append(what)
        self.groups.lose()
        self.adrift, self.implied = True, NOBODY
        return self._dropped()

    def end(self) -> bytes:
        """Closes what is open, says what is missing, and gives the client its state back."""
        if self.announced is None:
            return b""
        last = b"" if self.adrift or self.stopped else self._ended_rows(self.announced)
        last += self._without_implied(NOBODY) + self._dropped()
        last += client.quick(AUTOMATIC) if knows_gtids(self.announced) else b""
        last += self.session.end() + client.SCRIPT_END
        told = [*self.missing, *([self.stopped.message] if self.stopped else [])]
        return last + b"".join(f"# {text}\n".encode("ascii", "backslashreplace") for text in map(_one_line, told))

    def remarks(self) -> Sequence[Finding]:
        """How many statements an option left out; that no statement was the one to stop before."""
        found = []
        if self._first_left_out is not None:
            one = self._first_left_out
            found.append(replace(one, message=f"{self._left_out:,} {one.message}"))
        if self.pattern is not None and self.stopped is None:
            text = f"--stop-before {self.pattern.text!r}: there is no such statement; all was written"
            found.append(finding("statement-left-out", None, 0, text))
        return found

    def _announces(self, context: FileContext) -> bytes:
        """The FORMAT_DESCRIPTION, before all that it describes, and outside of transactions."""
        described, before = context.description, self.announced
        if described is before or (self.groups.open and before is not None):
            return b""
        self.announced = described
        if before is not None and _form(before) == _form(described):
            return b""
        if not described.event:
            return b"" if before is not None else client.script_start("a server")
        writer = described.server_version
        text = b"" if before is not None else client.script_start(writer if writer.isprintable() else "a server")
        text += client.quick(b"ROLLBACK") if described.create_timestamp or before is None else b""
        text += client.quick(described_binlog(described))
        return text + (client.quick(AUTOMATIC) if knows_gtids(described) else b"")

    # -- one record ----------------------------------------------------------------------------------------------------

    def _record(self, scene: Scene) -> bytes | Noted:
        event, code = scene.event, scene.event.code
        before = self._announces(scene.context)
        if (scene.context.sealed and code not in TYPES) or self.stopped is not None:
            return before  # the finding about the file says it for all
        was_open = self.groups.open
        step = Step.OUTSIDE if code == _T.TRANSACTION_PAYLOAD else self.groups.take(code, event.body)
        if self.adrift and not self._ashore(scene, step):
            return before
        if code not in _ROW_EVENTS:
            before += self._ended_rows(scene.context.description)
        before += self._without_implied(scene.owner)
        if code in GTIDS or (step is Step.OPENS and not was_open):
            before += self._dropped()  # the one before has no end
        found: tuple[Finding, ...] = ()
        try:
            made, found = self._statements(scene)
        except (MalformedError, CodecError, Unwritable) as error:
            self.adrift = self.groups.open
            why = f"{type_name(code)} is not written as a statement: {error.args[0]}"
            found = (_told(scene, "payload-undecodable", why),)
            return Noted(before + (self._dropped() if self.adrift else b""), found)
        text = self._placed(scene, step, made, self._comments(scene) if self.wording.comments else b"")
        return Noted(before + text, found) if found else before + text

    def _comments(self, scene: Scene) -> bytes:
        """What an event says, for people."""
        if scene.event.code not in ROWS or scene.table is None:
            return statement_comments(scene)
        if self.wording.tables is not None and not self.wording.tables(scene.table.qualified_name):
            return b""
        try:
            return row_comments(scene, self.knowledge.of(scene.table))
        except (MalformedError, CodecError) as error:
            return f"### not shown: {_one_line(str(error.args[0]))}\n".encode()

    def _placed(self, scene: Scene, step: Step, made: Sequence[Statement], comments: bytes) -> bytes:
        """The text of an event: at once, or with the first one of its transaction that was chosen."""
        if self.pattern is not None and (step is Step.ENDS or _closes(scene)) and self.stopped is None:
            gtid = f"GTID {scene.owner.gtid}, " if scene.owner.gtid else ""
            self._last_done = f"{gtid}at {scene.context.name}:{scene.event.end}"
        charset = self.session.charset if scene.event.code in _TEXTS else None
        parts = _texts(made, charset)
        if made and self._is_implied(scene) and not self.wording.flat:
            parts.insert(0, client.quick(b"START TRANSACTION"))
        if made or comments or scene.event.code in GTIDS or scene.event.code == _T.FORMAT_DESCRIPTION:
            parts[:0] = [comment(scene), comments]
        text = b"".join(parts)
        if not self._chooses or self.waiting is None:
            return text
        waited, _ = self.waiting
        if _opens(scene):
            self.waiting = (waited + text, self.waiting[1])
            return b""
        if step is Step.ENDS and (_closes(scene) or not made):
            self._never_mind()
            return b""
        if made or comments:
            self.waiting = None
            return waited + text
        return b""

    def _never_mind(self) -> None:
        """Nothing of the transaction was chosen: its beginning is not written."""
        if self.waiting is not None:
            self._restore(self.waiting[1])
            self.waiting, self.undo, self.implied = None, (), NOBODY

    def _restore(self, session: Session) -> None:
        self.session = self.rows.session = session

    def _ashore(self, scene: Scene, step: Step) -> bool:
        """Is this event written again? A transaction that begins is; one that ends was the one that is lost."""
        event = scene.event
        if (
            event.code in GTIDS
            or step is Step.OPENS
            or (event.code == _T.FORMAT_DESCRIPTION and not scene.context.relay)
        ):
            self.adrift = False
            return True
        ends = event.code in ENDINGS or (event.code in _QUERIES and query_kind(event.code, event.body) in _FINISH)
        if step is Step.ENDS or ends:
            self.adrift = False
        return False

    def _ended_rows(self, described: FormatDescription) -> bytes:
        """The row events of a statement whose end is not among the chosen ones."""
        return b"".join(_texts(self.rows.flush(described), None))

    def _dropped(self) -> bytes:
        """Rolls back what is open, and forgets what was prepared."""
        self.rows.drop()
        self.ahead.clear()
        self._never_mind()
        undo, self.undo = self.undo, ()
        note = b"# the rest of this transaction is not there\n" if undo else b""
        return note + b"".join(map(client.quick, undo))

    def _is_implied(self, scene: Scene) -> bool:
        """Does the transaction of this change begin here, since its own beginning is not among the chosen records?"""
        event, owner = scene.event, scene.owner
        is_query = event.code in _QUERIES and query_kind(event.code, event.body) is QueryKind.STATEMENT
        if not (is_query or event.code in ROWS) or self.undo or owner == NOBODY or owner == self.current:
            return False
        self.current = self.implied = owner
        self.undo = _ROLLBACK
        return True

    def _without_implied(self, owner: Owner) -> bytes:
        """Commits what was begun here when another transaction comes."""
        if self.implied == NOBODY or owner == self.implied:
            return b""
        self.implied, self.undo = NOBODY, ()
        return b"" if self.wording.flat else client.quick(b"COMMIT")

    # -- statements ----------------------------------------------------------------------------------------------------

    def _statements(self, scene: Scene) -> tuple[Sequence[Statement], tuple[Finding, ...]]:
        """The statements that an event means, and what is to be said about them."""
        code = scene.event.code
        if code in _ROW_EVENTS:
            made, inexact = self.rows.take(scene)
            return made, (_told(scene, "statement-inexact", inexact),) if inexact else ()
        if code in _SILENT:
            if code == _T.FORMAT_DESCRIPTION and self.undo and not scene.context.relay:
                return [*self._taken_undo()], ()  # the server crashed in this transaction
            return [], ()
        write = _WRITERS.get(code)
        if write is not None:
            return write(self, scene), ()
        if scene.event.flags & EventFlag.IGNORABLE:
            return [], ()
        raise Unwritable(_REASONS.get(code, "this type is not known"))

    def _taken_undo(self) -> tuple[bytes, ...]:
        undo, self.undo = self.undo, ()
        return undo

    def _waits(self) -> None:
        """A transaction begins: if only parts of transactions are written, this one may have none."""
        if self._chooses and self.waiting is None:
            self.waiting = (b"", replace(self.session, known=dict(self.session.known)))

    def _mariadb_gtid(self, scene: Scene) -> list[bytes]:
        gtid = mariadb_gtid_fields(bytes(scene.event.body))
        self.current = scene.owner
        self.skipped = bool((gtid.flags_extra or 0) & (START_ALTER | ROLLBACK_ALTER))
        self._waits()
        made = [] if self.wording.flat else parallel(self.session, allowed=bool(gtid.flags2 & _ALLOW_PARALLEL))
        made += mariadb_gtid(scene.event, gtid, self.session) if self.sets_gtids else []
        if gtid.flags2 & PREPARED_XA:
            if self.wording.flat:
                self._flattened(QueryKind.XA_START)
            xid = _xid(gtid.gtrid or b"", gtid.bqual or b"", gtid.format_id or 0)
            return [*made, self._xa_start(xid)]
        if not gtid.flags2 & STANDALONE and not self.wording.flat:
            self.undo = _ROLLBACK
            made.append(b"START TRANSACTION")
        return made

    def _xa_start(self, xid: bytes) -> bytes:
        self.undo = (b"XA END " + xid, b"XA ROLLBACK " + xid)
        return b"XA START " + xid

    def _mysql_gtid(self, scene: Scene) -> list[bytes]:
        self.current = scene.owner
        self._waits()
        if not self.sets_gtids:
            return []
        gtid = mysql_gtid_fields(scene.event.code, bytes(scene.event.body))
        return mysql_gtid(scene.event, gtid, scene.owner.gtid, self.session)

    def _query(self, scene: Scene) -> list[bytes]:
        event, load = scene.event, scene.event.code == _T.EXECUTE_LOAD_QUERY
        parts = query_parts(bytes(event.body), 13 if load else 0)
        sql = unpack_block(parts.sql, scene.limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        kind = QueryKind.STATEMENT if load else query_kind(event.code, event.body)
        if kind is QueryKind.STATEMENT:
            return self._statement(scene, parts, sql)
        if self.wording.flat:
            return self._flattened(kind)
        if kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self._waits()
        made = self._context(scene, parts)
        self._follow(kind, sql)
        if sql == b"BEGIN" and not {"microseconds", "hrnow"} & status_values(parts.status).keys():
            self.begun = Begun(self.session.key, bytes(event.body))
        return [*made, self._checked(sql)]

    def _statement(self, scene: Scene, parts: QueryParts, sql: bytes) -> list[bytes]:
        """A statement that is none of those around transactions."""
        ahead, self.ahead = self.ahead, []
        if self.skipped:
            return []
        if self.pattern is not None and self.pattern.fits(sql, parts.db):
            return self._stop(scene)
        if self.wording.comments or self.wording.rows == "statements":
            self.knowledge.learn(sql, parts.db, self.session.charset, self.session.mode)
        if self._leaves_out(scene, parts, sql):
            return []
        named = named_database(sql, self.wording.databases)
        if named is not None:
            raise Unwritable(f"its text has the name {named}, and --rewrite does not change texts")
        made = [*statements_of(ahead, self.session), *self._use(parts.db, scene.event.flags)]
        made += self._context(scene, parts)
        if scene.event.code == _T.EXECUTE_LOAD_QUERY:
            sql = self.loads.statement(scene, sql)
        return [*made, self._checked(sql)]

    def _stop(self, scene: Scene) -> list[bytes]:
        """Nothing is written from this transaction on."""
        place = f"{scene.context.name}:{scene.event.start}"
        gtid = f", GTID {scene.owner.gtid}" if scene.owner.gtid else ""
        after = f"; the last transaction before it is {self._last_done}" if self._last_done else ""
        text = f"stopped before {self.wording.until} at {place}{gtid}, time {scene.event.time}{after}"
        self.stopped = _told(scene, "stopped-before", text, Severity.WARNING)
        return []

    def _leaves_out(self, scene: Scene, parts: QueryParts, sql: bytes) -> bool:
        """Is a statement not chosen? One that may be about what is chosen is told."""
        database = parts.db.decode("utf-8", "backslashreplace")
        if self.wording.only:
            if database in self.wording.only:
                return False
            why = "statements of other default databases name the chosen ones: --database goes by the default database"
            told = named_database(sql, dict.fromkeys(self.wording.only, "")) is not None
        elif self.wording.tables is not None:
            why, told = (
                "statements were left out: --object chooses changes of rows, and the log has these as texts",
                True,
            )
        else:
            return False
        if told:
            self._left_out += 1
            first = self._first_left_out
            self._first_left_out = first or _told(scene, "statement-left-out", f"{why}; the first one is here")
        return True

    def _context(self, scene: Scene, parts: QueryParts) -> list[bytes]:
        """The session of a statement."""
        event = scene.event
        query = Query(status_values(parts.status), event.time, parts.thread_id, bool(self.undo))
        return self.session.for_query(query, scene.context.description)

    @staticmethod
    def _flattened(kind: QueryKind) -> list[bytes]:
        """What begins and ends transactions, where there are none."""
        if kind not in (QueryKind.BEGIN, QueryKind.COMMIT):
            raise Unwritable(f"{kind.name} needs its transaction, and --transactions flatten has none")
        return []

    def _checked(self, sql: bytes) -> bytes:
        reason = client.fault(sql, self.session.charset, self.session.mode)
        if reason is not None:
            raise Unwritable(reason)
        return sql

    def _follow(self, kind: QueryKind, sql: bytes) -> None:
        """What the statement does to the transaction that is open."""
        if kind is QueryKind.BEGIN:
            self.undo = _ROLLBACK
        elif kind in _FINISH:
            self.undo, self.implied = (), NOBODY
        elif kind is QueryKind.XA_START:
            self._xa_start(sql.split(None, 2)[2])
        elif kind is QueryKind.XA_END:
            self.undo = self.undo[-1:]

    def _use(self, database: bytes, flags: int) -> list[bytes]:
        if flags & EventFlag.SUPPRESS_USE:
            self.session.database = None  # it may be a CREATE or DROP DATABASE
            return []
        if not database or database == self.session.database:
            return []
        self.session.database = database
        text = database.decode("utf-8", "surrogateescape")
        name = self.wording.databases.get(text, text).encode("utf-8", "surrogateescape")
        made = [] if name.isascii() else self.session.for_names()
        return [*made, b"USE `" + name.replace(b"`", b"``") + b"`"]

    def _commit(self, scene: Scene) -> list[bytes]:
        self.undo, self.implied = (), NOBODY
        return [] if self.wording.flat else [b"COMMIT"]

    def _xa_prepare(self, scene: Scene) -> list[bytes]:
        body = decoded(_T.XA_PREPARE, bytes(scene.event.body), scene.context.description)
        data = bytes(scene.event.body)[13:]
        middle = body["gtrid_len"] if "gtrid_len" in body else int.from_bytes(scene.event.body[5:9], "little")
        xid = _xid(data[:middle], data[middle:], int.from_bytes(scene.event.body[1:5], "little", signed=True))
        self.undo = ()
        return [b"XA COMMIT " + xid + b" ONE PHASE" if scene.event.body[0] else b"XA PREPARE " + xid]

    def _variable(self, scene: Scene) -> list[bytes]:
        self.ahead.append(variable(scene))
        return []

    def _load(self, scene: Scene) -> list[bytes]:
        self.loads.part(scene)
        return []


_MOST_TOLD = 1000
"""Lines about what is missing at the end of a script."""


def _told(scene: Scene, id_: str, text: str, severity: Severity = Severity.ERROR) -> Finding:
    event = scene.event
    return finding(id_, event.start, event.end - event.start, text, record=event.record, severity=severity)


def _texts(made: Sequence[Statement], charset: str | None) -> list[bytes]:
    """Statements with their ends. charset: of the last one."""
    parts = list[bytes]()
    for i, one in enumerate(made):
        parts += one if isinstance(one, Done) else (client.ended(one, charset if i == len(made) - 1 else None),)
    return parts


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _form(described: FormatDescription) -> tuple[str, bytes, int | None]:
    """What a server must know of the events behind it."""
    return described.server_version, described.post_header_len, described.checksum_alg


def _kind(scene: Scene) -> QueryKind | None:
    code = scene.event.code
    return query_kind(code, scene.event.body) if code in _QUERIES else None


def _opens(scene: Scene) -> bool:
    return scene.event.code in GTIDS or _kind(scene) in (QueryKind.BEGIN, QueryKind.XA_START)


def _closes(scene: Scene) -> bool:
    return scene.event.code in ENDINGS or _kind(scene) in _FINISH


def _xid(gtrid: bytes, bqual: bytes, format_id: int) -> bytes:
    return b"%b,%b,%d" % (in_hex(gtrid), in_hex(bqual), format_id)


_WRITERS: Mapping[int, Callable[[Statements, Scene], list[bytes]]] = {
    _T.GTID: Statements._mariadb_gtid,
    **dict.fromkeys((_T.GTID_LOG, _T.GTID_TAGGED_LOG, _T.ANONYMOUS_GTID), Statements._mysql_gtid),
    **dict.fromkeys(_TEXTS, Statements._query),
    **dict.fromkeys(VARIABLES, Statements._variable),
    **dict.fromkeys(PARTS, Statements._load),
    _T.XID: Statements._commit,
    _T.XA_PREPARE: Statements._xa_prepare,
}
_REASONS: Mapping[int, str] = {_T.INCIDENT: "the server lost events here"}


def script(wording: Wording) -> Statements | Undo:
    """See `formats.base.Format.sql`."""
    return Undo(wording) if wording.undo else Statements(wording)
