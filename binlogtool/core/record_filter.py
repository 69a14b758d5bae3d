"""Apply a selection to the envelope columns of records; resolve the type names given by users."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.core.record_and_selection_types import (
    LogPosition,
    RecordBlock,
    Selection,
    is_gtid_position,
    parse_position,
)
from binlogtool.errors import UsageError, format_name_suggestions
from binlogtool.format_api.format import (
    EnvelopeColumns,
    GtidParsers,
    GtidSelection,
    OutputRules,
    TableStatement,
    TransactionPredicate,
)
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.core.apply_where import CompiledCondition
    from binlogtool.core.decode_batches import BlockDecoder
    from binlogtool.format_api.layout import Batch
    from binlogtool.query.evaluate import Condition


# --- Record types by the names that users write ---

_UNKNOWN_TYPE = re.compile(r"(?:TYPE_)?\d+\Z")
"""Pattern of the names of types that the format does not know: their numbers."""

_FILE_TYPES = frozenset({"ENCRYPTED"})
"""Record types that every format can have: that of encrypted records without a key."""


def resolve_type_names(names: Sequence[str], output: OutputRules) -> frozenset[str]:
    """Return the types of a format that match these names. Raises UsageError: no format has a type of that name."""
    types_by_name = {name.upper(): frozenset({name}) for name in (*output.types.values(), *_FILE_TYPES)}
    types_by_name |= {name.upper(): types for name, types in output.type_groups.items()}
    resolved = frozenset[str]()
    for name in names:
        types = types_by_name.get(name.upper())
        if types is None and not _UNKNOWN_TYPE.match(name.upper()):
            _require_known_type_name(name, types_by_name)
        resolved |= types or frozenset({name})
    return resolved


def _require_known_type_name(type_name: str, format_names: Iterable[str]) -> None:
    """Raise UsageError unless some format has a record type or group of this name."""
    from binlogtool import formats

    outputs = [known.output for known in formats.iter_formats()]
    if not any(type_name.upper() in map(str.upper, (*one.types.values(), *one.type_groups)) for one in outputs):
        if "," in type_name:
            raise UsageError(f"--type {type_name}: one record type for each option; repeat --type")
        raise UsageError(
            f"--type {type_name}: unknown record type{format_name_suggestions(type_name, format_names)}; --type "
            "list shows them"
        )


# --- Selection of records in one pass over envelopes ---

ColumnReader = Callable[[str, int, int], Sequence[Any]]
"""Function (name, first, last) that returns an envelope column of the records `[first, last)`."""

RunNarrower = Callable[[int, int], Iterator[tuple[int, int]]]
"""Function that returns the selected runs of records inside a run."""

_GTID = "gtid:"


def find_marked_runs(marks: Iterable[bool], start: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks as `[first, last)`; the first mark has number `start`."""
    for mark, group in groupby(marks):
        count = sum(1 for _ in group)
        if mark:
            yield start, start + count
        start += count


MAX_GAP = 16
"""Maximum gap, in records, for which it is cheaper to let compiled code read the gap than to call it again."""


def join_marked_runs(marks: Iterable[bool], max_gap: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set marks; join runs with at most `max_gap` unset marks between them."""
    low = high = 0
    for start, stop in find_marked_runs(marks, 0):
        if start - high > max_gap:
            if high:
                yield low, high
            low = start
        elif not high:
            low = start
        high = stop
    if high:
        yield low, high


def _get_record_number_or_offset(batch: Batch, kind: str, index: int) -> int:
    """Return the number or the offset of a record; for a record inside a container, that of the container."""
    container = batch.container_position(index)
    return container.record if kind == "record" else container.offset


def _find_consecutive_runs(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive indexes as `[first, last)`."""
    if len(indexes) and indexes[-1] - indexes[0] == len(indexes) - 1:
        yield indexes[0], indexes[-1] + 1
        return
    for _, group in groupby(enumerate(indexes), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        yield run[0], run[-1] + 1


class RecordFilter(msgspec.Struct):
    """Select the records of one file. `taken` and `skipped` continue over the files of a set: share one instance.

    Attributes:
        start, stop: the parsed positions in the current file.
        transactions: conditions on the transaction of a record, from GTID positions and sets.
        started, over: with times applied `once`: whether the start time, the stop time was reached.
        lines: the compiled `where` condition for the current file.
        types: the selected types of the current file's format.
        matched: the object globs, and the sets of included transactions, that some record matched so far.
        inside: messages about positions inside a record.
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
    limits: Limits = Limits()
    matched: set[str] = msgspec.field(default_factory=set)
    inside: dict[str, str] = msgspec.field(default_factory=dict)
    _find_statements: Callable[..., Iterator[TableStatement]] | None = None
    _object_matches: dict[str, bool] = msgspec.field(default_factory=dict)
    _exclude_matches: dict[str, bool] = msgspec.field(default_factory=dict)
    _gtid_sets: list[tuple[str, TransactionPredicate]] = msgspec.field(default_factory=list)
    _checks_envelopes: bool = msgspec.field(default=False)
    _transaction_matches: dict[str | None, bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        s = self.selection
        self.types = frozenset(s.types)
        if s.where is not None:
            from binlogtool.query.evaluate import compile_condition

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
            file_selection: the part of the selection that applies to this file
                (`core.record_and_selection_types.limit_selection_to_files`).
            output: the output rules of the file's format.
            page_size: bytes of a page of the file, see `LogFileLayout.page_size`.

        Raises:
            UsageError: a position, set or type is invalid, or the format has no GTIDs.
        """
        gtids = None if output is None else output.gtid_rules
        if output is not None and self.selection.types:
            self.types = resolve_type_names(self.selection.types, output)
        self._find_statements = output.find_statements if output is not None and self.selection.statements else None
        self.start, self.stop = (
            None if text is None or is_gtid_position(text) else parse_position(text, size, page_size)
            for text in (file_selection.start, file_selection.stop)
        )
        self.transactions = list(_make_predicates(self.selection, gtids))
        self._gtid_sets = parse_selected_gtid_sets(self.selection, gtids)
        self._transaction_matches.clear()

    def is_outside_positions(self, start: int, end: int) -> bool:
        """Return whether the positions leave out the bytes `[start, end)` of the file."""
        is_before = self.start is not None and self.start.kind == "offset" and end <= self.start.value
        return is_before or (self.stop is not None and self.stop.kind == "offset" and start >= self.stop.value)

    @property
    def is_by_record_number_only(self) -> bool:
        """True when the selection depends only on record numbers, so that envelopes are not needed."""
        return self.where is None and self.is_by_where_only

    @property
    def is_by_where_only(self) -> bool:
        """True when `where` is the only condition."""
        return not self._checks_envelopes and self.start is None and self.stop is None

    @property
    def selects_all(self) -> bool:
        """True when every record is selected; records are not counted then."""
        return self.is_by_record_number_only and self.selection.limit is None and self.skipped >= self.selection.skip

    @property
    def is_done(self) -> bool:
        """True when no further record of this log is selected."""
        return self.over or self._is_limit_reached

    @property
    def _is_limit_reached(self) -> bool:
        limit = self.selection.limit
        return limit is not None and self.taken >= limit

    def select_runs(
        self,
        batch: Batch,
        start: int,
        stop: int,
        envelope: EnvelopeColumns | None,
        narrow_by_condition: RunNarrower | None = None,
    ) -> Iterator[tuple[int, int]]:
        """Yield runs `[first, last)` of selected records among `[start, stop)` of the batch.

        Args:
            envelope: the envelopes of the records; None if `is_by_record_number_only`.
            narrow_by_condition: applies `where` to a run.
        """
        if envelope is None or self.is_by_record_number_only:
            yield from self._limit_run(start, stop)
            return
        for first, last in self._select_by_envelope(batch, start, stop, envelope):
            yield from self.apply_skip_and_limit(
                ((first, last),) if narrow_by_condition is None else narrow_by_condition(first, last)
            )
            if self._is_limit_reached:
                return

    @property
    def is_by_envelope_only(self) -> bool:
        """True when the selection depends on neither `where` nor record numbers."""
        return self.where is None and self.selection.limit is None and self.skipped >= self.selection.skip

    @property
    def is_by_envelope_names_only(self) -> bool:
        """True when the selection depends on the envelopes only, and on objects, types or origins among them."""
        s = self.selection
        has_names = s.objects or s.exclude_objects or s.types or s.origins or s.exclude_origins
        return bool(has_names) and self.is_by_envelope_only

    def make_selection_mask(self, batch: Batch, read_column: ColumnReader) -> bytes:
        """Return a byte for each record of the batch, 1 for the selected ones; requires `is_by_envelope_only`."""
        marks = bytearray(batch.records.count)
        for index in self._find_selected(batch, 0, batch.records.count, read_column):
            marks[index] = 1
        return bytes(marks)

    def apply_skip_and_limit(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Apply skip and limit to runs that are selected by all other options."""
        for run in runs:
            yield from self._limit_run(*run)
            if self._is_limit_reached:
                return

    def _select_by_envelope(
        self, batch: Batch, start: int, stop: int, envelope: EnvelopeColumns
    ) -> Iterator[tuple[int, int]]:
        """Yield the runs that match all options except counts and the condition."""
        if not self._checks_envelopes and self.start is None and self.stop is None:
            return iter(((start, stop),))

        def read_column(name: str, first: int, last: int) -> Sequence[Any]:
            column: Sequence[Any] = getattr(envelope, name)
            return column[first - start : last - start]

        return _find_consecutive_runs(self._find_selected(batch, start, stop, read_column))

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

    def _find_selected(self, batch: Batch, start: int, stop: int, read_column: ColumnReader) -> Sequence[int]:
        """Return the indexes of the records `[start, stop)` that match all options except counts and the condition."""
        indexes = self._find_indexes_between_positions(batch, start, stop, read_column)
        statements = (
            self._find_statements_naming_selected_objects(batch, start, stop)
            if self.selection.statements == "also"
            else frozenset()
        )
        for name, matches in self._iter_column_tests():
            if not indexes:
                break
            column, first = read_column(name, indexes[0], indexes[-1] + 1), indexes[0]
            others = statements if name == "object" else frozenset()
            indexes = [index for index in indexes if matches(column[index - first]) or index in others]
        if self.selection.statements == "only" and indexes:
            indexes = sorted(
                self._find_statements_naming_selected_objects(batch, indexes[0], indexes[-1] + 1).intersection(indexes)
            )
        return indexes

    def has_no_statements(self, batch: Batch, start: int, stop: int) -> bool:
        """Return True if only statements are selected, whatever their transaction, and `[start, stop)` has none."""
        s = self.selection
        needs_transactions = self.transactions or s.xid is not None or s.origins or s.exclude_origins
        return (
            s.statements == "only"
            and not needs_transactions
            and not self._find_statements_naming_selected_objects(batch, start, stop)
        )

    def _find_statements_naming_selected_objects(self, batch: Batch, start: int, stop: int) -> frozenset[int]:
        """Return the indexes of the statements among `[start, stop)` that name selected objects."""
        s = self.selection
        if self._find_statements is None or not s.objects:
            return frozenset()
        names = [name for name in s.objects if not _GLOB.search(name)]
        return frozenset(
            statement.batch_index
            for statement in self._find_statements(batch, start, stop, names, self.limits)
            if (statement.changes_rows or s.statements == "also")
            and any(self._is_included_object(name) and not self._is_excluded_object(name) for name in statement.tables)
        )

    def _find_indexes_between_positions(
        self, batch: Batch, start: int, stop: int, read_column: ColumnReader
    ) -> Sequence[int]:
        """Return the indexes of the records in `[start, stop)` that the start and stop position allow."""
        indexes: Sequence[int] = range(start, stop)
        for position, is_start in ((self.start, True), (self.stop, False)):
            if position is None:
                continue
            if position.kind == "seq":
                column = read_column("seq", start, stop)
                indexes = [i for i in indexes if ((column[i - start] or 0) >= position.value) is is_start]
                continue
            locate = partial(_get_record_number_or_offset, batch, position.kind)
            if position.kind == "offset":
                self._report_position_inside_record(batch, position.value, is_start=is_start)
            if batch.positions is None and isinstance(indexes, range):
                at = bisect_left(indexes, position.value, key=locate)
                indexes = indexes[at:] if is_start else indexes[:at]
            else:
                indexes = [i for i in indexes if (locate(i) >= position.value) is is_start]
        return indexes

    def _report_position_inside_record(self, batch: Batch, offset: int, *, is_start: bool) -> None:
        """Note a position that lies inside a record of the batch: records are selected by where they begin."""
        count = batch.records.count
        if batch.positions is not None or not count or not _get_record_number_or_offset(batch, "offset", 0) < offset:
            return
        index = bisect_left(range(count), offset, key=partial(_get_record_number_or_offset, batch, "offset")) - 1
        container = batch.container_position(index)
        end = container.offset + container.size
        if offset < end:
            option, outcome = ("start", "is left out") if is_start else ("stop", "is selected")
            self.inside[option] = (
                f"--{option}-position {offset:,}: no record begins there; it is inside the record from "
                f"{container.offset:,} to {end:,}, which {outcome}"
            )

    def _iter_column_tests(self) -> Iterator[tuple[str, Callable[[Any], bool]]]:
        """Yield the envelope columns that the selection depends on, each with its test."""
        s = self.selection
        if s.start_time is not None or s.stop_time is not None:
            yield "time", self._is_between_times_in_log_order if s.once else self._is_in_time
        if s.objects and s.statements != "only":
            yield "object", self._is_included_object
        if s.types:
            yield "type", self.types.__contains__
        if s.exclude_objects and s.statements != "only":
            yield "object", lambda name: not self._is_excluded_object(name)
        if s.origins:
            yield "origin", s.origins.__contains__
        if s.exclude_origins:
            yield "origin", lambda origin: origin not in s.exclude_origins
        if s.xid is not None:
            yield "txn", lambda txn: str(txn) == s.xid
        if self.transactions:
            yield "txn", self._is_in_transactions

    def _is_in_time(self, time: int | None) -> bool:
        s = self.selection
        return (s.start_time is None or (time is not None and time >= s.start_time)) and (
            s.stop_time is None or (time is not None and time < s.stop_time)
        )

    def _is_between_times_in_log_order(self, time: int | None) -> bool:
        """Return True from the first record at the start time to the first at the stop time, in log order."""
        s = self.selection
        self.started = self.started or s.start_time is None or (time is not None and time >= s.start_time)
        if self.started and s.stop_time is not None and time is not None and time >= s.stop_time:
            self.over = True
        return self.started and not self.over

    def _is_included_object(self, name: str | None) -> bool:
        return self._match_globs_cached(self._object_matches, name or "", self.selection.objects)

    def _is_excluded_object(self, name: str | None) -> bool:
        return self._match_globs_cached(self._exclude_matches, name or "", self.selection.exclude_objects)

    def _match_globs_cached(self, cache: dict[str, bool], name: str, globs: Sequence[str]) -> bool:
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
    def has_unmatched_names(self) -> bool:
        """True if the selection names objects or transactions that no record matched so far."""
        s = self.selection
        excluded = split_gtid_sets(s.exclude_gtids)
        if excluded and self.matched.isdisjoint(excluded):
            return True
        names = (*s.objects, *s.exclude_objects, *(text for text, _ in self._gtid_sets if text not in excluded))
        return not self.matched.issuperset(names)

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
_GLOB = re.compile(r"[*?\[]")


def extract_gtid_selection(selection: Selection) -> GtidSelection | None:
    """Return the GTID texts of a selection; None = no GTID option that leaves out a part of a log."""
    result = GtidSelection(
        _strip_gtid_prefix(selection.start), _strip_gtid_prefix(selection.stop), selection.include_gtids
    )
    return None if result == (None, None, None) else result


def _strip_gtid_prefix(position: str | None) -> str | None:
    return position.removeprefix(_GTID) if position is not None and is_gtid_position(position) else None


def _make_predicates(selection: Selection, gtids: GtidParsers | None) -> Iterator[TransactionPredicate]:
    """Yield predicates for GTID positions and sets; in formats without GTID parsers, sets are names."""
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


def split_gtid_sets(gtids: str | None) -> list[str]:
    """Split the text of a list of transaction sets."""
    return [] if gtids is None else [one for one in map(str.strip, gtids.split(",")) if one]


def split_position_gtids(position: str | None) -> list[str]:
    """Split the GTIDs of a position; a position of another kind has none."""
    return split_gtid_sets(_strip_gtid_prefix(position))


NUMBERED_GTID = re.compile(r"(.*[-:])(\d{1,20})(?:-\d+)?")
"""The source of a transaction (domain and server, or UUID), and its number, or the first one of a range."""
_DOMAIN = re.compile(r"(\d+)-\d+-")


def parse_gtid_source(gtid_prefix: str) -> str:
    """Return the source that numbers transactions: the domain of `DOMAIN-SERVER-`, or all of `UUID:`."""
    match = _DOMAIN.fullmatch(gtid_prefix)
    return gtid_prefix if match is None else match[1]


def _make_same_source_predicate(gtid: str) -> TransactionPredicate:
    """Return a predicate that is true for transactions with the domain or UUID of this one."""
    wanted = NUMBERED_GTID.fullmatch(gtid)

    def matches(txn: str | None) -> bool:
        found = NUMBERED_GTID.fullmatch(txn or "")
        return wanted is None or (found is not None and parse_gtid_source(found[1]) == parse_gtid_source(wanted[1]))

    return matches


def parse_selected_gtid_sets(selection: Selection, gtids: GtidParsers | None) -> list[tuple[str, TransactionPredicate]]:
    """Return each transaction set that a selection includes, excludes or stops at, with its predicate.

    The GTIDs of a start position need not be in the log: the predicate is that their source is.
    """
    parse_set = _parse_names if gtids is None else gtids.parse_set
    texts = (
        *split_gtid_sets(selection.include_gtids),
        *split_gtid_sets(selection.exclude_gtids),
        *split_position_gtids(selection.stop),
    )
    starts = [(f"{_GTID}{text}", _make_same_source_predicate(text)) for text in split_position_gtids(selection.start)]
    return [*((text, parse_set(text)) for text in dict.fromkeys(texts)), *starts]


def _parse_names(text: str) -> TransactionPredicate:
    return frozenset(text.split(",")).__contains__


def _negate(excluded: TransactionPredicate) -> TransactionPredicate:
    return lambda txn: not excluded(txn)


# --- Record ranges ---

MAX_BLOCK_RECORDS = 2048
"""Maximum number of records in one block."""


class RecordRange(msgspec.Struct, frozen=True):
    """The records `[start, stop)` of a batch before they are decoded; valid as long as the batch.

    It must be consumed in order: by `decode_blocks`, or by code that knows which records the format learns no state
    from (`format_api.format.JsonLine`).

    Args:
        marks: a byte for each record, 1 if it is selected; the format learns no state from the others. None = all are
            selected.
    """

    decoder: BlockDecoder
    batch: Batch
    start: int
    stop: int
    marks: bytes | None = None

    def decode_blocks(self, start: int, stop: int) -> Iterator[RecordBlock]:
        """Yield the records `[start, stop)` of the batch, which must be in this range."""
        marks = self.marks_from(start)
        for low, high in (
            ((start, stop),) if marks is None else find_marked_runs(map(bool, marks[: stop - start]), start)
        ):
            for first in range(low, high, MAX_BLOCK_RECORDS):
                last = min(first + MAX_BLOCK_RECORDS, high)
                yield from self.decoder.make_memory_limited_blocks(
                    self.batch, first, last, self.decoder.decode_envelopes(self.batch, first, last)
                )

    def marks_from(self, at: int) -> bytes | None:
        """Return the marks of the records from `at` on."""
        return None if self.marks is None else self.marks[at - self.start :]

    def has_selected(self, start: int, stop: int) -> bool:
        """Return True if one of the records `[start, stop)` is selected."""
        marks = self.marks_from(start)
        return stop > start and (marks is None or 1 in marks[: stop - start])

    def find_last_selected_index(self, start: int, stop: int) -> int:
        """Return the index in the batch of the last selected record in `[start, stop)`; there must be one."""
        marks = self.marks_from(start)
        return stop - 1 if marks is None else start + marks.rindex(1, 0, stop - start)

    def list_selected_record_numbers(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers in the file of the selected records in `[start, stop)`."""
        numbers, marks = self.batch.record_numbers(start, stop), self.marks_from(start)
        return numbers if marks is None else list(compress(numbers, marks))


def runs_to_byte_mask(runs: Sequence[tuple[int, int]]) -> bytes | None:
    """Return the marks of a range over these runs; None = the runs cover all of it."""
    first, stop = runs[0][0], runs[-1][1]
    if sum(last - start for start, last in runs) == stop - first:
        return None
    marks = bytearray(stop - first)
    for start, last in runs:
        marks[start - first : last - first] = b"\1" * (last - start)
    return bytes(marks)


def split_runs_into_blocks(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Split runs into pieces of at most one block."""
    for first, last in runs:
        yield from ((start, min(start + MAX_BLOCK_RECORDS, last)) for start in range(first, last, MAX_BLOCK_RECORDS))


def choose_python_record_count(last_count: int, compiled_count: int, min_compiled_run: int) -> int:
    """Return how many records to decode in Python where compiled code stopped.

    Args:
        last_count: the number returned by the last call.
        compiled_count: records that compiled code has read since; from `min_compiled_run` on the result is 1, otherwise
            the number doubles, because switching is expensive.
    """
    return min(2 * last_count, MAX_BLOCK_RECORDS) if compiled_count < min_compiled_run else 1
