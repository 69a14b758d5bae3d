"""The events of a batch as the kernels of scripts read them: as they stand in the log, or put together anew."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from binlogtool.formats.base import Batch, Kernel
from binlogtool.formats.mysql_binlog import sql_event_kernels as kernels
from binlogtool.formats.mysql_binlog.following import Follower, integers_of
from binlogtool.formats.mysql_binlog.layout import FileContext
from binlogtool.formats.mysql_binlog.tracking import Notes
from binlogtool.limits import MIB

_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")
_PLACES = ("body_start", "body_end", "offset", "end")
_MOST = 8 * MIB
"""Bytes of events that are put together anew at a time."""


class Events(msgspec.Struct, frozen=True):
    """Columns in the order of `sql_kernels.write`, and the bytes that they are about. holder: place of the event that
    they are inside of; -1 = of none. vouched: did their checksums say that they are whole?"""

    columns: tuple[Any, ...]
    window: Any
    holder: int
    vouched: bool


def as_they_stand(batch: Batch, notes: Notes, follower: Follower) -> Events:
    """The events of the file."""
    given = [integers_of(batch.frames[name], batch.frames.count) for name in _NAMES]
    maps = follower.columns(notes)["map"]
    return Events((*given, maps, given[0], given[6]), batch.window, -1, True)


def unpacked(
    batch: Batch, notes: Notes, follower: Follower, context: FileContext, texts: bytes, compile_: Callable[..., Kernel]
) -> Events | None:
    """The events inside of another one, with checksums where those of the log have them; None = they are too many."""
    count, size = batch.frames.count, len(batch.window)
    if size + 4 * count > _MOST:
        return None
    given = {name: integers_of(batch.frames[name], count) for name in _NAMES}
    window, places = batch.window, given["offset"]
    if context.description.has_checksums:
        window = memoryview(bytearray(size + 4 * count + 16))
        given |= {name: array("q", bytes(memoryview(given[name])[:count])) for name in _PLACES}
        columns = [given[name] for name in _PLACES]
        if compile_(kernels.seal)(count, *columns, batch.window, texts, window) < count:
            return None
    assert batch.holder is not None
    columns = [*given.values(), follower.numbers(notes.maps), given["type_code"], places]
    return Events(tuple(columns), window, batch.holder.offset, False)
