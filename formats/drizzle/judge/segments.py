"""Assemble transactions from their messages, by (server id, transaction id), never by adjacency.

Source: `docs/spec/drizzle-transaction-log.md#4-transactions-segments-rollbacks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.blake2 import blake2b
from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.judge.rules import Fault
from binlogtool.formats.drizzle.meaning import PARTS, kind_name

MAX_OPEN = 65_536
"""Transactions that are followed at the same time; the oldest is given up when there are more."""

_CHUNK_BITS = 15
_MAX_CHUNKS = 4096

_INSERT, _DELETE, _UPDATE = StatementType.INSERT.value, StatementType.DELETE.value, StatementType.UPDATE.value
_TAKES_BACK = frozenset({StatementType.ROLLBACK, StatementType.ROLLBACK_STATEMENT})
_DATA = frozenset({StatementType.INSERT, StatementType.UPDATE, StatementType.DELETE})

Key = tuple[int, int]
"""(server id, transaction id)."""


class Segment(NamedTuple):
    """One message of a transaction.

    Attributes:
        offset, size: of its entry in the file.
        record: index of the entry.
        end: it is the final message.
    """

    key: Key
    offset: int
    size: int
    record: int
    segment_id: int
    end: bool


class Unfinished(NamedTuple):
    """A statement that continues in the next message: its kind, a digest of its header, its data segment."""

    kind: int
    header: bytes
    segment_id: int


class Group(msgspec.Struct):
    """A transaction whose final message was not read yet.

    Attributes:
        damage: number of damaged ranges before its last message.
        broken: a part of it is missing, so its statements cannot be followed any more.
    """

    first: Segment
    last: Segment
    damage: int
    unfinished: Unfinished | None = None
    broken: bool = False
    rolled_back: bool = False


class IdSet:
    """Ids of completed transactions, as bits: dense ids cost one bit each; memory is bounded (16 MiB).

    Attributes:
        forgotten: the oldest ids were dropped.
    """

    def __init__(self) -> None:
        self._chunks: dict[Key, bytearray] = {}
        self.forgotten = False

    def add(self, key: Key) -> bool:
        """Add a transaction; return False if it was there before."""
        server, number = key
        slot = (server, number >> _CHUNK_BITS)
        chunk = self._chunks.get(slot)
        if chunk is None:
            chunk = self._new(slot)
        at, bit = (number & ((1 << _CHUNK_BITS) - 1)) >> 3, 1 << (number & 7)
        seen = chunk[at] & bit
        chunk[at] |= bit
        return not seen

    def _new(self, slot: Key) -> bytearray:
        if len(self._chunks) >= _MAX_CHUNKS:
            del self._chunks[next(iter(self._chunks))]
            self.forgotten = True
        chunk = self._chunks[slot] = bytearray(1 << (_CHUNK_BITS - 3))
        return chunk

    def __contains__(self, key: Key) -> bool:
        server, number = key
        chunk = self._chunks.get((server, number >> _CHUNK_BITS))
        return chunk is not None and bool(chunk[(number & ((1 << _CHUNK_BITS) - 1)) >> 3] >> (number & 7) & 1)

    def clear(self) -> None:
        """Remove all ids (a new run of the server)."""
        self._chunks.clear()


class Groups(msgspec.Struct):
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
    open: dict[Key, Group] = msgspec.field(default_factory=dict)
    done: IdSet = msgspec.field(default_factory=IdSet)

    def simple(self, key: Key) -> bool:
        """Count a transaction of one complete message; return False if it needs `add`."""
        if key in self.open or not self.done.add(key):
            return False
        self.completed += 1
        return True

    def add(self, segment: Segment, statements: Sequence[Any]) -> Iterator[Fault]:
        """Add one message of a transaction; yield its faults."""
        group = self.open.get(segment.key)
        if group is None and segment.key in self.done:
            yield self._duplicate(segment, "after its final message")
            return
        if group is None:
            group = Group(segment, segment, self.damage)
            self._remember(segment.key, group)
            expected = 1
        else:
            expected = group.last.segment_id + 1
        if segment.segment_id < expected:
            yield self._duplicate(segment, f"after segment {expected - 1}")
            return
        if segment.segment_id > expected:
            yield from self._gap(group, segment, expected)
        group.last, group.damage = segment, self.damage
        yield from _follow(group, statements)
        if segment.end:
            yield from self._close(group)

    def _duplicate(self, segment: Segment, where: str) -> Fault:
        text = f"transaction {segment.key[1]} of server {segment.key[0]}: segment {segment.segment_id} again {where}"
        return Fault("duplicate-sequence", text, "duplicate transaction id/segment")

    def _gap(self, group: Group, segment: Segment, expected: int) -> Iterator[Fault]:
        """Report missing segments: a gap, or lost in a damaged range before this message."""
        known = group.damage if group.last is not segment else 0
        group.broken = True
        name = f"transaction {segment.key[1]} of server {segment.key[0]}"
        if known == self.damage:
            text = f"{name}: segment {segment.segment_id}, expected {expected}"
            yield Fault("gap-in-sequence", text, "segment gap")
        else:
            text = f"{name}: segments {expected} to {segment.segment_id - 1} were lost in a damaged range"
            yield Fault("incomplete-transaction", text, "segments lost")

    def _remember(self, key: Key, group: Group) -> None:
        if len(self.open) >= MAX_OPEN:
            del self.open[next(iter(self.open))]
            self.given_up += 1
        self.open[key] = group

    def _close(self, group: Group) -> Iterator[Fault]:
        key = group.last.key
        self.open.pop(key, None)
        self.done.add(key)
        if group.rolled_back:
            self.rolled_back += 1
        elif group.unfinished is not None:
            text = f"transaction {key[1]} of server {key[0]} ends within a statement"
            yield Fault("incomplete-transaction", text, "unfinished statement")
        elif not group.broken:
            self.completed += 1

    def new_run(self) -> list[Group]:
        """Start a new run of the server, in which ids restart; return the transactions left open, in file order."""
        left = list(self.open.values())
        self.open.clear()
        self.done.clear()
        self.damage = 0
        return left


def is_simple(statement: Any, kind: int) -> bool:
    """Check that a statement neither continues, nor is a continuation, nor rolls anything back."""
    if kind == _INSERT:
        data = statement.insert_data
    elif kind == _UPDATE:
        data = statement.update_data
    elif kind == _DELETE:
        data = statement.delete_data
    else:
        return kind not in _TAKES_BACK
    return bool(data.end_segment and data.segment_id == 1)


def _follow(group: Group, statements: Sequence[Any]) -> Iterator[Fault]:
    """Track statements that span several messages, and rollbacks; yield faults."""
    for statement in statements:
        kind = statement.type
        if kind == StatementType.ROLLBACK:
            group.rolled_back, group.unfinished = True, None
        elif kind == StatementType.ROLLBACK_STATEMENT:
            yield from _take_back(group)
        elif kind in _DATA:
            yield from _continue(group, statement)
        elif group.unfinished is not None:
            yield _interrupted(group, kind_name(kind))


def _take_back(group: Group) -> Iterator[Fault]:
    if group.unfinished is None and not group.broken:
        text = "ROLLBACK_STATEMENT without an unfinished statement before it"
        yield Fault("dangling-reference", text, "nothing to roll back")
    group.unfinished = None


def _continue(group: Group, statement: Any) -> Iterator[Fault]:
    header_name, data_name = PARTS[statement.type]
    if not statement.HasField(header_name) or not statement.HasField(data_name):
        return  # reported by the rules for one statement
    header, data = getattr(statement, header_name), getattr(statement, data_name)
    digest = blake2b(header.SerializePartialToString(), digest_size=16).digest()
    before, group.unfinished = group.unfinished, None
    name = StatementType(statement.type).name
    if before is not None and statement.type != before.kind:
        yield _interrupted(group, name, before)
        before = None
    elif before is not None and digest != before.header:
        yield Fault("meta-mismatch", f"the header of the continued {name} differs from the first", "header differs")
    expected = 1 if before is None else before.segment_id + 1
    if data.segment_id != expected and not group.broken:
        text = f"{name}: data segment {data.segment_id}, expected {expected}"
        yield Fault("gap-in-sequence", text, "segment gap")
    if not data.end_segment:
        group.unfinished = Unfinished(statement.type, digest, data.segment_id)


def _interrupted(group: Group, by: str, before: Unfinished | None = None) -> Fault:
    unfinished = before or group.unfinished
    name = "statement" if unfinished is None else kind_name(unfinished.kind)
    group.unfinished = None
    return Fault("incomplete-transaction", f"an unfinished {name} is followed by {by}", "unfinished statement")
