"""Selection of records in one pass over envelopes; positions are resolved once for each file."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.base import Output
from binlogtool.formats.choosing import GtidDemand, GtidRules, Wanted
from binlogtool.formats.described import Described
from binlogtool.formats.layouts import Batch
from binlogtool.log.places import Position, by_gtid, parse_position
from binlogtool.log.record_types import matching_types
from binlogtool.log.select import Selection

if TYPE_CHECKING:
    from binlogtool.log.where import Where
    from binlogtool.log.where_lines import RowLines

Narrow = Callable[[int, int], Iterator[tuple[int, int]]]
"""Runs of records among those of a run."""

_GTID = "gtid:"


def runs_of(marks: Iterable[bool], start: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks as `[first, last)`; the first mark has number `start`."""
    for mark, some in groupby(marks):
        count = sum(1 for _ in some)
        if mark:
            yield start, start + count
        start += count


GAP = 16
"""So many records by compiled code cost no more than to call it."""


def spans(marks: Iterable[bool], gap: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks; those with at most `gap` others between them are joined."""
    low = high = 0
    for start, stop in runs_of(marks, 0):
        if start - high > gap:
            if high:
                yield low, high
            low = start
        elif not high:
            low = start
        high = stop
    if high:
        yield low, high


class Filter(msgspec.Struct):
    """Select the records of one file. `taken` and `skipped` continue over the files of a set: share one instance.

    Attributes:
        start, stop: the positions in the current file.
        transactions: conditions on the transaction of a record, from GTID positions and sets.
        started, over: where times are applied `once`: whether the first, the last one was reached.
        lines: compiled `where` for the current file.
        types: the selected types of its format.
        matched: the object globs, and the sets of included transactions, that some record matched so far.
    """

    selection: Selection
    start: Position | None = None
    stop: Position | None = None
    skipped: int = 0
    taken: int = 0
    started: bool = False
    over: bool = False
    transactions: list[Wanted] = msgspec.field(default_factory=list)
    where: Where | None = None
    lines: RowLines | None = None
    types: frozenset[str] = frozenset()
    matched: set[str] = msgspec.field(default_factory=set)
    _named: dict[str, bool] = msgspec.field(default_factory=dict)
    _excluded: dict[str, bool] = msgspec.field(default_factory=dict)
    _sets: list[tuple[str, Wanted]] = msgspec.field(default_factory=list)
    _checks: bool = msgspec.field(default=False)
    _known: dict[str | None, bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        s = self.selection
        self.types = frozenset(s.types)
        if s.where is not None:
            from binlogtool.log.where import where

            self.where = where(s.where)
        self._checks = any(
            (
                s.types,
                s.objects,
                s.exclude_objects,
                s.origins,
                s.exclude_origins,
                s.xid,
                s.include_gtids,
                s.exclude_gtids,
                by_gtid(s.start),
                by_gtid(s.stop),
            )
        ) or (s.start_time, s.stop_time) != (None, None)

    def begin(self, share: Selection, size: int | None, output: Output | None = None, page: int | None = None) -> None:
        """Start the next file of the log.

        Args:
            share: the part of the selection that applies to it (`places.split_selection`).
            output: of its format.
            page: bytes of its pages, see `LogFileLayout.page_size`.

        Raises:
            UsageError: a position, set or type is invalid, or the format has no GTIDs.
        """
        gtids = None if output is None else output.gtids
        if output is not None and self.selection.types:
            self.types = matching_types(self.selection.types, output)
        self.start, self.stop = (
            None if text is None or by_gtid(text) else parse_position(text, size, page)
            for text in (share.start, share.stop)
        )
        self.transactions = list(_of_transactions(self.selection, gtids))
        self._sets = sets_of(self.selection, gtids)
        self._known.clear()

    @property
    def takes_any(self) -> bool:
        """True when only the number of a record decides, so that envelopes are not needed."""
        return self.where is None and self.only_where

    @property
    def only_where(self) -> bool:
        """True when nothing but `where` looks at records."""
        return not self._checks and self.start is None and self.stop is None

    @property
    def takes_all(self) -> bool:
        """True when every record is selected; records are not counted then."""
        return self.takes_any and self.selection.limit is None and self.skipped >= self.selection.skip

    @property
    def done(self) -> bool:
        """True when no further record of this log is selected."""
        return self.over or self._full

    @property
    def _full(self) -> bool:
        limit = self.selection.limit
        return limit is not None and self.taken >= limit

    def runs(
        self, batch: Batch, start: int, stop: int, envelope: Described | None, narrow: Narrow | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield runs `[first, last)` of selected records among `[start, stop)` of the batch.

        Args:
            envelope: None if `is_by_number_only`.
            narrow: applies `where` to a run.
        """
        if envelope is None or self.takes_any:
            yield from self._counted(start, stop)
            return
        for first, last in self._chosen(batch, start, stop, envelope):
            yield from self.counted(((first, last),) if narrow is None else narrow(first, last))
            if self._full:
                return

    def counted(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Apply skip and limit to runs that everything else has selected."""
        for run in runs:
            yield from self._counted(*run)
            if self._full:
                return

    def _chosen(self, batch: Batch, start: int, stop: int, envelope: Described) -> Iterator[tuple[int, int]]:
        """Yield the runs that all options but counts and the condition leave."""
        if not self._checks and self.start is None and self.stop is None:
            return iter(((start, stop),))
        return runs_of((self._wants(batch, i, envelope, i - start) for i in range(start, stop)), start)

    def _counted(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Apply skip and limit to one run."""
        skip = min(self.selection.skip - self.skipped, last - first)
        self.skipped += skip
        first += skip
        if self.selection.limit is not None:
            last = min(last, first + self.selection.limit - self.taken)
        if first < last:
            self.taken += last - first
            yield first, last

    def _wants(self, batch: Batch, index: int, e: Described, i: int) -> bool:
        if not self._between(batch, index, e, i):
            return False
        return not self._checks or (self._in_time(e.time[i]) and self._matches(e, i))

    def _in_time(self, time: int | None) -> bool:
        s = self.selection
        if s.once:
            return self._in_turn(time)
        return (s.start_time is None or (time is not None and time >= s.start_time)) and (
            s.stop_time is None or (time is not None and time < s.stop_time)
        )

    def _in_turn(self, time: int | None) -> bool:
        """Return True from the first record at the start time to the first at the stop time, in log order."""
        s = self.selection
        self.started = self.started or s.start_time is None or (time is not None and time >= s.start_time)
        if self.started and s.stop_time is not None and time is not None and time >= s.stop_time:
            self.over = True
        return self.started and not self.over

    def _between(self, batch: Batch, index: int, e: Described, i: int) -> bool:
        return (self.start is None or self._at(self.start, batch, index, e, i) >= self.start.value) and (
            self.stop is None or self._at(self.stop, batch, index, e, i) < self.stop.value
        )

    def _at(self, position: Position, batch: Batch, index: int, e: Described, i: int) -> int:
        if position.kind == "seq":
            return e.seq[i] or 0
        place = batch.place_of(index)
        return place.record if position.kind == "record" else place.offset

    def _matches(self, e: Described, i: int) -> bool:
        s = self.selection
        name, origin = e.object[i] or "", e.origin[i]
        return (
            (not s.objects or self._is_named(name))
            and (not s.types or e.type[i] in self.types)
            and not (s.exclude_objects and self._is_excluded(name))
            and (not s.origins or origin in s.origins)
            and (origin is None or origin not in s.exclude_origins)
            and (s.xid is None or str(e.txn[i]) == s.xid)
            and (not self.transactions or self._in_transaction(e.txn[i]))
        )

    def _is_named(self, name: str) -> bool:
        return self._fits(self._named, name, self.selection.objects)

    def _is_excluded(self, name: str) -> bool:
        return self._fits(self._excluded, name, self.selection.exclude_objects)

    def _fits(self, known: dict[str, bool], name: str, globs: Sequence[str]) -> bool:
        """Return True if a name matches one of the globs."""
        fits = known.get(name)
        if fits is None:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            found = {glob for glob in globs if fnmatch.fnmatchcase(name, glob)}
            self.matched |= found
            fits = known[name] = bool(found)
        return fits

    @property
    def unmatched(self) -> bool:
        """True if the selection names objects or transactions that no record matched so far."""
        s = self.selection
        return not self.matched.issuperset((*s.objects, *s.exclude_objects, *items_of(s.include_gtids)))

    def _in_transaction(self, txn: str | int | None) -> bool:
        name = None if txn is None else str(txn)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[name] = all(wanted(name) for wanted in self.transactions)
            self.matched.update(text for text, wanted in self._sets if text not in self.matched and wanted(name))
        return known


_MOST_KNOWN = 1024


def gtid_demand(s: Selection) -> GtidDemand | None:
    """Return the GTID texts of a selection; None = it has none that would leave out a part of a log."""
    demand = GtidDemand(_gtid_text(s.start), _gtid_text(s.stop), s.include_gtids)
    return None if demand == (None, None, None) else demand


def _gtid_text(position: str | None) -> str | None:
    return position.removeprefix(_GTID) if position is not None and by_gtid(position) else None


def _of_transactions(s: Selection, gtids: GtidRules | None) -> Iterator[Wanted]:
    """Yield predicates for GTID positions and sets; formats without GTID parsers have sets of names."""
    for option, text in (("--start-position", s.start), ("--stop-position", s.stop)):
        if text is not None and by_gtid(text):
            if gtids is None:
                raise UsageError(f"{option} {text}: this format has no GTIDs")
            rule = gtids.after if option == "--start-position" else gtids.until
            yield rule(text.removeprefix(_GTID))
    within = _named if gtids is None else gtids.within
    if s.include_gtids is not None:
        yield within(s.include_gtids)
    if s.exclude_gtids is not None:
        yield _others(within(s.exclude_gtids))


def items_of(gtids: str | None) -> list[str]:
    """Split a list of transaction sets."""
    return [] if gtids is None else [one for one in map(str.strip, gtids.split(",")) if one]


def sets_of(selection: Selection, gtids: GtidRules | None) -> list[tuple[str, Wanted]]:
    """Return each of the transaction sets that a selection includes, with its predicate."""
    within = _named if gtids is None else gtids.within
    return [(text, within(text)) for text in items_of(selection.include_gtids)]


def _named(text: str) -> Wanted:
    return frozenset(text.split(",")).__contains__


def _others(excluded: Wanted) -> Wanted:
    return lambda txn: not excluded(txn)
