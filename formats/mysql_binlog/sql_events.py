"""The events of a batch as the kernels of scripts read them: as they stand in the log, or unpacked and put together.

What is put together has a checksum where the events of the log have one. Its type and its place are those in the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from binlogtool.formats.base import Batch, CodecError, Kernel
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog import sql_event_kernels as kernels
from binlogtool.formats.mysql_binlog.codes import HEADER_SIZE, ROWS_COMPRESSED
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.event import event_at
from binlogtool.formats.mysql_binlog.following import Follower, integers_of
from binlogtool.formats.mysql_binlog.sql_binlog import framed, unpacked
from binlogtool.formats.mysql_binlog.tracking import Notes
from binlogtool.limits import MIB, Limits

_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")
_PLACES = ("body_start", "body_end", "offset", "end")
_MOST = 8 * MIB
"""Bytes of events that are put together anew at a time."""

_BEHIND = 16
"""Bytes that kernels may read behind the last event."""

Columns = dict[str, Any]


class Events(msgspec.Struct, frozen=True):
    """Columns in the order of `sql_kernels.write`, and the bytes that they are about. holder: place of the event that
    they are inside of; -1 = of none. vouched: did their checksums say that they are whole?"""

    columns: tuple[Any, ...]
    window: Any
    holder: int
    vouched: bool


def of_file(batch: Batch, notes: Notes, follower: Follower, described: FormatDescription, limits: Limits) -> Events:
    """The events of the file; row events of MariaDB that are compressed stand unpacked behind the others."""
    given = _columns(batch)
    maps, codes, places = follower.columns(notes)["map"], given["type_code"], given["offset"]
    window: memoryview | bytes = batch.window
    if described.is_mariadb and not ROWS_COMPRESSED.isdisjoint(codes[: batch.frames.count]):
        given, window = _with_unpacked(batch, given, described, limits)
    return Events((*given.values(), maps, codes, places), window, -1, True)


def _with_unpacked(batch: Batch, given: Columns, described: FormatDescription, limits: Limits) -> tuple[Columns, bytes]:
    """The compressed row events as those that servers take; the general writer says what is wrong with the others."""
    own = given | {name: _own(given[name], batch.frames.count) for name in ("type_code", *_PLACES)}
    pieces, end, tail = [batch.window], len(batch.window), 4 if described.has_checksums else 0
    for i in (i for i, code in enumerate(own["type_code"]) if code in ROWS_COMPRESSED):
        event = event_at(batch, i)
        try:
            code, body = unpacked(event, limits, described.table_id_size)
        except (MalformedError, CodecError):
            continue
        if own["end"][i] - own["body_end"][i] != tail:
            continue
        if end + len(body) > len(batch.window) + _MOST:
            break
        data = framed(event, code, body, described)
        pieces.append(memoryview(data))
        own["type_code"][i], own["offset"][i], own["body_start"][i] = code, end, end + HEADER_SIZE
        end += len(data)
        own["body_end"][i], own["end"][i] = end - tail, end
    return own, b"".join([*pieces, bytes(_BEHIND)])


def of_payload(
    batch: Batch,
    notes: Notes,
    follower: Follower,
    described: FormatDescription,
    texts: bytes,
    compile_: Callable[[Kernel], Kernel],
) -> Events | None:
    """The events inside of another one; None = they are too many."""
    assert batch.holder is not None
    count, size, given, window = batch.frames.count, len(batch.window), _columns(batch), batch.window
    if size + 4 * count > _MOST:
        return None
    codes, places = given["type_code"], given["offset"]
    if described.has_checksums:
        window = memoryview(bytearray(size + 4 * count + _BEHIND))
        given |= {name: _own(given[name], count) for name in _PLACES}
        columns = [given[name] for name in _PLACES]
        if compile_(kernels.seal)(count, *columns, batch.window, texts, window) < count:
            return None
    maps = follower.numbers(notes.maps)
    return Events((*given.values(), maps, codes, places), window, batch.holder.offset, False)


def _columns(batch: Batch) -> Columns:
    """In the order in which kernels take them."""
    return {name: integers_of(batch.frames[name], batch.frames.count) for name in _NAMES}


def _own(column: Any, count: int) -> array[int]:
    """A copy that may be changed."""
    return array("q", bytes(memoryview(column)[:count]))
