"""Kernels that write table maps and row events as JSON, exactly as `meaning.decode_bodies` and the JSON writer do.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    TABLE_MAP,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.rows.kernels import put_rows_event
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s


@kernel(copy_text, load_word)
def put_table_map_body(texts: UInt8s, record: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write a TABLE_MAP body: the prepared text in the record of its map."""
    size = load_word(texts, record + 20)
    if size == 0:
        return -2
    if out_limit - out_pos < size + 8:
        return -1
    return copy_text(texts, record + load_word(texts, record + 16), size, out, out_pos)


@kernel(load_word)
def find_map_record(texts: UInt8s, map_number: int) -> int:
    """Return the position of the record of a map in `texts`; 0 = the kernels cannot read the map's rows."""
    return load_word(texts, 8 + 4 * map_number) if map_number >= 0 else 0


class BodyPlace(NamedTuple):
    """An event, where its body is, and the number of the map that belongs to it."""

    code: int
    server: int
    p: int
    n: int
    number: int


@kernel(put_table_map_body, put_rows_event, find_map_record)
def put_body_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, event: BodyPlace
) -> int:
    """Write the body of an event that needs a table map.

    Args:
        code: type code of the event.
        map_number: number of the map that belongs to the event.
    """
    is_rows_v1 = event.code >= WRITE_ROWS_V1 and event.code <= DELETE_ROWS_V1
    is_rows_v2 = event.code >= WRITE_ROWS_V2 and event.code <= DELETE_ROWS_V2
    if event.code == TABLE_MAP or is_rows_v1 or is_rows_v2:
        record = find_map_record(texts, event.number)
        if record == 0:
            return -2
        if event.code == TABLE_MAP:
            return put_table_map_body(texts, record, out, out_pos, out_limit)
        return put_rows_event(buf, event.p, event.n, event.code, texts, record, out, out_pos, out_limit)
    return -2
