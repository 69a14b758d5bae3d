"""Validation of one file in file order: positions, transactions, GTIDs, table maps and rows.

The compiled path (`folds`) runs through what is in order; every event at which it stops is checked here.
The durable end is the servers' own: the end of the last transaction, or of an event outside of
transactions, before the first fault.
Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, TYPES, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.events.decoding import check_compressed, decoded, query_parts, xid
from binlogtool.formats.binlog_events.events.event import Event, Fault, event_at
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import OUTSIDE, PREFIXES
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.columns import integers
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, CodecError, Kernel, Layout, Table
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.commits import Commits
from binlogtool.formats.mysql_binlog.judge.endings import Endings
from binlogtool.formats.mysql_binlog.judge.event_rules import (
    ODD_FLAGS,
    UNKNOWN_SERVER,
    begins_a_group,
    ddl_xid,
    ends_a_group,
    header_faults,
    misplaced,
)
from binlogtool.formats.mysql_binlog.judge.gtid_rules import GtidRules
from binlogtool.formats.mysql_binlog.judge.inner_rules import InnerRules
from binlogtool.formats.mysql_binlog.judge.positions import Positions
from binlogtool.formats.mysql_binlog.judge.row_rules import RowRules
from binlogtool.formats.mysql_binlog.layout.layout import FRAMES_AT
from binlogtool.limits import Limits

_T = EventType
_W = Severity.WARNING
_COLUMNS = (
    "type_code", "timestamp", "server_id", "offset", "end", "end_log_pos", "flags", "body_start", "body_end",
)  # fmt: skip
_HOLE = bytes(8)
_GTIDS_ALWAYS = (8, 0, 0)
_LISTS = (_T.PREVIOUS_GTIDS, _T.GTID_LIST)


class EventJudge:
    """Validator of one file (`Validator`).

    `transactions`: the open transaction as the general path sees it; between two events `state` is
    authoritative. `is_after_damage`: after damage, until the next transaction begins, the surrounding
    transaction is unknown.
    """

    def __init__(self, layout: Layout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> None:
        context: FileContext = layout.context
        self.context, self.layout = context, layout
        self._fold = compile_(folds.fold)
        self.state: Any = [0] * folds.SIZE if self._fold is folds.fold else array("q", bytes(8 * folds.SIZE))
        self.state[folds.DEEP] = int(not context.description.has_checksums)
        self.state[folds.ODD_FLAGS] = ODD_FLAGS
        self.state[folds.RELAY] = int(context.relay)
        self.groups = Groups()
        self.positions = Positions(self.state, _mode(context), context.start - FRAMES_AT)
        self.gtids = GtidRules(self.state, context.relay)
        self.commits = Commits(self.state)
        own, schema = context.tracker.first_history(), context.hints.schema
        self.state[folds.STATEMENTS] = int(schema is not None)
        looks = schema is not None or self.state[folds.DEEP]  # otherwise the compiled path follows statements itself
        history = own.apart() if looks and own is not None else TableHistory(schema) if looks else None
        maps = TableMaps(context.description.table_id_size, context.description.is_mariadb, history)
        self._uncertain: set[str] = set()
        self.rows = RowRules(self.state, maps, limits, compile_)
        self.inner = InnerRules(context.description, self.commits, limits, compile_)
        self.endings = Endings(self)
        self.unknown: dict[int, int] = {}
        self.adrift = self.carried = self._repeated = False
        self._uses_gtids = not context.relay and not context.description.is_mariadb
        self._uses_gtids &= context.description.version >= _GTIDS_ALWAYS
        self._found: list[Finding] = []
        self._inherit()
        for found in layout.findings:
            if found.severity is Severity.ERROR and not context.sealed and not is_corrected(found):
                self.endings.fault(found.offset or 0)

    def _inherit(self) -> None:
        """Continue inside of the transaction that the preceding MariaDB relay log left open."""
        before, context = self.context.tracker.previous, self.context
        self._may_be_carried = context.relay and context.description.is_mariadb
        if before is None:
            if self._may_be_carried:
                self.adrift = self.rows.adrift = self.rows.silent = True
                self.state[folds.GROUP] = folds.ADRIFT
            return
        self.groups.group = before.groups.group
        self.state[folds.SERVER] = UNKNOWN_SERVER
        for known in before.maps.by_id.values():
            self.rows.inherit(known)
        self._store()

    # -- the protocol of `formats.judging.Judge` -----------------------------------------------------------------------

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the events of one batch."""
        fold, state = self._fold, self.state
        self.endings.see(batch)
        if self.context.sealed:
            return ()
        if state[folds.DEEP]:  # it stops at every second event, where interpreted code is faster than compiled code
            batch, fold = _listed(batch), folds.fold
        table = batch.frames
        columns = folds.OrderedEvents._make(table[name] for name in _COLUMNS)
        index = 0
        while True:
            index = fold(index, table.count, batch.base, columns, state, batch.window, self.rows.records)
            if index >= table.count:
                break
            self._event(batch, index)
            index += 1
        self.rows.settle(batch.window)
        found, self._found = self._found, []
        return found

    def damage(self, start: int, end: int) -> None:
        """Note that a part of the file was skipped: the open transaction has lost its end."""
        self._tell(self.positions.flush())
        self.endings.damage(start, end)
        self.gtids.damage()
        self.rows.close()
        self.rows.maps.forget()
        self.rows.adrift, self.rows.silent = True, False
        self.rows.without_map = 0
        self.groups.lose()
        self.adrift = True
        self.state[folds.FROZEN] = 1
        self.state[folds.GROUP] = folds.ADRIFT

    def finish(self, tail: Tail) -> Verdict:
        """Return the validation result at the end of the file."""
        self._tell(self.positions.end())
        verdict = self.endings.verdict(tail, self._found)
        self._hand_on()
        return verdict

    def _hand_on(self) -> None:
        """Store in the tracker what the next relay log inherits."""
        tracker = self.context.tracker
        tracker.previous = None
        self._load()
        tracker.groups.group = self.groups.group
        tracker.maps.by_id.clear()
        tracker.maps.by_id.update(self.rows.in_force())
        if self.context.hints.schema is not None and self.rows.maps.history is not None:
            tracker.end_with(self.rows.maps.history, sys.maxsize)

    # -- findings ------------------------------------------------------------------------------------------------------

    def _tell(self, faults: Iterable[tuple[Event, Fault]]) -> None:
        """Report faults of events."""
        for event, fault in faults:
            self.tell(event, fault)

    def tell(self, event: Event, fault: Fault) -> Finding:
        """Report a fault of an event; an error ends the durable part of the file."""
        found = finding(
            fault.id, event.start, event.end - event.start, fault.text, record=event.record, severity=fault.severity,
            diagnosis=fault.diagnosis, **fault.facts,
        )  # fmt: skip
        self._found.append(found)
        if found.severity is Severity.ERROR:
            self.endings.fault(event.start)
        return found

    # -- one event that the fold did not take --------------------------------------------------------------------------

    def _event(self, batch: Batch, index: int) -> None:
        """Check one event at which the compiled path stopped."""
        event = event_at(batch, index)
        self._count(event.code)
        if event.code == _T.ROTATE and event.position == 0:
            self._became_relay()
        faults = [*header_faults(event, self.state)]
        self._tell(self.positions.check(event))
        if self.positions.doubts(event):
            self.endings.fault(event.start)
        self._load()
        step, nesting = self._step(event)
        faults += nesting
        twice = len(faults)
        try:
            faults += self._body(batch, index, event, step)
        except (MalformedError, CodecError) as error:
            faults.append(Fault(error.finding_id, _told(event.code, error), "body"))
        for fault in faults:
            self.tell(event, fault)
        if step is Step.OPENS:
            self._repeated = any(fault.diagnosis == "gtid-twice" for fault in faults[twice:])
            if not self._repeated:
                self.endings.group_begins(event.start)
        self._close(event, step, not nesting)

    def _count(self, code: int) -> None:
        """Count an event type."""
        self.state[folds.TYPES + code] += 1

    # -- groups --------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Copy the open transaction from the compiled path's state."""
        group = self.state[folds.GROUP]
        self.groups.group = NO_GROUP if group == folds.ADRIFT else group

    def _store(self) -> None:
        """Copy the open transaction to the compiled path's state."""
        self.state[folds.GROUP] = folds.ADRIFT if self.adrift else self.groups.group

    def _step(self, event: Event) -> tuple[Step, list[Fault]]:
        """Return the event's step in its transaction, and the rules that it breaks."""
        if self._may_be_carried and event.code not in OUTSIDE:
            self.carried, self._may_be_carried = event.code not in GTIDS, False
        if self.adrift and not self._lands(event):
            return Step.INSIDE if self.adrift and event.code not in OUTSIDE else Step.OUTSIDE, []
        was_open = self.groups.open
        fault = misplaced(event, self.groups, self.context.description, self._uses_gtids)
        step = self.groups.take(event.code, event.body)
        fault = fault or self.groups.fault
        relay = bool(self.state[folds.RELAY])
        if relay and event.code in OUTSIDE:
            fault = None
        severity = _W if relay else None
        faults = []
        if fault:
            begins = {"begins_at": self.state[folds.BEGINS]} if was_open else {}
            faults.append(Fault("incomplete-transaction", fault, "nesting", severity, begins))
        elif step in (Step.OPENS, Step.ALONE) and self._uses_gtids and event.code in QUERIES:
            faults.append(Fault("incomplete-transaction", "a group without a GTID event in front", "no-gtid", severity))
        if step is Step.OPENS:
            self.state[folds.BEGINS], self.state[folds.SERVER] = event.start, event.server
            self.rows.close()
            self.rows.adrift = False
            if event.code not in GTIDS:
                self.state[folds.ENDS] = 0
        return step, faults

    def _became_relay(self) -> None:
        """Note that the file is a relay log: only those have an artificial ROTATE, which has no position.

        In relay logs of MySQL 5.0 no flag says so.
        """
        if not self.state[folds.RELAY]:
            self.state[folds.RELAY] = 1
            self.positions.unchain()
            self.gtids.became_relay()
            self._uses_gtids = False

    def _lands(self, event: Event) -> bool:
        """Return whether this event begins something after damage; False for an event of the lost transaction."""
        outside = event.code in OUTSIDE and not self.state[folds.RELAY]
        begins = outside or begins_a_group(event)
        if begins or ends_a_group(event):
            self.adrift = self.rows.adrift = False
            self.groups.lose()
        return begins

    def _close(self, event: Event, step: Step, whole: bool) -> None:
        """Update the boundary and the counts after an event.

        Args:
            is_valid: whether it broke no rule.
        """
        state = self.state
        if step is Step.ENDS or step is Step.ALONE:
            self._group_ends(event, step)
            state[folds.COUNT] += whole
        boundary = step in (Step.ENDS, Step.ALONE)
        if step is Step.OUTSIDE and event.code not in PREFIXES:
            boundary = not self.groups.open or bool(state[folds.RELAY])
            if event.code in ROWS:
                boundary = not state[folds.MAPS]
                state[folds.COUNT] += boundary
        self._store()
        if boundary and not state[folds.FROZEN]:
            state[folds.BOUNDARY] = event.end

    def _group_ends(self, event: Event, step: Step) -> None:
        """Check the end of a transaction."""
        state = self.state
        for fault in self.rows.end_of_group():
            self.tell(event, fault)
        expected, state[folds.ENDS] = state[folds.ENDS], 0
        if step is Step.ENDS and expected and expected != event.end:
            real, said = event.end - state[folds.BEGINS], expected - state[folds.BEGINS]
            text = f"transaction_length says {said:,} bytes, the group has {real:,}"
            fault = Fault("length-out-of-bounds", text, "transaction-length", None, {"declared": said, "real": real})
            self.tell(event, fault)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def _body(self, batch: Batch, index: int, event: Event, step: Step) -> Iterator[Fault]:
        """Yield faults of a body."""
        code = event.code
        if code in GTIDS or code in _LISTS:
            self._uses_gtids = self._uses_gtids or code in GTIDS
            yield from self.gtids.take(event)
        elif code == _T.TABLE_MAP:
            known = self.rows.take_map(event)
            if self.context.hints.schema is not None and known is not None:
                yield from self._misfit(known)
        elif code in ROWS:
            yield from self.rows.take_rows(event, batch.window, bool(self.state[folds.DEEP]))
        elif code in QUERIES:
            yield from self._query(event)
        elif code == _T.TRANSACTION_PAYLOAD:
            inner = batch.inner.get(index)
            if inner is not None:
                yield from self.inner.faults(inner)
        elif code == _T.XA_PREPARE:
            yield from self.commits.prepare(event)
        elif code == _T.XID:
            number = xid(bytes(event.body))
            if not (self.state[folds.RELAY] or self._repeated):
                yield from self.commits.xid(number, "a transaction")
        elif code in TYPES and code:
            yield from self._rare(event, decoded(code, event.body, self.context.description, event.server))

    def _misfit(self, known: TableMap) -> Iterator[Fault]:
        """Yield, once a table, why the names of --schema are not used."""
        if known.uncertain and known.full_name not in self._uncertain:
            self._uncertain.add(known.full_name)
            yield Fault("meta-mismatch", known.uncertain, "schema", _W)

    def _query(self, event: Event) -> Iterator[Fault]:
        """Yield faults of a QUERY or QUERY_COMPRESSED event."""
        if event.code == _T.QUERY_COMPRESSED:
            check_compressed(bytes(event.body))
        else:
            decoded(event.code, event.body, self.context.description, event.server)
        yield from self._zeros(event)
        self.rows.maps.learn_statement(event.code, event.body)
        if event.code != _T.QUERY or self.state[folds.RELAY]:
            return
        number = ddl_xid(event, self.context.description)
        if number is not None:
            yield from self.commits.xid(number, "a DDL statement")
        if query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            yield from self.commits.finish(query_parts(bytes(event.body)).sql)

    def _rare(self, event: Event, body: dict[str, Any]) -> Iterator[Fault]:
        """Yield faults of a rare event, and note it."""
        if event.code == _T.INCIDENT:
            text = (
                f"INCIDENT {body.get('incident')}: events may be missing here; a replica stops: {body.get('message')}"
            )
            yield Fault("gap-in-sequence", text, "incident", _W)
        elif event.code == _T.FORMAT_DESCRIPTION:
            self.state[folds.DEEP] = int(not self.context.description.has_checksums)
            if event.record and not self.state[folds.RELAY]:
                yield Fault("bad-header", "FORMAT_DESCRIPTION again: two logs were joined", "second-description")
        elif event.code in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
            yield from self._zeros(event)
        self.endings.take(event, body)

    def _zeros(self, event: Event) -> Iterator[Fault]:
        """Yield a fault for a run of zero bytes in a statement of a log without checksums; no client writes so many."""
        if not self.state[folds.DEEP]:
            return
        body = bytes(event.body)
        text = query_parts(body).sql if event.code == _T.QUERY else body
        at = text.find(_HOLE)
        if event.code != _T.QUERY_COMPRESSED and at >= 0:
            size = len(text) - at - len(text[at:].lstrip(b"\0"))
            words = f"{size:,} zero bytes inside the text of a statement: part of it may be lost"
            yield Fault("payload-undecodable", words, "zeros", _W, {"zeros": size})


def _listed(batch: Batch) -> Batch:
    """Return the batch with lists as columns."""
    table = batch.frames
    lists = {name: integers(column, 0, table.count) for name, column in table.columns.items()}
    return replace(batch, frames=Table(table.count, lists))


def _told(code: int, error: Exception) -> str:
    """Return the message of a body error, with the event type."""
    name, text = type_name(code), str(error.args[0])
    return text if text.startswith(name) else f"{name}: {text}"


def _mode(context: FileContext) -> int:
    """Return how positions of a file are checked."""
    if context.relay:
        return folds.UNCHAINED
    return folds.MAY_BE_ZERO if context.description.may_zero_positions else folds.CHAINED


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> EventJudge:
    """Create the validator of one file."""
    return EventJudge(layout, compile, limits)
