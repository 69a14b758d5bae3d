"""Validate a log: messages, row shapes, transactions, checksums.

Source: `docs/spec/drizzle.md#file-layout`, `#transactions-and-segments`, `#validation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, ValidationResult
from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout, blake2b, to_int_list
from binlogtool.formats.drizzle.decode import (
    REQUIRED_MEMBERS,
    EntryFault,
    UndecodableError,
    choose_record_type,
    create_transaction_parser,
    find_statement_faults,
    get_statement_name,
    remove_unknown_fields,
    report_undecodable,
)
from binlogtool.formats.drizzle.explain_damage import explain_noncanonical_encoding, report_unknown_member
from binlogtool.formats.drizzle.schema import CONTEXT_TAG, ENVELOPE_SIZE, EntryType, ServerEventType, StatementType
from binlogtool.limits import Limits

# --- Entries with and without a checksum ---


class ChecksumCounts(msgspec.Struct):
    """Counts over a file. Within one run of the server, checksums are either on or off: a hole in a run is suspicious.

    Attributes:
        absent_from, absent_to: range from the first entry without a checksum to the end of the last one.
    """

    present: int = 0
    absent: int = 0
    suspicious: int = 0
    suspicious_at: int | None = None
    absent_from: int | None = None
    absent_to: int = 0
    _run_has_checksums: bool = False
    _last_has_checksum: bool = False
    _hole_count: int = 0
    _hole_start: int | None = None

    def add(self, has_checksum: bool, offset: int, end: int) -> None:
        """Count the entry at `[offset, end)`."""
        self._last_has_checksum = has_checksum
        if has_checksum:
            self.present += 1
            self._run_has_checksums = True
            if self._hole_count:
                self._count_hole_as_suspicious()
            return
        self.absent += 1
        self.absent_to = end
        if self.absent_from is None:
            self.absent_from = offset
        if self._run_has_checksums:
            self._hole_count += 1
            self._hole_start = offset if self._hole_start is None else self._hole_start

    def _count_hole_as_suspicious(self) -> None:
        """Count a hole as suspicious: in the same run, a checksum follows entries without one."""
        self.suspicious += self._hole_count
        self.suspicious_at = self._hole_start if self.suspicious_at is None else self.suspicious_at
        self._hole_count, self._hole_start = 0, None

    def start_server_run(self) -> None:
        """Start a new run of the server at the last entry: the checksum option may have changed."""
        self._run_has_checksums = self._last_has_checksum
        self._hole_count, self._hole_start = 0, None

    def create_findings(self) -> list[Finding]:
        """Return at most one finding, about the whole file."""
        if self.absent_from is None:
            return []
        text = f"{self.absent:,} of {self.absent + self.present:,} entries have no checksum: changes go unnoticed"
        facts: dict[str, Any] = {"present": self.present, "absent": self.absent, "diagnosis": "no checksum"}
        if self.suspicious:
            text += f"; {self.suspicious:,} of them are between entries that have one"
            facts |= {"suspicious": self.suspicious, "first_suspicious": self.suspicious_at or 0}
        severity = Severity.WARNING if self.suspicious else Severity.NOTE
        size = self.absent_to - self.absent_from
        return [make_finding("checksum-absent", self.absent_from, size, text, severity=severity, **facts)]


# --- Transactions from their messages ---

MAX_OPEN = 65_536
"""Maximum number of transactions that are tracked at a time; the oldest is dropped when there are more."""

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
        offset, size: offset and size of its entry in the file.
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
    """Statement that continues in the next message: its kind, a digest of its header, its data segment."""

    kind: int
    header: bytes
    segment_id: int


class SegmentedTransaction(msgspec.Struct):
    """Transaction whose final message was not read yet.

    Attributes:
        damage: number of damaged ranges before its last message.
        broken: a part of it is missing, so its statements can no longer be tracked.
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

    def add_if_absent(self, key: TransactionKey) -> bool:
        """Add a transaction; return False if it was already in the set."""
        server, number = key
        slot = (server, number >> _CHUNK_BITS)
        chunk = self._chunks.get(slot)
        if chunk is None:
            if len(self._chunks) >= _MAX_CHUNKS:
                del self._chunks[next(iter(self._chunks))]
                self.forgotten = True
            chunk = self._chunks[slot] = bytearray(1 << (_CHUNK_BITS - 3))
        index, bit = (number & ((1 << _CHUNK_BITS) - 1)) >> 3, 1 << (number & 7)
        seen = chunk[index] & bit
        chunk[index] |= bit
        return not seen

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
        damage: number of damaged ranges in this run.
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

    def try_add_single_message(self, key: TransactionKey) -> bool:
        """Count a transaction that is one complete message; return False if it needs `add`."""
        if key in self.open or not self.done.add_if_absent(key):
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
        """Report missing segments: a gap in the ids, or segments lost in a damaged range before this message."""
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
        self.done.add_if_absent(key)
        if transaction.rolled_back:
            self.rolled_back += 1
        elif transaction.unfinished is not None:
            text = f"transaction {key[1]} of server {key[0]} ends within a statement"
            yield EntryFault("incomplete-transaction", text, "unfinished statement")
        elif not transaction.broken:
            self.completed += 1

    def start_server_run(self) -> list[SegmentedTransaction]:
        """Start a new run of the server, in which ids start again; return the open transactions, in file order."""
        left_open = list(self.open.values())
        self.open.clear()
        self.done.clear()
        self.damage = 0
        return left_open


def is_self_contained(statement: Any, kind: int) -> bool:
    """Return whether a statement neither continues, nor is a continuation, nor rolls anything back."""
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
            if transaction.unfinished is None and not transaction.broken:
                text = "ROLLBACK_STATEMENT without an unfinished statement before it"
                yield EntryFault("dangling-reference", text, "nothing to roll back")
            transaction.unfinished = None
        elif kind in _DATA_KINDS:
            yield from _track_data_segment(transaction, statement)
        elif transaction.unfinished is not None:
            yield _report_interrupted(transaction, get_statement_name(kind))


def _track_data_segment(transaction: SegmentedTransaction, statement: Any) -> Iterator[EntryFault]:
    header_name, data_name = REQUIRED_MEMBERS[statement.type]
    if not statement.HasField(header_name) or not statement.HasField(data_name):
        return  # the rules for single statements report it
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


# --- Validator of one file ---

_TRANSACTION_TYPE = EntryType.TRANSACTION.value
_HEADER_SIZE = 8
_WARNING_FINDINGS = frozenset({"duplicate-sequence", "varint-overlong"})
"""Findings that are only warnings: a repeated message may be a restart; an overlong number still has its value."""

_COLUMNS = ("offset", "end", "checksum", "type", "message_start", "message_end")


def is_proven_entry(frame: bytes, context: Any) -> bool:
    """Return whether an entry without a checksum is certainly a transaction. A BLOB never is: its body is undefined.

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


class ServerIndexExtremes(msgspec.Struct):
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

    def to_json(self, last_entry_end: int) -> dict[str, int | None]:
        """Return the JSON members; `last_entry_end` is the end of the last entry."""
        names = ("entries", "min_trx", "max_trx", "min_end", "max_end")
        return {name: getattr(self, name) for name in names} | {"offset": last_entry_end}


class EntryLocation(msgspec.Struct):
    """Location of the current entry."""

    offset: int
    size: int
    record: int


class DrizzleValidator(msgspec.Struct):
    """Validator of one file (implements `format_api.format.Validator`).

    Attributes:
        record_types: number of entries by record type.
        statements: number of statements by kind.
        not_final: number of messages with end_segment false.
        whole_end: last offset at which no transaction is open.
    """

    parse: Callable[[Any], tuple[Any, int]] = msgspec.field(default_factory=create_transaction_parser)
    transactions: TransactionTracker = msgspec.field(default_factory=TransactionTracker)
    checksums: ChecksumCounts = msgspec.field(default_factory=ChecksumCounts)
    index: ServerIndexExtremes = msgspec.field(default_factory=ServerIndexExtremes)
    record_types: Counter[str] = msgspec.field(default_factory=Counter)
    statements: Counter[int] = msgspec.field(default_factory=Counter)
    blobs: int = 0
    events: int = 0
    not_final: int = 0
    last_record: int = -1
    whole_end: int = 0
    _damaged: bool = False
    _findings: list[Finding] = msgspec.field(default_factory=list)

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
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
                self._report(location, explain_noncanonical_encoding(bytes(window[start:end])))
            if flag != 1 and remove_unknown_fields(message):
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
        self._track_transaction(message, key, self._check_and_count_statements(statements, location), location)

    def _check_and_count_statements(self, statements: Any, location: EntryLocation) -> bool:
        """Count and check the statements; return True if none of them continues in another message."""
        all_simple, kinds = True, set()
        for statement in statements:
            kind = statement.type
            kinds.add(kind)
            self.statements[kind] += 1
            for fault in find_statement_faults(statement):
                self._report(location, fault)
            all_simple = all_simple and is_self_contained(statement, kind)
        self.record_types[choose_record_type(kinds)] += 1
        return all_simple

    def _track_transaction(
        self, message: Any, key: tuple[int, int], is_single_message: bool, location: EntryLocation
    ) -> None:
        segment_id = message.segment_id if message.HasField("segment_id") else 1
        is_final = message.end_segment or not message.HasField("end_segment")
        if not is_final:
            self.not_final += 1
        if is_single_message and is_final and segment_id == 1 and self.transactions.try_add_single_message(key):
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
            self.checksums.start_server_run()
            damage = self.transactions.damage
            self._findings += _report_unterminated(
                self.transactions.start_server_run(), "the server was started again", damage
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
        """Return the result at the end of the file."""
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
    """Create the validator of one file. Its memory is bounded by `MAX_OPEN` and `TransactionIdSet`."""
    return DrizzleValidator()


def _report_unterminated(
    transactions: Iterable[SegmentedTransaction], reason: str, damage_count: int, last_record: int | None = None
) -> list[Finding]:
    """Report transactions that did not end.

    At the tail (record `last_record`) they are left by a crash. Elsewhere they were silently rolled back or left by a
    crash (neither is committed), or their end is in a damaged range. Source:
    `docs/spec/drizzle.md#transactions-and-segments`.
    """
    findings = []
    for transaction in transactions:
        first, last = transaction.first, transaction.last
        server, number = first.key
        at_tail = last.record == last_record
        text = f"transaction {number} of server {server} does not end after segment {last.segment_id}: {reason}"
        if transaction.damage != damage_count:
            text += "; its end may be in a damaged range"
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
    """Report transactions and ids that were not tracked because of the memory bounds."""
    findings = []
    if transactions.given_up:
        text = (
            f"more than {MAX_OPEN:,} transactions are open at the same time; {transactions.given_up:,} were not checked"
        )
        findings.append(
            make_finding("count-out-of-bounds", None, 0, text, severity=Severity.WARNING, diagnosis="limit")
        )
    if transactions.done.forgotten:
        text = "transaction ids are spread too far to remember all of them; some duplicates can go unnoticed"
        findings.append(make_finding("count-out-of-bounds", None, 0, text, severity=Severity.NOTE, diagnosis="limit"))
    return findings
