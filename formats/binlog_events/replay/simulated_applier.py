"""Predict what the applier of a server does with each event and transaction.

The order is that of `mysqlbinlog FILES | mysql`: statements and rows take effect when their transaction ends. This
module knows nothing about files; events of an InnoDB binlog are applied in the same way.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from binlogtool.errors import UsageError
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import APPLIED, REJECTED, SKIPPED, RecordOutcome
from binlogtool.formats.binlog_events.ddl.parse_ddl import parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import mentions_any_table
from binlogtool.formats.binlog_events.gtid.gtid_sets import (
    GtidSet,
    IntervalSet,
    format_gtid_set,
    get_mariadb_domain,
    parse_gtid_set,
    split_gtid,
)
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID
from binlogtool.formats.binlog_events.transactions.boundaries import (
    MAX_WORD_SIZE,
    STANDALONE,
    QueryKind,
    XaFinish,
    XaId,
    get_statement_text_kind,
    parse_xa_finish,
)
from binlogtool.formats.binlog_events.wire_format import (
    GTID_EVENTS,
    ROLLBACK_ALTER,
    ROW_EVENTS,
    START_ALTER,
    STMT_END,
    EventFlag,
)

# --- The open transaction of an applier ---

MAX_PARTS = 100_000
"""Maximum number of parts of one transaction that have their own verdict."""

RulingVerdict = tuple[str, str]
"""(verb, reason) of a `RecordOutcome`."""

_STAYS: RulingVerdict = (APPLIED, "not-transactional")


class TransactionPart(NamedTuple):
    """Records `[first, stop)` of a transaction that have their own verdict."""

    first: int
    stop: int
    verdict: RulingVerdict


class ApplierTransaction(msgspec.Struct):
    """Open transaction of the applier.

    `first_record`: number of its first record. `needs_commit`: it needs a commit. `is_standalone`: it is one statement.
    `verdict`: on the whole transaction, decided before its end. `permanent`: records that no rollback undoes.
    """

    first_record: int
    offset: int
    gtid: str | None = None
    needs_commit: bool = False
    is_standalone: bool = False
    verdict: RulingVerdict | None = None
    parts: list[TransactionPart] = msgspec.field(default_factory=list)
    permanent: list[tuple[int, int]] = msgspec.field(default_factory=list)
    savepoints: dict[str, int] = msgspec.field(default_factory=dict)

    def mark_record_permanent(self, record_number: int) -> None:
        """Record that a record changes a non-transactional table."""
        if self.permanent and self.permanent[-1][1] == record_number:
            self.permanent[-1] = self.permanent[-1][0], record_number + 1
        elif len(self.permanent) < MAX_PARTS:
            self.permanent.append((record_number, record_number + 1))

    def mark_rolled_back(self, first_record: int, stop_record: int, verdict: RulingVerdict) -> None:
        """Mark the records `[first, stop)` as rolled back, except for permanent ones."""
        del self.parts[bisect_left(self.parts, (first_record,)) :]
        position = first_record
        for low, high in self.permanent:
            if high > first_record and low >= position:
                self.parts += [
                    TransactionPart(position, low, verdict),
                    TransactionPart(low, min(high, stop_record), _STAYS),
                ]
                position = high
        self.parts.append(TransactionPart(position, stop_record, verdict))

    def iter_record_outcomes(self, stop_record: int, default_verdict: RulingVerdict) -> Iterator[RecordOutcome]:
        """Yield the outcomes on its records up to `stop_record`; `default_verdict` applies to records without their
        own.
        """
        position = self.first_record
        for part in self.parts if self.verdict is None else ():
            if part.first > position:
                yield RecordOutcome(position, part.first, *default_verdict)
            if part.stop > max(part.first, position):
                yield RecordOutcome(max(part.first, position), part.stop, *part.verdict)
            position = max(position, part.stop)
        if stop_record > position:
            yield RecordOutcome(position, stop_record, *(self.verdict or default_verdict))


# --- Statements and texts of event bodies ---


def classify_statement(sql: str) -> QueryKind:
    """Return the effect of a statement on its transaction."""
    return get_statement_text_kind(sql[:MAX_WORD_SIZE].encode("utf-8", "replace"))


def decode_body_text(value: Any) -> str:
    """Return a text from a body; it is bytes if it is not UTF-8."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def encode_body_text(value: Any) -> bytes:
    """Return a text from a body as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


# --- Verdicts on events, and additional reports of the applier ---

COMMITTED: RulingVerdict = (APPLIED, "committed")
STATEMENT: RulingVerdict = (APPLIED, "statement")
CONTROL: RulingVerdict = (SKIPPED, "control")
INCOMPLETE: RulingVerdict = (SKIPPED, "incomplete")
ROLLED_BACK: RulingVerdict = (SKIPPED, "rolled-back")
ROLLED_BACK_TO_SAVEPOINT: RulingVerdict = (SKIPPED, "rolled-back-to-savepoint")
NO_MAP: RulingVerdict = (SKIPPED, "no-table-map")


class ApplierFailure(NamedTuple):
    """Record at which the applier gives up, and the reason."""

    number: int
    offset: int
    reason: str


class SkippedRows(NamedTuple):
    """Rows that the applier skips without an error; `offset`: of the event, `gtid`: of the open transaction."""

    offset: int
    size: int
    record: int
    gtid: str | None


# --- Executed transactions of a server ---


class ExecutedGtids(msgspec.Struct):
    """Executed transactions of a server.

    `sources`: numbers by `uuid` or `uuid:tag`. `domains`: domain -> server and number of the last GTID. MySQL looks a
    GTID up in its set. MariaDB's position covers all numbers of a domain up to the last one, of all servers
    (`rpl_slave_state`, `rpl_binlog_state::append_pos`).
    """

    sources: dict[str, IntervalSet] = msgspec.field(default_factory=dict)
    domains: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)

    def __contains__(self, gtid: str) -> bool:
        source, number = split_gtid(gtid)
        domain = get_mariadb_domain(source)
        if domain is None:
            return source in self.sources and number in self.sources[source]
        return domain in self.domains and number <= self.domains[domain][1]

    def add_gtid(self, gtid: str) -> None:
        """Add one transaction; in a MariaDB domain the last added one is the position, even if its number is lower."""
        source, number = split_gtid(gtid)
        domain = get_mariadb_domain(source)
        if domain is None:
            self.sources.setdefault(source, IntervalSet()).add_interval(number, number + 1)
        else:
            self.domains[domain] = int(source.partition("-")[2]), number

    def add_all(self, other: ExecutedGtids) -> None:
        """Add the transactions of another set; in a MariaDB domain its position replaces the earlier one."""
        _add_gtid_set(self.sources, GtidSet(other.sources))
        self.domains.update(other.domains)

    @property
    def gtid_set_text(self) -> str:
        """The set in the form of the server: gtid_executed or gtid_binlog_pos."""
        positions = [f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.domains.items())]
        set_text = format_gtid_set(GtidSet(self.sources)) if self.sources else ""
        return ",".join([*positions, *([set_text] if set_text else [])])

    def copy(self) -> ExecutedGtids:
        """Return an independent copy."""
        return ExecutedGtids({source: IntervalSet(own) for source, own in self.sources.items()}, dict(self.domains))


def parse_executed_gtids(gtid_set_text: str) -> ExecutedGtids:
    """Parse the GTIDs that a server reports as executed; if a MariaDB domain is named twice, the last one is used.

    Raises:
        UsageError: the text is not a set of GTIDs.
    """
    result = ExecutedGtids()
    for item in gtid_set_text.replace("\n", ",").split(","):
        item = item.strip()
        if ":" in item:
            _add_gtid_set(result.sources, parse_gtid_set(item))
        elif item:
            _add_mariadb_gtid(result, item)
    return result


def _add_gtid_set(sources: dict[str, IntervalSet], gtids: GtidSet) -> None:
    """Add all GTIDs of a set."""
    for source, numbers in gtids.sources.items():
        intervals = sources.setdefault(source, IntervalSet())
        for start, stop in numbers:
            intervals.add_interval(start, stop)


def _add_mariadb_gtid(executed: ExecutedGtids, gtid_text: str) -> None:
    """Add one GTID of MariaDB."""
    parsed = parse_gtid_set(gtid_text)
    numbers = [(source, own.highest) for source, own in parsed.sources.items() if own.count_numbers() == 1]
    if parsed.domains or len(numbers) != 1:
        raise UsageError(f"position {gtid_text!r}: write a MariaDB transaction as 0-1-42")
    executed.add_gtid("-".join((numbers[0][0], str(numbers[0][1]))))


def read_listed_gtids(body: Any) -> ExecutedGtids:
    """Return the transactions that a decoded PREVIOUS_GTIDS or GTID_LIST event lists; impossible intervals are none."""
    result = ExecutedGtids()
    if not isinstance(body, Mapping):
        return result
    for source in body.get("sids") or ():
        name = f"{source['sid']}:{source['tag']}" if "tag" in source else source["sid"]
        for start, stop in source["intervals"]:
            if 0 < start < stop:
                result.sources.setdefault(name, IntervalSet()).add_interval(start, stop)
    for one in body.get("list") or ():
        result.domains[one["domain_id"]] = one["server_id"], one["seq_no"]
    return result


# --- Simulated applier of a server ---

MAX_PREPARED = 100_000
"""Maximum number of XA transactions that may be prepared at a time."""

_SAVEPOINT_PATTERN = re.compile(r"(ROLLBACK\s+TO|SAVEPOINT|RELEASE)\s*(?:SAVEPOINT\s+)?(.*)", re.I | re.S)


class SimulatedApplier:
    """Applies events to a simulated server, one after the other.

    `executed`: GTIDs of the server, at first the initial ones. `ordered`: numbers of a domain must ascend (checked by
    `mariadb-binlog`). `trusts_prepared`: the server may have prepared transactions that are not in the log.
    `skip_failures`: a failed transaction is skipped, the rest is applied. `events_without_map`: offsets of row events
    whose TABLE_MAP is missing. `failure`: where the applier gave up. `applied_end`: offset after the last transaction
    that took effect. `skipped_rows`: rows that were skipped silently.
    """

    def __init__(self, executed: ExecutedGtids, *, ordered: bool, trusts_prepared: bool, skip_failures: bool) -> None:
        self.executed = executed
        self.failure: ApplierFailure | None = None
        self.applied_end: int | None = None
        self.skipped_rows: list[SkippedRows] = []
        self.events_without_map: frozenset[int] = frozenset()
        self._ordered, self._trusts_prepared, self._skips_failures = ordered, trusts_prepared, skip_failures
        self._executed_before = executed.copy()
        self._first_numbers: dict[int, int] = {}
        self._last_numbers: dict[int, int] = {}
        self._open_transaction: ApplierTransaction | None = None
        self._is_after_damage = False
        self._prepared: dict[XaId, tuple[ApplierTransaction, int]] = {}
        self._non_transactional_tables: set[str] = set()

    @property
    def prepared_xids(self) -> list[XaId]:
        """XA transactions that are prepared."""
        return list(self._prepared)

    @property
    def open_transaction_offset(self) -> int | None:
        """Offset at which the open transaction begins; None if none is open."""
        return None if self._open_transaction is None else self._open_transaction.offset

    def abandon_transaction_at_damage(self, stop_record: int, verdict: RulingVerdict) -> Iterator[RecordOutcome]:
        """Yield the outcome of the open transaction, which damage before record `stop_record` leaves incomplete; later
        records have no transaction.
        """
        yield from self._close_incomplete_transaction(stop_record, verdict)
        self._is_after_damage = True

    def roll_back_open_transaction(self, stop_record: int) -> Iterator[RecordOutcome]:
        """Roll back the open transaction, because the reader takes record `stop_record` for the end of the log."""
        yield from self._close_incomplete_transaction(stop_record, INCOMPLETE)

    def finish_at_end_of_log(self, stop_record: int) -> Iterator[RecordOutcome]:
        """Finish applying; `stop_record` is the number after the last record."""
        yield from self._close_incomplete_transaction(stop_record, INCOMPLETE)
        for transaction, record_stop in self._prepared.values():
            yield from transaction.iter_record_outcomes(record_stop, (SKIPPED, "xa-prepared"))

    # -- open transactions -------------------------------------------------------------------------------------------

    def _begin_transaction(self, record_number: int, records: DecodedRecords, record_index: int) -> ApplierTransaction:
        """Begin a transaction with a record."""
        self._open_transaction = ApplierTransaction(record_number, records.offset[record_index])
        return self._open_transaction

    def _close_incomplete_transaction(self, stop_record: int, verdict: RulingVerdict) -> Iterator[RecordOutcome]:
        """Close the open transaction without a commit."""
        transaction, self._open_transaction = self._open_transaction, None
        if transaction is not None:
            self._release_unfinished_sequence_number(transaction)
            if transaction.needs_commit and transaction.verdict is None:
                transaction.mark_rolled_back(transaction.first_record, stop_record, verdict)
            yield from transaction.iter_record_outcomes(stop_record, verdict)

    def _end_transaction(
        self, record_number: int, records: DecodedRecords, record_index: int, verdict: RulingVerdict
    ) -> Iterator[RecordOutcome]:
        """End the open transaction with record `record_number`; it takes effect."""
        transaction = self._open_transaction or self._begin_transaction(record_number, records, record_index)
        self._open_transaction = None
        if transaction.verdict is None:
            self._record_applied_transaction(transaction, records, record_index)
        yield from transaction.iter_record_outcomes(record_number + 1, verdict)

    def _record_applied_transaction(
        self, transaction: ApplierTransaction, records: DecodedRecords, record_index: int
    ) -> None:
        """Record that a transaction took effect."""
        self.applied_end = records.offset[record_index] + records.size[record_index]
        if transaction.gtid is not None:
            self.executed.add_gtid(transaction.gtid)

    def _reject_record(
        self, record_number: int, records: DecodedRecords, record_index: int, reason_id: str, message: str
    ) -> Iterator[RecordOutcome]:
        """Reject record `record_number` as the server does."""
        if not self._skips_failures:
            yield from self._close_incomplete_transaction(record_number, INCOMPLETE)
            yield RecordOutcome(record_number, record_number + 1, REJECTED, reason_id)
            self.failure = ApplierFailure(record_number, records.offset[record_index], message)
        elif self._open_transaction is None:
            yield RecordOutcome(record_number, record_number + 1, REJECTED, reason_id)
        else:
            self._open_transaction.verdict = self._open_transaction.verdict or (REJECTED, reason_id)

    # -- events ------------------------------------------------------------------------------------------------------

    def apply_records(
        self, first_record_number: int, records: DecodedRecords, start: int, stop: int
    ) -> Iterator[RecordOutcome]:
        """Apply the records `[start, stop)` of a run; record 0 of the run has the number `first_record_number`."""
        types, handlers = records.envelope.type, _EVENT_HANDLERS
        for i in range(start, stop):
            yield from handlers.get(types[i], _handle_other)(self, first_record_number + i, records, i)
            if self.failure is not None:
                return

    def _apply_control_event(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Apply an event outside transactions; inside one (a rotated relay log) it gets its own verdict."""
        if self._open_transaction is None:
            yield RecordOutcome(record_number, record_number + 1, *CONTROL)
        elif len(self._open_transaction.parts) < MAX_PARTS:
            self._open_transaction.parts.append(TransactionPart(record_number, record_number + 1, CONTROL))

    def _apply_format_description(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Apply FORMAT_DESCRIPTION: after a server start, the previous transaction has no end."""
        body = records.bodies[record_index] or {}
        if body.get("create_timestamp") and not _get_header_flags(records, record_index) & EventFlag.RELAY_LOG:
            yield from self._close_incomplete_transaction(record_number, INCOMPLETE)
        yield from self._apply_control_event(record_number, records, record_index)

    def _apply_gtid_list(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Apply PREVIOUS_GTIDS or GTID_LIST."""
        if self._ordered:
            for domain, (_, last) in read_listed_gtids(records.bodies[record_index]).domains.items():
                self._first_numbers.setdefault(domain, last)
                self._last_numbers.setdefault(domain, last)
        yield from self._apply_control_event(record_number, records, record_index)

    def _apply_gtid(self, record_number: int, records: DecodedRecords, record_index: int) -> Iterator[RecordOutcome]:
        """Apply a GTID event, which begins a transaction."""
        gtid = records.envelope.txn[record_index]
        if self._open_transaction is not None:
            if self._open_transaction.needs_commit and self._open_transaction.verdict is None:
                reason = f"transaction {gtid} begins inside {self._open_transaction.gtid or 'another one'}"
                if not self._skips_failures:
                    yield from self._reject_record(record_number, records, record_index, "group-open", reason)
                    return
                self._open_transaction.verdict = REJECTED, "group-open"
            yield from self._close_incomplete_transaction(record_number, INCOMPLETE)
        self._is_after_damage = False
        body = records.bodies[record_index]
        if body is None:
            yield from self._reject_record(
                record_number, records, record_index, "undecodable", "the GTID event cannot be read"
            )
            self._is_after_damage = True
            return
        group = self._begin_transaction(record_number, records, record_index)
        group.gtid = gtid if isinstance(gtid, str) else None
        flags, flags_extra = body.get("flags2"), body.get("flags_extra", 0)
        group.is_standalone = flags is not None and bool(flags & STANDALONE)
        group.needs_commit = flags is not None and not group.is_standalone
        if group.gtid is not None:
            yield from self._rule_on_gtid(record_number, records, record_index, group)
        if self._open_transaction is group and group.verdict is None and flags_extra & (START_ALTER | ROLLBACK_ALTER):
            group.verdict = SKIPPED, "start-alter"

    def _rule_on_gtid(
        self, record_number: int, records: DecodedRecords, record_index: int, transaction: ApplierTransaction
    ) -> Iterator[RecordOutcome]:
        """Decide on a transaction by its GTID: skip it if it was executed before, reject it if it is out of order."""
        gtid = transaction.gtid or ""
        source, sequence = split_gtid(gtid)
        domain = get_mariadb_domain(source)
        if gtid in self._executed_before or (domain is None and gtid in self.executed):
            transaction.verdict = SKIPPED, "executed"
        elif domain is not None and self._ordered:
            start, last = self._first_numbers.setdefault(domain, sequence), self._last_numbers.get(domain)
            if last is not None and start <= sequence <= last:
                self._open_transaction = None
                yield from self._rule_on_out_of_order_gtid(record_number, records, record_index, transaction, last)
            self._last_numbers[domain] = sequence

    def _release_unfinished_sequence_number(self, transaction: ApplierTransaction) -> None:
        """Release the sequence number of a transaction without an end: MariaDB reuses it after a crash."""
        source, sequence = split_gtid(transaction.gtid) if transaction.gtid is not None else ("", 0)
        domain = get_mariadb_domain(source)
        if domain is not None and self._ordered and self._last_numbers.get(domain) == sequence:
            self._last_numbers[domain] = sequence - 1

    def _rule_on_out_of_order_gtid(
        self,
        record_number: int,
        records: DecodedRecords,
        record_index: int,
        transaction: ApplierTransaction,
        last_number: int,
    ) -> Iterator[RecordOutcome]:
        """Handle a GTID whose number is not higher than the last one of its domain."""
        if self._skips_failures:  # --skip-gtid-strict-mode; transactions applied before fail on their own rows
            self._open_transaction = transaction
            if (transaction.gtid or "") in self.executed:
                transaction.verdict = REJECTED, "out-of-order"
            return
        yield from self._reject_record(
            record_number,
            records,
            record_index,
            "out-of-order",
            f"{transaction.gtid} comes after number {last_number} of its domain",
        )

    def _apply_query(self, record_number: int, records: DecodedRecords, record_index: int) -> Iterator[RecordOutcome]:
        """Apply a QUERY or EXECUTE_LOAD_QUERY event."""
        body = records.bodies[record_index]
        if body is None:
            yield from self._reject_undecodable_event(record_number, records, record_index)
            return
        sql = decode_body_text(body.get("sql"))
        kind = classify_statement(sql)
        if self._is_after_damage and kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self._is_after_damage = False
        if self._is_after_damage:
            self._is_after_damage = kind not in (QueryKind.COMMIT, QueryKind.ROLLBACK)
            yield RecordOutcome(record_number, record_number + 1, REJECTED, "adrift")
        elif kind is QueryKind.STATEMENT:
            yield from self._apply_statement(
                record_number, records, record_index, sql, decode_body_text(body.get("db"))
            )
        else:
            yield from _QUERY_HANDLERS[kind](self, record_number, records, record_index, sql)

    def _apply_statement(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str, db: str
    ) -> Iterator[RecordOutcome]:
        """Apply a statement other than BEGIN, COMMIT and the like."""
        self._record_nontransactional_tables(sql, db)
        if self._open_transaction is None or not self._open_transaction.needs_commit:
            yield from self._end_transaction(record_number, records, record_index, STATEMENT)
        elif self._non_transactional_tables and mentions_any_table(sql, db, self._non_transactional_tables):
            self._open_transaction.mark_record_permanent(record_number)

    def _record_nontransactional_tables(self, sql: str, db: str) -> None:
        """Record tables that a rollback does not affect."""
        ddl = parse_ddl(sql, db)
        table, can_roll_back = ddl.created or ddl.altered, ddl.can_engine_roll_back
        if table is not None and can_roll_back is not None and len(self._non_transactional_tables) < MAX_PARTS:
            (self._non_transactional_tables.discard if can_roll_back else self._non_transactional_tables.add)(table)

    def _apply_begin(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        """Apply BEGIN or XA START."""
        transaction = self._open_transaction
        if transaction is not None and transaction.needs_commit and transaction.gtid is None:
            self._open_transaction = None
            self._record_applied_transaction(transaction, records, max(record_index - 1, 0))
            yield from transaction.iter_record_outcomes(record_number, (APPLIED, "implicit-commit"))
            transaction = None
        transaction = transaction or self._begin_transaction(record_number, records, record_index)
        transaction.needs_commit, transaction.is_standalone = True, False

    def _apply_commit(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        yield from self._end_transaction(
            record_number, records, record_index, COMMITTED if self._open_transaction is not None else STATEMENT
        )

    def _apply_rollback(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        """End the open transaction as rolled back, except for records of non-transactional tables."""
        transaction = self._open_transaction
        if transaction is not None and transaction.needs_commit and transaction.verdict is None:
            transaction.mark_rolled_back(transaction.first_record, record_number + 1, ROLLED_BACK)
        yield from self._end_transaction(
            record_number, records, record_index, ROLLED_BACK if transaction is not None else STATEMENT
        )

    def _apply_savepoint(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        """Apply SAVEPOINT, ROLLBACK TO or RELEASE."""
        transaction = self._open_transaction
        if transaction is None:
            yield RecordOutcome(record_number, record_number + 1, *STATEMENT)
            return
        match = _SAVEPOINT_PATTERN.match(sql)
        if match is None or len(transaction.savepoints) >= MAX_PARTS:
            return
        name = match[2].strip().strip("`").lower()
        if match[1].upper() == "SAVEPOINT":
            transaction.savepoints[name] = record_number
        elif match[1][:8].upper() == "ROLLBACK" and name in transaction.savepoints:
            transaction.mark_rolled_back(transaction.savepoints[name] + 1, record_number, ROLLED_BACK_TO_SAVEPOINT)

    def _apply_xa_end(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        """Apply XA END, which leaves the transaction open."""
        if self._open_transaction is None:
            yield RecordOutcome(record_number, record_number + 1, *STATEMENT)

    # -- XA ----------------------------------------------------------------------------------------------------------

    def _apply_xa_prepare(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Keep the transaction as prepared; commit it if the event says ONE PHASE."""
        body, transaction = records.bodies[record_index], self._open_transaction
        if body is None or transaction is None:
            yield from (
                self._reject_undecodable_event(record_number, records, record_index)
                if body is None
                else self._rule_on_stray_commit(record_number)
            )
            return
        if body.get("one_phase"):
            yield from self._end_transaction(record_number, records, record_index, COMMITTED)
            return
        self._open_transaction = None
        if transaction.verdict is not None:
            yield from transaction.iter_record_outcomes(record_number + 1, transaction.verdict)
            return
        self._record_applied_transaction(transaction, records, record_index)
        xid = XaId(body["format_id"], encode_body_text(body["gtrid"]), encode_body_text(body["bqual"]))
        if xid in self._prepared or len(self._prepared) >= MAX_PREPARED:
            transaction.verdict = REJECTED, "xa-twice"
            yield from transaction.iter_record_outcomes(record_number + 1, transaction.verdict)
        else:
            self._prepared[xid] = transaction, record_number + 1

    def _apply_xa_finish(
        self, record_number: int, records: DecodedRecords, record_index: int, sql: str
    ) -> Iterator[RecordOutcome]:
        """Apply XA COMMIT or XA ROLLBACK of a transaction that was prepared before."""
        finish = parse_xa_finish(sql.strip().encode("utf-8", "replace"))
        transaction = self._open_transaction or self._begin_transaction(record_number, records, record_index)
        if finish is None:
            yield from self._reject_record(
                record_number, records, record_index, "xa-unknown", "the XA identifier cannot be read"
            )
        elif transaction.verdict is None:
            yield from self._finish_prepared_transaction(record_number, records, record_index, finish)
        if self.failure is None:
            yield from self._end_transaction(record_number, records, record_index, STATEMENT)

    def _finish_prepared_transaction(
        self, record_number: int, records: DecodedRecords, record_index: int, finish: XaFinish
    ) -> Iterator[RecordOutcome]:
        """Commit or roll back a prepared transaction."""
        prepared = self._prepared.pop(finish.xa_id, None)
        if prepared is not None:
            transaction, stop = prepared
            if not finish.is_commit:
                transaction.mark_rolled_back(transaction.first_record, stop, ROLLED_BACK)
            yield from transaction.iter_record_outcomes(
                stop, (APPLIED, "xa-committed") if finish.is_commit else ROLLED_BACK
            )
        elif not self._trusts_prepared:
            reason = f"XA transaction {finish.xa_id.text} is not prepared"
            yield from self._reject_record(record_number, records, record_index, "xa-unknown", reason)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _apply_event_within_transaction(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Apply an event that belongs to a transaction and does not end it."""
        if self._open_transaction is None:
            if self._is_after_damage:
                yield RecordOutcome(record_number, record_number + 1, REJECTED, "adrift")
                return
            self._begin_transaction(record_number, records, record_index)
        elif self._non_transactional_tables and records.envelope.object[record_index] in self._non_transactional_tables:
            self._open_transaction.mark_record_permanent(record_number)

    def _apply_rows(self, record_number: int, records: DecodedRecords, record_index: int) -> Iterator[RecordOutcome]:
        """Apply a row event."""
        yield from self._apply_event_within_transaction(record_number, records, record_index)
        transaction, body = self._open_transaction, records.bodies[record_index]
        if transaction is None:
            return
        if body is None:
            yield from self._reject_undecodable_event(record_number, records, record_index)
            return
        lacks_map = "table" not in body or records.offset[record_index] in self.events_without_map
        if lacks_map and body.get("table_id") != DUMMY_TABLE_ID and transaction.verdict is None:
            transaction.parts.append(TransactionPart(record_number, record_number + 1, NO_MAP))
            if len(self.skipped_rows) < MAX_PARTS:
                self.skipped_rows.append(
                    SkippedRows(
                        records.offset[record_index],
                        records.size[record_index],
                        records.record[record_index],
                        transaction.gtid,
                    )
                )
        if not transaction.needs_commit and body.get("flags", 0) & STMT_END:
            yield from self._end_transaction(record_number, records, record_index, STATEMENT)

    # -- failures ----------------------------------------------------------------------------------------------------

    def _reject_undecodable_event(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Fail at an event that cannot be decoded."""
        findings = records.findings.get(record_index, ())
        reason = findings[0].message if findings else f"{records.envelope.type[record_index]} cannot be read"
        yield from self._reject_record(record_number, records, record_index, "undecodable", reason)

    def _rule_on_stray_commit(self, record_number: int) -> Iterator[RecordOutcome]:
        """Rule on a commit or rollback without an open transaction."""
        yield RecordOutcome(
            record_number, record_number + 1, *((REJECTED, "adrift") if self._is_after_damage else STATEMENT)
        )

    def _apply_xid(self, record_number: int, records: DecodedRecords, record_index: int) -> Iterator[RecordOutcome]:
        if self._open_transaction is None:
            yield from self._rule_on_stray_commit(record_number)
            self._is_after_damage = False
        else:
            yield from self._end_transaction(record_number, records, record_index, COMMITTED)

    def _reject_incident(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Fail at an INCIDENT event."""
        message = decode_body_text((records.bodies[record_index] or {}).get("message"))
        yield from self._reject_record(
            record_number, records, record_index, "incident", f"the server that wrote the log lost events: {message}"
        )

    def _apply_unknown_event(
        self, record_number: int, records: DecodedRecords, record_index: int
    ) -> Iterator[RecordOutcome]:
        """Apply an event of unknown type: skip it if it is ignorable, fail otherwise."""
        if not _get_header_flags(records, record_index) & EventFlag.IGNORABLE:
            name = records.envelope.type[record_index]
            yield from self._reject_record(
                record_number, records, record_index, "unknown-event", f"{name} is unknown and not ignorable"
            )
        elif self._open_transaction is None:
            yield RecordOutcome(record_number, record_number + 1, SKIPPED, "ignorable")
        else:
            self._open_transaction.parts.append(
                TransactionPart(record_number, record_number + 1, (SKIPPED, "ignorable"))
            )


def _get_header_flags(records: DecodedRecords, record_index: int) -> int:
    """Return the flags of an event's header."""
    extra = records.extras[record_index] if records.extras is not None else None
    header: Mapping[str, Any] = (extra or {}).get("header", {})
    return int(header.get("flags", 0))


_QUERY_HANDLERS: Mapping[
    QueryKind, Callable[[SimulatedApplier, int, DecodedRecords, int, str], Iterator[RecordOutcome]]
] = {
    QueryKind.BEGIN: SimulatedApplier._apply_begin,
    QueryKind.XA_START: SimulatedApplier._apply_begin,
    QueryKind.COMMIT: SimulatedApplier._apply_commit,
    QueryKind.ROLLBACK: SimulatedApplier._apply_rollback,
    QueryKind.SAVEPOINT: SimulatedApplier._apply_savepoint,
    QueryKind.XA_END: SimulatedApplier._apply_xa_end,
    QueryKind.XA_FINISH: SimulatedApplier._apply_xa_finish,
}
_ROW_EVENTS = tuple(kind.name for kind in ROW_EVENTS)
_CONTROL_EVENTS = (
    "ROTATE", "STOP", "BINLOG_CHECKPOINT", "START_ENCRYPTION", "HEARTBEAT", "HEARTBEAT_V2", "START_V3",
)  # fmt: skip
_TRANSACTION_PART_EVENTS = (
    "TABLE_MAP", "ANNOTATE_ROWS", "ROWS_QUERY", "INTVAR", "RAND", "USER_VAR", "BEGIN_LOAD_QUERY", "APPEND_BLOCK",
    "DELETE_FILE", "TRANSACTION_PAYLOAD", "TRANSACTION_CONTEXT", "VIEW_CHANGE", "PARTIAL_ROW_DATA",
)  # fmt: skip
_EventHandler = Callable[[SimulatedApplier, int, DecodedRecords, int], Iterator[RecordOutcome]]
_EVENT_HANDLERS: Mapping[str, _EventHandler] = {
    **dict.fromkeys(_CONTROL_EVENTS, SimulatedApplier._apply_control_event),
    **dict.fromkeys(_TRANSACTION_PART_EVENTS, SimulatedApplier._apply_event_within_transaction),
    **dict.fromkeys(_ROW_EVENTS, SimulatedApplier._apply_rows),
    **dict.fromkeys(("QUERY", "QUERY_COMPRESSED", "EXECUTE_LOAD_QUERY"), SimulatedApplier._apply_query),
    **dict.fromkeys((kind.name for kind in GTID_EVENTS), SimulatedApplier._apply_gtid),
    **dict.fromkeys(("PREVIOUS_GTIDS", "GTID_LIST"), SimulatedApplier._apply_gtid_list),
    "FORMAT_DESCRIPTION": SimulatedApplier._apply_format_description,
    "XID": SimulatedApplier._apply_xid,
    "XA_PREPARE": SimulatedApplier._apply_xa_prepare,
    "INCIDENT": SimulatedApplier._reject_incident,
}
_handle_other = SimulatedApplier._apply_unknown_event


# --- Explanations of the applier's rules, by reason id ---

REASONS: Mapping[str, str] = {
    "committed": (
        "The transaction has its commit: XID, COMMIT, or XA COMMIT ONE PHASE "
        "(docs/spec/mysql_binlog.md#transactions-and-truncation)."
    ),
    "statement": (
        "A statement outside of a transaction takes effect alone "
        "(docs/spec/mysql_binlog.md#transactions-and-truncation)."
    ),
    "implicit-commit": "BEGIN inside a transaction without a GTID commits it (`trans_begin`).",
    "not-transactional": "The table's engine, as its CREATE TABLE names it, cannot roll back: the change stays.",
    "xa-committed": (
        "The transaction was prepared, and a later XA COMMIT commits it "
        "(docs/spec/mysql_binlog.md#transactions-and-truncation)."
    ),
    "control": ("The event is about the log itself, and changes no data (docs/spec/mysql_binlog.md#event-types)."),
    "executed": "The server already has it: its GTID is in gtid_executed (MySQL), or not newer "
    "than gtid_slave_pos (MariaDB), or it is before the position in relay-log.info.",
    "incomplete": "The log ends, or the server stops, before the transaction's commit: it is rolled back "
    "(docs/spec/mysql_binlog.md#transactions-and-truncation).",
    "rolled-back": "The transaction ends with ROLLBACK or XA ROLLBACK "
    "(docs/spec/mysql_binlog.md#transactions-and-truncation).",
    "rolled-back-to-savepoint": (
        "ROLLBACK TO SAVEPOINT undoes what follows the savepoint "
        "(docs/spec/mysql_binlog.md#transactions-and-truncation)."
    ),
    "xa-prepared": "XA PREPARE without a later XA COMMIT or XA ROLLBACK: it stays prepared and invisible "
    "(docs/spec/mysql_binlog.md#transactions-and-truncation).",
    "start-alter": "The first half of a two-phase ALTER TABLE: the table is altered at its COMMIT ALTER "
    "(MariaDB binlog_alter_two_phase).",
    "no-table-map": "Rows with a table id that no TABLE_MAP defines are treated as those of a table that is filtered "
    "out (`Rows_log_event::do_apply_event`): nothing is changed, and no error is reported.",
    "ignorable": "The type is unknown, but its flag allows ignoring it (docs/spec/mysql_binlog.md#common-header).",
    "behind-damage": "In a file that was not closed, readers treat what they cannot read as its end "
    "(`dump_local_log_entries` of mysqlbinlog, docs/spec/mysql_binlog.md#resynchronization).",
    "another-log": "A relay log next to a binary log contains the same changes: only the binary log is applied.",
    "not-a-log": (
        "The index, the GTID index or a state file: no events to apply (docs/spec/mysql_binlog.md#file-kinds)."
    ),
    "group-open": "A transaction begins while another one is open: the server refuses to set its GTID (MySQL error "
    "1766, MariaDB error 1953).",
    "out-of-order": "The sequence number is not higher than the previous one of its domain: mariadb-binlog "
    "stops (--gtid-strict-mode), a server with "
    "gtid_strict_mode refuses it (error 1950).",
    "xa-unknown": "XA COMMIT or XA ROLLBACK of a transaction that is not prepared (XAER_NOTA, error 1397).",
    "xa-twice": "XA PREPARE of a transaction that is already prepared (XAER_DUPID, error 1440).",
    "incident": "INCIDENT: the server that wrote the log lost events; an applier must stop "
    "(docs/spec/mysql_binlog.md#event-bodies, error 1590).",
    "unknown-event": ("The type is unknown, and no flag allows ignoring it (docs/spec/mysql_binlog.md#common-header)."),
    "undecodable": ("The event is not valid for its type: the server stops (docs/spec/mysql_binlog.md#validation)."),
    "damaged": "--policy force: a part of the transaction cannot be read; the transaction is skipped.",
    "adrift": "--policy force: the record is between damage and the next transaction, so its transaction is unknown.",
}
