"""Events as a server takes them back: BINLOG '…' with their bytes in base64."""

from __future__ import annotations

import struct
import zlib
from binascii import b2a_base64
from dataclasses import dataclass, field

from binlogtool.formats.mysql_binlog.codes import ROWS_COMPRESSED, EventFlag, EventType
from binlogtool.formats.mysql_binlog.compression import unpack_block
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.event import Event
from binlogtool.formats.mysql_binlog.groups import STMT_END
from binlogtool.formats.mysql_binlog.rows import parse_rows_head
from binlogtool.formats.mysql_binlog.table_map import TableMap
from binlogtool.limits import MIB, Limits

MOST = 4 * MIB
"""Bytes of events in one statement, unless a single one is larger: clients and servers take 16 MiB of text."""

FRAGMENT = 11 * MIB
"""Bytes of one event that fit in such a statement."""

_HEADER = struct.Struct("<IBIIIH")
_T = EventType
_PLAIN = {
    _T.WRITE_ROWS_COMPRESSED_V1: _T.WRITE_ROWS_V1,
    _T.UPDATE_ROWS_COMPRESSED_V1: _T.UPDATE_ROWS_V1,
    _T.DELETE_ROWS_COMPRESSED_V1: _T.DELETE_ROWS_V1,
    _T.WRITE_ROWS_COMPRESSED_V2: _T.WRITE_ROWS_V2,
    _T.UPDATE_ROWS_COMPRESSED_V2: _T.UPDATE_ROWS_V2,
    _T.DELETE_ROWS_COMPRESSED_V2: _T.DELETE_ROWS_V2,
}
"""Servers take compressed row events from each other only."""


def binlog_statement(*events: bytes) -> bytes:
    """The statement that makes a server apply these events."""
    return b"BINLOG '\n" + b"".join(map(b2a_base64, events)) + b"'"


def binlog_statements(events: list[bytes], *, mariadb: bool) -> list[bytes]:
    """The same; MariaDB takes events in two parts that are too large for one statement."""
    if not mariadb or sum(map(len, events)) <= FRAGMENT:
        return [binlog_statement(*events)]
    text = b"".join(map(b2a_base64, events))
    half = len(text) // 2
    parts = (text[:half], text[half:])
    sets = [b"SET @binlog_fragment_%d='%b'" % (i, part) for i, part in enumerate(parts)]
    return [*sets, b"BINLOG @binlog_fragment_0, @binlog_fragment_1"]


def described_binlog(description: FormatDescription) -> bytes:
    """The statement that tells a server how the events behind it are written."""
    event = description.event
    flags = event[17] & ~EventFlag.BINLOG_IN_USE & 0xFF  # its checksum is that of the event without this flag
    return binlog_statement(event[:17] + bytes([flags]) + event[18:])


def unpacked(event: Event, limits: Limits, id_size: int) -> tuple[int, bytes]:
    """Type and body of a row event without compression.

    Raises:
        MalformedError, CodecError: it is no such event.
    """
    if event.code not in ROWS_COMPRESSED:
        return event.code, bytes(event.body)
    at = parse_rows_head(event.code, event.body, id_size).images_at
    return _PLAIN[EventType(event.code)], bytes(event.body[:at]) + unpack_block(event.body[at:], limits)


def rows_with_map(event: Event, table: TableMap, description: FormatDescription, limits: Limits) -> bytes:
    """A row event behind the TABLE_MAP that it needs, as a statement of its own, unpacked.

    Raises:
        MalformedError, CodecError: the event is no row event of this table.
    """
    code, body = unpacked(event, limits, table.table_id_size)
    return binlog_statement(
        map_event(event, table, description), framed(event, code, closed(body, table.table_id_size), description)
    )


def closed(body: bytes, at: int) -> bytes:
    """The body of a row event as that of the last one of its statement. at: bytes of a table id."""
    return body[:at] + bytes([body[at] | STMT_END]) + body[at + 1 :]


def map_event(like: Event, table: TableMap, description: FormatDescription) -> bytes:
    """The TABLE_MAP of a table, as if it stood before this event."""
    return framed(like, _T.TABLE_MAP, table.body, description)


def framed(like: Event, code: int, body: bytes, description: FormatDescription) -> bytes:
    """An event with the time and origin of another one, ended as the description says."""
    tail = 4 if description.has_checksums else 0
    size = _HEADER.size + len(body) + tail
    data = _HEADER.pack(like.time, code, like.server, size, like.position, like.flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if tail else data


@dataclass(slots=True)
class Collected:
    """The row events of one statement, until its last one. maps: its TABLE_MAP events by table id; they stand first."""

    maps: dict[int, bytes] = field(default_factory=dict)
    events: list[bytes] = field(default_factory=list)
    size: int = 0
    last: tuple[Event, int, memoryview] | None = None
    """The last row event, its type and body: to be closed if its statement does not go on."""

    def add(self, data: bytes) -> None:
        """A row event behind the others."""
        if not self.events:
            self.events = list(self.maps.values())
            self.size = sum(map(len, self.events))
        self.events.append(data)
        self.size += len(data)

    def take(self, description: FormatDescription) -> list[bytes]:
        """The BINLOG of what is there, as a statement that ends; the maps stay known for the events behind it."""
        events, self.events, self.size = self.events, [], 0
        last, self.last = self.last, None
        if last is None:
            return []
        event, code, body = last
        if not body[description.table_id_size] & STMT_END:
            events[-1] = framed(event, code, closed(bytes(body), description.table_id_size), description)
        return binlog_statements(events, mariadb=description.is_mariadb)

    def end(self, description: FormatDescription) -> list[bytes]:
        """The same, where the statement ends."""
        made = self.take(description)
        self.maps.clear()
        return made
