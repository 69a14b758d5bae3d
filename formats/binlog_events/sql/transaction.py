"""The transaction that is open in a server that runs a script so far: how it began, and what would roll it back."""

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
    """undo: the statements that roll back what is open. adrift: a part of the open transaction is lost, its rest must
    not be written. current: the transaction whose beginning was written. implied: the one that was begun here because
    its beginning is not among the chosen records. claimed: MySQL's session has a GTID that nothing has taken yet: a
    ROLLBACK gives it back."""

    groups: Groups = msgspec.field(default_factory=Groups)
    undo: tuple[bytes, ...] = ()
    adrift: bool = False
    current: Owner = NOBODY
    implied: Owner = NOBODY
    claimed: bool = False

    @property
    def is_settled(self) -> bool:
        """Is all that is open what the log opened?"""
        return not self.adrift and self.implied == NOBODY

    def lose(self) -> None:
        """A part of the log is lost."""
        self.groups.lose()
        self.adrift, self.implied = True, NOBODY

    def ashore(self, scene: Scene, step: Step) -> bool:
        """Is this event written again? A transaction that begins is; one that ends was the one that is lost."""
        event = scene.event
        fresh = event.code == _T.FORMAT_DESCRIPTION and not scene.context.relay
        if event.code in GTIDS or step is Step.OPENS or fresh:
            self.adrift = False
            return True
        if step is Step.ENDS or closes(scene):
            self.adrift = False
        return False

    def implies(self, scene: Scene) -> bool:
        """Does the transaction of this change begin here, since its own beginning is not among the chosen records?"""
        event, owner = scene.event, scene.owner
        changes = event.code in ROWS or kind_of(scene) is QueryKind.STATEMENT
        if not changes or self.undo or owner == NOBODY or owner == self.current:
            return False
        self.current = self.implied = owner
        self.undo = ROLLBACK
        return True

    def leaves_implied(self, owner: Owner) -> bool:
        """Does another transaction come than the one that was begun here? That one is to be committed."""
        if self.implied == NOBODY or owner == self.implied:
            return False
        self.end()
        return True

    def begin(self) -> None:
        """It was begun by START TRANSACTION."""
        self.undo = ROLLBACK

    def begin_xa(self, xid: bytes) -> bytes:
        """XA START."""
        self.undo = (b"XA END " + xid, b"XA ROLLBACK " + xid)
        return b"XA START " + xid

    def end(self) -> None:
        """It was committed, rolled back or prepared."""
        self.undo, self.implied, self.claimed = (), NOBODY, False

    def take_undo(self) -> tuple[bytes, ...]:
        """What rolls it back; it is not open any more."""
        undo, self.undo = self.undo or (ROLLBACK if self.claimed else ()), ()
        self.claimed = False
        return undo

    def follow(self, kind: QueryKind, sql: bytes) -> None:
        """What a statement does to it."""
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
    """What a QUERY is; None = the event is none."""
    code = scene.event.code
    return query_kind(code, scene.event.body) if code in QUERIES else None


def opens(scene: Scene) -> bool:
    """Is this event the beginning of a transaction, and nothing else?"""
    return scene.event.code in GTIDS or kind_of(scene) in (QueryKind.BEGIN, QueryKind.XA_START)


def closes(scene: Scene) -> bool:
    """Is this event the end of a transaction, and nothing else?"""
    return scene.event.code in ENDINGS or kind_of(scene) in FINISH


def xid_text(gtrid: bytes, bqual: bytes, format_id: int) -> bytes:
    """The name of an XA transaction as statements have it."""
    return b"%b,%b,%d" % (in_hex(gtrid), in_hex(bqual), format_id)
