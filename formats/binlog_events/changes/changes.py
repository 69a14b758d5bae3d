"""Produce the row changes of a log (`OutputRules.start_changes`): server, position, transaction, old and new values.

Names, keys and types of columns come from the table maps, --schema, or the log's DDL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import DIVERGES, Finding, Severity
from binlogtool.formats.binlog_events.changes import untold
from binlogtool.formats.binlog_events.changes.cascades import Cascades
from binlogtool.formats.binlog_events.changes.tables import table_of
from binlogtool.formats.binlog_events.codes import GTIDS, MYSQL_GTIDS, QUERIES, ROWS, TYPES, EventType
from binlogtool.formats.binlog_events.ddl.alter import renames
from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge
from binlogtool.formats.binlog_events.ddl.modes import usual_text
from binlogtool.formats.binlog_events.ddl.tables import about_tables, altered, created, emptied, truncates, verb
from binlogtool.formats.binlog_events.ddl.words import QUOTED, after_gap
from binlogtool.formats.binlog_events.events.decoding import xid
from binlogtool.formats.binlog_events.events.event import event_at
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.gtid.bodies import mariadb_gtid_fields, mysql_gtid_fields
from binlogtool.formats.binlog_events.rows.partial_rows import with_kept
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, decode_rows
from binlogtool.formats.binlog_events.sql.choice import told
from binlogtool.formats.binlog_events.sql.scene import Scene, query_of, scene_at
from binlogtool.formats.binlog_events.sql.transaction import kind_of
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.changes import (
    BEGIN,
    DDL,
    DELETE,
    END,
    INSERT,
    TRUNCATE,
    UPDATE,
    Change,
    Place,
    Table,
    Told,
    Transaction,
)
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError
from binlogtool.formats.table_names import full_name, parts_of
from binlogtool.limits import Limits

_T = EventType
_DECIDES = re.compile(rb"XA\s+(?:COMMIT|ROLLBACK)\b", re.IGNORECASE)
_DEFINES = re.compile(r"(?:CREATE|ALTER|DROP|RENAME|TRUNCATE)\b", re.IGNORECASE)
_DATABASE = re.compile(
    rf"(?:CREATE|ALTER|DROP)\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?({QUOTED}|[\w$]+)", re.IGNORECASE
)
_UNNAMED = "the names of its columns are not known: --schema FILE.sql with its CREATE TABLE gives them"
_PARTIAL = "the log does not have all of its columns (binlog_row_image): they are left out"
_DIFFERENCE = "$diff"


class RowChanges(msgspec.Struct):
    """Follows the events of a log and produces row changes.

    Attributes:
        current: the open transaction.
        query: the statement of the next row events.
        reported: (table, text) of findings that were reported.
    """

    groups: Groups = msgspec.field(default_factory=Groups)
    knowledge: Knowledge = msgspec.field(default_factory=Knowledge)
    current: Transaction | None = None
    query: str | None = None
    said: set[tuple[str, str]] = msgspec.field(default_factory=set)
    cascades: Cascades = msgspec.field(default_factory=Cascades)

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.changes.Changes`."""
        self.knowledge.seed(context.hints.schema)
        notes = context.tracker.notes(batch)
        for i in range(start, stop):
            scene = scene_at(context, batch, i, event_at(batch, i), notes.owners[i], notes.maps[i], limits)
            try:
                yield self._record(scene)
            except (MalformedError, CodecError) as error:
                yield _failed(scene, str(error.args[0]))

    def lost(self) -> None:
        """See `formats.changes.Changes`."""
        self.groups.lose()
        self.current = self.query = None

    # -- events --------------------------------------------------------------------------------------------------------

    def _record(self, scene: Scene) -> Told:
        event, code = scene.event, scene.event.code
        if scene.context.sealed and code not in TYPES:
            return Told()  # a finding about the file reports it once
        step = Step.OUTSIDE if code == _T.TRANSACTION_PAYLOAD else self.groups.take(code, event.body)
        if code in GTIDS or (step is Step.OPENS and self.current is None):
            self._begin(scene)
            if code == _T.GTID:
                return Told((Change(BEGIN, self._place(scene, self.current), self.current),))
        if code in ROWS:
            return self._rows(scene)
        if code in (_T.ROWS_QUERY, _T.ANNOTATE_ROWS):
            self.query = bytes(event.body[code == _T.ROWS_QUERY :]).decode("utf-8", "backslashreplace")
        if code in QUERIES or code == _T.EXECUTE_LOAD_QUERY:
            return self._query(scene, step)
        if step is Step.ENDS:
            return Told((self._end(scene, xid(bytes(event.body)) if code == _T.XID else None),))
        if code == _T.INCIDENT:
            return _failed(scene, untold.INCIDENT)
        return Told()

    def _begin(self, scene: Scene) -> None:
        event, time, thread = scene.event, None, None
        if event.code == _T.GTID:
            thread = mariadb_gtid_fields(bytes(event.body)).thread_id
        elif event.code in GTIDS and event.code != _T.ANONYMOUS_GTID:
            time = mysql_gtid_fields(event.code, bytes(event.body)).original_commit_timestamp or None
        elif event.code in QUERIES:
            thread = query_of(scene)[0].thread_id
        self.query = None
        begun = event.code not in MYSQL_GTIDS
        self.current = Transaction(scene.owner.gtid, _file(scene), event.start, time, thread, begun)

    def _end(self, scene: Scene, number: int | None = None, statement: str = "") -> Change:
        ended, self.current, self.query = self.current, None, None
        return Change(END, self._place(scene, ended), ended, statement=statement, xid=number)

    def _ended(self, scene: Scene, step: Step, sql: bytes) -> Told:
        """Process a statement about a transaction; one about a prepared transaction is its own group."""
        if step is not Step.ENDS and not _DECIDES.match(sql):
            return Told()
        return Told((self._end(scene, statement=sql.decode("utf-8", "backslashreplace")),))

    def _place(self, scene: Scene, transaction: Transaction | None) -> Place:
        event = scene.event
        time = transaction.time if transaction is not None else None
        if time is None and event.time:
            time = event.time * 1_000_000
        engine = "mariadb" if scene.context.description.is_mariadb else "mysql"
        logged = event.time or None
        return Place(_file(scene), event.start, event.end, event.server, engine, time, logged, 0, self.query)

    def _query(self, scene: Scene, step: Step) -> Told:
        kind, (parts, sql) = kind_of(scene), query_of(scene)
        if kind is QueryKind.BEGIN and self.current is not None:
            self.current = msgspec.structs.replace(
                self.current, thread=parts.thread_id, begun=True, offset=scene.event.start
            )
            return Told((Change(BEGIN, self._place(scene, self.current), self.current),))
        if kind is not None and kind is not QueryKind.STATEMENT:
            why = untold.taken_back(kind, sql, ends=step is Step.ENDS)
            notes = (told(scene, DIVERGES, why, Severity.NOTE),) if why else ()
            return msgspec.structs.replace(self._ended(scene, step, sql), findings=notes)
        text, database = usual_text(sql, parts), parts.db.decode("utf-8", "backslashreplace")
        made, found, about = list(self._statement(scene, text, database)), tuple[Finding, ...](), None
        if untold.writes_rows(text):
            found = _failed(scene, untold.STATEMENT).findings
            name = self.knowledge.changed(text, database)
            about = _named(name or "")
            found += tuple(self.cascades.of_statement(self.knowledge.keys, scene.event, name, text))
        if about_tables(text[:4096]):
            self.knowledge.learn(sql, parts)
        if step in (Step.ENDS, Step.ALONE):
            made.append(self._end(scene))
        return Told(made, found, about)

    def _statement(self, scene: Scene, text: str, database: str) -> Iterator[Change]:
        """Produce the changes of a statement that defines or empties tables."""
        place, current = self._place(scene, self.current), self.current
        if not _DEFINES.match(text, after_gap(text)):
            return
        found, new = list(_actions(text, database)), dict(_renames(text, database))
        for action, name in found or [("", "")]:
            home, about = parts_of(name)[0], _named(name)
            if action == "truncate":
                yield Change(TRUNCATE, place, current, about)
            yield Change(
                DDL, place, current, about, database=home or database, statement=text, action=action,
                becomes=_named(new.get(name, "")),
            )  # fmt: skip

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(self, scene: Scene) -> Told:
        event = scene.event
        size = scene.context.description.table_id_size
        if scene.table is None:
            ends_only = int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID
            return Told() if ends_only else _failed(scene, "its TABLE_MAP is missing")
        known = self.knowledge.keyed(scene.table)
        table = table_of(known)
        if table is None:
            return _failed(scene, known.uncertain or f"{known.qualified_name}: {_UNNAMED}")
        rows = decode_rows(event.code, event.body, known, scene.limits)
        place, transaction = self._place(scene, self.current), self.current
        if event.body[size] & STMT_END:
            self.query = None
        if event.code == _T.PARTIAL_UPDATE_ROWS:
            rows = [{**row, "after": _without_differences(with_kept(row["before"], row["after"]))} for row in rows]
        found = self.cascades.of_event(self.knowledge.keys, event, size, table.full_name, lambda: rows)
        return Told(_changes(rows, place, transaction, table), (*self._doubts(scene, table, rows), *found))

    def _doubts(self, scene: Scene, table: Table, rows: list[dict[str, dict[str, object]]]) -> tuple[Finding, ...]:
        """Report images that lack columns, once for each table."""
        name = table.full_name
        count, found = len(table.columns), []
        whole = all(len(image) == count for row in rows[:1] for image in row.values())
        if not whole and (name, _PARTIAL) not in self.said:
            self.said.add((name, _PARTIAL))
            found.append(told(scene, "statement-inexact", f"{name}: {_PARTIAL}", Severity.WARNING))
        return tuple(found)


def _actions(text: str, database: str) -> Iterator[tuple[str, str]]:
    """Iterate over (action, "database.table" or database) of a DDL statement; nothing if it is about something else."""
    word = verb(text)
    of_database = _DATABASE.match(text, after_gap(text))
    if of_database is not None:
        yield word.lower(), full_name(of_database[1].strip("`").replace("``", "`"), "")
    elif truncates(text) or word == "DROP":
        yield from (("truncate" if truncates(text) else "drop", name) for name in emptied(text, database))
    elif (made := created(text, database)) is not None:
        yield "create", made
    elif (changed := altered(text, database)) is not None:
        yield "alter", changed[0]
    elif word == "RENAME":
        yield from (("rename", one) for one, _ in _renames(text, database))


def _renames(text: str, database: str) -> list[tuple[str, str]]:
    """Parse the renames of a statement; nothing if it cannot be parsed."""
    try:
        return renames(text, database) if verb(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _named(name: str) -> Table | None:
    """Return a table without columns by its name ("database.table"); None if there is no table in the name."""
    home, table = parts_of(name)
    return Table(home, table, ()) if table else None


def _changes(
    rows: list[dict[str, dict[str, object]]], place: Place, transaction: Transaction | None, table: Table
) -> Iterator[Change]:
    """Iterate over the changes of an event, one for each row."""
    for number, row in enumerate(rows):
        before, after = row.get("before"), row.get("after")
        kind = DELETE if after is None else INSERT if before is None else UPDATE
        here = place if not number else msgspec.structs.replace(place, row=number)
        yield Change(kind, here, transaction, table, before, after)


def _without_differences(image: dict[str, object]) -> dict[str, object]:
    """Drop JSON columns of which the log has only a difference: their value is unknown."""
    if not any(isinstance(value, dict) and _DIFFERENCE in value for value in image.values()):
        return image
    return {name: v for name, v in image.items() if not (isinstance(v, dict) and _DIFFERENCE in v)}


def _failed(scene: Scene, why: str) -> Told:
    text = f"{type_name(scene.event.code)} makes no message: {why}"
    table = scene.table if scene.event.code in ROWS else None
    about = None if table is None else Table(table.database, table.table, ())
    return Told((), (told(scene, "payload-undecodable", text),), about)


def _file(scene: Scene) -> str:
    return scene.context.name.rpartition("/")[2]


def changes() -> RowChanges:
    """See `formats.base.Output.changes`."""
    return RowChanges()
