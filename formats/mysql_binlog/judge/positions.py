"""Rules about end_log_pos: every event contains the position of its end.

Source: docs/spec/mysql-mariadb-binlog.md#2-common-header-19-bytes-v.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import GTIDS, EventType
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.formats.mysql_binlog.judge import folds

_MODULO = 1 << 32


class _Doubt(NamedTuple):
    """Event whose position differs from its end by a new `shift`."""

    event: Event
    shift: int


class Positions:
    """Finds places where bytes were inserted or removed: after them all positions differ by one number.

    A difference counts when the next event that has a position confirms it; a single one is a damaged field.
    """

    def __init__(self, state: Any, mode: int, origin: int) -> None:
        self._state = state
        self._doubt: _Doubt | None = None
        self._zero: Event | None = None
        self._zeros = 0
        self._fell: tuple[Event, Fault] | None = None
        self._falls = 0
        state[folds.POSITIONS] = mode
        state[folds.SHIFT] = -origin % _MODULO
        self._origin = origin

    def unchain(self) -> None:
        """Note that the file is a relay log."""
        self._state[folds.POSITIONS] = folds.UNCHAINED
        self._doubt = None

    def doubts(self, event: Event) -> bool:
        """Return whether something seems wrong at this event, though it is not reported yet."""
        return self._doubt is not None and self._doubt.event.start == event.start

    def check(self, event: Event) -> Iterator[tuple[Event, Fault]]:
        """Yield what is now known to be wrong, with its event."""
        state = self._state
        if state[folds.POSITIONS] == folds.UNCHAINED:
            self._rising(event)
        elif event.position == 0:
            self._note_zero(event)
        else:
            shift = (event.position - event.end) % _MODULO
            doubt, self._doubt = self._doubt, None
            if doubt is not None and shift == doubt.shift:
                yield doubt.event, self._shifted(doubt)
                state[folds.SHIFT] = shift
            elif doubt is not None:
                yield doubt.event, self._alone(doubt, "the events around it are right")
            if shift != state[folds.SHIFT] and self._excerpt(event, shift) and not state[folds.DEEP]:
                yield event, self._shifted(_Doubt(event, shift))
                state[folds.SHIFT] = shift
            elif shift != state[folds.SHIFT]:
                self._doubt = _Doubt(event, shift)

    def _excerpt(self, event: Event, shift: int) -> bool:
        """Return whether the first event after FORMAT_DESCRIPTION begins a transaction from further back in its log."""
        removed = 0 < (shift - self._state[folds.SHIFT]) % _MODULO < _MODULO // 2
        return event.record == 1 and removed and _not_the_first(event)

    def flush(self) -> Iterator[tuple[Event, Fault]]:
        """Yield the unconfirmed difference before damage: it cannot be confirmed any more."""
        doubt, self._doubt = self._doubt, None
        if doubt is not None:
            yield doubt.event, self._alone(doubt, "event_size or end_log_pos is wrong")

    def end(self) -> Iterator[tuple[Event, Fault]]:
        """Yield what only the end of the file shows."""
        doubt, self._doubt = self._doubt, None
        if doubt is not None:
            yield doubt.event, self._shifted(doubt)
        if self._fell is not None:
            event, fault = self._fell
            count = f"; {self._falls:,} events like this" if self._falls > 1 else ""
            yield event, fault._replace(text=fault.text + count, facts={"events": self._falls})
        if self._zero is not None:
            count = f"; {self._zeros:,} events like this" if self._zeros > 1 else ""
            text = f"end_log_pos is 0, this server writes the true position{count}"
            yield self._zero, Fault("bad-header", text, "zero-position", Severity.WARNING, {"events": self._zeros})

    def _note_zero(self, event: Event) -> None:
        """Note a zero position."""
        if self._state[folds.POSITIONS] == folds.CHAINED and event.end % _MODULO != self._origin:
            self._zero = self._zero or event
            self._zeros += 1

    def _rising(self, event: Event) -> None:
        """Check that positions of a relay log rise within each source file; MySQL 5.0 has none inside of
        transactions.
        """
        last = self._state[folds.LAST_POSITION]
        if event.code in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
            self._state[folds.LAST_POSITION] = 0
            return
        if event.position:
            self._state[folds.LAST_POSITION] = event.position
        if 0 < event.position < last and last - event.position < _MODULO // 2:
            self._falls += 1
            text = f"end_log_pos of the source falls from {last:#x} to {event.position:#x}"
            fault = Fault("sequence-regression", text, "source-position-falls", Severity.WARNING)
            self._fell = self._fell or (event, fault)

    def _shifted(self, doubt: _Doubt) -> Fault:
        """Return the fault of inserted or removed bytes."""
        event = doubt.event
        change = (doubt.shift - self._state[folds.SHIFT]) % _MODULO
        removed = change < _MODULO // 2
        size = change if removed else _MODULO - change
        what = "missing" if removed else "too many"
        text = (
            f"{size:,} bytes are {what} in front of here: end_log_pos says {event.position:#x}, "
            f"the event ends at {event.end - self._origin:#x}"
        )
        facts = {"bytes": size, "change": "removed" if removed else "inserted"}
        if self._excerpt(event, doubt.shift):
            return Fault("gap-in-sequence", f"an excerpt of a log: {text}", "excerpt", Severity.NOTE, facts)
        if removed:
            return Fault("gap-in-sequence", text, "bytes-removed", None, facts)
        return Fault("sequence-regression", text, "bytes-inserted", None, facts)

    def _alone(self, doubt: _Doubt, why: str) -> Fault:
        """Return the fault of a single wrong position."""
        event = doubt.event
        expected = (event.end + self._state[folds.SHIFT]) % _MODULO
        text = f"end_log_pos is {event.position:#x}, expected {expected:#x}: {why}"
        return Fault("bad-header", text, "end-log-pos", None, {"field": "end_log_pos", "expected": expected})


def _not_the_first(event: Event) -> bool:
    """Return whether this GTID has transactions before it; MariaDB does not number them, so there any GTID has."""
    if event.code not in GTIDS:
        return False
    try:
        number = decoded(event.code, event.body, None).get("sequence_number")
    except (MalformedError, CodecError):
        return False
    return event.code == EventType.GTID or (number is not None and number > 1)
