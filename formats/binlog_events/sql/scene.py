"""An event in its context while it is written into a script."""

from __future__ import annotations

import msgspec

from binlogtool.formats.binlog_events.codes import GTIDS, EventType
from binlogtool.formats.binlog_events.events.decoding import QueryParts, load_query_parts, query_parts
from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.groups.tracking import Owner
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.layouts import Batch
from binlogtool.limits import Limits


class Unwritable(Exception):
    """An event cannot be written as a statement; the message says why."""


class Scene(msgspec.Struct, frozen=True):
    """An event with its file, its transaction and its TABLE_MAP.

    `raw` are its bytes in the log. `nested_offset` is its offset in the event that contains it, -1 if none
    does. `left_out`: none of its rows is selected.
    """

    context: FileContext
    event: Event
    owner: Owner
    table: TableMap | None
    limits: Limits
    own: memoryview
    inner: int = -1
    left_out: bool = False


def scene_at(
    context: FileContext, batch: Batch, index: int, event: Event, owner: Owner, table: TableMap | None, limits: Limits
) -> Scene:
    """Return event `index` of a batch in its context."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return Scene(context, event, owner, table, limits, batch.window[low:high], batch.inner_of(index))


def query_of(scene: Scene) -> tuple[QueryParts, bytes]:
    """Return the parts of a QUERY or LOAD DATA event, and its text.

    Raises:
        MalformedError, DecompressionError: it cannot be read.
    """
    event = scene.event
    parts = (load_query_parts if event.code == EventType.EXECUTE_LOAD_QUERY else query_parts)(bytes(event.body))
    return parts, unpack_block(parts.sql, scene.limits) if event.code == EventType.QUERY_COMPRESSED else parts.sql


def comment(scene: Scene) -> bytes:
    """Return the comment with an event's offset and type, and the GTID or file name where one begins."""
    place = str(scene.event.start)
    if scene.inner >= 0:
        place += f"+{scene.inner}"
    shown = scene.owner.gtid if scene.event.code in GTIDS else None
    if scene.event.code == EventType.FORMAT_DESCRIPTION:
        shown = scene.context.name
    shown = f" {shown}" if shown and shown.isprintable() else ""
    return f"# at {place} {type_name(scene.event.code)}{shown}\n".encode("utf-8", "backslashreplace")
