"""Structs with the columns and memory that the kernels of scripts share."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s


class EventColumns(NamedTuple):
    """Columns with one entry per event of a batch.

    codes, times, servers, flags: from its header. starts, ends: range of its body. offsets, stops: range of the event.
    maps: number of its table map, -1 = none. types, places: its type and its offset in the log. holders: the event that
    contains it, -1 = none.
    """

    codes: Int64s
    times: Int64s
    servers: Int64s
    flags: Int64s
    starts: Int64s
    ends: Int64s
    offsets: Int64s
    stops: Int64s
    maps: Int64s
    types: Int64s
    places: Int64s
    holders: Int64s


class ScriptMemory(NamedTuple):
    """Buffers that the kernels of scripts read and write.

    buf: bytes of the events. texts: constant texts and templates of tables. out: the script; z: end of its space.
    moves: known transitions of the session. state: see the slots in `event_statements`. database: name of the
    session's database.
    """

    buf: UInt8s
    texts: UInt8s
    out: MutableUInt8s
    z: int
    moves: UInt8s
    state: MutableInt64s
    database: UInt8s


class EventSpans(NamedTuple):
    """Columns with one entry per event: its type, the range of its body, and the range of the event itself."""

    codes: MutableInt64s
    starts: MutableInt64s
    ends: MutableInt64s
    offsets: MutableInt64s
    stops: MutableInt64s
