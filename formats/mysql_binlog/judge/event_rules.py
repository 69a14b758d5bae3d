"""Rules about single events: the common header, and nesting rules beyond those of transactions.

Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify (rules 4, 5, 7 and 13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, TYPES, EventFlag, EventType
from binlogtool.formats.binlog_events.events.decoding import query_parts
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.binlog_events.groups.groups import Groups
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import OUTSIDE
from binlogtool.formats.binlog_events.groups.steps import NO_GROUP
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import status_values
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.judge import folds

_T = EventType
_W = Severity.WARNING
_KNOWN_FLAGS = int(sum(EventFlag))
_FOREIGN_FLAGS = int(EventFlag.BINLOG_IN_USE | EventFlag.ARTIFICIAL | EventFlag.RELAY_LOG)
ODD_FLAGS = 0xFFFF & ~_KNOWN_FLAGS | _FOREIGN_FLAGS
"""Flags that only some events have: the fold stops at them."""

UNKNOWN_SERVER = -1
"""In place of a server id: the group began in the file before this one."""


def header_faults(event: Event, state: Any) -> Iterator[Fault]:
    """Yield faults of type, flags, time and server, and note time and server in the state."""
    if event.code not in TYPES or event.code == 0:
        ignorable = event.flags & EventFlag.IGNORABLE
        text = f"event type {event.code} is not known"
        text += "; its flags say that it may be skipped" if ignorable else ""
        yield Fault("unknown-record-type", text, "type", _W if ignorable else Severity.ERROR)
    strange = event.flags & ~_KNOWN_FLAGS
    if not state[folds.RELAY] and event.code not in (_T.FORMAT_DESCRIPTION, _T.ROTATE):
        strange |= event.flags & _FOREIGN_FLAGS
    if strange:
        yield Fault("reserved-bits-set", f"flags {event.flags:#06x}: {strange:#06x} must not be set", "flags")
    if event.time and event.time + folds.DAY < state[folds.TIME]:
        text = f"the time goes back by {state[folds.TIME] - event.time:,} seconds"
        yield Fault("time-regression", text, "time-falls")
    state[folds.TIME] = event.time or state[folds.TIME]
    if NO_GROUP < state[folds.GROUP] < folds.ADRIFT and event.code not in GTIDS and event.code not in OUTSIDE:
        yield from _server_faults(event, state)


def _server_faults(event: Event, state: Any) -> Iterator[Fault]:
    """Yield a fault if the server changes inside of a transaction."""
    known, state[folds.SERVER] = state[folds.SERVER], event.server
    if known not in (event.server, UNKNOWN_SERVER):
        text = f"server_id changes inside a group from {known} to {event.server}"
        yield Fault("bad-header", text, "server-changes", _W)


def misplaced(event: Event, groups: Groups, description: FormatDescription, uses_gtids: bool) -> str | None:
    """Return the nesting rule that an event breaks, in words; None if it breaks none.

    Args:
        groups: the state before the event.
    """
    if event.code in ROWS and not groups.open and uses_gtids:
        return "a row event outside a transaction"
    if event.code == _T.XA_PREPARE and groups.open and not groups.begun:
        return "XA_PREPARE without XA START"
    if event.code == _T.TRANSACTION_PAYLOAD and groups.begun:
        return "TRANSACTION_PAYLOAD inside a transaction"
    if event.code == _T.QUERY and groups.begun:
        if query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            return "XA COMMIT or XA ROLLBACK of a prepared transaction inside another transaction"
        if ddl_xid(event, description) is not None:
            return "DDL inside a transaction"
    return None


def ddl_xid(event: Event, description: FormatDescription) -> int | None:
    """Return the XID that MySQL logs with an atomic DDL statement (status variable 17)."""
    if description.is_mariadb:
        return None
    try:
        status = status_values(query_parts(bytes(event.body)).status_vars)
    except MalformedError:
        return None
    number = status.get("ddl_logged_with_xid")
    return number if isinstance(number, int) else None


def ends_a_group(event: Event) -> bool:
    """Return whether it ends a transaction, whatever is known of its beginning."""
    if event.code in QUERIES:
        return query_kind(event.code, event.body) in (QueryKind.COMMIT, QueryKind.ROLLBACK)
    return event.code in (_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD)


def begins_a_group(event: Event) -> bool:
    """Return whether it begins a transaction, whatever precedes it."""
    if event.code in QUERIES:
        return query_kind(event.code, event.body) in (QueryKind.BEGIN, QueryKind.XA_START)
    return event.code in GTIDS
