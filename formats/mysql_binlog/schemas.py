"""All structures on the disk by name: for `schema`, and for those who look at a part of a file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from construct import Construct

from binlogtool.formats.mysql_binlog.bodies import BODIES
from binlogtool.formats.mysql_binlog.codes import EventType
from binlogtool.formats.mysql_binlog.gtid_index import GTID_INDEX_FILE
from binlogtool.formats.mysql_binlog.index import INDEX_FILE, INFO_FILE, STATE_FILE
from binlogtool.formats.mysql_binlog.layout import FILE_HEADER
from binlogtool.formats.mysql_binlog.schema import EVENTS, Form

SCHEMAS: Mapping[str, Construct] = MappingProxyType(
    {
        "file_header": FILE_HEADER,
        "event": EVENTS[Form.CRC],
        "event_plain": EVENTS[Form.PLAIN],
        "event_bare": EVENTS[Form.BARE],
        "index": INDEX_FILE,
        "state": STATE_FILE,
        "relay_log_info": INFO_FILE,
        "gtid_index": GTID_INDEX_FILE,
    }
    | {EventType(code).name.lower(): body for code, body in BODIES.items()}
)
