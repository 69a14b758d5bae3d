"""Check, piece by piece and by headers only, that events fill a group exactly."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.events.bodies import XID
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, TYPE_AT
from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT

_unpack_size = make_unpacker(EVENT, "event_size")
CHANGE_EVENTS = frozenset((EventType.QUERY, EventType.QUERY_COMPRESSED, *ROW_EVENTS))
_XID = int(EventType.XID)
_XID_END = HEADER_SIZE + XID.sizeof()
_unpack_xid = make_unpacker(XID, "xid")


class EventTilingChecker(msgspec.Struct):
    """Takes the bytes of a group in pieces.

    Attributes:
        events: complete headers so far.
        is_broken: an impossible event size was found.
        xid: of the first XID event; 0 = none so far.
        after_xid: events after the XID event.
        changes: statements, and events with rows.
    """

    events: int = 0
    is_broken: bool = False
    xid: int = 0
    after_xid: int = 0
    changes: int = 0
    _skip: int = 0
    _head: bytearray = msgspec.field(default_factory=bytearray)

    def add_bytes(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        offset, size = 0, len(data)
        while offset < size and not self.is_broken:
            if self._skip:
                step = min(self._skip, size - offset)
                self._skip -= step
                offset += step
                continue
            step = min(self._head_size - len(self._head), size - offset)
            self._head += data[offset : offset + step]
            offset += step
            if len(self._head) == self._head_size:
                self._process_head()

    @property
    def _head_size(self) -> int:
        """Bytes of the current event that are inspected; all of an XID event."""
        return _XID_END if len(self._head) > TYPE_AT and self._head[TYPE_AT] == _XID else END_LOG_POS_AT

    def _process_head(self) -> None:
        length = _unpack_size(self._head)[0]
        self.is_broken = length < max(HEADER_SIZE, len(self._head))
        self._skip = length - len(self._head)
        self.events += 1
        self.after_xid += bool(self.xid)
        self.changes += self._head[TYPE_AT] in CHANGE_EVENTS
        if len(self._head) == _XID_END and not self.xid:
            self.xid = _unpack_xid(self._head, HEADER_SIZE)[0]
        self._head.clear()

    @property
    def has_several_statements(self) -> bool:
        """True if the group has more than one statement that is complete in itself."""
        return self.xid > 0 or self.changes > 1

    @property
    def is_complete(self) -> bool:
        """True if the last event ended with the last byte."""
        return not self.is_broken and not self._skip and not self._head
