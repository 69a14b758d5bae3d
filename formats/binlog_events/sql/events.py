"""Events of a batch in the form that the script kernels read: as logged, or uncompressed and reassembled.

Reassembled events have a checksum if the log's events do. Their type and offset are those in the log.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.codes import ROWS_COMPRESSED
from binlogtool.formats.binlog_events.groups.following import Follower, integers_of
from binlogtool.formats.binlog_events.groups.tracking import Notes
from binlogtool.formats.binlog_events.sql.kernels import blocks
from binlogtool.formats.binlog_events.sql.kernels import events as kernels
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, EventSpans
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.unrolled import Unrolled
from binlogtool.limits import MIB, Limits

_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")
_PLACES = ("body_start", "body_end", "offset", "end")
_MOST = 8 * MIB
"""Bytes of events that are put together anew at a time."""

_BEHIND = 16
"""Bytes that kernels may read behind the last event."""

Columns = dict[str, Any]


class Events(msgspec.Struct, frozen=True):
    """Columns in the order of `frequent.write_events`, and the bytes that they refer to; `has_nested`: some events
    are nested.
    """

    columns: EventColumns
    window: Any
    inside: bool


def of_file(
    batch: Batch, notes: Notes, follower: Follower, described: FormatDescription, texts: bytes, limits: Limits,
    compile_: Callable[[Kernel], Kernel],
) -> Events:  # fmt: skip
    """Return the events of a batch of the file; MariaDB's compressed row events follow uncompressed after the
    others.
    """
    given = _columns(batch)
    maps, codes, places = follower.columns(notes)["map"], given["type_code"], given["offset"]
    window: memoryview | bytearray = batch.window
    if described.is_mariadb and not ROWS_COMPRESSED.isdisjoint(codes[: batch.frames.count]):
        given |= {name: _own(given[name], batch.frames.count) for name in ("type_code", *_PLACES)}
        window = _with_unpacked(batch, given, described, texts, limits, compile_)
    holders = array("q", [-1]) * batch.frames.count
    return Events(EventColumns._make((*given.values(), maps, codes, places, holders)), window, False)


def _with_unpacked(
    batch: Batch, given: Columns, described: FormatDescription, texts: bytes, limits: Limits,
    compile_: Callable[[Kernel], Kernel],
) -> bytearray:  # fmt: skip
    """Return the window followed by its compressed row events in uncompressed form.

    Those that cannot be uncompressed are left to the general writer, which reports the reason.
    """
    count, window, tail = batch.frames.count, batch.window, 4 if described.has_checksums else 0
    packed, sizes = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    columns = EventSpans._make(given[name] for name in ("type_code", *_PLACES))
    about = (described.table_id_size, tail)
    compile_(blocks.find_blocks)(count, columns, window, *about, limits.max_inflate, packed, sizes)
    data = _unpacked(window, packed, given["body_end"], sizes)
    out = bytearray(2 * len(window) + len(data))  # reassembled events copy their header from the window
    out[: len(window)] = window
    compile_(blocks.unfold)(count, columns, sizes, window, data, *about, texts, out, len(window))
    return out


def _unpacked(window: memoryview, starts: array[int], ends: Any, sizes: array[int]) -> bytes:
    """Return the uncompressed blocks one after the other; the size of an invalid one becomes -1."""
    pieces, left = list[bytes](), _MOST
    for i, size in enumerate(sizes):
        if size < 0:
            continue
        unpacker = zlib.decompressobj()
        try:
            piece = unpacker.decompress(window[starts[i] : ends[i]], size + 1) if size <= left else b""
        except zlib.error:
            piece = b""
        if len(piece) == size and unpacker.eof and not unpacker.unused_data:
            pieces.append(piece)
            left -= size
        else:
            sizes[i] = -1
    return b"".join([*pieces, bytes(_BEHIND)])


def of_run(
    run: Unrolled, maps: Callable[[Columns, Any, Any], Any], described: FormatDescription, texts: bytes,
    compile_: Callable[[Kernel], Kernel],
) -> Events | None:  # fmt: skip
    """Return the events of a run with nested ones; None if they are too large or one is invalid.

    Args:
        find_maps: returns the table maps from the kernel columns, the container offsets and the bytes.
    """
    given = {name: run.column(name) for name in _NAMES}
    window, bases, holders = _laid(run, given)
    tail = 4 if described.has_checksums else 0
    if len(window) > _MOST:
        return None
    codes, places = given["type_code"], run.column("offset")
    data = memoryview(bytearray(len(window) + tail * run.count + _BEHIND))
    columns = EventSpans(codes, *(given[name] for name in _PLACES))
    if compile_(kernels.lay)(run.count, columns, holders, bases, window, texts, data, tail) < run.count:
        return None
    return Events(EventColumns._make((*given.values(), maps(given, holders, data), codes, places, holders)), data, True)


def _laid(run: Unrolled, given: Columns) -> tuple[bytes, array[int], array[int]]:
    """Return the bytes of all events, and per event its part's offset in them and its container's offset."""
    pieces, bases, holders, size = list[memoryview](), array("q"), array("q"), 0
    for batch, first, stop, at in run.parts:
        own, count = batch.holder is None, stop - first
        low, high = (given["offset"][at], given["end"][at + count - 1]) if own else (0, len(batch.window))
        pieces.append(batch.window[low:high])
        bases += array("q", [size - low]) * count
        holders += array("q", [-1 if batch.holder is None else batch.holder.offset]) * count
        size += high - low
    return b"".join([*pieces, bytes(_BEHIND)]), bases, holders


def _columns(batch: Batch) -> Columns:
    """Return the columns in the order in which kernels take them."""
    return {name: integers_of(batch.frames[name], batch.frames.count) for name in _NAMES}


def _own(column: Any, count: int) -> array[int]:
    """Return a copy of a column that may be changed."""
    return array("q", bytes(memoryview(column)[:count]))
