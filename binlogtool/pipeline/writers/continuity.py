"""GTID gaps: transactions that the log itself says exist, and that were not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from binlogtool.findings import Finding, finding
from binlogtool.formats.binlog_events.gtid.intervals import Intervals
from binlogtool.formats.binlog_events.gtid.sets import GtidSet, format_set
from binlogtool.formats.bundling import Bundle, Reached

Pair = tuple[int, int]
State = dict[Pair, int]
_SHOWN = 8


def book(state: State, domain: int, server: int, number: int) -> None:
    """Record a GTID as the newest of its domain: it moves to the end, as in GTID_LIST."""
    state.pop((domain, server), None)
    state[domain, server] = number


def gtid_numbers(text: str) -> tuple[int, int, int]:
    """Return (domain, server, number) of a GTID's text."""
    domain, server, number = map(int, text.split("-"))
    return domain, server, number


class Continuity(msgspec.Struct):
    """Tracks GTID states and transactions of a log, and finds those that were lost.

    known: state after the transactions read so far; None before the first.
    """

    known: State | None = None
    _lost: list[tuple[str, int, int]] = msgspec.field(default_factory=list)
    _seen: dict[str, Intervals] = msgspec.field(default_factory=dict)
    _last: dict[int, int] = msgspec.field(default_factory=dict)
    _unsure: bool = False
    _sure_again: set[int] = msgspec.field(default_factory=set)

    def damage(self) -> None:
        """Note that bytes were skipped, which may have held transactions."""
        self._unsure = True
        self._sure_again.clear()

    def unread(self, gtid: str) -> None:
        """Note a transaction whose GTID is known, but which could not be read."""
        domain, server, number = gtid_numbers(gtid)
        self._lost.append((f"{domain}-{server}", number, number + 1))
        self._take(domain, server, number)

    def lost(self) -> list[str]:
        """Return the transactions that are missing and did not appear elsewhere, by source: `0-1-5..7`."""
        missed: dict[str, Intervals] = {}
        for source, low, high in self._lost:
            for start, stop in _without(self._seen.get(source, ()), low, high):
                missed.setdefault(source, Intervals()).add(start, stop)
        return [item for item in format_set(GtidSet(missed)).split(",") if item]

    def bundle(self, bundle: Bundle) -> None:
        """Note a transaction that was read; after damage, the gap before it counts as lost."""
        if bundle.txn is None:
            return
        domain, server, number = gtid_numbers(bundle.txn)
        self._seen.setdefault(f"{domain}-{server}", Intervals()).add(number, number + 1)
        if self._unsure and domain not in self._sure_again:
            self._miss(domain, server, number - 1)
            self._sure_again.add(domain)
        self._take(domain, server, number)

    def reached(self, said: Reached) -> Iterator[Finding]:
        """Compare a state that the log contains; yield a finding if it lists transactions that were not read."""
        if self.known is None:
            if said.whole:
                for gtid in said.gtids:
                    self._take(*gtid)
            return
        before = len(self._lost)
        for domain, server, number in said.gtids:
            if number > self.known.get((domain, server), 0):
                self._miss(domain, server, number)
                self._take(domain, server, number)
        missed = [f"{source}-{low}..{high - 1}" for source, low, high in self._lost[before:]]
        if missed and not self._unsure:
            text = f"transactions are not there that the log knows: {', '.join(missed[:_SHOWN])}"
            yield finding("gap-in-sequence", None, 0, text + (" …" if len(missed) > _SHOWN else ""))
        if said.whole:
            self._unsure = False

    def _miss(self, domain: int, server: int, number: int) -> None:
        first = self._last.get(domain, 0) + 1
        if first <= number:
            self._lost.append((f"{domain}-{server}", first, number + 1))

    def _take(self, domain: int, server: int, number: int) -> None:
        self.known = {} if self.known is None else self.known
        book(self.known, domain, server, number)
        self._last[domain] = number


def _without(seen: Iterable[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `[low, high)` outside of the intervals of an ordered set."""
    for start, stop in seen:
        if low < stop and start < high:
            if low < start:
                yield low, start
            low = stop
    if low < high:
        yield low, high
