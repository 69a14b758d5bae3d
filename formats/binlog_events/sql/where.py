"""Row events with only those of their rows that a condition chooses. Their images stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.rows.rows import count_rows, cut_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.binlog import unpacked
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import rows_body
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import RowChoice
from binlogtool.limits import Limits


def chosen_rows(context: FileContext, event: Event, table: TableMap, choice: RowChoice, limits: Limits) -> Event | None:
    """The event with the chosen rows; None = there are none. It is unpacked where others were taken out.

    table: with all that is known of its columns.

    Raises:
        MalformedError, CodecError: the event does not fit its map, or the condition names a column and the log none.
    """
    return with_rows(event, table, choice.rows(event.place, body_of(context, event, table, choice, limits)), limits)


def with_rows(event: Event, table: TableMap, wanted: bool | Sequence[bool], limits: Limits) -> Event | None:
    """The event with the wanted rows; None = there are none.

    Raises:
        MalformedError, CodecError: the event does not fit its map.
    """
    if isinstance(wanted, bool):
        return event if wanted else None
    if all(wanted) or not count_rows(event.code, event.body, table, limits):
        return event
    if not any(wanted):
        return None
    code, plain = unpacked(event, limits, table.table_id_size)
    return event._replace(code=int(code), body=memoryview(cut_rows(code, plain, table, wanted)))


def body_of(
    context: FileContext, event: Event, table: TableMap, choice: RowChoice, limits: Limits
) -> Callable[[], dict[str, Any]]:
    """What decodes an event, once; it raises what `chosen_rows` does."""
    return cache(partial(_body, context, event, table, choice, limits))


def _body(context: FileContext, event: Event, table: TableMap, choice: RowChoice, limits: Limits) -> dict[str, Any]:
    lacking = sorted(choice.columns - set(table.keys))
    if lacking and any(column.name is None for column in table.columns):
        text = f"{table.qualified_name}: the log has no names of its columns, so --where finds no {lacking[0]}"
        raise MalformedError(f"{text}; --schema FILE.sql gives them, or name it by its place, as in after.`@1`")
    return rows_body(context, event.code, event.body, table, limits)
