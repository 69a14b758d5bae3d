"""Apply rows as whole transactions, and simulate the queue of synchronous transactions.

Source: `docs/spec/tarantool.md#row-types`.

Without force_recovery, a row that cannot be applied and a transaction without an end stop the start. With it, rows are
collected by replica until one ends its transaction, and one bad row drops the whole transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import APPLIED, NOT_REACHED, REJECTED, SKIPPED, RecordOutcome, ReplayStop
from binlogtool.formats.tarantool.codes import VCLOCK_MAX, RowFlag

# --- Queue of synchronous transactions (`txn_limbo`) ---


class _WaitingTransaction(msgspec.Struct):
    """Transaction that waits in the queue.

    Attributes:
        ranges: numbers of its rows.
        sync: it waits for a CONFIRM of its own, not only for earlier transactions.
        savepoint: savepoint of the rows' state before it.
    """

    ranges: list[tuple[int, int]]
    lsn: int
    sync: bool
    savepoint: tuple[int, int]

    def create_outcomes(self, verb: str, reason: str) -> Iterator[RecordOutcome]:
        """Yield outcomes on the rows of the transaction."""
        return (RecordOutcome(first, stop, verb, reason) for first, stop in self.ranges)


class TransactionLimbo(msgspec.Struct):
    """Queue of waiting transactions (the server's `txn_limbo`), in order.

    Attributes:
        owner: id of the instance to which the queue belongs; 0 = none.
        released: outcomes on rows that no longer wait.
    """

    owner: int = 0
    released: list[RecordOutcome] = msgspec.field(default_factory=list)
    _queue: deque[_WaitingTransaction] = msgspec.field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add_transaction(
        self, row_numbers: Iterable[int], lsn: int, savepoint: tuple[int, int], *, needs_own_confirm: bool
    ) -> None:
        """Add a transaction that must wait: a synchronous one, or any transaction after it."""
        ranges: list[tuple[int, int]] = []
        for number in row_numbers:
            if ranges and ranges[-1][1] == number:
                ranges[-1] = ranges[-1][0], number + 1
            else:
                ranges.append((number, number + 1))
        self._queue.append(_WaitingTransaction(ranges, lsn, needs_own_confirm, savepoint))

    def confirm_up_to(self, lsn: int) -> None:
        """Confirm all up to this LSN, and later ones that waited only for them (`txn_limbo_read_confirm`)."""
        while self._queue and (not self._queue[0].sync or self._queue[0].lsn <= lsn):
            self.released += self._queue.popleft().create_outcomes(APPLIED, "confirmed")

    def roll_back_from(self, lsn: int) -> tuple[int, int] | None:
        """Roll back all transactions from this LSN on, and those that waited after them (`txn_limbo_read_rollback`).

        Returns:
            The savepoint before the first of these rows; None if no row is rolled back.
        """
        savepoint = None
        kept_count = next((n for n, one in enumerate(self._queue) if one.sync and one.lsn >= lsn), len(self._queue))
        while len(self._queue) > kept_count:
            transaction = self._queue.pop()
            savepoint = transaction.savepoint
            self.released += transaction.create_outcomes(SKIPPED, "rolled-back")
        return savepoint

    def remove_released_outcomes(self) -> list[RecordOutcome]:
        """Return and clear the outcomes that were released since the last call."""
        taken, self.released = self.released, []
        return taken

    def release_unconfirmed(self) -> Iterator[RecordOutcome]:
        """Release transactions that still wait at the end of the log, as applied but not confirmed."""
        yield from self.remove_released_outcomes()
        while self._queue:
            yield from self._queue.popleft().create_outcomes(APPLIED, "unconfirmed")


# --- Rows applied as whole transactions (`wal_stream_apply_row`) ---

Decision = tuple[str, str]

CONFIRM_TYPES = ("CONFIRM", "RAFT_PROMOTE", "RAFT_DEMOTE")
ROLLBACK_TYPES = ("ROLLBACK", "RAFT_PROMOTE", "RAFT_DEMOTE")
SYNCHRO_TYPES = frozenset((*CONFIRM_TYPES, *ROLLBACK_TYPES))
_WAIT_SYNC, _WAIT_ACK = RowFlag.WAIT_SYNC.value, RowFlag.WAIT_ACK.value
_REJECT_DROPPED = (REJECTED, "transaction-dropped")


class ReplayRow(NamedTuple):
    """One row to apply.

    Attributes:
        number: number of the row in the replay.
        commit: the row ends its transaction.
        done: the row was applied before; only its commit flag is used.
    """

    number: int
    kind: str
    lsn: int
    replica: int
    tsn: int
    commit: bool
    flags: int
    local: bool
    body: Any
    name: str
    offset: int
    done: bool


class RowApplier(Protocol):
    """Interface that applies rows (implemented by `TarantoolReplayer`)."""

    def advance_vclock_or_skip(
        self, file_name: str, records: DecodedRecords, row_index: int, replica: int, lsn: int
    ) -> Decision | None:
        """Move the vclock to a row; return the decision if the vclock has already reached it, else None."""

    def apply_row(self, row: ReplayRow) -> tuple[str, str] | None:
        """Apply a row of a transaction; return the server's message and the reason if it refuses the row, else None."""

    def apply_control_row(self, row: ReplayRow) -> str | None:
        """Apply a row without data (CONFIRM, …); return the server's message if it refuses the row, else None."""

    def commit_or_queue_transaction(
        self, rows: Sequence[ReplayRow], savepoint: tuple[int, int]
    ) -> str | Decision | None:
        """Commit a transaction: return the decision about its rows, None if they wait, or the server's message."""

    def create_savepoint(self) -> tuple[int, int]:
        """Return a savepoint of the state before a row."""

    def roll_back_to(self, savepoint: tuple[int, int]) -> None:
        """Roll the state back to a savepoint."""

    def stop_or_log_refusal(self, file_name: str, offset: int, server_message: str) -> ReplayStop | None:
        """Report a refused row: return where the server stops, or None if it continues (force_recovery)."""

    def remove_released_outcomes(self) -> list[RecordOutcome]:
        """Return the outcomes on rows that no longer wait for a CONFIRM."""

    def get_own_replica_id(self) -> int:
        """Return the id of this instance."""


class TransactionStream:
    """Transactions of one start. stop: where the server gives up, or None."""

    def __init__(self, applier: RowApplier, *, force: bool) -> None:
        self._applier, self._force = applier, force
        self.stop: ReplayStop | None = None
        self._failed = False
        self._tsn = 0
        self._first_lsn = 0
        self._has_global = False
        self._rows: list[ReplayRow] = []
        self._savepoint = (0, 0)
        self._in_transaction = False
        self._collected: dict[int, list[ReplayRow]] = {}

    @property
    def is_open(self) -> bool:
        """True while a transaction has begun and not ended."""
        return bool(self._tsn or self._in_transaction or any(self._collected.values()))

    def replay_rows(
        self, file_name: str, first_row_number: int, records: DecodedRecords, row_count: int
    ) -> Iterator[RecordOutcome]:
        """Rule on the first `row_count` rows of a run, and on earlier rows that waited, in the order of application."""
        envelope, marks = records.envelope, records.extras
        for i, (kind, lsn, replica, txn) in enumerate(
            zip(envelope.type[:row_count], envelope.seq, envelope.origin, envelope.txn, strict=False)
        ):
            lsn, replica, number = to_signed(lsn or 0), replica or 0, first_row_number + i
            row_marks = None if marks is None else marks[i]
            commit = row_marks is None or row_marks["commit"]
            decision = self._applier.advance_vclock_or_skip(file_name, records, i, replica, lsn)
            if decision is not None:
                yield RecordOutcome(number, number + 1, *decision)
                if not (self._in_transaction and commit):
                    continue
            self._in_transaction = not commit
            flags, local = (0, replica == 0) if row_marks is None else (row_marks["flags"], row_marks["local"])
            tsn = lsn if row_marks is None else to_signed(int(str(txn).rpartition(":")[2]))
            body = {} if decision is not None else records.bodies[i]
            kind = "NOP" if decision is not None else kind
            is_done = decision is not None
            row = ReplayRow(
                number, kind, lsn, replica, tsn, commit, flags, local, body, file_name, records.offset[i], is_done
            )
            yield from self._replay_row(row)
            if self.stop is not None:
                if i + 1 < len(records):
                    yield RecordOutcome(number + 1, first_row_number + len(records), SKIPPED, NOT_REACHED)
                return

    def _replay_row(self, row: ReplayRow) -> Iterator[RecordOutcome]:
        if row.replica >= VCLOCK_MAX:
            text = (
                f"replica id {row.replica} is out of range: the server's behaviour is then undefined, and it may crash"
            )
            yield from self._refuse_row(row, text, "refused-row", stops=True)
        elif row.kind in SYNCHRO_TYPES or row.kind == "RAFT":
            yield from self._replay_control_row(row)
        elif not self._force:
            yield from self._replay_dml_row(row)
        else:
            rows = self._collected.setdefault(self._find_owning_replica(row), [])
            rows.append(row)
            if row.commit:
                collected, rows[:] = list(rows), []
                for position, collected_row in enumerate(collected, 1):
                    yield from self._replay_dml_row(collected_row)
                    if self._failed:
                        yield from (
                            _create_row_outcome(left, _REJECT_DROPPED) for left in collected[position:] if not left.done
                        )
                        break

    def _find_owning_replica(self, row: ReplayRow) -> int:
        """Return the replica whose transaction a row belongs to; a local row joins the transaction with its TSN."""
        if row.replica:
            return row.replica
        return (
            next((id_ for id_, rows in self._collected.items() if rows and rows[-1].tsn == row.tsn), None)
            or self._applier.get_own_replica_id()
        )

    def _replay_control_row(self, row: ReplayRow) -> Iterator[RecordOutcome]:
        """Apply a CONFIRM, ROLLBACK or RAFT row; yield its outcome and those of the transactions that it releases."""
        kind = "raft" if row.kind == "RAFT" else "synchro"
        text = f"found {kind} request in a transaction" if self._tsn else self._applier.apply_control_row(row)
        if text is not None:
            yield from self._refuse_row(row, text, "refused-request")
            return
        yield _create_row_outcome(row, (APPLIED, "control"))
        yield from self._applier.remove_released_outcomes()

    def _replay_dml_row(self, row: ReplayRow) -> Iterator[RecordOutcome]:
        """Apply a row within its transaction, and commit it at the last row; yield the outcomes that are known now."""
        self._failed = False
        text = self._join_transaction(row)
        if text is not None:
            yield from self._refuse_row(row, text, "transaction-dropped")
            return
        refusal = None if row.kind == "NOP" else self._applier.apply_row(row)
        self._rows.append(row)
        if refusal is not None:
            self._rows.pop()
            yield from self._refuse_row(row, *refusal)
            return
        if row.commit:
            yield from self._commit_transaction(row)

    def _join_transaction(self, row: ReplayRow) -> str | None:
        """Join the row to the open transaction, or begin one; return the server's message if neither is possible."""
        if not self._tsn:
            if not row.tsn:
                return "found a row without TSN"
            self._tsn, self._first_lsn, self._has_global = row.tsn, row.lsn, False
            self._savepoint = self._applier.create_savepoint()
        elif row.tsn != self._tsn:
            return "found a next transaction with the previous one not yet committed"
        if not self._has_global and not row.local:
            if row.tsn != row.lsn:
                return "found a first global row in a transaction with LSN/TSN mismatch"
            self._has_global = True
        return None

    def _commit_transaction(self, row: ReplayRow) -> Iterator[RecordOutcome]:
        """Commit the open transaction with its last row; yield the outcomes of its rows, nothing if they wait for a
        CONFIRM.
        """
        rows, savepoint = self._rows, self._savepoint
        if not self._has_global and self._tsn != self._first_lsn:
            self._rows.pop()
            text = "fully local transaction's TSN does not match LSN of the first row"
            yield from self._refuse_row(row, text, "transaction-dropped")
            return
        decision = self._applier.commit_or_queue_transaction(rows, savepoint)
        if isinstance(decision, str):
            self._rows.pop()
            yield from self._refuse_row(row, decision, "transaction-dropped")
            return
        self._tsn, self._rows = 0, []
        if decision is not None:
            yield from (
                _create_row_outcome(one, _get_control_decision(one) or decision) for one in rows if not one.done
            )

    def _refuse_row(self, row: ReplayRow, text: str, reason: str, *, stops: bool = False) -> Iterator[RecordOutcome]:
        """Refuse a row: the server stops, or drops the transaction."""
        rows, self._rows = self._rows, []
        if self._tsn:
            self._applier.roll_back_to(self._savepoint)
        self._tsn, self._failed = 0, True
        stop = (
            ReplayStop(row.name, row.offset, text)
            if stops
            else self._applier.stop_or_log_refusal(row.name, row.offset, text)
        )
        self.stop = stop
        decision = (SKIPPED, NOT_REACHED) if stop is not None else _REJECT_DROPPED
        yield from (_create_row_outcome(one, decision) for one in rows if not one.done)
        if not row.done:
            yield _create_row_outcome(row, (REJECTED, reason))

    def refuse_unfinished_transaction(self, last_log_name: str) -> tuple[list[RecordOutcome], ReplayStop | None]:
        """Refuse a transaction without an end; return (outcomes of its rows, where the server stops or None)."""
        rows = [*self._rows, *(row for rows in self._collected.values() for row in rows)]
        if not rows:
            return [], None
        if self._tsn:
            self._applier.roll_back_to(self._savepoint)
        stop = self._applier.stop_or_log_refusal(
            last_log_name, rows[0].offset, "found a not finished transaction in the log"
        )
        decision = (SKIPPED, NOT_REACHED) if stop is not None else _REJECT_DROPPED
        return [_create_row_outcome(row, decision) for row in rows if not row.done], stop


def _create_row_outcome(row: ReplayRow, decision: Decision) -> RecordOutcome:
    return RecordOutcome(row.number, row.number + 1, *decision)


def _get_control_decision(row: ReplayRow) -> Decision | None:
    return (APPLIED, "control") if row.kind == "NOP" else None


def to_signed(lsn: int) -> int:
    """Convert an LSN to the signed number by which the server compares."""
    return lsn - (1 << 64) if lsn >= 1 << 63 else lsn


def read_wait_flags(rows: Sequence[ReplayRow]) -> tuple[bool, bool]:
    """Return (waits, needs a CONFIRM of its own) of a transaction, by the flags of its last row (3.x)."""
    flags = rows[-1].flags
    return bool(flags & _WAIT_SYNC), bool(flags & _WAIT_ACK)


def check_synchro_request(kind: str, body: Any) -> str | None:
    """Return the server's message if it cannot read the body of a queue or Raft request; else None."""
    if kind == "RAFT":
        if not isinstance(body, Mapping) or not body:
            return "Invalid MsgPack - malformed raft request"
        is_valid = all(type(body.get(name, 0)) is int for name in ("term", "vote", "state"))
        return None if is_valid else "Invalid MsgPack - raft body"
    if not isinstance(body, Mapping) or not body:
        return "Invalid MsgPack - request body"
    is_valid = all(type(body.get(name, 0)) is int for name in ("replica_id", "lsn", "term"))
    return None if is_valid else "Invalid MsgPack - request body"
