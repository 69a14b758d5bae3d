"""The queue of synchronous transactions (`txn_limbo`): rows wait in it for CONFIRM or ROLLBACK.

Source: `docs/spec/tarantool.md#row-types`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from binlogtool.formats.replay_rules import APPLIED, SKIPPED, Ruling


class _WaitingTransaction(msgspec.Struct):
    """A transaction that waits.

    Attributes:
        ranges: numbers of its rows.
        sync: it waits for a CONFIRM itself, not only for its turn.
        savepoint: of the rows' state before it.
    """

    ranges: list[tuple[int, int]]
    lsn: int
    sync: bool
    savepoint: tuple[int, int]

    def create_rulings(self, verb: str, reason: str) -> Iterator[Ruling]:
        """Yield rulings on its rows."""
        return (Ruling(first, stop, verb, reason) for first, stop in self.ranges)


class Limbo(msgspec.Struct):
    """Waiting transactions in order.

    Attributes:
        owner: id of the instance to which the queue belongs; 0 = none.
        released: rulings on rows that no longer wait.
    """

    owner: int = 0
    released: list[Ruling] = msgspec.field(default_factory=list)
    _queue: deque[_WaitingTransaction] = msgspec.field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add_transaction(self, numbers: Iterable[int], lsn: int, savepoint: tuple[int, int], *, sync: bool) -> None:
        """Add a transaction that waits: a synchronous one, or any after such a one."""
        ranges: list[tuple[int, int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number:
                ranges[-1] = ranges[-1][0], number + 1
            else:
                ranges.append((number, number + 1))
        self._queue.append(_WaitingTransaction(ranges, lsn, sync, savepoint))

    def confirm(self, lsn: int) -> None:
        """Confirm everything up to this LSN, and what waited only after it (`txn_limbo_read_confirm`)."""
        while self._queue and (not self._queue[0].sync or self._queue[0].lsn <= lsn):
            self.released += self._queue.popleft().create_rulings(APPLIED, "confirmed")

    def roll_back(self, lsn: int) -> tuple[int, int] | None:
        """Roll back everything from this LSN on, and what waited after it (`txn_limbo_read_rollback`).

        Returns:
            The savepoint before the first of these rows; None if no row is rolled back.
        """
        savepoint = None
        kept_count = next((n for n, one in enumerate(self._queue) if one.sync and one.lsn >= lsn), len(self._queue))
        while len(self._queue) > kept_count:
            transaction = self._queue.pop()
            savepoint = transaction.savepoint
            self.released += transaction.create_rulings(SKIPPED, "rolled-back")
        return savepoint

    def take_released(self) -> list[Ruling]:
        """Return and clear the rulings that were released since the last call."""
        taken, self.released = self.released, []
        return taken

    def release_rest(self) -> Iterator[Ruling]:
        """Release what still waits at the end of the log as applied but not confirmed."""
        yield from self.take_released()
        while self._queue:
            yield from self._queue.popleft().create_rulings(APPLIED, "unconfirmed")
