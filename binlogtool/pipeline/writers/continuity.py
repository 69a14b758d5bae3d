"""GTID gaps: transactions that the log itself says exist, and that were not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.binlog_events.gtid.intervals import IntervalSet
from binlogtool.formats.binlog_events.gtid.sets import GtidSet, format_gtid_set
from binlogtool.formats.bundling import PortableEventGroup, PriorGtids

GtidSource = tuple[int, int]
GtidState = dict[GtidSource, int]
_MAX_SHOWN = 8


def record_gtid(state: GtidState, domain: int, server: int, number: int) -> None:
    """Record a GTID as the newest of its domain: it moves to the end, as in GTID_LIST."""
    state.pop((domain, server), None)
    state[domain, server] = number


def parse_gtid(text: str) -> tuple[int, int, int]:
    """Return (domain, server, number) of a GTID's text."""
    domain, server, number = map(int, text.split("-"))
    return domain, server, number


class GtidContinuity(msgspec.Struct):
    """Tracks GTID states and transactions of a log, and finds those that were lost.

    state: state after the transactions read so far; None before the first.
    """

    state: GtidState | None = None
    _lost: list[tuple[str, int, int]] = msgspec.field(default_factory=list)
    _seen: dict[str, IntervalSet] = msgspec.field(default_factory=dict)
    _last: dict[int, int] = msgspec.field(default_factory=dict)
    _after_damage: bool = False
    _checked_domains: set[int] = msgspec.field(default_factory=set)

    def note_damage(self) -> None:
        """Note that bytes were skipped, which may have held transactions."""
        self._after_damage = True
        self._checked_domains.clear()

    def note_unread(self, gtid: str) -> None:
        """Note a transaction whose GTID is known, but which could not be read."""
        domain, server, number = parse_gtid(gtid)
        self._lost.append((f"{domain}-{server}", number, number + 1))
        self._advance_state(domain, server, number)

    def list_lost(self) -> list[str]:
        """Return the transactions that are missing and did not appear elsewhere, by source: `0-1-5..7`."""
        missed: dict[str, IntervalSet] = {}
        for source, low, high in self._lost:
            for start, stop in _subtract_intervals(self._seen.get(source, ()), low, high):
                missed.setdefault(source, IntervalSet()).add(start, stop)
        return [item for item in format_gtid_set(GtidSet(missed)).split(",") if item]

    def add_transaction(self, bundle: PortableEventGroup) -> None:
        """Note a transaction that was read; after damage, the gap before it counts as lost."""
        if bundle.txn is None:
            return
        domain, server, number = parse_gtid(bundle.txn)
        self._seen.setdefault(f"{domain}-{server}", IntervalSet()).add(number, number + 1)
        if self._after_damage and domain not in self._checked_domains:
            self._add_lost(domain, server, number - 1)
            self._checked_domains.add(domain)
        self._advance_state(domain, server, number)

    def check_state(self, log_state: PriorGtids) -> Iterator[Finding]:
        """Compare a state that the log contains; yield a finding if it lists transactions that were not read."""
        if self.state is None:
            if log_state.is_complete:
                for gtid in log_state.gtids:
                    self._advance_state(*gtid)
            return
        before = len(self._lost)
        for domain, server, number in log_state.gtids:
            if number > self.state.get((domain, server), 0):
                self._add_lost(domain, server, number)
                self._advance_state(domain, server, number)
        missed = [f"{source}-{low}..{high - 1}" for source, low, high in self._lost[before:]]
        if missed and not self._after_damage:
            text = f"transactions are not there that the log knows: {', '.join(missed[:_MAX_SHOWN])}"
            yield make_finding("gap-in-sequence", None, 0, text + (" …" if len(missed) > _MAX_SHOWN else ""))
        if log_state.is_complete:
            self._after_damage = False

    def _add_lost(self, domain: int, server: int, number: int) -> None:
        first = self._last.get(domain, 0) + 1
        if first <= number:
            self._lost.append((f"{domain}-{server}", first, number + 1))

    def _advance_state(self, domain: int, server: int, number: int) -> None:
        self.state = {} if self.state is None else self.state
        record_gtid(self.state, domain, server, number)
        self._last[domain] = number


def _subtract_intervals(seen: Iterable[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `[low, high)` outside of the intervals of an ordered set."""
    for start, stop in seen:
        if low < stop and start < high:
            if low < start:
                yield low, start
            low = stop
    if low < high:
        yield low, high
