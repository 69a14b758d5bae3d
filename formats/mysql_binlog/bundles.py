"""Transactions of a MariaDB log for conversion into other containers.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES, HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.events.event import Event, get_event
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.groups.marks import EVENTS_OUTSIDE_GROUPS
from binlogtool.formats.binlog_events.gtid.bodies import read_gtid_list, read_gtid_text
from binlogtool.formats.binlog_events.gtid.places import FLAGS2
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.bundling import PortableEventGroup, PriorGtids
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.limits import Limits

_T = EventType
_PORTABLE_EVENTS = frozenset({_T.FORMAT_DESCRIPTION, _T.INCIDENT})
"""Events outside of transactions that another container needs, too; it has the others of its own."""


class TransactionReader:
    """Reader of the transactions of one file (`EventGroupReader`).

    A transaction with a GTID extends to the next one: events without a GTID after a complete transaction belong
    to it.
    """

    def __init__(self) -> None:
        self._transactions = TransactionGroups()
        self._events: list[tuple[Event, bytes]] = []
        self._is_complete = False
        self._skips_to_next = False

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield the transactions of a batch, and the lists of GTIDs."""
        starts, ends = batch.frames["offset"], batch.frames["body_end"]
        for index in range(batch.frames.count):
            data = bytes(batch.window[starts[index] : ends[index]])  # the batch is released before the transaction ends
            event = get_event(batch, index)._replace(body=memoryview(data)[HEADER_SIZE:])
            yield from self._add_event(event, data)

    def _add_event(self, event: Event, data: bytes) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Add one event."""
        step = self._transactions.add_event(event.code, event.body)
        if event.code in EVENTS_OUTSIDE_GROUPS:
            yield from self._end_transaction("it goes on behind an event of the file", Severity.ERROR)
            if event.code == _T.GTID_LIST:
                yield from _read_gtid_list(event)
            elif event.code in _PORTABLE_EVENTS:
                yield _make_group([(event, data)])
            return
        if step is GroupStep.OPENS:
            yield from self._begin_transaction()
        elif self._skips_to_next:
            return
        self._events.append((event, data))
        if step is GroupStep.ENDS or step is GroupStep.ALONE:
            self._is_complete = True
            if _read_gtid(self._events[0][0]) is None:
                yield from self._end_transaction("", Severity.ERROR)

    def _begin_transaction(self) -> Iterator[PortableEventGroup | Finding]:
        """Begin a transaction; events before the BEGIN of a log without GTIDs belong to it."""
        self._skips_to_next = False
        if self._is_complete or (self._events and _read_gtid(self._events[0][0]) is not None):
            yield from self._end_transaction("a transaction starts inside of it", Severity.ERROR)

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Drop the open transaction up to its end."""
        yield from self._end_transaction("a part of it is damaged", Severity.ERROR)
        self._transactions.reset()
        self._skips_to_next = True

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield the last transaction; one that the server never finished was rolled back."""
        yield from self._end_transaction("the file ends inside of it", Severity.WARNING)

    def _end_transaction(self, reason: str, severity: Severity) -> Iterator[PortableEventGroup | Finding]:
        """Yield the open transaction, or a finding if it is incomplete."""
        parts, is_complete, self._events, self._is_complete = self._events, self._is_complete, [], False
        if is_complete:
            yield _make_group(parts)
        elif parts:
            first, last, gtid = parts[0][0], parts[-1][0], _read_gtid(parts[0][0])
            message = f"transaction {gtid or 'without GTID'} is not whole: {reason}"
            yield make_finding(
                "incomplete-transaction", first.start, last.end - first.start, message, record=first.record,
                severity=severity, gtid=gtid,
            )  # fmt: skip


def _read_gtid(event: Event) -> str | None:
    """Return the GTID of an event; None if it has none."""
    if event.code != _T.GTID or len(event.body) < FLAGS2:
        return None
    return read_gtid_text(event.code, event.server_id, bytes(event.body))


def _make_group(parts: list[tuple[Event, bytes]]) -> PortableEventGroup:
    """Return a transaction for another container."""
    first, gtid = parts[0][0], _read_gtid(parts[0][0])
    return PortableEventGroup(
        offset=first.start,
        size=parts[-1][0].end - first.start,
        record=first.record,
        type=EVENT_TYPE_NAMES.get(first.code, "UNKNOWN"),
        txn=gtid,
        seq=None if gtid is None else int(gtid.rpartition("-")[2]),
        time=first.time * 1_000_000 if first.time else None,
        origin=first.server_id,
        events=tuple(data for _, data in parts),
    )


def _read_gtid_list(event: Event) -> Iterator[PriorGtids]:
    """Yield the GTIDs before this file."""
    try:
        yield PriorGtids(tuple(read_gtid_list(bytes(event.body))), True)
    except MalformedError:
        return  # the validator reports it


class _EmptyTransactionReader:
    """Reader for a file without events."""

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield nothing."""
        yield from ()

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing."""
        yield from ()

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing."""
        yield from ()


def create_transaction_reader(layout: LogFileLayout, limits: Limits) -> TransactionReader | _EmptyTransactionReader:
    """Create the reader of a file's transactions (`ReadRules.event_groups`).

    Raises:
        UsageError: the log is not MariaDB's, or is a relay log.
        LimitError: it is encrypted, and there is no key.
    """
    context = layout.context
    if not isinstance(context, BinlogFileContext):
        return _EmptyTransactionReader()
    if layout.encrypted_without_key:
        raise LimitError("the log is encrypted; give the key with --keyfile FILE")
    if context.is_relay_log:
        raise UsageError("a relay log cannot be converted: its transactions may go on in the next file")
    if layout.readable and not context.description.is_mariadb:
        raise UsageError("only MariaDB's logs can be converted: MySQL's transactions say where they are in their file")
    return TransactionReader()
