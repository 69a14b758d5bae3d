"""Reasons of a replay: why a row is applied, skipped, or stops the server (`docs/spec/tarantool.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "snapshot": "A row of the newest snapshot: loaded first (section 6, `memtx_engine_recover_snapshot`).",
        "new": "The LSN is above the component of its replica in the vclock: applied (section 3, `recover_xlog`).",
        "control": "A row without data (NOP, CONFIRM, ROLLBACK, RAFT): only the vclock or the queue of synchronous "
        "transactions moves (section 2.3).",
        "confirmed": "Waited in the queue of synchronous transactions until a CONFIRM (section 2.3, "
        "`txn_limbo_read_confirm`).",
        "unconfirmed": "Still in the queue of synchronous transactions when the log ends: its rows are there, and wait "
        "for a CONFIRM (`txn_limbo`; run on 2.6.0).",
        "vinyl-metadata": "A record of the newest vinyl metadata log: read before the snapshot (section 5, "
        "`vy_recovery_new`).",
        "already-applied": "The LSN is not above the component of its replica in the vclock: passed over (section 3, "
        "`recover_xlog`).",
        "out-of-order": "The LSN is not above the component of its replica, for a later row stood in front of it: "
        "passed over as if it had been applied, and never applied (section 6, swapped blocks).",
        "rolled-back": "A synchronous transaction, or one that waited behind it, that a ROLLBACK took back (section "
        "2.3, `txn_limbo_read_rollback`).",
        "behind-silent-end": "Behind a block that the server takes for the end of the log, because its length runs "
        "past the end of the file (section 6, `xlog_cursor_next_tx`).",
        "older-file": "The file ends before the start position; only its header is looked at (section 6).",
        "ignored-file": "Files with another ending, such as .inprogress and .corrupted, are not looked at (section 1).",
        "vinyl-data": "Data of vinyl, read when it is asked for; it is no log (section 5).",
        "no-snapshot": "Without a snapshot the server makes a new, empty instance and reads no log (run on 2.6.0, "
        "`bootstrap`).",
        "bad-header": "force_recovery leaves out a file whose header is wrong (section 6, `xlog_dir_scan`).",
        "no-such-space": "The row's space does not exist: an error, and with force_recovery the row is left out "
        "(section 6, `space_cache_find_xc`).",
        "no-such-index": "The row's space has no primary index, or the data of a vinyl space could not be loaded: an "
        "error, and with force_recovery the row is left out (section 6, `space_execute_dml`).",
        "refused-request": "The request lacks a field that its type must have, or the server does not know its type: "
        "an error, and with force_recovery left out (`xrow_decode_dml`; run on 2.6.0 and 3.9).",
        "refused-row": "The row does not fit the format or the keys of its space, or cannot be changed so: an error, "
        "and with force_recovery left out (`tuple_format.c`, `memtx_space.c`; run on 2.6.0 and 3.9).",
        "refused-definition": "The row of a system space says what cannot be: an error, and with force_recovery left "
        "out (`alter.cc`; run on 2.6.0 and 3.9).",
        "transaction-dropped": "A row of its transaction is refused, or the transaction has no end: with "
        "force_recovery all of it is left out (2.8 and newer, `wal_stream_apply_mixed_dml_row`; run on 3.9).",
        "vinyl-index": "The row defines an index of vinyl whose files or metadata are missing or do not fit: an error, "
        "and with force_recovery the row is left out (section 5, `vy_lsm_recover`).",
        "newer-than-snapshot": "A metadata log of vinyl that is newer than the snapshot: force_recovery of 3.x removes "
        "it (run on 3.9).",
        "not-an-insert": "A row in a snapshot that is no INSERT: an error, and with force_recovery left out (section "
        "4, `memtx_engine_recover_snapshot_row`).",
    }
)  # fmt: skip
