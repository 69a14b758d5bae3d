"""What is known while an event is written into a script."""

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
    """An event that cannot be written as a statement; the reason in words."""


class Scene(msgspec.Struct, frozen=True):
    """An event, its file, its transaction, and the map of its table. own: its bytes, as they stand. inner: its place in
    the container that it is in; -1 = in none. left_out: no row of it is chosen."""

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
    """The scene of event `index` of a batch."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return Scene(context, event, owner, table, limits, batch.window[low:high], batch.inner_of(index))


def query_of(scene: Scene) -> tuple[QueryParts, bytes]:
    """A QUERY or a LOAD DATA, and its text.

    Raises:
        MalformedError, CodecError: it cannot be read.
    """
    event = scene.event
    parts = (load_query_parts if event.code == EventType.EXECUTE_LOAD_QUERY else query_parts)(bytes(event.body))
    return parts, unpack_block(parts.sql, scene.limits) if event.code == EventType.QUERY_COMPRESSED else parts.sql


def comment(scene: Scene) -> bytes:
    """The place and the type of an event; of the first of a transaction its GTID, of the first of a file its name."""
    place = str(scene.event.start)
    if scene.inner >= 0:
        place += f"+{scene.inner}"
    shown = scene.owner.gtid if scene.event.code in GTIDS else None
    if scene.event.code == EventType.FORMAT_DESCRIPTION:
        shown = scene.context.name
    shown = f" {shown}" if shown and shown.isprintable() else ""
    return f"# at {place} {type_name(scene.event.code)}{shown}\n".encode("utf-8", "backslashreplace")
