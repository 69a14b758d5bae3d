"""Scan COMMIT records for facts about their event groups: a GTID event, then events without gaps.

See docs/spec/mariadb_innodb_binlog.md#commit. Here the record says where a group ends, so
`binlog_events.groups.steps` is not used: only checked is whether the events are one transaction, or a single statement,
as their GTID event says.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.events.bodies import XID
from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_COMPRESSED_V2,
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    GTID,
    QUERY,
    QUERY_COMPRESSED,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.events.type_codes import XID as XID_EVENT
from binlogtool.formats.binlog_events.groups.marks import STANDALONE
from binlogtool.formats.binlog_events.gtid.bodies import read_mariadb_number
from binlogtool.formats.binlog_events.gtid.places import DOMAIN_ID, FLAGS2, SEQ_NO
from binlogtool.formats.binlog_events.wire.header import EVENT_SIZE_AT, SERVER_ID_AT, TYPE_AT
from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.fields import MalformedError, kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.loads import load_int64, load_uint32
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.records.integers import read_compr_int
from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbGtid, RecordBytes, parse_commit
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT

FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_COMMIT = int(IbbRecordType.COMMIT)
_unpack_event_head = make_unpacker(EVENT, "timestamp", "type_code", "server_id")
_XID_END = HEADER_SIZE + XID.sizeof()
_INT63_MASK = (1 << 63) - 1
_NUMBERS_PER_COMMIT = 10


class GroupHead(NamedTuple):
    """The first event of a group; None = unknown.

    Attributes:
        time: microseconds since 1970.
    """

    type_code: int | None
    gtid: IbbGtid | None
    time: int | None
    server_id: int | None


NO_GROUP_HEAD = GroupHead(None, None, None, None)


def read_first_event(data: RecordBytes, offset: int) -> GroupHead:
    """Read the header and GTID of the event at `data[offset]`."""
    if len(data) < offset + HEADER_SIZE:
        return NO_GROUP_HEAD
    second, code, server = _unpack_event_head(data, offset)
    time = second * 1_000_000 if second else None
    body = offset + HEADER_SIZE
    if code != GTID or len(data) < body + FLAGS2:
        return GroupHead(code, None, time, server)
    domain, seq_no = read_mariadb_number(bytes(data[body : body + FLAGS2]))
    return GroupHead(code, IbbGtid(domain, server, seq_no), time, server)


def read_gtid_flags(data: RecordBytes, offset: int) -> int:
    """Read the flags of the GTID event at `data[offset]`; 0 if there is none."""
    end = offset + HEADER_SIZE + FLAGS2
    return data[end] if len(data) > end and data[offset + TYPE_AT] == GTID else 0


def read_commit_head(data: RecordBytes) -> GroupHead:
    """Read the first event in a COMMIT record."""
    try:
        return read_first_event(data, parse_commit(data).payload_at)
    except MalformedError:
        return NO_GROUP_HEAD


# -- many at once ------------------------------------------------------------------------------------------------------


@kernel(load_uint32)
def walk_group_events(buf: UInt8s, pos: int, limit: int) -> tuple[int, int, int, int]:
    """Walk the consecutive events in `buf[pos:limit]`.

    Returns:
        (number of events, where the next one does not fit or `limit`, position of the first XID event or -1, number of
        statements and row events).
    """
    events = 0
    xid_at = -1
    changes = 0
    while limit - pos >= HEADER_SIZE:
        size = load_uint32(buf, pos + EVENT_SIZE_AT)
        if size < HEADER_SIZE or size > limit - pos:
            return events, pos, xid_at, changes
        code = buf[pos + TYPE_AT]
        if code == XID_EVENT and xid_at < 0:
            xid_at = pos
        if (
            code == QUERY
            or WRITE_ROWS_V1 <= code <= DELETE_ROWS_V1
            or WRITE_ROWS_V2 <= code <= DELETE_ROWS_V2
            or QUERY_COMPRESSED <= code <= DELETE_COMPRESSED_V2
        ):
            changes += 1
        events += 1
        pos += size
    return events, pos, xid_at, changes


@kernel(load_uint32, load_int64, read_compr_int, walk_group_events)
def scan_commit_records(buf: UInt8s, count: int, codes: Int64s, lows: Int64s, highs: Int64s, out: MutableInt64s) -> int:
    """Write ten numbers for each COMMIT record (see `CommitNumbers`); returns the number of COMMIT records."""
    commit_count = 0
    for i in range(count):
        if codes[i] != _COMMIT:
            continue
        low = lows[i]
        high = highs[i]
        out_at = _NUMBERS_PER_COMMIT * commit_count
        commit_count += 1
        out[out_at] = i
        for k in range(1, _NUMBERS_PER_COMMIT):
            out[out_at + k] = 0
        nodes, pos = read_compr_int(buf, low, high)
        out[out_at + 1] = nodes
        if pos < 0 or nodes != 0:
            out[out_at + 2] = -1
            continue
        out[out_at + 2] = pos - low
        if high - pos < HEADER_SIZE:
            continue
        out[out_at + 3] = buf[pos + TYPE_AT]
        events, end, xid_at, changes = walk_group_events(buf, pos, high)
        out[out_at + 4] = events if end == high else -1
        out[out_at + 5] = load_uint32(buf, pos + SERVER_ID_AT)
        if xid_at >= 0 and high - xid_at >= _XID_END:
            out[out_at + 8] = load_int64(buf, xid_at + HEADER_SIZE) & _INT63_MASK
            out[out_at + 9] = high - xid_at - _XID_END
        body = pos + HEADER_SIZE
        is_gtid = buf[pos + TYPE_AT] == GTID
        if is_gtid and high > body + FLAGS2 and buf[body + FLAGS2] & STANDALONE and (xid_at >= 0 or changes > 1):
            out[out_at + 9] = 1
        if is_gtid and high >= body + FLAGS2:
            out[out_at + 6] = load_uint32(buf, body + DOMAIN_ID)
            out[out_at + 7] = load_int64(buf, body + SEQ_NO)
    return commit_count


class CommitNumbers(NamedTuple):
    """Facts about a COMMIT record of a batch.

    Attributes:
        record_index: index in the batch.
        payload_at: where its events start; -1: its header is malformed, or it has out-of-band data, so nothing else
            is
            known.
        type_code: of the first event.
        events: number of events; -1 = they do not fill the payload exactly.
        seq_no: -1 without a GTID event.
        xid: of the first XID event; 0 = none.
        joined: not 0 = the group is not one transaction or a single statement: events follow its XID, or there is
            more
            than one statement although its GTID event says that it stands alone.
    """

    record_index: int
    nodes: int
    payload_at: int
    type_code: int
    events: int
    server_id: int
    domain_id: int
    seq_no: int
    xid: int = 0
    joined: int = 0

    @property
    def gtid(self) -> IbbGtid | None:
        """The GTID of the group; None without a GTID event."""
        return IbbGtid(self.domain_id, self.server_id, self.seq_no & _U64) if self.type_code == GTID else None


_U64 = (1 << 64) - 1


class CommitScanner:
    """Runs `scan_commit_records` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(scan_commit_records)
        self._out = array("q")

    def scan_batch(self, batch: Batch) -> Iterator[CommitNumbers]:
        """Iterate over the COMMIT records of a batch, in order."""
        count = batch.frames.count
        if len(self._out) < _NUMBERS_PER_COMMIT * count:
            self._out = array("q", bytes(8 * _NUMBERS_PER_COMMIT * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end")]
        commit_count = int(self._run(batch.window, count, *columns, self._out))
        numbers = self._out[: _NUMBERS_PER_COMMIT * commit_count].tolist()
        return (
            CommitNumbers(*numbers[at : at + _NUMBERS_PER_COMMIT]) for at in range(0, len(numbers), _NUMBERS_PER_COMMIT)
        )
