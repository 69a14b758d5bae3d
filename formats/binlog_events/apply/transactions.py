"""Open and prepared transactions of a simulated server, and their ends."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.binlog_events.apply.executed import ExecutedGtids
from binlogtool.formats.binlog_events.apply.verdicts import INCOMPLETE, ApplierFailure, SkippedRows
from binlogtool.formats.binlog_events.groups.open_group import ApplierTransaction, RulingVerdict
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.replay_rules import REJECTED, SKIPPED, DecodedRecords, Ruling


class ApplierState:
    """Transactions of a server to which events are applied.

    `executed`: what it had at the beginning, and has now. `ordered`: numbers of a domain must grow (checked by
    `mariadb-binlog`). `trusts_prepared`: prepared transactions that the log does not contain may exist in the
    server. `skip_failures`: a transaction that fails is skipped, the rest is applied. `events_without_map`:
    offsets of row events whose TABLE_MAP is missing. `failure`: where it gave up. `applied_end`: offset after
    the last transaction that took effect. `skipped_rows`: rows that were passed over silently.
    """

    def __init__(self, executed: ExecutedGtids, *, ordered: bool, trusts_prepared: bool, skip_failures: bool) -> None:
        self.executed = executed
        self.failure: ApplierFailure | None = None
        self.applied_end: int | None = None
        self.skipped_rows: list[SkippedRows] = []
        self.events_without_map: frozenset[int] = frozenset()
        self.last_rolled_back: ApplierTransaction | None = None
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
    def open_offset(self) -> int | None:
        """Offset at which the open transaction begins; None if none is open."""
        return None if self._open_transaction is None else self._open_transaction.offset

    def skip_damage(self, stop: int, verdict: RulingVerdict) -> Iterator[Ruling]:
        """Note damage before record `stop`: the open transaction cannot be completed."""
        yield from self._close_incomplete(stop, verdict)
        self._is_after_damage = True

    def roll_back(self, stop: int) -> Iterator[Ruling]:
        """Roll back the open transaction: for a reader the log ends before record `stop`."""
        yield from self._close_incomplete(stop, INCOMPLETE)

    def finish(self, stop: int) -> Iterator[Ruling]:
        """Finish: `stop` is the number after the last record."""
        yield from self._close_incomplete(stop, INCOMPLETE)
        for transaction, record_stop in self._prepared.values():
            yield from transaction.iter_rulings(record_stop, (SKIPPED, "xa-prepared"))

    # -- what is open ------------------------------------------------------------------------------------------------

    def _begin_transaction(self, number: int, records: DecodedRecords, i: int) -> ApplierTransaction:
        """Begin a transaction with a record."""
        self._open_transaction = ApplierTransaction(number, records.offset[i])
        return self._open_transaction

    def _close_incomplete(self, stop: int, verdict: RulingVerdict) -> Iterator[Ruling]:
        """Close the open transaction without a commit."""
        transaction, self._open_transaction = self._open_transaction, None
        if transaction is not None:
            self._release_gtid(transaction)
            if transaction.needs_commit and transaction.verdict is None:
                self.last_rolled_back = transaction
                transaction.roll_back(transaction.first_record, stop, verdict)
            yield from transaction.iter_rulings(stop, verdict)

    def _release_gtid(self, transaction: ApplierTransaction) -> None:
        """Release the sequence number of a transaction without an end: MariaDB uses it again after a crash."""

    def _end_transaction(
        self, number: int, records: DecodedRecords, i: int, verdict: RulingVerdict
    ) -> Iterator[Ruling]:
        """End the open transaction with record `number`; it takes effect."""
        transaction = self._open_transaction or self._begin_transaction(number, records, i)
        self._open_transaction = None
        if transaction.verdict is None:
            self._note_applied(transaction, records, i)
        yield from transaction.iter_rulings(number + 1, verdict)

    def _note_applied(self, transaction: ApplierTransaction, records: DecodedRecords, i: int) -> None:
        """Note a transaction that took effect."""
        self.applied_end = records.offset[i] + records.size[i]
        if transaction.gtid is not None:
            self.executed.add(transaction.gtid)

    def _reject_record(
        self, number: int, records: DecodedRecords, i: int, reason_id: str, message: str
    ) -> Iterator[Ruling]:
        """Reject record `number` as the server does."""
        if not self._skips_failures:
            yield from self._close_incomplete(number, INCOMPLETE)
            yield Ruling(number, number + 1, REJECTED, reason_id)
            self.failure = ApplierFailure(number, records.offset[i], message)
        elif self._open_transaction is None:
            yield Ruling(number, number + 1, REJECTED, reason_id)
        else:
            self._open_transaction.verdict = self._open_transaction.verdict or (REJECTED, reason_id)
