"""Selection of records in one pass over envelopes; positions are resolved once for each file."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.base import OutputRules
from binlogtool.formats.choosing import GtidParsers, GtidSelection, TransactionPredicate
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.layouts import Batch
from binlogtool.log.places import LogPosition, is_gtid_position, parse_position
from binlogtool.log.record_types import resolve_types
from binlogtool.log.select import Selection

if TYPE_CHECKING:
    from binlogtool.log.where import Condition
    from binlogtool.log.where_lines import CompiledCondition

RunNarrower = Callable[[int, int], Iterator[tuple[int, int]]]
"""Runs of records among those of a run."""

_GTID = "gtid:"


def find_runs(marks: Iterable[bool], start: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks as `[first, last)`; the first mark has number `start`."""
    for mark, group in groupby(marks):
        count = sum(1 for _ in group)
        if mark:
            yield start, start + count
        start += count


MAX_GAP = 16
"""So many records by compiled code cost no more than to call it."""


def join_runs(marks: Iterable[bool], gap: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks; those with at most `gap` others between them are joined."""
    low = high = 0
    for start, stop in find_runs(marks, 0):
        if start - high > gap:
            if high:
                yield low, high
            low = start
        elif not high:
            low = start
        high = stop
    if high:
        yield low, high


class RecordFilter(msgspec.Struct):
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
    start: LogPosition | None = None
    stop: LogPosition | None = None
    skipped: int = 0
    taken: int = 0
    started: bool = False
    over: bool = False
    transactions: list[TransactionPredicate] = msgspec.field(default_factory=list)
    where: Condition | None = None
    lines: CompiledCondition | None = None
    types: frozenset[str] = frozenset()
    matched: set[str] = msgspec.field(default_factory=set)
    _object_matches: dict[str, bool] = msgspec.field(default_factory=dict)
    _exclude_matches: dict[str, bool] = msgspec.field(default_factory=dict)
    _gtid_sets: list[tuple[str, TransactionPredicate]] = msgspec.field(default_factory=list)
    _checks_envelopes: bool = msgspec.field(default=False)
    _transaction_matches: dict[str | None, bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        s = self.selection
        self.types = frozenset(s.types)
        if s.where is not None:
            from binlogtool.log.where import compile_condition

            self.where = compile_condition(s.where)
        self._checks_envelopes = any(
            (
                s.types,
                s.objects,
                s.exclude_objects,
                s.origins,
                s.exclude_origins,
                s.xid,
                s.include_gtids,
                s.exclude_gtids,
                is_gtid_position(s.start),
                is_gtid_position(s.stop),
            )
        ) or (s.start_time, s.stop_time) != (None, None)

    def start_file(
        self,
        file_selection: Selection,
        size: int | None,
        output: OutputRules | None = None,
        page_size: int | None = None,
    ) -> None:
        """Start the next file of the log.

        Args:
            file_selection: the part of the selection that applies to it (`places.split_selection`).
            output: of its format.
            page_size: bytes of its pages, see `LogFileLayout.page_size`.

        Raises:
            UsageError: a position, set or type is invalid, or the format has no GTIDs.
        """
        gtids = None if output is None else output.gtid_rules
        if output is not None and self.selection.types:
            self.types = resolve_types(self.selection.types, output)
        self.start, self.stop = (
            None if text is None or is_gtid_position(text) else parse_position(text, size, page_size)
            for text in (file_selection.start, file_selection.stop)
        )
        self.transactions = list(_make_predicates(self.selection, gtids))
        self._gtid_sets = parse_included_sets(self.selection, gtids)
        self._transaction_matches.clear()

    @property
    def is_by_number_only(self) -> bool:
        """True when only the number of a record decides, so that envelopes are not needed."""
        return self.where is None and self.is_by_condition_only

    @property
    def is_by_condition_only(self) -> bool:
        """True when nothing but `where` looks at records."""
        return not self._checks_envelopes and self.start is None and self.stop is None

    @property
    def selects_all(self) -> bool:
        """True when every record is selected; records are not counted then."""
        return self.is_by_number_only and self.selection.limit is None and self.skipped >= self.selection.skip

    @property
    def is_done(self) -> bool:
        """True when no further record of this log is selected."""
        return self.over or self._is_limit_reached

    @property
    def _is_limit_reached(self) -> bool:
        limit = self.selection.limit
        return limit is not None and self.taken >= limit

    def select_runs(
        self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns | None, narrow: RunNarrower | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield runs `[first, last)` of selected records among `[start, stop)` of the batch.

        Args:
            envelope: None if `is_by_number_only`.
            narrow: applies `where` to a run.
        """
        if envelope is None or self.is_by_number_only:
            yield from self._limit_run(start, stop)
            return
        for first, last in self._select_by_envelope(batch, start, stop, envelope):
            yield from self.limit_runs(((first, last),) if narrow is None else narrow(first, last))
            if self._is_limit_reached:
                return

    def limit_runs(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Apply skip and limit to runs that everything else has selected."""
        for run in runs:
            yield from self._limit_run(*run)
            if self._is_limit_reached:
                return

    def _select_by_envelope(
        self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns
    ) -> Iterator[tuple[int, int]]:
        """Yield the runs that all options but counts and the condition leave."""
        if not self._checks_envelopes and self.start is None and self.stop is None:
            return iter(((start, stop),))
        return find_runs((self._is_selected(batch, i, envelope, i - start) for i in range(start, stop)), start)

    def _limit_run(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Apply skip and limit to one run."""
        skip = min(self.selection.skip - self.skipped, last - first)
        self.skipped += skip
        first += skip
        if self.selection.limit is not None:
            last = min(last, first + self.selection.limit - self.taken)
        if first < last:
            self.taken += last - first
            yield first, last

    def _is_selected(self, batch: Batch, index: int, envelope: EnvelopeColumns, index_in_envelope: int) -> bool:
        if not self._is_between_positions(batch, index, envelope, index_in_envelope):
            return False
        return not self._checks_envelopes or (
            self._is_in_time(envelope.time[index_in_envelope]) and self._matches_envelope(envelope, index_in_envelope)
        )

    def _is_in_time(self, time: int | None) -> bool:
        s = self.selection
        if s.once:
            return self._is_between_times(time)
        return (s.start_time is None or (time is not None and time >= s.start_time)) and (
            s.stop_time is None or (time is not None and time < s.stop_time)
        )

    def _is_between_times(self, time: int | None) -> bool:
        """Return True from the first record at the start time to the first at the stop time, in log order."""
        s = self.selection
        self.started = self.started or s.start_time is None or (time is not None and time >= s.start_time)
        if self.started and s.stop_time is not None and time is not None and time >= s.stop_time:
            self.over = True
        return self.started and not self.over

    def _is_between_positions(
        self, batch: Batch, index: int, envelope: EnvelopeColumns, index_in_envelope: int
    ) -> bool:
        return (
            self.start is None
            or self._position_value(self.start, batch, index, envelope, index_in_envelope) >= self.start.value
        ) and (
            self.stop is None
            or self._position_value(self.stop, batch, index, envelope, index_in_envelope) < self.stop.value
        )

    def _position_value(
        self, position: LogPosition, batch: Batch, index: int, envelope: EnvelopeColumns, index_in_envelope: int
    ) -> int:
        if position.kind == "seq":
            return envelope.seq[index_in_envelope] or 0
        container = batch.container_position(index)
        return container.record if position.kind == "record" else container.offset

    def _matches_envelope(self, envelope: EnvelopeColumns, index_in_envelope: int) -> bool:
        s = self.selection
        name, origin = envelope.object[index_in_envelope] or "", envelope.origin[index_in_envelope]
        return (
            (not s.objects or self._is_included_object(name))
            and (not s.types or envelope.type[index_in_envelope] in self.types)
            and not (s.exclude_objects and self._is_excluded_object(name))
            and (not s.origins or origin in s.origins)
            and (origin is None or origin not in s.exclude_origins)
            and (s.xid is None or str(envelope.txn[index_in_envelope]) == s.xid)
            and (not self.transactions or self._is_in_transactions(envelope.txn[index_in_envelope]))
        )

    def _is_included_object(self, name: str) -> bool:
        return self._matches_globs(self._object_matches, name, self.selection.objects)

    def _is_excluded_object(self, name: str) -> bool:
        return self._matches_globs(self._exclude_matches, name, self.selection.exclude_objects)

    def _matches_globs(self, cache: dict[str, bool], name: str, globs: Sequence[str]) -> bool:
        """Return True if a name matches one of the globs."""
        is_match = cache.get(name)
        if is_match is None:
            if len(cache) >= _MAX_CACHED:
                cache.clear()
            matching = {glob for glob in globs if fnmatch.fnmatchcase(name, glob)}
            self.matched |= matching
            is_match = cache[name] = bool(matching)
        return is_match

    @property
    def has_unmatched(self) -> bool:
        """True if the selection names objects or transactions that no record matched so far."""
        s = self.selection
        return not self.matched.issuperset((*s.objects, *s.exclude_objects, *split_sets(s.include_gtids)))

    def _is_in_transactions(self, txn: str | int | None) -> bool:
        name = None if txn is None else str(txn)
        is_match = self._transaction_matches.get(name)
        if is_match is None:
            if len(self._transaction_matches) >= _MAX_CACHED:
                self._transaction_matches.clear()
            is_match = self._transaction_matches[name] = all(wanted(name) for wanted in self.transactions)
            self.matched.update(text for text, wanted in self._gtid_sets if text not in self.matched and wanted(name))
        return is_match


_MAX_CACHED = 1024


def gtid_selection(selection: Selection) -> GtidSelection | None:
    """Return the GTID texts of a selection; None = it has none that would leave out a part of a log."""
    result = GtidSelection(
        _strip_gtid_prefix(selection.start), _strip_gtid_prefix(selection.stop), selection.include_gtids
    )
    return None if result == (None, None, None) else result


def _strip_gtid_prefix(position: str | None) -> str | None:
    return position.removeprefix(_GTID) if position is not None and is_gtid_position(position) else None


def _make_predicates(selection: Selection, gtids: GtidParsers | None) -> Iterator[TransactionPredicate]:
    """Yield predicates for GTID positions and sets; formats without GTID parsers have sets of names."""
    for option, text in (("--start-position", selection.start), ("--stop-position", selection.stop)):
        if text is not None and is_gtid_position(text):
            if gtids is None:
                raise UsageError(f"{option} {text}: this format has no GTIDs")
            parse = gtids.parse_after if option == "--start-position" else gtids.parse_until
            yield parse(text.removeprefix(_GTID))
    parse_set = _parse_names if gtids is None else gtids.parse_set
    if selection.include_gtids is not None:
        yield parse_set(selection.include_gtids)
    if selection.exclude_gtids is not None:
        yield _negate(parse_set(selection.exclude_gtids))


def split_sets(gtids: str | None) -> list[str]:
    """Split a list of transaction sets."""
    return [] if gtids is None else [one for one in map(str.strip, gtids.split(",")) if one]


def parse_included_sets(selection: Selection, gtids: GtidParsers | None) -> list[tuple[str, TransactionPredicate]]:
    """Return each of the transaction sets that a selection includes, with its predicate."""
    parse_set = _parse_names if gtids is None else gtids.parse_set
    return [(text, parse_set(text)) for text in split_sets(selection.include_gtids)]


def _parse_names(text: str) -> TransactionPredicate:
    return frozenset(text.split(",")).__contains__


def _negate(excluded: TransactionPredicate) -> TransactionPredicate:
    return lambda txn: not excluded(txn)
