"""Transactions as groups of events, tracked event by event.

Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from binlogtool.formats.binlog_events.codes import QUERIES, EventType
from binlogtool.formats.binlog_events.groups import steps
from binlogtool.formats.binlog_events.groups.kinds import WORDS, QueryKind, query_kind
from binlogtool.formats.binlog_events.groups.marks import IS_ROWS, MARK, mark_of, traits
from binlogtool.formats.binlog_events.groups.steps import (
    BEGUN,
    FAULT_AT,
    GROUP_BITS,
    NO_GROUP,
    SOUND,
    STATEMENT,
    STEP_AT,
    STEPS,
)


class Step(enum.IntEnum):
    """Role of an event in the groups of its log."""

    OUTSIDE = steps.OUTSIDE
    OPENS = steps.OPENS
    INSIDE = steps.INSIDE
    ENDS = steps.ENDS
    """Last event of the group."""
    ALONE = steps.ALONE
    """A statement that is a group of its own, without a GTID before it."""


_STEPS = tuple(Step)
_TRAITS = tuple(traits(()))
_FAULTS: Mapping[int, str] = {
    steps.HEAD_INSIDE: "a group starts inside another one",
    steps.OUTER_INSIDE: "{} inside a group",
    steps.BEGIN_INSIDE: "a transaction begins inside another one",
    steps.END_OUTSIDE: "{} outside a transaction",
}


class Groups(msgspec.Struct):
    """State of the open group.

    `group`: as in `steps`. `fault`: the nesting rule that the last event broke, in words; None for none.
    """

    group: int = NO_GROUP
    fault: str | None = msgspec.field(default=None)
    _moved: int = 0

    @property
    def open(self) -> bool:
        """True if a group is open."""
        return self.group != NO_GROUP

    @property
    def begun(self) -> bool:
        """True if a transaction is open, up to its commit."""
        return self.group == BEGUN

    @property
    def begins(self) -> bool:
        """True if a transaction began with the last event, even if the previous one has no end."""
        return steps.begins(self._moved)

    def take(self, code: int, body: bytes | memoryview) -> Step:
        """Follow the next event.

        Args:
            body: its bytes without header and checksum.
        """
        mark = _mark(code, body)
        found = self._moved = STEPS[mark << 2 | self.group]
        self.group = found & GROUP_BITS
        self.fault = None if found >> FAULT_AT == SOUND else _fault(found >> FAULT_AT, code, mark)
        return _STEPS[found >> STEP_AT & steps.STEP_BITS]

    def lose(self) -> None:
        """Forget the open group: a part of the log was skipped."""
        self.group = NO_GROUP


def _mark(code: int, body: bytes | memoryview) -> int:
    """Return the mark of an event."""
    if code in QUERIES:
        return STATEMENT + query_kind(code, body)
    trait = _TRAITS[code]
    if trait & IS_ROWS or code == EventType.GTID:
        return mark_of(trait, WORDS, body, 0, len(body))
    return trait & MARK


def _fault(fault: int, code: int, mark: int) -> str:
    """Return the message for a broken nesting rule."""
    name = EventType(code).name if mark < STATEMENT else QueryKind(mark - STATEMENT).name
    return _FAULTS[fault].format(name)
