"""Lines of JSON by compiled code: those of the events of groups are the lines of any events."""

from __future__ import annotations

from binlogtool.formats.binlog_events.stream.jsonlines import event_line
from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext


def json_line(context: FileContext) -> JsonLine | None:
    """The line of events; of records and pages there is none. Each pass over the file has its own knowledge."""
    return None if context.events is None else event_line(lambda: context.events.context, inside=True)
