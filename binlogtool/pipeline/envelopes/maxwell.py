"""Maxwell's messages (its page "Data format"), with all that its output_* options add and a log has.

Each row of a transaction has the number of its commit, which follows the rows: so messages are held back. If a
transaction has more than MAX_HELD_BYTES of messages, they are written at once, and only the last one has the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from binlogtool.formats.changes import DDL, END, ROWS, Change, Column, Image, Table
from binlogtool.limits import MIB
from binlogtool.log.jsonbytes import encoded as _encode
from binlogtool.pipeline.envelopes.values import Line, document, plain
from binlogtool.pipeline.envelopes.wkt import wkt

Message = dict[str, Any]
MOST = 32 * MIB
_WITH_CHANGE = 8
"""Approximate memory of a message and its change, per byte of the message."""
_TYPES = {"create": "create", "alter": "alter", "rename": "alter", "drop": "drop"}


class Maxwell(msgspec.Struct):
    """Encodes changes as Maxwell messages.

    keeps: return the changes with the messages of rows. held: messages of the open transaction in two halves, before
      and
    after the commit number. offset: number of its rows that were written already. query: the last statement, and the
    offset
    of its first rows.
    """

    keeps: bool = False
    held: list[tuple[bytes, bytes, Change | None]] = msgspec.field(default_factory=list)
    size: int = 0
    offset: int = 0
    query: tuple[str, int] | None = None

    def lines(self, changes: Iterable[Change]) -> Iterator[Line]:
        """Yield the messages for the changes of a record."""
        for change in changes:
            if change.kind == END:
                yield from self._committed(change.xid)
            elif change.kind in ROWS and change.table is not None:
                yield from self._row(change, change.table)
            elif change.kind == DDL and change.action in _TYPES:
                yield _encode(_definition(change)), change

    def rest(self) -> Iterator[Line]:
        """Return the messages of a transaction whose end was not read, without a commit number."""
        written, self.offset = list(self._without_number()), 0
        return iter(written)

    def _without_number(self) -> Iterator[Line]:
        held, self.held, self.size = self.held, [], 0
        for first, last, change in held:
            yield first + b',"xoffset":%d' % self.offset + last, change
            self.offset += 1

    def _row(self, change: Change, table: Table) -> Iterator[Line]:
        first, last = _encode(self._head(change, table))[:-1], b"," + _encode(_tail(change, table))[1:]
        self.held.append((first, last, change if self.keeps else None))
        self.size += (len(first) + len(last)) * (_WITH_CHANGE if self.keeps else 1)
        if self.size > MOST:
            newest = self.held.pop()
            yield from self._without_number()
            self.held.append(newest)

    def _head(self, change: Change, table: Table) -> Message:
        """Return the first members of a message; the statement is only in rows of its first row event."""
        place = change.place
        if place.query is None:
            self.query = None
        elif self.query is None or self.query[0] is not place.query:
            self.query = (place.query, place.offset)
        shown = self.query is not None and self.query[1] == place.offset
        query = {"query": plain(place.query)} if shown and place.query is not None else {}
        return {"database": table.database, "table": table.name, **query, "type": change.kind, "ts": place.logged}

    def _committed(self, xid: int | None) -> Iterator[Line]:
        number = b"" if xid is None else b',"xid":%d' % xid
        (held, self.held, self.size), offset, self.offset = (self.held, [], 0), self.offset, 0
        for at, (first, last, change) in enumerate(held, 1):
            ends = at == len(held)
            middle = b',"commit":true' if ends else b',"xoffset":%d' % (offset + at - 1)
            yield first + number + middle + last, change


def _tail(change: Change, table: Table) -> Message:
    place, transaction = change.place, change.transaction
    made: Message = {"position": f"{place.file}:{place.offset}"}
    if transaction is not None and transaction.id is not None:
        made["gtid"] = transaction.id
    made["server_id"] = place.server
    if transaction is not None and transaction.thread is not None:
        made["thread_id"] = transaction.thread
    columns = {column.name: column for column in table.columns}
    image = change.before if change.after is None else change.after
    data = _image(columns, image or {})
    made["primary_key"] = [data.get(name) for name in table.key]
    made["primary_key_columns"] = table.key
    made["data"] = data
    if change.before is not None and change.after is not None:
        old = changed(change)
        if old:
            made["old"] = _image(columns, old)
    return made


def changed(change: Change) -> Image:
    """Return the old values of the columns that an UPDATE changed."""
    after = change.after or {}
    return {name: value for name, value in (change.before or {}).items() if name not in after or after[name] != value}


def _image(columns: dict[str, Column], image: Image) -> Message:
    return {name: None if value is None else _value(columns[name], value) for name, value in image.items()}


def _value(column: Column, value: Any) -> Any:
    """Convert a value: bytes to base64, SET to a list, JSON to its document, DECIMAL to a number."""
    if column.type == "decimal":
        return msgspec.Raw(str(value).encode())
    if column.type == "json":
        return document(value)
    if column.type == "geometry" and not isinstance(value, bytes):
        return wkt(value["wkb"]) or value["wkb"]
    return value


def _definition(change: Change) -> Message:
    table, place, transaction = change.table, change.place, change.transaction
    kind = "database" if table is None else "table"
    return {
        "type": f"{kind}-{_TYPES[change.action]}",
        "database": change.database if table is None else table.database,
        **({} if table is None else {"table": table.name}),
        "ts": None if place.logged is None else place.logged * 1000,
        "sql": plain(change.statement),
        "position": f"{place.file}:{place.offset}",
        **({} if transaction is None or transaction.id is None else {"gtid": transaction.id}),
    }
