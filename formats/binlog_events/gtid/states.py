"""GTID states: the transactions of a log as servers list them at the beginning of each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from binlogtool.formats.binlog_events.gtid.bodies import ListedGtid, PreviousGtids, format_source


class GtidRange(NamedTuple):
    """Consecutive GTIDs of one source, `last` included; `source`: "uuid", "uuid:tag", or "domain-server"."""

    source: str
    first: int
    last: int
    is_mariadb: bool

    @property
    def text(self) -> str:
        """The range as servers write GTIDs."""
        if self.is_mariadb:
            first, last = f"{self.source}-{self.first}", f"{self.source}-{self.last}"
            return first if self.first == self.last else f"{first} to {last}"
        return f"{self.source}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


class GtidState(Protocol):
    """Transactions that a log contains up to one position."""

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, as half-open runs."""

    def find_missing(self, later: GtidState) -> list[GtidRange]:
        """Return what `later` has beyond this state, in the order of the sources' names."""


class MysqlGtidState(msgspec.Struct):
    """State of MySQL: half-open intervals of numbers by source, ascending and disjoint."""

    intervals: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict)

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, as half-open runs."""
        self.intervals[source] = _merge_intervals([*self.intervals.get(source, []), *runs])

    def find_missing(self, later: GtidState) -> list[GtidRange]:
        """Return what `later` has beyond this state."""
        if not isinstance(later, MysqlGtidState):
            return []
        return [
            GtidRange(source, low, high - 1, False)
            for source, own in sorted(later.intervals.items())
            for low, high in _subtract(own, self.intervals.get(source, []))
        ]


def _subtract(intervals: Iterable[tuple[int, int]], covered: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield the parts of intervals that others do not cover; both are ascending."""
    index = 0
    for start, end in intervals:
        while index < len(covered) and covered[index][1] <= start:
            index += 1
        step = index
        while start < end:
            if step == len(covered) or covered[step][0] >= end:
                yield start, end
                break
            if covered[step][0] > start:
                yield start, covered[step][0]
            start = covered[step][1]
            step += 1


class MariadbGtidState(msgspec.Struct):
    """State of MariaDB: the last number of each domain and server."""

    last_numbers: dict[str, int] = msgspec.field(default_factory=dict)

    def extend(self, source: str, runs: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a domain and server, as half-open runs."""
        self.last_numbers[source] = max([self.last_numbers.get(source, 0), *(stop - 1 for _, stop in runs)])

    def find_missing(self, later: GtidState) -> list[GtidRange]:
        """Return what `later` has beyond this state, from the domain's highest number on."""
        if not isinstance(later, MariadbGtidState):
            return []
        highest = self._highest_by_domain()
        ranges = []
        for source, number in sorted(later.last_numbers.items()):
            if number > self.last_numbers.get(source, 0):
                domain_highest = highest.get(source.partition("-")[0], 0)
                ranges.append(
                    GtidRange(
                        source, min(max(domain_highest, self.last_numbers.get(source, 0)) + 1, number), number, True
                    )
                )
        return ranges

    def _highest_by_domain(self) -> Mapping[str, int]:
        """Return the highest number of each domain."""
        highest: dict[str, int] = {}
        for source, number in self.last_numbers.items():
            domain = source.partition("-")[0]
            highest[domain] = max(highest.get(domain, 0), number)
        return highest


def state_of_previous_gtids(sources: Iterable[PreviousGtids]) -> MysqlGtidState:
    """Return the state that a PREVIOUS_GTIDS event lists."""
    state = MysqlGtidState()
    for entry in sources:
        intervals = state.intervals.setdefault(format_source(entry.sid, entry.tag), [])
        intervals.extend(interval for interval in entry.intervals if interval[0] < interval[1])
    return MysqlGtidState({source: _merge_intervals(own) for source, own in state.intervals.items()})


def _merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals in order, with touching ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def state_of_gtid_list(entries: Iterable[ListedGtid]) -> MariadbGtidState:
    """Return the state that a GTID_LIST event lists."""
    return MariadbGtidState({f"{one.domain_id}-{one.server_id}": one.seq_no for one in entries})


def format_ranges(spans: Iterable[GtidRange], limit: int = 5) -> str:
    """Return GTID ranges in words, at most `limit` of them."""
    ranges = list(spans)
    more = f" and {len(ranges) - limit:,} more ranges" if len(ranges) > limit else ""
    return ", ".join(span.text for span in ranges[:limit]) + more


def ranges_to_json(spans: Iterable[GtidRange], limit: int = 100) -> dict[str, list[list[int]]]:
    """Return GTID ranges as JSON: source -> [first, last] of each range."""
    result: dict[str, list[list[int]]] = {}
    for span in list(spans)[:limit]:
        result.setdefault(span.source, []).append([span.first, span.last])
    return result
