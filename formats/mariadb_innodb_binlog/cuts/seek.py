"""Find the parts of a file that can hold selected groups from its GTID states alone.

See docs/spec/mariadb_innodb_binlog.md#gtid-position-search. A state lists the last
sequence
number of each (domain, server), and the numbers of a pair only grow. So the numbers between two states are known, and a
part without selected numbers is not read. A part whose states cannot be read is read itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.binlog_events.gtid.sets import GtidSet, parse_gtid_position, parse_gtid_set
from binlogtool.formats.choosing import GtidSelection
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.judge.states import DomainServer, state_numbers
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbPosition, parse_state
from binlogtool.formats.mariadb_innodb_binlog.records.store import PageStore, UnreadableError

_MAX_NUMBER = 1 << 64

GtidState = Mapping[DomainServer, int]


class _GtidSelection(msgspec.Struct, frozen=True):
    """The selected GTIDs as intervals.

    Attributes:
        start, stop: sequence numbers by domain.
    """

    start: Mapping[int, int] | None
    stop: Mapping[int, int] | None
    include: GtidSet | None

    def selects_between(self, before: GtidState, after: GtidState) -> bool:
        """Check if any group after one state, up to another one, is selected."""
        return any(self._selects_number(pair, before.get(pair, 0), number) for pair, number in after.items())

    def may_select_after(self, before: GtidState) -> bool:
        """Check if a group after a state may be selected."""
        if self.include is None or self.include.domains:
            return True
        sources = (source.partition("-") for source in self.include.sources)
        known_pairs = ((int(domain), int(server)) for domain, _, server in sources if server.isdecimal())
        return any(self._selects_number(pair, before.get(pair, 0), _MAX_NUMBER) for pair in known_pairs)

    def _selects_number(self, pair: DomainServer, low: int, high: int) -> bool:
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


def _parse_selection(demand: GtidSelection) -> _GtidSelection:
    start, stop = (None if text is None else parse_gtid_position(text) for text in (demand.start, demand.stop))
    by_domain = [None if one is None else {int(line): number for line, number in one.items() if line.isdecimal()}
                 for one in (start, stop)]  # fmt: skip
    return _GtidSelection(
        by_domain[0], by_domain[1], None if demand.include is None else parse_gtid_set(demand.include)
    )


def find_selected_parts(context: IbbFileContext, demand: GtidSelection) -> list[tuple[int, int]] | None:
    """Return the parts `[start, end)` of a file that have to be read, in order; None = all of it.

    Raises:
        UsageError: the demand is not a valid position or set.
    """
    header, number, size = context.header, context.number, context.size
    if context.is_preallocated:
        return []
    if header is None or number is None or size is None or context.read is None or header.file_no != number:
        return None
    search = _StateSearch(context, PageStore(context), _parse_selection(demand), number)
    first = search.read_state(number, 1)
    if first is None:
        return None
    interval = header.diff_state_interval
    state_pages = list(range(interval, min(header.page_count, size // context.page_size), interval)) if interval else []
    parts = search.iter_parts([1, *state_pages], first, search.read_state(number + 1, 1), size)
    return _join_adjacent_parts(parts)


def _join_adjacent_parts(parts: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in parts:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


class _StateSearch(msgspec.Struct):
    """Reads the GTID states of one file."""

    context: IbbFileContext
    store: PageStore
    selection: _GtidSelection
    number: int

    def read_state(self, number: int, page: int) -> dict[DomainServer, int] | None:
        """Read the state stored at the start of a page; None if there is none that can be read."""
        position = IbbPosition(number, page * self.context.page_size)
        try:
            return state_numbers(
                parse_state(self.store.read_record(position, IbbRecordType.GTID_STATE, self.context.max_record))
            )
        except (UnreadableError, MalformedError):
            return None

    def iter_parts(
        self, state_pages: list[int], first: GtidState, last: GtidState | None, size: int
    ) -> Iterator[tuple[int, int]]:
        """Iterate over the parts between state pages that may hold selected groups.

        Args:
            last: state after the file; None = unknown.
        """
        page_size = self.context.page_size
        pending: list[tuple[int, int, GtidState, GtidState | None]] = [(0, len(state_pages), first, last)]
        while pending:
            low, high, before, after = pending.pop()
            if not (
                self.selection.may_select_after(before)
                if after is None
                else self.selection.selects_between(before, after)
            ):
                continue
            middle = (low + high) // 2
            between = self._full_state(first, state_pages[middle]) if high - low > 1 else None
            if between is not None:
                pending.append((middle, high, between, after))
                pending.append((low, middle, before, between))
            elif high - low > 1 and self._is_empty_page(state_pages[middle]):
                pending.append((low, middle, before, after))  # the log ends before this page
            else:
                yield state_pages[low] * page_size, state_pages[high] * page_size if high < len(state_pages) else size

    def _full_state(self, first: GtidState, page: int) -> GtidState | None:
        """Return the complete state at a page: that of the file's start, with the changes since."""
        changed = self.read_state(self.number, page)
        return None if changed is None else {**first, **changed}

    def _is_empty_page(self, page: int) -> bool:
        read, size = self.context.read, self.context.page_size
        return read is not None and not any(read(page * size, size))
