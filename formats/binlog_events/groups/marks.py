"""Marks of events for `steps.step_group`: the role of an event in its group, from its type and body."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from binlogtool.formats.binlog_events.codes import GTID_EVENTS, MYSQL_GTID_EVENTS, QUERY_EVENTS, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.groups.kinds import classify_query
from binlogtool.formats.binlog_events.groups.steps import (
    COMMIT_EVENT,
    INCIDENT,
    LAST_ROW_EVENT,
    MARIADB_GTID,
    MARIADB_STANDALONE_GTID,
    MYSQL_GTID,
    NEVER_LAST,
    OTHER_END,
    OUTSIDE_GROUPS,
    ROW_EVENT,
    STATEMENT,
)
from binlogtool.formats.binlog_events.gtid.places import FLAGS2
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s

_T = EventType

EVENTS_OUTSIDE_GROUPS = frozenset(
    {
        _T.START_V3, _T.SLAVE, _T.FORMAT_DESCRIPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST, _T.BINLOG_CHECKPOINT,
        _T.START_ENCRYPTION, _T.ROTATE, _T.STOP, _T.INCIDENT, _T.HEARTBEAT, _T.HEARTBEAT_V2,
    }
)  # fmt: skip
"""Events that stand outside groups: the end of each is a boundary. An INCIDENT may have a GTID of its own."""

EVENTS_BEFORE_STATEMENT_END = (
    frozenset({_T.INTVAR, _T.RAND, _T.USER_VAR, _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY}) | GTID_EVENTS
)
"""Events that never end a group of one statement."""

EVENTS_ENDING_TRANSACTIONS = frozenset({_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD})

STANDALONE = 1
"""Bit of flags2 of MariaDB's GTID: no commit event follows."""

STMT_END = 1
"""Bit of the flags of a row event: it is the last one of its statement."""
ROW_FLAGS_AT = 6
"""Where these flags stand in a body, behind a table id of the servers that know groups of one statement."""

# Traits of an event type: its mark, and beside that
MARK_MASK = 31
IS_GTID, IS_QUERY, IS_ROWS, IS_MAP, NEEDS_TRACKER = 32, 64, 128, 256, 512
"""ASKS: the kernel that asks never takes it."""

_EVENTS_BY_MARK = {
    NEVER_LAST: EVENTS_BEFORE_STATEMENT_END,
    OUTSIDE_GROUPS: EVENTS_OUTSIDE_GROUPS,
    INCIDENT: {_T.INCIDENT},
    MYSQL_GTID: MYSQL_GTID_EVENTS,
    MARIADB_GTID: {_T.GTID},
    ROW_EVENT: ROW_EVENTS,
    COMMIT_EVENT: {_T.XID},
    OTHER_END: {_T.XA_PREPARE, _T.TRANSACTION_PAYLOAD},
    STATEMENT: QUERY_EVENTS | {_T.EXECUTE_LOAD_QUERY},
}
"""Marks of types, where a later one holds against an earlier one."""

_EVENTS_BY_TRAIT: Mapping[int, Iterable[int]] = {
    IS_GTID: GTID_EVENTS,
    IS_QUERY: {_T.QUERY},
    IS_ROWS: ROW_EVENTS,
    IS_MAP: {_T.TABLE_MAP},
}


def build_traits(unsupported: Iterable[int]) -> array[int]:
    """Return the traits of all event types.

    Args:
        unsupported: types that the kernel does not support.
    """
    table = array("q", bytes(8 * 256))
    for mark, codes in _EVENTS_BY_MARK.items():
        for code in codes:
            table[code] = mark
    for trait, chosen in (*_EVENTS_BY_TRAIT.items(), (NEEDS_TRACKER, unsupported)):
        for number in chosen:
            table[number] |= trait
    return table


@kernel(classify_query)
def get_mark(trait: int, words: Int64s, buf: UInt8s, p: int, n: int) -> int:
    """Return the mark of an event with the body `buf[p:n]`; for a QUERY_COMPRESSED that of any statement."""
    mark = trait & MARK_MASK
    if trait & IS_ROWS:
        return LAST_ROW_EVENT if n - p > ROW_FLAGS_AT + 1 and buf[p + ROW_FLAGS_AT] & STMT_END else mark
    if trait & IS_QUERY:
        return mark + classify_query(words, buf, p, n)
    if mark == MARIADB_GTID and n - p > FLAGS2 and buf[p + FLAGS2] & STANDALONE:
        return MARIADB_STANDALONE_GTID
    return mark
