"""Validation of one file in file order: positions, transactions, GTIDs, table maps and rows.

The compiled path (`folds`) runs through what is in order; every event at which it stops is checked here.
The durable end is the servers' own: the end of the last transaction, or of an event outside of
transactions, before the first fault.
Source: docs/spec/mysql_binlog.md#validation.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES, GTID_EVENTS, QUERY_EVENTS, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.events.decoding import check_compressed_query, decode_body, parse_query, parse_xid
from binlogtool.formats.binlog_events.events.event import Event, EventFault, get_event
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import EVENTS_BEFORE_STATEMENT_END, EVENTS_OUTSIDE_GROUPS
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import Batch, ColumnTable, DecompressionError, Kernel, LogFileLayout
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.commits import CommitRules
from binlogtool.formats.mysql_binlog.judge.endings import LogEndRules
from binlogtool.formats.mysql_binlog.judge.event_rules import (
    RARE_FLAGS,
    UNKNOWN_SERVER,
    check_header,
    find_misplacement,
    is_group_end,
    is_group_start,
    read_ddl_xid,
)
from binlogtool.formats.mysql_binlog.judge.gtid_rules import GtidOrderRules
from binlogtool.formats.mysql_binlog.judge.inner_rules import PayloadRules
from binlogtool.formats.mysql_binlog.judge.positions import PositionRules
from binlogtool.formats.mysql_binlog.judge.row_rules import RowRules
from binlogtool.formats.mysql_binlog.layout.layout import FIRST_EVENT_AT
from binlogtool.limits import Limits

_T = EventType
_W = Severity.WARNING
_COLUMNS = (
    "type_code", "timestamp", "server_id", "offset", "end", "end_log_pos", "flags", "body_start", "body_end",
)  # fmt: skip
_ZERO_RUN = bytes(8)
_GTIDS_REQUIRED_SINCE = (8, 0, 0)
_GTID_LIST_EVENTS = (_T.PREVIOUS_GTIDS, _T.GTID_LIST)


class BinlogValidator:
    """Validator of one file (`Validator`).

    `transactions`: the open transaction as the general path sees it; between two events `state` is
    authoritative. `is_after_damage`: after damage, until the next transaction begins, the surrounding
    transaction is unknown.
    """

    def __init__(self, layout: LogFileLayout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> None:
        context: BinlogFileContext = layout.context
        self.context, self.layout = context, layout
        self._follow_events = compile_(folds.follow_events)
        self.state: Any = (
            [0] * folds.STATE_SIZE
            if self._follow_events is folds.follow_events
            else array("q", bytes(8 * folds.STATE_SIZE))
        )
        self.state[folds.CHECK_BODIES] = int(not context.description.has_checksums)
        self.state[folds.FLAGS_TO_CHECK] = RARE_FLAGS
        self.state[folds.IS_RELAY] = int(context.is_relay_log)
        self.transactions = TransactionGroups()
        self.positions = PositionRules(self.state, _position_mode(context), context.events_at - FIRST_EVENT_AT)
        self.gtid_rules = GtidOrderRules(self.state, context.is_relay_log)
        self.commit_rules = CommitRules(self.state)
        own, schema = context.tracker.load_first_history(), context.hints.schema
        self.state[folds.CHECK_STATEMENTS] = int(schema is not None)
        looks = (
            schema is not None or self.state[folds.CHECK_BODIES]
        )  # otherwise the compiled path follows statements itself
        history = own.copy() if looks and own is not None else TableHistory(schema) if looks else None
        maps = TableMaps(context.description.table_id_size, context.description.is_mariadb, history)
        self._reported_tables: set[str] = set()
        self.row_rules = RowRules(self.state, maps, limits, compile_)
        self.payload_rules = PayloadRules(context.description, self.commit_rules, limits, compile_)
        self.end_rules = LogEndRules(self)
        self.unknown_types: dict[int, int] = {}
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
                self.end_rules.note_fault(found.offset or 0)

    def _continue_relay_log(self) -> None:
        """Continue inside of the transaction that the preceding MariaDB relay log left open."""
        previous_tracker, context = self.context.tracker.previous_relay_log, self.context
        self._may_be_carried = context.is_relay_log and context.description.is_mariadb
        if previous_tracker is None:
            if self._may_be_carried:
                self.is_after_damage = self.row_rules.is_after_damage = self.row_rules.may_be_inherited = True
                self.state[folds.GROUP_STATE] = folds.AFTER_DAMAGE
            return
        self.transactions.group = previous_tracker.transactions.group
        self.state[folds.SERVER] = UNKNOWN_SERVER
        for table_map in previous_tracker.maps.by_id.values():
            self.row_rules.inherit_map(table_map)
        self._store_group()

    # -- the protocol of `formats.judging.Validator`
    # -----------------------------------------------------------------------

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the events of one batch."""
        follow_events, state = self._follow_events, self.state
        self.end_rules.note_batch(batch)
        if self.context.encrypted_without_key:
            return ()
        if state[
            folds.CHECK_BODIES
        ]:  # it stops at every second event, where interpreted code is faster than compiled code
            batch, follow_events = _with_list_columns(batch), folds.follow_events
        table = batch.frames
        columns = folds.OrderedEvents._make(table[name] for name in _COLUMNS)
        index = 0
        while True:
            index = follow_events(
                index, table.count, batch.base, columns, state, batch.window, self.row_rules.templates
            )
            if index >= table.count:
                break
            self._check_event(batch, index)
            index += 1
        self.row_rules.read_pending_maps(batch.window)
        findings, self._findings = self._findings, []
        return findings

    def skip_damage(self, start: int, end: int) -> None:
        """Note that a part of the file was skipped: the open transaction has lost its end."""
        self._report_all(self.positions.flush())
        self.end_rules.note_damage(start, end)
        self.gtid_rules.skip_damage()
        self.row_rules.end_statement()
        self.row_rules.maps.discard_definitions()
        self.row_rules.is_after_damage, self.row_rules.may_be_inherited = True, False
        self.row_rules.events_without_map = 0
        self.transactions.reset()
        self.is_after_damage = True
        self.state[folds.BOUNDARY_FROZEN] = 1
        self.state[folds.GROUP_STATE] = folds.AFTER_DAMAGE

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the validation result at the end of the file."""
        self._report_all(self.positions.finish())
        verdict = self.end_rules.make_result(tail, self._findings)
        self._export_to_tracker()
        return verdict

    def _export_to_tracker(self) -> None:
        """Store in the tracker what the next relay log inherits."""
        tracker = self.context.tracker
        tracker.previous_relay_log = None
        self._load_group()
        tracker.transactions.group = self.transactions.group
        tracker.maps.by_id.clear()
        tracker.maps.by_id.update(self.row_rules.valid_maps())
        if self.context.hints.schema is not None and self.row_rules.maps.history is not None:
            tracker.set_end(self.row_rules.maps.history, sys.maxsize)

    # -- findings ------------------------------------------------------------------------------------------------------

    def _report_all(self, faults: Iterable[tuple[Event, EventFault]]) -> None:
        """Report faults of events."""
        for event, fault in faults:
            self.report(event, fault)

    def report(self, event: Event, fault: EventFault) -> Finding:
        """Report a fault of an event; an error ends the durable part of the file."""
        result = make_finding(
            fault.id, event.start, event.end - event.start, fault.text, record=event.record, severity=fault.severity,
            diagnosis=fault.diagnosis, **fault.facts,
        )  # fmt: skip
        self._findings.append(result)
        if result.severity is Severity.ERROR:
            self.end_rules.note_fault(event.start)
        return result

    # -- one event that the fold did not take --------------------------------------------------------------------------

    def _check_event(self, batch: Batch, index: int) -> None:
        """Check one event at which the compiled path stopped."""
        event = get_event(batch, index)
        self._count_type(event.code)
        if event.code == _T.ROTATE and event.end_log_pos == 0:
            self._set_relay()
        faults = [*check_header(event, self.state)]
        self._report_all(self.positions.check_event(event))
        if self.positions.is_unconfirmed(event):
            self.end_rules.note_fault(event.start)
        self._load_group()
        step, nesting_faults = self._follow_group(event)
        faults += nesting_faults
        fault_count = len(faults)
        try:
            faults += self._check_body(batch, index, event, step)
        except (MalformedError, DecompressionError) as error:
            faults.append(EventFault(error.finding_id, _body_message(event.code, error), "body"))
        for fault in faults:
            self.report(event, fault)
        if step is GroupStep.OPENS:
            self._is_repeated_gtid = any(fault.diagnosis == "gtid-twice" for fault in faults[fault_count:])
            if not self._is_repeated_gtid:
                self.end_rules.note_group_start(event.start)
        self._finish_event(event, step, not nesting_faults)

    def _count_type(self, code: int) -> None:
        """Count an event type."""
        self.state[folds.TYPE_COUNTS + code] += 1

    # -- groups --------------------------------------------------------------------------------------------------------

    def _load_group(self) -> None:
        """Copy the open transaction from the compiled path's state."""
        group = self.state[folds.GROUP_STATE]
        self.transactions.group = NO_GROUP if group == folds.AFTER_DAMAGE else group

    def _store_group(self) -> None:
        """Copy the open transaction to the compiled path's state."""
        self.state[folds.GROUP_STATE] = folds.AFTER_DAMAGE if self.is_after_damage else self.transactions.group

    def _follow_group(self, event: Event) -> tuple[GroupStep, list[EventFault]]:
        """Return the event's step in its transaction, and the rules that it breaks."""
        if self._may_be_carried and event.code not in EVENTS_OUTSIDE_GROUPS:
            self.begins_in_group, self._may_be_carried = event.code not in GTID_EVENTS, False
        if self.is_after_damage and not self._resynchronize(event):
            return (
                GroupStep.INSIDE
                if self.is_after_damage and event.code not in EVENTS_OUTSIDE_GROUPS
                else GroupStep.OUTSIDE,
                [],
            )
        was_open = self.transactions.is_open
        fault = find_misplacement(event, self.transactions, self.context.description, self._uses_gtids)
        step = self.transactions.add_event(event.code, event.body)
        fault = fault or self.transactions.fault
        is_relay = bool(self.state[folds.IS_RELAY])
        if is_relay and event.code in EVENTS_OUTSIDE_GROUPS:
            fault = None
        severity = _W if is_relay else None
        faults = []
        if fault:
            facts = {"begins_at": self.state[folds.GROUP_START]} if was_open else {}
            faults.append(EventFault("incomplete-transaction", fault, "nesting", severity, facts))
        elif step in (GroupStep.OPENS, GroupStep.ALONE) and self._uses_gtids and event.code in QUERY_EVENTS:
            faults.append(
                EventFault("incomplete-transaction", "a group without a GTID event in front", "no-gtid", severity)
            )
        if step is GroupStep.OPENS:
            self.state[folds.GROUP_START], self.state[folds.SERVER] = event.start, event.server_id
            self.row_rules.end_statement()
            self.row_rules.is_after_damage = False
            if event.code not in GTID_EVENTS:
                self.state[folds.EXPECTED_GROUP_END] = 0
        return step, faults

    def _set_relay(self) -> None:
        """Note that the file is a relay log: only those have an artificial ROTATE, which has no position.

        In relay logs of MySQL 5.0 no flag says so.
        """
        if not self.state[folds.IS_RELAY]:
            self.state[folds.IS_RELAY] = 1
            self.positions.set_relay()
            self.gtid_rules.set_relay()
            self._uses_gtids = False

    def _resynchronize(self, event: Event) -> bool:
        """Return whether this event begins something after damage; False for an event of the lost transaction."""
        is_outside = event.code in EVENTS_OUTSIDE_GROUPS and not self.state[folds.IS_RELAY]
        is_start = is_outside or is_group_start(event)
        if is_start or is_group_end(event):
            self.is_after_damage = self.row_rules.is_after_damage = False
            self.transactions.reset()
        return is_start

    def _finish_event(self, event: Event, step: GroupStep, is_valid: bool) -> None:
        """Update the boundary and the counts after an event.

        Args:
            is_valid: whether it broke no rule.
        """
        state = self.state
        if step is GroupStep.ENDS or step is GroupStep.ALONE:
            self._end_group(event, step)
            state[folds.GROUP_COUNT] += is_valid
        is_boundary = step in (GroupStep.ENDS, GroupStep.ALONE)
        if step is GroupStep.OUTSIDE and event.code not in EVENTS_BEFORE_STATEMENT_END:
            is_boundary = not self.transactions.is_open or bool(state[folds.IS_RELAY])
            if event.code in ROW_EVENTS:
                is_boundary = not state[folds.MAP_COUNT]
                state[folds.GROUP_COUNT] += is_boundary
        self._store_group()
        if is_boundary and not state[folds.BOUNDARY_FROZEN]:
            state[folds.BOUNDARY] = event.end

    def _end_group(self, event: Event, step: GroupStep) -> None:
        """Check the end of a transaction."""
        state = self.state
        for fault in self.row_rules.check_group_end():
            self.report(event, fault)
        expected, state[folds.EXPECTED_GROUP_END] = state[folds.EXPECTED_GROUP_END], 0
        if step is GroupStep.ENDS and expected and expected != event.end:
            actual_size, declared_size = event.end - state[folds.GROUP_START], expected - state[folds.GROUP_START]
            text = f"transaction_length says {declared_size:,} bytes, the group has {actual_size:,}"
            fault = EventFault(
                "length-out-of-bounds",
                text,
                "transaction-length",
                None,
                {"declared": declared_size, "real": actual_size},
            )
            self.report(event, fault)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def _check_body(self, batch: Batch, index: int, event: Event, step: GroupStep) -> Iterator[EventFault]:
        """Yield faults of a body."""
        code = event.code
        if code in GTID_EVENTS or code in _GTID_LIST_EVENTS:
            self._uses_gtids = self._uses_gtids or code in GTID_EVENTS
            yield from self.gtid_rules.check_event(event)
        elif code == _T.TABLE_MAP:
            table_map = self.row_rules.add_map(event)
            if self.context.hints.schema is not None and table_map is not None:
                yield from self._report_schema_mismatch(table_map)
        elif code in ROW_EVENTS:
            yield from self.row_rules.check_rows(event, batch.window, bool(self.state[folds.CHECK_BODIES]))
        elif code in QUERY_EVENTS:
            yield from self._check_query(event)
        elif code == _T.TRANSACTION_PAYLOAD:
            nested_batch = batch.inner.get(index)
            if nested_batch is not None:
                yield from self.payload_rules.check_payload(nested_batch)
        elif code == _T.XA_PREPARE:
            yield from self.commit_rules.check_prepare(event)
        elif code == _T.XID:
            number = parse_xid(bytes(event.body))
            if not (self.state[folds.IS_RELAY] or self._is_repeated_gtid):
                yield from self.commit_rules.check_xid(number, "a transaction")
        elif code in EVENT_TYPE_NAMES and code:
            yield from self._check_rare_event(
                event, decode_body(code, event.body, self.context.description, event.server_id)
            )

    def _report_schema_mismatch(self, table_map: TableMap) -> Iterator[EventFault]:
        """Yield, once a table, why the names of --schema are not used."""
        if table_map.uncertain and table_map.full_name not in self._reported_tables:
            self._reported_tables.add(table_map.full_name)
            yield EventFault("meta-mismatch", table_map.uncertain, "schema", _W)

    def _check_query(self, event: Event) -> Iterator[EventFault]:
        """Yield faults of a QUERY or QUERY_COMPRESSED event."""
        if event.code == _T.QUERY_COMPRESSED:
            check_compressed_query(bytes(event.body))
        else:
            decode_body(event.code, event.body, self.context.description, event.server_id)
        yield from self._check_zero_bytes(event)
        self.row_rules.maps.add_query(event.code, event.body)
        if event.code != _T.QUERY or self.state[folds.IS_RELAY]:
            return
        number = read_ddl_xid(event, self.context.description)
        if number is not None:
            yield from self.commit_rules.check_xid(number, "a DDL statement")
        if get_query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            yield from self.commit_rules.check_finish(parse_query(bytes(event.body)).sql)

    def _check_rare_event(self, event: Event, body: dict[str, Any]) -> Iterator[EventFault]:
        """Yield faults of a rare event, and note it."""
        if event.code == _T.INCIDENT:
            text = (
                f"INCIDENT {body.get('incident')}: events may be missing here; a replica stops: {body.get('message')}"
            )
            yield EventFault("gap-in-sequence", text, "incident", _W)
        elif event.code == _T.FORMAT_DESCRIPTION:
            self.state[folds.CHECK_BODIES] = int(not self.context.description.has_checksums)
            if event.record and not self.state[folds.IS_RELAY]:
                yield EventFault("bad-header", "FORMAT_DESCRIPTION again: two logs were joined", "second-description")
        elif event.code in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
            yield from self._check_zero_bytes(event)
        self.end_rules.note_event(event, body)

    def _check_zero_bytes(self, event: Event) -> Iterator[EventFault]:
        """Yield a fault for a run of zero bytes in a statement of a log without checksums; no client writes so many."""
        if not self.state[folds.CHECK_BODIES]:
            return
        body = bytes(event.body)
        text = parse_query(body).sql if event.code == _T.QUERY else body
        zeros_at = text.find(_ZERO_RUN)
        if event.code != _T.QUERY_COMPRESSED and zeros_at >= 0:
            size = len(text) - zeros_at - len(text[zeros_at:].lstrip(b"\0"))
            message = f"{size:,} zero bytes inside the text of a statement: part of it may be lost"
            yield EventFault("payload-undecodable", message, "zeros", _W, {"zeros": size})


def _with_list_columns(batch: Batch) -> Batch:
    """Return the batch with lists as columns."""
    table = batch.frames
    lists = {name: to_int_list(column, 0, table.count) for name, column in table.columns.items()}
    return replace(batch, frames=ColumnTable(table.count, lists))


def _body_message(code: int, error: Exception) -> str:
    """Return the message of a body error, with the event type."""
    name, text = type_name(code), str(error.args[0])
    return text if text.startswith(name) else f"{name}: {text}"


def _position_mode(context: BinlogFileContext) -> int:
    """Return how positions of a file are checked."""
    if context.is_relay_log:
        return folds.UNCHAINED
    return folds.MAY_BE_ZERO if context.description.may_have_zero_positions else folds.CHAINED


def create_validator(layout: LogFileLayout, compile: Callable[[Kernel], Kernel], limits: Limits) -> BinlogValidator:
    """Create the validator of one file."""
    return BinlogValidator(layout, compile, limits)
