"""Rules about single events: the common header, and nesting rules beyond those of transactions.

Source: docs/spec/mysql_binlog.md#validation (rules 4, 5, 7 and 13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import (
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import parse_query
from binlogtool.formats.binlog_events.events.event import Event, EventFault
from binlogtool.formats.binlog_events.groups.groups import TransactionGroups
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import EVENTS_OUTSIDE_GROUPS
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import decode_status_variables
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.judge import folds

_T = EventType
_W = Severity.WARNING
_KNOWN_FLAGS = int(sum(EventFlag))
_FOREIGN_FLAGS = int(EventFlag.BINLOG_IN_USE | EventFlag.ARTIFICIAL | EventFlag.RELAY_LOG)
RARE_FLAGS = 0xFFFF & ~_KNOWN_FLAGS | _FOREIGN_FLAGS
"""Flags that only some events have: the fold stops at them."""

UNKNOWN_SERVER = -1
"""In place of a server id: the group began in the file before this one."""


def check_header(event: Event, state: Any) -> Iterator[EventFault]:
    """Yield faults of type, flags, time and server, and note time and server in the state."""
    if event.code not in EVENT_TYPE_NAMES or event.code == 0:
        ignorable = event.flags & EventFlag.IGNORABLE
        text = f"event type {event.code} is not known"
        text += "; its flags say that it may be skipped" if ignorable else ""
        yield EventFault("unknown-record-type", text, "type", _W if ignorable else Severity.ERROR)
    invalid_flags = event.flags & ~_KNOWN_FLAGS
    if not state[folds.IS_RELAY] and event.code not in (_T.FORMAT_DESCRIPTION, _T.ROTATE):
        invalid_flags |= event.flags & _FOREIGN_FLAGS
    if invalid_flags:
        yield EventFault(
            "reserved-bits-set", f"flags {event.flags:#06x}: {invalid_flags:#06x} must not be set", "flags"
        )
    if event.time and event.time + folds.SECONDS_PER_DAY < state[folds.LAST_TIME]:
        text = f"the time goes back by {state[folds.LAST_TIME] - event.time:,} seconds"
        yield EventFault("time-regression", text, "time-falls")
    state[folds.LAST_TIME] = event.time or state[folds.LAST_TIME]
    if (
        NO_GROUP < state[folds.GROUP_STATE] < folds.AFTER_DAMAGE
        and event.code not in GTID_EVENTS
        and event.code not in EVENTS_OUTSIDE_GROUPS
    ):
        yield from _check_server(event, state)


def _check_server(event: Event, state: Any) -> Iterator[EventFault]:
    """Yield a fault if the server changes inside of a transaction."""
    previous, state[folds.SERVER] = state[folds.SERVER], event.server_id
    if previous not in (event.server_id, UNKNOWN_SERVER):
        text = f"server_id changes inside a group from {previous} to {event.server_id}"
        yield EventFault("bad-header", text, "server-changes", _W)


def find_misplacement(
    event: Event, groups: TransactionGroups, description: FormatDescription, uses_gtids: bool
) -> str | None:
    """Return the nesting rule that an event breaks, in words; None if it breaks none.

    Args:
        groups: the state before the event.
    """
    if event.code in ROW_EVENTS and not groups.is_open and uses_gtids:
        return "a row event outside a transaction"
    if event.code == _T.XA_PREPARE and groups.is_open and not groups.is_begun:
        return "XA_PREPARE without XA START"
    if event.code == _T.TRANSACTION_PAYLOAD and groups.is_begun:
        return "TRANSACTION_PAYLOAD inside a transaction"
    if event.code == _T.QUERY and groups.is_begun:
        if get_query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            return "XA COMMIT or XA ROLLBACK of a prepared transaction inside another transaction"
        if read_ddl_xid(event, description) is not None:
            return "DDL inside a transaction"
    return None


def read_ddl_xid(event: Event, description: FormatDescription) -> int | None:
    """Return the XID that MySQL logs with an atomic DDL statement (status variable 17)."""
    if description.is_mariadb:
        return None
    try:
        status = decode_status_variables(parse_query(bytes(event.body)).status_vars)
    except MalformedError:
        return None
    number = status.get("ddl_logged_with_xid")
    return number if isinstance(number, int) else None


def is_group_end(event: Event) -> bool:
    """Return whether it ends a transaction, whatever is known of its beginning."""
    if event.code in QUERY_EVENTS:
        return get_query_kind(event.code, event.body) in (QueryKind.COMMIT, QueryKind.ROLLBACK)
    return event.code in (_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD)


def is_group_start(event: Event) -> bool:
    """Return whether it begins a transaction, whatever precedes it."""
    if event.code in QUERY_EVENTS:
        return get_query_kind(event.code, event.body) in (QueryKind.BEGIN, QueryKind.XA_START)
    return event.code in GTID_EVENTS
