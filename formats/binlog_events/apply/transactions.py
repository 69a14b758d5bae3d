"""Open and prepared transactions of a simulated server, and their ends."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.binlog_events.apply.executed import Executed
from binlogtool.formats.binlog_events.apply.verdicts import INCOMPLETE, Failure, Lost
from binlogtool.formats.binlog_events.groups.open_group import Open, Verdict
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.replay_rules import REJECTED, SKIPPED, Records, Ruling


class Transactions:
    """Transactions of a server to which events are applied.

    `executed`: what it had at the beginning, and has now. `ordered`: numbers of a domain must grow (checked by
    `mariadb-binlog`). `trusts_prepared`: prepared transactions that the log does not contain may exist in the
    server. `skip_failures`: a transaction that fails is skipped, the rest is applied. `events_without_map`:
    offsets of row events whose TABLE_MAP is missing. `failure`: where it gave up. `applied_end`: offset after
    the last transaction that took effect. `skipped_rows`: rows that were passed over silently.
    """

    def __init__(self, executed: Executed, *, ordered: bool, trusting: bool, goes_on: bool) -> None:
        self.executed = executed
        self.failure: Failure | None = None
        self.reached: int | None = None
        self.lost: list[Lost] = []
        self.unmapped: frozenset[int] = frozenset()
        self.rolled_back: Open | None = None
        self._ordered, self._trusting, self._goes_on = ordered, trusting, goes_on
        self._had = executed.copy()
        self._starts: dict[int, int] = {}
        self._lasts: dict[int, int] = {}
        self._open: Open | None = None
        self._adrift = False
        self._prepared: dict[XaId, tuple[Open, int]] = {}
        self._stays: set[str] = set()

    @property
    def pending(self) -> list[XaId]:
        """XA transactions that are prepared."""
        return list(self._prepared)

    @property
    def open_at(self) -> int | None:
        """Offset at which the open transaction begins; None if none is open."""
        return None if self._open is None else self._open.offset

    def lose(self, stop: int, verdict: Verdict) -> Iterator[Ruling]:
        """Note damage before record `stop`: the open transaction cannot be completed."""
        yield from self._close(stop, verdict)
        self._adrift = True

    def roll_back(self, stop: int) -> Iterator[Ruling]:
        """Roll back the open transaction: for a reader the log ends before record `stop`."""
        yield from self._close(stop, INCOMPLETE)

    def end(self, stop: int) -> Iterator[Ruling]:
        """Finish: `stop` is the number after the last record."""
        yield from self._close(stop, INCOMPLETE)
        for group, last in self._prepared.values():
            yield from group.rulings(last, (SKIPPED, "xa-prepared"))

    # -- what is open ------------------------------------------------------------------------------------------------

    def _begin(self, number: int, records: Records, i: int) -> Open:
        """Begin a transaction with a record."""
        self._open = Open(number, records.offset[i])
        return self._open

    def _close(self, stop: int, verdict: Verdict) -> Iterator[Ruling]:
        """Close the open transaction without a commit."""
        group, self._open = self._open, None
        if group is not None:
            self._forget(group)
            if group.begun and group.doom is None:
                self.rolled_back = group
                group.undo(group.first, stop, verdict)
            yield from group.rulings(stop, verdict)

    def _forget(self, group: Open) -> None:
        """Release the sequence number of a transaction without an end: MariaDB uses it again after a crash."""

    def _ends(self, number: int, records: Records, i: int, verdict: Verdict) -> Iterator[Ruling]:
        """End the open transaction with record `number`; it takes effect."""
        group = self._open or self._begin(number, records, i)
        self._open = None
        if group.doom is None:
            self._done(group, records, i)
        yield from group.rulings(number + 1, verdict)

    def _done(self, group: Open, records: Records, i: int) -> None:
        """Note a transaction that took effect."""
        self.reached = records.offset[i] + records.size[i]
        if group.gtid is not None:
            self.executed.add(group.gtid)

    def _fail(self, number: int, records: Records, i: int, reason: str, why: str) -> Iterator[Ruling]:
        """Reject record `number` as the server does."""
        if not self._goes_on:
            yield from self._close(number, INCOMPLETE)
            yield Ruling(number, number + 1, REJECTED, reason)
            self.failure = Failure(number, records.offset[i], why)
        elif self._open is None:
            yield Ruling(number, number + 1, REJECTED, reason)
        else:
            self._open.doom = self._open.doom or (REJECTED, reason)
