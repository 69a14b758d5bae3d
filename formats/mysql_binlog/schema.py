"""All on-disk structures by name, for `schema` and for parsing parts of a file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from construct import Construct

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.bodies import BODIES
from binlogtool.formats.binlog_events.events.schema import EVENTS, EventForm
from binlogtool.formats.mysql_binlog.layout.layout import FILE_HEADER
from binlogtool.formats.mysql_binlog.members.gtid_index import GTID_INDEX_FILE
from binlogtool.formats.mysql_binlog.members.texts import INDEX_FILE, INFO_FILE, STATE_FILE

SCHEMAS: Mapping[str, Construct] = MappingProxyType(
    {
        "file_header": FILE_HEADER,
        "event": EVENTS[EventForm.CRC],
        "event_plain": EVENTS[EventForm.PLAIN],
        "event_bare": EVENTS[EventForm.BARE],
        "index": INDEX_FILE,
        "state": STATE_FILE,
        "relay_log_info": INFO_FILE,
        "gtid_index": GTID_INDEX_FILE,
    }
    | {EventType(code).name.lower(): body for code, body in BODIES.items()}
)
