"""Filters of a script: tables, databases, and the statement before which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.groups.groups import Step
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Owner
from binlogtool.formats.binlog_events.sql.renames import named_database
from binlogtool.formats.binlog_events.sql.scene import Scene
from binlogtool.formats.binlog_events.sql.session import Session
from binlogtool.formats.binlog_events.sql.transaction import closes, opens
from binlogtool.formats.binlog_events.sql.until import Pattern
from binlogtool.formats.scripting import Wording

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
class Choice:
    """Decide which events of a log go into a script.

    `waiting` holds the text of a transaction's beginning while nothing of it was selected yet, and the session
    before it. `stopped` is the finding that ended the script; after it nothing is written.
    """

    wording: Wording
    pattern: Pattern | None = field(init=False)
    waiting: tuple[bytes, Session] | None = None
    stopped: Finding | None = None
    _left_out: int = 0
    _first_left_out: Finding | None = None
    _last_done: str = ""

    def __post_init__(self) -> None:
        self.pattern = None if self.wording.until is None else Pattern(self.wording.until)

    @property
    def is_partial(self) -> bool:
        """True if only a part of each transaction is written."""
        return self.wording.tables is not None or bool(self.wording.only)

    @property
    def is_settled(self) -> bool:
        """True if nothing waits for the next event."""
        return self.stopped is None and self.waiting is None

    def wait(self, session: Session) -> None:
        """Hold back the beginning of a transaction that may have nothing selected."""
        if self.is_partial and self.waiting is None:
            self.waiting = (b"", session.copy())

    def forget(self) -> Session | None:
        """Drop the held beginning of a transaction and return the session before it; None if nothing is held."""
        before = None if self.waiting is None else self.waiting[1]
        self.waiting = None
        return before

    def place(self, scene: Scene, step: Step, text: bytes, *, changes: bool, shows: bool) -> bytes | None:
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
        waited, before = self.waiting
        if opens(scene):
            self.waiting = (waited + text, before)
            return b""
        if step is Step.ENDS and (closes(scene) or not changes):
            return None
        if not shows:
            return b""
        self.waiting = None
        return waited + text

    def passed(self, scene: Scene, step: Step) -> None:
        """Remember the end of a transaction as the last one before a possible stop."""
        if self.pattern is not None and (step is Step.ENDS or closes(scene)) and self.stopped is None:
            gtid = f"GTID {scene.owner.gtid}, " if scene.owner.gtid else ""
            self._last_done = f"{gtid}at {scene.context.name}:{scene.event.end}"

    def stops_at(self, scene: Scene, parts: QueryParts, sql: bytes) -> bool:
        """Return True, and record the finding, if this is the statement before which the script ends."""
        if self.pattern is None or not self.pattern.fits(sql, parts.db):
            return False
        place = f"{scene.context.name}:{scene.event.start}"
        gtid = f", GTID {scene.owner.gtid}" if scene.owner.gtid else ""
        after = f"; the last transaction before it is {self._last_done}" if self._last_done else ""
        text = f"stopped before {self.wording.until} at {place}{gtid}, time {scene.event.time}{after}"
        self.stopped = told(scene, "stopped-before", text, Severity.WARNING)
        return True

    def leaves_out(self, scene: Scene, parts: QueryParts, sql: bytes) -> bool:
        """Return True if a statement is not selected; count those that may concern selected objects."""
        database = parts.db.decode("utf-8", "backslashreplace")
        only = self.wording.only
        if database in only or not self.is_partial:
            return False
        if not only or named_database(sql, dict.fromkeys(only, "")) is not None:
            self._left_out += 1
            by = _BY_DATABASE if only else _BY_OBJECT if self.wording.where is None else _BY_CONDITION
            why = by[self._left_out > 1] + ("; the first one is here" if self._left_out > 1 else "")
            self._first_left_out = self._first_left_out or told(scene, "statement-left-out", why)
            self._first_left_out = replace(self._first_left_out, message=why)
        return True

    def remarks(self) -> Sequence[Finding]:
        """Return findings about statements that the filters left out and about a stop statement that does not occur."""
        found = []
        if self._first_left_out is not None:
            one = self._first_left_out
            found.append(replace(one, message=f"{self._left_out:,} {one.message}"))
        if self.pattern is not None and self.stopped is None:
            text = f"--stop-before {self.pattern.text!r}: there is no such statement; the script goes to the end"
            found.append(finding("statement-left-out", None, 0, text))
        return found


class PartedTransactions(msgspec.Struct):
    """Transactions of which a selection has only a part.

    `last_written` and `last_skipped` are the transactions of the last change that was written and of the last
    one that was not.
    """

    written: Owner = NOBODY
    passed: Owner = NOBODY
    _first: str = ""
    _last: Owner = NOBODY
    _count: int = 0

    def see(self, owner: Owner, other: Owner) -> None:
        """Count the transaction of a change once if changes of both kinds, written and skipped, belong to it.

        Args:
            owner: the transaction of this change.
            other: the transaction of the last change of the other kind.
        """
        if owner == other and owner not in (NOBODY, self._last):
            self._first = self._first or str(owner.gtid)
            self._last = owner
            self._count += 1

    def remarks(self) -> Sequence[Finding]:
        """Return a finding that counts the transactions that are only partly selected."""
        if not self._count:
            return []
        what = "transaction is" if self._count == 1 else "transactions are"
        text = f"{self._count:,} {what} only partly in the selection, the first one is {self._first}: the script has"
        text += " that part of it, and rolls it back where its end is missing"
        return [finding("statement-left-out", None, 0, text, severity=Severity.WARNING)]


def told(scene: Scene, id_: str, text: str, severity: Severity = Severity.ERROR) -> Finding:
    """Create a finding about an event."""
    event = scene.event
    return finding(id_, event.start, event.end - event.start, text, record=event.record, severity=severity)
