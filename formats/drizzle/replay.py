"""Predict what an applier does with the transactions of a log.

The server itself reads nothing from the log when it starts. The replay covers what the server's own log reader reaches,
with transactions assembled as the writer meant them. The reader itself prints a COMMIT too early if a transaction is
split between statements, and shows data that was silently rolled back.
Source: `docs/spec/drizzle.md#stock-reader`, `#transactions-and-segments`, `#replay-and-conversion`.
"""

from __future__ import annotations

import posixpath
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.errors import LimitError, UsageError
from binlogtool.format_api.replay_rules import (
    ADD,
    APPLIED,
    DELETE,
    DROP,
    NOT_REACHED,
    PATCH,
    PUT,
    REJECTED,
    SKIPPED,
    EffectReader,
    ExaminedFile,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
    StateChange,
    encode_canonical,
)
from binlogtool.formats.drizzle.decode import UndecodableError, create_transaction_parser, to_text
from binlogtool.formats.drizzle.schema import ENVELOPE_SIZE, MAX_MESSAGE_SIZE, EntryType, ServerEventType, StatementType
from binlogtool.formats.drizzle.validate import MAX_OPEN, TransactionIdSet, TransactionKey
from binlogtool.limits import MIB

if TYPE_CHECKING:
    from binlogtool.format_api.format import DecodedRecords
    from binlogtool.format_api.layout import RangeReader

# --- Simulation of the server's reader ---

_HEADER = struct.Struct("<II")
_MAX_MESSAGE = 64 * MIB
_MAX_ENTRIES = 10_000


class ReaderPosition(NamedTuple):
    """Position that the reader reached.

    Attributes:
        why: error with which the reader ends there, or None.
        entries: number of entries accepted without verifying the checksum (it is only verified with `--checksum`, and
            the reader continues after a mismatch).
    """

    offset: int
    why: str | None = None
    entries: int = 0


def simulate_reader_over_damage(read_range: RangeReader, start: int, end: int) -> ReaderPosition:
    """Simulate the reader over `[start, end)`, where nothing is proven; the entries before and after are good."""
    position = entry_count = 0
    for entry_count in range(_MAX_ENTRIES):
        position = start if not entry_count else position
        if position >= end:
            return ReaderPosition(
                position,
                None if position == end or not read_range(position, 1) else "the reader is inside an entry",
                entry_count,
            )
        head = read_range(position, _HEADER.size)
        if len(head) < _HEADER.size:
            return ReaderPosition(position, None, entry_count)  # the reader takes a truncated header for the end
        kind, length = _HEADER.unpack(head)
        error = _predict_error(read_range, position, kind, length)
        if error is not None:
            return ReaderPosition(position, error, entry_count)
        position += ENVELOPE_SIZE + length
    return ReaderPosition(position, "too many entries have wrong checksums", entry_count)


def _predict_error(read_range: RangeReader, offset: int, kind: int, length: int) -> str | None:
    """Predict the reader's error about an entry; None if it accepts the entry."""
    if kind != EntryType.TRANSACTION:
        return f"a non-transaction message (type {kind})"
    if length > MAX_MESSAGE_SIZE:
        return "a record bigger than INT_MAX"
    message = read_range(offset + _HEADER.size, min(length, _MAX_MESSAGE))
    if len(message) < length:
        return "the message cannot be read to its end"
    try:
        create_transaction_parser()(message)
    except UndecodableError as error:
        return str(error)
    return None


# --- Effects of committed messages ---

DATA_MEMBERS: Mapping[str, str] = MappingProxyType(
    {"INSERT": "insert_data", "UPDATE": "update_data", "DELETE": "delete_data"}
)
"""Members that hold the rows, which may continue in the next message."""

OPAQUE_OBJECT = "(sql)"
"""Object of statements whose effect is not in the log: RAW_SQL, SET_VARIABLE, unknown types."""

_MAX_HELD_CHANGES = 1_000_000
_MAX_TABLES = 100_000
RowValues = dict[str, Any]


@dataclass(slots=True)
class DrizzleEffectReader(EffectReader):
    """Row changes of a replay (implements `format_api.replay_rules.EffectReader`).

    Attributes:
        keys: table -> names of its key fields, from its definition or from an UPDATE or DELETE.
        held: changes of a statement that continues in the next message, and so may still be rolled back.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: list[StateChange] = field(default_factory=list)

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of one message, in order."""
        changes: list[StateChange] = []
        for statement in (records.bodies[index] or {}).get("statement", ()):
            kind = str(statement.get("type"))
            if kind == _ROLLBACK_STATEMENT_NAME:
                self.held.clear()
                continue
            data = statement.get(DATA_MEMBERS.get(kind, ""))
            if data is None or data.get("segment_id", 1) == 1:
                changes += self._release_held()
            self.held += self._decode_statement(kind, statement)
            if len(self.held) > _MAX_HELD_CHANGES:
                raise LimitError(f"a statement over several messages changes more than {_MAX_HELD_CHANGES:,} rows")
            if data is None or data.get("end_segment", True):
                changes += self._release_held()
        return changes

    def _release_held(self) -> list[StateChange]:
        held, self.held = self.held, []
        return held

    def _decode_statement(self, kind: str, statement: Mapping[str, Any]) -> Iterable[StateChange]:
        decode = _CHANGE_DECODERS.get(kind)
        if decode is not None:
            return decode(self, statement)
        opaque = {name: value for name, value in statement.items() if not name.endswith("_timestamp")}
        return (StateChange(OPAQUE_OBJECT, ADD, b"", encode_canonical(opaque)),)

    def get_or_store_key_fields(self, table: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the key fields of a table: the known ones, else `names`, which are then remembered."""
        if table not in self.keys and names and len(self.keys) < _MAX_TABLES:
            self.keys[table] = tuple(sorted(names))
        return self.keys.get(table, ())

    # -- rows ------------------------------------------------------------------------------------------------------

    def decode_insert(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the inserted rows; rows of a table whose key is unknown form a multiset."""
        header = statement.get("insert_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("field_metadata"))
        key = self.keys.get(table, ())
        for record in statement.get("insert_data", {}).get("record", ()):
            row = _create_row(names, record.get("insert_value", ()), record.get("is_null", ()))
            if key and row.keys() >= set(key):
                yield StateChange(table, PUT, _encode_key(row, key), encode_canonical(row))
            else:
                yield StateChange(table, ADD, b"", encode_canonical(row))

    def decode_update(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield changed fields by key. If the key of a row changes, its other fields are not known."""
        header = statement.get("update_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("key_field_metadata"))
        set_names, key = _list_field_names(header.get("set_field_metadata")), self.get_or_store_key_fields(table, names)
        for record in statement.get("update_data", {}).get("record", ()):
            old = _create_row(names, record.get("key_value", ()), ())
            new = _create_row(set_names, record.get("after_value", ()), record.get("is_null", ()))
            if old.keys() != set(key):
                yield StateChange(table, ADD, b"", encode_canonical(["update", old, new]))
            elif all(old[name] == new.get(name, old[name]) for name in key):
                yield StateChange(table, PATCH, _encode_key(old, key), encode_canonical(new))
            else:
                yield StateChange(table, DELETE, _encode_key(old, key), b"")
                yield StateChange(table, PUT, _encode_key(old | new, key), encode_canonical(old | new))

    def decode_delete(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the deletions of rows by key."""
        header = statement.get("delete_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("key_field_metadata"))
        key = self.get_or_store_key_fields(table, names)
        for record in statement.get("delete_data", {}).get("record", ()):
            old = _create_row(names, record.get("key_value", ()), ())
            if old.keys() == set(key):
                yield StateChange(table, DELETE, _encode_key(old, key), b"")
            else:
                yield StateChange(table, ADD, b"", encode_canonical(["delete", old]))

    # -- definitions -----------------------------------------------------------------------------------------------

    def decode_create_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield an empty table, and store its key."""
        table = statement.get("create_table_statement", {}).get("table", {})
        name = f"{to_text(table.get('schema', ''))}.{to_text(table.get('name', ''))}"
        self.keys.pop(name, None)
        self.get_or_store_key_fields(name, _get_primary_key(table))
        yield StateChange(name, DROP, b"", b"")

    def decode_alter_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the change of a definition; its effect on rows is not in the log."""
        altered = statement.get("alter_table_statement", {})
        before, after = altered.get("before", {}), altered.get("after", {})
        name = f"{to_text(after.get('schema', ''))}.{to_text(after.get('name', ''))}"
        self.keys.pop(name, None)
        self.get_or_store_key_fields(name, _get_primary_key(after))
        yield StateChange(
            name, ADD, b"", encode_canonical(["altered from", before.get("schema"), before.get("name"), after])
        )

    def decode_truncate(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of all rows."""
        yield StateChange(_get_table_name(statement.get("truncate_table_statement", {})), DROP, b"", b"")

    def decode_drop_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of all rows, and forget the key."""
        name = _get_table_name(statement.get("drop_table_statement", {}))
        self.keys.pop(name, None)
        yield StateChange(name, DROP, b"", b"")

    def decode_create_or_alter_schema(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield a schema that is created or changed."""
        created = statement.get("create_schema_statement", {}).get("schema")
        after = created or statement.get("alter_schema_statement", {}).get("after", {})
        yield StateChange(to_text(after.get("name", "")), PUT, b"", encode_canonical(after))

    def decode_drop_schema(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of a schema and all its known tables."""
        name = to_text(statement.get("drop_schema_statement", {}).get("schema_name", ""))
        for table in [one for one in self.keys if one.startswith(f"{name}.")]:
            del self.keys[table]
            yield StateChange(table, DROP, b"", b"")
        yield StateChange(name, DROP, b"", b"")


_CHANGE_DECODERS: Mapping[str, Callable[[DrizzleEffectReader, Mapping[str, Any]],
Iterator[StateChange]]] = MappingProxyType(
    {
        "INSERT": DrizzleEffectReader.decode_insert, "UPDATE": DrizzleEffectReader.decode_update,
        "DELETE": DrizzleEffectReader.decode_delete,
        "CREATE_TABLE": DrizzleEffectReader.decode_create_table, "ALTER_TABLE": DrizzleEffectReader.decode_alter_table,
        "TRUNCATE_TABLE": DrizzleEffectReader.decode_truncate, "DROP_TABLE": DrizzleEffectReader.decode_drop_table,
        "CREATE_SCHEMA": DrizzleEffectReader.decode_create_or_alter_schema,
        "ALTER_SCHEMA": DrizzleEffectReader.decode_create_or_alter_schema,
        "DROP_SCHEMA": DrizzleEffectReader.decode_drop_schema,
    }
)  # fmt: skip


def apply_patch(row_image: bytes, patch: bytes) -> bytes | None:
    """Return a row with some fields changed; None if there is no row."""
    try:
        row, new_values = msgspec.msgpack.decode(row_image), msgspec.msgpack.decode(patch)
    except (msgspec.DecodeError, ValueError):
        return None
    is_valid = isinstance(row, dict) and isinstance(new_values, dict)
    return encode_canonical(row | new_values) if is_valid else None


def _get_table_name(header: Mapping[str, Any]) -> str:
    metadata = header.get("table_metadata", {})
    return f"{to_text(metadata.get('schema_name', ''))}.{to_text(metadata.get('table_name', ''))}"


def _list_field_names(fields: Any) -> list[str]:
    return [to_text(one.get("name", "")) for one in fields or ()]


def _create_row(names: Sequence[str], values: Sequence[Any], nulls: Sequence[bool]) -> RowValues:
    """Create a row (values by name); the list of NULL flags may be shorter than that of the values."""
    row = dict(zip(names, values, strict=False))
    if True in nulls:
        row |= {name: None for name, null in zip(names, nulls, strict=False) if null}
    return row


def _encode_key(row: RowValues, key: tuple[str, ...]) -> bytes:
    return encode_canonical([row[name] for name in key])


def _get_primary_key(table: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of the primary index; [] if there is none."""
    fields = _list_field_names(table.get("field"))
    for index in table.get("indexes", ()):
        if index.get("is_primary"):
            parts = [one.get("fieldnr", 0) for one in index.get("index_part", ())]
            return [fields[number] for number in parts if number < len(fields)]
    return []


# --- Prediction of an applier ---

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "committed": "The transaction is complete: its final message (end_segment true or absent) was read. "
        "Transactions are applied in the order of their final messages.",
        "rolled-back": "The transaction ends with ROLLBACK: all its earlier segments are void.",
        "unterminated": "The transaction has no final message: it was rolled back silently, or a crash cut "
        "it off; either way it was not committed.",
        "segments-missing": "A segment of the transaction, or of one of its statements, is not in the log: it "
        "cannot be assembled.",
        "unfinished-statement": "The final message ends inside a statement whose rest is missing.",
        "duplicate": "This transaction, or this segment of it, occurred before in the same run of the server.",
        "event": "An event uses a transaction id and changes nothing. STARTUP begins a new run of ids.",
        "blob": "An entry of type BLOB: declared and never written; the reader ends at it.",
        "undecodable": "The message is not a Transaction: the reader ends at it.",
        "before-position": "The final message of the transaction is before the offset that --against names.",
        "given-up": f"More than {MAX_OPEN:,} transactions are open at the same time: the oldest is not followed.",
    }
)
_MAX_ORIGINS = 10_000
_NO_DATA: Mapping[str, Any] = MappingProxyType({})
_ROLLBACK_NAME, _ROLLBACK_STATEMENT_NAME = StatementType.ROLLBACK.name, StatementType.ROLLBACK_STATEMENT.name
_AGAINST_ERROR = '--against must be {"offset": {FILE: bytes}}, with the offset after the last entry that was applied'


class UnfinishedTransaction(msgspec.Struct):
    """Transaction without its final message.

    Attributes:
        numbers: numbers of its records.
        segment: last segment id.
        unfinished: data segment of a statement that continues in the next message, or None.
        broken: a segment is missing.
        void: it was rolled back.
    """

    numbers: array[int] = msgspec.field(default_factory=lambda: array("q"))
    segment: int = 0
    unfinished: int | None = None
    broken: bool = False
    void: bool = False

    def add_statements(self, statements: Iterable[Mapping[str, Any]]) -> None:
        """Add the statements of the next message."""
        for statement in statements:
            kind = statement.get("type")
            if kind == _ROLLBACK_NAME:
                self.void, self.unfinished = True, None
                continue
            if kind == _ROLLBACK_STATEMENT_NAME:
                self.unfinished = None
                continue
            data = statement.get(DATA_MEMBERS.get(str(kind), "")) or _NO_DATA
            self.broken |= data.get("segment_id", 1) != (self.unfinished or 0) + 1
            self.unfinished = None if data.get("end_segment", True) else data.get("segment_id", 1)

    def get_decision(self) -> tuple[str, str]:
        """Return the decision at its final message: (verb, reason)."""
        if self.void:
            return SKIPPED, "rolled-back"
        if self.broken:
            return REJECTED, "segments-missing"
        return (APPLIED, "committed") if self.unfinished is None else (REJECTED, "unfinished-statement")


class OutcomeList(list[RecordOutcome]):
    """Rulings in the order in which they take effect; adjacent outcomes with the same decision are merged."""

    def add_record_outcome(self, number: int, verb: str, reason: str) -> None:
        """Add the decision about one record."""
        last = self[-1] if self else None
        if last is not None and last.stop == number and last[2:] == (verb, reason):
            self[-1] = last._replace(stop=number + 1)
        else:
            self.append(RecordOutcome(number, number + 1, verb, reason))


class DrizzleReplayer:
    """Replays one log by its rules (implements `format_api.replay_rules.Replayer`); all files are one log."""

    def __init__(self, situation: ReplaySituation) -> None:
        self.situation = situation
        self.force = situation.policy == "force"
        self.start_offsets = _parse_offsets(situation.start_position or {})
        self.stop: ReplayStop | None = None
        self.open_transactions: dict[TransactionKey, UnfinishedTransaction] = {}
        self.completed_ids = TransactionIdSet()
        self.origins: dict[str, int] = {}
        self.counts = dict.fromkeys(("transactions", "rolled_back", "unterminated", "unchecked_entries"), 0)
        self.file: ExaminedFile | None = None
        self.position = 0
        self.end_offsets: dict[str, int] = {}

    def plan_reads(self) -> ReadPlan:
        """Return all files, in order."""
        return ReadPlan(tuple(file.name for file in self.situation.files))

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        """Rule on one run of entries, and on earlier entries whose transactions end in it."""
        outcomes = OutcomeList()
        if self.file is None or self.file.name != name:
            self._close_file()
            self.file = next(file for file in self.situation.files if file.name == name)
            self.position = 0
        for i, (offset, size) in enumerate(zip(records.offset, records.size, strict=True)):
            if offset != self.position and self.stop is None:
                self._simulate_reader_over_damage(self.position, offset)
            if self.stop is not None:
                outcomes.append(RecordOutcome(first + i, first + len(records), SKIPPED, NOT_REACHED))
                break
            self._replay_entry(records, i, first + i, offset + size, outcomes)
            self.position = offset + size if self.stop is None else offset
        return outcomes

    # -- one entry -------------------------------------------------------------------------------------------------

    def _replay_entry(self, records: DecodedRecords, i: int, number: int, end: int, outcomes: OutcomeList) -> None:
        body = records.bodies[i]
        if records.envelope.type[i] == EntryType.BLOB.name:
            self._replay_unreadable_entry(records.offset[i], "a non-transaction message", number, "blob", outcomes)
        elif not isinstance(body, Mapping) or "transaction_context" not in body:
            if records.findings.get(i) and records.envelope.txn[i] is None:
                self._replay_unreadable_entry(
                    records.offset[i], "the message does not parse", number, "undecodable", outcomes
                )
            else:
                outcomes.add_record_outcome(number, REJECTED, "undecodable")
        else:
            self._replay_message(body, number, end, outcomes)

    def _replay_unreadable_entry(
        self, offset: int, message: str, number: int, reason: str, outcomes: OutcomeList
    ) -> None:
        outcomes.add_record_outcome(number, SKIPPED if self.force else REJECTED, reason)
        if not self.force:
            self.stop = ReplayStop(self._file_name, offset, f"{message}: the reader ends here with an error")

    @property
    def _file_name(self) -> str:
        return "" if self.file is None else self.file.name

    def _replay_message(self, body: Mapping[str, Any], number: int, end: int, outcomes: OutcomeList) -> None:
        context, event = body["transaction_context"], body.get("event")
        key = context.get("server_id", 0), context.get("transaction_id", 0)
        if event is not None and event.get("type") == ServerEventType.STARTUP.name:
            self._start_server_run(outcomes)
        statements = body.get("statement", ())
        if event is not None and not statements:
            self.completed_ids.add_if_absent(key)
            outcomes.add_record_outcome(number, SKIPPED, "event")
            return
        self._replay_segment(key, body, statements, number, end, outcomes)

    def _replay_segment(
        self,
        key: TransactionKey,
        body: Mapping[str, Any],
        statements: Any,
        number: int,
        end: int,
        outcomes: OutcomeList,
    ) -> None:
        transaction = self.open_transactions.get(key)
        segment, is_final = body.get("segment_id", 1), body.get("end_segment", True)
        if segment <= transaction.segment if transaction is not None else key in self.completed_ids:
            outcomes.add_record_outcome(number, SKIPPED, "duplicate")
            return
        transaction = transaction or self._begin_transaction(key, outcomes)
        transaction.broken |= segment != transaction.segment + 1
        transaction.segment = segment
        transaction.numbers.append(number)
        transaction.add_statements(statements)
        if is_final:
            self._end_transaction(key, transaction, end, outcomes)

    def _begin_transaction(self, key: TransactionKey, outcomes: OutcomeList) -> UnfinishedTransaction:
        if len(self.open_transactions) >= MAX_OPEN:
            self._drop_transaction(next(iter(self.open_transactions)), "given-up", outcomes)
        transaction = self.open_transactions[key] = UnfinishedTransaction()
        return transaction

    def _end_transaction(
        self, key: TransactionKey, transaction: UnfinishedTransaction, end: int, outcomes: OutcomeList
    ) -> None:
        """Rule on all records of a transaction at its final message."""
        del self.open_transactions[key]
        self.completed_ids.add_if_absent(key)
        verb, reason = transaction.get_decision()
        if verb == APPLIED and end <= self.start_offsets.get(posixpath.basename(self._file_name), 0):
            verb, reason = SKIPPED, "before-position"
        for number in transaction.numbers:
            outcomes.add_record_outcome(number, verb, reason)
        self.counts["rolled_back"] += reason == "rolled-back"
        if verb == APPLIED:
            self.counts["transactions"] += 1
            origin = str(key[0])
            if origin in self.origins or len(self.origins) < _MAX_ORIGINS:
                self.origins[origin] = key[1]

    def _start_server_run(self, outcomes: OutcomeList) -> None:
        """Start a new run of the server: open transactions never end, and ids start again."""
        for key in list(self.open_transactions):
            self._drop_transaction(key, "unterminated", outcomes)
        self.completed_ids.clear()

    def _drop_transaction(self, key: TransactionKey, reason: str, outcomes: OutcomeList) -> None:
        self.counts["unterminated"] += reason == "unterminated"
        for number in self.open_transactions.pop(key).numbers:
            outcomes.add_record_outcome(number, SKIPPED, reason)

    # -- damage ----------------------------------------------------------------------------------------------------

    def _simulate_reader_over_damage(self, start: int, end: int) -> None:
        """Simulate the reader over `[start, end)`, where nothing is proven; record where it ends."""
        if self.force or self.file is None:
            return
        beside = self.situation.read_sibling
        read = None if beside is None else beside(self.file.name)
        reader_position = (
            ReaderPosition(start, "the bytes here cannot be read")
            if read is None
            else simulate_reader_over_damage(read, start, end)
        )
        self.counts["unchecked_entries"] += reader_position.entries
        if reader_position.why is not None:
            self.stop = ReplayStop(
                self.file.name, reader_position.offset, f"{reader_position.why}: the reader ends here with an error"
            )

    def _close_file(self) -> None:
        """Close the current file."""
        if self.file is None:
            return
        tail = self.file.tail
        if self.stop is None and tail is not None and self._has_read_all(tail.end) and self.position < tail.size:
            self._simulate_reader_over_damage(self.position, tail.size)
        self.end_offsets[posixpath.basename(self.file.name)] = self.position

    def _has_read_all(self, last_entry_end: int) -> bool:
        """Return whether the last entry of the file was read (and not only entries before `--until`)."""
        tail = None if self.file is None else self.file.tail
        return tail is not None and (
            self.position >= last_entry_end if tail.first_damage is None else not self._has_later_entries()
        )

    def _has_later_entries(self) -> bool:
        """Return whether complete entries are known after the position that was reached."""
        findings = () if self.file is None else self.file.findings
        return any(one.id == "valid-after-damage" and (one.offset or 0) >= self.position for one in findings)

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Rule on the transactions that are open at the end: they were not committed."""
        if self.file is None and self.situation.files:
            self.file = self.situation.files[-1] if not self.situation.files[-1].records else None
        self._close_file()
        outcomes = OutcomeList()
        for key in list(self.open_transactions):
            self._drop_transaction(key, "unterminated", outcomes)
        position = {"offset": self.end_offsets, "origins": dict(sorted(self.origins.items()))}
        return outcomes, ReplayOutcome(None, self.stop, position, (), dict(self.counts))


def _parse_offsets(start_position: Mapping[str, Any]) -> dict[str, int]:
    """Parse the offsets where an earlier replay ended. Raises UsageError: the position has another form."""
    offsets = start_position.get("offset", {})
    if not isinstance(offsets, Mapping) or any(type(value) is not int for value in offsets.values()):
        raise UsageError(_AGAINST_ERROR)
    return dict(offsets)
