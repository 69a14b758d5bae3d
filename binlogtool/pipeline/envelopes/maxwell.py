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
from binlogtool.pipeline.envelopes.values import document, plain

Message = dict[str, Any]
MOST = 32 * MIB
_TYPES = {"create": "create", "alter": "alter", "rename": "alter", "drop": "drop"}


class Maxwell(msgspec.Struct):
    """held: messages of the open transaction, in their two halves: what stands before the number, and what behind."""

    held: list[tuple[bytes, bytes]] = msgspec.field(default_factory=list)
    size: int = 0

    def lines(self, changes: Iterable[Change]) -> Iterator[bytes]:
        """The messages for the changes of a record."""
        for change in changes:
            if change.kind == END:
                yield from self._committed(change.xid)
            elif change.kind in ROWS and change.table is not None:
                yield from self._row(change, change.table)
            elif change.kind == DDL and change.action in _TYPES:
                yield _encode(_definition(change))

    def rest(self) -> Iterator[bytes]:
        """The messages of a transaction whose end was not read: nothing is said of its commit."""
        held, self.held, self.size = self.held, [], 0
        return (first + last for first, last in held)

    def _row(self, change: Change, table: Table) -> Iterator[bytes]:
        halves = _encode(_head(change, table))[:-1], b"," + _encode(_tail(change, table))[1:]
        self.held.append(halves)
        self.size += sum(map(len, halves))
        if self.size > MOST:
            last = self.held.pop()
            yield from self.rest()
            self.held.append(last)

    def _committed(self, xid: int | None) -> Iterator[bytes]:
        number = b"" if xid is None else b',"xid":%d' % xid
        held, self.held, self.size = self.held, [], 0
        for at, (first, last) in enumerate(held, 1):
            yield first + number + (b',"commit":true' if at == len(held) else b"") + last


def _head(change: Change, table: Table) -> Message:
    place = change.place
    query = {} if place.query is None else {"query": plain(place.query)}
    seconds = None if place.time is None else place.time // 1_000_000
    return {"database": table.database, "table": table.name, **query, "type": change.kind, "ts": seconds}


def _tail(change: Change, table: Table) -> Message:
    place, transaction = change.place, change.transaction
    made: Message = {"position": f"{place.file}:{place.end}"}
    if transaction is not None and transaction.id is not None:
        made["gtid"] = transaction.id
    made["server_id"] = place.server
    if transaction is not None and transaction.thread is not None:
        made["thread_id"] = transaction.thread
    columns = {column.name: column for column in table.columns}
    image = change.before if change.after is None else change.after
    data = _image(columns, image or {})
    if table.key:
        made["primary_key"] = [data.get(name) for name in table.key]
        made["primary_key_columns"] = table.key
    made["data"] = data
    if change.before is not None and change.after is not None:
        before = change.before
        changed = {n: v for n, v in before.items() if n not in change.after or change.after[n] != v}
        if changed:
            made["old"] = _image(columns, changed)
    return made


def _image(columns: dict[str, Column], image: Image) -> Message:
    return {name: None if value is None else _value(columns[name], value) for name, value in image.items()}


def _value(column: Column, value: Any) -> Any:
    """Bytes are written as base64, a SET as a list, JSON as what it is, DECIMAL as a number."""
    if column.type == "decimal":
        return msgspec.Raw(str(value).encode())
    if column.type == "json":
        return document(value)
    if column.type == "geometry" and not isinstance(value, bytes):
        return value["wkb"]
    return value


def _definition(change: Change) -> Message:
    table, time = change.table, change.place.time
    kind = "database" if table is None else "table"
    return {
        "type": f"{kind}-{_TYPES[change.action]}",
        "database": change.database if table is None else table.database,
        **({} if table is None else {"table": table.name}),
        "ts": None if time is None else time // 1000,
        "sql": plain(change.statement),
        "position": f"{change.place.file}:{change.place.end}",
    }
