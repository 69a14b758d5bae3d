"""Slots of the script kernels' state, an array of 64-bit integers."""

from __future__ import annotations

(
    TRANSACTION_STATE,
    WINDOW_OFFSET,
    CHECKSUM_BYTES,
    SETS_GTIDS,
    DOMAIN_ID,
    SERVER_ID,
    SEQUENCE_NUMBER,
    THREAD_ID,
    TIMESTAMP_US,
    IS_MARIADB,
) = range(10)
"""OPEN: see below. BASE: place of the window in the file. TAIL: bytes of checksums. GTIDS: are they set? DOMAIN,
SERVER, SERIAL: of MariaDB's session. THREAD: its pseudo_thread_id; TIME: its TIMESTAMP in microseconds; both -1 where
they are not known."""
OUTSIDE_TRANSACTION, AFTER_GTID, IN_TRANSACTION = range(3)
"""Values of OPEN: outside of transactions, behind MySQL's GTID, in a transaction."""
(
    PARALLEL_ALLOWED,
    SERVER_VERSION,
    TABLE_ID_SIZE,
    BYTES_WRITTEN,
    LAST_GTID_INDEX,
    OUTPUT_FULL,
    COMMIT_TIMESTAMP,
    SESSION_NUMBER,
    SESSION_CHANGED,
    ROW_FLAG_MASK,
) = range(10, 20)
"""PARALLEL: MariaDB's session lets transactions run in parallel. VERSION: of MySQL's servers, as the session knows it.
WRITTEN: bytes that were written. LAST_GTID: index of the last GTID event that was taken, or -1. FULL: no more room.
COMMITTED: original_commit_timestamp of MySQL's session. SESSION: its number in `sql.moves`. MOVED: has it, its time or
its thread changed? CHECKS: which flags of row events count."""
GTID_AUTOMATIC, NEXT_SESSION_NUMBER, TEMPLATES, DATABASE_SIZE = range(20, 24)
"""AUTOMATIC: is that MySQL's gtid_next? NEXT_SESSION: the one that the rows at hand lead to. PLANS: place of the table
of plans in the texts. DATABASE: bytes of the session's database, -1 = it has none."""
DATABASE_TEXT = DATABASE_SIZE + 1
"""From here on the bytes of its name, eight in each slot."""
DATABASE_SLOTS = 33
"""DATABASE and its text."""
CONTAINER_OFFSET, STATE_SIZE = range(DATABASE_SIZE + DATABASE_SLOTS, DATABASE_SIZE + DATABASE_SLOTS + 2)
"""HOLDER: place of the event that the one at hand is inside of, or -1."""
