"""Simulated applier of a server: transactions by their GTIDs, and the outcome of each.

The order is that of `mysqlbinlog FILES | mysql`: statements and rows take effect when their transaction
ends. Nothing here knows about files; events of an engine binlog are applied in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.apply.executed import read_listed_gtids
from binlogtool.formats.binlog_events.apply.transactions import ApplierState
from binlogtool.formats.binlog_events.apply.verdicts import (
    COMMITTED,
    CONTROL,
    INCOMPLETE,
    NO_MAP,
    ROLLED_BACK,
    ROLLED_BACK_TO_SAVEPOINT,
    STATEMENT,
    SkippedRows,
)
from binlogtool.formats.binlog_events.apply.words import as_bytes, as_text, classify_statement, format_xid
from binlogtool.formats.binlog_events.codes import GTID_EVENTS, ROW_EVENTS
from binlogtool.formats.binlog_events.ddl.tables import find_engine, mentions_any_table
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.binlog_events.groups.open_group import MAX_PARTS, ApplierTransaction, TransactionPart
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.binlog_events.gtid.bodies import ROLLBACK_ALTER, START_ALTER
from binlogtool.formats.binlog_events.gtid.sets import parse_domain, split_gtid
from binlogtool.formats.replay_rules import APPLIED, REJECTED, SKIPPED, DecodedRecords, Ruling

MAX_PREPARED = 100_000
"""XA transactions that may wait at a time."""

_STANDALONE = 1
_STMT_END = 1
_IGNORABLE, _RELAY_LOG = 0x80, 0x40
_DUMMY_TABLE_ID = 0xFFFFFF
_XA_FINISH_PATTERN = re.compile(
    r"XA\s+(COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)\s*(?:ONE PHASE\s*)?\Z", re.I
)
_SAVEPOINT_PATTERN = re.compile(r"(ROLLBACK\s+TO|SAVEPOINT|RELEASE)\s*(?:SAVEPOINT\s+)?(.*)", re.I | re.S)


class EventApplier(ApplierState):
    """Applies events to a simulated server, one after the other."""

    def feed(self, first: int, records: DecodedRecords, start: int, stop: int) -> Iterator[Ruling]:
        """Apply the records `[start, stop)` of a run whose record 0 has the number `first`."""
        types, handlers = records.envelope.type, _EVENT_HANDLERS
        for i in range(start, stop):
            yield from handlers.get(types[i], _handle_other)(self, first + i, records, i)
            if self.failure is not None:
                return

    # -- events ------------------------------------------------------------------------------------------------------

    def _apply_control(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply an event outside of transactions; inside of one (a rotated relay log) it gets its own verdict."""
        if self._open_transaction is None:
            yield Ruling(number, number + 1, *CONTROL)
        elif len(self._open_transaction.parts) < MAX_PARTS:
            self._open_transaction.parts.append(TransactionPart(number, number + 1, CONTROL))

    def _apply_description(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply FORMAT_DESCRIPTION: after a server start the previous transaction has no end."""
        body = records.bodies[i] or {}
        if body.get("create_timestamp") and not _header_flags(records, i) & _RELAY_LOG:
            yield from self._close_incomplete(number, INCOMPLETE)
        yield from self._apply_control(number, records, i)

    def _apply_gtid_list(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply PREVIOUS_GTIDS or GTID_LIST."""
        if self._ordered:
            for domain, (_, last) in read_listed_gtids(records.bodies[i]).domains.items():
                self._first_numbers.setdefault(domain, last)
                self._last_numbers.setdefault(domain, last)
        yield from self._apply_control(number, records, i)

    def _apply_gtid(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply a GTID event, which begins a transaction."""
        gtid = records.envelope.txn[i]
        if self._open_transaction is not None:
            if self._open_transaction.needs_commit and self._open_transaction.verdict is None:
                reason = f"transaction {gtid} begins inside {self._open_transaction.gtid or 'another one'}"
                if not self._skips_failures:
                    yield from self._reject_record(number, records, i, "group-open", reason)
                    return
                self._open_transaction.verdict = REJECTED, "group-open"
            yield from self._close_incomplete(number, INCOMPLETE)
        self._is_after_damage = False
        body = records.bodies[i]
        if body is None:
            yield from self._reject_record(number, records, i, "undecodable", "the GTID event cannot be read")
            self._is_after_damage = True
            return
        group = self._begin_transaction(number, records, i)
        group.gtid = gtid if isinstance(gtid, str) else None
        flags, flags_extra = body.get("flags2"), body.get("flags_extra", 0)
        group.is_standalone = flags is not None and bool(flags & _STANDALONE)
        group.needs_commit = flags is not None and not group.is_standalone
        if group.gtid is not None:
            yield from self._check_gtid(number, records, i, group)
        if self._open_transaction is group and group.verdict is None and flags_extra & (START_ALTER | ROLLBACK_ALTER):
            group.verdict = SKIPPED, "start-alter"

    def _check_gtid(
        self, number: int, records: DecodedRecords, i: int, transaction: ApplierTransaction
    ) -> Iterator[Ruling]:
        """Check whether a GTID was executed before, or is out of order."""
        gtid = transaction.gtid or ""
        source, sequence = split_gtid(gtid)
        domain = parse_domain(source)
        if gtid in self._executed_before or (domain is None and gtid in self.executed):
            transaction.verdict = SKIPPED, "executed"
        elif domain is not None and self._ordered:
            start, last = self._first_numbers.setdefault(domain, sequence), self._last_numbers.get(domain)
            if last is not None and start <= sequence <= last:
                self._open_transaction = None
                yield from self._handle_out_of_order(number, records, i, transaction, last)
            self._last_numbers[domain] = sequence

    def _release_gtid(self, transaction: ApplierTransaction) -> None:
        """Release the sequence number of a transaction without an end."""
        source, sequence = split_gtid(transaction.gtid) if transaction.gtid is not None else ("", 0)
        domain = parse_domain(source)
        if domain is not None and self._ordered and self._last_numbers.get(domain) == sequence:
            self._last_numbers[domain] = sequence - 1

    def _handle_out_of_order(
        self, number: int, records: DecodedRecords, i: int, transaction: ApplierTransaction, last: int
    ) -> Iterator[Ruling]:
        """Handle a GTID whose number does not grow in its domain."""
        if self._skips_failures:  # --skip-gtid-strict-mode; transactions applied before fail on their own rows
            self._open_transaction = transaction
            if (transaction.gtid or "") in self.executed:
                transaction.verdict = REJECTED, "out-of-order"
            return
        yield from self._reject_record(
            number, records, i, "out-of-order", f"{transaction.gtid} stands behind number {last}"
        )

    def _apply_query(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply a QUERY or EXECUTE_LOAD_QUERY event."""
        body = records.bodies[i]
        if body is None:
            yield from self._fail_undecodable(number, records, i)
            return
        sql = as_text(body.get("sql"))
        kind = classify_statement(sql)
        if self._is_after_damage and kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self._is_after_damage = False
        if self._is_after_damage:
            self._is_after_damage = kind not in (QueryKind.COMMIT, QueryKind.ROLLBACK)
            yield Ruling(number, number + 1, REJECTED, "adrift")
        elif kind is QueryKind.STATEMENT:
            yield from self._apply_statement(number, records, i, sql, as_text(body.get("db")))
        else:
            yield from _QUERY_HANDLERS[kind](self, number, records, i, sql)

    def _apply_statement(self, number: int, records: DecodedRecords, i: int, sql: str, db: str) -> Iterator[Ruling]:
        """Apply a statement other than BEGIN, COMMIT and the like."""
        self._note_engine(sql, db)
        if self._open_transaction is None or not self._open_transaction.needs_commit:
            yield from self._end_transaction(number, records, i, STATEMENT)
        elif self._non_transactional_tables and mentions_any_table(sql, db, self._non_transactional_tables):
            self._open_transaction.mark_permanent(number)

    def _note_engine(self, sql: str, db: str) -> None:
        """Note tables that a rollback does not affect."""
        engine = find_engine(sql, db)
        if engine is not None and len(self._non_transactional_tables) < MAX_PARTS:
            (self._non_transactional_tables.discard if engine.transactional else self._non_transactional_tables.add)(
                engine.table
            )

    def _apply_begin(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply BEGIN or XA START."""
        transaction = self._open_transaction
        if transaction is not None and transaction.needs_commit and transaction.gtid is None:
            self._open_transaction = None
            self._note_applied(transaction, records, max(i - 1, 0))
            yield from transaction.iter_rulings(number, (APPLIED, "implicit-commit"))
            transaction = None
        transaction = transaction or self._begin_transaction(number, records, i)
        transaction.needs_commit, transaction.is_standalone = True, False

    def _apply_commit(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply COMMIT."""
        yield from self._end_transaction(
            number, records, i, COMMITTED if self._open_transaction is not None else STATEMENT
        )

    def _apply_rollback(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply ROLLBACK."""
        transaction = self._open_transaction
        if transaction is not None and transaction.needs_commit and transaction.verdict is None:
            transaction.roll_back(transaction.first_record, number + 1, ROLLED_BACK)
        yield from self._end_transaction(number, records, i, ROLLED_BACK if transaction is not None else STATEMENT)

    def _apply_savepoint(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply SAVEPOINT, ROLLBACK TO or RELEASE."""
        transaction = self._open_transaction
        if transaction is None:
            yield Ruling(number, number + 1, *STATEMENT)
            return
        match = _SAVEPOINT_PATTERN.match(sql)
        if match is None or len(transaction.savepoints) >= MAX_PARTS:
            return
        name = match[2].strip().strip("`").lower()
        if match[1].upper() == "SAVEPOINT":
            transaction.savepoints[name] = number
        elif match[1][:8].upper() == "ROLLBACK" and name in transaction.savepoints:
            transaction.roll_back(transaction.savepoints[name] + 1, number, ROLLED_BACK_TO_SAVEPOINT)

    def _apply_xa_end(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply XA END, which leaves the transaction open."""
        if self._open_transaction is None:
            yield Ruling(number, number + 1, *STATEMENT)

    # -- XA ----------------------------------------------------------------------------------------------------------

    def _apply_xa_prepare(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply XA_PREPARE."""
        body, transaction = records.bodies[i], self._open_transaction
        if body is None or transaction is None:
            yield from self._fail_undecodable(number, records, i) if body is None else self._rule_stray(number)
            return
        if body.get("one_phase"):
            yield from self._end_transaction(number, records, i, COMMITTED)
            return
        self._open_transaction = None
        if transaction.verdict is not None:
            yield from transaction.iter_rulings(number + 1, transaction.verdict)
            return
        self._note_applied(transaction, records, i)
        xid = XaId(body["format_id"], as_bytes(body["gtrid"]), as_bytes(body["bqual"]))
        if xid in self._prepared or len(self._prepared) >= MAX_PREPARED:
            transaction.verdict = REJECTED, "xa-twice"
            yield from transaction.iter_rulings(number + 1, transaction.verdict)
        else:
            self._prepared[xid] = transaction, number + 1

    def _apply_xa_finish(self, number: int, records: DecodedRecords, i: int, sql: str) -> Iterator[Ruling]:
        """Apply XA COMMIT or XA ROLLBACK of a transaction that was prepared before."""
        match = _XA_FINISH_PATTERN.match(sql.strip())
        transaction = self._open_transaction or self._begin_transaction(number, records, i)
        if match is None or len(match[2]) % 2 or len(match[3]) % 2:
            yield from self._reject_record(number, records, i, "xa-unknown", "no XA identifier can be read")
        elif transaction.verdict is None:
            xid = XaId(int(match[4]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))
            yield from self._finish_prepared(number, records, i, xid, match[1].upper() == "COMMIT")
        if self.failure is None:
            yield from self._end_transaction(number, records, i, STATEMENT)

    def _finish_prepared(
        self, number: int, records: DecodedRecords, i: int, xid: XaId, commit: bool
    ) -> Iterator[Ruling]:
        """Commit or roll back a prepared transaction."""
        prepared = self._prepared.pop(xid, None)
        if prepared is not None:
            transaction, stop = prepared
            if not commit:
                transaction.roll_back(transaction.first_record, stop, ROLLED_BACK)
            yield from transaction.iter_rulings(stop, (APPLIED, "xa-committed") if commit else ROLLED_BACK)
        elif not self._trusts_prepared:
            reason = f"XA transaction {format_xid(xid)} is not prepared"
            yield from self._reject_record(number, records, i, "xa-unknown", reason)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _apply_part(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply an event that belongs to a transaction and does not end it."""
        if self._open_transaction is None:
            if self._is_after_damage:
                yield Ruling(number, number + 1, REJECTED, "adrift")
                return
            self._begin_transaction(number, records, i)
        elif self._non_transactional_tables and records.envelope.object[i] in self._non_transactional_tables:
            self._open_transaction.mark_permanent(number)

    def _apply_rows(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply a row event."""
        yield from self._apply_part(number, records, i)
        transaction, body = self._open_transaction, records.bodies[i]
        if transaction is None:
            return
        if body is None:
            yield from self._fail_undecodable(number, records, i)
            return
        lacks_map = "table" not in body or records.offset[i] in self.events_without_map
        if lacks_map and body.get("table_id") != _DUMMY_TABLE_ID and transaction.verdict is None:
            transaction.parts.append(TransactionPart(number, number + 1, NO_MAP))
            if len(self.skipped_rows) < MAX_PARTS:
                self.skipped_rows.append(
                    SkippedRows(records.offset[i], records.size[i], records.record[i], transaction.gtid)
                )
        if not transaction.needs_commit and body.get("flags", 0) & _STMT_END:
            yield from self._end_transaction(number, records, i, STATEMENT)

    # -- what cannot be applied --------------------------------------------------------------------------------------

    def _fail_undecodable(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Fail at an event that cannot be decoded."""
        findings = records.findings.get(i, ())
        reason = findings[0].message if findings else f"{records.envelope.type[i]} cannot be read"
        yield from self._reject_record(number, records, i, "undecodable", reason)

    def _rule_stray(self, number: int) -> Iterator[Ruling]:
        """Rule on an end without a transaction."""
        yield Ruling(number, number + 1, *((REJECTED, "adrift") if self._is_after_damage else STATEMENT))

    def _apply_xid(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply XID."""
        if self._open_transaction is None:
            yield from self._rule_stray(number)
            self._is_after_damage = False
        else:
            yield from self._end_transaction(number, records, i, COMMITTED)

    def _fail_incident(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Fail at INCIDENT."""
        message = as_text((records.bodies[i] or {}).get("message"))
        yield from self._reject_record(
            number, records, i, "incident", f"the server that wrote the log lost events: {message}"
        )

    def _apply_unknown(self, number: int, records: DecodedRecords, i: int) -> Iterator[Ruling]:
        """Apply an event of unknown type: skip it if it is ignorable, fail otherwise."""
        if not _header_flags(records, i) & _IGNORABLE:
            name = records.envelope.type[i]
            yield from self._reject_record(
                number, records, i, "unknown-event", f"{name} is not known and not ignorable"
            )
        elif self._open_transaction is None:
            yield Ruling(number, number + 1, SKIPPED, "ignorable")
        else:
            self._open_transaction.parts.append(TransactionPart(number, number + 1, (SKIPPED, "ignorable")))


def _header_flags(records: DecodedRecords, i: int) -> int:
    """Return the flags of an event's header."""
    extra = records.extras[i] if records.extras is not None else None
    header: Mapping[str, Any] = (extra or {}).get("header", {})
    return int(header.get("flags", 0))


_QUERY_HANDLERS: Mapping[QueryKind, Callable[[EventApplier, int, DecodedRecords, int, str], Iterator[Ruling]]] = {
    QueryKind.BEGIN: EventApplier._apply_begin,
    QueryKind.XA_START: EventApplier._apply_begin,
    QueryKind.COMMIT: EventApplier._apply_commit,
    QueryKind.ROLLBACK: EventApplier._apply_rollback,
    QueryKind.SAVEPOINT: EventApplier._apply_savepoint,
    QueryKind.XA_END: EventApplier._apply_xa_end,
    QueryKind.XA_FINISH: EventApplier._apply_xa_finish,
}
_ROW_EVENTS = tuple(kind.name for kind in ROW_EVENTS)
_CONTROL_EVENTS = (
    "ROTATE", "STOP", "BINLOG_CHECKPOINT", "START_ENCRYPTION", "HEARTBEAT", "HEARTBEAT_V2", "START_V3",
)  # fmt: skip
_TRANSACTION_PART_EVENTS = (
    "TABLE_MAP", "ANNOTATE_ROWS", "ROWS_QUERY", "INTVAR", "RAND", "USER_VAR", "BEGIN_LOAD_QUERY", "APPEND_BLOCK",
    "DELETE_FILE", "TRANSACTION_PAYLOAD", "TRANSACTION_CONTEXT", "VIEW_CHANGE", "PARTIAL_ROW_DATA",
)  # fmt: skip
_EventHandler = Callable[[EventApplier, int, DecodedRecords, int], Iterator[Ruling]]
_EVENT_HANDLERS: Mapping[str, _EventHandler] = {
    **dict.fromkeys(_CONTROL_EVENTS, EventApplier._apply_control),
    **dict.fromkeys(_TRANSACTION_PART_EVENTS, EventApplier._apply_part),
    **dict.fromkeys(_ROW_EVENTS, EventApplier._apply_rows),
    **dict.fromkeys(("QUERY", "QUERY_COMPRESSED", "EXECUTE_LOAD_QUERY"), EventApplier._apply_query),
    **dict.fromkeys((kind.name for kind in GTID_EVENTS), EventApplier._apply_gtid),
    **dict.fromkeys(("PREVIOUS_GTIDS", "GTID_LIST"), EventApplier._apply_gtid_list),
    "FORMAT_DESCRIPTION": EventApplier._apply_description,
    "XID": EventApplier._apply_xid,
    "XA_PREPARE": EventApplier._apply_xa_prepare,
    "INCIDENT": EventApplier._fail_incident,
}
_handle_other = EventApplier._apply_unknown
