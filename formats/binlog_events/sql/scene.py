"""An event in its context while it is written into a script."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import GTID_EVENTS, EventType
from binlogtool.formats.binlog_events.events.decoding import QueryParts, parse_load_query, parse_query
from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.groups.tracking import TransactionOwner
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.layouts import Batch
from binlogtool.limits import Limits


class Unwritable(Exception):
    """An event cannot be written as a statement; the message says why."""


class EventContext(msgspec.Struct, frozen=True):
    """An event with its file, its transaction and its TABLE_MAP.

    `raw` are its bytes in the log. `nested_offset` is its offset in the event that contains it, -1 if none
    does. `left_out`: none of its rows is selected.
    """

    file: BinlogFileContext
    event: Event
    owner: TransactionOwner
    table: TableMap | None
    limits: Limits
    raw: memoryview
    nested_offset: int = -1
    left_out: bool = False


def get_event_context(
    context: BinlogFileContext,
    batch: Batch,
    index: int,
    event: Event,
    owner: TransactionOwner,
    table: TableMap | None,
    limits: Limits,
) -> EventContext:
    """Return event `index` of a batch in its context."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return EventContext(context, event, owner, table, limits, batch.window[low:high], batch.inner_offset(index))


def read_query(context: EventContext) -> tuple[QueryParts, bytes]:
    """Return the parts of a QUERY or LOAD DATA event, and its text.

    Raises:
        MalformedError, DecompressionError: it cannot be read.
    """
    event = context.event
    parts = (parse_load_query if event.code == EventType.EXECUTE_LOAD_QUERY else parse_query)(bytes(event.body))
    return parts, unpack_block(parts.sql, context.limits) if event.code == EventType.QUERY_COMPRESSED else parts.sql


def format_event_comment(context: EventContext) -> bytes:
    """Return the comment with an event's offset and type, and the GTID or file name where one begins."""
    position = str(context.event.start)
    if context.nested_offset >= 0:
        position += f"+{context.nested_offset}"
    label = context.owner.gtid if context.event.code in GTID_EVENTS else None
    if context.event.code == EventType.FORMAT_DESCRIPTION:
        label = context.file.name
    label = f" {label}" if label and label.isprintable() else ""
    return f"# at {position} {type_name(context.event.code)}{label}\n".encode("utf-8", "backslashreplace")
