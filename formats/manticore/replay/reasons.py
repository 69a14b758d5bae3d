"""Reasons of a replay: why a transaction is applied, skipped or refused (`docs/spec/manticore.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "applied": "The table is served and its saved TID is lower: the transaction is applied (section 8.2).",
        "unexpected-tid": "The TID is not the one behind that of the table: applied all the same, with the warning "
        "'unexpected tid' (section 8.2). What the missing transactions changed stays as it was.",
        "no-data": "ADD_INDEX declares a table, ADD_CACHE sums a file up: neither changes a document (section 5).",
        "saved": "The TID is not greater than that which the table has saved: it has the change already (section 8.2).",
        "repeated": "The TID was applied before, in this replay: passed over without a word (section 8.2).",
        "lost-order": "A greater TID of the table was applied before, so this one, which was not, is passed over "
        "without a word (section 8.2; seen with version 16 servers): its change is lost.",
        "not-served": "The table is not in the server's configuration: only the checksum is looked at (section 8.2).",
        "binlog-off": "The table has its binlog switched off (saved TID -1): only the checksum is looked at.",
        "dropped": "The server met something in this file that ends the replay of the file with a warning and lets it "
        "start: a wrong checksum where nothing is applied, or any error with a replay flag. There is no resync "
        "(section 8.2).",
        "deleted": "Before the first table was declared something was wrong: the server starts and deletes the file "
        "(section 8.2).",
        "unlisted": "The file is not in binlog.meta: the server does not look at it, and overwrites it when its "
        "counter gets there (section 12.1, M7).",
        "no-meta": "There is no binlog.meta, or it lists nothing: the server takes that for an empty log, and "
        "overwrites the first file at its first commit (section 8.1).",
        "version": "The file is of another version than the server (section 8.1).",
        "unknown-table": "The table id was not declared in this file: fatal (section 8.2).",
        "payload": "The payload is none that the server can parse: fatal where it is to be applied (section 12.3).",
        "descending-tid": "Up to version 14: the TID is lower than one before it in the file: fatal (section 10).",
        "descending-time": "Up to version 14: the time is lower than before; fatal unless --replay-flags="
        "accept-desc-timestamp (section 10).",
    }
)
