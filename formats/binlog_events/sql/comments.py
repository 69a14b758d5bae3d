"""Row events as comments in a script (`--comments`): `### UPDATE …`, one line a column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.codes import DELETES, ROWS, UPDATES, EventType
from binlogtool.formats.binlog_events.rows.rows import decode_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.scene import Scene

_T = EventType
_LONGEST = 1 << 12
"""Characters of a value that are shown."""


def row_comments(scene: Scene, table: TableMap) -> bytes:
    """Return the rows of a row event as comments; nothing for other events.

    Raises:
        MalformedError, DecompressionError: the event does not fit its table.
    """
    if scene.event.code not in ROWS:
        return b""
    rows = decode_rows(scene.event.code, scene.event.body, table, scene.limits)
    lines = (line for row in rows for line in _row(scene.event.code, row, table))
    return "".join(f"### {line}\n" for line in lines).encode()


def statement_comments(scene: Scene) -> bytes:
    """Return the statement that the following row events belong to, if the log has it."""
    code, body = scene.event.code, bytes(scene.event.body)
    if code not in (_T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return b""
    text = (body if code == _T.ANNOTATE_ROWS else body[1:]).decode("utf-8", "backslashreplace")
    return "".join(f"#Q> {_plain(line)}\n" for line in text.splitlines()).encode()


def _row(code: int, row: Mapping[str, Any], table: TableMap) -> Iterator[str]:
    """Yield the comment lines of one row."""
    target = f"{_quoted(table.database)}.{_quoted(table.table)}"
    if code in DELETES:
        yield f"DELETE FROM {target}"
    else:
        yield f"UPDATE {target}" if code in UPDATES or "before" in row else f"INSERT INTO {target}"
    for image, word in (("before", "WHERE"), ("after", "SET")):
        if image in row:
            yield word
            yield from (f"  {_quoted(key)}={_value(value)}" for key, value in row[image].items())


def _quoted(name: str) -> str:
    """Return a name between backticks, printable."""
    return "`" + _plain(name.replace("`", "``")) + "`"


def _value(value: Any) -> str:
    """Return a value in printable form, shortened."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value[: _LONGEST // 2].hex()}'{_cut(len(value), _LONGEST // 2)}"
    text = json.dumps(value, ensure_ascii=False, default=lambda one: one.hex() if isinstance(one, bytes) else str(one))
    return _plain(text[:_LONGEST]) + _cut(len(text), _LONGEST)


def _cut(size: int, most: int) -> str:
    """Return the full length of a value that is shown only in part."""
    return f" … of {size:,}" if size > most else ""


def _plain(text: str) -> str:
    """Return the text without characters that end a line or act on a terminal."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text).encode("utf-8", "replace").decode()
