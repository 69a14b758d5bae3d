"""Prove single events in logs without checksums (docs/spec/mysql_binlog.md#resynchronization)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.codes import (
    CHECKSUM_SIZE,
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    HEADER_SIZE,
    MAX_EVENT_SIZE,
    ROW_EVENTS,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.events.places import DB_LEN_AT, QUERY_HEAD_SIZE, STATUS_LEN_AT
from binlogtool.formats.binlog_events.rows.rows import parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError

_T = EventType
_HEADER = struct.Struct("<IBIIIH")
_TEN_YEARS = 10 * 366 * 86400
_KNOWN_FLAGS = int(sum(EventFlag))
_KNOWN_ROW_FLAGS = 0x9F
_MAX_SERVERS = 1_000
_CHECKED_CHARS = 32
"""Characters of a statement that are looked at."""

_FIXED_SIZES: Mapping[int, int] = {_T.STOP: 0, _T.XID: 8, _T.INTVAR: 9, _T.RAND: 16}
"""Bodies that always have one size."""

_MIN_SIZES: Mapping[int, int] = {_T.ROTATE: 9, _T.GTID: 19, _T.GTID_LIST: 6, _T.ANNOTATE_ROWS: 1, _T.ROWS_QUERY: 2}
"""Bodies that have at least this size."""


class PriorEvents(msgspec.Struct):
    """Servers, and the first and last time, of the events before damage; events after it are compared with them.

    One of the times may be wrong itself, because nothing proves it: so a time only has to be close to one of the two.
    """

    servers: set[int] = msgspec.field(default_factory=set)
    first: int = 0
    last: int = 0

    def add_events(self, times: Sequence[int], servers: Iterable[int]) -> None:
        """Add consecutive events."""
        known_times = [time for time in times if time]
        if known_times:
            self.first, self.last = self.first or known_times[0], known_times[-1]
        if len(self.servers) < _MAX_SERVERS:
            self.servers.update(servers)

    def is_plausible(self, time: int, server: int) -> bool:
        """Check if an event of this time and this server is plausible in the log."""
        is_near = not time or not self.first or min(abs(time - self.first), abs(time - self.last)) <= _TEN_YEARS
        return is_near and (not self.servers or server in self.servers)


def record_prior_events(context: Any, batch: Batch) -> None:
    """Record times and servers of a run of good events (`FrameLevel.observe`)."""
    table = batch.frames
    times, servers = (to_int_list(table[name], 0, table.count) for name in ("timestamp", "server_id"))
    context.prior_events.add_events(times, set(servers))


def read_prior_events(data: bytes, offset: int) -> PriorEvents:
    """Read times and servers of the events at the start of a file.

    Args:
        data: the start of the file.
        offset: offset of the first event.
    """
    prior_events = PriorEvents()
    while len(data) - offset >= HEADER_SIZE:
        time, _, server, size, _, _ = _HEADER.unpack_from(data, offset)
        if size < HEADER_SIZE or size > len(data) - offset:
            break
        prior_events.add_events((time,), (server,))
        offset += size
    return prior_events


def is_proven_event(frame: bytes, context: Any) -> bool:
    """Check if bytes without a checksum are certainly an event: valid header, and a body that fits exactly."""
    if len(frame) < HEADER_SIZE:
        return False
    time, code, server, size, _, flags = _HEADER.unpack_from(frame)
    if code not in EVENT_TYPE_NAMES or code == 0 or flags & ~_KNOWN_FLAGS or size > MAX_EVENT_SIZE:
        return False
    if not context.prior_events.is_plausible(time, server) or (code == _T.QUERY and not _starts_as_text(frame)):
        return False
    body = frame[
        HEADER_SIZE : size - (4 if code == _T.FORMAT_DESCRIPTION and context.description.checksum_alg == 0 else 0)
    ]
    try:
        return _is_valid_body(code, body, context.description, server)
    except (MalformedError, DecompressionError):
        return False


def is_proven_despite_checksum(frame: bytes, context: Any) -> bool:
    """Check the same for an event that ends with a wrong checksum."""
    return is_proven_event(frame[:-CHECKSUM_SIZE], context)


def _is_valid_body(code: int, body: bytes, description: FormatDescription, server: int) -> bool:
    if len(body) != _FIXED_SIZES.get(code, len(body)) or len(body) < _MIN_SIZES.get(code, 0):
        return False
    if code == _T.TABLE_MAP:
        table_map = parse_table_map(body, description.table_id_size)
        return table_map.database.isprintable() and table_map.table.isprintable()
    if code in ROW_EVENTS:
        head = parse_rows_head(code, body, description.table_id_size)
        return (
            head.table_id > 0 and head.n_cols > 0 and not head.flags & ~_KNOWN_ROW_FLAGS and head.images_at <= len(body)
        )
    value = decode_body(code, body, description, server)
    if code in (_T.QUERY, _T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return _is_text(value.get("sql"))
    if code == _T.ROTATE:
        name = value.get("name")
        return isinstance(name, str) and name.isprintable() and value.get("position", 0) >= 4
    if code in GTID_EVENTS:
        return _is_valid_gtid(value)
    return True


def _starts_as_text(frame: bytes) -> bool:
    """Check if the statement of a QUERY starts without control characters, before `_is_text` decodes all of it."""
    body = frame[HEADER_SIZE : HEADER_SIZE + QUERY_HEAD_SIZE].ljust(QUERY_HEAD_SIZE, b"\0")
    text_at = HEADER_SIZE + QUERY_HEAD_SIZE + 1 + (body[STATUS_LEN_AT] | body[STATUS_LEN_AT + 1] << 8) + body[DB_LEN_AT]
    return _has_no_controls(frame[text_at : text_at + _CHECKED_CHARS])


def _is_text(sql: Any) -> bool:
    """Check that a statement is text without control characters, or (other character sets) starts as text."""
    beginning = sql[:_CHECKED_CHARS]
    if isinstance(beginning, bytes):
        return _has_no_controls(beginning)
    return bool(beginning) and all(char.isprintable() or char in "\t\r\n" for char in beginning)


def _has_no_controls(beginning: bytes) -> bool:
    return bool(beginning) and all(byte >= 0x20 or byte in b"\t\r\n" for byte in beginning)


def _is_valid_gtid(value: Mapping[str, Any]) -> bool:
    number = value.get("gno", value.get("seq_no", 0))
    return isinstance(number, int) and 0 <= number < 1 << 62
