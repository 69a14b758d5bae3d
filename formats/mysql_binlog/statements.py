"""The log as statements that a server accepts: `dump -O sql` (`formats.base.Script`).

Statements come out as they were logged, in the session that the log describes; row events as INSERT, UPDATE and DELETE
or, where these could change anything else, as BINLOG. A transaction of which a part is lost is rolled back: its
statements up to there are in the script already, the rest is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from binlogtool.findings import Severity, finding
from binlogtool.formats.base import Batch, CodecError, Noted, Wording
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog import sql_client as client
from binlogtool.formats.mysql_binlog.codes import GTIDS, ROWS, TYPES, EventFlag, EventType
from binlogtool.formats.mysql_binlog.compression import unpack_block
from binlogtool.formats.mysql_binlog.decode import decoded, query_parts
from binlogtool.formats.mysql_binlog.event import Event, event_at
from binlogtool.formats.mysql_binlog.groups import ENDINGS, OUTSIDE, STANDALONE, Groups, QueryKind, Step, query_kind
from binlogtool.formats.mysql_binlog.gtid_bodies import PREPARED_XA, ROLLBACK_ALTER, START_ALTER, mariadb_gtid_fields
from binlogtool.formats.mysql_binlog.layout import FileContext
from binlogtool.formats.mysql_binlog.meaning import type_name
from binlogtool.formats.mysql_binlog.rows import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.mysql_binlog.sql_binlog import binlog_statement, rows_with_map
from binlogtool.formats.mysql_binlog.sql_literals import double, in_hex, name, quoted
from binlogtool.formats.mysql_binlog.sql_names import named_database, renamed
from binlogtool.formats.mysql_binlog.sql_rows import row_statements
from binlogtool.formats.mysql_binlog.sql_session import Session
from binlogtool.formats.mysql_binlog.sql_undo import Undo
from binlogtool.formats.mysql_binlog.status import status_values
from binlogtool.formats.mysql_binlog.table_map import TableMap
from binlogtool.formats.mysql_binlog.tracking import NOBODY, Owner
from binlogtool.limits import Limits

_T = EventType
_SILENT = OUTSIDE - {_T.INCIDENT} | {
    _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT,
    _T.VIEW_CHANGE, _T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE,
}  # fmt: skip
_QUERIES = (_T.QUERY, _T.QUERY_COMPRESSED)
_FINISH = (QueryKind.COMMIT, QueryKind.ROLLBACK)
_ROLLBACK = (b"ROLLBACK",)
_BINARY = 63


class Unwritable(Exception):
    """An event that cannot be written as a statement; the reason in words."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known while an event is written: its file, its transaction, and the map of its table."""

    context: FileContext
    event: Event
    owner: Owner
    table: TableMap | None
    limits: Limits


@dataclass(slots=True)
class Statements:
    """One script.

    undo: the statements that roll back what is open. adrift: a part of the open transaction is lost, its rest must not
    be written. current: the transaction whose beginning was written. implied: the one that was begun here because
    its beginning is not among the chosen records. skipped: the next statement is an ALTER that is done later or never.
    ahead: what sets variables for the next statement; it is dropped with that.
    """

    wording: Wording = Wording()
    session: Session = field(default_factory=Session)
    groups: Groups = field(default_factory=Groups)
    undo: tuple[bytes, ...] = ()
    adrift: bool = False
    current: Owner = NOBODY
    implied: Owner = NOBODY
    skipped: bool = False
    ahead: list[bytes] = field(default_factory=list)
    _announced: bytes = b""
    _started: bool = False
    _gtid_next: bool = False

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """The text for each record."""
        notes = context.tracker.notes(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        return [
            self._record(batch, index, Scene(context, event_at(batch, index), owner, table, limits))
            for index, owner, table in zip(range(start, stop), owners, maps, strict=True)
        ]

    def lost(self) -> bytes:
        """What is open is rolled back; nothing is written until the next transaction begins."""
        self.groups.lose()
        self.adrift, self.implied = True, NOBODY
        self.ahead.clear()
        return self._rolled_back()

    def end(self) -> bytes:
        """Closes what is open, and gives the client its delimiter back."""
        if not self._started:
            return b""
        last = self._without_implied(NOBODY) + self._rolled_back()
        last += client.ended(b"SET @@session.gtid_next='AUTOMATIC'") if self._gtid_next else b""
        return last + client.ended(b"SET @@session.pseudo_slave_mode=0") + client.SCRIPT_END

    def _start(self, context: FileContext) -> bytes:
        self._started = True
        writer = context.description.server_version
        mode = b"SET @@session.pseudo_slave_mode=1, @@session.completion_type=0"
        return client.script_start(writer if writer.isprintable() else "a server") + client.ended(mode)

    # -- one record ----------------------------------------------------------------------------------------------------

    def _record(self, batch: Batch, index: int, scene: Scene) -> bytes | Noted:
        event = scene.event
        before = b"" if self._started else self._start(scene.context)
        if scene.context.sealed and event.code not in TYPES:
            return before  # the finding about the file says it for all
        step = Step.OUTSIDE if event.code == _T.TRANSACTION_PAYLOAD else self.groups.take(event.code, event.body)
        if self.adrift and not self._ashore(scene, step):
            return before
        before += self._without_implied(scene.owner)
        try:
            made = self._statements(scene)
        except (MalformedError, CodecError, Unwritable) as error:
            self.adrift = self.groups.open
            self.ahead.clear()
            text = f"{type_name(event.code)} is not written as a statement: {error.args[0]}"
            size = event.end - event.start
            found = finding(
                "payload-undecodable", event.start, size, text, record=event.record, severity=Severity.ERROR
            )
            return Noted(before + (self._rolled_back() if self.adrift else b""), (found,))
        if made and self._is_implied(scene) and not self.wording.flat:
            before += client.ended(b"START TRANSACTION")
        if made or event.code in GTIDS or event.code == _T.FORMAT_DESCRIPTION:
            before += _comment(batch, index, scene)
        return before + b"".join(map(client.ended, made))

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

    def _rolled_back(self) -> bytes:
        undo, self.undo = self.undo, ()
        note = b"# the rest of this transaction is not there\n" if undo else b""
        return note + b"".join(map(client.ended, undo))

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
        return b"" if self.wording.flat else client.ended(b"COMMIT")

    # -- statements ----------------------------------------------------------------------------------------------------

    def _statements(self, scene: Scene) -> list[bytes]:
        """The statements that an event means."""
        code = scene.event.code
        if code in _SILENT:
            if code == _T.FORMAT_DESCRIPTION and self.undo and not scene.context.relay:
                return [*self._taken_undo()]  # the server crashed in this transaction
            return []
        if code in ROWS:
            return self._rows(scene)
        write = _WRITERS.get(code)
        if write is not None:
            return write(self, scene)
        if scene.event.flags & EventFlag.IGNORABLE:
            return []
        raise Unwritable(_REASONS.get(code, "this type is not known"))

    def _taken_undo(self) -> tuple[bytes, ...]:
        undo, self.undo = self.undo, ()
        return undo

    def _mariadb_gtid(self, scene: Scene) -> list[bytes]:
        gtid = mariadb_gtid_fields(bytes(scene.event.body))
        self.current = scene.owner
        self.skipped = bool((gtid.flags_extra or 0) & (START_ALTER | ROLLBACK_ALTER))
        made = []
        if self.wording.gtids:
            place = f"gtid_domain_id={gtid.domain_id}, @@session.server_id={scene.event.server}"
            made.append(f"SET @@session.{place}, @@session.gtid_seq_no={gtid.seq_no}".encode())
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
        if not self.wording.gtids:
            return []
        self._gtid_next = True
        return [b"SET @@session.gtid_next=" + quoted(scene.owner.gtid or "ANONYMOUS")]

    def _query(self, scene: Scene) -> list[bytes]:
        event = scene.event
        parts = query_parts(bytes(event.body))
        sql = unpack_block(parts.sql, scene.limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        kind = query_kind(event.code, event.body)
        if kind is not QueryKind.STATEMENT:
            return self._flattened(kind) if self.wording.flat else self._bracket(kind, sql)
        if self.skipped:
            return []
        named = named_database(sql, self.wording.databases)
        if named is not None:
            raise Unwritable(f"its text has the name {named}, and --rewrite does not change texts")
        made = self._use(parts.db, event.flags)
        if event.flags & EventFlag.THREAD_SPECIFIC:
            made += self.session.change({"@@session.pseudo_thread_id": str(parts.thread_id)})
        made += self.session.for_query(status_values(parts.status), event.time, scene.context.description)
        ahead, self.ahead = self.ahead, []
        return [*ahead, *made, self._checked(sql)]

    def _bracket(self, kind: QueryKind, sql: bytes) -> list[bytes]:
        self._follow(kind, sql)
        return [self._checked(sql)]

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
        text = database.decode("utf-8", "surrogateescape")
        database = self.wording.databases.get(text, text).encode("utf-8", "surrogateescape")
        if not text or text == self.session.database:
            return []
        if any(byte < 0x20 for byte in database):
            raise Unwritable("the name of its database has control characters")
        self.session.database = text
        return [b"USE `" + database.replace(b"`", b"``") + b"`"]

    def _rows(self, scene: Scene) -> list[bytes]:
        event, table, described = scene.event, scene.table, scene.context.description
        if table is None:
            size = described.table_id_size
            if int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID:
                return []
            raise Unwritable("its TABLE_MAP is missing")
        if not count_rows(event.code, event.body, table, scene.limits):  # raises where the event does not fit its map
            return []
        table = renamed(table, self.wording.databases)
        made = row_statements(event.code, event.body, table, scene.limits)
        if made is not None:
            flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
            return [*self.session.for_rows(flags, event.time, described), *made]
        announced, self._announced = self._announced, described.event
        first = [] if announced == described.event else [binlog_statement(described.event)]
        return [*first, rows_with_map(event, table, described, scene.limits)]

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
        """INTVAR, RAND and USER_VAR: for the next statement."""
        code = scene.event.code
        body = decoded(code, bytes(scene.event.body), scene.context.description)
        if code == _T.RAND:
            self.ahead.append(f"SET @@RAND_SEED1={body['seed1']}, @@RAND_SEED2={body['seed2']}".encode())
        elif code == _T.INTVAR:
            if body["type"] not in ("LAST_INSERT_ID", "INSERT_ID"):
                raise Unwritable(f"variable {body['type']} is not known")
            self.ahead.append(f"SET {body['type']}={body['value']}".encode())
        else:
            self.ahead += self._user_variable(body)
        return []

    def _user_variable(self, body: Mapping[str, object]) -> list[bytes]:
        start = b"SET @" + _name(body["name"]) + b":="
        value, kind = body.get("value"), body.get("type")
        if body.get("is_null") or kind is None:
            return [start + b"NULL"]
        if kind == "STRING":
            raw = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
            collation = body["charset"]
            if collation == _BINARY:
                return [start + in_hex(raw)]
            change = self.session.change({"@@session.collation_connection": str(collation)})
            return [*change, start + b"CAST(" + in_hex(raw) + b" AS CHAR)"]
        text = double(value) if isinstance(value, float) else str(value).encode()
        if text is None:
            raise Unwritable("its value is no number")
        return [start + text]


def _name(text: object) -> bytes:
    return name(text) if isinstance(text, str) else b"`" + bytes(text).replace(b"`", b"``") + b"`"  # type: ignore[call-overload]


def _xid(gtrid: bytes, bqual: bytes, format_id: int) -> bytes:
    return b"%b,%b,%d" % (in_hex(gtrid), in_hex(bqual), format_id)


def _comment(batch: Batch, index: int, scene: Scene) -> bytes:
    """The place and the type of an event; of the first of a transaction its GTID, of the first of a file its name."""
    place = str(scene.event.start)
    if batch.holder is not None:
        place += f"+{int(batch.frames['offset'][index])}"
    shown = scene.owner.gtid if scene.event.code in GTIDS else None
    if scene.event.code == _T.FORMAT_DESCRIPTION:
        shown = scene.context.name
    shown = f" {shown}" if shown and shown.isprintable() else ""
    return f"# at {place} {type_name(scene.event.code)}{shown}\n".encode()


_WRITERS: Mapping[int, Callable[[Statements, Scene], list[bytes]]] = {
    _T.GTID: Statements._mariadb_gtid,
    _T.GTID_LOG: Statements._mysql_gtid,
    _T.GTID_TAGGED_LOG: Statements._mysql_gtid,
    _T.ANONYMOUS_GTID: Statements._mysql_gtid,
    _T.QUERY: Statements._query,
    _T.QUERY_COMPRESSED: Statements._query,
    _T.XID: Statements._commit,
    _T.XA_PREPARE: Statements._xa_prepare,
    _T.INTVAR: Statements._variable,
    _T.RAND: Statements._variable,
    _T.USER_VAR: Statements._variable,
}
_REASONS: Mapping[int, str] = {
    _T.INCIDENT: "the server lost events here",
    _T.EXECUTE_LOAD_QUERY: "LOAD DATA needs the file whose parts stand in the events before it",
}


def script(wording: Wording) -> Statements | Undo:
    """See `formats.base.Format.sql`."""
    return Undo(wording) if wording.undo else Statements(wording)
