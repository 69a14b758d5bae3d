"""Filters of a script: tables, databases, and the statement before which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.groups.groups import GroupStep
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TransactionOwner
from binlogtool.formats.binlog_events.sql.renames import find_renamed_database
from binlogtool.formats.binlog_events.sql.scene import EventContext
from binlogtool.formats.binlog_events.sql.session import ScriptSession
from binlogtool.formats.binlog_events.sql.transaction import is_transaction_end, is_transaction_start
from binlogtool.formats.binlog_events.sql.until import StatementPattern
from binlogtool.formats.scripting import ScriptOptions

_BY_DATABASE = (
    "statement of another default database names a chosen one: --database goes by the default database",
    "statements of other default databases name the chosen ones: --database goes by the default database",
)
_BY_OBJECT = (
    "statement was left out: --object chooses changes of rows, and the log has this as a text",
    "statements were left out: --object chooses changes of rows, and the log has these as texts",
)
_BY_CONDITION = tuple(text.replace("--object", "--where") for text in _BY_OBJECT)


@dataclass(slots=True)
class ScriptFilter:
    """Decide which events of a log go into a script.

    `waiting` holds the text of a transaction's beginning while nothing of it was selected yet, and the session
    before it. `stopped` is the finding that ended the script; after it nothing is written.
    """

    wording: ScriptOptions
    pattern: StatementPattern | None = field(init=False)
    waiting: tuple[bytes, ScriptSession] | None = None
    stopped: Finding | None = None
    _left_out: int = 0
    _first_left_out: Finding | None = None
    _last_transaction: str = ""

    def __post_init__(self) -> None:
        self.pattern = None if self.wording.stop_before is None else StatementPattern(self.wording.stop_before)

    @property
    def is_partial(self) -> bool:
        """True if only a part of each transaction is written."""
        return self.wording.includes_table is not None or bool(self.wording.only_databases)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for the next event."""
        return self.stopped is None and self.waiting is None

    def hold_transaction_start(self, session: ScriptSession) -> None:
        """Hold back the beginning of a transaction that may have nothing selected."""
        if self.is_partial and self.waiting is None:
            self.waiting = (b"", session.copy())

    def discard_transaction(self) -> ScriptSession | None:
        """Drop the held beginning of a transaction and return the session before it; None if nothing is held."""
        before = None if self.waiting is None else self.waiting[1]
        self.waiting = None
        return before

    def release_text(
        self, context: EventContext, step: GroupStep, text: bytes, *, changes: bool, shows: bool
    ) -> bytes | None:
        """Return the text to write for an event, together with a held transaction beginning where needed.

        Args:
            context: the event.
            step: the event's place in its transaction.
            text: the event as SQL.
            changes: whether `text` has statements.
            shows: whether `text` has statements or comments.

        Returns:
            The text to write now; None if the whole transaction is to be discarded.
        """
        if not self.is_partial or self.waiting is None:
            return text
        held, before = self.waiting
        if is_transaction_start(context):
            self.waiting = (held + text, before)
            return b""
        if step is GroupStep.ENDS and (is_transaction_end(context) or not changes):
            return None
        if not shows:
            return b""
        self.waiting = None
        return held + text

    def note_transaction_end(self, context: EventContext, step: GroupStep) -> None:
        """Remember the end of a transaction as the last one before a possible stop."""
        if (
            self.pattern is not None
            and (step is GroupStep.ENDS or is_transaction_end(context))
            and self.stopped is None
        ):
            gtid = f"GTID {context.owner.gtid}, " if context.owner.gtid else ""
            self._last_transaction = f"{gtid}at {context.file.name}:{context.event.end}"

    def stop_if_matched(self, context: EventContext, parts: QueryParts, sql: bytes) -> bool:
        """Return True, and record the finding, if this is the statement before which the script ends."""
        if self.pattern is None or not self.pattern.matches(sql, parts.db):
            return False
        position = f"{context.file.name}:{context.event.start}"
        gtid = f", GTID {context.owner.gtid}" if context.owner.gtid else ""
        after = f"; the last transaction before it is {self._last_transaction}" if self._last_transaction else ""
        message = f"stopped before {self.wording.stop_before} at {position}{gtid}, time {context.event.time}{after}"
        self.stopped = event_finding(context, "stopped-before", message, Severity.WARNING)
        return True

    def exclude_statement(self, context: EventContext, parts: QueryParts, sql: bytes) -> bool:
        """Return True if a statement is not selected; count those that may concern selected objects."""
        database = parts.db.decode("utf-8", "backslashreplace")
        databases = self.wording.only_databases
        if database in databases or not self.is_partial:
            return False
        if not databases or find_renamed_database(sql, dict.fromkeys(databases, "")) is not None:
            self._left_out += 1
            reasons = _BY_DATABASE if databases else _BY_OBJECT if self.wording.row_filter is None else _BY_CONDITION
            reason = reasons[self._left_out > 1] + ("; the first one is here" if self._left_out > 1 else "")
            self._first_left_out = self._first_left_out or event_finding(context, "statement-left-out", reason)
            self._first_left_out = replace(self._first_left_out, message=reason)
        return True

    def list_findings(self) -> Sequence[Finding]:
        """Return findings about statements that the filters left out and about a stop statement that does not occur."""
        findings = []
        if self._first_left_out is not None:
            first = self._first_left_out
            findings.append(replace(first, message=f"{self._left_out:,} {first.message}"))
        if self.pattern is not None and self.stopped is None:
            message = f"--stop-before {self.pattern.text!r}: there is no such statement; the script goes to the end"
            findings.append(make_finding("statement-left-out", None, 0, message))
        return findings


class PartialTransactions(msgspec.Struct):
    """Transactions of which a selection has only a part.

    `last_written` and `last_skipped` are the transactions of the last change that was written and of the last
    one that was not.
    """

    last_written: TransactionOwner = NO_OWNER
    last_skipped: TransactionOwner = NO_OWNER
    _first_gtid: str = ""
    _last: TransactionOwner = NO_OWNER
    _count: int = 0

    def note_change(self, owner: TransactionOwner, other: TransactionOwner) -> None:
        """Count the transaction of a change once if changes of both kinds, written and skipped, belong to it.

        Args:
            owner: the transaction of this change.
            other: the transaction of the last change of the other kind.
        """
        if owner == other and owner not in (NO_OWNER, self._last):
            self._first_gtid = self._first_gtid or str(owner.gtid)
            self._last = owner
            self._count += 1

    def list_findings(self) -> Sequence[Finding]:
        """Return a finding that counts the transactions that are only partly selected."""
        if not self._count:
            return []
        subject = "transaction is" if self._count == 1 else "transactions are"
        message = (
            f"{self._count:,} {subject} only partly in the selection, the first one is "
            f"{self._first_gtid}: the script has"
        )
        message += " that part of it, and rolls it back where its end is missing"
        return [make_finding("statement-left-out", None, 0, message, severity=Severity.WARNING)]


def event_finding(context: EventContext, id_: str, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """Create a finding about an event."""
    event = context.event
    return make_finding(id_, event.start, event.end - event.start, message, record=event.record, severity=severity)
