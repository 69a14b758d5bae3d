"""Extract whole transactions for other log formats, and find split points between transactions.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, FrameLevel, KernelCompiler, LogFileLayout, SplitPoint, make_split_point
from binlogtool.format_api.row_output_interfaces import PortableEventGroup, PriorGtids
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.crypt.decrypt import DecryptionAnchor, EventDecryptor, EventDecryptorFactory
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.decode import BinlogFileContext
from binlogtool.formats.binlog_events.event_schemas import Event, get_event
from binlogtool.formats.binlog_events.gtid.gtid_events import FLAGS2, read_gtid_list, read_gtid_text
from binlogtool.formats.binlog_events.transactions import transaction_kernels
from binlogtool.formats.binlog_events.transactions.boundaries import (
    EVENTS_OUTSIDE_GROUPS,
    GROUP_BITS,
    NO_GROUP,
    STATEMENT,
    WORD_TABLE,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    build_event_type_traits,
    compute_packed_group_step,
    get_query_kind,
    get_statement_text_kind,
)
from binlogtool.formats.binlog_events.transactions.transaction_kernels import as_int_column
from binlogtool.formats.binlog_events.wire_format import EVENT_TYPE_NAMES, HEADER_SIZE, EventType
from binlogtool.limits import Limits

# --- Transactions of a MariaDB log for conversion into other formats ---

_T = EventType
_PORTABLE_EVENTS = frozenset({_T.FORMAT_DESCRIPTION, _T.INCIDENT})
"""Events outside transactions that the target log needs too; it writes its own events of the other types."""


class TransactionReader:
    """Reader of the transactions of one file (`EventGroupReader`).

    A transaction with a GTID extends to the next GTID: events without a GTID after a complete transaction belong to it.
    """

    def __init__(self) -> None:
        self._transactions = TransactionGroupState()
        self._events: list[tuple[Event, bytes]] = []
        self._is_complete = False
        self._skips_to_next = False

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield the transactions of a batch, and the lists of earlier GTIDs."""
        starts, ends = batch.frames["offset"], batch.frames["body_end"]
        for index in range(batch.frames.count):
            data = bytes(batch.window[starts[index] : ends[index]])  # the batch is released before the transaction ends
            event = get_event(batch, index)._replace(body=memoryview(data)[HEADER_SIZE:])
            yield from self._add_event_and_yield_ended(event, data)

    def _add_event_and_yield_ended(
        self, event: Event, data: bytes
    ) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Add one event."""
        step = self._transactions.advance_to_event(event.code, event.body)
        if event.code in EVENTS_OUTSIDE_GROUPS:
            yield from self._finish_open_transaction("an event about the file itself is inside of it", Severity.ERROR)
            if event.code == _T.GTID_LIST:
                yield from _read_gtid_list(event)
            elif event.code in _PORTABLE_EVENTS:
                yield _make_portable_transaction([(event, data)])
            return
        if step is GroupStep.OPENS:
            yield from self._end_previous_transaction()
        elif self._skips_to_next:
            return
        self._events.append((event, data))
        if step is GroupStep.ENDS or step is GroupStep.ALONE:
            self._is_complete = True
            if _read_mariadb_gtid(self._events[0][0]) is None:
                yield from self._finish_open_transaction("", Severity.ERROR)

    def _end_previous_transaction(self) -> Iterator[PortableEventGroup | Finding]:
        """Begin a transaction; events before the BEGIN of a log without GTIDs belong to it."""
        self._skips_to_next = False
        if self._is_complete or (self._events and _read_mariadb_gtid(self._events[0][0]) is not None):
            yield from self._finish_open_transaction("another transaction begins inside of it", Severity.ERROR)

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Drop the rest of the open transaction."""
        yield from self._finish_open_transaction("a part of it is damaged", Severity.ERROR)
        self._transactions.reset()
        self._skips_to_next = True

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield the last transaction; a transaction that the server never finished was rolled back."""
        yield from self._finish_open_transaction("the file ends inside of it", Severity.WARNING)

    def _finish_open_transaction(self, reason: str, severity: Severity) -> Iterator[PortableEventGroup | Finding]:
        """Yield the open transaction, or a finding if it is incomplete."""
        parts, is_complete, self._events, self._is_complete = self._events, self._is_complete, [], False
        if is_complete:
            yield _make_portable_transaction(parts)
        elif parts:
            first, last, gtid = parts[0][0], parts[-1][0], _read_mariadb_gtid(parts[0][0])
            message = f"transaction {gtid or 'without GTID'} is incomplete: {reason}"
            yield make_finding(
                "incomplete-transaction", first.start, last.end - first.start, message, record=first.record,
                severity=severity, gtid=gtid,
            )  # fmt: skip


_END_TYPES = frozenset({"XID", "XA_PREPARE_LOG"})
_END_KINDS = (QueryKind.COMMIT, QueryKind.ROLLBACK, QueryKind.XA_FINISH)


def is_transaction_end(event_type_name: str, body: Any) -> bool | None:
    """Return whether an event is the last one of its transaction; None for a QUERY that may be a DDL statement or a
    statement inside a transaction, and for a QUERY without its body.
    """
    if not event_type_name.startswith("QUERY"):
        return event_type_name in _END_TYPES
    text = body.get("sql") if isinstance(body, dict) else None
    if not isinstance(text, str):
        return None
    kind = get_statement_text_kind(text.encode())
    return None if kind is QueryKind.STATEMENT else kind in _END_KINDS


def _read_mariadb_gtid(event: Event) -> str | None:
    """Return the GTID of an event; None if it has none."""
    if event.code != _T.GTID or len(event.body) < FLAGS2:
        return None
    return read_gtid_text(event.code, event.server_id, bytes(event.body))


def _make_portable_transaction(events_with_bytes: list[tuple[Event, bytes]]) -> PortableEventGroup:
    """Return the events as a transaction that can be written to another log format."""
    first, gtid = events_with_bytes[0][0], _read_mariadb_gtid(events_with_bytes[0][0])
    return PortableEventGroup(
        offset=first.start,
        size=events_with_bytes[-1][0].end - first.start,
        record=first.record,
        type=EVENT_TYPE_NAMES.get(first.code, "UNKNOWN"),
        txn=gtid,
        seq=None if gtid is None else int(gtid.rpartition("-")[2]),
        time=first.time * 1_000_000 if first.time else None,
        origin=first.server_id,
        events=tuple(data for _, data in events_with_bytes),
    )


def _read_gtid_list(event: Event) -> Iterator[PriorGtids]:
    """Yield the GTIDs of earlier files."""
    try:
        yield PriorGtids(tuple(read_gtid_list(bytes(event.body))), True)
    except MalformedError:
        return  # the validator reports it


def create_transaction_reader(layout: LogFileLayout, limits: Limits) -> TransactionReader:
    """Create the reader of a file's transactions (`ReadRules.event_groups`).

    Raises:
        UsageError: the log is not MariaDB's, or is a relay log.
        LimitError: the log is encrypted, and there is no key.
    """
    context = layout.context
    if not isinstance(context, BinlogFileContext):
        return TransactionReader()  # a file without events
    if layout.encrypted_without_key:
        raise LimitError("the log is encrypted; give the key with --keyfile FILE")
    if context.is_relay_log:
        raise UsageError("a relay log cannot be converted: its transactions may continue in the next file")
    if layout.readable and not context.description.is_mariadb:
        raise UsageError("only MariaDB logs can be converted: MySQL's transactions contain their position in the file")
    return TransactionReader()


# --- Split points between transactions, with the state at each of them ---

_COLUMN_NAMES = ("type_code", "body_start", "body_end")


def make_split_point_finder(layout: LogFileLayout) -> BinlogSplitFinder | None:
    """Create the split finder of a file; None if its events cannot be read or it has none."""
    context = layout.context
    is_usable = layout.readable and isinstance(context, BinlogFileContext) and not context.encrypted_without_key
    return BinlogSplitFinder(layout, context) if is_usable else None


class BinlogSplitFinder:
    """Finds split points between transactions (`SplitFinder`).

    `history`: table definitions as of the last split point. Table maps are not valid beyond their statement.
    """

    def __init__(self, layout: LogFileLayout, context: BinlogFileContext) -> None:
        self.layout = layout
        self.context = context
        own = context.tracker.maps.history
        self.history = TableHistory() if own is None else own.copy()
        self._later_statements: list[tuple[int, int, bytes]] = []
        self._last_split_offset = 0
        self._traits = build_event_type_traits({EventType.QUERY_COMPRESSED})
        self._kernel_state = array("q", bytes(8 * transaction_kernels.SPLIT_STATE_SIZE))

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the split point after the last event of the batch at which no group is open."""
        count, state = batch.frames.count, self._kernel_state
        state[transaction_kernels.BOUNDARY_COUNT] = 0
        columns = transaction_kernels.EventBodies._make(
            as_int_column(batch.frames[name], count) for name in _COLUMN_NAMES
        )
        kernel, index = compile_kernel(transaction_kernels.track_boundaries_until_unsupported), 0
        while True:
            index = kernel(index, count, columns, batch.window, state, self._traits, WORD_TABLE)
            if index == count:
                break
            self._apply_query_in_python(batch, index)
            index += 1
        self._apply_statements_before_boundary(state[transaction_kernels.BOUNDARY_COUNT])
        split_point = make_split_point(batch, state[transaction_kernels.BOUNDARY_COUNT])
        self._last_split_offset = self._last_split_offset if split_point is None else split_point.offset
        return split_point

    def _apply_query_in_python(self, batch: Batch, index: int) -> None:
        """Apply a QUERY that is compressed or may define a table."""
        code, body_start, body_end = (int(batch.frames[name][index]) for name in _COLUMN_NAMES)
        self._later_statements.append((index, code, bytes(batch.window[body_start:body_end])))
        state, kind = self._kernel_state, int(get_query_kind(code, batch.window[body_start:body_end]))
        state[transaction_kernels.SPLIT_GROUP_STATE] = (
            compute_packed_group_step(state[transaction_kernels.SPLIT_GROUP_STATE], STATEMENT + kind) & GROUP_BITS
        )
        if state[transaction_kernels.SPLIT_GROUP_STATE] == NO_GROUP:
            state[transaction_kernels.BOUNDARY_COUNT] = index + 1

    def _apply_statements_before_boundary(self, boundary: int) -> None:
        """Apply the statements of the batch before its last boundary; keep the others for the next one."""
        for index, code, body in self._later_statements:
            if index < boundary:
                self.history.add_query_if_ddl(code, memoryview(body))
        self._later_statements = [(-1, code, body) for index, code, body in self._later_statements if index >= boundary]

    def export_state_for_next_file(self) -> Any:
        """Return the table definitions."""
        return None if self.history.is_empty else self.history.export_state()

    def export_state(self) -> dict[str, Any]:
        """Return the state at the last split point for JSON.

        The state has the table definitions, the position to decrypt from and, for a relay log, the
        FORMAT_DESCRIPTION as
        hexadecimal text.
        """
        state: dict[str, Any] = {}
        if not self.history.is_empty and (definitions := self.history.export_state()):
            state["declared"] = definitions
        if self.context.is_relay_log:
            state["description"] = self.context.description.event.hex()
        if (decryptor := self._get_decryptor()) is not None:
            state["sealed"] = decryptor.get_anchor(self._last_split_offset)
        return state

    def _get_decryptor(self) -> EventDecryptor | None:
        """Return the decryptor of an encrypted MariaDB log; None for other logs."""
        decryptor = self.layout.decrypt
        return decryptor.decryptor if isinstance(decryptor, EventDecryptorFactory) else None

    def restore_state(self, state: Any, record: int) -> FrameLevel | None:
        """Restore the table definitions, and the FORMAT_DESCRIPTION of a relay log."""
        self.context.tracker.previous_relay_log = None  # no group is open here that the preceding file could have begun
        for history in (self.history, self.context.tracker.maps.history):
            if history is not None:
                history.import_state(state.get("declared", ()))
        if (decryptor := self._get_decryptor()) is not None:
            decryptor.start_after_anchor(DecryptionAnchor(*state["sealed"]))
        next_level = self.layout.frame.next_level
        if next_level is None or "description" not in state:
            return None
        return next_level(bytes.fromhex(state["description"]), self.context)

    def skip_damage(self) -> None:
        """Reset the state after damage: the open group is unknown, the table definitions are assumed."""
        self._kernel_state = array("q", bytes(8 * transaction_kernels.SPLIT_STATE_SIZE))
        self.history.mark_definitions_assumed()
        self._later_statements.clear()
