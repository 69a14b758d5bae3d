"""JSON lines by compiled code: events of groups use the lines of classic binary log events."""

from __future__ import annotations

from binlogtool.format_api.format import JsonLine
from binlogtool.formats.binlog_events.json_lines import make_event_line
from binlogtool.formats.mariadb_innodb_binlog.schema import IbbFileContext


def json_line(context: IbbFileContext) -> JsonLine | None:
    """Return the JSON line of events; None for records and pages, which have no compiled line."""
    return None if context.events is None else make_event_line(lambda: context.events.context, inside=True)
