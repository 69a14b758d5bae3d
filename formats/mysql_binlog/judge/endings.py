"""Beginning and end of a log: header, closing event, in-use flag, cost of damage, and the validation result."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import proxy

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import ChecksumAlgorithm, EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import Event, EventFault
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.facts import BinlogFacts, CheckpointEvent, NumberRange, RotateEvent
from binlogtool.formats.mysql_binlog.judge.gtid_rules import format_gtids
from binlogtool.formats.repair_rules import SERVER_TRUNCATES

if TYPE_CHECKING:
    from binlogtool.formats.mysql_binlog.judge.judge import BinlogValidator

_T = EventType
_LISTS_SINCE_MYSQL, _LISTS_SINCE_MARIADB = (5, 6, 5), (10, 0, 2)
_HEADER_EVENTS = (_T.FORMAT_DESCRIPTION, _T.START_ENCRYPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST)
_EMPTY: Mapping[Any, Any] = MappingProxyType({})
"""One for all files that have none."""

_MAX_REMEMBERED = 1_000
"""Ceiling of remembered damages, source files and checkpoints."""


class LogEndRules:
    """Notes of the validator for the end of the file.

    `next_group_by_fault`: where something is wrong -> where the next transaction after it begins.
    """

    def __init__(self, judge: BinlogValidator) -> None:
        self._validator: BinlogValidator = proxy(
            judge
        )  # avoids a reference cycle, so that the memory of many small files is released at once
        self._state = judge.state
        context = judge.context
        self.description = context.description
        self.in_use = bool(self.description.flags & EventFlag.BINLOG_IN_USE) and not context.is_relay_log
        self.next_group_by_fault: dict[int, int | None] = {}
        self.fault_count = 0
        self.first_time = 0
        self.last_event: Event | None = None
        self.rotation: RotateEvent | None = None
        self.sources: list[str] = []
        self.checkpoints: list[CheckpointEvent] = []
        self._has_damage = False
        self._open_at_damage: int | None = None
        self._header_end = judge.layout.frames_at
        self._has_gtid_list = False

    # -- while events are read -----------------------------------------------------------------------------------------

    def note_batch(self, batch: Batch) -> None:
        """Note the first and last event of a batch."""
        table, count = batch.frames, batch.frames.count
        if not count:
            return
        last_index = count - 1
        self.first_time = self.first_time or int(table["timestamp"][0])
        start, end = batch.base + int(table["offset"][last_index]), batch.base + int(table["end"][last_index])
        self.last_event = Event(
            int(table["type_code"][last_index]), int(table["timestamp"][last_index]), 0, 0, 0, start, end,
            batch.first_record + last_index,
            memoryview(b""),
        )  # fmt: skip
        self._extend_header(batch)
        self._open_at_damage = None

    def _extend_header(self, batch: Batch) -> None:
        """Follow how far the header extends: FORMAT_DESCRIPTION, START_ENCRYPTION, and the list of earlier GTIDs."""
        table = batch.frames
        for index in range(min(batch.frames.count, len(_HEADER_EVENTS))):
            start, code = batch.base + int(table["offset"][index]), int(table["type_code"][index])
            if start != self._header_end or code not in _HEADER_EVENTS:
                return
            self._header_end = batch.base + int(table["end"][index])
            self._has_gtid_list = self._has_gtid_list or code in _HEADER_EVENTS[2:]

    def note_fault(self, offset: int) -> None:
        """Note a fault: the durable part of the file ends before it."""
        self.fault_count += 1
        self._freeze_durable_end(offset)

    def _freeze_durable_end(self, offset: int) -> None:
        """Freeze the durable end, and wait for the next transaction."""
        self._state[folds.BOUNDARY_FROZEN] = 1
        if offset not in self.next_group_by_fault and len(self.next_group_by_fault) < _MAX_REMEMBERED:
            self.next_group_by_fault[offset] = None
            self._state[folds.WATCH_GROUP_START] = 1

    def note_damage(self, start: int, end: int) -> None:
        """Note that a part of the file was skipped."""
        self._has_damage = True
        self._open_at_damage = self._open_group_offset()
        self._freeze_durable_end(start)

    def note_group_start(self, offset: int) -> None:
        """Note a transaction at which reading can continue."""
        if self._state[folds.WATCH_GROUP_START]:
            self._state[folds.WATCH_GROUP_START] = 0
            for fault_offset, next_group in self.next_group_by_fault.items():
                if next_group is None:
                    self.next_group_by_fault[fault_offset] = offset

    def note_event(self, event: Event, body: dict[str, Any]) -> None:
        """Note an event outside of transactions."""
        if event.code not in (_T.ROTATE, _T.BINLOG_CHECKPOINT):
            return
        name, is_relay = _decode_name(body.get("name")), bool(self._state[folds.IS_RELAY])
        if event.code == _T.BINLOG_CHECKPOINT and len(self.checkpoints) < _MAX_REMEMBERED and not is_relay:
            self.checkpoints.append(CheckpointEvent(name, event.start))
        elif event.code == _T.ROTATE and not is_relay:
            self.rotation = RotateEvent(name, int(body.get("position", 0)), event.start)
        elif event.code == _T.ROTATE and name not in self.sources[-1:] and len(self.sources) < _MAX_REMEMBERED:
            self.sources.append(name)

    def _open_group_offset(self) -> int | None:
        """Return where the open transaction begins; None if none is open."""
        state = self._state
        return int(state[folds.GROUP_START]) if NO_GROUP < state[folds.GROUP_STATE] < folds.AFTER_DAMAGE else None

    # -- the end -------------------------------------------------------------------------------------------------------

    def make_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Return the validation result, with the findings that only the end of the file shows."""
        judge, state = self._validator, self._state
        gtids = judge.gtid_rules
        if not judge.context.encrypted_without_key:
            findings = [*findings, *map(_file_finding, gtids.finish()), *self._check_end(tail)]
        record_types = {
            type_name(code, encrypted_without_key=judge.context.encrypted_without_key): n
            for code in range(256)
            if (n := state[folds.TYPE_COUNTS + code])
        }
        lost_gtids = gtids.lost
        repairable = not judge.context.encrypted_without_key and self._is_header_intact(tail)
        return ValidationResult(
            transactions=state[folds.GROUP_COUNT],
            record_types=record_types,
            findings=tuple(findings),
            durable_end=self._get_durable_end(tail) if repairable else None,
            repairable=repairable,
            sequences=(gtids.first_number, gtids.last_number),
            facts=self._make_facts(),
            details=self._make_details()
            | ({"lost_gtids": [list(one) for one in lost_gtids]} if lost_gtids else {})
            | (
                {"breaks": [{"at": at, "next_group": b} for at, b in self.next_group_by_fault.items()]}
                if self.next_group_by_fault
                else {}
            ),
        )

    def _get_durable_end(self, tail: FileTail) -> int | None:
        """Return the durable end; None if nothing is durable or readable."""
        if self._validator.context.encrypted_without_key:
            return None
        return self._state[folds.BOUNDARY] or None

    def _is_header_intact(self, tail: FileTail) -> bool:
        """Return whether magic, FORMAT_DESCRIPTION, START_ENCRYPTION and GTID list are intact.

        Truncation must keep all of them.
        """
        layout = self._validator.layout
        has_error = any(f.severity is Severity.ERROR and not is_header_correction(f) for f in layout.findings)
        if has_error or self._header_end == layout.frames_at:
            return False
        is_list_damaged = tail.first_damage == self._header_end or (
            tail.end == self._header_end and tail.size > tail.end
        )
        return self._has_gtid_list or not self._expects_gtid_list() or not is_list_damaged

    def _expects_gtid_list(self) -> bool:
        """Return whether this server writes a list of earlier GTIDs."""
        version = self.description.version
        if self.description.is_mariadb:
            return version >= _LISTS_SINCE_MARIADB and not self._validator.context.is_relay_log
        return version >= _LISTS_SINCE_MYSQL

    def _check_end(self, tail: FileTail) -> list[Finding]:
        """Return the findings about the end of the file."""
        findings = []
        if self.in_use:
            findings.append(self._in_use_finding())
        findings += self._check_open_group(tail)
        findings += self._check_end_event(tail)
        if self.description.checksum_alg != ChecksumAlgorithm.CRC32 and not self._state[folds.IS_RELAY]:
            text = "the events have no checksums: a changed value inside a row cannot be noticed"
            findings.append(make_finding("checksum-absent", None, 0, text))
        return findings

    def _check_end_event(self, tail: FileTail) -> list[Finding]:
        """Return a finding if a closed log does not end with ROTATE or STOP."""
        last = self.last_event
        has_damaged_end = bool(tail.findings) or tail.first_damage is not None or self._open_group_offset() is not None
        if (
            last is None
            or last.code in (_T.ROTATE, _T.STOP)
            or has_damaged_end
            or self.in_use
            or self._state[folds.IS_RELAY]
        ):
            return []
        text = f"the last event is {type_name(last.code)}, neither ROTATE nor STOP: more may have followed"
        text += "" if self.description.is_mariadb else " (MySQL's crash recovery leaves this, too)"
        return [make_finding("unclean-close", last.end, 0, text, severity=Severity.WARNING, diagnosis="no-end")]

    def _in_use_finding(self) -> Finding:
        """Return the finding about a file that was not closed."""
        if self.description.is_mariadb:
            text = "at its next start MariaDB leaves this file as it is and opens a new one"
        else:
            text = "at its next start MySQL cuts the file behind the last whole transaction and clears the flag"
        start = self._validator.layout.frames_at
        text = f"the in-use flag is set: the server is running, or it did not close the file; {text}"
        return make_finding("unclean-close", start, 19, text, record=0, diagnosis="in-use")

    def _check_open_group(self, tail: FileTail) -> list[Finding]:
        """Return a finding about a transaction that the file ends in; in a closed file its end was cut off."""
        begins_at = self._open_group_offset() if self._open_at_damage is None else self._open_at_damage
        last = self.last_event
        if begins_at is None or last is None:
            return []
        is_relay = bool(self._state[folds.IS_RELAY])
        if is_relay and last.code in (_T.ROTATE, _T.STOP):
            return []
        is_expected = self.in_use or is_relay or bool(tail.findings)
        text = f"the group that begins at {begins_at:#x} has no end: the file ends"
        if is_expected:
            text += "; the server rolls it back" if not is_relay else "; the replica fetches it again"
        else:
            text += ", though it was closed"
            self._freeze_durable_end(last.end)
        severity = Severity.NOTE if is_expected else Severity.ERROR
        facts = {"diagnosis": "group-open", "begins_at": begins_at}
        return [
            make_finding(
                "incomplete-transaction", last.end, 0, text, severity=severity, record=last.record + 1, **facts
            )
        ]

    # -- what is handed on ---------------------------------------------------------------------------------------------

    def _make_details(self) -> dict[str, Any]:
        """Return the details of the report."""
        judge = self._validator
        details: dict[str, Any] = {
            "server_version": self.description.server_version,
            "checksum": _checksum_name(self.description.checksum_alg),
            "in_use": self.in_use,
            SERVER_TRUNCATES: self.in_use and not self.description.is_mariadb,
            "gtids": format_gtids(judge.gtid_rules.seen, self.description.is_mariadb),
        }
        if judge.payload_rules.type_counts:
            details["events_inside_payloads"] = dict(sorted(judge.payload_rules.type_counts.items()))
        return details

    def _make_facts(self) -> BinlogFacts:
        """Return the facts for the validation of the set."""
        judge, state, gtids = self._validator, self._state, self._validator.gtid_rules
        return BinlogFacts(
            server_version=self.description.server_version,
            is_mariadb=self.description.is_mariadb,
            is_relay=bool(state[folds.IS_RELAY]),
            checksum=_checksum_name(self.description.checksum_alg),
            in_use=self.in_use,
            created=self.description.create_timestamp,
            previous=gtids.previous,
            listed=gtids.listed,
            gtids={source: tuple(NumberRange(*one) for one in seen) for source, seen in gtids.seen.items() if seen}
            or _EMPTY,
            last_of_domain={
                domain: (server, gtids.last_by_series[domain]) for domain, server in gtids.last_server_by_domain.items()
            }
            or _EMPTY,
            lost_ranges=tuple(gtids.lost),
            rotation=self.rotation,
            sources=tuple(self.sources),
            checkpoints=tuple(self.checkpoints),
            open_group=self._open_group_offset() if self._open_at_damage is None else self._open_at_damage,
            ends_with_stop=self.last_event is not None and self.last_event.code == _T.STOP,
            is_damaged=self._has_damage or bool(self.fault_count),
            faults=self.fault_count,
            transactions=state[folds.GROUP_COUNT],
            first_time=self.first_time,
            last_time=state[folds.LAST_TIME],
            lacks_key=judge.context.encrypted_without_key,
            begins_in_group=judge.begins_in_group,
        )


def _file_finding(fault: EventFault) -> Finding:
    """Return a finding about the file as a whole."""
    return make_finding(
        fault.id, None, 0, fault.text, severity=fault.severity, diagnosis=fault.diagnosis, **fault.facts
    )


def _checksum_name(algorithm: int | None) -> str:
    """Return the name of a checksum algorithm."""
    if algorithm is None:
        return "absent"
    return {ChecksumAlgorithm.NONE.value: "NONE", ChecksumAlgorithm.CRC32.value: "CRC32"}.get(algorithm, str(algorithm))


def _decode_name(value: Any) -> str:
    """Return a file name as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
