"""What of a log is written into a script: some tables or databases, and what stands before a statement."""

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
    """waiting: the beginning of a transaction of which nothing chosen was seen yet, and the session before it.
    stopped: nothing is written any more, and why."""

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
        """Is only a part of each transaction written?"""
        return self.wording.tables is not None or bool(self.wording.only)

    @property
    def is_settled(self) -> bool:
        """Does nothing wait for the next event?"""
        return self.stopped is None and self.waiting is None

    def wait(self, session: Session) -> None:
        """A transaction begins: if only parts of transactions are written, this one may have none."""
        if self.is_partial and self.waiting is None:
            self.waiting = (b"", session.copy())

    def forget(self) -> Session | None:
        """Nothing of the transaction was chosen: its beginning is not written. The session before it."""
        before = None if self.waiting is None else self.waiting[1]
        self.waiting = None
        return before

    def place(self, scene: Scene, step: Step, text: bytes, *, changes: bool, shows: bool) -> bytes | None:
        """The text of an event: at once, or with the first one of its transaction that was chosen; None = its
        transaction is to be forgotten. changes: are there statements in it? shows: are there statements or comments?"""
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
        """An event was written: the end of a transaction is the last place before a statement to stop at."""
        if self.pattern is not None and (step is Step.ENDS or closes(scene)) and self.stopped is None:
            gtid = f"GTID {scene.owner.gtid}, " if scene.owner.gtid else ""
            self._last_done = f"{gtid}at {scene.context.name}:{scene.event.end}"

    def stops_at(self, scene: Scene, parts: QueryParts, sql: bytes) -> bool:
        """Is this the statement before which all ends?"""
        if self.pattern is None or not self.pattern.fits(sql, parts.db):
            return False
        place = f"{scene.context.name}:{scene.event.start}"
        gtid = f", GTID {scene.owner.gtid}" if scene.owner.gtid else ""
        after = f"; the last transaction before it is {self._last_done}" if self._last_done else ""
        text = f"stopped before {self.wording.until} at {place}{gtid}, time {scene.event.time}{after}"
        self.stopped = told(scene, "stopped-before", text, Severity.WARNING)
        return True

    def leaves_out(self, scene: Scene, parts: QueryParts, sql: bytes) -> bool:
        """Is a statement not chosen? One that may be about what is chosen is told."""
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
        """How many statements an option left out; that no statement was the one to stop before."""
        found = []
        if self._first_left_out is not None:
            one = self._first_left_out
            found.append(replace(one, message=f"{self._left_out:,} {one.message}"))
        if self.pattern is not None and self.stopped is None:
            text = f"--stop-before {self.pattern.text!r}: there is no such statement; the script goes to the end"
            found.append(finding("statement-left-out", None, 0, text))
        return found


class PartedTransactions(msgspec.Struct):
    """Transactions of which a selection has a part. written, passed: those of the last changes that were written, and
    that were not chosen."""

    written: Owner = NOBODY
    passed: Owner = NOBODY
    _first: str = ""
    _last: Owner = NOBODY
    _count: int = 0

    def see(self, owner: Owner, other: Owner) -> None:
        """A change of the transaction `owner`, where the last one of the other kind is of `other`."""
        if owner == other and owner not in (NOBODY, self._last):
            self._first = self._first or str(owner.gtid)
            self._last = owner
            self._count += 1

    def remarks(self) -> Sequence[Finding]:
        """What is to be said of them."""
        if not self._count:
            return []
        what = "transaction is" if self._count == 1 else "transactions are"
        text = f"{self._count:,} {what} only partly in the selection, the first one is {self._first}: the script has"
        text += " that part of it, and rolls it back where its end is missing"
        return [finding("statement-left-out", None, 0, text, severity=Severity.WARNING)]


def told(scene: Scene, id_: str, text: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding about an event."""
    event = scene.event
    return finding(id_, event.start, event.end - event.start, text, record=event.record, severity=severity)
