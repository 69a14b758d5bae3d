"""Validator of one file: messages, row shapes, transactions and checksums, in file order.

Source: `docs/spec/drizzle.md#transactions-and-segments`, `#validation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.drizzle.codes import EntryType, ServerEventType
from binlogtool.formats.drizzle.damage import explain_odd_encoding, report_unknown_member
from binlogtool.formats.drizzle.judge.checksums import ChecksumCounts
from binlogtool.formats.drizzle.judge.rules import EntryFault, check_statement
from binlogtool.formats.drizzle.judge.segments import (
    MAX_OPEN,
    SegmentedTransaction,
    TransactionSegment,
    TransactionTracker,
    is_self_contained,
)
from binlogtool.formats.drizzle.meaning import choose_record_type, get_statement_name, report_undecodable
from binlogtool.formats.drizzle.protobuf.decoding import (
    UndecodableError,
    create_transaction_parser,
    drop_unknown_fields,
)
from binlogtool.formats.drizzle.schema import CONTEXT_TAG, ENVELOPE_SIZE
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import Batch, Kernel, LogFileLayout
from binlogtool.limits import Limits

_TRANSACTION_TYPE = EntryType.TRANSACTION.value
_HEADER_SIZE = 8
_WARNING_FINDINGS = frozenset({"duplicate-sequence", "varint-overlong"})
"""A repeated message may be a restarted run; a number in a longer form than needed still has its value."""

_COLUMNS = ("offset", "end", "checksum", "type", "message_start", "message_end")


def is_proven_entry(frame: bytes, context: Any) -> bool:
    """Check that an entry without a checksum is a transaction beyond doubt. A BLOB never is: its body is undefined.

    Source: `docs/spec/drizzle.md#resynchronization`.
    """
    message = memoryview(frame)[_HEADER_SIZE : len(frame) - (ENVELOPE_SIZE - _HEADER_SIZE)]
    if frame[0] != _TRANSACTION_TYPE or not message or message[0] != CONTEXT_TAG:
        return False
    try:
        create_transaction_parser()(message)
    except UndecodableError:
        return False
    return True


class TransactionLogIndex(msgspec.Struct):
    """Content of the server's in-memory index of the log: values of the first and last entry, not true extremes.

    Source: `docs/spec/drizzle.md#writing-and-start-up`.
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

    def to_json(self, offset: int) -> dict[str, int | None]:
        """Return the JSON members; `offset` is the end of the last entry."""
        names = ("entries", "min_trx", "max_trx", "min_end", "max_end")
        return {name: getattr(self, name) for name in names} | {"offset": offset}


class EntryLocation(msgspec.Struct):
    """Location of the current entry."""

    offset: int
    size: int
    record: int


class DrizzleValidator(msgspec.Struct):
    """Validator of one file (implements `formats.judging.Validator`).

    Attributes:
        record_types: entries by record type.
        statements: statements by kind.
        not_final: messages with end_segment false.
        whole_end: end of the part before which no transaction is open.
    """

    parse: Callable[[Any], tuple[Any, int]] = msgspec.field(default_factory=create_transaction_parser)
    transactions: TransactionTracker = msgspec.field(default_factory=TransactionTracker)
    checksums: ChecksumCounts = msgspec.field(default_factory=ChecksumCounts)
    index: TransactionLogIndex = msgspec.field(default_factory=TransactionLogIndex)
    record_types: Counter[str] = msgspec.field(default_factory=Counter)
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
            zip(*(to_int_list(frames[name], 0, frames.count) for name in _COLUMNS), strict=True)
        ):
            location = EntryLocation(base + low, high - low, record + i)
            self.checksums.add(flag == 1, location.offset, location.offset + location.size)
            if kind != _TRANSACTION_TYPE:
                self.blobs += 1
                self.record_types[EntryType.BLOB.name] += 1
                self._extend_whole_end(location)
                continue
            try:
                message, size = self.parse(window[start:end])
            except UndecodableError as error:
                self.record_types[EntryType.TRANSACTION.name] += 1
                self.index.entries += 1
                self._findings.append(report_undecodable(batch, i, str(error)))
                self._extend_whole_end(location)
                continue
            self._check_message(message, location)
            if size != end - start:
                self._report(location, explain_odd_encoding(bytes(window[start:end])))
            if flag != 1 and drop_unknown_fields(message):
                self._report(location, report_unknown_member(bytes(window[start:end])))
        return self._findings

    def _check_message(self, message: Any, location: EntryLocation) -> None:
        context, statements = message.transaction_context, message.statement
        transaction_id = context.transaction_id
        end_timestamp = context.end_timestamp
        self.index.add(transaction_id, end_timestamp)
        self.last_record = location.record
        if context.start_timestamp > end_timestamp:
            self._report(location, EntryFault("time-regression", "the transaction starts after its end", "time order"))
        if message.HasField("event"):
            self._check_event(message.event.type, location)
        key = (context.server_id, transaction_id)
        self._check_transaction(message, key, self._check_statements(statements, location), location)

    def _check_statements(self, statements: Any, location: EntryLocation) -> bool:
        """Count and check the statements; return True if none of them continues in another message."""
        all_simple, kinds = True, set()
        for statement in statements:
            kind = statement.type
            kinds.add(kind)
            self.statements[kind] += 1
            for fault in check_statement(statement):
                self._report(location, fault)
            all_simple = all_simple and is_self_contained(statement, kind)
        self.record_types[choose_record_type(kinds)] += 1
        return all_simple

    def _check_transaction(
        self, message: Any, key: tuple[int, int], is_single_message: bool, location: EntryLocation
    ) -> None:
        segment_id = message.segment_id if message.HasField("segment_id") else 1
        is_final = message.end_segment or not message.HasField("end_segment")
        if not is_final:
            self.not_final += 1
        if is_single_message and is_final and segment_id == 1 and self.transactions.add_single_message(key):
            self._extend_whole_end(location)
            return
        segment = TransactionSegment(key, location.offset, location.size, location.record, segment_id, is_final)
        for fault in self.transactions.add(segment, message.statement):
            self._report(location, fault, server_id=key[0], transaction_id=key[1], segment_id=segment_id)
        if key not in self.transactions.open:
            self._extend_whole_end(location)

    def _extend_whole_end(self, location: EntryLocation) -> None:
        """Extend `whole_end` to this entry: no transaction is open after it."""
        if not self._damaged:
            self.whole_end = location.offset + location.size

    def _check_event(self, kind: int, location: EntryLocation) -> None:
        self.events += 1
        if kind == ServerEventType.STARTUP:
            self.checksums.start_run()
            damage = self.transactions.damage
            self._findings += _report_unterminated(
                self.transactions.start_run(), "the server was started again", damage
            )
        elif kind != ServerEventType.SHUTDOWN:
            self._report(
                location, EntryFault("unknown-record-type", f"event type {kind} is unknown", "unknown event type")
            )

    def _report(self, location: EntryLocation, fault: EntryFault, **facts: Any) -> None:
        severity = Severity.WARNING if fault.id in _WARNING_FINDINGS else None
        self._findings.append(
            make_finding(
                fault.id, location.offset, location.size, fault.text, record=location.record, severity=severity,
                diagnosis=fault.diagnosis, **facts,
            )
        )  # fmt: skip

    def skip_damage(self, start: int, end: int) -> None:
        """Record that messages of any transaction may be lost in `[start, end)`."""
        self.transactions.damage += 1
        self._damaged = True

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the verdict at the end of the file."""
        findings = _report_unterminated(
            self.transactions.open.values(), "the log ends", self.transactions.damage, self.last_record
        )
        findings += self.checksums.create_findings()
        findings += _report_limits(self.transactions)
        return ValidationResult(
            transactions=self.transactions.completed,
            record_types=dict(self.record_types),
            findings=tuple(findings),
            details=self._create_details(tail.end),
        )

    def _create_details(self, end: int) -> dict[str, Any]:
        return {
            "entries": {"TRANSACTION": self.index.entries, "BLOB": self.blobs},
            "statements": {get_statement_name(kind): count for kind, count in self.statements.items()},
            "events": self.events,
            "checksums": {"present": self.checksums.present, "absent": self.checksums.absent},
            "messages_with_end_segment_false": self.not_final,
            "transactions_rolled_back": self.transactions.rolled_back,
            "transactions_unterminated": len(self.transactions.open),
            "whole_transactions_end": self.whole_end,
            "transaction_log_index": self.index.to_json(end),
        }


def create_validator(
    layout: LogFileLayout, compile_kernel: Callable[[Kernel], Kernel], limits: Limits
) -> DrizzleValidator:
    """Create the validator for one file. Its memory bounds are `segments.MAX_OPEN` and those of
    `segments.TransactionIdSet`.
    """
    return DrizzleValidator()


def _report_unterminated(
    transactions: Iterable[SegmentedTransaction], reason: str, damage: int, last_record: int | None = None
) -> list[Finding]:
    """Report transactions that did not end.

    At the tail (record `last_record`) a crash leaves them; elsewhere it is a silent rollback or a crash, both not
    committed, or the end is in a damaged range. Source:
    `docs/spec/drizzle.md#transactions-and-segments`.
    """
    findings = []
    for transaction in transactions:
        first, last = transaction.first, transaction.last
        server, number = first.key
        at_tail = last.record == last_record
        text = f"transaction {number} of server {server} does not end after segment {last.segment_id}: {reason}"
        if transaction.damage != damage:
            text += "; its end may lie in a damaged range"
        elif not at_tail:
            text += "; it was rolled back silently or cut off by a crash"
        findings.append(
            make_finding(
                "incomplete-transaction", first.offset, first.size, text, record=first.record,
                severity=Severity.NOTE if at_tail else Severity.WARNING, diagnosis="unterminated transaction",
                server_id=server, transaction_id=number, segments=last.segment_id, last_offset=last.offset,
            )
        )  # fmt: skip
    return findings


def _report_limits(transactions: TransactionTracker) -> list[Finding]:
    """Report transactions and ids that were not followed because of the memory bounds."""
    findings = []
    if transactions.given_up:
        text = (
            f"more than {MAX_OPEN:,} transactions are open at the same time; {transactions.given_up:,} "
            f"were not followed"
        )
        findings.append(
            make_finding("count-out-of-bounds", None, 0, text, severity=Severity.WARNING, diagnosis="limit")
        )
    if transactions.done.forgotten:
        text = "transaction ids are spread too far to remember all of them; some duplicates can go unnoticed"
        findings.append(make_finding("count-out-of-bounds", None, 0, text, severity=Severity.NOTE, diagnosis="limit"))
    return findings
