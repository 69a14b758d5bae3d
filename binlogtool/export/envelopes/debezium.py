"""Change messages as Debezium's change events.

Members that only a running connector knows are left out: the time when it processed an event (the outer ts_ms), and the
name of the server unless an option supplies it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from binlogtool.export.envelopes.convert_values import (
    ChangeMessage,
    date_to_days,
    datetime_to_micros,
    document_to_json,
    quote_name,
    time_to_micros,
    to_json_safe_text,
)
from binlogtool.export.output_options import EnvelopeOptions
from binlogtool.format_api.row_output_interfaces import (
    BEGIN,
    DDL,
    DELETE,
    END,
    INSERT,
    ROW_KINDS,
    TRUNCATE,
    UPDATE,
    ChangeEvent,
    ChangeTransaction,
    Image,
    SqlColumn,
    SqlTable,
    pad_binary,
)

# --- Values as Debezium writes them (its page "Data type mappings") ---

ValueConverter = Callable[[Any], Any]
"""Function that converts a non-NULL value for the message; bytes become base64."""

_POINT = struct.Struct("<dd")
_WKB_POINT_BYTES = 21
_EPOCH_TEXT = "1970-01-01T00:00:00Z"


def create_value_converter(column: SqlColumn, options: EnvelopeOptions) -> ValueConverter:
    """Return the conversion function for the values of a column."""
    kind = column.type
    if kind == "bigint" and column.unsigned:
        return _to_signed_long if options.unsigned_bigint == "long" else _to_unscaled_bytes
    if kind == "decimal":
        return _DECIMAL_WRITERS[options.decimals]
    if kind == "bit":
        return bool if column.size == 1 else partial(_bits_to_bytes, (column.size + 7) // 8)
    if kind in ("date", "time", "datetime", "timestamp"):
        return _create_time_converter(column, options)
    if kind == "geometry":
        return partial(_geometry_to_debezium_struct, column.geometry == "point")
    if kind == "binary":
        return partial(pad_binary, column.size)
    return _OTHER_WRITERS.get(kind, _unchanged)


def _create_time_converter(column: SqlColumn, options: EnvelopeOptions) -> ValueConverter:
    is_connect = options.times == "connect"
    if column.type == "timestamp":
        return partial(_timestamp_to_iso_8601, column.scale)
    invalid_value = None if column.nullable else 0  # a NOT NULL column has the epoch for an invalid date
    if column.type == "date":
        return partial(_convert_or_default, date_to_days, 1, invalid_value)
    if column.type == "time":
        return partial(_convert_or_default, time_to_micros, 1000 if is_connect else 1, invalid_value)
    return partial(
        _convert_or_default, datetime_to_micros, 1000 if is_connect or column.scale <= 3 else 1, invalid_value
    )


def _unchanged(value: Any) -> Any:
    return value


def _to_signed_long(value: int) -> int:
    """Return the bits of an unsigned number as a signed number."""
    return value - (1 << 64) if value >> 63 else value


def _to_unscaled_bytes(value: int) -> bytes:
    """Return an integer as big-endian two's complement in as few bytes as possible."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal_to_bytes(value: str) -> bytes:
    return _to_unscaled_bytes(int(value.replace(".", "")))


def _bits_to_bytes(size: int, value: int) -> bytes:
    return value.to_bytes(size, "little")


def _convert_or_default(parse: Callable[[Any], int | None], unit: int, default: int | None, value: Any) -> int | None:
    parsed = parse(value)
    return default if parsed is None else parsed // unit


def _timestamp_to_iso_8601(scale: int, value: Any) -> Any:
    """Return a TIMESTAMP, which is UTC in the log, as ISO 8601; the zero date becomes the epoch."""
    if not isinstance(value, str):
        return value
    return _EPOCH_TEXT if value.startswith("0000") else value.replace(" ", "T") + "Z"


def _join_set(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


def _geometry_to_debezium_struct(is_point: bool, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    wkb, srid = value["wkb"], value["srid"] or None
    if is_point and len(wkb) == _WKB_POINT_BYTES and wkb[:1] == b"\x01":
        x, y = _POINT.unpack_from(wkb, 5)
        return {"x": x, "y": y, "wkb": wkb, "srid": srid}
    return {"wkb": wkb, "srid": srid}


_DECIMAL_WRITERS: Mapping[str, ValueConverter] = {"precise": _decimal_to_bytes, "string": _unchanged, "double": float}
_OTHER_WRITERS: Mapping[str, ValueConverter] = {"set": _join_set, "json": document_to_json}


# --- Debezium's change events ---

Message = dict[str, Any]
_OPERATION_CODES = {INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}
_MAX_CACHED_TABLES = 10_000
_START_TRANSACTION_SUFFIX = re.compile(r"\s+START\s+TRANSACTION\s*\Z", re.IGNORECASE)
"""Suffix that MySQL adds to CREATE TABLE ... SELECT, whose rows follow; the connector removes it."""


class DebeziumEncoder(msgspec.Struct):
    """Encoder of changes as Debezium messages.

    version: version of this program. order: number of messages in the open transaction; orders: the same by table.
    """

    options: EnvelopeOptions
    version: str
    order: int = 0
    orders: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    _open_transaction: ChangeTransaction | None = None
    _writers: dict[int, tuple[SqlTable, dict[str, ValueConverter]]] = msgspec.field(default_factory=dict)

    def encode_changes(self, changes: Iterable[ChangeEvent]) -> Iterator[ChangeMessage]:
        """Yield the messages for the changes of a record."""
        definitions = list[ChangeEvent]()
        for change in changes:
            if change.kind == DDL and self.options.schema_messages:
                definitions.append(change)
                continue
            yield from self._schema_messages(definitions)
            definitions = []
            yield from ((message, change) for message in self._change_messages(change))
        yield from self._schema_messages(definitions)

    def release_uncommitted_messages(self) -> Iterator[ChangeMessage]:
        """Return an empty iterator: no message is held back."""
        return iter(())

    def _change_messages(self, change: ChangeEvent) -> Iterator[Message]:
        if change.kind == BEGIN:
            yield from self._encode_transaction_begin(change)
        if change.kind == END:
            yield from self._encode_transaction_end(change)
        if change.kind == TRUNCATE:
            yield {
                "key": None,
                "value": self._message_value(change, "t", None, None, self._build_numbered_transaction_member(change)),
            }
        if change.kind not in ROW_KINDS or change.table is None:
            return
        before, after = (self._image_values(change.table, image) for image in (change.before, change.after))
        old, new = (
            _extract_primary_key_values(change.table, before, after),
            _extract_primary_key_values(change.table, after, before),
        )
        if change.kind == UPDATE and old != new:
            yield from self._build_delete_and_tombstone(change, old, before, {"__debezium.newkey": new})
            created = self._message_value(change, "c", None, after, self._build_numbered_transaction_member(change))
            yield {"headers": {"__debezium.oldkey": old}, "key": new, "value": created}
        elif change.kind == DELETE:
            yield from self._build_delete_and_tombstone(change, old, before)
        else:
            value = self._message_value(
                change, _OPERATION_CODES[change.kind], before, after, self._build_numbered_transaction_member(change)
            )
            yield {"key": new, "value": value}

    def _encode_transaction_begin(self, change: ChangeEvent) -> Iterator[Message]:
        if change.transaction is not None:
            self._open_transaction, self.order, self.orders = change.transaction, 0, {}
            yield from self._transaction_message(change, "BEGIN", None, None)

    def _encode_transaction_end(self, change: ChangeEvent) -> Iterator[Message]:
        """Close the open transaction; a statement that is a transaction by itself has no END message."""
        is_commit = change.xid is not None or change.statement.upper() in ("COMMIT", "ROLLBACK")
        if self._open_transaction is not None and is_commit:
            tables = [{"data_collection": ".".join(name), "event_count": n} for name, n in self.orders.items()]
            yield from self._transaction_message(change, "END", self.order, tables)
        self._open_transaction, self.order, self.orders = None, 0, {}

    def _transaction_message(
        self, change: ChangeEvent, status: str, count: int | None, tables: Any
    ) -> Iterator[Message]:
        if self.options.provide_transaction_metadata and self._open_transaction is not None:
            transaction_id, time = _transaction_id(self._open_transaction), change.place.time
            counts = {"event_count": count, "data_collections": tables}
            value = {"status": status, "id": transaction_id, **counts, "ts_ms": None if time is None else time // 1000}
            yield {"key": {"id": transaction_id}, "value": value}

    def _schema_messages(self, changes: list[ChangeEvent]) -> Iterator[ChangeMessage]:
        """Yield messages of the schema change topic, one per table of a statement, without the member tableChanges."""
        names = ",".join(one.name for change in changes if (one := change.becomes or change.table) is not None)
        for change in changes:
            database, source = change.table.database if change.table else change.database, self._source_block(change)
            source["table"] = names or None
            value = {"source": source, "databaseName": database, "schemaName": None, "ddl": _ddl_text(change)}
            yield {"key": {"databaseName": database}, "value": value}, change

    def _build_delete_and_tombstone(
        self, change: ChangeEvent, key: Any, before: Any, headers: Message | None = None
    ) -> Iterator[Message]:
        """Yield the delete message of a row and, with --tombstones, the message without a value after it."""
        head: Message = {} if headers is None else {"headers": headers}
        yield {
            **head,
            "key": key,
            "value": self._message_value(change, "d", before, None, self._build_numbered_transaction_member(change)),
        }
        if self.options.tombstones:
            yield {**head, "key": key, "value": None}

    def _message_value(self, change: ChangeEvent, op: str, before: Any, after: Any, transaction: Message) -> Message:
        return {"before": before, "after": after, "source": self._source_block(change), **transaction, "op": op}

    def _image_values(self, table: SqlTable, image: Image | None) -> Message | None:
        if image is None:
            return None
        writers = self._get_column_converters(table)
        return {name: None if value is None else writers[name](value) for name, value in image.items()}

    def _get_column_converters(self, table: SqlTable) -> dict[str, ValueConverter]:
        cached = self._writers.get(id(table))
        if cached is None:
            if len(self._writers) >= _MAX_CACHED_TABLES:
                self._writers.clear()
            writers = {column.name: create_value_converter(column, self.options) for column in table.columns}
            cached = self._writers[id(table)] = (table, writers)
        return cached[1]

    def _source_block(self, change: ChangeEvent) -> Message:
        place, transaction, table = change.place, change.transaction, change.table
        micros = place.time
        if micros is not None and change.kind in (TRUNCATE, DDL):  # the connector has milliseconds for statements
            micros = micros // 1000 * 1000
        name_member = {} if self.options.source_name is None else {"name": self.options.source_name}
        return {
            "version": self.version,
            "connector": place.engine,
            **name_member,
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
            "query": self._query_text(place.query),
        }

    def _query_text(self, query: str | None) -> str | None:
        return None if query is None or not self.options.include_query else to_json_safe_text(query)

    def _build_numbered_transaction_member(self, change: ChangeEvent) -> Message:
        """Count the message in its transaction, and return the member `transaction` with the numbers; its value is
        None if the begin was not read.
        """
        transaction = change.transaction if self.options.provide_transaction_metadata else None
        if transaction is None or not transaction.has_begin or change.table is None:
            return {"transaction": None}
        if transaction is not self._open_transaction:
            self._open_transaction, self.order, self.orders = transaction, 0, {}
        name = (change.table.database, change.table.name)
        self.order += 1
        self.orders[name] = self.orders.get(name, 0) + 1
        return {
            "transaction": {
                "id": _transaction_id(transaction),
                "total_order": self.order,
                "data_collection_order": self.orders[name],
            }
        }


def _ddl_text(change: ChangeEvent) -> str:
    """Return the text of a DDL statement; for a statement about several tables, the part about this table."""
    table, new = change.table, change.becomes
    if table is not None and change.action == "drop":
        return f"DROP TABLE {quote_name(table.database)}.{quote_name(table.name)}"
    if table is not None and new is not None and change.action == "rename":
        return f"RENAME TABLE {table.name} TO {new.name}"
    return to_json_safe_text(
        _START_TRANSACTION_SUFFIX.sub("", change.statement) if change.action == "create" else change.statement
    )


def _transaction_id(transaction: ChangeTransaction) -> str:
    return transaction.id or f"file={transaction.file},pos={transaction.offset}"


def _extract_primary_key_values(
    table: SqlTable, image: Mapping[str, Any] | None, fallback_image: Mapping[str, Any] | None
) -> Message | None:
    """Return the values of the primary key.

    fallback_image: image that supplies the values missing in the first image.
    """
    if not table.key:
        return None
    images = [one for one in (image, fallback_image) if one is not None]
    values = {name: one[name] for name in table.key for one in images[:1] if name in one}
    for name in table.key:
        if name not in values and len(images) > 1 and name in images[1]:
            values[name] = images[1][name]
    return {name: values[name] for name in table.key if name in values}
