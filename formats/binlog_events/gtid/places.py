"""Offsets of fields in the bodies of GTID events, for kernels; see `gtid.schema`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.gtid.schema import GTID, GTID_LOG
from binlogtool.formats.derived import place_of

# GTID
SEQ_NO = place_of(GTID, "seq_no")
DOMAIN_ID = place_of(GTID, "domain_id")
FLAGS2 = place_of(GTID, "flags2")
COMMIT_ID = place_of(GTID, "commit_id")

# GTID_LOG
SID = place_of(GTID_LOG, "sid")
GNO = place_of(GTID_LOG, "gno")
LT_TYPE = place_of(GTID_LOG, "lt_type")
LAST_COMMITTED = place_of(GTID_LOG, "last_committed")
SEQUENCE_NUMBER = place_of(GTID_LOG, "sequence_number")
ORIGINAL_TIME = place_of(GTID_LOG, "original_commit_timestamp")
