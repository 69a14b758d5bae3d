"""Row events reduced to the rows that a condition selects; their images stay unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.rows.rows import count_rows, select_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.binlog import uncompress_rows
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import decode_rows_body
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import RowFilter
from binlogtool.limits import Limits


def select_rows_by_filter(
    context: BinlogFileContext, event: Event, table: TableMap, condition: RowFilter, limits: Limits
) -> Event | None:
    """Return the event with its selected rows; None if there are none. It is uncompressed if rows were removed.

    Args:
        table: its table with all that is known of its columns.

    Raises:
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP, or the log does not name a
            column of the condition.
    """
    return keep_rows(
        event,
        table,
        condition.select_rows(event.batch_index, lazy_body(context, event, table, condition, limits)),
        limits,
    )


def keep_rows(event: Event, table: TableMap, selection: bool | Sequence[bool], limits: Limits) -> Event | None:
    """Return the event with only some of its rows; None if none remain.

    Args:
        selection: for each row whether it is kept, or one answer for all.

    Raises:
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    if isinstance(selection, bool):
        return event if selection else None
    if all(selection) or not count_rows(event.code, event.body, table, limits):
        return event
    if not any(selection):
        return None
    code, uncompressed = uncompress_rows(event, limits, table.table_id_size)
    return event._replace(code=int(code), body=memoryview(select_rows(code, uncompressed, table, selection)))


def lazy_body(
    context: BinlogFileContext, event: Event, table: TableMap, condition: RowFilter, limits: Limits
) -> Callable[[], dict[str, Any]]:
    """Return a function that decodes an event once; it raises what `select_rows` raises."""
    return cache(partial(_decode_body, context, event, table, condition, limits))


def _decode_body(
    context: BinlogFileContext, event: Event, table: TableMap, condition: RowFilter, limits: Limits
) -> dict[str, Any]:
    """Decode a row event for a condition."""
    missing = sorted(condition.columns - set(table.column_keys))
    if missing and any(column.name is None for column in table.columns):
        message = f"{table.qualified_name}: the log has no names of its columns, so --where finds no {missing[0]}"
        raise MalformedError(f"{message}; --schema FILE.sql gives them, or name it by its place, as in after.`@1`")
    return decode_rows_body(context, event.code, event.body, table, limits)
