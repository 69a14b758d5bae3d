"""Structs of columns and memory that the kernels of scripts pass on."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s


class EventColumns(NamedTuple):
    """One entry for each event of a batch.

    codes, times, servers, flags: from its header. starts, ends: of its body. offsets, stops: of the event. maps: number
    of its table map, -1 = none. types, places: its type and its offset in the log. holders: the event that it is inside
    of, -1 = none.
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

    buf: bytes of the events. texts: constant texts and plans of tables. out: the script; z: end of its space. moves:
    known changes of the session. state: see `slots`.
    """

    buf: UInt8s
    texts: UInt8s
    out: MutableUInt8s
    z: int
    moves: UInt8s
    state: MutableInt64s


class EventSpans(NamedTuple):
    """One entry for each event: its type, where its body and where the event itself starts and ends."""

    codes: MutableInt64s
    starts: MutableInt64s
    ends: MutableInt64s
    offsets: MutableInt64s
    stops: MutableInt64s
