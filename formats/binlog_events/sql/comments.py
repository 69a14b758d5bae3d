"""Row events as comments in a script (`--comments`): `### UPDATE …`, one line a column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.codes import DELETE_ROW_EVENTS, ROW_EVENTS, UPDATE_ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.rows.rows import decode_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.scene import EventContext

_T = EventType
_MAX_VALUE_CHARACTERS = 1 << 12
"""Characters of a value that are shown."""


def format_row_comments(context: EventContext, table: TableMap) -> bytes:
    """Return the rows of a row event as comments; nothing for other events.

    Raises:
        MalformedError, DecompressionError: the event does not fit its table.
    """
    if context.event.code not in ROW_EVENTS:
        return b""
    rows = decode_rows(context.event.code, context.event.body, table, context.limits)
    lines = (line for row in rows for line in _iter_row_lines(context.event.code, row, table))
    return "".join(f"### {line}\n" for line in lines).encode()


def format_statement_comments(context: EventContext) -> bytes:
    """Return the statement that the following row events belong to, if the log has it."""
    code, body = context.event.code, bytes(context.event.body)
    if code not in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return b""
    text = (body if code == _T.ANNOTATE_ROWS else body[1:]).decode("utf-8", "backslashreplace")
    return "".join(f"#Q> {_make_printable(line)}\n" for line in text.splitlines()).encode()


def _iter_row_lines(code: int, row: Mapping[str, Any], table: TableMap) -> Iterator[str]:
    """Yield the comment lines of one row."""
    target = f"{_quote_name(table.database)}.{_quote_name(table.table)}"
    if code in DELETE_ROW_EVENTS:
        yield f"DELETE FROM {target}"
    else:
        yield f"UPDATE {target}" if code in UPDATE_ROW_EVENTS or "before" in row else f"INSERT INTO {target}"
    for image, word in (("before", "WHERE"), ("after", "SET")):
        if image in row:
            yield word
            yield from (f"  {_quote_name(key)}={_format_value(value)}" for key, value in row[image].items())


def _quote_name(name: str) -> str:
    """Return a name between backticks, printable."""
    return "`" + _make_printable(name.replace("`", "``")) + "`"


def _format_value(value: Any) -> str:
    """Return a value in printable form, shortened."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value[: _MAX_VALUE_CHARACTERS // 2].hex()}'{_format_length(len(value), _MAX_VALUE_CHARACTERS // 2)}"
    text = json.dumps(value, ensure_ascii=False, default=lambda one: one.hex() if isinstance(one, bytes) else str(one))
    return _make_printable(text[:_MAX_VALUE_CHARACTERS]) + _format_length(len(text), _MAX_VALUE_CHARACTERS)


def _format_length(size: int, limit: int) -> str:
    """Return the full length of a value that is shown only in part."""
    return f" … of {size:,}" if size > limit else ""


def _make_printable(text: str) -> str:
    """Return the text without characters that end a line or act on a terminal."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text).encode("utf-8", "replace").decode()
