"""Transactions as groups of events: where one opens, what belongs to it, where it ends (specification section 8)."""

from __future__ import annotations

import enum
import struct
import zlib

import msgspec

from binlogtool.formats.binlog_events.codes import GTIDS, ROWS, EventType
from binlogtool.formats.binlog_events.events.places import DB_LEN, HEAD, STATUS_LEN

_T = EventType

OUTSIDE = frozenset(
    {
        _T.FORMAT_DESCRIPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST, _T.BINLOG_CHECKPOINT, _T.START_ENCRYPTION, _T.ROTATE,
        _T.STOP, _T.INCIDENT, _T.HEARTBEAT, _T.HEARTBEAT_V2,
    }
)  # fmt: skip
"""Events that stand outside groups: the end of each is a boundary."""

PREFIXES = frozenset({_T.INTVAR, _T.RAND, _T.USER_VAR, _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY}) | GTIDS
"""Events that never end a group of one statement."""

ENDINGS = frozenset({_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD})

STANDALONE = 1
"""Bit of flags2 of MariaDB's GTID: no commit event follows."""

STMT_END = 1
_TABLE_FLAGS = struct.Struct("<H")
_TEXT_START = 64


class QueryKind(enum.IntEnum):
    """What the text of a QUERY means for the group that it stands in."""

    STATEMENT = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    SAVEPOINT = 4
    XA_START = 5
    XA_END = 6
    XA_FINISH = 7
    """XA COMMIT or XA ROLLBACK of a prepared transaction: a group of its own."""


KINDS = (
    (b"BEGIN", QueryKind.BEGIN),
    (b"COMMIT", QueryKind.COMMIT),
    (b"ROLLBACK TO", QueryKind.SAVEPOINT),
    (b"ROLLBACK", QueryKind.ROLLBACK),
    (b"SAVEPOINT", QueryKind.SAVEPOINT),
    (b"RELEASE SAVEPOINT", QueryKind.SAVEPOINT),
    (b"START TRANSACTION", QueryKind.BEGIN),
    (b"XA START", QueryKind.XA_START),
    (b"XA BEGIN", QueryKind.XA_START),
    (b"XA END", QueryKind.XA_END),
    (b"XA PREPARE", QueryKind.XA_END),
    (b"XA COMMIT", QueryKind.XA_FINISH),
    (b"XA ROLLBACK", QueryKind.XA_FINISH),
)
_FIRST_LETTERS = frozenset(b"BCRSXbcrsx")


def query_kind(code: int, body: bytes | memoryview) -> QueryKind:
    """What a QUERY or QUERY_COMPRESSED event is, by the beginning of its text."""
    if len(body) < HEAD:
        return QueryKind.STATEMENT
    at = HEAD + 1 + body[DB_LEN] + (body[STATUS_LEN] | body[STATUS_LEN + 1] << 8)
    text = bytes(body[at : at + _TEXT_START])
    if code == _T.QUERY_COMPRESSED:
        text = _unpacked_start(bytes(body[at : at + 4 * _TEXT_START]))
    if not text or text[0] not in _FIRST_LETTERS:
        return QueryKind.STATEMENT
    upper = text.upper()
    for prefix, kind in KINDS:
        if upper.startswith(prefix) and not upper[len(prefix) : len(prefix) + 1].isalnum():
            return kind
    return QueryKind.STATEMENT


def _unpacked_start(block: bytes) -> bytes:
    """The first bytes of a compressed text; empty if it cannot be unpacked."""
    size = block[0] & 7 if block else 0
    try:
        return zlib.decompressobj().decompress(block[1 + size :], _TEXT_START)
    except zlib.error:
        return b""


class Step(enum.IntEnum):
    """What an event is to the groups of its log."""

    OUTSIDE = 0
    OPENS = 1
    INSIDE = 2
    ENDS = 3
    """Last event of the group."""
    ALONE = 4
    """A statement that is a group of its own, without a GTID before it."""


class Groups(msgspec.Struct):
    """The group that is open. begun: between BEGIN and its end. standalone: it ends with its one statement.

    fault: what the last event broke of the nesting rules, in words; None = nothing.
    """

    open: bool = False
    begun: bool = False
    standalone: bool = False
    fault: str | None = msgspec.field(default=None)

    def take(self, code: int, body: bytes | memoryview) -> Step:
        """Takes the next event. body: its bytes without header and checksum."""
        self.fault = None
        if code in GTIDS:
            return self._opens(code, body)
        if code in OUTSIDE:
            return self._outside(code)
        if code == _T.QUERY or code == _T.QUERY_COMPRESSED:
            return self._query(query_kind(code, body))
        if code in ENDINGS:
            return self._ends(code)
        if not self.open:
            if code in PREFIXES or code in ROWS:
                return Step.OUTSIDE
            return Step.ALONE
        if self.standalone and code not in PREFIXES and not (code in ROWS and not _closes_statement(body)):
            return self.close()
        return Step.INSIDE

    def close(self) -> Step:
        """The group ends with this event."""
        self.open = self.begun = self.standalone = False
        return Step.ENDS

    def lose(self) -> None:
        """A part of the log was skipped: nothing is known of the group that was open."""
        self.open = self.begun = self.standalone = False

    def _opens(self, code: int, body: bytes | memoryview) -> Step:
        if self.open:
            self.fault = "a group starts inside another one"
        maria = code == _T.GTID
        self.open = True
        self.standalone = maria and len(body) > 12 and bool(body[12] & STANDALONE)
        self.begun = maria and not self.standalone
        return Step.OPENS

    def _outside(self, code: int) -> Step:
        if self.open:
            self.fault = f"{EventType(code).name} inside a group"
        return Step.OUTSIDE

    def _query(self, kind: QueryKind) -> Step:
        if kind is QueryKind.BEGIN or kind is QueryKind.XA_START:
            if self.begun and not self.standalone:
                self.fault = "a transaction begins inside another one"
            opened = self.open
            self.open = self.begun = True
            self.standalone = False
            return Step.INSIDE if opened else Step.OPENS
        if kind is QueryKind.SAVEPOINT or kind is QueryKind.XA_END:
            if not self.begun:
                self.fault = f"{kind.name} outside a transaction"
            return Step.INSIDE if self.open else Step.ALONE
        if kind is QueryKind.COMMIT or kind is QueryKind.ROLLBACK:
            if not self.begun:
                self.fault = f"{kind.name} outside a transaction"
            return self.close() if self.open else Step.ALONE
        if not self.open:
            return Step.ALONE
        if self.begun and kind is QueryKind.STATEMENT:
            return Step.INSIDE
        return self.close()

    def _ends(self, code: int) -> Step:
        if not self.open or (code == _T.XID and not self.begun):
            self.fault = f"{EventType(code).name} outside a transaction"
        return self.close() if self.open else Step.ALONE


def _closes_statement(rows_body: bytes | memoryview) -> bool:
    return len(rows_body) >= 8 and bool(_TABLE_FLAGS.unpack_from(rows_body, 6)[0] & STMT_END)
