"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.events.schema import CLEAR, EVENTS
from binlogtool.formats.binlog_events.groups.tracking import Tracker
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.layout.levels import INNER, SEALED_LEVEL
from binlogtool.formats.mysql_binlog.members.index import NOTHING


def layouts() -> Iterator[Layout]:
    """Yield one layout for each event format, plain or before encrypted events, and for text files."""
    described = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    sealed = FileContext(described, Tracker(), sealed=True)
    for schema in EVENTS.values():
        level = replace(SEALED_LEVEL, schema=schema)
        yield Layout("", 0, level, context=FileContext(described, Tracker()), inner=INNER)
    yield from (Layout("", 0, replace(SEALED_LEVEL, schema=schema), context=sealed) for schema in CLEAR.values())
    yield Layout("", 0, SEALED_LEVEL, context=sealed)
    yield Layout("", 0, NOTHING, context=sealed)
