"""The queue of synchronous transactions (`txn_limbo`): rows wait in it for CONFIRM or ROLLBACK (section 2.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from binlogtool.formats.replay_rules import APPLIED, SKIPPED, Ruling


class _Waiting(msgspec.Struct):
    """The rows `[first, stop)` of one transaction. sync: it waits for a CONFIRM itself, not only for its turn. mark: of
    the rows' state before it."""

    first: int
    stop: int
    txn: str
    lsn: int
    sync: bool
    mark: tuple[int, int]


class Limbo(msgspec.Struct):
    """Transactions in order. released: rulings about rows that wait no longer. by_row: each row waits by itself, as in
    servers that apply rows and no transactions."""

    by_row: bool
    released: list[Ruling] = msgspec.field(default_factory=list)
    _queue: deque[_Waiting] = msgspec.field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def wait(self, number: int, txn: str | int | None, lsn: int, mark: tuple[int, int], *, sync: bool) -> None:
        """A row that waits: a synchronous one, or any after such a one. txn: as in the envelope."""
        name = str(txn).rpartition(":")[2]
        last = self._queue[-1] if self._queue else None
        if not self.by_row and last is not None and last.txn == name and last.stop == number:
            last.stop, last.lsn, last.sync = number + 1, max(last.lsn, lsn), last.sync or sync
        else:
            self._queue.append(_Waiting(number, number + 1, name, lsn, sync, mark))

    def confirm(self, lsn: int) -> None:
        """Everything up to this LSN took effect, and what waited only behind it (`txn_limbo_read_confirm`)."""
        while self._queue and (not self._queue[0].sync or self._queue[0].lsn <= lsn):
            one = self._queue.popleft()
            self.released.append(Ruling(one.first, one.stop, APPLIED, "confirmed"))

    def roll_back(self, lsn: int) -> tuple[int, int] | None:
        """Everything from this LSN on, and what waited after it, is undone (`txn_limbo_read_rollback`).

        Returns: the mark before the first of these rows; None: no row is undone.
        """
        mark = None
        keep = next((n for n, one in enumerate(self._queue) if one.sync and one.lsn >= lsn), len(self._queue))
        while len(self._queue) > keep:
            one = self._queue.pop()
            mark = one.mark
            self.released.append(Ruling(one.first, one.stop, SKIPPED, "rolled-back"))
        return mark

    def take(self) -> list[Ruling]:
        """The rulings that were released since the last time."""
        taken, self.released = self.released, []
        return taken

    def rest(self) -> Iterator[Ruling]:
        """The log has ended: what still waits is there, but not confirmed."""
        yield from self.take()
        while self._queue:
            one = self._queue.popleft()
            yield Ruling(one.first, one.stop, APPLIED, "unconfirmed")
