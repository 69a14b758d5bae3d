"""Template of a table whose rows are written as events, for the kernels (layout: `sql.plans`)."""

from __future__ import annotations

import struct

from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.rows.table_map_bytes import MAX_COMPILED_COLUMNS, PAD
from binlogtool.formats.binlog_events.sql.kernels.walk import EVENT_RECORD_COLUMN_SIZE, EVENT_RECORD_HEAD_SIZE
from binlogtool.formats.fields import MalformedError


def build_event_template(table: TableMap) -> bytes:
    """Build the template of a table whose rows are written as events; empty if kernels cannot read them."""
    try:
        kinds = column_kinds(table)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS or not kinds:
        return b""
    head = [len(kinds), 0, 0, 0, EVENT_RECORD_HEAD_SIZE + EVENT_RECORD_COLUMN_SIZE * len(kinds), len(table.body)]
    columns = [number for kind in kinds for number in (*kind, 0, 0, 0, 0, 0, 0)]
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + table.body + PAD
