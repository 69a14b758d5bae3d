"""Types and flags of events as plain numbers, for kernels, which are translated with these as constants."""

from __future__ import annotations

from binlogtool.formats.binlog_events.codes import EventFlag, EventType

QUERY = EventType.QUERY.value
INTVAR = EventType.INTVAR.value
RAND = EventType.RAND.value
XID = EventType.XID.value
TABLE_MAP = EventType.TABLE_MAP.value
WRITE_ROWS_V1 = EventType.WRITE_ROWS_V1.value
UPDATE_ROWS_V1 = EventType.UPDATE_ROWS_V1.value
DELETE_ROWS_V1 = EventType.DELETE_ROWS_V1.value
ROWS_QUERY = EventType.ROWS_QUERY.value
WRITE_ROWS_V2 = EventType.WRITE_ROWS_V2.value
UPDATE_ROWS_V2 = EventType.UPDATE_ROWS_V2.value
DELETE_ROWS_V2 = EventType.DELETE_ROWS_V2.value
GTID_LOG = EventType.GTID_LOG.value
ANONYMOUS_GTID = EventType.ANONYMOUS_GTID.value
PARTIAL_UPDATE_ROWS = EventType.PARTIAL_UPDATE_ROWS.value
TRANSACTION_PAYLOAD = EventType.TRANSACTION_PAYLOAD.value
ANNOTATE_ROWS = EventType.ANNOTATE_ROWS.value
GTID = EventType.GTID.value
QUERY_COMPRESSED = EventType.QUERY_COMPRESSED.value
WRITE_COMPRESSED_V1 = EventType.WRITE_ROWS_COMPRESSED_V1.value
WRITE_COMPRESSED_V2 = EventType.WRITE_ROWS_COMPRESSED_V2.value
DELETE_COMPRESSED_V2 = EventType.DELETE_ROWS_COMPRESSED_V2.value

SUPPRESS_USE = EventFlag.SUPPRESS_USE.value
SKIP_REPLICATION = EventFlag.SKIP_REPLICATION.value

# Operation of a row event: its type minus the first type of its version.
INSERTED, UPDATED, DELETED = range(3)
ROW_KINDS = 3
VERSION_OFFSET = WRITE_ROWS_V2 - WRITE_ROWS_V1

# Type of a compressed row event minus the type of the uncompressed event.
COMPRESSED_V1_OFFSET = WRITE_COMPRESSED_V1 - WRITE_ROWS_V1
COMPRESSED_V2_OFFSET = WRITE_COMPRESSED_V2 - WRITE_ROWS_V2
