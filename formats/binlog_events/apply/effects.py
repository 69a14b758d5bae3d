"""Effects of events: row changes by primary key where known, else as whole rows; statements as text.

The key of a table comes from TABLE_MAP (binlog_row_metadata=FULL), else from the last CREATE TABLE in the
log. RENAME moves the rows along; where a statement changes rows in a way that only a server knows, the
object is in `doubts`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.apply.words import kind_of, text_of
from binlogtool.formats.binlog_events.codes import ROWS
from binlogtool.formats.binlog_events.ddl.alter import (
    copied,
    creates_if_missing,
    exchanged,
    keeps_rows,
    renames,
    selects,
)
from binlogtool.formats.binlog_events.ddl.tables import (
    about_tables,
    altered,
    created,
    dropped_database,
    emptied,
    key_of,
    truncates,
    verb,
)
from binlogtool.formats.binlog_events.ddl.words import after_gap
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.replay_rules import (
    ADD,
    DELETE,
    DROP,
    PATCH,
    PUT,
    REMOVE,
    RENAME,
    Change,
    Effects,
    Records,
    canonical,
)
from binlogtool.formats.table_names import full_name

STATEMENTS = "(statements)"
"""The object of statements: their texts, with what was set for each, as rows without a key."""

MOST_TABLES = 100_000
"""Tables whose keys are remembered."""

_WRITES_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH)\b", re.I)

_new = tuple.__new__
_decode = msgspec.msgpack.Decoder().decode

Row = Mapping[str, Any]


class Table(NamedTuple):
    """A table as its last TABLE_MAP describes it.

    `columns`: their number. `key`: (column name, characters; 0 = all).
    """

    columns: int
    key: tuple[tuple[str, int], ...]


class EventEffects(Effects):
    """Reader of the state changes that events cause (`EffectReader`)."""

    def __init__(self) -> None:
        self._maps: dict[tuple[Any, ...], Table] = {}
        self._tables: dict[str, Table] = {}
        self._created: dict[str, str] = {}
        self._filled: set[str] = set()
        self._doubts: dict[str, str] = {}
        self._ahead: list[Any] = []
        self._loaded = hashlib.sha256()

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """Return the changes of one event."""
        take = _EFFECTS.get(records.envelope.type[i])
        body = records.bodies[i]
        return () if take is None or body is None else take(self, records.envelope.object[i] or "", body)

    def doubts(self) -> Mapping[str, str]:
        """Return the tables whose rows the log's statements may have changed differently, with the reason."""
        return self._doubts

    # -- tables ------------------------------------------------------------------------------------------------------

    def _describes(self, name: str, body: Row) -> Iterable[Change]:
        """Note a TABLE_MAP: until a restart a server describes a table in one way under one table id."""
        mark = (name, body["table_id"], len(body["columns"]))
        table = self._maps.get(mark)
        if table is None:
            if len(self._maps) >= MOST_TABLES:
                self._maps.clear()
                self._tables.clear()
            table = self._maps[mark] = self._table(name, body)
        self._tables[name] = table
        return ()

    def _table(self, name: str, body: Row) -> Table:
        """Return a table with its primary key."""
        columns, key = body["columns"], body.get("primary_key")
        if key is not None:
            return Table(len(columns), tuple((part["column"], part.get("prefix", 0)) for part in key))
        declared = key_of(self._created[name]) if name in self._created else None
        if declared is None or declared.columns > len(columns):
            return Table(len(columns), ())
        names = [column.get("name") for column in columns]
        if None in names or len(set(names)) != len(names):
            names = [f"@{number}" for number in range(1, len(columns) + 1)]
        return Table(len(columns), tuple((names[index], size) for index, size in declared.parts))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, name: str, body: Row) -> Iterable[Change]:
        """Return the changes of a row event."""
        rows = body.get("rows")
        if not rows:
            return ()
        self._filled.add(name)
        table = self._tables.get(name)
        if table is None or not table.key:
            return _whole(name, rows)
        return _keyed(name, rows, table)

    # -- statements --------------------------------------------------------------------------------------------------

    def _sets(self, name: str, body: Row) -> Iterable[Change]:
        """Keep INTVAR, RAND or USER_VAR for the next statement."""
        self._ahead.append(body)
        return ()

    def _loads(self, name: str, body: Row) -> Iterable[Change]:
        """Hash a part of the file that LOAD DATA reads."""
        self._loaded.update(body.get("data", b""))
        return ()

    def _query(self, name: str, body: Row) -> Iterable[Change]:
        """Return the changes of a statement."""
        sql, db = text_of(body.get("sql")), text_of(body.get("db"))
        if kind_of(sql) is not QueryKind.STATEMENT:
            return ()
        ahead, self._ahead = self._ahead, []
        if "file_id" in body:
            ahead.append(self._loaded.hexdigest())
            self._loaded = hashlib.sha256()
        statement = Change(STATEMENTS, ADD, b"", canonical([db, body.get("sql"), ahead]))
        if about_tables(sql):
            return [*self._defines(sql, db), statement]
        if _WRITES_ROWS.match(sql, after_gap(sql)):
            self._doubts[STATEMENTS] = "statements that write rows: what they do to their tables, only a server knows"
        return (statement,)

    def _defines(self, sql: str, db: str) -> Iterator[Change]:
        """Yield the changes of a statement that is about tables."""
        stays = truncates(sql)
        for name in emptied(sql, db):
            yield self._empties(name, stays=stays)
        database = dropped_database(sql)
        if database is not None:
            for name in [name for name in (*self._filled, *self._created) if name.startswith(full_name(database, ""))]:
                yield self._empties(name)
        try:
            yield from self._alters(sql, db)
        except UsageError as error:
            change = altered(sql, db)
            table = created(sql, db) if change is None else change[0]
            self._forget(table or "")
            self._doubt(table or STATEMENTS, f"a statement about tables cannot be read: {error}")

    def _alters(self, sql: str, db: str) -> Iterator[Change]:
        """Yield the changes of CREATE TABLE, ALTER TABLE and RENAME TABLE."""
        table, change = created(sql, db), altered(sql, db)
        if table is not None and not (creates_if_missing(sql) and (table in self._created or table in self._filled)):
            self._creates(table, sql, db)
        elif change is not None and not keeps_rows(sql):
            if change[1]:
                self._forget(change[0])
            both = (change[0], exchanged(sql, db))
            for name in both if self._filled.intersection(both) else ():
                self._doubt(
                    name or both[0], "ALTER TABLE changed it while it had rows: these count as they were logged"
                )
        for one, other in renames(sql, db) if verb(sql) in ("ALTER", "RENAME") else ():
            yield self._renames(one, other)

    def _creates(self, table: str, sql: str, db: str) -> None:
        """Note a CREATE TABLE."""
        source = copied(sql, db)
        definition = sql if source is None else self._created.get(source)
        self._forget(table)
        if definition is not None and len(self._created) < MOST_TABLES:
            self._created[table] = definition
        if selects(sql):
            self._doubt(table, "CREATE TABLE ... SELECT filled it with rows that only a server knows")

    def _renames(self, one: str, other: str) -> Change:
        """Return the change for a rename; the table keeps its rows and its key."""
        definition, filled, doubt = self._created.get(one), one in self._filled, self._doubts.get(one)
        for name in (one, other):
            self._empties(name)
        if definition is not None:
            self._created[other] = definition
        if filled:
            self._filled.add(other)
        if doubt is not None:
            self._doubt(other, doubt)
        return _new(Change, (one, RENAME, b"", other.encode(errors="surrogatepass")))

    def _empties(self, name: str, *, stays: bool = False) -> Change:
        """Return the change for a table without rows; if it is dropped, its definition goes too."""
        if not stays:
            self._forget(name)
        self._filled.discard(name)
        self._doubts.pop(name, None)
        return Change(name, DROP, b"", b"")

    def _doubt(self, name: str, why: str) -> None:
        """Mark a table whose rows are not known any more."""
        if len(self._doubts) < MOST_TABLES:
            self._doubts[name] = why

    def _forget(self, name: str) -> None:
        """Forget the definition of a table."""
        self._created.pop(name, None)
        self._maps.clear()


def _whole(name: str, rows: Sequence[Mapping[str, Row]]) -> Iterator[Change]:
    """Yield row changes of a table without a key."""
    for row in rows:
        if "before" in row:
            yield _new(Change, (name, REMOVE, b"", canonical(row["before"])))
        if "after" in row:
            yield _new(Change, (name, ADD, b"", canonical(row["after"])))


def _keyed(name: str, rows: Sequence[Mapping[str, Row]], table: Table) -> Iterator[Change]:
    """Yield row changes of a table by primary key."""
    count, parts = table
    for row in rows:
        before, after = row.get("before"), row.get("after")
        if after is None:
            yield _new(Change, (name, DELETE, _key(parts, before or {}, {}), b""))
        elif before is None:
            yield _new(Change, (name, PUT, _key(parts, after, {}), canonical(after)))
        else:
            old, key = _key(parts, before, after), _key(parts, after, before)
            if key == old:
                yield _new(Change, (name, PUT if len(after) == count else PATCH, key, canonical(after)))
            else:
                yield _new(Change, (name, DELETE, old, b""))
                yield _new(Change, (name, PUT, key, canonical(after if len(after) == count else {**before, **after})))


def _key(parts: tuple[tuple[str, int], ...], row: Row, other: Row) -> bytes:
    """Return the key of a row; columns that one image lacks are taken from the other one."""
    values = []
    for name, prefix in parts:
        value = row[name] if name in row else other.get(name)
        values.append(value[:prefix] if prefix and isinstance(value, str | bytes) else value)
    return canonical(values)


def patch(image: bytes, operation: bytes) -> bytes | None:
    """Return a row with the columns that an update changed; None if one of them is not an image of this kind."""
    try:
        old, new = _decode(image), _decode(operation)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return canonical({**old, **new}) if isinstance(old, dict) and isinstance(new, dict) else None


_EFFECTS: Mapping[str, Callable[[EventEffects, str, Row], Iterable[Change]]] = {
    **dict.fromkeys((kind.name for kind in ROWS), EventEffects._rows),
    **dict.fromkeys(("INTVAR", "RAND", "USER_VAR"), EventEffects._sets),
    **dict.fromkeys(("BEGIN_LOAD_QUERY", "APPEND_BLOCK"), EventEffects._loads),
    **dict.fromkeys(("QUERY", "QUERY_COMPRESSED", "EXECUTE_LOAD_QUERY"), EventEffects._query),
    "TABLE_MAP": EventEffects._describes,
}
