"""Marks of events for `steps.step_group`: the role of an event in its group, from its type and body."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from binlogtool.formats.binlog_events.codes import GTIDS, MYSQL_GTIDS, QUERIES, ROWS, EventType
from binlogtool.formats.binlog_events.groups.kinds import kind_of_query
from binlogtool.formats.binlog_events.groups.steps import (
    COMMITS,
    FINISHES,
    HEAD,
    HEAD_BEGUN,
    HEAD_SINGLE,
    INCIDENT,
    LAST_ROWS,
    OUTER,
    PART,
    ROW,
    STATEMENT,
)
from binlogtool.formats.binlog_events.gtid.places import FLAGS2
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s

_T = EventType

OUTSIDE = frozenset(
    {
        _T.START_V3, _T.SLAVE, _T.FORMAT_DESCRIPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST, _T.BINLOG_CHECKPOINT,
        _T.START_ENCRYPTION, _T.ROTATE, _T.STOP, _T.INCIDENT, _T.HEARTBEAT, _T.HEARTBEAT_V2,
    }
)  # fmt: skip
"""Events that stand outside groups: the end of each is a boundary. An INCIDENT may have a GTID of its own."""

PREFIXES = frozenset({_T.INTVAR, _T.RAND, _T.USER_VAR, _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY}) | GTIDS
"""Events that never end a group of one statement."""

ENDINGS = frozenset({_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD})

STANDALONE = 1
"""Bit of flags2 of MariaDB's GTID: no commit event follows."""

STMT_END = 1
"""Bit of the flags of a row event: it is the last one of its statement."""
ROW_FLAGS = 6
"""Where these flags stand in a body, behind a table id of the servers that know groups of one statement."""

# Traits of an event type: its mark, and beside that
MARK = 31
IS_GTID, IS_QUERY, IS_ROWS, IS_MAP, ASKS = 32, 64, 128, 256, 512
"""ASKS: the kernel that asks never takes it."""

_MARKS = {
    PART: PREFIXES,
    OUTER: OUTSIDE,
    INCIDENT: {_T.INCIDENT},
    HEAD: MYSQL_GTIDS,
    HEAD_BEGUN: {_T.GTID},
    ROW: ROWS,
    COMMITS: {_T.XID},
    FINISHES: {_T.XA_PREPARE, _T.TRANSACTION_PAYLOAD},
    STATEMENT: QUERIES | {_T.EXECUTE_LOAD_QUERY},
}
"""Marks of types, where a later one holds against an earlier one."""

_TRAITS: Mapping[int, Iterable[int]] = {IS_GTID: GTIDS, IS_QUERY: {_T.QUERY}, IS_ROWS: ROWS, IS_MAP: {_T.TABLE_MAP}}


def traits(asking: Iterable[int]) -> array[int]:
    """Return the traits of all event types.

    Args:
        unsupported: types that the kernel does not support.
    """
    made = array("q", bytes(8 * 256))
    for mark, codes in _MARKS.items():
        for code in codes:
            made[code] = mark
    for trait, chosen in (*_TRAITS.items(), (ASKS, asking)):
        for number in chosen:
            made[number] |= trait
    return made


@kernel(kind_of_query)
def mark_of(trait: int, words: Int64s, buf: UInt8s, p: int, n: int) -> int:
    """Return the mark of an event with the body `buf[p:n]`; for a QUERY_COMPRESSED that of any statement."""
    mark = trait & MARK
    if trait & IS_ROWS:
        return LAST_ROWS if n - p > ROW_FLAGS + 1 and buf[p + ROW_FLAGS] & STMT_END else mark
    if trait & IS_QUERY:
        return mark + kind_of_query(words, buf, p, n)
    if mark == HEAD_BEGUN and n - p > FLAGS2 and buf[p + FLAGS2] & STANDALONE:
        return HEAD_SINGLE
    return mark
