"""The common header of every event, and the offsets of its fields.

See docs/spec/mysql_binlog.md#common-header. The offsets are for kernels and for code that
handles
a damaged, truncated or new header.
"""

from __future__ import annotations

from construct import Int8ul, Int16ul, Int32ul, Struct

from binlogtool.formats.derived import field_offset

HEADER = Struct(
    "timestamp" / Int32ul,
    "type_code" / Int8ul,
    "server_id" / Int32ul,
    "event_size" / Int32ul,
    "end_log_pos" / Int32ul,
    "flags" / Int16ul,
)

TYPE_AT = field_offset(HEADER, "type_code")
SERVER_ID_AT = field_offset(HEADER, "server_id")
EVENT_SIZE_AT = field_offset(HEADER, "event_size")
END_LOG_POS_AT = field_offset(HEADER, "end_log_pos")
FLAGS_AT = field_offset(HEADER, "flags")
