"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.events.schema import EVENTS, UNENCRYPTED_EVENTS
from binlogtool.formats.binlog_events.groups.tracking import EventTracker
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.mysql_binlog.layout.levels import ENCRYPTED_LEVEL, PAYLOAD_LEVEL
from binlogtool.formats.mysql_binlog.members.index import EMPTY_LEVEL


def layouts() -> Iterator[LogFileLayout]:
    """Yield one layout for each event format, plain or before encrypted events, and for text files."""
    description = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    encrypted_context = BinlogFileContext(description, EventTracker(), encrypted_without_key=True)
    for schema in EVENTS.values():
        level = replace(ENCRYPTED_LEVEL, schema=schema)
        yield LogFileLayout("", 0, level, context=BinlogFileContext(description, EventTracker()), inner=PAYLOAD_LEVEL)
    yield from (
        LogFileLayout("", 0, replace(ENCRYPTED_LEVEL, schema=schema), context=encrypted_context)
        for schema in UNENCRYPTED_EVENTS.values()
    )
    yield LogFileLayout("", 0, ENCRYPTED_LEVEL, context=encrypted_context)
    yield LogFileLayout("", 0, EMPTY_LEVEL, context=encrypted_context)
