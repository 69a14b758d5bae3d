"""Explanations of the applier's rules, by reason id."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "committed": "The transaction has its commit: XID, COMMIT, or XA COMMIT ONE PHASE (specification section 8).",
    "statement": "A statement outside of a transaction takes effect alone (specification section 8).",
    "implicit-commit": "BEGIN inside a transaction without a GTID commits it (`trans_begin`).",
    "not-transactional": "The table's engine, as its CREATE TABLE names it, cannot roll back: the change stays.",
    "xa-committed": "The transaction was prepared, and an XA COMMIT behind it commits it (specification section 8).",
    "control": "The event is about the log itself, and changes no data (specification sections 3 and 8).",
    "executed": "The server has it already: its GTID is in gtid_executed (MySQL), not behind gtid_slave_pos (MariaDB), "
    "or it stands in front of the position in relay-log.info.",
    "incomplete": "The log ends, or the server stops, before the transaction's commit: it is rolled back "
    "(specification section 8).",
    "rolled-back": "The transaction ends with ROLLBACK or XA ROLLBACK (specification section 8).",
    "rolled-back-to-savepoint": "ROLLBACK TO SAVEPOINT undoes what follows the savepoint (specification section 8).",
    "xa-prepared": "XA PREPARE without XA COMMIT or XA ROLLBACK behind it: it waits, nobody sees it (specification "
    "section 8).",
    "start-alter": "The first half of a two-phase ALTER TABLE: the table is altered when its COMMIT ALTER comes "
    "(MariaDB binlog_alter_two_phase).",
    "no-table-map": "Rows of a table id that no TABLE_MAP introduced are taken for those of a table that is filtered "
    "out (`Rows_log_event::do_apply_event`): nothing is changed, nothing is said.",
    "ignorable": "The type is not known, but its flag allows to ignore it (specification section 2).",
    "behind-damage": "In a file that was not closed, readers take what they cannot read for its end "
    "(`dump_local_log_entries` of mysqlbinlog, specification section 12).",
    "another-log": "A relay log beside a binary log holds the same changes: only the binary log is applied.",
    "not-a-log": "The index, the GTID index or a state file: no events to apply (specification sections 8 and 10).",
    "group-open": "A transaction begins while another one is open: the server refuses to set its GTID (MySQL error "
    "1766, MariaDB error 1953).",
    "out-of-order": "The number does not grow in its domain: mariadb-binlog stops (--gtid-strict-mode), a server with "
    "gtid_strict_mode refuses it (error 1950).",
    "xa-unknown": "XA COMMIT or XA ROLLBACK of a transaction that is not prepared (XAER_NOTA, error 1397).",
    "xa-twice": "An XA transaction is prepared that is prepared already (XAER_DUPID, error 1440).",
    "incident": "INCIDENT: the server that wrote the log lost events; who applies it must stop (specification section "
    "5, error 1590).",
    "unknown-event": "The type is not known, and no flag allows to ignore it (specification section 2).",
    "undecodable": "The event is not what its type demands: the server stops (specification section 12).",
    "damaged": "--policy force: a part of the transaction cannot be read; it is left out, and the next one tried.",
    "adrift": "--policy force: behind a damage, before the next transaction begins: to whom it belongs is not known.",
}
