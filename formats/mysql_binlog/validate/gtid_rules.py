"""Rules about the GTIDs of one file, and the facts that the rules about log sets need.

Source: docs/spec/mysql_binlog.md#validation (rule 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.event_schemas import Event, EventFault
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    ListedGtid,
    MysqlGtid,
    PreviousGtidsOfSource,
    find_impossible_interval,
    format_gtid_source,
    format_range,
    read_gtid_list,
    read_mariadb_gtid,
    read_mysql_gtid,
    read_previous_gtids,
)
from binlogtool.formats.binlog_events.gtid.gtid_sets import (
    GtidState,
    IntervalSet,
    build_state_from_gtid_list,
    build_state_from_previous_gtids,
)
from binlogtool.formats.binlog_events.wire_format import EventType
from binlogtool.formats.mysql_binlog.validate import expected_event_kernels

# --- Facts about one file that the validation of a log set needs ---


class NumberRange(NamedTuple):
    """The numbers `[start, stop)`."""

    start: int
    stop: int


class FileReference(NamedTuple):
    """Event that names a file of the log: ROTATE or BINLOG_CHECKPOINT; `offset`: of the event, 0 if unknown."""

    name: str
    offset: int


class BinlogFacts(msgspec.Struct, frozen=True):
    """Facts about one log, collected by its validator.

    `previous`: the set in PREVIOUS_GTIDS. `listed`: the entries of GTID_LIST in order. Both are None without this
    event. `gtids`: the GTIDs of this file by source ("uuid", "uuid:tag", "domain-server"). `lost_ranges`: GTIDs that
    must have been in damaged ranges, as (source, first, stop). `rotation`: the ROTATE that closes the file. `sources`:
    names in the ROTATE events of a relay log, in order. `checkpoints`: the BINLOG_CHECKPOINT events in order.
    `open_group`: where an incomplete transaction begins (0: in the preceding file). `begins_in_group`: the file, a
    MariaDB relay log, begins inside a transaction. `is_damaged`: a part was skipped, or an event breaks a rule.
    `lacks_key`: the file is encrypted and there is no key, so nothing else is known.
    """

    server_version: str
    is_mariadb: bool
    is_relay: bool
    checksum: str
    in_use: bool
    previous: tuple[PreviousGtidsOfSource, ...] | None
    listed: tuple[ListedGtid, ...] | None
    gtids: Mapping[str, tuple[NumberRange, ...]]
    lost_ranges: tuple[tuple[str, int, int], ...]
    rotation: FileReference | None
    sources: tuple[str, ...]
    checkpoints: tuple[FileReference, ...]
    open_group: int | None
    is_damaged: bool
    lacks_key: bool = False
    begins_in_group: bool = False


# --- GTID rules of one file ---

MAX_SOURCES = 10_000
"""Maximum number of sources whose GTIDs are tracked in one file."""

_MAX_TRACKED_NUMBER = 1 << 62
"""Numbers from here on are not tracked by the compiled path, which computes number + 1 in 64 bits."""
_W = Severity.WARNING


class LostGtids(NamedTuple):
    """Numbers `[first, stop)` of a source that must have been in a damaged range."""

    source: str
    first: int
    stop: int


class GtidOrderRules:
    """Checks GTIDs in file order. `import_numbers_from_kernel` fetches those of the last source.

    `seen`: numbers by source. `earlier_numbers`: numbers of earlier files (MySQL). `listed_last`: the last number of
    earlier files by domain and server (MariaDB). `last_by_series`: the last number of each series (a MySQL source, a
    MariaDB domain). `_may_jump`: series that may jump once without a fault because of damage before.
    """

    def __init__(self, state: Any, relay: bool) -> None:
        self._state = state
        self._relay = relay
        self.seen: dict[str, IntervalSet] = {}
        self.earlier_numbers: dict[str, IntervalSet] = {}
        self.previous: tuple[PreviousGtidsOfSource, ...] | None = None
        self.listed: tuple[ListedGtid, ...] | None = None
        self.listed_last: dict[tuple[int, int], int] = {}
        self.last_by_series: dict[str | int, int] = {}
        self.lost: list[LostGtids] = []
        self.first_number: int | None = None
        self.last_number: int | None = None
        self._current: tuple[str, str | int] | None = None
        self._may_jump: set[str | int] = set()
        self._may_jump_sequence = False
        self.has_too_many_sources = False

    def mark_as_relay_log(self) -> None:
        """Record that the file is a relay log."""
        self._relay = True

    def allow_jumps_after_damage(self) -> None:
        """Record that a part of the file was skipped."""
        self.import_numbers_from_kernel()
        self._may_jump = set(self.last_by_series)
        self._may_jump_sequence = True

    def import_numbers_from_kernel(self) -> None:
        """Fetch the run of numbers that the compiled path tracked."""
        state, current = self._state, self._current
        if current is not None and state[expected_event_kernels.RUN_START]:
            source, series = current
            self.seen[source].add_interval(
                state[expected_event_kernels.RUN_START], state[expected_event_kernels.LAST_GTID_NUMBER] + 1
            )
            self.last_by_series[series] = self.last_number = state[expected_event_kernels.LAST_GTID_NUMBER]
        self._current = None
        state[expected_event_kernels.GTID_STREAM], state[expected_event_kernels.RUN_START] = (
            expected_event_kernels.NOBODY,
            0,
        )

    def check_gtid_event(self, event: Event) -> Iterator[EventFault]:
        """Yield faults of a GTID event, or of an event that lists GTIDs of earlier files.

        Raises:
            MalformedError: the body cannot be read.
        """
        body = bytes(event.body)
        if event.code == EventType.PREVIOUS_GTIDS:
            yield from self._store_previous_gtids(read_previous_gtids(body))
        elif event.code == EventType.GTID_LIST:
            self._store_gtid_list(read_gtid_list(body))
        elif event.code == EventType.GTID:
            yield from self._check_mariadb_gtid(event, body)
        else:
            yield from self._check_mysql_gtid(event, read_mysql_gtid(event.code, body))

    # -- MySQL ---------------------------------------------------------------------------------------------------------

    def _store_previous_gtids(self, sources: Sequence[PreviousGtidsOfSource]) -> Iterator[EventFault]:
        """Store the sets of PREVIOUS_GTIDS, and yield a fault if MySQL does not decode them."""
        impossible = find_impossible_interval(sources)
        if impossible is not None:
            name, (start, stop) = impossible
            text = f"PREVIOUS_GTIDS has the interval [{start}, {stop}) of {name}: numbers begin with 1 and ascend"
            yield EventFault("payload-undecodable", text, "gtid-interval")
        self.import_numbers_from_kernel()
        self.previous = tuple(sources) if self.previous is None else self.previous
        if self._relay:
            return
        for source in sources:
            self.earlier_numbers[format_gtid_source(source.sid, source.tag)] = IntervalSet(source.intervals)

    def _check_mysql_gtid(self, event: Event, gtid: MysqlGtid) -> Iterator[EventFault]:
        """Yield faults of MySQL's GTID."""
        self.import_numbers_from_kernel()
        length = 0 if self._relay else gtid.transaction_length or 0
        self._state[expected_event_kernels.EXPECTED_GROUP_END] = (
            event.start + min(length, _MAX_TRACKED_NUMBER) if length else 0
        )
        yield from self._check_logical_clock(gtid)
        if event.code == EventType.ANONYMOUS_GTID:
            return
        source, number = gtid.source, gtid.gno
        numbers = self._get_numbers_of_source(source)
        earlier = self.earlier_numbers.get(source)
        if number <= 0:
            yield EventFault("payload-undecodable", f"GTID {source}:{number}: numbers begin with 1", "gtid-number")
            return
        if number in numbers or (earlier is not None and number in earlier):
            location = "in this file" if number in numbers else "in an earlier file (PREVIOUS_GTIDS)"
            text = f"GTID {source}:{number} was already present {location}"
            yield EventFault(
                "duplicate-sequence", text, "gtid-twice", self._duplicate_severity, {"gtid": f"{source}:{number}"}
            )
        highest = max(numbers.highest, earlier.highest if earlier is not None else 0)
        if source in self._may_jump and number > highest + 1:
            self._record_lost_numbers(LostGtids(source, highest + 1, number))
        self._may_jump.discard(source)
        is_tracked = event.code == EventType.GTID_LOG
        halves = (gtid.sid[:8], gtid.sid[8:])
        low, high = (int.from_bytes(half, "little", signed=True) for half in halves)
        self._record_and_track_number(
            source,
            source,
            number,
            max(highest, number),
            expected_event_kernels.MYSQL if is_tracked else expected_event_kernels.NOBODY,
            low,
            high,
        )

    def _check_logical_clock(self, gtid: MysqlGtid) -> Iterator[EventFault]:
        """Yield faults of sequence_number and last_committed."""
        number, committed = gtid.sequence_number, gtid.last_committed
        if number is None or committed is None or number <= 0:
            return
        last, self._state[expected_event_kernels.LAST_SEQUENCE_NUMBER] = (
            self._state[expected_event_kernels.LAST_SEQUENCE_NUMBER],
            number,
        )
        if self._relay or self._may_jump_sequence:
            self._may_jump_sequence = False
            return
        facts = {"sequence_number": number, "last": last}
        if number <= last:
            text = f"sequence_number {number} follows {last}"
            yield EventFault("sequence-regression", text, "sequence-number", None, facts)
        elif not last and number > 1:
            text = f"the first sequence_number is {number}: an excerpt, or the beginning is missing"
            yield EventFault("gap-in-sequence", text, "excerpt", Severity.NOTE, facts)
        elif number != last + 1:
            text = f"sequence_number {number} follows {last}: the numbers between them are missing"
            yield EventFault("gap-in-sequence", text, "sequence-number", None, facts)
        if committed >= number:
            text = f"last_committed {committed} is not below sequence_number {number}"
            yield EventFault("payload-undecodable", text, "last-committed")

    # -- MariaDB -------------------------------------------------------------------------------------------------------

    def _store_gtid_list(self, entries: Sequence[ListedGtid]) -> None:
        """Store the entries of GTID_LIST."""
        self.import_numbers_from_kernel()
        self.listed = tuple(entries) if self.listed is None else self.listed
        if self._relay:
            return
        for domain, server, number in entries:
            self.listed_last[domain, server] = number
            self.last_by_series[domain] = number

    def _check_mariadb_gtid(self, event: Event, body: bytes) -> Iterator[EventFault]:
        """Yield faults of MariaDB's GTID."""
        self.import_numbers_from_kernel()
        self._state[expected_event_kernels.EXPECTED_GROUP_END] = 0
        gtid = read_mariadb_gtid(body)
        domain, number = gtid.domain_id, gtid.seq_no
        source = f"{domain}-{event.server_id}"
        last = self.last_by_series.get(domain)
        numbers = self._get_numbers_of_source(source)
        name = f"{source}-{number}"
        facts = {"gtid": name}
        if number in numbers or number == self.listed_last.get((domain, event.server_id)):
            yield EventFault(
                "duplicate-sequence", f"GTID {name} was already present", "gtid-twice", self._duplicate_severity, facts
            )
        elif last is not None and number <= last:
            text = f"GTID {name} follows number {last} of domain {domain}; only allowed without strict mode"
            yield EventFault("sequence-regression", text, "gtid-falls", _W, facts)
        elif last is not None and number > last + 1:
            yield self._make_gap_fault(domain, last, number, source, name)
        highest = max(numbers.highest, last or 0, number)
        self._record_and_track_number(
            source, domain, number, highest, expected_event_kernels.MARIADB, domain, event.server_id
        )

    def _make_gap_fault(self, domain: int, last: int, number: int, source: str, name: str) -> EventFault:
        """Return the fault of a gap in a domain."""
        missing = format_range(last + 1, number, "..")
        text = f"GTID {name} follows number {last} of domain {domain}: {missing} missing"
        if domain in self._may_jump:
            self._record_lost_numbers(LostGtids(source, last + 1, number))
            text += "; lost in the damaged range"
        facts = {"domain": domain, "first": last + 1, "last": number - 1}
        return EventFault("gap-in-sequence", text, "gtid-gap", _W, facts)

    # -- MySQL and MariaDB ---------------------------------------------------------------------------------------------

    @property
    def _duplicate_severity(self) -> Severity | None:
        """Severity of a duplicate GTID; a warning in a relay log: a reconnecting replica may be sent it twice."""
        return _W if self._relay else None

    def _get_numbers_of_source(self, source: str) -> IntervalSet:
        """Return the numbers of a source in this file; an unstored empty set if there are too many sources."""
        numbers = self.seen.get(source)
        if numbers is None:
            numbers = IntervalSet()
            self.has_too_many_sources = self.has_too_many_sources or len(self.seen) >= MAX_SOURCES
            if not self.has_too_many_sources:
                self.seen[source] = numbers
        return numbers

    def _record_lost_numbers(self, lost: LostGtids) -> None:
        """Record lost numbers, up to a limit."""
        if len(self.lost) < MAX_SOURCES:
            self.lost.append(lost)

    def _record_and_track_number(
        self, source: str, series: str | int, number: int, highest: int, stream: int, source_a: int, source_b: int
    ) -> None:
        """Record a number, and let the compiled path track its source from here on."""
        state = self._state
        self._may_jump.discard(series)
        self.seen.get(source, IntervalSet()).add_interval(number, number + 1)
        self.last_by_series[series] = number
        self.first_number = number if self.first_number is None else self.first_number
        self.last_number = number
        if source not in self.seen or highest >= _MAX_TRACKED_NUMBER:
            return
        self._current = (source, series)
        (
            state[expected_event_kernels.GTID_STREAM],
            state[expected_event_kernels.SOURCE_A],
            state[expected_event_kernels.SOURCE_B],
        ) = stream, source_a, source_b
        state[expected_event_kernels.LAST_GTID_NUMBER] = state[expected_event_kernels.RUN_START] = number
        state[expected_event_kernels.HIGHEST_GTID_NUMBER] = highest

    def iter_gap_faults(self) -> Iterator[EventFault]:
        """Yield faults of gaps between MySQL's GTIDs.

        Gaps are legal on a replica that commits in parallel, so they are only checked at the end.
        """
        self.import_numbers_from_kernel()
        if self.has_too_many_sources or any(one.is_full for one in self.seen.values()):
            text = "GTIDs have too many gaps to remember all of them; duplicates may go undetected"
            yield EventFault("count-out-of-bounds", text, "limit", Severity.NOTE)
        if self.listed is not None or self._relay:
            return
        for source, numbers_seen in self.seen.items():
            yield from (self._make_missing_fault(source, hole) for hole in self._find_gaps(source, numbers_seen))

    def _find_gaps(self, source: str, numbers: IntervalSet) -> list[tuple[int, int]]:
        """Return the gaps directly before a number of this file that have a known number below them."""
        all_numbers = IntervalSet([*self.earlier_numbers.get(source, ()), *numbers])
        return [hole for hole in all_numbers.iter_gaps() if hole[1] in numbers][:MAX_SOURCES]

    def _make_missing_fault(self, source: str, gap: tuple[int, int]) -> EventFault:
        """Return the fault of missing numbers."""
        first, stop = gap
        text = f"GTID {source}:{format_range(first, stop)} {'is' if stop == first + 1 else 'are'} missing"
        if any(one.source == source and one.first < stop and first < one.stop for one in self.lost):
            text += "; lost in a damaged range"
        facts = {"source": source, "first": first, "last": stop - 1}
        return EventFault("gap-in-sequence", text, "gtid-gap", _W, facts)


def format_file_gtids(seen: Mapping[str, IntervalSet], is_mariadb: bool) -> str:
    """Return all GTIDs of a file in compact form: `uuid:1-5:7`, or `0-1-1..5` (domain, server, numbers) for MariaDB."""
    if not is_mariadb:
        return ", ".join(f"{source}:{found.format_text()}" for source, found in seen.items() if found)
    return ", ".join(
        f"{source}-{format_range(*run, '..')}" for source, numbers in seen.items() for run in islice(numbers, 100)
    )


# --- GTID states before and after a file ---


def get_gtid_state_before(facts: BinlogFacts) -> GtidState | None:
    """Return the GTID state in PREVIOUS_GTIDS or GTID_LIST; None if the file has neither."""
    if facts.previous is not None:
        return build_state_from_previous_gtids(facts.previous)
    return None if facts.listed is None or facts.is_relay else build_state_from_gtid_list(facts.listed)


def get_gtid_state_after(facts: BinlogFacts) -> GtidState | None:
    """Return the GTID state at the end; GTIDs that the validator reports as lost in damaged ranges are included."""
    state = get_gtid_state_before(facts)
    if state is not None:
        for source, ranges in facts.gtids.items():
            state.add_intervals(source, ranges)
        for source, start, stop in facts.lost_ranges:
            state.add_intervals(source, [(start, stop)])
    return state
