"""Row events reduced to the rows that a condition selects; their images stay unchanged."""

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
    """Return the event with its selected rows; None if there are none. It is uncompressed if rows were removed.

    Args:
        table: its table with all that is known of its columns.

    Raises:
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP, or the log does not name a
            column of the condition.
    """
    return with_rows(event, table, choice.rows(event.place, body_of(context, event, table, choice, limits)), limits)


def with_rows(event: Event, table: TableMap, wanted: bool | Sequence[bool], limits: Limits) -> Event | None:
    """Return the event with only some of its rows; None if none remain.

    Args:
        selection: for each row whether it is kept, or one answer for all.

    Raises:
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
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
    """Return a function that decodes an event once; it raises what `select_rows` raises."""
    return cache(partial(_body, context, event, table, choice, limits))


def _body(context: FileContext, event: Event, table: TableMap, choice: RowChoice, limits: Limits) -> dict[str, Any]:
    """Decode a row event for a condition."""
    lacking = sorted(choice.columns - set(table.keys))
    if lacking and any(column.name is None for column in table.columns):
        text = f"{table.qualified_name}: the log has no names of its columns, so --where finds no {lacking[0]}"
        raise MalformedError(f"{text}; --schema FILE.sql gives them, or name it by its place, as in after.`@1`")
    return rows_body(context, event.code, event.body, table, limits)
