"""Offsets of fields in the bodies of GTID events, for kernels; see `gtid.schema`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.gtid.schema import GTID, GTID_LOG
from binlogtool.formats.derived import field_offset

# GTID
SEQ_NO = field_offset(GTID, "seq_no")
DOMAIN_ID = field_offset(GTID, "domain_id")
FLAGS2 = field_offset(GTID, "flags2")
COMMIT_ID = field_offset(GTID, "commit_id")

# GTID_LOG
SID = field_offset(GTID_LOG, "sid")
GNO_OFFSET = field_offset(GTID_LOG, "gno")
LT_TYPE = field_offset(GTID_LOG, "lt_type")
LAST_COMMITTED = field_offset(GTID_LOG, "last_committed")
SEQUENCE_NUMBER = field_offset(GTID_LOG, "sequence_number")
ORIGINAL_TIME = field_offset(GTID_LOG, "original_commit_timestamp")
