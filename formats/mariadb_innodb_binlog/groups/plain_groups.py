"""Read the events of groups without out-of-band data as columns over the bytes of many COMMIT records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.events.schema import SCAN_COLUMNS
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, FLAGS_AT, SERVER_ID_AT, TYPE_AT
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.layouts import Batch, ColumnTable, Kernel, RecordPositions
from binlogtool.formats.loads import load_uint32
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import FORMAT_DESCRIPTION
from binlogtool.formats.mariadb_innodb_binlog.records.integers import read_compr_int
from binlogtool.formats.room import zeroed_int64

EVENT_COLUMNS = ("offset", "end", "checksum", *SCAN_COLUMNS)
"""Columns of events; there are no checksums."""

_OFFSET, _END, _, _TIME, _TYPE, _SERVER, _SIZE, _POSITION, _FLAGS, _BODY_START, _BODY_END, _ = range(len(EVENT_COLUMNS))
_FIRST_PLACE_COLUMN = len(EVENT_COLUMNS)
"""The first column of `RecordPlaces`, which stand behind those."""
_COMMIT = int(IbbRecordType.COMMIT)
_MAX_BATCH_EVENTS = 1 << 14
"""Events of a batch at most."""


@kernel(load_uint32)
def append_group_events(buf: UInt8s, pos: int, limit: int, out: MutableInt64s, event: int) -> int:
    """Append the events in `buf[pos:limit]` to the columns, from event `event` on.

    Returns:
        Number of events after the last one; -1 = the bytes are not only events, the columns are full, or there is a
        FORMAT_DESCRIPTION.
    """
    while pos < limit:
        if limit - pos < HEADER_SIZE or event == _MAX_BATCH_EVENTS:
            return -1
        size = load_uint32(buf, pos + EVENT_SIZE_AT)
        if size < HEADER_SIZE or size > limit - pos or buf[pos + TYPE_AT] == FORMAT_DESCRIPTION:
            return -1
        out[_MAX_BATCH_EVENTS * _OFFSET + event] = pos
        out[_MAX_BATCH_EVENTS * _END + event] = pos + size
        out[_MAX_BATCH_EVENTS * _TIME + event] = load_uint32(buf, pos)
        out[_MAX_BATCH_EVENTS * _TYPE + event] = buf[pos + TYPE_AT]
        out[_MAX_BATCH_EVENTS * _SERVER + event] = load_uint32(buf, pos + SERVER_ID_AT)
        out[_MAX_BATCH_EVENTS * _SIZE + event] = size
        out[_MAX_BATCH_EVENTS * _POSITION + event] = load_uint32(buf, pos + END_LOG_POS_AT)
        out[_MAX_BATCH_EVENTS * _FLAGS + event] = buf[pos + FLAGS_AT] | buf[pos + FLAGS_AT + 1] << 8
        out[_MAX_BATCH_EVENTS * _BODY_START + event] = pos + HEADER_SIZE
        out[_MAX_BATCH_EVENTS * _BODY_END + event] = pos + size
        event += 1
        pos += size
    return event


@kernel(append_group_events, read_compr_int)
def unfold_groups(
    buf: UInt8s, record: int, count: int, codes: Int64s, lows: Int64s, highs: Int64s, places: Int64s, sizes: Int64s,
    first_record: int, out: MutableInt64s,
) -> tuple[int, int]:  # fmt: skip
    """Read the events of the groups from `record` on; returns (first group for the general path, events read)."""
    event_count = 0
    while record < count:
        if codes[record] == _COMMIT:
            nodes, pos = read_compr_int(buf, lows[record], highs[record])
            if pos < 0 or nodes != 0:
                return record, event_count
            group_end = append_group_events(buf, pos, highs[record], out, event_count)
            if group_end < 0:
                return record, event_count
            while event_count < group_end:
                out[_MAX_BATCH_EVENTS * _FIRST_PLACE_COLUMN + event_count] = places[record]
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 1) + event_count] = sizes[record]
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 2) + event_count] = first_record + record
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 3) + event_count] = pos
                event_count += 1
        record += 1
    return count, event_count


class PlainGroupReader:
    """Runs `unfold_groups` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(unfold_groups)
        self._out = zeroed_int64(_MAX_BATCH_EVENTS * (len(EVENT_COLUMNS) + len(RecordPositions._fields)))

    def read_groups(self, batch: Batch, index: int) -> tuple[Batch | None, int]:
        """Read the events of the groups from record `index` on; returns (events, first group for the general path)."""
        assert batch.positions is not None
        record_columns = [batch.frames[name] for name in ("type_code", "offset", "end")]
        next_record, count = self._run(
            batch.window,
            index,
            batch.frames.count,
            *record_columns,
            *batch.positions[:2],
            batch.first_record,
            self._out,
        )
        columns = [self._out[start : start + count] for start in range(0, len(self._out), _MAX_BATCH_EVENTS)]
        frames = dict(zip(EVENT_COLUMNS, columns, strict=False))
        return make_event_batch(
            batch.window, frames, RecordPositions(*columns[_FIRST_PLACE_COLUMN:])
        ) if count else None, next_record


def make_event_batch(window: memoryview, frames: dict[str, Any], places: RecordPositions) -> Batch:
    """Create a batch of events."""
    assert places.record is not None
    first = int(places.record[0])
    table = ColumnTable(len(places.offset), frames)
    return Batch(0, window, table, window, None, (), (), first, first, positions=places)
