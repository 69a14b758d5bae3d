"""GTID sets, GTID positions, and the GTID state at the head of a log file.

MySQL: `uuid:1-5:7,uuid:tag:3-9`; intervals include both ends, and a uuid or tag applies until the next one. MariaDB:
`0-1-42` is one GTID, `0-1-1..42` a run of sequence numbers of one domain and server, `0-1` all GTIDs of this domain and
server, and `0` all GTIDs of a domain. One list may contain both kinds; case and white space do not matter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from binlogtool.errors import UsageError
from binlogtool.format_api.format import GtidParsers, TransactionPredicate
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    ListedGtid,
    PreviousGtidsOfSource,
    format_gtid_source,
    format_range,
)

# --- Sets of integers as intervals ---

MAX_INTERVALS = 100_000
"""Maximum number of intervals in one set; numbers that would need more are not stored."""


class IntervalSet:
    """Set of integers; `is_full`: numbers were omitted because there were too many intervals."""

    __slots__ = ("_starts", "_stops", "is_full")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.is_full = False
        for start, stop in intervals:
            self.add_interval(start, stop)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the half-open intervals in order; they neither touch nor overlap."""
        return iter(zip(self._starts, self._stops, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def highest(self) -> int:
        """Highest number; 0 for an empty set."""
        return self._stops[-1] - 1 if self._stops else 0

    def count_numbers(self) -> int:
        """Return how many numbers are in the set."""
        return sum(self._stops) - sum(self._starts)

    def add_interval(self, start: int, stop: int) -> None:
        """Add the numbers `[start, stop)`."""
        if start >= stop:
            return
        if self._stops and start == self._stops[-1]:
            self._stops[-1] = stop
            return
        low = bisect_right(self._starts, start)
        if low and self._stops[low - 1] >= start:
            low -= 1
        high = bisect_right(self._starts, stop)
        if low == high and len(self._starts) >= MAX_INTERVALS:
            self.is_full = True
            return
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def iter_gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the half-open intervals of the gaps between the set's intervals."""
        return zip(self._stops[:-1], self._starts[1:], strict=True)

    def format_text(self, max_intervals: int = 100) -> str:
        """Return the set as MySQL writes it, `1-5:7`, with at most `max_intervals` intervals."""
        return ":".join(format_range(*one) for one in islice(self, max_intervals)) + (
            ":…" if len(self) > max_intervals else ""
        )


# --- GTID sets and positions as people write them for MySQL and MariaDB ---

_UUID = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_NUMBERS = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
_MARIADB = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?:-(\d{1,20})(?:\.\.(\d{1,20}))?)?)?")
_SPACE = re.compile(r"\s+")
_END_NUMBER = 1 << 64


class GtidSet(msgspec.Struct, frozen=True):
    """Sequence numbers by source (`uuid`, `uuid:tag`, or MariaDB's `domain-server`), and whole MariaDB domains."""

    sources: Mapping[str, IntervalSet]
    domains: frozenset[int] = frozenset()

    def __contains__(self, gtid: str | None) -> bool:
        source, number = split_gtid(gtid) if gtid is not None else ("", 0)
        intervals = self.sources.get(source)
        return (intervals is not None and number in intervals) or get_mariadb_domain(source) in self.domains


def split_gtid(gtid: str) -> tuple[str, int]:
    """Return (source, sequence number) of a GTID as records have it: "0-1-42", "uuid:7", "uuid:tag:7"."""
    source, colon, number = gtid.rpartition(":")
    if not colon:
        source, _, number = gtid.rpartition("-")
    return source, int(number) if number.isdecimal() else 0


def get_mariadb_domain(source: str) -> int | None:
    """Return the domain of a MariaDB source; None for a MySQL source."""
    domain, separator, server = source.partition("-")
    return int(domain) if separator and domain.isdecimal() and server.isdecimal() else None


def parse_gtid_set(text: str) -> GtidSet:
    """Parse a set of GTIDs. Raises UsageError: the text is not a set."""
    sources: dict[str, IntervalSet] = {}
    domains: set[int] = set()
    for item in _SPACE.sub("", text).lower().split(","):
        if ":" in item:
            _add_mysql_item(item, sources)
        elif item:
            _add_mariadb_item(item, sources, domains)
    if not sources and not domains:
        raise UsageError(f"{text!r} contains no GTID; write uuid:1-5 or 0-1-42")
    if any(intervals.is_full for intervals in sources.values()):
        raise UsageError("the set of GTIDs has too many gaps")
    return GtidSet(sources, frozenset(domains))


def _add_mysql_item(gtid_set_item: str, sources: dict[str, IntervalSet]) -> None:
    """Parse an item in MySQL's form, and add it to `sources`."""
    uuid_text, *parts = gtid_set_item.split(":")
    match = _UUID.fullmatch(uuid_text)
    if match is None:
        raise UsageError(f"{uuid_text!r} is not a UUID; write uuid:1-5:7 or uuid:tag:3-9")
    uuid = source = "-".join(match.groups())
    has_numbers = False
    for part in parts:
        numbers = _NUMBERS.fullmatch(part)
        if numbers:
            sources.setdefault(source, IntervalSet()).add_interval(
                *_parse_interval(numbers[1], numbers[2], gtid_set_item)
            )
            has_numbers = True
        elif _TAG.fullmatch(part):
            source, has_numbers = f"{uuid}:{part}", False
        else:
            raise UsageError(
                f"{gtid_set_item!r}: {part!r} is neither an interval nor a tag; write uuid:1-5:7 or uuid:tag:3-9"
            )
    if not has_numbers:
        raise UsageError(f"{gtid_set_item!r} ends without a sequence number; write {source}:1-5")


def _add_mariadb_item(gtid_set_item: str, sources: dict[str, IntervalSet], domains: set[int]) -> None:
    """Parse an item in MariaDB's form, and add it to `sources` or `domains`."""
    match = _MARIADB.fullmatch(gtid_set_item)
    if match is None:
        raise UsageError(f"{gtid_set_item!r} is not a GTID; write 0-1-42, 0-1-1..42, 0-1 (all of a server) or uuid:1-5")
    domain, server, first, last = match.groups()
    if server is None:
        domains.add(int(domain))
    else:
        bounds = (0, _END_NUMBER) if first is None else _parse_interval(first, last, gtid_set_item)
        sources.setdefault(f"{int(domain)}-{int(server)}", IntervalSet()).add_interval(*bounds)


def _parse_interval(first: str, last: str | None, item: str) -> tuple[int, int]:
    """Return the half-open interval from the first to the last number."""
    low, high = int(first), int(last or first)
    if high >= _END_NUMBER:
        raise UsageError(f"{item!r}: {high} is above the largest sequence number, {_END_NUMBER - 1}")
    if low > high:
        raise UsageError(f"{item!r}: empty interval from {low} to {high}")
    return low, high + 1


def format_gtid_set(gtids: GtidSet | Iterable[str]) -> str:
    """Return the shortest text of a set, or of single GTIDs: one item per source, in order."""
    if not isinstance(gtids, GtidSet):
        sources: dict[str, IntervalSet] = {}
        for source, number in map(split_gtid, gtids):
            sources.setdefault(source, IntervalSet()).add_interval(number, number + 1)
        gtids = GtidSet(sources)
    texts = [str(domain) for domain in sorted(gtids.domains)]
    return ",".join([*texts, *(_format_source(source, gtids.sources[source]) for source in sorted(gtids.sources))])


def _format_source(source: str, intervals: IntervalSet) -> str:
    """Return the numbers of one source as text."""
    if get_mariadb_domain(source) is None:
        return ":".join((source, *(format_range(low, high) for low, high in intervals)))
    if list(intervals) == [(0, _END_NUMBER)]:
        return source
    return ",".join(f"{source}-{format_range(low, high, '..')}" for low, high in intervals)


# -- selection ---------------------------------------------------------------------------------------------------------


def make_membership_predicate(gtid_set_text: str) -> TransactionPredicate:
    """Return a predicate: is a transaction in this set? Raises UsageError: the text is not a set."""
    return parse_gtid_set(gtid_set_text).__contains__


def make_after_position_predicate(position_text: str) -> TransactionPredicate:
    """Return a predicate: is a transaction after this position, so that a replica at the position still needs it?

    The text names at most one GTID per domain (MariaDB) or per uuid and tag (MySQL, where the highest number is used:
    `uuid:1-42` is `uuid:42`). All transactions of unnamed domains are after the position.

    Raises:
        UsageError: the text is not a position.
    """
    position = parse_gtid_position(position_text)

    def is_after(gtid: str | None) -> bool:
        if gtid is None:
            return False
        source, number = split_gtid(gtid)
        return number > position.get(_sequence_key(source), -1)

    return is_after


def make_until_position_predicate(position_text: str) -> TransactionPredicate:
    """Return a predicate: is a transaction not after this position? Always False for domains that it does not name.

    This is the rule of `mariadb-binlog`.

    Raises:
        UsageError: the text is not a position.
    """
    position = parse_gtid_position(position_text)

    def is_not_after(gtid: str | None) -> bool:
        source, number = split_gtid(gtid) if gtid is not None else ("", 0)
        return number <= position.get(_sequence_key(source), -1)

    return is_not_after


def _sequence_key(source: str) -> str:
    """Return the key along which numbers ascend: MariaDB's domain, MySQL's uuid and tag."""
    domain = get_mariadb_domain(source)
    return source if domain is None else str(domain)


def parse_gtid_position(position_text: str) -> dict[str, int]:
    """Parse a position: the last sequence number of each domain (MariaDB) or uuid and tag (MySQL).

    Raises:
        UsageError: the text is not a position.
    """
    gtids = parse_gtid_set(position_text)
    if gtids.domains:
        raise UsageError(
            f"position {position_text!r}: domain {min(gtids.domains)} has no sequence number; write 0-1-42"
        )
    position: dict[str, int] = {}
    for source, intervals in gtids.sources.items():
        key = _sequence_key(source)
        if key in position or (key != source and intervals.count_numbers() != 1):
            raise UsageError(f"position {position_text!r}: more than one sequence number for domain {key}")
        position[key] = intervals.highest
    return position


GTID_PARSERS = GtidParsers(make_membership_predicate, make_after_position_predicate, make_until_position_predicate)


# --- GTID states ---


class GtidRange(NamedTuple):
    """Consecutive GTIDs of one source, `last` included; `source`: "uuid", "uuid:tag", or "domain-server"."""

    source: str
    first: int
    last: int
    is_mariadb: bool

    @property
    def text(self) -> str:
        """The range in the form in which servers write GTIDs."""
        separator, until = ("-", f" to {self.source}-") if self.is_mariadb else (":", "-")
        return self.source + separator + format_range(self.first, self.last + 1, until)


class GtidState(Protocol):
    """Transactions that a log contains up to one position."""

    def add_intervals(self, source: str, intervals: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, given as half-open runs."""

    def list_transactions_only_in(self, later_state: GtidState) -> list[GtidRange]:
        """Return the transactions of `later_state` that this state lacks, in the order of source names."""


class MysqlGtidState(msgspec.Struct):
    """GTID state of MySQL: half-open intervals of numbers by source, ascending and disjoint."""

    intervals: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict)

    def add_intervals(self, source: str, intervals: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a source, given as half-open runs."""
        self.intervals[source] = _merge_intervals([*self.intervals.get(source, []), *intervals])

    def list_transactions_only_in(self, later_state: GtidState) -> list[GtidRange]:
        """Return the transactions of `later_state` that this state lacks."""
        if not isinstance(later_state, MysqlGtidState):
            return []
        return [
            GtidRange(source, low, high - 1, False)
            for source, own in sorted(later_state.intervals.items())
            for low, high in subtract_intervals(own, self.intervals.get(source, []))
        ]


def subtract_intervals(
    intervals: Iterable[tuple[int, int]], covered: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of `intervals` that `covered` does not cover; both must be ascending."""
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
    """GTID state of MariaDB: the last number of each domain and server."""

    last_numbers: dict[str, int] = msgspec.field(default_factory=dict)

    def add_intervals(self, source: str, intervals: Iterable[tuple[int, int]]) -> None:
        """Add transactions of a domain and server, given as half-open runs."""
        self.last_numbers[source] = max([self.last_numbers.get(source, 0), *(stop - 1 for _, stop in intervals)])

    def list_transactions_only_in(self, later_state: GtidState) -> list[GtidRange]:
        """Return the transactions of `later_state` that this state lacks, from the domain's highest number on."""
        if not isinstance(later_state, MariadbGtidState):
            return []
        highest = self._highest_numbers_by_domain()
        ranges = []
        for source, number in sorted(later_state.last_numbers.items()):
            if number > self.last_numbers.get(source, 0):
                domain_highest = highest.get(source.partition("-")[0], 0)
                ranges.append(
                    GtidRange(
                        source, min(max(domain_highest, self.last_numbers.get(source, 0)) + 1, number), number, True
                    )
                )
        return ranges

    def _highest_numbers_by_domain(self) -> Mapping[str, int]:
        """Return the highest number of each domain."""
        highest: dict[str, int] = {}
        for source, number in self.last_numbers.items():
            domain = source.partition("-")[0]
            highest[domain] = max(highest.get(domain, 0), number)
        return highest


def build_state_from_previous_gtids(sources: Iterable[PreviousGtidsOfSource]) -> MysqlGtidState:
    """Return the state that a PREVIOUS_GTIDS event lists."""
    state = MysqlGtidState()
    for entry in sources:
        intervals = state.intervals.setdefault(format_gtid_source(entry.sid, entry.tag), [])
        intervals.extend(interval for interval in entry.intervals if interval[0] < interval[1])
    return MysqlGtidState({source: _merge_intervals(own) for source, own in state.intervals.items()})


def _merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the intervals in order, with touching ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def build_state_from_gtid_list(entries: Iterable[ListedGtid]) -> MariadbGtidState:
    """Return the state that a GTID_LIST event lists."""
    return MariadbGtidState({f"{one.domain_id}-{one.server_id}": one.seq_no for one in entries})


def format_gtid_ranges(gtid_ranges: Iterable[GtidRange], max_shown: int = 5) -> str:
    """Format at most `max_shown` GTID ranges as text."""
    ranges = list(gtid_ranges)
    more = f" and {len(ranges) - max_shown:,} more ranges" if len(ranges) > max_shown else ""
    return ", ".join(span.text for span in ranges[:max_shown]) + more


def gtid_ranges_to_json(gtid_ranges: Iterable[GtidRange], max_ranges: int = 100) -> dict[str, list[list[int]]]:
    """Convert GTID ranges to JSON: source -> [first, last] of each range."""
    result: dict[str, list[list[int]]] = {}
    for span in list(gtid_ranges)[:max_ranges]:
        result.setdefault(span.source, []).append([span.first, span.last])
    return result
