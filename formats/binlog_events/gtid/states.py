"""GTID states: the transactions of a log as servers list them at the beginning of each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from binlogtool.formats.binlog_events.gtid.bodies import ListedGtid, PreviousGtids, source_text


class Span(NamedTuple):
    """Consecutive GTIDs of one source, `last` included; `source`: "uuid", "uuid:tag", or "domain-server"."""

    source: str
    first: int
    last: int
    maria: bool

    @property
    def text(self) -> str:
        """The range as servers write GTIDs."""
        if self.maria:
            first, last = f"{self.source}-{self.first}", f"{self.source}-{self.last}"
            return first if self.first == self.last else f"{first} to {last}"
        return f"{self.source}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


class GtidState(Protocol):
    """Transactions that a log contains up to one position."""

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, as half-open runs."""

    def lacks(self, later: GtidState) -> list[Span]:
        """Return what `later` has beyond this state, in the order of the sources' names."""


class SetState(msgspec.Struct):
    """State of MySQL: half-open intervals of numbers by source, ascending and disjoint."""

    intervals: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict)

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, as half-open runs."""
        self.intervals[source] = _joined([*self.intervals.get(source, []), *runs])

    def lacks(self, later: GtidState) -> list[Span]:
        """Return what `later` has beyond this state."""
        if not isinstance(later, SetState):
            return []
        return [
            Span(source, low, high - 1, False)
            for source, own in sorted(later.intervals.items())
            for low, high in _without(own, self.intervals.get(source, []))
        ]


def _without(own: Iterable[tuple[int, int]], known: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield the parts of intervals that others do not cover; both are ascending."""
    at = 0
    for start, end in own:
        while at < len(known) and known[at][1] <= start:
            at += 1
        step = at
        while start < end:
            if step == len(known) or known[step][0] >= end:
                yield start, end
                break
            if known[step][0] > start:
                yield start, known[step][0]
            start = known[step][1]
            step += 1


class ListState(msgspec.Struct):
    """State of MariaDB: the last number of each domain and server."""

    last: dict[str, int] = msgspec.field(default_factory=dict)

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a domain and server, as half-open runs."""
        self.last[source] = max([self.last.get(source, 0), *(stop - 1 for _, stop in runs)])

    def lacks(self, later: GtidState) -> list[Span]:
        """Return what `later` has beyond this state, from the domain's highest number on."""
        if not isinstance(later, ListState):
            return []
        tops = self._tops()
        found = []
        for source, number in sorted(later.last.items()):
            if number > self.last.get(source, 0):
                top = tops.get(source.partition("-")[0], 0)
                found.append(Span(source, min(max(top, self.last.get(source, 0)) + 1, number), number, True))
        return found

    def _tops(self) -> Mapping[str, int]:
        """Return the highest number of each domain."""
        tops: dict[str, int] = {}
        for source, number in self.last.items():
            domain = source.partition("-")[0]
            tops[domain] = max(tops.get(domain, 0), number)
        return tops


def of_previous(sources: Iterable[PreviousGtids]) -> SetState:
    """Return the state that a PREVIOUS_GTIDS event lists."""
    state = SetState()
    for one in sources:
        own = state.intervals.setdefault(source_text(one.sid, one.tag), [])
        own.extend(interval for interval in one.intervals if interval[0] < interval[1])
    return SetState({source: _joined(own) for source, own in state.intervals.items()})


def _joined(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals in order, with touching ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def of_list(entries: Iterable[ListedGtid]) -> ListState:
    """Return the state that a GTID_LIST event lists."""
    return ListState({f"{one.domain_id}-{one.server_id}": one.seq_no for one in entries})


def spans_text(spans: Iterable[Span], most: int = 5) -> str:
    """Return GTID ranges in words, at most `limit` of them."""
    known = list(spans)
    more = f" and {len(known) - most:,} more ranges" if len(known) > most else ""
    return ", ".join(span.text for span in known[:most]) + more


def spans_fact(spans: Iterable[Span], most: int = 100) -> dict[str, list[list[int]]]:
    """Return GTID ranges as JSON: source -> [first, last] of each range."""
    fact: dict[str, list[list[int]]] = {}
    for span in list(spans)[:most]:
        fact.setdefault(span.source, []).append([span.first, span.last])
    return fact
