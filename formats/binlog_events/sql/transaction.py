"""The transaction that is open on the server that runs a script: how it began, and what rolls it back."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import GTID_EVENTS, QUERY_EVENTS, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import EVENTS_ENDING_TRANSACTIONS
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TransactionOwner
from binlogtool.formats.binlog_events.sql.literals import format_hex
from binlogtool.formats.binlog_events.sql.scene import EventContext

_T = EventType
FINISHING_STATEMENTS = (QueryKind.COMMIT, QueryKind.ROLLBACK)
ROLLBACK = (b"ROLLBACK",)


class ScriptTransaction(msgspec.Struct):
    """State of the open transaction of a script.

    `rollback_statements`: the statements that roll it back. `is_damaged`: a part of it is lost, its rest must
    not be written. `current_owner`: the transaction whose beginning was written. `implied_owner`: the one that
    the script began itself, because its beginning is not selected. `has_unused_gtid`: MySQL's session has a
    GTID that no transaction has used yet; a ROLLBACK releases it.
    """

    groups: TransactionGroups = msgspec.field(default_factory=TransactionGroups)
    rollback_statements: tuple[bytes, ...] = ()
    is_damaged: bool = False
    current_owner: TransactionOwner = NO_OWNER
    implied_owner: TransactionOwner = NO_OWNER
    has_unused_gtid: bool = False

    @property
    def is_as_logged(self) -> bool:
        """True if everything that is open was opened by the log itself."""
        return not self.is_damaged and self.implied_owner == NO_OWNER

    def note_loss(self) -> None:
        """Note that a part of the log is lost."""
        self.groups.reset()
        self.is_damaged, self.implied_owner = True, NO_OWNER

    def resume_after_loss(self, context: EventContext, step: GroupStep) -> bool:
        """Return whether this event is written again after a loss, and note the end of the lost transaction."""
        event = context.event
        is_new_file = event.code == _T.FORMAT_DESCRIPTION and not context.file.is_relay_log
        if event.code in GTID_EVENTS or step is GroupStep.OPENS or is_new_file:
            self.is_damaged = False
            return True
        if step is GroupStep.ENDS or is_transaction_end(context):
            self.is_damaged = False
        return False

    def begin_implied(self, context: EventContext) -> bool:
        """Return whether the transaction of this change begins here because its own beginning is not selected."""
        event, owner = context.event, context.owner
        is_change = event.code in ROW_EVENTS or get_statement_kind(context) is QueryKind.STATEMENT
        if not is_change or self.rollback_statements or owner == NO_OWNER or owner == self.current_owner:
            return False
        self.current_owner = self.implied_owner = owner
        self.rollback_statements = ROLLBACK
        return True

    def end_implied(self, owner: TransactionOwner) -> bool:
        """Return whether another transaction than the implied one comes, so that the implied one is to be committed."""
        if self.implied_owner == NO_OWNER or owner == self.implied_owner:
            return False
        self.end()
        return True

    def begin(self) -> None:
        """Note START TRANSACTION."""
        self.rollback_statements = ROLLBACK

    def begin_xa(self, xid: bytes) -> bytes:
        """Note and return XA START."""
        self.rollback_statements = (b"XA END " + xid, b"XA ROLLBACK " + xid)
        return b"XA START " + xid

    def end(self) -> None:
        """Note that the transaction was committed, rolled back or prepared."""
        self.rollback_statements, self.implied_owner, self.has_unused_gtid = (), NO_OWNER, False

    def take_rollback(self) -> tuple[bytes, ...]:
        """Return the statements that roll the transaction back, and close it."""
        statements, self.rollback_statements = (
            self.rollback_statements or (ROLLBACK if self.has_unused_gtid else ()),
            (),
        )
        self.has_unused_gtid = False
        return statements

    def note_statement(self, kind: QueryKind, sql: bytes) -> None:
        """Note the effect of a statement on the transaction."""
        self.has_unused_gtid = False
        if kind is QueryKind.BEGIN:
            self.begin()
        elif kind in FINISHING_STATEMENTS:
            self.end()
        elif kind is QueryKind.XA_START:
            self.begin_xa(sql.split(None, 2)[2])
        elif kind is QueryKind.XA_END:
            self.rollback_statements = self.rollback_statements[-1:]


def get_statement_kind(context: EventContext) -> QueryKind | None:
    """Return the kind of a QUERY event; None for other events."""
    code = context.event.code
    return get_query_kind(code, context.event.body) if code in QUERY_EVENTS else None


def is_transaction_start(context: EventContext) -> bool:
    """Return whether this event begins a transaction and does nothing else."""
    return context.event.code in GTID_EVENTS or get_statement_kind(context) in (QueryKind.BEGIN, QueryKind.XA_START)


def is_transaction_end(context: EventContext) -> bool:
    """Return whether this event ends a transaction and does nothing else."""
    return context.event.code in EVENTS_ENDING_TRANSACTIONS or get_statement_kind(context) in FINISHING_STATEMENTS


def format_xid(gtrid: bytes, bqual: bytes, format_id: int) -> bytes:
    """Return the name of an XA transaction as it is written in statements."""
    return b"%b,%b,%d" % (format_hex(gtrid), format_hex(bqual), format_id)
