"""Debezium's change events (its pages on the MySQL and MariaDB connectors, "Data change events"): key and value.

What only a running connector knows is left out: when it processed an event (the outer ts_ms), and the name of the
server unless an option gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.formats.changes import (
    BEGIN,
    DDL,
    DELETE,
    END,
    INSERT,
    ROWS,
    TRUNCATE,
    UPDATE,
    Change,
    Image,
    Table,
    Transaction,
)
from binlogtool.log.jsonbytes import encoded as _encode
from binlogtool.pipeline.envelopes.debezium_values import Write, writer
from binlogtool.pipeline.envelopes.values import Line, plain, quoted
from binlogtool.pipeline.envelopes.wishes import Options

Message = dict[str, Any]
_OPS = {INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}
_MOST_TABLES = 10_000
_STARTED = re.compile(r"\s+START\s+TRANSACTION\s*\Z", re.IGNORECASE)
"""Suffix that MySQL adds to CREATE TABLE ... SELECT, whose rows follow; the connector removes it."""


class Debezium(msgspec.Struct):
    """Encodes changes as Debezium messages.

    version: of this program. order: number of messages of the open transaction; orders: the same by table.
    """

    options: Options
    version: str
    order: int = 0
    orders: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    _open: Transaction | None = None
    _writers: dict[int, tuple[Table, dict[str, Write]]] = msgspec.field(default_factory=dict)

    def lines(self, changes: Iterable[Change]) -> Iterator[Line]:
        """Yield the messages for the changes of a record."""
        defined = list[Change]()
        for change in changes:
            if change.kind == DDL and self.options.schema_messages:
                defined.append(change)
                continue
            yield from self._definitions(defined)
            defined = []
            yield from ((_encode(message), change) for message in self._messages(change))
        yield from self._definitions(defined)

    def rest(self) -> Iterator[Line]:
        """Return an empty iterator: no message is held back."""
        return iter(())

    def _messages(self, change: Change) -> Iterator[Message]:
        if change.kind == BEGIN:
            yield from self._begun(change)
        if change.kind == END:
            yield from self._ended(change)
        if change.kind == TRUNCATE:
            yield {"key": None, "value": self._value(change, "t", None, None, self._transaction(change))}
        if change.kind not in ROWS or change.table is None:
            return
        before, after = (self._image(change.table, image) for image in (change.before, change.after))
        old, new = _key(change.table, before, after), _key(change.table, after, before)
        if change.kind == UPDATE and old != new:
            yield from self._deleted(change, old, before, {"__debezium.newkey": new})
            created = self._value(change, "c", None, after, self._transaction(change))
            yield {"headers": {"__debezium.oldkey": old}, "key": new, "value": created}
        elif change.kind == DELETE:
            yield from self._deleted(change, old, before)
        else:
            value = self._value(change, _OPS[change.kind], before, after, self._transaction(change))
            yield {"key": new, "value": value}

    def _begun(self, change: Change) -> Iterator[Message]:
        if change.transaction is not None:
            self._open, self.order, self.orders = change.transaction, 0, {}
            yield from self._boundary(change, "BEGIN", None, None)

    def _ended(self, change: Change) -> Iterator[Message]:
        """Close the open transaction; a statement that is a transaction of its own has no END message."""
        says_so = change.xid is not None or change.statement.upper() in ("COMMIT", "ROLLBACK")
        if self._open is not None and says_so:
            tables = [{"data_collection": ".".join(name), "event_count": n} for name, n in self.orders.items()]
            yield from self._boundary(change, "END", self.order, tables)
        self._open, self.order, self.orders = None, 0, {}

    def _boundary(self, change: Change, status: str, count: int | None, tables: Any) -> Iterator[Message]:
        if self.options.transaction_messages and self._open is not None:
            own, time = _name(self._open), change.place.time
            counts = {"event_count": count, "data_collections": tables}
            value = {"status": status, "id": own, **counts, "ts_ms": None if time is None else time // 1000}
            yield {"key": {"id": own}, "value": value}

    def _definitions(self, changes: list[Change]) -> Iterator[Line]:
        """Yield messages of the schema change topic, one per table of a statement, without the parser's
        tableChanges.
        """
        names = ",".join(one.name for change in changes if (one := change.becomes or change.table) is not None)
        for change in changes:
            database, source = change.table.database if change.table else change.database, self._source(change)
            source["table"] = names or None
            value = {"source": source, "databaseName": database, "schemaName": None, "ddl": _statement(change)}
            yield _encode({"key": {"databaseName": database}, "value": value}), change

    def _deleted(self, change: Change, key: Any, before: Any, headers: Message | None = None) -> Iterator[Message]:
        head: Message = {} if headers is None else {"headers": headers}
        yield {**head, "key": key, "value": self._value(change, "d", before, None, self._transaction(change))}
        if self.options.tombstones:
            yield {**head, "key": key, "value": None}

    def _value(self, change: Change, op: str, before: Any, after: Any, transaction: Message) -> Message:
        return {"before": before, "after": after, "source": self._source(change), **transaction, "op": op}

    def _image(self, table: Table, image: Image | None) -> Message | None:
        if image is None:
            return None
        writers = self._writers_of(table)
        return {name: None if value is None else writers[name](value) for name, value in image.items()}

    def _writers_of(self, table: Table) -> dict[str, Write]:
        known = self._writers.get(id(table))
        if known is None:
            if len(self._writers) >= _MOST_TABLES:
                self._writers.clear()
            made = {column.name: writer(column, self.options) for column in table.columns}
            known = self._writers[id(table)] = (table, made)
        return known[1]

    def _source(self, change: Change) -> Message:
        place, transaction, table = change.place, change.transaction, change.table
        micros = place.time
        if micros is not None and change.kind in (TRUNCATE, DDL):  # the connector has milliseconds for statements
            micros = micros // 1000 * 1000
        named = {} if self.options.source_name is None else {"name": self.options.source_name}
        return {
            "version": self.version,
            "connector": place.engine,
            **named,
            "ts_ms": None if micros is None else micros // 1000,
            "snapshot": "false",
            "db": table.database if table else change.database,
            "sequence": None,
            "ts_us": micros,
            "ts_ns": None if micros is None else micros * 1000,
            "table": table.name if table else None,
            "server_id": place.server,
            "gtid": transaction.id if transaction else None,
            "file": place.file,
            "pos": place.offset,
            "row": place.row,
            "thread": transaction.thread if transaction else None,
            "query": None if place.query is None else plain(place.query),
        }

    def _transaction(self, change: Change) -> Message:
        """Return the transaction member with the message's numbers in it; None if its beginning was not read."""
        transaction = change.transaction
        if transaction is None or not transaction.begun or change.table is None:
            return {"transaction": None}
        if transaction is not self._open:
            self._open, self.order, self.orders = transaction, 0, {}
        name = (change.table.database, change.table.name)
        self.order += 1
        self.orders[name] = self.orders.get(name, 0) + 1
        return {
            "transaction": {
                "id": _name(transaction),
                "total_order": self.order,
                "data_collection_order": self.orders[name],
            }
        }


def _statement(change: Change) -> str:
    """Return the text of a DDL statement; for one about several tables, the part for this table."""
    table, new = change.table, change.becomes
    if table is not None and change.action == "drop":
        return f"DROP TABLE {quoted(table.database)}.{quoted(table.name)}"
    if table is not None and new is not None and change.action == "rename":
        return f"RENAME TABLE {table.name} TO {new.name}"
    return plain(_STARTED.sub("", change.statement) if change.action == "create" else change.statement)


def _name(transaction: Transaction) -> str:
    return transaction.id or f"file={transaction.file},pos={transaction.offset}"


def _key(table: Table, image: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Message | None:
    """Return the values of the primary key. other: image with the values that the first one lacks."""
    if not table.key:
        return None
    images = [one for one in (image, other) if one is not None]
    found = {name: one[name] for name in table.key for one in images[:1] if name in one}
    for name in table.key:
        if name not in found and len(images) > 1 and name in images[1]:
            found[name] = images[1][name]
    return {name: found[name] for name in table.key if name in found}
