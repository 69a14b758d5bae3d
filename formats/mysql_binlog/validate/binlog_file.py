"""Validate one binary log file in file order.

The compiled path (`validate.kernels`) runs through events that are as expected; every event at which it stops is
checked here. The durable end is defined as the servers do: the end of the last transaction, or of the last event
outside transactions, before the first fault. Source: docs/spec/mysql_binlog.md#validation.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import proxy

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import SERVER_TRUNCATES, FileTail, ValidationResult, is_header_correction
from binlogtool.format_api.layout import Batch, ColumnTable, Kernel, LogFileLayout, to_int_list
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.decode import BinlogFileContext, TableMaps, type_name
from binlogtool.formats.binlog_events.event_schemas import (
    Event,
    EventFault,
    check_compressed_query,
    decode_body,
    get_event,
    parse_query,
    parse_xid,
)
from binlogtool.formats.binlog_events.transactions.boundaries import (
    EVENTS_BEFORE_STATEMENT_END,
    EVENTS_OUTSIDE_GROUPS,
    NO_GROUP,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    get_query_kind,
)
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    ChecksumAlgorithm,
    EventFlag,
    EventType,
)
from binlogtool.formats.mysql_binlog.detect_layout import FIRST_EVENT_AT, UNDECLARED_CHECKSUMS
from binlogtool.formats.mysql_binlog.validate import expected_event_kernels
from binlogtool.formats.mysql_binlog.validate.event_rules import (
    RARE_FLAGS,
    UNKNOWN_SERVER,
    CommitRules,
    PayloadRules,
    PositionRules,
    RowRules,
    check_and_track_header,
    explain_misplacement,
    is_certain_group_end,
    is_certain_group_start,
    read_ddl_xid,
)
from binlogtool.formats.mysql_binlog.validate.gtid_rules import (
    BinlogFacts,
    FileReference,
    GtidOrderRules,
    NumberRange,
    format_file_gtids,
)

if TYPE_CHECKING:
    from binlogtool.limits import Limits

# --- Beginning and end of a log ---

_T = EventType
_LISTS_SINCE_MYSQL, _LISTS_SINCE_MARIADB = (5, 6, 5), (10, 0, 2)
_HEADER_EVENTS = (_T.FORMAT_DESCRIPTION, _T.START_ENCRYPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST)
_EMPTY: Mapping[Any, Any] = MappingProxyType({})
"""Empty mapping that is shared by all files."""

_MAX_REMEMBERED = 1_000
"""Maximum number of damaged ranges, source files and checkpoints that are remembered."""


class LogEndRules:
    """Collects what the validator needs at the end of the file: durable end, in-use flag, last event, file references.

    `next_group_by_fault`: offset of a fault -> offset of the next transaction after it.
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
        self.last_event: Event | None = None
        self.rotation: FileReference | None = None
        self.sources: list[str] = []
        self.checkpoints: list[FileReference] = []
        self._has_damage = False
        self._open_at_damage: int | None = None
        self._header_end = judge.layout.frames_at
        self._has_gtid_list = False

    # -- while events are read -----------------------------------------------------------------------------------------

    def record_last_event(self, batch: Batch) -> None:
        """Record the last event of a batch."""
        table, count = batch.frames, batch.frames.count
        if not count:
            return
        last_index = count - 1
        start, end = batch.base + int(table["offset"][last_index]), batch.base + int(table["end"][last_index])
        self.last_event = Event(
            int(table["type_code"][last_index]), int(table["timestamp"][last_index]), 0, 0, 0, start, end,
            batch.first_record + last_index,
            memoryview(b""),
        )  # fmt: skip
        self._extend_header(batch)
        self._open_at_damage = None

    def _extend_header(self, batch: Batch) -> None:
        """Extend the header of the file over FORMAT_DESCRIPTION, START_ENCRYPTION, and the list of earlier GTIDs."""
        table = batch.frames
        for index in range(min(batch.frames.count, len(_HEADER_EVENTS))):
            start, code = batch.base + int(table["offset"][index]), int(table["type_code"][index])
            if start != self._header_end or code not in _HEADER_EVENTS:
                return
            self._header_end = batch.base + int(table["end"][index])
            self._has_gtid_list = self._has_gtid_list or code in _HEADER_EVENTS[2:]

    def record_fault(self, offset: int) -> None:
        """Count a fault and stop moving the durable end (this is called for every fault, not only the first)."""
        self.fault_count += 1
        self._freeze_durable_end(offset)

    def _freeze_durable_end(self, offset: int) -> None:
        """Stop moving the durable end, and watch for the next transaction."""
        self._state[expected_event_kernels.BOUNDARY_FROZEN] = 1
        if offset not in self.next_group_by_fault and len(self.next_group_by_fault) < _MAX_REMEMBERED:
            self.next_group_by_fault[offset] = None
            self._state[expected_event_kernels.WATCH_GROUP_START] = 1

    def record_skipped_range(self, start: int, end: int) -> None:
        """Record that a part of the file was skipped."""
        self._has_damage = True
        self._open_at_damage = self._get_open_transaction_offset()
        self._freeze_durable_end(start)

    def record_group_start(self, offset: int) -> None:
        """Record the beginning of a transaction if one is awaited after a fault."""
        if self._state[expected_event_kernels.WATCH_GROUP_START]:
            self._state[expected_event_kernels.WATCH_GROUP_START] = 0
            for fault_offset, next_group in self.next_group_by_fault.items():
                if next_group is None:
                    self.next_group_by_fault[fault_offset] = offset

    def record_referenced_file(self, event: Event, body: dict[str, Any]) -> None:
        """Record the file that a ROTATE or BINLOG_CHECKPOINT event names."""
        if event.code not in (_T.ROTATE, _T.BINLOG_CHECKPOINT):
            return
        name, is_relay = _decode_name(body.get("name")), bool(self._state[expected_event_kernels.IS_RELAY])
        if event.code == _T.BINLOG_CHECKPOINT and len(self.checkpoints) < _MAX_REMEMBERED and not is_relay:
            self.checkpoints.append(FileReference(name, event.start))
        elif event.code == _T.ROTATE and not is_relay:
            self.rotation = FileReference(name, event.start)
        elif event.code == _T.ROTATE and name not in self.sources[-1:] and len(self.sources) < _MAX_REMEMBERED:
            self.sources.append(name)

    def _get_open_transaction_offset(self) -> int | None:
        """Return the offset at which the open transaction begins; None if none is open."""
        state = self._state
        return (
            int(state[expected_event_kernels.GROUP_START])
            if NO_GROUP < state[expected_event_kernels.GROUP_STATE] < expected_event_kernels.AFTER_DAMAGE
            else None
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    def make_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Return the validation result, including the findings that are only certain at the end of the file."""
        judge, state = self._validator, self._state
        gtids = judge.gtid_rules
        if not judge.context.encrypted_without_key:
            findings = [*findings, *map(_file_finding, gtids.iter_gap_faults()), *self._list_end_findings(tail)]
        record_types = {
            type_name(code, encrypted_without_key=judge.context.encrypted_without_key): n
            for code in range(256)
            if (n := state[expected_event_kernels.TYPE_COUNTS + code])
        }
        lost_gtids = gtids.lost
        repairable = not judge.context.encrypted_without_key and self._is_header_intact(tail)
        return ValidationResult(
            transactions=state[expected_event_kernels.GROUP_COUNT],
            record_types=record_types,
            findings=tuple(findings),
            durable_end=self._get_durable_end() if repairable else None,
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

    def _get_durable_end(self) -> int | None:
        """Return the durable end; None if nothing is durable or the events are encrypted."""
        if self._validator.context.encrypted_without_key:
            return None
        return self._state[expected_event_kernels.BOUNDARY] or None

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

    def _list_end_findings(self, tail: FileTail) -> list[Finding]:
        """Return the findings about the end of the file."""
        findings = []
        if self.in_use:
            findings.append(self._make_in_use_finding())
        findings += self._list_open_transaction_findings(tail)
        findings += self._list_end_event_findings(tail)
        lacks_checksums = self.description.checksum_alg != ChecksumAlgorithm.CRC32 and not any(
            one.facts.get("diagnosis") == UNDECLARED_CHECKSUMS for one in self._validator.layout.findings
        )
        if lacks_checksums and not self._state[expected_event_kernels.IS_RELAY]:
            text = "the events have no checksums: a changed value inside a row cannot be detected"
            findings.append(make_finding("checksum-absent", None, 0, text))
        return findings

    def _list_end_event_findings(self, tail: FileTail) -> list[Finding]:
        """Return a finding if a closed log does not end with ROTATE or STOP."""
        last = self.last_event
        has_damaged_end = (
            bool(tail.findings) or tail.first_damage is not None or self._get_open_transaction_offset() is not None
        )
        if (
            last is None
            or last.code in (_T.ROTATE, _T.STOP)
            or has_damaged_end
            or self.in_use
            or self._state[expected_event_kernels.IS_RELAY]
        ):
            return []
        text = f"the last event is {type_name(last.code)}, neither ROTATE nor STOP: more may have followed"
        text += "" if self.description.is_mariadb else " (MySQL's crash recovery leaves such an end too)"
        return [make_finding("unclean-close", last.end, 0, text, severity=Severity.WARNING, diagnosis="no-end")]

    def _make_in_use_finding(self) -> Finding:
        """Return the finding about a file that was not closed."""
        if self.description.is_mariadb:
            text = "at its next start MariaDB leaves this file unchanged and opens a new one"
        else:
            text = "at its next start MySQL truncates the file after the last complete transaction and clears the flag"
        start = self._validator.layout.frames_at
        text = f"the in-use flag is set: the server is running, or it did not close the file; {text}"
        return make_finding("unclean-close", start, 19, text, record=0, diagnosis="in-use")

    def _list_open_transaction_findings(self, tail: FileTail) -> list[Finding]:
        """Return a finding if a transaction is still open at the end; in a closed file its end was cut off."""
        begins_at = self._get_open_transaction_offset() if self._open_at_damage is None else self._open_at_damage
        last = self.last_event
        if begins_at is None or last is None:
            return []
        is_relay = bool(self._state[expected_event_kernels.IS_RELAY])
        if is_relay and last.code in (_T.ROTATE, _T.STOP):
            return []
        is_expected = self.in_use or is_relay or bool(tail.findings)
        text = f"the transaction that begins at {begins_at:#x} has no end: the file ends"
        if is_expected:
            text += "; the server rolls it back" if not is_relay else "; the replica fetches it again"
        else:
            text += ", although it was closed"
            self._freeze_durable_end(last.end)
        severity = Severity.NOTE if is_expected else Severity.ERROR
        facts = {"diagnosis": "group-open", "begins_at": begins_at}
        return [
            make_finding(
                "incomplete-transaction", last.end, 0, text, severity=severity, record=last.record + 1, **facts
            )
        ]

    # -- results -------------------------------------------------------------------------------------------------------

    def _make_details(self) -> dict[str, Any]:
        """Return the details of the report."""
        judge = self._validator
        details: dict[str, Any] = {
            "server_version": self.description.server_version,
            "checksum": _get_checksum_name(self.description.checksum_alg),
            "in_use": self.in_use,
            SERVER_TRUNCATES: self.in_use and not self.description.is_mariadb,
            "gtids": format_file_gtids(judge.gtid_rules.seen, self.description.is_mariadb),
        }
        if judge.payload_rules.type_counts:
            details["events_inside_payloads"] = dict(sorted(judge.payload_rules.type_counts.items()))
        return details

    def _make_facts(self) -> BinlogFacts:
        """Return the facts for the validation of the log set."""
        judge, state, gtids = self._validator, self._state, self._validator.gtid_rules
        return BinlogFacts(
            server_version=self.description.server_version,
            is_mariadb=self.description.is_mariadb,
            is_relay=bool(state[expected_event_kernels.IS_RELAY]),
            checksum=_get_checksum_name(self.description.checksum_alg),
            in_use=self.in_use,
            previous=gtids.previous,
            listed=gtids.listed,
            gtids={source: tuple(NumberRange(*one) for one in seen) for source, seen in gtids.seen.items() if seen}
            or _EMPTY,
            lost_ranges=tuple(gtids.lost),
            rotation=self.rotation,
            sources=tuple(self.sources),
            checkpoints=tuple(self.checkpoints),
            open_group=self._get_open_transaction_offset() if self._open_at_damage is None else self._open_at_damage,
            is_damaged=self._has_damage or bool(self.fault_count),
            lacks_key=judge.context.encrypted_without_key,
            begins_in_group=judge.begins_in_group,
        )


def _file_finding(fault: EventFault) -> Finding:
    """Return a finding about the file as a whole."""
    return make_finding(
        fault.id, None, 0, fault.text, severity=fault.severity, diagnosis=fault.diagnosis, **fault.facts
    )


def _get_checksum_name(algorithm: int | None) -> str:
    """Return the name of a checksum algorithm."""
    if algorithm is None:
        return "absent"
    return {ChecksumAlgorithm.NONE.value: "NONE", ChecksumAlgorithm.CRC32.value: "CRC32"}.get(algorithm, str(algorithm))


def _decode_name(value: Any) -> str:
    """Return a file name as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


# --- Validation of one file in file order ---

_W = Severity.WARNING
_COLUMNS = (
    "type_code", "timestamp", "server_id", "offset", "end", "end_log_pos", "flags", "body_start", "body_end",
)  # fmt: skip
_ZERO_RUN = bytes(8)
_GTIDS_REQUIRED_SINCE = (8, 0, 0)
_GTID_LIST_EVENTS = (_T.PREVIOUS_GTIDS, _T.GTID_LIST)


class BinlogValidator:
    """Validator of one file (`Validator`).

    `transactions`: the open transaction for the general path; between two events `state` is authoritative.
    `is_after_damage`: set after damage until a transaction begins, as the surrounding transaction is unknown.
    """

    def __init__(self, layout: LogFileLayout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> None:
        context: BinlogFileContext = layout.context
        self.context, self.layout = context, layout
        self._follow_events = compile_(expected_event_kernels.track_events_while_expected)
        self.state: Any = (
            [0] * expected_event_kernels.STATE_SIZE
            if self._follow_events is expected_event_kernels.track_events_while_expected
            else array("q", bytes(8 * expected_event_kernels.STATE_SIZE))
        )
        self.state[expected_event_kernels.CHECK_BODIES] = int(not context.description.has_checksums)
        self.state[expected_event_kernels.FLAGS_TO_CHECK] = RARE_FLAGS
        self.state[expected_event_kernels.COMMENT_TYPE] = (
            _T.ANNOTATE_ROWS if context.description.is_mariadb else _T.ROWS_QUERY
        )
        self.state[expected_event_kernels.IS_RELAY] = int(context.is_relay_log)
        self.transactions = TransactionGroupState()
        self.positions = PositionRules(self.state, _get_position_mode(context), context.events_at - FIRST_EVENT_AT)
        self.gtid_rules = GtidOrderRules(self.state, context.is_relay_log)
        self.commit_rules = CommitRules(self.state, context.description.is_mariadb)
        own, schema = context.tracker.load_starting_history(), context.hints.schema
        self.state[expected_event_kernels.CHECK_STATEMENTS] = int(schema is not None)
        looks = (
            schema is not None or self.state[expected_event_kernels.CHECK_BODIES]
        )  # otherwise the compiled path tracks statements itself
        history = own.copy() if looks and own is not None else TableHistory(schema) if looks else None
        maps = TableMaps(context.description.table_id_size, context.description.is_mariadb, history)
        self._reported_tables: set[str] = set()
        self.row_rules = RowRules(self.state, maps, limits, compile_)
        self.payload_rules = PayloadRules(context.description, self.commit_rules, limits, compile_)
        self.end_rules = LogEndRules(self)
        self.is_after_damage = self.begins_in_group = self._is_repeated_gtid = False
        self._uses_gtids = not context.is_relay_log and not context.description.is_mariadb
        self._uses_gtids &= context.description.version >= _GTIDS_REQUIRED_SINCE
        self._findings: list[Finding] = []
        self._continue_relay_log()
        for found in layout.findings:
            if (
                found.severity is Severity.ERROR
                and not context.encrypted_without_key
                and not is_header_correction(found)
            ):
                self.end_rules.record_fault(found.offset or 0)

    def _continue_relay_log(self) -> None:
        """Continue the transaction that the preceding MariaDB relay log left open."""
        previous_tracker, context = self.context.tracker.previous_relay_log, self.context
        self._may_be_carried = context.is_relay_log and context.description.is_mariadb
        if previous_tracker is None:
            if self._may_be_carried:
                self.is_after_damage = self.row_rules.is_after_damage = self.row_rules.may_be_inherited = True
                self.state[expected_event_kernels.GROUP_STATE] = expected_event_kernels.AFTER_DAMAGE
            return
        self.transactions.group = previous_tracker.transactions.group
        self.state[expected_event_kernels.SERVER] = UNKNOWN_SERVER
        for table_id in previous_tracker.maps.open_ids:
            self.row_rules.inherit_table_map(previous_tracker.maps.by_id[table_id])
        self._store_group_in_kernel()

    # -- interface of the engine ---------------------------------------------------------------------------------------

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Validate the events of one batch."""
        follow_events, state = self._follow_events, self.state
        self.end_rules.record_last_event(batch)
        if self.context.encrypted_without_key:
            return ()
        if state[
            expected_event_kernels.CHECK_BODIES
        ]:  # the compiled path stops at every second event, where interpreted code is faster
            batch, follow_events = _with_list_columns(batch), expected_event_kernels.track_events_while_expected
        table = batch.frames
        columns = expected_event_kernels.OrderedEvents._make(table[name] for name in _COLUMNS)
        index = 0
        while True:
            index = follow_events(
                index, table.count, batch.base, columns, state, batch.window, self.row_rules.templates
            )
            if index >= table.count:
                break
            self._check_unexpected_event(batch, index)
            index += 1
        self.row_rules.read_pending_maps(batch.window)
        findings, self._findings = self._findings, []
        return findings

    def skip_damage(self, start: int, end: int) -> None:
        """Record that a part of the file was skipped: the open transaction has lost its end."""
        self._report_all(self.positions.iter_unconfirmed_at_damage())
        self.end_rules.record_skipped_range(start, end)
        self.gtid_rules.allow_jumps_after_damage()
        self.row_rules.forget_table_maps()
        self.row_rules.maps.mark_definitions_assumed()
        self.row_rules.is_after_damage, self.row_rules.may_be_inherited = True, False
        self.row_rules.events_without_map = 0
        self.transactions.reset()
        self.is_after_damage = True
        self.state[expected_event_kernels.BOUNDARY_FROZEN] = 1
        self.state[expected_event_kernels.GROUP_STATE] = expected_event_kernels.AFTER_DAMAGE

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the validation result at the end of the file."""
        self._report_all(self.positions.iter_faults_at_end())
        verdict = self.end_rules.make_validation_result(tail, self._findings)
        # Store in the tracker the state that the next relay log inherits
        tracker = self.context.tracker
        tracker.previous_relay_log = None
        self._load_group_from_kernel()
        tracker.transactions.group = self.transactions.group
        tracker.maps.forget_all_maps()
        tracker.maps.by_id.update(self.row_rules.get_valid_table_maps())
        tracker.maps.open_ids.update(tracker.maps.by_id)
        if self.context.hints.schema is not None and self.row_rules.maps.history is not None:
            tracker.set_end_definitions(self.row_rules.maps.history, sys.maxsize)
        return verdict

    # -- findings ------------------------------------------------------------------------------------------------------

    def _report_all(self, faults: Iterable[tuple[Event, EventFault]]) -> None:
        """Report faults of events."""
        for event, fault in faults:
            self.report_fault(event, fault)

    def report_fault(self, event: Event, fault: EventFault) -> Finding:
        """Report a fault of an event; an error ends the durable part of the file."""
        result = make_finding(
            fault.id, event.start, event.end - event.start, fault.text, record=event.record, severity=fault.severity,
            diagnosis=fault.diagnosis, **fault.facts,
        )  # fmt: skip
        self._findings.append(result)
        if result.severity is Severity.ERROR:
            self.end_rules.record_fault(event.start)
        return result

    # -- events outside the fast path ----------------------------------------------------------------------------------

    def _check_unexpected_event(self, batch: Batch, index: int) -> None:
        """Check one event at which the compiled path stopped."""
        event = get_event(batch, index)
        self.state[expected_event_kernels.TYPE_COUNTS + event.code] += 1
        if event.code == _T.ROTATE and event.end_log_pos == 0:
            self._mark_as_relay_log()
        faults = [*check_and_track_header(event, self.context.description, self.state)]
        self._report_all(self.positions.check_position(event))
        if self.positions.is_unconfirmed(event):
            self.end_rules.record_fault(event.start)
        self._load_group_from_kernel()
        step, nesting_faults = self._step_transaction(event)
        faults += nesting_faults
        fault_count = len(faults)
        try:
            faults += self._check_event_body(batch, index, event, step)
        except (MalformedError, DecompressionError) as error:
            name, text = type_name(event.code), str(error.args[0])
            faults.append(EventFault(error.finding_id, text if text.startswith(name) else f"{name}: {text}", "body"))
        for fault in faults:
            self.report_fault(event, fault)
        if step is GroupStep.OPENS:
            self._is_repeated_gtid = any(fault.diagnosis == "gtid-twice" for fault in faults[fault_count:])
            if not self._is_repeated_gtid:
                self.end_rules.record_group_start(event.start)
        self._update_boundary_and_counts(event, step, not nesting_faults)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _load_group_from_kernel(self) -> None:
        """Copy the open transaction from the compiled path's state."""
        group = self.state[expected_event_kernels.GROUP_STATE]
        self.transactions.group = NO_GROUP if group == expected_event_kernels.AFTER_DAMAGE else group

    def _store_group_in_kernel(self) -> None:
        """Copy the open transaction to the compiled path's state."""
        self.state[expected_event_kernels.GROUP_STATE] = (
            expected_event_kernels.AFTER_DAMAGE if self.is_after_damage else self.transactions.group
        )

    def _step_transaction(self, event: Event) -> tuple[GroupStep, list[EventFault]]:
        """Return the event's step in its transaction, and the faults if it breaks rules."""
        if self._may_be_carried and event.code not in EVENTS_OUTSIDE_GROUPS:
            self.begins_in_group, self._may_be_carried = event.code not in GTID_EVENTS, False
        if self.is_after_damage and not self._resync_group_after_damage(event):
            return (
                GroupStep.INSIDE
                if self.is_after_damage and event.code not in EVENTS_OUTSIDE_GROUPS
                else GroupStep.OUTSIDE,
                [],
            )
        was_open = self.transactions.is_open
        fault = explain_misplacement(event, self.transactions, self.context.description, self._uses_gtids)
        step = self.transactions.advance_to_event(event.code, event.body)
        fault = fault or self.transactions.fault
        is_relay = bool(self.state[expected_event_kernels.IS_RELAY])
        if is_relay and event.code in EVENTS_OUTSIDE_GROUPS:
            fault = None
        severity = _W if is_relay else None
        faults = []
        if fault:
            facts = {"begins_at": self.state[expected_event_kernels.GROUP_START]} if was_open else {}
            faults.append(EventFault("incomplete-transaction", fault, "nesting", severity, facts))
        elif step in (GroupStep.OPENS, GroupStep.ALONE) and self._uses_gtids and event.code in QUERY_EVENTS:
            faults.append(
                EventFault(
                    "incomplete-transaction", "a transaction without a GTID event before it", "no-gtid", severity
                )
            )
        if step is GroupStep.OPENS:
            self.state[expected_event_kernels.GROUP_START], self.state[expected_event_kernels.SERVER] = (
                event.start,
                event.server_id,
            )
            self.row_rules.forget_table_maps()
            self.row_rules.is_after_damage = False
            if event.code not in GTID_EVENTS:
                self.state[expected_event_kernels.EXPECTED_GROUP_END] = 0
        return step, faults

    def _mark_as_relay_log(self) -> None:
        """Record that the file is a relay log: only relay logs have an artificial ROTATE, which has no position.

        In relay logs of MySQL 5.0 no flag shows this.
        """
        if not self.state[expected_event_kernels.IS_RELAY]:
            self.state[expected_event_kernels.IS_RELAY] = 1
            self.positions.mark_as_relay_log()
            self.gtid_rules.mark_as_relay_log()
            self._uses_gtids = False

    def _resync_group_after_damage(self, event: Event) -> bool:
        """Return whether this event starts a new group after damage; False for an event of the lost transaction."""
        is_outside = event.code in EVENTS_OUTSIDE_GROUPS and not self.state[expected_event_kernels.IS_RELAY]
        is_start = is_outside or is_certain_group_start(event)
        if is_start or is_certain_group_end(event):
            self.is_after_damage = self.row_rules.is_after_damage = False
            self.transactions.reset()
        return is_start

    def _update_boundary_and_counts(self, event: Event, step: GroupStep, is_valid: bool) -> None:
        """Update the boundary and the counts after an event; `is_valid`: whether it broke no rule."""
        state = self.state
        if step is GroupStep.ENDS or step is GroupStep.ALONE:
            self._check_transaction_end(event, step)
            state[expected_event_kernels.GROUP_COUNT] += is_valid
        is_boundary = step in (GroupStep.ENDS, GroupStep.ALONE)
        if step is GroupStep.OUTSIDE and event.code not in EVENTS_BEFORE_STATEMENT_END:
            is_boundary = not self.transactions.is_open or bool(state[expected_event_kernels.IS_RELAY])
            if event.code in ROW_EVENTS:
                is_boundary = not state[expected_event_kernels.MAP_COUNT]
                state[expected_event_kernels.GROUP_COUNT] += is_boundary
        self._store_group_in_kernel()
        if is_boundary and not state[expected_event_kernels.BOUNDARY_FROZEN]:
            state[expected_event_kernels.BOUNDARY] = event.end

    def _check_transaction_end(self, event: Event, step: GroupStep) -> None:
        """Check the end of a transaction."""
        state = self.state
        for fault in self.row_rules.check_statement_closed():
            self.report_fault(event, fault)
        expected, state[expected_event_kernels.EXPECTED_GROUP_END] = state[expected_event_kernels.EXPECTED_GROUP_END], 0
        if step is GroupStep.ENDS and expected and expected != event.end:
            actual_size, declared_size = (
                event.end - state[expected_event_kernels.GROUP_START],
                expected - state[expected_event_kernels.GROUP_START],
            )
            text = f"transaction_length is {declared_size:,} bytes, the transaction has {actual_size:,}"
            fault = EventFault(
                "length-out-of-bounds",
                text,
                "transaction-length",
                None,
                {"declared": declared_size, "real": actual_size},
            )
            self.report_fault(event, fault)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def _check_event_body(self, batch: Batch, index: int, event: Event, step: GroupStep) -> Iterator[EventFault]:
        """Yield faults in the body of an event."""
        code = event.code
        if code in GTID_EVENTS or code in _GTID_LIST_EVENTS:
            self._uses_gtids = self._uses_gtids or code in GTID_EVENTS
            yield from self.gtid_rules.check_gtid_event(event)
        elif code == _T.TABLE_MAP:
            table_map = self.row_rules.add_table_map(event)
            mismatch = table_map.uncertain if self.context.hints.schema is not None and table_map is not None else ""
            if table_map is not None and mismatch and table_map.full_name not in self._reported_tables:
                self._reported_tables.add(table_map.full_name)
                yield EventFault("meta-mismatch", mismatch, "schema", _W)
        elif code in ROW_EVENTS:
            yield from self.row_rules.check_row_event(
                event, batch.window, bool(self.state[expected_event_kernels.CHECK_BODIES])
            )
        elif code in QUERY_EVENTS:
            yield from self._check_query_body(event)
        elif code == _T.TRANSACTION_PAYLOAD:
            nested_batch = batch.inner.get(index)
            if nested_batch is not None:
                yield from self.payload_rules.check_payload(nested_batch)
        elif code == _T.XA_PREPARE:
            yield from self.commit_rules.check_xa_prepare(event)
        elif code == _T.XID:
            number = parse_xid(bytes(event.body))
            if not (self.state[expected_event_kernels.IS_RELAY] or self._is_repeated_gtid):
                yield from self.commit_rules.check_and_remember_xid(number, "a transaction")
        elif code in EVENT_TYPE_NAMES and code:
            yield from self._check_and_record_rare_event(
                event, decode_body(code, event.body, self.context.description, event.server_id)
            )

    def _check_query_body(self, event: Event) -> Iterator[EventFault]:
        """Yield faults of a QUERY or QUERY_COMPRESSED event."""
        if event.code == _T.QUERY_COMPRESSED:
            check_compressed_query(bytes(event.body))
        else:
            decode_body(event.code, event.body, self.context.description, event.server_id)
        yield from self._check_long_zero_runs(event)
        self.row_rules.maps.apply_query(event.code, event.body)
        if event.code != _T.QUERY or self.state[expected_event_kernels.IS_RELAY]:
            return
        number = read_ddl_xid(event, self.context.description)
        if number is not None:
            yield from self.commit_rules.check_and_remember_xid(number, "a DDL statement")
        if get_query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            yield from self.commit_rules.check_xa_finish(parse_query(bytes(event.body)).sql)

    def _check_and_record_rare_event(self, event: Event, body: dict[str, Any]) -> Iterator[EventFault]:
        """Yield faults of a rare event, and record it."""
        if event.code == _T.INCIDENT:
            text = (
                f"INCIDENT {body.get('incident')}: events may be missing here; a replica stops: {body.get('message')}"
            )
            yield EventFault("gap-in-sequence", text, "incident", _W)
        elif event.code == _T.FORMAT_DESCRIPTION:
            self.state[expected_event_kernels.CHECK_BODIES] = int(not self.context.description.has_checksums)
            if event.record and not self.state[expected_event_kernels.IS_RELAY]:
                yield EventFault(
                    "bad-header", "a second FORMAT_DESCRIPTION: two logs were joined", "second-description"
                )
        elif event.code in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
            yield from self._check_long_zero_runs(event)
        self.end_rules.record_referenced_file(event, body)

    def _check_long_zero_runs(self, event: Event) -> Iterator[EventFault]:
        """Yield a fault for a long run of zero bytes, which no client writes, in a statement without a checksum."""
        if not self.state[expected_event_kernels.CHECK_BODIES]:
            return
        body = bytes(event.body)
        text = parse_query(body).sql if event.code == _T.QUERY else body
        zeros_at = text.find(_ZERO_RUN)
        if event.code != _T.QUERY_COMPRESSED and zeros_at >= 0:
            size = len(text) - zeros_at - len(text[zeros_at:].lstrip(b"\0"))
            message = f"{size:,} zero bytes inside the text of a statement: part of it may be lost"
            yield EventFault("payload-undecodable", message, "zeros", _W, {"zeros": size})


def _with_list_columns(batch: Batch) -> Batch:
    """Return the batch with lists instead of arrays as columns."""
    table = batch.frames
    lists = {name: to_int_list(column, 0, table.count) for name, column in table.columns.items()}
    return replace(batch, frames=ColumnTable(table.count, lists))


def _get_position_mode(context: BinlogFileContext) -> int:
    """Return the mode in which positions of a file are checked (`kernels.POSITION_MODE`)."""
    if context.is_relay_log:
        return expected_event_kernels.UNCHAINED
    return (
        expected_event_kernels.MAY_BE_ZERO
        if context.description.may_have_zero_positions
        else expected_event_kernels.CHAINED
    )
