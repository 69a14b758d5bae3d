"""Rules about end_log_pos: every event contains the position of its end.

Source: docs/spec/mysql_binlog.md#common-header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import GTID_EVENTS, EventType
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.events.event import Event, EventFault
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError
from binlogtool.formats.mysql_binlog.judge import folds

_MODULO = 1 << 32


class _UnconfirmedShift(NamedTuple):
    """Event whose position differs from its end by a new `shift`."""

    event: Event
    shift: int


class PositionRules:
    """Finds places where bytes were inserted or removed: after them all positions differ by one number.

    A difference counts when the next event that has a position confirms it; a single one is a damaged field.
    """

    def __init__(self, state: Any, mode: int, origin: int) -> None:
        self._state = state
        self._unconfirmed: _UnconfirmedShift | None = None
        self._first_zero: Event | None = None
        self._zero_count = 0
        self._first_decrease: tuple[Event, EventFault] | None = None
        self._decrease_count = 0
        state[folds.POSITION_MODE] = mode
        state[folds.POSITION_SHIFT] = -origin % _MODULO
        self._origin = origin

    def set_relay(self) -> None:
        """Note that the file is a relay log."""
        self._state[folds.POSITION_MODE] = folds.UNCHAINED
        self._unconfirmed = None

    def is_unconfirmed(self, event: Event) -> bool:
        """Return whether something seems wrong at this event, though it is not reported yet."""
        return self._unconfirmed is not None and self._unconfirmed.event.start == event.start

    def check_event(self, event: Event) -> Iterator[tuple[Event, EventFault]]:
        """Yield what is now known to be wrong, with its event."""
        state = self._state
        if state[folds.POSITION_MODE] == folds.UNCHAINED:
            self._check_rising(event)
        elif event.end_log_pos == 0:
            self._note_zero(event)
        else:
            shift = (event.end_log_pos - event.end) % _MODULO
            unconfirmed, self._unconfirmed = self._unconfirmed, None
            if unconfirmed is not None and shift == unconfirmed.shift:
                yield unconfirmed.event, self._shift_fault(unconfirmed)
                state[folds.POSITION_SHIFT] = shift
            elif unconfirmed is not None:
                yield unconfirmed.event, self._field_fault(unconfirmed, "the events around it are right")
            if (
                shift != state[folds.POSITION_SHIFT]
                and self._is_excerpt(event, shift)
                and not state[folds.CHECK_BODIES]
            ):
                yield event, self._shift_fault(_UnconfirmedShift(event, shift))
                state[folds.POSITION_SHIFT] = shift
            elif shift != state[folds.POSITION_SHIFT]:
                self._unconfirmed = _UnconfirmedShift(event, shift)

    def _is_excerpt(self, event: Event, shift: int) -> bool:
        """Return whether the first event after FORMAT_DESCRIPTION begins a transaction from further back in its log."""
        is_removal = 0 < (shift - self._state[folds.POSITION_SHIFT]) % _MODULO < _MODULO // 2
        return event.record == 1 and is_removal and _has_predecessors(event)

    def flush(self) -> Iterator[tuple[Event, EventFault]]:
        """Yield the unconfirmed difference before damage: it cannot be confirmed any more."""
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        if unconfirmed is not None:
            yield unconfirmed.event, self._field_fault(unconfirmed, "event_size or end_log_pos is wrong")

    def finish(self) -> Iterator[tuple[Event, EventFault]]:
        """Yield what only the end of the file shows."""
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        if unconfirmed is not None:
            yield unconfirmed.event, self._shift_fault(unconfirmed)
        if self._first_decrease is not None:
            event, fault = self._first_decrease
            count = f"; {self._decrease_count:,} events like this" if self._decrease_count > 1 else ""
            yield event, fault._replace(text=fault.text + count, facts={"events": self._decrease_count})
        if self._first_zero is not None:
            count = f"; {self._zero_count:,} events like this" if self._zero_count > 1 else ""
            text = f"end_log_pos is 0, this server writes the true position{count}"
            yield (
                self._first_zero,
                EventFault("bad-header", text, "zero-position", Severity.WARNING, {"events": self._zero_count}),
            )

    def _note_zero(self, event: Event) -> None:
        """Note a zero position."""
        if self._state[folds.POSITION_MODE] == folds.CHAINED and event.end % _MODULO != self._origin:
            self._first_zero = self._first_zero or event
            self._zero_count += 1

    def _check_rising(self, event: Event) -> None:
        """Check that positions of a relay log rise within each source file; MySQL 5.0 has none inside of
        transactions.
        """
        last = self._state[folds.LAST_POSITION]
        if event.code in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
            self._state[folds.LAST_POSITION] = 0
            return
        if event.end_log_pos:
            self._state[folds.LAST_POSITION] = event.end_log_pos
        if 0 < event.end_log_pos < last and last - event.end_log_pos < _MODULO // 2:
            self._decrease_count += 1
            text = f"end_log_pos of the source falls from {last:#x} to {event.end_log_pos:#x}"
            fault = EventFault("sequence-regression", text, "source-position-falls", Severity.WARNING)
            self._first_decrease = self._first_decrease or (event, fault)

    def _shift_fault(self, unconfirmed: _UnconfirmedShift) -> EventFault:
        """Return the fault of inserted or removed bytes."""
        event = unconfirmed.event
        change = (unconfirmed.shift - self._state[folds.POSITION_SHIFT]) % _MODULO
        is_removal = change < _MODULO // 2
        size = change if is_removal else _MODULO - change
        direction = "missing" if is_removal else "too many"
        text = (
            f"{size:,} bytes are {direction} in front of here: end_log_pos says {event.end_log_pos:#x}, "
            f"the event ends at {event.end - self._origin:#x}"
        )
        facts = {"bytes": size, "change": "removed" if is_removal else "inserted"}
        if self._is_excerpt(event, unconfirmed.shift):
            return EventFault("gap-in-sequence", f"an excerpt of a log: {text}", "excerpt", Severity.NOTE, facts)
        if is_removal:
            return EventFault("gap-in-sequence", text, "bytes-removed", None, facts)
        return EventFault("sequence-regression", text, "bytes-inserted", None, facts)

    def _field_fault(self, unconfirmed: _UnconfirmedShift, reason: str) -> EventFault:
        """Return the fault of a single wrong position."""
        event = unconfirmed.event
        expected = (event.end + self._state[folds.POSITION_SHIFT]) % _MODULO
        text = f"end_log_pos is {event.end_log_pos:#x}, expected {expected:#x}: {reason}"
        return EventFault("bad-header", text, "end-log-pos", None, {"field": "end_log_pos", "expected": expected})


def _has_predecessors(event: Event) -> bool:
    """Return whether this GTID has transactions before it; MariaDB does not number them, so there any GTID has."""
    if event.code not in GTID_EVENTS:
        return False
    try:
        number = decode_body(event.code, event.body, None).get("sequence_number")
    except (MalformedError, DecompressionError):
        return False
    return event.code == EventType.GTID or (number is not None and number > 1)
