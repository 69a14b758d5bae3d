"""Events of a batch in the form that the script kernels read: as logged, or uncompressed and reassembled.

Reassembled events have a checksum if the log's events do. Their type and offset are those in the log.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.codes import COMPRESSED_ROW_EVENTS
from binlogtool.formats.binlog_events.groups.following import CompiledTracker, as_int_column
from binlogtool.formats.binlog_events.groups.tracking import TrackedBatch
from binlogtool.formats.binlog_events.sql.kernels import blocks
from binlogtool.formats.binlog_events.sql.kernels import events as kernels
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, EventSpans
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.unrolled import FlatRecords
from binlogtool.limits import MIB, Limits

_COLUMN_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")
_UNPACKED_OFFSET_COLUMNS = ("body_start", "body_end", "offset", "end")
_MAX_BYTES = 8 * MIB
"""Bytes of events that are put together anew at a time."""

_PADDING = 16
"""Bytes that kernels may read behind the last event."""

NamedColumns = dict[str, Any]


class ScriptEvents(msgspec.Struct, frozen=True):
    """Columns in the order of `frequent.write_events`, and the bytes that they refer to; `has_nested`: some events
    are nested.
    """

    columns: EventColumns
    window: Any
    has_nested: bool


def load_file_events(
    batch: Batch, notes: TrackedBatch, table_tracker: CompiledTracker, description: FormatDescription,
    texts: bytes, limits: Limits,
    compile_: Callable[[Kernel], Kernel],
) -> ScriptEvents:  # fmt: skip
    """Return the events of a batch of the file; MariaDB's compressed row events follow uncompressed after the
    others.
    """
    columns = _load_columns(batch)
    maps, codes, offsets = table_tracker.columns(notes)["map"], columns["type_code"], columns["offset"]
    window: memoryview | bytearray = batch.window
    if description.is_mariadb and not COMPRESSED_ROW_EVENTS.isdisjoint(codes[: batch.frames.count]):
        columns |= {
            name: _copy_column(columns[name], batch.frames.count) for name in ("type_code", *_UNPACKED_OFFSET_COLUMNS)
        }
        window = _uncompress_rows(batch, columns, description, texts, limits, compile_)
    holders = array("q", [-1]) * batch.frames.count
    return ScriptEvents(EventColumns._make((*columns.values(), maps, codes, offsets, holders)), window, False)


def _uncompress_rows(
    batch: Batch, columns: NamedColumns, description: FormatDescription, texts: bytes, limits: Limits,
    compile_: Callable[[Kernel], Kernel],
) -> bytearray:  # fmt: skip
    """Return the window followed by its compressed row events in uncompressed form.

    Those that cannot be uncompressed are left to the general writer, which reports the reason.
    """
    count, window, checksum_size = batch.frames.count, batch.window, 4 if description.has_checksums else 0
    block_offsets, sizes = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    arrays = EventSpans._make(columns[name] for name in ("type_code", *_UNPACKED_OFFSET_COLUMNS))
    sizes_of_format = (description.table_id_size, checksum_size)
    compile_(blocks.find_blocks)(count, arrays, window, *sizes_of_format, limits.max_inflate, block_offsets, sizes)
    data = _inflate_blocks(window, block_offsets, columns["body_end"], sizes)
    buffer = bytearray(2 * len(window) + len(data))  # reassembled events copy their header from the window
    buffer[: len(window)] = window
    compile_(blocks.write_uncompressed)(
        count, arrays, sizes, window, data, *sizes_of_format, texts, buffer, len(window)
    )
    return buffer


def _inflate_blocks(window: memoryview, starts: array[int], ends: Any, sizes: array[int]) -> bytes:
    """Return the uncompressed blocks one after the other; the size of an invalid one becomes -1."""
    blocks, bytes_left = list[bytes](), _MAX_BYTES
    for i, size in enumerate(sizes):
        if size < 0:
            continue
        unpacker = zlib.decompressobj()
        try:
            block = unpacker.decompress(window[starts[i] : ends[i]], size + 1) if size <= bytes_left else b""
        except zlib.error:
            block = b""
        if len(block) == size and unpacker.eof and not unpacker.unused_data:
            blocks.append(block)
            bytes_left -= size
        else:
            sizes[i] = -1
    return b"".join([*blocks, bytes(_PADDING)])


def load_nested_events(
    run: FlatRecords, find_maps: Callable[[NamedColumns, Any, Any], Any], description: FormatDescription, texts: bytes,
    compile_: Callable[[Kernel], Kernel],
) -> ScriptEvents | None:  # fmt: skip
    """Return the events of a run with nested ones; None if they are too large or one is invalid.

    Args:
        find_maps: returns the table maps from the kernel columns, the container offsets and the bytes.
    """
    named_columns = {name: run.copy_column(name) for name in _COLUMN_NAMES}
    window, bases, holders = _concatenate(run, named_columns)
    checksum_size = 4 if description.has_checksums else 0
    if len(window) > _MAX_BYTES:
        return None
    codes, offsets = named_columns["type_code"], run.copy_column("offset")
    data = memoryview(bytearray(len(window) + checksum_size * run.count + _PADDING))
    columns = EventSpans(codes, *(named_columns[name] for name in _UNPACKED_OFFSET_COLUMNS))
    if (
        compile_(kernels.copy_events)(run.count, columns, holders, bases, window, texts, data, checksum_size)
        < run.count
    ):
        return None
    return ScriptEvents(
        EventColumns._make((*named_columns.values(), find_maps(named_columns, holders, data), codes, offsets, holders)),
        data,
        True,
    )


def _concatenate(run: FlatRecords, columns: NamedColumns) -> tuple[bytes, array[int], array[int]]:
    """Return the bytes of all events, and per event its part's offset in them and its container's offset."""
    parts, bases, holders, size = list[memoryview](), array("q"), array("q"), 0
    for batch, first, stop, at in run.parts:
        is_file, count = batch.container is None, stop - first
        start, end = (columns["offset"][at], columns["end"][at + count - 1]) if is_file else (0, len(batch.window))
        parts.append(batch.window[start:end])
        bases += array("q", [size - start]) * count
        holders += array("q", [-1 if batch.container is None else batch.container.offset]) * count
        size += end - start
    return b"".join([*parts, bytes(_PADDING)]), bases, holders


def _load_columns(batch: Batch) -> NamedColumns:
    """Return the columns in the order in which kernels take them."""
    return {name: as_int_column(batch.frames[name], batch.frames.count) for name in _COLUMN_NAMES}


def _copy_column(column: Any, count: int) -> array[int]:
    """Return a copy of a column that may be changed."""
    return array("q", bytes(memoryview(column)[:count]))
