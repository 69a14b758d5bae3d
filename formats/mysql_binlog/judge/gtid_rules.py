"""GTID rules of one file: each once, after those of earlier files, without gaps.

Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify (rule 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.binlog_events.gtid.bodies import (
    ListedGtid,
    MysqlGtid,
    PreviousGtids,
    gtid_list,
    mariadb_gtid_fields,
    mysql_gtid_fields,
    previous_gtids,
    source_text,
)
from binlogtool.formats.binlog_events.gtid.intervals import Intervals
from binlogtool.formats.mysql_binlog.judge import folds

MOST_SOURCES = 10_000
"""Sources whose GTIDs are followed in one file."""

_BEYOND = 1 << 62
"""Numbers from here on are not handed to the fold, which adds one to them in 64 bits."""
_W = Severity.WARNING


class Lost(NamedTuple):
    """Numbers `[first, stop)` of a source that must have been in a damaged range."""

    source: str
    first: int
    stop: int


class GtidRules:
    """GTIDs in file order; the compiled path tracks the source seen last, and its run is taken over here.

    `seen`: numbers by source. `earlier_numbers`: those of earlier files (MySQL). `listed_last`: the last number
    of earlier files by domain and server (MariaDB). `last_by_series`: the last number of each series (a MySQL
    source, a MariaDB domain). `_may_jump`: series that may jump once without a fault, because something before
    them was damaged.
    """

    def __init__(self, state: Any, relay: bool) -> None:
        self._state = state
        self._relay = relay
        self.seen: dict[str, Intervals] = {}
        self.before: dict[str, Intervals] = {}
        self.previous: tuple[PreviousGtids, ...] | None = None
        self.listed: tuple[ListedGtid, ...] | None = None
        self.listed_last: dict[tuple[int, int], int] = {}
        self.last: dict[str | int, int] = {}
        self.last_server: dict[int, int] = {}
        self.lost: list[Lost] = []
        self.first: int | None = None
        self.latest: int | None = None
        self._current: tuple[str, str | int] | None = None
        self._loose: set[str | int] = set()
        self._any_sequence = False
        self.crowded = False

    def became_relay(self) -> None:
        """Note that the file is a relay log."""
        self._relay = True

    def damage(self) -> None:
        """Note that a part of the file was skipped."""
        self.settle()
        self._loose = set(self.last)
        self._any_sequence = True

    def settle(self) -> None:
        """Take over the run of numbers that the compiled path tracked."""
        state, current = self._state, self._current
        if current is not None and state[folds.RUN]:
            source, series = current
            self.seen[source].add(state[folds.RUN], state[folds.NUMBER] + 1)
            self.last[series] = self.latest = state[folds.NUMBER]
        self._current = None
        state[folds.STREAM], state[folds.RUN] = folds.NOBODY, 0

    def take(self, event: Event) -> Iterator[Fault]:
        """Yield faults of a GTID event, or of one that lists GTIDs of earlier files.

        Raises:
            MalformedError: the body cannot be read.
        """
        body = bytes(event.body)
        if event.code == EventType.PREVIOUS_GTIDS:
            self._previous(previous_gtids(body))
        elif event.code == EventType.GTID_LIST:
            self._listed(gtid_list(body))
        elif event.code == EventType.GTID:
            yield from self._mariadb(event, body)
        else:
            yield from self._mysql(event, mysql_gtid_fields(event.code, body))

    # -- MySQL ---------------------------------------------------------------------------------------------------------

    def _previous(self, sources: Sequence[PreviousGtids]) -> None:
        """Note PREVIOUS_GTIDS."""
        self.settle()
        self.previous = tuple(sources) if self.previous is None else self.previous
        if self._relay:
            return
        for one in sources:
            self.before[source_text(one.sid, one.tag)] = Intervals(one.intervals)

    def _mysql(self, event: Event, gtid: MysqlGtid) -> Iterator[Fault]:
        """Yield faults of MySQL's GTID."""
        self.settle()
        length = 0 if self._relay else gtid.transaction_length or 0
        self._state[folds.ENDS] = event.start + min(length, _BEYOND) if length else 0
        yield from self._sequence(gtid)
        if event.code == EventType.ANONYMOUS_GTID:
            return
        source, number = gtid.source, gtid.gno
        seen = self._seen(source)
        before = self.before.get(source)
        if number <= 0:
            yield Fault("payload-undecodable", f"GTID {source}:{number}: numbers begin with 1", "gtid-number")
            return
        if number in seen or (before is not None and number in before):
            where = "in this file" if number in seen else "in an earlier file (PREVIOUS_GTIDS)"
            text = f"GTID {source}:{number} was there already, {where}"
            yield Fault("duplicate-sequence", text, "gtid-twice", self._softened, {"gtid": f"{source}:{number}"})
        top = max(seen.top, before.top if before is not None else 0)
        self._landed(source, source, top, number)
        tracked = event.code == EventType.GTID_LOG
        halves = (gtid.sid[:8], gtid.sid[8:])
        low, high = (int.from_bytes(half, "little", signed=True) for half in halves)
        self._follow(source, source, number, max(top, number), folds.MYSQL if tracked else folds.NOBODY, low, high)

    def _sequence(self, gtid: MysqlGtid) -> Iterator[Fault]:
        """Yield faults of sequence_number and last_committed."""
        number, committed = gtid.sequence_number, gtid.last_committed
        if number is None or committed is None or number <= 0:
            return
        last, self._state[folds.SEQUENCE] = self._state[folds.SEQUENCE], number
        if self._relay or self._any_sequence:
            self._any_sequence = False
            return
        facts = {"sequence_number": number, "last": last}
        if number <= last:
            text = f"sequence_number {number} stands behind {last}"
            yield Fault("sequence-regression", text, "sequence-number", None, facts)
        elif not last and number > 1:
            text = f"the first sequence_number is {number}: an excerpt, or the beginning is missing"
            yield Fault("gap-in-sequence", text, "excerpt", Severity.NOTE, facts)
        elif number != last + 1:
            text = f"sequence_number {number} follows {last}: what is between them is missing"
            yield Fault("gap-in-sequence", text, "sequence-number", None, facts)
        if committed >= number:
            text = f"last_committed {committed} is not below sequence_number {number}"
            yield Fault("payload-undecodable", text, "last-committed")

    # -- MariaDB -------------------------------------------------------------------------------------------------------

    def _listed(self, entries: Sequence[ListedGtid]) -> None:
        """Note GTID_LIST."""
        self.settle()
        self.listed = tuple(entries) if self.listed is None else self.listed
        if self._relay:
            return
        for domain, server, number in entries:
            self.listed_last[domain, server] = number
            self.last[domain] = number
            self.last_server[domain] = server

    def _mariadb(self, event: Event, body: bytes) -> Iterator[Fault]:
        """Yield faults of MariaDB's GTID."""
        self.settle()
        self._state[folds.ENDS] = 0
        gtid = mariadb_gtid_fields(body)
        domain, number = gtid.domain_id, gtid.seq_no
        source = f"{domain}-{event.server}"
        last = self.last.get(domain)
        seen = self._seen(source)
        name = f"{source}-{number}"
        facts = {"gtid": name}
        if number in seen or number == self.listed_last.get((domain, event.server)):
            yield Fault("duplicate-sequence", f"GTID {name} was there already", "gtid-twice", self._softened, facts)
        elif last is not None and number <= last:
            text = f"GTID {name} stands behind number {last} of domain {domain}; only allowed without strict mode"
            yield Fault("sequence-regression", text, "gtid-falls", _W, facts)
        elif last is not None and number > last + 1:
            yield self._gap(domain, last, number, source, name)
        self.last_server[domain] = event.server
        top = max(seen.top, last or 0, number)
        self._follow(source, domain, number, top, folds.MARIADB, domain, event.server)

    def _gap(self, domain: int, last: int, number: int, source: str, name: str) -> Fault:
        """Return the fault of a gap in a domain."""
        missing = f"{last + 1}" if number == last + 2 else f"{last + 1}..{number - 1}"
        text = f"GTID {name} follows number {last} of domain {domain}: {missing} missing"
        if domain in self._loose:
            self._lose(Lost(source, last + 1, number))
            text += "; lost in the damaged range"
        facts = {"domain": domain, "first": last + 1, "last": number - 1}
        return Fault("gap-in-sequence", text, "gtid-gap", _W, facts)

    # -- both ----------------------------------------------------------------------------------------------------------

    @property
    def _softened(self) -> Severity | None:
        """Severity of a duplicate: a replica that reconnects may be sent a transaction twice."""
        return _W if self._relay else None

    def _seen(self, source: str) -> Intervals:
        """Return the numbers of a source in this file."""
        found = self.seen.get(source)
        if found is None:
            found = Intervals()
            self.crowded = self.crowded or len(self.seen) >= MOST_SOURCES
            if not self.crowded:
                self.seen[source] = found
        return found

    def _landed(self, source: str, series: str | int, top: int, number: int) -> None:
        """Note the first number of a series after damage."""
        if series in self._loose and number > top + 1:
            self._lose(Lost(source, top + 1, number))
        self._loose.discard(series)

    def _lose(self, lost: Lost) -> None:
        """Note lost numbers."""
        if len(self.lost) < MOST_SOURCES:
            self.lost.append(lost)

    def _follow(self, source: str, series: str | int, number: int, top: int, stream: int, a: int, b: int) -> None:
        """Note a number, and let the compiled path track its source."""
        state = self._state
        self._loose.discard(series)
        self.seen.get(source, Intervals()).add(number, number + 1)
        self.last[series] = number
        self.first = number if self.first is None else self.first
        self.latest = number
        if source not in self.seen or top >= _BEYOND:
            return
        self._current = (source, series)
        state[folds.STREAM], state[folds.SOURCE_A], state[folds.SOURCE_B] = stream, a, b
        state[folds.NUMBER] = state[folds.RUN] = number
        state[folds.CEILING] = top

    def end(self) -> Iterator[Fault]:
        """Yield faults of gaps between MySQL's GTIDs.

        Gaps are legal on a replica that commits in parallel, so they are only checked at the end.
        """
        self.settle()
        if self.crowded or any(one.full for one in self.seen.values()):
            text = "GTIDs are spread too far to remember all of them; some that stand twice can go unnoticed"
            yield Fault("count-out-of-bounds", text, "limit", Severity.NOTE)
        if self.listed is not None or self._relay:
            return
        for source, seen in self.seen.items():
            yield from (self._hole(source, hole) for hole in self._holes(source, seen))

    def _holes(self, source: str, seen: Intervals) -> list[tuple[int, int]]:
        """Return gaps directly before a number of this file, with a known number below them."""
        both = Intervals([*self.before.get(source, ()), *seen])
        return [hole for hole in both.holes() if hole[1] in seen][:MOST_SOURCES]

    def _hole(self, source: str, hole: tuple[int, int]) -> Fault:
        """Return the fault of missing numbers."""
        first, stop = hole
        numbers = f"{first}" if stop == first + 1 else f"{first}-{stop - 1}"
        text = f"GTID {source}:{numbers} {'is' if stop == first + 1 else 'are'} missing"
        if any(one.source == source and one.first < stop and first < one.stop for one in self.lost):
            text += "; lost in a damaged range"
        facts = {"source": source, "first": first, "last": stop - 1}
        return Fault("gap-in-sequence", text, "gtid-gap", _W, facts)


def gtids_text(seen: Mapping[str, Intervals], mariadb: bool) -> str:
    """Return all GTIDs of a file in compact form: `uuid:1-5:7`, or `0-1-1..5` where the middle is the server."""
    if not mariadb:
        return ", ".join(f"{source}:{found.text()}" for source, found in seen.items() if found)
    parts = []
    for source, found in seen.items():
        for start, stop in list(found)[:100]:
            parts.append(f"{source}-{start}" if stop == start + 1 else f"{source}-{start}..{stop - 1}")
    return ", ".join(parts)
