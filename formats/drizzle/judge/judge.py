"""Validator of one file: messages, row shapes, transactions and checksums, in file order.

Source: `docs/spec/drizzle-transaction-log.md#4-transactions-segments-rollbacks`, `#5-verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.drizzle.codes import EntryType, EventType
from binlogtool.formats.drizzle.damage import odd_encoding, unknown_member
from binlogtool.formats.drizzle.judge.checksums import Checksums
from binlogtool.formats.drizzle.judge.rules import Fault, statement_faults
from binlogtool.formats.drizzle.judge.segments import MAX_OPEN, Group, Groups, Segment, is_simple
from binlogtool.formats.drizzle.meaning import entry_kind, kind_name, undecodable
from binlogtool.formats.drizzle.protobuf.decoding import UndecodableError, drop_unknown_fields, transaction_parser
from binlogtool.formats.drizzle.schema import CONTEXT_TAG, ENVELOPE
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.limits import Limits

_TRANSACTION = EntryType.TRANSACTION.value
_HEADER = 8
_ONLY_WARNINGS = frozenset({"duplicate-sequence", "varint-overlong"})
"""A repeated message may be a restarted run; a number in a longer form than needed still has its value."""

_COLUMNS = ("offset", "end", "checksum", "type", "message_start", "message_end")


def prove(frame: bytes, context: Any) -> bool:
    """Check that an entry without a checksum is a transaction beyond doubt. A BLOB never is: its body is undefined.

    Source: `docs/spec/drizzle-transaction-log.md#6-resync`.
    """
    message = memoryview(frame)[_HEADER : len(frame) - (ENVELOPE - _HEADER)]
    if frame[0] != _TRANSACTION or not message or message[0] != CONTEXT_TAG:
        return False
    try:
        transaction_parser()(message)
    except UndecodableError:
        return False
    return True


class Index(msgspec.Struct):
    """Content of the server's in-memory index of the log: values of the first and last entry, not true extremes.

    Source: `docs/spec/drizzle-transaction-log.md#2-writing-durability-start-up`.
    """

    entries: int = 0
    min_trx: int | None = None
    max_trx: int | None = None
    min_end: int | None = None
    max_end: int | None = None

    def add(self, transaction_id: int, end_timestamp: int) -> None:
        """Add a transaction entry."""
        if not self.entries:
            self.min_trx, self.min_end = transaction_id, end_timestamp
        self.max_trx, self.max_end = transaction_id, end_timestamp
        self.entries += 1

    def as_dict(self, offset: int) -> dict[str, int | None]:
        """Return the JSON members; `offset` is the end of the last entry."""
        names = ("entries", "min_trx", "max_trx", "min_end", "max_end")
        return {name: getattr(self, name) for name in names} | {"offset": offset}


class Place(msgspec.Struct):
    """Location of the current entry."""

    offset: int
    size: int
    record: int


class EntryJudge(msgspec.Struct):
    """Validator of one file (implements `formats.judging.Judge`).

    Attributes:
        record_types: entries by record type.
        statements: statements by kind.
        not_final: messages with end_segment false.
        whole_end: end of the part before which no transaction is open.
    """

    parse: Callable[[Any], tuple[Any, int]] = msgspec.field(default_factory=transaction_parser)
    groups: Groups = msgspec.field(default_factory=Groups)
    checksums: Checksums = msgspec.field(default_factory=Checksums)
    index: Index = msgspec.field(default_factory=Index)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    statements: Counter[int] = msgspec.field(default_factory=Counter)
    blobs: int = 0
    events: int = 0
    not_final: int = 0
    last_record: int = -1
    whole_end: int = 0
    _damaged: bool = False
    _findings: list[Finding] = msgspec.field(default_factory=list)

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the entries of one batch."""
        self._findings = []
        frames, window, base, record = batch.frames, batch.window, batch.base, batch.first_record
        for i, (low, high, flag, kind, start, end) in enumerate(
            zip(*(integers(frames[name], 0, frames.count) for name in _COLUMNS), strict=True)
        ):
            place = Place(base + low, high - low, record + i)
            self.checksums.add(flag == 1, place.offset, place.offset + place.size)
            if kind != _TRANSACTION:
                self.blobs += 1
                self.kinds[EntryType.BLOB.name] += 1
                self._whole(place)
                continue
            try:
                message, size = self.parse(window[start:end])
            except UndecodableError as error:
                self.kinds[EntryType.TRANSACTION.name] += 1
                self.index.entries += 1
                self._findings.append(undecodable(batch, i, str(error)))
                self._whole(place)
                continue
            self._message(message, place)
            if size != end - start:
                self._report(place, odd_encoding(bytes(window[start:end])))
            if flag != 1 and drop_unknown_fields(message):
                self._report(place, unknown_member(bytes(window[start:end])))
        return self._findings

    def _message(self, message: Any, place: Place) -> None:
        context, statements = message.transaction_context, message.statement
        transaction_id = context.transaction_id
        end_timestamp = context.end_timestamp
        self.index.add(transaction_id, end_timestamp)
        self.last_record = place.record
        if context.start_timestamp > end_timestamp:
            self._report(place, Fault("time-regression", "the transaction starts after its end", "time order"))
        if message.HasField("event"):
            self._event(message.event.type, place)
        key = (context.server_id, transaction_id)
        self._transaction(message, key, self._statements(statements, place), place)

    def _statements(self, statements: Any, place: Place) -> bool:
        """Count and check the statements; return True if none of them continues in another message."""
        simple, kinds = True, set()
        for statement in statements:
            kind = statement.type
            kinds.add(kind)
            self.statements[kind] += 1
            for fault in statement_faults(statement):
                self._report(place, fault)
            simple = simple and is_simple(statement, kind)
        self.kinds[entry_kind(kinds)] += 1
        return simple

    def _transaction(self, message: Any, key: tuple[int, int], simple: bool, place: Place) -> None:
        segment_id = message.segment_id if message.HasField("segment_id") else 1
        final = message.end_segment or not message.HasField("end_segment")
        if not final:
            self.not_final += 1
        if simple and final and segment_id == 1 and self.groups.simple(key):
            self._whole(place)
            return
        segment = Segment(key, place.offset, place.size, place.record, segment_id, final)
        for fault in self.groups.add(segment, message.statement):
            self._report(place, fault, server_id=key[0], transaction_id=key[1], segment_id=segment_id)
        if key not in self.groups.open:
            self._whole(place)

    def _whole(self, place: Place) -> None:
        """Extend `whole_end` to this entry: no transaction is open after it."""
        if not self._damaged:
            self.whole_end = place.offset + place.size

    def _event(self, kind: int, place: Place) -> None:
        self.events += 1
        if kind == EventType.STARTUP:
            self.checksums.new_run()
            damage = self.groups.damage
            self._findings += _unterminated(self.groups.new_run(), "the server was started again", damage)
        elif kind != EventType.SHUTDOWN:
            self._report(place, Fault("unknown-record-type", f"event type {kind} is unknown", "unknown event type"))

    def _report(self, place: Place, fault: Fault, **facts: Any) -> None:
        severity = Severity.WARNING if fault.id in _ONLY_WARNINGS else None
        self._findings.append(
            finding(
                fault.id, place.offset, place.size, fault.text, record=place.record, severity=severity,
                diagnosis=fault.diagnosis, **facts,
            )
        )  # fmt: skip

    def damage(self, start: int, end: int) -> None:
        """Record that messages of any transaction may be lost in `[start, end)`."""
        self.groups.damage += 1
        self._damaged = True

    def finish(self, tail: Tail) -> Verdict:
        """Return the verdict at the end of the file."""
        findings = _unterminated(self.groups.open.values(), "the log ends", self.groups.damage, self.last_record)
        findings += self.checksums.findings()
        findings += _limits(self.groups)
        return Verdict(
            transactions=self.groups.completed,
            record_types=dict(self.kinds),
            findings=tuple(findings),
            details=self._details(tail.end),
        )

    def _details(self, end: int) -> dict[str, Any]:
        return {
            "entries": {"TRANSACTION": self.index.entries, "BLOB": self.blobs},
            "statements": {kind_name(kind): count for kind, count in self.statements.items()},
            "events": self.events,
            "checksums": {"present": self.checksums.present, "absent": self.checksums.absent},
            "messages_with_end_segment_false": self.not_final,
            "transactions_rolled_back": self.groups.rolled_back,
            "transactions_unterminated": len(self.groups.open),
            "whole_transactions_end": self.whole_end,
            "transaction_log_index": self.index.as_dict(end),
        }


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> EntryJudge:
    """Create the validator for one file. Its memory bounds are `segments.MAX_OPEN` and those of
    `segments.TransactionIdSet`.
    """
    return EntryJudge()


def _unterminated(groups: Iterable[Group], why: str, damage: int, last_record: int | None = None) -> list[Finding]:
    """Report transactions that did not end.

    At the tail (record `last_record`) a crash leaves them; elsewhere it is a silent rollback or a crash, both not
    committed, or the end is in a damaged range. Source:
    `docs/spec/drizzle-transaction-log.md#4-transactions-segments-rollbacks`.
    """
    found = []
    for group in groups:
        first, last = group.first, group.last
        server, number = first.key
        at_tail = last.record == last_record
        text = f"transaction {number} of server {server} does not end after segment {last.segment_id}: {why}"
        if group.damage != damage:
            text += "; its end may lie in a damaged range"
        elif not at_tail:
            text += "; it was rolled back silently or cut off by a crash"
        found.append(
            finding(
                "incomplete-transaction", first.offset, first.size, text, record=first.record,
                severity=Severity.NOTE if at_tail else Severity.WARNING, diagnosis="unterminated transaction",
                server_id=server, transaction_id=number, segments=last.segment_id, last_offset=last.offset,
            )
        )  # fmt: skip
    return found


def _limits(groups: Groups) -> list[Finding]:
    """Report transactions and ids that were not followed because of the memory bounds."""
    found = []
    if groups.given_up:
        text = f"more than {MAX_OPEN:,} transactions are open at the same time; {groups.given_up:,} were not followed"
        found.append(finding("count-out-of-bounds", None, 0, text, severity=Severity.WARNING, diagnosis="limit"))
    if groups.done.forgotten:
        text = "transaction ids are spread too far to remember all of them; some duplicates can go unnoticed"
        found.append(finding("count-out-of-bounds", None, 0, text, severity=Severity.NOTE, diagnosis="limit"))
    return found
