"""Find the parts of a file that can hold selected groups from its GTID states alone.

See docs/spec/mariadb-innodb-binlog.md#9-gtid-position-search-gtid_searchfind_gtid_pos. A state lists the last
sequence
number of each (domain, server), and the numbers of a pair only grow. So the numbers between two states are known, and
a
part without selected numbers is not read. A part whose states cannot be read is read itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.binlog_events.gtid.sets import GtidSet, parse_position, parse_set
from binlogtool.formats.choosing import GtidDemand
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.judge.states import Pair, pairs
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import Place, parse_state
from binlogtool.formats.mariadb_innodb_binlog.records.store import Store, UnreadableError

_END = 1 << 64

Full = Mapping[Pair, int]


class _Wanted(msgspec.Struct, frozen=True):
    """The selected GTIDs as intervals.

    Attributes:
        start, stop: sequence numbers by domain.
    """

    start: Mapping[int, int] | None
    stop: Mapping[int, int] | None
    include: GtidSet | None

    def between(self, before: Full, after: Full) -> bool:
        """Check if any group after one state, up to another one, is selected."""
        return any(self._any(pair, before.get(pair, 0), number) for pair, number in after.items())

    def behind(self, before: Full) -> bool:
        """Check if a group after a state may be selected."""
        if self.include is None or self.include.domains:
            return True
        sources = (source.partition("-") for source in self.include.sources)
        known = ((int(domain), int(server)) for domain, _, server in sources if server.isdecimal())
        return any(self._any(pair, before.get(pair, 0), _END) for pair in known)

    def _any(self, pair: Pair, low: int, high: int) -> bool:
        """Check if a number in `(low, high]` of this pair is selected."""
        domain, server = pair
        if self.start is not None and domain in self.start:
            low = max(low, self.start[domain])
        if self.stop is not None:
            high = min(high, self.stop.get(domain, -1))
        if low >= high:
            return False
        if self.include is None or domain in self.include.domains:
            return True
        intervals = self.include.sources.get(f"{domain}-{server}", ())
        return any(start <= high and stop > low + 1 for start, stop in intervals)


def _wanted(demand: GtidDemand) -> _Wanted:
    start, stop = (None if text is None else parse_position(text) for text in (demand.start, demand.stop))
    by_domain = [None if one is None else {int(line): number for line, number in one.items() if line.isdecimal()}
                 for one in (start, stop)]  # fmt: skip
    return _Wanted(by_domain[0], by_domain[1], None if demand.include is None else parse_set(demand.include))


def seek(context: FileContext, demand: GtidDemand) -> list[tuple[int, int]] | None:
    """Return the parts `[start, end)` of a file that have to be read, in order; None = all of it.

    Raises:
        UsageError: the demand is not a valid position or set.
    """
    header, number, size = context.header, context.number, context.size
    if context.reserve:
        return []
    if header is None or number is None or size is None or context.read is None or header.file_no != number:
        return None
    search = _Search(context, Store(context), _wanted(demand), number)
    first = search.state(number, 1)
    if first is None:
        return None
    interval = header.diff_state_interval
    marks = list(range(interval, min(header.page_count, size // context.page_size), interval)) if interval else []
    found = search.parts([1, *marks], first, search.state(number + 1, 1), size)
    return _joined(found)


def _joined(parts: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for start, end in parts:
        if made and made[-1][1] == start:
            start = made.pop()[0]
        made.append((start, end))
    return made


class _Search(msgspec.Struct):
    """Reads the GTID states of one file."""

    context: FileContext
    store: Store
    wanted: _Wanted
    number: int

    def state(self, number: int, page: int) -> dict[Pair, int] | None:
        """Read the state stored at the start of a page; None if there is none that can be read."""
        place = Place(number, page * self.context.page_size)
        try:
            return pairs(parse_state(self.store.record(place, RecordType.GTID_STATE, self.context.max_record)))
        except (UnreadableError, MalformedError):
            return None

    def parts(self, marks: list[int], first: Full, last: Full | None, size: int) -> Iterator[tuple[int, int]]:
        """Iterate over the parts between state pages that may hold selected groups.

        Args:
            last: state after the file; None = unknown.
        """
        page_size = self.context.page_size
        pending: list[tuple[int, int, Full, Full | None]] = [(0, len(marks), first, last)]
        while pending:
            low, high, before, after = pending.pop()
            if not (self.wanted.behind(before) if after is None else self.wanted.between(before, after)):
                continue
            middle = (low + high) // 2
            between = self._full(first, marks[middle]) if high - low > 1 else None
            if between is not None:
                pending.append((middle, high, between, after))
                pending.append((low, middle, before, between))
            elif high - low > 1 and self._empty(marks[middle]):
                pending.append((low, middle, before, after))  # the log ends before this page
            else:
                yield marks[low] * page_size, marks[high] * page_size if high < len(marks) else size

    def _full(self, first: Full, page: int) -> Full | None:
        """Return the complete state at a page: that of the file's start, with the changes since."""
        changed = self.state(self.number, page)
        return None if changed is None else {**first, **changed}

    def _empty(self, page: int) -> bool:
        read, size = self.context.read, self.context.page_size
        return read is not None and not any(read(page * size, size))
