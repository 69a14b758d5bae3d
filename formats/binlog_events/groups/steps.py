"""State machine of transactions: which event opens a group of events, continues it, or ends it.

This is the only place that decides it, for all readers, compiled or not. It reads no bytes: `marks` gives
it the mark of an event. MySQL's rule is its Transaction_boundary_parser (sql/rpl_trx_boundary_parser.cc),
MariaDB's are is_group_event and is_part_of_group (sql/log_event.h). See
docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.fields import kernel

# State of the open group.
NO_GROUP, AFTER_GTID, BEGUN, ONE_STATEMENT = range(4)
"""HEADED: behind a GTID of MySQL: a BEGIN or the one statement follows. BEGUN: a transaction, up to its commit. SINGLE:
behind a GTID of MariaDB with the flag STANDALONE: up to the end of its one statement."""

# Mark of an event: its role in groups.
(
    OTHER,
    OUTSIDE_GROUPS,
    INCIDENT,
    MYSQL_GTID,
    MARIADB_GTID,
    MARIADB_STANDALONE_GTID,
    NEVER_LAST,
    ROW_EVENT,
    LAST_ROW_EVENT,
    COMMIT_EVENT,
    OTHER_END,
) = range(11)
"""OUTER: stands between groups. HEAD: a GTID of MySQL; HEAD_BEGUN, HEAD_SINGLE: of MariaDB, without and with the flag
STANDALONE. PART: never the last of a statement. ROW: row event; LAST_ROWS: one with the flag STMT_END. COMMITS: XID.
FINISHES: another end of a transaction, which may also stand right behind a GTID."""

STATEMENT = 16
"""The mark of a statement is this and its `QueryKind`."""

MARK_COUNT = STATEMENT + len(QueryKind)

# Step of an event in its group.
OUTSIDE, OPENS, INSIDE, ENDS, ALONE = range(5)
"""See `groups.GroupStep`."""

# Nesting rule that an event breaks.
NO_FAULT, GTID_IN_GROUP, OUTER_EVENT_IN_GROUP, BEGIN_IN_TRANSACTION, END_OUTSIDE_TRANSACTION = range(5)

GROUP_BITS, STEP_AT, FAULT_AT = 3, 2, 5
"""Parts of what `step` returns: the bits of the group that is open behind the event; how far to shift for the step (3
bits); and for what the event breaks."""
STEP_BITS = 7

BEGIN, COMMIT, ROLLBACK = QueryKind.BEGIN.value, QueryKind.COMMIT.value, QueryKind.ROLLBACK.value
SAVEPOINT, XA_START, XA_END = QueryKind.SAVEPOINT.value, QueryKind.XA_START.value, QueryKind.XA_END.value


@kernel()
def pack_step(group: int, role: int, fault: int) -> int:
    """Return group, step and fault as one number."""
    return group | role << STEP_AT | fault << FAULT_AT


@kernel(pack_step)
def end_group(group: int, fault: int) -> int:
    """Return the step that ends a group, or of an event that is one by itself."""
    return pack_step(NO_GROUP, ENDS if group != NO_GROUP else ALONE, fault)


@kernel(end_group, pack_step)
def step_statement(group: int, kind: int) -> int:
    """Return the step of a statement; an ordinary one forms a group by itself if none is begun."""
    outside = END_OUTSIDE_TRANSACTION if group != BEGUN else NO_FAULT
    if kind == BEGIN or kind == XA_START:  # noqa: SIM109 - a kernel
        return pack_step(
            BEGUN, INSIDE if group != NO_GROUP else OPENS, BEGIN_IN_TRANSACTION if group == BEGUN else NO_FAULT
        )
    if kind == SAVEPOINT or kind == XA_END:  # noqa: SIM109 - a kernel
        return pack_step(group, INSIDE if group != NO_GROUP else ALONE, outside)
    if kind == COMMIT or kind == ROLLBACK:  # noqa: SIM109 - a kernel
        return end_group(group, outside)
    if kind == 0 and group == BEGUN:
        return pack_step(BEGUN, INSIDE, NO_FAULT)
    return end_group(group, NO_FAULT)


@kernel(end_group, pack_step, step_statement)
def step_group(group: int, mark: int) -> int:
    """Return the group after an event with this mark, its step, and the rule that it breaks, packed by
    `pack_step`.
    """
    if mark >= STATEMENT:
        return step_statement(group, mark - STATEMENT)
    if mark == MYSQL_GTID or mark == MARIADB_GTID or mark == MARIADB_STANDALONE_GTID:  # noqa: SIM109 - a kernel
        new_group = AFTER_GTID if mark == MYSQL_GTID else BEGUN if mark == MARIADB_GTID else ONE_STATEMENT
        return pack_step(new_group, OPENS, GTID_IN_GROUP if group != NO_GROUP else NO_FAULT)
    if mark == INCIDENT and group == AFTER_GTID:  # MySQL gives it its own GTID, so that it can be skipped
        return end_group(group, NO_FAULT)
    if mark == OUTSIDE_GROUPS or mark == INCIDENT:  # noqa: SIM109 - a kernel
        return pack_step(group, OUTSIDE, OUTER_EVENT_IN_GROUP if group != NO_GROUP else NO_FAULT)
    if mark == COMMIT_EVENT:
        return end_group(group, END_OUTSIDE_TRANSACTION if group != BEGUN else NO_FAULT)
    if mark == OTHER_END:
        return end_group(group, END_OUTSIDE_TRANSACTION if group == NO_GROUP else NO_FAULT)
    if group == NO_GROUP:
        return pack_step(NO_GROUP, ALONE if mark == OTHER else OUTSIDE, NO_FAULT)
    if group == ONE_STATEMENT and (mark == OTHER or mark == LAST_ROW_EVENT):  # noqa: SIM109 - a kernel
        return end_group(group, NO_FAULT)
    return pack_step(group, INSIDE, NO_FAULT)


@kernel()
def is_transaction_begin(step_result: int) -> bool:
    """Return whether a transaction begins with this step, even if the previous one has no end."""
    return step_result >> STEP_AT & STEP_BITS == OPENS or step_result >> FAULT_AT == BEGIN_IN_TRANSACTION


STEP_TABLE = tuple(step_group(group, mark) for mark in range(MARK_COUNT) for group in range(4))
"""All that `step` can say: that of a mark and a group stands at `4 * mark + group`."""


def group_after(group: int, mark: int) -> int:
    """Return the group after an event that breaks no rule."""
    result = STEP_TABLE[4 * mark + group]
    assert result >> FAULT_AT == NO_FAULT
    return result & GROUP_BITS
