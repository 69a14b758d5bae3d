"""Readable text of an event in `dump`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.format_api.format import RecordDescriber, RecordText, RowChanges, select_members
from binlogtool.formats.binlog_events.status_variables import decode_annotation_text

_NOISE = frozenset(
    {"TABLE_MAP", "ROTATE", "BINLOG_CHECKPOINT", "HEARTBEAT_LOG", "HEARTBEAT_LOG_V2", "GTID_STATE", "OOB_DATA", "STOP"}
)
_TRANSACTION_STATEMENTS = ("BEGIN", "COMMIT", "ROLLBACK")
_SHOWN_ELSEWHERE = frozenset({"sql", "rows"})
_HIDDEN = frozenset(
    (
        # of every event: its name, time, transaction and table
        "table_id", "flags", "table", "database", "gtid", "seq_no", "domain_id", "flags2", "thread_id", "exec_time",
        # FORMAT_DESCRIPTION, GTID_LIST, PREVIOUS_GTIDS
        "binlog_version", "create_timestamp", "header_length", "post_header_len", "list", "sids",
        # GTID_LOG
        "sid", "gno", "lt_type", "last_committed", "sequence_number", "immediate_commit_timestamp",
        "original_commit_timestamp", "transaction_length", "immediate_server_version", "original_server_version",
        # QUERY
        "status_vars", *_SHOWN_ELSEWHERE,
        # records of MariaDB's InnoDB binary log
        "chunks", "nested", "oob",
    )
)  # fmt: skip
_GTID_TYPES = frozenset({"GTID", "GTID_LOG", "ANONYMOUS_GTID", "GTID_TAGGED_LOG"})
_ANNOTATIONS = frozenset({"ANNOTATE_ROWS", "ROWS_QUERY"})
_UNKNOWN_CHARSET = "(the log does not name the character set of this statement)"
_MAX_TABLES = 4096
"""Maximum number of table descriptions that are kept; servers use a new table id after each change of a definition."""


def create_record_describer() -> RecordDescriber:
    """Return the describer of the events of a log."""
    tables: dict[Any, RowChanges] = {}
    status_vars: Mapping[str, Any] = {}  # of the last QUERY of the transaction

    def describe(type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
        nonlocal status_vars
        rows, statement = body.get("rows"), body.get("sql")
        members = select_members(body, _SHOWN_ELSEWHERE if everything else _HIDDEN)
        if isinstance(rows, list | tuple):
            table = tables.get(body.get("table_id"), _UNKNOWN_TABLE)
            return RecordText(members, changes=(table._replace(rows=rows),))
        if "status_vars" in body or type_name in _GTID_TYPES:
            status_vars = body.get("status_vars") or {}
        if type_name in _ANNOTATIONS and statement is not None:
            text = decode_annotation_text(statement, status_vars)
            if isinstance(text, str):
                return RecordText(members, statements=(text,))
            return RecordText(members, note=_UNKNOWN_CHARSET, statements=(text.decode("ascii", "backslashreplace"),))
        if statement is not None:
            if statement in _TRANSACTION_STATEMENTS:
                return RecordText(members if everything else {}, note=statement)
            if not body.get("error_code") and not everything:
                members.pop("error_code", None)
            return RecordText(members, statements=(statement,))
        if "columns" in body and "table_id" in body:
            if len(tables) >= _MAX_TABLES:
                tables.clear()
            tables[body["table_id"]] = _read_key_and_decimal_columns(body)
        return RecordText(members, is_noise=type_name in _NOISE)

    return describe


_UNKNOWN_TABLE = RowChanges(())


def _read_key_and_decimal_columns(table_map_body: Mapping[str, Any]) -> RowChanges:
    """Return the key and the DECIMAL columns of a TABLE_MAP event."""
    names = {
        column.get("name", f"@{number}"): column.get("type")
        for number, column in enumerate(table_map_body["columns"], start=1)
    }
    return RowChanges(
        (),
        key=tuple(part["column"] for part in table_map_body.get("primary_key", ()) if part.get("column") in names),
        numbers=frozenset(name for name, type_name in names.items() if type_name in ("NEWDECIMAL", "DECIMAL")),
    )
