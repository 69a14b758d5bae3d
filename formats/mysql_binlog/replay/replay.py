"""Replay prediction of a binary log: applying it (`mysqlbinlog FILES | mysql`) and crash recovery.

The decision on a record is about applying, as point-in-time recovery and a replica do it. What a restart
would do with the newest file is reported separately (`details.crash_recovery`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.apply.applier import Applier
from binlogtool.formats.binlog_events.apply.executed import parse_executed
from binlogtool.formats.binlog_events.apply.verdicts import Lost
from binlogtool.formats.binlog_events.apply.words import xa_text
from binlogtool.formats.mysql_binlog.members.names import INFO
from binlogtool.formats.mysql_binlog.replay.crash_recovery import CrashRecovery
from binlogtool.formats.mysql_binlog.replay.recovery_reader import RecoveryRead, recovery_read
from binlogtool.formats.mysql_binlog.replay.replayed_logs import Chosen, base_name, choose
from binlogtool.formats.mysql_binlog.replay.startup import startup
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

MOST_LOSSES = 100
"""Losses of one kind that are told one by one."""


class BinlogReplay:
    """Simulates applying a log (`Replayer`).

    Damage ends the reading, except that a file that was not closed may end anywhere.
    """

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        self._against = situation.against or {}
        executed = parse_executed(str(self._against.get("gtid") or ""))
        self._chosen: Chosen = choose(situation, executed if self._against.get("gtid") and not self._force else None)
        self._logs = self._chosen.logs
        self._places = {one.file.name: place for place, one in enumerate(self._logs)}
        self._recovery = CrashRecovery([one.file for one in self._logs], situation.beside, self._recovery_read())
        self._startup = startup(situation, self._logs)
        self._begin = _beginning(self._against, self._places)
        self._applier = Applier(
            executed,
            ordered=bool(self._logs) and self._logs[-1].is_mariadb and not self._logs[-1].is_relay,
            trusting=bool(self._against),
            goes_on=self._force,
        )
        self._stop: Stop | None = None
        self._position: tuple[str, int] | None = None
        self._place = -1
        self._damage = 0
        self._ended = False
        self._behind: dict[str, tuple[int, int]] = {}
        self._lost: list[tuple[str, Lost]] = []
        self._next = 0

    def _recovery_read(self) -> RecoveryRead | None:
        """Return how far crash recovery reads the newest log; None if it is not needed."""
        newest = self._logs[-1] if self._logs else None
        beside = self._situation.beside
        if newest is None or beside is None or not newest.in_use or newest.is_relay:
            return None
        return recovery_read(newest, beside(newest.file.name), self._logs)

    def itinerary(self) -> Itinerary:
        """Return all files of the log in order; files next to it are not read."""
        read = () if self._chosen.refusal else tuple(self._places)
        starts = None if self._startup is None else self._startup.starts
        return Itinerary(read, self._chosen.passed, self._chosen.refusal, starts=starts)

    # -- records -----------------------------------------------------------------------------------------------------

    def feed(self, name: str, first: int, records: Records) -> Iterator[Ruling]:
        """Rule on the records up to the next damage, and on those after it."""
        self._recovery.see(name, records)
        yield from self._turn_to(self._places[name], first)
        at, count = 0, len(records)
        self._next = first + count
        while at < count and self._stop is None and not self._ended:
            begin = self._begun(records)
            if at < begin:
                yield Ruling(first + at, first + begin, SKIPPED, "executed")
                at = begin
                continue
            stop = self._up_to_damage(records)
            if at < stop:
                at = yield from self._apply(first, records, at, stop)
            else:
                at += yield from self._meet(first + at, records, at)
        if at < count and self._stop is not None:
            yield Ruling(first + at, first + count, SKIPPED, NOT_REACHED)
        elif at < count:
            offset, behind = self._behind.get(name, (records.offset[at], 0))
            self._behind[name] = offset, behind + count - at
            yield Ruling(first + at, first + count, SKIPPED, "behind-damage")

    def _apply(self, first: int, records: Records, at: int, stop: int) -> Generator[Ruling, None, int]:
        """Apply the records `[at, stop)`; return the index to continue at."""
        applier, name = self._applier, self._logs[self._place].file.name
        applier.reached, lost = None, len(applier.lost)
        yield from applier.feed(first, records, at, stop)
        if applier.reached is not None:
            self._position = name, applier.reached
        self._lost += [(name, one) for one in applier.lost[lost:]]
        if applier.failure is None:
            return stop
        self._stop = Stop(name, applier.failure.offset, applier.failure.why)
        return applier.failure.number - first + 1

    def _begun(self, records: Records) -> int:
        """Return how many records of this run precede the position that was reached before."""
        if self._begin is None or self._place > self._begin[0]:
            return 0
        return len(records) if self._place < self._begin[0] else bisect_left(records.offset, self._begin[1])

    # -- files and damage --------------------------------------------------------------------------------------------

    def _turn_to(self, place: int, number: int) -> Iterator[Ruling]:
        """Leave all files before this one; some may have no records."""
        while self._place < place:
            yield from self._leave(number)
            self._place, self._damage, self._ended = self._place + 1, 0, False
            self._pass_damages()
            self._applier.unmapped = self._logs[self._place].unmapped

    def _leave(self, number: int) -> Iterator[Ruling]:
        """Handle damage after the last record of a file."""
        while self._place >= 0 and self._stop is None and self._left_damages():
            yield from self._break(number)

    def _left_damages(self) -> bool:
        """Return whether the file has damage that was not reached yet."""
        return not self._ended and self._damage < len(self._logs[self._place].damages)

    def _pass_damages(self) -> None:
        """Skip damage before the position that was reached before."""
        damages = self._logs[self._place].damages
        if self._begin is not None and self._place <= self._begin[0]:
            end = self._begin[1] if self._place == self._begin[0] else self._logs[self._place].file.size + 1
            self._damage = bisect_left(damages, (end, ""))

    def _up_to_damage(self, records: Records) -> int:
        """Return how many records of this run precede the next damage."""
        damages = self._logs[self._place].damages
        return bisect_left(records.offset, damages[self._damage].offset) if self._left_damages() else len(records)

    def _meet(self, number: int, records: Records, at: int) -> Generator[Ruling, None, int]:
        """Handle damage at or before record `number`; return 1 if that record is the damaged one and was ruled on."""
        damage = self._logs[self._place].damages[self._damage]
        yield from self._break(number)
        if self._force and records.offset[at] == damage.offset and not self._ended:
            yield Ruling(number, number + 1, REJECTED, "damaged")
            return 1
        return 0

    def _break(self, number: int) -> Iterator[Ruling]:
        """Handle damage before record `number`."""
        log = self._logs[self._place]
        damage = log.damages[self._damage]
        self._damage += 1
        if self._force:
            yield from self._applier.lose(number, (REJECTED, "damaged"))
        elif log.in_use:
            self._ended = True
            yield from self._applier.roll_back(number)
        else:
            yield from self._applier.lose(number, (SKIPPED, "incomplete"))
            self._stop = Stop(log.file.name, damage.offset, damage.why)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Roll back what is open and return the outcome."""
        last: list[Ruling] = []
        cut = self._situation.cut()
        if self._chosen.refusal is None and not cut:
            last += self._turn_to(len(self._logs) - 1, self._next)
            last += self._leave(self._next)
        open_at = None if cut else self._applier.open_at
        last += self._applier.end(self._next)
        found = [*self._losses(open_at), *self._recovery.findings()]
        found += () if self._startup is None else self._startup.findings
        return last, Outcome(self._starts(), self._stop, self._reached(), tuple(found), self._details())

    def _starts(self) -> bool | None:
        """Return whether the server comes up; crash recovery may refuse, or what is opened before it."""
        recovered = self._recovery.starts()
        if self._startup is None or recovered is False:
            return recovered
        return self._startup.starts

    def _reached(self) -> dict[str, Any]:
        """Return the last applied position."""
        position = {key: self._against[key] for key in ("file", "offset") if key in self._against}
        if self._position is not None:
            position = {"file": base_name(self._position[0]), "offset": self._position[1]}
        return position | {"gtid": self._applier.executed.text}

    def _details(self) -> dict[str, Any]:
        """Return the details of the report."""
        pending = [xa_text(one) for one in self._applier.pending]
        details: dict[str, Any] = {"crash_recovery": self._recovery.details(), "xa_prepared": pending}
        before = self._logs[0].before if self._logs else ""
        if self._startup is not None:
            details["startup"] = self._startup.details
        return details | ({"begins_behind": before} if before else {})

    def _losses(self, open_at: int | None) -> Iterator[tuple[str, Finding]]:
        """Yield findings about rows, records and files that are skipped silently."""
        for name, lost in self._lost[:MOST_LOSSES]:
            text = "the TABLE_MAP of these rows is missing: the server takes the table for one that is filtered out"
            at, size, record, gtid = lost
            found = finding("silent-loss", at, size, text, record=record, situation="apply", gtid=gtid)
            yield name, found
        for name, (offset, count) in self._behind.items():
            text = f"{count:,} records behind the damage: the file was not closed, so its reader takes that for the end"
            size = self._logs[self._places[name]].file.size - offset
            yield name, finding("silent-loss", offset, size, text, situation="apply", lost_records=count)
        yield from self._missing()
        last = self._logs[-1] if self._logs else None
        if open_at is not None and last is not None and self._stop is None and not (last.in_use or last.is_relay):
            text = "the transaction has no end: it is rolled back, though the file was closed"
            yield last.file.name, finding("silent-loss", open_at, last.file.size - open_at, text, situation="apply")

    def _missing(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about missing files and removed events before the end of the reading."""
        for one in self._situation.findings:
            if one.id == "missing-member" and one.severity is Severity.ERROR and "missing_gtids" in one.facts:
                text = f"{one.facts.get('missing')} is missing, and who applies the other files is not told"
                gtids = one.facts["missing_gtids"]
                found = finding("silent-loss", None, 0, text, situation="apply", missing_gtids=gtids)
                yield str(one.facts.get("missing")), found
        for place, log in enumerate(self._logs):
            for one in log.removed:
                if self._was_read(place, one.offset or 0):
                    text = f"events were taken out of the file: {one.message}"
                    yield log.file.name, finding("silent-loss", one.offset, 0, text, situation="apply")

    def _was_read(self, place: int, offset: int) -> bool:
        """Return whether the reading reached an offset."""
        if self._stop is None:
            return True
        return (place, offset) < (self._places.get(self._stop.file, 0), self._stop.offset or 0)


# -- positions ---------------------------------------------------------------------------------------------------------


def _beginning(against: Mapping[str, Any], places: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the file and offset up to which the log was applied, if the position names them."""
    known = {base_name(name): place for name, place in places.items()}
    for name, offset in (("file", "offset"), ("source_file", "source_offset")):
        place, at = known.get(str(against.get(name))), against.get(offset)
        if place is not None and isinstance(at, int) and not against.get("gtid"):
            return place, at
    return None


def state_of(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Return what a server file says was applied: MariaDB's `BASE.state`, relay-log.info, or a GTID set as text."""
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.split("\n")]
    if INFO.fullmatch(name):
        return _info(lines)
    try:
        executed = parse_executed(text)
    except UsageError:
        return None
    return {"gtid": executed.text} if executed.sources or executed.domains or not text.strip() else None


def _info(lines: list[str]) -> Mapping[str, Any] | None:
    """Parse relay-log.info; newer servers write the number of lines first."""
    rows = lines[1:5] if lines and lines[0].isdecimal() else lines[:4]
    if len(rows) < 2 or not rows[1].isdecimal():
        return None
    position: dict[str, Any] = {"file": base_name(rows[0]), "offset": int(rows[1])}
    if len(rows) == 4 and rows[2] and rows[3].isdecimal():
        position |= {"source_file": base_name(rows[2]), "source_offset": int(rows[3])}
    return position
