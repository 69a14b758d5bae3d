"""Maxwell's messages (its page "Data format"), with all that its output_* options add and a log has.

Each row of a transaction has the number of its commit, which stands behind the rows: so they are held back. Of one with
more than MOST bytes of messages they are written at once, and only the last one has the number.
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
"""So many bytes take a byte of a message and its change, about."""
_TYPES = {"create": "create", "alter": "alter", "rename": "alter", "drop": "drop"}


class Maxwell(msgspec.Struct):
    """held: messages of the open transaction, in their two halves: what stands before the number, and what behind.
    offset: how many of its rows were written already. query: the last statement, and where its first rows are.
     keeps: are the changes wanted beside the messages of rows?"""

    keeps: bool = False
    held: list[tuple[bytes, bytes, Change | None]] = msgspec.field(default_factory=list)
    size: int = 0
    offset: int = 0
    query: tuple[str, int] | None = None

    def lines(self, changes: Iterable[Change]) -> Iterator[Line]:
        """The messages for the changes of a record."""
        for change in changes:
            if change.kind == END:
                yield from self._committed(change.xid)
            elif change.kind in ROWS and change.table is not None:
                yield from self._row(change, change.table)
            elif change.kind == DDL and change.action in _TYPES:
                yield _encode(_definition(change)), change

    def rest(self) -> Iterator[Line]:
        """The messages of a transaction whose end was not read: nothing is said of its commit."""
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
        """The statement stands with the rows of its first row event only."""
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
    """Of an update the columns whose values are others than before, as they were."""
    after = change.after or {}
    return {name: value for name, value in (change.before or {}).items() if name not in after or after[name] != value}


def _image(columns: dict[str, Column], image: Image) -> Message:
    return {name: None if value is None else _value(columns[name], value) for name, value in image.items()}


def _value(column: Column, value: Any) -> Any:
    """Bytes are written as base64, a SET as a list, JSON as what it is, DECIMAL as a number."""
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
