"""Beginning and end of a log: header, closing event, in-use flag, cost of damage, and the validation result."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import proxy

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import ChecksumAlgorithm, EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.facts import Checkpoint, Interval, LogFacts, Rotation
from binlogtool.formats.mysql_binlog.judge.gtid_rules import gtids_text
from binlogtool.formats.repair_rules import SERVER_CUTS

if TYPE_CHECKING:
    from binlogtool.formats.mysql_binlog.judge.judge import EventJudge

_T = EventType
_LISTS_SINCE_MYSQL, _LISTS_SINCE_MARIADB = (5, 6, 5), (10, 0, 2)
_HEAD = (_T.FORMAT_DESCRIPTION, _T.START_ENCRYPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST)
_NONE: Mapping[Any, Any] = MappingProxyType({})
"""One for all files that have none."""

_MOST = 1_000
"""Ceiling of remembered damages, source files and checkpoints."""


class Endings:
    """Notes of the validator for the end of the file.

    `next_group_by_fault`: where something is wrong -> where the next transaction after it begins.
    """

    def __init__(self, judge: EventJudge) -> None:
        self._judge: EventJudge = proxy(
            judge
        )  # avoids a reference cycle, so that the memory of many small files is released at once
        self._state = judge.state
        context = judge.context
        self.description = context.description
        self.in_use = bool(self.description.flags & EventFlag.BINLOG_IN_USE) and not context.relay
        self.breaks: dict[int, int | None] = {}
        self.faults = 0
        self.first_time = 0
        self.last: Event | None = None
        self.rotation: Rotation | None = None
        self.sources: list[str] = []
        self.checkpoints: list[Checkpoint] = []
        self._damaged = False
        self._open_at_damage: int | None = None
        self._head_end = judge.layout.frames_at
        self._listed = False

    # -- while events are read -----------------------------------------------------------------------------------------

    def see(self, batch: Batch) -> None:
        """Note the first and last event of a batch."""
        table, count = batch.frames, batch.frames.count
        if not count:
            return
        at = count - 1
        self.first_time = self.first_time or int(table["timestamp"][0])
        start, end = batch.base + int(table["offset"][at]), batch.base + int(table["end"][at])
        self.last = Event(
            int(table["type_code"][at]), int(table["timestamp"][at]), 0, 0, 0, start, end, batch.first_record + at,
            memoryview(b""),
        )  # fmt: skip
        self._reach(batch)
        self._open_at_damage = None

    def _reach(self, batch: Batch) -> None:
        """Follow how far the header extends: FORMAT_DESCRIPTION, START_ENCRYPTION, and the list of earlier GTIDs."""
        table = batch.frames
        for index in range(min(batch.frames.count, len(_HEAD))):
            start, code = batch.base + int(table["offset"][index]), int(table["type_code"][index])
            if start != self._head_end or code not in _HEAD:
                return
            self._head_end = batch.base + int(table["end"][index])
            self._listed = self._listed or code in _HEAD[2:]

    def fault(self, offset: int) -> None:
        """Note a fault: the durable part of the file ends before it."""
        self.faults += 1
        self._break(offset)

    def _break(self, offset: int) -> None:
        """Freeze the durable end, and wait for the next transaction."""
        self._state[folds.FROZEN] = 1
        if offset not in self.breaks and len(self.breaks) < _MOST:
            self.breaks[offset] = None
            self._state[folds.WATCH] = 1

    def damage(self, start: int, end: int) -> None:
        """Note that a part of the file was skipped."""
        self._damaged = True
        self._open_at_damage = self._open_group()
        self._break(start)

    def group_begins(self, offset: int) -> None:
        """Note a transaction at which reading can continue."""
        if self._state[folds.WATCH]:
            self._state[folds.WATCH] = 0
            for place, following in self.breaks.items():
                if following is None:
                    self.breaks[place] = offset

    def take(self, event: Event, body: dict[str, Any]) -> None:
        """Note an event outside of transactions."""
        if event.code not in (_T.ROTATE, _T.BINLOG_CHECKPOINT):
            return
        name, relay = _name(body.get("name")), bool(self._state[folds.RELAY])
        if event.code == _T.BINLOG_CHECKPOINT and len(self.checkpoints) < _MOST and not relay:
            self.checkpoints.append(Checkpoint(name, event.start))
        elif event.code == _T.ROTATE and not relay:
            self.rotation = Rotation(name, int(body.get("position", 0)), event.start)
        elif event.code == _T.ROTATE and name not in self.sources[-1:] and len(self.sources) < _MOST:
            self.sources.append(name)

    def _open_group(self) -> int | None:
        """Return where the open transaction begins; None if none is open."""
        state = self._state
        return int(state[folds.BEGINS]) if NO_GROUP < state[folds.GROUP] < folds.ADRIFT else None

    # -- the end -------------------------------------------------------------------------------------------------------

    def verdict(self, tail: Tail, found: list[Finding]) -> Verdict:
        """Return the validation result, with the findings that only the end of the file shows."""
        judge, state = self._judge, self._state
        gtids = judge.gtids
        if not judge.context.sealed:
            found = [*found, *map(_of_file, gtids.end()), *self._closing(tail)]
        kinds = {
            type_name(code, sealed=judge.context.sealed): n for code in range(256) if (n := state[folds.TYPES + code])
        }
        gone = gtids.lost
        repairable = not judge.context.sealed and self._head_is_whole(tail)
        return Verdict(
            transactions=state[folds.COUNT],
            record_types=kinds,
            findings=tuple(found),
            durable_end=self._durable_end(tail) if repairable else None,
            repairable=repairable,
            sequences=(gtids.first, gtids.latest),
            facts=self._facts(),
            details=self._details()
            | ({"lost_gtids": [list(one) for one in gone]} if gone else {})
            | ({"breaks": [{"at": at, "next_group": b} for at, b in self.breaks.items()]} if self.breaks else {}),
        )

    def _durable_end(self, tail: Tail) -> int | None:
        """Return the durable end; None if nothing is durable or readable."""
        if self._judge.context.sealed:
            return None
        return self._state[folds.BOUNDARY] or None

    def _head_is_whole(self, tail: Tail) -> bool:
        """Return whether magic, FORMAT_DESCRIPTION, START_ENCRYPTION and GTID list are intact.

        Truncation must keep all of them.
        """
        layout = self._judge.layout
        wrong = any(f.severity is Severity.ERROR and not is_corrected(f) for f in layout.findings)
        if wrong or self._head_end == layout.frames_at:
            return False
        ends_here = tail.first_damage == self._head_end or (tail.end == self._head_end and tail.size > tail.end)
        return self._listed or not self._expects_list() or not ends_here

    def _expects_list(self) -> bool:
        """Return whether this server writes a list of earlier GTIDs."""
        version = self.description.version
        if self.description.is_mariadb:
            return version >= _LISTS_SINCE_MARIADB and not self._judge.context.relay
        return version >= _LISTS_SINCE_MYSQL

    def _closing(self, tail: Tail) -> list[Finding]:
        """Return the findings about the end of the file."""
        found = []
        if self.in_use:
            found.append(self._not_closed())
        found += self._group_at_end(tail)
        found += self._without_end(tail)
        if self.description.checksum_alg != ChecksumAlgorithm.CRC32 and not self._state[folds.RELAY]:
            text = "the events have no checksums: a changed value inside a row cannot be noticed"
            found.append(finding("checksum-absent", None, 0, text))
        return found

    def _without_end(self, tail: Tail) -> list[Finding]:
        """Return a finding if a closed log does not end with ROTATE or STOP."""
        last = self.last
        damaged = bool(tail.findings) or tail.first_damage is not None or self._open_group() is not None
        if last is None or last.code in (_T.ROTATE, _T.STOP) or damaged or self.in_use or self._state[folds.RELAY]:
            return []
        text = f"the last event is {type_name(last.code)}, neither ROTATE nor STOP: more may have followed"
        text += "" if self.description.is_mariadb else " (MySQL's crash recovery leaves this, too)"
        return [finding("unclean-close", last.end, 0, text, severity=Severity.WARNING, diagnosis="no-end")]

    def _not_closed(self) -> Finding:
        """Return the finding about a file that was not closed."""
        if self.description.is_mariadb:
            text = "at its next start MariaDB leaves this file as it is and opens a new one"
        else:
            text = "at its next start MySQL cuts the file behind the last whole transaction and clears the flag"
        start = self._judge.layout.frames_at
        text = f"the in-use flag is set: the server is running, or it did not close the file; {text}"
        return finding("unclean-close", start, 19, text, record=0, diagnosis="in-use")

    def _group_at_end(self, tail: Tail) -> list[Finding]:
        """Return a finding about a transaction that the file ends in; in a closed file its end was cut off."""
        begins = self._open_group() if self._open_at_damage is None else self._open_at_damage
        last = self.last
        if begins is None or last is None:
            return []
        relay = bool(self._state[folds.RELAY])
        if relay and last.code in (_T.ROTATE, _T.STOP):
            return []
        torn = self.in_use or relay or bool(tail.findings)
        text = f"the group that begins at {begins:#x} has no end: the file ends"
        if torn:
            text += "; the server rolls it back" if not relay else "; the replica fetches it again"
        else:
            text += ", though it was closed"
            self._break(last.end)
        severity = Severity.NOTE if torn else Severity.ERROR
        facts = {"diagnosis": "group-open", "begins_at": begins}
        return [
            finding("incomplete-transaction", last.end, 0, text, severity=severity, record=last.record + 1, **facts)
        ]

    # -- what is handed on ---------------------------------------------------------------------------------------------

    def _details(self) -> dict[str, Any]:
        """Return the details of the report."""
        judge = self._judge
        details: dict[str, Any] = {
            "server_version": self.description.server_version,
            "checksum": _checksum(self.description.checksum_alg),
            "in_use": self.in_use,
            SERVER_CUTS: self.in_use and not self.description.is_mariadb,
            "gtids": gtids_text(judge.gtids.seen, self.description.is_mariadb),
        }
        if judge.inner.kinds:
            details["events_inside_payloads"] = dict(sorted(judge.inner.kinds.items()))
        return details

    def _facts(self) -> LogFacts:
        """Return the facts for the validation of the set."""
        judge, state, gtids = self._judge, self._state, self._judge.gtids
        return LogFacts(
            server_version=self.description.server_version,
            is_mariadb=self.description.is_mariadb,
            relay=bool(state[folds.RELAY]),
            checksum=_checksum(self.description.checksum_alg),
            in_use=self.in_use,
            created=self.description.create_timestamp,
            previous=gtids.previous,
            listed=gtids.listed,
            gtids={source: tuple(Interval(*one) for one in seen) for source, seen in gtids.seen.items() if seen}
            or _NONE,
            last_of_domain={domain: (server, gtids.last[domain]) for domain, server in gtids.last_server.items()}
            or _NONE,
            lost=tuple(gtids.lost),
            rotation=self.rotation,
            sources=tuple(self.sources),
            checkpoints=tuple(self.checkpoints),
            open_group=self._open_group() if self._open_at_damage is None else self._open_at_damage,
            stopped=self.last is not None and self.last.code == _T.STOP,
            damaged=self._damaged or bool(self.faults),
            faults=self.faults,
            transactions=state[folds.COUNT],
            first_time=self.first_time,
            last_time=state[folds.TIME],
            sealed=judge.context.sealed,
            carried=judge.carried,
        )


def _of_file(fault: Fault) -> Finding:
    """Return a finding about the file as a whole."""
    return finding(fault.id, None, 0, fault.text, severity=fault.severity, diagnosis=fault.diagnosis, **fault.facts)


def _checksum(algorithm: int | None) -> str:
    """Return the name of a checksum algorithm."""
    if algorithm is None:
        return "absent"
    return {ChecksumAlgorithm.NONE.value: "NONE", ChecksumAlgorithm.CRC32.value: "CRC32"}.get(algorithm, str(algorithm))


def _name(value: Any) -> str:
    """Return a file name as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
