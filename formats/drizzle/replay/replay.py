"""Predict what an applier does with the transactions of the log, in the order of their final messages.

The server itself reads nothing of the log when it starts. The replay covers what the server's own reader reaches, with
transactions assembled as the writer meant them; that reader prints a COMMIT too early where a transaction is split
between statements, and shows what was silently rolled back. Source: `docs/spec/drizzle.md#transactions-and-segments`,
`#replay-and-conversion`.
"""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.drizzle.codes import EntryType, ServerEventType, StatementType
from binlogtool.formats.drizzle.judge.segments import MAX_OPEN, TransactionIdSet, TransactionKey
from binlogtool.formats.drizzle.replay.effects import DATA_MEMBERS
from binlogtool.formats.drizzle.replay.reader import ReaderPosition, simulate_reader
from binlogtool.formats.replay_rules import (
    APPLIED,
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    DecodedRecords,
    ExaminedFile,
    ReadPlan,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
    Ruling,
)

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "committed": "The transaction is whole: its final message (end_segment true or absent) was met (section 4). "
        "Transactions are applied in the order of their final messages.",
        "rolled-back": "The transaction ends with ROLLBACK: all its earlier segments are void (section 4).",
        "unterminated": "The final message of the transaction never comes: it was rolled back silently, or a crash cut "
        "it off; either way it was not committed (section 4).",
        "segments-missing": "A segment of the transaction, or of one of its statements, is not in the log: it "
        "cannot be put together (section 5).",
        "unfinished-statement": "The final message ends inside a statement whose rest never comes (section 4).",
        "duplicate": "This transaction, or this segment of it, was there before in the same run of the server "
        "(section 5).",
        "event": "An event uses up a transaction id and changes nothing (section 3). STARTUP begins a new run of ids.",
        "blob": "An entry of type BLOB: declared and never written; the reader ends at it (sections 1 and 9).",
        "undecodable": "The message is no Transaction: the reader ends at it (section 9).",
        "before-position": "The final message of the transaction lies before the offset that --against names.",
        "given-up": f"More than {MAX_OPEN:,} transactions are open at the same time: the oldest is not followed.",
    }
)
_MAX_ORIGINS = 10_000
_NO_DATA: Mapping[str, Any] = MappingProxyType({})
_ROLLBACK_NAME, _ROLLBACK_STATEMENT_NAME = StatementType.ROLLBACK.name, StatementType.ROLLBACK_STATEMENT.name
_AGAINST_ERROR = '--against: {"offset": {FILE: bytes}} is meant, the offset behind the last entry that was applied'


class UnfinishedTransaction(msgspec.Struct):
    """A transaction without its final message.

    Attributes:
        numbers: its records.
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
        """Return the decision at its final message: verb and reason."""
        if self.void:
            return SKIPPED, "rolled-back"
        if self.broken:
            return REJECTED, "segments-missing"
        return (APPLIED, "committed") if self.unfinished is None else (REJECTED, "unfinished-statement")


class RulingList(list[Ruling]):
    """Rulings in the order in which they take effect; adjacent ones with one decision are merged."""

    def add_record(self, number: int, verb: str, reason: str) -> None:
        """Add the decision about one record."""
        last = self[-1] if self else None
        if last is not None and last.stop == number and last[2:] == (verb, reason):
            self[-1] = last._replace(stop=number + 1)
        else:
            self.append(Ruling(number, number + 1, verb, reason))


class DrizzleReplayer:
    """Replay rules of one log (implements `replay_rules.Replayer`); several files count as parts of one log."""

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

    def feed(self, name: str, first: int, records: DecodedRecords) -> Iterable[Ruling]:
        """Rule on one run of entries, and on earlier ones whose transactions end in it."""
        rulings = RulingList()
        if self.file is None or self.file.name != name:
            self._close_file()
            self.file = next(file for file in self.situation.files if file.name == name)
            self.position = 0
        for i, (offset, size) in enumerate(zip(records.offset, records.size, strict=True)):
            if offset != self.position and self.stop is None:
                self._read_damage(self.position, offset)
            if self.stop is not None:
                rulings.append(Ruling(first + i, first + len(records), SKIPPED, NOT_REACHED))
                break
            self._rule_on_entry(records, i, first + i, offset + size, rulings)
            self.position = offset + size if self.stop is None else offset
        return rulings

    # -- one entry -------------------------------------------------------------------------------------------------

    def _rule_on_entry(self, records: DecodedRecords, i: int, number: int, end: int, rulings: RulingList) -> None:
        body = records.bodies[i]
        if records.envelope.type[i] == EntryType.BLOB.name:
            self._rule_on_unreadable(records.offset[i], "a non-transaction message", number, "blob", rulings)
        elif not isinstance(body, Mapping) or "transaction_context" not in body:
            if records.findings.get(i) and records.envelope.txn[i] is None:
                self._rule_on_unreadable(
                    records.offset[i], "the message does not parse", number, "undecodable", rulings
                )
            else:
                rulings.add_record(number, REJECTED, "undecodable")
        else:
            self._rule_on_message(body, number, end, rulings)

    def _rule_on_unreadable(self, offset: int, message: str, number: int, reason: str, rulings: RulingList) -> None:
        rulings.add_record(number, SKIPPED if self.force else REJECTED, reason)
        if not self.force:
            self.stop = ReplayStop(self._file_name, offset, f"{message}: the reader ends here with an error")

    @property
    def _file_name(self) -> str:
        return "" if self.file is None else self.file.name

    def _rule_on_message(self, body: Mapping[str, Any], number: int, end: int, rulings: RulingList) -> None:
        context, event = body["transaction_context"], body.get("event")
        key = context.get("server_id", 0), context.get("transaction_id", 0)
        if event is not None and event.get("type") == ServerEventType.STARTUP.name:
            self._start_run(rulings)
        statements = body.get("statement", ())
        if event is not None and not statements:
            self.completed_ids.add(key)
            rulings.add_record(number, SKIPPED, "event")
            return
        self._rule_on_segment(key, body, statements, number, end, rulings)

    def _rule_on_segment(
        self, key: TransactionKey, body: Mapping[str, Any], statements: Any, number: int, end: int, rulings: RulingList
    ) -> None:
        transaction = self.open_transactions.get(key)
        segment, is_final = body.get("segment_id", 1), body.get("end_segment", True)
        if segment <= transaction.segment if transaction is not None else key in self.completed_ids:
            rulings.add_record(number, SKIPPED, "duplicate")
            return
        transaction = transaction or self._begin_transaction(key, rulings)
        transaction.broken |= segment != transaction.segment + 1
        transaction.segment = segment
        transaction.numbers.append(number)
        transaction.add_statements(statements)
        if is_final:
            self._end_transaction(key, transaction, end, rulings)

    def _begin_transaction(self, key: TransactionKey, rulings: RulingList) -> UnfinishedTransaction:
        if len(self.open_transactions) >= MAX_OPEN:
            self._drop_transaction(next(iter(self.open_transactions)), "given-up", rulings)
        transaction = self.open_transactions[key] = UnfinishedTransaction()
        return transaction

    def _end_transaction(
        self, key: TransactionKey, transaction: UnfinishedTransaction, end: int, rulings: RulingList
    ) -> None:
        """Rule on all records of a transaction at its final message."""
        del self.open_transactions[key]
        self.completed_ids.add(key)
        verb, reason = transaction.get_decision()
        if verb == APPLIED and end <= self.start_offsets.get(posixpath.basename(self._file_name), 0):
            verb, reason = SKIPPED, "before-position"
        for number in transaction.numbers:
            rulings.add_record(number, verb, reason)
        self.counts["rolled_back"] += reason == "rolled-back"
        if verb == APPLIED:
            self.counts["transactions"] += 1
            origin = str(key[0])
            if origin in self.origins or len(self.origins) < _MAX_ORIGINS:
                self.origins[origin] = key[1]

    def _start_run(self, rulings: RulingList) -> None:
        """Start a new run of the server: open transactions never end, and ids restart."""
        for key in list(self.open_transactions):
            self._drop_transaction(key, "unterminated", rulings)
        self.completed_ids.clear()

    def _drop_transaction(self, key: TransactionKey, reason: str, rulings: RulingList) -> None:
        self.counts["unterminated"] += reason == "unterminated"
        for number in self.open_transactions.pop(key).numbers:
            rulings.add_record(number, SKIPPED, reason)

    # -- damage ----------------------------------------------------------------------------------------------------

    def _read_damage(self, start: int, end: int) -> None:
        """Simulate the reader over `[start, end)`, which holds nothing provable; record where it ends."""
        if self.force or self.file is None:
            return
        beside = self.situation.read_sibling
        read = None if beside is None else beside(self.file.name)
        reader_position = (
            ReaderPosition(start, "what is here cannot be read") if read is None else simulate_reader(read, start, end)
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
            self._read_damage(self.position, tail.size)
        self.end_offsets[posixpath.basename(self.file.name)] = self.position

    def _has_read_all(self, end: int) -> bool:
        """Check that the last entry of the file was read (and not only those before some `--until`)."""
        tail = None if self.file is None else self.file.tail
        return tail is not None and (
            self.position >= end if tail.first_damage is None else not self._has_later_entries()
        )

    def _has_later_entries(self) -> bool:
        """Check that complete entries are known after the position that was reached."""
        findings = () if self.file is None else self.file.findings
        return any(one.id == "valid-after-damage" and (one.offset or 0) >= self.position for one in findings)

    def finish(self) -> tuple[Iterable[Ruling], ReplayOutcome]:
        """Rule on the transactions that are open at the end, which were not committed."""
        if self.file is None and self.situation.files:
            self.file = self.situation.files[-1] if not self.situation.files[-1].records else None
        self._close_file()
        rulings = RulingList()
        for key in list(self.open_transactions):
            self._drop_transaction(key, "unterminated", rulings)
        position = {"offset": self.end_offsets, "origins": dict(sorted(self.origins.items()))}
        return rulings, ReplayOutcome(None, self.stop, position, (), dict(self.counts))


def _parse_offsets(against: Mapping[str, Any]) -> dict[str, int]:
    """Parse the offsets where an earlier replay ended.

    Raises:
        UsageError: the position has another form.
    """
    offsets = against.get("offset", {})
    if not isinstance(offsets, Mapping) or any(type(value) is not int for value in offsets.values()):
        raise UsageError(_AGAINST_ERROR)
    return dict(offsets)
