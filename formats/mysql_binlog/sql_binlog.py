"""Events as a server takes them back: BINLOG '…' with their bytes in base64."""

from __future__ import annotations

import base64
import struct
import zlib

from binlogtool.formats.mysql_binlog.codes import ROWS_COMPRESSED, EventType
from binlogtool.formats.mysql_binlog.compression import unpack_block
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.event import Event
from binlogtool.formats.mysql_binlog.groups import STMT_END
from binlogtool.formats.mysql_binlog.rows import parse_rows_head
from binlogtool.formats.mysql_binlog.table_map import TableMap
from binlogtool.limits import Limits

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
    return b"BINLOG '\n" + b"".join(map(base64.encodebytes, events)) + b"'"


def rows_with_map(event: Event, table: TableMap, description: FormatDescription, limits: Limits) -> bytes:
    """A row event behind the TABLE_MAP that it needs, as a statement of its own, unpacked.

    Raises:
        MalformedError, CodecError: the event is no row event of this table.
    """
    code, body = event.code, bytearray(event.body)
    if code in ROWS_COMPRESSED:
        at = parse_rows_head(code, event.body, table.table_id_size).images_at
        code, body = _PLAIN[EventType(code)], body[:at] + unpack_block(event.body[at:], limits)
    body[table.table_id_size] |= STMT_END
    definition = _event(event, _T.TABLE_MAP, table.body, description)
    return binlog_statement(definition, _event(event, code, bytes(body), description))


def _event(like: Event, code: int, body: bytes, description: FormatDescription) -> bytes:
    """An event with the time and origin of another one, ended as the description says."""
    tail = 4 if description.has_checksums else 0
    size = _HEADER.size + len(body) + tail
    data = _HEADER.pack(like.time, code, like.server, size, like.position, like.flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if tail else data
