"""Check, piece by piece and by headers only, that events fill a group exactly."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, ROWS, EventType
from binlogtool.formats.binlog_events.events.bodies import XID
from binlogtool.formats.binlog_events.wire.header import END_AT, TYPE_AT
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT

_size = unpacker_of(EVENT, "event_size")
CHANGES = frozenset((EventType.QUERY, EventType.QUERY_COMPRESSED, *ROWS))
_XID = int(EventType.XID)
_XID_END = HEADER_SIZE + XID.sizeof()
_xid = unpacker_of(XID, "xid")


class Tiles(msgspec.Struct):
    """Takes the bytes of a group in pieces.

    Attributes:
        events: complete headers so far.
        is_broken: an impossible event size was found.
        xid: of the first XID event; 0 = none so far.
        after_xid: events after the XID event.
        changes: statements, and events with rows.
    """

    events: int = 0
    broken: bool = False
    xid: int = 0
    behind: int = 0
    changes: int = 0
    _skip: int = 0
    _head: bytearray = msgspec.field(default_factory=bytearray)

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        at, size = 0, len(data)
        while at < size and not self.broken:
            if self._skip:
                step = min(self._skip, size - at)
                self._skip -= step
                at += step
                continue
            step = min(self._wanted - len(self._head), size - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == self._wanted:
                self._headed()

    @property
    def _wanted(self) -> int:
        """Bytes of the current event that are inspected; all of an XID event."""
        return _XID_END if len(self._head) > TYPE_AT and self._head[TYPE_AT] == _XID else END_AT

    def _headed(self) -> None:
        length = _size(self._head)[0]
        self.broken = length < max(HEADER_SIZE, len(self._head))
        self._skip = length - len(self._head)
        self.events += 1
        self.behind += bool(self.xid)
        self.changes += self._head[TYPE_AT] in CHANGES
        if len(self._head) == _XID_END and not self.xid:
            self.xid = _xid(self._head, HEADER_SIZE)[0]
        self._head.clear()

    @property
    def several(self) -> bool:
        """True if the group has more than one statement that is complete in itself."""
        return self.xid > 0 or self.changes > 1

    @property
    def whole(self) -> bool:
        """True if the last event ended with the last byte."""
        return not self.broken and not self._skip and not self._head
