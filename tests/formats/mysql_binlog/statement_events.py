"""A transaction of row events on one table."""

from __future__ import annotations

import struct

from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.wire_format import EventType
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, optional, rows_body, sized, table_map_body

STATUS = struct.pack("<BI", 0, 1 << 26) + struct.pack("<BQ", 1, 0) + struct.pack("<BHHH", 4, 45, 45, 8)
NAMES = optional(1, b"\0") + optional(4, sized(b"id") + sized(b"n`me")) + optional(2, b"\x2d")
MAP = table_map_body(bytes([ColumnType.LONG, ColumnType.VARCHAR]), b"\x40\0", NAMES)


def row(number: int, text: bytes | None) -> bytes:
    return image([struct.pack("<i", number), None if text is None else bytes([len(text)]) + text])


def insert(number: int, text: bytes | None) -> bytes:
    return make.event(EventType.WRITE_ROWS_V1, rows_body(2, row(number, text)))


def insert_statement(number: int, text: bytes | None) -> bytes:
    """TABLE_MAP and row event."""
    return make.event(EventType.TABLE_MAP, MAP) + insert(number, text)


def transaction(number: int, *events: bytes, flags: int = 12) -> list[bytes]:
    return [
        make.event(EventType.GTID, make.mariadb_gtid(number, flags=flags)),
        *events,
        make.event(EventType.XID, bytes(8)),
    ]
