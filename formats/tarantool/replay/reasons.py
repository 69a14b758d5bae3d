"""Why a row is applied, passed over, or stops the server: what each word of a replay means."""

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
        "not-an-insert": "A row in a snapshot that is no INSERT: an error, and with force_recovery left out (section "
        "4, `memtx_engine_recover_snapshot_row`).",
    }
)  # fmt: skip
