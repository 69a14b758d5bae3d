"""The transaction that is open on the server that runs a script: how it began, and what rolls it back."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, EventType
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import ENDINGS
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Owner
from binlogtool.formats.binlog_events.sql.literals import in_hex
from binlogtool.formats.binlog_events.sql.scene import Scene

_T = EventType
FINISH = (QueryKind.COMMIT, QueryKind.ROLLBACK)
ROLLBACK = (b"ROLLBACK",)


class Transaction(msgspec.Struct):
    """State of the open transaction of a script.

    `rollback_statements`: the statements that roll it back. `is_damaged`: a part of it is lost, its rest must
    not be written. `current_owner`: the transaction whose beginning was written. `implied_owner`: the one that
    the script began itself, because its beginning is not selected. `has_unused_gtid`: MySQL's session has a
    GTID that no transaction has used yet; a ROLLBACK releases it.
    """

    groups: Groups = msgspec.field(default_factory=Groups)
    undo: tuple[bytes, ...] = ()
    adrift: bool = False
    current: Owner = NOBODY
    implied: Owner = NOBODY
    claimed: bool = False

    @property
    def is_settled(self) -> bool:
        """True if everything that is open was opened by the log itself."""
        return not self.adrift and self.implied == NOBODY

    def lose(self) -> None:
        """Note that a part of the log is lost."""
        self.groups.lose()
        self.adrift, self.implied = True, NOBODY

    def ashore(self, scene: Scene, step: Step) -> bool:
        """Return whether this event is written again after a loss, and note the end of the lost transaction."""
        event = scene.event
        fresh = event.code == _T.FORMAT_DESCRIPTION and not scene.context.relay
        if event.code in GTIDS or step is Step.OPENS or fresh:
            self.adrift = False
            return True
        if step is Step.ENDS or closes(scene):
            self.adrift = False
        return False

    def implies(self, scene: Scene) -> bool:
        """Return whether the transaction of this change begins here because its own beginning is not selected."""
        event, owner = scene.event, scene.owner
        changes = event.code in ROWS or kind_of(scene) is QueryKind.STATEMENT
        if not changes or self.undo or owner == NOBODY or owner == self.current:
            return False
        self.current = self.implied = owner
        self.undo = ROLLBACK
        return True

    def leaves_implied(self, owner: Owner) -> bool:
        """Return whether another transaction than the implied one comes, so that the implied one is to be committed."""
        if self.implied == NOBODY or owner == self.implied:
            return False
        self.end()
        return True

    def begin(self) -> None:
        """Note START TRANSACTION."""
        self.undo = ROLLBACK

    def begin_xa(self, xid: bytes) -> bytes:
        """Note and return XA START."""
        self.undo = (b"XA END " + xid, b"XA ROLLBACK " + xid)
        return b"XA START " + xid

    def end(self) -> None:
        """Note that the transaction was committed, rolled back or prepared."""
        self.undo, self.implied, self.claimed = (), NOBODY, False

    def take_undo(self) -> tuple[bytes, ...]:
        """Return the statements that roll the transaction back, and close it."""
        undo, self.undo = self.undo or (ROLLBACK if self.claimed else ()), ()
        self.claimed = False
        return undo

    def follow(self, kind: QueryKind, sql: bytes) -> None:
        """Note the effect of a statement on the transaction."""
        self.claimed = False
        if kind is QueryKind.BEGIN:
            self.begin()
        elif kind in FINISH:
            self.end()
        elif kind is QueryKind.XA_START:
            self.begin_xa(sql.split(None, 2)[2])
        elif kind is QueryKind.XA_END:
            self.undo = self.undo[-1:]


def kind_of(scene: Scene) -> QueryKind | None:
    """Return the kind of a QUERY event; None for other events."""
    code = scene.event.code
    return query_kind(code, scene.event.body) if code in QUERIES else None


def opens(scene: Scene) -> bool:
    """Return whether this event begins a transaction and does nothing else."""
    return scene.event.code in GTIDS or kind_of(scene) in (QueryKind.BEGIN, QueryKind.XA_START)


def closes(scene: Scene) -> bool:
    """Return whether this event ends a transaction and does nothing else."""
    return scene.event.code in ENDINGS or kind_of(scene) in FINISH


def xid_text(gtrid: bytes, bqual: bytes, format_id: int) -> bytes:
    """Return the name of an XA transaction as it is written in statements."""
    return b"%b,%b,%d" % (in_hex(gtrid), in_hex(bqual), format_id)
