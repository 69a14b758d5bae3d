"""Scan COMMIT records for facts about their event groups: a GTID event, then events without gaps.

See docs/spec/mariadb-innodb-binlog.md#61-commit-type-1-one-event-group. Here the record says where a group ends, so
`binlog_events.groups.steps` is not used: only checked is whether the events are one transaction, or a single
statement,
as their GTID event says.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.events.bodies import XID
from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_PACKED_V2,
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
from binlogtool.formats.binlog_events.gtid.bodies import mariadb_number
from binlogtool.formats.binlog_events.gtid.places import DOMAIN_ID, FLAGS2, SEQ_NO
from binlogtool.formats.binlog_events.wire.header import SERVER_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.fields import MalformedError, kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.loads import word32, word64
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.records.integers import read_compr_int
from binlogtool.formats.mariadb_innodb_binlog.records.records import Data, Gtid, parse_commit
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT

DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_COMMIT = int(RecordType.COMMIT)
_head = unpacker_of(EVENT, "timestamp", "type_code", "server_id")
_XID_END = HEADER_SIZE + XID.sizeof()
_POSITIVE = (1 << 63) - 1
_WIDTH = 10


class GroupHead(NamedTuple):
    """The first event of a group; None = unknown.

    Attributes:
        time: microseconds since 1970.
    """

    type_code: int | None
    gtid: Gtid | None
    time: int | None
    server_id: int | None


NOTHING = GroupHead(None, None, None, None)


def first_event(data: Data, at: int) -> GroupHead:
    """Read the header and GTID of the event at `data[offset]`."""
    if len(data) < at + HEADER_SIZE:
        return NOTHING
    second, code, server = _head(data, at)
    time = second * 1_000_000 if second else None
    body = at + HEADER_SIZE
    if code != GTID or len(data) < body + FLAGS2:
        return GroupHead(code, None, time, server)
    domain, seq_no = mariadb_number(bytes(data[body : body + FLAGS2]))
    return GroupHead(code, Gtid(domain, server, seq_no), time, server)


def flags2(data: Data, at: int) -> int:
    """Read the flags of the GTID event at `data[offset]`; 0 if there is none."""
    end = at + HEADER_SIZE + FLAGS2
    return data[end] if len(data) > end and data[at + TYPE_AT] == GTID else 0


def commit_head(data: Data) -> GroupHead:
    """Read the first event in a COMMIT record."""
    try:
        return first_event(data, parse_commit(data).payload)
    except MalformedError:
        return NOTHING


# -- many at once ------------------------------------------------------------------------------------------------------


@kernel(word32)
def tile(buf: UInt8s, p: int, n: int) -> tuple[int, int, int, int]:
    """Walk the consecutive events in `buf[pos:limit]`.

    Returns:
        (number of events, where the next one does not fit or `limit`, position of the first XID event or -1, number
        of
        statements and row events).
    """
    events = 0
    mark = -1
    changes = 0
    while n - p >= HEADER_SIZE:
        size = word32(buf, p + SIZE_AT)
        if size < HEADER_SIZE or size > n - p:
            return events, p, mark, changes
        code = buf[p + TYPE_AT]
        if code == XID_EVENT and mark < 0:
            mark = p
        if (
            code == QUERY
            or WRITE_ROWS_V1 <= code <= DELETE_ROWS_V1
            or WRITE_ROWS_V2 <= code <= DELETE_ROWS_V2
            or QUERY_COMPRESSED <= code <= DELETE_PACKED_V2
        ):
            changes += 1
        events += 1
        p += size
    return events, p, mark, changes


@kernel(word32, word64, read_compr_int, tile)
def commit_numbers(buf: UInt8s, count: int, codes: Int64s, lows: Int64s, highs: Int64s, out: MutableInt64s) -> int:
    """Write ten numbers for each COMMIT record (see `CommitNumbers`); returns the number of COMMIT records."""
    found = 0
    for i in range(count):
        if codes[i] != _COMMIT:
            continue
        low = lows[i]
        high = highs[i]
        at = _WIDTH * found
        found += 1
        out[at] = i
        for k in range(1, _WIDTH):
            out[at + k] = 0
        nodes, p = read_compr_int(buf, low, high)
        out[at + 1] = nodes
        if p < 0 or nodes != 0:
            out[at + 2] = -1
            continue
        out[at + 2] = p - low
        if high - p < HEADER_SIZE:
            continue
        out[at + 3] = buf[p + TYPE_AT]
        events, end, mark, changes = tile(buf, p, high)
        out[at + 4] = events if end == high else -1
        out[at + 5] = word32(buf, p + SERVER_AT)
        if mark >= 0 and high - mark >= _XID_END:
            out[at + 8] = word64(buf, mark + HEADER_SIZE) & _POSITIVE
            out[at + 9] = high - mark - _XID_END
        body = p + HEADER_SIZE
        is_gtid = buf[p + TYPE_AT] == GTID
        if is_gtid and high > body + FLAGS2 and buf[body + FLAGS2] & STANDALONE and (mark >= 0 or changes > 1):
            out[at + 9] = 1
        if is_gtid and high >= body + FLAGS2:
            out[at + 6] = word32(buf, body + DOMAIN_ID)
            out[at + 7] = word64(buf, body + SEQ_NO)
    return found


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

    at: int
    nodes: int
    payload: int
    type_code: int
    events: int
    server_id: int
    domain_id: int
    seq_no: int
    xid: int = 0
    joined: int = 0

    @property
    def gtid(self) -> Gtid | None:
        """The GTID of the group; None without a GTID event."""
        return Gtid(self.domain_id, self.server_id, self.seq_no & _U64) if self.type_code == GTID else None


_U64 = (1 << 64) - 1


class Commits:
    """Runs `scan_commit_records` over batches."""

    def __init__(self, compile_: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_(commit_numbers)
        self._out = array("q")

    def of(self, batch: Batch) -> Iterator[CommitNumbers]:
        """Iterate over the COMMIT records of a batch, in order."""
        count = batch.frames.count
        if len(self._out) < _WIDTH * count:
            self._out = array("q", bytes(8 * _WIDTH * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end")]
        found = int(self._run(batch.window, count, *columns, self._out))
        numbers = self._out[: _WIDTH * found].tolist()
        return (CommitNumbers(*numbers[at : at + _WIDTH]) for at in range(0, len(numbers), _WIDTH))
