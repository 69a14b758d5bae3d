"""Prove single events in logs without checksums (docs/spec/mysql-mariadb-binlog.md#12-damage-finding-the-way-again)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.codes import (
    CHECKSUM_SIZE,
    GTIDS,
    HEADER_SIZE,
    MAX_EVENT,
    ROWS,
    TYPES,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.events.places import DB_LEN, HEAD, STATUS_LEN
from binlogtool.formats.binlog_events.rows.rows import parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.columns import integers
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError

_T = EventType
_HEADER = struct.Struct("<IBIIIH")
_TEN_YEARS = 10 * 366 * 86400
_KNOWN_FLAGS = int(sum(EventFlag))
_ROW_FLAGS = 0x9F
_MOST_SERVERS = 1_000
_BEGINNING = 32
"""Characters of a statement that are looked at."""

_SIZES: Mapping[int, int] = {_T.STOP: 0, _T.XID: 8, _T.INTVAR: 9, _T.RAND: 16}
"""Bodies that always have one size."""

_LEAST: Mapping[int, int] = {_T.ROTATE: 9, _T.GTID: 19, _T.GTID_LIST: 6, _T.ANNOTATE_ROWS: 1, _T.ROWS_QUERY: 2}
"""Bodies that have at least this size."""


class Witness(msgspec.Struct):
    """Servers, and the first and last time, of the events before damage; events after it are compared with them.

    One of the times may be wrong itself, because nothing proves it: so a time only has to be close to one of the two.
    """

    servers: set[int] = msgspec.field(default_factory=set)
    first: int = 0
    last: int = 0

    def see(self, times: Sequence[int], servers: Iterable[int]) -> None:
        """Add consecutive events."""
        told = [time for time in times if time]
        if told:
            self.first, self.last = self.first or told[0], told[-1]
        if len(self.servers) < _MOST_SERVERS:
            self.servers.update(servers)

    def knows(self, time: int, server: int) -> bool:
        """Check if an event of this time and this server is plausible in the log."""
        near = not time or not self.first or min(abs(time - self.first), abs(time - self.last)) <= _TEN_YEARS
        return near and (not self.servers or server in self.servers)


def witnessed(context: Any, batch: Batch) -> None:
    """Record times and servers of a run of good events (`FrameLevel.observe`)."""
    table = batch.frames
    times, servers = (integers(table[name], 0, table.count) for name in ("timestamp", "server_id"))
    context.witness.see(times, set(servers))


def witness_of(data: bytes, at: int) -> Witness:
    """Read times and servers of the events at the start of a file.

    Args:
        data: the start of the file.
        offset: offset of the first event.
    """
    witness = Witness()
    while len(data) - at >= HEADER_SIZE:
        time, _, server, size, _, _ = _HEADER.unpack_from(data, at)
        if size < HEADER_SIZE or size > len(data) - at:
            break
        witness.see((time,), (server,))
        at += size
    return witness


def prove(frame: bytes, context: Any) -> bool:
    """Check if bytes without a checksum are certainly an event: valid header, and a body that fits exactly."""
    if len(frame) < HEADER_SIZE:
        return False
    time, code, server, size, _, flags = _HEADER.unpack_from(frame)
    if code not in TYPES or code == 0 or flags & ~_KNOWN_FLAGS or size > MAX_EVENT:
        return False
    if not context.witness.knows(time, server) or (code == _T.QUERY and not _begins_as_text(frame)):
        return False
    body = frame[
        HEADER_SIZE : size - (4 if code == _T.FORMAT_DESCRIPTION and context.description.checksum_alg == 0 else 0)
    ]
    try:
        return _fits(code, body, context.description, server)
    except (MalformedError, CodecError):
        return False


def prove_checked(frame: bytes, context: Any) -> bool:
    """Check the same for an event that ends with a wrong checksum."""
    return prove(frame[:-CHECKSUM_SIZE], context)


def _fits(code: int, body: bytes, description: FormatDescription, server: int) -> bool:
    if len(body) != _SIZES.get(code, len(body)) or len(body) < _LEAST.get(code, 0):
        return False
    if code == _T.TABLE_MAP:
        known = parse_table_map(body, description.table_id_size)
        return known.database.isprintable() and known.table.isprintable()
    if code in ROWS:
        head = parse_rows_head(code, body, description.table_id_size)
        return head.table_id > 0 and head.n_cols > 0 and not head.flags & ~_ROW_FLAGS and head.images_at <= len(body)
    value = decoded(code, body, description, server)
    if code in (_T.QUERY, _T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return _is_text(value.get("sql"))
    if code == _T.ROTATE:
        name = value.get("name")
        return isinstance(name, str) and name.isprintable() and value.get("position", 0) >= 4
    if code in GTIDS:
        return _is_gtid(value)
    return True


def _begins_as_text(frame: bytes) -> bool:
    """Check if the statement of a QUERY starts without control characters, before `_is_text` decodes all of it."""
    body = frame[HEADER_SIZE : HEADER_SIZE + HEAD].ljust(HEAD, b"\0")
    at = HEADER_SIZE + HEAD + 1 + (body[STATUS_LEN] | body[STATUS_LEN + 1] << 8) + body[DB_LEN]
    return _without_controls(frame[at : at + _BEGINNING])


def _is_text(sql: Any) -> bool:
    """Check that a statement is text without control characters, or (other character sets) starts as text."""
    start = sql[:_BEGINNING]
    if isinstance(start, bytes):
        return _without_controls(start)
    return bool(start) and all(char.isprintable() or char in "\t\r\n" for char in start)


def _without_controls(start: bytes) -> bool:
    return bool(start) and all(byte >= 0x20 or byte in b"\t\r\n" for byte in start)


def _is_gtid(value: Mapping[str, Any]) -> bool:
    number = value.get("gno", value.get("seq_no", 0))
    return isinstance(number, int) and 0 <= number < 1 << 62
