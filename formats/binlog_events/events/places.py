"""Offsets of fields in the body of QUERY, for kernels; see `events.bodies`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.bodies import QUERY
from binlogtool.formats.derived import field_offset

DB_LEN_AT = field_offset(QUERY, "db_len")
STATUS_LEN_AT = field_offset(QUERY, "status_len")
QUERY_HEAD_SIZE = field_offset(QUERY, "status_vars")
"""Bytes of constant size; status variables, the name of the database and a NUL stand before the text."""
