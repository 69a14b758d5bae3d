"""Transactions as groups of events, tracked event by event.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from binlogtool.formats.binlog_events.codes import QUERY_EVENTS, EventType
from binlogtool.formats.binlog_events.groups import steps
from binlogtool.formats.binlog_events.groups.kinds import WORD_TABLE, QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import IS_ROWS, MARK_MASK, build_traits, get_mark
from binlogtool.formats.binlog_events.groups.steps import (
    BEGUN,
    FAULT_AT,
    GROUP_BITS,
    NO_FAULT,
    NO_GROUP,
    STATEMENT,
    STEP_AT,
    STEP_TABLE,
)


class GroupStep(enum.IntEnum):
    """Role of an event in the groups of its log."""

    OUTSIDE = steps.OUTSIDE
    OPENS = steps.OPENS
    INSIDE = steps.INSIDE
    ENDS = steps.ENDS
    """Last event of the group."""
    ALONE = steps.ALONE
    """A statement that is a group of its own, without a GTID before it."""


_STEPS = tuple(GroupStep)
_TRAITS = tuple(build_traits(()))
_FAULT_MESSAGES: Mapping[int, str] = {
    steps.GTID_IN_GROUP: "a group starts inside another one",
    steps.OUTER_EVENT_IN_GROUP: "{} inside a group",
    steps.BEGIN_IN_TRANSACTION: "a transaction begins inside another one",
    steps.END_OUTSIDE_TRANSACTION: "{} outside a transaction",
}


class TransactionGroups(msgspec.Struct):
    """State of the open group.

    `group`: as in `steps`. `fault`: the nesting rule that the last event broke, in words; None for none.
    """

    group: int = NO_GROUP
    fault: str | None = msgspec.field(default=None)
    _last_step: int = 0

    @property
    def is_open(self) -> bool:
        """True if a group is open."""
        return self.group != NO_GROUP

    @property
    def is_begun(self) -> bool:
        """True if a transaction is open, up to its commit."""
        return self.group == BEGUN

    @property
    def has_begun_now(self) -> bool:
        """True if a transaction began with the last event, even if the previous one has no end."""
        return steps.is_transaction_begin(self._last_step)

    def add_event(self, code: int, body: bytes | memoryview) -> GroupStep:
        """Follow the next event.

        Args:
            body: its bytes without header and checksum.
        """
        mark = _event_mark(code, body)
        result = self._last_step = STEP_TABLE[mark << 2 | self.group]
        self.group = result & GROUP_BITS
        self.fault = None if result >> FAULT_AT == NO_FAULT else _describe_fault(result >> FAULT_AT, code, mark)
        return _STEPS[result >> STEP_AT & steps.STEP_BITS]

    def reset(self) -> None:
        """Forget the open group: a part of the log was skipped."""
        self.group = NO_GROUP


def _event_mark(code: int, body: bytes | memoryview) -> int:
    """Return the mark of an event."""
    if code in QUERY_EVENTS:
        return STATEMENT + get_query_kind(code, body)
    trait = _TRAITS[code]
    if trait & IS_ROWS or code == EventType.GTID:
        return get_mark(trait, WORD_TABLE, body, 0, len(body))
    return trait & MARK_MASK


def _describe_fault(fault: int, code: int, mark: int) -> str:
    """Return the message for a broken nesting rule."""
    name = EventType(code).name if mark < STATEMENT else QueryKind(mark - STATEMENT).name
    return _FAULT_MESSAGES[fault].format(name)
