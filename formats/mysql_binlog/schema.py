"""All on-disk structures by name, for the `schema` command and for parsing parts of a file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from construct import Construct

from binlogtool.formats.binlog_events.event_schemas import BODIES, EVENTS, EventChecksumForm
from binlogtool.formats.binlog_events.wire_format import EventType
from binlogtool.formats.mysql_binlog.detect_layout import FILE_HEADER
from binlogtool.formats.mysql_binlog.index_and_state_files import GTID_INDEX_FILE, INDEX_FILE, INFO_FILE, STATE_FILE

SCHEMAS: Mapping[str, Construct] = MappingProxyType(
    {
        "file_header": FILE_HEADER,
        "event": EVENTS[EventChecksumForm.CRC],
        "event_plain": EVENTS[EventChecksumForm.PLAIN],
        "event_bare": EVENTS[EventChecksumForm.BARE],
        "index": INDEX_FILE,
        "state": STATE_FILE,
        "relay_log_info": INFO_FILE,
        "gtid_index": GTID_INDEX_FILE,
    }
    | {EventType(code).name.lower(): body for code, body in BODIES.items()}
)
