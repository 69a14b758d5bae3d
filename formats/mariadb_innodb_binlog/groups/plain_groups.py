"""Read the events of groups without out-of-band data as columns over the bytes of many COMMIT records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.events.schema import COLUMNS
from binlogtool.formats.binlog_events.wire.header import END_AT, FLAGS_AT, SERVER_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.layouts import Batch, Kernel, RecordPlaces, Table
from binlogtool.formats.loads import word32
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import DESCRIPTION
from binlogtool.formats.mariadb_innodb_binlog.records.integers import read_compr_int
from binlogtool.formats.room import words

NAMES = ("offset", "end", "checksum", *COLUMNS)
"""Columns of events; there are no checksums."""

_OFFSET, _END, _, _TIME, _TYPE, _SERVER, _SIZE, _POSITION, _FLAGS, _BODY_START, _BODY_END, _ = range(len(NAMES))
_PLACE = len(NAMES)
"""The first column of `RecordPlaces`, which stand behind those."""
_COMMIT = int(RecordType.COMMIT)
_ROOM = 1 << 14
"""Events of a batch at most."""


@kernel(word32)
def put_events(buf: UInt8s, p: int, n: int, out: MutableInt64s, at: int) -> int:
    """Append the events in `buf[pos:limit]` to the columns, from event `event` on.

    Returns:
        Number of events after the last one; -1 = the bytes are not only events, the columns are full, or there is a
        FORMAT_DESCRIPTION.
    """
    while p < n:
        if n - p < HEADER_SIZE or at == _ROOM:
            return -1
        size = word32(buf, p + SIZE_AT)
        if size < HEADER_SIZE or size > n - p or buf[p + TYPE_AT] == DESCRIPTION:
            return -1
        out[_ROOM * _OFFSET + at] = p
        out[_ROOM * _END + at] = p + size
        out[_ROOM * _TIME + at] = word32(buf, p)
        out[_ROOM * _TYPE + at] = buf[p + TYPE_AT]
        out[_ROOM * _SERVER + at] = word32(buf, p + SERVER_AT)
        out[_ROOM * _SIZE + at] = size
        out[_ROOM * _POSITION + at] = word32(buf, p + END_AT)
        out[_ROOM * _FLAGS + at] = buf[p + FLAGS_AT] | buf[p + FLAGS_AT + 1] << 8
        out[_ROOM * _BODY_START + at] = p + HEADER_SIZE
        out[_ROOM * _BODY_END + at] = p + size
        at += 1
        p += size
    return at


@kernel(put_events, read_compr_int)
def unfold(
    buf: UInt8s, i: int, count: int, codes: Int64s, lows: Int64s, highs: Int64s, places: Int64s, sizes: Int64s,
    first: int, out: MutableInt64s,
) -> tuple[int, int]:  # fmt: skip
    """Read the events of the groups from `record` on; returns (first group for the general path, events read)."""
    made = 0
    while i < count:
        if codes[i] == _COMMIT:
            nodes, p = read_compr_int(buf, lows[i], highs[i])
            if p < 0 or nodes != 0:
                return i, made
            behind = put_events(buf, p, highs[i], out, made)
            if behind < 0:
                return i, made
            while made < behind:
                out[_ROOM * _PLACE + made] = places[i]
                out[_ROOM * (_PLACE + 1) + made] = sizes[i]
                out[_ROOM * (_PLACE + 2) + made] = first + i
                out[_ROOM * (_PLACE + 3) + made] = p
                made += 1
        i += 1
    return count, made


class PlainGroups:
    """Runs `unfold_groups` over batches."""

    def __init__(self, compile_: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_(unfold)
        self._out = words(_ROOM * (len(NAMES) + len(RecordPlaces._fields)))

    def of(self, batch: Batch, at: int) -> tuple[Batch | None, int]:
        """Read the events of the groups from record `index` on; returns (events, first group for the general path)."""
        assert batch.places is not None
        given = [batch.frames[name] for name in ("type_code", "offset", "end")]
        reached, count = self._run(
            batch.window, at, batch.frames.count, *given, *batch.places[:2], batch.first_record, self._out
        )
        columns = [self._out[start : start + count] for start in range(0, len(self._out), _ROOM)]
        frames = dict(zip(NAMES, columns, strict=False))
        return events_in(batch.window, frames, RecordPlaces(*columns[_PLACE:])) if count else None, reached


def events_in(window: memoryview, frames: dict[str, Any], places: RecordPlaces) -> Batch:
    """Create a batch of events."""
    assert places.record is not None
    first = int(places.record[0])
    table = Table(len(places.offset), frames)
    return Batch(0, window, table, window, None, (), (), first, first, places=places)
