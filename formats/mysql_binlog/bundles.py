"""Transactions of a MariaDB log for conversion into other containers.

Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, TYPES, EventType
from binlogtool.formats.binlog_events.events.event import Event, event_at
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.marks import OUTSIDE
from binlogtool.formats.binlog_events.gtid.bodies import gtid_list, gtid_text
from binlogtool.formats.binlog_events.gtid.places import FLAGS2
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.bundling import Bundle, Reached
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.limits import Limits

_T = EventType
_ALONE = frozenset({_T.FORMAT_DESCRIPTION, _T.INCIDENT})
"""Events outside of transactions that another container needs, too; it has the others of its own."""


class EventBundles:
    """Reader of the transactions of one file (`EventGroupReader`).

    A transaction with a GTID extends to the next one: events without a GTID after a complete transaction belong
    to it.
    """

    def __init__(self) -> None:
        self._groups = Groups()
        self._open: list[tuple[Event, bytes]] = []
        self._complete = False
        self._lost = False

    def of(self, batch: Batch) -> Iterator[Bundle | Reached | Finding]:
        """Yield the transactions of a batch, and the lists of GTIDs."""
        starts, ends = batch.frames["offset"], batch.frames["body_end"]
        for index in range(batch.frames.count):
            data = bytes(batch.window[starts[index] : ends[index]])  # the batch is released before the transaction ends
            event = event_at(batch, index)._replace(body=memoryview(data)[HEADER_SIZE:])
            yield from self._take(event, data)

    def _take(self, event: Event, data: bytes) -> Iterator[Bundle | Reached | Finding]:
        """Add one event."""
        step = self._groups.take(event.code, event.body)
        if event.code in OUTSIDE:
            yield from self._ended("it goes on behind an event of the file", Severity.ERROR)
            if event.code == _T.GTID_LIST:
                yield from _reached(event)
            elif event.code in _ALONE:
                yield _bundle([(event, data)])
            return
        if step is Step.OPENS:
            yield from self._opens()
        elif self._lost:
            return
        self._open.append((event, data))
        if step is Step.ENDS or step is Step.ALONE:
            self._complete = True
            if _owner(self._open[0][0]) is None:
                yield from self._ended("", Severity.ERROR)

    def _opens(self) -> Iterator[Bundle | Finding]:
        """Begin a transaction; events before the BEGIN of a log without GTIDs belong to it."""
        self._lost = False
        if self._complete or (self._open and _owner(self._open[0][0]) is not None):
            yield from self._ended("a transaction starts inside of it", Severity.ERROR)

    def damage(self, start: int, end: int) -> Iterator[Bundle | Finding]:
        """Drop the open transaction up to its end."""
        yield from self._ended("a part of it is damaged", Severity.ERROR)
        self._groups.lose()
        self._lost = True

    def finish(self) -> Iterator[Bundle | Finding]:
        """Yield the last transaction; one that the server never finished was rolled back."""
        yield from self._ended("the file ends inside of it", Severity.WARNING)

    def _ended(self, why: str, severity: Severity) -> Iterator[Bundle | Finding]:
        """Yield the open transaction, or a finding if it is incomplete."""
        parts, complete, self._open, self._complete = self._open, self._complete, [], False
        if complete:
            yield _bundle(parts)
        elif parts:
            first, last, gtid = parts[0][0], parts[-1][0], _owner(parts[0][0])
            text = f"transaction {gtid or 'without GTID'} is not whole: {why}"
            yield finding(
                "incomplete-transaction", first.start, last.end - first.start, text, record=first.record,
                severity=severity, gtid=gtid,
            )  # fmt: skip


def _owner(event: Event) -> str | None:
    """Return the GTID of an event; None if it has none."""
    if event.code != _T.GTID or len(event.body) < FLAGS2:
        return None
    return gtid_text(event.code, event.server, bytes(event.body))


def _bundle(parts: list[tuple[Event, bytes]]) -> Bundle:
    """Return a transaction for another container."""
    first, gtid = parts[0][0], _owner(parts[0][0])
    return Bundle(
        offset=first.start,
        size=parts[-1][0].end - first.start,
        record=first.record,
        type=TYPES.get(first.code, "UNKNOWN"),
        txn=gtid,
        seq=None if gtid is None else int(gtid.rpartition("-")[2]),
        time=first.time * 1_000_000 if first.time else None,
        origin=first.server,
        events=tuple(data for _, data in parts),
    )


def _reached(event: Event) -> Iterator[Reached]:
    """Yield the GTIDs before this file."""
    try:
        yield Reached(tuple(gtid_list(bytes(event.body))), True)
    except MalformedError:
        return  # the validator reports it


class _Nothing:
    """Reader for a file without events."""

    def of(self, batch: Batch) -> Iterator[Bundle | Reached | Finding]:
        """Yield nothing."""
        yield from ()

    def damage(self, start: int, end: int) -> Iterator[Bundle | Finding]:
        """Yield nothing."""
        yield from ()

    def finish(self) -> Iterator[Bundle | Finding]:
        """Yield nothing."""
        yield from ()


def bundles(layout: Layout, limits: Limits) -> EventBundles | _Nothing:
    """Create the reader of a file's transactions (`ReadRules.event_groups`).

    Raises:
        UsageError: the log is not MariaDB's, or is a relay log.
        LimitError: it is encrypted, and there is no key.
    """
    context = layout.context
    if not isinstance(context, FileContext):
        return _Nothing()
    if layout.sealed:
        raise LimitError("the log is encrypted; give the key with --keyfile FILE")
    if context.relay:
        raise UsageError("a relay log cannot be converted: its transactions may go on in the next file")
    if layout.readable and not context.description.is_mariadb:
        raise UsageError("only MariaDB's logs can be converted: MySQL's transactions say where they are in their file")
    return EventBundles()
