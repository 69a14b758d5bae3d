"""Predict what a starting server does with each transaction: apply, skip, refuse or silently drop it.

Source: `docs/spec/manticore-binlog.md#8-what-the-server-does-with-it`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from binlogtool.errors import LimitError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.damage.damage import FATAL_MISMATCH
from binlogtool.formats.manticore.judge.judge import MAX_TABLES
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.replay.progress import MAX_GAPS, Lost, Reading, Table
from binlogtool.formats.manticore.replay.saved import saved_tids
from binlogtool.formats.manticore.replay.startup import (
    FORCES_TRANSACTIONS,
    FORCES_VERSIONS,
    SETTINGS_LEAVE_TID,
    Plan,
    corrected_head,
    damage_at,
    damage_finding,
    is_loss,
    log_context,
    plan,
    said_version,
)
from binlogtool.formats.manticore.replay.unchecked_parse import ParseDoubt, parse_doubt
from binlogtool.formats.manticore.schema import OldOp, Op
from binlogtool.formats.replay_rules import (
    APPLIED,
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    Examined,
    Itinerary,
    Outcome,
    Records,
    Ruling,
    Situation,
    Stop,
    runs,
)

_BY_CHECKSUM = ("bad CRC", "wrong length", "length past end of file", "transaction does not parse", "torn tail")
_GAVE_UP = SKIPPED, NOT_REACHED


class TableReplay:
    """Replay rules of a directory or of single files (implements `replay_rules.Replayer`)."""

    def __init__(self, situation: Situation) -> None:
        self._saved = saved_tids(situation.against or {})
        self.situation = situation
        self.plan: Plan = plan(situation)
        self.tables: dict[str, Table] = {}
        self.force = situation.policy == "force"
        self.stop: Stop | None = self.plan.refusal
        self.findings: list[tuple[str, Finding]] = []
        self.reports: list[dict[str, Any]] = []
        self.reading: Reading | None = None
        self._open_error: Stop | None = None
        self.replayed = 0
        self.unchecked = self.plan.unchecked
        self._waiting = list(self.plan.files)

    def itinerary(self) -> Itinerary:
        """Return the files of the list, in its order, up to one that cannot be opened."""
        passed = {file.name: "no-meta" if self.plan.no_list else "unlisted" for file in self.plan.unlisted}
        if self.plan.refusal is not None:
            return Itinerary((), refusal=self.plan.refusal)
        self._missing()
        self._passed_over()
        return Itinerary(tuple(file.name for file in self._waiting if file.records), passed)

    def _missing(self) -> None:
        if self.force:
            return
        for name, before in self.plan.missing.items():
            self._waiting = self._waiting[:before]
            self._open_error = Stop(name, None, "listed in binlog.meta and not there: log open error")
            return

    def _passed_over(self) -> None:
        """Report transactions in files that are not on the list."""
        near = {file.name: found for file in self.plan.unlisted for found in file.findings if "server" in found.facts}
        for file in self.plan.unlisted:
            if file.records:
                how = "no list names it" if self.plan.no_list else "it is not listed in binlog.meta"
                severity = Severity.ERROR
                if not self.plan.no_list and file.name in near:
                    severity = near[file.name].severity
                text = f"{file.records:,} transactions are not replayed, for {how}; the file will be overwritten"
                found = finding("silent-loss", 0, file.size, text, severity=severity, lost_records=file.records)
                self.findings.append((file.name, found))

    # -- reading ---------------------------------------------------------------------------------------------------

    def feed(self, name: str, first: int, records: Records) -> Iterable[Ruling]:
        """Rules on one run of transactions."""
        self._reach(name)
        reading = self.reading
        if self.stop is not None or reading is None:
            return [Ruling(first, first + len(records), *_GAVE_UP)]
        cut = len(records) if reading.bad is None else bisect_left(records.offset, reading.bad)
        verbs: list[tuple[str, str]] = []
        for i in range(cut):
            if reading.ended is not None or self.stop is not None:
                break
            verbs.append(self._rule(reading, records, i))
        if len(verbs) < len(records) and reading.ended is None and self.stop is None:
            self._damaged(reading)
        rest = _GAVE_UP if reading.ended is None else (SKIPPED, reading.ended)
        reading.taken += len(verbs)
        return [*runs(verbs, first), *runs([rest] * (len(records) - len(verbs)), first + len(verbs))]

    def _reach(self, name: str) -> None:
        """Open the files up to this one; those before it have no transactions."""
        while self.stop is None and (self.reading is None or self.reading.file.name != name) and self._waiting:
            self._close()
            if self.stop is None:
                self._open(self._waiting.pop(0))

    def _open(self, file: Examined) -> None:
        defects = frozenset(found.offset for found in file.findings if found.id == "checksum-absent")
        broken = (found for found in file.findings if found.facts.get("diagnosis") == "commit contradicts itself")
        contradictions = frozenset(found.offset for found in broken)
        self.reading = reading = Reading(file, damage_at(file), defects, contradictions)
        context = log_context(file)
        if context is None:
            self._fail(reading, None, "the log cannot be read: log open error", opens=True)
            return
        said, version = said_version(file), self.plan.version
        if said is not None and said != version:
            text = f"the log is of version {said}, the server of version {version}"
            self._fail(reading, 4, f"{text}: recovery requires the other version", version=True)
        elif context.header == "bad magic" or (said is None and corrected_head(file) is not None):
            self._fail(reading, 0, "the log does not start with SPBL")
        elif context.header == "torn":
            if not context.new:
                self._fail(reading, 0, "the header of the log is torn")
            reading.ended = reading.ended or "deleted"

    def _fail(
        self, reading: Reading, offset: int | None, why: str, *, opens: bool = False, version: bool = False
    ) -> None:
        """Handle a fatal error: stop the server, or with the replay flags end this file."""
        server = self.plan.version
        forced = server in FORCES_VERSIONS if version else opens or server >= FORCES_TRANSACTIONS
        if not (self.force and forced):
            self.stop = Stop(reading.file.name, offset, why)
        else:
            reading.ended = self._ending(reading)

    def _ending(self, reading: Reading) -> str:
        """Return what happens to a file that cannot be read on: one without a table is deleted."""
        alone = not reading.names and not self.replayed and self.plan.version >= schema.NEW_FRAME
        return "deleted" if alone else "dropped"

    def _damaged(self, reading: Reading) -> None:
        """Handle bytes that are no transaction."""
        assert reading.bad is not None
        found = damage_finding(reading.file, reading.bad)
        action = "refuse" if found is None else found.facts.get("server", "refuse")
        diagnosis = None if found is None else found.facts.get("diagnosis")
        if action == "refuse" and diagnosis in _BY_CHECKSUM and self._only_checked(reading):
            action = "drop"
        why = "damage" if found is None else found.message
        doubt = None if action == "refuse" else self._doubt(reading)
        if doubt is not None and doubt.crashes:
            self.stop = Stop(reading.file.name, reading.bad, doubt.why)
        elif doubt is not None:
            self.unchecked = (*self.unchecked, doubt.why)
        if action == "refuse":
            self._fail(reading, reading.bad, why)
        else:
            reading.ended = self._ending(reading) if action == "delete" else "dropped"

    def _doubt(self, reading: Reading) -> ParseDoubt | None:
        """Return why a server of the old frame may not survive the garbage that it reads before it verifies a
        checksum.
        """
        context, beside = log_context(reading.file), self.situation.beside
        read = None if beside is None else beside(reading.file.name)
        if context is None or context.version >= FATAL_MISMATCH or read is None or reading.bad is None:
            return None
        return parse_doubt(read, reading.bad, reading.file.size, context.version, context.ids)

    def _only_checked(self, reading: Reading) -> bool:
        """Check that the server skips the payload of the damaged transaction; before version 15 it parses every
        payload.
        """
        beside = self.situation.beside
        read = None if beside is None else beside(reading.file.name)
        if read is None or reading.bad is None or self.plan.version < schema.NEW_FRAME:
            return False
        head = read(reading.bad, 32)
        if head[:4] != schema.SYNC or len(head) < 7 or head[4] != Op.ADD_TXN:
            return False
        number, at = read_zint(head, 5, len(head))
        tid, end = read_zint(head, at, len(head)) if at > 0 else (0, -1)
        if end < 0 or not 0 <= number < len(reading.names):
            return False
        table = self.tables[reading.names[number]]
        passed = table.tid is None or table.tid < 0 or tid <= table.tid
        if passed:
            table.last = max(table.last, tid)  # the server counts it before it verifies the checksum
        return passed

    @property
    def _is_new(self) -> bool:
        """True if the server has frames of version 15 or later."""
        return self.plan.version >= schema.NEW_FRAME

    # -- one transaction -------------------------------------------------------------------------------------------

    def _rule(self, reading: Reading, records: Records, i: int) -> tuple[str, str]:
        e = records.envelope
        kind, name, tid = e.type[i], e.object[i], e.seq[i]
        if kind == Op.ADD_INDEX.name:
            return self._declare(reading, records, i, name or "")
        if kind == Op.ADD_CACHE.name:
            reading.kinds[kind] += 1
            if records.offset[i] in reading.defects:
                reading.ended = "dropped"  # nothing should follow
            return SKIPPED, "no-data"
        since = schema.SINCE.get(OldOp[kind], 0) if kind in OldOp.__members__ and not self._is_new else 0
        if since > self.plan.version:
            words = f"unexpected entry: {kind} came with version {since}, the server is of version {self.plan.version}"
            return self._reject(reading, records.offset[i], "payload", words)
        table = None if name is None else reading.known.get(name)
        if table is None or name is None or tid is None:
            return self._reject(reading, records.offset[i], "unknown-table", "the table id is not declared")
        if self.plan.version < schema.NEW_FRAME and (fault := self._descends(table, tid, e.time[i] or 0)):
            return self._reject(reading, records.offset[i], fault, f"table {name}: {fault.replace('-', ' ')}")
        passed = self._pass(reading, records, i, table)
        if passed is None and _unreadable(records.findings.get(i, ())):
            return self._reject(reading, records.offset[i], "payload", f"table {name}: the payload cannot be parsed")
        reading.kinds[kind] += 1
        table.last = max(table.last, tid)
        if passed is not None:
            return SKIPPED, passed
        contradicts = records.offset[i] in reading.contradictions and self.plan.version < schema.NEW_FRAME
        if contradicts and not self.unchecked:
            place = f"{records.offset[i]:#x} of {reading.file.name}"
            text = f"not checked: the numbers of the commit at {place} contradict each other, "
            self.unchecked = (f"{text}and the server applies it unchecked",)
        if kind == OldOp.RECONFIGURE.name and self.plan.version in SETTINGS_LEAVE_TID:
            return APPLIED, "applied"
        return APPLIED, self._apply(reading, table, tid)

    def _declare(self, reading: Reading, records: Records, i: int, name: str) -> tuple[str, str]:
        number = (records.bodies[i] or {}).get("id", len(reading.names))
        if number != len(reading.names):
            return self._reject(reading, records.offset[i], "unknown-table", "table ids are not in order")
        table = self.tables.get(name)
        if table is None:
            if len(self.tables) >= MAX_TABLES:
                raise LimitError(f"{reading.file.path}: more than {MAX_TABLES:,} tables")
            tid = self._saved.get(name, 0)
            table = self.tables[name] = Table(tid, tid or 0)
        table.since, table.last, table.time = table.tid or 0, 0, 0
        reading.names.append(name)
        reading.known[name] = table
        reading.kinds[Op.ADD_INDEX.name] += 1
        return SKIPPED, "no-data"

    def _descends(self, table: Table, tid: int, time: int) -> str | None:
        """Check what servers up to version 14 check of every transaction, also of those that are not applied."""
        if tid < table.last:
            return "descending-tid"
        if time < table.time and not self.force:
            return "descending-time"
        table.time = time
        return None

    def _pass(self, reading: Reading, records: Records, i: int, table: Table) -> str | None:
        """Return why the transaction is not applied, or None."""
        tid, name = records.envelope.seq[i] or 0, records.envelope.object[i] or ""
        if table.tid is None:
            return "not-served"
        if table.tid < 0:
            return "binlog-off"
        if tid > table.tid:
            return None
        if tid <= table.saved:
            return "saved"
        if not table.passed_by(tid):
            return "repeated"
        if reading.lost is None:
            reading.lost = Lost(records.offset[i], records.record[i])
        reading.lost.add(name, tid)
        return "lost-order"

    def _apply(self, reading: Reading, table: Table, tid: int) -> str:
        before = table.tid or 0
        table.tid = tid
        if tid == before + 1:
            return "applied"
        if len(table.gaps) < MAX_GAPS:
            table.gaps.append((before + 1, tid - 1))
        reading.unexpected += 1
        return "unexpected-tid"

    def _reject(self, reading: Reading, offset: int, reason: str, why: str) -> tuple[str, str]:
        self._fail(reading, offset, why)
        return REJECTED, reason

    # -- the end ---------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Close the current file: handle damage after its last transaction, and report its losses."""
        reading, self.reading = self.reading, None
        if reading is None:
            return
        if reading.bad is not None and reading.ended is None and self.stop is None and _read_all(reading):
            self._damaged(reading)
        if self.stop is None or reading.taken:
            self.reports.append(reading.report())
        if self.stop is None:
            self._told(reading)
            self.replayed += bool(reading.names)

    def _told(self, reading: Reading) -> None:
        """Report the losses of the file."""
        file, lost = reading.file, reading.lost
        if lost is not None:
            text = f"{lost.count:,} transactions have TIDs lower than one before them: the server passes over them "
            text += "without a word"
            self._loss(file, lost.offset, file.size - lost.offset, text, record=lost.record, lost_records=lost.count,
                       tables={name: list(tids) for name, tids in lost.tids.items()})  # fmt: skip
        behind = file.records - reading.taken
        at = reading.bad if reading.bad is not None else 0
        unread = reading.bad is None and file.size > schema.HEADER_SIZE and not reading.taken
        damaged = unread or (reading.bad is not None and is_loss(damage_finding(file, at)))
        if reading.ended and (behind or damaged):
            text = (
                f"the server starts, and {'deletes' if reading.ended == 'deleted' else 'does not replay the rest of'} "
            )
            text += f"this file: {behind:,} whole transactions are behind the damage"
            self._loss(file, at, file.size - at, text, lost_records=behind, server=reading.ended)

    def _loss(self, file: Examined, offset: int, length: int, text: str, **facts: Any) -> None:
        record = facts.pop("record", None)
        self.findings.append((file.name, finding("silent-loss", offset, length, text, record=record, **facts)))

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Close the last file and open those after it that have no transactions; then comes one that cannot be
        opened.
        """
        self._close()
        while self.stop is None and self._waiting and not self._waiting[0].records:
            self._open(self._waiting.pop(0))
            self._close()
        if self.stop is None and not self._waiting:
            self.stop = self._open_error
        tids = {**self._saved, **{name: table.tid for name, table in self.tables.items()}}
        position = {"tables": dict(sorted(tids.items()))}
        details: dict[str, Any] = {"files": self.reports, "server_version": self.plan.version}
        starts: bool | None = self.stop is None
        if self.unchecked and self.stop is None:
            starts, details["startup"] = None, {"starts": None, "not_checked": list(self.unchecked)}
        return (), Outcome(starts, self.stop, position, tuple(self.findings), details)


def _read_all(reading: Reading) -> bool:
    """Check that all transactions before the damage were read (and not only those before some `--until`)."""
    found = None if reading.bad is None else damage_finding(reading.file, reading.bad)
    return found is None or found.record is None or reading.taken >= found.record


def _unreadable(found: tuple[Finding, ...]) -> bool:
    return any(one.id == "payload-undecodable" for one in found)
