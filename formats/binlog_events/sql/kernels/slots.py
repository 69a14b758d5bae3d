"""Slots of the script kernels' state, an array of 64-bit integers."""

from __future__ import annotations

OPEN, BASE, TAIL, GTIDS, DOMAIN, SERVER, SERIAL, THREAD, TIME, MARIADB = range(10)
"""OPEN: see below. BASE: place of the window in the file. TAIL: bytes of checksums. GTIDS: are they set? DOMAIN,
SERVER, SERIAL: of MariaDB's session. THREAD: its pseudo_thread_id; TIME: its TIMESTAMP in microseconds; both -1 where
they are not known."""
OUTSIDE, BEHIND_GTID, INSIDE = range(3)
"""Values of OPEN: outside of transactions, behind MySQL's GTID, in a transaction."""
PARALLEL, VERSION, ID_SIZE, WRITTEN, LAST_GTID, FULL, COMMITTED, SESSION, MOVED, CHECKS = range(10, 20)
"""PARALLEL: MariaDB's session lets transactions run in parallel. VERSION: of MySQL's servers, as the session knows it.
WRITTEN: bytes that were written. LAST_GTID: index of the last GTID event that was taken, or -1. FULL: no more room.
COMMITTED: original_commit_timestamp of MySQL's session. SESSION: its number in `sql.moves`. MOVED: has it, its time or
its thread changed? CHECKS: which flags of row events count."""
AUTOMATIC, NEXT_SESSION, PLANS, DATABASE = range(20, 24)
"""AUTOMATIC: is that MySQL's gtid_next? NEXT_SESSION: the one that the rows at hand lead to. PLANS: place of the table
of plans in the texts. DATABASE: bytes of the session's database, -1 = it has none."""
DATABASE_TEXT = DATABASE + 1
"""From here on the bytes of its name, eight in each slot."""
DATABASE_SLOTS = 33
"""DATABASE and its text."""
HOLDER, STATE_SIZE = range(DATABASE + DATABASE_SLOTS, DATABASE + DATABASE_SLOTS + 2)
"""HOLDER: place of the event that the one at hand is inside of, or -1."""
