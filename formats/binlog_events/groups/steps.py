"""State machine of transactions: which event opens a group of events, continues it, or ends it.

This is the only place that decides it, for all readers, compiled or not. It reads no bytes: `marks` gives
it the mark of an event. MySQL's rule is its Transaction_boundary_parser (sql/rpl_trx_boundary_parser.cc),
MariaDB's are is_group_event and is_part_of_group (sql/log_event.h). See
docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.fields import kernel

# State of the open group.
NO_GROUP, HEADED, BEGUN, SINGLE = range(4)
"""HEADED: behind a GTID of MySQL: a BEGIN or the one statement follows. BEGUN: a transaction, up to its commit. SINGLE:
behind a GTID of MariaDB with the flag STANDALONE: up to the end of its one statement."""

# Mark of an event: its role in groups.
OTHER, OUTER, INCIDENT, HEAD, HEAD_BEGUN, HEAD_SINGLE, PART, ROW, LAST_ROWS, COMMITS, FINISHES = range(11)
"""OUTER: stands between groups. HEAD: a GTID of MySQL; HEAD_BEGUN, HEAD_SINGLE: of MariaDB, without and with the flag
STANDALONE. PART: never the last of a statement. ROW: row event; LAST_ROWS: one with the flag STMT_END. COMMITS: XID.
FINISHES: another end of a transaction, which may also stand right behind a GTID."""

STATEMENT = 16
"""The mark of a statement is this and its `QueryKind`."""

MARKS = STATEMENT + len(QueryKind)

# Step of an event in its group.
OUTSIDE, OPENS, INSIDE, ENDS, ALONE = range(5)
"""See `groups.Step`."""

# Nesting rule that an event breaks.
SOUND, HEAD_INSIDE, OUTER_INSIDE, BEGIN_INSIDE, END_OUTSIDE = range(5)

GROUP_BITS, STEP_AT, FAULT_AT = 3, 2, 5
"""Parts of what `step` returns: the bits of the group that is open behind the event; how far to shift for the step (3
bits); and for what the event breaks."""
STEP_BITS = 7

BEGIN, COMMIT, ROLLBACK = QueryKind.BEGIN.value, QueryKind.COMMIT.value, QueryKind.ROLLBACK.value
SAVEPOINT, XA_START, XA_END = QueryKind.SAVEPOINT.value, QueryKind.XA_START.value, QueryKind.XA_END.value


@kernel()
def made(group: int, what: int, fault: int) -> int:
    """Return group, step and fault as one number."""
    return group | what << STEP_AT | fault << FAULT_AT


@kernel(made)
def ends(group: int, fault: int) -> int:
    """Return the step that ends a group, or of an event that is one by itself."""
    return made(NO_GROUP, ENDS if group != NO_GROUP else ALONE, fault)


@kernel(ends, made)
def statement_step(group: int, kind: int) -> int:
    """Return the step of a statement; an ordinary one forms a group by itself if none is begun."""
    outside = END_OUTSIDE if group != BEGUN else SOUND
    if kind == BEGIN or kind == XA_START:  # noqa: SIM109 - a kernel
        return made(BEGUN, INSIDE if group != NO_GROUP else OPENS, BEGIN_INSIDE if group == BEGUN else SOUND)
    if kind == SAVEPOINT or kind == XA_END:  # noqa: SIM109 - a kernel
        return made(group, INSIDE if group != NO_GROUP else ALONE, outside)
    if kind == COMMIT or kind == ROLLBACK:  # noqa: SIM109 - a kernel
        return ends(group, outside)
    if kind == 0 and group == BEGUN:
        return made(BEGUN, INSIDE, SOUND)
    return ends(group, SOUND)


@kernel(ends, made, statement_step)
def step(group: int, mark: int) -> int:
    """Return the group after an event with this mark, its step, and the rule that it breaks, packed by
    `pack_step`.
    """
    if mark >= STATEMENT:
        return statement_step(group, mark - STATEMENT)
    if mark == HEAD or mark == HEAD_BEGUN or mark == HEAD_SINGLE:  # noqa: SIM109 - a kernel
        opened = HEADED if mark == HEAD else BEGUN if mark == HEAD_BEGUN else SINGLE
        return made(opened, OPENS, HEAD_INSIDE if group != NO_GROUP else SOUND)
    if mark == INCIDENT and group == HEADED:  # MySQL gives it its own GTID, so that it can be skipped
        return ends(group, SOUND)
    if mark == OUTER or mark == INCIDENT:  # noqa: SIM109 - a kernel
        return made(group, OUTSIDE, OUTER_INSIDE if group != NO_GROUP else SOUND)
    if mark == COMMITS:
        return ends(group, END_OUTSIDE if group != BEGUN else SOUND)
    if mark == FINISHES:
        return ends(group, END_OUTSIDE if group == NO_GROUP else SOUND)
    if group == NO_GROUP:
        return made(NO_GROUP, ALONE if mark == OTHER else OUTSIDE, SOUND)
    if group == SINGLE and (mark == OTHER or mark == LAST_ROWS):  # noqa: SIM109 - a kernel
        return ends(group, SOUND)
    return made(group, INSIDE, SOUND)


@kernel()
def begins(moved: int) -> bool:
    """Return whether a transaction begins with this step, even if the previous one has no end."""
    return moved >> STEP_AT & STEP_BITS == OPENS or moved >> FAULT_AT == BEGIN_INSIDE


STEPS = tuple(step(group, mark) for mark in range(MARKS) for group in range(4))
"""All that `step` can say: that of a mark and a group stands at `4 * mark + group`."""


def behind(group: int, mark: int) -> int:
    """Return the group after an event that breaks no rule."""
    found = STEPS[4 * mark + group]
    assert found >> FAULT_AT == SOUND
    return found & GROUP_BITS
