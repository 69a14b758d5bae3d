"""The common header of every event, and the offsets of its fields.

See docs/spec/mysql-mariadb-binlog.md#2-common-header-19-bytes-v. The offsets are for kernels and for code that
handles
a damaged, truncated or new header.
"""

from __future__ import annotations

from construct import Int8ul, Int16ul, Int32ul, Struct

from binlogtool.formats.derived import place_of

HEADER = Struct(
    "timestamp" / Int32ul,
    "type_code" / Int8ul,
    "server_id" / Int32ul,
    "event_size" / Int32ul,
    "end_log_pos" / Int32ul,
    "flags" / Int16ul,
)

TYPE_AT = place_of(HEADER, "type_code")
SERVER_AT = place_of(HEADER, "server_id")
SIZE_AT = place_of(HEADER, "event_size")
END_AT = place_of(HEADER, "end_log_pos")
FLAGS_AT = place_of(HEADER, "flags")
