"""Apply rows as whole transactions, as servers since 2.8.1 do (`wal_stream_apply_row`, gh-874).

Without force_recovery a row that cannot be applied stops the start, and so does a transaction without an end. With it
rows are collected by their replica until one ends a transaction; one bad row drops all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from binlogtool.formats.replay_rules import APPLIED, NOT_REACHED, REJECTED, SKIPPED, Records, Ruling, Stop
from binlogtool.formats.tarantool.codes import REPLICAS, Flag

Decided = tuple[str, str]

CONFIRMS = ("CONFIRM", "RAFT_PROMOTE", "RAFT_DEMOTE")
ROLLS_BACK = ("ROLLBACK", "RAFT_PROMOTE", "RAFT_DEMOTE")
SYNCHRO = frozenset((*CONFIRMS, *ROLLS_BACK))
_WAIT_SYNC, _WAIT_ACK = Flag.WAIT_SYNC.value, Flag.WAIT_ACK.value
_DROPPED = (REJECTED, "transaction-dropped")


class Row(NamedTuple):
    """One row to apply.

    Attributes:
        number: in the replay.
        commit: it ends its transaction.
        done: it was applied before, and only its end of the transaction counts.
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


class Spaces(Protocol):
    """Interface that applies rows (implemented by `TarantoolReplayer`)."""

    def moved(self, name: str, records: Records, i: int, replica: int, lsn: int) -> Decided | None:
        """Move the vclock to a row; return the decision if the vclock is there already, else None."""

    def applied(self, row: Row) -> tuple[str, str] | None:
        """Apply a row of a transaction; return the server's message and the reason if it refuses the row, else None."""

    def controlled(self, row: Row) -> str | None:
        """Apply a row without data (CONFIRM, …); return the server's message if it refuses the row, else None."""

    def committed(self, rows: Sequence[Row], mark: tuple[int, int]) -> str | Decided | None:
        """Commit a transaction: return the decision about its rows, None if they wait, or the server's message."""

    def mark(self) -> tuple[int, int]:
        """Return a savepoint of the state before a row."""

    def undo(self, mark: tuple[int, int]) -> None:
        """Roll the state back to a savepoint."""

    def refused(self, name: str, offset: int, text: str) -> Stop | None:
        """Report a refused row: return where the server stops, or None if it continues (force_recovery)."""

    def released(self) -> list[Ruling]:
        """Return the rulings on rows that no longer wait for a CONFIRM."""

    def own_id(self) -> int:
        """Return the id of this instance."""


class TransactionStream:
    """The transactions of one start.

    Attributes:
        stop: where the server gives up, or None.
    """

    def __init__(self, spaces: Spaces, *, force: bool) -> None:
        self._spaces, self._force = spaces, force
        self.stop: Stop | None = None
        self._failed = False
        self._tsn = 0
        self._first_lsn = 0
        self._has_global = False
        self._rows: list[Row] = []
        self._mark = (0, 0)
        self._sending = False
        self._collected: dict[int, list[Row]] = {}

    @property
    def is_open(self) -> bool:
        """True while a transaction has begun and not ended."""
        return bool(self._tsn or self._sending or any(self._collected.values()))

    def rulings(self, name: str, first: int, records: Records, stop: int) -> Iterator[Ruling]:
        """Rule on the first `stop` rows of a run in the order of application, and on earlier rows that waited."""
        e, marks = records.envelope, records.extras
        for i, (kind, lsn, replica, txn) in enumerate(zip(e.type[:stop], e.seq, e.origin, e.txn, strict=False)):
            lsn, replica, number = signed(lsn or 0), replica or 0, first + i
            mark = None if marks is None else marks[i]
            commit = mark is None or mark["commit"]
            decided = self._spaces.moved(name, records, i, replica, lsn)
            if decided is not None:
                yield Ruling(number, number + 1, *decided)
                if not (self._sending and commit):
                    continue
            self._sending = not commit
            flags, local = (0, replica == 0) if mark is None else (mark["flags"], mark["local"])
            tsn = lsn if mark is None else signed(int(str(txn).rpartition(":")[2]))
            body = {} if decided is not None else records.bodies[i]
            kind = "NOP" if decided is not None else kind
            done = decided is not None
            row = Row(number, kind, lsn, replica, tsn, commit, flags, local, body, name, records.offset[i], done)
            yield from self._row(row)
            if self.stop is not None:
                if i + 1 < len(records):
                    yield Ruling(number + 1, first + len(records), SKIPPED, NOT_REACHED)
                return

    def _row(self, row: Row) -> Iterator[Ruling]:
        if row.replica >= REPLICAS:
            text = f"replica id {row.replica} is out of range: what the server does then is undefined, it may crash"
            yield from self._fail(row, text, "refused-row", stops=True)
        elif row.kind in SYNCHRO or row.kind == "RAFT":
            yield from self._control(row)
        elif not self._force:
            yield from self._dml(row)
        else:
            rows = self._collected.setdefault(self._owner(row), [])
            rows.append(row)
            if row.commit:
                collected, rows[:] = list(rows), []
                for at, one in enumerate(collected, 1):
                    yield from self._dml(one)
                    if self._failed:
                        yield from (_ruling(left, _DROPPED) for left in collected[at:] if not left.done)
                        break

    def _owner(self, row: Row) -> int:
        """Return the replica whose transaction a row belongs to; a local row joins the transaction with its number."""
        if row.replica:
            return row.replica
        return (
            next((id_ for id_, rows in self._collected.items() if rows and rows[-1].tsn == row.tsn), None)
            or self._spaces.own_id()
        )

    def _control(self, row: Row) -> Iterator[Ruling]:
        kind = "raft" if row.kind == "RAFT" else "synchro"
        text = f"found {kind} request in a transaction" if self._tsn else self._spaces.controlled(row)
        if text is not None:
            yield from self._fail(row, text, "refused-request")
            return
        yield _ruling(row, (APPLIED, "control"))
        yield from self._spaces.released()

    def _dml(self, row: Row) -> Iterator[Ruling]:
        self._failed = False
        text = self._begun(row)
        if text is not None:
            yield from self._fail(row, text, "transaction-dropped")
            return
        refused = None if row.kind == "NOP" else self._spaces.applied(row)
        self._rows.append(row)
        if refused is not None:
            self._rows.pop()
            yield from self._fail(row, *refused)
            return
        if row.commit:
            yield from self._commit(row)

    def _begun(self, row: Row) -> str | None:
        """Join the row to the open transaction, or begin one; return the server's message if neither is possible."""
        if not self._tsn:
            if not row.tsn:
                return "found a row without TSN"
            self._tsn, self._first_lsn, self._has_global = row.tsn, row.lsn, False
            self._mark = self._spaces.mark()
        elif row.tsn != self._tsn:
            return "found a next transaction with the previous one not yet committed"
        if not self._has_global and not row.local:
            if row.tsn != row.lsn:
                return "found a first global row in a transaction with LSN/TSN mismatch"
            self._has_global = True
        return None

    def _commit(self, row: Row) -> Iterator[Ruling]:
        rows, mark = self._rows, self._mark
        if not self._has_global and self._tsn != self._first_lsn:
            self._rows.pop()
            text = "fully local transaction's TSN does not match LSN of the first row"
            yield from self._fail(row, text, "transaction-dropped")
            return
        decided = self._spaces.committed(rows, mark)
        if isinstance(decided, str):
            self._rows.pop()
            yield from self._fail(row, decided, "transaction-dropped")
            return
        self._tsn, self._rows = 0, []
        if decided is not None:
            yield from (_ruling(one, _control_of(one) or decided) for one in rows if not one.done)

    def _fail(self, row: Row, text: str, reason: str, *, stops: bool = False) -> Iterator[Ruling]:
        """Refuse a row: the server stops, or drops the transaction."""
        rows, self._rows = self._rows, []
        if self._tsn:
            self._spaces.undo(self._mark)
        self._tsn, self._failed = 0, True
        stop = Stop(row.name, row.offset, text) if stops else self._spaces.refused(row.name, row.offset, text)
        self.stop = stop
        before = (SKIPPED, NOT_REACHED) if stop is not None else _DROPPED
        yield from (_ruling(one, before) for one in rows if not one.done)
        if not row.done:
            yield _ruling(row, (REJECTED, reason))

    def finish(self, name: str) -> tuple[list[Ruling], Stop | None]:
        """Rule on a transaction that has no end in the log."""
        rows = [*self._rows, *(row for rows in self._collected.values() for row in rows)]
        if not rows:
            return [], None
        if self._tsn:
            self._spaces.undo(self._mark)
        stop = self._spaces.refused(name, rows[0].offset, "found a not finished transaction in the log")
        decided = (SKIPPED, NOT_REACHED) if stop is not None else _DROPPED
        return [_ruling(row, decided) for row in rows if not row.done], stop


def _ruling(row: Row, decided: Decided) -> Ruling:
    return Ruling(row.number, row.number + 1, *decided)


def _control_of(row: Row) -> Decided | None:
    return (APPLIED, "control") if row.kind == "NOP" else None


def signed(lsn: int) -> int:
    """Convert an LSN to the signed number that the server compares."""
    return lsn - (1 << 64) if lsn >= 1 << 63 else lsn


def waits(rows: Sequence[Row]) -> tuple[bool, bool]:
    """Return whether a transaction waits, and whether for a CONFIRM of its own, by the flags of its last row (3.x)."""
    flags = rows[-1].flags
    return bool(flags & _WAIT_SYNC), bool(flags & _WAIT_ACK)


def synchro_fault(kind: str, body: Any) -> str | None:
    """Return the server's message about a request of the queue, or of Raft, whose body it cannot read; else None."""
    if kind == "RAFT":
        if not isinstance(body, Mapping) or not body:
            return "Invalid MsgPack - malformed raft request"
        fits = all(type(body.get(name, 0)) is int for name in ("term", "vote", "state"))
        return None if fits else "Invalid MsgPack - raft body"
    if not isinstance(body, Mapping) or not body:
        return "Invalid MsgPack - request body"
    fits = all(type(body.get(name, 0)) is int for name in ("replica_id", "lsn", "term"))
    return None if fits else "Invalid MsgPack - request body"
