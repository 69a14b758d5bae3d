"""Offsets of fields in the body of QUERY, for kernels; see `events.bodies`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.bodies import QUERY
from binlogtool.formats.derived import place_of

DB_LEN = place_of(QUERY, "db_len")
STATUS_LEN = place_of(QUERY, "status_len")
HEAD = place_of(QUERY, "status_vars")
"""Bytes of constant size; status variables, the name of the database and a NUL stand before the text."""
