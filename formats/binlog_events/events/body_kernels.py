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
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s


@kernel(copy_text, word_at)
def put_map_body(texts: UInt8s, record: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a TABLE_MAP body: the prepared text in the record of its map."""
    size = word_at(texts, record + 20)
    if size == 0:
        return -2
    if z - o < size + 8:
        return -1
    return copy_text(texts, record + word_at(texts, record + 16), size, out, o)


@kernel(word_at)
def record_of(texts: UInt8s, number: int) -> int:
    """Return the position of the record of a map in `texts`; 0 = the kernels cannot read the map's rows."""
    return word_at(texts, 8 + 4 * number) if number >= 0 else 0


class BodyPlace(NamedTuple):
    """An event, where its body is, and the number of the map that belongs to it."""

    code: int
    server: int
    p: int
    n: int
    number: int


@kernel(put_map_body, put_rows_event, record_of)
def body_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, event: BodyPlace) -> int:
    """Write the body of an event that needs a table map.

    Args:
        code: type code of the event.
        map_number: number of the map that belongs to the event.
    """
    is_rows_v1 = event.code >= WRITE_ROWS_V1 and event.code <= DELETE_ROWS_V1
    is_rows_v2 = event.code >= WRITE_ROWS_V2 and event.code <= DELETE_ROWS_V2
    if event.code == TABLE_MAP or is_rows_v1 or is_rows_v2:
        record = record_of(texts, event.number)
        if record == 0:
            return -2
        if event.code == TABLE_MAP:
            return put_map_body(texts, record, out, o, z)
        return put_rows_event(buf, event.p, event.n, event.code, texts, record, out, o, z)
    return -2
