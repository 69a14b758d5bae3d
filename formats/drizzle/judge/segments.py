"""Assemble transactions from their messages, by (server id, transaction id), never by adjacency.

Source: `docs/spec/drizzle.md#transactions-and-segments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.blake2 import blake2b
from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.judge.rules import EntryFault
from binlogtool.formats.drizzle.meaning import REQUIRED_MEMBERS, get_statement_name

MAX_OPEN = 65_536
"""Transactions that are followed at the same time; the oldest is given up when there are more."""

_CHUNK_BITS = 15
_MAX_CHUNKS = 4096

_INSERT, _DELETE, _UPDATE = StatementType.INSERT.value, StatementType.DELETE.value, StatementType.UPDATE.value
_ROLLBACK_KINDS = frozenset({StatementType.ROLLBACK, StatementType.ROLLBACK_STATEMENT})
_DATA_KINDS = frozenset({StatementType.INSERT, StatementType.UPDATE, StatementType.DELETE})

TransactionKey = tuple[int, int]
"""(server id, transaction id)."""


class TransactionSegment(NamedTuple):
    """One message of a transaction.

    Attributes:
        offset, size: of its entry in the file.
        record: index of the entry.
        end: it is the final message.
    """

    key: TransactionKey
    offset: int
    size: int
    record: int
    segment_id: int
    end: bool


class UnfinishedStatement(NamedTuple):
    """A statement that continues in the next message: its kind, a digest of its header, its data segment."""

    kind: int
    header: bytes
    segment_id: int


class SegmentedTransaction(msgspec.Struct):
    """A transaction whose final message was not read yet.

    Attributes:
        damage: number of damaged ranges before its last message.
        broken: a part of it is missing, so its statements cannot be followed any more.
    """

    first: TransactionSegment
    last: TransactionSegment
    damage: int
    unfinished: UnfinishedStatement | None = None
    broken: bool = False
    rolled_back: bool = False


class TransactionIdSet:
    """Ids of completed transactions, as bits: dense ids cost one bit each; memory is bounded (16 MiB).

    Attributes:
        forgotten: the oldest ids were dropped.
    """

    def __init__(self) -> None:
        self._chunks: dict[TransactionKey, bytearray] = {}
        self.forgotten = False

    def add(self, key: TransactionKey) -> bool:
        """Add a transaction; return False if it was there before."""
        server, number = key
        slot = (server, number >> _CHUNK_BITS)
        chunk = self._chunks.get(slot)
        if chunk is None:
            chunk = self._create_chunk(slot)
        index, bit = (number & ((1 << _CHUNK_BITS) - 1)) >> 3, 1 << (number & 7)
        seen = chunk[index] & bit
        chunk[index] |= bit
        return not seen

    def _create_chunk(self, slot: TransactionKey) -> bytearray:
        if len(self._chunks) >= _MAX_CHUNKS:
            del self._chunks[next(iter(self._chunks))]
            self.forgotten = True
        chunk = self._chunks[slot] = bytearray(1 << (_CHUNK_BITS - 3))
        return chunk

    def __contains__(self, key: TransactionKey) -> bool:
        server, number = key
        chunk = self._chunks.get((server, number >> _CHUNK_BITS))
        return chunk is not None and bool(chunk[(number & ((1 << _CHUNK_BITS) - 1)) >> 3] >> (number & 7) & 1)

    def clear(self) -> None:
        """Remove all ids (a new run of the server)."""
        self._chunks.clear()


class TransactionTracker(msgspec.Struct):
    """All transactions of one run of the server.

    Attributes:
        damage: damaged ranges in this run.
        completed, rolled_back: counts over the whole file.
        given_up: transactions that were dropped because too many were open.
        open: transactions without their final message.
        done: ids of completed transactions.
    """

    damage: int = 0
    completed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    open: dict[TransactionKey, SegmentedTransaction] = msgspec.field(default_factory=dict)
    done: TransactionIdSet = msgspec.field(default_factory=TransactionIdSet)

    def add_single_message(self, key: TransactionKey) -> bool:
        """Count a transaction of one complete message; return False if it needs `add`."""
        if key in self.open or not self.done.add(key):
            return False
        self.completed += 1
        return True

    def add(self, segment: TransactionSegment, statements: Sequence[Any]) -> Iterator[EntryFault]:
        """Add one message of a transaction; yield its faults."""
        transaction = self.open.get(segment.key)
        if transaction is None and segment.key in self.done:
            yield self._report_duplicate(segment, "after its final message")
            return
        if transaction is None:
            transaction = SegmentedTransaction(segment, segment, self.damage)
            self._add_open(segment.key, transaction)
            expected = 1
        else:
            expected = transaction.last.segment_id + 1
        if segment.segment_id < expected:
            yield self._report_duplicate(segment, f"after segment {expected - 1}")
            return
        if segment.segment_id > expected:
            yield from self._report_gap(transaction, segment, expected)
        transaction.last, transaction.damage = segment, self.damage
        yield from _track_statements(transaction, statements)
        if segment.end:
            yield from self._close_transaction(transaction)

    def _report_duplicate(self, segment: TransactionSegment, place_text: str) -> EntryFault:
        text = (
            f"transaction {segment.key[1]} of server {segment.key[0]}: segment {segment.segment_id} again {place_text}"
        )
        return EntryFault("duplicate-sequence", text, "duplicate transaction id/segment")

    def _report_gap(
        self, transaction: SegmentedTransaction, segment: TransactionSegment, expected: int
    ) -> Iterator[EntryFault]:
        """Report missing segments: a gap, or lost in a damaged range before this message."""
        damage_before = transaction.damage if transaction.last is not segment else 0
        transaction.broken = True
        name = f"transaction {segment.key[1]} of server {segment.key[0]}"
        if damage_before == self.damage:
            text = f"{name}: segment {segment.segment_id}, expected {expected}"
            yield EntryFault("gap-in-sequence", text, "segment gap")
        else:
            text = f"{name}: segments {expected} to {segment.segment_id - 1} were lost in a damaged range"
            yield EntryFault("incomplete-transaction", text, "segments lost")

    def _add_open(self, key: TransactionKey, transaction: SegmentedTransaction) -> None:
        if len(self.open) >= MAX_OPEN:
            del self.open[next(iter(self.open))]
            self.given_up += 1
        self.open[key] = transaction

    def _close_transaction(self, transaction: SegmentedTransaction) -> Iterator[EntryFault]:
        key = transaction.last.key
        self.open.pop(key, None)
        self.done.add(key)
        if transaction.rolled_back:
            self.rolled_back += 1
        elif transaction.unfinished is not None:
            text = f"transaction {key[1]} of server {key[0]} ends within a statement"
            yield EntryFault("incomplete-transaction", text, "unfinished statement")
        elif not transaction.broken:
            self.completed += 1

    def start_run(self) -> list[SegmentedTransaction]:
        """Start a new run of the server, in which ids restart; return the transactions left open, in file order."""
        left_open = list(self.open.values())
        self.open.clear()
        self.done.clear()
        self.damage = 0
        return left_open


def is_self_contained(statement: Any, kind: int) -> bool:
    """Check that a statement neither continues, nor is a continuation, nor rolls anything back."""
    if kind == _INSERT:
        data = statement.insert_data
    elif kind == _UPDATE:
        data = statement.update_data
    elif kind == _DELETE:
        data = statement.delete_data
    else:
        return kind not in _ROLLBACK_KINDS
    return bool(data.end_segment and data.segment_id == 1)


def _track_statements(transaction: SegmentedTransaction, statements: Sequence[Any]) -> Iterator[EntryFault]:
    """Track statements that span several messages, and rollbacks; yield faults."""
    for statement in statements:
        kind = statement.type
        if kind == StatementType.ROLLBACK:
            transaction.rolled_back, transaction.unfinished = True, None
        elif kind == StatementType.ROLLBACK_STATEMENT:
            yield from _roll_back_statement(transaction)
        elif kind in _DATA_KINDS:
            yield from _continue_statement(transaction, statement)
        elif transaction.unfinished is not None:
            yield _report_interrupted(transaction, get_statement_name(kind))


def _roll_back_statement(transaction: SegmentedTransaction) -> Iterator[EntryFault]:
    if transaction.unfinished is None and not transaction.broken:
        text = "ROLLBACK_STATEMENT without an unfinished statement before it"
        yield EntryFault("dangling-reference", text, "nothing to roll back")
    transaction.unfinished = None


def _continue_statement(transaction: SegmentedTransaction, statement: Any) -> Iterator[EntryFault]:
    header_name, data_name = REQUIRED_MEMBERS[statement.type]
    if not statement.HasField(header_name) or not statement.HasField(data_name):
        return  # reported by the rules for one statement
    header, data = getattr(statement, header_name), getattr(statement, data_name)
    digest = blake2b(header.SerializePartialToString(), digest_size=16).digest()
    before, transaction.unfinished = transaction.unfinished, None
    name = StatementType(statement.type).name
    if before is not None and statement.type != before.kind:
        yield _report_interrupted(transaction, name, before)
        before = None
    elif before is not None and digest != before.header:
        yield EntryFault(
            "meta-mismatch", f"the header of the continued {name} differs from the first", "header differs"
        )
    expected = 1 if before is None else before.segment_id + 1
    if data.segment_id != expected and not transaction.broken:
        text = f"{name}: data segment {data.segment_id}, expected {expected}"
        yield EntryFault("gap-in-sequence", text, "segment gap")
    if not data.end_segment:
        transaction.unfinished = UnfinishedStatement(statement.type, digest, data.segment_id)


def _report_interrupted(
    transaction: SegmentedTransaction, next_name: str, before: UnfinishedStatement | None = None
) -> EntryFault:
    unfinished = before or transaction.unfinished
    name = "statement" if unfinished is None else get_statement_name(unfinished.kind)
    transaction.unfinished = None
    return EntryFault(
        "incomplete-transaction", f"an unfinished {name} is followed by {next_name}", "unfinished statement"
    )
