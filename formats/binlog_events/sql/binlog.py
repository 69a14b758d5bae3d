"""BINLOG statements: events in base64 that a server applies unchanged."""

from __future__ import annotations

import struct
import zlib
from binascii import b2a_base64
from collections.abc import Iterable, Sequence

import msgspec

from binlogtool.formats.binlog_events.codes import COMPRESSED_ROW_EVENTS, HEADER_SIZE, EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.rows.rows import parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.limits import MIB, Limits

MAX_BINLOG_BYTES = 8 * MIB
"""Bytes of events in one statement, unless a single one is larger: clients and servers take 16 MiB of text."""

MAX_UNSPLIT_BYTES = 11 * MIB
"""Bytes of one event that fit in such a statement."""

_HEADER = struct.Struct("<IBIIIH")
_T = EventType
_UNCOMPRESSED_TYPES = {
    _T.WRITE_ROWS_COMPRESSED_V1: _T.WRITE_ROWS_V1,
    _T.UPDATE_ROWS_COMPRESSED_V1: _T.UPDATE_ROWS_V1,
    _T.DELETE_ROWS_COMPRESSED_V1: _T.DELETE_ROWS_V1,
    _T.WRITE_ROWS_COMPRESSED_V2: _T.WRITE_ROWS_V2,
    _T.UPDATE_ROWS_COMPRESSED_V2: _T.UPDATE_ROWS_V2,
    _T.DELETE_ROWS_COMPRESSED_V2: _T.DELETE_ROWS_V2,
}
"""Servers take compressed row events from each other only."""


_BEGIN = b"BINLOG '\n"


def format_binlog(*events: bytes) -> bytes:
    """Return the BINLOG statement that makes a server apply these events."""
    return _BEGIN + b"".join(map(b2a_base64, events)) + b"'"


class TerminatedStatement(tuple[bytes, ...]):
    """A statement with its delimiter, in pieces, so that large ones are not copied often."""


Statement = bytes | TerminatedStatement
"""One that is to be ended, or is."""


def terminate_statements(statements: Sequence[Statement], charset: str | None) -> list[bytes]:
    """Return statements with their delimiters.

    Args:
        charset: character set of the last one.
    """
    parts = list[bytes]()
    for i, statement in enumerate(statements):
        parts += (
            statement
            if isinstance(statement, TerminatedStatement)
            else (client.terminate_statement(statement, charset if i == len(statements) - 1 else None),)
        )
    return parts


def _split_binlog(base64_parts: Iterable[bytes]) -> list[bytes]:
    """Return events in base64 that are too large for one statement as two fragments, as MariaDB accepts them."""
    text = b"".join(base64_parts)
    half = len(text) // 2
    parts = (text[:half], text[half:])
    sets = [b"SET @binlog_fragment_%d='%b'" % (i, part) for i, part in enumerate(parts)]
    return [*sets, b"BINLOG @binlog_fragment_0, @binlog_fragment_1"]


def split_large_binlog(statement: bytes, description: FormatDescription) -> list[bytes]:
    """Return a BINLOG statement, for MariaDB in two fragments if it is too large for one."""
    if not description.is_mariadb or len(statement) <= MAX_UNSPLIT_BYTES // 3 * 4:
        return [statement]
    return _split_binlog([statement[len(_BEGIN) : -1]])


def format_description_binlog(description: FormatDescription) -> bytes:
    """Return the BINLOG statement with the FORMAT_DESCRIPTION."""
    event = description.event
    flags = event[17] & ~EventFlag.BINLOG_IN_USE & 0xFF  # its checksum was computed without this flag
    return format_binlog(event[:17] + bytes([flags]) + event[18:])


def uncompress_rows(event: Event, limits: Limits, id_size: int) -> tuple[int, bytes]:
    """Return type and body of a row event without compression.

    Raises:
        MalformedError, DecompressionError: the event cannot be uncompressed.
    """
    if event.code not in COMPRESSED_ROW_EVENTS:
        return event.code, bytes(event.body)
    at = parse_rows_head(event.code, event.body, id_size).images_at
    return _UNCOMPRESSED_TYPES[EventType(event.code)], bytes(event.body[:at]) + unpack_block(event.body[at:], limits)


def format_rows_binlog(event: Event, table: TableMap, description: FormatDescription, limits: Limits) -> bytes:
    """Return a row event, uncompressed, with its TABLE_MAP as one BINLOG statement.

    Raises:
        MalformedError, DecompressionError: it is not a row event of this table.
    """
    code, body = uncompress_rows(event, limits, table.table_id_size)
    return format_binlog(
        build_table_map_event(event, table, description),
        build_event(event, code, set_statement_end(body, table.table_id_size), description),
    )


def set_statement_end(body: bytes, id_size: int) -> bytes:
    """Return the body of a row event with the STMT_END flag.

    Args:
        id_size: size of a table id in bytes.
    """
    return body[:id_size] + bytes([body[id_size] | STMT_END]) + body[id_size + 1 :]


def _set_event_statement_end(event: bytes, description: FormatDescription) -> bytes:
    """Return a row event with the STMT_END flag and its checksum."""
    at = HEADER_SIZE + description.table_id_size
    if event[at] & STMT_END:
        return event
    data = event[:at] + bytes([event[at] | STMT_END]) + event[at + 1 :]
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4])) if description.has_checksums else data


def build_table_map_event(template: Event, table: TableMap, description: FormatDescription) -> bytes:
    """Return a TABLE_MAP event with the time and origin of another event."""
    return build_event(template, _T.TABLE_MAP, table.body, description)


def build_event(template: Event, code: int, body: bytes, description: FormatDescription) -> bytes:
    """Return an event with the time and origin of another one, and the checksum that the description asks for."""
    checksum_size = 4 if description.has_checksums else 0
    size = _HEADER.size + len(body) + checksum_size
    data = _HEADER.pack(template.time, code, template.server_id, size, template.end_log_pos, template.flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum_size else data


class PendingRowEvents(msgspec.Struct):
    """Row events of one statement, until its last one.

    `table_maps` are its TABLE_MAP events by table id; they come first. `lines` are the events so far in base64,
    without the last one. `size` is the number of bytes of all of them.
    """

    table_maps: dict[int, bytes] = msgspec.field(default_factory=dict)
    lines: list[bytes] = msgspec.field(default_factory=list)
    last_event: bytes | memoryview = b""
    size: int = 0

    def add(self, event: bytes | memoryview) -> None:
        """Append a row event; its bytes must stay valid until the next call."""
        if not self.size:
            self.lines = list(map(b2a_base64, self.table_maps.values()))
            self.size = sum(map(len, self.table_maps.values()))
        if self.last_event:
            self.lines.append(b2a_base64(self.last_event))
        self.last_event = event
        self.size += len(event)

    def extend(self, lines: bytes, last: bytes, size: int) -> None:
        """Append row events to a statement that has begun.

        Args:
            lines: all but the last event, in base64.
            last: the last event.
            size: bytes of all of them.
        """
        self.lines += [b2a_base64(self.last_event), lines]
        self.last_event = last
        self.size += size

    def copy_last_event(self) -> None:
        """Copy the last event, so that the memory of its batch may be released."""
        self.last_event = bytes(self.last_event)

    def write_binlog(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the BINLOG of the pending events; their table maps stay valid for the events that follow."""
        lines, self.lines = self.lines, []
        size, self.size = self.size, 0
        last, self.last_event = bytes(self.last_event), b""
        if not last:
            return []
        lines.append(b2a_base64(_set_event_statement_end(last, description)))
        if description.is_mariadb and size > MAX_UNSPLIT_BYTES:
            return _split_binlog(lines)
        return [TerminatedStatement((_BEGIN, *lines, b"'\n/*!*/;\n"))]

    def finish_statement(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the BINLOG of the pending events at the end of the statement, and forget the table maps."""
        statements = self.write_binlog(description)
        self.table_maps.clear()
        return statements
