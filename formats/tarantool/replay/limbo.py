"""The queue of synchronous transactions (`txn_limbo`): rows wait in it for CONFIRM or ROLLBACK.

Source: `docs/spec/tarantool-xlog.md#23-row-types`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from binlogtool.formats.replay_rules import APPLIED, SKIPPED, Ruling


class _Waiting(msgspec.Struct):
    """A transaction that waits.

    Attributes:
        ranges: numbers of its rows.
        sync: it waits for a CONFIRM itself, not only for its turn.
        savepoint: of the rows' state before it.
    """

    ranges: list[tuple[int, int]]
    lsn: int
    sync: bool
    mark: tuple[int, int]

    def ruled(self, verb: str, reason: str) -> Iterator[Ruling]:
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
    _queue: deque[_Waiting] = msgspec.field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def wait(self, numbers: Iterable[int], lsn: int, mark: tuple[int, int], *, sync: bool) -> None:
        """Add a transaction that waits: a synchronous one, or any after such a one."""
        ranges: list[tuple[int, int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number:
                ranges[-1] = ranges[-1][0], number + 1
            else:
                ranges.append((number, number + 1))
        self._queue.append(_Waiting(ranges, lsn, sync, mark))

    def confirm(self, lsn: int) -> None:
        """Confirm everything up to this LSN, and what waited only after it (`txn_limbo_read_confirm`)."""
        while self._queue and (not self._queue[0].sync or self._queue[0].lsn <= lsn):
            self.released += self._queue.popleft().ruled(APPLIED, "confirmed")

    def roll_back(self, lsn: int) -> tuple[int, int] | None:
        """Roll back everything from this LSN on, and what waited after it (`txn_limbo_read_rollback`).

        Returns:
            The savepoint before the first of these rows; None if no row is rolled back.
        """
        mark = None
        keep = next((n for n, one in enumerate(self._queue) if one.sync and one.lsn >= lsn), len(self._queue))
        while len(self._queue) > keep:
            one = self._queue.pop()
            mark = one.mark
            self.released += one.ruled(SKIPPED, "rolled-back")
        return mark

    def take(self) -> list[Ruling]:
        """Return and clear the rulings that were released since the last call."""
        taken, self.released = self.released, []
        return taken

    def rest(self) -> Iterator[Ruling]:
        """Release what still waits at the end of the log as applied but not confirmed."""
        yield from self.take()
        while self._queue:
            yield from self._queue.popleft().ruled(APPLIED, "unconfirmed")
