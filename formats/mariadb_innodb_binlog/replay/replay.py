"""Predict what servers do with a log: apply it (`mariadb-binlog FILES | mariadb`, a replica), and start with it.

A record is an event of a group; its decision is about applying. What a restart does is reported in addition. If the
redo log is available, the server recovers first: groups that recovery truncates are never applied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, finding
from binlogtool.formats.binlog_events.apply import reasons as events
from binlogtool.formats.binlog_events.apply.applier import Applier
from binlogtool.formats.binlog_events.apply.executed import Executed, parse_executed
from binlogtool.formats.binlog_events.apply.verdicts import Lost
from binlogtool.formats.binlog_events.gtid.sets import split
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType, file_name
from binlogtool.formats.mariadb_innodb_binlog.records.records import State
from binlogtool.formats.mariadb_innodb_binlog.replay.readers import ReadFile, choose
from binlogtool.formats.mariadb_innodb_binlog.replay.restart import Restart, recovered
from binlogtool.formats.replay_rules import (
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    Itinerary,
    Outcome,
    Records,
    Ruling,
    Situation,
    Stop,
)

_SHOWN = 100
_MOST_SOURCES = 100_000


class _Hidden(msgspec.Struct):
    """Events of a file that its reader does not see.

    Attributes:
        records: number of events.
        groups: GTIDs of the first of them.
    """

    offset: int
    why: str
    records: int = 0
    groups: list[str] = msgspec.field(default_factory=list)


class IbbReplay:
    """`formats.replay_rules.Replayer`"""

    def __init__(self, situation: Situation) -> None:
        self._force = situation.policy == "force"
        self._redo = recovered(situation)
        healed = None if self._redo is None else self._redo.healed
        chosen = choose(situation, healed)
        self._cut = None if self._redo is None else self._redo.cut
        self._healed = None if healed is None else healed[0]
        self._files, self._passed = chosen.files, chosen.passed
        self._places = {one.file.name: place for place, one in enumerate(self._files)}
        self._restart = Restart(situation, self._files, self._redo)
        against = situation.against or {}
        executed = parse_executed(str(against.get("gtid") or ""))
        self._refusal = self._gap(executed) if against.get("gtid") and not self._force else None
        self._applier = Applier(executed, ordered=True, trusting=bool(against), goes_on=self._force)
        self._stop: Stop | None = None
        self._place, self._damage, self._next = -1, 0, 0
        self._open = 0
        self._bad: int | None = None
        self._unseen: str | None = None
        self._hidden: dict[str, _Hidden] = {}
        self._lost: list[tuple[str, Lost]] = []
        self._found: list[tuple[str, Finding]] = []
        self._seen: dict[str, int] = {}

    def itinerary(self) -> Itinerary:
        """Return all files with data, in order; groups are assembled from all of them."""
        read = () if self._refusal is not None else tuple(self._places)
        return Itinerary(read, self._passed, self._refusal)

    def _gap(self, executed: Executed) -> Stop | None:
        """Refuse a replica that has less than what precedes the log (error 1236, `gtid_search::find_gtid_pos`)."""
        first = self._files[0] if self._files else None
        state = None if first is None else first.state()
        if first is None or state is None:
            return None
        lacks = [str(one) for one in state.gtids if one.seq_no > executed.domains.get(one.domain_id, (0, 0))[1]]
        if not lacks:
            return None
        text = f"the log begins behind {', '.join(lacks[:5])}, which the server lacks: files are missing"
        return Stop(first.file.name, None, text)

    # -- records -----------------------------------------------------------------------------------------------------

    def feed(self, name: str, first: int, records: Records) -> Iterator[Ruling]:
        """Decide on the events up to the next place where a reader stops, and on those after it."""
        yield from self._turn_to(self._places[name], first)
        at, count = 0, len(records)
        self._next = first + count
        file = self._files[self._place]
        visible = self._note(file, records)
        while at < count and self._stop is None:
            if at >= visible:
                yield from self._pass(first, records, at, file)
                return
            stop = min(visible, self._up_to_damage(file, records))
            if self._bad is not None and records.offset[at] == self._bad:
                stop = bisect_right(records.offset, self._bad)
                yield Ruling(first + at, first + stop, REJECTED, "damaged")
                at = stop
            elif at < stop:
                at = yield from self._apply(first, records, at, stop)
            else:
                yield from self._meet(first + at, records.offset[at])
        if at < count:
            yield Ruling(first + at, first + count, SKIPPED, NOT_REACHED)

    def _note(self, file: ReadFile, records: Records) -> int:
        """Record the groups of a run; returns how many of its records the reader sees."""
        offsets = records.offset
        durable = visible = len(records)
        if self._cut is not None and file.number >= self._cut[0]:
            durable = bisect_left(offsets, self._cut[1]) if file.number == self._cut[0] else 0
        if self._unseen == file.file.name:
            visible = 0
        elif file.end is not None and not self._force:
            visible = bisect_left(offsets, file.end)
        for i, kind in enumerate(records.envelope.type[:durable]):
            if kind == "GTID" and isinstance(gtid := records.envelope.txn[i], str):
                source, number = split(gtid)
                if source in self._seen or len(self._seen) < _MOST_SOURCES:
                    self._seen[source] = number
                if file.end is None or offsets[i] < file.end:
                    self._restart.committed(file, gtid)
        return min(durable, visible)

    def _pass(self, first: int, records: Records, at: int, file: ReadFile) -> Iterator[Ruling]:
        """Decide on the rest of a run that recovery truncated or the reader does not see."""
        count, begin = len(records), len(records)
        if self._cut is not None and file.number >= self._cut[0]:
            begin = at if file.number > self._cut[0] else max(at, bisect_left(records.offset, self._cut[1]))
        if begin > at:
            self._hide(file, records, at, begin)
            yield Ruling(first + at, first + begin, SKIPPED, "unseen")
        if count > begin:
            yield Ruling(first + begin, first + count, SKIPPED, "never-durable")

    def _hide(self, file: ReadFile, records: Records, start: int, stop: int) -> None:
        why = "FLUSH BINARY LOGS found the file before exactly full: mariadb-binlog passes over this one"
        if self._unseen != file.file.name:
            why = "zeros, or a type byte of 0, are the end of the file for its readers"
        at = file.end if file.end is not None else 0
        known = self._hidden.setdefault(file.file.name, _Hidden(at, why))
        known.records += stop - start
        for i in range(start, stop):
            if records.envelope.type[i] == "GTID" and len(known.groups) < _SHOWN:
                known.groups.append(str(records.envelope.txn[i]))

    def _apply(self, first: int, records: Records, at: int, stop: int) -> Generator[Ruling, None, int]:
        """Pass the records `[index, stop)` to the applier; returns where to continue."""
        applier, name = self._applier, self._files[self._place].file.name
        lost = len(applier.lost)
        yield from applier.feed(first, records, at, stop)
        self._lost += [(name, one) for one in applier.lost[lost:]]
        if applier.failure is None:
            return stop
        self._stop = Stop(name, applier.failure.offset, applier.failure.why)
        return applier.failure.number - first + 1

    # -- files and damage --------------------------------------------------------------------------------------------

    def _turn_to(self, place: int, number: int) -> Iterator[Ruling]:
        """Finish all files before this one."""
        while self._place < place:
            if self._place >= 0:
                yield from self._leave(number)
            self._place, self._damage, self._bad = self._place + 1, 0, None
            file = self._files[self._place]
            state = file.state()
            self._restart.opened(file, state)
            if self._place and self._stop is None:
                yield from self._cross(self._files[self._place - 1], file, state, number)

    def _cross(self, one: ReadFile, two: ReadFile, state: State | None, number: int) -> Iterator[Ruling]:
        """Go from the end of a file to the start of the next one: readers join records of the same type."""
        if self._healed is not None and two.number >= self._healed:
            return
        broken = two.number != one.number + 1 or one.end is not None or one.short
        self._open = self._open if one.blank and not one.open else one.open
        if two.damages and two.damages[0].offset < two.page_size:
            return  # the reader gets to it before anything else
        if one.exact and not self._force:
            self._unseen = two.file.name
        elif not two.blank and self._open != two.leading and not self._force:
            what = (
                "ends inside a record that does not go on" if self._open else "does not begin the record that goes on"
            )
            yield from self._halt(number, Stop(two.file.name, two.page_size, f"{one.file.name} {what} here"))
        elif broken:
            self._miss(one, two, state)

    def _miss(self, one: ReadFile, two: ReadFile, state: State | None) -> None:
        """Report that groups are missing between two files although the reader continues."""
        missing: dict[str, list[list[int]]] = {}
        for gtid in state.gtids if state is not None else ():
            last = self._seen.get(f"{gtid.domain_id}-{gtid.server_id}", 0)
            if gtid.seq_no > last and len(missing) < _SHOWN:
                missing[f"{gtid.domain_id}-{gtid.server_id}"] = [[last + 1, gtid.seq_no]]
        text = f"from {one.file.name} the reader goes on to {two.file.name}, though what is between them is missing"
        if self._open == int(RecordType.COMMIT):
            text += "; it joins the ends of two groups to a wrong one"
        facts: dict[str, Any] = {"situation": "apply", "missing_gtids": missing}
        at = one.end if one.end is not None else one.file.size
        if two.number == one.number + 1:
            self._found.append((one.file.name, finding("silent-loss", at, one.file.size - at, text, **facts)))
        else:
            self._found.append((file_name(one.number + 1), finding("silent-loss", None, 0, text, **facts)))

    def _leave(self, number: int) -> Iterator[Ruling]:
        """Process the stops after the last group of a file."""
        while self._stop is None and self._left_damages():
            yield from self._meet(number, None)

    def _left_damages(self) -> bool:
        return self._damage < len(self._files[self._place].damages)

    def _up_to_damage(self, file: ReadFile, records: Records) -> int:
        """Return how many records of this run are before the next stop."""
        return bisect_left(records.offset, file.damages[self._damage].offset) if self._left_damages() else len(records)

    def _meet(self, number: int, offset: int | None) -> Iterator[Ruling]:
        """Process a stop before record `number`, which is at `offset`."""
        file = self._files[self._place]
        damage = file.damages[self._damage]
        self._damage += 1
        if damage.perhaps and offset == damage.offset:
            return  # readers do not reach this problem
        self._bad = damage.offset
        if self._force:
            yield from self._applier.roll_back(number)
        elif not self._stopped_before(file):
            yield from self._halt(number, Stop(file.file.name, damage.offset, damage.why))

    def _stopped_before(self, file: ReadFile) -> bool:
        """Check if recovery removed the file, or readers skip it."""
        gone = self._cut is not None and file.number > self._cut[0]
        return gone or self._unseen == file.file.name

    def _halt(self, number: int, stop: Stop) -> Iterator[Ruling]:
        yield from self._applier.roll_back(number)
        self._stop = stop

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Roll back what is open, and return the outcome."""
        last: list[Ruling] = []
        if self._refusal is None:
            last += self._turn_to(len(self._files) - 1, self._next)
            last += self._leave(self._next) if self._files else ()
        last += self._applier.end(self._next)
        position = {"gtid": self._applier.executed.text}
        found = (*self._losses(), *self._restart.findings())
        return last, Outcome(self._restart.starts(), self._stop, position, found, self._restart.details())

    def _losses(self) -> Iterator[tuple[str, Finding]]:
        """Iterate over what the reader skips without an error."""
        yield from self._found
        for name, lost in self._lost[:_SHOWN]:
            text = "the TABLE_MAP of these rows is missing: the server takes the table for one that is filtered out"
            at, size, record, gtid = lost
            yield name, finding("silent-loss", at, size, text, record=record, situation="apply", gtid=gtid)
        for name, one in self._hidden.items():
            size = self._files[self._places[name]].file.size - one.offset
            facts: dict[str, Any] = {"lost_records": one.records, "gtids": one.groups}
            text = f"{one.why}; {one.records:,} events behind it are not applied"
            yield name, finding("silent-loss", one.offset, size, text, situation="apply", **facts)


def state_of(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Parse what a server has: a GTID position as text, or MariaDB's `BASE.state`."""
    try:
        executed = parse_executed(data.decode("utf-8", "replace"))
    except UsageError:
        return None
    return {"gtid": executed.text} if executed.domains and not executed.sources else None


_SAME = (
    "committed", "statement", "implicit-commit", "not-transactional", "xa-committed", "control", "incomplete",
    "rolled-back", "rolled-back-to-savepoint", "xa-prepared", "start-alter", "no-table-map", "ignorable", "group-open",
    "out-of-order", "xa-unknown", "xa-twice", "incident", "unknown-event", "undecodable", "adrift",
)  # fmt: skip

REASONS: Mapping[str, str] = {
    **{name: events.REASONS[name].replace("(specification", "(mysql-binlog specification") for name in _SAME},
    "executed": "The server has it already: its GTID is not behind the position of its domain (gtid_slave_pos).",
    "never-durable": "Recovery with this redo log cuts the log in front of the group: it never became durable, in no "
    "table either (specification sections 12 and 13, `class binlog_recovery`).",
    "unseen": "Readers take a type byte of 0 or a page of zeros for the end of the file, without a word; after a file "
    "that FLUSH BINARY LOGS found exactly full, mariadb-binlog passes over the next one (specification section 16).",
    "damaged": "The group cannot be put together, or its events do not tile it (specification sections 5 to 7).",
    "reserve": "A file of zeros at the end of the log, held in reserve (specification section 1).",
    "not-a-log": "No server opens a file of this name (specification section 1).",
}


def count_of_events(details: Mapping[str, Any]) -> int:
    """Return the number of events of a file from the validator's details."""
    return int(details["events"])
